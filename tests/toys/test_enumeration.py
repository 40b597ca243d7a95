"""Exact moments and groups, against plain loops."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

from nbcourse.toys import enumeration

PROBS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def test_mean_and_variance_of_a_die_by_hand():
    """Values 1, 2, 4 with p = (.5, .3, .2): mean .5+.6+.8 = 1.9, E[X²] = .5+1.2+3.2 = 4.9."""
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert_close(enumeration.mean(PROBS, values), torch.tensor(1.9, dtype=torch.float64))
    expected = torch.tensor(4.9 - 1.9**2, dtype=torch.float64)
    assert_close(enumeration.variance(PROBS, values), expected)


def test_moments_are_taken_for_each_component():
    values = torch.tensor([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]], dtype=torch.float64)
    assert_close(enumeration.variance(PROBS, values)[1], torch.tensor(0.0, dtype=torch.float64))
    assert_close(enumeration.mean(PROBS, values)[1], torch.tensor(5.0, dtype=torch.float64))


@pytest.mark.parametrize("group_size", [1, 2, 3])
def test_groups_are_all_ordered_draws_and_their_probabilities_are_products(group_size):
    members = enumeration.groups(3, group_size)
    assert members.tolist() == [list(draw) for draw in product(range(3), repeat=group_size)]
    weights = enumeration.group_probs(PROBS, members)
    assert_close(weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    by_hand = [torch.stack([PROBS[i] for i in row]).prod() for row in members]
    assert_close(weights, torch.stack(by_hand))


def test_too_many_groups_are_refused_before_memory_runs_out():
    with pytest.raises(ValueError, match="outcomes=27 and group_size=6"):
        enumeration.groups(27, 6)
