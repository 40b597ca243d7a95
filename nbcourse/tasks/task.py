"""What a training run asks of a task: problems, a verdict, somebody's taste, and a teacher."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor


class Task(Protocol):
    """`Arithmetic`, `WordProblems` and `GSM8K`; a problem has at least `prompt` and `answer`.

    Attributes:
        held_out: the split that is asked during training and when runs are chosen between.
    """

    held_out: ClassVar[str]

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Any]:
        """`count` problems of a split; each task says whether they may repeat."""

    def read(self, response: str, *, strict: bool = True) -> Any:
        """The answer that a response gives, to be compared with the problem's; None for none."""

    def rewards(self, responses: Sequence[str], asked: Sequence[Any]) -> Tensor:
        """1 for a right response, 0 for every other: (B,)."""

    def preference(self, responses: Sequence[str], asked: Sequence[Any]) -> Tensor:
        """How much somebody who compares responses likes each: (B,)."""

    @property
    def demonstrate(self) -> Callable[..., tuple[list[Any], list[str]]]:
        """(count, *, generator) → training problems and a teacher's responses.

        Arithmetic's teacher has a habit besides, `careless_share`.
        """
