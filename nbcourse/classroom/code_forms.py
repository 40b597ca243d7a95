"""What code computes, in forms that do not depend on names, layout, comments or order of lines.

Each statement has one form: its syntax tree, in which every name that is not Python's own is
numbered by where it first stands in the statement. Types, docstrings, imports and the names of
functions are gone. `x = f(y)`, `return f(y)` and `f(y)` have one form, what is computed; `x += y`
has that of `x = x + y`; a loop has that of its first line, and those of its body beside it. Numbers
and texts are kept, since they tell programs apart; 2 and 2.0 are one number.
"""

import ast
import builtins
import functools
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

PYTHONS_OWN = frozenset(dir(builtins))
PROMPT = re.compile(r"^(?:>>>|\.\.\.|In \[\d*\]:)[ ]?", re.MULTILINE)
FENCE = re.compile(r"^[ \t]*(?:```|:::).*\n(?::\w[\w-]*:.*\n)*", re.MULTILINE)  # with its options
EMPTY_LINES = re.compile(r"\n\s*\n")
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
IGNORED = {"annotation", "type_comment", "kind", "ctx"}
NOTHING = (
    *(ast.Pass, ast.Import, ast.ImportFrom, ast.Try),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
SMALLEST = 5  # nodes; smaller forms stand in any program
Forms = dict[str, int]  # form → how many nodes its tree has


@functools.lru_cache(maxsize=4096)
def pieces(code: str) -> tuple[Forms, ...]:
    """The forms of each function in a text, and of what stands outside of all functions.

    What is no Python is left out, paragraph by paragraph; texts of several lines in the code are
    read as code too.

    Args:
        code: a file, a cell, or a page's listing; prompts of an interpreter are taken off.
    """
    found: list[Forms] = []
    for tree in _trees(code):
        texts: list[str] = []
        scopes: list[list[ast.stmt]] = [tree.body]
        for body in scopes:  # which grows by the functions that are found in it
            inside, functions = _statements(body, whole=body is not tree.body)
            scopes += functions
            found.append(_together(inside, texts))
        found += [forms for text in texts if len(text) < len(code) for forms in pieces(text)]
    return tuple(filter(None, found))


def statements(code: str, first: int, last: int) -> Forms:
    """The forms of the statements that begin in these lines of a text, counted from 1.

    Raises:
        SyntaxError: if the text is not Python.
    """
    inside = (n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.stmt))
    return _together((node for node in inside if first <= node.lineno <= last), [])


def _trees(code: str) -> Iterator[ast.Module]:
    """The whole text, or else what stands in its fences, or else its paragraphs."""
    text = textwrap.dedent(PROMPT.sub("", code))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of texts that are not meant to be Python
            yield ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        for between in (FENCE, EMPTY_LINES):
            if len(parts := between.split(text)) > 1:
                for part in parts:
                    yield from _trees(part)
                return


def _statements(
    body: list[ast.stmt], *, whole: bool
) -> tuple[list[ast.stmt], list[list[ast.stmt]]]:
    """The statements of a scope, and the bodies of its functions, which are in it if `whole`."""
    waiting: list[Any] = list(body)
    inside, functions = [], []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            functions.append(node.body)
            if not whole:
                continue
        if isinstance(node, ast.stmt):
            inside.append(node)
        for name in BODIES:
            if isinstance(part := getattr(node, name, None), list):
                waiting += part
    return inside, functions


def _together(nodes: Iterable[ast.stmt], texts: list[str]) -> Forms:
    """The forms of statements; long texts that stand in them are added to `texts`."""
    found: Forms = {}
    for node in nodes:
        if (computed := _computed(node, texts)) is not None:
            form = _Form(texts)
            text = form.of(computed)
            if form.size >= SMALLEST:
                found[text] = form.size
    return found


def _computed(node: ast.stmt, texts: list[str]) -> ast.AST | None:
    """What a statement computes; None if nothing."""
    if isinstance(node, NOTHING):
        return None
    match node:
        case ast.Expr(value=ast.Constant(value=str() as docstring)):
            texts += [docstring] if "\n" in docstring else []
            return None
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return None
        case ast.Assign(targets=[ast.Name()], value=value) | ast.Expr(value=value):
            return value
        case ast.Return(value=value) | ast.AnnAssign(target=ast.Name(), value=value):
            return value
        case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
            return ast.BinOp(target, op, value)
    return node


class _Form:
    """The form of one statement, while it is being written."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.names: dict[str, str] = {}
        self.size = 0

    def of(self, node: Any) -> str:
        if isinstance(node, list):
            return f"[{','.join(map(self.of, node))}]"
        if not isinstance(node, ast.AST):
            return "" if node is None else repr(node)
        if isinstance(node, ast.operator | ast.cmpop | ast.unaryop | ast.boolop):
            return type(node).__name__
        self.size += 1
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            known = name in PYTHONS_OWN and name not in self.names
            return name if known else self.names.setdefault(name, f"v{len(self.names)}")
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        left_out = IGNORED if isinstance(node, ast.expr) else IGNORED.union(BODIES)
        parts = [
            self.of(getattr(node, field, None)) for field in node._fields if field not in left_out
        ]
        return f"{type(node).__name__}({','.join(parts)})"

    def _constant(self, value: Any) -> str:
        if isinstance(value, str) and "\n" in value.strip():
            self.texts.append(value)
        if type(value) is int and abs(value) < 2**53:
            return repr(float(value))
        return repr(value)
