"""Grade what a class handed in for an assignment: from its folder to feedback and gradebooks."""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from nbcourse.classroom import batch, feedback, files, gradebook, masters, sandbox, submissions
from nbcourse.classroom.results import SubmissionResult
from nbcourse.classroom.sandbox import Limits
from nbcourse.progress import track


@dataclass(frozen=True)
class GradedClass:
    """What grading a class has led to.

    Args:
        results: one for each submission, by the students' names.
        feedback: folder of the pages for students.
        reports: files for the instructor: gradebooks for Canvas and Moodle, a page of the class.
    """

    results: tuple[SubmissionResult, ...]
    feedback: Path
    reports: tuple[Path, ...]


def grade_class(
    folder: Path,
    assignment: str,
    out: Path,
    *,
    class_list: Path | None = None,
    personal: bool = False,
    limits: Limits,
    confined: bool = True,
    jobs: int | None = None,
) -> GradedClass:
    """Grade all submissions, and write results, feedback and gradebooks.

    Each result is in `out`/results as soon as it is there. A call that was interrupted can be
    repeated: results of the same notebooks under the same conditions are kept.

    Args:
        folder: what Canvas, Moodle or nbgrader made, or one's own.
        assignment: a number or a name: `2`, `sequences`, `02-sequences`.
        out: folder for the results.
        class_list: gradebook exported from Canvas or Moodle, or a CSV of students.
        personal: whether each student got numbers of their own.
        limits: what a submission may use.
        confined: whether submissions run confined, which needs Linux.
        jobs: submissions at a time; None is one for each processor.

    Raises:
        UserError: if the assignment, the folder, the class list or `out` cannot be used, two
            submissions belong to one student, a process cannot be confined here, or the master
            fails its own tests.
        OSError: if the operating system refuses a file or folder.
    """
    master = masters.load_master(masters.find_master(assignment))
    found = submissions.find_submissions(folder, master.assignment)
    listed = None if class_list is None else gradebook.read_class_list(class_list)
    if listed is not None:
        found = submissions.with_listed_names(found, listed)
    if confined:
        sandbox.insist([master.path.parent, folder, out])
    terms = batch.Terms(master, limits, personal=personal, confined=confined)
    files.make_folder(out / "results")
    jobs = jobs or os.cpu_count() or 1
    with (
        closing(batch.grade_submissions(found, terms, out / "results", jobs=jobs)) as grading,
        track(grading, master.assignment, total=len(found)) as graded,
    ):
        results = tuple(sorted(graded, key=lambda result: result.student))
    keys = {submission.student: submission.key for submission in found}
    pages = out / "feedback"
    reports = feedback.write_reports(
        results, [keys[result.student] for result in results], out, listed=listed
    )
    return GradedClass(results, pages, tuple(reports))
