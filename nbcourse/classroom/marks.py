"""Points that a person gives: a CSV with a row for each criterion of an answer in words.

    student,exercise,criterion,points,comment
    ada,what-failed,names the cause,1.5,"yes, and by its number"
    ada,what-failed,proposes a test,1,

`nbcourse marks` puts the rows beside the results, where grading again leaves them alone.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from nbcourse.classroom import files, tables
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.masters import Master
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.tables import as_csv, inert
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import NotFound, UserError, did_you_mean

MARKS = "marks.csv"  # in the folder that a class is graded into


@dataclass(frozen=True)
class Mark:
    """The points that a person gives for one criterion of one answer.

    Args:
        student: as the table of grades names the student.
        exercise: the name of the written answer.
        criterion: what was looked for.
        points: what it was worth.
        comment: for the student; may be empty.
    """

    student: str
    exercise: str
    criterion: str
    points: float
    comment: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies a mark: for each there is one at most."""
        return self.student, self.exercise, self.criterion


COLUMNS = tuple(column.name for column in fields(Mark))


def read_marks(path: Path) -> list[Mark]:
    """Read marks.

    Rows without points are skipped: those answers are still to be read.

    Raises:
        UserError: if there is no such file, it is no table with these columns, points are not a
            number, a criterion of an answer is marked twice, or one is left open where another is
            marked.
    """
    if not path.exists():
        raise NotFound(f"there is no file of marks {path}")
    found: dict[tuple[str, str, str], Mark] = {}
    open_lines: dict[tuple[str, str], str] = {}
    for line, row in read_rows(path):
        where = f"{path.name}, line {line}"
        cells = {column: row.get(column, "") for column in COLUMNS}
        for column in COLUMNS[:3]:
            if not cells[column]:
                raise UserError(f"{where}: {column} is empty, expected {', '.join(COLUMNS)}")
        if row.get("points") == "":
            open_lines[cells["student"], cells["exercise"]] = where
            continue
        points = tables.number(cells.pop("points"))
        if points is None or points < 0:
            raise UserError(f"{where}: points is {row.get('points')!r}, expected a number ≥ 0")
        mark = Mark(**cells, points=points)  # type: ignore[arg-type]
        if mark.key in found:
            raise UserError(
                f"{where}: {mark.student} is marked twice for {mark.exercise}, {mark.criterion}"
            )
        found[mark.key] = mark
    for mark in found.values():
        if (where := open_lines.get((mark.student, mark.exercise), "")) != "":
            raise UserError(
                f"{where}: points is empty, and another criterion of {mark.student}'s answer to "
                f"{mark.exercise} is marked; mark all or none"
            )
    if not found:
        raise UserError(f"{path.name} holds no marks, expected rows of {', '.join(COLUMNS)}")
    return list(found.values())


def read_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows of a table of marks, each with its line and by column, without what it lacks.

    The text in them is as `keep` writes it: a row that is taken over twice is one criterion.

    Raises:
        UserError: if it is no table.
    """
    table = tables.read(path)
    rows = [
        {column: cell if column == "points" else inert(cell) for column, cell in row.items()}
        for row in table.by_column()
    ]
    return list(zip(table.lines, rows, strict=True))


def kept(folder: Path) -> list[Mark]:
    """The marks that lie beside the results in a folder, if any."""
    return read_marks(folder / MARKS) if (folder / MARKS).exists() else []


def keep(marks: Sequence[Mark], folder: Path) -> None:
    """Put all marks of a class beside its results, in place of those that are there.

    Raises:
        UserError: if the file cannot be written.
    """
    rows = [(m.student, m.exercise, m.criterion, f"{m.points:g}", m.comment) for m in marks]
    if rows:
        files.write_file(folder / MARKS, as_csv([COLUMNS, *rows]))


def check(marks: Sequence[Mark], master: Master, students: Collection[str]) -> None:
    """Make sure that marks are for answers that exist, and not above their points.

    Args:
        marks: to look at.
        master: the sheet.
        students: a name for each submission.

    Raises:
        UserError: if one is not.
    """
    most = {step.grade_id: step.points for step in master.written}
    counts = Counter(map(inert, students))
    totals: dict[tuple[str, str], float] = {}
    for mark in marks:
        where = f"the mark of {mark.student!r} for {mark.exercise!r}"
        if counts[mark.student] != 1:
            many = f"{counts[mark.student]} submissions are" if counts[mark.student] else "none is"
            raise UserError(
                f"{where}: of the submissions {many} by that student"
                f"{did_you_mean(mark.student, counts)}"
            )
        if mark.exercise not in most:
            known = ", ".join(most) or "none on this sheet"
            raise UserError(f"{where}: it is not graded by hand (what is: {known})")
        answer = mark.student, mark.exercise
        totals[answer] = total = totals.get(answer, 0.0) + mark.points
        if total > most[mark.exercise] + 1e-9:
            raise UserError(
                f"{where}: its criteria have {total:g} points, and the answer is worth "
                f"{most[mark.exercise]:g}"
            )


def applied(result: SubmissionResult, marks: Sequence[Mark]) -> SubmissionResult:
    """A result with the points that a person gave."""
    own = [mark for mark in marks if mark.student == inert(result.student)]
    return replace(
        result,
        exercises=tuple(
            _marked(exercise, [m for m in own if m.exercise == exercise.exercise])
            for exercise in result.exercises
        ),
    )


def _marked(exercise: ExerciseResult, marks: Sequence[Mark]) -> ExerciseResult:
    if not marks or exercise.state not in (Ending.BY_HAND, Ending.NOT_ATTEMPTED):
        return exercise
    lines = [
        f"{m.criterion}: {m.points:g}" + (f" ({m.comment})" if m.comment else "") for m in marks
    ]
    ledger = tuple(LedgerEntry(mark.criterion, mark.points) for mark in marks)
    return replace(exercise, ledger=ledger, state=Ending.MARKED, feedback="\n".join(lines))
