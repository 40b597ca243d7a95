"""Stopping a run by hand, by the clock or by a cluster's order: the step at work is kept."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from nbcourse.errors import UserError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
REPEATED = 1.0  # seconds: torchrun passes on what a terminal has sent to every process already


def never() -> bool:
    """The answer of those who do not want a run to stop."""
    return False


def after_minutes(minutes: float) -> Callable[[], bool]:
    """Whether so many minutes have passed, counted from this call.

    Raises:
        ValueError: if the minutes are not above 0.
    """
    if not minutes > 0:
        raise UserError(f"--max-minutes is {minutes:g}, expected a number above 0")
    end = monotonic() + 60 * minutes
    return lambda: monotonic() >= end


@contextmanager
def after_this_step(wanted: Callable[[], bool] = never) -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C or SIGTERM instead of being interrupted; a second one interrupts.

    A signal that is ignored, as Ctrl-C is in the background of a shell script, stays ignored.
    Threads other than the main one are sent no signals, and nothing changes for them.

    Args:
        wanted: whether the run is to stop for another reason, such as a button.

    Yields:
        Whether the run has been asked to stop.
    """
    asked: list[float] = []  # when

    def note(number: int, frame: FrameType | None) -> None:
        if not asked:
            asked.append(monotonic())
            print("\nstopping after this step; once more to stop at once", file=sys.stderr)
        elif monotonic() - asked[0] > REPEATED:
            raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield lambda: bool(asked) or wanted()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
