"""What a training run asks of a task: problems, a verifier, preferences, and perhaps a teacher."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from nbcourse.rows import needs_of, settings_of
from nbcourse.seeds import generator


class Step(NamedTuple):
    """A step on the way to the answer.

    Attributes:
        end: characters of the response up to its end.
        reward: what it earns.
    """

    end: int
    reward: float


class Task(ABC):
    """A task: a frozen dataclass, in a file whose dictionary `TASKS` gives it a name.

    The fields of the dataclass are the keys of a recipe's table `[task]`; their annotations say
    what they may be (`Annotated[int, Interval(ge=1, le=9)]`), and what does not go together is
    refused in `__post_init__`. A problem is any object with at least `prompt` and `answer`, and
    `solution` if the task has worked solutions.

    Attributes:
        held_out: the split that is asked during training, and by which runs are chosen.
        characters: the characters of prompts and responses, each once, where a model reads the task
            character by character; None where its vocabulary is learned from worked solutions, or
            comes with the model.
        worked_solutions: problems have a `solution`, a text to pretrain on and to imitate.
    """

    held_out: ClassVar[str] = "validation"
    characters: ClassVar[str | None] = None
    worked_solutions: ClassVar[bool] = False

    @abstractmethod
    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[Any]:
        """`count` problems of "train", "test" or the held-out split; each task may repeat them.

        Raises:
            ValueError: if the split is unknown, or the count negative.
        """

    def listed(self, split: str) -> Sequence[Any] | None:
        """All problems of a split in a fixed order, if they are finitely many; here, None."""
        return None

    @abstractmethod
    def read(self, response: str, *, strict: bool = True) -> Any:
        """The answer that a response gives, to be compared with the problem's; None for none.

        Strictly, it has to be in the form that is asked for; leniently, in any form.
        """

    def rewards(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        """1 for a response whose answer is the problem's, 0 for every other: (B,)."""
        pairs = zip(responses, problems, strict=True)
        return torch.tensor([float(self.read(text) == problem.answer) for text, problem in pairs])

    def steps(self, response: str, problem: Any) -> list[Step]:
        """The steps of a response before its answer, in order; here, none.

        The answer is the last step of every response, and is judged by `rewards`.
        """
        return []

    def preference(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        """The score by which two responses are compared, the higher the better: (B,).

        It is at its highest for the right answer, and −∞ for a response that is worse than any.
        """
        return self.rewards(responses, problems)

    def demonstrate(self, count: int, *, generator: torch.Generator) -> tuple[list[Any], list[str]]:
        """Training problems, and a teacher's responses to them: here, the worked solutions.

        A task without worked solutions has a teacher if it overrides this. A keyword
        `careless_share`, where there is one, is the share of responses with typical mistakes.
        """
        drawn = self.draw(count, split="train", generator=generator)
        return drawn, [problem.solution for problem in drawn]

    @classmethod
    def has_teacher(cls) -> bool:
        """Whether there are responses to imitate before reinforcement learning."""
        return cls.worked_solutions or cls.demonstrate is not Task.demonstrate


def in_epochs(
    problems: Sequence[Any], first: int, count: int, *, seed: int, purpose: str
) -> list[Any]:
    """`count` of finitely many problems, from number `first` on: each comes once in every epoch.

    Args:
        problems: all there are.
        first: how many were taken before.
        count: how many are wanted; more than there are go on into the next epoch.
        seed: of the run; it decides the order of each epoch.
        purpose: so does this, such as "problems".
    """
    found: list[Any] = []
    while len(found) < count:
        epoch, place = divmod(first + len(found), len(problems))
        order = torch.randperm(len(problems), generator=generator(seed, purpose, epoch))
        found += [problems[i] for i in order[place : place + count - len(found)].tolist()]
    return found


def draw_split(count: int, *, split: str, propose: Callable[[int], Sequence[Any]]) -> list[Any]:
    """`count` problems of one split, from as many proposals as that takes.

    Args:
        count: how many.
        split: "train" or "test"; a problem belongs to "test" if its `held_out` is True.
        propose: draws so many problems of either split.

    Raises:
        ValueError: if the split is unknown, or the count negative.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
    if count < 0:
        raise ValueError(f"count is {count}, expected 0 or more")
    drawn: list[Any] = []
    while len(drawn) < count:
        proposed = propose(2 * (count - len(drawn)))
        drawn += [problem for problem in proposed if problem.held_out == (split == "test")]
    return drawn[:count]


def check_task(kind: object) -> None:
    """Require a task that a recipe can name: a complete dataclass whose fields all have a default.

    Raises:
        ValueError: naming what is missing.
    """
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise ValueError(f"is {kind!r}, expected a subclass of Task")
    if missing := sorted(kind.__abstractmethods__):
        raise ValueError(f"has no {' and no '.join(missing)}")
    if not is_dataclass(kind):
        raise ValueError("is not a dataclass: write @dataclass(frozen=True) above it")
    if needed := needs_of(kind):
        raise ValueError(f"has {needed[0]!r} without a default")
    settings_of(kind)
    if isinstance(kind.characters, str) and len({*kind.characters}) < len(kind.characters):
        raise ValueError(f"has characters = {kind.characters!r}, expected each character once")
