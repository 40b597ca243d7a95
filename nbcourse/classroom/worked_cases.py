"""The checks of a sheet as they travel: worked cases, and no way to work out others.

A check in the book's own package computes the right answer, so its code gives the answer away. In
a bundle it is replaced: it is run here with the master's solution, and what it asks and compares is
written down as the cases of `nbcourse.checks.worked`. A check that only tests a property of what it
is given may be handed out as code. `Exercise.travels` says which; the tests try to steal answers
from each.
"""

import ast
import contextlib
import inspect
import io
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import Tensor

from nbcourse import notebooks
from nbcourse.checks import Sheet, attempt, worked
from nbcourse.checks.worked import Case, seal
from nbcourse.classroom.masters import UNCHOSEN, Given, Master, Solution, Test
from nbcourse.errors import UserError

CALLS_CHECK = re.compile(r'sheet\.check\("(?P<exercise>[\w-]+)", (?P<answer>\w+)\)')
HEAD = '''"""Worked cases of the sheet {chapter}, written by `nbcourse release`."""

from math import inf, nan

import torch

from nbcourse.checks.sheet import Exercise
from nbcourse.checks.worked import Case, Sealed, by_cases
'''


class CaseRecorder(attempt.Attempt):
    """A right answer being checked, and the cases that its check consists of.

    Args:
        answer: the master's.
        salt: of values that are sealed.
        travels: see `Exercise`.
    """

    def __init__(self, answer: Callable[..., Any], salt: str, travels: str) -> None:
        super().__init__(answer)
        self.salt, self.travels = salt, travels
        self.cases: list[Case] = []
        self._call: Case | None = None  # the last one, with the whole result as its value
        self._result: Any = None
        self._compared = True

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._note_call(super().__call__(*arguments, **keywords), arguments, None)

    def gradient(self, *arguments: Any, wrt: int = 0, **keywords: Any) -> Tensor:
        found = super().gradient(*arguments, wrt=wrt, **keywords)
        self._note_call(found, arguments, wrt)
        return found

    def equal(self, result: Any, expected: Any, **more: Any) -> None:
        super().equal(result, expected, **more)
        self._note_comparison(result, expected, more.pop("mistakes", None) or {}, **more)

    def choice(self, result: Any, right: str, among: Mapping[str, str]) -> None:
        super().choice(result, right, among)
        if result is self._result:  # and not one of several
            self._note_comparison(result, right, among, case=f"the choice {right!r}")

    def choices(
        self, result: Any, right: Mapping[str, str], among: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().choices(result, right, among)
        if self._call and not self._is_secret(self._call):  # which is sealed as a whole
            self._note_comparison(result, right, among, case="the choices")

    def finish(self) -> list[Case]:
        """All cases."""
        self._settle()
        return self.cases

    def _note_call(self, result: Any, arguments: tuple[Any, ...], wrt: int | None) -> Any:
        self._settle()
        given = tuple(attempt.copied(arguments))
        shown = ", ".join(attempt._show(a) for a in given)
        case = f"the arguments {shown:.300}" if given else "what is asked for"
        self._call = Case(case, given, worked.flat(result), tolerance=1e-4, wrt=wrt)
        self._result, self._compared = result, False
        return result

    def _settle(self) -> None:
        """Take a call's whole result for the case, where that is to be, and nothing else was."""
        call, self._call = self._call, None
        if call is None or self._compared:
            return
        if self._is_secret(call):
            self.cases.append(self._sealed(call, call.expected, {}))
        elif self.travels == "results":
            self.cases.append(call)

    def _note_comparison(
        self,
        result: Any,
        expected: Any,
        mistakes: Mapping[str, Any],
        *,
        case: str,
        tolerance: float = 1e-6,
    ) -> None:
        call = self._call
        if call is None or (part := _part(worked.flat(result), call.expected)) is None:
            return
        whole = part == (0, len(call.expected))
        if self._is_secret(call):
            if whole:
                self._compared = True
                found = Case(case, call.arguments, None, tolerance=tolerance, wrt=call.wrt)
                if isinstance(expected, Tensor) and result is self._result:
                    found = replace(found, shape=tuple(expected.shape))
                self.cases.append(self._sealed(found, worked.flat(expected), mistakes))
            return
        self._compared = True
        plain = isinstance(self._result, Tensor | float | int) or result is self._result
        plain = isinstance(expected, str) or (whole and plain)
        self.cases.append(
            Case(
                case,
                call.arguments,
                expected,
                dict(mistakes),
                tolerance,
                call.wrt,
                None if plain else part,
            )
        )

    def _is_secret(self, call: Case) -> bool:
        return not call.arguments or self.travels == "sealed"

    def _sealed(self, case: Case, expected: list[Any], mistakes: Mapping[str, Any]) -> Case:
        def sealed(values: list[Any]) -> worked.Sealed:
            return seal(values, salt=self.salt, tolerance=case.tolerance)

        known = {why: worked.flat(value) for why, value in mistakes.items()}
        finite = {why: v for why, v in known.items() if all(map(math.isfinite, v))}
        return replace(
            case, expected=sealed(expected), mistakes={why: sealed(v) for why, v in finite.items()}
        )


def _part(values: list[Any], whole: list[Any]) -> tuple[int, int] | None:
    """Where the values stand in a row among others; None if nowhere."""
    for first in range(len(whole) - len(values) + 1):
        if values and whole[first : first + len(values)] == values:
            return first, first + len(values)
    return None


def module(master: Master, variant: int) -> str:
    """The source of `nbcourse.checks.CHAPTER` as it travels with a bundle.

    It has the sheet's `EXERCISES`, with what their checks need that travel as code.

    Args:
        master: of the sheet.
        variant: which numbers and cases.

    Raises:
        UserError: if a check compares nothing that can be written down.
    """
    names = worked_out(master, variant)
    sheet, answers = names["sheet"], answer_names(master)
    room = inspect.getmodule(next(iter(sheet.exercises.values())).check)
    code: set[str] = set()
    entries = []
    for name, exercise in sheet.exercises.items():
        numbers = literal(sheet.numbers(name)) if exercise.numbers else ""
        if exercise.travels == "code":
            check = exercise.check.__name__
            code.add(check)
        else:
            if not (cases := _cases(sheet, name, names[answers[name]])):
                raise UserError(f"the check of {name!r} has no case that can travel")
            lines = "".join(f"        {_case(case)},\n" for case in cases)
            check = f"by_cases(\n{lines}    )"
        also = f", lambda generator: {numbers}" if numbers else ""
        entries.append(f"    {name!r}: Exercise({exercise.section!r}, {check}{also}),\n")
    head = HEAD.format(chapter=master.assignment)
    return "".join([head, _pieces(room, code), "\nEXERCISES = {\n", *entries, "}\n"])


def known_calls(master: Master, names: Mapping[str, Any]) -> dict[str, list[tuple[Any, ...]]]:
    """For each test, the arguments of the calls whose results its bundle holds, open or sealed.

    Args:
        master: of the sheet.
        names: as `worked_out` gives them.
    """
    return {
        step.grade_id: [
            arguments
            for name, answer in CALLS_CHECK.findall(step.visible)
            for arguments in _asked(names["sheet"], name, names[answer])
        ]
        for step in master.steps
        if isinstance(step, Test)
    }


def _asked(sheet: Sheet, name: str, answer: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """What the check of an exercise calls an answer with, as far as a bundle says."""
    if sheet.exercises[name].travels != "code":
        return [case.arguments for case in _cases(sheet, name, answer)]
    asked: list[tuple[Any, ...]] = []

    def watched(*arguments: Any, **keywords: Any) -> Any:
        asked.append(tuple(attempt.copied(arguments)))
        return answer(*arguments, **keywords)

    sheet.exercises[name].check(attempt.Attempt(watched), sheet._generator(name))
    return asked


def _cases(sheet: Sheet, name: str, answer: Callable[..., Any]) -> list[Case]:
    """What the check of an exercise consists of, with the right answer."""
    exercise, salt = sheet.exercises[name], f"{sheet.chapter}/{name}/{sheet.variant}"
    recorder = CaseRecorder(answer, salt, exercise.travels)
    exercise.check(recorder, sheet._generator(name))
    return recorder.finish()


def call_key(arguments: Sequence[Any]) -> str:
    """What tells calls with different arguments apart."""
    return repr(
        [
            (tuple(a.shape), a.detach().flatten().tolist()) if isinstance(a, Tensor) else a
            for a in arguments
        ]
    )


def answer_names(master: Master) -> dict[str, str]:
    """What the check of each exercise is called with: exercise → the name of a function."""
    tests = "\n".join(step.visible for step in master.steps if isinstance(step, Test))
    return dict(CALLS_CHECK.findall(tests))


def worked_out(master: Master, variant: int) -> dict[str, Any]:
    """What a master's cells define, tests left out."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for step in master.steps:
            if isinstance(step, Given):
                exec(step.source.replace(UNCHOSEN, f"variant={variant}"), names)
            elif isinstance(step, Solution):
                exec(step.source, names)
    return names


def _case(case: Case) -> str:
    words = [literal(case.case), literal(case.arguments), literal(case.expected)]
    if case.mistakes:
        words.append(f"mistakes={literal(dict(case.mistakes))}")
    for name, default in (("tolerance", 1e-6), ("wrt", None), ("part", None), ("shape", None)):
        if (value := getattr(case, name)) != default:
            words.append(f"{name}={literal(value)}")
    return f"Case({', '.join(words)})"


def literal(value: Any) -> str:
    """Python code for plain data with tensors.

    Raises:
        UserError: if there is anything else in it.
    """
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case Tensor():
            shape = f".reshape({tuple(value.shape)})" if not value.numel() else ""
            return f"torch.tensor({value.detach().tolist()}, dtype={value.dtype}){shape}"
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case tuple():
            return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case dict():
            entries = (f"{literal(key)}: {literal(entry)}" for key, entry in value.items())
            return f"{{{', '.join(entries)}}}"
        case worked.Sealed():
            return repr(value)
    raise UserError(f"a check uses an object of type {type(value).__name__}, which cannot travel")


def _pieces(room: ModuleType | None, wanted: set[str]) -> str:
    """The source of these names of a module, and of what they need of it."""
    if room is None or not wanted:
        return ""
    source = inspect.getsource(room)
    tree = ast.parse(source)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            statement.decorator_list.clear()  # which says what it is in the package
    found = [ast.get_source_segment(source, part) or "" for part in needed(tree, wanted)]
    return "\n\n\n".join(found) + "\n\n"


def needed(tree: ast.Module, wanted: Collection[str]) -> list[ast.stmt]:
    """The statements of a module that define these names or what they need, and its imports."""
    defined = {name: node for node in tree.body for name in notebooks.bound(node)}
    waiting, found = list(wanted), set()
    while waiting:
        if (name := waiting.pop()) in defined and name not in found:
            found.add(name)
            names = [n for n in ast.walk(defined[name]) if isinstance(n, ast.Name)]
            waiting += [node.id for node in names]
    kept = {defined[name] for name in found}
    return [n for n in tree.body if n in kept or isinstance(n, ast.Import | ast.ImportFrom)]
