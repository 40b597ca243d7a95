"""Points in proportion: how many of an exercise's cases an answer gets right.

A case is a comparison or a property that the sheet's check requires, or a statement of the test
cell that asserts something, the hidden ones included. A check goes on after a comparison that
fails; it ends where the answer raises, or returns another type or shape. The cases are counted with
the master's own answer. What a check asks many times, such as a property of 160 batches, is one
case, right in proportion.
"""

import ast
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch

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


@lru_cache(maxsize=100)
def all_cases(master: Master, variant: int) -> dict[str, Counter[str]]:
    """The cases of each test of a master: name → what is asked, and how many times."""
    names = worked_cases.worked_out(master, variant)
    tests = (step for step in master.steps if isinstance(step, Test))
    return {step.grade_id: right_cases(step, names) for step in tests}


def share(right: Mapping[str, int], asked: Mapping[str, int]) -> float:
    """How many cases are right, each in proportion to how many times it was asked."""
    return sum(min(1.0, right.get(what, 0) / times) for what, times in asked.items())


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
