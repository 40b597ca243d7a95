"""Supervised warm start: reinforcement learning can only strengthen what is sometimes said."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from nbcourse.functional.aggregation import aggregate
from nbcourse.lm.descent import descend, up_and_down
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.rollouts import from_texts

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
        FloatingPointError: if the loss is not finite, naming the step.

    Book: section "Supervised warm start".
    """
    model.train()
    losses = descend(
        model,
        lambda: imitation_loss(model, tokenizer, examples(batch_size)),
        label="warm start",
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        share=partial(up_and_down, steps=steps),
        progress=progress,
    )
    model.eval()
    return losses


def imitation_loss(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    examples: Sequence[tuple[str, str]],
) -> Tensor:
    """Minus the mean log-probability of the response tokens of (prompt, response) pairs."""
    prompts, responses = zip(*examples, strict=True)
    batch = from_texts(tokenizer, prompts, responses, device=model.device)
    return aggregate(-rollout_log_probs(model, batch), batch.mask, "token-mean")
