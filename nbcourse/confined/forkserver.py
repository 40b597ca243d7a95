"""Processes for students' code, for the cost of a fork each; and how their graders start.

Three kinds of processes: a `Zygote` has imported torch, a `ForkServer` is forked from it for each
grading process, and a child is forked from that for each submission.
"""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nbcourse.confined import cgroups
from nbcourse.confined.cgroups import ControlGroup
from nbcourse.confined.sandbox import Limits
from nbcourse.repository import ROOT


class Zygote:
    """A process that has imported torch, for the fork servers of all graders to be forked from.

    It is a program of its own in an environment of its own: nothing of this process is in it. Use
    it in a `with` statement. It can be sent to processes that this one starts; it ends when no
    process holds it any more, also when they are killed.
    """

    def __enter__(self) -> "Zygote":
        cgroups.place()  # this process may have to move there, and the zygote with it
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nbcourse.confined.student", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the grader, who then ends it
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        self._process.kill()  # it may still be importing torch; what was forked from it goes on
        self._process.wait()

    def __getstate__(self) -> dict[str, socket.socket]:
        return {"_orders": self._orders}

    def fork(self) -> socket.socket:
        """A channel to a fork server; it waits there until the zygote is ready to fork it."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._orders, [b"."], [theirs.fileno()])
        return ours


class ForkServer:
    """Starts and ends children of `nbcourse.confined.student`; at most one at a time.

    Use it in a `with` statement: the server and its child end with it, and also when this process
    is killed.

    Args:
        zygote: what the server is forked from.
        confined: whether the children confine themselves. Without, a student's code can do what
            the user can who grades.
    """

    def __init__(self, zygote: Zygote, *, confined: bool = True) -> None:
        self.zygote, self.confined = zygote, confined

    def __enter__(self) -> "ForkServer":
        self._control = self.zygote.fork()
        self._ready = False  # the zygote imports torch, and so can we meanwhile
        return self

    def __exit__(self, *_: object) -> None:
        with self._control, suppress(ConnectionError):
            if self._ready:
                self._control.shutdown(socket.SHUT_WR)
                self._control.recv(64)  # nothing: returns when the server has ended

    def start(
        self, folder: Path, limits: Limits, group: ControlGroup | None = None
    ) -> tuple[socket.socket, int]:
        """Fork a child whose only writable folder is `folder`; the channel to it, and its number.

        Args:
            folder: empty.
            limits: what the child may use.
            group: the control group that it is to be in, which the server removes if this process
                cannot, since it was killed.

        Raises:
            RuntimeError: if the machine has no room for another process; the next one may start.
        """
        if not self._ready and self._control.recv(64) != b"ready":
            raise RuntimeError("the process that students' code is forked from did not start")
        self._ready = True
        ours, theirs = socket.socketpair()
        order = {
            "folder": str(folder),
            "limits": asdict(limits),
            "confined": self.confined,
            "group": None if group is None else {k: str(at) for k, at in group.folders.items()},
        }
        with theirs:
            socket.send_fds(
                self._control, [json.dumps({"start": order}).encode()], [theirs.fileno()]
            )
            answer = self._control.recv(1024)
        started, _, number = answer.decode().partition(" ")
        if started != "started":
            ours.close()
            reason = answer.decode() or "the process that students' code is forked from has ended"
            raise RuntimeError(reason)
        return ours, int(number)

    def end(self) -> tuple[int, float]:
        """Kill the child; its exit status, negative for the signal that ended it, and its seconds.

        The seconds are those of the processor.
        """
        self._control.sendall(json.dumps({"end": True}).encode())
        status, used = (self._control.recv(64) or b"-9 0").split()
        return int(status), float(used)


def graders(module: str) -> Any:
    """How grading processes start: from one that has imported a module, where the system can fork.

    Args:
        module: what each of them would import.

    Returns:
        The context of `multiprocessing`.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([module])
    return context


def _environment() -> dict[str, str]:
    """The environment of the fork server, without the names, tokens and paths of the grader."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "HF_HUB_OFFLINE": "1",
    }
