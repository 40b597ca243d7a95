"""Everything that is measured about a loss, before anything is said about it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nbcourse.examine import (
    attribution,
    credit,
    critic,
    direction,
    hygiene,
    kernel,
    penalty,
    repairs,
    size,
    worlds,
)
from nbcourse.examine.attribution import Shares
from nbcourse.examine.batches import reference_is_the_sampler
from nbcourse.examine.critic import Critic
from nbcourse.examine.direction import Direction, Worst
from nbcourse.examine.hygiene import Split
from nbcourse.examine.kernel import Kernel
from nbcourse.examine.penalty import Descent
from nbcourse.examine.ratio import Clip, clip, correction, knows_both
from nbcourse.examine.size import Far, Largest
from nbcourse.examine.subject import Subject

NOWHERE = Worst(1.0, [], [])


@dataclass(frozen=True)
class Facts:
    """What came out, probe by probe; see there for the words."""

    takes: tuple[str, ...]
    by_name: tuple[str, ...]
    fresh: Direction
    stale: Direction
    far: Direction
    worst: Worst
    difficulty: dict[float, float]
    hard_beside_middle: float
    shares: Shares
    repairs: list[str]
    influence: str
    spread_divided: bool
    flat: str
    constant_term: bool
    bad_beside_good: float
    who_learns: str
    level: str
    critic: Critic
    positions: list[float]
    advantages_mix: bool
    credit_reaches_back: bool
    average: str
    lengths_weigh: bool
    truncated: str
    entropy_slope: float
    entropy_constant: bool
    entropy_weighs: str
    nobody_left_out: bool
    largest: Largest
    noisy: Largest
    too_far: list[Far]
    clip: Clip
    correction: Clip | None
    kernel: Kernel
    kernel_in_reward: Kernel
    kernel_of_old: Kernel
    reference_read: bool
    kl_length: float
    kl_clamped: bool
    kl_drowns: bool
    descent: Descent
    stale_descent: Descent
    padding: str
    padding_unread: bool
    padding_clean: bool
    padding_gradient_free: bool
    empty_harmless: bool
    empty_batch_harmless: bool
    silent_positions: list[int]
    order_free: bool
    order_of_ties: bool
    micro_batches: Split
    attached: list[str]
    changed_in_place: list[str]
    draws: bool
    pairs_of_rows: bool
    finite_long: bool
    coarse_in_half_precision: bool

    @property
    def kl_placement(self) -> str:
        """Where the KL to the reference is: in the "loss", in the "reward", or "none"."""
        # k1 in the loss has the same weight everywhere; in the reward it is what a response pays
        in_loss = self.kernel.name not in ("none", "k1") or self.kernel_in_reward.name == "none"
        if self.kernel.name != "none" and in_loss:
            return "loss"
        return "none" if self.kernel_in_reward.name == "none" else "reward"

    @property
    def kl_estimator(self) -> str:
        """The value of the KL: of `kernel.KERNELS`, "other" or "none"."""
        return self._kl.name

    @property
    def held(self) -> Kernel:
        """The penalty on the way from the policy that sampled."""
        return self.kernel_of_old

    @property
    def constant_kl(self) -> bool:
        """Whether on fresh samples a KL gives every token the same weight, whatever is earned."""
        return self.kl_estimator == "k1" or self.held.name in kernel.CONSTANT

    @property
    def kl_stale_exact(self) -> bool:
        """Whether the KL part descends on stale samples what it does on fresh ones."""
        fresh, stale = self.descent, self.stale_descent
        same_factor = math.isclose(stale.beta, fresh.beta, rel_tol=1e-4)
        return stale.descends == fresh.descends and same_factor

    @property
    def kl_scale(self) -> float:
        """The factor in front of that value."""
        return self._kl.scale

    @property
    def _kl(self) -> Kernel:
        return self.kernel_in_reward if self.kl_placement == "reward" else self.kernel


# What one probe tells.
PROBES: Mapping[str, Callable[[Subject], Any]] = {
    "influence": credit.influence,
    "spread_divided": credit.spread_is_divided_out,
    "constant_term": credit.constant_term,
    "bad_beside_good": credit.bad_beside_good,
    "who_learns": credit.who_learns,
    "level": credit.level,
    "critic": critic.critic,
    "positions": credit.positions,
    "advantages_mix": credit.advantages_mix,
    "credit_reaches_back": credit.credit_reaches_back,
    "average": credit.average,
    "lengths_weigh": credit.lengths_weigh,
    "entropy_slope": credit.entropy_slope,
    "entropy_constant": credit.entropy_is_a_constant,
    "entropy_weighs": credit.entropy_weighs,
    "nobody_left_out": credit.nobody_left_out,
    "largest": size.largest,
    "noisy": size.noisy,
    "too_far": size.far,
    "clip": clip,
    "correction": correction,
    "kernel": kernel.kernel,
    "kernel_in_reward": kernel.kernel_in_reward,
    "kernel_of_old": kernel.kernel_of_old,
    "reference_read": kernel.reference_is_read,
    "kl_clamped": kernel.kernel_is_clamped,
    "kl_drowns": kernel.kernel_drowns,
    "micro_batches": hygiene.micro_batches,
    "attached": hygiene.detached,
    "finite_long": hygiene.survives_long_answers,
    "coarse_in_half_precision": hygiene.computes_in_half_precision,
}


# Those that look at the loss as it is, whatever is wrong with it.
AS_IT_IS: Mapping[str, Callable[[Subject], Any]] = {
    "flat": credit.flat_groups,
    "silent_positions": credit.every_token_counts,
    "padding": hygiene.padding_changes,
    "padding_gradient_free": hygiene.padding_gets_no_gradient,
    "empty_harmless": hygiene.empty_response_is_harmless,
    "empty_batch_harmless": hygiene.empty_batch_is_harmless,
    "order_free": hygiene.order_of_responses_changes_nothing,
    "order_of_ties": hygiene.order_matters_for_ties_at_most,
    "changed_in_place": hygiene.leaves_arguments_alone,
    "draws": hygiene.draws,
    "pairs_of_rows": hygiene.pairs_of_rows,
}
RUBBISH = (-7.0, 7.0, math.nan, -math.inf)


def gather(subject: Subject, tell: Callable[[str], None] = lambda _: None) -> Facts:
    """Run every probe.

    Args:
        subject: the loss.
        tell: is told what is done next.

    Raises:
        ValueError: if the loss raises, returns something else, or does not depend on log_probs.
    """
    tell("small batches")
    truncated = credit.truncated(subject)
    if truncated == "only":
        subject = repairs.with_flags_turned(subject)
    hygiene.require_loss(subject)
    seen = {name: probe(subject) for name, probe in AS_IT_IS.items()}
    clean = {rubbish: hygiene.padding_is_not_read(subject, rubbish) for rubbish in RUBBISH}
    rest, repairs_made = repairs.spared(
        subject,
        silent=seen["silent_positions"],
        flat=seen["flat"],
        padding_free=seen["padding_gradient_free"],
    )
    probed = {name: probe(rest) for name, probe in PROBES.items()}
    tell("every batch of the small worlds")
    return Facts(
        takes=subject.takes,
        by_name=subject.takes if subject.by_name is None else subject.by_name,
        repairs=[*[repairs.TURNED] * (truncated == "only"), *repairs_made],
        truncated=truncated,
        padding_unread=clean[-7.0] and clean[7.0],
        padding_clean=all(clean.values()),
        **seen,
        **probed,
        **_directions(subject, rest, seen["order_free"], probed),
        **_penalties(rest, ordered=not seen["order_free"]),
    )


def directions(subject: Subject, *, ordered: bool) -> dict[str, Direction]:
    """Expected steps on "fresh", "stale" and "far" samples.

    Args:
        subject: the loss.
        ordered: whether the order within a group may matter to it.
    """
    asked: dict[str, Any] = {
        "reference_is_the_sampler": reference_is_the_sampler(subject),
        "three": knows_both(subject),
    }
    listed = {"fresh": worlds.fresh(), "stale": worlds.stale(**asked), "far": worlds.far(**asked)}
    subject.look_ahead(world.listed(ordered=ordered) for them in listed.values() for world in them)
    return {
        kind: direction.direction(subject, one, ordered=ordered) for kind, one in listed.items()
    }


def _directions(
    subject: Subject, rest: Subject, order_free: bool, probed: Mapping[str, Any]
) -> dict[str, Any]:
    """Expected steps in the small worlds, and what turns them."""
    ordered = not order_free
    seen = directions(subject, ordered=ordered)
    fresh = seen["fresh"]
    mixed = probed["influence"] not in ("none", "own", "group")
    asked: dict[str, Any] = {"group_size": 4, "ordered": ordered, "mixed": mixed}
    # a world of one token: only a scale that depends on the group turns the gradient there
    straight = fresh.verdict != "biased" or math.isnan(fresh.cosine_min)
    turned = straight or fresh.cosine_min > 1 - 1e-6
    return {
        **seen,
        "worst": NOWHERE if straight else direction.worst(subject),
        "difficulty": direction.difficulty(rest, **asked),
        "hard_beside_middle": direction.hard_beside_middle(rest, **asked),
        "shares": attribution.UNTURNED
        if turned or ordered
        else attribution.shares(
            subject,
            worlds.fresh()[:4],
            average=probed["average"],
            positions=probed["positions"],
        ),
    }


def _penalties(rest: Subject, *, ordered: bool) -> dict[str, Any]:
    """What the KL to the reference descends."""
    if "ref_log_probs" in rest.takes:
        rest.look_ahead(world.listed(ordered=ordered) for world in penalty.settings())
    descent = penalty.descent(rest, ordered=ordered)
    return {
        "descent": descent,
        "stale_descent": penalty.descent(rest, distance=penalty.STALE, ordered=ordered),
        "kl_length": penalty.length(rest, descent, ordered=ordered),
    }
