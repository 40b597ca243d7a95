"""What goes back: a page for each student, a page for the teacher, gradebooks for the platform.

The pages are plain HTML that asks no other host for anything. All text in them is escaped: parts of
it were written by students' code.
"""

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from nbcourse.classroom import files, gradebook
from nbcourse.classroom.gradebook import ClassList
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.submission_errors import State

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%(title)s</title>
<meta name="viewport" content="width=device-width">
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{font-size:1.05rem;margin:1.6rem 0 .2rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:.6rem .8rem}
table{border-collapse:collapse;width:100%%}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid #ddd}
td.number,th.number{text-align:right}
td:first-child{white-space:nowrap}
.bar{background:#e8e8e8;height:.8rem;width:9rem}
.bar div{background:#0072B2;height:100%%}
</style></head><body>
<h1>%(title)s</h1>
%(body)s
</body></html>
"""
MARKS = {State.PASSED: "✓", State.BY_HAND: "…"}


def student_page(result: SubmissionResult) -> str:
    """The page of one student: points, and for each exercise how it ended and what to look at."""
    parts = [f"<p>{escape(result.student)}: <strong>{_points(result)}</strong></p>"]
    if result.late:
        parts.append("<p>Handed in late.</p>")
    parts += [f"<p>{escape(note)}</p>" for note in result.notes]
    for exercise in result.exercises:
        mark = MARKS.get(exercise.state, "✗")
        parts.append(
            f"<h2>{mark} {escape(exercise_name(exercise))}: {escape(exercise.state)}, "
            f"{_out_of(exercise)}</h2>"
        )
        if exercise.feedback:
            parts.append(f"<pre>{escape(exercise.feedback)}</pre>")
    return _page(result.assignment, parts)


def class_page(results: Sequence[SubmissionResult]) -> str:
    """The class at a glance: how many passed each exercise and how the others ended, then everyone.

    Args:
        results: of one assignment, at least one.
    """
    parts = [
        f"<p>{len(results)} submissions.</p>",
        '<table><tr><th>exercise<th>passed<th class="number"><th>otherwise</tr>',
    ]
    for exercises in zip(*(result.exercises for result in results), strict=True):
        states = Counter(exercise.state for exercise in exercises)
        passed = states.pop(State.PASSED, 0)
        width = 100 * passed / len(results)
        others = ", ".join(f"{count} {state}" for state, count in states.most_common())
        parts.append(
            f"<tr><td>{escape(exercise_name(exercises[0]))}"
            f'<td><div class="bar"><div style="width:{width:.0f}%"></div></div>'
            f'<td class="number">{passed}<td>{escape(others)}</tr>'
        )
    parts.append(
        '</table><h2>Students</h2><table><tr><th>student<th class="number">points<th></tr>'
    )
    for result in sorted(results, key=lambda result: result.student.lower()):
        remarks = [*result.notes, *(["late"] if result.late else [])]
        remarks += ["to be finished by hand"] if result.by_hand else []
        remarks += [result.failure] if result.failure else []
        parts.append(
            f'<tr><td>{escape(result.student)}<td class="number">{result.points:g}'
            f"<td>{escape('; '.join(remarks))}</tr>"
        )
    parts.append("</table>")
    return _page(f"{results[0].assignment}: the class", parts)


def summary(results: Sequence[SubmissionResult]) -> list[tuple[str, str, str]]:
    """A row for each result: student, points, and the exercises that were not passed."""
    return [
        (
            result.student,
            f"{result.points:g} of {result.max_points:g}",
            ", ".join(
                f"{exercise_name(exercise)} ({exercise.state})"
                for exercise in result.exercises
                if exercise.state != State.PASSED
            ),
        )
        for result in results
    ]


def write_reports(
    results: Sequence[SubmissionResult],
    keys: Sequence[str],
    out: Path,
    *,
    listed: ClassList | None = None,
) -> list[Path]:
    """Write the pages and the gradebooks of an assignment.

    Args:
        results: of the class, at least one.
        keys: name of each student's page, in the order of the results.
        out: folder; gets `feedback/KEY.html`, `class.html`, `canvas.csv` and `moodle.csv`.
        listed: the class, if known.

    Returns:
        The three files for the teacher.

    Raises:
        ValueError: if a file cannot be written.
    """
    files.make_folder(out / "feedback")
    for result, key in zip(results, keys, strict=True):
        files.write_file(out / "feedback" / f"{key}.html", student_page(result))
    graded = [result for result in results if not result.failure]  # no grade that is not deserved
    points = {result.student: result.points for result in graded}
    passed = {
        result.student: f"{sum(v.state is State.PASSED for v in result.exercises)} of "
        f"{len(result.exercises)} exercises passed"
        for result in graded
    }
    assignment, most = results[0].assignment, results[0].max_points
    reports = {
        "canvas.csv": gradebook.canvas(assignment, points, most, listed),
        "moodle.csv": gradebook.moodle(assignment, points, passed, listed),
        "class.html": class_page(results),
    }
    for name, text in reports.items():
        files.write_file(out / name, text)
    return [out / name for name in reports]


def exercise_name(exercise: ExerciseResult) -> str:
    """What the student calls the exercise: nbgrader's name of the test cell, less "-check"."""
    return exercise.exercise.removesuffix("-check")


def _points(result: SubmissionResult) -> str:
    text = f"{result.points:g} of {result.max_points:g} points"
    return f"{text}, and a part still to be graded by hand" if result.by_hand else text


def _out_of(exercise: ExerciseResult) -> str:
    if exercise.points is None:
        return f"up to {exercise.max_points:g} points"
    return f"{exercise.points:g} of {exercise.max_points:g}"


def _page(title: str, parts: Sequence[str]) -> str:
    return PAGE % {"title": escape(title), "body": "\n".join(parts)}
