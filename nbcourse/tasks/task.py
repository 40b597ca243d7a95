"""What a training run asks of a task: problems, a verifier, preferences, and perhaps a teacher."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor


class Task(ABC):
    """A task: a frozen dataclass, in a file whose dictionary `TASKS` gives it a name.

    The fields of the dataclass are the keys of a recipe's table `[task]`; their annotations say
    what they may be (`Annotated[int, Bounds(1, 9)]`), and what does not go together is refused in
    `__post_init__`. A problem is any object with at least `prompt` and `answer`, and `solution` if
    the task has worked solutions.

    Attributes:
        held_out: the split that is asked during training and when runs are chosen between.
        characters: the characters of prompts and responses, where a model reads the task character
            by character; None where its vocabulary has to be learned from the task's texts.
        worked_solutions: problems have a `solution`, a text to pretrain on and to imitate.
    """

    held_out: ClassVar[str] = "validation"
    characters: ClassVar[str | None] = None
    worked_solutions: ClassVar[bool] = False

    @abstractmethod
    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Any]:
        """`count` problems of a split; each task says whether they may repeat."""

    @abstractmethod
    def read(self, response: str, *, strict: bool = True) -> Any:
        """The answer that a response gives, to be compared with the problem's; None for none."""

    def rewards(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        """1 for a response whose answer is the problem's, 0 for every other: (B,)."""
        pairs = zip(responses, problems, strict=True)
        return torch.tensor([float(self.read(text) == problem.answer) for text, problem in pairs])

    def preference(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        """What comparisons of two responses go by, the more the better: (B,)."""
        return self.rewards(responses, problems)

    def demonstrate(self, count: int, *, generator: torch.Generator) -> tuple[list[Any], list[str]]:
        """Training problems and a teacher's responses: those with worked solutions have one."""
        drawn = self.draw(count, split="train", generator=generator)
        return drawn, [problem.solution for problem in drawn]

    @classmethod
    def has_teacher(cls) -> bool:
        """Whether there is somebody to imitate before reinforcement learning."""
        return cls.worked_solutions or cls.demonstrate is not Task.demonstrate
