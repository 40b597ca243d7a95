"""Integer arithmetic: prompts such as `12+34=`, one right answer each, as many as you like.

The smallest task on which a language model has to *say* something right: the answer is written
digit by digit and ended by the model itself. What is held out is held out for good: whether a sum
belongs to training or to testing is a property of the sum, not of the seed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, ClassVar
from zlib import crc32

import torch
from annotated_types import Interval
from torch import Tensor

from nbcourse.functional.arguments import Share, checked
from nbcourse.tasks.answers import extract
from nbcourse.tasks.task import Task, draw_split

NUMBER = re.compile(r"-?[0-9]{1,30}")  # more digits are infinitely far off
OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
HELD_OUT = 0.1  # share of all problems that are never trained on

Digits = Annotated[int, Interval(ge=1, le=9)]


@dataclass(frozen=True)
class Problem:
    """One prompt, `12+34=`, and the answer that is right, `46`."""

    prompt: str
    answer: str

    @property
    def held_out(self) -> bool:
        """Whether this problem is for testing: decided by a hash of its prompt."""
        return crc32(self.prompt.encode()) < HELD_OUT * 2**32


@checked
def problems(
    count: int,
    *,
    split: str,
    generator: torch.Generator,
    digits: Digits = 2,
    operations: str = "+",
) -> list[Problem]:
    """Draw problems, repetitions allowed.

    Args:
        count: how many.
        split: "train" or "test"; no problem is in both.
        generator: source of the draws.
        digits: operands run from 0 to 10**digits − 1.
        operations: characters out of "+-*".

    Returns:
        `count` problems, operands and operation uniform within the split.

    Raises:
        ValueError: if an argument is out of range.
    """
    _check_operations(operations)

    def propose(size: int) -> list[Problem]:
        left, right = torch.randint(10**digits, (2, size), generator=generator).tolist()
        choice = torch.randint(len(operations), (size,), generator=generator).tolist()
        return list(map(_problem, left, right, (operations[i] for i in choice)))

    return draw_split(count, split=split, propose=propose)


def _check_operations(operations: str) -> None:
    if not operations or not set(operations) <= set(OPERATIONS):
        raise ValueError(f"operations is {operations!r}, expected characters out of '+-*'")


def _problem(left: int, right: int, operation: str) -> Problem:
    return Problem(f"{left}{operation}{right}=", str(OPERATIONS[operation](left, right)))


def careless(problem: Problem) -> str:
    """The answer if each column of digits is taken for itself and nothing is carried.

    `17+25=` gives 32. Often enough it is right: 12+34 has nothing to carry.
    """
    (operation,) = set(problem.prompt) & set(OPERATIONS)
    left, right = problem.prompt.rstrip("=").split(operation)
    width = max(len(left), len(right))
    columns = zip(left.zfill(width), right.zfill(width), strict=True)
    digits = [str(OPERATIONS[operation](int(a), int(b)) % 10) for a, b in columns]
    return str(int("".join(digits)))


def rewards(completions: Sequence[str], answers: Sequence[str]) -> Tensor:
    """1 for a completion that is the answer, character for character, 0 for every other.

    Args:
        completions: what the model wrote, without the end-of-sequence token.
        answers: the right answers, in the same order.

    Returns:
        (B,) float32.

    Raises:
        ValueError: if there are not as many answers as completions.
    """
    if len(completions) != len(answers):
        raise ValueError(f"answers has {len(answers)} entries, expected {len(completions)}")
    return torch.tensor([float(c == a) for c, a in zip(completions, answers, strict=True)])


def as_answer(number: Decimal) -> str:
    """A number as answers are written: 46.0 is 46."""
    whole = int(number)
    return str(whole) if whole == number else f"{number:f}"


def closeness(completions: Sequence[str], answers: Sequence[str]) -> Tensor:
    """Minus the distance to the right answer: the preference by which two answers are compared.

    Args:
        completions: what the model wrote; what is not a number is further off than any number.
        answers: the right answers, in the same order.

    Returns:
        (B,) float32, 0 for the right answer and less for every other.
    """
    distances = [
        float(abs(int(c) - int(a))) if NUMBER.fullmatch(c) else float("inf")
        for c, a in zip(completions, answers, strict=True)
    ]
    return -torch.tensor(distances, dtype=torch.float32)


@dataclass(frozen=True)
class Arithmetic(Task):
    """Sums such as `12+34=`: the task as a training run sees it.

    Attributes:
        digits: of the operands.
        operations: characters out of "+-*".
    """

    digits: Digits = 2
    operations: str = "+"
    held_out: ClassVar[str] = "test"  # there is no other: problems without end need no choosing
    characters: ClassVar[str | None] = "0123456789+-*= "

    def __post_init__(self) -> None:
        _check_operations(self.operations)

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Problem]:
        """Draw problems, repetitions allowed; see `problems`."""
        return problems(
            count,
            split=split,
            generator=generator,
            digits=self.digits,
            operations=self.operations,
        )

    def demonstrate(
        self, count: int, *, generator: torch.Generator, careless_share: Share = 0.0
    ) -> tuple[list[Problem], list[str]]:
        """Training problems, and the responses of a teacher who sometimes carries nothing.

        A model that learns from them learns both ways to add, and when to use which: at random.
        """
        drawn = self.draw(count, split="train", generator=generator)
        slips = torch.rand(count, generator=generator) < careless_share
        return drawn, [
            careless(problem) if slip else problem.answer
            for problem, slip in zip(drawn, slips.tolist(), strict=True)
        ]

    def read(self, response: str, *, strict: bool = True) -> str | None:
        """The number that a response gives: all of it, or the one that `answers.extract` finds."""
        if strict:
            return response if NUMBER.fullmatch(response) else None
        number = extract(response, strict=False)
        return None if number is None else as_answer(number)

    def preference(self, responses: Sequence[str], problems: Sequence[Problem]) -> Tensor:
        """Minus the distance to the right answer, −∞ for what is not a number: (B,)."""
        return closeness(responses, [problem.answer for problem in problems])


TASKS = {"arithmetic": Arithmetic}
