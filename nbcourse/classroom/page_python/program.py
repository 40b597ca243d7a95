"""What a page runs: the checks of a sheet and all that they need, as one text of Python.

It is made of the files that check an answer in a notebook, less their imports, and of stand-ins for
what these import; the cases are worked out here, from the master. So a message is written once.
"""

import ast
import inspect
from pprint import pformat
from textwrap import indent

from nbcourse.checks import Sheet, attempt, sheet, worked
from nbcourse.checks.sheet import Numbers
from nbcourse.classroom import worked_cases
from nbcourse.classroom.masters import Master, Solution
from nbcourse.classroom.page_python import answering, stand_ins

PARTS = (stand_ins, attempt, worked, sheet, answering)
HEAD = "import math\nfrom math import inf, nan\nAny = object\n"
VARIANT = 0  # as in the notebooks of the site
WIDTH = 80  # of the lines that a reader begins with, without what stands before them


def program(master: Master) -> str:
    """Python that defines `answer` and `SHEET`; its only import is math.

    Raises:
        UserError: as `worked_cases.exercises` does.
    """
    exercises = worked_cases.exercises(master, VARIANT, in_page=True)
    number = Sheet(master.assignment).number
    parts = [*map(inspect.getsource, PARTS), exercises]
    made = f"SHEET = InPage({number!r}, EXERCISES)\n"
    return "\n".join([HEAD, *map(shorter, parts), made])


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


def shorter(source: str) -> str:
    """The code of a module without imports, docstrings and types."""
    return ast.unparse(_Shorter().visit(ast.parse(source)))


def stubs(master: Master) -> dict[str, tuple[str, str]]:
    """What a reader begins with: exercise → the name of its function, and the function, empty."""
    sheet = Sheet(master.assignment, variant=VARIANT)
    cells = [ast.parse(step.source) for step in master.steps if isinstance(step, Solution)]
    found = {
        part.name: part for cell in cells for part in cell.body if isinstance(part, ast.FunctionDef)
    }
    return {
        exercise: (name, _stub(sheet, exercise, found[name]))
        for exercise, name in worked_cases.answer_names(master).items()
        if sheet.exercises[exercise].in_page
    }


def _stub(sheet: Sheet, exercise: str, function: ast.FunctionDef) -> str:
    numbers = sheet.exercises[exercise].numbers
    given = f"given = {_aligned(sheet.numbers(exercise))}\n\n" if numbers else ""
    names = ", ".join(argument.arg for argument in function.args.args)
    return (
        f"import math\n\n{given}\n"
        f"def {function.name}({names}):\n"
        f'    """{ast.get_docstring(function, clean=False)}"""\n'
        "    raise NotImplementedError\n"
    )


def _aligned(numbers: Numbers) -> str:
    """Numbers as they are written behind `given = `."""
    begins = " " * len("given = ")
    return indent(pformat(numbers, width=WIDTH, sort_dicts=False), begins).lstrip()
