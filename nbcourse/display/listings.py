"""Listings: a function's own source, and small tables of numbers."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence

from IPython.display import Markdown, display

from nbcourse.installation import MARKS, report

MAIN = ("Python", "torch", "transformers", "numpy", "matplotlib", "jupyterlab", "ipywidgets")


def show_source(function: Callable[..., object]) -> None:
    """Display the body of a package function, so that the chapter never types it a second time.

    The docstring is left out: it says what the chapter says. `help(function)` shows it.
    """
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    lines = source.splitlines()
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.ClassDef)
    if ast.get_docstring(definition) is not None:
        docstring = definition.body[0]
        del lines[docstring.lineno - 1 : docstring.end_lineno]
    display(Markdown("```python\n" + "\n".join(lines) + "\n```"))


def table(rows: Sequence[Sequence[object]], *, header: Sequence[str]) -> None:
    """Display rows as a table; floats are rounded to four decimals so that any CPU prints the same.

    Raises:
        ValueError: if a row does not have as many cells as the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"row {row!r} has {len(row)} cells, expected {len(header)}")

    def cell(value: object) -> str:
        if isinstance(value, float):
            return f"{round(value, 4) + 0.0:.4f}"  # + 0.0 turns −0.0 into 0.0
        if isinstance(value, list | tuple):
            return f"({', '.join(map(cell, value))})"
        return str(value)

    lines = [header, ["---"] * len(header), *[[cell(value) for value in row] for row in rows]]
    display(Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines)))


def show_installation() -> None:
    """Display what is installed next to what the book needs: the main packages, and what is amiss.

    `nbcourse doctor` lists all of them.
    """
    found = report()
    rows = [row for name in MAIN for row in found if row.name == name]
    rows += [row for row in found if row.ok is False and row.name not in MAIN]
    cells = [(row.name, row.version, MARKS[row.ok], row.remark) for row in rows]
    table(cells, header=["package", "version", "", "remark"])
