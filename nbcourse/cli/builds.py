"""What readers build, and the hunt: build start, take, check, grade; hunt new, mark."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nbcourse.cli.application import app, group, warn
from nbcourse.cli.options import Jobs, Json, Memory, Results, Seconds, Trust, limits, write_json
from nbcourse.cli.tables import show

if TYPE_CHECKING:
    from nbcourse.builds.grading import Reported


build = group(
    """
    Build a trainer of your own: files to fill in, and what is wrong with them.

    Appendix E is its guide.

    `start` writes stubs into a folder, one for each piece: the estimator, GAE, the clip, a sampler
    with its REINFORCE loop, GRPO, a verifier. `check` examines what you filled in. It needs no part
    of the repository but this package.
    """,
)
app.add_typer(build, name="build")
BuildFolder = Annotated[Path, typer.Argument(help="Your folder, such as `trainer`.")]


@build.command("start")
def build_start(folder: BuildFolder) -> None:
    """Write the stubs and the warm model into a folder; existing files stay as they are.

    **Examples**

    - `nbcourse build start trainer`
    """
    from nbcourse.builds import pieces

    for path in pieces.start(folder):
        typer.echo(f"{path} written")
    typer.echo(f"fill in estimator.py, then: nbcourse build check {folder}")


@build.command("take")
def build_take(
    folder: BuildFolder,
    piece: Annotated[str, typer.Argument(help="Which piece, such as `gae`.")],
    force: Annotated[bool, typer.Option("--force", help="Replace work of your own.")] = False,
) -> None:
    """Take a piece from the book, to go on with the next one. Reports say which were taken."""
    from nbcourse.builds import pieces

    typer.echo(f"{pieces.take(folder, piece, force=force)} is now the book's, and earns nothing")


@build.command("check")
def build_check(
    folder: BuildFolder,
    piece: Annotated[
        str | None, typer.Argument(help="One piece; without it, all pieces and your tests.")
    ] = None,
    json_file: Json = None,
    limit: Annotated[
        float, typer.Option(help="Seconds after which a check that is still running is stopped.")
    ] = 900.0,
) -> None:
    """Say which laws your pieces satisfy, which they break, and by which mistake.

    A rising reward shows little: a trainer that rewards truncated responses learns as well. So each
    function is compared with an exact recomputation, one law at a time, and a curve comes last.
    Functions in files called `test_….py` are run against healthy and against wrong trainers.

    **Examples**

    - `nbcourse build check trainer estimator`
    - `nbcourse build check trainer --json report.json`
    """
    from rich.console import Console

    from nbcourse.builds import check, pieces
    from nbcourse.examine.patience import at_most

    if piece is not None:
        pieces.require(piece)
    handed_in = pieces.read(folder)
    patience = f"{folder} was still running after {limit:g} seconds (--limit)"
    with Console(stderr=True).status("checking …") as status, at_most(limit, patience):
        report = check.check(
            handed_in,
            only=pieces.NAMES if piece is None else (piece,),
            tests=piece is None,
            tell=status.update,
        )
    typer.echo(str(report))
    write_json(report, json_file)


@build.command("grade")
def build_grade(
    submissions: Annotated[
        Path, typer.Argument(help="A folder with a folder of files for each student.")
    ],
    out: Results = Path("graded-builds"),
    jobs: Jobs = None,
    memory: Memory = 4.0,
    seconds: Seconds = 300.0,
    exploits: Annotated[
        bool,
        typer.Option("--exploits", help="Try the class's exploits on the class's verifiers, too."),
    ] = False,
    trust_submissions: Trust = False,
) -> None:
    """Grade a class: the same laws, with each student's files confined in a process of their own.

    Logs that were handed in do not count: everything is run again, with fixed seeds. Held-out
    problems, and the weights that are judged by them, stay outside the process.
    Each student has a report, `OUT/STUDENT.txt` and `.json`; `OUT/grades.csv` has the points. With
    `--exploits`, `OUT/exploits.csv` says which verifiers held against the class, and
    `OUT/leaderboard.txt` shows those who gave a nickname.

    **Examples**

    - `nbcourse build grade submissions --out graded-builds --exploits`
    """
    from nbcourse.builds import grading

    graded = grading.grade(
        submissions,
        out,
        limits=limits(memory, seconds),
        jobs=jobs,
        confined=not trust_submissions,
        against=exploits,
    )
    rows = [
        (report.name, f"{report.points:g} of {report.most}", ", ".join(report.taken))
        for report in graded
    ]
    show("student", "points", "taken from the book", rows=rows)
    _show_failures(graded)
    typer.echo(f"reports are in {out}")


hunt = group(
    """
    The hunt: each student gets a trainer with one to three faults, to find, name, fix and test.

    In class it follows the hunt of chapter 16; appendix D tells teachers how to give it.

    `new` writes the folders that students get, `mark` runs what they hand in.
    """,
)
app.add_typer(hunt, name="hunt")
HuntKey = Annotated[
    str, typer.Option(help="Any text; it and a student's name determine the faults.")
]


@hunt.command("new")
def hunt_new(
    students: Annotated[list[str], typer.Argument(help="Names; each is the name of a folder.")],
    key: HuntKey,
    out: Annotated[Path, typer.Option(help="Folder for the students' folders.")] = Path("hunts"),
) -> None:
    """Write each student's folder: a trainer, a recorded run, and what is to be filled in.

    `trainer.py` is a REINFORCE, PPO or GRPO trainer in one file, in which one to three faults are
    planted. `run.zip` holds curves and witness batches of a run with the same faults. Neither says
    which faults these are. Students put names of causes into `accusations.txt`, fix `trainer.py`,
    and write `test_trainer.py`. The same name and key give the same folder.

    **Examples**

    - `nbcourse hunt new ada ben --key KEY`
    """
    from nbcourse.builds import hunt as hunts

    for dealt in [hunts.deal(student, key) for student in students]:
        typer.echo(f"{hunts.new(dealt, out)} written")


@hunt.command("mark")
def hunt_mark(
    submissions: Annotated[
        Path, typer.Argument(help="A folder of folders, each named after its student.")
    ],
    key: HuntKey,
    out: Results = Path("graded-hunts"),
    jobs: Jobs = None,
    memory: Memory = 4.0,
    seconds: Seconds = 60.0,
    trust_submissions: Trust = False,
) -> None:
    """Mark what students hand in: names, the fixed trainer, and the test, ten points each.

    Names: causes found, less those falsely accused. Trainer: faults that are gone, less laws that
    are newly broken. Test: faults that it catches, each planted alone, and nothing if it accuses a
    healthy trainer. All code is run here, confined. Each student has a report, `OUT/STUDENT.txt`
    and `.json`; `OUT/grades.csv` has the points.

    **Examples**

    - `nbcourse hunt mark submissions --key KEY --out graded-hunts`
    """
    from nbcourse.builds import hunt as hunts

    reports = hunts.mark(
        submissions,
        key,
        out,
        limits=limits(memory, seconds),
        jobs=jobs,
        confined=not trust_submissions,
    )
    rows = [
        (
            report.name,
            *(f"{report.points_of(part):g}" for part in hunts.PARTS),
            f"{report.points:g} of {report.most}",
        )
        for report in reports
    ]
    show("student", *hunts.PARTS, "points", rows=rows)
    _show_failures(reports)
    typer.echo(f"reports are in {out}")


def _show_failures(reports: Sequence["Reported"]) -> None:
    """Say whose folder could not be looked at, and why."""
    for report in reports:
        if report.failure:
            warn(f"{report.name}: {report.failure}")
