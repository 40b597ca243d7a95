"""Trackers that draw the numbers of a run while it goes on: TensorBoard, Weights & Biases."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbcourse.errors import UserError
from nbcourse.experiments import records

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

    from nbcourse.training.recipe import Pretraining, Recipe

NAMES = ("tensorboard", "wandb")


def check(name: str) -> None:
    """See that a tracker can be had, before any work is done.

    Raises:
        ValueError: if there is none of this name, or its package is missing.
    """
    if name not in NAMES:
        raise UserError(f"--log is {name!r}, expected one of {', '.join(NAMES)}")
    if find_spec(name) is None:
        raise UserError(f"--log {name} needs a package: pip install {name}")


def start(name: str, folder: Path, recipe: "Recipe | Pretraining") -> "GeneralTracker":
    """A tracker of accelerate's, begun or, for a run that goes on, taken up again.

    Args:
        name: one of `NAMES`. TensorBoard's files go to the folder `tensorboard` of the run. What
            Weights & Biases does without a network, its own variable says: `WANDB_MODE=offline`.
        folder: of the run, with its environment.
        recipe: what is shown as the settings of the run.
    """
    from accelerate import PartialState
    from accelerate.tracking import TensorBoardTracker, WandBTracker

    PartialState()  # accelerate's trackers write on the first process, and ask this which it is
    tracker: Any
    if name == "tensorboard":
        tracker = TensorBoardTracker("tensorboard", folder)
    else:
        began = records.read_json(folder / records.ENVIRONMENT)["began"]
        tracker = WandBTracker(
            "nbcourse",
            name=folder.name,
            id=re.sub(r"\W+", "-", f"{folder.name}-{began}"),
            resume="allow",
            dir=str(folder),
            config=recipe.model_dump(mode="json"),
        )
    tracker.start()
    return tracker
