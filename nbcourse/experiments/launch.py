"""How a run is started: by which engine, from where on, and until when."""

from dataclasses import dataclass
from pathlib import Path

from nbcourse.errors import UserError
from nbcourse.experiments import pretraining, run, stopping, trackers
from nbcourse.training.recipe import Pretraining, Recipe

ENGINES = ("nbcourse", "trl")


@dataclass(frozen=True)
class Launch:
    """What is asked of a run beside its recipe; messages name the options of `nbcourse train`.

    Attributes:
        folder: where records and checkpoints go.
        engine: one of `ENGINES`.
        resume: go on from the last checkpoint in the folder.
        log: a tracker that is told the numbers as well, one of `trackers.NAMES`.
        like: a run that was made on this machine, which is expected again; see `forecast`.
        max_minutes: begin no step after so many, counted from the start.

    Book: chapter 8, "One loop".
    """

    folder: Path
    engine: str = "nbcourse"
    resume: bool = False
    log: str | None = None
    like: Path | None = None
    max_minutes: float | None = None

    @property
    def samples_anew(self) -> bool:
        """Whether this package samples by the recipe's engine: who goes on keeps the old one."""
        return self.engine != "trl" and not self.resume

    def check(self, recipe: Recipe | Pretraining) -> None:
        """Refuse what cannot be done, before any work is.

        Raises:
            ValueError: naming the option.
        """
        if self.engine == "trl":
            if self.resume or isinstance(recipe, Pretraining):
                raise UserError("--engine trl takes no --resume and makes no base model")
            for option, value in (("--like", self.like), ("--max-minutes", self.max_minutes)):
                if value is not None:
                    raise UserError(f"{option} is for this package's own engine")
        if self.log is not None:
            trackers.check(self.log)
        if self.max_minutes is not None:
            stopping.after_minutes(self.max_minutes)

    def start(self, recipe: Recipe | Pretraining) -> None:
        """Train, or make a base model, until that is done or the minutes are over."""
        limit = self.max_minutes
        stop = stopping.never if limit is None else stopping.after_minutes(limit)
        where = {"folder": self.folder, "log": self.log}
        own = {**where, "resume": self.resume, "like": self.like, "stop": stop}
        if isinstance(recipe, Pretraining):
            pretraining.pretrain(recipe, **own)  # type: ignore[arg-type]
        elif self.engine == "trl":
            from nbcourse.experiments import trl

            trl.train_with_trl(recipe, **where)  # type: ignore[arg-type]
        else:
            run.train(recipe, **own)  # type: ignore[arg-type]
