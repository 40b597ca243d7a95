"""What a page runs, as two texts of Python: what all pages share, and the checks of one sheet.

Both are made of the files that check an answer in a notebook, less their types and docstrings, with
the small torch of `arrays` and stand-ins for what else they import. A check draws the same numbers
as in the notebook: they were drawn here, and stand in the page.
"""

import ast
import inspect
from collections.abc import Callable, Collection, Iterator
from pprint import pformat
from textwrap import indent
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from nbcourse.checks import Sheet, attempt, sheet
from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Numbers
from nbcourse.classroom import worked_cases
from nbcourse.classroom.masters import STUB, Given, Master, Solution
from nbcourse.classroom.page_python import answering, stand_ins
from nbcourse.classroom.page_python.arrays import (
    arithmetic,
    dtypes,
    layout,
    reductions,
    shapes,
    storage,
    tape,
    tensor,
)

ARRAYS = (dtypes, tape, layout, storage, arithmetic, reductions, shapes, tensor)
PARTS = (stand_ins, *ARRAYS, attempt, sheet, answering)
SHARED = "shared"  # the name of the module that all pages share
PLAIN = ("math",)  # what a page has of the standard library: the rest takes seconds to load
HEAD = "import math\nAny = object\n"
VARIANT = 0  # as in the notebooks of the site
WIDTH = 80  # of the lines that a reader begins with, without what stands before them


def shared() -> str:
    """Python that defines `torch`, `answer` and all that checks import; it imports math alone."""
    return "\n".join([HEAD, *[shorter(inspect.getsource(part)) for part in PARTS]])


def program(master: Master, exercises: Collection[str]) -> str:
    """Python that defines the `SHEET` of a page, with the numbers that its checks draw.

    Args:
        master: of the sheet.
        exercises: those in the page.
    """
    names = worked_cases.worked_out(master, VARIANT)
    asked, answers = names["sheet"], worked_cases.answer_names(master)
    room = inspect.getmodule(next(iter(asked.exercises.values())).check)
    assert room is not None
    drawn = ", ".join(
        f"{name!r}: [{', '.join(numbers(asked, name, names[answers[name]]))}]" for name in exercises
    )
    made = f"SHEET = InPage({asked.number!r}, EXERCISES, {{{drawn}}})\n"
    checks = shorter(_only(inspect.getsource(room), exercises), SHARED)
    return f"{checks}\nfrom {SHARED} import InPage\n{made}"


def _only(source: str, exercises: Collection[str]) -> str:
    """The source of a module of checks, with these exercises and what they need alone."""
    tree = ast.parse(source)
    checks = [name.replace("-", "_") for name in exercises]
    tree.body = worked_cases.needed(tree, checks)
    return ast.unparse(tree)


class _Shorter(ast.NodeTransformer):
    """Takes away what only readers of the code need: imports, docstrings, types."""

    def visit_Import(self, node: ast.Import) -> None:
        """Dropped: what a module imports is defined in the same program."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Likewise."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return (
            ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else None
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """With its fields as arguments, where it has some: a dataclass written out."""
        if node.decorator_list:
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            names = [ast.unparse(field.target) for field in fields]
            values = [f"={ast.unparse(f.value)}" if f.value else "" for f in fields]
            given = ", ".join(map("".join, zip(names, values, strict=True)))
            kept = "".join(f"    self.{name} = {name}\n" for name in names)
            written = ast.parse(f"def __init__(self, {given}):\n{kept}").body
            node.body = [*written, *(part for part in node.body if part not in fields)]
            node.decorator_list = []
        return self.generic_visit(node)


def shorter(source: str, home: str | None = None) -> str:
    """The code of a module without docstrings and types.

    Args:
        source: of the module.
        home: the module from which what it imports and still needs is imported instead; None
            imports nothing.
    """
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    code = _Shorter().visit(tree)
    lines = _imports(imports, code, home) if home else []
    return "\n".join([*lines, ast.unparse(code)])


def _imports(nodes: list[Any], code: ast.AST, home: str) -> Iterator[str]:
    needed = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    for node in nodes:
        for alias in node.names:
            name = alias.asname or alias.name
            if name not in needed:
                continue
            if isinstance(node, ast.Import) and name in PLAIN:
                yield f"import {name}"
            else:
                plain = isinstance(node, ast.ImportFrom) and node.module in PLAIN
                yield f"from {node.module if plain else home} import {ast.unparse(alias)}"


class _Draws(TorchFunctionMode):
    """Notes what is drawn from a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if kwargs and "generator" in kwargs:
            digits = 9 if result.dtype is torch.float32 else 17
            values = [
                float(f"{value:.{digits}g}") if isinstance(value, float) else value
                for value in result.flatten().tolist()
            ]
            said = (function.__name__, values, tuple(result.shape), str(result.dtype))
            self.drawn.append(repr(said))
        return result


def numbers(asked: Sheet, exercise: str, solution: Callable[..., Any]) -> list[str]:
    """What the check of an exercise draws, call by call, as Python."""
    with _Draws() as draws:
        asked.exercises[exercise].check(Attempt(solution), asked._generator(exercise))
    return draws.drawn


def stubs(master: Master) -> dict[str, tuple[str, str]]:
    """What a reader begins with: exercise → the name of its function, and the function, empty."""
    asked = Sheet(master.assignment, variant=VARIANT)
    return {
        exercise: (name, _stub(master, asked, exercise, name))
        for exercise, name in worked_cases.answer_names(master).items()
        if not asked.exercises[exercise].elsewhere
    }


def elsewhere(master: Master) -> dict[str, str]:
    """The exercises that a page does not offer: why not."""
    exercises = Sheet(master.assignment, variant=VARIANT).exercises
    return {name: exercise.elsewhere for name, exercise in exercises.items() if exercise.elsewhere}


def _stub(master: Master, asked: Sheet, exercise: str, name: str) -> str:
    step = next(s for s in master.steps if isinstance(s, Solution) and name in s.functions)
    imports = "\n".join(dict.fromkeys([*_first_imports(master), *step.imports.splitlines()]))
    numbers = asked.exercises[exercise].numbers
    given = f"given = {_aligned(asked.numbers(exercise))}\n\n" if numbers else ""
    (function,) = (
        part
        for part in ast.parse(step.source).body
        if isinstance(part, ast.FunctionDef) and part.name == name
    )
    head = step.source.splitlines()[function.lineno - 1 : function.body[0].end_lineno]
    return f"{imports}\n\n{given}\n" + "\n".join([*head, f"    {STUB}"]) + "\n"


def _first_imports(master: Master) -> list[str]:
    """What the sheet imports at its beginning, and a page has."""
    first = next(step for step in master.steps if isinstance(step, Given))
    return [
        ast.unparse(node)
        for node in ast.parse(first.source).body
        if (isinstance(node, ast.Import) and node.names[0].name in (*PLAIN, "torch"))
        or (isinstance(node, ast.ImportFrom) and node.module in (*PLAIN, "torch"))
    ]


def _aligned(numbers: Numbers) -> str:
    """Numbers as they are written behind `given = `."""
    begins = " " * len("given = ")
    return indent(pformat(numbers, width=WIDTH, sort_dicts=False), begins).lstrip()
