"""Everything that is measured about a loss, before anything is said about it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from nbcourse.examine import direction, penalty, probes, worlds
from nbcourse.examine.direction import Direction, Worst
from nbcourse.examine.penalty import Descent
from nbcourse.examine.probes import Kernel, Split
from nbcourse.examine.subject import Subject

NOWHERE = Worst(1.0, [], [])
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


@dataclass(frozen=True)
class Facts:
    """What came out, probe by probe; see `probes`, `direction` and `penalty` for the words."""

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
        """The value of the KL: of `probes.KERNELS`, "other" or "none"."""
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


def gather(subject: Subject, tell: Callable[[str], None] = lambda _: None) -> Facts:
    """Run every probe.

    Args:
        subject: the loss.
        tell: is told what is done next.

    Raises:
        ValueError: if the loss raises, returns something else, or does not depend on log_probs.
    """
    tell("small batches")
    probes.require_loss(subject)
    order_free = probes.order_of_responses_changes_nothing(subject)
    ordered = not order_free
    sampler = probes.reference_is_the_sampler(subject)
    nan = math.nan
    clean = {
        rubbish: probes.padding_is_not_read(subject, rubbish) for rubbish in (-7.0, nan, -math.inf)
    }
    tell("every batch of the small worlds")
    fresh = direction.direction(subject, worlds.fresh(), ordered=ordered)
    tell("the same, of stale samples")
    stale = direction.direction(
        subject, worlds.stale(reference_is_the_sampler=sampler), ordered=ordered
    )
    far = direction.direction(
        subject, worlds.far(reference_is_the_sampler=sampler), ordered=ordered
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
        influence=probes.influence(subject),
        spread_divided=probes.spread_is_divided_out(subject),
        flat=probes.flat_groups(subject),
        constant_term=probes.constant_term(subject),
        who_learns=probes.who_learns(subject),
        level=probes.level(subject),
        positions=probes.positions(subject),
        advantages_mix=probes.advantages_mix(subject),
        credit_reaches_back=probes.credit_reaches_back(subject),
        average=probes.average(subject),
        clip=_clip(subject),
        kernel=probes.kernel(subject),
        kernel_in_reward=probes.kernel_in_reward(subject),
        kl_length=penalty.length(subject, descent, ordered=ordered),
        kl_clamped=probes.kernel_is_clamped(subject),
        kl_drowns=probes.kernel_drowns(subject),
        descent=descent,
        stale_descent=penalty.descent(subject, distance=0.1, ordered=ordered),
        padding=probes.padding_changes(subject),
        padding_unread=clean[-7.0],
        padding_clean=all(clean.values()),
        padding_gradient_free=probes.padding_gets_no_gradient(subject),
        empty_harmless=probes.empty_response_is_harmless(subject),
        silent_positions=probes.every_token_counts(subject),
        order_free=order_free,
        micro_batches=probes.micro_batches(subject),
        attached=probes.detached(subject),
        changed_in_place=probes.leaves_arguments_alone(subject),
        finite_long=probes.survives_long_answers(subject),
        coarse_in_half_precision=probes.computes_in_half_precision(subject),
    )


def _clip(subject: Subject) -> Clip:
    positive, negative = (probes.ratio_weights(subject, sign, RATIOS) for sign in (1, -1))
    lower = _edge(subject, -1, RATIOS[0]) if negative[0] == 0 else 0.0
    upper = _edge(subject, 1, RATIOS[-1]) if positive[-1] == 0 else math.inf
    of_sequence = probes.ratio_of_the_sequence(subject)
    of_reference = probes.ratio_is_to_the_reference(subject)
    return Clip(positive, negative, (lower, upper), of_sequence, of_reference)


def _edge(subject: Subject, sign: int, cut: float) -> float:
    """The ratio, between 1 and one that is cut, at which the weight goes to 0.

    By bisection of its logarithm.
    """
    inside, outside = 0.0, math.log(cut)
    for _ in range(20):
        middle = (inside + outside) / 2
        (weight,) = probes.ratio_weights(subject, sign, [math.exp(middle)])
        inside, outside = (inside, middle) if weight == 0 else (middle, outside)
    return round(math.exp(inside), 5)
