"""The pages say what happened and nothing else, whatever a student's code made of its words."""

import csv
from io import StringIO

import pytest

from nbcourse.classroom import feedback, gradebook
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.submission_errors import State

PASSED = ExerciseResult("by-hand-check", 1.0, 1.0, State.PASSED)
WRONG = ExerciseResult(
    "bias-check", 0.0, 3.0, State.FAILED, "Likely mistake: <script>alert(1)</script>"
)


def result(student: str, *graded: ExerciseResult, **more) -> SubmissionResult:
    return SubmissionResult(
        student, "", "02-x", "02-x.ipynb", more.pop("late", False), graded, **more
    )


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
        result("ada", PASSED, ExerciseResult("essay", None, 2.0, State.BY_HAND))
    )
    assert "1 of 3 points, and a part still to be graded by hand" in page
    assert "essay: to be graded by hand, up to 2 points" in page


def test_the_page_of_the_class_counts_how_each_exercise_ended():
    late = ExerciseResult("bias-check", 0.0, 3.0, State.OUT_OF_TIME)
    page = feedback.class_page([result("ada", PASSED, WRONG), result("bob", PASSED, late)])
    assert "<td>by-hand<td>" in page
    assert "width:100%" in page
    assert "1 failed, 1 out of time" in page


def test_what_is_written(tmp_path):
    listed = gradebook.ClassList("student", ({"student": "ada"}, {"student": "eve"}))
    broken = result("bob", WRONG, PASSED, failure="the grader fell over")
    graded = result("ada", PASSED, WRONG)
    files = feedback.write_reports([graded, broken], ["ada", "bob_1"], tmp_path, listed=listed)
    assert [file.name for file in files] == ["canvas.csv", "moodle.csv", "class.html"]
    assert {path.name for path in (tmp_path / "feedback").iterdir()} == {"ada.html", "bob_1.html"}
    rows = list(csv.reader(StringIO((tmp_path / "moodle.csv").read_text())))
    # Neither who handed in nothing nor whom the grader failed gets a grade of 0.
    assert rows[1:] == [["ada", "1", "1 of 2 exercises passed"], ["eve", "-", ""]]
    assert "the grader fell over" in (tmp_path / "class.html").read_text()


@pytest.mark.parametrize("word", ["http://", "https://", "<script", "src="])
def test_pages_ask_no_other_host(word):
    assert word not in feedback.student_page(result("ada", PASSED))
    assert word not in feedback.class_page([result("ada", PASSED)])
