"""How often the policy is right, on problems it was never trained on."""

import math

import torch

from nbcourse.lm import sampling
from nbcourse.training.learner import Learner
from nbcourse.training.seeds import generator


def held_out_accuracy(learner: Learner) -> float:
    """Share of the recipe's held-out problems that the greedy response gets right."""
    return verdicts(learner, learner.recipe.evaluation.problems).mean().item()


@torch.no_grad()
def verdicts(learner: Learner, count: int, *, split: str = "test") -> torch.Tensor:
    """The verifier's word on the greedy responses to `count` problems: (count,) of 0 and 1."""
    recipe, task = learner.recipe, learner.recipe.task.build()
    problems = task.draw(count, split=split, generator=generator(recipe.seed, "evaluation"))
    size = recipe.rollouts.prompts * recipe.rollouts.group_size
    right = []
    for i in range(0, count, size):
        part = problems[i : i + size]
        with learner.precision():
            rollout = sampling.sample(
                learner.policy,
                learner.tokenizer,
                [problem.prompt for problem in part],
                max_new_tokens=recipe.rollouts.max_new_tokens,
                greedy=True,
            )
        right.append(task.rewards(rollout.texts(learner.tokenizer), part))
    return torch.cat(right)


def wilson_interval(successes: int, trials: int, *, z: float = 1.96) -> tuple[float, float]:
    """A confidence interval for a share that stays within [0, 1], also near its ends.

        (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n)

    Args:
        successes: how many.
        trials: out of how many, n.
        z: standard errors; 1.96 for 95 %.

    Raises:
        ValueError: if there is no trial, or more successes than trials.

    Source: Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference".
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"successes={successes} of trials={trials}: expected 0 <= successes <= n")
    p, n = successes / trials, trials
    centre = p + z * z / (2 * n)
    radius = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - radius) / scale), min(1.0, (centre + radius) / scale)
