"""One token for each row through a model of the Llama or Qwen2 shape, in few operations.

A layer of transformers asks for 36 operations for a token, however little each has to do. Here
products with the same input are one product, queries and keys are turned together, and a norm is
one operation. Query heads that share keys read them side by side: transformers, where there is a
mask, writes the keys out once for each of them first.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

SHAPES = ("llama", "qwen2")
"""Types of model, as their configurations name them, that `Packed` computes."""


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


class _Layer(NamedTuple):
    """What a layer computes with, in the order in which it does."""

    before_attention: _Norm
    queries_keys_values: _Product
    attended: _Product
    before_mlp: _Norm
    gate_and_up: _Product
    down: _Product


class Packed:
    """A model's step: the last token of each row to the logits of its next one.

    Args:
        model: of a type in `SHAPES`, with its plain linear layers. Their weights are copied: what
            the model learns afterwards, this does not know.

    Raises:
        ValueError: if the model is of another type, has an adapter, or another activation.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        _check(model)
        self.model = model
        config = model.config
        self.heads, self.shared = config.num_attention_heads, config.num_key_value_heads
        self.layers = [
            _Layer(
                _norm(layer.input_layernorm),
                _product(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                _product(layer.self_attn.o_proj),
                _norm(layer.post_attention_layernorm),
                _product(layer.mlp.gate_proj, layer.mlp.up_proj),
                _product(layer.mlp.down_proj),
            )
            for layer in model.model.layers
        ]
        self.last_norm = _norm(model.model.norm)

    def __call__(self, token: Tensor, position: Tensor, attended: Tensor, cache: "Cache") -> Tensor:
        """The logits, (B, V), of the tokens behind these, whose keys and values the cache gets.

        Args:
            token: (B, 1).
            position: (B, 1) of each in its own sequence.
            attended: (B, 1, 1, C) bool, which columns of the cache count, the new one included.
            cache: keys and values of all tokens before.
        """
        x = self.model.model.embed_tokens(token)
        turn = _quarter_turns(*self.model.model.rotary_emb(x, position))
        for index, layer in enumerate(self.layers):
            heads = layer.queries_keys_values(layer.before_attention(x)).unflatten(
                -1, (self.heads + 2 * self.shared, -1)
            )
            turned = _turned(heads[:, :, : -self.shared], *turn)
            queries, keys = turned.split([self.heads, self.shared], dim=2)
            values = heads[:, :, -self.shared :].transpose(1, 2)
            keys, values = cache.update(keys.transpose(1, 2), values, index)
            # (B, 1, H, D) → (B, K, H / K, D): the heads that share keys as that many queries
            queries = queries.reshape(len(x), self.shared, -1, queries.shape[-1])
            read = scaled_dot_product_attention(queries, keys, values, attn_mask=attended)
            x = x + layer.attended(read.reshape(len(x), 1, -1))
            gate, up = layer.gate_and_up(layer.before_mlp(x)).chunk(2, dim=-1)
            x = x + layer.down(silu(gate) * up)
        return self.model.lm_head(self.last_norm(x))[:, -1]


def _check(model: "PreTrainedModel") -> None:
    config = model.config
    if config.model_type not in SHAPES:
        raise ValueError(
            f"the model is of type {config.model_type!r}, expected {' or '.join(SHAPES)} for a "
            "packed engine"
        )
    if config.hidden_act != "silu":
        raise ValueError(
            f"the model's activation is {config.hidden_act!r}, expected 'silu' for a packed engine"
        )
    for name, layer in model.model.layers[0].named_modules():
        kind = type(layer)
        if name.endswith("_proj") and kind is not nn.Linear:
            raise ValueError(
                f"{name} of the model is a {kind.__module__}.{kind.__name__}, expected a plain "
                "linear layer for a packed engine (an adapter takes another engine)"
            )


def _norm(norm: Any) -> _Norm:
    return _Norm(norm.weight, norm.variance_epsilon)


def _product(*layers: nn.Linear) -> _Product:
    weights: list[Tensor] = [layer.weight for layer in layers]
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    return _Product(_joined(weights), _joined(biases) if biases else None)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _quarter_turns(cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Of (B, 1, D) each, for all heads of a row alike; the sines as `_turned` takes them."""
    half = sines.shape[-1] // 2
    signed = torch.cat([-sines[..., :half], sines[..., half:]], dim=-1)
    return cosines[:, :, None], signed[:, :, None]


def _turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn pairs of numbers, the i-th of a head's first half with the i-th of its second."""
    return x * cosines + x.roll(x.shape[-1] // 2, dims=-1) * sines
