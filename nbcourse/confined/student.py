"""The process in which a student's code runs, and those that it is forked from.

`python -m nbcourse.confined.student FD` imports torch once, which takes a second or two, and then
waits for sockets that come through the socket FD. For each it forks a fork server, one for each
grading process. Told to start, a fork server forks; the child confines itself before it runs the
first line of a submission. The processes that fork hold nothing that is worth reading: no tests, no
masters, no other submission.

The child answers requests: run a cell, call a function, send gradients back through a call. It
trusts what it is sent; the grader does not trust what it answers.
"""

import builtins
import errno
import json
import linecache
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import torch._dynamo  # else each child's first gradient or optimiser loads it: a second
from torch import Tensor

from nbcourse.confined import sandbox, sheet_numbers, wire
from nbcourse.confined.cells import WithoutIPython, plain_python, writable
from nbcourse.confined.cgroups import ControlGroup

CELL = "<cell {}>"
FORK_TRIES = 50  # a tenth of a second apart
LONGEST_ERROR = 2000  # characters of an error's message
# It asks what the processor can do, in files that a confined process cannot open.
torch.ones(1).half()


class StudentCode:
    """The names of a submission, and the answers of its functions."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        self.names["get_ipython"] = lambda: WithoutIPython(self.names)
        self.names["display"] = lambda *objects, **options: None
        self.functions: dict[str, Callable[..., Any]] = {}
        self.settled: list[dict[str, Any]] = []  # the names where checks stand
        self.graphs: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self.sources: dict[str, list[str]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a request asks for, or {"error": …}; nothing that a student's code does escapes."""
        doing = {
            "prepare": self.prepare,
            "run": self.run,
            "call": self.call,
            "backward": self.backward,
        }
        try:
            return doing[request["do"]](request)
        except BaseException as error:
            return {"error": self.describe(error)}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take over what the sheet's statements speak of, before the first cell."""
        tensors = [wire.to_tensor(node)[0] for node in request["tensors"]]
        sheet_numbers.install(*wire.unpack(request["structure"], tensors))
        return {}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a cell, also one that fails half-way, and tell about the names it was to define."""
        file = CELL.format(request["cell"])
        self.sources[file] = request["source"].splitlines()
        error, before = None, dict(self.names)
        try:
            python = plain_python(request["source"])
            # Where IPython puts it too: `torch.jit.script` and `inspect` read the source again.
            linecache.cache[file] = (len(python), None, python.splitlines(keepends=True), file)
            exec(compile(python, file, "exec"), self.names)
        except BaseException as raised:
            error = self.describe(raised)
        report: dict[str, Any] = {}
        for name in (*request["functions"], *request["values"]):
            report[name] = {}
            found = self.names.get(name, ...)
            # not assigned, or left open: `answer = ...`; or the cell ended before it came to that
            if found is ... or (error and found is before.get(name)):
                continue
            if name in request["functions"]:
                if callable(found):
                    self.functions[f"{request['cell']}:{name}"] = found
                report[name] = {"function": callable(found)}
                continue
            try:
                report[name] = wire.parcel(self.names[name])
            except BaseException as raised:
                report[name] = {"error": self.describe(raised)}
        for names in self.settled:  # a helper may be defined below the check
            names.update({name: self.names[name] for name in self.names.keys() - names.keys()})
        self._settle(request["settled"])
        return {"error": error, "names": report}

    def _settle(self, functions: list[str]) -> None:
        """Let functions see the names that there are now, whatever later cells make of them."""
        if not functions:
            return
        names = dict(self.names)
        copies = {
            id(value): _with_names(value, names)
            for value in (*self.names.values(), *map(self.functions.get, functions))
            if isinstance(value, FunctionType) and value.__globals__ is self.names
        }
        names.update({name: copies.get(id(value), value) for name, value in names.items()})
        for function in functions:
            if function in self.functions:
                found = self.functions[function]
                self.functions[function] = copies.get(id(found), found)
        self.settled.append(names)

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call a function; where gradients are wanted, keep the graph until it is released."""
        for number in request["release"]:
            self.graphs.pop(number, None)
        sent = [wire.to_tensor(node) for node in request["tensors"]]
        inputs = [tensor.requires_grad_(wanted) for tensor, wanted in sent]
        arguments, keywords = wire.unpack(request["structure"], inputs)
        with torch.set_grad_enabled(request["grad_enabled"]):
            result = self.functions[request["function"]](*arguments, **keywords)
            _, outputs = wire.pack(result)
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        if wanted and any(output.requires_grad for output in outputs):
            self.graphs[request["number"]] = wanted, outputs
        changed = [
            [index, after]
            for index, (before, tensor) in enumerate(zip(request["tensors"], inputs, strict=True))
            if (after := wire.from_tensor(tensor.detach()))["data"] != before["data"]
            and after["shape"] == before["shape"]
        ]
        return wire.parcel(result) | {"changed": changed}

    def backward(self, request: dict[str, Any]) -> dict[str, Any]:
        """Gradients of a kept call's inputs, given those of its outputs."""
        inputs, outputs = self.graphs[request["call"]]
        given = [wire.to_tensor(node)[0] for node in request["tensors"]]
        gradients = torch.autograd.grad(
            [output for output in outputs if output.requires_grad],
            inputs,
            given,
            retain_graph=True,
            allow_unused=True,
        )
        return {"gradients": [None if g is None else wire.from_tensor(g) for g in gradients]}

    def describe(self, error: BaseException) -> dict[str, Any]:
        """An error in a form that can be sent: its type's name, its message, the student's line."""
        try:
            message = str(error)[:LONGEST_ERROR]
        except BaseException:
            message = ""
        if isinstance(error, wire.NotPlain):
            kind = "not-plain"
        elif isinstance(error, wire.TooBig):
            kind = "too-big"
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            kind = "disk"
        elif isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate" in message:
            kind = "memory"
        elif isinstance(error, Exception):
            kind = "raised"
        else:  # SystemExit, KeyboardInterrupt
            kind = "ended"
        return {
            "kind": kind,
            "type": type(error).__name__[:80],
            "message": writable(message),
            "line": self._line(error),
        }

    def _line(self, error: BaseException) -> str:
        """The last of the student's own lines that was running."""
        own = [
            (frame.f_code.co_filename, number)
            for frame, number in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename in self.sources
        ]
        if isinstance(error, SyntaxError) and error.filename in self.sources:
            own.append((error.filename, error.lineno or 1))
        if not own:
            return ""
        file, number = own[-1]
        lines = self.sources[file]
        line = lines[number - 1].strip() if 1 <= number <= len(lines) else ""
        return writable(line[:200])


def _with_names(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """A copy of a function whose global names are these."""
    copy = FunctionType(
        *(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    return copy


def serve(channel: socket.socket) -> None:
    """Answer requests until the grader closes the channel."""
    student = StudentCode()
    while True:
        try:
            request = wire.receive(channel)
        except EOFError:
            return
        answer = student.answer(request)
        answer["number"] = request["number"]
        try:
            wire.send(channel, answer)
        except wire.TooBig as error:
            refusal = {"error": student.describe(error), "number": request["number"]}
            wire.send(channel, refusal)


def _become_student(channel: int, order: dict[str, Any]) -> None:
    """In the forked child: keep one descriptor, confine, serve; never return."""
    try:
        sandbox.die_with_parent()
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        kept = os.dup(channel)  # beyond the numbers that are about to be overwritten
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.dup2(kept, 3)
        os.closerange(4, 4096)
        folder = Path(order["folder"])
        os.chdir(folder)
        os.environ.update(HOME=str(folder), TMPDIR=str(folder), MPLCONFIGDIR=str(folder))
        tempfile.tempdir = str(folder)  # it would look for one by writing and removing a file
        with socket.socket(fileno=3) as connection:
            watched = []
            try:
                if (group := _group(order)) is not None:
                    group.enter()
                if order["confined"]:
                    limits = sandbox.Limits(**order["limits"])
                    watched = sandbox.confine(folder, limits, grouped=group is not None)
            except OSError as error:
                wire.send(connection, {"refused": str(error)})
                return
            wire.send(connection, {"refused": None, "watched": watched})
            random.seed(0)
            torch.manual_seed(0)
            serve(connection)
    finally:
        os._exit(0)


def _group(order: dict[str, Any]) -> ControlGroup | None:
    """The control group of the submission, if it has one."""
    folders = order["group"]
    return (
        None if folders is None else ControlGroup({name: Path(at) for name, at in folders.items()})
    )


def main() -> None:
    """Fork a fork server for each socket that comes, until no grader can send one any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a fork server
    torch.set_num_threads(1)
    sandbox.rights()  # looked up once, and not by each child
    orders = socket.socket(fileno=int(sys.argv[-1]))
    while True:
        order, descriptors, *_ = socket.recv_fds(orders, 1, 1)
        if not order:
            return
        with socket.socket(fileno=descriptors[0]) as control:
            try:
                server = _fork()
            except OSError:  # no room for a process: its grader sees that the socket is closed
                continue
            if not server:
                orders.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return fork_students(control)


def fork_students(control: socket.socket) -> None:
    """Fork a child for each {"start": …}, end it at each {"end": …}, until the socket closes."""
    child, group = 0, None
    try:
        control.sendall(b"ready")
        while True:
            request, descriptors, *_ = socket.recv_fds(control, 65536, 1)
            if not request:
                return
            order = json.loads(request)
            if "start" in order:
                group = _group(order["start"])
                try:
                    child = _fork()
                    answer = f"started {child}"
                except OSError as error:
                    answer = f"no process for the submission: {error}"
                else:
                    if not child:
                        control.detach()
                        _become_student(descriptors[0], order["start"])
                os.close(descriptors[0])
                control.sendall(answer.encode())
            else:
                ended, child = child, 0
                control.sendall(_end(ended).encode())
    except ConnectionError:
        return  # the grader was killed
    finally:
        if child:
            _end(child)
        if group is not None:
            group.remove()


def _fork() -> int:
    """Fork; wait and try again while the threads of a killed submission are still ending."""
    for _ in range(FORK_TRIES):
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(0.1)
    return os.fork()


def _end(child: int) -> str:
    """Kill the child and what it has started; its exit status, and its processor seconds."""
    for kill in (os.killpg, os.kill):
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has no group of its own yet
            continue
    _, status, used = os.wait4(child, 0)
    return f"{os.waitstatus_to_exitcode(status)} {used.ru_utime + used.ru_stime}"


if __name__ == "__main__":
    main()
