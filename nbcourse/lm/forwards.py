"""What computes the hidden states that log-probs are taken from, by the name that recipes give it.

A learner's pass differs from a decoder's step: many tokens of a row at once, with gradient, and the
weights as they are now.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from nbcourse.lm.packed import Layer, Turn, into_heads, layers, norm, out_of_heads, turns

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

Forward = Callable[..., Tensor]
"""A model, how many of the last positions to keep, and a model's inputs → (B, keep, H)."""


def whole(model: "PreTrainedModel", keep: int, **inputs: object) -> Tensor:
    """The model as it is."""
    return model.base_model(**inputs).last_hidden_state[:, -keep:]


def packed(
    model: "PreTrainedModel",
    keep: int,
    *,
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    past_key_values: "Cache | None" = None,
    use_cache: bool = False,
    compiled: bool = False,
) -> Tensor:
    """A model of the Llama or Qwen2 shape, in few operations.

    Attention and the cache stand between the two halves of a layer, and outside of what is
    compiled: so all layers, whatever number they have, are two compiled functions.

    Args:
        model: of a type in `packed.SHAPES`, with its plain linear layers.
        keep: of the last positions.
        input_ids: (B, T).
        attention_mask: (B, S), of all S ≥ T tokens so far.
        position_ids: (B, T).
        past_key_values: keys and values of the S − T tokens before.
        use_cache: whether it gets those of these tokens.
        compiled: have torch compile what stands before and behind attention.

    Raises:
        ValueError: if the model has another type or activation, an adapter, or windows.
    """
    before, behind = _compiled() if compiled else (_heads, out_of_heads)
    heads, shared = model.config.num_attention_heads, model.config.num_key_value_heads
    x = model.model.embed_tokens(input_ids)
    turn, attended = turns(model, x, position_ids), _attended(attention_mask, x.shape[1])
    for index, layer in enumerate(layers(model)):
        queries, keys, values = before(layer, x, turn, shared)
        if past_key_values is not None and use_cache:
            keys, values = past_key_values.update(keys, values, index)
        # one copy for each query head: grouped attention with a mask has no fast kernel
        keys, values = (part.repeat_interleave(heads // shared, dim=1) for part in (keys, values))
        read = scaled_dot_product_attention(queries, keys, values, attn_mask=attended)
        x = behind(layer, x, read.transpose(1, 2).flatten(2))
    return norm(model.model.norm)(x[:, -keep:])


def _heads(layer: Layer, x: Tensor, turn: Turn, shared: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as attention takes them: heads first, in one precision."""
    queries, keys, values = into_heads(layer, x, turn, shared)
    alike = (part.to(values.dtype).transpose(1, 2) for part in (queries, keys, values))
    return tuple(alike)  # type: ignore[return-value]


def _attended(mask: Tensor, queries: int) -> Tensor:
    """Which columns each of the last positions reads: (B, S) → (B, 1, `queries`, S) bool.

    Itself in any case: padding that read nothing would be NaN.
    """
    columns = mask.shape[1]
    past = torch.ones(queries, columns, dtype=torch.bool, device=mask.device)
    past = past.tril(columns - queries)
    own = past & ~past.tril(columns - queries - 1)
    return past & (mask.bool()[:, None, None] | own)


@cache
def _compiled() -> tuple[Callable[..., tuple[Tensor, ...]], Callable[..., Tensor]]:
    """For the first sizes, and again, once and for all, for the sizes that turn out to change.

    With `dynamic=True` the sizes of weights would be unknown too, on which torch 2.13 fails.
    """
    return torch.compile(_heads), torch.compile(out_of_heads)


FORWARDS: Mapping[str, Forward] = {
    "transformers": whole,
    "packed": packed,
    "packed-compiled": partial(packed, compiled=True),
}
