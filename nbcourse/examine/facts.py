"""Everything that is measured about a loss, before anything is said about it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nbcourse.examine import credit, direction, hygiene, kernel, penalty, worlds
from nbcourse.examine.batches import reference_is_the_sampler
from nbcourse.examine.direction import Direction, Worst
from nbcourse.examine.hygiene import Split
from nbcourse.examine.kernel import Kernel
from nbcourse.examine.penalty import Descent
from nbcourse.examine.ratio import Clip, clip
from nbcourse.examine.subject import Subject

NOWHERE = Worst(1.0, [], [])


@dataclass(frozen=True)
class Facts:
    """What came out, probe by probe; see there for the words."""

    takes: tuple[str, ...]
    fresh: Direction
    stale: Direction
    far: Direction
    worst: Worst
    difficulty: dict[float, float]
    influence: str
    spread_divided: bool
    flat: str
    constant_term: bool
    who_learns: str
    level: str
    positions: list[float]
    advantages_mix: bool
    credit_reaches_back: bool
    average: str
    clip: Clip
    kernel: Kernel
    kernel_in_reward: Kernel
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
    silent_positions: list[int]
    order_free: bool
    micro_batches: Split
    attached: list[str]
    changed_in_place: list[str]
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
        return (self.kernel_in_reward if self.kl_placement == "reward" else self.kernel).name

    @property
    def kl_stale_exact(self) -> bool:
        """Whether the KL part descends on stale samples what it does on fresh ones."""
        fresh, stale = self.descent, self.stale_descent
        same_factor = math.isclose(stale.beta, fresh.beta, rel_tol=1e-4)
        return stale.descends == fresh.descends and same_factor

    @property
    def kl_scale(self) -> float:
        """The factor in front of that value."""
        return (self.kernel_in_reward if self.kl_placement == "reward" else self.kernel).scale


# What one probe tells.
PROBES: Mapping[str, Callable[[Subject], Any]] = {
    "influence": credit.influence,
    "spread_divided": credit.spread_is_divided_out,
    "flat": credit.flat_groups,
    "constant_term": credit.constant_term,
    "who_learns": credit.who_learns,
    "level": credit.level,
    "positions": credit.positions,
    "advantages_mix": credit.advantages_mix,
    "credit_reaches_back": credit.credit_reaches_back,
    "average": credit.average,
    "clip": clip,
    "kernel": kernel.kernel,
    "kernel_in_reward": kernel.kernel_in_reward,
    "kl_clamped": kernel.kernel_is_clamped,
    "kl_drowns": kernel.kernel_drowns,
    "padding": hygiene.padding_changes,
    "padding_gradient_free": hygiene.padding_gets_no_gradient,
    "empty_harmless": hygiene.empty_response_is_harmless,
    "silent_positions": credit.every_token_counts,
    "micro_batches": hygiene.micro_batches,
    "attached": hygiene.detached,
    "changed_in_place": hygiene.leaves_arguments_alone,
    "finite_long": hygiene.survives_long_answers,
    "coarse_in_half_precision": hygiene.computes_in_half_precision,
}


def gather(subject: Subject, tell: Callable[[str], None] = lambda _: None) -> Facts:
    """Run every probe.

    Args:
        subject: the loss.
        tell: is told what is done next.

    Raises:
        ValueError: if the loss raises, returns something else, or does not depend on log_probs.
    """
    tell("small batches")
    hygiene.require_loss(subject)
    order_free = hygiene.order_of_responses_changes_nothing(subject)
    ordered = not order_free
    sampler = reference_is_the_sampler(subject)
    clean = {
        rubbish: hygiene.padding_is_not_read(subject, rubbish)
        for rubbish in (-7.0, math.nan, -math.inf)
    }
    tell("every batch of the small worlds")
    fresh = direction.direction(subject, worlds.fresh(), ordered=ordered)
    tell("the same, of stale samples")
    stale, far = (
        direction.direction(subject, old(reference_is_the_sampler=sampler), ordered=ordered)
        for old in (worlds.stale, worlds.far)
    )
    descent = penalty.descent(subject, ordered=ordered)
    tell("the worst world")
    # a world of one token: only a scale that depends on the group turns the gradient there
    straight = fresh.verdict != "biased" or math.isnan(fresh.cosine_min)
    return Facts(
        takes=subject.takes,
        fresh=fresh,
        stale=stale,
        far=far,
        worst=NOWHERE if straight else direction.worst(subject),
        difficulty=direction.difficulty(subject, group_size=4, ordered=ordered),
        descent=descent,
        stale_descent=penalty.descent(subject, distance=0.1, ordered=ordered),
        kl_length=penalty.length(subject, descent, ordered=ordered),
        padding_unread=clean[-7.0],
        padding_clean=all(clean.values()),
        order_free=order_free,
        **{name: probe(subject) for name, probe in PROBES.items()},
    )
