"""Walks through a town: answers of a hundred tokens, of which a handful decide.

The prompt `aNbEcS>` says where to turn at the crossings a, b and c. A response counts down the
blocks to each of them, `a2a1a0:Nb2b1b0:Ec2c1c0:S`, and is right if its turns are. At a crossing,
after `a0`, the walker may turn, `:` and where to, or go round the block once more,
`a2a1a0a2a1a0:N`. That changes the length and not what is right. So two kinds of tokens are ever in
doubt, the one after a 0 and the one after a colon. Every other one follows from the four before it,
and a long walk is as good as a short one.

A teacher goes round once more with probability `again`, at every crossing anew; a careless one also
takes each turn wrongly with probability `lost`. A model that imitates careless walks alone is right
at each crossing with probability 1 − lost, independently of the others, and the policy that is best
under a KL to such a reference is known: `optimal_turn`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar
from zlib import crc32

import torch

from nbcourse.functional.arguments import Bounds, Share
from nbcourse.tasks.task import Task

CROSSINGS, TURNS = "abcdefgh", "NESW"
HELD_OUT = 0.1  # share of all routes that are never trained on


@dataclass(frozen=True)
class Route:
    """One prompt, `aNbE>`, and the turns that it asks for, `NE`."""

    prompt: str
    answer: str

    @property
    def held_out(self) -> bool:
        """Whether this route is for testing: decided by a hash of its prompt."""
        return crc32(self.prompt.encode()) < HELD_OUT * 2**32


@dataclass(frozen=True)
class Walk(Task):
    """Routes such as `aNbE>`: the task as a training run sees it.

    Attributes:
        crossings: where a turn has to be taken.
        blocks: from one crossing to the next; a round takes two tokens for each.
        again: probability with which a teacher goes round once more.
        lost: probability with which a careless teacher takes any other turn than the right one.
    """

    crossings: Annotated[int, Bounds(3, len(CROSSINGS))] = 5
    blocks: Annotated[int, Bounds(1, 10)] = 5
    again: Annotated[float, Bounds(0, 0.9)] = 0.5
    lost: Share = 0.3
    held_out: ClassVar[str] = "test"  # there is no other: routes are drawn, not chosen from
    characters: ClassVar[str | None] = "0123456789" + CROSSINGS + TURNS + ":>"

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Route]:
        """Draw routes, uniform within the split, repetitions allowed."""
        if split not in ("train", "test"):
            raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
        if count < 0:
            raise ValueError(f"count is {count}, expected 0 or more")
        drawn: list[Route] = []
        while len(drawn) < count:
            shape = (2 * (count - len(drawn)), self.crossings)
            rows = torch.randint(len(TURNS), shape, generator=generator).tolist()
            candidates = [_route("".join(TURNS[i] for i in row)) for row in rows]
            drawn += [route for route in candidates if route.held_out == (split == "test")]
        return drawn[:count]

    def read(self, response: str, *, strict: bool = True) -> str | None:
        """The turns that were taken; strictly, of a walk without a false step."""
        if strict and not self._walks().fullmatch(response):
            return None
        return "".join(token for token in response if token in TURNS) or None

    def demonstrate(
        self, count: int, *, generator: torch.Generator, careless_share: Share = 0.0
    ) -> tuple[list[Route], list[str]]:
        """Training routes, and a teacher's walks; in a careless one each turn may be wrong."""
        drawn = self.draw(count, split="train", generator=generator)
        shape = (count, self.crossings)
        careless = torch.rand(count, 1, generator=generator) < careless_share
        lost = careless & (torch.rand(shape, generator=generator) < self.lost)
        aside = torch.where(lost, torch.randint(1, len(TURNS), shape, generator=generator), 0)
        rounds = torch.ones(shape, dtype=torch.long)
        if self.again:
            luck = torch.rand(shape, generator=generator, dtype=torch.float64)
            rounds += (luck.log() / math.log(self.again)).floor().long()
        return drawn, [
            self.walk("".join(map(_turned, route.answer, steps)), times)
            for route, steps, times in zip(drawn, aside.tolist(), rounds.tolist(), strict=True)
        ]

    def walk(self, turns: str, rounds: Sequence[int]) -> str:
        """The text of a walk with these turns, after so many rounds at each crossing."""
        return "".join(
            self._round(crossing) * times + ":" + turn
            for crossing, turn, times in zip(CROSSINGS, turns, rounds, strict=False)
        )

    def length(self, rounds: int) -> int:
        """Tokens of a walk of so many rounds in all, the end-of-sequence token included."""
        return 2 * self.blocks * rounds + 2 * self.crossings + 1

    def _round(self, crossing: str) -> str:
        return "".join(f"{crossing}{block}" for block in reversed(range(self.blocks)))

    def _walks(self) -> re.Pattern:
        legs = (f"({self._round(c)})+:[{TURNS}]" for c in CROSSINGS[: self.crossings])
        return re.compile("".join(legs))


def _route(turns: str) -> Route:
    # strict=False: a route has as many crossings as turns
    return Route("".join(map("".join, zip(CROSSINGS, turns, strict=False))) + ">", turns)


def _turned(turn: str, aside: int) -> str:
    return TURNS[(TURNS.index(turn) + aside) % len(TURNS)]


def soft_values(right: float, *, crossings: int, beta: float) -> list[float]:
    """V* of the states in which 0, 1, …, all crossings lie behind, each turn right so far.

        V*(i) = β log E_ref[exp(R/β) | i right] = β log(1 + pᵏ⁻ⁱ (exp(1/β) − 1))

    Rounds cost nothing and earn nothing, so they are in none of it. Behind a wrong turn V* is 0.

    Args:
        right: p, the reference's probability of a right turn.
        crossings: k.
        beta: β > 0.
    """
    gain = math.expm1(1 / beta)
    return [beta * math.log1p(right ** (crossings - i) * gain) for i in range(crossings + 1)]


def optimal_turn(right: float, *, crossings: int, beta: float) -> list[float]:
    """π* takes the right turn with these probabilities at the crossings, if all before were right.

        π*(right | i) = p exp((V*(i+1) − V*(i))/β)

    Everywhere else, for going round and behind a wrong turn, π* is the reference.

    Args:
        right: p, the reference's probability of a right turn.
        crossings: k.
        beta: β > 0.

    Returns:
        k probabilities. Walks that are cut off at a limit are not part of it.
    """
    values = soft_values(right, crossings=crossings, beta=beta)
    return [right * math.exp((after - before) / beta) for before, after in pairwise(values)]


TASKS = {"walk": Walk}
