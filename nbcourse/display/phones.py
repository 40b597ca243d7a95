"""A figure as a phone shows it: its panels below each other, each as wide as the page.

Matplotlib lays the same figure out again, so letters keep their size, and a scale has as many
numbers as it has room for. A legend goes below its panel, line by line. Where letters would come to
stand on each other, or a panel is a diagram without axes, a figure has no such layout.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

WIDTH = 268 / 72  # inches: what a window of 390 pixels leaves
NARROWEST = 0.3  # of the page, for the frame of a panel
FEW = 6  # labels of a scale, each of which is needed


def lay_out(fig: Figure) -> bool:
    """Give a figure that was drawn the layout for phones; False if it has none: close it then."""
    places = {axes: place for axes in fig.axes if (place := axes.get_subplotspec())}
    if not places or not all(axes.axison for axes in places):
        return False
    panels = [*places]
    met = set(_meeting(fig))
    legends = list(_legends(fig, panels))
    _stack(fig, places)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a panel has no room
        fig.draw_without_rendering()
        for axes in panels:
            if _crowded(axes) and len(axes.get_xticks()) > FEW:
                words = [text.get_text() for text in axes.get_xticklabels()]
                axes.set_xticks(axes.get_xticks()[::2], words[::2])
        for axes, legend in legends:
            _put_below(fig, axes, legend)
        fig.draw_without_rendering()
    return (
        set(_meeting(fig)) <= met
        and not any(map(_crowded, panels))
        and min(axes.bbox.width for axes in panels) > NARROWEST * fig.bbox.width
        and fig.get_tightbbox().width <= WIDTH
    )


def _legends(fig: Figure, panels: Sequence[Axes]) -> Iterator[tuple[Axes, Legend]]:
    """Take all legends out, and say what goes below which panel; the figure's below its first."""
    found = [(panels[0], legend) for legend in fig.legends]
    found += [(axes, legend) for axes in panels for legend in axes.findobj(Legend)]
    for axes, legend in found:
        legend.remove()
        names = [text.get_text() for text in legend.get_texts()]
        title = legend.get_title().get_text() or None
        handles = [handle for handle in legend.legend_handles if handle is not None]
        yield axes, Legend(axes, handles, names, title=title, alignment="left")


def _stack(fig: Figure, places: Mapping[Axes, SubplotSpec]) -> None:
    """Place all panels in one column, one of the figure's after the other, each as high as before.

    One that shares the scale of a panel to its left gets the numbers and words of that as well.
    """
    (grid,) = {place.get_gridspec() for place in places.values()}
    heights = np.tile(grid.get_height_ratios(), grid.ncols).tolist()
    column = fig.add_gridspec(len(heights), 1, height_ratios=heights)
    fig.set_size_inches(WIDTH, fig.get_figheight() * grid.ncols)
    first: dict[int, Axes] = {}
    for axes, at in places.items():
        axes.set_subplotspec(column[at.rowspan.start + at.colspan.start * grid.nrows])
        axes.set_title(axes.get_title("left"), loc="left", wrap=True)
        neighbour = first.setdefault(at.rowspan.start, axes)
        if axes.get_shared_y_axes().joined(axes, neighbour):
            axes.tick_params(labelleft=True)
            axes.set_ylabel(axes.get_ylabel() or neighbour.get_ylabel())


def _put_below(fig: Figure, axes: Axes, legend: Legend) -> None:
    """Add a legend below all else of a panel; the figure becomes higher by as much."""
    box = axes.get_tightbbox()
    assert box is not None  # it is shown
    depth = axes.bbox.y0 - box.y0
    below = ScaledTranslation(0, -depth / fig.dpi, fig.dpi_scale_trans)
    legend.set_loc("upper left")
    legend.set_bbox_to_anchor((0, 0), transform=axes.transAxes + below)
    axes.add_artist(legend).set_clip_on(False)  # or no room is kept for it
    fig.set_figheight(fig.get_figheight() + legend.get_window_extent().height / fig.dpi)


def _meeting(fig: Figure) -> Iterator[tuple[Text, Text]]:
    """Pairs of texts that stand on each other, other than the numbers of scales."""
    scales = {
        text
        for axes in fig.axes
        for axis in (axes.xaxis, axes.yaxis)
        for text in axis.get_ticklabels(which="both")
    }
    texts = [text for text in fig.findobj(Text) if text.get_text() and text.get_visible()]
    boxes = [(text, text.get_window_extent()) for text in texts if text not in scales]
    for (one, its), (other, others) in combinations(boxes, 2):
        if its.overlaps(others):
            yield one, other


def _crowded(axes: Axes) -> bool:
    """Whether a label of the horizontal scale stands on the one before."""
    low, high = sorted(axes.get_xlim())
    labels = zip(axes.get_xticks(), axes.get_xticklabels(), strict=False)
    boxes = [
        text.get_window_extent()
        for place, text in labels
        if low <= place <= high and text.get_text()
    ]
    return any(one.overlaps(other) for one, other in pairwise(boxes))
