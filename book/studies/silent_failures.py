"""The benchmark of silent failures: every fault of `diagnosis.faults`, and healthy runs among them.

    python -m book.studies.silent_failures record book/runs/silent-failures-fresh --seed 2000
    python -m book.studies.silent_failures score book/runs/silent-failures-fresh

`record` trains each fault with three seeds, in up to three algorithms, and healthy runs of
different algorithms, tasks and settings, in bfloat16, with rows of a reader's own and by TRL's
trainer, and writes them down in a random order:
`logs/001.zip` and so on, each with curves and witness batches. `answers.json` holds what each of
them is; to find out by yourself, open it last. `score` asks `nbcourse diagnose`, once with the
witnesses and once with the curves alone, and writes `score.json`: how often the cause that is named
first is the one that was planted, and how many of the healthy runs are accused of anything.

The faults and the diagnosis come from the same hands: the score says how well causes are told apart
and how seldom a sound run is accused, on seeds that nothing was tuned on. It says nothing of faults
that are not in the list.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import torch
from book.studies import own_rows

from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.experiments import evidence, records, trl
from nbcourse.experiments.small_lab import ANSWERS, LOGS, SCORE, Tables, recipe_of, train
from nbcourse.functional.accuracy import wilson_interval
from nbcourse.mistakes.catalogue import current
from nbcourse.progress import track
from nbcourse.seeds import generator
from nbcourse.training.recipe import Recipe

HEALTHY = "healthy"
SEEDS_EACH = 3

# Settings in which sound runs differ, three seeds or one of each.
SOUND: dict[str, Tables] = {
    **{
        name: {"algorithm": {"name": name}}
        for name in ("grpo", "reinforce", "reinforce-ema", "remax", "rloo", "ppo", "dr-grpo")
    },
    **{name: {"algorithm": {"name": name}} for name in ("dapo", "gspo", "cispo", "reinforce++")},
    "several updates": {"optimiser": {"epochs": 4, "minibatches": 2}},
    "micro-batches": {"algorithm": {"name": "dapo"}, "optimiser": {"prompts_at_once": 2}},
    "kl in the loss": {"kl": {"beta": 0.1}},
    "kl in the loss, several updates": {
        "kl": {"beta": 0.1},
        "optimiser": {"epochs": 2, "minibatches": 2, "target_kl": 0.01},
    },
    "kl in the reward": {"algorithm": {"name": "rloo"}, "kl": {"beta": 0.1}},
    "kl in the advantage": {"kl": {"beta": 0.1, "placement": "advantage"}},
    "kl as a surrogate": {"kl": {"beta": 0.1, "placement": "surrogate"}},
    "adaptive kl": {
        "algorithm": {"name": "ppo"},
        "kl": {"beta": 0.1, "controller": "adaptive", "horizon": 1000.0},
    },
    "critic of its own": {"algorithm": {"name": "ppo"}, "critic": {"shared": False}},
    "cold": {"rollouts": {"temperature": 0.7}},
    "hot": {"rollouts": {"temperature": 1.3}},
    "bfloat16": {
        "model": {"precision": "bfloat16"},
        "optimiser": {"truncated_importance_sampling": 2.0},
    },
    "two digits": {"task": {"digits": 2}, "reward": {"overlong_buffer": 4}},
    "subtraction": {"task": {"operations": "+-"}},
    "large groups": {"rollouts": {"prompts": 4, "group_size": 12}},
    "penalised length": {"reward": {"overlong_buffer": 3}},
    "cut short": {"rollouts": {"max_new_tokens": 2}},
    "small steps": {"optimiser": {"learning_rate": 3e-5}},
    "warm-up": {"optimiser": {"warm_up": 5, "weight_decay": 0.01}},
}

SOUND |= {
    f"{name} in bfloat16": {"algorithm": {"name": name}, "model": {"precision": "bfloat16"}}
    for name in ("grpo", "reinforce", "rloo", "ppo", "dapo")
} | {
    "several updates in bfloat16": {
        "model": {"precision": "bfloat16"},
        "optimiser": {"epochs": 4, "minibatches": 2},
    },
    "kl in the loss, in bfloat16": {"kl": {"beta": 0.1}, "model": {"precision": "bfloat16"}},
}
OWN_ROWS = Path(own_rows.__file__)
BY_TRL = ("grpo", "dr-grpo", "gspo", "cispo")  # whose batches TRL lets one see


class Case(NamedTuple):
    """A run: what it is, its fault, what is changed in the recipe, its seed, and who trains."""

    what: str
    fault: str | None
    changes: Tables
    seed: int
    engine: Callable[..., Evidence] = train


def by_trl(recipe: Recipe, name: str, *, faults: Sequence[str]) -> Evidence:
    """The curves and witnesses of a run of TRL's own trainer."""
    with TemporaryDirectory() as folder:
        trl.train_with_trl(recipe, folder=Path(folder) / name, progress=False)
        return evidence.read(Path(folder) / name)


def cases(first_seed: int) -> list[Case]:
    """Every run of the benchmark."""
    seeds = range(first_seed, first_seed + SEEDS_EACH)
    sound: list[tuple[str, Tables, Callable[..., Evidence]]] = [
        *((name, changes, train) for name, changes in SOUND.items()),
        *(
            (f"a reader's row {name}", {"code": str(OWN_ROWS), "algorithm": {"name": name}}, train)
            for name in own_rows.ALGORITHMS
        ),
        *((f"{name} by TRL", {"algorithm": {"name": name}}, by_trl) for name in BY_TRL),
    ]
    return [
        Case(f"{HEALTHY}: {name}", None, changes, seeds[number % SEEDS_EACH], engine)
        for number, (name, changes, engine) in enumerate(sound)
    ] + [
        Case(name, name, fault.changes(number), seed)
        for name, fault in FAULTS.items()
        for number, seed in enumerate(seeds)
    ]


def record(folder: Path, first_seed: int) -> None:
    """Train all of them, and write them down in a random order."""
    (folder / LOGS).mkdir(parents=True, exist_ok=True)
    began, environment = perf_counter(), records.environment(1)
    runs = cases(first_seed)
    source = generator(first_seed, "blinding")
    numbers = (torch.randperm(len(runs), generator=source) + 1).tolist()
    answers = {}
    for number, case in track(list(zip(numbers, runs, strict=True)), "runs", total=len(runs)):
        name = f"{number:03d}"
        faults = [case.fault] if case.fault else []
        found = case.engine(recipe_of(case.changes, case.seed), name, faults=faults)
        (folder / LOGS / f"{name}.zip").write_bytes(evidence.pack(found))
        cause = FAULTS[case.fault].cause if case.fault else None
        answers[name] = {"what": case.what, "cause": cause, "seed": case.seed}
    records.write_json(folder / ANSWERS, dict(sorted(answers.items())))
    seconds = perf_counter() - began
    environment |= {"first_seed": first_seed, "seconds": round(seconds, 1)}
    records.write_json(folder / records.ENVIRONMENT, environment)


def judge(folder: Path) -> list[dict[str, Any]]:
    """What is diagnosed of each recorded run, beside what it is."""
    answers, results = records.read_json(folder / ANSWERS), []
    for name, answer in track(list(answers.items()), "diagnoses", total=len(answers)):
        left = evidence.read(folder / LOGS / f"{name}.zip")
        said = {
            basis: [finding.id for finding in diagnose(given).findings]
            for basis, given in (("witness", left), ("curves", replace(left, witnesses=())))
        }
        results.append(
            {"run": name, **answer, "cause": current(answer["cause"] or "") or None, **said}
        )
    return results


def score(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How often the first cause is the right one, and how often a healthy run is accused.

    Each share comes with its 95 % interval (Wilson). The runs of one fault are not independent of
    each other: the interval is that of a draw of runs, not of a draw of faults.
    """
    broken = [one for one in results if one["cause"]]
    sound = [one for one in results if not one["cause"]]

    def of(basis: str) -> dict[str, Any]:
        first = [(one[basis][0] if one[basis] else None, one["cause"]) for one in broken]
        return {
            "named": share(sum(said == cause for said, cause in first), len(broken)),
            "accused": share(sum(bool(one[basis]) for one in sound), len(sound)),
            "another_named": sum(said not in (None, cause) for said, cause in first),
            "nothing_named": sum(said is None for said, _ in first),
        }

    return {basis: of(basis) for basis in ("witness", "curves")}


def share(count: int, total: int) -> dict[str, Any]:
    """A share as scores record it, with its 95 % interval."""
    return {"count": count, "of": total, "interval_95": list(wilson_interval(count, total))}


def print_score(scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Print what `named` and `accused` are in each score."""
    for name, one in scores.items():
        for key in ("named", "accused"):
            low, high = one[key]["interval_95"]
            print(
                f"{name}: {key} {one[key]['count']} of {one[key]['of']} "
                f"(95 % interval {low:.3f} to {high:.3f})"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="The benchmark of silent failures.")
    parser.add_argument("what", choices=("record", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1000, help="the first of three")
    given = parser.parse_args(arguments)
    if given.what == "record":
        record(given.folder, given.seed)
        return
    results = judge(given.folder)
    records.write_results(given.folder, results)
    found = score(results)
    records.write_json(given.folder / SCORE, found)
    print_score(found)


if __name__ == "__main__":
    main()
