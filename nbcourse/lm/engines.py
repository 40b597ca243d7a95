"""What an engine is asked for and gives back, and the plain one: a forward pass for each token.

An engine takes a model and a `Job`, and gives `Responses`. How it keeps keys and values, which rows
it computes together and when it looks at what came out is its own affair; which distribution a
token is drawn from, how it is drawn and what ends a response is the job's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nbcourse.lm.rollouts import positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

LARGE_VOCABULARY = 10_000
"""Tokens from which on drawing from all of them at once is what takes the time."""


@dataclass(frozen=True)
class Job:
    """Prompts, and how responses to them are written.

    Attributes:
        prompt_ids: (N, P), padded on the left.
        prompt_mask: (N, P) bool, True on the prompts' own tokens.
        group_size: G, responses to each prompt.
        max_new_tokens: T, the longest response.
        temperature: τ > 0.
        generator: source of the draws; None to take the likeliest token.
        ends: (E,) tokens that end a response.
        padding: the token behind its end.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    group_size: int
    max_new_tokens: int
    temperature: float
    generator: torch.Generator | None
    ends: Tensor
    padding: int

    def blank(self) -> "Responses":
        """Nothing written yet."""
        device = self.prompt_ids.device
        rows = len(self.prompt_ids) * self.group_size
        return Responses(
            torch.full((rows, self.max_new_tokens), self.padding, device=device),
            torch.zeros(rows, self.max_new_tokens, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """A token for each row of logits, and its log-prob: (B, V) → two (B,).

        The log-prob is NaN where a row's logits are not finite.
        """
        scaled = logits.float()
        if self.temperature != 1:
            scaled = scaled / self.temperature
        distribution = scaled.log_softmax(dim=-1)
        greedy = self.generator is None
        chosen = distribution.argmax(dim=-1) if greedy else draw(distribution, self.generator)
        return chosen, distribution.gather(1, chosen[:, None]).squeeze(1)

    def ended(self, chosen: Tensor) -> Tensor:
        """Which tokens end a response."""
        return torch.isin(chosen, self.ends)


class Responses(NamedTuple):
    """What an engine has written; row i · G + j is response j to prompt i.

    Attributes:
        tokens: (N · G, T), padding behind the end.
        log_probs: (N · G, T) float32 of the distribution that each token was drawn from; 0 behind
            the end.
        lengths: (N · G,) tokens in each, the one that ended it included.
    """

    tokens: Tensor
    log_probs: Tensor
    lengths: Tensor


Engine = Callable[["PreTrainedModel", Job], Responses]


def eager(model: "PreTrainedModel", job: Job) -> Responses:
    """One token at a time, checked as soon as it is drawn: a row that has ended leaves the batch.

    Raises:
        FloatingPointError: if the model gives logits that are not finite.
    """
    logits, cache = read_prompts(model, job)
    cache.batch_repeat_interleave(job.group_size)
    logits, attention = (
        x.repeat_interleave(job.group_size, dim=0) for x in (logits, job.prompt_mask.long())
    )
    written = job.blank()
    running = torch.arange(len(logits), device=logits.device)
    for t in range(job.max_new_tokens):
        chosen, log_probs = job.choose(logits)
        if log_probs.isnan().any():
            raise not_finite(t)
        written.tokens[running, t] = chosen
        written.log_probs[running, t] = log_probs
        written.lengths[running] += 1  # EOS counts: the policy is trained to end, too
        going_on = (~job.ended(chosen)).nonzero().squeeze(1)
        if len(going_on) == 0 or t == job.max_new_tokens - 1:
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
    return written


def read_prompts(model: "PreTrainedModel", job: Job) -> tuple[Tensor, "Cache"]:
    """Logits of each prompt's next token, (N, V), and the prompts' keys and values."""
    from nbcourse.lm.cache import empty_cache  # transformers takes seconds to import

    cache = empty_cache(model)
    output = model(
        input_ids=job.prompt_ids,
        attention_mask=job.prompt_mask.long(),
        position_ids=positions(job.prompt_mask),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1], cache


def not_finite(t: int) -> FloatingPointError:
    """What an engine raises if a row that still ran had such logits."""
    return FloatingPointError(f"the policy's logits at response token {t} are not finite")


def draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """A token for each row of log-probabilities: (B, V) → (B,).

    Each token gets an exponential waiting time with its probability as rate, and the first to come
    is the one drawn. This is what `multinomial` does, number for number; but on a GPU that looks
    at the probabilities first, and so waits for them.

    It takes a random number for each token of the vocabulary. On a CPU this takes longer than a
    small model itself, if the vocabulary is large; then one number for each row is drawn, and the
    distribution function inverted.
    """
    if log_probs.device.type != "cpu" or log_probs.shape[1] < LARGE_VOCABULARY:
        probs = log_probs.exp()
        return probs.div_(torch.empty_like(probs).exponential_(generator=generator)).argmax(dim=-1)
    heights = log_probs.double().exp_().cumsum_(dim=1)
    drawn = torch.rand(len(heights), 1, dtype=heights.dtype, generator=generator)
    found = torch.searchsorted(heights, drawn * heights[:, -1:], right=True).squeeze(1)
    return found.clamp(max=log_probs.shape[1] - 1)  # in a row of NaN, none is found
