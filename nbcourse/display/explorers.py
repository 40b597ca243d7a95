"""Explorers of one number: the package draws each position of a slider, and the page shows one."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from html import escape

import torch
from IPython.display import HTML
from torch import Tensor

from nbcourse.display.in_page import in_page
from nbcourse.functional.advantages import variance_optimal_baseline
from nbcourse.functional.surrogates import ppo_clip
from nbcourse.toys import bandit, chain, enumeration

Scale = Callable[[float], float]
BLUE, ORANGE = "#0072B2", "#D55E00"
FLOOR = 250  # of the panels, in units of SVG


def explore_baseline(probs: Tensor, rewards: Tensor, *, positions: int = 61) -> HTML:
    """Move the baseline of a bandit: the mean of the gradient estimate stays, its spread does not.

    Args:
        probs: (K,) the policy.
        rewards: (K,) what the arms pay.
        positions: number of slider positions.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.
    """
    logits, gradient = probs.log(), bandit.gradient(probs.log(), rewards)
    best = variance_optimal_baseline(probs, rewards).item()
    lowest, highest = rewards.min().item(), rewards.max().item()
    margin = 0.35 * (highest - lowest)
    values = torch.linspace(min(0.0, lowest) - margin, highest + margin, positions).tolist()
    slopes = gradient.tolist()
    mean = ", ".join(f"{slope:+.2f}" for slope in slopes)

    def variance(baseline: float) -> float:
        return bandit.gradient_variance(logits, rewards, baseline=baseline).item()

    def deviations(baseline: float) -> Tensor:
        estimates = bandit.gradient_estimates(logits, rewards, baseline=baseline)
        return enumeration.variance(probs, estimates).sqrt()

    curve = [variance(value) for value in values]
    widest = max(deviations(values[0]).max(), deviations(values[-1]).max()).item()
    spread = widest + gradient.abs().max().item()
    x, y = scale(values[0], values[-1], 60, 370), scale(0.0, max(curve), FLOOR, 35)
    column, bar = scale(-0.5, len(probs) - 0.5, 450, 705), scale(-spread, spread, FLOOR, 35)
    named = {"0": 0.0, "J": bandit.expected_reward(logits, rewards).item(), "b*": best}
    line = _curve(zip(map(x, values), map(y, curve), strict=True))
    background = _baseline_axes(y, bar, line, max(curve))
    background += [_dot(x(b), y(variance(b)), 3) + _tick(x(b), n, 16) for n, b in named.items()]
    for arm, slope in enumerate(slopes):
        background.append(_dot(column(arm), bar(slope), 5, ORANGE))
        background.append(_text(column(arm), 270, f"logit {arm + 1}", anchor="middle"))

    def frame(b: float) -> dict[str, str]:
        now, reach = variance(b), enumerate(zip(slopes, deviations(b).tolist(), strict=True))
        words = f"b = {b:.2f} · variance {now:.3f} (least: {variance(best):.3f} at b* = {best:.2f})"
        picture = [_line(x(b), FLOOR, x(b), y(now), dash="4 3"), _dot(x(b), y(now), 6, ORANGE)]
        picture += [_error_bar(column(arm), bar(mid - d), bar(mid + d)) for arm, (mid, d) in reach]
        return _frame(f"{b:.2f}", f"{words} · mean gradient ({mean}), whatever b", "".join(picture))

    boxes = ["0 0 400 300", "380 0 400 300"]
    start = positions // 4
    return _slider("baseline", "baseline b", [*map(frame, values)], start, background, boxes)


def _baseline_axes(y: Scale, bar: Scale, curve: str, highest: float) -> list[str]:
    return [
        _text(60, 18, "Variance of the estimate", weight="bold"),
        _text(450, 18, "Gradient: mean ± one deviation", weight="bold"),
        _line(60, FLOOR, 370, FLOOR),
        _line(60, FLOOR, 60, 35),
        curve,
        _text(215, 290, "baseline b", anchor="middle"),
        _text(52, y(0.0) + 4, "0", anchor="end"),
        _text(52, y(highest) + 4, f"{highest:.1f}", anchor="end"),
        _line(450, bar(0.0), 705, bar(0.0)),
        _text(442, bar(0.0) + 4, "0", anchor="end"),
    ]


def _error_bar(x: float, low: float, high: float) -> str:
    lines = [(x, low, x, high), *((x - 8, end, x + 8, end) for end in (low, high))]
    return "".join(_line(*line, color=BLUE, width=2) for line in lines)


def explore_clip(
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    largest: float = 2.0,
) -> HTML:
    """Move the ratio of one action: what PPO's clip makes of it, for A = +1 and for A = −1.

    The objective is drawn, not the loss: the push, an arrow, points uphill. Value and slope come
    from `ppo_clip` and autograd.

    Args:
        clip_low: distance below 1.
        clip_high: distance above 1; `clip_low` if None.
        dual_clip: cap on the ratio where A is negative; None has no cap.
        largest: no ratio is drawn beyond.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if a clip is out of range.
    """
    low, high = 1 - clip_low, 1 + (clip_low if clip_high is None else clip_high)
    # Off every bound that people choose, since there rounding would decide the branch.
    values = torch.arange(0.125, largest, 0.05, dtype=torch.float64).tolist()
    corners = [ratio for ratio in (low, high, dual_clip) if ratio and ratio < largest]

    clipped = partial(ppo_clip, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)

    def objective(ratio: float, advantage: float) -> tuple[float, float]:
        """The objective and its slope in log π."""
        log_ratio = torch.tensor(ratio, dtype=torch.float64).log().requires_grad_()
        zero = torch.zeros_like(log_ratio)
        value = -clipped(log_ratio, zero, zero + advantage)
        (slope,) = torch.autograd.grad(value, log_ratio)
        return value.item(), slope.item() + 0.0  # never −0

    panels: dict[float, tuple[Scale, Scale]] = {}
    background = []
    for advantage, left in ((1.0, 60), (-1.0, 420)):
        x = scale(0.0, largest, left, left + 285)
        y = scale(min(0.0, largest * advantage), max(0.0, largest * advantage), FLOOR, 35)
        panels[advantage] = x, y
        line = [(x(r), y(objective(r, advantage)[0])) for r in sorted([*values, *corners])]
        background += _clip_axes(x, y, _curve(line), advantage * largest, bounds=(low, high))

    def frame(ratio: float) -> dict[str, str]:
        words, picture = [f"ρ = {ratio:.3f}"], ""
        for advantage, (x, y) in panels.items():
            value, slope = objective(ratio, advantage)
            branch = f"push {slope:+.3f}" if slope else "clipped, no push"
            words.append(f"A = {advantage:+.0f}: objective {value:+.3f}, {branch}")
            picture += _push(x(ratio), y(value), slope)
        return _frame(f"{ratio:.3f}", " · ".join(words), picture)

    above = next(i for i, ratio in enumerate(values) if ratio > high)
    boxes = ["0 0 360 300", "360 0 360 300"]
    return _slider("clip", "ratio ρ", [*map(frame, values)], above + 1, background, boxes)


def _clip_axes(
    x: Scale, y: Scale, curve: str, largest: float, *, bounds: tuple[float, float]
) -> list[str]:
    """A panel with its curve; `largest` is negative for A = −1."""
    low, high = bounds
    left, right = x(0.0), x(abs(largest))
    title = f"Objective for A = {'+' if largest > 0 else '−'}1"
    return [
        f'<rect x="{x(low):.1f}" y="35" width="{x(high) - x(low):.1f}" height="215" '
        'fill="#e8f1fa"/>',
        _text(left, 18, title, weight="bold"),
        _line(left, FLOOR, left, 35),
        _line(left, FLOOR, right, FLOOR),
        _line(left, y(0.0), right, y(0.0)),
        _text(left - 8, y(0.0) + 4, "0", anchor="end"),
        _line(left, y(0.0), right, y(largest), color="#777", dash="2 4"),
        curve,
        _text(left + 142, 290, "ratio ρ", anchor="middle"),
        *(_tick(x(ratio), f"{ratio:.3g}") for ratio in (low, 1.0, high)),
    ]


def _push(x: float, y: float, slope: float) -> str:
    """An arrow uphill, or an empty point where the slope is 0."""
    if not slope:
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="#fff" stroke="{ORANGE}" '
            'stroke-width="2"/>'
        )
    tip = x + 40 * slope
    back = tip - (8 if slope > 0 else -8)
    return (
        _line(x, y, tip, y, color=ORANGE, width=3)
        + f'<polygon points="{tip:.1f},{y:.1f} {back:.1f},{y - 5:.1f} '
        f'{back:.1f},{y + 5:.1f}" fill="{ORANGE}"/>' + _dot(x, y, 6, ORANGE)
    )


def explore_lambda(
    process: chain.DecisionProcess, policy: Tensor, critics: Mapping[str, Tensor], *, start: int
) -> HTML:
    """Move the number of episodes of a batch: each critic's best λ moves with it.

    Args:
        process: S states, A actions.
        policy: (S, A), π(a | s).
        critics: name → (S,), at most three of them.
        start: the state in which episodes begin.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.
    """
    lambdas = [i / 40 for i in range(39)] + [0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 1.0]
    colors = dict(zip(critics, (BLUE, ORANGE, "#009E73"), strict=False))
    batches = [2**k for k in range(11)]
    errors: dict[tuple[str, int], list[float]] = {}  # of the gradient, relative to its length
    for name, critic in critics.items():
        moments = [
            chain.gradient_estimator(process, policy, critic, start=start, lam=lam)
            for lam in lambdas
        ]
        for count in batches:
            errors[name, count] = [
                math.sqrt(m.mean_squared_error(count)) / m.gradient.norm().item() for m in moments
            ]
    lowest, highest = min(map(min, errors.values())), max(map(max, errors.values()))
    x, y = scale(0.0, 1.0, 46, 388), scale(math.log(lowest), math.log(highest), 245, 35)

    def frame(count: int) -> dict[str, str]:
        words, picture = [f"{count} episode{'s' if count > 1 else ''} a batch"], ""
        for name, color in colors.items():
            found = errors[name, count]
            least, lam = min(zip(found, lambdas, strict=True))
            heights = (y(math.log(error)) for error in found)
            picture += _curve(zip(map(x, lambdas), heights, strict=True), color)
            picture += _dot(x(lam), y(math.log(least)), 6, color)
            words.append(f"{name}: best λ = {lam:.3g}, error {least:.2f}")
        return _frame(str(count), " · ".join(words), picture)

    background = [
        *_lambda_axes(x, y),
        *(
            _text(40, y(math.log(tick)) + 4, f"{tick:g}", anchor="end")
            for tick in (0.03, 0.1, 0.3, 1.0, 3.0)
            if lowest <= tick <= highest
        ),
    ]
    for low, (name, color) in zip(range(304, 999, 18), colors.items(), strict=False):
        background += [_line(46, low, 80, low, color=color, width=2), _text(88, low + 4, name)]
    boxes = [f"0 0 400 {296 + 18 * len(critics)}"]
    return _slider("lambda", "episodes a batch", [*map(frame, batches)], 0, background, boxes)


def _lambda_axes(x: Scale, y: Scale) -> list[str]:
    return [
        _text(4, 18, "Error of the gradient, relative to its length", weight="bold"),
        _line(46, FLOOR, 388, FLOOR),
        _line(46, FLOOR, 46, 35),
        _text(217, 286, "λ", anchor="middle"),
        _line(46, y(0.0), 388, y(0.0), color="#777", dash="2 4"),
        _text(388, y(0.0) - 5, "as wrong as no step at all", anchor="end"),
        *(_tick(x(tick), f"{tick:g}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)),
    ]


def _slider(
    name: str,
    label: str,
    frames: Sequence[Mapping[str, str]],
    start: int,
    background: Sequence[str],
    boxes: Sequence[str],
) -> HTML:
    """A slider that sets `label`, at first to position `start`, and a frame for each position.

    The background is SVG that does not move; boxes are the panels of the drawing, as view boxes.
    """
    fixed = {"label": label, "background": "".join(background), "boxes": boxes}
    return in_page("frames", name, {**fixed, "frames": frames}, start)


def _frame(shown: str, words: str, picture: str) -> dict[str, str]:
    """How the slider says its position, the same in words and numbers, and the SVG that moves."""
    return {"shown": _minus(shown), "words": _minus(words), "picture": picture}


def _minus(words: str) -> str:
    """With the minus of mathematics before numbers."""
    return re.sub(r"-(?=\d)", "−", words)


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """A linear map from data to SVG units."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _curve(points: Iterable[tuple[float, float]], color: str = BLUE) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'


def _dot(x: float, y: float, radius: int, color: str = "") -> str:
    fill = f' fill="{color}"' if color else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"{fill}/>'


def _tick(x: float, words: str, below: int = 18) -> str:
    """A mark at the lower axis, and its words."""
    return _line(x, FLOOR, x, FLOOR + 4) + _text(x, FLOOR + below, words, anchor="middle")


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f' style="font-weight:{weight}"' if weight != "normal" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    *,
    color: str = "#222",
    width: float = 1,
    dash: str = "",
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{color}" stroke-width="{width}"{dashes}/>'
    )
