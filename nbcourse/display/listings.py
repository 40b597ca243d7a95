"""Listings: a function's own source, and small tables of numbers."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence

from IPython.display import Markdown, display


def show_source(function: Callable) -> None:
    """Display the body of a package function, so that the chapter never types it a second time.

    The docstring is left out: it says what the chapter says. `help(function)` shows it.
    """
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    lines = source.splitlines()
    definition = ast.parse(source).body[0]
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
        return f"{value + 0.0:.4f}" if isinstance(value, float) else str(value)

    lines = [header, ["---"] * len(header), *[[cell(value) for value in row] for row in rows]]
    display(Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines)))
