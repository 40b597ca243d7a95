"""What a model answers to problems it was never trained on, and how often that is right."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nbcourse.lm import sampling
from nbcourse.lm.casting import cast_once
from nbcourse.progress import track
from nbcourse.seeds import generator
from nbcourse.training.learner import Learner

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AT_ONCE = 256  # responses that are sampled together


@dataclass(frozen=True)
class Answers:
    """Responses to problems, those to one problem side by side.

    Attributes:
        texts: B responses.
        truncated: (B,) bool, True where the limit came before the end.
        lengths: (B,) tokens, the end-of-sequence token included.
    """

    texts: list[str]
    truncated: Tensor
    lengths: Tensor


def held_out_accuracy(learner: Learner) -> float:
    """Share of the recipe's held-out problems that the greedy response gets right."""
    return verdicts(learner, learner.recipe.evaluation.problems).mean().item()


def verdicts(learner: Learner, count: int, *, split: str | None = None) -> Tensor:
    """The verifier's verdicts on the greedy responses to `count` problems: (count,) of 0 and 1.

    The problems are the task's held-out ones, if no split is named.
    """
    recipe, task = learner.recipe, learner.recipe.task.build()
    source = generator(recipe.seed, "evaluation")
    problems = task.draw(count, split=split or task.held_out, generator=source)
    answers = greedy(learner, problems)
    return recipe.reward.verdicts(task.rewards(answers.texts, problems), answers.truncated)


def greedy(learner: Learner, problems: Sequence[Any], *, label: str | None = None) -> Answers:
    """The learner's greedy responses to problems, as its recipe samples; a label shows progress."""
    recipe = learner.recipe
    return ask(
        learner.policy,
        learner.tokenizer,
        learner.prompts(problems),
        max_new_tokens=recipe.rollouts.max_new_tokens,
        precision=learner.precision(),
        at_once=recipe.rollouts.responses,
        engine=recipe.rollouts.own_engine,
        label=label,
    )


@torch.no_grad()
def ask(
    policy: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    *,
    precision: AbstractContextManager,
    samples: int | None = None,
    at_once: int = AT_ONCE,
    label: str | None = None,
    **options: Any,
) -> Answers:
    """The model's responses to prompts.

    Args:
        policy: the model.
        tokenizer: its tokenizer.
        prompts: P of them.
        precision: a context in which the model is run.
        samples: sampled responses to each prompt; None for the one greedy response.
        at_once: responses that are sampled together, to bound memory.
        label: of a progress bar; None for no bar.
        options: of `sampling.sample`: `max_new_tokens`, `engine`; `temperature` and `generator` of
            samples.

    Returns:
        P · samples responses, or P greedy ones.
    """
    size = max(1, at_once // (samples or 1))
    texts: list[str] = []
    truncated, lengths = [], []
    with precision, cast_once(policy):
        for i in track(range(0, len(prompts), size), label or "", visible=label is not None):
            rollout = sampling.sample(
                policy,
                tokenizer,
                prompts[i : i + size],
                greedy=samples is None,
                group_size=samples or 1,
                **options,
            )
            texts += rollout.texts(tokenizer)
            truncated.append(rollout.truncated.cpu())
            lengths.append(rollout.mask.sum(dim=1).cpu())
    return Answers(texts, torch.cat(truncated), torch.cat(lengths))
