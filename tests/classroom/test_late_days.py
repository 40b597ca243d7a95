"""A term's late days: each student's own, spent once, in the order of the deadlines."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.classroom import late_days
from nbcourse.classroom.class_list import read_class_list
from nbcourse.classroom.class_rules import LatePolicy, Rules
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError
from tests.effort import examples

FIRST = datetime(2027, 3, 12, 23, 59)
SHEETS = ["02-sequences", "03-critics", "04-agent", "05-ppo"]
DEADLINES = {sheet: FIRST + timedelta(weeks=week) for week, sheet in enumerate(SHEETS)}
POLICY = LatePolicy(free_days=1, term_days=3, per_day=10, closes_after=7)
RULES = Rules("class.toml", deadlines=DEADLINES, late=POLICY)


def handed_in(days: dict[str, int]) -> dict[str, str]:
    """Sheet → a time so many begun days after its deadline."""
    return {
        sheet: (DEADLINES[sheet] + timedelta(days=late, hours=-1)).isoformat()
        for sheet, late in days.items()
    }


DAYS = st.dictionaries(st.sampled_from(SHEETS), st.integers(0, 9))
POLICIES = st.builds(
    LatePolicy, st.integers(0, 2), st.integers(0, 6), st.just(10), st.sampled_from([None, 4, 7])
)


@pytest.mark.parametrize(
    ("days", "spent"),
    [
        ({}, {}),
        ({"02-sequences": 1}, {"02-sequences": 0}),  # the sheet's own free day
        ({"02-sequences": 3}, {"02-sequences": 2}),
        ({"02-sequences": 3, "03-critics": 3}, {"02-sequences": 2, "03-critics": 1}),
        ({"03-critics": 5, "02-sequences": 1}, {"02-sequences": 0, "03-critics": 3}),
        ({"02-sequences": 8, "04-agent": 2}, {"02-sequences": 0, "04-agent": 1}),  # closed
    ],
)
def test_days_are_spent_in_the_order_of_the_deadlines(days, spent):
    assert RULES.spent(handed_in(days)) == spent


@examples(100)
@given(DAYS, POLICIES)
def test_day_by_day_the_same_days_are_spent(days, policy):
    """A brute force: go through the sheets, and pay day by day while there is one left."""
    rules = replace(RULES, late=policy)
    purse, paid = policy.term_days, dict.fromkeys(days, 0)
    for sheet in SHEETS:
        open_days = policy.closes_after is None or days.get(sheet, 0) <= policy.closes_after
        for day in range(days.get(sheet, 0)):
            if open_days and day >= policy.free_days and purse:
                purse, paid[sheet] = purse - 1, paid[sheet] + 1
    assert rules.spent(handed_in(days)) == paid


NINE = ExerciseResult("double-check", (LedgerEntry("", 9.0),), 11.0, Ending.PASSED)


def test_the_student_reads_what_was_spent_and_what_is_left():
    result = SubmissionResult("ada", "", "03-critics", "x.ipynb", False, exercises=(NINE,))
    times = handed_in({"02-sequences": 3, "03-critics": 3})
    late = RULES.applied(result, times["03-critics"], times)
    assert late.notes == (
        "Late by 3 days (1 free, 1 of the term's, 10 % for each of 1): 9 − 0.9 = 8.1. "
        "Of the term's 3 late days 0 are left.",
    )
    alone = RULES.applied(result, times["03-critics"])
    assert alone.points == 9
    assert alone.notes[0].endswith("Of the term's 3 late days 1 are left.")


@st.composite
def terms(draw):
    """Students' days late of each sheet, and the order in which sheets are graded, some again."""
    students = draw(st.dictionaries(st.sampled_from(["Ann", "ann b", "Zoë", "1"]), DAYS))
    order = draw(st.permutations(SHEETS))
    return students, [*order, *draw(st.lists(st.sampled_from(SHEETS)))]


def graded(students, order) -> late_days.Times:
    times: late_days.Times = {}
    for sheet in order:
        of_sheet = {s: handed_in(days)[sheet] for s, days in students.items() if sheet in days}
        times = late_days.with_sheet(times, sheet, of_sheet)
    return times


@examples(100)
@given(terms())
def test_nothing_is_spent_twice_in_whatever_order_sheets_are_graded_and_graded_again(term):
    students, order = term
    times = graded(students, order)
    expected = {late_days.folded(s): handed_in(days) for s, days in students.items() if days}
    assert times == expected
    for days in times.values():
        assert sum(RULES.spent(days).values()) <= POLICY.term_days


@examples(100)
@given(terms(), st.sampled_from(["Ann", "ann b", "Zoë", "1"]), DAYS)
def test_no_one_s_days_go_to_another(term, somebody, other_days):
    students, order = term
    before = graded(students, order)
    after = graded({**students, somebody: other_days}, order)
    for student in (before.keys() | after.keys()) - {late_days.folded(somebody)}:
        assert RULES.spent(before[student]) == RULES.spent(after[student])


def test_an_earlier_sheet_that_is_graded_later_moves_the_days_of_others():
    before = graded({"ann": {"03-critics": 4}, "bob": {"03-critics": 1}}, SHEETS[1:2])
    times = handed_in({"02-sequences": 3})
    after = late_days.with_sheet(before, "02-sequences", {"ann": times["02-sequences"]})
    assert late_days.changed(before, after, RULES, "02-sequences") == {"03-critics": ["ann"]}
    assert late_days.changed(after, after, RULES, "02-sequences") == {}


@pytest.fixture
def listed(tmp_path):
    (tmp_path / "class.csv").write_text("student\nAnn\nZoë\n=1\n", encoding="utf-8")
    return read_class_list(tmp_path / "class.csv")


def test_the_file_keeps_what_was_read(tmp_path, listed):
    path = late_days.beside(tmp_path / "class.toml")
    assert path.name == "class.late.csv"
    assert late_days.kept(path, listed) == {}
    days = {"Ann": {"02-sequences": 3}, "Zoë": {"03-critics": 1}, "=1": {"04-agent": 2}}
    times = graded(days, SHEETS)
    late_days.keep(times, path, listed)
    assert late_days.kept(path, listed) == times
    assert "\nAnn,02-sequences," in path.read_text(encoding="utf-8")
    assert "\n'=1,04-agent," in path.read_text(encoding="utf-8")  # no formula


def test_two_students_who_would_be_one_in_the_file_are_refused(tmp_path):
    (tmp_path / "class.csv").write_text("student\n=1\n'=1\n", encoding="utf-8")
    listed = read_class_list(tmp_path / "class.csv")
    with pytest.raises(UserError, match="two students differ only in a leading apostrophe"):
        late_days.keep({}, tmp_path / "class.late.csv", listed)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Email address,sheet,submitted\n", "names students by 'Email address', and class.csv by"),
        ("student,sheet\n", "is damaged"),
        ("student,sheet,submitted\nann,02-sequences\n", "is damaged"),
        ("", "is damaged"),
    ],
)
def test_a_file_of_other_students_or_none_is_refused(tmp_path, listed, text, complaint):
    path = tmp_path / "class.late.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        late_days.kept(path, listed)
