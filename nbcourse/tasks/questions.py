"""Word problems as a training run sees them: where questions come from, and what a response earns.

Two tasks with one verifier. `WordProblems` has no end and grows harder on request; `GSM8K` is what
people wrote, and finite. A response earns 1 if its marker line holds the right number, whatever it
says on the way there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, ClassVar
from zlib import crc32

import torch
from torch import Tensor

from nbcourse.functional.arguments import Bounds, Share
from nbcourse.tasks import gsm8k, word_problems
from nbcourse.tasks.answers import extract
from nbcourse.tasks.task import Task

Steps = Annotated[int, Bounds(1, word_problems.MAX_STEPS)]

VALIDATION = 0.1  # share of GSM8K's training problems that are kept for choosing between runs


class Verified(Task):
    """What both tasks share: the verifier, and the preferences of comparisons."""

    worked_solutions: ClassVar[bool] = True

    def read(self, response: str, *, strict: bool = True) -> Decimal | None:
        """The number that a response gives as its answer, if it gives one."""
        return extract(response, strict=strict)

    def preference(self, responses: Sequence[str], asked: Sequence[gsm8k.Problem]) -> Tensor:
        """Minus the distance to the right answer, −∞ for a response without one: (B,)."""
        answers = [self.read(response) for response in responses]
        return -torch.tensor(
            [
                float("inf") if answer is None else float(abs(answer - problem.answer))
                for answer, problem in zip(answers, asked, strict=True)
            ]
        )


@dataclass(frozen=True)
class WordProblems(Verified):
    """Problems of our own; see `word_problems.problems`.

    Attributes:
        min_steps: the fewest steps of a solution.
        max_steps: the most.
        distractors: share of the questions that tell a number nobody needs.
        stories: share of the stories that are told.
    """

    min_steps: Steps = 1
    max_steps: Steps = word_problems.MAX_STEPS
    distractors: Share = 0.2
    stories: Annotated[float, Bounds(0, 1, above=True)] = 1.0

    def __post_init__(self) -> None:
        if self.min_steps > self.max_steps:
            raise ValueError(
                f"min_steps is {self.min_steps}, expected at most max_steps = {self.max_steps}"
            )

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[gsm8k.Problem]:
        """Draw problems, repetitions allowed."""
        return [
            *word_problems.problems(
                count,
                split=split,
                generator=generator,
                min_steps=self.min_steps,
                max_steps=self.max_steps,
                distractors=self.distractors,
                stories=self.stories,
            )
        ]


@dataclass(frozen=True)
class GSM8K(Verified):
    """The data set, with a validation split of our own.

    Attributes:
        path: as for `gsm8k.load`.
    """

    path: str | None = None

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[gsm8k.Problem]:
        """Draw different problems: `count`, or all there are.

        Raises:
            ValueError: if the split is unknown.
        """
        there = split_of_gsm8k(split, self.path)
        order = torch.randperm(len(there), generator=generator)[:count]
        return [there[i] for i in order.tolist()]


TASKS = {"word-problems": WordProblems, "gsm8k": GSM8K}


@cache
def split_of_gsm8k(split: str, path: str | None = None) -> list[gsm8k.Problem]:
    """GSM8K in three parts: its training problems without a tenth, that tenth, and its test.

    Which tenth is a property of the question, by a hash: it stays the same whatever the order of
    the file and the seed of the run.

    Args:
        split: "train" (6,707 problems), "validation" (766) or "test" (1,319).
        path: as for `gsm8k.load`.

    Raises:
        ValueError: if the split is unknown.
    """
    if split == "test":
        return gsm8k.load("test", path=path)
    if split not in ("train", "validation"):
        raise ValueError(f"split is {split!r}, expected 'train', 'validation' or 'test'")
    return [
        problem
        for problem in gsm8k.load("train", path=path)
        if (crc32(problem.question.encode()) < VALIDATION * 2**32) == (split == "validation")
    ]
