"""The recorded LunarLander runs of chapter 6: PPO, one seed after another, evaluated at the end.

    python -m book.studies.lunar_lander runs/lunar-lander/seed0 --seed 0

It is not among the agents because those write no files. A run leaves the same four files as
`nbcourse train` does.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from nbcourse.agents import AGENTS, Agent, Trained, evaluate, train
from nbcourse.experiments import records

# γ, λ, 16 environments: rl-baselines3-zoo, hyperparams/ppo.yml, LunarLander-v2. The rest was found
# on seed 10, for half its steps: fewer steps an update, more passes, a wider network, half the
# entropy bonus.
PPO = replace(
    AGENTS["ppo"].with_settings(gamma=0.999, lam=0.98),
    steps=128,
    epochs=6,
    minibatches=32,
    entropy_coefficient=0.005,
    learning_rate=7e-4,
)
NO_BOX2D = (
    'LunarLander needs Box2D, which is missing; run: python -m pip install "gymnasium[box2d]" '
    "(it has wheels up to Python 3.13, and none for Linux on ARM)"
)


@dataclass(frozen=True)
class Recording:
    """Everything a run depends on.

    Attributes:
        seed: of the weights, the actions, the minibatches and the environment.
        agent: the row, which holds the rest of the settings.
        environment: its name in Gymnasium's registry.
        environments: how many of them side by side.
        steps: environment steps, all of them together. Updates are whole, so this is a multiple of
            steps per update: the most that fits into 500,000, where CleanRL's ppo.py stops.
        hidden: width of the two hidden layers.
        episodes: of the evaluation at the end, for each way of acting.
    """

    seed: int
    agent: Agent = field(default=PPO)
    environment: str = "LunarLander-v3"
    environments: int = 16
    steps: int = 244 * 16 * 128
    hidden: int = 256
    episodes: int = 100


def record(plan: Recording, folder: Path, *, progress: bool = True) -> dict[str, Any]:
    """Train, evaluate, and write what came of it; files of an earlier run are overwritten.

    Args:
        plan: what to do.
        folder: where the files go.
        progress: whether to draw a progress bar.

    Returns:
        The summary: environment steps, seconds, and for actions that are sampled, as in training,
        and for the likeliest ones, the returns of the evaluation with their mean and its standard
        error.

    Raises:
        gymnasium.error.DependencyNotInstalled: if Box2D, in which LunarLander moves, is missing.
    """
    envs = environments(plan, plan.environments)
    folder.mkdir(parents=True, exist_ok=True)
    records.write_json(folder / records.RECIPE, recipe(plan))
    records.write_json(folder / records.ENVIRONMENT, environment())
    start = perf_counter()
    trained = train(
        plan.agent,
        envs,
        steps=plan.steps,
        seed=plan.seed,
        hidden=plan.hidden,
        label=f"seed {plan.seed}",
        progress=progress,
    )
    spent = perf_counter() - start
    metrics = records.Metrics(folder)
    for row in trained.curve:
        metrics.write(row)
    metrics.close()
    summary = {
        "steps": int(trained.curve[-1]["step"]),
        "episodes": len(trained.returns),
        "seconds": spent,
        "sampled": examination(plan, trained, greedy=False),
        "greedy": examination(plan, trained, greedy=True),
    }
    records.write_json(folder / records.SUMMARY, summary)
    return summary


def environments(plan: Recording, count: int) -> VectorEnv:
    """That many copies, stepped one after another in this process."""
    return gymnasium.make_vec(
        plan.environment,
        count,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )


def examination(plan: Recording, trained: Trained, *, greedy: bool) -> dict[str, Any]:
    """Whole episodes that were not trained on: their returns, the mean, its standard error."""
    count = min(20, plan.episodes)
    returns = evaluate(
        trained.network,
        environments(plan, count),
        episodes=plan.episodes,
        seed=10_000 + plan.seed,
        greedy=greedy,
    )
    return {
        "mean": fmean(returns),
        "standard_error": stdev(returns) / len(returns) ** 0.5,
        "returns": [round(value, 1) for value in returns],
    }


def recipe(plan: Recording) -> dict[str, Any]:
    """The plan as JSON has it: the row's functions by their names, and each of their settings."""
    functions = {name: getattr(plan.agent, name).__name__ for name in plan.agent.offers}
    fields = asdict(plan.agent)
    del fields["settings"]
    return {**asdict(plan), "agent": {**fields, **functions, **plan.agent.all_settings}}


def environment() -> dict[str, Any]:
    """Where and when, as for any run, with the library that matters here."""
    found = records.environment(processes=1)
    found["versions"]["gymnasium"] = version("gymnasium")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Record a LunarLander run of chapter 6.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the networks are tiny: a second thread mostly waits
    try:
        summary = record(Recording(chosen.seed), chosen.folder)
    except gymnasium.error.DependencyNotInstalled:
        parser.exit(1, f"{parser.prog}: {NO_BOX2D}\n")
    for way in ("sampled", "greedy"):
        found = summary[way]
        print(f"{way}: mean return {found['mean']:.1f} ± {found['standard_error']:.1f}")


if __name__ == "__main__":
    main()
