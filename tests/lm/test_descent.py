"""The loop that all supervised training shares."""

from itertools import pairwise

import pytest
from torch import nn

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
