"""The KL to the reference in a loss: what its gradient descends, whatever its value estimates."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nbcourse.examine.direction import EQUAL, beside
from nbcourse.examine.subject import Subject
from nbcourse.examine.worlds import CHOICE, EVEN, Prompt, World, away, prompt
from nbcourse.toys.sequences import SequenceSpace

OFF_REFERENCE = 0.3


@dataclass(frozen=True)
class Descent:
    """What the part of a loss that depends on the reference does in expectation.

    Attributes:
        descends: "reverse", "forward" or "token" (see `Prompt.kl_gradients`), "none" if its
            expected gradient is 0, or "other".
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
    settings = [_setting(space, seed, distance) for seed in (0, 1, 2)]
    pairs = [_part(subject, one, ordered) for one in settings]
    cosines = [beside(found, truths["reverse"])[0] for found, truths in pairs]
    size = max(found.abs().max().item() for found, _ in pairs)
    if size <= 1e-9:
        return Descent("none", 0.0, 0.0)
    scale = _reward_factor(subject, space, ordered)
    for name in ("reverse", "token", "forward"):
        found = torch.cat([gradient.flatten() for gradient, _ in pairs])
        truth = torch.cat([truths[name].flatten() for _, truths in pairs])
        beta = ((found @ truth) / (truth @ truth)).item()
        if (found - beta * truth).norm() <= EQUAL * found.norm():
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
    one = prompt(space, 0)
    (gradient,) = World([one], 2).expected(subject, ordered=ordered)
    _, factor = beside(-gradient, one.gradient())
    return abs(factor) or 1.0


def _setting(space: SequenceSpace, seed: int, distance: float) -> Prompt:
    one = prompt(space, seed)
    return replace(
        one,
        rewards=torch.zeros_like(one.rewards),
        old_logits=away(one, distance, seed + 20),
        ref_logits=away(one, OFF_REFERENCE, seed + 10),
    )


def _part(subject: Subject, one: Prompt, ordered: bool) -> tuple[Tensor, dict[str, Tensor]]:
    found = [
        World([setting], 2).expected(subject, ordered=ordered)[0]
        for setting in (one, replace(one, ref_logits=None))
    ]
    return found[0] - found[1], one.kl_gradients()
