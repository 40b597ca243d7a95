"""Sample responses in batches, and keep what the learner needs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nbcourse.lm.casting import cast_once
from nbcourse.lm.engines import Engine, Job, eager
from nbcourse.lm.packed import Packed
from nbcourse.lm.rollouts import Rollout, encode
from nbcourse.lm.static import Static, in_a_graph

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ENGINES: Mapping[str, Engine] = {
    "eager": eager,
    "static": Static(),
    "static-graphs": Static(prepare=in_a_graph),
    "packed": Static(decoder=Packed),
    "packed-graphs": Static(decoder=Packed, prepare=in_a_graph),
}
"""What can write responses, by the name that recipes give it."""


@torch.no_grad()
def sample(  # noqa: PLR0913 - what sampling depends on, each with a default
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
    group_size: int = 1,
    greedy: bool = False,
    engine: str | Engine = "eager",
) -> Rollout:
    """Sample `group_size` responses to each prompt, side by side.

    A prompt runs through the model once, and its group shares the cache. A row that has ended
    leaves the batch. Within autocast, weights are cast once for all tokens.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer, with an end-of-sequence token; see `end_tokens`.
        prompts: one string for each prompt.
        max_new_tokens: longest response; one that reaches it without ending is *truncated*.
        generator: source of the draws, on the model's device; needed unless `greedy`.
        temperature: τ > 0: tokens are drawn from softmax(logits / τ), and the recorded log-probs
            are those of that distribution.
        group_size: responses to each prompt.
        greedy: take the likeliest token instead of drawing.
        engine: what writes the responses: a name in `ENGINES`, or a function of a model and a
            `Job`. From one generator engines draw different tokens, of the same distribution.

    Returns:
        A `Rollout` with B = len(prompts) · group_size rows; response j to prompt i is row
        i · group_size + j.

    Raises:
        ValueError: if there is no prompt, a prompt is empty or holds what the tokenizer does not
            know, a number is out of range, there is neither a generator nor `greedy`, or the
            engine is unknown or does not take the model.
        FloatingPointError: if the model gives logits that are not finite.

    Book: section "A language model is a policy".
    """
    _check(max_new_tokens, group_size, temperature, generator, greedy=greedy, engine=engine)
    prompt_ids, prompt_mask = encode(tokenizer, prompts, device=model.device)
    job = Job(
        prompt_ids,
        prompt_mask,
        group_size=group_size,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        generator=None if greedy else generator,
        ends=torch.tensor(end_tokens(model, tokenizer), device=model.device),
        padding=int(tokenizer.eos_token_id),
    )
    with cast_once(model):
        write = ENGINES[engine] if isinstance(engine, str) else engine
        return _rollout(job, *write(model, job))


def _rollout(job: Job, tokens: Tensor, log_probs: Tensor, lengths: Tensor) -> Rollout:
    """What an engine wrote, cut to the longest response."""
    width = int(lengths.max())
    last = tokens.gather(1, lengths[:, None] - 1).squeeze(1)
    return Rollout(
        prompt_ids=job.prompt_ids.repeat_interleave(job.group_size, dim=0),
        prompt_mask=job.prompt_mask.repeat_interleave(job.group_size, dim=0),
        tokens=tokens[:, :width],
        # True on the EOS that ended a response: `lengths` counts it, and so it is trained
        mask=torch.arange(width, device=tokens.device) < lengths[:, None],
        log_probs=log_probs[:, :width],
        truncated=~job.ended(last),
    )


def _check(
    max_new_tokens: int,
    group_size: int,
    temperature: float,
    generator: torch.Generator | None,
    *,
    greedy: bool,
    engine: str | Engine,
) -> None:
    if max_new_tokens < 1 or group_size < 1:
        raise ValueError(
            f"max_new_tokens={max_new_tokens} and group_size={group_size}: expected at least 1 each"
        )
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected > 0 (or greedy=True)")
    if generator is None and not greedy:
        raise ValueError("generator is None, expected a torch.Generator (or greedy=True)")
    if isinstance(engine, str) and engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, expected one of {', '.join(ENGINES)}")


def end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The tokens that end a response: the tokenizer's, and what the model is generated with.

    A chat model has two as a rule, the end of a message and the end of a text.
    """
    given = model.generation_config.eos_token_id
    others = [given] if isinstance(given, int) else given or []
    return sorted({tokenizer.eos_token_id, *others})
