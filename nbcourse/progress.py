"""Progress bars for long work, as text: alike in a terminal and under the cell of a notebook."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def track(
    steps: Iterable[T], label: str, *, visible: bool = True, total: int | None = None, done: int = 0
) -> "tqdm[T]":
    """Iterate over the steps with a progress bar.

    In a terminal the full bar stays; elsewhere it vanishes when the work is done, so that a
    notebook does not store how long it took.

    Args:
        steps: what is iterated over.
        label: in front of the bar.
        visible: whether to draw at all.
        total: number of steps, where `steps` does not know it.
        done: steps that were done before.
    """
    return tqdm(
        steps,
        desc=label,
        total=total,
        initial=done,
        disable=not visible,
        file=sys.stdout,
        leave=sys.stdout.isatty(),
        mininterval=0.3,
        ncols=88,
    )
