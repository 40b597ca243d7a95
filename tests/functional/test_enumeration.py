"""The ground truth of these tests is itself checked, in plain Python and by finite differences."""

import math

import pytest
import torch

from .enumeration import Responses, gradient


@pytest.mark.parametrize(
    ("eos", "responses", "states"),
    # with an end token: 1 response of one token, 2 · 1 of two, 2 · 2 · 3 of three;
    # states: the empty prefix, 2 or 3 of one token, 4 or 9 of two
    [(None, 27, 1 + 3 + 9), (0, 1 + 2 + 12, 1 + 2 + 4), (2, 1 + 2 + 12, 1 + 2 + 4)],
)
def test_every_response_is_there_once(eos, responses, states):
    world = Responses(eos)
    assert len(set(world.tokens)) == len(world.tokens) == responses
    assert len(world.prefixes) == states
    assert world.mask.sum(dim=1).tolist() == [len(y) for y in world.tokens]
    assert all(eos not in y[:-1] for y in world.tokens)


@pytest.mark.parametrize("eos", [None, 1])
def test_probabilities_are_products_of_softmaxes_and_sum_to_one(eos):
    world = Responses(eos)
    logits = world.logits(seed=1)
    table = {prefix: logits[i].tolist() for i, prefix in enumerate(world.prefixes)}
    for y, found in zip(world.tokens, world.probs(logits).tolist(), strict=True):
        expected = 1.0
        for t, token in enumerate(y):
            weights = [math.exp(z) for z in table[y[:t]]]
            expected *= weights[token] / sum(weights)
        assert found == pytest.approx(expected)
    assert world.probs(logits).sum().item() == pytest.approx(1.0)
    # the first state is always visited, and each later one as often as it is reached
    assert world.visits(logits)[0].item() == pytest.approx(1.0)
    lengths = world.mask.sum(dim=1)
    mean_length = (world.probs(logits) * lengths).sum().item()
    assert world.visits(logits).sum().item() == pytest.approx(mean_length)


def test_the_gradient_of_an_expectation_matches_finite_differences():
    world = Responses(eos=0)
    logits, scores = world.logits(seed=1), torch.arange(15, dtype=torch.float64)
    found = gradient((world.probs(logits) * scores).sum(), logits)
    with torch.no_grad():
        for i, j in [(0, 0), (0, 2), (3, 1), (6, 2)]:
            step = torch.zeros_like(logits)
            step[i, j] = 1e-5
            up, down = ((world.probs(logits + s) * scores).sum() for s in (step, -step))
            assert found[i, j].item() == pytest.approx(((up - down) / 2e-5).item(), rel=1e-6)
