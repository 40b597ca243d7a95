"""What a task gets without writing it: rewards, preferences and a teacher."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from nbcourse.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    prompt: str
    answer: int
    solution: str = ""


@dataclass(frozen=True)
class Doubling(Task):
    """The smallest task: what is abstract, and nothing else."""

    def draw(self, count, *, split, generator):
        numbers = torch.randint(9, (count,), generator=generator).tolist()
        return [Problem(f"{n}, {split}", 2 * n, solution=f"{n} + {n} = {2 * n}") for n in numbers]

    def read(self, response, *, strict=True):
        return int(response) if response.isdigit() else None


@dataclass(frozen=True)
class Explained(Doubling):
    worked_solutions: ClassVar[bool] = True


@dataclass(frozen=True)
class Taught(Doubling):
    def demonstrate(self, count, *, generator):
        drawn = self.draw(count, split="train", generator=generator)
        return drawn, [str(problem.answer) for problem in drawn]


def test_the_right_answer_earns_1_and_is_preferred():
    asked = [Problem("3", 6), Problem("4", 8), Problem("5", 10)]
    for judge in (Doubling().rewards, Doubling().preference):
        assert judge(["6", "9", "ten"], asked).tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        Doubling().rewards(["6"], asked)


def test_a_task_with_worked_solutions_has_a_teacher_who_shows_those_of_training_problems():
    problems, shown = Explained().demonstrate(3, generator=torch.Generator().manual_seed(0))
    assert shown == [problem.solution for problem in problems]
    assert all(problem.prompt.endswith("train") for problem in problems)


def test_a_task_has_a_teacher_if_it_has_solutions_or_writes_one():
    assert not Doubling.has_teacher()
    assert Explained.has_teacher()
    assert Taught.has_teacher()


def test_problems_and_the_reading_of_answers_have_to_be_written():
    with pytest.raises(TypeError, match="draw"):
        Task()
