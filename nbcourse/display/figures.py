"""Figures in the book's style."""

import os
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

from nbcourse.display import phones
from nbcourse.errors import UserError
from nbcourse.installation import FOR_PHONES

SVG = "image/svg+xml"
STYLE = Path(__file__).with_name("book.mplstyle")
FORMATS = (".png", ".svg", ".pdf")


def figure(
    rows: int = 1, columns: int = 1, *, height: float | None = None, **options: Any
) -> tuple[Figure, Any]:
    """`plt.subplots` in the book's style, as wide as the column of the site.

    Every figure has the same width, so that letters are as large in one as in the next and edges
    align; there is no `figsize`.

    Args:
        rows: of panels.
        columns: of panels.
        height: of the whole figure, in inches; the style's own if None.
        options: of `plt.subplots`, such as `sharey`.

    Raises:
        TypeError: for `figsize`.
    """
    if "figsize" in options:
        raise TypeError("figure() takes no figsize: all figures are as wide; give a height")
    plt.style.use(STYLE)  # not a context: titles and legends are styled when they are added
    width, usual = plt.rcParams["figure.figsize"]
    size = (width, usual if height is None else height)
    return plt.subplots(rows, columns, figsize=size, **options)


def show(fig: Figure) -> None:
    """Display a figure as a vector graphic, and close it.

    What it shows is said below the cell: in its caption and, for readers who cannot see it, in a
    comment, `<!-- alt: … -->`. Where the output is made to be stored (`nbcourse run --write`), its
    metadata hold the figure as a phone shows it: the site has both.
    """
    drawing, for_phone = _drawn(fig), {}
    if FOR_PHONES in os.environ and phones.lay_out(fig):
        for_phone = {SVG: {"phone": _drawn(fig)}}
    plt.close(fig)
    display({SVG: drawing}, metadata=for_phone, raw=True)


def check_file(path: Path) -> None:
    """See that a figure can be written into a file, before any work is done for it.

    Raises:
        UserError: if its suffix is of no format that figures have, or its folder is not there.
    """
    if path.suffix.lower() not in FORMATS:
        suffix = repr(path.suffix) if path.suffix else "missing"
        raise UserError(f"{path}: the suffix is {suffix}, expected one of {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}")


def save(fig: Figure, path: Path) -> None:
    """Write a figure into a file, in the format of its suffix, and close it."""
    fig.savefig(path)
    plt.close(fig)


def as_svg(fig: Figure) -> str:
    """A figure as an `<svg>` element; the figure is closed.

    Letters are drawn as shapes, so that they look the same everywhere, and the same figure always
    gives the same text.
    """
    drawing = _drawn(fig)
    plt.close(fig)
    return drawing


def _drawn(fig: Figure) -> str:
    with StringIO() as drawing:
        fig.savefig(drawing, format="svg", metadata={"Date": None})
        text = drawing.getvalue()
    return text[text.index("<svg") :]
