"""A KL penalty that is frozen during the updates on a batch, beside one that is not."""

import torch
from IPython.display import HTML
from torch import Tensor

from nbcourse.display.curve_explorers import position
from nbcourse.display.in_page import in_page, rounded
from nbcourse.toys import regularised
from nbcourse.toys.sequences import SequenceSpace

DIGITS = 9  # significant


def explore_frozen(
    space: SequenceSpace,
    ref_logits: Tensor,
    rewards: Tensor,
    *,
    beta: float = 1.0,
    learning_rate: float = 1.0,
    updates: int = 4,
) -> HTML:
    """Move the step size and the updates on each batch: when a frozen penalty does not settle.

    Exact gradients of the forms "k1 in reward" and "k1 in reward, recomputed" of
    `toys.regularised`, thirty batches from the reference on, plain steps of constant size.

    Args:
        space: N sequences, few enough for a page.
        ref_logits: (S, V) of the reference.
        rewards: (N,).
        beta: β > 0.
        learning_rate: η at first, a multiple of 0.1 from 0.1 to 4.
        updates: n at first, 1 to 32.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if a shape does not fit, β is not positive, or a number is not one that its
            slider reaches.

    Book: equation (eq-frozen-penalty).
    """
    start = [
        position(learning_rate, name="learning_rate", unit=0.1, low=1, high=40),
        position(updates, name="updates", unit=1, low=1, high=32),
    ]
    best = regularised.optimum(space, ref_logits, rewards, beta=beta)
    paths = torch.stack([space.states, space.tokens], dim=2)
    problem = {
        "paths": [path[real].tolist() for path, real in zip(paths, space.mask, strict=True)],
        "refLogits": [rounded(row, digits=DIGITS) for row in ref_logits],
        "rewards": rounded(rewards, digits=DIGITS),
        "beta": beta,
        "largest": rounded(_largest(space, best)[None], digits=DIGITS)[0],
    }
    return in_page("frozen", problem, start, parts=["curves"])


def _largest(space: SequenceSpace, logits: Tensor) -> Tensor:
    """The largest eigenvalue of the Fisher information of whole sequences."""
    scores = torch.autograd.functional.jacobian(
        lambda x: space.log_probs(x).sum(dim=1), logits
    ).flatten(1)
    return torch.linalg.eigvalsh(scores.T @ (space.probs(logits)[:, None] * scores))[-1]
