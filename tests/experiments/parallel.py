"""What each process of test_processes does: `parallel.py out.json recipes.json folder`."""

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file

from nbcourse.cli import app
from nbcourse.experiments import records, run
from nbcourse.training.processes import Processes, connect
from nbcourse.training.recipe import check
from tests import script


def behaviour(processes: Processes) -> dict:
    """Share, gather, add and agree, as seen from one process."""
    work = [f"piece {i}" for i in range(5)]
    mine = list(processes.share(work))
    total = torch.full((2,), float(processes.rank + 1))
    agreed = torch.full((2,), float(processes.rank + 1))
    processes.add([total])
    processes.agree([agreed])
    tensors = processes.gather([torch.tensor([len(piece), processes.rank]) for piece in mine])
    return {
        "rank": processes.rank,
        "count": processes.count,
        "mine": mine,
        "gathered": processes.gather([piece.upper() for piece in mine]),
        "nothing": processes.gather([]),
        "tensors": [tensor.tolist() for tensor in tensors],
        "sum": total.tolist(),
        "agreed": agreed.tolist(),
    }


def stopped(tables: dict, folder: Path, processes: Processes) -> list[str]:
    """Only the last process is asked to stop, in its first step; what the folder then holds."""

    def asked(*arguments):
        for number, row in enumerate(steps(*arguments)):
            if number == 0 and processes.rank == processes.count - 1:
                signal.raise_signal(signal.SIGTERM)
            yield row

    steps, run.steps = run.steps, asked
    with suppress(KeyboardInterrupt):
        run.train(check(tables), folder=folder, progress=False)
    run.steps = steps
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


def by_function(tables: dict, folder: Path) -> dict:
    learner, history = run.train(check(tables), folder=folder, resume=True, progress=False)
    weights = [p.detach().double().sum().item() for _, p in learner.trained()]
    return {"history": history, "weights": weights}


def by_command(recipe: str, folder: Path) -> dict:
    """As `torchrun -m nbcourse train` does it, with a recipe from a file."""
    app(["train", recipe, "--out", str(folder)], standalone_mode=False)
    connect().wait()  # the first process writes
    weights = load_file(folder / "model" / "model.safetensors").values()
    return {
        "history": records.read_metrics(folder),
        "weights": [tensor.double().sum().item() for tensor in weights],
    }


def main(out: str, recipes: str, folder: str) -> None:
    processes = connect()
    runs = json.loads(Path(recipes).read_text(encoding="utf-8"))
    report: dict = {"behaviour": behaviour(processes), "runs": {}}
    report["stopped"] = stopped(runs["grpo"], Path(folder) / "grpo", processes)
    for name, tables in runs.items():  # that of grpo goes on
        go = by_command if isinstance(tables, str) else by_function
        report["runs"][name] = go(tables, Path(folder) / name)
    script.end(report, Path(out), processes)


if __name__ == "__main__":
    main(*sys.argv[1:])
