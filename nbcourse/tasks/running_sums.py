"""Sums of several numbers, with the running total written down after each: a task with steps.

    17+25+8=     →     42 50

An answer can be right up to a point, and a verifier can say up to which: that is what process
supervision pays for.
"""

import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, ClassVar

import torch
from annotated_types import Interval

from nbcourse.functional.arguments import Share
from nbcourse.tasks.answers import extract
from nbcourse.tasks.arithmetic import Digits, Problem, as_answer, careless
from nbcourse.tasks.task import Step, Task, draw_split

TOTALS = re.compile(r"[0-9]{1,30}(?: [0-9]{1,30})*")


def totals(problem: Problem) -> list[str]:
    """The running totals of `17+25+8=`: 42 and 50."""
    numbers = map(int, problem.prompt.rstrip("=").split("+"))
    return [str(total) for total in accumulate(numbers)][1:]


def slipped(problem: Problem, addition: int) -> list[str]:
    """The running totals if nothing is carried in one of the additions, counted from 0."""
    total, *numbers = problem.prompt.rstrip("=").split("+")
    written = []
    for i, number in enumerate(numbers):
        right = str(int(total) + int(number))
        total = careless(Problem(f"{total}+{number}=", right)) if i == addition else right
        written.append(total)
    return written


@dataclass(frozen=True)
class RunningSums(Task):
    """Sums such as `17+25+8=`, answered by the totals on the way: `42 50`.

    Attributes:
        numbers: in a sum.
        digits: of each number.
    """

    numbers: Annotated[int, Interval(ge=2, le=9)] = 4
    digits: Digits = 2
    held_out: ClassVar[str] = "test"
    characters: ClassVar[str | None] = "0123456789+= "

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Problem]:
        """Draw problems, repetitions allowed, each number uniform within the split."""

        def propose(size: int) -> list[Problem]:
            shape = (size, self.numbers)
            rows = torch.randint(10**self.digits, shape, generator=generator).tolist()
            return [Problem("+".join(map(str, row)) + "=", str(sum(row))) for row in rows]

        return draw_split(count, split=split, propose=propose)

    def demonstrate(
        self, count: int, *, generator: torch.Generator, careless_share: Share = 0.0
    ) -> tuple[list[Problem], list[str]]:
        """Training problems, and the responses of a teacher who sometimes forgets to carry once."""
        drawn = self.draw(count, split="train", generator=generator)
        slips = (torch.rand(count, generator=generator) < careless_share).tolist()
        where = torch.randint(self.numbers - 1, (count,), generator=generator).tolist()
        written = [
            slipped(problem, addition) if slip else totals(problem)
            for problem, slip, addition in zip(drawn, slips, where, strict=True)
        ]
        return drawn, [" ".join(each) for each in written]

    def read(self, response: str, *, strict: bool = True) -> str | None:
        """The last total of a response that is nothing but totals, or any last number."""
        if strict:
            return response.split(" ")[-1] if TOTALS.fullmatch(response) else None
        # Totals stand one space apart, and in prose 99 198 would be one number in thousands.
        number = extract(response.replace(" ", "  "), strict=False)
        return None if number is None else as_answer(number)

    def steps(self, response: str, problem: Problem) -> list[Step]:
        """1 for each total on the way that is the right one in its place, 0 for every other."""
        expected = totals(problem)
        written = list(re.finditer("[0-9]+", response))[:-1]  # the last one is the answer
        return [
            Step(number.end(), float(i < len(expected) - 1 and number[0] == expected[i]))
            for i, number in enumerate(written)
        ]


TASKS = {"running-sums": RunningSums}
