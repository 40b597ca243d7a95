"""What a run leaves behind: its recipe, its environment and its numbers, as small text files.

recipe.json        the whole recipe, defaults included
environment.json   command, commit, versions, hardware, when it began, digest of the reader's code
plan.json          what was predicted of its time and memory, before the first step
start.json         the verdicts on the held-out problems before the first step
metrics.jsonl      one line of numbers for each step
summary.json       how it ended, written when it is done
checkpoint/        what --resume goes on from
model/             the trained model, in the hub's layout
witness/           witness batches, if the recipe asks for them
samples.jsonl      a few responses of each step, if a panel follows the run

If the recipe names a file of the reader's own code, a copy of it lies beside these.
"""

import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nbcourse import __version__, durable, repository
from nbcourse.errors import NotFound, UserError
from nbcourse.installation import processor
from nbcourse.training import own_code
from nbcourse.training.own_code import OwnCode
from nbcourse.training.recipe import Pretraining, Recipe, kind_of, validate

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

RECIPE, ENVIRONMENT, PLAN, START, METRICS, SUMMARY = (
    "recipe.json",
    "environment.json",
    "plan.json",
    "start.json",
    "metrics.jsonl",
    "summary.json",
)
CHECKPOINTS, MODEL, WITNESS, ADAPTER = "checkpoint", "model", "witness", "adapter"  # folders
RESULTS = "results.jsonl"  # of a study, whose trainings are many and small
RUNS = repository.ROOT / "book" / "runs"  # recorded runs, in the book's repository
PACKAGES = ("torch", "transformers")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file that is either there as a whole or not at all."""
    durable.write(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ValueError: if there is something else in it.
    """
    content = parsed(path.read_bytes(), path)
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it holds a {type(content).__name__}, not an object")
    return content


def parsed(text: str | bytes, name: object) -> Any:
    """What a text of JSON says; messages call it by its name.

    Raises:
        ValueError: if it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is damaged: it is not JSON ({error})") from error


def write_results(folder: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write what a recorded study found, one line for each training or examination."""
    lines = "".join(json.dumps(each, allow_nan=False) + "\n" for each in results)
    (folder / RESULTS).write_text(lines, encoding="utf-8")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The results that were recorded in a folder."""
    lines = (folder / RESULTS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_metrics(folder: str | Path) -> list[dict[str, float]]:
    """The lines of a run, oldest first; a last line that a kill cut short is left out.

    Raises:
        FileNotFoundError: if there is no run in the folder.
        ValueError: if a line other than the last is not JSON.
    """
    path = Path(folder) / METRICS
    if not path.is_file():
        raise NotFound(f"no run in {folder}: expected a file {METRICS}")
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error})") from error
        rows.append({k: math.nan if v is None else v for k, v in row.items()})
    return rows


def read_history(folder: str | Path, *, done: int) -> list[dict[str, float]]:
    """The lines of the first `done` steps; later ones came after the last checkpoint.

    Raises:
        FileNotFoundError: if there are none at all.
        ValueError: if one is missing, so that the run could only go on with a gap.
    """
    if not done:
        return []
    rows = [row for row in read_metrics(folder) if row["step"] <= done]
    expected = range(1, done + 1)
    missing = sorted(set(expected) - {row["step"] for row in rows})
    if missing or len(rows) > done:
        found = f"no line of step {missing[0]}" if missing else f"{len(rows)} lines"
        raise UserError(
            f"{Path(folder) / METRICS} has {found}, but the checkpoint is of step {done}: expected "
            "one line for each step up to it. Put the file back, or name another folder (--out)"
        )
    return rows


def digits(verdicts: Tensor) -> str:
    """A 0 or 1 for each problem, in order: two evaluations of one list can be compared in pairs."""
    return "".join(map(str, verdicts.int().tolist()))


def write_start(folder: Path, verdicts: Tensor) -> None:
    """Keep the verdicts on the held-out problems before the first step, (count,) of 0 and 1."""
    write_json(folder / START, {"verdicts": digits(verdicts)})


def read_start(folder: Path) -> Tensor | None:
    """The verdicts before the first step, (count,) of 0 and 1; None if a run has not kept them."""
    path = folder / START
    if not path.is_file():
        return None
    return torch.tensor([float(digit) for digit in read_json(path)["verdicts"]])


def held_out_at_start(folder: Path) -> float | None:
    """Accuracy on the held-out problems before the first step; None if a run has not kept it."""
    verdicts = read_start(folder)
    return None if verdicts is None else verdicts.mean().item()


def seconds(row: dict[str, float]) -> float:
    """How long a step took, over all its phases."""
    return sum(value for key, value in row.items() if key.startswith("seconds_"))


def read_recipe(folder: str | Path) -> Recipe:
    """The recipe of a run of reinforcement learning.

    Raises:
        FileNotFoundError: if there is no run in the folder.
        ValueError: if it is a run of another kind.
    """
    recipe = read_any_recipe(folder)
    if not isinstance(recipe, Recipe):
        raise UserError(f"{folder} holds a base model, expected a run of reinforcement learning")
    return recipe


def read_any_recipe(folder: str | Path, *, with_code: bool = False) -> Recipe | Pretraining:
    """The recipe of a run of either kind.

    Args:
        folder: of the run.
        with_code: import the copy of the reader's own code that lies beside the run. Without it
            the recipe of a run whose row or task is not the package's can be read, but not run.

    Raises:
        FileNotFoundError: if there is no run in the folder, or no copy of its code.
        ValueError: if the file is damaged.
    """
    path = Path(folder) / RECIPE
    if not path.is_file():
        raise NotFound(f"no run in {folder}: expected a file {RECIPE}")
    tables = read_json(path)
    code = own_code.NONE
    if with_code and (file := tables.get("code")):
        code = own_code.load(path.with_name(str(file)))
    return validate(kind_of(tables), tables, name=str(path), complete=True, code=code)


def summarised_steps(folder: Path) -> int | None:
    """After how many steps the summary of a run was written; None if there is none."""
    path = folder / SUMMARY
    return int(read_json(path).get("steps", 0)) if path.is_file() else None


class Metrics:
    """The file that metrics are written to, line by line.

    Args:
        folder: of the run.
        kept: the lines to begin with; those of steps after the last checkpoint will come again.
        tracker: is told each line, too.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kept: Iterable[dict[str, float]] = (),
        tracker: "GeneralTracker | None" = None,
    ) -> None:
        path, self.tracker = folder / METRICS, tracker
        durable.write(path, "".join(map(line, kept)).encode())
        self.stream = path.open("a", encoding="utf-8")

    def write(self, row: dict[str, float]) -> None:
        """Append a line; it survives a kill when this returns."""
        self.stream.write(line(row))
        self.stream.flush()
        if self.tracker is not None:
            self.tracker.log(row, step=int(row["step"]))

    def sync(self) -> None:
        """The lines survive a power cut when this returns: before a checkpoint counts on them."""
        durable.sync(self.stream)

    def close(self) -> None:
        """Sync and close the file, and finish the tracker."""
        self.sync()
        self.stream.close()
        if self.tracker is not None:
            self.tracker.finish()


def line(row: Mapping[str, float]) -> str:
    """A step's numbers as a line of `metrics.jsonl`; what is not finite is null, as JSON has it."""
    finite = {k: v if math.isfinite(v) else None for k, v in row.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


def environment(processes: int, code: OwnCode = own_code.NONE) -> dict[str, Any]:
    """Where, when and by which command a run takes place: `nbcourse`, or one of the studies.

    Args:
        processes: how many work on it.
        code: the reader's own, if its recipe names a file.
    """
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    module = getattr(sys.modules["__main__"], "__spec__", None)  # what `python -m` runs
    study = module.name if module and module.name.startswith("book.studies.") else None
    program = ["python", "-m", study] if study else ["nbcourse"]
    return {
        "command": " ".join([*program, *sys.argv[1:]]),
        "commit": repository.commit(),
        "uncommitted_changes": repository.has_changes("nbcourse", "book/studies"),
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
            "nbcourse": __version__,
        },
        "hardware": gpu or f"{processor()}, {os.cpu_count()} cores",
        "processes": processes,
        "threads": torch.get_num_threads(),
        **({"deterministic": True} if torch.are_deterministic_algorithms_enabled() else {}),
        **({"code": {"file": code.path.name, "sha256": code.sha256}} if code.path else {}),
    }
