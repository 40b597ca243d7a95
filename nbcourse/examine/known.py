"""Losses that have a name: the rows of the table, and which of them another is nearest to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError, did_you_mean
from nbcourse.examine import credit, ratio
from nbcourse.examine.batches import MIXED, batch, reference_is_the_sampler, without_reference
from nbcourse.examine.conventions import OFFERED
from nbcourse.examine.direction import EQUAL, Direction, direction
from nbcourse.examine.subject import Remembered, Subject
from nbcourse.examine.worlds import far, fresh, stale
from nbcourse.functional.kl import rewards_with_kl
from nbcourse.training.algorithms import ALGORITHMS, Algorithm, Penalty, Tokens, policy_loss

BETA = 0.1  # of a row that was published with a KL
LONGEST = 4000  # of a row that divides by the longest possible response


def row(
    name: str,
    *,
    beta: float = BETA,
    handed: bool = False,
    average: float = 0.0,
    longest: int = LONGEST,
) -> Subject:
    """A row of the table as a loss; a critic's values and greedy scores are 0.

    Args:
        name: of the row.
        beta: of its KL, where it was published with one.
        handed: whether it takes its advantages as they are given, instead of making its own.
        average: the running mean of rewards, for a row that keeps one.
        longest: possible response, for a row that divides by its length.

    Raises:
        ValueError: if there is no such row.
    """
    if name not in ALGORITHMS:
        raise UserError(
            f"the row is {name!r}, expected one of {', '.join(ALGORITHMS)}"
            f"{did_you_mean(name, ALGORITHMS)}"
        )
    made = _Row(ALGORITHMS[name], beta, average, longest)
    return Subject(name, made.loss, made.takes(handed=handed))


@dataclass(frozen=True)
class _Row:
    """A row with its settings, as `row` was asked for it."""

    algorithm: Algorithm
    beta: float
    average: float
    longest: int

    @property
    def penalty(self) -> Penalty:
        placement = self.algorithm.kl if self.beta > 0 else "none"
        return Penalty(placement, self.algorithm.kl_estimator, self.beta)

    def takes(self, *, handed: bool) -> tuple[str, ...]:
        """The quantities that it reads."""
        algorithm, placement = self.algorithm, self.penalty.placement
        reads = {"log_probs", "mask"} | ({"advantages"} if handed else {"rewards", "group_size"})
        for name in ("old_log_probs", "sampler_log_probs", "values"):
            reads |= {name} if algorithm.needs(name) else set()
        if algorithm.has_ratio:  # where only the sampler is asked, it is the old policy
            reads |= {"old_log_probs"}
        if not algorithm.needs("old_log_probs"):
            reads -= {"sampler_log_probs"}
        if placement != "none" or algorithm.needs("ref_log_probs"):
            reads |= {"ref_log_probs"}
        if placement in ("reward", "surrogate"):
            reads |= {"old_log_probs"}
        return tuple(name for name in OFFERED if name in reads)

    def loss(
        self,
        *,
        log_probs: Tensor,
        mask: Tensor,
        rewards: Tensor | None = None,
        group_size: int = 1,
        advantages: Tensor | None = None,
        values: Tensor | None = None,
        **others: Tensor,
    ) -> Tensor:
        """Of what it reads; a policy that it does not read is the one that learns."""
        old, ref = (
            others.get(name, log_probs).detach() for name in ("old_log_probs", "ref_log_probs")
        )
        if advantages is None:
            assert rewards is not None
            beta = self.beta if self.penalty.placement == "reward" else 0.0
            advantages = self.algorithm.estimate(
                self.algorithm.all_settings,
                rewards=rewards_with_kl(rewards, old, ref, mask, beta=beta),
                mask=mask,
                group_size=group_size,
                values=values,
                greedy_scores=torch.zeros_like(rewards),
                average=self.average,
                step_rewards=rewards[:, None],  # the answer is the only step
                step_ends=mask.sum(dim=1, keepdim=True) - 1,
            ).advantages
        return policy_loss(
            self.algorithm,
            self.algorithm.all_settings,
            self.penalty,
            Tokens(log_probs, old, ref, advantages, mask, values, others.get("sampler_log_probs")),
            max_length=self.longest,
        )


@dataclass(frozen=True)
class Nearest:
    """The row that does most of what a loss does.

    Attributes:
        row: its name.
        factor: how much longer the expected steps of the loss are than the row's, all in all.
        gap: how far they are from that, relative to their length, in all worlds, on fresh samples
            and on stale ones, a KL aside; 0 if the loss does what the row does.
    """

    row: str
    factor: float
    gap: float

    @property
    def same(self) -> bool:
        """Whether it takes the row's steps, but for their length."""
        return self.gap <= EQUAL


def nearest(subject: Subject, steps: Sequence[Direction]) -> Nearest:
    """Find it by small batches, and compare its expected gradients.

    Args:
        subject: the loss.
        steps: its own, in the worlds `fresh`, `stale` and `far`.
    """
    ours = features(subject)
    name = max(ALGORITHMS, key=lambda name: _likeness(ours, _features_of_row(name)))
    own = torch.cat([one.gradients for one in steps])
    three = ratio.knows_both(subject)
    expected = _gradients_of_row(name, "rewards" not in subject.takes, three)
    factor = ((own @ expected) / (expected @ expected)).item()
    gap = ((own - factor * expected).norm() / own.norm().clamp(min=1e-12)).item()
    return Nearest(name, factor, gap)


@cache
def _gradients_of_row(name: str, handed: bool, three: bool) -> Tensor:
    subject = Remembered.by(row(name, beta=0.0, handed=handed))
    sampler = reference_is_the_sampler(subject)
    old = [world(reference_is_the_sampler=sampler, three=three) for world in (stale, far)]
    directions = [direction(subject, worlds, ordered=False) for worlds in (fresh(), *old)]
    return torch.cat([one.gradients for one in directions])


def features(subject: Subject) -> dict[str, Any]:
    """What tells rows apart, most telling first."""
    ratios = [0.01, 0.5, 0.9, 1.1, 1.25, 1.5, 100.0]
    one = without_reference(batch([2] * 6, MIXED, group_size=3))
    return {
        "average": credit.average(subject),
        "positive": _rounded(ratio.ratio_weights(subject, 1, ratios)),
        "negative": _rounded(ratio.ratio_weights(subject, -1, ratios)),
        "sequence": ratio.ratio_of_the_sequence(subject),
        "correction": _correction(subject, ratios),
        "influence": credit.influence(subject),
        "spread": credit.spread_is_divided_out(subject),
        "scale": _rounded([subject.weights(one)[0, 0].item()]),
    }


@cache
def _features_of_row(name: str) -> Mapping[str, Any]:
    return features(row(name, beta=0.0))


def _likeness(ours: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How many features agree; those of the advantages, which may be given, count less."""
    less = {"influence": 0.75, "spread": 0.75, "scale": 0.5}
    return sum(less.get(key, 1.0) * (other[key] == value) for key, value in ours.items())


def _correction(subject: Subject, ratios: list[float]) -> tuple[Any, ...]:
    found = ratio.correction_at(subject, ratios)
    return (found[0], _rounded(found[1])) if found else ()


def _rounded(values: list[float]) -> tuple[float, ...]:
    return tuple(round(value, 3) + 0.0 for value in values)
