"""A whole GRPO step on the CPU, sampling and learning: the package against TRL's GRPOTrainer.

    python benchmarks/grpo_step.py [--pairs 7] [--threads 1 2]

A decoder of 1.05 million parameters, 64 arithmetic prompts × 8 samples of at most 8 tokens. Both
start from the same warm-started weights, and learn at a rate so small that these stay what they
are: every step samples from the same policy, asks the same problems, and finds the same share of
groups without spread, which the package skips exactly and TRL computes. No KL. The two take turns
in one process; TRL's step is everything between two of its log lines.

Three rows say where the ratio comes from: as shipped; with the groups computed that have nothing to
teach; and then without computing each prompt once for its group. What is left is the rest of the
code.
"""

import argparse
import copy
import tempfile
from itertools import product
from pathlib import Path
from statistics import mean
from time import perf_counter, process_time

import torch
from _pairs import Pairs
from transformers import TrainerCallback

from nbcourse.experiments import trl_trainer
from nbcourse.training import loop, update
from nbcourse.training.learner import Learner
from nbcourse.training.models import frozen
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe, check

ALONE = Processes(0, 1, torch.device("cpu"))


def recipe(precision: str, steps: int) -> Recipe:
    return check(
        {
            "steps": steps,
            "algorithm": {"name": "grpo"},
            "model": {"layers": 4, "width": 128, "heads": 4, "precision": precision},
            "warm_start": {"steps": 300, "careless_steps": 60, "learning_rate": 2e-3},
            "rollouts": {"prompts": 64, "group_size": 8, "max_new_tokens": 8},
            "optimiser": {"learning_rate": 1e-12},
            "evaluation": {"every": 1_000_000},
        }
    )


def learner(start: Learner, recipe: Recipe, kind: type[Learner] = Learner) -> Learner:
    """Fresh copies of the warm-started weights, and a fresh optimiser."""
    policy = copy.deepcopy(start.policy)
    return kind(recipe, start.tokenizer, policy, frozen(policy))


class InTurn(TrainerCallback):
    """After each of TRL's steps, one of ours; the first pair is the warm-up."""

    def __init__(self, ours: Learner) -> None:
        self.ours, self.state = ours, loop.begin(ours.recipe)
        self.wall: list[tuple[float, float]] = []
        self.processor: list[tuple[float, float]] = []
        self.seen: list[tuple[float, float]] = []

    def mark(self) -> None:
        self.since = perf_counter(), process_time()

    def elapsed(self) -> tuple[float, float]:
        return perf_counter() - self.since[0], process_time() - self.since[1]

    def on_train_begin(self, args, state, control, **_) -> None:
        self.mark()

    def on_log(self, args, state, control, **more) -> None:
        logs = more["logs"]
        if "reward" not in logs:
            return
        theirs = self.elapsed()
        self.mark()
        metrics = loop.one_step(self.ours, self.state, ALONE)
        self.state.step += 1
        ours = self.elapsed()
        self.wall.append((theirs[0], ours[0]))
        self.processor.append((theirs[1], ours[1]))
        self.seen.append((logs["frac_reward_zero_std"], metrics["no_spread"]))
        self.mark()


class EachPromptForItself(Learner):
    """A learner that computes a prompt once for each response to it."""

    def log_probs_and_values(self, rollout, *, group_size):
        return super().log_probs_and_values(rollout, group_size=1)

    def ref_log_probs(self, rollout, *, group_size):
        return super().ref_log_probs(rollout, group_size=1)


VARIANTS = {
    "as shipped": (Learner, update.leaves_out_flat_groups),
    "flat groups computed": (Learner, lambda recipe, penalty: False),
    "and prompts not shared": (EachPromptForItself, lambda recipe, penalty: False),
}


def measure(start: Learner, variant: str, precision: str, threads: int, pairs: int) -> InTurn:
    torch.set_num_threads(threads)
    kind, update.leaves_out_flat_groups = VARIANTS[variant]
    # Ours has a step to spare: the last step of a run evaluates.
    turns = InTurn(learner(start, recipe(precision, pairs + 2), kind))
    with tempfile.TemporaryDirectory() as folder:
        theirs = learner(start, recipe(precision, pairs + 1))
        trl_trainer.make_trainer(theirs, Path(folder), ALONE, [turns]).train()
    return turns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    chosen = parser.parse_args()
    count = chosen.pairs
    torch.set_num_threads(max(chosen.threads))
    start = build(recipe("float32", 1), ALONE)
    size = sum(parameter.numel() for parameter in start.policy.parameters())
    print(f"torch {torch.__version__}, {size:,} parameters, {count} pairs, medians [least, most]")
    print(
        f"{'variant':>22} {'precision':>9} {'threads':>7} "
        f"{'TRL ms':>7} {'ours ms':>7} {'ratio':>18} "
        f"{'ratio of CPU time':>18}  groups without spread",
        flush=True,
    )
    for precision, threads, variant in product(("float32", "bfloat16"), chosen.threads, VARIANTS):
        turns = measure(start, variant, precision, threads, count)
        wall, processor = (
            Pairs(*map(list, zip(*timed[1:], strict=True)))
            for timed in (turns.wall, turns.processor)
        )
        theirs_ms, ours_ms = wall.milliseconds()
        flat = [f"{mean(side):.0%}" for side in zip(*turns.seen[1:], strict=True)]
        print(
            f"{variant:>22} {precision:>9} {threads:7} "
            f"{theirs_ms:7.0f} {ours_ms:7.0f} {wall.ratio:>18} "
            f"{processor.ratio:>18}  {flat[0]} and {flat[1]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
