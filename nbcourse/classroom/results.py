"""What grading leaves behind: a result for each submission, with one for each exercise."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from nbcourse.classroom import files
from nbcourse.classroom.ledger import Ledger, LedgerEntry, total
from nbcourse.classroom.masters import Master, Test, Written
from nbcourse.classroom.submissions import Submission
from nbcourse.classroom.variants import variant_of
from nbcourse.confined.cells import writable
from nbcourse.confined.sandbox import Limits
from nbcourse.confined.submission_errors import Ending
from nbcourse.repository import ROOT

EDITION = 7  # to be raised when the same notebook would be graded differently
NOT_STORED = ("adjustments",)  # computed from the rules of the class each time
FILE_KEYS = {"exercises": "verdicts"}  # field → its key in a result's file, where they differ


@dataclass(frozen=True)
class ExerciseResult:
    """How one exercise was done.

    Args:
        exercise: name of the test cell (its `grade_id`), or of the written answer.
        ledger: what the student gets points for; None where a person has to decide.
        max_points: what there is to get.
        state: how it ended.
        feedback: text for the student, which never shows a hidden test; empty where all is right.
    """

    exercise: str
    ledger: Ledger | None
    max_points: float
    state: Ending
    feedback: str = ""

    @property
    def name(self) -> str:
        """What the student calls the exercise: nbgrader's name of the test cell, less "-check"."""
        return self.exercise.removesuffix("-check")

    @property
    def points(self) -> float | None:
        """What the student gets; None where a person has to decide."""
        return None if self.ledger is None else total(self.ledger)


@dataclass(frozen=True)
class SubmissionResult:
    """How one student did.

    Args:
        student: the name, as the folder or file of the submission has it.
        user_id: the learning platform's number for the student; empty where there is none.
        assignment: name of the master.
        file: name of the notebook that was graded; empty where there was none.
        late: whether the platform marked the submission as late.
        exercises: in the order of the master.
        notes: what the student should know of the notebook as a whole.
        doubts: what a person is to look at before the grade stands.
        submission: SHA-256 of the notebook; empty where there was none.
        conditions: all else that the result depends on (see `Terms.conditions`).
        failure: what went wrong on the grader's side; empty as it should be.
        watched: which bounds the grader watched, since this machine's kernel did not, in words.
        adjustments: what changes the grade besides the exercises, such as lateness.
        memory: the most bytes that it held at a time; 0 where nothing counted them.
    """

    student: str
    user_id: str
    assignment: str
    file: str
    late: bool
    exercises: tuple[ExerciseResult, ...]
    notes: tuple[str, ...] = ()
    submission: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    watched: tuple[str, ...] = ()
    adjustments: Ledger = ()
    memory: int = field(default=0, compare=False)  # not the same in two runs
    doubts: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """The sum of all points that are decided."""
        return sum(exercise.points or 0.0 for exercise in self.exercises) + total(self.adjustments)

    @property
    def ledger(self) -> Ledger:
        """All entries, whose sum the points are; those of an exercise begin with its name."""
        of_exercises = (
            replace(entry, reason=f"{exercise.name}: {entry.reason}")
            for exercise in self.exercises
            for entry in exercise.ledger or ()
        )
        return (*of_exercises, *self.adjustments)

    @property
    def max_points(self) -> float:
        return sum(exercise.max_points for exercise in self.exercises)

    @property
    def unread(self) -> str:
        """Why there is nothing to grade: no notebook that can be read; empty if there is one."""
        exercises = self.exercises
        unread = all(exercise.state is Ending.UNREADABLE for exercise in exercises)
        return exercises[0].feedback if exercises and unread else ""

    @property
    def by_hand(self) -> bool:
        """Whether a person has to grade a part."""
        return any(exercise.points is None for exercise in self.exercises)


@dataclass(frozen=True)
class Change:
    """A grade that has changed.

    Args:
        student: whose it is.
        before, after: points.
        exercises: the exercises whose points have changed.
        reasons: what the grade depends on and has changed: "notebook", or a name of `conditions`.
    """

    student: str
    before: float
    after: float
    exercises: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Terms:
    """How submissions are graded.

    Args:
        master: what they are graded by.
        limits: what each may use.
        personal: whether each student of the class has a variant of their own.
        confined: whether their code runs confined.
        partial: the tests whose points are given in proportion to the cases that are right.
    """

    master: Master
    limits: Limits
    personal: bool = False
    confined: bool = True
    partial: frozenset[str] = frozenset()

    def variant(self, submission: Submission) -> int:
        """Which numbers the student got; 0 is the book's own."""
        own = self.personal and submission.owner is not None
        return variant_of(submission.student, self.master.assignment) if own else 0

    def conditions(self, submission: Submission) -> dict[str, str]:
        """What a result depends on besides the notebook, each with its value or a digest."""
        return {
            "master": self.master.digest,
            "checks": _digest(ROOT / "nbcourse" / "checks"),
            "functional": _digest(ROOT / "nbcourse" / "functional"),
            "torch": metadata.version("torch"),
            "limits": str(self.limits),
            "variant": str(self.variant(submission)),
            "confined": str(self.confined),
            "grader": str(EDITION),
            "partial credit": ", ".join(sorted(self.partial)),
        }


def _digest(folder: Path) -> str:
    """SHA-256 of the Python files in a folder."""
    found = sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return found.hexdigest()


def change(before: SubmissionResult, after: SubmissionResult) -> Change | None:
    """How a grade has changed; None if it has not."""
    old, new = _points(before), _points(after)
    exercises = tuple(name for name in {**old, **new} if old.get(name) != new.get(name))
    if not exercises and bool(before.failure) == bool(after.failure):
        return None
    reasons = [
        name
        for name, value in after.conditions.items()
        if before.conditions and before.conditions.get(name) != value
    ]
    if before.submission != after.submission:
        reasons.insert(0, "notebook")
    if before.failure:
        reasons.insert(0, "could not be graded before")
    if after.failure:
        reasons = ["could not be graded"]
    return Change(after.student, before.points, after.points, exercises, tuple(reasons))


def _points(result: SubmissionResult) -> dict[str, tuple[float | None, float]]:
    return {v.exercise: (v.points, v.max_points) for v in result.exercises}


def same_for_all(master: Master, state: Ending, feedback: str) -> tuple[ExerciseResult, ...]:
    """The same state and feedback, without points, for every exercise."""
    return tuple(decided(exercise, state, feedback) for exercise in master.exercises)


def decided(
    step: Test | Written, state: Ending, feedback: str = "", *, points: float = 0.0
) -> ExerciseResult:
    """The result of an exercise whose state alone decides on its points."""
    entry = LedgerEntry(state, points)
    return ExerciseResult(step.grade_id, (entry,), step.points, state, feedback)


def without_exercises(submission: Submission, master: Master) -> SubmissionResult:
    """What is known of a result before anything is graded."""
    return SubmissionResult(
        student=submission.student,
        user_id=submission.user_id,
        assignment=master.assignment,
        file=submission.name,
        late=submission.late,
        exercises=(),
    )


def not_graded(submission: Submission, master: Master, failure: str) -> SubmissionResult:
    """The result of a submission that could not be graded."""
    text = "This could not be graded; your instructor has been told why."
    return replace(
        without_exercises(submission, master),
        exercises=same_for_all(master, Ending.NOT_GRADED, text),
        failure=writable(failure),
    )


def write_result(result: SubmissionResult, path: Path) -> None:
    """Write a result as JSON.

    Raises:
        UserError: if it cannot be written.
    """
    fields = {FILE_KEYS.get(name, name): value for name, value in asdict(result).items()}
    for name in NOT_STORED if result.doubts else (*NOT_STORED, "doubts"):
        del fields[name]
    fields[FILE_KEYS["exercises"]] = [_stored_exercise(each) for each in result.exercises]
    text = json.dumps(fields, indent=1, ensure_ascii=False)
    files.write_file(path, text + "\n")


def _stored_exercise(exercise: ExerciseResult) -> dict[str, Any]:
    """An exercise for a file: with its points, and last what they were given for."""
    fields = asdict(exercise)
    name, ledger = fields.pop("exercise"), fields.pop("ledger")
    return {"exercise": name, "points": exercise.points, **fields, "ledger": ledger}


def read_result(path: Path) -> SubmissionResult:
    """Read what `write_result` wrote.

    Raises:
        ValueError: if the file holds no result.
    """
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        exercises = tuple(
            _read_exercise(exercise) for exercise in stored.pop(FILE_KEYS["exercises"])
        )
        for name in ("notes", "watched", "doubts"):
            stored[name] = tuple(stored.get(name, ()))
        stored["conditions"] = dict(stored["conditions"])
        return SubmissionResult(**stored, exercises=exercises)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no result: {error}") from error


def _read_exercise(stored: dict[str, Any]) -> ExerciseResult:
    """An exercise from a file, in which points may stand without what they were given for."""
    state, points = Ending(stored["state"]), stored.pop("points")
    entries = stored.pop("ledger", [{"reason": state, "points": points}])
    ledger = None if points is None else tuple(LedgerEntry(**entry) for entry in entries)
    return ExerciseResult(**stored | {"state": state}, ledger=ledger)
