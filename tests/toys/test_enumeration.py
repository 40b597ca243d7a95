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


# Outcomes with weights that differ, and values of two components.
VALUES = torch.tensor([[1.0, -2.0], [2.0, 0.5], [4.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("draws", [1, 2, 3, 5])
def test_the_moments_of_a_weighted_mean_are_those_of_all_draws(draws):
    weights = torch.tensor([3, 1, 4])
    members = enumeration.groups(3, draws)
    w = weights[members][..., None]
    means = (w * VALUES[members]).sum(dim=1) / w.sum(dim=1)
    probs = enumeration.group_probs(PROBS, members)
    mean, variance = enumeration.weighted_mean(PROBS, VALUES, weights, draws=draws)
    assert_close(mean, enumeration.mean(probs, means))
    assert_close(variance, enumeration.variance(probs, means))


def test_with_equal_weights_the_variance_is_divided_by_the_draws():
    values = VALUES[:, None]  # of any shape
    found = enumeration.weighted_mean(PROBS, values, torch.tensor([2, 2, 2]), draws=300)
    assert_close(found[0], enumeration.mean(PROBS, values))
    assert_close(found[1], enumeration.variance(PROBS, values) / 300)


@pytest.mark.parametrize("draws", [1, 3, 256])
def test_what_does_not_vary_has_no_variance(draws):
    constants = torch.linspace(-3, 7, 30, dtype=torch.float64).expand(3, 30)
    weights = torch.tensor([1, 2, 5])
    mean, variance = enumeration.weighted_mean(PROBS, constants, weights, draws=draws)
    assert_close(mean, constants[0])
    assert (variance >= 0).all()
    assert variance.max() < 1e-24


@pytest.mark.parametrize(("least", "draws"), [(0, 2), (1, 0)])
def test_weights_and_draws_are_at_least_1(least, draws):
    with pytest.raises(ValueError, match=f"draws is {draws} and the least weight {least}"):
        enumeration.weighted_mean(PROBS, VALUES, torch.tensor([least, 1, 2]), draws=draws)
