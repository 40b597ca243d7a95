"""Pictures that are not plots of data."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from nbcourse.display.figures import figure

STAGES = (
    ("prompts", "questions\nto answer", "ch 7, 13"),
    ("rollouts", "sample answers\nfrom the policy", "ch 7"),
    ("rewards", "score each\nanswer", "ch 8, 9, 13"),
    ("advantages", "better than\nexpected?", "ch 1–3, 10"),
    ("loss", "weight the\nlog-probs", "ch 1, 5, 11"),
    ("update", "one gradient\nstep", "ch 6, 15"),
)


def training_loop() -> Figure:
    """The map of the book: six stages in a circle, each with the chapters that explain it."""
    fig, axis = figure(height=2.6)
    axis.set(xlim=(0, 6), ylim=(-0.45, 1.1))
    axis.axis("off")
    for column, (name, meaning, chapters) in enumerate(STAGES):
        highlighted = name == "advantages"
        box = FancyBboxPatch(
            (column + 0.09, 0.18),
            0.82,
            0.82,
            boxstyle="round,pad=0.0,rounding_size=0.08",
            facecolor="#fdebd9" if highlighted else "#e8f1fa",
            edgecolor="#D55E00" if highlighted else "#0072B2",
            linewidth=2.2 if highlighted else 1.3,
        )
        axis.add_patch(box)
        middle = column + 0.5
        axis.text(middle, 0.84, name, ha="center", va="center", weight="bold", fontsize=10)
        axis.text(middle, 0.55, meaning, ha="center", va="center")
        axis.text(middle, 0.28, chapters, ha="center", va="center", color="#555555")
        if column:
            _arrow(axis, (column - 0.09, 0.59), (column + 0.09, 0.59))
    _arrow(axis, (5.5, 0.18), (0.5, 0.18), bend=-0.13)
    axis.text(3, -0.34, "the next batch is sampled from the new policy", ha="center")
    return fig


def _arrow(
    axis: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0
) -> None:
    axis.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": "#222222",
            "connectionstyle": f"arc3,rad={bend}",
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )
