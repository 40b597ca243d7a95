"""The recorded study of chapter 8: what decides how much the critic of a language model explains.

    python -m book.studies.critic_study arithmetic-critic runs/critic-study/arithmetic

Any recipe with a critic will do, and the length of the answers is the recipe's. For each seed the
model is prepared once, and each configuration of `CONFIGURATIONS` starts from a copy of it. The
folder gets `recipe.json`, `environment.json`, `summary.json` as any run's, and `results.jsonl` with
a line for each training.
"""

import argparse
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.functional.returns import discounted_returns
from nbcourse.functional.values import explained_variance, value_loss
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.progress import track
from nbcourse.training import diagnostics
from nbcourse.training.algorithms import Penalty
from nbcourse.training.experience import Draws, collect
from nbcourse.training.learner import Learner, assemble
from nbcourse.training.loop import begin, steps
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes, connect
from nbcourse.training.recipe import Recipe, check, load
from nbcourse.training.watch import Watch

NUMBERS = (
    "reward",
    "kl_ref",
    "kl_old",
    "grad_norm",
    "value_loss",
    "explained_variance",
    "monte_carlo_explained_variance",
)
ROUNDS = 25  # in which a critic learns about a policy that stands still
LEARNING_RATE = 1e-3  # of these rounds

SHARED = {"critic": {"shared": True, "coefficient": 0.1}}
OWN = {"critic": {"shared": False, "coefficient": 0.1}}
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "shared": SHARED,
    "shared, c = 1": {"critic": {"shared": True, "coefficient": 1.0}},
    "own": OWN,
    "own, λ = 1": {**OWN, "algorithm": {"lam": 1.0}},
    "own, warmed up": {**OWN, "critic_rounds": ROUNDS},
}
"""Name → what differs from the recipe. `critic_rounds` come before the policy may move."""


def configurations(recipe: Recipe, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Name → all tables of the recipe as it is then, and `critic_rounds`: for `experiment`."""
    found = {}
    for name in names:
        tables: dict[str, Any] = {**recipe.model_dump(), "critic_rounds": 0}
        for key, change in CONFIGURATIONS[name].items():
            old = tables[key]
            tables[key] = {**old, **change} if isinstance(old, dict) else change
        found[name] = tables
    return found


def learn_values(
    learner: Learner, draws: Draws, processes: Processes, *, rounds: int
) -> list[float]:
    """Let a critic of its own learn about a policy that stands still.

    Each round samples fresh responses, measures the Monte-Carlo explained variance on them, and
    takes two steps towards the score that was paid, without discount or KL penalty.

    Returns:
        The explained variance of each round, before it was learned from.
    """
    critic, found = learner.critic, []
    if not isinstance(critic, Critic):
        raise UserError("the critic shares the policy's trunk, expected one of its own")
    group = learner.recipe.rollouts.group_size
    optimiser = torch.optim.AdamW(critic.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    for _ in range(rounds):
        batch = collect(learner, draws, processes)
        mask = batch.rollout.mask
        paid = discounted_returns(batch.rewards(Penalty()), mask)
        with torch.no_grad():
            old = critic(batch.rollout, group_size=group)
        found.append(explained_variance(old, paid, mask))
        for _ in range(2):
            optimiser.zero_grad()
            values = critic(batch.rollout, group_size=group)
            value_loss(values, old, paid, mask).backward()
            optimiser.step()
    return found


class Distances(Watch):
    """The KL to the reference in every step, where the loop measures it in a few.

    Attributes:
        found: of each step, before its updates.
    """

    def __init__(self) -> None:
        self.found: list[float] = []

    def before_updates(
        self, learner: Any, experience: Any, estimate: Any, penalty: Any, step: int
    ) -> None:
        """Measure it."""
        self.found.append(diagnostics.kl_to_reference(learner, experience))


def result(start: Learner, tables: Mapping[str, Any], processes: Processes) -> dict[str, Any]:
    """Train from a copy of the prepared model, then stop the policy and let the critic go on.

    Returns:
        `NUMBERS` at each step; `held_out` at the end; and the Monte-Carlo explained variance in the
        rounds before the policy moves (`before`) and after it has stopped (`stopped`).
    """
    recipe = check(
        {key: table for key, table in tables.items() if key != "critic_rounds"}, complete=True
    )
    learner = assemble(
        recipe, start.tokenizer, copy.deepcopy(start.policy), start.reference, start.reward_model
    )
    before = (
        learn_values(learner, Draws(recipe, taken=1_000), processes, rounds=tables["critic_rounds"])
        if tables["critic_rounds"]
        else []
    )
    learner.watch = distances = Distances()
    history = list(steps(learner, begin(recipe), processes))
    for row, distance in zip(history, distances.found, strict=True):
        row["kl_ref"] = distance
    if isinstance(learner.critic, ActorCritic):  # from now on it has a trunk of its own
        own = Critic(copy.deepcopy(learner.policy))
        own.head.load_state_dict(learner.critic.head.state_dict())
        learner.critic = own
    stopped = learn_values(learner, Draws(recipe, taken=2_000), processes, rounds=ROUNDS)
    return {
        **{name: [_short(row[name]) for row in history] for name in NUMBERS},
        "held_out": history[-1]["held_out"],
        "length": _short(history[-1]["length"]),
        "before": [_short(x) for x in before],
        "stopped": [_short(x) for x in stopped],
    }


def record(
    recipe: Recipe,
    folder: Path,
    *,
    seeds: Sequence[int],
    names: Sequence[str] = tuple(CONFIGURATIONS),
    progress: bool = True,
) -> None:
    """Train every configuration with every seed, and write down what came of it.

    Args:
        recipe: with a critic; its own seed is not used.
        folder: where the files go; those of an earlier time are overwritten.
        seeds: of everything, the preparation of the model included.
        names: of `CONFIGURATIONS`.
        progress: whether to draw a progress bar.
    """
    processes = connect()
    folder.mkdir(parents=True, exist_ok=True)
    records.write_json(folder / records.RECIPE, recipe.model_dump(mode="json"))
    environment = records.environment(processes.count)
    records.write_json(folder / records.ENVIRONMENT, environment)
    results, begun = [], perf_counter()
    for seed in seeds:
        seeded = recipe.model_copy(update={"seed": seed})
        start = build(seeded, processes)
        made = configurations(seeded, names).items()
        for name, tables in track(made, f"seed {seed}", visible=progress, total=len(names)):
            found = result(start, tables, processes)
            results.append({"configuration": name, "seed": seed, **found})
            records.write_results(folder, results)
    seconds = perf_counter() - begun
    records.write_json(folder / records.SUMMARY, {"trainings": len(results), "seconds": seconds})


def recorded(
    results: Sequence[Mapping[str, Any]], made: Mapping[str, Mapping[str, Any]]
) -> Callable[[Mapping[str, Any], int], list[dict[str, float]]]:
    """The `run` that `experiment` asks for: the recorded numbers of a configuration of `made`."""

    def run(tables: Mapping[str, Any], seed: int) -> list[dict[str, float]]:
        (name,) = (name for name, one in made.items() if one == tables)
        (found,) = (one for one in results if (one["configuration"], one["seed"]) == (name, seed))
        columns = zip(*(found[number] for number in NUMBERS), strict=True)
        return [
            {"step": step, **dict(zip(NUMBERS, map(_number, column), strict=True))}
            for step, column in enumerate(columns, start=1)
        ]

    return run


def _short(number: float) -> float | None:
    """Five digits; JSON has no NaN."""
    return float(f"{number:.5g}") if math.isfinite(number) else None


def _number(entry: float | None) -> float:
    return math.nan if entry is None else entry


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Record the study of the critic of chapter 8.")
    parser.add_argument("recipe", help="a file, or the name of one of the package's")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--only", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS))
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the models are small: a second thread mostly waits
    record(load(chosen.recipe), chosen.folder, seeds=range(chosen.seeds), names=chosen.only)


if __name__ == "__main__":
    main()
