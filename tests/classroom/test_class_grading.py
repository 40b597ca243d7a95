"""The commands for a class: interrupted work goes on, and wrong inputs are answered in one line.

What grades a submission is replaced here: every submission passes all tests.
"""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nbcourse.classroom import batch, files, results
from nbcourse.classroom.class_grading import grade_class
from nbcourse.classroom.results import SubmissionResult
from nbcourse.classroom.sandbox import Limits
from nbcourse.classroom.submission_errors import State
from nbcourse.cli import app
from nbcourse.errors import UserError
from tests.checks import masters

pytestmark = masters.needed


class Grading:
    """Stands for the processes that grade; remembers whom, and may be interrupted."""

    def __init__(self) -> None:
        self.graded: list[str] = []
        self.interrupted_after = -1

    def __call__(self, jobs, terms, workers):
        for submission, variant in jobs:
            if len(self.graded) == self.interrupted_after:
                raise KeyboardInterrupt
            self.graded.append(submission.student)
            yield (
                submission,
                SubmissionResult(
                    student=submission.student,
                    user_id="",
                    assignment=terms.master.assignment,
                    file=submission.name,
                    late=False,
                    exercises=results.same_for_all(terms.master, State.PASSED, ""),
                    submission=sha256(submission.read_bytes()).hexdigest(),
                    conditions=results.conditions(
                        terms.master, terms.limits, variant=variant, confined=terms.confined
                    ),
                ),
            )


@pytest.fixture
def grading(monkeypatch):
    replaced = Grading()
    monkeypatch.setattr(batch, "_graded", replaced)
    return replaced


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the commands are given: three submissions and a class list."""
    monkeypatch.chdir(tmp_path)
    for student in ("ada", "bob", "eve"):
        (tmp_path / "submissions" / student).mkdir(parents=True)
        (tmp_path / "submissions" / student / "02-sequences.ipynb").write_text("{}")
    (tmp_path / "class.csv").write_text("student\nada\nbob\neve\n")
    return tmp_path


def nbcourse(*arguments: str):
    return CliRunner().invoke(app, arguments)


def grade(submissions="submissions", **options: str):
    given = {"assignment": "2"} | options
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    return nbcourse("grade", submissions, *words, "--trust-submissions")


def test_what_was_interrupted_goes_on_where_it_stopped(folder, grading):
    grading.interrupted_after = 2
    run = grade()
    assert run.exit_code == 1
    stopped = "stopped; graded/results holds what is done, and the same command goes on\n"
    assert run.stderr == stopped
    assert grading.graded == ["the master", "ada"]
    assert [path.name for path in (folder / "graded").rglob("*.*")] == ["ada.json"]

    grading.interrupted_after = -1
    graded = grade_class(Path("submissions"), "2", Path("graded"), limits=Limits(), confined=False)
    assert grading.graded == ["the master", "ada", "the master", "bob", "eve"]
    assert [result.student for result in graded.results] == ["ada", "bob", "eve"]
    assert graded.feedback == Path("graded/feedback")
    assert [path.name for path in graded.reports] == ["canvas.csv", "moodle.csv", "class.html"]
    written = {path.name for path in (folder / "graded").rglob("*.*")}
    pages = {f"{student}.{kind}" for student in ("ada", "bob", "eve") for kind in ("json", "html")}
    assert written == pages | {path.name for path in graded.reports}


def test_a_result_file_has_the_keys_that_other_programs_know(folder, grading):
    grade()
    stored = json.loads((folder / "graded" / "results" / "ada.json").read_text())
    assert list(stored) == [
        "student", "user_id", "assignment", "file", "late", "verdicts", "notes", "submission",
        "conditions", "failure",
    ]  # fmt: skip
    assert list(stored["verdicts"][0]) == ["exercise", "points", "max_points", "state", "feedback"]


def assert_one_line(run, line: str) -> None:
    assert run.exit_code == 2, run.output
    assert run.stderr == f"nbcourse: {line}\n"


@pytest.mark.parametrize(
    ("submissions", "line"),
    [
        ("gone", "there is no folder gone of submissions"),
        ("class.csv", "class.csv: Not a directory"),
        ("x" * 300, f"{'x' * 300}: File name too long"),
    ],
    ids=["gone", "a file", "a long name"],
)
def test_a_wrong_folder_of_submissions(folder, grading, submissions, line):
    assert_one_line(grade(submissions), line)
    assert not (folder / "graded").exists()


LISTS = {
    "gone": (None, "there is no class list given.csv"),
    "empty": (b"\n \n", "the class list given.csv is empty"),
    "no students": (
        b"Student,ID,SIS Login ID\n    Points Possible,1,x\n",
        "the class list given.csv names no students",
    ),
    "a huge cell": (
        b'student\n"' + b"a" * 200_000 + b'"\n',
        "the class list given.csv is no CSV: field larger than field limit (131072)",
    ),
    "no text": (b"student\nJ\xfcrgen\n", "given.csv is no text in UTF-8; save it as 'CSV UTF-8'"),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("command", ["grade", "release"])
def test_a_wrong_class_list(folder, grading, command, name):
    content, line = LISTS[name]
    if content is not None:
        (folder / "given.csv").write_bytes(content)
    if command == "grade":
        assert_one_line(grade(**{"class-list": "given.csv"}), line)
    else:
        assert_one_line(nbcourse("release", "2", "--class-list", "given.csv"), line)
    assert not (folder / "graded").exists()
    assert not (folder / "released").exists()


def test_a_class_list_that_is_a_folder(folder, grading):
    run = grade(**{"class-list": "submissions"})
    assert_one_line(run, "submissions: Is a directory")


@pytest.mark.parametrize(
    ("out", "line"),
    [
        ("class.csv", "class.csv is a file, expected a folder to write to"),
        ("x" * 300, f"{'x' * 300}/results: File name too long"),
    ],
    ids=["a file", "a long name"],
)
def test_a_wrong_folder_for_the_results(folder, grading, out, line):
    assert_one_line(grade(out=out), line)
    assert grading.graded == []


def test_a_wrong_folder_for_the_bundles(folder):
    run = nbcourse("release", "2", "--out", "class.csv")
    assert_one_line(run, "class.csv is a file, expected a folder to write to")


def test_a_disk_that_gets_full_ends_the_work_and_keeps_what_is_done(folder, grading, monkeypatch):
    write, disk = files.write_file, []

    def until_full(path, content):
        if len(disk) == 1:
            raise UserError(f"cannot write {path}: No space left on device")
        disk.append(path)
        write(path, content)

    monkeypatch.setattr(files, "write_file", until_full)
    run = grade()
    assert_one_line(run, "cannot write graded/results/bob.json: No space left on device")
    assert [path.name for path in (folder / "graded" / "results").iterdir()] == ["ada.json"]


def test_a_grader_s_full_disk_is_one_line_and_an_error_of_ours_keeps_its_trace():
    full = OSError(28, "No space left on device", "/tmp/submission-1")
    assert batch._explanation(full) == "[Errno 28] No space left on device: '/tmp/submission-1'"
    assert "KeyError: 'ours'" in batch._explanation(KeyError("ours"))
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert __file__ in batch._explanation(caught.value)
