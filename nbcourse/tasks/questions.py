"""Word problems as a training run sees them: where questions come from, and what a response earns.

Two tasks with one verifier. `WordProblems` has no end and grows harder on request; `GSM8K` is what
people wrote, and finite. A response earns 1 if its marker line holds the right number, whatever it
says on the way there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import ClassVar
from zlib import crc32

import torch
from torch import Tensor

from nbcourse.tasks import gsm8k, word_problems
from nbcourse.tasks.answers import extract

VALIDATION = 0.1  # share of GSM8K's training problems that are kept for choosing between runs


class Verified:
    """What both tasks share: the verifier, and the taste of somebody who compares two responses.

    Attributes:
        held_out: the split that is asked during training and when runs are chosen between.
    """

    held_out: ClassVar[str] = "validation"

    def read(self, response: str, *, strict: bool = True) -> Decimal | None:
        """The number that a response gives as its answer, if it gives one."""
        return extract(response, strict=strict)

    def demonstrate(
        self, count: int, *, generator: torch.Generator
    ) -> tuple[list[gsm8k.Problem], list[str]]:
        """Training problems and their worked solutions."""
        drawn = self.draw(count, split="train", generator=generator)
        return drawn, [problem.solution for problem in drawn]

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[gsm8k.Problem]:
        """Problems of a split; each task says whether they may repeat."""
        raise NotImplementedError

    def rewards(self, responses: Sequence[str], asked: Sequence[gsm8k.Problem]) -> Tensor:
        """1 for a marker line with the right number, 0 for everything else: (B,)."""
        pairs = zip(responses, asked, strict=True)
        return torch.tensor([float(self.read(text) == problem.answer) for text, problem in pairs])

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

    min_steps: int = 1
    max_steps: int = word_problems.MAX_STEPS
    distractors: float = 0.2
    stories: float = 1.0

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
