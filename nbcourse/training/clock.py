"""What each phase of a step takes: seconds, and bytes of memory at most."""

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from time import perf_counter

import torch

_RESET = Path("/proc/self/clear_refs")  # Linux: "5" forgets the peak of the resident memory
_STATUS = Path("/proc/self/status")  # Linux: has that peak
_highest = 0  # bytes, of all peaks that were looked at


class Clock:
    """Seconds and peak memory of the phases of a step.

    Memory that earlier phases gave back is returned to the system before a phase begins, as far as
    the C library can do that: what a phase holds is then what it needs.

    Attributes:
        seconds: spent in each phase.
        memory: bytes that the process held at most during each; see `peak_memory`.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.memory: dict[str, int] = {}
        self._running: str | None = None
        self._since = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Measure what happens within.

        A phase that comes twice has the seconds of both times; one within another is left out of
        that.
        """
        outer = self._running
        self._turn_to(phase)
        try:
            yield
        finally:
            self._turn_to(outer)

    def _turn_to(self, phase: str | None) -> None:
        """Count what the running phase has taken since it last began, and let another begin."""
        seconds, memory = perf_counter() - self._since, _peak()
        if self._running is not None:
            self.seconds[self._running] = self.seconds.get(self._running, 0.0) + seconds
            self.memory[self._running] = max(self.memory.get(self._running, 0), memory)
        _forget_peak()
        self._running, self._since = phase, perf_counter()

    def report(self) -> dict[str, float]:
        """The numbers of each phase, by names such as `seconds_learn` and `memory_learn`."""
        return {
            **{f"seconds_{phase}": seconds for phase, seconds in self.seconds.items()},
            **{f"memory_{phase}": memory for phase, memory in self.memory.items()},
        }


def peak_memory() -> int:
    """Bytes that this process has held at most: on the GPU if there is one, or else in memory.

    In memory that counts the whole process, Python and libraries included, and what the C library
    keeps of blocks that were given back to it during the same phase.
    """
    _peak()
    return _highest


def resident() -> int:
    """Bytes that this process holds now, counted as `peak_memory` counts them."""
    if torch.cuda.is_available():
        return torch.cuda.memory_allocated()
    import psutil

    return int(psutil.Process().memory_info().rss)


def _peak() -> int:
    """Bytes held at most since they were forgotten; they go into `_highest`."""
    global _highest
    peak = _measured()
    _highest = max(_highest, peak)
    return peak


def _measured() -> int:
    """Bytes held at most since they were forgotten; ever, where that is not to be had."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    # What getrusage says on Linux is at least the peak of the process that started this one.
    if _STATUS.exists() and (found := re.search(r"^VmHWM:\s*(\d+) kB", _STATUS.read_text(), re.M)):
        return int(found[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def _trim() -> Callable[[int], int] | None:
    """`malloc_trim`, where the C library has it: glibc keeps freed blocks until it is called."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return None
    return found


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    if (trim := _trim()) is not None:
        trim(0)
    if _RESET.exists():
        with suppress(OSError):  # not allowed in this container
            _RESET.write_text("5", encoding="ascii")
