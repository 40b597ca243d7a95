"""Two contenders timed in turn, so that a drift of the machine hits both: read the ratios."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter


def seconds(function: Callable, *arguments: object) -> float:
    """How long one call takes."""
    start = perf_counter()
    function(*arguments)
    return perf_counter() - start


@dataclass(frozen=True)
class Pairs:
    """Seconds of the one and of the other contender, pair by pair."""

    theirs: list[float]
    ours: list[float]

    @property
    def ratio(self) -> str:
        """How many times longer theirs takes: the median, and the least and most."""
        ratios = sorted(slow / fast for slow, fast in zip(self.theirs, self.ours, strict=True))
        return f"{median(ratios):.2f} [{ratios[0]:.2f}, {ratios[-1]:.2f}]"

    def milliseconds(self) -> tuple[float, float]:
        """The medians, theirs first."""
        return median(self.theirs) * 1e3, median(self.ours) * 1e3


def in_turn(theirs: Callable, ours: Callable, *arguments: object, pairs: int) -> Pairs:
    """Call both once to warm up, then time them in turn."""
    theirs(*arguments), ours(*arguments)
    timed = [(seconds(theirs, *arguments), seconds(ours, *arguments)) for _ in range(pairs)]
    return Pairs([slow for slow, _ in timed], [fast for _, fast in timed])
