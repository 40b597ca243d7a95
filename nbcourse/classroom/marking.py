"""What a person needs to mark answers in words and plots: a page to read, and a table to fill in.

A sheet's rubric is `solutions/rubrics/NAME.csv`, with a row for each criterion:

    exercise,criterion,points
    what-failed,names the cause,1

The page has each answer beside the model answer and the criteria; the table has a row for each
criterion of each answer that is still open, ready for `nbcourse marks` once its points are filled
in. Both hold the model answers or what leads to them, and are for instructors.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from nbcourse.classroom import feedback, files, matching, notebooks, tables
from nbcourse.classroom.marks import COLUMNS, Mark, read_rows
from nbcourse.classroom.masters import Master, Written
from nbcourse.classroom.notebooks import Cell
from nbcourse.classroom.submissions import Submission
from nbcourse.classroom.tables import as_csv, inert
from nbcourse.confined.cells import writable
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError, did_you_mean

PAGE, TABLE = "to-mark.html", "to-mark.csv"
RUBRIC_COLUMNS = ("exercise", "criterion", "points")
Rubric = Mapping[str, Sequence[tuple[str, float]]]  # exercise → criteria, each with its points


def read_rubric(master: Master) -> Rubric:
    """The criteria of a sheet's written answers; one criterion, "answer", where there is no rubric.

    Raises:
        UserError: if the file has other columns, an exercise that is not graded by hand, or
            criteria that do not add up to an answer's points.
    """
    worth = {step.grade_id: step.points for step in master.written}
    path = master.path.parent / "rubrics" / f"{master.assignment}.csv"
    if not path.exists():
        return {exercise: [("answer", points)] for exercise, points in worth.items()}
    table = tables.read(path)
    if table.columns != RUBRIC_COLUMNS:
        raise UserError(
            f"{path.name} has the columns {', '.join(table.columns)}; expected "
            f"{', '.join(RUBRIC_COLUMNS)}"
        )
    rubric: dict[str, list[tuple[str, float]]] = {exercise: [] for exercise in worth}
    for row in table.by_column():
        if row["exercise"] not in rubric:
            known = ", ".join(worth) or "none on this sheet"
            raise UserError(
                f"{path.name}: exercise is {row['exercise']!r}, expected one graded by hand: "
                f"{known}"
            )
        rubric[row["exercise"]].append((row["criterion"], tables.number(row["points"]) or 0.0))
    for exercise, criteria in rubric.items():
        if (total := sum(points for _, points in criteria)) != worth[exercise]:
            raise UserError(
                f"{path.name}: the criteria of {exercise} have {total:g} points, and the answer "
                f"is worth {worth[exercise]:g}"
            )
    return rubric


def require_criteria(marks: Sequence[Mark], master: Master) -> None:
    """Refuse marks of an answer for criteria of the rubric and for others: they would add up.

    Whoever marks by criteria of their own may, as long as none of an answer is the rubric's.

    Raises:
        UserError: if one is.
    """
    rubric = {name: [inert(one) for one, _ in of] for name, of in read_rubric(master).items()}
    by_rubric = {
        (mark.student, mark.exercise) for mark in marks if mark.criterion in rubric[mark.exercise]
    }
    for mark in marks:
        known = rubric[mark.exercise]
        if mark.criterion not in known and (mark.student, mark.exercise) in by_rubric:
            raise UserError(
                f"{mark.student}'s answer to {mark.exercise} has points for {mark.criterion!r}, "
                "which would be added to those of the rubric's criteria: "
                f"{'; '.join(known)}{did_you_mean(mark.criterion, known)}"
            )


def filled_in(out: Path) -> dict[tuple[str, str, str], tuple[str, str]]:
    """What the table holds so far: student, exercise, criterion → points and comment.

    Raises:
        UserError: if it can no longer be read.
    """
    if not (out / TABLE).exists():
        return {}
    rows = [[row.get(column, "") for column in COLUMNS] for _, row in read_rows(out / TABLE)]
    return {
        (student, exercise, criterion): (points, comment)
        for student, exercise, criterion, points, comment in rows
    }


def write_sheets(graded: Sequence[feedback.Graded], master: Master, out: Path) -> list[Path]:
    """Write the page and the table, if a person has to grade a part of the sheet.

    What is filled in already stays in the table.

    Args:
        graded: of the class.
        master: the sheet.
        out: folder.

    Returns:
        What was written.
    """
    if not master.written:
        return []
    rubric = read_rubric(master)
    answers = {submission.key: _answers(submission, master) for submission, _ in graded}
    begun = filled_in(out)
    rows = [
        [*key, *begun.get(key, ("", f"up to {points:g}"))]
        for _, result in graded
        for exercise in result.exercises
        if exercise.state is Ending.BY_HAND
        for criterion, points in rubric[exercise.exercise]
        for key in [(inert(result.student), exercise.exercise, inert(criterion))]
    ]
    parts = [part for step in master.written for part in _section(step, rubric, graded, answers)]
    content = {
        PAGE: feedback.page(f"{master.assignment}: to be marked by hand", parts),
        TABLE: as_csv([COLUMNS, *rows]),
    }
    for name, text in content.items():
        files.write_file(out / name, text)
    return [out / name for name in content]


def _answers(submission: Submission, master: Master) -> Mapping[str, Sequence[Cell]]:
    """The cells that hold a submission's answers in words; none if it cannot be read."""
    try:
        return matching.written(notebooks.read_cells(submission.read_bytes()), master)
    except notebooks.Unreadable:
        return {}


def _section(
    step: Written,
    rubric: Rubric,
    graded: Sequence[feedback.Graded],
    answers: Mapping[str, Mapping[str, Sequence[Cell]]],
) -> list[str]:
    """One exercise: the model answer, the criteria, and all answers."""
    parts = [f"<h2>{escape(step.grade_id)}, {step.points:g} points</h2><ul>"]
    parts += [f"<li>{escape(what)}: {points:g}" for what, points in rubric[step.grade_id]]
    parts.append("</ul>")
    if step.model:
        parts.append(
            f"<details><summary>model answer</summary><pre>{escape(step.model)}</pre></details>"
        )
    for submission, result in graded:
        (exercise,) = (e for e in result.exercises if e.exercise == step.grade_id)
        parts.append(f"<h3>{escape(result.student)}: {escape(exercise.state)}</h3>")
        for cell in answers[submission.key].get(step.grade_id, ()):
            parts.append(f"<pre>{escape(writable(cell.source))}</pre>")
            parts += [f'<img src="{escape(picture)}" alt="">' for picture in cell.pictures]
    return parts
