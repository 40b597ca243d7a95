"""Losses that have a name: the rows of the table, and which of them another is nearest to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from heapq import heappop, heappush
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError, did_you_mean
from nbcourse.examine import credit, ratio
from nbcourse.examine.batches import MIXED, batch, reference_is_the_sampler, without_reference
from nbcourse.examine.conventions import OFFERED
from nbcourse.examine.direction import EQUAL, Direction, direction
from nbcourse.examine.remembered import Remembered
from nbcourse.examine.subject import Batches, Subject
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
    of_given = Subject(name, made.loss, made.takes(handed=True))
    if handed:
        return of_given
    return Row(name, made.loss, made.takes(handed=False), made=made, handed=of_given)


@dataclass(frozen=True, eq=False, kw_only=True)
class Row(Subject):
    """A row that makes its own advantages.

    Attributes:
        made: with its settings.
        handed: the same row, which is handed them.
    """

    made: "_Row"
    handed: Subject

    def prepared(self, batches: Batches) -> tuple[Subject, dict[str, Any]]:
        """Advantages may look into their arguments, and do not depend on log-probs."""
        given = {name: batches.stacked(name) for name in self.asks}
        return self.handed, given | {"advantages": self.made.advantages_of_each(**given)}


@dataclass(frozen=True)
class _Row:
    """A row with its settings, as `row` was asked for it."""

    algorithm: Algorithm
    beta: float
    average: float
    longest: int

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Those that it has if nothing is said."""
        return self.algorithm.all_settings

    @cached_property
    def penalty(self) -> Penalty:
        placement = self.algorithm.kl if self.beta > 0 else "none"
        return Penalty(placement, self.algorithm.kl_estimator, self.beta)

    @cached_property
    def charges(self) -> tuple[str, ...]:
        """The policies between which a KL is charged to the rewards; none where it is not."""
        return ("old_log_probs", "ref_log_probs") if self.penalty.placement == "reward" else ()

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
        advantages: Tensor | None = None,
        values: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        """Of what it reads; a policy that it does not read is the one that learns."""
        old, ref = (
            others.get(name, log_probs).detach() for name in ("old_log_probs", "ref_log_probs")
        )
        if advantages is None:
            policies = {"old_log_probs": old, "ref_log_probs": ref}
            advantages = self.advantages(mask=mask, values=values, **{**others, **policies})
        return policy_loss(
            self.algorithm,
            self.settings,
            self.penalty,
            Tokens(log_probs, old, ref, advantages, mask, values, others.get("sampler_log_probs")),
            max_length=self.longest,
        )

    def advantages(
        self,
        *,
        rewards: Tensor,
        mask: Tensor,
        group_size: int,
        values: Tensor | None = None,
        **others: Tensor,
    ) -> Tensor:
        """Its own, (B, T)."""
        charged = [others[name] for name in self.charges]
        return self._estimate(
            scores=rewards,
            earned=self._earned(rewards, mask, *charged),
            mask=mask,
            group_size=group_size,
            values=values,
        )

    def advantages_of_each(
        self,
        *,
        rewards: Tensor,
        mask: Tensor,
        group_size: int,
        values: Tensor | None = None,
        **others: Tensor,
    ) -> Tensor:
        """Those of many batches, (M, B, T): in one call, unless they look into their arguments."""
        charged = (others[name].flatten(0, 1) for name in self.charges)
        earned = self._earned(rewards.flatten(), mask.flatten(0, 1), *charged).view(mask.shape)
        given = {"scores": rewards, "earned": earned, "mask": mask}
        given |= {} if values is None else {"values": values}

        def of_one(one: Mapping[str, Tensor]) -> Tensor:
            return self._estimate(group_size=group_size, **one)

        try:
            return torch.vmap(of_one)(given)
        except RuntimeError:
            each = zip(*given.values(), strict=True)
            return torch.stack([of_one(dict(zip(given, one, strict=True))) for one in each])

    def _earned(self, rewards: Tensor, mask: Tensor, *charged: Tensor) -> Tensor:
        """(B, T) what each token earns, charged with a KL if two policies are given for it."""
        old, ref = charged or (torch.zeros(mask.shape, dtype=rewards.dtype),) * 2
        return rewards_with_kl(rewards, old, ref, mask, beta=self.beta if charged else 0.0)

    def _estimate(
        self,
        *,
        scores: Tensor,
        earned: Tensor,
        mask: Tensor,
        group_size: int,
        values: Tensor | None = None,
    ) -> Tensor:
        return self.algorithm.estimate(
            self.settings,
            rewards=earned,
            mask=mask,
            group_size=group_size,
            values=values,
            greedy_scores=torch.zeros_like(scores),
            average=self.average,
            step_rewards=scores[:, None],  # the answer is the only step
            step_ends=mask.sum(dim=1, keepdim=True) - 1,
        ).advantages


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
    handed, three = "rewards" not in subject.takes, ratio.knows_both(subject)
    name = _likest({key: read(subject) for key, read in FEATURES.items()}, handed)
    own = torch.cat([one.gradients for one in steps])
    expected = _gradients_of_row(name, handed, three)
    factor = ((own @ expected) / (expected @ expected)).item()
    gap = ((own - factor * expected).norm() / own.norm().clamp(min=1e-12)).item()
    return Nearest(name, factor, gap)


@cache
def _gradients_of_row(name: str, handed: bool, three: bool) -> Tensor:
    subject = _plain(name, handed)
    sampler = reference_is_the_sampler(subject)
    old = [world(reference_is_the_sampler=sampler, three=three) for world in (stale, far)]
    every = [fresh(), *old]
    subject.look_ahead(world.listed() for worlds in every for world in worlds)
    directions = [direction(subject, worlds, ordered=False) for worlds in every]
    return torch.cat([one.gradients for one in directions])


@cache
def _plain(name: str, handed: bool) -> Remembered:
    """A row without a KL, which is asked once in a process about each batch."""
    return Remembered.by(row(name, beta=0.0, handed=handed))


# ---------------------------------------------------------------- what tells rows apart

RATIOS = [0.01, 0.5, 0.9, 1.1, 1.25, 1.5, 100.0]


def _scale(subject: Subject) -> tuple[float, ...]:
    one = without_reference(batch([2] * 6, MIXED, group_size=3))
    return _rounded([subject.weights(one)[0, 0].item()])


def _correction(subject: Subject) -> tuple[Any, ...]:
    if not ratio.knows_both(subject):
        return ()
    weights = ratio.ratio_weights(subject, 1, RATIOS, ratio.SAMPLER)
    return ratio.level_of(subject, ratio.SAMPLER), _rounded(weights)


def _rounded(values: list[float]) -> tuple[float, ...]:
    return tuple(round(value, 3) + 0.0 for value in values)


FEATURES: Mapping[str, Callable[[Subject], Any]] = {  # most telling first
    "average": credit.average,
    "positive": lambda subject: _rounded(ratio.ratio_weights(subject, 1, RATIOS)),
    "negative": lambda subject: _rounded(ratio.ratio_weights(subject, -1, RATIOS)),
    "sequence": lambda subject: ratio.level_of(subject, "old_log_probs") != "token",
    "correction": _correction,
    "influence": credit.influence,
    "spread": credit.spread_is_divided_out,
    "scale": _scale,
}
LESS = {"influence": 0.75, "spread": 0.75, "scale": 0.5}  # than 1


def _likest(ours: Mapping[str, Any], handed: bool) -> str:
    """The row with which most features agree, each counting 1 or `LESS`; the first of several.

    The next feature is always read of the row that may still agree with most: of most rows few are.
    """
    keys, all_of_them = list(ours), sum(LESS.get(key, 1.0) for key in ours)
    heap = [(-all_of_them, place, name, 0) for place, name in enumerate(ALGORITHMS)]
    while True:
        least, place, name, known = heappop(heap)
        if known == len(keys):
            return name
        key = keys[known]
        if _feature_of_row(name, key, handed) != ours[key]:
            least += LESS.get(key, 1.0)
        heappush(heap, (least, place, name, known + 1))


@cache
def _feature_of_row(name: str, key: str, handed: bool) -> Any:
    return FEATURES[key](_plain(name, handed))
