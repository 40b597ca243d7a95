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


def learning_curves(groups: list[Group]) -> Figure:
    """Held-out accuracy against responses sampled: mean over seeds, and its 95 % interval."""
    fig, axis = figure(figsize=(7.5, 4.0))
    for group, marker in zip(groups, cycle(MARKERS), strict=False):
        points = group.held_out()
        responses, means = [x for x, _ in points], [mean(y) for _, y in points]
        (line,) = axis.plot(responses, means, marker=marker, markersize=4, label=group.name)
        if len(points[0][1]) > 1:
            bounds = [interval(y) for _, y in points]
            low, high = zip(*bounds, strict=True)
            axis.fill_between(responses, low, high, color=line.get_color(), alpha=0.15)
    axis.set(xlabel="responses sampled", ylabel="held-out accuracy", ylim=(0, 1))
    axis.legend()
    return fig


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
    fig, axes = figure(
        2, len(numbers), figsize=(3.75 * len(numbers), 5.0), squeeze=False, sharex=True
    )
    first, *others = experiment.curves
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
        column[1].set(title=f"minus {first}, paired", xlabel=xlabel)
    axes[0, 0].legend()
    return fig
