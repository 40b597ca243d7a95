"""A figure as bytes."""

from io import BytesIO

from matplotlib.figure import Figure


def png(fig: Figure) -> bytes:
    """The figure as PNG, drawn in the style it was made in."""
    buffer = BytesIO()
    fig.savefig(buffer, format="png")
    return buffer.getvalue()
