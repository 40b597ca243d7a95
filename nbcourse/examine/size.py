"""Probes of how large a weight can become: over all outcomes of a group, and far from a policy."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from nbcourse.examine.batches import (
    batch,
    in_float32,
    of_one_token,
    of_rewards,
    of_rewards_of_each,
)
from nbcourse.examine.subject import OF_TOKENS, LossInputs, Subject

MANY = 50.0  # times the median over all outcomes: no method that divides by a spread comes near
HUGE = 1e6  # the same for one token that is far off
NATS = 100.0  # more than an exponential in float32 holds
EXACT = (0.0, 0.5, 1.0)  # rewards of groups of four, numbers of any float
ROUNDED = (0.0, 0.3, 0.95)


@dataclass(frozen=True)
class Largest:
    """The largest weight of a response over all outcomes of a group.

    Attributes:
        times: the median; infinite if it is no number.
        rewards: of the group.
    """

    times: float
    rewards: list[float]


def largest(subject: Subject) -> Largest:
    """Over binary, graded and nearly equal rewards that floats hold exactly."""
    near = [[0.5, 0.5, 0.5, 0.5 + 2.0**-k] for k in (7, 10, 13, 20)]
    found: list[tuple[float, list[float]]] = []
    for outcomes in ([*_graded(EXACT), *near], _binary(1.0)):
        for places in zip(*map(_of_outcome, outcomes), strict=True):
            weights = of_rewards_of_each(subject, places).abs().amax(dim=(1, 2))
            found += zip(weights.tolist(), outcomes, strict=True)
    return _largest(found)


def noisy(subject: Subject) -> Largest:
    """Over rewards that floats do not hold, so that a spread of 0 may come out as something.

    Each is asked for alone: in another order of its sums, what is rounded may be another number.
    """
    return _largest(
        (of_rewards(subject, one).abs().max().item(), rewards)
        for rewards in (*_graded(ROUNDED), *_binary(0.95))
        for one in _of_outcome(rewards)
    )


def _of_outcome(rewards: list[float]) -> tuple[LossInputs, LossInputs]:
    """Responses of one token that earn this, in float64 and in float32."""
    one = of_one_token(tuple(rewards))
    return one, in_float32(one)


def _largest(weights: Iterable[tuple[float, list[float]]]) -> Largest:
    """Of the largest weight for each outcome; flat groups, of `credit.flat_groups`, are none."""
    found = [(one if math.isfinite(one) else math.inf, rewards) for one, rewards in weights]
    sizes = sorted(size for size, _ in found if size > 0)
    if not sizes or math.isinf(sizes[len(sizes) // 2]):
        return Largest(1.0, [])
    most, rewards = max(found, key=lambda one: one[0])
    return Largest(most / sizes[len(sizes) // 2], rewards)


def _graded(levels: tuple[float, ...]) -> list[list[float]]:
    groups = combinations_with_replacement(levels, 4)
    return [[*chosen] for chosen in groups if len({*chosen}) > 1]


def _binary(right: float) -> list[list[float]]:
    return [[0.0] * (8 - k) + [right] * k for k in range(1, 8)]


@dataclass(frozen=True)
class Far:
    """What one token, or a whole response, does that is 100 nats from another policy, in float32.

    Attributes:
        policy: which one it is far from.
        what: "one token" or "a whole response".
        above: whether the policy that learns is the likelier one.
        sign: of its advantage.
        size: of the largest weight, beside that of a fresh batch; infinite or NaN if that is so.
    """

    policy: str
    what: str
    above: bool
    sign: int
    size: float


def far(subject: Subject) -> list[Far]:
    """All cases in which a loss or a weight is not finite, or larger than `HUGE`."""
    policies = [name for name in OF_TOKENS[1:] if name in subject.takes]
    return [
        case
        for policy in policies
        for what in ("one token", "a whole response")
        for above in (True, False)
        for sign in (1, -1)
        if not (case := _far(subject, policy, what, above, sign)).size <= HUGE
    ]


def _far(subject: Subject, policy: str, what: str, above: bool, sign: int) -> Far:
    rewards = [1.0, 0.0] if sign > 0 else [0.0, 1.0]
    one = in_float32(batch([3, 3], rewards, group_size=2))
    usual = subject.weights(one).abs().max().item() or 1.0
    cells = torch.zeros(one.mask.shape, dtype=torch.bool)
    cells[0, 1 if what == "one token" else slice(None)] = True
    away = _apart(one, policy, cells, above)
    weights = subject.weights(away)
    loss = subject.loss(subject.quantities(away)).item()
    size = weights.abs().max().item() / usual if bool(weights.isfinite().all()) else math.nan
    if bool(weights.isinf().any()):
        size = math.inf
    return Far(policy, what, above, sign, size if math.isfinite(loss) else loss)


def _apart(one: LossInputs, policy: str, cells: Tensor, above: bool) -> LossInputs:
    """Either of two policies says that these tokens are all but impossible."""
    if not above:
        return one.with_(
            **{
                name: getattr(one, name).masked_fill(cells, -NATS - 1)
                for name in OF_TOKENS
                if getattr(one, name) is not None and name != policy
            },
            **{policy: one.log_probs},
        )
    return one.with_(**{policy: one.log_probs.masked_fill(cells, -NATS - 1)})


POLICIES = {
    "old_log_probs": "the old policy",
    "sampler_log_probs": "the policy that sampled",
    "ref_log_probs": "the reference",
}


def told(cases: list[Far]) -> str:
    """Cases in words, those together that differ by the sign of the advantage."""
    found: dict[str, list[str]] = {}
    for case in cases:
        way = "likelier" if case.above else "less likely"
        size = "NaN" if math.isnan(case.size) else f"{case.size:.2g}".replace("inf", "infinite")
        where = f"{case.what} 100 nats {way} than to {POLICIES[case.policy]}"
        found.setdefault(where, []).append(f"{size} (A {'> 0' if case.sign > 0 else '< 0'})")
    return "; ".join(f"{where}: {' or '.join(sizes)}" for where, sizes in found.items())
