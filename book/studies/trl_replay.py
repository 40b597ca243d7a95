"""The same update as TRL's: a run of ours, replayed into TRL's own `train()`.

    python -m book.studies.trl_replay book/runs/trl-replay

For each algorithm that TRL can follow, the package trains for a few steps, and its responses are
kept. TRL's trainer then starts from the same weights and runs its own `train()`, in which one
method is replaced: where it would sample, it is handed the responses of ours. Rewards' statistics,
advantages, log-probs, loss, accumulation, gradient clipping and optimiser are its own. The folder
gets `environment.json`, and `results.jsonl` with a line for each case: how far the weights moved,
and how far apart the two runs ended. Chapter 10 reports it.
"""

import argparse
import copy
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from nbcourse.experiments import records, trl_options, trl_trainer
from nbcourse.progress import track
from nbcourse.training.learner import Learner
from nbcourse.training.loop import begin, steps
from nbcourse.training.models import frozen
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe, check
from nbcourse.training.watch import Watch

ALONE = Processes(0, 1, torch.device("cpu"))

BASE: Mapping[str, Any] = {
    "steps": 4,
    "task": {"digits": 1},
    "model": {"layers": 2, "width": 64, "heads": 4},
    "warm_start": {"steps": 150, "careless_steps": 40, "learning_rate": 2e-3},
    "rollouts": {"prompts": 16, "group_size": 8, "max_new_tokens": 8},
    "optimiser": {"epochs": 2},
    "evaluation": {"problems": 1},
}
"""What all cases share: four steps with two updates each."""

ONCE = {"optimiser": {"epochs": 1}}  # RLOO's loss has no ratio: a second update is not its own
CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "GRPO": ("grpo", {}),
    "Dr. GRPO": ("dr-grpo", {}),
    "DAPO's loss": ("dapo", {"rollouts": {"dynamic_sampling": False}}),
    "GSPO": ("gspo", {}),
    "CISPO": ("cispo", {}),
    "RLOO": ("rloo", ONCE),
    "GRPO with k3 in the loss": ("grpo", {"kl": {"beta": 0.05}}),
    "RLOO with k1 in the reward": ("rloo", {**ONCE, "kl": {"beta": 0.05}}),
    "GRPO, temperature 0.8, weight decay, four micro-batches": (
        "grpo",
        {
            "rollouts": {"temperature": 0.8},
            "optimiser": {"prompts_at_once": 4, "weight_decay": 0.1},
        },
    ),
}
"""Name → the row of the table, and what differs from `BASE`."""


def recipe(name: str) -> Recipe:
    """The recipe of a case."""
    row, changes = CASES[name]
    tables: dict[str, Any] = {**BASE, "algorithm": {"name": row}}
    for key, change in changes.items():
        tables[key] = {**tables.get(key, {}), **change}
    return check(tables)


@dataclass(frozen=True)
class Replay:
    """How a run of ours and its replay by TRL ended.

    Attributes:
        updates: of the weights, in each of the two.
        responses: that both learned from.
        silent: share of the groups in which all responses earned the same.
        moved: length of the way that our weights went, in L2.
        apart: length of the difference between our last weights and TRL's.
        largest: difference between a weight of ours and TRL's, at most.
    """

    updates: int
    responses: int
    silent: float
    moved: float
    apart: float
    largest: float


class _Kept(Watch):
    """The tokens of each step's responses, in the order in which they were sampled."""

    def __init__(self) -> None:
        self.steps: list[list[list[int]]] = []

    def before_updates(
        self, learner: Any, experience: Any, estimate: Any, penalty: Any, step: int
    ) -> None:
        rollout = experience.rollout
        rows = zip(rollout.tokens, rollout.mask, strict=True)
        self.steps.append([tokens[kept].tolist() for tokens, kept in rows])


def replay(recipe: Recipe, *, by: Recipe | None = None) -> Replay:
    """Train by a recipe, and let TRL's own trainer learn from the same responses.

    Args:
        recipe: one that `--engine trl` can follow.
        by: what TRL follows; None for the same recipe. Another one shows how far apart two runs
            end that differ.

    Raises:
        ValueError: if TRL is not installed, or cannot follow the recipe.
    """
    by = by or recipe
    ours = build(recipe, ALONE)
    start = copy.deepcopy(ours.policy)
    kept = _Kept()
    ours.watch = kept
    rows = list(steps(ours, begin(recipe), ALONE))
    policy = copy.deepcopy(start)
    theirs = Learner(by, ours.tokenizer, policy, frozen(copy.deepcopy(start)))
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer.make_trainer(theirs, Path(folder), ALONE)
        with_log_probs = trl_options.parts(by.row)[0].trainer == "GRPO"
        _hand_over(trainer, kept.steps, with_log_probs=with_log_probs)
        trainer.train()
    before, after, replayed = (_weights(model) for model in (start, ours.policy, policy))
    return Replay(
        updates=trainer.state.global_step,
        responses=sum(map(len, kept.steps)),
        silent=sum(row["no_spread"] for row in rows) / len(rows),
        moved=(after - before).norm().item(),
        apart=(after - replayed).norm().item(),
        largest=(after - replayed).abs().max().item(),
    )


def _weights(model: nn.Module) -> Tensor:
    """All weights in one vector, in float64."""
    return torch.cat([weight.detach().double().flatten() for weight in model.parameters()])


def _hand_over(trainer: Any, batches: Sequence[list[list[int]]], *, with_log_probs: bool) -> None:
    """Let the trainer's one call of its sampler in each step return these responses."""
    left = iter(batches)

    def responses(*_: Any, **__: Any) -> Any:
        return (next(left), None) if with_log_probs else next(left)

    trainer._generate_single_turn = responses


def record(folder: Path) -> None:
    """Replay every case, and write what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = records.environment(1)
    environment["versions"]["trl"] = version("trl")
    began, results = perf_counter(), []
    pairs = [*((name, name) for name in CASES), ("GRPO", "Dr. GRPO")]  # the last for comparison
    for ours, theirs in track(pairs, "replays"):
        found = replay(recipe(ours), by=recipe(theirs))
        results.append({"ours": ours, "theirs": theirs, **asdict(found)})
    records.write_results(folder, results)
    environment["seconds"] = round(perf_counter() - began, 1)
    records.write_json(folder / records.ENVIRONMENT, environment)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the record goes")
    record(parser.parse_args(arguments).folder)


if __name__ == "__main__":
    main()
