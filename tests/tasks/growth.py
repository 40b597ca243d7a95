"""How much longer a function takes for a longer text, whatever else the machine is doing."""

import time
from collections.abc import Callable
from itertools import pairwise

SIZES = (1_000, 8_000, 64_000, 512_000)
USUAL = SIZES[2]  # so far goes `make test`: what is quadratic takes seconds there
SLACK = 3  # eight times the text may take 24 times as long; quadratic growth takes 64 times
TRIES = 9
HOPELESS = 1.0  # seconds: no pause of a machine is so long, and nine such tries are too many


def assert_linear(
    function: Callable[[str], object], text_of: Callable[[int], str], *, largest: int = USUAL
) -> None:
    """Require that eight times the text takes about eight times as long, three times in a row.

    Processor time, the shortest of several tries: what else runs on the machine makes some tries
    longer, but hardly all of them, and by a factor. The sizes rise, so that what is quadratic
    fails in seconds and not in hours.
    """
    before = min(_seconds(function, text_of(SIZES[0])) for _ in range(TRIES))
    for small, large in pairwise(size for size in SIZES if size <= largest):
        most = before * SLACK * large / small
        text, now = text_of(large), float("inf")
        for _ in range(TRIES):
            now = min(now, _seconds(function, text))
            if now < most or now > max(HOPELESS, 4 * most):
                break
        assert now < most, f"from {small:,} to {large:,} characters: {now / before:.0f}-fold"
        before = now


def _seconds(function: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    function(text)
    return time.process_time() - start
