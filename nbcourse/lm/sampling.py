"""Sample responses in batches, keep what the learner needs, and stop paying for finished rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nbcourse.lm.rollouts import Rollout, encode, positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LARGE_VOCABULARY = 10_000
"""Tokens from which on drawing from all of them at once is what takes the time."""


@torch.no_grad()
def sample(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    *,
    max_new_tokens: int,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
    group_size: int = 1,
    greedy: bool = False,
) -> Rollout:
    """Sample `group_size` responses to each prompt, side by side.

    Each prompt runs through the model once, and its cache is then shared out to its group. A row
    that has ended leaves the batch, so the last long response does not drag the others along.

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

    Returns:
        A `Rollout` with B = len(prompts) · group_size rows; response j to prompt i is row
        i · group_size + j.

    Raises:
        ValueError: if there is no prompt, a prompt is empty or holds what the tokenizer does not
            know, a number is out of range, or there is neither a generator nor `greedy`.
        FloatingPointError: if the model gives logits that are not finite.

    Book: section "A language model is a policy".
    """
    if max_new_tokens < 1 or group_size < 1:
        raise ValueError(
            f"max_new_tokens={max_new_tokens} and group_size={group_size}: expected at least 1 each"
        )
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected > 0 (or greedy=True)")
    if generator is None and not greedy:
        raise ValueError("generator is None, expected a torch.Generator (or greedy=True)")
    from nbcourse.lm.cache import empty_cache  # transformers takes seconds to import

    prompt_ids, prompt_mask = encode(tokenizer, prompts, device=model.device)

    attention = prompt_mask.long()
    cache = empty_cache(model)
    output = model(
        input_ids=prompt_ids,
        attention_mask=attention,
        position_ids=positions(prompt_mask),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits = output.logits[:, -1]
    cache.batch_repeat_interleave(group_size)
    logits, attention = (x.repeat_interleave(group_size, dim=0) for x in (logits, attention))

    rows, eos = len(logits), tokenizer.eos_token_id
    ends = torch.tensor(end_tokens(model, tokenizer), device=model.device)
    tokens = torch.full((rows, max_new_tokens), eos, device=model.device)
    log_probs = torch.zeros(rows, max_new_tokens, device=model.device)
    lengths = torch.zeros(rows, dtype=torch.long, device=model.device)
    running = torch.arange(rows, device=model.device)
    for t in range(max_new_tokens):
        distribution = (logits.float() / temperature).log_softmax(dim=-1)
        if distribution.isnan().any():
            raise FloatingPointError(f"the policy's logits at response token {t} are not finite")
        chosen = distribution.argmax(dim=-1) if greedy else _draw(distribution, generator)
        tokens[running, t] = chosen
        log_probs[running, t] = distribution.gather(1, chosen[:, None]).squeeze(1)
        lengths[running] += 1
        going_on = (~torch.isin(chosen, ends)).nonzero().squeeze(1)
        if len(going_on) == 0 or t == max_new_tokens - 1:
            break
        if len(going_on) < len(chosen):
            cache.batch_select_indices(going_on)
            running, chosen, attention = running[going_on], chosen[going_on], attention[going_on]
        attention = torch.cat([attention, attention.new_ones(len(attention), 1)], dim=1)
        output = model(
            input_ids=chosen[:, None],
            attention_mask=attention,
            position_ids=attention.sum(dim=1, keepdim=True) - 1,
            past_key_values=cache,
            use_cache=True,
        )
        logits = output.logits[:, -1]

    width = int(lengths.max())
    last = tokens.gather(1, lengths[:, None] - 1).squeeze(1)
    return Rollout(
        prompt_ids=prompt_ids.repeat_interleave(group_size, dim=0),
        prompt_mask=prompt_mask.repeat_interleave(group_size, dim=0),
        tokens=tokens[:, :width],
        mask=torch.arange(width, device=model.device) < lengths[:, None],
        log_probs=log_probs[:, :width],
        truncated=~torch.isin(last, ends),
    )


def _draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """A token for each row of log-probabilities: (B, V) → (B,).

    `multinomial` draws a random number for each token of the vocabulary. On a CPU this takes longer
    than a small model itself, if the vocabulary is large; then one number for each row is drawn,
    and the distribution function inverted.
    """
    if log_probs.device.type != "cpu" or log_probs.shape[1] < LARGE_VOCABULARY:
        return torch.multinomial(log_probs.exp(), 1, generator=generator).squeeze(1)
    heights = log_probs.double().exp_().cumsum_(dim=1)
    drawn = torch.rand(len(heights), 1, dtype=heights.dtype, generator=generator)
    return torch.searchsorted(heights, drawn * heights[:, -1:], right=True).squeeze(1)


def end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The tokens that end a response: the tokenizer's, and what the model is generated with.

    A chat model has two as a rule, the end of a message and the end of a text.
    """
    given = model.generation_config.eos_token_id
    others = [given] if isinstance(given, int) else given or []
    return sorted({tokenizer.eos_token_id, *others})
