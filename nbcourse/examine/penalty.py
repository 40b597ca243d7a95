"""The KL to the reference in a loss: what its gradient descends, whatever its value estimates."""

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from nbcourse.examine.direction import EQUAL, beside
from nbcourse.examine.subject import Subject
from nbcourse.examine.worlds import CHOICE, EVEN, World, away, prompt
from nbcourse.toys.sequences import SequenceSpace

OFF_REFERENCE = 0.3
STALE = 0.1  # logits that a policy has moved since it sampled


@dataclass(frozen=True)
class Descent:
    """What the part of a loss that depends on the reference does in expectation.

    Attributes:
        descends: "reverse", "forward", "forward of responses" or "token" (see
            `Prompt.kl_gradients`), "none" if its expected gradient is 0, or "other".
        beta: the factor in front, beside that in front of ∇J; negative climbs.
        cosine: with ∇KL(π‖π_ref), the least over the worlds.
    """

    descends: str
    beta: float
    cosine: float


def descent(
    subject: Subject, *, distance: float = 0.0, ordered: bool, space: SequenceSpace = EVEN
) -> Descent:
    """Expected gradient with the reference minus that without, where no response earns anything.

    Args:
        subject: the loss.
        distance: how far the policy has moved since it sampled, in logits; 0 for fresh samples.
        ordered: whether the order within a group may matter to it.
        space: the responses.
    """
    if "ref_log_probs" not in subject.takes:
        return Descent("none", 0.0, 0.0)
    pairs = [
        (_part(subject, with_it, without, ordered), truths)
        for with_it, without, truths in _settings(space, distance)
    ]
    cosines = [beside(part, truths["reverse"])[0] for part, truths in pairs]
    size = max(part.abs().max().item() for part, _ in pairs)
    if size <= 1e-9:
        return Descent("none", 0.0, 0.0)
    scale = _reward_factor(subject, space, ordered)
    for name in ("reverse", "token", "forward", "forward of responses"):
        part = torch.cat([gradient.flatten() for gradient, _ in pairs])
        truth = torch.cat([truths[name].flatten() for _, truths in pairs])
        beta = ((part @ truth) / (truth @ truth)).item()
        if (part - beta * truth).norm() <= EQUAL * part.norm():
            return Descent(name, beta / scale, min(cosines))
    _, beta = beside(pairs[0][0], pairs[0][1]["reverse"])
    return Descent("other", beta / scale, min(cosines))


def length(subject: Subject, two: Descent, *, ordered: bool) -> float:
    """β for responses of one token over β for responses of two; 1 if it does not go by length.

    Args:
        subject: the loss.
        two: its descent for responses of two tokens.
        ordered: whether the order within a group may matter to it.
    """
    one = descent(subject, ordered=ordered, space=CHOICE)
    return one.beta / two.beta if two.beta else 1.0


def _reward_factor(subject: Subject, space: SequenceSpace, ordered: bool) -> float:
    """What stands in front of ∇J where the KL is gone; 1 if nothing does."""
    world = _rewarded(space)
    (gradient,) = world.expected(subject, ordered=ordered)
    _, factor = beside(-gradient, world.prompts[0].gradient())
    return abs(factor) or 1.0


def settings() -> list[World]:
    """All worlds that `descent` and `length` look at, on fresh samples and on stale ones."""
    asked = [(EVEN, 0.0), (EVEN, STALE), (CHOICE, 0.0)]
    pairs = [pair for one in asked for *pair, _ in _settings(*one)]
    return [*(world for pair in pairs for world in pair), *map(_rewarded, (EVEN, CHOICE))]


@cache
def _rewarded(space: SequenceSpace) -> World:
    return World([prompt(space, 0)], 2)


@cache
def _settings(
    space: SequenceSpace, distance: float
) -> list[tuple[World, World, dict[str, Tensor]]]:
    """Worlds without a reward: with a reference, without one, and what a KL may descend there."""
    settings = []
    for seed in (0, 1, 2):
        one = prompt(space, seed)
        one = replace(
            one,
            rewards=torch.zeros_like(one.rewards),
            old_logits=away(one, distance, seed + 20),
            ref_logits=away(one, OFF_REFERENCE, seed + 10),
        )
        without = World([replace(one, ref_logits=None)], 2)
        settings.append((World([one], 2), without, one.kl_gradients()))
    return settings


def _part(subject: Subject, with_it: World, without: World, ordered: bool) -> Tensor:
    """What the reference makes of the expected gradient."""
    (referred,), (alone,) = (
        world.expected(subject, ordered=ordered) for world in (with_it, without)
    )
    return referred - alone
