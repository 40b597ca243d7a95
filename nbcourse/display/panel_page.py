"""What a training panel shows: a sentence, curves, other runs and texts, as HTML that draws itself.

The live panel replaces these parts while a run goes on; a page without a kernel keeps the last, and
turns over the texts by itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from nbcourse.display.explorers import scale
from nbcourse.errors import UserError
from nbcourse.experiments import comparison, records
from nbcourse.experiments.background import BackgroundRun
from nbcourse.experiments.controlled import differences
from nbcourse.experiments.samples import Sample
from nbcourse.training.recipe import Recipe

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7A5C00")  # the run's own, and the others'
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2")
LONGEST = 300  # characters of a text
MOST = 40  # steps whose texts a page holds
RECENT = 10  # steps, from whose time that of the others is guessed
WIDTH, HEIGHT = 340, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 330, 28, 180

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Other:
    """A run that is drawn beside.

    Attributes:
        name: of its folder.
        recipe: its own.
        metrics: a dictionary of numbers for each step.
        held_out_at_start: accuracy on the held-out problems before its first step, if it is known.
    """

    name: str
    recipe: Recipe
    metrics: list[dict[str, float]]
    held_out_at_start: float | None


def others(places: Sequence[str | Path], *, own: Path) -> list[Other]:
    """The runs in some folders: each is a run's, or holds the folders of finished ones.

    Raises:
        FileNotFoundError: if a folder holds no run.
        ValueError: if they are more than there are colours for.
    """
    folders: list[Path] = []
    for place in map(Path, places):
        inside = sorted(summary.parent for summary in place.glob(f"*/{records.SUMMARY}"))
        alone = (place / records.METRICS).is_file() or not inside
        folders += [place] if alone else inside
    folders = [folder for folder in folders if folder.resolve() != own.resolve()]
    if len(folders) >= len(COLOURS):
        raise UserError(f"compare has {len(folders)} runs, expected at most {len(COLOURS) - 1}")
    return [_other(folder) for folder in folders]


def _other(folder: Path) -> Other:
    metrics, recipe = records.read_metrics(folder), records.read_recipe(folder)
    return Other(folder.name, recipe, metrics, records.held_out_at_start(folder))


def sentence(run: BackgroundRun, *, live: bool) -> str:
    """Where the run is, in a line or two; `live` if there are buttons to press."""
    steps, done = run.recipe.steps, run.step
    so_far = f"step {done} of {steps}"
    words = {
        "new": f"Not started: {steps} steps of {run.recipe.algorithm.name}",
        "preparing": "Preparing the models",
        "training": f"Training: {so_far}",
        "stopping": f"Stopping when this step is done: {so_far}",
        "stopped": f"Stopped after {so_far}" + live * "; Resume goes on from there",
        "finished": f"Finished: {done} steps",
        "failed": f"Failed after {so_far}",
    }
    line = escape(" · ".join([words[run.state], *_numbers(run)]))
    error = "" if run.error is None or run.state != "failed" else error_line(run.error)
    return f'<div class="nb-readout"><p class="nb-state">{line}</p>{error}</div>'


def error_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    line = (str(error) or "no message").splitlines()[0]
    return f'<p class="nb-error" role="alert">{escape(kind + line)}</p>'


def _numbers(run: BackgroundRun) -> list[str]:
    found = []
    if run.metrics:
        last = run.metrics[-1]
        found = [f"{name} {last[name]:.2f}".replace("-", "−") for name in ("reward", "accuracy")]
    if asked := _held_out(run.metrics, run.held_out_at_start):
        step, share = asked[-1]
        found.append(f"held out {share:.2f}" + f" (step {step:.0f})" * (step < run.step))
    if run.state == "training":
        found.append(_left(run))
    return found


def _left(run: BackgroundRun) -> str:
    """A guess, from the last steps."""
    recent = [records.seconds(row) for row in run.metrics[-RECENT:]]
    seconds = sum(recent) / len(recent) * (run.recipe.steps - run.step)
    return f"about {seconds:.0f} s left" if seconds < 100 else f"about {seconds / 60:.0f} min left"


def curves(run: BackgroundRun, beside: Sequence[Other], *, marked: int | None = None) -> str:
    """Two charts: what was sampled, a point for each step, and the held-out problems.

    Args:
        run: whose curves.
        beside: others.
        marked: the step whose texts are shown.
    """
    everyone = [(run.metrics, run.held_out_at_start)]
    everyone += [(other.metrics, other.held_out_at_start) for other in beside]
    steps = max([run.recipe.steps, *(int(rows[-1]["step"]) for rows, _ in everyone if rows)])
    rewards = [[(row["step"], row["reward"]) for row in rows] for rows, _ in everyone]
    asked = [_held_out(rows, start) for rows, start in everyone]
    charts = _chart("reward", rewards, steps, marked) + _chart("held-out accuracy", asked, steps)
    return f'<div class="nb-curves">{charts}</div>'


def _held_out(rows: Sequence[Mapping[str, float]], start: float | None) -> Points:
    """Step → accuracy on the held-out problems, from before the first step."""
    later = [(row["step"], row["held_out"]) for row in rows if "held_out" in row]
    return later if start is None else [(0.0, start), *later]


def _chart(title: str, lines: Sequence[Points], steps: int, marked: int | None = None) -> str:
    shown = [[p for p in line if math.isfinite(p[1])] for line in lines]
    heights = [0.0, *(y for line in shown for _, y in line)]
    low, high = min(heights), max(heights)
    high = 1.0 if high <= 1 else high
    x, y = scale(0, steps, LEFT, RIGHT), scale(low, high, BOTTOM, TOP)
    parts = [
        f'<text x="{LEFT}" y="14" style="font-weight:bold">{title}</text>',
        f'<path d="M{LEFT},{TOP} V{BOTTOM} H{RIGHT}" fill="none" stroke="#222"/>',
        f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>',
    ]
    for tick in (low, (low + high) / 2, high):
        parts.append(
            f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
        )
    for tick in sorted({0, steps // 2, steps}):
        parts.append(
            f'<text x="{x(tick):.1f}" y="{BOTTOM + 18}" text-anchor="middle">{tick}</text>'
        )
    if marked is not None:
        parts.append(
            f'<path class="nb-marked" data-one-step="{x(1) - x(0):.4f}" '
            f'd="M{x(marked):.1f},{TOP} V{BOTTOM}" stroke="#777" stroke-dasharray="2 3"/>'
        )
    drawn = list(zip(shown, COLOURS, DASHES, strict=False))
    for line, colour, dash in reversed(drawn):  # the run's own above the others
        places = [f"{x(step):.1f},{y(height):.1f}" for step, height in line]
        dots = "".join(
            '<circle cx="{}" cy="{}" r="2.5"/>'.format(*place.split(",")) for place in places
        )
        parts.append(
            f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" '
            f'stroke-width="1.5" stroke-dasharray="{dash}"/><g fill="{colour}">{dots}</g>'
        )
    # What the drawing shows is said by the sentence and the table.
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{"".join(parts)}</svg>'


def _number(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def runs(run: BackgroundRun, beside: Sequence[Other]) -> str:
    """The runs with the lines that they are drawn in, and what tells the others apart from this."""
    if not beside:
        return ""
    rows = [(f"{run.folder.name}, this run", run.metrics, run.held_out_at_start)]
    rows += [(other.name, other.metrics, other.held_out_at_start) for other in beside]
    lines = []
    for (name, metrics, start), colour, dash in zip(rows, COLOURS, DASHES, strict=False):
        asked = _held_out(metrics, start)
        numbers = [
            str(int(metrics[-1]["step"])) if metrics else "0",
            f"{metrics[-1]['reward']:.2f}".replace("-", "−") if metrics else "–",
            f"{asked[-1][1]:.2f}" if asked else "–",
        ]
        swatch = (
            f'<svg class="nb-swatch" viewBox="0 0 30 10" aria-hidden="true"><path d="M0,5 H30" '
            f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"/></svg>'
        )
        cells = "".join(f"<td>{number}</td>" for number in numbers)
        lines.append(f'<tr><th scope="row">{swatch} {escape(name)}</th>{cells}</tr>')
    header = "".join(f'<th scope="col">{x}</th>' for x in ("run", "steps", "reward", "held out"))
    apart = "".join(
        f"<p>What is different in {escape(other.name)}: "
        f"{escape(_told_apart(run.recipe, other.recipe))}.</p>"
        for other in beside
    )
    return (
        f'<div class="nb-numbers nb-runs"><table><thead><tr>{header}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>{apart}</div>"
    )


def _told_apart(own: Recipe, other: Recipe) -> str:
    found = [
        f"{each.field}: {_value(each.values['there'])}, not {_value(each.values['here'])}"
        for each in differences({"here": own, "there": other})
        if not each.field.startswith(tuple(f"{table}." for table in comparison.NO_STEP))
    ]
    if own.seed != other.seed:
        found.append(f"seed: {other.seed}, not {own.seed}")
    return "; ".join(found) or "nothing"


def _value(value: Any) -> str:
    return str(value).removeprefix(f"{records.RUNS}/")


def texts(step: int, samples: Sequence[Sample]) -> str:
    """The responses of a step, with their verdicts."""
    rows = "".join(
        f"<tr><td>{_text(s.prompt)}</td><td>{_text(s.response)}</td><td>{_verdict(s)}</td></tr>"
        for s in samples
    )
    header = "".join(f'<th scope="col">{x}</th>' for x in ("prompt", "response", "verdict"))
    return (
        f'<div class="nb-texts"><table><caption>Written in step {step}</caption>'
        f"<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _text(text: str) -> str:
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return f"<code>{escape(short)}</code>" if short else "<em>nothing</em>"


def _verdict(sample: Sample) -> str:
    words = "right" if sample.right else "wrong"
    if sample.truncated:
        words += ", cut off"
    if sample.reward != float(sample.right):
        words += f", reward {_number(sample.reward)}"
    return words


def page(run: BackgroundRun, beside: Sequence[Other]) -> str:
    """All of it for a page without a kernel, with a slider for the step whose texts are read."""
    kept = sorted(run.samples)
    every = -(-len(kept) // MOST) or 1
    chosen = sorted({*kept[::every], *kept[-1:]})
    frames = "".join(
        f'<div class="nb-frame" data-step="{step}" data-from-first="{step - kept[0]}" hidden>'
        f"{texts(step, run.samples[step])}</div>"
        for step in chosen
    )
    slider = (
        '<label>texts of step<input type="range" min="0" '
        f'max="{len(chosen) - 1}" value="0"><output></output></label>'
    )
    drawing = curves(run, beside, marked=kept[0] if kept else None) + runs(run, beside)
    return sentence(run, live=False) + drawing + (slider + frames if kept else "")
