"""A loss that never ends, among those that appendix B lets readers examine."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most(seconds: float, complaint: str) -> Iterator[None]:
    """End the whole program, with one line, if the block takes longer.

    A loop in a reader's code cannot be interrupted politely on every system and in every thread;
    so this is for the command, and not for a notebook.
    """

    def stop() -> None:
        print(f"nbcourse: {complaint}", file=sys.stderr, flush=True)
        os._exit(2)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
