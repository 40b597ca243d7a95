"""Right verdicts: wrong answers are refused and right ones accepted, whatever form they have.

Wrong answers are small changes of each solution, of what it returns and of what it is called with
(`mutated`); right ones are the solution in other forms (`rewritten`). Each is checked as a grader
would do it, in this process. A wrong one that is accepted in truth says the same as the solution,
for a reason that stands in `equivalent`.
"""

import random
from typing import Any

import pytest

from tests.checks import masters, mutated, rewritten, tally
from tests.checks.bench import ACCEPTED, desk
from tests.checks.tally import accepted, refused
from tests.effort import swept

pytestmark = masters.needed
STUDENTS = (0, 290)  # as far as the variants of their sheets go
OTHERS = tuple(range(1, 49))  # 50 with these two
WRONG, RIGHT = 30, 8  # as many of each are known at least
TRIED_WRONG, TRIED_RIGHT = 6, 2  # in each run, other ones for each exercise and student
EACH = [(*exercise, student) for exercise in masters.EVERY_EXERCISE for student in STUDENTS]
QUICK = [*EACH[::2], *EACH[1::42]]  # both students, the second for some exercises
MORE = [(*exercise, student) for exercise in masters.EVERY_EXERCISE for student in OTHERS]


def chosen(known: dict[str, Any], count: int, *, seed: str) -> dict[str, Any]:
    return dict(random.Random(seed).sample(sorted(known.items()), min(count, len(known))))


everywhere = pytest.mark.parametrize(
    ("chapter", "exercise", "student"), swept([*EACH, *MORE], keep=QUICK)
)


@everywhere
def test_some_wrong_answers_are_refused(chapter, exercise, student):
    at = desk(chapter, exercise, student)
    known = mutated.all_of(at)
    assert len(known) >= WRONG
    seed = f"{chapter}/{exercise}/{student}"
    assert accepted(at, chosen(known, TRIED_WRONG, seed=seed)) == []


@everywhere
def test_some_right_answers_are_accepted(chapter, exercise, student):
    at = desk(chapter, exercise, student)
    known = rewritten.all_of(at)
    assert len(known) >= RIGHT
    seed = f"{chapter}/{exercise}/{student}"
    assert refused(at, chosen(known, TRIED_RIGHT, seed=seed)) == {}


def test_what_is_recorded_counts_refused_and_accepted_answers():
    counts = tally.counts("02-sequences", "mend-the-groups", 0)
    assert counts["wrong refused"] == counts["wrong"] >= WRONG
    assert counts["right"] >= RIGHT
    assert counts["right refused"] == counts["right refused in a bundle"] == 0
    assert counts["wrong refused in a bundle"] > 0.9 * counts["wrong"]


@pytest.mark.sweep
@pytest.mark.parametrize(("chapter", "exercise", "student"), EACH)
def test_all_wrong_answers_are_refused_and_all_right_ones_accepted(chapter, exercise, student):
    at = desk(chapter, exercise, student)
    wrong = mutated.all_of(at)
    assert accepted(at, wrong) == []
    assert sum(at.says(answer) != ACCEPTED for answer in wrong.values()) >= WRONG
    assert refused(at, rewritten.all_of(at)) == {}
