"""A grade is the sum of a ledger, and whatever changes it is an entry with a reason."""

import json
import math
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.classroom import feedback, marks, results
from nbcourse.classroom.class_rules import LatePolicy, Rules
from nbcourse.classroom.ledger import LedgerEntry, total
from nbcourse.classroom.marks import Mark
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.submissions import Submission
from nbcourse.confined.submission_errors import Ending
from tests.effort import examples

RULES = Rules("", deadlines={"02-x": datetime(2027, 3, 12)}, late=LatePolicy(per_day=7))
POINTS = st.sampled_from([0.0, 0.1, 0.7, 1.33, 0.375, 2.0])
HALF = LedgerEntry("2 of 4 cases are right", 1.0)
SUBMITTED = SubmissionResult(
    *("ada", "", "02-x", "02-x.ipynb", False),
    exercises=(
        ExerciseResult("bias-check", (LedgerEntry("passed", 3.0),), 3.0, Ending.PASSED),
        ExerciseResult("kl-check", (LedgerEntry("failed", 0.0), HALF), 2.0, Ending.FAILED),
        ExerciseResult("essay", None, 3.0, Ending.BY_HAND),
    ),
)
MARKS = [Mark("ada", "essay", "names the cause", 1.5), Mark("ada", "essay", "tests it", 0.5)]


def test_each_thing_that_changes_a_grade_is_an_entry():
    marked = marks.applied(SUBMITTED, MARKS)
    late = RULES.applied(marked, "2027-03-13 12:00")
    assert [(entry.reason, entry.points) for entry in late.ledger] == [
        ("bias: passed", 3.0),
        ("kl: failed", 0.0),
        ("kl: 2 of 4 cases are right", 1.0),
        ("essay: names the cause", 1.5),
        ("essay: tests it", 0.5),
        ("late by 2 days (0 free, 7 % for each of 2)", -0.84),
    ]
    assert late.points == 6.0 - 0.84
    assert late.points == total(late.ledger)


def test_an_open_answer_has_no_entry_yet():
    assert (SUBMITTED.points, len(SUBMITTED.ledger), SUBMITTED.by_hand) == (4.0, 3, True)


@examples(100)
@given(st.lists(POINTS, min_size=1, max_size=6), st.lists(POINTS, max_size=4), st.integers(1, 20))
def test_the_sum_is_to_the_last_bit_what_it_was_as_one_number(passed, criteria, day):
    """Points of exercises added in order, each the sum of its criteria, less one penalty."""
    exercises = [
        ExerciseResult(f"e{i}", (LedgerEntry("passed", p),), 3.0, Ending.PASSED)
        for i, p in enumerate(passed)
    ]
    essay = ExerciseResult("essay", None, 9.0, Ending.BY_HAND)
    given = [Mark("ada", "essay", f"c{i}", points) for i, points in enumerate(criteria)]
    result = marks.applied(replace(SUBMITTED, exercises=(*exercises, essay)), given)
    before = sum([*passed, sum(criteria)])
    assert result.points == before
    late = RULES.applied(result, f"2027-03-{11 + day} 00:00")
    share = min(100.0, 7 * max(0, day - 1))
    penalty = min(before, round(before * share / 100, 2)) if day > 1 else 0.0
    assert late.points == before - penalty
    assert math.isclose(total(late.ledger), late.points, abs_tol=1e-9)


@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_file_has_the_points_and_is_read_without_their_reasons(tmp_path, with_ledger):
    path = tmp_path / "ada.json"
    results.write_result(SUBMITTED, path)
    stored = json.loads(path.read_text())
    assert [verdict["points"] for verdict in stored["verdicts"]] == [3.0, 1.0, None]
    if not with_ledger:  # as it was written before there were ledgers
        for verdict in stored["verdicts"]:
            del verdict["ledger"]
        path.write_text(json.dumps(stored))
    again = results.read_result(path)
    assert [e.points for e in again.exercises] == [3.0, 1.0, None]
    assert (again == SUBMITTED) is with_ledger


def test_the_page_of_the_class_shows_the_entries():
    late = RULES.applied(SUBMITTED, "2027-03-13 12:00")
    page = feedback.class_page([(Submission("ada", "ada"), late)])
    assert "kl: 2 of 4 cases are right</td>" in page.replace('<td class="number">', "</td>")
    assert "+1" in page
    assert "-0.56" in page
