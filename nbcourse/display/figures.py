"""Figures in the book's style."""

from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("book.mplstyle")


def figure(*args: Any, **kwargs: Any) -> tuple[Figure, Any]:
    """`plt.subplots` in the book's style."""
    plt.style.use(STYLE)  # not a context: titles and legends are styled when they are added
    return plt.subplots(*args, **kwargs)


def show(fig: Figure) -> None:
    """Display a figure as a vector graphic, and close it.

    What it shows is said below the cell: in its caption and, for readers who cannot see it, in a
    comment, `<!-- alt: … -->`.
    """
    display({"image/svg+xml": as_svg(fig)}, raw=True)


def as_svg(fig: Figure) -> str:
    """A figure as an `<svg>` element; the figure is closed.

    Letters are drawn as shapes, so that they look the same everywhere, and the same figure always
    gives the same text.
    """
    with StringIO() as drawing:
        fig.savefig(drawing, format="svg", metadata={"Date": None})
        text = drawing.getvalue()
    plt.close(fig)
    return text[text.index("<svg") :]
