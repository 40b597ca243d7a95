"""Walks through a town: answers of a hundred tokens, of which a handful decide.

The prompt `aNbEcS>` says where to turn at the crossings a, b and c. A response counts down the
blocks to each of them, `a2a1a0:Nb2b1b0:Ec2c1c0:S`, and is right if its turns are. At a crossing,
after `a0`, the walker may turn, `:` and where to, or go round the block once more,
`a2a1a0a2a1a0:N`. That changes the length and not what is right. So two kinds of tokens are ever in
doubt, the one after a 0 and the one after a colon. Every other one follows from the four before it,
and a long walk is as good as a short one.

A teacher goes round once more with probability `again`, at every crossing anew; a careless one also
takes each turn wrongly with probability `lost`. A model that imitates careless walks alone is right
at each crossing with probability 1 − lost, independently of the others.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval

from nbcourse.functional.arguments import Share
from nbcourse.tasks.arithmetic import Problem
from nbcourse.tasks.task import Task, draw_split

CROSSINGS, TURNS = "abcdefgh", "NESW"


class Route(Problem):
    """One prompt, `aNbE>`, and the turns that it asks for, `NE`."""


@dataclass(frozen=True)
class Walk(Task):
    """Routes such as `aNbE>`: the task as a training run sees it.

    Attributes:
        crossings: where a turn has to be taken.
        blocks: from one crossing to the next; a round takes two tokens for each.
        again: probability with which a teacher goes round once more.
        lost: probability with which a careless teacher takes any other turn than the right one.
    """

    crossings: Annotated[int, Interval(ge=3, le=len(CROSSINGS))] = 5
    blocks: Annotated[int, Interval(ge=1, le=10)] = 5
    again: Annotated[float, Interval(ge=0, le=0.9)] = 0.5
    lost: Share = 0.3
    held_out: ClassVar[str] = "test"  # there is no other: routes are drawn, not chosen from
    characters: ClassVar[str | None] = "0123456789" + CROSSINGS + TURNS + ":>"

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Route]:
        """Draw routes, uniform within the split, repetitions allowed."""

        def propose(size: int) -> list[Route]:
            shape = (size, self.crossings)
            rows = torch.randint(len(TURNS), shape, generator=generator).tolist()
            return [_route("".join(TURNS[i] for i in row)) for row in rows]

        return draw_split(count, split=split, propose=propose)

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


TASKS = {"walk": Walk}
