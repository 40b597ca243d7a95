"""The command line: run a chapter, build the site, keep the text twins, check the installation.

Each command imports what it needs when it is called, so that `nbcourse --help` answers at once.
"""

import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

PACKAGE = Path(__file__).parent


class Commands(TyperGroup):
    """Ends a mistake of the caller in one clear line; a mistake of ours keeps its stack trace."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except (ValueError, FileNotFoundError) as error:
            if not _raised_here(error):
                raise
            typer.secho(f"nbcourse: {error}", fg="red", err=True)
            raise typer.Exit(2) from error


def _raised_here(error: Exception) -> bool:
    """Whether a `raise` of this package made the error, and not a library deep below it."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return Path(innermost.filename).is_relative_to(PACKAGE)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""
    Policy gradients for language models: the book's tools.

    To **read** the book, open it in JupyterLab with `make lab`. The commands below are for running
    a chapter without a browser, for building the web pages and for writing chapters as text.
    """,
)


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
    from nbcourse.publishing import chapters, execution

    try:
        execution.run(chapters.find(chapter), write=write)
    except execution.CellFailed as error:
        _fail(error)


@app.command()
def site() -> None:
    """Build the book as web pages in `_build/html`.

    The pages show the outputs stored in the notebooks: nothing is run. They hold everything they
    need, the mathematics and the explorers included, so they work from any web server, from a USB
    stick and with the network off. A broken reference fails the build, and so does a picture or a
    script on another host.
    """
    from rich.console import Console

    from nbcourse.publishing import site as pages

    console = Console()
    try:
        with console.status("building the pages …"):
            folder = pages.build()
    except pages.SiteFailed as error:
        _fail(error)
    console.print(f"open {folder.relative_to(pages.ROOT)}/index.html", highlight=False)


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

    A chapter exists twice: `book/01-bandit.ipynb` to read and run, and `book_text/01-bandit.md`,
    the same cells without outputs, to edit as text and to review as a diff. Say which of the two
    you edited: the other one is overwritten. A notebook keeps its outputs while no code changes.
    """
    if [to_text, to_notebook, check].count(True) != 1:
        raise ValueError("say one of --to-text, --to-notebook and --check")
    from nbcourse.publishing import chapters
    from nbcourse.publishing import twins as pairs

    sources = chapters.texts() if to_notebook else chapters.notebooks()
    if check:  # a text without a notebook is a difference too
        sources = sorted({*sources, *map(chapters.notebook_of, chapters.texts())})
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
def doctor() -> None:
    """Check the installation: versions found, and what to do where something is missing."""
    from rich.console import Console
    from rich.table import Table

    from nbcourse import installation

    rows = installation.report()
    table = Table("", "package", "version", "remark")
    for row in rows:
        table.add_row("✓" if row.ok else "✗", row.name, row.version, row.remark)
    Console().print(table)
    if not all(row.ok for row in rows):
        raise typer.Exit(1)


def _fail(reason: object) -> None:
    """End with exit code 1 and the reason, which is the work's and not the caller's."""
    typer.secho(str(reason), fg="red", err=True)
    raise typer.Exit(1)
