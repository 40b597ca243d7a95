"""Learning curves of several runs in one picture."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from nbcourse.display.figures import figure
from nbcourse.experiments.comparison import Group
from nbcourse.experiments.controlled import Experiment, interval

MARKERS = "osD^vPX*<>"
STYLES = ("-", "--", ":", "-.")
COSTS = {"responses": "responses sampled", "seconds": "seconds, sampling and evaluation included"}
LONG_NAME = 24  # letters; longer ones have a line of the legend each
LINE = 72  # letters of a title that is as wide as a figure


def learning_curves(groups: list[Group]) -> Figure:
    """Held-out accuracy against responses sampled, and against the seconds that the steps took.

    The mean over seeds and its 95 % interval, from before the first step where that is recorded.
    """
    fig, axes = figure(1, 2, height=4.0, sharey=True)
    for group, marker in zip(groups, cycle(MARKERS), strict=False):
        points = group.held_out()
        means = [mean(point.held_out) for point in points]
        for axis, cost in zip(axes, COSTS, strict=True):
            spent = [getattr(point, cost) for point in points]
            (line,) = axis.plot(spent, means, marker=marker, markersize=4, label=group.name)
            if len(points[0].held_out) > 1:
                low, high = zip(*(interval(point.held_out) for point in points), strict=True)
                axis.fill_between(spent, low, high, color=line.get_color(), alpha=0.15)
    for axis, label in zip(axes, COSTS.values(), strict=True):
        axis.set(xlabel=label, ylim=(0, 1))
        axis.set_xlim(left=0)
    axes[0].set_ylabel("held-out accuracy")
    _name_below(fig, axes[0])
    return fig


def _name_below(fig: Figure, axis: Axes) -> None:
    """Say below the panels what the lines of one are: over a curve, a long name would hide it."""
    lines, names = axis.get_legend_handles_labels()
    columns = 1 if max(map(len, names)) > LONG_NAME else 3
    fig.legend(lines, names, loc="outside lower center", ncols=columns)


def draw_seeds(axis: Axes, steps: Sequence[float], lines: Tensor, **style: Any) -> None:
    """Every seed as a thin line and their mean as a thick one: a band would hide two camps.

    Args:
        axis: where to draw.
        steps: M of them.
        lines: (S, M), one row for each seed.
        style: of the mean, such as `label` and `linestyle`.
    """
    (line,) = axis.plot(steps, lines.mean(dim=0), linewidth=2.2, **style)
    axis.plot(
        steps,
        lines.T,
        color=line.get_color(),
        linestyle=line.get_linestyle(),
        linewidth=0.8,
        alpha=0.5,
    )


def draw_paired(axis: Axes, steps: Sequence[float], differences: Tensor, **style: Any) -> None:
    """The paired difference of each seed, their mean, and its 95 % interval at each step.

    Args:
        axis: where to draw.
        steps: M of them.
        differences: (S, M), as `Experiment.paired` gives them.
        style: of the mean.
    """
    draw_seeds(axis, steps, differences, **style)
    low, high = zip(*(interval(column) for column in differences.T.tolist()), strict=True)
    axis.fill_between(steps, low, high, color=axis.lines[-1].get_color(), alpha=0.15)
    axis.axhline(0, color="0.4", linewidth=0.8)


def controlled(
    experiment: Experiment, numbers: Mapping[str, str], *, xlabel: str = "environment steps"
) -> Figure:
    """A controlled experiment: a panel for each number, and its paired differences below.

    The differences are those from the first configuration.

    Args:
        experiment: what came of it.
        numbers: name of a number → title of its panel.
        xlabel: what the schedule counts.
    """
    fig, axes = figure(2, len(numbers), height=5.0, squeeze=False, sharex=True)
    first, *others = experiment.curves
    against = f"paired difference from {first}"
    if len(against) > LINE // len(numbers):
        against = f"paired difference from\n{first}"
    steps = experiment.schedule
    for column, (number, title) in zip(axes.T, numbers.items(), strict=True):
        for name, style in zip(experiment.curves, cycle(STYLES), strict=False):
            lines = experiment.curves[name][number]
            draw_seeds(column[0], steps, lines, linestyle=style, label=name)
        column[1].plot([], [])  # the first colour belongs to the configuration compared with
        for name, style in zip(others, cycle(STYLES[1:]), strict=False):
            lines = experiment.paired(number, name, against=first)
            draw_paired(column[1], steps, lines, linestyle=style, label=name)
        column[0].set(title=title)
        column[1].set(title=against, xlabel=xlabel)
    _name_below(fig, axes[0, 0])
    return fig
