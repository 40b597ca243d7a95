"""Log-probabilities of chosen tokens: in float32, at the sampler's temperature, without the table.

The table is the trouble. For 4 responses of 512 tokens and a vocabulary of 151,936, the logits are
1.2 GB in float32, and the plain `log_softmax(...).gather(...)` makes two more of them. Only one
number in each row is wanted.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nbcourse.functional import kl
from nbcourse.lm.casting import as_now, product_dtype
from nbcourse.lm.forwards import Forward, whole
from nbcourse.lm.rollouts import Rollout, model_inputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 1 << 20  # numbers held in float32 at a time: 4 MiB, which stay in a processor's cache
ON_A_CARD = 64  # times as many: on an H100 a learning step takes 1.3 times as long with 16
ROWS = 128  # at least, where each piece means a pass over the output matrix
KEPT = 1 << 29  # bytes of logits, 512 MiB, up to which keeping them is worth their memory


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, consume: bool = False
) -> Tensor:
    """log π(token) for each position, from logits that are there already.

        log π(a) = z_a/τ − log Σ_c exp(z_c/τ)

    Args:
        logits: (..., V) in any floating-point dtype.
        tokens: (...) integer token at each position. For a causal model the logits that chose
            token t stand one position before it; the caller shifts.
        temperature: τ > 0, the sampler's. Another one gives the log-probs of another policy.
        consume: in the backward pass, write the gradient over the logits. For logits that are not
            read again: autograd's own check refuses a later use.

    Returns:
        (...) in float32 (float64 for float64 logits), differentiable with respect to the logits.
        The gradient is the only second tensor of their size, and with `consume` there is none.

    Raises:
        ValueError: if shapes do not fit, tokens are not integers, or the temperature is not
            positive.

    Book: equation (eq-token-log-prob).
    """
    _check(logits, tokens, temperature, name="logits")
    if logits.numel() <= _piece(logits):  # only one, so the plain way takes no more memory
        table = _scaled(logits, temperature).log_softmax(dim=-1)
        return table.gather(-1, tokens[..., None]).squeeze(-1)
    return _FromLogits.apply(logits, tokens, temperature, consume)


def hidden_log_probs(
    hidden: Tensor, weight: Tensor, tokens: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """log π(token) for each position, from the last hidden states, without a table of logits.

    Where the logits would take more than 512 MiB (`KEPT`), the output matrix is applied to a few
    positions at a time, and again in the backward pass: a third more work. Where they take less,
    they are kept, and their gradient takes their place.

    Args:
        hidden: (..., H) last hidden states, in any floating-point dtype.
        weight: (V, H) the output embedding.
        tokens: (...) integers.
        temperature: τ > 0, the sampler's.

    Returns:
        (...) in float32 (float64 for float64 states), differentiable with respect to `hidden` and
        `weight`.

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
    if tokens.numel() * len(weight) * product_dtype(hidden).itemsize <= KEPT:
        logits = nn.functional.linear(hidden, weight)
        return token_log_probs(logits, tokens, temperature=temperature, consume=True)
    return _FromHidden.apply(hidden, weight, tokens, temperature)


def hidden_divergences(
    hidden: Tensor,
    weight: Tensor,
    ref_hidden: Tensor,
    ref_weight: Tensor,
    *,
    temperature: float = 1.0,
) -> Tensor:
    """KL(π‖π_ref) of the next token over the whole vocabulary, from the last hidden states of both.

    The logits exist for a few positions at a time, and are computed again in the backward pass.

    Args:
        hidden: (..., H) last hidden states of the policy.
        weight: (V, H) its output embedding.
        ref_hidden: (..., H') of the reference in the same states.
        ref_weight: (V, H').
        temperature: τ > 0, the sampler's.

    Returns:
        (...) in float32 (float64 for float64 states), in nats, differentiable with respect to
        `hidden` and `weight`.

    Raises:
        ValueError: if shapes do not fit or the temperature is not positive.

    Book: equation (eq-kl-exact).
    """
    for name, states, matrix in (
        ("hidden", hidden, weight),
        ("ref_hidden", ref_hidden, ref_weight),
    ):
        if matrix.dim() != 2 or matrix.shape[1] != states.shape[-1]:
            raise ValueError(
                f"{name} has shape {tuple(states.shape)} and its output embedding "
                f"{tuple(matrix.shape)}, expected (V, {states.shape[-1]})"
            )
    if hidden.shape[:-1] != ref_hidden.shape[:-1] or len(weight) != len(ref_weight):
        raise ValueError(
            f"ref_hidden has shape {tuple(ref_hidden.shape)} for {len(ref_weight)} tokens, "
            f"expected {(*hidden.shape[:-1], 'H')} for {len(weight)}"
        )
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, expected a positive number")
    size = max(ROWS, _piece(hidden) // len(weight))
    rows = zip(
        hidden.flatten(0, -2).split(size), ref_hidden.flatten(0, -2).split(size), strict=True
    )
    pieces = [
        checkpoint(
            _divergences, own, weight, ref, ref_weight.detach(), temperature, use_reentrant=False
        )
        for own, ref in rows
    ]
    return torch.cat(pieces).view(hidden.shape[:-1])


def _divergences(
    states: Tensor, weight: Tensor, ref_states: Tensor, ref_weight: Tensor, temperature: float
) -> Tensor:
    logits, ref_logits = (
        (x @ matrix.T).to(_accurate(x)) / temperature
        for x, matrix in ((states, weight), (ref_states.detach(), ref_weight))
    )
    return kl.exact(logits, ref_logits)


def rollout_states(
    model: "PreTrainedModel",
    rollout: Rollout,
    *,
    group_size: int = 1,
    forward: Forward = whole,
) -> Tensor:
    """Last hidden states of the states in which the response tokens were chosen: (B, T, H).

    Token t was chosen by the state one position before it. The shift by one happens here and in
    `rollout_log_probs`, in the one function that both call, and nowhere else.

    Args:
        model: a causal language model of transformers.
        rollout: what was sampled, by this model or another.
        group_size: rows that stand side by side and share a prompt. Above 1, each prompt runs
            through the model once and its keys and values are shared out, gradient included.
        forward: what computes them, such as one of `forwards.FORWARDS`.

    Raises:
        ValueError: if the rows are not groups of this size with one prompt each.
    """
    return _choosing(forward, model, rollout, group_size)


def rollout_log_probs(
    model: "PreTrainedModel",
    rollout: Rollout,
    *,
    temperature: float = 1.0,
    chunked: bool = False,
    group_size: int = 1,
    forward: Forward = whole,
) -> Tensor:
    """log π(token) of every response token under `model`, in one forward pass, with gradient.

    Args:
        model: a causal language model of transformers.
        rollout: what was sampled, by this model or another.
        temperature: the sampler's.
        chunked: from the hidden states, as `hidden_log_probs` does, and without those on padding.
            Only for models whose logits are the hidden states times the output matrix.
        group_size: rows side by side that share a prompt, which is then computed once.
        forward: what computes the hidden states, if they are asked for (`chunked`).

    Returns:
        (B, T) float32; what stands on padding has no meaning and is to be masked.

    Raises:
        ValueError: if the rows are not groups of `group_size` with one prompt each.

    Book: equation (eq-token-log-prob).
    """
    if chunked:
        states = rollout_states(model, rollout, group_size=group_size, forward=forward)
        weight = model.get_output_embeddings().weight
        return state_log_probs(states, weight, rollout, temperature=temperature)
    logits = _choosing(_logits, model, rollout, group_size)
    return token_log_probs(logits, rollout.tokens, temperature=temperature, consume=True)


def state_log_probs(
    states: Tensor, weight: Tensor, rollout: Rollout, *, temperature: float = 1.0
) -> Tensor:
    """`hidden_log_probs` of a rollout's own tokens: no padding goes through the output matrix.

    Args:
        states: (B, T, H) those in which the response tokens were chosen.
        weight: (V, H) the output embedding.
        rollout: B rows.
        temperature: the sampler's.

    Returns:
        (B, T) float32, 0 on padding.
    """
    mask = rollout.mask
    found = hidden_log_probs(states[mask], weight, rollout.tokens[mask], temperature=temperature)
    return found.new_zeros(mask.shape).masked_scatter(mask, found)


def _logits(model: "PreTrainedModel", keep: int, **inputs: Any) -> Tensor:
    return model(**inputs, logits_to_keep=keep).logits


def _choosing(
    forward: Callable[..., Tensor], model: "PreTrainedModel", rollout: Rollout, group: int
) -> Tensor:
    """What `forward` gives, hidden states or logits, where each response token was chosen.

    That is one position before the token itself: the prompt's last position for the first token,
    response token t − 1 for token t. The last response token chooses nothing and is left out.
    """
    inputs, width = model_inputs(rollout), rollout.tokens.shape[1]
    if group == 1:
        inputs = {name: x[:, :-1] for name, x in inputs.items()}
        return forward(model, keep=width, use_cache=False, **inputs)

    same = (
        rollout.prompt_ids.unflatten(0, (-1, group)) if len(rollout.tokens) % group == 0 else None
    )
    if same is None or not (same == same[:, :1]).all():
        raise ValueError(
            f"group_size is {group}, expected rollouts in which the prompt changes only at "
            "multiples of it"
        )
    from transformers import DynamicCache  # takes seconds to import

    prompt, cache = rollout.prompt_ids.shape[1], DynamicCache(config=model.config)
    forward = partial(forward, model, past_key_values=cache, use_cache=True)
    first = forward(keep=1, **{name: x[::group, :prompt] for name, x in inputs.items()})
    first = first.repeat_interleave(group, dim=0)
    if width == 1:
        return first
    cache.batch_repeat_interleave(group)
    later = forward(
        keep=width - 1,
        input_ids=rollout.tokens[:, :-1],
        attention_mask=inputs["attention_mask"][:, :-1],
        position_ids=inputs["position_ids"][:, prompt:-1],
    )
    return torch.cat([first, later], dim=1)


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


def _piece(x: Tensor) -> int:
    """Numbers held in float32 at a time on the device of x."""
    return CHUNK if x.device.type == "cpu" else ON_A_CARD * CHUNK


def _accurate(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _scaled(logits: Tensor, temperature: float) -> Tensor:
    logits = logits.to(_accurate(logits))
    return logits if temperature == 1 else logits / temperature


class _Scratch:
    """The one buffer in which a few rows of logits at a time are normalised."""

    def __init__(self, like: Tensor, columns: int, temperature: float, at_least: int) -> None:
        self.rows = min(len(like), max(at_least, _piece(like) // columns))
        self.temperature = temperature
        self.buffer = like.new_empty(self.rows, columns, dtype=_accurate(like))

    def pieces(self, count: int) -> Iterator[slice]:
        return (slice(i, min(i + self.rows, count)) for i in range(0, count, self.rows or 1))

    def log_probs(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Log-probability of each row's token."""
        scaled, buffer = _scaled(logits, self.temperature), self.buffer[: len(logits)]
        return torch.log_softmax(scaled, 1, out=buffer).gather(1, tokens[:, None]).squeeze(1)

    def gradient(
        self, logits: Tensor, tokens: Tensor, grad: Tensor, *, into: Tensor | None = None
    ) -> Tensor:
        """With respect to the logits: grad/τ · (1[a] − π), in the buffer, or in `into` if it fits.

        1 − π is small where π is near 1, so the difference is taken before anything is rounded.
        """
        scaled, buffer = _scaled(logits, self.temperature), self.buffer[: len(logits)]
        score = buffer if into is None or into.dtype != buffer.dtype else into
        grad = grad[:, None] / self.temperature
        torch.mul(torch.softmax(scaled, 1, out=buffer), -grad, out=score)
        return score.scatter_add_(1, tokens[:, None], grad)


def _in_pieces(rows: Tensor, tokens: Tensor, scratch: _Scratch, logits_of: Callable) -> Tensor:
    """Log-probs of all rows; `logits_of` gives the logits of a piece of them."""
    log_probs = rows.new_empty(len(rows), dtype=_accurate(rows))
    for part in scratch.pieces(len(rows)):
        log_probs[part] = scratch.log_probs(logits_of(part), tokens[part])
    return log_probs


class _FromLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, temperature: float, consume: bool
    ) -> Tensor:
        rows, flat = logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1)
        scratch = _Scratch(rows, rows.shape[1], temperature, at_least=1)
        log_probs = _in_pieces(rows, flat, scratch, lambda part: rows[part])
        ctx.save_for_backward(rows, flat)
        ctx.shape, ctx.temperature, ctx.consume = logits.shape, temperature, consume
        return log_probs.view(tokens.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        rows, flat = ctx.saved_tensors
        grad, result = grad.reshape(-1), rows if ctx.consume else torch.empty_like(rows)
        scratch = _Scratch(rows, rows.shape[1], ctx.temperature, at_least=1)
        for part in scratch.pieces(len(rows)):
            into = result[part]
            score = scratch.gradient(rows[part], flat[part], grad[part], into=into)
            if score is not into:
                into.copy_(score)
        return result.view(ctx.shape), None, None, None


def _cast(weight: Tensor) -> Tensor:
    """The output matrix as products take it: autocast would cast it anew for each piece."""
    return weight.to(product_dtype(weight))


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, without a second tensor of that size where the dtypes allow it."""
    if left.dtype == total.dtype and not torch.is_autocast_enabled(total.device.type):
        total.addmm_(left, right)
    else:
        total += left @ right


class _FromHidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, tokens: Tensor, temperature: float
    ) -> Tensor:
        rows, flat = hidden.reshape(-1, hidden.shape[-1]), tokens.reshape(-1)
        scratch = _Scratch(rows, len(weight), temperature, at_least=ROWS)
        matrix = _cast(weight)
        log_probs = _in_pieces(rows, flat, scratch, lambda part: rows[part] @ matrix.T)
        ctx.save_for_backward(rows, weight, flat)
        ctx.shape, ctx.temperature = hidden.shape, temperature
        # The backward pass computes the logits again, and has to round them as here.
        ctx.precision = as_now(hidden.device.type)
        return log_probs.view(tokens.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        rows, weight, flat = ctx.saved_tensors
        grad, to_hidden = grad.reshape(-1), torch.empty_like(rows)
        # Summed over pieces in float32: the terms of a large batch are small against their sum.
        frozen = not ctx.needs_input_grad[1]
        to_weight = None if frozen else torch.zeros_like(weight, dtype=_accurate(weight))
        scratch = _Scratch(rows, len(weight), ctx.temperature, at_least=ROWS)
        with ctx.precision:
            matrix = _cast(weight)
            for part in scratch.pieces(len(rows)):
                logits = rows[part] @ matrix.T
                score = scratch.gradient(logits, flat[part], grad[part]).to(rows.dtype)
                to_hidden[part] = score @ matrix
                if to_weight is not None:
                    _add_product(to_weight, score.T, rows[part])
        weight_grad = None if to_weight is None else to_weight.to(weight.dtype)
        return to_hidden.view(ctx.shape), weight_grad, None, None
