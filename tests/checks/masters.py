"""The masters as the tests see them: cells, solutions and stubs, ready to be run."""

import re
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

from nbcourse.checks import Sheet
from nbcourse.classroom.leaks import REGION, Secrets
from nbcourse.classroom.leaks import secrets as secrets_of  # whatever tests put in its place
from nbcourse.publishing.chapters import ROOT

MASTERS = sorted(path.stem for path in (ROOT / "solutions").glob("*.ipynb"))
# A class may read a copy of the book whose masters are elsewhere.
needed = pytest.mark.skipif(not MASTERS, reason="there are no masters in solutions/")


@cache
def secrets() -> Secrets:
    """What no release of the book may hold, which takes seconds to find."""
    return secrets_of(ROOT)


@cache
def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def master(chapter: str) -> NotebookNode:
    return read(ROOT / "solutions" / f"{chapter}.ipynb")


def student(chapter: str) -> NotebookNode:
    return read(ROOT / "book" / "exercises" / f"{chapter}.ipynb")


def grader(cell: NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("nbgrader", {})


def exercises(chapter: str) -> list[str]:
    """The ids of a sheet's exercises, in its order."""
    return list(Sheet(chapter).exercises)


EVERY_EXERCISE = [(chapter, name) for chapter in MASTERS for name in exercises(chapter)]


def work(notebook: NotebookNode, *, variant: int) -> dict[str, Any]:
    """What is defined once every cell but the checks has run, as in a student's kernel."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code" and not grader(cell).get("grade"):
            source = cell.source.replace("variant=0", f"variant={variant}")
            exec(_compiled(source, f"<cell {cell.id}>"), namespace)
    return namespace


@cache
def _compiled(source: str, name: str) -> CodeType:
    return compile(source, name, "exec")


def check_cell(notebook: NotebookNode, exercise: str) -> str:
    (cell,) = (c for c in notebook.cells if grader(c).get("grade_id") == f"{exercise}-check")
    return cell.source


def answer_name(chapter: str, exercise: str) -> str:
    """The name of the function that the check of an exercise is called with."""
    called = re.search(
        rf'sheet\.check\("{exercise}", (\w+)\)', check_cell(master(chapter), exercise)
    )
    assert called, f"the check cell of {exercise} calls sheet.check with something else"
    return called.group(1)


def statement(chapter: str, exercise: str) -> str:
    """The markdown of an exercise, from its heading to its check."""
    text = "\n\n".join(
        cell.source for cell in master(chapter).cells if cell.cell_type == "markdown"
    )
    parts = re.split(r"(?m)^## ", text)
    (part,) = (part for part in parts if f"\n`{exercise}` · " in part)
    return part


def regions(source: str) -> list[str]:
    """The lines of a cell that students must not see, without blank ones."""
    found = (region.group(2) for region in REGION.finditer(source))
    return [line.strip() for text in found for line in text.splitlines() if line.strip()]
