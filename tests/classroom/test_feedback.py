"""The pages say what happened and nothing else, whatever a student's code made of its words."""

import csv
from html import escape
from html.parser import HTMLParser
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.classroom import feedback, marks, tables
from nbcourse.classroom.class_list import ClassList, Kind, Student
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.marks import Mark
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.submissions import Submission
from nbcourse.confined.submission_errors import Ending
from tests.effort import examples

PASSED = ExerciseResult("by-hand-check", (LedgerEntry("", 1.0),), 1.0, Ending.PASSED)
WRONG = ExerciseResult(
    "bias-check",
    (LedgerEntry("", 0.0),),
    3.0,
    Ending.FAILED,
    "Likely mistake: <script>alert(1)</script>",
)


def result(student: str, *graded: ExerciseResult, **more) -> SubmissionResult:
    return SubmissionResult(
        student, "", "02-x", "02-x.ipynb", more.pop("late", False), graded, **more
    )


def graded(*results: SubmissionResult, **owners: Student) -> list[feedback.Graded]:
    return [(Submission(r.student, r.student, owner=owners.get(r.student)), r) for r in results]


def test_the_page_of_a_student():
    page = feedback.student_page(
        result("Ada & <b>", PASSED, WRONG, late=True, notes=("No cell 3.",))
    )
    assert "Ada &amp; &lt;b&gt;: <strong>1 of 4 points</strong>" in page
    assert "✓ by-hand: passed, 1 of 1" in page
    assert "✗ bias: failed, 0 of 3" in page
    assert "<script>" not in page
    assert "Likely mistake: &lt;script&gt;" in page
    assert "Handed in late" in page
    assert "No cell 3." in page


def test_a_part_for_a_person_is_announced():
    page = feedback.student_page(
        result("ada", PASSED, ExerciseResult("essay", None, 2.0, Ending.BY_HAND))
    )
    assert "1 of 3 points, and a part still to be graded by hand" in page
    assert "essay: to be graded by hand, up to 2 points" in page


def test_the_page_of_the_class_counts_how_each_exercise_ended():
    late = ExerciseResult("bias-check", (LedgerEntry("", 0.0),), 3.0, Ending.OUT_OF_TIME)
    page = feedback.class_page(graded(result("ada", PASSED, WRONG), result("bob", PASSED, late)))
    assert "<td>by-hand<td>" in page
    assert "width:100%" in page
    assert "1 failed, 1 out of time" in page


def test_what_is_written(tmp_path):
    ada, bob, eve = (Student(key, key.title(), "", False, (key,)) for key in ("ada", "bob", "eve"))
    listed = ClassList(Kind.OWN, "class.csv", ("student",), "student", (ada, bob, eve))
    broken = result("bob", WRONG, PASSED, failure="the grader fell over\nTraceback")
    pairs = graded(result("ada", PASSED, WRONG, late=True), broken, ada=ada, bob=bob)
    unmatched = Submission("zoe", "zoe", unmatched="nobody's")
    pairs.append((unmatched, result("zoe", PASSED, PASSED)))
    written = feedback.write_reports(pairs, tmp_path, listed=listed)
    assert [file.name for file in written] == ["class.html", "grades.csv"]
    pages = {path.name for path in (tmp_path / "feedback").iterdir()}
    assert pages == {"ada.html", "bob.html", "zoe.html"}
    rows = list(csv.reader(StringIO((tmp_path / "grades.csv").read_text())))
    assert rows == [
        ["student", "name", "points", "of", "late", "remark"],
        ["ada", "Ada", "1", "4", "late", "handed in late; 1 of 2 exercises passed"],
        ["bob", "Bob", "", "4", "", "the grader fell over"],  # no grade of 0
        ["zoe", "", "2", "2", "", "nobody's"],
        ["eve", "Eve", "", "", "", "handed in nothing"],
    ]
    page = (tmp_path / "class.html").read_text()
    assert "the grader fell over" in page
    assert "<li>zoe: nobody&#x27;s" in page
    assert "<h2>Handed in nothing</h2><ul>\n<li>eve (Eve)\n</ul>" in page


def test_who_could_not_be_graded_gets_no_grade_on_the_platform(tmp_path):
    ada = Student("ada", "Ada", "1", False, ("Ada", "1", "A"))
    bob = Student("bob", "Bob", "2", False, ("Bob", "2", "A"))
    listed = ClassList(Kind.CANVAS, "c.csv", ("Student", "ID", "Section"), "ID", (ada, bob))
    broken = result("bob", WRONG, PASSED, failure="the grader fell over")
    feedback.write_reports(
        graded(result("ada", WRONG, PASSED), broken, ada=ada, bob=bob), tmp_path, listed=listed
    )
    rows = list(csv.reader(StringIO((tmp_path / "canvas.csv").read_text())))
    assert rows[2:] == [["Ada", "1", "A", "1"]]


@pytest.mark.parametrize("kind", [Kind.CANVAS, Kind.WORKSHEET, Kind.MOODLE])
def test_what_cannot_be_read_has_a_row_in_no_gradebook(tmp_path, kind):
    """A 0 that nobody gave would stand there; the instructor's page says what was found."""
    columns = {
        Kind.CANVAS: ("Student", "ID", "Section"),
        Kind.WORKSHEET: ("Identifier", "Grade", "Last modified (grade)"),
        Kind.MOODLE: ("First name", "Last name", "Email address"),
    }[kind]
    ada = Student("ada", "Ada", "1", False, ("Ada", "1", "A"))
    bob = Student("bob", "Bob", "2", False, ("Bob", "2", "A"))
    listed = ClassList(kind, "c.csv", columns, columns[0], (ada, bob))
    why, nothing = "No notebook was handed in. What was: photo.jpg.", (LedgerEntry("", 0.0),)
    unread = [
        ExerciseResult(e.exercise, nothing, e.max_points, Ending.UNREADABLE, why)
        for e in (WRONG, PASSED)
    ]
    one, other = result("ada", WRONG, PASSED), result("bob", *unread)
    reports = feedback.write_reports(graded(one, other, ada=ada, bob=bob), tmp_path, listed=listed)
    for report in reports:
        if report.suffix == ".csv" and report.name != "grades.csv":
            text = report.read_text().lower()
            assert "ada" in text
            assert "bob" not in text
    rows = list(csv.reader(StringIO((tmp_path / "grades.csv").read_text())))
    assert rows[2][0] == "bob"
    assert rows[2][2] == ""
    assert why in rows[2][5]
    page = (tmp_path / "class.html").read_text()
    assert f"<li>bob: In no gradebook: {why}" in page


@pytest.mark.parametrize("word", ["http://", "https://", "<script", "src="])
def test_pages_ask_no_other_host(word):
    assert word not in feedback.student_page(result("ada", PASSED))
    assert word not in feedback.class_page(graded(result("ada", PASSED)))


class Tags(HTMLParser):
    """The tags of a page, each with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found |= {(tag, name) for name, _ in attrs} | {(tag, "")}


def pages(text: str) -> list[str]:
    """Everything that a person opens, with this text wherever a student's words may stand."""
    exercises = (
        ExerciseResult("a-check", (LedgerEntry("", 1.0),), 1.0, Ending.PASSED, text),
        ExerciseResult("why", None, 2.0, Ending.BY_HAND),
    )
    one = result(text, *exercises, late=True, notes=(text,), watched=(text,))
    one = marks.applied(one, [Mark(tables.inert(text), "why", text, 1.0, text)])
    owner = Student(text, text, "1", False, (text, "1", "A"))
    unmatched = (Submission(text, text, unmatched=text), one)
    pairs = [(Submission(text, text, owner=owner), one), unmatched]
    return [feedback.student_page(one), feedback.class_page(pairs, [owner])]


PLAIN = [Tags(page).found for page in pages("Ada")]


@pytest.mark.parametrize(
    "text",
    [
        "<script>",
        "<img src=x onerror=f()>",
        "</pre><b>",
        "&lt;b&gt;",
        "[x](javascript:f())",
        "![x](http://a.b/c)",
        "`x`",
        "'\"><svg onload=f()>",
        "<!--",
        "%(title)s",
    ],
)
def test_markup_in_a_name_or_an_answer_is_shown_and_never_rendered(text):  # fmt: skip
    for page, plain in zip(pages(text), PLAIN, strict=True):
        assert Tags(page).found == plain
        assert escape(text) in page


@examples(50)
@given(st.text(alphabet="<>&\"'/=ab ![]()`-", min_size=1, max_size=30))
def test_no_text_adds_a_tag_or_an_attribute(text):
    assert [Tags(page).found for page in pages(text)] == PLAIN


@examples(50)
@given(st.text(alphabet="=+-@\t\n\r<&;,\"' a1", max_size=20))
def test_no_cell_of_a_table_begins_a_formula_and_no_remark_is_markup(text):
    one = result(text or "x", PASSED, notes=(text,))
    owner = Student(text, text, "", False, (text,))
    for row in csv.reader(StringIO(feedback.grades_table(graded(one), [owner]))):
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in row)
        assert "\n" not in "".join(row)
    assert not set("<>&") & set(feedback.remark(one))
