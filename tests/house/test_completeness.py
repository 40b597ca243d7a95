"""What nothing in the package may lack: a module a test that imports it, a public name a docstring.

The lists of exceptions hold a reason each, and nothing that has become needless.
"""

from pathlib import Path

from nbcourse.tasks.table import TASKS
from tests.house.sources import PACKAGE, ROOT, source

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE
}
TESTED_OTHERWISE = {
    "nbcourse.__main__": "tests run it: python -m nbcourse",
    "nbcourse.publishing.jupyter_book": "each build of the site runs it",
    "nbcourse.display.examination": "`nbcourse examine --html` draws with it",
}
DESCRIBED_OTHERWISE = {"nbcourse.checks": "a check is described by its exercise"}


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports, wherever in the file it does so.

    What is taken from a folder counts for the module that the folder's `__init__` has it from.
    """
    file = source(path)
    found = set(file.imports)
    for module, names in file.taken:
        found |= {module, *(f"{module}.{name}" for name in names)}
        found |= handed_on(module, names)
        for name in names:
            found |= handed_on(f"{module}.{name}", file.attributes.get(name, set()))
    return found & set(MODULES)


def handed_on(folder: str, names: set[str]) -> set[str]:
    """The modules that the `__init__` of a folder has these names from."""
    path = MODULES.get(folder)
    if path is None or path.name != "__init__.py":
        return set()
    return {module for module, its in source(path).taken_at_top if names & its}


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
    code = {name for name, path in MODULES.items() if source(path).has_code}
    missing = code - tested - set(TESTED_OTHERWISE)
    assert not missing, f"no test imports {sorted(missing)}"
    needless = set(TESTED_OTHERWISE) & tested
    assert not needless, f"not exceptions any more: {sorted(needless)}"
    assert set(TESTED_OTHERWISE) <= code


def test_every_public_name_has_a_docstring():
    bare = [
        f"{module}.{name}".rstrip(".")
        for module, path in MODULES.items()
        if not module.startswith(tuple(DESCRIBED_OTHERWISE))
        for name in source(path).bare
    ]
    assert not bare
