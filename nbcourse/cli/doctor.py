"""The installation and the machine: doctor, libraries."""

import typer

from nbcourse import installation
from nbcourse.cli.application import app
from nbcourse.cli.tables import show, show_whole


@app.command()
def doctor() -> None:
    """Check the installation: versions found, and what to do where something is missing.

    Then the machine: extensions of JupyterLab, data, a model, GPU, browser, disk. ✗ marks what has
    to be fixed; · marks what you can do without.

    In the book's repository, packages are compared with the versions that `requirements.txt` locks.
    Where the package was installed without it, extras may be missing, and versions need only be in
    range.
    """
    from nbcourse.lm import kept, places

    others = {"smollm2": places.finding, "warm starts": kept.finding}
    rows = installation.report() + installation.machine(**others)
    cells = [(installation.MARKS[row.ok], row.name, row.version, row.remark) for row in rows]
    show("", "name", "version", "remark", rows=cells)
    if any(row.ok is False for row in rows):
        raise typer.Exit(1)


@app.command()
def libraries() -> None:
    """Print what installed libraries default to: reference KL, its estimator, mismatch, loss.

    Read from their files: nothing is imported. The last column is what appendix K read in the
    version that it names; ≠ marks what has changed.
    """
    from nbcourse.publishing import libraries as table

    absent = []
    for library in table.read():
        if (here := library.installed()) is None:
            absent.append(library.name)
            continue
        typer.echo(
            f"{library.name} {here.version or '(no version)'}, in appendix K {library.read_in}"
        )
        show_whole("setting", "default", "appendix K", rows=table.rows(here))
    if absent:
        typer.echo(f"Not installed here: {', '.join(absent)}.")
