"""A script that lies beside the tests, in a process of its own."""

import json
import multiprocessing
import os
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from nbcourse.training.processes import Processes
from tests.effort import PATIENCE

ROOT = Path(__file__).resolve().parents[1]
PRELOAD = [
    "nbcourse.experiments.run",
    "nbcourse.display",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "torch._dynamo",  # as the first optimiser does
    "gymnasium",
    "matplotlib.pyplot",
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "IPython.core.completer",
    "tests.frozen",
    "nbcourse.classroom.grading",
    "nbcourse.builds.grading",
    "nbcourse.publishing.jupyter_book",
    "myst_nb.sphinx_ext",
    "sphinx.builders.html",
    "sphinx_book_theme",
]
# What torchrun starts, it too forks, where that can be, and need not import everything anew.
FORKING = {"PET_RUN_PATH": "1", "PET_START_METHOD": "fork" if sys.platform == "linux" else "spawn"}


def context() -> Any:
    """Of processes from a server that has the imports done; spawned where there is none."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    found: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        found.set_forkserver_preload(PRELOAD)
    return found


def process(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Started from that server."""
    started = context().Process(target=target, args=arguments)
    started.start()
    return started


def server() -> dict[str, Any]:
    """Where the server of these processes is, and what it asks of those that call it."""
    from multiprocessing import forkserver

    context()
    forkserver._forkserver.ensure_running()  # as `share` leaves it
    names = ("_forkserver_address", "_forkserver_authkey")  # the latter from Python 3.14 on
    return {name: value for name, value in vars(forkserver._forkserver).items() if name in names}


def share(server: Mapping[str, Any]) -> None:
    """What this process starts in turn comes from a server that is there already."""
    from multiprocessing import forkserver

    known: Any = forkserver._forkserver
    vars(known).update(server, ensure_running=lambda: None)
    if known._forkserver_alive_fd is None:  # not from that server itself, nor holding it open
        known._forkserver_alive_fd = os.open(os.devnull, os.O_WRONLY)


def stop() -> None:
    """End the server of these processes, and wait for it: what it used counts as this process's."""
    from multiprocessing import forkserver

    forkserver._forkserver._stop()  # type: ignore[attr-defined]


def end_with_the_parent() -> None:
    """Whoever asked for this process may be gone before it could say so."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run(script: Path, *arguments: object, folder: Path, launcher: Sequence[str] = ()) -> str:
    """What it printed, after it has ended well.

    Args:
        script: which; it may import the tests.
        arguments: that it is given.
        folder: in which it starts.
        launcher: a module that starts it, and that one's arguments before the script.
    """
    (printed,) = run_each([Run(script, arguments, folder, launcher)])
    return printed


@dataclass(frozen=True)
class Run:
    """A script, what it is given, the folder in which it starts, and what starts it."""

    script: Path
    arguments: Sequence[object]
    folder: Path
    launcher: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        return [*self.launcher, str(self.script), *map(str, self.arguments)]

    def said(self, name: str = "printed") -> str:
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8")


def run_each(runs: Sequence[Run], *, imports: Sequence[str] = ()) -> list[str]:
    """What each printed, one after the other, after all have ended well.

    Args:
        runs: in folders of their own.
        imports: modules that all of them need, and what they start: they are imported once.
    """
    started = process(_run_each, runs, imports)
    started.join(PATIENCE)
    assert started.exitcode == 0, [one.said("errors")[-3000:] for one in runs]
    return [one.said() for one in runs]


def _run_each(runs: Sequence[Run], imports: Sequence[str]) -> None:
    for run in runs:
        for name in ("printed", "errors"):
            (run.folder / f"{name}.txt").touch()
    for name in imports:
        import_module(name)
    context: Any = multiprocessing.get_context(FORKING["PET_START_METHOD"])
    for run in runs:
        started = context.Process(target=_run, args=(run.words, run.folder))
        started.start()
        started.join()
        if started.exitcode:
            sys.exit(1)


def _run(words: list[str], folder: Path) -> None:
    for stream, name in ((sys.stdout, "printed"), (sys.stderr, "errors")):
        with (folder / f"{name}.txt").open("ab") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.chdir(folder)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ.update(FORKING, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", PYTHONPATH=path)
    sys.argv = words
    if words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def end(report: Mapping[str, Any], out: Path, processes: Processes) -> None:
    """What a process does last: write its report into a file of its own, and wait for the others.

    Args:
        report: what it saw.
        out: `out.json` is written as `out-0.json` by process 0, and so on.
        processes: those that work together.
    """
    path = out.with_name(f"{out.stem}-{processes.rank}{out.suffix}")
    path.write_text(json.dumps(report), encoding="utf-8")
    processes.wait()
    if processes.count > 1:
        torch.distributed.destroy_process_group()
