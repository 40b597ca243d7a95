"""A submission's functions in the grader's process: they are called here and run elsewhere.

A `Session` is one submission in its own process. Its functions are proxies that take and return
plain data, and that gradients flow through as if the code ran here: the call is a node of the graph
here, and its backward asks the process, which has kept the graph behind it.
"""

import itertools
import os
import re
import select
import signal
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nbcourse.confined import cgroups, folder, wire
from nbcourse.confined.forkserver import ForkServer
from nbcourse.confined.sandbox import Limits
from nbcourse.confined.submission_errors import Ending, SubmissionError, raised
from nbcourse.repository import ROOT

LOOK_EVERY = 0.25  # seconds: how often the clock and the folder are looked at


class SandboxFailed(RuntimeError):
    """The kernel refused to confine a process. Nothing of the submission was run."""


@dataclass(frozen=True)
class StudentCell:
    """A code cell of a submission that is to be run.

    Args:
        number: its position in the notebook.
        source: its text.
        functions, values: names it should define; empty where it is no solution cell.
        settled: functions, each with the number of its cell, that from here on see all names as
            they are after this cell, where their check stands.
    """

    number: int
    source: str
    functions: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    settled: tuple[tuple[int, str], ...] = ()


@dataclass
class CellOutcome:
    """What a cell did when it was run.

    Args:
        defined: name → proxy of the function, or value. What was not defined is not there.
        error: why the cell ended early, or None.
        unusable: name → why its value cannot be graded.
    """

    defined: dict[str, Any] = field(default_factory=dict)
    error: SubmissionError | None = None
    unusable: dict[str, SubmissionError] = field(default_factory=dict)


class Session:
    """One submission, running. Use it in a `with` statement.

    A cell or call that ends the process costs the exercise that it belongs to. The next cell gets a
    new process in which all cells have been run again, less those that end it. Where the machine
    has control groups, all of these processes, and what they start, are in one.

    Args:
        server: where processes come from.
        cells: code cells, in order.
        limits: what the submission may use.
        sheet: chapter, variant and the numbers of each exercise's statement.

    Attributes:
        outcomes: number of a cell → what it did.
        watched: what is not limited by the kernel here, in words.
        memory: the most bytes that it held at any time; 0 without a control group.
        by_reference: whether a call's changes to its tensor arguments are copied back.
    """

    def __init__(
        self,
        server: ForkServer,
        cells: Iterable[StudentCell],
        limits: Limits,
        sheet: tuple[str, int, dict[str, Any]] = ("", 0, {}),
    ) -> None:
        self.server, self.cells, self.limits = server, list(cells), limits
        self._sheet = wire.parcel(sheet)
        self.outcomes: dict[int, CellOutcome] = {}
        self._last_error: SubmissionError | None = None
        self.watched: tuple[str, ...] = ()
        self.memory = 0
        self.by_reference = True
        self._numbers = itertools.count(1)
        self._took: dict[str, float] = {}  # cell or function → seconds on the clock
        self._released: list[int] = []
        self._channel: socket.socket | None = None

    def __enter__(self) -> "Session":
        self._left = self.limits.total
        self._computed = 0.0  # processor seconds of the processes that have ended
        memory = self.limits.memory + self.limits.disk + cgroups.COPIED
        self._group = cgroups.group(processes=self.limits.threads, memory=memory)
        try:
            self._run_cells()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel is not None:
            self._stop()
        if self._group is not None:
            self._group.remove()

    def begin(self) -> None:
        """Begin a part of the tests: forget old errors, and restart a process that has ended."""
        self._last_error = None
        if self._channel is None and self._left > 0:
            with suppress(SubmissionError):  # too little time is left; the next call says so
                self._run_cells()

    def call(self, function: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function over there.

        Raises:
            SubmissionError: if it does not return plain data in time.
        """
        structure, tensors = wire.pack([list(arguments), keywords])
        request = {"do": "call", "function": function, "structure": structure}
        request["grad_enabled"] = torch.is_grad_enabled()
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            structures: list[Any] = []
            outputs = _Call.apply(self, request, structures, *tensors)
            return self._unpacked(structures[0], outputs)
        reply, outputs = self._call(request, tensors, [False] * len(tensors))
        return self._unpacked(reply["structure"], [tensor for tensor, _ in outputs])

    def _call(
        self, request: dict[str, Any], tensors: list[Tensor], wanted: list[bool]
    ) -> tuple[dict[str, Any], list[tuple[Tensor, bool]]]:
        """The reply to a call, and its tensors, each with whether a gradient flows through it."""
        sent = [wire.from_tensor(tensor) for tensor in tensors]
        for node, flag in zip(sent, wanted, strict=True):
            node["requires_grad"] = flag
        released, self._released = self._released, []
        reply = self._ask(request | {"tensors": sent, "release": released})
        with self._strictly():
            outputs = [wire.to_tensor(node) for node in reply["tensors"]]
            for index, node in reply["changed"]:
                after, _ = wire.to_tensor(node)
                if (after.shape, after.dtype) != (tensors[index].shape, tensors[index].dtype):
                    raise wire.Malformed("an argument of another shape")
                if self.by_reference:
                    with torch.no_grad():
                        tensors[index].copy_(after)
        return reply, outputs

    def backward(self, number: int, gradients: list[Tensor], inputs: list[Tensor]) -> list[Any]:
        """Gradients of the inputs of call `number`, those that want one, given its outputs'."""
        sent = [wire.from_tensor(gradient) for gradient in gradients]
        reply = self._ask({"do": "backward", "call": number, "tensors": sent})
        with self._strictly():
            nodes = reply["gradients"]
            found = [None if node is None else wire.to_tensor(node)[0] for node in nodes]
            for gradient, tensor in zip(found, inputs, strict=True):
                if gradient is not None and gradient.shape != tensor.shape:
                    raise wire.Malformed("a gradient of another shape")
        return found

    def release(self, number: int) -> None:
        """Let the process forget the graph of a call, when it is next asked anything."""
        self._released.append(number)

    def _unpacked(self, structure: Any, tensors: Any) -> Any:
        with self._strictly():
            return wire.unpack(structure, tensors)

    # ------------------------------------------------------------ cells

    def _run_cells(self) -> None:
        """Start a process and run the cells; where one ends it, start again without that one."""
        while True:
            self._start()
            self._ask({"do": "prepare", **self._sheet})
            for cell in self.cells:
                before = self.outcomes.get(cell.number)
                if before and before.error and before.error.fatal:
                    continue
                self.outcomes[cell.number] = self._run(cell)
                if self._channel is None:
                    break
            else:
                return
            if self._left <= 0:
                return

    def _run(self, cell: StudentCell) -> CellOutcome:
        request = {
            "do": "run",
            "cell": cell.number,
            "source": cell.source,
            "functions": list(cell.functions),
            "values": list(cell.values),
            "settled": [f"{number}:{name}" for number, name in cell.settled],
        }
        outcome = CellOutcome()
        try:
            reply = self._ask(request)
            with self._strictly():
                if reply["error"] is not None:
                    outcome.error = _reported_error(reply["error"])
                for name in (*cell.functions, *cell.values):
                    self._add_name(outcome, cell, name, reply["names"][name])
        except SubmissionError as error:
            outcome.error = error
        return outcome

    def _add_name(
        self, outcome: CellOutcome, cell: StudentCell, name: str, node: dict[str, Any]
    ) -> None:
        if not node:
            return
        if "error" in node:
            outcome.unusable[name] = _reported_error(node["error"])
        elif name in cell.values:
            tensors = [wire.to_tensor(tensor)[0] for tensor in node["tensors"]]
            outcome.defined[name] = wire.unpack(node["structure"], tensors)
        elif node["function"] is True:
            outcome.defined[name] = _Proxy(self, f"{cell.number}:{name}", name)
        else:
            outcome.unusable[name] = SubmissionError(
                Ending.NOT_PLAIN, f"`{name}` is not a function"
            )

    # ------------------------------------------------------------ the process

    def _start(self) -> None:
        self._released = []
        self._met = self._limits_met()
        self._folder = Path(tempfile.mkdtemp(prefix="submission-"))
        left = replace(self.limits, total=max(self.limits.total - self._computed / 2, 0.5))
        with self._counted():
            try:
                self._channel, self._number = self.server.start(self._folder, left, self._group)
            except BaseException:
                self._folder.rmdir()
                raise
            try:
                hello = wire.receive(self._channel, self._watch())
            except (EOFError, ValueError) as error:
                raise SandboxFailed("the confined process did not start") from error
        if hello.get("refused") is not None:
            raise SandboxFailed(hello["refused"])
        self.watched = (*hello["watched"], *([cgroups.LACKING] if self._group is None else []))

    def _stop(self) -> int:
        assert self._channel is not None
        self._channel.close()
        self._channel = None
        status, computed = self.server.end()
        self._computed += computed
        if self._group is not None:
            self._group.kill()
            self._computed, self.memory = self._group.seconds(), self._group.peak()
        with suppress(OSError):  # trusted code may have left a process that still writes there
            folder.remove(self._folder)
        return status

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; any error is remembered and raised."""
        begun = time.monotonic()
        try:
            with self._counted():
                return self._exchange(request | {"number": next(self._numbers)})
        finally:
            what = _asked_of(request)
            self._took[what] = self._took.get(what, 0.0) + time.monotonic() - begun

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count the time; remember an error, and end the process with one that is fatal."""
        begun = time.monotonic()
        try:
            yield
        except SubmissionError as error:
            self._last_error = error
            if error.fatal and self._channel is not None:
                self._stop()
            raise
        finally:
            self._left -= time.monotonic() - begun

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._channel is None:
            raise self._last_error or _out_of_time(
                f"there was no time left to run it{self._longest()}"
            )
        watch = self._watch(_asked_of(request))
        try:
            self._channel.settimeout(self.limits.seconds)
            wire.send(self._channel, request)
            reply = wire.receive(self._channel, watch)
            self._measure()  # a short call is over before anybody looks
        except TimeoutError:
            raise _out_of_time("it did not read what it was sent") from None
        except (EOFError, OSError):
            status = self._stop()
            self._raise_if_limited()
            raise _ended(status) from None
        except wire.TooBig as error:
            raise _malformed(f"what came back had {error}") from None
        except wire.Malformed:
            raise _malformed() from None
        if reply.get("number") != request["number"]:
            raise _malformed()
        if request["do"] != "run" and reply.get("error") is not None:
            with self._strictly():
                raise _reported_error(reply["error"])
        return reply

    def _longest(self) -> str:
        """What took most of the time so far, in words that can be added to others."""
        if not self._took:
            return ""
        what = max(self._took, key=lambda name: self._took[name])
        return f"; the longest, {what}, took {self._took[what]:.1f}"

    def _watch(self, what: str = "it") -> Callable[[], None]:
        """A function that waits for the process to send something, for a limited time."""
        channel, seconds = self._channel, self.limits.seconds
        assert channel is not None
        begun = time.monotonic()
        end = begun + min(seconds, self._left)

        def wait() -> None:
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    if seconds < self._left:
                        raise _out_of_time(f"{what} was still running after {seconds:g} seconds")
                    ran = self._took.get(what, 0.0) + time.monotonic() - begun
                    told = f"all cells and calls took over {self.limits.total:g} seconds"
                    own = "" if what == "it" else f", {what} {ran:.1f} of them"
                    raise _out_of_time(told + own + self._longest())
                if select.select([channel], [], [], min(left, LOOK_EVERY))[0]:
                    return
                self._measure()

        return wait

    def _measure(self) -> None:
        self._raise_if_limited()
        if self._group is None:
            with suppress(OSError):  # not on Linux, or it has just ended
                if len(os.listdir(f"/proc/{self._number}/task")) > self.limits.threads:
                    raise _too_many(self.limits.threads)
        if folder.size(self._folder, self.limits.disk) > self.limits.disk:
            megabytes = self.limits.disk / 2**20
            message = f"it wrote files of over {megabytes:.0f} MB"
            raise SubmissionError(Ending.TOO_BIG, message, fatal=True)

    def _limits_met(self) -> tuple[int, int]:
        """How often the kernel has refused the group a thread, and killed for lack of memory."""
        return (0, 0) if self._group is None else self._group.limits_met()

    def _raise_if_limited(self) -> None:
        """Raise an error if the process has reached a limit of its group since it was started."""
        (refused, killed), (refused_before, killed_before) = self._limits_met(), self._met
        if killed > killed_before:
            raise _out_of_memory(fatal=True)
        if refused > refused_before:
            raise _too_many(self.limits.threads)

    @contextmanager
    def _strictly(self) -> Iterator[None]:
        """Turn every error in reading a reply into a malformed answer, which ends the process.

        The time for reading is limited as well: a reply may hold what takes long to build, such as
        a dict of keys whose hashes are equal.
        """
        with self._counted():
            try:
                with at_most(self.limits.seconds, "the grader was reading what it gave"):
                    yield
            except SubmissionError:
                raise
            except Exception:
                raise _malformed() from None


@contextmanager
def at_most(seconds: float, what: str) -> Iterator[None]:
    """Limit the processor seconds of this process; inside of another such limit, do nothing.

    What is computed here counts, and not the waiting for the student's process.

    Raises:
        SubmissionError: when the time is over.
    """
    if signal.getitimer(signal.ITIMER_PROF)[0]:
        yield
        return

    def interrupt(*_: Any) -> None:
        raise _out_of_time(f"{what} for over {seconds:g} seconds")

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class _Call(torch.autograd.Function):
    """A call as a node of the graph."""

    @staticmethod
    def forward(ctx: Any, session: Session, request: Any, structures: Any, *tensors: Any) -> Any:
        wanted = list(ctx.needs_input_grad[3:])
        reply, outputs = session._call(request, list(tensors), wanted)
        structures.append(reply["structure"])
        ctx.session, ctx.number, ctx.wanted = session, reply["number"], wanted
        ctx.inputs = [torch.empty_like(t, device="meta") for t in tensors]
        ctx.flows = [flows for _, flows in outputs]
        weakref.finalize(ctx, session.release, reply["number"])
        results = [tensor for tensor, _ in outputs]
        ctx.mark_non_differentiable(*(t for t, flows in outputs if not flows))
        return tuple(results)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        given = [g for g, flows in zip(gradients, ctx.flows, strict=True) if flows]
        inputs = [t for t, wanted in zip(ctx.inputs, ctx.wanted, strict=True) if wanted]
        found = iter(ctx.session.backward(ctx.number, given, inputs))
        return None, None, None, *(next(found) if wanted else None for wanted in ctx.wanted)


def _asked_of(request: dict[str, Any]) -> str:
    """What a request keeps busy, as its author knows it."""
    match request:
        case {"do": "run", "cell": number}:
            return f"cell {number}"
        case {"function": function}:
            number, _, name = function.partition(":")
            return f"`{name}` of cell {number}"
    return "it"


class _Proxy:
    """A function that runs over there. It has no code here that an error message could quote."""

    def __init__(self, session: Session, function: str, name: str) -> None:
        self._session, self._function = session, function
        self.__name__ = self.__qualname__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._session.call(self._function, arguments, keywords)


def _without_paths(text: str) -> str:
    """A message without the places of this machine's files, which say nothing to a student."""
    for path in {str(ROOT), sys.prefix, sys.base_prefix, tempfile.gettempdir()} - {"/", "/usr"}:
        text = re.sub(rf"{re.escape(path)}(?:/submission-\w+)?(?=/|\b)", "…", text)
    return text


def _reported_error(node: Any) -> SubmissionError:
    """The error that the process itself reports."""
    kind, name, message, line = (node[key] for key in ("kind", "type", "message", "line"))
    if not all(isinstance(text, str) and len(text) <= 5000 for text in (name, message, line)):
        raise wire.Malformed("no error")
    for text in (name, message, line):
        text.encode("utf-8")
    message = _without_paths(message)
    match kind:
        case "raised":
            return raised(name, message, line)
        case "not-plain":
            return SubmissionError(Ending.NOT_PLAIN, f"it gave {message}")
        case "too-big":
            return SubmissionError(Ending.TOO_BIG, f"the result is too big to hand in ({message})")
        case "disk":
            return SubmissionError(Ending.TOO_BIG, "it wrote more files than it has room for")
        case "memory":
            return _out_of_memory()
        case "ended":  # and its process caught that
            return SubmissionError(Ending.ENDED, f"it ended the program ({name})")
    raise wire.Malformed("no error")


def _ended(status: int) -> SubmissionError:
    if status == -9:
        message = "its process was killed: too much memory or processor time"
    else:
        how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        message = f"it ended its own process {how}"
    return SubmissionError(Ending.ENDED, message, fatal=True)


def _out_of_memory(*, fatal: bool = False) -> SubmissionError:
    message = "it asked for more memory than there is"
    return SubmissionError(Ending.OUT_OF_MEMORY, message, fatal=fatal)


def _too_many(threads: int) -> SubmissionError:
    return SubmissionError(Ending.TOO_MANY, f"it started more than {threads} threads", fatal=True)


def _out_of_time(message: str) -> SubmissionError:
    return SubmissionError(Ending.OUT_OF_TIME, message, fatal=True)


def _malformed(message: str = "what came back was no answer") -> SubmissionError:
    return SubmissionError(Ending.MALFORMED, message, fatal=True)
