"""A run in a thread: the program that started it stays free to follow it, and to stop it.

A thread is sent no signals, so Ctrl-C and a notebook's ■ do not reach the run: `stop` does.
"""

import atexit
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from nbcourse.errors import UserError
from nbcourse.experiments import checkpoint, records, run, samples
from nbcourse.experiments.samples import Sample
from nbcourse.training.learner import Learner
from nbcourse.training.recipe import Recipe
from nbcourse.training.watch import Watch

State = Literal["new", "preparing", "training", "stopping", "stopped", "finished", "failed"]
SHOWN = 6  # responses kept of each step
PATIENCE = 4.0  # seconds that a program which ends leaves a run; kernels are killed after five

_at_work: dict[Path, "BackgroundRun"] = {}


class BackgroundRun(Watch):
    """The run of a recipe in a folder, which may have begun, ended or not started yet.

    Args:
        recipe: what to do. A run that has ended goes on if it asks for more steps.
        folder: of the run.

    Attributes:
        metrics: a dictionary of numbers for each step done.
        samples: step → a few of its responses.
        held_out_at_start: accuracy on the held-out problems before the first step, if it is known.
        working: whether a thread is at work on it.
        error: what ended it, if that was a failure.
        listeners: called without arguments, in the thread of the run, whenever something is new.

    Raises:
        ValueError: if the folder holds a run of another recipe.
    """

    def __init__(self, recipe: Recipe, folder: str | Path) -> None:
        self.recipe, self.folder = recipe, Path(folder)
        self._place = self.folder.resolve()  # wherever the program goes meanwhile
        if (self.folder / records.RECIPE).is_file():
            run.require_same(self.folder, recipe)
        self.metrics: list[dict[str, float]] = []
        if (self.folder / records.METRICS).is_file():
            self.metrics = records.read_metrics(self.folder)
        self.samples = samples.read(self.folder)
        self.held_out_at_start = records.held_out_at_start(self.folder)
        self.working = False
        self.error: BaseException | None = None
        self.listeners: list[Callable[[], None]] = []
        self._asked, self._ended = threading.Event(), threading.Event()
        self._ended.set()
        self._thread: threading.Thread | None = None
        self._taken: list[Sample] = []
        self._stepping = False
        self._resting = self._found()

    @property
    def state(self) -> State:
        """What it does at the moment."""
        if not self.working:
            return self._resting
        if self._asked.is_set():
            return "stopping"
        return "training" if self._stepping else "preparing"

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    def start(self) -> None:
        """Start, or go on from the last checkpoint; does nothing while a thread is at work.

        Raises:
            ValueError: if another run is at work in the folder.
        """
        if self.working:
            return
        if self._place in _at_work:
            raise UserError(f"a run is at work in {self.folder} already")
        _at_work[self._place] = self
        self.error, self.working, self._stepping = None, True, False
        self._asked.clear()
        self._ended.clear()
        name = f"nbcourse run in {self.folder.name}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._tell()
        self._thread.start()

    def stop(self) -> None:
        """Ask the run to stop once the step at work is done and kept."""
        if self.working and not self._asked.is_set():
            self._asked.set()
            self._tell()

    def wait(self) -> None:
        """Return when no thread is at work any more.

        Raises:
            Exception: what ended the run, if that was a failure.
            KeyboardInterrupt: after Ctrl-C, which stops the run as well.
        """
        try:
            self._join()
        except KeyboardInterrupt:
            self.stop()
            self._join()
            raise
        if self.error is not None:
            raise self.error

    def _join(self) -> None:
        # Not by `join` alone: on Windows Ctrl-C does not reach it, and Python 3.11 takes a thread
        # for ended whose `join` was interrupted.
        while not self._ended.wait(0.2):
            pass
        if self._thread is not None:
            self._thread.join()

    def before_updates(
        self, learner: Learner, experience: Any, estimate: Any, penalty: Any, step: int
    ) -> None:
        """Take a few responses."""
        self._taken = samples.of_batch(learner, experience, SHOWN)

    def after_step(self, metrics: dict[str, float]) -> None:
        """Take the numbers, and keep the responses."""
        step = int(metrics["step"])
        if not self._stepping:  # steps after the checkpoint come again
            self.metrics = [row for row in self.metrics if row["step"] < step]
            self.samples = {n: kept for n, kept in self.samples.items() if n < step}
            self.held_out_at_start = records.held_out_at_start(self.folder)
            samples.write(self.folder, self.samples)
            self._stepping = True
        self.metrics = [*self.metrics, metrics]
        self.samples = {**self.samples, step: self._taken}
        samples.append(self.folder, step, self._taken)
        self._tell()

    def _work(self) -> None:
        try:
            run.train(
                self.recipe,
                folder=self.folder,
                resume=True,
                progress=False,
                watch=self,
                stop=self._asked.is_set,
            )
        except KeyboardInterrupt:
            pass  # it was asked to stop
        except BaseException as error:
            self.error = error
        finally:
            _at_work.pop(self._place, None)
            self._resting = "failed" if self.error is not None else self._found()
            self.working = False
            self._tell()
            self._ended.set()

    def _found(self) -> State:
        """What the files of the folder say, when no thread is at work."""
        if records.summarised_steps(self.folder) == self.recipe.steps:
            return "finished"
        kept = checkpoint.last_step(self.folder / records.CHECKPOINTS) is not None
        return "stopped" if kept or self.metrics else "new"

    def _tell(self) -> None:
        for listener in list(self.listeners):
            try:
                listener()
            except Exception:  # a listener that fails does not end the run
                traceback.print_exc()
                self.listeners.remove(listener)


def follow(recipe: Recipe, folder: str | Path) -> BackgroundRun:
    """The run of a recipe in a folder: the one at work there, or what the folder says of it.

    Raises:
        ValueError: if the folder holds a run of another recipe. One that is at work there is asked
            to stop.
    """
    there = _at_work.get(Path(folder).resolve())
    if there is None:
        return BackgroundRun(recipe, folder)
    if there.recipe != recipe:
        there.stop()
        raise UserError(
            f"a run of another recipe is at work in {there.folder}; it stops after this step: "
            "try again then, or name another folder"
        )
    return there


@atexit.register
def _stop_all() -> None:
    """A program that ends lets the steps at work be kept, unless that takes too long."""
    for each in list(_at_work.values()):
        each.stop()
        each._ended.wait(PATIENCE)
