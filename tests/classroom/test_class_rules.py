"""Lateness costs what the rules say, in words that can be checked, and never anything else."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.classroom import feedback
from nbcourse.classroom.class_list import read_class_list
from nbcourse.classroom.class_rules import LatePolicy, Rules, check_names, read_rules
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError
from tests.classroom import a_class
from tests.effort import examples

DUE = datetime(2027, 3, 12, 23, 59)
POLICY = LatePolicy(free_days=1, per_day=10, closes_after=4)
RULES = Rules("class.toml", deadlines={"01-fake": DUE}, late=POLICY)
NINE = SubmissionResult(
    *("ada", "", "01-fake", "01-fake.ipynb", False),
    exercises=(ExerciseResult("double-check", (LedgerEntry("", 9.0),), 11.0, Ending.PASSED),),
)


@pytest.mark.parametrize(
    ("submitted", "points", "told"),
    [
        ("2027-03-12 23:59", 9, ""),
        ("2027-03-13 00:00", 9, "Late by 1 day (1 free, 10 % for each of 0): 9 − 0 = 9."),
        ("2027-03-13T23:59:00", 9, "Late by 1 day (1 free, 10 % for each of 0): 9 − 0 = 9."),
        # a second into the third day: two days are charged, 20 % of 9 is 1.8
        ("2027-03-14 23:59:01", 7.2, "Late by 3 days (1 free, 10 % for each of 2): 9 − 1.8 = 7.2."),
        ("Sunday, 14 March 2027, 11:58 PM", 8.1,
            "Late by 2 days (1 free, 10 % for each of 1): 9 − 0.9 = 8.1."),
        ("2027-03-17 10:00", 0, "Late by 5 days (closed after 4): 9 − 9 = 0."),
        ("", 9, ""),
        ("-", 9, ""),
    ],
)  # fmt: skip
def test_what_lateness_costs_is_said_beside_the_grade(submitted, points, told):
    result = RULES.applied(NINE, submitted)
    assert result.points == pytest.approx(points)
    assert result.notes == ((told,) if told else ())
    assert result.late == bool(told)
    if told:
        assert told in feedback.student_page(result)
        assert told in feedback.remark(result)


def test_without_a_deadline_or_a_time_there_is_no_penalty():
    assert Rules(late=POLICY).applied(NINE, "2099-01-01") == NINE
    marked_late = replace(NINE, late=True)
    result = RULES.applied(marked_late, "")
    assert result.points == 9
    assert result.notes == ("The platform says late, but not by how much: nothing was deducted.",)


@examples(100)
@given(st.floats(0, 500), st.floats(0, 500), st.floats(0, 20), st.floats(0, 100))
def test_handing_in_earlier_never_costs_more(hours, more, free, per_day):
    rules = Rules(deadlines={"01-fake": DUE}, late=LatePolicy(free, per_day, 14))
    soon, late = (
        rules.applied(NINE, (DUE + timedelta(hours=h)).isoformat()).points
        for h in (hours, hours + more)
    )
    assert 0 <= late <= soon <= 9


def test_times_come_from_the_class_list(tmp_path):
    path = tmp_path / "class.csv"
    path.write_text("student,submitted\nada,2027-03-14 08:00\nbob,\n")
    assert [s.submitted for s in read_class_list(path).students] == ["2027-03-14 08:00", ""]
    path.write_text(
        "Identifier,Full name,Email address,Status,Grade,Last modified (submission),"
        "Last modified (grade)\nParticipant 7,Ada,a@b.c,Submitted,,"
        '"Sunday, 14 March 2027, 11:58 PM",-\n'
    )
    (ada,) = read_class_list(path).students
    assert RULES.applied(NINE, ada.submitted).points == pytest.approx(8.1)


@pytest.mark.parametrize(
    ("submitted", "complaint"),
    [
        ("yesterday", "submission time 'yesterday', expected one such as"),
        ("2027-03-14T08:00:00+01:00", "must both have a time zone, or neither"),
    ],
)
def test_a_time_that_cannot_be_compared_is_refused(submitted, complaint):
    with pytest.raises(UserError, match=complaint):
        RULES.applied(NINE, submitted)


def test_rules_are_read(tmp_path):
    path = tmp_path / "class.toml"
    path.write_text(
        'partial_credit = ["02-sequences", "cube"]\n[deadlines]\n"01-fake" = 2027-03-12 23:59:00\n'
        "[late]\nfree_days = 1\nper_day = 10\ncloses_after = 4\n"
    )
    rules = read_rules(path, ["01-fake", "02-sequences"])
    assert rules == Rules("class.toml", ("02-sequences", "cube"), RULES.deadlines, POLICY)
    master = a_class.master(tmp_path)
    assert rules.partial(master) == {"cube-check"}
    assert Rules(partial_credit=True).partial(master) == {
        "double-check", "answer-check", "cube-check"
    }  # fmt: skip
    assert Rules(partial_credit=["01-fake"]).partial(master) == Rules(partial_credit=True).partial(
        master
    )
    assert Rules().partial(master) == set()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x =", "is not valid TOML"),
        ("deadline = 1", "there is no 'deadline'; did you mean 'deadlines'"),
        ("late = 3", r"late is 3, expected a table \[late\]"),
        ("partial_credit = 1", "partial_credit is 1, expected true, false or a list"),
        ("[deadlines]\n'02-sequence' = 2027-03-12 23:59:00", "did you mean '02-sequences'"),
        ("[deadlines]\n02-sequences = 2027-03-12", "expected a day and a time"),
        ("[late]\nper_day = 200", "per_day is 200, expected a number from 0 to 100"),
        ("[late]\nfree = 2", "there is no 'free'"),
        ("[late]\nfree_days = true", "free_days is True, expected a number"),
        ("[late]\ncloses_after = 0.5", "closes_after is 0.5, expected a whole number"),
    ],
)
def test_rules_that_mean_nothing_are_answered_in_one_line(tmp_path, text, complaint):
    (tmp_path / "class.toml").write_text(text)
    with pytest.raises(UserError, match=complaint) as caught:
        read_rules(tmp_path / "class.toml", ["01-fake", "02-sequences"])
    assert "\n" not in str(caught.value)


def test_rules_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file of rules"):
        read_rules(tmp_path / "class.toml", [])


@pytest.mark.parametrize("points", [(0.1, 0.7), (0.375,)])
def test_what_has_closed_has_0_points_and_no_less(points):
    """The sum of .1 and .7 is below .8 in floating point, and .375 is rounded to .38."""
    done = tuple(ExerciseResult(f"e{p}", (LedgerEntry("", p),), 3.0, Ending.MARKED) for p in points)
    late = RULES.applied(replace(NINE, exercises=done), "2027-03-30 10:00")
    assert (late.points, str(late.points)) == (0, "0.0")


@pytest.mark.parametrize("name", ["01-fake", "double"])
def test_partial_credit_is_for_sheets_and_exercises(tmp_path, name):
    check_names(Rules("class.toml", (name,)), [a_class.master(tmp_path)])


def test_a_name_that_has_no_partial_credit_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"partial_credit has 'dubble'.*did you mean 'double'"):
        check_names(Rules("class.toml", ("dubble",)), [a_class.master(tmp_path)])
