"""Layers of the Llama or Qwen2 shape in few operations, and a decoder made of them.

A layer of transformers asks for 36 operations for a token, however little each has to do. Here
products with the same input are one product, queries and keys are turned together, and a norm is
one operation. Query heads that share keys read them side by side: transformers, where there is a
mask, writes the keys out once for each of them first.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

SHAPES = ("llama", "qwen2")
"""Types of model, as their configurations name them, whose layers are computed here."""

Turn = tuple[Tensor, Tensor]
"""Cosines and signed sines of each position's rotation, (B, T, 1, D) each."""


class _Product(NamedTuple):
    """One linear layer in place of those that read the same input."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class _Norm(NamedTuple):
    """A root-mean-square norm."""

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight.shape, self.weight, self.eps)


class Layer(NamedTuple):
    """What a layer computes with, in the order in which it does."""

    before_attention: _Norm
    queries_keys_values: _Product
    attended: _Product
    before_mlp: _Norm
    gate_and_up: _Product
    down: _Product


def layers(model: "PreTrainedModel") -> Iterator[Layer]:
    """The layers of a model, weights with the same input side by side: copies, with gradient.

    Raises:
        ValueError: if the model has another type or activation, an adapter, or windows.
    """
    _check(model)
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        yield Layer(
            norm(layer.input_layernorm),
            _product(attention.q_proj, attention.k_proj, attention.v_proj),
            _product(attention.o_proj),
            norm(layer.post_attention_layernorm),
            _product(mlp.gate_proj, mlp.up_proj),
            _product(mlp.down_proj),
        )


def into_heads(layer: Layer, x: Tensor, turn: Turn, shared: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of hidden states: (B, T, H, D), and twice (B, T, `shared`, D)."""
    size = turn[0].shape[-1]
    heads = layer.queries_keys_values(layer.before_attention(x)).unflatten(-1, (-1, size))
    turned = _turned(heads[:, :, :-shared], *turn)
    return turned[:, :, :-shared], turned[:, :, -shared:], heads[:, :, -shared:]


def out_of_heads(layer: Layer, x: Tensor, read: Tensor) -> Tensor:
    """The hidden states behind a layer, from those before it and what its heads read: (B, T, …)."""
    x = x + layer.attended(read)
    gate, up = layer.gate_and_up(layer.before_mlp(x)).chunk(2, dim=-1)
    return x + layer.down(silu(gate) * up)


def turns(model: "PreTrainedModel", x: Tensor, position: Tensor) -> Turn:
    """How queries and keys are turned at these positions, (B, T), for all heads of a row alike."""
    cosines, sines = model.model.rotary_emb(x, position)
    half = sines.shape[-1] // 2
    signed = torch.cat([-sines[..., :half], sines[..., half:]], dim=-1)
    return cosines[:, :, None], signed[:, :, None]


class Packed:
    """A model's step: the last token of each row to the logits of its next one.

    Args:
        model: of a type in `SHAPES`, with its plain linear layers. Their weights are copied: what
            the model learns afterwards, this does not know.

    Raises:
        ValueError: if the model has another type or activation, an adapter, or windows.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        self.layers = list(layers(model))
        self.model, self.last_norm = model, norm(model.model.norm)

    def __call__(self, token: Tensor, position: Tensor, attended: Tensor, cache: "Cache") -> Tensor:
        """The logits, (B, V), of the tokens behind these, whose keys and values the cache gets.

        Args:
            token: (B, 1).
            position: (B, 1) of each in its own sequence.
            attended: (B, 1, 1, C) bool, which columns of the cache count, the new one included.
            cache: keys and values of all tokens before.
        """
        shared = self.model.config.num_key_value_heads
        x = self.model.model.embed_tokens(token)
        turn = turns(self.model, x, position)
        for index, layer in enumerate(self.layers):
            queries, keys, values = into_heads(layer, x, turn, shared)
            keys, values = cache.update(keys.transpose(1, 2), values.transpose(1, 2), index)
            # (B, 1, H, D) → (B, K, H / K, D): the heads that share keys as that many queries
            queries = queries.reshape(len(x), shared, -1, queries.shape[-1])
            read = scaled_dot_product_attention(queries, keys, values, attn_mask=attended)
            x = out_of_heads(layer, x, read.reshape(len(x), 1, -1))
        return self.model.lm_head(self.last_norm(x))[:, -1]


def _check(model: "PreTrainedModel") -> None:
    config = model.config
    if config.model_type not in SHAPES:
        raise ValueError(
            f"the model is of type {config.model_type!r}, expected {' or '.join(SHAPES)} for "
            "packed layers"
        )
    if config.hidden_act != "silu":
        raise ValueError(
            f"the model's activation is {config.hidden_act!r}, expected 'silu' for packed layers"
        )
    kinds = getattr(config, "layer_types", None) or []
    if windows := [i for i, kind in enumerate(kinds) if kind != "full_attention"]:
        raise ValueError(
            f"layer {windows[0]} of the model reads a window ({kinds[windows[0]]}), expected "
            "layers that read all tokens for packed layers"
        )
    for name, layer in model.model.layers[0].named_modules():
        kind = type(layer)
        if name.endswith("_proj") and kind is not nn.Linear:
            raise ValueError(
                f"{name} of the model is a {kind.__module__}.{kind.__name__}, expected a plain "
                "linear layer for packed layers (an adapter takes others)"
            )


def norm(module: Any) -> _Norm:
    """A norm of the model, as one operation."""
    return _Norm(module.weight, module.variance_epsilon)


def _product(*layers: nn.Linear) -> _Product:
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return _Product(_joined(weights), _joined(biases) if biases else None)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn pairs of numbers, the i-th of a head's first half with the i-th of its second."""
    return x * cosines + x.roll(x.shape[-1] // 2, dims=-1) * sines
