"""nbgrader's own tools accept the masters: they make the same student notebook, and grade it."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from nbcourse.classroom.exercises import STUB
from nbcourse.classroom.masters import load_master
from nbcourse.publishing import stored
from nbcourse.publishing.chapters import ROOT
from tests.checks import masters

pytestmark = [
    masters.needed,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # its own, about its database
]
NAME = "02-sequences"
MASTER = ROOT / "solutions" / f"{NAME}.ipynb"
STUDENTS = ROOT / "book" / "exercises" / f"{NAME}.ipynb"


@pytest.fixture(scope="module")
def activated():
    """This environment's programs on the path: nbgrader calls one of them, alembic, by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def course(activated, tmp_path_factory):
    """A course of nbgrader with one assignment released, and a student's work.

    The first exercise is as it was given out; all others are solved.
    """
    folder = tmp_path_factory.mktemp("course")
    (folder / "source" / NAME).mkdir(parents=True)
    shutil.copy(MASTER, folder / "source" / NAME)
    config = Config()
    config.CourseDirectory.root = str(folder)
    config.CourseDirectory.db_url = f"sqlite:///{folder}/gradebook.db"
    config.ClearSolutions.code_stub = {"python": STUB}
    api = NbGraderAPI(config=config)
    made = api.generate_assignment(NAME)
    assert made["success"], made["log"]
    right, work = stored.read(MASTER), stored.read(STUDENTS)
    for cell, solved in zip(work.cells[10:], right.cells[10:], strict=True):
        cell.source = solved.source
    (folder / "submitted" / "eve" / NAME).mkdir(parents=True)
    stored.write(work, folder / "submitted" / "eve" / NAME / f"{NAME}.ipynb")
    graded = api.autograde(NAME, "eve")
    assert graded["success"], graded["log"]
    return folder


def test_its_student_notebook_is_ours(course):
    theirs = stored.tidy(stored.read(course / "release" / NAME / f"{NAME}.ipynb"))
    ours = stored.read(STUDENTS)
    assert [cell.source for cell in theirs.cells] == [cell.source for cell in ours.cells]
    assert [cell.metadata.get("nbgrader") for cell in theirs.cells] == [
        cell.metadata.get("nbgrader") for cell in ours.cells
    ]


def test_its_grades_are_the_points_of_what_is_right(course):
    master = load_master(MASTER)
    points = [exercise.points for exercise in master.exercises]
    waiting = sum(exercise.points for exercise in master.written)  # for a person
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        scores = {s.student_id: s.score for s in gradebook.assignment_submissions(NAME)}
        assert gradebook.find_assignment(NAME).max_score == sum(points)
    assert scores == {"eve": sum(points[1:]) - waiting}
