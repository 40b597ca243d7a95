"""The loop that all supervised training shares."""

from itertools import count, pairwise

import pytest
from torch import nn

from nbcourse.lm import descent
from nbcourse.lm.descent import descend


def test_the_learning_rate_follows_its_share():
    """AdamW's first steps on a constant gradient have the length of the learning rate."""
    module = nn.Linear(1, 1, bias=False)
    seen = []

    def loss_of_batch():
        seen.append(module.weight.item())
        return module.weight.sum()  # its gradient is 1 everywhere

    shares = [1.0, 0.5, 0.0, 0.25]
    losses = descend(
        module,
        loss_of_batch,
        label="line",
        steps=4,
        batch_size=1,
        learning_rate=0.1,
        share=lambda step: [*shares, 0.0][step],
        progress=False,
    )
    seen.append(module.weight.item())
    moved = [before - after for before, after in pairwise(seen)]
    assert moved == pytest.approx([0.1, 0.05, 0.0, 0.025], abs=1e-5)
    assert losses == pytest.approx(seen[:-1])


def test_a_gradient_that_is_not_finite_is_told_at_its_own_step_and_moves_nothing():
    """As on a GPU whose attention gave NaN in the backward pass alone: the loss is finite."""
    module, steps = nn.Linear(1, 1, bias=False), count()

    def loss_of_batch():
        step = next(steps)
        seen.append(module.weight.item())
        return module.weight.sum() if step == 0 else (0 * module.weight).sqrt().sum()

    seen = []
    options = {"label": "line", "steps": 3, "batch_size": 1, "learning_rate": 0.1}
    with pytest.raises(FloatingPointError, match="line: the gradient of step 2 is not finite"):
        descend(module, loss_of_batch, share=lambda _: 1.0, progress=False, **options)
    assert len(seen) == 2
    assert module.weight.item() == seen[1]


def test_a_bar_is_drawn_unless_it_is_refused(monkeypatch):
    seen = []

    def track(losses, label, *, visible, total):
        seen.append((label, visible, total))
        return losses

    monkeypatch.setattr(descent, "track", track)
    for options in ({}, {"progress": False}):
        module = nn.Linear(1, 1)
        descend(
            module,
            lambda module=module: module.weight.sum(),
            label="line",
            steps=2,
            batch_size=1,
            learning_rate=0.1,
            **options,
        )
    assert seen == [("line", True, 2), ("line", False, 2)]
