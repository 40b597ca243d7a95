"""Grade one submission: the student's cells run there, the master's tests here.

The tests run in two rounds, each in the order of the master: first the visible parts of all of
them, then the hidden parts of those whose visible part was passed. In the second round nothing that
the student's code says reaches the feedback. So a submission that keeps what it was asked, or
raises it as a message, reveals nothing of the hidden tests. Nor does anything that it does to the
tensors it is given reach the test, which may compare the result with one of them.
"""

import contextlib
import io
import re
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import torch

from nbcourse.checks import Sheet
from nbcourse.classroom import matching, notebooks, partial_credit, results
from nbcourse.classroom.declared import as_declared
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.masters import (
    UNCHOSEN,
    Given,
    Master,
    Solution,
    Test,
    Written,
)
from nbcourse.classroom.matching import Answers
from nbcourse.classroom.notebooks import Cell, Unreadable
from nbcourse.classroom.results import ExerciseResult, SubmissionResult, Terms
from nbcourse.classroom.submissions import Submission
from nbcourse.confined.cells import WithoutIPython, writable
from nbcourse.confined.forkserver import ForkServer
from nbcourse.confined.remote import CellOutcome, Session, StudentCell, at_most
from nbcourse.confined.submission_errors import Ending, SubmissionError

SHEET = re.compile(r"""\bSheet\(\s*["']([^"'\n]{1,100})["']""")  # in the locked cell
HIDDEN = "A further test, which is not shown, failed"
LONGEST_FEEDBACK = 5000  # characters for each exercise: an answer that is shown may be enormous


def grade_submission(submission: Submission, terms: Terms, server: ForkServer) -> SubmissionResult:
    """Grade a submission. Whatever its code does, the outcome is a result.

    Args:
        submission: a student's notebook.
        terms: how it is graded.
        server: where the process of the student's code comes from.

    Raises:
        SandboxFailed: if the kernel refuses to confine the process.
    """
    master, variant = terms.master, terms.variant(submission)
    result = replace(
        results.without_exercises(submission, master), conditions=terms.conditions(submission)
    )
    try:
        content = submission.read_bytes()
        result = replace(result, submission=sha256(content).hexdigest())
        cells = notebooks.read_cells(content)
    except Unreadable as error:
        return replace(
            result, exercises=results.same_for_all(master, Ending.UNREADABLE, str(error))
        )
    if wrong := _wrong_sheet(cells, master):
        exercises = results.same_for_all(master, Ending.WRONG_SHEET, "")
        return replace(result, exercises=exercises, notes=(wrong,), doubts=(wrong,))
    answers = matching.match(cells, master)
    notes = answers.notes + _of_another_variant(cells, master, variant)
    sheet = _sheet(master, variant)
    with Session(server, _to_run(cells, answers, master), terms.limits, sheet) as session, _quiet():
        tests = _Tests(master, session, answers, variant)
        exercises = tests.exercises(terms.partial)
    return replace(
        result,
        exercises=exercises,
        notes=tuple(notes),
        doubts=_doubtful(master, exercises, tests.failed, cells),
        watched=session.watched,
        memory=session.memory,
    )


def _doubtful(
    master: Master, exercises: Sequence[ExerciseResult], failed: Collection[str], cells: list[Cell]
) -> tuple[str, ...]:
    """What a person is to look at: checks that were passed where the notebook was written."""
    printed = "\n".join(cell.printed for cell in cells)
    return tuple(
        f"{exercise.name}: the notebook says that the check was passed; here it was not "
        f"({exercise.state})."
        for step, exercise in zip(master.exercises, exercises, strict=True)
        if isinstance(step, Test)
        and step.grade_id in failed
        and any(f"{name}: right." in printed for name, _ in matching.CHECK.findall(step.visible))
    )


def _wrong_sheet(cells: list[Cell], master: Master) -> str:
    """Which sheet the notebook is of, in words, if that is another one; empty if it is not."""
    wanted = set(_named_sheets(master))
    found = SHEET.findall("\n".join(cell.source for cell in cells if cell.kind == "code"))
    if not wanted or not found or wanted & set(found):
        return ""
    sheet = writable(found[0])
    return f"The notebook is sheet {sheet}, but {master.assignment} was to be handed in."


def _named_sheets(master: Master) -> list[str]:
    """The chapters whose sheets the given cells of a master ask for."""
    given = [step.source for step in master.steps if isinstance(step, Given)]
    return SHEET.findall("\n".join(given))


def _sheet(master: Master, variant: int) -> tuple[str, int, dict[str, Any]]:
    """What the student's process is told of the sheet: chapter, variant, numbers."""
    for chapter in _named_sheets(master):
        sheet = Sheet(chapter, variant=variant)
        varying = [name for name, found in sheet.exercises.items() if found.numbers]
        return chapter, variant, {name: sheet.numbers(name) for name in varying}
    return "", variant, {}


def _of_another_variant(cells: list[Cell], master: Master, variant: int) -> list[str]:
    """A note if the notebook's sheet is not the one that the student was given."""
    wanted = f"variant={variant}"
    varies = any(isinstance(step, Given) and UNCHOSEN in step.source for step in master.steps)
    if not varies or any(re.search(rf"{wanted}\b", cell.source) for cell in cells):
        return []
    return [f"You are graded by numbers that your notebook does not have: it lacks {wanted}."]


def _to_run(cells: list[Cell], answers: Answers, master: Master) -> list[StudentCell]:
    """All code cells but the tests, which are run as the master has them."""
    tests = {exercise.grade_id for exercise in master.exercises}
    functions: dict[int, list[str]] = defaultdict(list)
    values: dict[int, list[str]] = defaultdict(list)
    kept: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for solution, name, place in answers.found():
        asked = functions if name in master.solutions[solution].functions else values
        asked[place.cell.number].append(place.name)
    run = [
        cell
        for cell in cells
        if cell.kind == "code"
        and (cell.grade_id not in tests or cell.number in functions.keys() | values.keys())
    ]
    for solution, name, place in answers.found():
        check = answers.checks.get(solution, 0)
        if name in master.solutions[solution].functions and place.cell.number <= check:
            last = max(cell.number for cell in run if cell.number <= check)
            kept[last].append((place.cell.number, place.name))
    return [
        StudentCell(
            *(cell.number, cell.source, tuple(functions[cell.number]), tuple(values[cell.number])),
            settled=tuple(kept[cell.number]),
        )
        for cell in run
    ]


@dataclass(frozen=True)
class _Failure:
    """How a part of a test failed: the state, what the student may read, and the line."""

    state: Ending
    text: str
    line: int = 0


class _Tests:
    """The master's cells, run against the answers of one submission."""

    def __init__(self, master: Master, session: Session, answers: Answers, variant: int) -> None:
        self.master, self.session, self.answers, self.variant = master, session, answers, variant
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.names["get_ipython"] = lambda: WithoutIPython(self.names)
        self.names["display"] = lambda *objects, **options: None
        self.absent: dict[str, _Failure] = {}  # name → why the submission does not define it
        self.given_failed = ""
        self.failed: set[str] = set()  # the tests whose visible part was not passed

    def exercises(self, partial: Collection[str]) -> tuple[ExerciseResult, ...]:
        found = {}
        to_come: list[tuple[Test, dict[str, Any]]] = []
        to_count = []
        for step in self.master.steps:
            match step:
                case Given():
                    self._give(step)
                case Solution():
                    self._bind(step)
                case Written():
                    cells = self.answers.written[step.grade_id]
                    found[step.grade_id] = _read_by_a_person(step, cells)
                case Test():
                    failure = self._missing(step) or self._run(step, step.visible, self.names)
                    found[step.grade_id] = _exercise_result(step, failure)
                    if failure is None:
                        to_come.append((step, self._names_as_declared()))
                    else:
                        self.failed.add(step.grade_id)
                    if step.grade_id in partial:
                        to_count.append((step, self._names_as_declared()))
        self.session.by_reference = False
        for step, names in to_come:
            if (failure := self._run(step, step.hidden, names)) is not None:
                found[step.grade_id] = _exercise_result(step, _hidden(step, failure))
        for step, names in to_count:
            if found[step.grade_id].state in (Ending.FAILED, Ending.RAISED):
                found[step.grade_id] = self._with_share(found[step.grade_id], step, names)
        return tuple(found[exercise.grade_id] for exercise in self.master.exercises)

    def _names_as_declared(self) -> dict[str, Any]:
        """What is defined now; answers return tensors wherever their stubs say so."""
        found = dict(self.names)
        for solution in self.master.solutions.values():
            for name in found.keys() & set(solution.functions):
                found[name] = as_declared(found[name], solution.source, name)
        return found

    def _with_share(
        self, result: ExerciseResult, step: Test, names: dict[str, Any]
    ) -> ExerciseResult:
        """A failed exercise with points for the cases that are right; only their number is told."""
        asked = partial_credit.all_cases(self.master, self.variant)[step.grade_id]
        found = partial_credit.right_cases(step, names, self._clock, self.session.begin)
        share, reason = asked.share(found)
        points = round(step.points * share, 2)
        told = f"{reason}: {points:g} of {step.points:g} points."
        return replace(
            result,
            ledger=(*(result.ledger or ()), LedgerEntry(reason, points)),
            feedback=f"{result.feedback}\n{told}".strip(),
        )

    def _clock(self) -> contextlib.AbstractContextManager[None]:
        return at_most(self.session.limits.seconds, "the test computed with it")

    def _give(self, step: Given) -> None:
        """Run a given cell. It may use an answer, and fail because of it."""
        source = step.source.replace(UNCHOSEN, f"variant={self.variant}")
        self.session.begin()
        try:
            with self._clock():
                exec(source, self.names)
        except Exception as error:
            self.given_failed = f"{type(error).__name__}: {error}"

    def _bind(self, step: Solution) -> None:
        exec(step.imports, self.names)
        places = self.answers.places.get(step.grade_id, {})
        for name in step.names:
            self.names.pop(name, None)
            self.absent.pop(name, None)
            outcome, own = CellOutcome(), name
            if (place := places.get(name)) is not None:
                outcome = self.session.outcomes.get(place.cell.number, outcome)
                own = place.name
            if own in outcome.defined:
                self.names[name] = outcome.defined[own]
            else:
                self.absent[name] = _why_absent(own, outcome)

    def _missing(self, step: Test) -> _Failure | None:
        lost = [name for name in step.solutions if name not in self.answers.places]
        if not lost:
            return None
        return _Failure(
            Ending.NOT_ATTEMPTED, f"The cell called `{lost[0]}` is missing from your notebook."
        )

    def _run(self, step: Test, source: str, names: dict[str, Any]) -> _Failure | None:
        """Run a part of a test; how it failed, or None."""
        self.session.begin()
        torch.manual_seed(0)
        file = f"<test {step.grade_id}>"
        try:
            with self._clock():
                exec(compile(source, file, "exec"), names)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno or 0 for f in reversed(frames) if f.filename == file), 0)
            return self._failure(error, line, source)
        return None

    def _failure(self, error: Exception, line: int, source: str) -> _Failure:
        cause = _submission_error_behind(error)
        if isinstance(error, NameError) and not isinstance(error, SubmissionError):
            if error.name in self.absent:
                return replace(self.absent[error.name], line=line)
            if self.given_failed:
                text = f"A given cell could not run with your answers: {self.given_failed}"
                return _Failure(Ending.FAILED, text, line)
        if isinstance(cause, NotImplementedError):
            return _Failure(Ending.NOT_ATTEMPTED, str(error) or "Not implemented yet.", line)
        if isinstance(error, SubmissionError):
            text = f"Your function stopped {error.reason}"
        elif isinstance(error, AssertionError) and not str(error):
            lines = source.splitlines()
            text = f"This did not hold: {lines[line - 1].strip()}" if line else "A test failed."
        elif type(error).__module__ == "builtins" and not isinstance(error, AssertionError):
            text = f"The test could not use your answer: {type(error).__name__}: {error}"
        else:
            text = str(error)
        return _Failure(cause.state if cause else Ending.FAILED, text, line)


def _submission_error_behind(error: BaseException | None) -> SubmissionError | None:
    """The error that an exception is, or was raised on account of, as checks do."""
    while error is not None and not isinstance(error, SubmissionError):
        error = error.__context__
    return error


def _why_absent(name: str, outcome: CellOutcome) -> _Failure:
    error = outcome.unusable.get(name) or outcome.error
    if isinstance(error, NotImplementedError) or error is None:
        return _Failure(
            Ending.NOT_ATTEMPTED, f"Your notebook does not define `{name}` where it was asked for."
        )
    place = f"`{name}`" if name in outcome.unusable else f"The cell that should define `{name}`"
    return _Failure(error.state, f"{place} failed {error.reason}")


def _hidden(step: Test, failure: _Failure) -> _Failure:
    """A failure of a hidden part in words that show neither the test nor what the code said."""
    remark = step.remark(failure.line)
    reason = "" if failure.state == Ending.FAILED else f" ({failure.state})"
    return replace(failure, text=HIDDEN + reason + (f": {remark}." if remark else "."))


def _read_by_a_person(step: Written, cells: Sequence[Cell]) -> ExerciseResult:
    """An answer that a person is to grade; one that is not there gets no points."""
    if not cells:
        return results.decided(step, Ending.NOT_ATTEMPTED)
    return ExerciseResult(step.grade_id, None, step.points, Ending.BY_HAND)


def _exercise_result(step: Test, failure: _Failure | None) -> ExerciseResult:
    if failure is None:
        return results.decided(step, Ending.PASSED, points=step.points)
    return results.decided(step, failure.state, failure.text[:LONGEST_FEEDBACK])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard what tests print."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
