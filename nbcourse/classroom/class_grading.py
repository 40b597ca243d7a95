"""Grade what a class handed in for an assignment: from its folder to feedback and gradebooks."""

import json
import os
import shutil
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nbcourse.classroom import batch, class_list, feedback, files, masters, sandbox, submissions
from nbcourse.classroom import results as stored
from nbcourse.classroom.class_list import Student
from nbcourse.classroom.masters import Master
from nbcourse.classroom.results import Change, SubmissionResult
from nbcourse.classroom.sandbox import Limits
from nbcourse.classroom.submissions import Submission
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
    """

    folder: Path
    assignment: str
    class_list: Path | None = None
    personal: bool = False
    limits: Limits = field(default_factory=Limits)
    confined: bool = True


@dataclass(frozen=True)
class GradedClass:
    """What grading a class has led to.

    Args:
        results: one for each submission, by the students' names.
        strangers: the submissions of which the class list does not say whose they are.
        absent: the students of the class who handed in nothing.
        changes: the grades that were others before.
        feedback: folder of the pages for students.
        reports: files for the instructor: a page and a table of the class, and what the platform
            takes back.
    """

    results: tuple[SubmissionResult, ...]
    strangers: tuple[Submission, ...]
    absent: tuple[Student, ...]
    changes: tuple[Change, ...]
    feedback: Path
    reports: tuple[Path, ...]


def grade_class(order: Order, out: Path, *, jobs: int | None = None) -> GradedClass:
    """Grade all submissions, and write results, feedback and gradebooks.

    Each result is in `out`/results as soon as it is there. A call that was interrupted can be
    repeated: results of the same notebooks under the same conditions are kept.

    Args:
        order: what to grade, and how.
        out: folder for the results.
        jobs: submissions at a time; None is one for each processor.

    Raises:
        UserError: if the assignment, the folder, the class list or `out` cannot be used, the class
            list is not of the platform that the submissions are from, a process cannot be confined
            here, or the master fails its own tests.
        OSError: if the operating system refuses a file or folder.
    """
    master = masters.load_master(masters.find_master(order.assignment))
    found = submissions.find_submissions(order.folder, master.assignment)
    listed = None if order.class_list is None else class_list.read_class_list(order.class_list)
    if listed is not None:
        found = submissions.with_owners(found, listed)
    elif order.personal:
        raise UserError("a student's own numbers come from the class list: name it, as at release")
    if listed is not None and listed.maximum not in (None, most := _worth(master)):
        raise UserError(
            f"by {listed.file} the assignment is worth {listed.maximum:g}, and the sheet has "
            f"{most:g} points: change the maximum grade in Moodle, and download the worksheet again"
        )
    if order.confined:
        sandbox.insist([master.path.parent, order.folder, out])
    terms = batch.Terms(master, order.limits, personal=order.personal, confined=order.confined)
    files.make_folder(out / "results")
    _remember(order, out / ORDER)
    before = {s.key: _earlier(out / "results" / f"{s.key}.json") for s in found}
    jobs = jobs or os.cpu_count() or 1
    with (
        closing(batch.grade_submissions(found, terms, out / "results", jobs=jobs)) as grading,
        track(grading, master.assignment, total=len(found)) as counted,
    ):
        graded = sorted(counted, key=lambda pair: pair[1].student)
    changes = [
        change
        for submission, result in graded
        if (old := before[submission.key]) and (change := stored.change(old, result))
    ]
    return GradedClass(
        results=tuple(result for _, result in graded),
        strangers=tuple(submission for submission, _ in graded if submission.stranger),
        absent=tuple(feedback.absent(graded, listed)),
        changes=tuple(changes),
        feedback=out / "feedback",
        reports=tuple(feedback.write_reports(graded, out, listed=listed)),
    )


def changes(out: Path, *, jobs: int | None = None) -> tuple[Change, ...]:
    """Which grades `regrade` would change; nothing in `out` is written.

    Raises:
        UserError: if nothing was graded there; and as `grade_class`.
    """
    order = remembered(out)
    with tempfile.TemporaryDirectory(prefix="regrade-") as folder:
        shutil.copytree(out / "results", Path(folder, "results"))
        return grade_class(order, Path(folder), jobs=jobs).changes


def remembered(out: Path) -> Order:
    """What was graded into this folder, and how.

    Raises:
        UserError: if nothing was.
    """
    try:
        fields = json.loads((out / ORDER).read_text(encoding="utf-8"))
        fields["folder"] = Path(fields["folder"])
        fields["class_list"] = fields["class_list"] and Path(fields["class_list"])
        return Order(**fields | {"limits": Limits(**fields["limits"])})
    except FileNotFoundError:
        raise NotFound(f"nothing was graded into {out}: it has no {ORDER}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{out / ORDER} says not what was graded: {error}") from None


def _worth(master: Master) -> float:
    return sum(exercise.points for exercise in master.exercises)


def _remember(order: Order, path: Path) -> None:
    fields = asdict(order)
    fields["folder"] = str(order.folder.resolve())
    fields["class_list"] = order.class_list and str(order.class_list.resolve())
    files.write_file(path, json.dumps(fields, indent=1) + "\n")


def _earlier(path: Path) -> SubmissionResult | None:
    try:
        return stored.read_result(path)
    except (FileNotFoundError, ValueError):
        return None
