"""Processes for students' code, one after the other, for the cost of a fork each."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from nbcourse.confined import cgroups
from nbcourse.confined.cgroups import ControlGroup
from nbcourse.confined.sandbox import Limits
from nbcourse.repository import ROOT


class ForkServer:
    """Starts and ends children of `nbcourse.confined.student`; at most one at a time.

    Use it in a `with` statement: the server and its child end with it, and also when this process
    is killed.

    Args:
        confined: whether the children confine themselves. Without, a student's code can do what
            the user can who grades.
        imports: modules that every child would import, imported before the first is forked.
    """

    def __init__(self, *, confined: bool = True, imports: Sequence[str] = ()) -> None:
        self.confined, self.imports = confined, imports

    def __enter__(self) -> "ForkServer":
        cgroups.place()  # this process may have to move there, and the server with it
        self._control, theirs = socket.socketpair()
        with theirs:
            program = [sys.executable, "-P", "-m", "nbcourse.confined.student"]
            self._process = subprocess.Popen(
                [*program, *self.imports, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C is for the grader, who then ends the server
            )
        self._ready = False  # it imports torch, and so can we meanwhile
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()
        if not self._ready:  # nothing was forked from it, and it may still be importing torch
            self._process.kill()
        self._process.wait()

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
