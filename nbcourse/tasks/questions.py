"""Questions in words: what such a problem is, and the verifier that all tasks of this kind share.

A worked solution ends in a line that holds the answer, ``#### 18``. A response earns 1 if its
marker line holds the right number, whatever it says on the way there. Chapter 13 is about such
answers.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import torch
from torch import Tensor

from nbcourse.tasks.answers import extract
from nbcourse.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    """One question, the worked solution, and the number at the solution's end."""

    question: str
    solution: str
    answer: Decimal

    @property
    def prompt(self) -> str:
        """What the model is given: the question, on a line that is complete."""
        return f"{self.question}\n"


class Verified(Task):
    """A task whose problems are questions, judged by the answer parser."""

    worked_solutions: ClassVar[bool] = True

    def read(self, response: str, *, strict: bool = True) -> Decimal | None:
        """The number that a response gives as its answer, if it gives one."""
        return extract(response, strict=strict)

    def preference(self, responses: Sequence[str], problems: Sequence[Problem]) -> Tensor:
        """Minus the distance to the right answer, −∞ for a response without one: (B,)."""
        answers = [self.read(response) for response in responses]
        return -torch.tensor(
            [
                float("inf") if answer is None else float(abs(answer - problem.answer))
                for answer, problem in zip(answers, problems, strict=True)
            ]
        )


class Listed(Verified):
    """A task of finitely many questions, so that none is drawn twice at once."""

    @abstractmethod
    def listed(self, split: str) -> Sequence[Any]:
        """All problems of a split, in a fixed order.

        Raises:
            ValueError: if the split is unknown.
        """

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Any]:
        """Draw different problems: `count`, or all there are.

        Raises:
            ValueError: if the split is unknown, or the count negative.
        """
        if count < 0:
            raise ValueError(f"count is {count}, expected 0 or more")
        there = self.listed(split)
        order = torch.randperm(len(there), generator=generator)[:count]
        return [there[i] for i in order.tolist()]
