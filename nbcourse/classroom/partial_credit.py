"""Points in proportion: how many of an exercise's cases an answer gets right.

A case is a comparison or a property that the sheet's check requires, or a statement of the test
cell that asserts something, the hidden ones included. A check goes on after a comparison that
fails; it ends where the answer raises, or returns another type or shape. The cases are counted with
the master's own answer. What a check asks many times, such as a property of 160 batches, is one
case, right in proportion.

A student's bundle holds cases with their values, and a look-up table of them is no answer. So what
such a table gets right is counted too, with a guess for what is not in it, and no larger share is
given than that of the other cases: those which nobody can look up.
"""

import ast
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import Attempt, NotRight
from nbcourse.classroom import worked_cases
from nbcourse.classroom.masters import Master, Test


def right_cases(
    step: Test,
    names: dict[str, Any],
    clock: Callable[[], AbstractContextManager[None]] = nullcontext,
    before_each: Callable[[], None] = lambda: None,
) -> Counter[str]:
    """Which cases of a test are right, and how many times, whatever the other cases do.

    Args:
        step: the test.
        names: what is defined where the test stands, the answer included.
        clock: limits the time of each statement by an exception.
        before_each: called before each statement; what it raises is raised here.
    """
    counts: Counter[str] = Counter()
    names = {
        name: _CountingSheet(value, counts.update) if isinstance(value, Sheet) else value
        for name, value in names.items()
    }
    torch.manual_seed(0)
    for part in (step.visible, step.hidden):
        for statement in ast.parse(part).body:  # each at a line of its own of the cell
            asserts = any(map(_asserts, ast.walk(statement)))
            before_each()
            try:
                with clock():
                    exec(compile(ast.Module([statement], []), "<case>", "exec"), names)
            except Exception:  # of an answer, or of a statement that builds on one that failed
                continue
            if asserts:
                counts[f"line {statement.lineno}.{statement.col_offset}"] += 1
    return counts


def _asserts(node: ast.AST) -> bool:
    """Whether it is an `assert`, or a call such as that of `torch.testing.assert_close`."""
    match node:
        case ast.Assert():
            return True
        case ast.Call(ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.startswith("assert_")
    return False


@dataclass(frozen=True)
class Cases:
    """The cases of a test.

    Args:
        asked: what is asked, and how many times.
        free: how much of each case, from 0 to 1, is right without an answer of one's own.
        said: how much of the rest the luckiest word earns that is said each time. Which word
            somebody says is not known, so it is a number of cases and none in particular.
    """

    asked: Mapping[str, int]
    free: Mapping[str, float]
    said: float = 0.0

    @property
    def not_free(self) -> float:
        """How many cases nobody can look up."""
        return sum(1.0 - self.free[what] for what in self.asked) - self.said

    def right(self, right: Mapping[str, int]) -> float:
        """How many cases are right, each in proportion to how many times it was asked."""
        return sum(_shares(right, self.asked).values())

    def earned(self, right: Mapping[str, int]) -> float:
        """How many are right of the cases that nobody can look up."""
        return max(0.0, _beyond(_shares(right, self.asked), self.free) - self.said)

    def share(self, right: Mapping[str, int]) -> tuple[float, str]:
        """The share of the points of an answer that failed, from 0 to 1, and why in words."""
        found, count, earned = self.right(right), len(self.asked), self.earned(right)
        if found == count > 0:  # yet it failed: for something that no case asks for
            found -= 1
        told = f"{found:.3g} of {count} cases are right"
        if not self.not_free:
            return 0.0, f"{told}, and all of them can be looked up"
        if earned / self.not_free < found / count:
            told += f", and {earned:.3g} of the {self.not_free:.3g} that cannot be looked up"
        return min(found / count, earned / self.not_free), told


@lru_cache(maxsize=100)
def all_cases(master: Master, variant: int) -> dict[str, Cases]:
    """The cases of each test of a master."""
    names = worked_cases.worked_out(master, variant)
    known = worked_cases.known_calls(master, names)
    return {
        step.grade_id: _cases(step, names, known.get(step.grade_id, []), master)
        for step in master.steps
        if isinstance(step, Test)
    }


def _cases(
    step: Test, names: dict[str, Any], known: Sequence[tuple[Any, ...]], master: Master
) -> Cases:
    asked = right_cases(step, names)
    shown = {f"line {s.lineno}.{s.col_offset}" for s in ast.parse(step.visible).body}
    free = dict.fromkeys(asked, 0.0) | dict.fromkeys(shown & asked.keys(), 1.0)
    functions = [name for own in step.solutions for name in master.solutions[own].functions]
    tables = {name: _Table(names[name], known) for name in functions}

    def shares(guess: Guess, *, empty: bool = False) -> dict[str, float]:
        guessing = {name: table.with_guess(guess, empty=empty) for name, table in tables.items()}
        return _shares(right_cases(step, {**names, **guessing}), asked)

    guessed = [free, *map(shares, GUESSES), shares(GUESSES[0], empty=True)]
    free = {what: max(found[what] for found in guessed) for what in asked}
    words = {word for table in tables.values() for word in table.words}
    said = (_beyond(shares(partial(_say, word)), free) for word in words)
    return Cases(asked, free, max(said, default=0.0))


def _shares(right: Mapping[str, int], asked: Mapping[str, int]) -> dict[str, float]:
    """How much of each case is right, from 0 to 1."""
    return {what: min(1.0, right.get(what, 0) / times) for what, times in asked.items()}


def _beyond(shares: Mapping[str, float], free: Mapping[str, float]) -> float:
    """How many cases are right, less what is free of each."""
    return sum(max(0.0, share - free[what]) for what, share in shares.items())


# What somebody says who knows the right result's form only: by a table, and the arguments.
Guess = Callable[[Any, "_Table", tuple[Any, ...]], Any]


def _say(word: str, right: Any, table: "_Table", arguments: tuple[Any, ...]) -> str:
    return word


GUESSES: tuple[Guess, ...] = (
    lambda right, table, arguments: _like(right, 0.0),
    lambda right, table, arguments: _like(right, 1.0),
    lambda right, table, arguments: _like(right, 0.5),
    lambda right, table, arguments: arguments[0] if arguments else None,
    lambda right, table, arguments: table.nearest(arguments),
)


def _like(right: Any, value: float) -> Any:
    match right:
        case Tensor() if right.is_floating_point():
            return 0.0 * right.nan_to_num(0.0, 0.0, 0.0) + value  # a gradient flows through it
        case Tensor():
            return torch.full_like(right, bool(value) if right.dtype is torch.bool else int(value))
        case bool():
            return bool(value)
        case int() | float():
            return type(right)(value)
        case list() | tuple():
            return type(right)(_like(item, value) for item in right)
        case dict():
            return {key: _like(item, value) for key, item in right.items()}
    return None


class _Table:
    """What a bundle holds of an answer: its results for some arguments.

    Args:
        answer: the master's.
        known: for which arguments.
    """

    def __init__(self, answer: Callable[..., Any], known: Sequence[tuple[Any, ...]]) -> None:
        self.answer, self.known = answer, known
        self.keys = {worked_cases.call_key(arguments) for arguments in known}
        self.words: set[str] = set()  # which it has said
        self._remembered: dict[str, Any] = {}

    def with_guess(self, guess: Guess, *, empty: bool) -> Callable[..., Any]:
        """An answer that is right where the table is, nowhere if it is empty, and else guesses."""

        def looked_up(*arguments: Any, **keywords: Any) -> Any:
            right = self._right(arguments, keywords)
            if not empty and worked_cases.call_key(arguments) in self.keys:
                return right
            return guess(right, self, arguments)

        return looked_up

    def nearest(self, arguments: tuple[Any, ...]) -> Any:
        """The result for the arguments that are most like these; None if there is none."""
        if not self.known:
            return None
        return self._right(min(self.known, key=partial(_distance, arguments)), {})

    def _right(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        key = f"{worked_cases.call_key(arguments)} {keywords}"
        if any(isinstance(a, Tensor) and a.requires_grad for a in arguments):
            return self.answer(*arguments, **keywords)
        if key not in self._remembered:  # it may take long
            self._remembered[key] = self.answer(*arguments, **keywords)
        right = self._remembered[key]
        if isinstance(right, str):
            self.words.add(right)
        return right


def _distance(these: tuple[Any, ...], those: tuple[Any, ...]) -> float:
    if len(these) != len(those):
        return math.inf
    total = 0.0
    for one, other in zip(these, those, strict=True):
        try:
            one, other = (x.detach() if isinstance(x, Tensor) else x for x in (one, other))
            apart = torch.as_tensor(one).double() - torch.as_tensor(other).double()
            total += float(apart.nan_to_num().abs().sum())
        except (TypeError, ValueError, RuntimeError):  # words, or other shapes
            total += 0.0 if one is other else 100.0
    return total


class _CountingSheet:
    """A sheet whose checks count what is right, and raise nothing."""

    def __init__(self, sheet: Sheet, tell: Callable[[Counter[str]], None]) -> None:
        self.sheet, self.tell = sheet, tell

    def check(self, exercise: str, answer: Callable[..., Any]) -> None:
        attempt = _CountingAttempt(answer)
        try:
            self.sheet.exercises[exercise].check(attempt, self.sheet._generator(exercise))
        finally:
            self.tell(attempt.right)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sheet, name)


class _CountingAttempt(Attempt):
    """An answer whose comparisons and properties are counted; none of them ends the check."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        super().__init__(answer)
        self.right: Counter[str] = Counter()

    def equal(self, *arguments: Any, case: str, **more: Any) -> None:
        self._count(case, super().equal, *arguments, case=case, **more)

    def choice(self, result: Any, right: str, among: Mapping[str, str]) -> None:
        self._count(f"the choice {right!r}", super().choice, result, right, among)

    def holds(self, condition: bool, what: str, *, otherwise: str) -> None:
        self._count(what, super().holds, condition, what, otherwise=otherwise)

    def _count(self, what: str, insist: Callable[..., None], *arguments: Any, **more: Any) -> None:
        try:
            insist(*arguments, **more)
        except NotRight:
            return
        self.right[what] += 1
