"""Grade a class's builds: one folder after the other, each in confined processes.

The files run in the process that the exercises' submissions run in, `confined.student`: without
network, files, or this package. `harness` is its first cell. The laws, the oracles, the held-out
problems and the healthy and the wrong trainers' verdicts are here.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from nbcourse.builds import check, exploits, harness, pieces
from nbcourse.builds.bench import Bench, with_given
from nbcourse.builds.report import Report
from nbcourse.classroom import tables
from nbcourse.confined import sandbox
from nbcourse.confined.forkserver import ForkServer, Zygote, graders
from nbcourse.confined.remote import Session, StudentCell
from nbcourse.confined.sandbox import Limits
from nbcourse.errors import NotFound, UserError
from nbcourse.progress import track

HARNESS = Path(harness.__file__)
NAME = re.compile(r"[^\w.@+-]+")
VERIFIER_SECONDS = 10.0  # for one response


@contextmanager
def apart(sources: Mapping[str, str], *, server: ForkServer, limits: Limits) -> Iterator[Bench]:
    """Run files in a process of their own, which ends with the block."""
    text = HARNESS.read_text(encoding="utf-8")
    text += f"\n\ninstall({with_given(sources)!r})\n"
    cell = StudentCell(0, text, functions=harness.FUNCTIONS)
    with Session(server, [cell], limits) as session:
        session.by_reference = False

        def ask(function: str, *arguments: Any) -> Any:
            session.begin()
            defined = session.outcomes[0].defined
            return defined[function](*arguments)

        yield Bench(ask)


def grade(
    submissions: Path,
    out: Path,
    *,
    limits: Limits,
    jobs: int | None = None,
    confined: bool = True,
    against: bool = False,
) -> list[Report]:
    """Grade every folder in a folder, and write the reports and the points.

    Args:
        submissions: holds a folder for each student.
        out: `STUDENT.txt`, `STUDENT.json` and `grades.csv` are written there.
        limits: what each session of files may use.
        jobs: submissions at a time; None for one for each processor.
        confined: whether the files run confined.
        against: whether the class's verifiers meet its exploits, for `exploits.csv` and
            `leaderboard.txt`.

    Raises:
        UserError: if there is nothing to grade, or this machine cannot confine processes.
    """
    folders = students(submissions, "*.py")
    with Zygote() as zygote:
        work = partial(graded, limits=limits, confined=confined)
        reports = written(work, folders, out, zygote=zygote, jobs=jobs, confined=confined)
        _write_grades(reports, out / "grades.csv")
        if against:
            with ForkServer(zygote, confined=confined) as server:
                _write_standings(_played(folders, limits, server), out)
    return reports


class Reported(Protocol):
    """What is said of one student's folder: in words by `str`, and for machines."""

    @property
    def name(self) -> str:
        """Of the student."""

    @property
    def failure(self) -> str:
        """Why the folder could not be looked at; empty as a rule."""

    def as_dict(self) -> dict[str, Any]:
        """For machines."""


R = TypeVar("R", bound=Reported)


def written(
    work: Callable[[Path, Zygote], R],
    folders: Sequence[Path],
    out: Path,
    *,
    zygote: Zygote,
    jobs: int | None,
    confined: bool,
) -> list[R]:
    """The reports on all folders, by name, each in `out` as text and as JSON once it is there.

    Args:
        work: makes the report on a folder, with a fork server of its own.
        folders: one for each student.
        out: is made if it is not there.
        zygote: what the fork servers are forked from.
        jobs: folders at a time; None for one for each processor.
        confined: whether `work` needs a machine that confines processes.

    Raises:
        UserError: if this machine cannot confine processes, or two folders would have one report.
    """
    if confined:
        sandbox.require_confinement([])
    files = Counter(NAME.sub("_", folder.resolve().name) for folder in folders)
    name, count = files.most_common(1)[0]
    if count > 1:
        raise UserError(f"{count} folders would have the report {name}.txt: rename all but one")
    out.mkdir(parents=True, exist_ok=True)
    reports = []
    for report in track(_each(work, folders, zygote, jobs), "grading", total=len(folders)):
        name = NAME.sub("_", report.name)
        (out / f"{name}.txt").write_text(f"{report}\n", encoding="utf-8")
        (out / f"{name}.json").write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
        reports.append(report)
    return sorted(reports, key=lambda report: report.name)


def _played(folders: Sequence[Path], limits: Limits, server: ForkServer) -> list[exploits.Standing]:
    patience = replace(limits, seconds=min(limits.seconds, VERIFIER_SECONDS))
    runs = partial(apart, server=server, limits=patience)
    return exploits.played([pieces.read(folder) for folder in folders], runs=runs)


def _write_standings(standings: Sequence[exploits.Standing], out: Path) -> None:
    write_table(
        out / "exploits.csv",
        ["student", "refused", "exploits", "fooled", "verifiers"],
        [[one.name, one.refused, one.tried, one.fooled, one.verifiers] for one in standings],
    )
    board = "".join(f"{line}\n" for line in exploits.leaderboard(standings))
    (out / "leaderboard.txt").write_text(board, encoding="utf-8")


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table of students for spreadsheets, none of which takes a name for a formula."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    path.write_text(tables.as_csv([header, *cells]), encoding="utf-8", newline="\r\n")


def students(submissions: Path, *files: str) -> list[Path]:
    """The folders of a class, each with at least one of some files.

    Args:
        submissions: holds a folder for each student.
        files: names, or patterns of them.

    Raises:
        UserError: if there is none.
    """
    if not submissions.is_dir():
        raise NotFound(f"there is no folder {submissions}")
    found = [
        path
        for path in sorted(submissions.iterdir())
        if path.is_dir() and any(any(path.glob(name)) for name in files)
    ]
    if not found:
        raise UserError(
            f"{submissions} holds no folders with {' or '.join(files)}, one for each student"
        )
    return found


def graded(folder: Path, zygote: Zygote, *, limits: Limits, confined: bool = True) -> Report:
    """The report on one student's folder; whatever its code does, there is one."""
    torch.set_num_threads(1)
    try:
        handed_in = pieces.read(folder)
        with ForkServer(zygote, confined=confined) as server:
            runs = partial(apart, server=server, limits=limits)
            return check.check(handed_in, runs=runs)
    except Exception as error:
        failure = f"not graded: {type(error).__name__}: {error}"
        return Report(folder.resolve().name, [], failure=failure)


def _each(
    work: Callable[[Path, Zygote], R], folders: Sequence[Path], zygote: Zygote, jobs: int | None
) -> Iterator[R]:
    jobs = min(jobs or os.cpu_count() or 1, len(folders))
    if jobs == 1:
        yield from (work(folder, zygote) for folder in folders)
        return
    with graders(__name__).Pool(jobs, initializer=_keep, initargs=(zygote,)) as pool:
        yield from pool.imap_unordered(partial(_with_the_zygote, work), folders)


_kept: list[Zygote] = []  # in a process that was started to grade: its way to fork servers


def _keep(zygote: Zygote) -> None:
    _kept[:] = [zygote]


def _with_the_zygote(work: Callable[[Path, Zygote], R], folder: Path) -> R:
    return work(folder, *_kept)


def _write_grades(reports: Sequence[Report], path: Path) -> None:
    rows = []
    for report in reports:
        points = {build.piece: build.as_dict()["points"] for build in report.builds}
        row = [points.get(name, "") for name in pieces.NAMES]
        tests = report.tests.points if report.tests else ""
        tried = report.exploits.points if report.exploits else ""
        graded = [report.name, report.points, report.most]
        if report.failure:
            graded = [report.name, "", ""]
        rows.append([*graded, *row, tests, tried, " ".join(report.taken), report.failure])
    header = ["student", "points", "of", *pieces.NAMES, "tests", "exploits", "taken", "failure"]
    write_table(path, header, rows)
