"""Tables on a terminal, whose words may be broken but are never cut."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def show(*header: str, rows: Iterable[Sequence[str]]) -> None:
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


def show_whole(*header: str, rows: Sequence[Sequence[str]]) -> None:
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
