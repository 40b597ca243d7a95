"""`python -m …` and the workers of pytest, forked from a process that has done the imports.

Python by itself spends 5 processor seconds on what `nbcourse train` imports. A forked program is a
process of its own all the same, with its own words, variables, folder and streams.
"""

import inspect
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from execnet.gateway_io import popen_bootstrapline
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from tests import forked_kernels, script

SPAWNED = subprocess.Popen
WORKER = ["-c", popen_bootstrapline]  # what pytest-xdist gives Python, for a worker
NAMES = tuple(inspect.signature(SPAWNED._execute_child).parameters)  # type: ignore[attr-defined]


def use() -> None:
    """Let all of these that this process starts be forked, where the system can fork.

    What torchrun starts as well, though it has a name of its own for Popen.
    """
    subprocess.Popen = popen()  # type: ignore[misc]
    vars(subprocess_handler).update(Popen=popen())


def popen() -> type[SPAWNED]:
    """What starts them as a fork, where the system can fork."""
    return Forked if sys.platform == "linux" else SPAWNED


class Forked(SPAWNED):
    """As `Popen`, which it is for all other programs."""

    forked = None

    def _execute_child(self, *arguments: Any) -> None:
        asked = dict(zip(NAMES[1:], arguments, strict=True))
        python, *words = (word for word in asked["args"] if word != "-u")
        if python != sys.executable or (words[:1] != ["-m"] and words != WORKER):
            return super()._execute_child(*arguments)  # type: ignore[misc]
        ends = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [Connection(os.dup(i if end == -1 else end)) for i, end in enumerate(ends)]
        folder, env = asked["cwd"] or os.getcwd(), asked["env"] or os.environ
        leads = asked["start_new_session"]
        deaf = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        what = script.server(), words, str(folder), dict(env), streams, leads, deaf
        self.forked = script.process(_program, *what)
        self.pid, self._child_created = self.forked.pid, True
        for stream in streams:
            stream.close()
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]

    def _internal_poll(self, *arguments: Any, **more: Any) -> int | None:
        if self.forked is None:
            return super()._internal_poll(*arguments, **more)  # type: ignore[misc]
        self.returncode = self.forked.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.forked is None:
            return super()._wait(timeout)  # type: ignore[misc]
        self.forked.join(timeout)
        if self._internal_poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


def _program(
    server: Mapping[str, Any],
    words: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    streams: Sequence[Connection],
    leads: bool,
    deaf: bool,
) -> None:
    """What Python does with these words, in a folder, in a session of its own or not.

    Ctrl-C is ignored if whoever starts it ignores it, as what Popen starts inherits.
    """
    if leads:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN if deaf else signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has put another there
    script.end_with_the_parent()
    script.share(server)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, folder)
    option, what, *arguments = words
    if option == "-c":
        # what its tests kill leaves semaphores behind, of which a tracker of its own may speak
        vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)  # type: ignore[attr-defined]
        exec(what, {})
        return
    sys.argv = [what, *arguments]
    use()
    forked_kernels.use()
    runpy.run_module(what, run_name="__main__", alter_sys=True)
