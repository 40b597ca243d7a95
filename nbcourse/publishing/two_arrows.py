"""The README's picture: as a rare arm pays more, GRPO's mean step turns until it points downhill.

    python -m nbcourse.publishing.two_arrows book/_static/two-arrows.svg

Chapter 1's bandit: arms of probability 0.90, 0.01 and 0.09 that pay 1, x and 0. Blue is the exact
gradient ∇J, turned so that it points up. Orange is the exact mean, over all groups of three pulls,
of the estimate with advantages divided by their standard deviation (eq-group-relative).
"""

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from nbcourse import durable
from nbcourse.functional import advantages
from nbcourse.toys import bandit, enumeration

PAYS = (1, 2, 3, 5, 8, 13, 20, 30, 45, 65, 85, 100)
SECONDS = 8  # of one round of the animation, there and back
BLUE, ORANGE = "#0072b2", "#d55e00"


def angle(rare_pays: float) -> float:
    """Degrees from ∇J to the mean of the divided estimate; beyond 90 a step lowers J."""
    probs = torch.tensor([0.90, 0.01, 0.09], dtype=torch.float64)
    rewards = torch.tensor([1.0, rare_pays, 0.0], dtype=torch.float64)
    groups = enumeration.groups(3, 3)
    weights = advantages.group_relative(rewards[groups].view(-1), group_size=3).view(-1, 3, 1)
    estimates = (weights * bandit.score_vectors(probs.log())[groups]).mean(dim=1)
    step = enumeration.mean(enumeration.group_probs(probs, groups), estimates)
    from_north = _bearing(step) - _bearing(bandit.gradient(probs.log(), rewards))
    return abs((from_north + 180) % 360 - 180)


def _bearing(gradient: Tensor) -> float:
    """Its direction, in degrees, among the gradients of three logits: these sum to 0."""
    first, second, third = gradient.tolist()
    return math.degrees(
        math.atan2((first + second - 2 * third) / 6**0.5, (first - second) / 2**0.5)
    )


def picture(pays: Sequence[float] = PAYS) -> str:
    """The animation, as SVG that needs no script."""
    there_and_back = [*pays, *pays[-2:0:-1]]
    turns = ";".join(f"{angle(x):.1f} 150 190" for x in [*there_and_back, pays[0]])
    arrow = '<path d="M0 0V-112" stroke-width="7"/><path d="M-13 -104L0 -134L13 -104Z"/>'
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 240" font-size="19" '
            'font-family="sans-serif">',
            "<title>The gradient of the expected reward points up. The mean of GRPO's estimate "
            "turns away from it as a rare arm pays more, until it points downhill.</title>",
            '<rect width="640" height="240" rx="8" fill="#fff"/>',
            '<path d="M30 190H270" stroke="#bbb" stroke-dasharray="4 5"/>',
            f'<g fill="{BLUE}" stroke="{BLUE}" transform="translate(150 190)">{arrow}</g>',
            f'<g fill="{ORANGE}" stroke="{ORANGE}"><g transform="translate(150 190)">{arrow}</g>',
            f'<animateTransform attributeName="transform" type="rotate" dur="{SECONDS}s" '
            f'repeatCount="indefinite" values="{turns}"/></g>',
            f'<text x="300" y="62" fill="{BLUE}">∇J: the way up, exactly</text>',
            f'<text x="300" y="94" fill="{ORANGE}">GRPO\'s mean step, exactly</text>',
            *_captions(there_and_back),
            "</svg>",
            "",
        ]
    )


def _captions(pays: Sequence[float]) -> Iterator[str]:
    """What the rare arm pays, each shown while its direction is."""
    for number, x in enumerate(pays):
        shown = ";".join("1" if at == number else "0" for at in range(len(pays)))
        degrees = angle(x)
        way = "downhill" if degrees > 90 else "uphill"
        yield (
            f'<text x="300" y="150" opacity="{number == 0:d}">'
            f"<tspan>the rare arm pays {x:g}:</tspan>"
            f'<tspan x="300" dy="30">{degrees:.0f}° apart, {way}</tspan>'
            f'<animate attributeName="opacity" dur="{SECONDS}s" repeatCount="indefinite" '
            f'calcMode="discrete" values="{shown}"/></text>'
        )


if __name__ == "__main__":
    durable.write(Path(sys.argv[1]), picture().encode())
