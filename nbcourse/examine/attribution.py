"""What turns an expected step away from ∇J: how responses are weighed, or how tokens are averaged.

The same batches are weighed in parts: with the advantages that a loss gives responses of one
token, and with its average alone. What neither of them explains is said to be unexplained.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.examine.direction import beside
from nbcourse.examine.subject import LossInputs, Subject
from nbcourse.examine.worlds import World
from nbcourse.functional.advantages import leave_one_out
from nbcourse.toys.sequences import gradient_estimates

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
    parts: dict[str, Callable[[LossInputs], Tensor]] = {
        "whole": subject.weights,
        "advantages": lambda one: _of_one_token(subject, one) * one.mask,
        "average": lambda one: -_leave_one_out(one) * _factor(one, average),
        "both": lambda one: (
            _of_one_token(subject, one) * _factor(one, average) * _by(one, positions)
        ),
    }
    for world in worlds:
        gradients = {name: _expected(world, weigh) for name, weigh in parts.items()}
        for i, prompt in enumerate(world.prompts):
            whole = gradients["whole"][i]
            for name in turned:
                step = -gradients[name][i]
                if bool(step.isfinite().all()) and step.norm() > 0:
                    turned[name] = min(turned[name], beside(step, prompt.gradient())[0])
            gap = ((whole - gradients["both"][i]).norm() / whole.norm().clamp(min=1e-12)).item()
            unexplained = max(unexplained, gap) if math.isfinite(gap) else unexplained
    if unexplained > ENOUGH:
        smallest = _smallest(worlds, parts["whole"], parts["both"])
    return Shares(turned["advantages"], turned["average"], unexplained, smallest)


def _expected(world: World, weigh: Callable[[LossInputs], Tensor]) -> list[Tensor]:
    """The expected gradient of losses that weigh tokens so, for each prompt."""
    totals = [
        torch.zeros(prompt.space.tokens.shape, dtype=torch.float64) for prompt in world.prompts
    ]
    for chance, rows, one in world.listed():
        parts = (chance * weigh(one).double()).split(world.group_size)
        for total, members, part in zip(totals, rows, parts, strict=True):
            total.index_add_(0, members, part)
    return [
        gradient_estimates(prompt.space, prompt.logits, total).sum(dim=0)
        for prompt, total in zip(world.prompts, totals, strict=True)
    ]


def _of_one_token(subject: Subject, one: LossInputs) -> Tensor:
    """What a response counts where every one has one token, all equally likely: (B, 1)."""
    short = torch.full((len(one.mask), 1), -1.0, dtype=torch.float64)
    mask = torch.ones_like(short, dtype=torch.bool)
    return subject.weights(LossInputs(short, short, short, mask, one.rewards, one.group_size))


def _leave_one_out(one: LossInputs) -> Tensor:
    return leave_one_out(one.rewards, group_size=one.group_size)[:, None] / len(one.mask)


def _factor(one: LossInputs, average: str) -> Tensor:
    """What a token counts in its response beside the only one of a response of one token."""
    lengths = one.mask.sum(dim=1, keepdim=True).clamp(min=1).double()
    factors = {
        "seq-mean-token-mean": 1 / lengths,
        "token-mean": len(lengths) / lengths.sum(),
        "divided-twice": 1 / lengths.square(),
        "position": len(lengths) / one.mask.sum(dim=0).clamp(min=1),
    }
    return factors.get(average, torch.ones(())) * one.mask


def _by(one: LossInputs, positions: list[float]) -> Tensor:
    """The same by position, as far as `positions` goes."""
    lengths, width = one.mask.sum(dim=1), one.mask.shape[1]
    to_come = (lengths[:, None] - 1 - torch.arange(width)).clamp(min=0)
    known = torch.tensor(positions[::-1], dtype=torch.float64)
    return known[to_come.clamp(max=len(positions) - 1)]


def _smallest(
    worlds: tuple[World, ...], whole: Callable[..., Tensor], both: Callable[..., Tensor]
) -> str:
    """Rewards and lengths of a batch whose weights differ, with as few tokens as possible."""

    def batches() -> Iterator[tuple[int, LossInputs]]:
        for world in worlds:
            for _, _, one in world.listed():
                yield int(one.mask.sum()), one

    for _, one in sorted(batches(), key=lambda sized: sized[0]):
        expected, found = both(one), whole(one)
        if not bool(found.isfinite().all()):
            continue
        if (found - expected).norm() > ENOUGH * found.norm().clamp(min=1e-12):
            rewards = ", ".join(f"{reward:g}" for reward in one.rewards.tolist())
            lengths = ", ".join(map(str, one.mask.sum(dim=1).tolist()))
            return f"rewards {rewards} and lengths {lengths}"
    return ""
