"""Seconds of training from 35 % to 90 % held-out accuracy: the package against TRL.

    python benchmarks/time_to_accuracy.py [--seeds 3] [--threads 2] [--precision float32]

The recipe is `arithmetic-grpo`, handed to either engine as it is, with an evaluation
after every step whose seconds do not count, nor do those of the warm start. Each run has a process
of its own, the two engines take turns, and what counts is the ratio for a seed. The two draw
different random numbers, so single seeds scatter: the steps that each needed are printed too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import accumulate
from pathlib import Path

from _pairs import Pairs

RECIPE = "arithmetic-grpo"
LOW, HIGH = 0.35, 0.90


def measure(engine: str, seed: int, threads: int, precision: str) -> dict[str, float]:
    """Seconds and steps of one run, in this process; a target that is never met is infinite."""
    import torch

    from nbcourse.experiments import records, run, trl
    from nbcourse.training.recipe import load

    torch.set_num_threads(threads)
    changes = [f"seed={seed}", f"model.precision='{precision}'", "evaluation.every=1"]
    recipe = load(RECIPE, changes)
    with tempfile.TemporaryDirectory() as folder:
        train = trl.train_with_trl if engine == "TRL" else run.train
        train(recipe, folder=Path(folder) / "run", progress=False)
        rows = records.read_metrics(Path(folder) / "run")
    spent = list(accumulate(records.seconds(row) - row["seconds_evaluate"] for row in rows))

    def reached(target: float) -> int:
        return next((i for i, row in enumerate(rows) if row["held_out"] >= target), len(rows))

    first, last = reached(LOW), reached(HIGH)
    found = last < len(rows)
    return {
        "seconds": spent[last] - spent[first] if found else float("inf"),
        "steps": last - first,
        "seconds_a_step": spent[-1] / len(rows),
        "held_out": rows[-1]["held_out"],
    }


def in_a_process(*arguments: object) -> dict[str, float]:
    threads = str(arguments[2])
    answer = subprocess.run(
        [sys.executable, __file__, "--measure", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": threads, "PYTHONWARNINGS": "ignore"},
    )
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    chosen = parser.parse_args()
    print(f"{chosen.precision}, {chosen.threads} threads, {LOW:.0%} to {HIGH:.0%}")
    print(f"{'seed':>4} {'engine':>8} {'seconds':>8} {'steps':>6} {'s/step':>7} {'at the end':>10}")
    seconds: dict[str, list[float]] = {"TRL": [], "nbcourse": []}
    per_step: dict[str, list[float]] = {"TRL": [], "nbcourse": []}
    for seed in range(chosen.seeds):
        for engine in seconds:
            found = in_a_process(engine, seed, chosen.threads, chosen.precision)
            seconds[engine].append(found["seconds"])
            per_step[engine].append(found["seconds_a_step"])
            print(
                f"{seed:4} {engine:>8} {found['seconds']:8.1f} {found['steps']:6} "
                f"{found['seconds_a_step']:7.3f} {found['held_out']:10.3f}",
                flush=True,
            )
    print(f"faster by {Pairs(seconds['TRL'], seconds['nbcourse']).ratio}")
    print(f"a step faster by {Pairs(per_step['TRL'], per_step['nbcourse']).ratio}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        engine, seed, threads, precision = sys.argv[2:]
        print(json.dumps(measure(engine, int(seed), int(threads), precision)))
    else:
        main()
