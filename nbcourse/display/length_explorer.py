"""The four averages over tokens, for answers whose lengths a reader chooses."""

from collections.abc import Sequence

from IPython.display import HTML

from nbcourse.display.in_page import in_page
from nbcourse.functional.aggregation import MODES
from nbcourse.training.algorithms import ALGORITHMS

MOST = 4  # answers: as many have a colour


def explore_lengths(lengths: Sequence[int] = (12, 6, 3, 1), *, limit: int = 24) -> HTML:
    """Move the lengths of a few answers: what a token of each weighs under the four averages.

    Args:
        lengths: tokens of each answer at first, one to four answers.
        limit: tokens of the longest answer allowed, by which Dr. GRPO divides.

    Returns:
        What a cell shows when it is its last line; the same in a live notebook and on the site.

    Raises:
        ValueError: if there are too many answers, or one is empty or beyond the limit.

    Book: equation (eq-aggregation).
    """
    if not 1 <= len(lengths) <= MOST or not all(1 <= length <= limit for length in lengths):
        raise ValueError(
            f"lengths is {tuple(lengths)}, expected one to {MOST} numbers from 1 to {limit}"
        )
    users = {
        mode: ", ".join(name for name, row in ALGORITHMS.items() if row.aggregation == mode)
        for mode in MODES
    }
    return in_page("length", list(lengths), limit, users, parts=["curves", "numbers"])
