"""What a person gave stands in every page and gradebook, and no regrade takes it away."""

import pytest

from nbcourse.classroom import batch, class_grading, feedback, marks, masters
from nbcourse.classroom.class_grading import Order, grade_class, mark_class
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.marks import Mark
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError
from tests.classroom import a_class

HEADER = "student,exercise,criterion,points,comment\n"
ESSAY = a_class.cell("Why?", "markdown", grade_id="essay", grade=True, solution=True, points=3)


@pytest.fixture
def master(tmp_path):
    path = tmp_path / "01-fake.ipynb"
    path.write_bytes(a_class.notebook([*a_class.solved(), ESSAY]))
    return masters.load_master(path)


@pytest.fixture
def write(tmp_path):
    def written(rows: str, name: str = "marks-to-take.csv"):
        (tmp_path / name).write_text(HEADER + rows, encoding="utf-8")
        return tmp_path / name

    return written


def graded_by_hand(student: str = "ada") -> SubmissionResult:
    return SubmissionResult(
        *(student, "", "01-fake", "01-fake.ipynb", False),
        exercises=(
            ExerciseResult("double-check", (LedgerEntry("", 2.0),), 2.0, Ending.PASSED),
            ExerciseResult("essay", None, 3.0, Ending.BY_HAND),
        ),
    )


def test_marks_become_points_and_words(write):
    read = marks.read_marks(write('ada,essay,cause,1.5,"yes, <b>that</b>"\nada,essay,test,1,\n'))
    assert read == [
        Mark("ada", "essay", "cause", 1.5, "yes, <b>that</b>"), Mark("ada", "essay", "test", 1.0)
    ]  # fmt: skip
    result = marks.applied(graded_by_hand(), read)
    assert (result.points, result.by_hand) == (4.5, False)
    page = feedback.student_page(result)
    assert "✎ essay: graded by hand, 2.5 of 3" in page
    assert "cause: 1.5 (yes, &lt;b&gt;that&lt;/b&gt;)\ntest: 1" in page
    assert feedback.remark(result) == "1 of 1 exercises passed"
    assert marks.applied(graded_by_hand("bob"), read) == graded_by_hand("bob")


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("ada,essay,cause,many,\n", "line 2: points is 'many', expected a number ≥ 0"),
        ("ada,essay,cause,-1,\n", "line 2: points is '-1'"),
        ("ada,essay,cause,inf,\n", "points is 'inf'"),
        ("ada,essay,cause,1,\nada,,cause,1,\n", "line 3: exercise is empty"),
        ("ada,essay,cause,1,\nada,essay,cause,1,\n", "line 3: ada is marked twice for essay"),
        ("", "holds no marks"),
    ],
)
def test_a_file_that_is_none_is_refused(write, rows, complaint):
    with pytest.raises(UserError, match=complaint):
        marks.read_marks(write(rows))


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        (Mark("adda", "essay", "c", 1), "none is by that student; did you mean 'ada'"),
        (Mark("eve", "essay", "c", 1), "2 submissions are by that student"),
        (Mark("ada", "double-check", "c", 1), "not graded by hand \\(what is: essay"),
        (Mark("ada", "essay", "c", 3.5), "have 3.5 points, and the answer is worth 3"),
    ],
)
def test_marks_for_what_is_not_there_are_refused(master, mark, complaint):
    with pytest.raises(UserError, match=complaint) as caught:
        marks.check([Mark("ada", "essay", "other", 0), mark], master, ["ada", "eve", "eve"])
    assert "\n" not in str(caught.value)


def test_a_name_that_begins_a_formula_is_found_again(write, tmp_path):
    marks.keep(marks.read_marks(write("=1+1,essay,cause,1,=2+2\n")), tmp_path)
    marks.keep(kept := marks.kept(tmp_path), tmp_path)
    assert marks.kept(tmp_path) == kept
    assert "'=1+1," in (tmp_path / marks.MARKS).read_text()
    assert marks.applied(graded_by_hand("=1+1"), kept).points == 3


@pytest.fixture
def order(master, tmp_path, monkeypatch):
    """Two submissions; what runs them is replaced, and says that all tests are passed."""

    def graded(jobs, terms, workers):
        for submission in jobs:
            yield submission, graded_by_hand(submission.student)

    monkeypatch.setattr(batch, "_graded", graded)
    monkeypatch.setattr(batch, "_done", lambda *arguments: None)
    monkeypatch.setattr(masters, "find_master", lambda name: master.path)
    for student in ("ada", "bob"):
        (tmp_path / "in" / student).mkdir(parents=True)
        (tmp_path / "in" / student / "01-fake.ipynb").write_bytes(b"{}")
    return Order(tmp_path / "in", "1", confined=False)


def test_marks_outlive_grading_again(order, write, tmp_path):
    out = tmp_path / "out"
    assert [r.points for r in grade_class(order, out, jobs=1).results] == [2, 2]
    first = mark_class(write("ada,essay,cause,1,\nbob,essay,cause,3,\n"), out)
    assert [r.points for r in first.results] == [3, 5]
    later = mark_class(write("ada,essay,cause,2,better\nada,essay,test,0.5,\n"), out)
    assert [r.points for r in later.results] == [4.5, 5]
    again = grade_class(order, out, jobs=1)
    assert [r.points for r in again.results] == [4.5, 5]
    assert "ada,,4.5,5," in (out / "grades.csv").read_text()
    assert not class_grading.changes(out)  # what a person gave is no change of a grade


def test_nothing_is_taken_over_where_one_mark_is_wrong(order, write, tmp_path):
    out = tmp_path / "out"
    grade_class(order, out, jobs=1)
    with pytest.raises(UserError, match="is worth 3"):
        mark_class(write("ada,essay,cause,1,\nbob,essay,cause,4,\n"), out)
    assert not (out / marks.MARKS).exists()


def test_a_criterion_that_begins_a_formula_is_taken_over_twice_as_one(tmp_path, write):
    file = write("ada,essay,+ says\twhy,1,\n")
    for _ in range(2):
        together = {mark.key: mark for mark in [*marks.kept(tmp_path), *marks.read_marks(file)]}
        marks.keep([*together.values()], tmp_path)
    assert [mark.points for mark in marks.kept(tmp_path)] == [1]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_has_the_separator_of_its_spreadsheet(tmp_path, separator):
    text = HEADER + "ada,essay,cause,1.5,\n"
    (tmp_path / "marks.csv").write_text(text.replace(",", separator))
    assert marks.kept(tmp_path) == [Mark("ada", "essay", "cause", 1.5)]
