"""Whether a recipe has anything to learn from its model: a verdict, before a card is paid for.

`gauging` measures. Here the measurements are judged, by thresholds that follow from two numbers:
the smallest gain that is worth a run, and by what factor a fault may lengthen it.

Book: chapter 17, "Before you pay".
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal, NamedTuple

Action = Literal[
    "train",
    "change the prompt",
    "pay for form leniently first",
    "supervise first",
    "raise the limit",
    "do not train",
]

WANTED = 0.05
"""The smallest gain in accuracy that is worth a run. Between two models that differ in 400 of 1,319
questions the paired difference has a standard error of √400 / 1,319 = .015, so that gains below
.03 are not told from none, and below .05 rarely."""

TWICE = 2.0
"""The factor of steps that a fault may cost before it is cheaper to mend it first. To mend one
takes a measurement or a supervised stage, which cost at most what a run costs."""

LEFT = 1 / TWICE
"""Of the mixed groups, what has to be left under the reward as it is paid, beside the lenient one.
The squared signal-to-noise ratio of a sum of M independent groups grows like M, so that half of the
groups need twice the steps."""

LUCKY = 1 - 1 / sqrt(TWICE)
"""Of the mixed groups, the share .29 that luck may explain. A group in which a lucky answer is
rewarded has the length of any other, after division by its standard deviation, and no direction in
common with them. If a share ℓ are such, the signal falls to 1 − ℓ and the noise stays: the same
ratio takes 1 / (1 − ℓ)² of the steps."""

MISMATCH = (TWICE - 1) / 2
"""Nats an answer between sampler and learner. Answers that one policy wrote and the other learns
from are worth 1 / (1 + χ²) as many, and χ² ≈ 2 KL where both are small: at half a nat, half."""

INFORMATIVE = 1.0
"""Mixed groups a step that luck does not explain. With fewer, the usual step has a gradient of
luck, or none."""

AIM = 4.0
"""Squared signal over squared noise in the sum of a run's gradients. The cosine between that sum
and the gradient is √(r / (1 + r)): at 4 it is .89. Half of a batch's groups against the other half
have the cosine c = μ² / (μ² + 2 σ² / M), so that a step has the ratio M μ² / σ² = 2c / (1 − c) and
T steps T times that. A gradient that turns on the way makes it less: this asks for too little."""

SURE = 2.0
"""Standard errors by which something has to be exceeded before it is held against a recipe."""


class Estimate(NamedTuple):
    """A mean and its standard error; 0 where it is not known."""

    mean: float
    error: float = 0.0

    @property
    def low(self) -> float:
        """The mean less `SURE` standard errors."""
        return self.mean - SURE * self.error

    @property
    def high(self) -> float:
        """The mean and `SURE` standard errors."""
        return self.mean + SURE * self.error


class Tried(NamedTuple):
    """Another instruction.

    Attributes:
        instruction: as it was given.
        gain: paired, in sampled answers that are paid, over the recipe's own.
    """

    instruction: str
    gain: Estimate


@dataclass(frozen=True)
class Measurements:
    """What is known of a model and a recipe before the first step; None for what is not.

    Shares are of sampled answers at the recipe's temperature, if nothing else is said.

    Attributes:
        paid: right as the recipe pays: strictly.
        lenient: right in whatever form.
        form: in the form asked for.
        greedy: right, of greedy answers, read leniently if `lenient` is there.
        best_of: share of the questions with a right answer among their group, read like `greedy`.
        constant: accuracy of the best constant answer.
        luck: accuracy of the model's own answers to other questions.
        mixed: share of the groups that are paid differently, by whatever reward the recipe has.
        mixed_leniently: the same, if it is paid for the number in whatever form. Of a reward model
            or a reader's function neither this is known nor what luck explains.
        lucky: share of those groups that luck alone would make; of `mixed_leniently` if it is there
            and of `mixed` if not.
        truncated: cut off by the limit.
        mismatch: nats an answer from the sampler to the learner.
        cosine: of the gradients of two halves of a batch.
        prompts: groups in a batch.
        steps: of the recipe.
        corrected: the recipe weighs answers by the ratio of learner to sampler.
        tried: other instructions.
    """

    paid: Estimate
    mixed: float
    prompts: int
    steps: int
    lenient: Estimate | None = None
    form: float | None = None
    greedy: Estimate | None = None
    best_of: float | None = None
    constant: float | None = None
    luck: float | None = None
    mixed_leniently: float | None = None
    lucky: float | None = None
    truncated: float | None = None
    mismatch: float | None = None
    cosine: Estimate | None = None
    corrected: bool = False
    tried: tuple[Tried, ...] = ()

    @property
    def known(self) -> Estimate:
        """The accuracy that shows what the model knows: the lenient one, if it is there."""
        return self.lenient or self.paid

    @property
    def chance(self) -> float | None:
        """The higher one of the two ways of being right without an idea."""
        return max((x for x in (self.constant, self.luck) if x is not None), default=None)

    @property
    def informative(self) -> float:
        """Mixed groups a step that luck does not explain, in the form that is best for the run."""
        mixed = max(self.mixed, self.mixed_leniently or 0.0)
        return self.prompts * mixed * (1 - (self.lucky or 0.0))


class Verdict(NamedTuple):
    """What to do with a recipe.

    Attributes:
        action: the first thing.
        reason: why, with its numbers.
        further: the reasons of what would have to be done afterwards, in order.
    """

    action: Action
    reason: str
    further: tuple[str, ...] = ()


def verdict(found: Measurements) -> Verdict:
    """What to do first, and why.

    The order is that in which one fault falsifies what is measured of the next: a sampler that is
    not the learner, answers that are cut, a form that is not kept, a model without an idea.
    """
    faults = [fault for rule in RULES if (fault := rule(found)) is not None]
    if not faults:
        return Verdict("train", _reason_to_train(found))
    (action, reason), *further = faults
    return Verdict(action, reason, tuple(f"{then}: {why}" for then, why in further))


Fault = tuple[Action, str]


def _another_policy(found: Measurements) -> Fault | None:
    if found.mismatch is None or found.corrected or found.mismatch <= MISMATCH:
        return None
    return (
        "do not train",
        f"sampler and learner differ by {found.mismatch:.2f} nats an answer (more than "
        f"{MISMATCH:g}), so that it would learn from another policy's answers; find out why, or "
        "set optimiser.truncated_importance_sampling",
    )


def _cut_off(found: Measurements) -> Fault | None:
    """A gain of the size that is wanted is to be had by writing less, or by a higher limit."""
    cut = found.truncated
    if cut is None or cut >= 1:
        return None if cut is None else ("raise the limit", "every answer is cut off")
    to_be_had = cut * found.known.mean / (1 - cut)
    if to_be_had < WANTED:
        return None
    return (
        "raise the limit",
        f"{cut:.0%} of the answers are cut off; were they as often right as the others, that "
        f"would be {to_be_had:.1%} of the questions (at least {WANTED:.0%})",
    )


def _better_asked(found: Measurements) -> Fault | None:
    better = max(found.tried, key=lambda tried: tried.gain.low, default=None)
    if better is None or better.gain.low <= 0:
        return None
    return (
        "change the prompt",
        f"{better.instruction!r} is paid {better.gain.mean:+.1%} more often "
        f"({better.gain.low:+.1%} to {better.gain.high:+.1%})",
    )


def _form_not_kept(found: Measurements) -> Fault | None:
    leniently = found.mixed_leniently
    if not leniently or found.mixed >= LEFT * leniently:
        return None
    form = "" if found.form is None else f"; {found.form:.0%} of the answers keep the form"
    return (
        "pay for form leniently first",
        f"{found.mixed:.0%} of the groups are mixed as they are paid, {leniently:.0%} if any form "
        f"is (at least {LEFT:.0%} of that should be left){form}; reward.lenient = true pays any",
    )


def _no_idea(found: Measurements) -> Fault | None:
    """Not surely better than chance, or what it is rewarded for is often luck, or hardly ever."""
    if (chance := found.chance) is not None and found.known.low <= chance:
        return (
            "supervise first",
            f"{found.known.mean:.1%} ± {SURE * found.known.error:.1%} of the answers are right, "
            f"and {chance:.1%} are by chance",
        )
    if found.lucky is not None and found.lucky > LUCKY:
        return (
            "supervise first",
            f"luck explains {found.lucky:.0%} of the mixed groups (more than {LUCKY:.0%})",
        )
    mostly_wrong = found.known.mean < 0.5  # groups that are mostly right are flat for that reason
    if found.informative < INFORMATIVE and mostly_wrong:
        return (
            "supervise first",
            f"{found.informative:.1f} groups a step are mixed for another reason than luck (at "
            f"least {INFORMATIVE:g})",
        )
    return None


def _all_paid_alike(found: Measurements) -> Fault | None:
    if found.mixed or found.mixed_leniently:
        return None
    return "do not train", "in no group is one answer paid differently from another"


def _no_room(found: Measurements) -> Fault | None:
    if found.greedy is None or found.best_of is None:
        return None
    room = found.best_of - found.greedy.mean
    if room >= WANTED:
        return None
    return (
        "do not train",
        f"the best answer of a group is right for {found.best_of:.1%} of the questions and the "
        f"greedy one for {found.greedy.mean:.1%}: there is less than {WANTED:.0%} between them",
    )


def _no_direction(found: Measurements) -> Fault | None:
    if found.cosine is None:
        return None
    at_best = aim(found.steps, found.cosine.high)
    if at_best >= AIM:
        return None
    return (
        "do not train",
        f"the gradients of two halves of a batch have the cosine {found.cosine.mean:.3f} ± "
        f"{SURE * found.cosine.error:.3f}: after {found.steps} steps signal over noise is "
        f"{at_best:.1f} at best (at least {AIM:g}); take more prompts a step",
    )


RULES = (
    _another_policy,
    _cut_off,
    _better_asked,
    _form_not_kept,
    _no_idea,
    _all_paid_alike,
    _no_room,
    _no_direction,
)


def aim(steps: int, cosine: float) -> float:
    """Squared signal over squared noise of a run, from the cosine of half-batch gradients."""
    cosine = min(max(cosine, 0.0), 1 - 1e-9)
    return steps * 2 * cosine / (1 - cosine)


def _reason_to_train(found: Measurements) -> str:
    said = [f"{found.informative:.1f} groups a step are mixed for another reason than luck"]
    if found.chance is not None:
        said.append(f"{found.known.mean:.1%} are right, {found.chance:.1%} by chance")
    if found.greedy is not None and found.best_of is not None:
        said.append(f"{found.best_of - found.greedy.mean:.1%} between greedy and best of a group")
    if found.cosine is not None:
        said.append(f"signal over noise of the run {aim(found.steps, found.cosine.mean):.0f}")
    return "; ".join(said)
