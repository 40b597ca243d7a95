"""What tests of the house ask of a file of Python; each is parsed once for all of them."""

import ast
import functools
import gc
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = sorted((ROOT / "nbcourse").rglob("*.py"))
Taken = list[tuple[str, set[str]]]


@dataclass(frozen=True)
class Source:
    """What a file says, without its tree: the trees of all files are large.

    Args:
        imports: the names of `import …`, wherever they stand.
        taken: module by module, the names of `from … import …`, wherever they stand.
        taken_at_top: those that stand at the top of the file.
        attributes: what is taken from each name: `display.show` takes "show" from "display".
        has_code: whether there is more than a docstring.
        bare: the public functions and classes without a docstring; "" is the file itself.
        functions: each function's name, and how many lines it has.
    """

    imports: set[str]
    taken: Taken
    taken_at_top: Taken
    attributes: defaultdict[str, set[str]]
    has_code: bool
    bare: list[str]
    functions: list[tuple[str, int]]


@functools.cache
def source(path: Path) -> Source:
    """What is in a file."""
    collects = gc.isenabled()
    gc.disable()  # a tree has no cycles; looking for some would take a third of the time
    try:
        return _source(ast.parse(path.read_text(encoding="utf-8")))
    finally:
        if collects:
            gc.enable()


def _source(tree: ast.Module) -> Source:
    imports: set[str] = set()
    attributes: defaultdict[str, set[str]] = defaultdict(set)
    functions, origins = [], []
    for node in ast.walk(tree):
        kind = type(node)
        if kind is ast.Attribute and type(node.value) is ast.Name:
            attributes[node.value.id].add(node.attr)
        elif kind is ast.Import:
            imports |= {alias.name for alias in node.names}
        elif kind is ast.ImportFrom:
            origins.append(node)
        elif kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            functions.append((node.name, node.end_lineno - node.lineno + 1))
    return Source(
        imports,
        _taken(origins),
        _taken([node for node in tree.body if isinstance(node, ast.ImportFrom)]),
        attributes,
        bool(tree.body[1:]),
        _bare(tree),
        functions,
    )


def _taken(nodes: list[ast.ImportFrom]) -> Taken:
    own = [node for node in nodes if node.module and not node.level]
    return [(node.module, {alias.name for alias in node.names}) for node in own]


def _bare(tree: ast.Module) -> list[str]:
    return [
        getattr(node, "name", "")
        for node in [tree, *tree.body]
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and not getattr(node, "name", "").startswith("_")
        and not ast.get_docstring(node)
    ]
