"""Explorers of one number: the package draws each position of a slider, and the page shows one."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape

import torch
from IPython.display import HTML
from torch import Tensor

from nbcourse.display.in_page import in_page
from nbcourse.functional.advantages import variance_optimal_baseline
from nbcourse.functional.surrogates import ppo_clip
from nbcourse.toys import bandit, chain, enumeration


def explore_baseline(probs: Tensor, rewards: Tensor, *, positions: int = 61) -> HTML:
    """Move the baseline of a bandit: the mean of the gradient estimate stays, its spread does not.

    Args:
        probs: (K,) the policy.
        rewards: (K,) what the arms pay.
        positions: number of slider positions.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.
    """
    logits = probs.log()
    mean_reward = bandit.expected_reward(logits, rewards).item()
    best = variance_optimal_baseline(probs, rewards).item()
    gradient = bandit.gradient(logits, rewards)
    margin = 0.35 * (rewards.max() - rewards.min()).item()
    values = torch.linspace(
        min(0.0, rewards.min().item()) - margin, rewards.max().item() + margin, positions
    ).tolist()

    def total_variance(baseline: float) -> float:
        return bandit.gradient_variance(logits, rewards, baseline=baseline).item()

    def deviations(baseline: float) -> list[float]:
        estimates = bandit.gradient_estimates(logits, rewards, baseline=baseline)
        return enumeration.variance(probs, estimates).sqrt().tolist()

    curve = [total_variance(value) for value in values]
    spread = max(max(deviations(values[0])), max(deviations(values[-1]))) + gradient.abs().max()
    x = _scale(values[0], values[-1], 60, 370)
    y = _scale(0.0, max(curve), 250, 35)
    column = _scale(-0.5, len(probs) - 0.5, 450, 705)
    bar = _scale(-spread.item(), spread.item(), 250, 35)

    path = " ".join(f"{x(b):.1f},{y(v):.1f}" for b, v in zip(values, curve, strict=True))
    background = [
        _text(60, 18, "Variance of the estimate", weight="bold"),
        _text(450, 18, "Gradient: mean ± one deviation", weight="bold"),
        _line(60, 250, 370, 250),
        _line(60, 250, 60, 35),
        f'<polyline points="{path}" fill="none" stroke="#0072B2" stroke-width="2"/>',
        _text(215, 290, "baseline b", anchor="middle"),
        _text(52, y(0.0) + 4, "0", anchor="end"),
        _text(52, y(max(curve)) + 4, f"{max(curve):.1f}", anchor="end"),
        _line(450, bar(0.0), 705, bar(0.0)),
        _text(442, bar(0.0) + 4, "0", anchor="end"),
    ]
    for name, position in (("0", 0.0), ("J", mean_reward), ("b*", best)):
        background += [
            f'<circle cx="{x(position):.1f}" cy="{y(total_variance(position)):.1f}" r="3"/>',
            _line(x(position), 250, x(position), 254),
            _text(x(position), 266, name, anchor="middle"),
        ]
    for arm, slope in enumerate(gradient.tolist()):
        background += [
            f'<circle cx="{column(arm):.1f}" cy="{bar(slope):.1f}" r="5" fill="#D55E00"/>',
            _text(column(arm), 270, f"logit {arm + 1}", anchor="middle"),
        ]

    def draw(baseline: float) -> str:
        marks = [
            _line(x(baseline), 250, x(baseline), y(total_variance(baseline)), dash="4 3"),
            f'<circle cx="{x(baseline):.1f}" cy="{y(total_variance(baseline)):.1f}" r="6" '
            'fill="#D55E00"/>',
        ]
        for arm, deviation in enumerate(deviations(baseline)):
            low, high = bar(gradient[arm].item() - deviation), bar(gradient[arm].item() + deviation)
            marks.append(_line(column(arm), low, column(arm), high, color="#0072B2", width=2))
            marks += [
                _line(column(arm) - 8, end, column(arm) + 8, end, color="#0072B2", width=2)
                for end in (low, high)
            ]
        return "".join(marks)

    def read(baseline: float) -> str:
        slopes = ", ".join(f"{slope:+.2f}" for slope in gradient.tolist())
        return (
            f"b = {baseline:.2f} · variance {total_variance(baseline):.3f} "
            f"(least: {total_variance(best):.3f} at b* = {best:.2f}) · "
            f"mean gradient ({slopes}), whatever b"
        )

    return _frames(
        "baseline",
        label="baseline b",
        values=values,
        start=positions // 4,
        background=background,
        boxes=("0 0 400 300", "380 0 400 300"),
        draw=draw,
        read=read,
        shown=lambda baseline: f"{baseline:.2f}",
    )


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
    clipped = partial(ppo_clip, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
    low, high = 1 - clip_low, 1 + (clip_low if clip_high is None else clip_high)
    # Off every bound that people choose, since there rounding would decide the branch.
    values = torch.arange(0.125, largest, 0.05, dtype=torch.float64).tolist()
    corners = [ratio for ratio in (low, high, dual_clip) if ratio and ratio < largest]

    def objective(ratio: float, advantage: float) -> tuple[float, float]:
        """The objective and its slope in log π."""
        log_ratio = torch.tensor(ratio, dtype=torch.float64).log().requires_grad_()
        zero = torch.zeros_like(log_ratio)
        value = -clipped(log_ratio, zero, zero + advantage)
        (slope,) = torch.autograd.grad(value, log_ratio)
        return value.item(), slope.item() + 0.0  # never −0

    panels = {}
    background = []
    for advantage, left in ((1.0, 60), (-1.0, 420)):
        x = _scale(0.0, largest, left, left + 285)
        bottom, top = sorted((0.0, largest * advantage))
        y = _scale(bottom, top, 250, 35)
        panels[advantage] = x, y
        curve = " ".join(
            f"{x(r):.1f},{y(objective(r, advantage)[0]):.1f}" for r in sorted([*values, *corners])
        )
        background += [
            f'<rect x="{x(low):.1f}" y="35" width="{x(high) - x(low):.1f}" height="215" '
            'fill="#e8f1fa"/>',
            _text(left, 18, f"Objective for A = {advantage:+.0f}".replace("-", "−"), weight="bold"),
            _line(left, 250, left, 35),
            _line(left, 250, left + 285, 250),
            _line(left, y(0.0), left + 285, y(0.0)),
            _text(left - 8, y(0.0) + 4, "0", anchor="end"),
            _line(x(0.0), y(0.0), x(largest), y(largest * advantage), color="#777", dash="2 4"),
            f'<polyline points="{curve}" fill="none" stroke="#0072B2" stroke-width="2"/>',
            _text(left + 142, 290, "ratio ρ", anchor="middle"),
        ]
        for ratio in (low, 1.0, high):
            background += [
                _line(x(ratio), 250, x(ratio), 254),
                _text(x(ratio), 268, f"{ratio:.3g}", anchor="middle"),
            ]

    def push(ratio: float, advantage: float) -> str:
        x, y = panels[advantage]
        value, slope = objective(ratio, advantage)
        place = f'cx="{x(ratio):.1f}" cy="{y(value):.1f}"'
        if not slope:
            return f'<circle {place} r="6" fill="#fff" stroke="#D55E00" stroke-width="2"/>'
        tip = x(ratio) + 40 * slope
        back = tip - (8 if slope > 0 else -8)
        return (
            _line(x(ratio), y(value), tip, y(value), color="#D55E00", width=3)
            + f'<polygon points="{tip:.1f},{y(value):.1f} {back:.1f},{y(value) - 5:.1f} '
            f'{back:.1f},{y(value) + 5:.1f}" fill="#D55E00"/>'
            f'<circle {place} r="6" fill="#D55E00"/>'
        )

    def draw(ratio: float) -> str:
        return "".join(push(ratio, advantage) for advantage in panels)

    def read(ratio: float) -> str:
        parts = [f"ρ = {ratio:.3f}"]
        for advantage in panels:
            value, slope = objective(ratio, advantage)
            branch = f"push {slope:+.3f}" if slope else "clipped, no push"
            parts.append(f"A = {advantage:+.0f}: objective {value:+.3f}, {branch}")
        return " · ".join(parts)

    above = next(i for i, ratio in enumerate(values) if ratio > high)
    return _frames(
        "clip",
        label="ratio ρ",
        values=values,
        start=above + 1,
        background=background,
        boxes=("0 0 360 300", "360 0 360 300"),
        draw=draw,
        read=read,
        shown=lambda ratio: f"{ratio:.3f}",
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
    moments = {
        name: [
            chain.gradient_estimator(process, policy, critic, start=start, lam=lam)
            for lam in lambdas
        ]
        for name, critic in critics.items()
    }
    colors = dict(zip(critics, ("#0072B2", "#D55E00", "#009E73"), strict=False))

    def errors(name: str, episodes: int) -> list[float]:
        """Root mean squared error of the gradient, relative to its length."""
        return [
            math.sqrt(m.mean_squared_error(episodes)) / m.gradient.norm().item()
            for m in moments[name]
        ]

    def best(name: str, episodes: int) -> tuple[float, float]:
        return min(zip(errors(name, episodes), lambdas, strict=True))

    exponents = [float(k) for k in range(11)]
    everything = [e for name in critics for k in exponents for e in errors(name, 2 ** int(k))]
    x = _scale(0.0, 1.0, 46, 388)
    y = _scale(math.log(min(everything)), math.log(max(everything)), 245, 35)
    background = [
        _text(4, 18, "Error of the gradient, relative to its length", weight="bold"),
        _line(46, 250, 388, 250),
        _line(46, 250, 46, 35),
        _text(217, 286, "λ", anchor="middle"),
        _line(46, y(0.0), 388, y(0.0), color="#777", dash="2 4"),
        _text(388, y(0.0) - 5, "as wrong as no step at all", anchor="end"),
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        background += [
            _line(x(tick), 250, x(tick), 254),
            _text(x(tick), 268, f"{tick:g}", anchor="middle"),
        ]
    for tick in (0.03, 0.1, 0.3, 1.0, 3.0):
        if min(everything) <= tick <= max(everything):
            background.append(_text(40, y(math.log(tick)) + 4, f"{tick:g}", anchor="end"))
    for row, (name, color) in enumerate(colors.items()):
        background += [
            _line(46, 304 + 18 * row, 80, 304 + 18 * row, color=color, width=2),
            _text(88, 308 + 18 * row, name),
        ]

    def draw(exponent: float) -> str:
        marks = []
        for name, color in colors.items():
            found = errors(name, 2 ** round(exponent))
            path = " ".join(
                f"{x(lam):.1f},{y(math.log(e)):.1f}" for lam, e in zip(lambdas, found, strict=True)
            )
            least, lam = best(name, 2 ** round(exponent))
            marks += [
                f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>',
                f'<circle cx="{x(lam):.1f}" cy="{y(math.log(least)):.1f}" r="6" fill="{color}"/>',
            ]
        return "".join(marks)

    def read(exponent: float) -> str:
        episodes = 2 ** round(exponent)
        parts = [f"{episodes} episode{'s' if episodes > 1 else ''} a batch"]
        for name in critics:
            least, lam = best(name, episodes)
            parts.append(f"{name}: best λ = {lam:.3g}, error {least:.2f}")
        return " · ".join(parts)

    return _frames(
        "lambda",
        label="episodes a batch",
        values=exponents,
        start=0,
        background=background,
        boxes=(f"0 0 400 {296 + 18 * len(critics)}",),
        draw=draw,
        read=read,
        shown=lambda exponent: str(2 ** round(exponent)),
    )


def _frames(
    name: str,
    *,
    label: str,
    values: Sequence[float],
    start: int,
    background: Sequence[str],
    boxes: Sequence[str],
    draw: Callable[[float], str],
    read: Callable[[float], str],
    shown: Callable[[float], str],
) -> HTML:
    """A slider and a drawing for each of its positions.

    Args:
        name: of the explorer, in links.
        label: what the slider sets.
        values: its positions.
        start: index of the first position shown.
        background: SVG that does not move.
        boxes: the panels of the drawing, as view boxes.
        draw: value → the SVG that does.
        read: value → the same in words and numbers.
        shown: value → how the slider says it.
    """
    data = {
        "label": label,
        "background": "".join(background),
        "boxes": list(boxes),
        "frames": [
            {
                "shown": _minus(shown(value)),
                "words": _minus(read(value)),
                "picture": draw(value),
            }
            for value in values
        ],
    }
    return in_page("frames", name, data, start)


def _minus(words: str) -> str:
    """With the minus of mathematics before numbers."""
    return re.sub(r"-(?=\d)", "−", words)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """A linear map from data to SVG units."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


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
