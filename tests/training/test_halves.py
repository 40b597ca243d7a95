"""The cosine of the gradients of two halves, from all weights or from some."""

import pytest
import torch

from nbcourse.training import halves
from nbcourse.training.diagnostics import Means
from nbcourse.training.update import backward, slice_loss, slices
from tests.small import ALONE
from tests.training.test_loop import prepared

GROUPS = torch.arange(6)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_it_is_that_of_even_and_odd_slices(name, monkeypatch):
    critic = {"critic": {"shared": False}} if name == "ppo" else {}
    update = prepared(name, optimiser={"prompts_at_once": 1}, **critic)
    pieces, learner = slices(update, GROUPS), update.learner
    assert len(pieces) > 2
    sums = [0.0, 0.0]
    for piece, rows in enumerate(pieces):
        for _, parameter in learner.trained():
            parameter.grad = torch.zeros_like(parameter)
        slice_loss(update, rows, update.experience.rollout.mask, Means(), first=True).backward()
        sums[piece % 2] += torch.cat([p.grad.flatten() for _, p in learner.trained()])
    expected = torch.cosine_similarity(*sums, dim=0).item()
    assert abs(expected) < 0.99

    found = backward(update, GROUPS, first=True).result()["half_cosine"]
    assert found == pytest.approx(expected, abs=1e-5)
    assert "half_cosine" not in backward(update, GROUPS, first=False).result()

    monkeypatch.setattr(halves, "MOST", 5_000)  # of a larger model some of the weights
    some = backward(update, GROUPS, first=True).result()["half_cosine"]
    assert some != found
    assert some == pytest.approx(expected, abs=0.2)


def test_a_single_slice_has_no_halves():
    update = prepared("grpo")
    assert len(slices(update, GROUPS)) == 1
    assert "half_cosine" not in backward(update, GROUPS, first=True).result()


def test_a_half_without_a_gradient_has_no_cosine():
    gradient = torch.zeros(4)
    both = halves.Halves([gradient])
    gradient += torch.tensor([1.0, 2.0, 0.0, 0.0])
    both.add(0)
    assert both.cosine(ALONE) is None
    gradient += torch.tensor([2.0, -1.0, 0.0, 5.0])
    both.add(1)
    gradient += torch.tensor([0.0, 0.0, 3.0, 5.0])
    both.add(2)
    assert both.cosine(ALONE) == pytest.approx(25 / (39 * 30) ** 0.5)
