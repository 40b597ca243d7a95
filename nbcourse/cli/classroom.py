"""Exercises and their grades: exercises, release, publish-class, grade, regrade, marks, export."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nbcourse import repository
from nbcourse.cli.application import app, fail, warn
from nbcourse.cli.options import Jobs, Memory, Results, Trust, limits
from nbcourse.cli.tables import show
from nbcourse.errors import UserError

if TYPE_CHECKING:
    from nbcourse.classroom.class_grading import GradedClass
    from nbcourse.classroom.results import Change


@app.command()
def exercises() -> None:
    """Make the masters and the students' notebooks from the texts in `solutions/text/`.

    A master is `solutions/NAME.ipynb`, with solutions and hidden tests; the student notebook is
    `book/exercises/NAME.ipynb`, without them. The same texts make the same files.
    """
    repository.require()
    from nbcourse.classroom import exercises as making

    for written in making.generate():
        typer.echo(f"{written.relative_to(making.ROOT)} written")


@app.command()
def release(
    assignment: Annotated[
        str, typer.Argument(help="A number or a name: `2`, `sequences` or `02-sequences`.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the bundles.")] = Path("released"),
    class_list: Annotated[
        Path | None,
        typer.Option(
            help="What Canvas or Moodle exports, or a CSV with a column `student`: each student "
            "gets a bundle with numbers and cases of their own."
        ),
    ] = None,
) -> None:
    """Make the bundle that students get: a zip with the exercises and their checks.

    Without a class list there is one bundle, `OUT/NAME.zip`, for all. With one there is
    `OUT/NAME/STUDENT.zip` for each student, with numbers and cases that come from a hash of the
    student and the assignment; `nbcourse grade --personal` with the same list grades by them.
    Every bundle is searched for lines of solutions and hidden tests before it gets its name.
    """
    repository.require()
    from nbcourse.classroom import release as bundles
    from nbcourse.classroom.class_list import read_class_list

    students = None
    if class_list is not None:
        students = [student.key for student in read_class_list(class_list).students]
    written = [*bundles.write_bundles(assignment, out, students=students)]
    typer.echo(f"{written[0]} written" if students is None else f"{len(written)} bundles in {out}")


@app.command()
def publish_class(
    folder: Annotated[Path, typer.Argument(help="A new folder for the class's repository.")],
) -> None:
    """Make the repository that you can publish for your class: everything but the answers.

    It has the book, the package and the sheets. Solutions, hidden tests, the tests of this
    repository and checks that know the answers stay here; the checks in it are worked cases, as in
    a bundle, with the book's own numbers. Every file is searched for what the solutions compute,
    under whatever names, before anything is written. The folder has no git history: the first
    commit is yours.

    **Example**

    - `nbcourse publish-class ../class-2027`
    """
    repository.require()
    from nbcourse.classroom import class_repository
    from nbcourse.progress import track

    def watched(names: list[str]) -> Iterable[str]:
        return track(names, "searching", total=len(names))

    done = class_repository.publish(folder, watched=watched)
    typer.echo(f"{done.files} files in {folder}, and no part of a solution in any of them")
    typer.echo(f"left out: {', '.join(done.left_out)}, and what git does not track")
    typer.echo(f"worked cases in place of checks: {', '.join(done.rewritten)}")
    commit = 'git init && git add . && git commit --message "The book for our class"'
    typer.echo(f"to publish it: cd {folder} && {commit}, then push")


@app.command()
def grade(
    submissions: Annotated[
        Path, typer.Argument(help="The folder that Canvas, Moodle or nbgrader made, or your own.")
    ],
    assignment: Annotated[
        str, typer.Option(help="A number or a name: `2`, `sequences`, `02-sequences`.")
    ],
    out: Results = Path("graded"),
    class_list: Annotated[
        Path | None,
        typer.Option(
            help="Canvas's gradebook, Moodle's grading worksheet or gradebook, or your own list."
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(help="TOML: deadlines, penalties for lateness, partial credit."),
    ] = None,
    personal: Annotated[
        bool,
        typer.Option("--personal", help="Grade by each student's own numbers, as released."),
    ] = False,
    jobs: Jobs = None,
    memory: Memory = 4.0,
    seconds: Annotated[float, typer.Option(min=1, help="For each cell and each call.")] = 60.0,
    trust_submissions: Trust = False,
) -> None:
    """Grade submissions, each in its own confined process.

    A submission cannot reach the network, other submissions, the tests or your files, and whatever
    it does costs no other student a point. Confinement needs Linux. Each result is written to
    `OUT/results/` at once: stop with Ctrl-C, and the same command continues from there. Results of
    unchanged notebooks are kept.

    **Examples**

    - `nbcourse grade submissions --assignment 02-sequences`
    - `nbcourse grade canvas --assignment 2 --class-list grades.csv --personal --out graded/2`
    """
    repository.require()
    from nbcourse.classroom.class_grading import Order, grade_class

    confined, allowed = not trust_submissions, limits(memory, seconds)
    order = Order(submissions, assignment, class_list, personal, allowed, confined, rules)
    _grade(partial(grade_class, order, out, jobs=jobs), out)


@app.command()
def regrade(
    out: Annotated[Path, typer.Argument(help="The folder that `grade` wrote to.")] = Path("graded"),
    diff: Annotated[
        bool, typer.Option("--diff", help="Only show whose grade would change; write nothing.")
    ] = False,
    jobs: Jobs = None,
) -> None:
    """Grade again what the last `grade` into this folder graded, where something has changed.

    A grade depends on the notebook, the master, the checks, `nbcourse.functional`, torch's version
    and the limits. Where one of these has changed, the submission is graded again, and the table
    says whose grade has changed and why. With `--diff` all this happens in a temporary folder.
    """
    repository.require()
    from nbcourse.classroom.class_grading import changes, grade_class, remembered

    if not diff:
        _grade(partial(grade_class, remembered(out), out, jobs=jobs), out)
    elif found := changes(out, jobs=jobs):
        _show_changes(found)
    else:
        typer.echo("no grade would change")


@app.command()
def marks(
    file: Annotated[
        Path,
        typer.Argument(
            help="A CSV with the columns student, exercise, criterion, points, comment."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder that `grade` wrote to.")] = Path("graded"),
) -> None:
    """Record the points that a person gave to answers in words.

    A row is one criterion of one answer of one student, named as in `OUT/grades.csv`. All rows are
    checked before any is recorded, in `OUT/marks.csv`; a later row for the same criterion replaces
    the earlier one. The points appear in pages and gradebooks from now on, also after `regrade`.
    `grade` writes such a table, `OUT/to-mark.csv`, with the points left open; an answer that is
    left open is skipped.

    **Example**

    - `nbcourse marks marks.csv --out graded`
    """
    repository.require()
    from nbcourse.classroom.class_grading import mark_class

    _grade(partial(mark_class, file, out), out)


@app.command()
def export(
    platform: Annotated[str, typer.Argument(help="`gradescope`, the only one so far.")],
    assignment: Annotated[
        str, typer.Argument(help="A number or a name: `2`, `sequences`, `02-sequences`.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the zip.")] = Path("exported"),
    rules: Annotated[
        Path | None, typer.Option(help="TOML, for partial credit; lateness is Gradescope's.")
    ] = None,
) -> None:
    """Make the autograder that grades a sheet on another platform.

    The zip holds the solutions and the hidden tests: upload it under *Configure Autograder*, and
    give it to no student. Submissions are graded there as `grade` does it, each confined.

    **Example**

    - `nbcourse export gradescope 2`
    """
    repository.require()
    from nbcourse.classroom import files, gradescope, masters

    if platform != "gradescope":
        raise UserError(f"the platform is {platform!r}, expected 'gradescope'")
    target = out / f"gradescope-{masters.find_master(assignment).stem}.zip"
    content = gradescope.autograder(assignment, rules)
    files.make_folder(out)
    files.write_file(target, content)
    typer.echo(f"{target} written; it holds the solutions, and is for Gradescope alone")


def _grade(grading: Callable[[], "GradedClass"], out: Path) -> None:
    """Grade a class and show what came of it."""
    from nbcourse.classroom import feedback

    try:
        graded = grading()
    except KeyboardInterrupt:
        fail(f"stopped; {out / 'results'} holds what is done; the same command continues")
    show("student", "points", "not passed", rows=feedback.summary(graded.results))
    if graded.changes:
        _show_changes(graded.changes)
    reports = ", ".join(map(str, graded.reports))
    typer.echo(f"pages for the students: {graded.feedback}; for you: {reports}")
    if graded.absent:
        typer.echo(f"handed in nothing: {', '.join(s.key for s in graded.absent)}")
    for student in graded.reread:
        warn(
            f"{student} has handed in another notebook since the old one was marked: read the "
            "new answers, and correct the points with `nbcourse marks`"
        )
    for sheet, students in graded.moved.items():
        typer.echo(
            f"regrade {sheet} as well, for the late days of {', '.join(students)}: this sheet's "
            "deadline comes first"
        )
    for submission in graded.unmatched:
        warn(f"in no gradebook: {submission.key}: {submission.unmatched}")
    for result in graded.results:
        if result.failure:
            warn(f"{result.student} was not graded: {result.failure}")


def _show_changes(changes: Sequence["Change"]) -> None:
    rows = [
        (
            change.student,
            f"{change.before:g} → {change.after:g}",
            ", ".join(name.removesuffix("-check") for name in change.exercises),
            ", ".join(change.reasons),
        )
        for change in changes
    ]
    show("student", "points", "exercises", "changed since", rows=rows)
