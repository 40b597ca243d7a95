"""What turns an expected step away from ∇J: how responses are weighed, or how tokens are averaged.

The same batches are weighed in parts: with the advantages that a loss gives responses of one
token, and with its average alone. What neither of them explains is said to be unexplained.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.examine.credit import counted
from nbcourse.examine.direction import beside
from nbcourse.examine.subject import Batches, LossInputs, Subject
from nbcourse.examine.worlds import World

ENOUGH = 1e-3  # of a step's length that is not worth a sentence


@dataclass(frozen=True)
class Shares:
    """How far each part alone turns the step, over several worlds of fresh samples.

    Attributes:
        advantages: the least cosine with ∇J, of the advantages that it gives, summed over tokens.
        average: the same of its average over tokens, with leave-one-out advantages.
        unexplained: how much of the step's length is in neither, at most.
        smallest: the rewards and lengths of the smallest batch that shows that; empty if none.
    """

    advantages: float
    average: float
    unexplained: float
    smallest: str


UNTURNED = Shares(1.0, 1.0, 0.0, "")


def shares(
    subject: Subject, worlds: tuple[World, ...], *, average: str, positions: list[float]
) -> Shares:
    """Divide the bias of a loss.

    Args:
        subject: the loss.
        worlds: of fresh samples.
        average: how it averages tokens, of `credit.average`.
        positions: what the tokens of a response of four count beside the last.
    """
    turned: dict[str, float] = {"advantages": 1.0, "average": 1.0}
    unexplained, smallest = 0.0, ""

    def factor(them: Batches) -> Tensor:
        mask: Tensor = them.stacked("mask")
        return counted(mask).get(average, mask)

    parts: dict[str, Callable[[Batches], Tensor]] = {
        "whole": subject.weights_of_each,
        "advantages": lambda them: _of_one_token(subject, them) * them.stacked("mask"),
        "average": lambda them: (
            -them.stacked("advantages") / them.stacked("mask").shape[1] * factor(them)
        ),
        "both": lambda them: _of_one_token(subject, them) * factor(them) * _by(them, positions),
    }
    for world in worlds:
        gradients = {name: world.mean(weigh) for name, weigh in parts.items()}
        for i, prompt in enumerate(world.prompts):
            whole = gradients["whole"][i]
            for name in turned:
                step = -gradients[name][i]
                if bool(step.isfinite().all()) and step.norm() > 0:
                    turned[name] = min(turned[name], beside(step, prompt.gradient())[0])
            both = gradients["both"][i]
            times = (whole * both).sum() / both.square().sum().clamp(min=1e-24)
            gap = ((whole - times * both).norm() / whole.norm().clamp(min=1e-12)).item()
            unexplained = max(unexplained, gap) if math.isfinite(gap) else unexplained
    if unexplained > ENOUGH:
        smallest = _smallest(worlds, subject.weights, parts["both"])
    return Shares(turned["advantages"], turned["average"], unexplained, smallest)


def _of_one_token(subject: Subject, them: Batches) -> Tensor:
    """What a response counts where every one has one token, all equally likely: (M, B, 1)."""

    def short(one: LossInputs) -> LossInputs:
        log_probs = torch.full((len(one.mask), 1), -1.0, dtype=torch.float64)
        mask = torch.ones_like(log_probs, dtype=torch.bool)
        return LossInputs(log_probs, log_probs, log_probs, mask, one.rewards, one.group_size)

    return subject.weights_of_each(Batches([short(one) for one in them.each]))


def _by(them: Batches, positions: list[float]) -> Tensor:
    """The same by position, as far as `positions` goes."""
    mask = them.stacked("mask")
    to_come = (mask.sum(dim=2, keepdim=True) - 1 - torch.arange(mask.shape[2])).clamp(min=0)
    known = torch.tensor(positions[::-1], dtype=torch.float64)
    return known[to_come.clamp(max=len(positions) - 1)]


def _smallest(
    worlds: tuple[World, ...],
    whole: Callable[[LossInputs], Tensor],
    both: Callable[[Batches], Tensor],
) -> str:
    """Rewards and lengths of a batch whose weights differ, with as few tokens as possible."""
    every = [one for world in worlds for one in world.listed().each]
    for one in sorted(every, key=lambda one: int(one.mask.sum())):
        expected, found = both(Batches([one]))[0], whole(one)
        if not bool(found.isfinite().all()):
            continue
        if (found - expected).norm() > ENOUGH * found.norm().clamp(min=1e-12):
            rewards = ", ".join(f"{reward:g}" for reward in one.rewards.tolist())
            lengths = ", ".join(map(str, one.mask.sum(dim=1).tolist()))
            return f"rewards {rewards} and lengths {lengths}"
    return ""
