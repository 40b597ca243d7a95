"""The recorded study of chapter 7 where answers have a hundred tokens: four questions, three seeds.

    python -m nbcourse.experiments.long_answers book/runs/long-answers

Each question trains configurations that differ in one field, from the same warmed-up model of a
seed, on the same prompts. The folder gets `recipe.json` (what all of them start from),
`environment.json`, `summary.json` as any run's, and `results.jsonl` with a line for each run.
"""

import argparse
import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import torch

from nbcourse.experiments import records
from nbcourse.experiments.controlled import Experiment, experiment
from nbcourse.progress import track
from nbcourse.training import recipe_files
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.learner import Learner, assemble
from nbcourse.training.loop import begin, steps
from nbcourse.training.own_code import OwnCode
from nbcourse.training.preparation import build
from nbcourse.training.processes import connect
from nbcourse.training.recipe import Recipe, load, validate

RESULTS = "results.jsonl"
SEEDS = (0, 1, 2)
KEPT = (
    "step",
    "accuracy",
    "held_out",
    "length",
    "length_right",
    "length_wrong",
    "truncated",
    "entropy",
    "kl_ref",
    "clip_low",
    "clip_high",
    "explained_variance",
)
# GRPO with another mean over tokens: no recipe's key, since it is what makes a row that row.
ROWS = OwnCode(
    algorithms={
        f"grpo, {mode}": replace(ALGORITHMS["grpo"], aggregation=mode)
        for mode in ("token-mean", "seq-mean-token-sum-norm")
    }
)
SEVERAL = ("optimiser.epochs=2", "optimiser.minibatches=4")
PPO = ("algorithm.name=ppo", "critic.shared=false", "critic.coefficient=0.5")
QUESTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "aggregation": {
        "seq-mean-token-mean": (),
        "token-mean": ("algorithm.name=grpo, token-mean",),
        "seq-mean-token-sum-norm": ("algorithm.name=grpo, seq-mean-token-sum-norm",),
    },
    "surrogate": {name: (f"algorithm.name={name}", *SEVERAL) for name in ("grpo", "gspo", "cispo")},
    "overlong": {"without": (), "with": ("reward.overlong_buffer=60",)},
    "lambda": {"λ = 1": (*PPO, "algorithm.lam=1.0"), "λ = 0.95": PPO},
}


def recipes(question: str, *changes: str) -> dict[str, Recipe]:
    """The configurations of a question, by name.

    Args:
        question: one of `QUESTIONS`.
        changes: of the recipe `long-grpo`, in all of them, such as "steps=2".
    """
    return {
        name: validate(
            Recipe,
            recipe_files.read("long-grpo", (*changes, *own)),
            name=name,
            code=ROWS,
        )
        for name, own in QUESTIONS[question].items()
    }


def record(
    folder: Path,
    *changes: str,
    questions: Sequence[str] = tuple(QUESTIONS),
    seeds: Sequence[int] = SEEDS,
    progress: bool = True,
) -> None:
    """Train everything that the folder does not hold yet; a line is written as each run ends.

    Args:
        folder: where the files go.
        changes: of the recipe, in all runs.
        questions: which of `QUESTIONS`.
        seeds: of the runs.
        progress: whether to draw a progress bar.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = records.environment(processes=1)
    if not (folder / RESULTS).is_file():
        (folder / RESULTS).touch()
        records.write_json(folder / records.RECIPE, load("long-grpo", changes).model_dump())
        command = f"python -m {__spec__.name} {folder.as_posix()}"
        records.write_json(folder / records.ENVIRONMENT, {**environment, "command": command})
    done = {(line["question"], line["name"], line["seed"]) for line in read(folder)}
    todo = [
        (question, name, seed)
        for seed in seeds
        for question in questions
        for name in QUESTIONS[question]
        if (question, name, seed) not in done
    ]
    warm: dict[int, Learner] = {}
    for question, name, seed in track(todo, "runs", visible=progress):
        recipe = recipes(question, *changes, f"seed={seed}")[name]
        if seed not in warm:
            warm = {seed: build(load("long-grpo", (*changes, f"seed={seed}")), connect())}
        start = perf_counter()
        policy, reference = copy.deepcopy(warm[seed].policy), warm[seed].reference
        learner = assemble(recipe, warm[seed].tokenizer, policy, reference)
        rows = list(steps(learner, begin(recipe), connect()))
        line = {
            "question": question,
            "name": name,
            "seed": seed,
            "commit": environment["commit"],
            "seconds": round(perf_counter() - start, 1),
            "metrics": [{key: _short(row[key]) for key in KEPT if key in row} for row in rows],
        }
        with (folder / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    found = read(folder)
    seconds = sum(line["seconds"] for line in found)
    records.write_json(folder / records.SUMMARY, {"trainings": len(found), "seconds": seconds})


def _short(number: float) -> float | None:
    """Six digits; None for what is not a number, such as the length of no response."""
    return None if math.isnan(number) else float(f"{number:.6g}")


def read(folder: Path) -> list[dict[str, Any]]:
    """The runs that were recorded in a folder."""
    lines = (folder / RESULTS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def recorded(folder: Path, question: str, *, every: int = 5) -> Experiment:
    """A question as the controlled experiment that it is.

    Args:
        folder: where the runs were recorded.
        question: one of `QUESTIONS`.
        every: steps between the points of a curve, each the mean over so many steps.
    """
    runs = {
        (line["name"], line["seed"]): line["metrics"]
        for line in read(folder)
        if line["question"] == question
    }
    configurations = recipes(question)
    names = {id(recipe): name for name, recipe in configurations.items()}

    def run(recipe: Recipe, seed: int) -> list[dict[str, float]]:
        rows = runs[names[id(recipe)], seed]
        return [_mean(rows[i : i + every]) for i in range(0, len(rows), every)]

    last = max(rows[-1]["step"] for rows in runs.values())
    seeds = sorted({seed for _, seed in runs})
    schedule = range(every, int(last) + 1, every)
    return experiment(configurations, run, seeds=seeds, schedule=schedule, progress=False)


def _mean(rows: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    """The last step, and the mean of each other number over the steps that have it."""
    means = {}
    for key in rows[0]:
        numbers = [number for row in rows if (number := row.get(key)) is not None]
        means[key] = fmean(numbers) if numbers else math.nan
    return means | {"step": max(row["step"] or 0 for row in rows)}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Record the long answers of chapter 7.")
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the models are small: a second thread mostly waits
    record(chosen.folder)


if __name__ == "__main__":
    main()
