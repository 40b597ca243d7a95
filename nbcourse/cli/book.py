"""Chapters and pages: run, site, pdf, epub, slides, twins, put-back."""

from typing import Annotated

import typer

from nbcourse import repository
from nbcourse.cli.application import app, fail
from nbcourse.errors import UserError


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

    Cells assert what they show, so a chapter that runs through has shown it on this machine too.
    If a cell fails, you are told which line and why, the exit code is 1, and the notebook stays as
    it was.
    """
    repository.require()
    from nbcourse.publishing import chapters, execution

    try:
        execution.run(chapters.find(chapter), write=write)
    except execution.CellFailed as error:
        fail(error)


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
        fail(error)
    if not solutions and (found := leaks.scan([folder], leaks.secrets())):
        fail("these pages hold what students must not see:\n" + "\n".join(found))
    console.print(f"open {folder.relative_to(pages.ROOT)}/index.html", highlight=False)


@app.command()
def pdf(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHAPTERS]...",
            help="Numbers or names; without any, every chapter and the book.",
        ),
    ] = None,
) -> None:
    """Print the pages that `nbcourse site` built into `_build/pdf`: each chapter, and the book.

    Without a chapter, `book.pdf` holds all chapters, exercises and appendices; several chapters,
    such as those of the short way, `0 1 2 7 10 13 14`, are bound into one file. Links lead within
    it. This needs Chromium or Chrome. Plotting code is left out, nothing is folded, and the answers
    to the predictions are at the end of a chapter. A page printed from a browser looks the same.
    """
    repository.require()
    from nbcourse.publishing import printing

    printing.write_all(wanted or [])
    typer.echo("written to _build/pdf")


@app.command()
def epub() -> None:
    """Bind the pages that `nbcourse site` built into `_build/book.epub`, for e-readers.

    It holds all chapters, exercises and appendices, formulas as MathML, and nothing is folded.
    Explorers are shown as they start (with Chromium or Chrome), and plotting code is left out.
    """
    repository.require()
    from nbcourse.publishing import epub as books

    books.write()
    typer.echo("written to _build/book.epub")


@app.command()
def slides(
    chapter: Annotated[str, typer.Argument(help="A number or a name, as for `nbcourse run`.")],
) -> None:
    """Cut the slides of a chapter from its page, which `nbcourse site` built.

    They have the main line alone, and open in any browser, without a network: the question, the
    opening and what it prints, each equation, table and figure with the sentence that leads to it,
    and each prediction as a poll; its answer comes with the next click. S opens the speaker's view,
    with all that the chapter says there; F fills the screen, and ? lists the other keys.
    """
    repository.require()
    from nbcourse.publishing import slides as lecture

    page = lecture.write(chapter)
    typer.echo(f"open {page.relative_to(repository.ROOT)}")


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
    from nbcourse.publishing import twins as pairs

    if check:
        if differences := pairs.differences(chapter):
            fail("\n".join(differences))
        return
    for written in pairs.carry(chapter, towards_text=to_text):
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
