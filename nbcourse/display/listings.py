"""Listings: a function's own source, and small tables of numbers."""

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Sequence

from IPython.display import Markdown, display

from nbcourse import numerals
from nbcourse.installation import MARKS, report

# What a browser would take for an element, and show nothing of: `<eos>`. These, tables do use.
ELEMENT = re.compile(r"`[^`]*`|<(?!/?(?:a|sub|sup|br)\b)(?=[A-Za-z/!?])")
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
    """Display rows as a table, columns of numbers to the right and with the digits that they need.

    Numbers may also come as text: "+3.5 %", "0.1 to 0.3" (see `nbcourse.numerals`). The floats of a
    column all get as many decimals as show four significant digits of the largest and two of the
    smallest, but four at most, so that any CPU prints the same; zeros at the end of all of them are
    left out. Where this would print more than five digits of the largest, each has three of its
    own, and four decimals at most.

    Raises:
        ValueError: if a row does not have as many cells as the header.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"row {row!r} has {len(row)} cells, expected {len(header)}")
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    printed = list(map(_printed, columns))
    numeric = map(_is_numeric, columns, printed)
    sides = ["---:" if is_numeric else "---" for is_numeric in numeric]
    lines = [header, sides, *zip(*printed, strict=True)]
    display(Markdown("\n".join("| " + " | ".join(line) + " |" for line in lines)))


def _is_numeric(column: Sequence[object], printed: Sequence[str]) -> bool:
    if any(isinstance(cell, bool | list | tuple) for cell in column):
        return False
    floats = bool(column) and all(isinstance(cell, float) for cell in column)  # all nan, perhaps
    return floats or numerals.is_numeric(printed)


def _escaped(found: re.Match[str]) -> str:
    return "\\<" if found[0] == "<" else found[0]  # within backticks every sign is shown


def _printed(column: Sequence[object]) -> list[str]:
    """The cells of a column as they are shown."""
    cells = [x for cell in column for x in (cell if isinstance(cell, list | tuple) else [cell])]
    shared = _decimals([x for x in cells if isinstance(x, float)])

    def printed(value: object) -> str:
        if isinstance(value, list | tuple):
            return f"({', '.join(map(printed, value))})"
        if isinstance(value, float):  # + 0.0 turns −0.0 into 0.0
            decimals = _own_decimals(value) if shared is None else shared
            return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")
        return ELEMENT.sub(_escaped, numerals.with_minus(str(value)))

    return [printed(cell) for cell in column]


def _decimals(numbers: Sequence[float]) -> int | None:
    """How many decimals a column of numbers is shown with; None if each has its own."""
    sizes = [abs(x) for x in numbers if math.isfinite(x) and round(x, 4) != 0]
    if not sizes:
        return 0
    largest, smallest = _exponent(max(sizes)), _exponent(min(sizes))
    most = min(max(3 - largest, 1 - smallest, 0), 4)
    shown = [f"{x:.{most}f}".rstrip("0").partition(".")[2] for x in sizes]
    needed = max(map(len, shown)) if most else 0
    return None if needed and largest + 1 + needed > 5 else needed


def _own_decimals(number: float) -> int:
    """Those of three significant digits, and four at most."""
    if not math.isfinite(number) or round(number, 4) == 0:
        return 0
    return min(max(2 - _exponent(number, digits=3), 0), 4)


def _exponent(number: float, *, digits: int = 12) -> int:
    """The power of ten of a number rounded to so many digits: that of 0.999…9 is that of 1."""
    return int(f"{number:.{digits - 1}e}".partition("e")[2])


def show_installation() -> None:
    """Display the main packages as installed and as the book needs them, and any that are wrong.

    `nbcourse doctor` lists all of them.
    """
    found = report()
    rows = [row for name in MAIN for row in found if row.name == name]
    rows += [row for row in found if row.ok is False and row.name not in MAIN]
    cells = [(row.name, row.version, MARKS[row.ok], row.remark) for row in rows]
    table(cells, header=["package", "version", "", "remark"])
