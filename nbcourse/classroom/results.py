"""What grading leaves behind: a verdict for each exercise, a result for each student."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from nbcourse.classroom.masters import Master
from nbcourse.classroom.notebooks import writable
from nbcourse.classroom.sandbox import Limits
from nbcourse.classroom.submissions import Submission
from nbcourse.classroom.troubles import State

EDITION = 1  # counts up when the same notebook would be graded otherwise


@dataclass(frozen=True)
class Verdict:
    """How one exercise was done.

    Args:
        exercise: name of the test cell (its `grade_id`), or of the written answer.
        points: what the student gets; None where a person has to decide.
        max_points: what there is to get.
        state: how it ended.
        feedback: text for the student, which never shows a hidden test; empty where all is right.
    """

    exercise: str
    points: float | None
    max_points: float
    state: State
    feedback: str = ""


@dataclass(frozen=True)
class Result:
    """How one student did.

    Args:
        student: the name, as the folder or file of the submission has it.
        user_id: the learning platform's number for the student; empty where there is none.
        assignment: name of the master.
        file: name of the notebook that was graded; empty where there was none.
        late: whether the platform marked the submission as late.
        verdicts: in the order of the master.
        notes: what the student should know of the notebook as a whole.
        submission: SHA-256 of the notebook; empty where there was none.
        conditions: SHA-256 of all else that the result depends on (see `conditions`).
        failure: what went wrong on the grader's side; empty as it should be.
    """

    student: str
    user_id: str
    assignment: str
    file: str
    late: bool
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()
    submission: str = ""
    conditions: str = ""
    failure: str = ""

    @property
    def points(self) -> float:
        """The sum of all points that the grader can decide on."""
        return sum(verdict.points or 0.0 for verdict in self.verdicts)

    @property
    def max_points(self) -> float:
        return sum(verdict.max_points for verdict in self.verdicts)

    @property
    def by_hand(self) -> bool:
        """Whether a person has to grade a part."""
        return any(verdict.points is None for verdict in self.verdicts)


def conditions(master: Master, limits: Limits, *, variant: int, confined: bool) -> str:
    """A digest of what a result depends on besides the submission."""
    return sha256(repr((EDITION, master.digest, limits, variant, confined)).encode()).hexdigest()


def alike(master: Master, state: State, feedback: str) -> tuple[Verdict, ...]:
    """The same verdict, without points, on every exercise."""
    return tuple(
        Verdict(exercise.grade_id, 0.0, exercise.points, state, feedback)
        for exercise in master.exercises
    )


def failed(submission: Submission, master: Master, failure: str) -> Result:
    """The result of a submission that the grader could not deal with."""
    text = "This could not be graded; your teacher has been told why."
    return Result(
        student=submission.student,
        user_id=submission.user_id,
        assignment=master.assignment,
        file=submission.name,
        late=submission.late,
        verdicts=alike(master, State.NOT_GRADED, text),
        failure=writable(failure),
    )


def write(result: Result, path: Path) -> None:
    """Write a result as JSON; a file in its place stays whole until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    text = json.dumps(asdict(result), indent=1, ensure_ascii=False)
    unfinished.write_text(text + "\n", encoding="utf-8")
    unfinished.replace(path)


def read(path: Path) -> Result:
    """Read what `write` wrote.

    Raises:
        ValueError: if the file holds no result.
    """
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        verdicts = [v | {"state": State(v["state"])} for v in stored["verdicts"]]
        stored |= {"verdicts": tuple(Verdict(**v) for v in verdicts)}
        return Result(**stored | {"notes": tuple(stored["notes"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no result: {error}") from error
