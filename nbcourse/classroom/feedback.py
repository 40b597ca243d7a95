"""What goes back: a page for each student, a page for the instructor, files for the platform.

The pages are plain HTML that loads nothing from other hosts. All text in them is escaped: parts of
it were written by students' code.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path

from nbcourse.classroom import files, gradebook
from nbcourse.classroom.class_list import NUMBERED, ClassList, Platform, Student
from nbcourse.classroom.gradebook import Grade
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.submissions import Submission, canvas_names
from nbcourse.classroom.tables import as_csv, written
from nbcourse.confined.submission_errors import Ending

Graded = tuple[Submission, SubmissionResult]

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>%(title)s</title>
<meta name="viewport" content="width=device-width">
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222}
h2{font-size:1.05rem;margin:1.6rem 0 .2rem}
h3{font-size:1rem;font-weight:normal;margin:1rem 0 .2rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:.6rem .8rem}
table{border-collapse:collapse;width:100%%}
td,th{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid #ddd}
td.number,th.number{text-align:right}
td:first-child{white-space:nowrap}
img{max-width:100%%}
.bar{background:#e8e8e8;height:.8rem;width:9rem}
.bar div{background:#0072B2;height:100%%}
</style></head><body>
<h1>%(title)s</h1>
%(body)s
</body></html>
"""
SIGNS = {Ending.PASSED: "✓", Ending.BY_HAND: "…", Ending.MARKED: "✎"}
NO_MARKUP = str.maketrans("<>&", "‹›＆")  # Moodle takes a comment for HTML
OF_A_PERSON = (Ending.BY_HAND, Ending.MARKED)


def student_page(result: SubmissionResult) -> str:
    """The page of one student: points, and for each exercise how it ended and what to look at."""
    parts = [f"<p>{escape(result.student)}: <strong>{_points(result)}</strong></p>"]
    if result.late:
        parts.append("<p>Handed in late.</p>")
    parts += [f"<p>{escape(note)}</p>" for note in result.notes]
    parts += [
        f"<p>Your instructor will look at this: {escape(doubt)}</p>" for doubt in result.doubts
    ]
    for exercise in result.exercises:
        sign = SIGNS.get(exercise.state, "✗")
        parts.append(
            f"<h2>{sign} {escape(exercise.name)}: {escape(exercise.state)}, "
            f"{_out_of(exercise)}</h2>"
        )
        if exercise.feedback:
            parts.append(f"<pre>{escape(exercise.feedback)}</pre>")
    return page(result.assignment, parts)


def class_page(graded: Sequence[Graded], absent: Sequence[Student] = ()) -> str:
    """The class at a glance: how many passed each exercise and how the others ended, then everyone.

    Args:
        graded: of one assignment, at least one.
        absent: students who handed in nothing.
    """
    results = [result for _, result in graded]
    unmatched = [f"{s.key}: {s.unmatched}" for s, _ in graded if s.unmatched]
    parts = [
        f"<p>{len(results)} submissions.</p>",
        *_section("In no gradebook, since their students are unknown", unmatched),
        *_section("To be looked at by a person", _to_be_looked_at(results)),
        *_section("Handed in nothing", [_named(student.key, student) for student in absent]),
        "<h2>Exercises</h2>",
        '<table><tr><th>exercise<th>passed<th class="number"><th>otherwise</tr>',
    ]
    for exercises in zip(*(result.exercises for result in results), strict=True):
        states = Counter(exercise.state for exercise in exercises)
        passed = states.pop(Ending.PASSED, 0)
        width = 100 * passed / len(results)
        others = ", ".join(f"{count} {state}" for state, count in states.most_common())
        parts.append(
            f"<tr><td>{escape(exercises[0].name)}"
            f'<td><div class="bar"><div style="width:{width:.0f}%"></div></div>'
            f'<td class="number">{passed}<td>{escape(others)}</tr>'
        )
    parts.append(
        '</table><h2>Students</h2><table><tr><th>student<th class="number">points<th></tr>'
    )
    for submission, result in sorted(graded, key=lambda pair: pair[1].student.lower()):
        remarks = [*result.notes, *(["late"] if result.late else [])]
        remarks += ["to be finished by hand"] if result.by_hand else []
        remarks += [result.failure] if result.failure else []
        name = _named(result.student, submission.owner)
        parts.append(
            f'<tr><td>{escape(name)}<td class="number">'
            f"{'–' if result.unread else f'{result.points:g}'}"
            f"<td>{escape('; '.join(remarks))}{_ledger(result)}</tr>"
        )
    parts.append("</table>")
    if memory := max(result.memory for result in results):
        parts.append(f"<p>No submission took more than {memory / 2**20:.0f} MB of memory.</p>")
    watched = dict.fromkeys(words for result in results for words in result.watched)
    parts += _section("What this machine's kernel did not limit", watched)
    return page(f"{results[0].assignment}: the class", parts)


def _to_be_looked_at(results: Sequence[SubmissionResult]) -> list[str]:
    """What a person has to decide on: files that cannot be read, and what is doubtful."""
    questions = []
    for result in results:
        unread = [f"In no gradebook: {result.unread}"] if result.unread else []
        questions += [f"{result.student}: {words}" for words in (*unread, *result.doubts)]
    return questions


def _section(title: str, lines: Collection[str]) -> list[str]:
    """A title and a list of these lines, with nothing of it where there are none."""
    if not lines:
        return []
    return [f"<h2>{title}</h2><ul>", *[f"<li>{escape(line)}" for line in lines], "</ul>"]


def summary(results: Sequence[SubmissionResult]) -> list[tuple[str, str, str]]:
    """A row for each result: student, points, and the exercises that were not passed."""
    return [
        (
            result.student,
            f"{result.points:g} of {result.max_points:g}",
            ", ".join(
                f"{exercise.name} ({exercise.state})"
                for exercise in result.exercises
                if exercise.state not in (Ending.PASSED, Ending.MARKED)
            ),
        )
        for result in results
    ]


def write_reports(
    graded: Sequence[Graded], out: Path, *, listed: ClassList | None = None
) -> list[Path]:
    """Write the pages, the grades, and what the platform of the class list takes back.

    Args:
        graded: of the class, at least one.
        out: folder; gets `feedback/KEY.html`, `class.html`, `grades.csv` and, by the class list,
            `canvas.csv` and `canvas-feedback.zip`, `moodle-worksheet.csv` and
            `moodle-feedback.zip`, or `moodle.csv`.
        listed: the class, if known.

    Returns:
        The files for the instructor.

    Raises:
        UserError: if a file cannot be written.
    """
    files.make_folder(out / "feedback")
    for submission, result in graded:
        files.write_file(out / "feedback" / f"{submission.key}.html", student_page(result))
    assignment, most = graded[0][1].assignment, graded[0][1].max_points
    missing = absent(graded, listed)
    reports: dict[str, str | bytes] = {
        "class.html": class_page(graded, missing),
        "grades.csv": grades_table(graded, missing),
    }
    if listed is not None:
        grades = {
            submission.owner.key: Grade(result.points, remark(result))
            for submission, result in graded
            # no undeserved grade
            if submission.owner is not None and not (result.failure or result.unread)
        }
        reports |= gradebook.uploads(assignment, most, listed, grades)
        for platform, kind in NUMBERED.items():
            if kind is listed.kind:
                pages = {
                    upload_name(submission, assignment): student_page(result)
                    for submission, result in graded
                    if submission.owner is not None and submission.platform is platform
                }
                reports[f"{platform.lower()}-feedback.zip"] = files.zipped(pages)
    for name, content in reports.items():
        files.write_file(out / name, content)
    return [out / name for name in reports]


def absent(graded: Sequence[Graded], listed: ClassList | None) -> list[Student]:
    """The students of the class who handed in nothing, in the order of the list."""
    owners = [submission.owner or submission.claimed for submission, _ in graded]
    present = {owner.key for owner in owners if owner is not None}
    return [s for s in listed.students if s.key not in present] if listed else []


def grades_table(graded: Sequence[Graded], missing: Sequence[Student]) -> str:
    """A CSV of everything: who handed in, who did not, and the submissions of unknown students."""
    rows = [["student", "name", "points", "of", "late", "remark"]]
    for submission, result in graded:
        points = "" if result.failure or result.unread else written(result.points)
        name = submission.owner.name if submission.owner is not None else ""
        why = submission.unmatched or result.failure.partition("\n")[0] or result.unread
        row = [result.student, name, points, written(result.max_points)]
        rows.append([*row, "late" if result.late else "", why or remark(result)])
    for student in missing:
        rows.append([student.key, student.name, "", "", "", "handed in nothing"])
    return as_csv(rows)


def remark(result: SubmissionResult) -> str:
    """A line on a result, for the student to read in the gradebook: without markup."""
    tested = [exercise for exercise in result.exercises if exercise.state not in OF_A_PERSON]
    passed = sum(exercise.state is Ending.PASSED for exercise in tested)
    words = ["handed in late"] if result.late else []
    words.append(f"{passed} of {len(tested)} exercises passed")
    words += ["a part is still to be graded by hand"] if result.by_hand else []
    return "; ".join([*words, *result.notes]).translate(NO_MARKUP)


def upload_name(submission: Submission, assignment: str) -> str:
    """The file name by which the platform of a submission finds the student whose page it is.

    Canvas (*Upload submissions*, `infer_comment_context_from_filename` in
    `app/models/abstract_assignment.rb`) reads the first two numbers between `_` as those of the
    student and of the file that was handed in. Moodle (*Upload multiple feedback files in a zip*,
    `mod/assign/feedback/file/importziplib.php`) expects `NAME_NUMBER_assignsubmission_file_FILE`.
    The student's name is left out: it may contain numbers, too.
    """
    if submission.platform is Platform.CANVAS:
        (reading,) = canvas_names(submission.download)
        return f"feedback_{reading.user}_{reading.file}_{assignment}.html"
    return f"feedback_{submission.user_id}_assignsubmission_file_{assignment}.html"


def _ledger(result: SubmissionResult) -> str:
    """What the points of a submission are the sum of, to be unfolded."""
    entries = "".join(
        f'<tr><td>{escape(entry.reason)}<td class="number">{entry.points:+g}</tr>'
        for entry in result.ledger
    )
    return f"<details><summary>points</summary><table>{entries}</table></details>"


def _named(key: str, student: Student | None) -> str:
    return f"{key} ({student.name})" if student and student.name else key


def _points(result: SubmissionResult) -> str:
    text = f"{result.points:g} of {result.max_points:g} points"
    return f"{text}, and a part still to be graded by hand" if result.by_hand else text


def _out_of(exercise: ExerciseResult) -> str:
    if exercise.points is None:
        return f"up to {exercise.max_points:g} points"
    return f"{exercise.points:g} of {exercise.max_points:g}"


def page(title: str, parts: Sequence[str]) -> str:
    """A page of HTML of these parts."""
    return PAGE % {"title": escape(title), "body": "\n".join(parts)}
