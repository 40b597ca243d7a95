"""Probes of the ratio π/π_old: what it weighs, and to which policy it is one."""

import math
from dataclasses import dataclass

from torch import Tensor

from nbcourse.examine.batches import (
    batch,
    of_rewards,
    reference_is_the_sampler,
    same,
    without_reference,
)
from nbcourse.examine.subject import LossInputs, Subject

RATIOS = [0.01, 0.5, 0.9, 0.999, 1.001, 1.1, 1.5, 5.0, 100.0]


@dataclass(frozen=True)
class Clip:
    """Weights of a token by its ratio π/π_old, relative to a fresh one, at `RATIOS`.

    Attributes:
        positive: where the advantage is positive.
        negative: where it is negative.
        bounds: lower and upper end of the interval in which tokens keep their gradient: the lower
            for negative advantages, the upper for positive ones; 0 and ∞ where there is none.
        of_sequence: whether the ratio is one of the whole response.
        of_reference: whether it is one to the reference.
    """

    positive: list[float]
    negative: list[float]
    bounds: tuple[float, float]
    of_sequence: bool
    of_reference: bool


def clip(subject: Subject) -> Clip:
    """Where tokens lose their gradient, by ratio and by the sign of the advantage."""
    positive, negative = (ratio_weights(subject, sign, RATIOS) for sign in (1, -1))
    lower = _edge(subject, -1, RATIOS[0]) if negative[0] == 0 else 0.0
    upper = _edge(subject, 1, RATIOS[-1]) if positive[-1] == 0 else math.inf
    of_sequence = ratio_of_the_sequence(subject)
    of_reference = ratio_is_to_the_reference(subject)
    return Clip(positive, negative, (lower, upper), of_sequence, of_reference)


def _edge(subject: Subject, sign: int, cut: float) -> float:
    """The ratio, between 1 and one that is cut, at which the weight goes to 0.

    By bisection of its logarithm.
    """
    inside, outside = 0.0, math.log(cut)
    for _ in range(20):
        middle = (inside + outside) / 2
        (weight,) = ratio_weights(subject, sign, [math.exp(middle)])
        inside, outside = (inside, middle) if weight == 0 else (middle, outside)
    return round(math.exp(inside), 5)


def ratio_weights(subject: Subject, advantage_sign: int, ratios: list[float]) -> list[float]:
    """Weight of a token with this ratio π/π_old, relative to that of a fresh one.

    Of one response to two; the other one's tokens are fresh. 1 everywhere means that the loss does
    not look at the ratio.
    """
    rewards = [1.0, 0.0] if advantage_sign > 0 else [0.0, 1.0]
    fresh = batch([1, 1], rewards, group_size=2)
    unit, *moved = (_moved(subject, fresh, ratio)[0, 0].item() for ratio in (1.0, *ratios))
    return [w / unit if unit else math.nan for w in moved]


def ratio_is_to_the_reference(subject: Subject) -> bool:
    """Whether a token counts its ratio π/π_ref, where it should count π/π_old."""
    plain = without_reference(batch([1, 1], [1.0, 0.0], group_size=2))
    ref = plain.ref_log_probs.clone()
    ref[0, 0] -= math.log(1.01)
    unit, moved = (
        of_rewards(subject, one)[0, 0].item() for one in (plain, plain.with_(ref_log_probs=ref))
    )
    return unit != 0 and math.isclose(moved / unit, 1.01, rel_tol=1e-5)


def ratio_of_the_sequence(subject: Subject) -> bool:
    """Whether the ratio of one token changes the weight of another token of the response."""
    fresh = batch([2, 2], [1.0, 0.0], group_size=2)
    still, moved = (_moved(subject, fresh, ratio) for ratio in (1.0, 1.05))
    return not same(moved[0, 1:], still[0, 1:])


def _moved(subject: Subject, fresh: LossInputs, ratio: float) -> Tensor:
    """Weights where the first token of the first response has this ratio."""
    old = fresh.old_log_probs.clone()
    old[0, 0] -= math.log(ratio)
    one = fresh.with_(old_log_probs=old)
    return of_rewards(subject, without_reference(one, sampler=reference_is_the_sampler(subject)))
