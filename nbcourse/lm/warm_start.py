"""Supervised warm start: without a right answer, rewards of 0 and 1 teach nothing."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from nbcourse.functional.aggregation import aggregate
from nbcourse.lm.descent import descend, up_and_down
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.rollouts import Rollout, from_texts, select

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Examples = Callable[[int], Sequence[tuple[str, str]]]


def warm_start(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    examples: Examples,
    *,
    steps: int,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    progress: bool = True,
) -> list[float]:
    """Train the model to give the right response to a prompt, and to end it.

        L = −(mean over response tokens) log π(token)

    The loss covers the responses with their end-of-sequence tokens, not the prompts.

    Args:
        model: trained in place, with AdamW and gradients clipped to norm 1.
        tokenizer: its tokenizer.
        examples: called with `batch_size` at each step; returns (prompt, response) pairs.
        steps: number of updates.
        batch_size: pairs in each.
        learning_rate: reached after a warm-up over a tenth of the steps, then lowered to 0 along a
            cosine.
        progress: draw a progress bar.

    Returns:
        The loss of each step.

    Raises:
        ValueError: if a number is out of range.
        FloatingPointError: if a loss or a gradient is not finite, naming the step.

    Book: section "Supervised warm start".
    """

    def loss_of_batch() -> Tensor:
        prompts, responses = zip(*examples(batch_size), strict=True)
        return imitation_loss(model, from_texts(tokenizer, prompts, responses, device=model.device))

    model.train()
    losses = descend(
        model,
        loss_of_batch,
        label="warm start",
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        share=partial(up_and_down, steps=steps),
        progress=progress,
    )
    model.eval()
    return losses


def imitation_loss(model: "PreTrainedModel", batch: Rollout, rows: Tensor | None = None) -> Tensor:
    """Minus the mean log-probability of a batch's response tokens, or some rows' part in it.

    Args:
        model: a causal language model of transformers.
        batch: responses to learn.
        rows: indices; the parts of rows that together are the batch add up to its loss.
    """
    part = batch if rows is None else select(batch, rows)
    losses = -rollout_log_probs(model, part)
    return aggregate(losses, part.mask, "token-mean", batch_mask=batch.mask)
