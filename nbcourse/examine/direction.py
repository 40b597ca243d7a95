"""Where a loss sends the policy in expectation, and how much a prompt counts on the way."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from nbcourse.examine.batches import of_rewards_of_each
from nbcourse.examine.subject import Batches, Subject
from nbcourse.examine.worlds import CHOICE, DIFFICULTIES, Prompt, World, coin

EQUAL = 1e-6  # a loss may compute in float32
TRIES = 60  # of the search for the worst world
GROUP = 3  # responses in such a world


@dataclass(frozen=True)
class Direction:
    """The expected step −E[∇L] beside ∇J, over several worlds.

    Attributes:
        verdict: "exact", "proportional" (the same factor wherever groups have the same size, or
            batches), or "biased".
        size: what the factors go by: "group" or "batch".
        factors: that size → the factor, for the verdicts that have one.
        cosine_min: the least cosine between the two; NaN if a step is.
        lengths: the least and the largest factor of all.
        gradients: all expected gradients, one after the other.
    """

    verdict: str
    size: str
    factors: dict[int, float]
    cosine_min: float
    lengths: tuple[float, float]
    gradients: Tensor = field(repr=False, compare=False)


def direction(subject: Subject, worlds: Iterable[World], *, ordered: bool) -> Direction:
    """Compare in every world."""
    compared: list[tuple[dict[str, int], float, float]] = []
    gradients: list[Tensor] = []
    for world in worlds:
        count = len(world.prompts)
        sizes = {"group": world.group_size, "batch": count * world.group_size}
        expected = world.expected(subject, ordered=ordered)
        for prompt, gradient in zip(world.prompts, expected, strict=True):
            # the loss is a mean over prompts
            gradients.append(gradient.flatten())
            compared.append((sizes, *beside(-gradient * count, prompt.gradient())))
    cosines, factors = [c for _, c, _ in compared], [f for _, _, f in compared]
    every = torch.cat(gradients)
    if any(map(math.isnan, cosines)):
        return Direction("biased", "group", {}, math.nan, (math.nan, math.nan), every)
    # −1 in every world is a sign, and no bias
    straight = min(cosines) > 1 - EQUAL or max(cosines) < -1 + EQUAL
    lengths = (min(factors), max(factors))
    for size in ("group", "batch"):
        of_size: dict[int, list[float]] = {}
        for sizes, _, factor in compared:
            of_size.setdefault(sizes[size], []).append(factor)
        if straight and all(max(f) - min(f) <= EQUAL * max(map(abs, f)) for f in of_size.values()):
            means = {size: sum(f) / len(f) for size, f in sorted(of_size.items())}
            exact = all(abs(factor - 1) <= EQUAL for factor in means.values())
            verdict = "exact" if exact else "proportional"
            return Direction(verdict, size, means, min(cosines), lengths, every)
    return Direction("biased", "group", {}, min(cosines), lengths, every)


def difficulty(
    subject: Subject, *, group_size: int, ordered: bool, mixed: bool
) -> dict[float, float]:
    """How much a prompt counts, by its success rate: the factor in front of ∇J, of one token.

    Args:
        subject: the loss.
        group_size: responses to each prompt.
        ordered: whether the order within a group may matter to the loss.
        mixed: whether there is a prompt of success rate ½ in the batch, for a loss that compares
            responses to several prompts.
    """
    worlds = _coins(group_size, mixed)
    return {chance: _factors(subject, world, ordered)[0] for chance, world in worlds.items()}


def hard_beside_middle(subject: Subject, *, group_size: int, ordered: bool, mixed: bool) -> float:
    """How much a prompt that is solved one time in ten counts beside one that is half the time.

    Where a loss compares responses to several prompts, both are in one batch.
    """
    worlds = _coins(group_size, mixed)
    hard, *beside_it = _factors(subject, worlds[0.1], ordered)
    (middle,) = beside_it or _factors(subject, worlds[0.5], ordered)
    return hard / middle if middle else math.nan


def _factors(subject: Subject, world: World, ordered: bool) -> list[float]:
    """How much each prompt counts."""
    expected, count = world.expected(subject, ordered=ordered), len(world.prompts)
    return [
        beside(-gradient * count, prompt.gradient())[1]  # the loss is a mean over prompts
        for gradient, prompt in zip(expected, world.prompts, strict=True)
    ]


@cache
def _coins(group_size: int, mixed: bool) -> dict[float, World]:
    return {
        chance: World([coin(chance), *([coin(0.5)] if mixed else [])], group_size)
        for chance in DIFFICULTIES
    }


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
        of_rewards: the cosine there of what rewards make of the step.
    """

    cosine: float
    probs: list[float]
    rewards: list[float]
    of_rewards: float = math.nan


def worst(subject: Subject) -> Worst:
    """Search choices of one token among three: first at random, then near the worst."""
    source = torch.Generator().manual_seed(0)
    drawn = [torch.randn(2, 3, generator=source, dtype=torch.float64) for _ in range(TRIES)]
    best = Worst(math.inf, [], [])
    centre: tuple[Tensor, Tensor] | None = None
    at_random, near = drawn[: TRIES // 3], drawn[TRIES // 3 :]
    for noises in (at_random, *([noise] for noise in near)):
        tried = [_tried(noise, centre) for noise in noises]
        for cosine, (logits, rewards) in zip(_cosines(subject, tried), tried, strict=True):
            if cosine < best.cosine:
                best = Worst(cosine, logits.softmax(dim=0).tolist(), rewards.tolist())
                centre = (logits, rewards)
    return best if centre is None else replace(best, of_rewards=_of_rewards(subject, *centre))


def _of_rewards(subject: Subject, logits: Tensor, rewards: Tensor) -> float:
    """The cosine without those terms that need no reward."""
    world = World([Prompt(CHOICE, logits[None], rewards)], GROUP)
    (gradient,) = world.mean(lambda batches: of_rewards_of_each(subject, batches.each))
    return beside(-gradient, world.prompts[0].gradient())[0]


def _tried(noise: Tensor, centre: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Logits and rewards, near some or anywhere."""
    if centre is None:
        return 2 * noise[0], noise[1].mul(2).exp()
    return centre[0] + 0.4 * noise[0], centre[1] * (0.4 * noise[1]).exp()


def _cosines(subject: Subject, tried: Sequence[tuple[Tensor, Tensor]]) -> Iterator[float]:
    """Of each, of all of whose batches the loss is asked at once; infinite where there is none."""
    worlds = [World([Prompt(CHOICE, logits[None], rewards)], GROUP) for logits, rewards in tried]
    weights = subject.weights_of_each(Batches.joined([world.listed() for world in worlds]))
    for world, part in zip(worlds, weights.chunk(len(worlds)), strict=True):

        def known(_: Batches, part: Tensor = part) -> Tensor:
            return part

        (gradient,) = world.mean(known)
        truth = world.prompts[0].gradient()
        none = gradient.norm() < 1e-10 or truth.norm() < 1e-10
        yield math.inf if none else beside(-gradient, truth)[0]
