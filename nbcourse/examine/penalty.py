"""The KL to the reference in a loss: what its gradient descends, whatever its value estimates."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nbcourse.examine.direction import EQUAL, beside
from nbcourse.examine.subject import Subject
from nbcourse.examine.worlds import EVEN, Prompt, World, away, prompt

OFF_REFERENCE = 0.3


@dataclass(frozen=True)
class Descent:
    """What the part of a loss that depends on the reference does in expectation.

    Attributes:
        descends: "reverse", "forward" or "token" (see `Prompt.kl_gradients`), "none" if its
            expected gradient is 0, or "other".
        beta: the factor in front, for responses of two tokens; negative climbs.
        cosine: with ∇KL(π‖π_ref), the least over the worlds.
    """

    descends: str
    beta: float
    cosine: float


def descent(subject: Subject, *, distance: float = 0.0, ordered: bool) -> Descent:
    """Expected gradient with the reference minus that without, where no response earns anything.

    Args:
        subject: the loss.
        distance: how far the policy has moved since it sampled, in logits; 0 for fresh samples.
        ordered: whether the order within a group may matter to it.
    """
    if "ref_log_probs" not in subject.takes:
        return Descent("none", 0.0, 0.0)
    pairs = [_part(subject, _setting(seed, distance), ordered) for seed in (0, 1, 2)]
    cosines = [beside(found, truths["reverse"])[0] for found, truths in pairs]
    size = max(found.abs().max().item() for found, _ in pairs)
    if size <= 1e-9:
        return Descent("none", 0.0, 0.0)
    for name in ("reverse", "token", "forward"):
        found = torch.cat([gradient.flatten() for gradient, _ in pairs])
        truth = torch.cat([truths[name].flatten() for _, truths in pairs])
        beta = ((found @ truth) / (truth @ truth)).item()
        if (found - beta * truth).norm() <= EQUAL * found.norm():
            return Descent(name, beta, min(cosines))
    return Descent(
        "other", (pairs[0][0].norm() / pairs[0][1]["reverse"].norm()).item(), min(cosines)
    )


def _setting(seed: int, distance: float) -> Prompt:
    one = prompt(EVEN, seed)
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
