"""What nothing in the package may lack: a module a test that imports it, a public name a docstring.

The lists of exceptions hold a reason each, and nothing that has become needless.
"""

import ast
import functools
from collections import defaultdict
from pathlib import Path

from nbcourse.tasks.table import TASKS

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "nbcourse").rglob("*.py"))
}
TESTED_OTHERWISE = {
    "nbcourse.__main__": "tests run it: python -m nbcourse",
    "nbcourse.display.examination": "`nbcourse examine --html` draws with it",
}
DESCRIBED_OTHERWISE = {"nbcourse.checks": "a check is described by its exercise"}


@functools.lru_cache(maxsize=1)  # who asks twice does so at once, and trees are large
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, wherever in the file it does so.

    What is taken from a folder counts for the module that the folder's `__init__` has it from.
    """
    found = set()
    nodes = list(ast.walk(tree(path)))
    taken = attributes(nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {alias.name for alias in node.names}
            found |= {node.module, *(f"{node.module}.{name}" for name in names)}
            found |= handed_on(node.module, names)
            for name in names:
                found |= handed_on(f"{node.module}.{name}", taken[name])
    return found & set(MODULES)


def attributes(nodes: list[ast.AST]) -> defaultdict[str, set[str]]:
    """What is taken from each name: `display.show` takes "show" from "display"."""
    taken = defaultdict(set)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            taken[node.value.id].add(node.attr)
    return taken


def handed_on(folder: str, names: set[str]) -> set[str]:
    """The modules that the `__init__` of a folder has these names from."""
    path = MODULES.get(folder)
    if path is None or path.name != "__init__.py":
        return set()
    return {module for module, its in taken_by(path) if names & its}


@functools.cache
def taken_by(init: Path) -> list[tuple[str, set[str]]]:
    """What an `__init__` imports: module by module, which names."""
    return [
        (node.module, {alias.name for alias in node.names})
        for node in tree(init).body
        if isinstance(node, ast.ImportFrom) and node.module
    ]


def in_sheets() -> set[str]:
    """The modules of checks, which `Sheet(chapter)` imports by the chapter's name."""
    return {name for name in MODULES if name.startswith("nbcourse.checks.")}


def of_tasks() -> set[str]:
    """The modules of tasks, all of which tests/tasks/test_contract.py takes from their table."""
    return {task.__module__ for task in TASKS.values()}


def of_examinations() -> set[str]:
    """The modules of examine: each has its part in every report that tests/examine reads."""
    return {name for name in MODULES if name.startswith("nbcourse.examine.")}


def of_readers() -> set[str]:
    """The pieces that readers build, which tests/builds runs as files of a reader's folder."""
    return {name for name in MODULES if name.startswith("nbcourse.builds.trainer.")}


def of_commands() -> set[str]:
    """The modules of the command line, whose commands tests call by their names."""
    return {name for name in MODULES if name.startswith("nbcourse.cli.")}


def test_every_module_has_a_test_that_imports_it():
    tested = in_sheets() | of_tasks() | of_examinations() | of_readers() | of_commands()
    tested = tested.union(*map(imported, (ROOT / "tests").rglob("*.py")))
    code = {name for name, path in MODULES.items() if tree(path).body[1:]}  # more than a docstring
    missing = code - tested - set(TESTED_OTHERWISE)
    assert not missing, f"no test imports {sorted(missing)}"
    needless = set(TESTED_OTHERWISE) & tested
    assert not needless, f"not exceptions any more: {sorted(needless)}"
    assert set(TESTED_OTHERWISE) <= code


def test_every_public_name_has_a_docstring():
    bare = [
        f"{name}.{getattr(node, 'name', '')}".rstrip(".")
        for name, path in MODULES.items()
        if not name.startswith(tuple(DESCRIBED_OTHERWISE))
        for node in [tree(path), *tree(path).body]
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and not getattr(node, "name", "").startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not bare
