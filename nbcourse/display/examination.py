"""The report of `nbcourse examine` as one page that needs nothing else.

Three sentences, three pictures, the findings. Appendix B examines losses.
"""

import math
from html import escape

from matplotlib.axes import Axes

from nbcourse.display.figures import as_svg, figure
from nbcourse.examine.facts import Facts
from nbcourse.examine.ratio import RATIOS
from nbcourse.examine.report import Report
from nbcourse.mistakes.findings import Finding, paragraph

STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } svg { max-width: 100%; height: auto; }
li { margin: 1rem 0; } .mistake { border-left: 4px solid #b00020; padding-left: .7rem; }
.choice { border-left: 4px solid #1f5fa8; padding-left: .7rem; }
.note { border-left: 4px solid #777; padding-left: .7rem; } ul { list-style: none; padding: 0; }
"""


def page(report: Report) -> str:
    """The page, in HTML with inline styles and pictures."""
    name = escape(report.name)
    verdict = "".join(f"<p>{escape(sentence)}</p>" for sentence in report.verdict())
    findings = "".join(map(_item, report.findings))
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{STYLE}</style><h1>{name}</h1>{verdict}{_pictures(report.facts)}"
        f"<ul>{findings}</ul></html>\n"
    )


def _item(finding: Finding) -> str:
    lines = paragraph([finding], mark=f"{finding.kind}: ", indent="")
    first, *others = map(escape, lines)
    said = "<br>".join([f"<strong>{first}</strong>", *others])
    return f'<li class="{finding.kind}">{said}</li>'


def _pictures(facts: Facts) -> str:
    picture, axes = figure(1, 3)
    _prompts(axes[0], facts)
    _positions(axes[1], facts)
    _ratios(axes[2], facts)
    described = (
        "How much a prompt counts by its success rate, a token by its position, and a token by its "
        "ratio to the policy that sampled it"
    )
    return as_svg(picture).replace("<svg", f'<svg role="img" aria-label="{described}"', 1)


def _prompts(axis: Axes, facts: Facts) -> None:
    axis.plot([*facts.difficulty], [*facts.difficulty.values()], "o-")
    axis.set(xlabel="success rate", ylabel="factor of ∇J", title="weight of a prompt", xlim=(0, 1))
    weights = [0.0, *filter(math.isfinite, facts.difficulty.values())]
    axis.set_ylim(1.1 * min(weights), 1.1 * max(weights) or 1.0)


def _positions(axis: Axes, facts: Facts) -> None:
    axis.bar(range(1, len(facts.positions) + 1), facts.positions)
    axis.set(xlabel="position", ylabel="relative to the last", title="weight of a token")


def _ratios(axis: Axes, facts: Facts) -> None:
    axis.plot(RATIOS, facts.clip.positive, "o-", label="A > 0")
    axis.plot(RATIOS, facts.clip.negative, "s--", label="A < 0")
    axis.set(
        xscale="log",
        xlabel="π/π_old",
        ylabel="relative to a fresh one",
        title="weight of a stale token",
    )
    axis.set_yscale("symlog", linthresh=1)
    axis.legend()
