"""The commands for a class: interrupted work goes on, and wrong inputs are answered in one line.

What grades a submission is replaced here: every submission passes all tests.
"""

import json
from dataclasses import replace
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import pytest

from nbcourse import durable
from nbcourse.classroom import batch, files, leaks, marking, marks, results
from nbcourse.classroom.class_grading import Order, changes, grade_class
from nbcourse.classroom.masters import find_master, load_master
from nbcourse.classroom.results import SubmissionResult
from nbcourse.classroom.tables import as_csv
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError
from tests.checks import masters
from tests.classroom import platforms
from tests.command import invoke

pytestmark = masters.needed


class Grading:
    """Stands for the processes that grade; remembers whom, and may be interrupted.

    Everyone passes, but for the exercises that a student is said to fail.
    """

    def __init__(self) -> None:
        self.graded: list[str] = []
        self.interrupted_after = -1
        self.failed: dict[str, str] = {}  # student → exercise

    def __call__(self, jobs, terms, workers):
        for submission in jobs:
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
                    exercises=self.exercises(terms.master, submission.student),
                    submission=sha256(submission.read_bytes()).hexdigest(),
                    conditions=terms.conditions(submission),
                ),
            )

    def exercises(self, master, student):
        failed = self.failed.get(student)
        return tuple(
            results.decided(
                test, Ending.PASSED, points=0.0 if failed == test.grade_id else test.points
            )
            for test in master.exercises
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


def grade(submissions="submissions", **options: str):
    given = {"assignment": "2"} | options
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    return invoke("grade", submissions, *words, "--trust-submissions")


def test_what_was_interrupted_goes_on_where_it_stopped(folder, grading):
    grading.interrupted_after = 2
    run = grade()
    assert run.exit_code == 1
    stopped = "stopped; graded/results holds what is done; the same command continues\n"
    assert run.stderr == stopped
    assert grading.graded == ["the master", "ada"]
    written = {path.name for path in (folder / "graded").rglob("*.*")}
    assert written == {"order.json", "ada.json"}

    grading.interrupted_after = -1
    graded = grade_class(Order(Path("submissions"), "2", confined=False), Path("graded"))
    assert grading.graded == ["the master", "ada", "the master", "bob", "eve"]
    assert [result.student for result in graded.results] == ["ada", "bob", "eve"]
    assert graded.feedback == Path("graded/feedback")
    assert [path.name for path in graded.reports] == [
        "class.html", "grades.csv", "to-mark.html", "to-mark.csv"
    ]  # fmt: skip
    written = {path.name for path in (folder / "graded").rglob("*.*")}
    pages = {f"{student}.{kind}" for student in ("ada", "bob", "eve") for kind in ("json", "html")}
    assert written == pages | {"order.json"} | {path.name for path in graded.reports}


def test_a_result_file_has_the_keys_that_other_programs_know(folder, grading):
    grade()
    stored = json.loads((folder / "graded" / "results" / "ada.json").read_text())
    assert list(stored) == [
        "student", "user_id", "assignment", "file", "late", "verdicts", "notes", "submission",
        "conditions", "failure", "watched", "memory",
    ]  # fmt: skip
    assert list(stored["verdicts"][0]) == [
        "exercise", "points", "max_points", "state", "feedback", "ledger",
    ]  # fmt: skip


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
        b"Student,ID,SIS Login ID,Section\n    Points Possible,,,\n",
        "the class list given.csv names no students",
    ),
    "a huge cell": (
        b'student\n"' + b"a" * 1_100_000 + b'"\n',
        "given.csv is not a CSV: field larger than field limit (1048576)",
    ),
    "no text": (
        b"student\nJ\xfcrgen\n",
        "given.csv is not text in UTF-8; save it as 'CSV UTF-8'",
    ),
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
        assert_one_line(invoke("release", "2", "--class-list", "given.csv"), line)
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


def test_a_wrong_folder_for_the_bundles(folder, monkeypatch):
    monkeypatch.setattr(leaks, "secrets", pytest.fail)  # which take seconds
    run = invoke("release", "2", "--out", "class.csv")
    assert_one_line(run, "class.csv is a file, expected a folder to write to")


def test_a_disk_that_gets_full_ends_the_work_and_keeps_what_is_done(folder, grading, monkeypatch):
    write, disk = files.write_file, []

    def until_full(path, content):
        if len(disk) == 2:  # the order, and one result
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


def test_who_handed_in_nothing_and_who_is_nobody_is_said(folder, grading):
    (folder / "class.csv").write_text("student\nada\nbob\nzoe\n")
    run = grade(**{"class-list": "class.csv"})
    assert run.exit_code == 0
    assert "handed in nothing: zoe\n" in run.stdout
    assert run.stderr == "in no gradebook: eve: the class list has no 'eve'\n"


def test_an_unmatched_submission_has_no_numbers_of_its_own(folder, grading):
    (folder / "class.csv").write_text("student\nada\nbob\n")
    run = invoke(
        "grade", "submissions", "--assignment", "2", "--class-list", "class.csv", "--personal",
        "--trust-submissions",
    )  # fmt: skip
    assert grading.graded == ["the master", "ada", "bob"]
    assert "eve was not graded: the student's own numbers are unknown" in run.stderr
    assert "eve,,,13,,the class list has no 'eve'\n" in (folder / "graded/grades.csv").read_text()


def test_personal_numbers_need_the_class_list(folder, grading):
    run = invoke("grade", "submissions", "--assignment", "2", "--personal", "--trust-submissions")
    assert_one_line(run, "--personal needs the release's class list: name it with --class-list")


def test_points_are_not_taken_for_those_of_another_maximum(folder, grading):
    """9 of 13 points would be 9 of 100."""
    users = [platforms.User(1, "ada", "", "Ada", "ada", 1)]
    (folder / "w.csv").write_text(platforms.moodle_worksheet(users).replace("11.00", "100.00"))
    assert_one_line(
        grade(**{"class-list": "w.csv"}),
        "w.csv says that the assignment is worth 100, but the sheet has 13 points: change the "
        "maximum grade in Moodle and download it again",
    )
    (folder / "w.csv").write_text(platforms.moodle_worksheet(users, most=13.0))
    assert grade(**{"class-list": "w.csv"}).exit_code == 0


def test_names_are_no_markup(folder, grading):
    (folder / "submissions" / "[red]zoe").mkdir()
    (folder / "submissions" / "[red]zoe" / "02-sequences.ipynb").write_text("{}")
    assert "[red]zoe" in grade().stdout


def mend(monkeypatch, what: str) -> None:
    """Change one of the things that a grade depends on."""
    if what == "torch":
        monkeypatch.setattr(metadata, "version", lambda name: "3.0")
    else:
        digest = results._digest
        monkeypatch.setattr(
            results, "_digest", lambda path: digest(path) + "!" * (path.name == what)
        )


@pytest.mark.parametrize("what", ["checks", "functional", "torch"])
def test_when_something_changes_it_is_graded_again_and_said_whose_grade_changed(
    folder, grading, monkeypatch, what
):
    grade()
    assert grade().exit_code == 0
    assert grading.graded == ["the master", "ada", "bob", "eve"]  # once: nothing had changed
    mend(monkeypatch, what)
    grading.failed = {"bob": "by-hand-check"}
    before = {path: path.read_bytes() for path in (folder / "graded").rglob("*.*")}

    run = invoke("regrade", "--diff")
    assert run.exit_code == 0, run.output
    (row,) = (line for line in run.stdout.splitlines() if "bob" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "bob", "13 → 12", "by-hand", what,
    ]  # fmt: skip
    assert "ada" not in run.stdout
    assert {path: path.read_bytes() for path in (folder / "graded").rglob("*.*")} == before

    run = invoke("regrade")
    assert "13 → 12" in run.stdout
    assert "12 of 13" in run.stdout
    assert invoke("regrade", "--diff").stdout.endswith("no grade would change\n")


def test_why_a_grade_changed(folder, grading):
    order = Order(Path("submissions"), "2", confined=False)
    grade_class(order, Path("graded"))
    (folder / "submissions" / "ada" / "02-sequences.ipynb").write_text("{ }")
    grading.failed = dict.fromkeys(("ada", "bob"), "by-hand-check")
    other = Order(Path("submissions"), "2", class_list=Path("class.csv"), confined=False)
    (changed,) = grade_class(other, Path("graded")).changes
    assert (changed.student, changed.reasons) == ("ada", ("notebook",))
    limits = results.Limits(seconds=1)
    found = grade_class(replace(other, limits=limits), Path("graded"))
    assert [(c.student, c.reasons) for c in found.changes] == [("bob", ("limits",))]
    assert changes(Path("graded")) == ()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "nothing was graded into graded: it has no order.json"),
        ("{}", "graded/order.json does not say what was graded: 'folder'"),
    ],
)
def test_nothing_to_grade_again(folder, content, line):
    if content is not None:
        (folder / "graded").mkdir()
        (folder / "graded" / "order.json").write_text(content)
    assert_one_line(invoke("regrade"), line)


def test_another_sheet_does_not_replace_the_results_of_one(folder, grading):
    assert grade().exit_code == 0
    before = {path: path.read_bytes() for path in (folder / "graded").rglob("*.*")}
    run = grade(assignment="1")
    assert (run.exit_code, "holds the results of 02-sequences" in run.stderr) == (2, True)
    assert {path: path.read_bytes() for path in (folder / "graded").rglob("*.*")} == before


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"class-list": "class.csv"}, "graded was graded with --class-list "),
        ({"class-list": "class.csv", "personal": True}, "graded was graded with --class-list "),
        ({"class-list": "class.csv", "rules": "class.toml"}, "graded was graded with --rules "),
    ],
)
def test_an_option_that_is_left_out_does_not_write_over_grades(folder, grading, options, line):
    (folder / "class.toml").write_text('[deadlines]\n"02-sequences" = 2027-03-12 23:59:00\n')
    (folder / "class.csv").write_text("student,submitted\nada,\nbob,\neve,\n")
    flag = ("--personal",) if options.pop("personal", False) else ()
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = ("grade", "submissions", "--assignment", "2", "--trust-submissions")
    assert invoke(*command, *given, *flag).exit_code == 0
    before = {path: path.read_bytes() for path in (folder / "graded").rglob("*.*")}
    kept = ("--class-list", "class.csv") if "--rules" in line else ()
    run = invoke(*command, *kept)
    assert (run.exit_code, line in run.stderr) == (2, True), run.stderr
    assert "say it again, or name another folder with --out" in run.stderr
    assert {path: path.read_bytes() for path in (folder / "graded").rglob("*.*")} == before
    if flag:
        assert "graded with --personal, and" in invoke(*command, *given).stderr
    assert invoke(*command, *kept, "--out", "elsewhere").exit_code == 0


def test_a_criterion_that_is_not_the_rubrics_does_not_add_to_it(folder, grading):
    grade()
    rubric = marking.read_rubric(load_master(find_master("2")))
    exercise = "groups-that-shrank"
    rows = [("ada", exercise, criterion, "0.5", "") for criterion, _ in rubric[exercise]]
    (folder / "mine.csv").write_text(as_csv([marks.COLUMNS, *rows]), "utf-8")
    assert invoke("marks", "mine.csv").exit_code == 0
    before = (folder / "graded" / "marks.csv").read_bytes()
    mistyped = "student,exercise,criterion,points\nada,groups-that-shrank,the factor,1\n"
    (folder / "more.csv").write_text(mistyped, "utf-8")
    said = invoke("marks", "more.csv")
    assert said.exit_code == 2
    assert "has points for 'the factor', which would be added to those of the rubric" in said.stderr
    assert (folder / "graded" / "marks.csv").read_bytes() == before


def test_one_command_grades_into_a_folder_at_a_time(folder, grading):
    (folder / "graded").mkdir()
    with durable.locked(folder / "graded"):
        run = grade()
        line = "another process is at work in graded: wait for it, or name another folder (--out)"
        assert_one_line(run, line)
    assert grading.graded == []
    assert grade().exit_code == 0


def test_grading_a_part_of_the_class_keeps_the_times_of_the_rest(folder, grading):
    (folder / "class.csv").write_text(
        "student,submitted\nada,2027-03-14 08:00\nbob,2027-03-15 08:00\neve,\n"
    )
    (folder / "class.toml").write_text(
        '[deadlines]\n"02-sequences" = 2027-03-12 23:59:00\n[late]\nterm_days = 4\n'
    )
    options = {"class-list": "class.csv", "rules": "class.toml"}
    assert grade(**options).exit_code == 0
    before = (folder / "class.late.csv").read_text()
    (folder / "late").mkdir()
    (folder / "submissions" / "ada").rename(folder / "late" / "ada")
    assert grade("late", out="graded-late", **options).exit_code == 0
    assert (folder / "class.late.csv").read_text() == before


ONE_MARK = "student,exercise,criterion,points,comment\nada,groups-that-shrank,answer,2,\n"


@pytest.mark.parametrize("file", ["marks.csv", "to-mark.csv"])  # taken over, or being filled in
def test_a_marked_answer_that_was_handed_in_anew_is_told(folder, grading, file):
    grade()
    for notebook, told in (("{}", False), ("{ }", True)):
        (folder / "graded" / file).write_text(ONE_MARK)
        (folder / "submissions" / "ada" / "02-sequences.ipynb").write_text(notebook)
        assert ("ada has handed in another notebook" in grade().stderr) is told


def test_marks_that_come_while_the_class_is_graded_count(folder, grading, monkeypatch):
    def slow(jobs, terms, workers):
        yield from grading(jobs, terms, workers)
        (folder / "graded" / "marks.csv").write_text(ONE_MARK)

    counts = []
    monkeypatch.setattr(batch, "_graded", slow)
    monkeypatch.setattr(marks, "applied", lambda result, given: counts.append(len(given)) or result)
    grade()
    assert counts == [1, 1, 1]  # for each of the three students


def test_marks_are_looked_at_before_they_are_kept(folder, grading):
    grade()
    (folder / "ada.csv").write_text(ONE_MARK)
    (folder / "bob.csv").write_text(ONE_MARK.replace("ada", "bob"))
    assert invoke("marks", "ada.csv").exit_code == 0
    (folder / "submissions" / "ada").rename(folder / "submissions" / "ada.lee")
    before = (folder / "graded" / "marks.csv").read_text()
    assert invoke("marks", "bob.csv").exit_code == 2
    assert (folder / "graded" / "marks.csv").read_text() == before
