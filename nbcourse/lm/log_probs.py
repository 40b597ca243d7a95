"""Log-probabilities of chosen tokens: in float32, at the sampler's temperature, without the table.

The table is the trouble. For 4 responses of 512 tokens and a vocabulary of 151,936, the logits are
1.2 GB in float32, and the plain `log_softmax(...).gather(...)` makes two more of them. Only one
number in each row is wanted.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nbcourse.lm.rollouts import Rollout, model_inputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 1 << 22  # numbers held in float32 at a time: 16 MiB


def token_log_probs(logits: Tensor, tokens: Tensor, *, temperature: float = 1.0) -> Tensor:
    """log π(token) for each position, from logits that are there already.

        log π(a) = z_a/τ − log Σ_c exp(z_c/τ)

    Args:
        logits: (..., V) in any floating-point dtype.
        tokens: (...) integer token at each position. For a causal model the logits that chose
            token t stand one position before it; the caller shifts.
        temperature: τ > 0, the sampler's. Another one gives the log-probs of another policy.

    Returns:
        (...) in float32 (float64 for float64 logits), differentiable with respect to the logits.
        Besides the gradient, no second tensor of the size of the logits is made.

    Raises:
        ValueError: if shapes do not fit, tokens are not integers, or the temperature is not
            positive.

    Book: equation (eq-token-log-prob).
    """
    _check(logits, tokens, temperature, name="logits")
    return _FromLogits.apply(logits, tokens, temperature)


def hidden_log_probs(
    hidden: Tensor, weight: Tensor, tokens: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """log π(token) for each position, from the last hidden states: the logits are never whole.

    The output matrix is applied to a few positions at a time, and once more on the way back.

    Args:
        hidden: (..., H) last hidden states, in any floating-point dtype.
        weight: (V, H) the output embedding.
        tokens: (...) integers.
        temperature: τ > 0, the sampler's.

    Returns:
        (...) in float32, differentiable with respect to `hidden` and `weight`.

    Raises:
        ValueError: if shapes do not fit, tokens are not integers, or the temperature is not
            positive.

    Book: equation (eq-token-log-prob).
    """
    _check(hidden, tokens, temperature, name="hidden")
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}, expected (V, {hidden.shape[-1]})"
        )
    return _FromHidden.apply(hidden, weight, tokens, temperature)


def rollout_states(model: "PreTrainedModel", rollout: Rollout) -> Tensor:
    """Last hidden states of the states in which the response tokens were chosen: (B, T, H).

    Token t was chosen by the state one position before it. The shift by one happens here, for
    hidden states, and in `rollout_log_probs`, for logits, and nowhere else.
    """
    hidden = model.base_model(**model_inputs(rollout), use_cache=False).last_hidden_state
    return hidden[:, -rollout.tokens.shape[1] - 1 : -1]


def rollout_log_probs(
    model: "PreTrainedModel",
    rollout: Rollout,
    *,
    temperature: float = 1.0,
    chunked: bool = False,
) -> Tensor:
    """log π(token) of every response token under `model`, in one forward pass, with gradient.

    Args:
        model: a causal language model of transformers.
        rollout: what was sampled, by this model or another.
        temperature: the sampler's.
        chunked: take the output matrix a few positions at a time, so that the logits are never
            whole. Only for models whose logits are the hidden states times that matrix.

    Returns:
        (B, T) float32; what stands on padding has no meaning and is to be masked.

    Book: equation (eq-token-log-prob).
    """
    if chunked:
        weight = model.get_output_embeddings().weight
        return hidden_log_probs(
            rollout_states(model, rollout), weight, rollout.tokens, temperature=temperature
        )
    keep = rollout.tokens.shape[1] + 1
    logits = model(**model_inputs(rollout), use_cache=False, logits_to_keep=keep).logits
    return token_log_probs(logits[:, :-1], rollout.tokens, temperature=temperature)


def _check(states: Tensor, tokens: Tensor, temperature: float, *, name: str) -> None:
    if tokens.shape != states.shape[:-1]:
        raise ValueError(
            f"tokens has shape {tuple(tokens.shape)}, expected {tuple(states.shape[:-1])}: "
            f"one token for each row of {name}"
        )
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"tokens has dtype {tokens.dtype}, expected integers")
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected a positive number")


def _accurate(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _rows(columns: int) -> int:
    return max(1, CHUNK // columns)


def _normalised(scaled: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each row's token, and the row's log-sum-exp."""
    log_sum = scaled.logsumexp(dim=1)
    return scaled.gather(1, tokens[:, None]).squeeze(1) - log_sum, log_sum


def _score(scaled: Tensor, log_sum: Tensor, tokens: Tensor, grad: Tensor) -> Tensor:
    """The gradient with respect to the scaled logits, grad · (1[a] − π), in place of them."""
    score = scaled.sub_(log_sum[:, None]).exp_().mul_(-grad[:, None])
    return score.scatter_add_(1, tokens[:, None], grad[:, None])


class _FromLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        rows, flat = logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1)
        step = _rows(rows.shape[1])
        parts = [
            _normalised(_accurate(rows[i : i + step]) / temperature, flat[i : i + step])
            for i in range(0, len(rows), step)
        ]
        empty = _accurate(logits.new_empty(0))
        log_probs = torch.cat([empty, *(part[0] for part in parts)])
        ctx.save_for_backward(rows, flat, torch.cat([empty, *(part[1] for part in parts)]))
        ctx.shape, ctx.temperature = logits.shape, temperature
        return log_probs.view(tokens.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows, flat, log_sum = ctx.saved_tensors
        grad = grad.reshape(-1) / ctx.temperature
        result = torch.empty_like(rows)
        step = _rows(rows.shape[1])
        for i in range(0, len(rows), step):
            part = slice(i, i + step)
            scaled = _accurate(rows[part]) / ctx.temperature
            result[part] = _score(scaled, log_sum[part], flat[part], grad[part])
        return result.view(ctx.shape), None, None


class _FromHidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float
    ) -> Tensor:
        rows, flat = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)
        step = _rows(len(weight))
        parts = [
            _normalised(_accurate(rows[i : i + step] @ weight.T) / temperature, flat[i : i + step])
            for i in range(0, len(rows), step)
        ]
        empty = _accurate(hidden.new_empty(0))
        log_probs = torch.cat([empty, *(part[0] for part in parts)])
        log_sum = torch.cat([empty, *(part[1] for part in parts)])
        ctx.save_for_backward(rows, weight, flat, log_sum)
        ctx.shape, ctx.temperature = hidden.shape, temperature
        return log_probs.view(tokens.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        rows, weight, flat, log_sum = ctx.saved_tensors
        grad = grad.reshape(-1) / ctx.temperature
        to_hidden = torch.empty_like(rows)
        # Summed over chunks in float32: the terms of a large batch are small against their sum.
        to_weight = torch.zeros_like(_accurate(weight)) if ctx.needs_input_grad[1] else None
        step = _rows(len(weight))
        for i in range(0, len(rows), step):
            part = slice(i, i + step)
            scaled = _accurate(rows[part] @ weight.T) / ctx.temperature
            score = _score(scaled, log_sum[part], flat[part], grad[part]).to(rows.dtype)
            to_hidden[part] = score @ weight
            if to_weight is not None:
                to_weight += score.T @ rows[part]
        if to_weight is not None:
            to_weight = to_weight.to(weight.dtype)
        return to_hidden.view(ctx.shape), to_weight, None, None
