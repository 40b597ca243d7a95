"""What a sheet says to an answer, in this process: its check and its hidden tests."""

import contextlib
import functools
import io
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import torch

from nbcourse.checks.attempt import NotRight
from tests.checks import masters

PATIENCE = 20.0  # seconds; the slowest solution is checked in one
ACCEPTED = ""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in a block that takes longer: a small change can make a loop endless."""

    def stop(number: int, frame: Any) -> None:
        raise TimeoutError(f"no result within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Desk:
    """One exercise of one student.

    Args:
        chapter, exercise, variant: which.
    """

    def __init__(self, chapter: str, exercise: str, variant: int) -> None:
        master = masters.master(chapter)
        self.exercise, self.variant = exercise, variant
        self.name = masters.answer_name(chapter, exercise)
        self.names = masters.work(master, variant=variant)
        self.source = next(
            cell.source for cell in master.cells if masters.grader(cell).get("grade_id") == exercise
        )
        self._check = compile(masters.check_cell(master, exercise), "<check>", "exec")

    @property
    def solution(self) -> Callable[..., Any]:
        return self.names[self.name]

    def written(self, source: str) -> dict[str, Any]:
        """The names of the notebook with another solution cell."""
        names = dict(self.names)
        exec(compile(source, "<answer>", "exec"), names)
        return names

    def says(self, answer: Callable[..., Any] | str) -> str:
        """What is wrong with an answer, a function or a cell; `ACCEPTED` if nothing is."""
        torch.manual_seed(0)
        random.seed(0)
        try:
            with at_most(PATIENCE), contextlib.redirect_stdout(io.StringIO()):
                if isinstance(answer, str):
                    names = self.written(answer)
                else:
                    names = {**self.names, self.name: answer}
                exec(self._check, names)
        except NotRight as wrong:
            return str(wrong)
        except Exception as error:  # of a hidden test, or of the cell itself
            return f"hidden: {type(error).__name__}: {error}"
        return ACCEPTED

    def calls(self) -> list[tuple[tuple[Any, ...], Any]]:
        """What check and hidden tests call the solution with, and what it returns."""
        made: list[tuple[tuple[Any, ...], Any]] = []

        def answer(*arguments: Any) -> Any:
            kept = tuple(
                a.detach().clone() if isinstance(a, torch.Tensor) else a for a in arguments
            )
            result = self.solution(*arguments)
            made.append((kept, result))
            return result

        assert self.says(answer) == ACCEPTED, self.exercise
        return made


@functools.cache
def desk(chapter: str, exercise: str, variant: int) -> Desk:
    return Desk(chapter, exercise, variant)
