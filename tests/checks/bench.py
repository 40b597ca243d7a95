"""What a sheet says to an answer, in this process: its check and its hidden tests."""

import contextlib
import functools
import io
import random
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nbcourse.checks.attempt import NotRight, plain
from nbcourse.classroom.declared import as_declared
from nbcourse.classroom.leaks import REGION
from nbcourse.confined import wire
from tests.checks import masters
from tests.checks.remembered import remembering

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


def as_graded(answer: Callable[..., Any], source: str, name: str) -> Callable[..., Any]:
    """The answer as a hidden test calls it: what it returns has been packed, sent and read."""

    def sent(*given: Any) -> Any:
        structure, tensors = wire.pack(answer(*given))
        # What a gradient flows through stays here: bytes would end it.
        arrived = [
            t if t.requires_grad else wire.to_tensor(wire.from_tensor(t))[0] for t in tensors
        ]
        return wire.unpack(structure, arrived)

    return as_declared(sent, source, name)


class Desk:
    """One exercise of one student.

    Args:
        chapter, exercise, variant: which.
    """

    def __init__(self, chapter: str, exercise: str, variant: int) -> None:
        master = masters.master(chapter)
        self.chapter, self.exercise, self.variant = chapter, exercise, variant
        self.name = masters.answer_name(chapter, exercise)
        self.names = masters.work(master, variant=variant)
        self.source = next(
            cell.source for cell in master.cells if masters.grader(cell).get("grade_id") == exercise
        )
        source = masters.check_cell(master, exercise)
        self._check = compile(REGION.sub("", source), "<check>", "exec")
        self._hidden = compile(source, "<hidden tests>", "exec")

    @functools.cached_property
    def solution(self) -> Callable[..., Any]:
        return remembering(self.names[self.name])

    def written(self, source: str) -> dict[str, Any]:
        """The names of the notebook with another solution cell."""
        names = dict(self.names)
        exec(compile(source, "<answer>", "exec"), names)
        return names

    def says(self, answer: Callable[..., Any] | str) -> str:
        """What is wrong with an answer, a function or a cell; `ACCEPTED` if nothing is."""
        torch.default_generator.manual_seed(0)  # `torch.manual_seed` asks for every other device
        random.seed(0)
        try:
            with at_most(PATIENCE), contextlib.redirect_stdout(io.StringIO()):
                if isinstance(answer, str):
                    names = self.written(answer)
                else:
                    names = {**self.names, self.name: answer}
                exec(self._check, names)
                graded = as_graded(names[self.name], self.source, self.name)
                exec(self._hidden, {**names, self.name: graded})
        except NotRight as wrong:
            return str(wrong)
        except Exception as error:  # of a hidden test, or of the cell itself
            return f"hidden: {type(error).__name__}: {error}"
        return ACCEPTED

    @functools.cached_property
    def calls(self) -> list["Call"]:
        """What check and hidden tests call the solution with, and what it returns."""
        made: list[Call] = []

        def answer(*arguments: Any) -> Any:
            wanted = tuple(isinstance(a, Tensor) and a.requires_grad for a in arguments)
            kept = tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in arguments)
            result = self.solution(*arguments)
            made.append(Call(kept, wanted, result))
            return result

        assert self.says(answer) == ACCEPTED, self.exercise
        return made

    def departs(self, answer: Callable[..., Any] | str) -> bool:
        """Whether in one of these calls it returns something else, or has another gradient."""
        with contextlib.redirect_stdout(io.StringIO()):
            function = self.written(answer)[self.name] if isinstance(answer, str) else answer
            for call, right in self._right:
                try:
                    with at_most(PATIENCE):
                        found = call.made_by(function)
                except Exception:
                    return True
                if not _near(found, right, self.tolerance):
                    return True
        return False

    @functools.cached_property
    def _right(self) -> list[tuple["Call", list[Any]]]:
        """Each call with what the solution makes of it."""
        return [(call, call.made_by(self.solution)) for call in self.calls]

    @functools.cached_property
    def tolerance(self) -> float:
        """How far off an answer may be, absolute and relative, by the words of its statement."""
        asked = re.search(
            r"to (two|three) decimals", masters.statement(self.chapter, self.exercise)
        )
        return {None: 1e-4, "two": 6e-3, "three": 6e-4}[asked and asked[1]]


@dataclass(frozen=True)
class Call:
    """A call of the solution.

    Args:
        arguments: what it was called with.
        wanted: by which of them its result was to be differentiated.
        result: what it returned.
    """

    arguments: tuple[Any, ...]
    wanted: tuple[bool, ...]
    result: Any

    def made_by(self, function: Callable[..., Any]) -> list[Any]:
        """What a function returns here, piece by piece, and the gradients that were wanted."""
        given = [
            a.clone().requires_grad_(wanted) if isinstance(a, Tensor) else a
            for a, wanted in zip(self.arguments, self.wanted, strict=True)
        ]
        pieces = _pieces(plain(function(*given)))
        leaves = [a for a, wanted in zip(given, self.wanted, strict=True) if wanted]
        for piece in [p for p in pieces if leaves and isinstance(p, Tensor) and p.requires_grad]:
            pieces += torch.autograd.grad(
                piece.sum(), leaves, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        return [p.detach().double() if isinstance(p, Tensor) else p for p in pieces]


def _pieces(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [piece for key in sorted(value, key=str) for piece in (key, *_pieces(value[key]))]
    if isinstance(value, list | tuple):
        return [piece for part in value for piece in _pieces(part)]
    return [value]


def _near(found: list[Any], right: list[Any], tolerance: float) -> bool:
    return len(found) == len(right) and all(
        _close(one, other, tolerance) for one, other in zip(found, right, strict=True)
    )


def _close(one: Any, other: Any, tolerance: float) -> bool:
    numbers = (bool, int, float, Tensor)
    if not (isinstance(one, numbers) and isinstance(other, numbers)):
        return type(one) is type(other) and bool(one == other)
    left, right = (torch.as_tensor(x, dtype=torch.float64) for x in (one, other))
    return left.shape == right.shape and torch.allclose(
        left, right, rtol=tolerance, atol=tolerance, equal_nan=True
    )


@functools.cache
def desk(chapter: str, exercise: str, variant: int) -> Desk:
    return Desk(chapter, exercise, variant)
