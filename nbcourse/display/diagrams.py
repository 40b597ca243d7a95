"""Pictures that are not plots of data."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

from nbcourse.display.figures import figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"
PLAIN, MARKED, LEFT_ALONE = ("#e8f1fa", BLUE), ("#fdebd9", ORANGE), ("#eeeeee", GREY)

STAGES = (
    ("prompts", "questions\nto answer", "ch 7, 13"),
    ("rollouts", "sample answers\nfrom the policy", "ch 7"),
    ("rewards", "score each\nanswer", "ch 8, 9, 13"),
    ("advantages", "better than\nexpected?", "ch 1–3, 10"),
    ("loss", "weight the\nlog-probs", "ch 1, 5, 11"),
    ("update", "one gradient\nstep", "ch 6, 15"),
)


def training_loop() -> Figure:
    """The map of the book: six stages in a row, each with the chapters that explain it."""
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
            facecolor=MARKED[0] if highlighted else PLAIN[0],
            edgecolor=MARKED[1] if highlighted else PLAIN[1],
            linewidth=2.2 if highlighted else 1.3,
        )
        axis.add_patch(box)
        middle = column + 0.5
        axis.text(middle, 0.84, name, ha="center", va="center", weight="bold", fontsize=10)
        axis.text(middle, 0.55, meaning, ha="center", va="center")
        axis.text(middle, 0.28, chapters, ha="center", va="center", color=GREY)
        if column:
            _arrow(axis, (column - 0.09, 0.59), (column + 0.09, 0.59))
    _arrow(axis, (5.5, 0.18), (0.5, 0.18), bend=-0.13)
    axis.text(3, -0.34, "the next batch is sampled from the new policy", ha="center")
    return fig


def read_one_before(
    tokens: Sequence[str], prompt: int, readings: Sequence[str], *, reader: str
) -> Figure:
    """What is read in the column before a token belongs to that token: a log-prob, or a value.

    Args:
        tokens: of a prompt and its answer.
        prompt: how many of them are the prompt's.
        readings: what is read, for each token of the answer.
        reader: what reads: "logits".
    """
    fig, axis = figure(height=1.9)
    axis.set(xlim=(-1.3, len(tokens) - 0.4), ylim=(-0.5, 1.5))
    axis.axis("off")
    for y, name in ((1, "token"), (0, reader)):
        axis.text(-1.25, y, name, ha="left", va="center", color=GREY)
    for column, token in enumerate(tokens):
        _box(axis, (column, 1), token, PLAIN if column < prompt else MARKED)
    for column, reading in enumerate(readings, start=prompt - 1):
        _box(axis, (column, 0), reading, MARKED)
        _arrow(axis, (column + 0.1, 0.27), (column + 0.9, 0.73))
    return fig


def groups_of_answers(rewards: Tensor, advantages: Tensor, names: Sequence[str]) -> Figure:
    """A group of answers in each row: what each was paid, and how hard it is moved, up or down.

    Args:
        rewards: (groups, answers).
        advantages: the same shape.
        names: of the prompts.
    """
    fig, axis = figure(height=2.3)
    axis.set(xlim=(-1.0, rewards.shape[1] - 0.3), ylim=(0.4 - len(names), 0.6))
    axis.axis("off")
    for row, name in enumerate(names):
        axis.text(-1.0, -row, name, ha="left", va="center", weight="bold")
        for column, (reward, advantage) in enumerate(
            zip(rewards[row].tolist(), advantages[row].tolist(), strict=True)
        ):
            look = PLAIN if reward else LEFT_ALONE
            _box(axis, (column - 0.2, -row), f"paid {reward:g}", look, width=0.5)
            half, x = 0.13 * advantage, column + 0.14
            _arrow(axis, (x, -row - half), (x, -row + half), colour=BLUE if reward else ORANGE)
            axis.text(x + 0.07, -row, f"{advantage:+.1f}".replace("-", "−"), va="center")
    return fig


def clip_regions(low: float = 0.2, high: float = 0.2) -> Figure:
    """PPO's clip as a map: what it does to an action, by its advantage and its ratio."""
    fig, axis = figure(height=2.3)
    edges = (0.0, 1 - low, 1 + high, 2.0)
    effects = (
        ("pushed up again", "pushed up", "left alone: it has\ngone up enough"),
        ("left alone: it has\ngone down enough", "pushed down", "pushed down again"),
    )
    for row, (sign, words) in enumerate(zip("+−", effects, strict=True)):
        for column, effect in enumerate(words):
            left, right = edges[column : column + 2]
            pushed = effect.startswith("pushed")
            face = PLAIN if pushed else LEFT_ALONE
            patch = Rectangle((left, -row), right - left, 0.94, facecolor=face[0], edgecolor="w")
            axis.add_patch(patch)
            slope = f"slope {sign.strip('+')}ρ" if pushed else "slope 0"
            middle = (left + right) / 2
            axis.text(middle, 0.58 - row, effect, ha="center", va="center")
            axis.text(middle, 0.22 - row, slope, ha="center", va="center", color=GREY)
    axis.set(xlim=(0, 2), ylim=(-1, 1), xlabel="ratio ρ: how likely the action is now, over then")
    axis.set_xticks([*edges[:2], 1, *edges[2:]])
    axis.set_yticks([0.47, -0.53], ["A = +1", "A = −1"])
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    return fig


def two_judges(states: Sequence[str], values: Sequence[float], result: float) -> Figure:
    """An episode as its critic sees it: δ compares two predictions, the outcome waits for the end.

    Args:
        states: that were visited.
        values: what the critic predicted in each of them.
        result: what was paid at the end.
    """
    fig, axis = figure(height=2.7)
    heights = [*values, result]
    axis.plot(range(len(values)), values, "o", color=BLUE, markersize=8)
    axis.plot(len(values), result, "s", color=ORANGE, markersize=9)
    for t, (now, then) in enumerate(pairwise(heights)):
        _arrow(axis, (t, now), (t + 1, then), colour=BLUE, shrink=6)
        side = {"ha": "left"} if then >= now else {"ha": "right"}
        said = f"δ = {then - now:+.2f}".replace("-", "−")
        axis.text(t + 0.5, (now + then) / 2 - 0.1, said, color=BLUE, **side)
    _arrow(axis, (0, values[0]), (len(values), result), colour=ORANGE, bend=-0.25, shrink=6)
    axis.text(
        len(values) / 2,
        1.38,
        f"outcome − critic = {result - values[0]:+.2f}",
        color=ORANGE,
        ha="center",
    )
    axis.set(xlim=(-0.4, len(values) + 0.4), ylim=(0.2, 1.5), ylabel="predicted, then paid")
    axis.set_xticks(range(len(heights)), [*states, "won"])
    axis.set_yticks([0.25, 0.5, 0.75, 1])
    return fig


def unseen_by_autograd() -> Figure:
    """Two ways from the weights to a loss, of which `backward` goes one."""
    fig, axis = figure(height=2.3)
    axis.set(xlim=(-0.6, 4.65), ylim=(-0.65, 1.3))
    axis.axis("off")
    for place, words, look in (
        ((0, 0.5), "weights θ", PLAIN),
        ((1.4, 1), "a ~ π", LEFT_ALONE),
        ((1.4, 0), "log π(a)", PLAIN),
        ((2.8, 0), "d = log π − log π_ref", PLAIN),
        ((4.2, 0), "f(d)", MARKED),
    ):
        _box(axis, place, words, look, width=1.15 if "ref" in words else 0.8)
    _arrow(axis, (0.4, 0.4), (1.0, 0.1))
    _arrow(axis, (1.8, 0), (2.22, 0))
    _arrow(axis, (3.38, 0), (3.8, 0))
    for start, end in (((0.4, 0.6), (1.0, 0.9)), ((1.4, 0.75), (1.4, 0.25))):
        _arrow(axis, start, end, colour=GREY, line="--")
    axis.text(
        1.9,
        1,
        "drawn: other weights would have drawn other tokens.\n"
        "No derivative here. The reward carries this part.",
        va="center",
        color=GREY,
    )
    axis.text(2.8, -0.5, "differentiated: ∇f(d) = f′(d) ∇log π(a)", ha="center", color=BLUE)
    return fig


def _box(
    axis: Axes,
    place: tuple[float, float],
    words: str,
    look: tuple[str, str],
    width: float = 0.86,
) -> None:
    """A rounded box with words in it, around a place."""
    (x, y), (face, edge) = place, look
    box = FancyBboxPatch(
        (x - width / 2, y - 0.24),
        width,
        0.48,
        boxstyle="round,pad=0,rounding_size=0.06",
        facecolor=face,
        edgecolor=edge,
        linewidth=1.3,
    )
    axis.add_patch(box)
    axis.text(x, y, words, ha="center", va="center")


def _arrow(
    axis: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    bend: float = 0.0,
    colour: str = "#222222",
    line: str = "-",
    shrink: float = 0.0,
) -> None:
    axis.annotate(
        "",
        xy=end,
        xytext=start,
        arrowprops={
            "arrowstyle": "-|>",
            "color": colour,
            "linestyle": line,
            "connectionstyle": f"arc3,rad={bend}",
            "shrinkA": shrink,
            "shrinkB": shrink,
        },
    )
