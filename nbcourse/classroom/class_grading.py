"""Grade what a class handed in for an assignment: from its folder to feedback and gradebooks."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from nbcourse import durable
from nbcourse.classroom import (
    batch,
    class_list,
    class_rules,
    feedback,
    files,
    late_days,
    marking,
    marks,
    masters,
    matching,
    submissions,
)
from nbcourse.classroom import results as stored
from nbcourse.classroom.class_list import ClassList, Student, folded
from nbcourse.classroom.class_rules import Rules
from nbcourse.classroom.masters import Master
from nbcourse.classroom.results import Change, SubmissionResult, Terms
from nbcourse.classroom.submissions import Submission
from nbcourse.classroom.tables import inert
from nbcourse.confined import sandbox
from nbcourse.confined.sandbox import Limits
from nbcourse.errors import NotFound, UserError
from nbcourse.progress import track

ORDER = "order.json"  # what was graded, and how, in the folder of the results


@dataclass(frozen=True)
class Order:
    """What is to be graded, and how.

    Args:
        folder: what Canvas, Moodle or nbgrader made, or one's own.
        assignment: a number or a name: `2`, `sequences`, `02-sequences`.
        class_list: gradebook exported from Canvas or Moodle, Moodle's grading worksheet, or a CSV
            of students; None if there is none.
        personal: whether each student got numbers of their own, which needs a class list.
        limits: what a submission may use.
        confined: whether submissions run confined, which needs Linux.
        rules: deadlines and more, in TOML (`class_rules`); None if there are none.
    """

    folder: Path
    assignment: str
    class_list: Path | None = None
    personal: bool = False
    limits: Limits = field(default_factory=Limits)
    confined: bool = True
    rules: Path | None = None


@dataclass(frozen=True)
class GradedClass:
    """What grading a class has led to.

    Args:
        results: one for each submission, by the students' names.
        unmatched: the submissions that no student of the class list owns.
        absent: the students of the class who handed in nothing.
        changes: the grades that have changed.
        feedback: folder of the pages for students.
        reports: files for the instructor: a page and a table of the class, and what the platform
            takes back.
        moved: other sheet → students of whose late days it now uses another number, so that it has
            to be graded again.
        reread: the students whose notebook has changed since a person gave points for it.
    """

    results: tuple[SubmissionResult, ...]
    unmatched: tuple[Submission, ...]
    absent: tuple[Student, ...]
    changes: tuple[Change, ...]
    feedback: Path
    reports: tuple[Path, ...]
    moved: Mapping[str, Sequence[str]]
    reread: tuple[str, ...]


def grade_class(
    order: Order, out: Path, *, jobs: int | None = None, final: bool = True
) -> GradedClass:
    """Grade all submissions, and write results, feedback and gradebooks.

    Each result is in `out`/results as soon as it is there. A call that was interrupted can be
    repeated: results of the same notebooks under the same conditions are kept. What a person gave
    (`marks`) and what lateness costs (`class_rules`) is not in these results; it goes with them
    into pages and gradebooks.

    Args:
        order: what to grade, and how.
        out: folder for the results.
        jobs: submissions at a time; None is one for each processor.
        final: whether the times of this submission are stored, to count a term's late days by.

    Raises:
        UserError: if the assignment, the folder, the class list or `out` cannot be used, the class
            list is not of the platform that the submissions are from, the rules or the marks are
            not valid, another process grades into `out`, a process cannot be confined here, or the
            master fails its own tests.
        OSError: if the operating system refuses a file or folder.
    """
    master = masters.load_master(masters.find_master(order.assignment))
    handed_in, listed = _handed_in(order, master)
    rules = Rules() if order.rules is None else class_rules.read_for_book(order.rules)
    if order.confined:
        sandbox.require_confinement([master.path.parent, order.folder, out])
    terms = Terms(master, order.limits, order.personal, order.confined, rules.partial(master))
    files.make_folder(out / "results")
    with durable.locked(out):
        if (out / ORDER).exists():
            _require_same(out, order, master)
        marks.check(marks.kept(out), master, [submission.student for submission in handed_in])
        _remember(order, out / ORDER)
        before = {s.key: _earlier(out / "results" / f"{s.key}.json") for s in handed_in}
        graded = _graded(handed_in, terms, out, jobs or os.cpu_count() or 1)
        changes = [
            change
            for submission, result in graded
            if (old := before[submission.key]) and (change := stored.change(old, result))
        ]
        given = marks.kept(out)  # after the grading, which takes long: marks may be added meanwhile
        reread = _to_read_again(graded, before, given, out)
        times, moved = _times(order, rules, master.assignment, listed, handed_in, final=final)
        graded = [(one, _adjusted(one, result, given, rules, times)) for one, result in graded]
        return GradedClass(
            results=tuple(result for _, result in graded),
            unmatched=tuple(submission for submission, _ in graded if submission.unmatched),
            absent=tuple(feedback.absent(graded, listed)),
            changes=tuple(changes),
            feedback=out / "feedback",
            moved=moved,
            reread=reread,
            reports=(
                *feedback.write_reports(graded, out, listed=listed),
                *marking.write_sheets(graded, master, out),
            ),
        )


def changes(out: Path, *, jobs: int | None = None) -> tuple[Change, ...]:
    """Which grades `regrade` would change; nothing in `out` is written.

    Raises:
        UserError: if nothing was graded there; and as `grade_class`.
    """
    order = remembered(out)
    with tempfile.TemporaryDirectory(prefix="regrade-") as folder:
        shutil.copytree(out / "results", Path(folder, "results"))
        marks.keep(marks.kept(out), Path(folder))
        return grade_class(order, Path(folder), jobs=jobs, final=False).changes


def remembered(out: Path) -> Order:
    """What was graded into this folder, and how.

    Raises:
        UserError: if nothing was.
    """
    try:
        fields = json.loads((out / ORDER).read_text(encoding="utf-8"))
        fields["folder"] = Path(fields["folder"])
        for name in ("class_list", "rules"):
            fields[name] = fields[name] and Path(fields[name])
        return Order(**fields | {"limits": Limits(**fields["limits"])})
    except FileNotFoundError:
        raise NotFound(f"nothing was graded into {out}: it has no {ORDER}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{out / ORDER} does not say what was graded: {error}") from None


def mark_class(path: Path, out: Path) -> GradedClass:
    """Add a person's marks to what was graded into a folder, and write everything again.

    Raises:
        UserError: if a mark is for no answer that there is, or is worth too much; nothing is kept
            then. And as `grade_class`.
    """
    order, new = remembered(out), marks.read_marks(path)
    master = masters.load_master(masters.find_master(order.assignment))
    students = [submission.student for submission in _handed_in(order, master)[0]]
    together = {mark.key: mark for mark in [*marks.kept(out), *new]}
    marks.check([*together.values()], master, students)
    marking.require_criteria([*together.values()], master)
    marks.keep([*together.values()], out)
    return grade_class(order, out)


def _handed_in(order: Order, master: Master) -> tuple[list[Submission], ClassList | None]:
    """The submissions, with their owners where there is a class list, and the list."""
    anybodys = submissions.find_submissions(
        order.folder, master.assignment, partial(matching.worth, master=master)
    )
    if order.class_list is None:
        if order.personal:
            raise UserError("--personal needs the release's class list: name it with --class-list")
        return anybodys, None
    listed = class_list.read_class_list(order.class_list)
    handed_in = submissions.with_owners(anybodys, listed)
    most = sum(exercise.points for exercise in master.exercises)
    if listed.maximum not in (None, most):
        raise UserError(
            f"{listed.file} says that the assignment is worth {listed.maximum:g}, but the sheet "
            f"has {most:g} points: change the maximum grade in Moodle and download it again"
        )
    return handed_in, listed


def _graded(
    handed_in: Sequence[Submission], terms: Terms, out: Path, jobs: int
) -> list[feedback.Graded]:
    """What the programs say of each submission, by the students' names."""
    results = batch.grade_submissions(handed_in, terms, out / "results", jobs=jobs)
    with (
        closing(results) as grading,
        track(grading, terms.master.assignment, total=len(handed_in)) as counted,
    ):
        return sorted(counted, key=lambda pair: pair[1].student)


def _adjusted(
    submission: Submission,
    result: SubmissionResult,
    given: Sequence[marks.Mark],
    rules: Rules,
    times: late_days.Times,
) -> SubmissionResult:
    """A result with the entries of a person's marks, and of lateness."""
    owner, marked = submission.owner, marks.applied(result, given)
    if owner is None:
        return rules.applied(marked, "")
    return rules.applied(marked, owner.submitted, times.get(folded(owner.key)))


def _times(
    order: Order,
    rules: Rules,
    sheet: str,
    listed: ClassList | None,
    found: Sequence[Submission],
    *,
    final: bool,
) -> tuple[late_days.Times, dict[str, list[str]]]:
    """When students handed in all sheets so far, and what of it changes other sheets' late days."""
    if order.rules is None or listed is None or not rules.late.term_days:
        return {}, {}
    path = late_days.beside(order.rules)
    before = late_days.kept(path, listed)
    here = {submission.owner.key for submission in found if submission.owner is not None}
    submitted = {
        student.key: student.submitted
        for student in listed.students
        if student.submitted not in ("", "-")
        # in this folder, or in an earlier one: late submissions may be graded apart
        and (student.key in here or sheet in before.get(folded(student.key), {}))
    }
    after = late_days.with_sheet(before, sheet, submitted if sheet in rules.deadlines else {})
    moved = late_days.changed(before, after, rules, sheet)
    if final:
        late_days.keep(after, path, listed)
    return after, moved


def _to_read_again(
    graded: Sequence[feedback.Graded],
    before: Mapping[str, SubmissionResult | None],
    given: Sequence[marks.Mark],
    out: Path,
) -> tuple[str, ...]:
    """The students who have a mark, or a part of one, for a notebook that has changed since."""
    begun = {student for (student, *_), (points, _) in marking.filled_in(out).items() if points}
    marked = begun | {mark.student for mark in given}
    return tuple(
        result.student
        for submission, result in graded
        if (old := before[submission.key])
        and old.submission != result.submission
        and inert(result.student) in marked
    )


def _require_same(out: Path, order: Order, master: Master) -> None:
    """Refuse another sheet than the one that was graded into a folder, and fewer options.

    What a class was graded with is not left out by mistake: its grades would be written over.
    """
    earlier = remembered(out)
    if (other := masters.find_master(earlier.assignment).stem) != master.assignment:
        raise UserError(
            f"{out} holds the results of {other}, which those of {master.assignment} would "
            "replace: name another folder with --out"
        )
    if order.folder.resolve() != earlier.folder:
        return
    options = {
        "--class-list": (earlier.class_list, order.class_list),
        "--rules": (earlier.rules, order.rules),
        "--personal": (earlier.personal or None, order.personal or None),
    }
    for option, (before, now) in options.items():
        if before is not None and now is None:
            value = "" if before is True else f" {before}"
            raise UserError(
                f"{out} was graded with {option}{value}, and its grades would be written over: say "
                "it again, or name another folder with --out"
            )


def _remember(order: Order, path: Path) -> None:
    fields = asdict(order)
    fields["folder"] = str(order.folder.resolve())
    for name in ("class_list", "rules"):
        fields[name] = fields[name] and str(fields[name].resolve())
    files.write_file(path, json.dumps(fields, indent=1) + "\n")


def _earlier(path: Path) -> SubmissionResult | None:
    try:
        return stored.read_result(path)
    except (FileNotFoundError, ValueError):
        return None
