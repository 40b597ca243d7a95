"""What a witness states, and when two tables are called the same."""

import math

import pytest
import torch

from nbcourse.diagnosis.stated import close, largest, row_of, sampled, token_rewards_of, whole
from nbcourse.diagnosis.witness import Witness
from nbcourse.training.algorithms import ALGORITHMS


def test_tables_are_the_same_but_for_a_ten_thousandth_of_the_largest_number():
    table = torch.tensor([[2.0, 0.5], [1.0, math.nan]])
    mask = torch.tensor([[True, True], [True, False]])
    for off, same in ((1.9e-4, True), (2.1e-4, False)):
        assert close(table + torch.tensor([[0.0, off], [0.0, 0.0]]), table, mask) is same
    assert close(torch.empty(0), torch.empty(0))


def test_the_largest_distance_is_that_under_the_mask():
    difference = torch.tensor([-3.0, 1.0, 8.0])
    assert largest(difference, torch.tensor([True, True, False])) == 3
    assert largest(difference, torch.zeros(3, dtype=torch.bool)) == 0


def witness(facts, **tensors):
    mask = torch.tensor([[True, True, False], [True, False, False]])
    return Witness(facts, {"tokens": torch.zeros(2, 3), "mask": mask, **tensors})


PARTS = {"advantage": "leave_one_out", "surrogate": "cispo", "aggregation": "token-mean"}


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        ({"algorithm": "grpo"}, True),
        ({"algorithm": "mine"}, False),
        ({"algorithm": "grpo", "not_followed": "a reason"}, False),
        ({"algorithm": "mine", "parts": PARTS}, True),
        ({"algorithm": "mine", "parts": PARTS | {"surrogate": "of my own"}}, False),
    ],
)
def test_a_row_is_known_by_its_name_or_by_its_parts(facts, known):
    row = row_of(witness(facts))
    assert (row is not None) == known
    if known and "parts" in facts:
        assert row.surrogate is ALGORITHMS["cispo"].surrogate
        assert row.advantage is ALGORITHMS["rloo"].advantage
        assert row.aggregation == "token-mean"


def test_a_score_without_rewards_of_tokens_stands_on_the_last_one():
    one = witness({}, scores=torch.tensor([2.0, 3.0]))
    assert token_rewards_of(one).tolist() == [[0, 2, 0], [3, 0, 0]]


@pytest.mark.parametrize(("rows", "complete"), [(2, True), (8, False)])
def test_what_is_known_of_a_batch(rows, complete):
    one = witness({"batch": {"rows": rows}}, lengths=torch.tensor([3, 1]))
    assert whole(one) is complete
    assert sampled(one).tolist() == [[True, True, True], [True, False, False]]
