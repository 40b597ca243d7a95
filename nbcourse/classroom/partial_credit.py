"""Points in proportion: how many of an exercise's cases an answer gets right.

A case is a comparison or a property that the check of the sheet insists on, or a statement of the
test cell that asserts something, hidden ones among them. A check goes on behind a comparison that
fails, and ends where the answer stops, or returns what has not the type or the shape. How many
cases there are is counted with the master's own answer.
"""

import ast
from collections.abc import Callable
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
) -> int:
    """How many cases of a test are right, whatever the others do.

    Args:
        step: the test.
        names: what is defined where it stands, the answer among it.
        clock: limits the time of each statement by an exception.
    """
    counts: list[int] = []
    names = {
        name: _CountingSheet(value, counts.append) if isinstance(value, Sheet) else value
        for name, value in names.items()
    }
    torch.manual_seed(0)
    for part in (step.visible, step.hidden):
        for statement in ast.parse(part).body:
            asserts = any(map(_asserts, ast.walk(statement)))
            try:
                with clock():
                    exec(compile(ast.Module([statement], []), "<case>", "exec"), names)
            except Exception:  # of an answer, or of a statement that builds on one that failed
                continue
            counts += [1] if asserts else []
    return sum(counts)


def _asserts(node: ast.AST) -> bool:
    """Whether it is an `assert`, or a call such as that of `torch.testing.assert_close`."""
    match node:
        case ast.Assert():
            return True
        case ast.Call(ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.startswith("assert_")
    return False


@lru_cache(maxsize=100)
def all_cases(master: Master, variant: int) -> dict[str, int]:
    """How many cases each test of a master has: name → cases."""
    names = worked_cases.worked_out(master, variant)
    tests = (step for step in master.steps if isinstance(step, Test))
    return {step.grade_id: right_cases(step, names) for step in tests}


class _CountingSheet:
    """A sheet whose checks count what is right, and raise nothing."""

    def __init__(self, sheet: Sheet, tell: Callable[[int], None]) -> None:
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

    right = 0

    def equal(self, *arguments: Any, **more: Any) -> None:
        self._count(super().equal, *arguments, **more)

    def choice(self, *arguments: Any) -> None:
        self._count(super().choice, *arguments)

    def holds(self, *arguments: Any, **more: Any) -> None:
        self._count(super().holds, *arguments, **more)

    def _count(self, insist: Callable[..., None], *arguments: Any, **more: Any) -> None:
        try:
            insist(*arguments, **more)
        except NotRight:
            return
        self.right += 1
