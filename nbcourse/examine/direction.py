"""Where a loss sends the policy in expectation, and how much a prompt counts on the way."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nbcourse.examine.subject import Subject
from nbcourse.examine.worlds import DIFFICULTIES, Prompt, World, coin
from nbcourse.toys.sequences import SequenceSpace

EQUAL = 1e-6  # a loss may compute in float32


@dataclass(frozen=True)
class Direction:
    """The expected step −E[∇L] beside ∇J, over several worlds.

    Attributes:
        verdict: "exact", "proportional" (the same factor wherever groups have the same size), or
            "biased".
        factors: group size → the factor, for the verdicts that have one.
        cosine_min: the least cosine between the two.
        difficulty: success rate of a prompt → factor, of prompts of one token.
    """

    verdict: str
    factors: dict[int, float]
    cosine_min: float
    difficulty: dict[float, float] = field(default_factory=dict)


def direction(subject: Subject, worlds: Iterable[World], *, ordered: bool) -> Direction:
    """Compare in every world."""
    cosines: list[float] = []
    factors: dict[int, list[float]] = {}
    for world in worlds:
        for prompt, gradient in zip(
            world.prompts, world.expected(subject, ordered=ordered), strict=True
        ):
            # the loss is a mean over prompts
            cosine, factor = beside(-gradient * len(world.prompts), prompt.gradient())
            cosines.append(cosine)
            factors.setdefault(world.group_size, []).append(factor)
    least = min(cosines)
    # −1 in every world is a sign, and no bias
    straight = least > 1 - EQUAL or max(cosines) < -1 + EQUAL
    constant = all(max(f) - min(f) <= EQUAL * max(map(abs, f)) for f in factors.values())
    verdict = "biased"
    if straight and constant:
        one = all(abs(f[0] - 1) <= EQUAL for f in factors.values())
        verdict = "exact" if one else "proportional"
    means = {size: sum(f) / len(f) for size, f in factors.items()}
    return Direction(verdict, means if verdict != "biased" else {}, least)


def difficulty(subject: Subject, *, group_size: int, ordered: bool) -> dict[float, float]:
    """What a prompt counts, by its success rate: the factor in front of ∇J, of one token."""
    found = {}
    for chance in DIFFICULTIES:
        (gradient,) = World([coin(chance)], group_size).expected(subject, ordered=ordered)
        found[chance] = beside(-gradient, coin(chance).gradient())[1]
    return found


def beside(step: Tensor, gradient: Tensor) -> tuple[float, float]:
    """Cosine and factor of a step along a gradient; 0 and 0 for a step of length 0."""
    inner, length = (step * gradient).sum().item(), step.norm().item()
    if length <= 1e-12:
        return 0.0, 0.0
    return inner / (length * gradient.norm().item()), inner / gradient.square().sum().item()


@dataclass(frozen=True)
class Worst:
    """The world in which the expected step agrees least with ∇J.

    Attributes:
        cosine: between the two; below 0 it points downhill.
        probs: of the policy's choices, of one token.
        rewards: of the choices.
    """

    cosine: float
    probs: list[float]
    rewards: list[float]


def worst(subject: Subject, *, group_size: int = 3, tries: int = 150, seed: int = 0) -> Worst:
    """Search choices of one token among three: first at random, then near the worst."""
    space, source = SequenceSpace(3, 1), torch.Generator().manual_seed(seed)
    best = Worst(math.inf, [], [])
    centre: tuple[Tensor, Tensor] | None = None
    for i in range(tries):
        noise = torch.randn(2, 3, generator=source, dtype=torch.float64)
        if centre is None or i < tries // 3:
            logits, rewards = 2 * noise[0], noise[1].mul(2).exp()
        else:
            logits, rewards = centre[0] + 0.4 * noise[0], centre[1] * (0.4 * noise[1]).exp()
        one = Prompt(space, logits[None], rewards)
        (gradient,) = World([one], group_size).expected(subject, ordered=False)
        if gradient.norm() < 1e-10 or one.gradient().norm() < 1e-10:
            continue
        cosine, _ = beside(-gradient, one.gradient())
        if cosine < best.cosine:
            best = Worst(cosine, logits.softmax(dim=0).tolist(), rewards.tolist())
            centre = (logits, rewards)
    return best
