"""A small master and submissions to it, made from plain text."""

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

from nbcourse.classroom import masters
from nbcourse.classroom.class_list import Student
from nbcourse.classroom.masters import Master
from nbcourse.classroom.submissions import Candidate, Submission

SOLUTIONS = {
    "double": "def double(x):\n    return 2 * x",
    "answer": "answer = 42",
    "cube": "def cube(x):\n    return x**3",
}
TESTS = {
    "double": """
assert double(3) == 6, "2 · 3 is 6"
assert double(4) == 8
### BEGIN HIDDEN TESTS
assert double(20250) == 40500
# student: negative numbers count too
assert double(-77) == -154
### END HIDDEN TESTS
""",
    "answer": 'assert answer == 42, "not the answer"',
    "cube": """
x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
cube(x).backward()
### BEGIN HIDDEN TESTS
assert x.grad == 12
### END HIDDEN TESTS
""",
}
POINTS = {"double": 2, "answer": 1, "cube": 3}


def cell(source: str, kind: str = "code", **nbgrader) -> dict:
    return {
        "cell_type": kind,
        "metadata": {"nbgrader": nbgrader} if nbgrader else {},
        "source": source,
    }


def notebook(cells: list[dict], language: str = "python") -> bytes:
    metadata = {"kernelspec": {"name": "a kernel", "language": language}}
    return json.dumps(
        {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    ).encode()


def solved(**answers: str) -> list[dict]:
    """The master's cells, with other answers in place of the right ones."""
    cells = [cell("import torch", grade_id="imports", locked=True)]
    for name, right in SOLUTIONS.items():
        cells.append(cell(answers.get(name, right), grade_id=name, solution=True))
        test = cell(TESTS[name], grade_id=f"{name}-check", grade=True, points=POINTS[name])
        cells.append(test)
    return cells


def master(folder: Path) -> Master:
    path = folder / "01-fake.ipynb"
    path.write_bytes(notebook(solved()))
    return masters.load_master(path)


def submission(folder: Path, content: bytes, student: str = "ada") -> Submission:
    path = folder / student / "01-fake.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Submission(student, student, notebook=Candidate(path))


def listed(handed_in: Submission) -> Submission:
    """The same, by a student of the class list."""
    return replace(handed_in, owner=Student(handed_in.student, "", "", False, ()))


def zipped(**members: bytes) -> bytes:
    """An archive of files, by their names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()
