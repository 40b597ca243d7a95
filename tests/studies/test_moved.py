"""A command in an old record leads to the study that made it, by the table of `book/runs`."""

import re

import pytest

from nbcourse.experiments import records
from nbcourse.repository import ROOT

ROW = re.compile(
    r"^\| `((?:nbcourse|book)\.\w+\.\w+)(?: pairs)?` \| `(book\.studies\.\w+)` \| `([\w-]+)` \|$",
    re.M,
)
MOVED = ROW.findall((records.RUNS / "README.md").read_text(encoding="utf-8"))
COMMAND = re.compile(r"python -m (nbcourse\.\w+\.\w+)")
MADE = {
    path.relative_to(records.RUNS).parts[0]: path.read_text(encoding="utf-8")
    for path in records.RUNS.rglob(records.ENVIRONMENT)
}
COMMANDS = {name: found[1] for name, made in MADE.items() if (found := COMMAND.search(made))}
UNTRIED = {"speedrun"}  # for want of a GPU: a first entry takes it out of here
CALLED = set(re.findall(r"book\.studies\.(\w+)", " ".join(MADE.values())))


@pytest.mark.parametrize("folder", sorted(COMMANDS))
def test_what_a_recorded_command_calls_is_in_the_table(folder):
    assert folder in [where for old, _, where in MOVED if old == COMMANDS[folder]]


def test_all_studies_that_moved_are_where_the_table_says():
    there = (ROOT / "book" / "studies").glob("[a-z]*.py")
    files = {path.stem for path in there if f"book.studies.{path.stem} " in path.read_text("utf-8")}
    moved = {new.rpartition(".")[2] for _, new, _ in MOVED}
    assert files - moved == (CALLED & files) - moved | UNTRIED  # began here: a record says so
    assert not UNTRIED & CALLED
    # What has no command of its own serves other studies.
    assert moved < files
