"""Runs of a chapter that were recorded, so that a reader waits for one seed and not for five.

    @recorded("04-agents")      seed 0 is trained here, and the other seeds are read
    def run(agent, seed): …     from book/runs/chapters/04-agents.json

The file is written by the cells that read it: with `NBCOURSE_RECORD=1` in the environment,
`make chapters CH=4` trains every seed and keeps the numbers.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from nbcourse import durable
from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.experiments.controlled import fields_of

Rows = Sequence[Mapping[str, float]]
Run = Callable[[Any, int], Rows]
FOLDER = records.RUNS / "chapters"
RECORD = "NBCOURSE_RECORD"
DIGITS = 9  # with so many no two numbers of float32 are taken for one


def recorded(
    name: str, *, live: Callable[[Any, int], bool] = lambda configuration, seed: seed == 0
) -> Callable[[Run], Run]:
    """For a function that trains: train the runs that are `live`, and read all others.

    The function is like those that `controlled.experiment` takes: (configuration, seed) → the
    numbers after each update. A run that was made or read is not made again.

    Args:
        name: of the file. Without the book beside the package, every run is made.
        live: (configuration, seed) → whether this run is trained each time; seed 0 of all.

    Raises:
        UserError: from the function, if a run that is to be read is not in the file.
    """
    file = FOLDER / f"{name}.json"
    recording = bool(os.environ.get(RECORD))
    runs: dict[str, Any] = {}
    if file.exists() and not recording:
        runs = records.read_json(file)["runs"]

    def wrapped(run: Run) -> Run:
        made: dict[str, Rows] = {}

        @functools.wraps(run)
        def made_or_read(configuration: Any, seed: int) -> Rows:
            key = _key(configuration, seed)
            trained = recording or live(configuration, seed) or not records.RUNS.exists()
            if key not in made and trained:
                began = perf_counter()
                made[key] = run(configuration, seed)
                runs[key] = {"seconds": round(perf_counter() - began, 1), **_columns(made[key])}
                if recording:
                    _write(name, runs)
            elif key not in made:
                made[key] = _rows(runs.get(key), f"{file.name} has no run {key}")
            return made[key]

        return made_or_read

    return wrapped


def _key(configuration: Any, seed: int) -> str:
    """A run by all its settings; functions, classes and recorded models by their names."""
    settings = {name: _portable(value) for name, value in fields_of(configuration).items()}
    settings["seed"] = seed
    return json.dumps(settings, default=lambda value: getattr(value, "__name__", str(value)))


def _portable(value: Any) -> Any:
    """What lies among the recorded runs lies elsewhere in another clone."""
    if isinstance(value, str) and Path(value).is_relative_to(records.RUNS):
        return Path(value).relative_to(records.RUNS).as_posix()
    return value


def _columns(rows: Rows) -> dict[str, Any]:
    digits = {key: [float(f"{row[key]:.{DIGITS}g}") for row in rows] for key in rows[0]}
    return {"columns": digits}


def _rows(run: Mapping[str, Any] | None, missing: str) -> Rows:
    if run is None:
        raise UserError(f"{missing}: `{RECORD}=1 make chapters` records the runs of a chapter")
    names, columns = run["columns"].keys(), run["columns"].values()
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _write(name: str, runs: Mapping[str, Any]) -> None:
    """The file, with a line for each run."""
    FOLDER.mkdir(exist_ok=True)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(run)}" for key, run in runs.items())
    command = f"{RECORD}=1 make chapters CH={name.partition('-')[0].lstrip('0')}"
    made = json.dumps(records.environment(1) | {"command": command}, indent=1)
    text = f'{{"environment": {made},\n"runs": {{\n{lines}\n}}}}\n'
    durable.write(FOLDER / f"{name}.json", text.encode())
