"""Small batches for probes, and what a loss does with them.

A probe changes one thing about a batch and looks at what becomes of the weights ∂L/∂log π, or of
the value. It compares a loss with itself and not with a reference, so a formula that is written
differently and does the same passes, and what a probe finds has a name.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

import torch
from torch import Tensor

from nbcourse.examine.subject import OF_TOKENS, Batches, LossInputs, Subject

TOLERANCE = 1e-6  # relative; losses may well compute in float32
MIXED = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
UNEVEN = [4, 2, 3, 1, 4, 3]


def batch(
    lengths: list[int],
    rewards: list[float],
    *,
    group_size: int,
    width: int | None = None,
) -> LossInputs:
    """Fresh samples: one policy sampled and learns, the reference is another one."""
    return _batch(tuple(lengths), tuple(rewards), group_size, width or max(lengths))


@cache
def _batch(
    lengths: tuple[int, ...], rewards: tuple[float, ...], group_size: int, width: int
) -> LossInputs:
    """The same, made once: nobody writes to it."""
    source = torch.Generator().manual_seed(0)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    shape = (len(lengths), max(width, 8))  # the same numbers whatever the width
    log_probs = -0.5 - torch.rand(shape, generator=source, dtype=torch.float64)[:, :width]
    shift = 0.4 * torch.randn(shape, generator=source, dtype=torch.float64)[:, :width]
    log_probs, ref = log_probs.masked_fill(~mask, 0.0), (log_probs + shift).masked_fill(~mask, 0.0)
    scores = torch.tensor(rewards, dtype=torch.float64)
    return LossInputs(log_probs, log_probs, ref, mask, scores, group_size)


@cache
def of_one_token(rewards: tuple[float, ...]) -> LossInputs:
    """A group of responses of one token that earn this."""
    return without_reference(batch([1] * len(rewards), [*rewards], group_size=len(rewards)))


def in_float32(one: LossInputs) -> LossInputs:
    """The same batch for a loss that computes in float32."""
    return one.each((*OF_TOKENS, "rewards"), Tensor.float)


def same(first: Tensor, second: Tensor, *, loose: float = TOLERANCE) -> bool:
    """Equal but for rounding, or for so much of the largest."""
    scale = max(first.abs().max().item(), second.abs().max().item(), 1e-12)
    return bool(((first - second).abs() <= loose * scale).all())


def without_reference(one: LossInputs, *, sampler: bool = False) -> LossInputs:
    """The same batch with the reference equal to the policy: a KL to it is gone."""
    return one.with_(ref_log_probs=one.old_log_probs if sampler else one.log_probs)


@lru_cache(maxsize=4)
def reference_is_the_sampler(subject: Subject) -> bool:
    """Whether a KL to the reference is gone where the reference is the policy that *sampled*.

    A KL in the loss is gone where the reference is the policy that learns. One in the reward, as
    PPO has it, was computed when the batch was sampled. On fresh samples there is no difference.
    """
    fresh = batch([2, 2], [0.0, 0.0], group_size=2)
    shift = torch.tensor([[0.05, 0.02], [0.0, 0.0]], dtype=torch.float64)
    one = fresh.with_(old_log_probs=fresh.old_log_probs - shift)

    def moves(reference: Tensor) -> float:
        return subject.weights(one.with_(ref_log_probs=reference)).abs().max().item()

    return moves(one.old_log_probs) < moves(one.log_probs)


def of_rewards(subject: Subject, one: LossInputs) -> Tensor:
    """The weights that rewards make: less those of the same batch without any reward."""
    nothing = subject.weights(one.without_rewards())
    # a flat group may give NaN, which `flat_groups` tells
    return subject.weights(one) - nothing.nan_to_num(nan=0.0)


def of_rewards_of_each(subject: Subject, each: Sequence[LossInputs]) -> Tensor:
    """The same for each of several batches of one shape: (M, B, T)."""
    if len(each) == 1:
        return of_rewards(subject, each[0])[None]
    both = [*(one.without_rewards() for one in each), *each]
    nothing, weights = subject.weights_of_each(Batches(both)).split(len(each))
    return weights - nothing.nan_to_num(nan=0.0)


def finite(subject: Subject, one: LossInputs) -> bool:
    """Whether the loss and all weights are finite numbers."""
    loss = subject.loss(subject.quantities(one))
    return bool(loss.isfinite()) and bool(subject.weights(one).isfinite().all())
