"""Learning curves of several runs in one picture."""

from itertools import cycle
from statistics import mean

from matplotlib.figure import Figure

from nbcourse.display.figures import figure
from nbcourse.experiments.comparison import Group, interval

MARKERS = "osD^vPX*<>"


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
