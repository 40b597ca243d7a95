"""Invented classes, from the release to the gradebook, by the documented commands."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import Result

from nbcourse.classroom import leaks
from nbcourse.classroom.class_list import Platform
from nbcourse.confined import sandbox
from tests.checks import masters
from tests.command import invoke

from . import rehearsal, two_classes

pytestmark = [
    masters.needed,
    pytest.mark.slow,
    pytest.mark.skipif(bool(sandbox.missing()), reason="no submission can be confined here"),
]


# For each call. Little, for one of them never ends; where the machine is too busy for the others,
# everything gets more.
SECONDS = (1, 10, 60)


def grade(folder: Path, seconds: int) -> Result:
    return invoke(
        "grade", folder / "submissions", "--assignment", "2", "--personal", "--class-list",
        folder / "class.csv", "--out", folder / "graded", "--seconds", seconds, "--jobs", "2",
    )  # fmt: skip


@pytest.fixture(scope="module")
def rehearsed(zygote, tmp_path_factory):
    """The folder of the class, graded, and the seconds that its calls had."""
    folder = tmp_path_factory.mktemp("class")
    rehearsal.write(folder)
    for seconds in SECONDS:
        run = grade(folder, seconds)
        if run.exit_code == 0 and states(folder / "graded").count("out of time") == 1:
            break
    assert run.exit_code == 0, run.output
    return folder, seconds


@pytest.fixture(scope="module")
def graded(rehearsed):
    return rehearsed[0] / "graded"


def states(graded: Path) -> list[str]:
    """What became of each exercise of each student."""
    stored = [json.loads(path.read_text()) for path in (graded / "results").iterdir()]
    return [verdict["state"] for one in stored for verdict in one["verdicts"]]


def test_everyone_gets_what_the_work_deserves(graded):
    with (graded / "grades.csv").open(newline="") as file:
        points = {row["student"]: float(row["points"]) for row in csv.DictReader(file)}
    assert points == {student: rehearsal.points_of(student) for student in rehearsal.CLASS}
    assert len(set(points.values())) > 5


@pytest.mark.parametrize(
    ("student", "exercise", "state"),
    [
        ("donald", "length-bias", "not attempted"),
        ("hedy", "by-hand", "failed"),
        ("margaret", "length-bias", "error"),
        ("niklaus", "mend-the-groups", "error"),
        ("radia", "mend-the-groups", "out of time"),
        ("shafi", "mend-the-groups", "out of memory"),
        ("tim", "by-hand", "ended itself"),
        ("ursula", "mend-the-groups", "no plain data"),
        ("vint", "by-hand", "error"),
        ("whitfield", "mend-the-groups", "error"),
    ],
)
def test_a_state_says_what_happened(graded, student, exercise, state):
    result = json.loads((graded / "results" / f"{student}.json").read_text())
    exercises = {v["exercise"].removesuffix("-check"): v for v in result["verdicts"]}
    assert exercises[exercise]["state"] == state
    assert exercises[exercise]["feedback"]


def test_the_pages_name_mistakes_and_show_no_hidden_test(graded):
    john = (graded / "feedback" / "john.html").read_text()
    assert "that is the mean of the whole batch" in john
    leslie = (graded / "feedback" / "leslie.html").read_text()
    assert "rewards [3, 1, 5]" in leslie  # the example alone is not enough
    for_students = [path for path in graded.iterdir() if path.stem != "to-mark"]
    assert leaks.scan(for_students, leaks.secrets()) == []


def test_the_second_call_grades_nothing_again(rehearsed, graded):
    before = {path: path.stat().st_mtime_ns for path in (graded / "results").iterdir()}
    assert grade(*rehearsed).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in (graded / "results").iterdir()} == before


def test_the_guide_has_each_command_that_the_two_classes_follow():
    for words in [("release 2", "--class-list"), ("grade submissions", "--rules", "--personal")]:
        assert two_classes.command(*words)
    assert two_classes.command("marks marks.csv")
    assert two_classes.command("regrade graded", "--diff")
    assert len(two_classes.the_class()) == 30


@pytest.mark.sweep
@pytest.mark.usefixtures("zygote")
@pytest.mark.parametrize("platform", [Platform.CANVAS, Platform.MOODLE])
def test_in_a_class_of_thirty_the_platform_gets_every_grade_right(tmp_path, platform):
    outcomes, _ = two_classes.rehearse(tmp_path / platform, platform)
    assert [outcome for outcome in outcomes if not outcome.right] == []
    assert sum(bool(outcome.does) for outcome in outcomes) >= 10
