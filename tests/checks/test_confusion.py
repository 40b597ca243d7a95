"""No check takes one mistake for another, and none asks for what has no one answer.

In every case of every variant a known mistake leads to another value than the right one; where two
of them lead to the same value, the message names both.
"""

import contextlib
import io
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import Attempt, NotRight, _comes_of
from tests.checks import masters
from tests.effort import swept

pytestmark = masters.needed
VARIANTS = swept(range(200), keep=[0, 1, 2])


class Noting(Attempt):
    """Notes the comparisons of a check with what known mistakes would lead to."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.compared: list[tuple[str, Any, Mapping[str, Any], float]] = []

    def equal(self, result, expected, *, case, mistakes=None, tolerance=1e-6):
        self.compared.append((case, expected, mistakes or {}, tolerance))
        super().equal(result, expected, case=case, mistakes=mistakes, tolerance=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("chapter", masters.MASTERS)
def test_no_mistake_leads_to_the_right_value(chapter, variant):
    with contextlib.redirect_stdout(io.StringIO()):
        names = masters.work(masters.master(chapter), variant=variant)
    sheet = Sheet(chapter, variant=variant)
    for exercise, found in sheet.exercises.items():
        attempt = Noting(names[masters.answer_name(chapter, exercise)])
        found.check(attempt, sheet._generator(exercise))
        for case, expected, mistakes, tolerance in attempt.compared:
            right = [
                why
                for why, value in mistakes.items()
                # what was rounded too early may come out as it should all the same
                if _comes_of(expected, value, tolerance) and "rounded" not in why
            ]
            assert not right, (exercise, case)


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_push_is_the_largest(variant):
    """Exercise 1.2 asks which; to two decimals, as the answer is handed in."""
    given = Sheet("01-bandit", variant=variant).numbers("by-hand")
    probs, rewards = (torch.tensor(given[key], dtype=torch.float64) for key in given)
    pushes = (probs * (rewards - probs @ rewards)).abs().round(decimals=2).sort().values
    assert pushes[-1] > pushes[-2]


def test_two_mistakes_with_one_value_are_both_named():
    attempt = Attempt(lambda x: x / 2)
    with pytest.raises(NotRight) as told:
        attempt.equal(
            attempt(torch.tensor(4.0)).item(),
            4.0,
            case="four",
            mistakes={"halved": 2.0, "a root was taken": 2.0, "doubled": 8.0},
        )
    assert "Likely mistake: halved" in str(told.value)
    assert "Or, with the same value here: a root was taken" in str(told.value)
    assert "doubled" not in str(told.value)


@pytest.mark.parametrize(
    ("found", "right"),
    [(1.727, True), (1.7265, True), (1.72651, True), (1.726, False), (1.728, False)],
)
def test_four_digits_are_four_digits(found, right):
    """Exercise 1.4, β = 1.72651: what is rounded as asked is right."""
    from nbcourse.checks.attempt import digits

    attempt = Attempt(lambda: None)
    refused = contextlib.nullcontext() if right else pytest.raises(NotRight, match="Wrong for β")
    with refused:
        attempt.equal(found, 1.72651, case="β", tolerance=digits(1.72651, 4))


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: tuple(x.tolist()),
        lambda x: [*x],
        lambda x: [row.numpy() for row in x],
    ],
    ids=["lists", "an array", "a tuple", "a list of tensors", "a list of arrays"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_lists_and_arrays_stand_for_tensors(form, dtype):
    right = torch.tensor([[1, 0, 1], [0, 0, 1]]).to(dtype)
    attempt = Attempt(lambda: form(right))
    found = attempt.tensor(attempt(), (2, 3), dtype=torch.bool if dtype is torch.bool else None)
    assert found.tolist() == right.tolist()
    attempt.equal(attempt(), right, case="two rows")
    with pytest.raises(NotRight, match=r"Expected shape \(3, 2\), got \(2, 3\)"):
        attempt.tensor(attempt(), (3, 2))


@pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)
def test_an_answer_in_lists_is_right_wherever_no_gradient_is_asked_for(chapter, exercise):
    names = masters.work(masters.master(chapter), variant=0)
    answer, sheet = names[masters.answer_name(chapter, exercise)], Sheet(chapter)

    def listed(value):
        if isinstance(value, torch.Tensor):
            return value if value.requires_grad else value.tolist()
        if isinstance(value, dict):
            return {key: listed(part) for key, part in value.items()}
        return type(value)(map(listed, value)) if isinstance(value, list | tuple) else value

    with contextlib.redirect_stdout(io.StringIO()):
        sheet.check(exercise, lambda *given: listed(answer(*given)))


def test_a_table_of_truth_values_is_drawn():
    right = torch.tensor([[True, False, False], [False, True, True]])
    attempt = Attempt(lambda x: ~right)
    with pytest.raises(NotRight) as told:
        attempt.equal(attempt(1.0), right, case="two rows")
    assert "expected x··\n           ·xx" in str(told.value)
    assert "True" not in str(told.value)


def test_which_entries_are_wrong_is_said_where_no_mistake_is_known():
    attempt = Attempt(lambda: torch.tensor([1.0, 2.5, 3.0]))
    with pytest.raises(NotRight, match=r"Not right are 1 of 3 entries \(counted from 0\): \[1\]"):
        attempt.equal(attempt(), torch.tensor([1.0, 2.0, 3.0]), case="three", tolerance=6e-3)
