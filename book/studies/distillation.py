"""The recorded run of chapter 12: a teacher's log-probs as the reward, beside GRPO's verifier.

    python -m book.studies.distillation book/runs/distillation

One student, the careless model that chapter 10 starts from, and a teacher of its size that has only
seen careful sums. Every method trains on equally many sampled answers, at each of several learning
rates. The folder gets `recipe.json`, `environment.json`, `summary.json` as any run's, and
`results.jsonl` with a line for each training.
"""

import argparse
import itertools
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nbcourse import grpo_on_one_page as page
from nbcourse.experiments import records
from nbcourse.functional import advantages, aggregation, returns, surrogates
from nbcourse.lm import loading, tiny
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.rollouts import Rollout
from nbcourse.lm.warm_start import warm_start
from nbcourse.progress import track
from nbcourse.seeds import generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer

STUDENT = records.RUNS / "arithmetic-sft-seed0" / "model"
METHODS = ("grpo", "distil", "distil-to-go")
"""A verifier's reward by groups; the teacher's log-ratio of each token, and that of the token and
all that follow it, which is the gradient of the KL of the whole answer."""


@dataclass(frozen=True)
class Plan:
    """Everything the runs depend on, but for the constants of `grpo_on_one_page`.

    Attributes:
        rates: learning rates, each with every method and seed.
        seeds: of problems and samples. The student and the teacher are the same for all.
        steps: of each training; a step has 1,024 answers.
        every: after how many steps the held-out problems are asked.
        teacher_steps: batches of careful sums that the teacher learns from.
        teacher_seed: of its first weights and of these sums.
    """

    rates: Sequence[float] = (5e-4, 1e-3, 2e-3)
    seeds: Sequence[int] = (0, 1, 2)
    steps: int = 40
    every: int = 4
    teacher_steps: int = 1_000
    teacher_seed: int = 7


def teach(tokenizer: "Tokenizer", plan: Plan) -> "Model":
    """A model of the student's size that has seen no careless sum."""
    model = tiny.model(tokenizer, layers=2, width=64, heads=16, seed=plan.teacher_seed)
    source = generator(plan.teacher_seed, "warm start")

    def lesson(count: int) -> list[tuple[str, str]]:
        shown, said = page.TASK.demonstrate(count, generator=source, careless_share=0.0)
        return [(problem.prompt, text) for problem, text in zip(shown, said, strict=True)]

    warm_start(
        model, tokenizer, lesson, steps=plan.teacher_steps, learning_rate=5e-3, progress=False
    )
    return model


def weights(method: str, rollout: Rollout, rewards: Tensor, teacher: "Model") -> Tensor:
    """(B, T) what multiplies the score of each token."""
    if method == "grpo":
        A = advantages.group_relative(rewards, group_size=page.GROUP_SIZE, eps=page.EPS)
        return A[:, None].expand(rollout.mask.shape)
    with torch.no_grad():
        said = rollout_log_probs(teacher, rollout, group_size=page.GROUP_SIZE)
    log_ratio = (rollout.log_probs - said).masked_fill(~rollout.mask, 0.0)
    gamma = float(method == "distil-to-go")
    return -returns.discounted_returns(log_ratio, rollout.mask, gamma=gamma)


def train(
    method: str, rate: float, seed: int, tokenizer: "Tokenizer", teacher: "Model", plan: Plan
) -> dict[str, Any]:
    """From a copy of the student: held-out accuracy before the first step and every few.

    Returns:
        The description, `held_out`, and the seconds of the steps without the questions between.
    """
    policy = deepcopy(loading.load(STUDENT, torch.device("cpu"))[1])
    optimiser = torch.optim.AdamW(policy.parameters(), weight_decay=0.0, fused=True)
    found, seconds = [page.held_out_accuracy(tokenizer, policy, seed)], 0.0
    mean = page.AGGREGATION if method == "grpo" else "seq-mean-token-sum"
    for step in range(plan.steps):
        begun = perf_counter()
        rollout, rewards = page.collect(tokenizer, policy, seed, step)
        A = weights(method, rollout, rewards, teacher)
        log_probs = rollout_log_probs(policy, rollout, group_size=page.GROUP_SIZE)
        losses = surrogates.policy_gradient(log_probs.masked_fill(~rollout.mask, 0.0), A)
        optimiser.zero_grad()
        aggregation.aggregate(losses, rollout.mask, mean).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), page.MAX_GRAD_NORM)
        optimiser.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / (page.WARM_UP + 1))
        optimiser.step()
        seconds += perf_counter() - begun
        if (step + 1) % plan.every == 0:
            found.append(page.held_out_accuracy(tokenizer, policy, seed))
    what = {"method": method, "rate": rate, "seed": seed}
    return {**what, "held_out": found, "seconds": round(seconds, 1)}


def record(plan: Plan, folder: Path, *, progress: bool = True) -> None:
    """Train everything, and write what came of it; files of an earlier time are overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    records.write_json(folder / records.RECIPE, asdict(plan))
    records.write_json(folder / records.ENVIRONMENT, records.environment(processes=1))
    begun = perf_counter()
    tokenizer = loading.load(STUDENT, torch.device("cpu"))[0]
    teacher = teach(tokenizer, plan)
    right = [page.held_out_accuracy(tokenizer, teacher, seed) for seed in plan.seeds]
    results: list[dict[str, Any]] = []
    everything = list(itertools.product(plan.seeds, plan.rates, METHODS))
    for seed, rate, method in track(everything, "trainings", visible=progress):
        results.append(train(method, rate, seed, tokenizer, teacher, plan))
        records.write_results(folder, results)
    summary = {"trainings": len(results), "seconds": perf_counter() - begun, "teacher": right}
    records.write_json(folder / records.SUMMARY, summary)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Record the distillation of chapter 12.")
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the models are small: a second thread mostly waits
    record(Plan(), chosen.folder)


if __name__ == "__main__":
    main()
