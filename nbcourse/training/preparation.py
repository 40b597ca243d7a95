"""What a run does before its first step: the warm start, and a reward model from comparisons."""

import copy
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from nbcourse.errors import UserError
from nbcourse.lm import sampling
from nbcourse.lm.kept import made_once
from nbcourse.lm.reward_model import RewardModel, fit
from nbcourse.lm.rollouts import Rollout, concatenate, select
from nbcourse.lm.warm_start import Examples, warm_start
from nbcourse.progress import track
from nbcourse.seeds import generator
from nbcourse.training.learner import Learner, assemble
from nbcourse.training.models import frozen, load_model, reference_of, rendered
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Pretraining, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def build(recipe: Recipe, processes: Processes, *, progress: bool = False) -> Learner:
    """Everything a run needs before its first step: the model, warmed up, and what stands by it.

    Raises:
        FileNotFoundError: if the model is to come from a folder that is not there.
    """
    tokenizer, policy = load_model(recipe, processes.device)
    progress = progress and processes.rank == 0
    found = warm_up(recipe, tokenizer, policy, progress=progress)
    processes.agree(parameter.data for parameter in policy.parameters())
    reward_model = None
    if recipe.reward.source == "reward_model":
        reward_model = train_reward_model(recipe, tokenizer, policy, progress=progress)
        processes.agree(parameter.data for parameter in reward_model.parameters())
    learner = assemble(recipe, tokenizer, policy, reference_of(policy), reward_model)
    learner.warm_start_found = found
    return learner


def warm_up(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    policy: "PreTrainedModel",
    *,
    progress: bool = False,
) -> bool:
    """Teach a new model by the recipe's warm start, or give it what such a one made before.

    Returns:
        Whether it was made before, on this machine, and is used again: see `lm.kept`.
    """
    settings = recipe.warm_start
    if not settings.steps:
        return False

    def lessons() -> Iterator[tuple[int, float, Examples]]:
        """Steps, learning rate and examples of each teacher."""
        source = generator(recipe.seed, "warm start")
        for steps, careless_share, rate in (
            (settings.steps, 0.0, settings.learning_rate),
            (settings.careless_steps, settings.careless_share, settings.learning_rate / 5),
        ):
            if steps:
                yield (
                    steps,
                    rate,
                    partial(demonstrations, recipe, tokenizer, source, careless_share),
                )

    def read() -> Iterator[object]:
        """All that is learned: the texts, and what makes tokens of them."""
        yield tokenizer.eos_token_id, tokenizer.backend_tokenizer.to_str()
        for steps, rate, examples in lessons():
            yield steps, rate
            for _ in range(steps):
                yield examples(settings.batch_size)

    def learn() -> None:
        for steps, rate, examples in lessons():
            warm_start(
                policy,
                tokenizer,
                examples,
                steps=steps,
                batch_size=settings.batch_size,
                learning_rate=rate,
                progress=progress,
            )

    found = made_once(policy, read(), learn)
    if found:
        steps = range(settings.steps + settings.careless_steps)
        deque(track(steps, "warm start, made before", visible=progress), maxlen=0)
    return found


def demonstrations(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    source: torch.Generator,
    careless_share: float,
    count: int,
) -> list[tuple[str, str]]:
    """(prompt, response) pairs of the task's teacher."""
    teacher: Any = partial(recipe.task.build().demonstrate, count, generator=source)
    drawn, responses = teacher(careless_share=careless_share) if careless_share else teacher()
    return list(zip(rendered(recipe.prompt, tokenizer, drawn), responses, strict=True))


def texts_of(
    recipe: Pretraining, tokenizer: "PreTrainedTokenizerBase", stage: str, step: int
) -> list[tuple[str, str]]:
    """What a base model learns from in a step: prompts, and the responses to them."""
    problems = recipe.batch(stage, step)
    if stage == "pretraining":  # the end of one text is all that a next one can be begun from
        start = str(tokenizer.eos_token)
        return [(start, problem.prompt + problem.solution) for problem in problems]
    prompts = rendered(recipe.prompt, tokenizer, problems)
    return [(p, problem.solution) for p, problem in zip(prompts, problems, strict=True)]


def train_reward_model(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    policy: "PreTrainedModel",
    *,
    progress: bool = False,
) -> RewardModel:
    """A reward model that learns from comparisons of the policy's own responses.

    Two responses are sampled to each prompt, and the task says which it prefers; where it prefers
    neither, the pair is dropped.
    """
    settings = recipe.reward_model
    preferred, others = sample_comparisons(recipe, tokenizer, policy, settings.comparisons)
    reward_model = RewardModel(copy.deepcopy(policy)).to(policy.device)
    fit(
        reward_model,
        preferred,
        others,
        steps=settings.steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        generator=generator(recipe.seed, "reward model"),
        progress=progress,
    )
    return frozen(reward_model)


def sample_comparisons(
    recipe: Recipe,
    tokenizer: "PreTrainedTokenizerBase",
    policy: "PreTrainedModel",
    count: int,
    *,
    split: str = "train",
) -> tuple[Rollout, Rollout]:
    """`count` comparisons of the policy's own responses: the preferred ones, and the others.

    Raises:
        ValueError: if the policy's responses to whole batches of prompts are all liked alike.
    """
    task, found = recipe.task.build(), 0
    source = generator(recipe.seed, "comparisons", count)
    draws = generator(recipe.seed, "compared", count, device=policy.device)
    preferred, others = [], []
    while found < count:
        problems = task.draw(max(count, 256), split=split, generator=source)
        pairs = sampling.sample(
            policy,
            tokenizer,
            rendered(recipe.prompt, tokenizer, problems),
            max_new_tokens=recipe.rollouts.max_new_tokens,
            temperature=recipe.rollouts.temperature,
            group_size=2,
            generator=draws,
            engine=recipe.rollouts.own_engine,
        )
        texts = pairs.texts(tokenizer)
        liking = [task.preference(side, problems) for side in (texts[::2], texts[1::2])]
        first = torch.arange(0, len(texts), 2)
        decided = liking[0] != liking[1]
        better = (first + (liking[1] > liking[0]))[decided]
        worse = (first + (liking[1] < liking[0]))[decided]
        if len(better) == 0:
            raise UserError(
                f"none of {len(problems)} pairs of responses was decided: the policy has to give "
                "different answers, some better than others, to learn a reward model from"
            )
        preferred.append(select(pairs, better.to(pairs.mask.device)))
        others.append(select(pairs, worse.to(pairs.mask.device)))
        found += len(better)
    rows = torch.arange(count)
    return select(concatenate(preferred), rows), select(concatenate(others), rows)
