"""What submissions run in, started once for all tests, and who grades them."""

import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

from nbcourse.builds import grading, hunt
from nbcourse.classroom import batch
from nbcourse.confined import student
from nbcourse.confined.forkserver import Zygote
from tests import script


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """It is that of graders as well, and those are forked from where other tests' processes are.

    Commands in processes of their own start theirs.
    """
    with Zygote() as running, pytest.MonkeyPatch.context() as patch:
        for room in (batch, grading, hunt):
            patch.setattr(room, "Zygote", lambda: nullcontext(running))
        for room in (batch, grading):
            patch.setattr(room, "graders", lambda module: script.context())
        yield running


class Here:
    """In place of a zygote: its fork servers come from this process, as a function changes it."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.change = change

    def fork(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        forked = multiprocessing.get_context("fork")
        with theirs:
            forked.Process(target=self._serve, args=(ours, theirs), daemon=True).start()
        return ours

    def _serve(self, ours: socket.socket, theirs: socket.socket) -> None:
        ours.close()
        self.change()
        student.fork_students(theirs)
