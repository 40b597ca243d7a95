"""Figures in the book's style, each with a text that says what there is to see."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import Image, display
from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("book.mplstyle")


def figure(*args: Any, **kwargs: Any) -> tuple[Figure, Any]:
    """`plt.subplots` in the book's style."""
    plt.style.use(STYLE)  # not a context: titles and legends are styled when they are added
    return plt.subplots(*args, **kwargs)


def show(fig: Figure, *, alt: str) -> None:
    """Display a figure with its alternative text, for readers who cannot see it, and close it.

    It has twice the pixels that it takes on the page, so that it is sharp on fine screens as well.

    Args:
        fig: the figure.
        alt: what the figure shows, in a sentence or two, with the numbers that matter.

    Raises:
        ValueError: if `alt` is empty.
    """
    if not alt.strip():
        raise ValueError("alt is empty, expected a sentence that says what the figure shows")
    buffer = BytesIO()
    fig.savefig(buffer, format="png", dpi=2 * plt.rcParams["savefig.dpi"])
    plt.close(fig)
    text = " ".join(alt.split())
    display(Image(data=buffer.getvalue(), format="png", retina=True, alt=text))
