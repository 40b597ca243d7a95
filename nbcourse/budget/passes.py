"""Passes through a model: what one computes, moves, and keeps for the backward pass."""

from typing import NamedTuple

from nbcourse.budget.machines import BYTES, FLOAT32
from nbcourse.budget.shapes import Shape


class Pass(NamedTuple):
    """One forward pass: `rows` sequences, each with `queries` new tokens.

    Attributes:
        rows: sequences.
        queries: tokens computed in each.
        columns: tokens that these attend to in each, themselves included; the whole rectangle
            queries × columns is computed, and then masked.
        kept: positions in each whose next-token distribution is wanted.
    """

    rows: int
    queries: int
    columns: int
    kept: int

    @property
    def tokens(self) -> int:
        """Tokens computed."""
        return self.rows * self.queries


def scoring(
    prompts: int,
    group_size: int,
    prompt_tokens: int,
    response_tokens: int,
    *,
    shared: bool = True,
    chunked: bool = False,
) -> list[Pass]:
    """The passes in which the log-probs of responses that are there already are computed.

    Args:
        prompts: number of prompts.
        group_size: responses to each.
        prompt_tokens: P.
        response_tokens: T.
        shared: each prompt runs through the layers once, not once for each response to it.
        chunked: logits are never whole; that of a first token is then computed for each response.
    """
    rows, width = prompts * group_size, prompt_tokens + response_tokens - 1
    if group_size == 1 or not shared:
        return [Pass(rows, width, width, response_tokens)]
    return [
        Pass(prompts, prompt_tokens, prompt_tokens, group_size if chunked else 1),
        Pass(rows, response_tokens - 1, width, response_tokens - 1),
    ]


def layer_flops(shape: Shape, forward: Pass) -> int:
    """FLOPs of all layers in a forward pass; a backward pass has twice as many.

    Two for each weight and token, and two for each of the products of queries with keys and of
    attention with values. What is not a matrix product is left out. It is what torch's
    `FlopCounterMode` counts, to the last one, without half a second of fake tensors for each pass.
    """
    weights = shape.layer_matrices + shape.layer_adapter
    attention = 2 * shape.width * forward.columns
    return 2 * forward.tokens * shape.layers * (weights + attention)


def output_flops(shape: Shape, forward: Pass) -> int:
    """FLOPs of the output matrix in a forward pass; a backward pass has twice as many."""
    return 2 * forward.rows * forward.kept * shape.output_matrix


def spared_flops(shape: Shape, forward: Pass, *, checkpointing: bool) -> int:
    """FLOPs that a backward pass through the layers is spared where an adapter learns.

    Those of the gradients of all matrices, and of the input of the first layer, which goes into
    its queries, keys and values; with checkpointing transformers has that one computed.
    """
    if not shape.rank:
        return 0
    first = 0 if checkpointing else shape.width * (shape.width + 2 * shape.keys + 3 * shape.rank)
    return 2 * forward.tokens * (shape.layers * shape.layer_matrices + first)


def cache_bytes(shape: Shape, rows: int, columns: int, precision: str) -> int:
    """Bytes of the keys and values of `columns` tokens in each of `rows` sequences.

        2 · layers · rows · columns · key_value_heads · head size · bytes of a number

    The sampler keeps them in the precision of the products. Where a prompt is shared for scoring,
    transformers keeps them, and in float32: it rotates the keys in the precision of the embedding.

    Book: equation (eq-kv-cache).
    """
    return 2 * shape.layers * rows * columns * shape.keys * BYTES[precision]


def decoding_bytes(shape: Shape, rows: int, columns: int, precision: str) -> int:
    """Bytes that have to move for one more token in each of `rows` sequences.

    Every matrix is read once, however many rows there are; the keys and values of all `columns`
    tokens are read, and the logits written and read. That is the least there is to move; repeating
    keys and values for all heads that share them, as transformers does, comes on top.
    """
    logits = 2 * rows * shape.vocabulary
    cache = cache_bytes(shape, rows, columns, precision)
    return BYTES[precision] * (shape.matrices + shape.adapter + logits) + cache


def weight_bytes(matrices: int, precision: str, *, learning: bool) -> int:
    """Bytes that have to move for each weight of the matrices to be a factor once.

    Autocast keeps copies of matrices that learn. Others it copies each time: it reads them in
    float32, and writes what is then read.
    """
    copying = 0 if learning or precision == "float32" else FLOAT32 + BYTES[precision]
    return (BYTES[precision] + copying) * matrices


def pass_bytes(shape: Shape, precision: str, *, output: bool = True) -> int:
    """Bytes of weights that have to move for a pass of the model that learns.

    Args:
        shape: of the model.
        precision: of the matrix products.
        output: the output matrix is used too.
    """
    matrices = shape.matrices if output else shape.matrices - shape.output_matrix
    found = weight_bytes(matrices, precision, learning=not shape.rank)
    return found + weight_bytes(shape.adapter, precision, learning=True)


def layer_activation_bytes(shape: Shape, forward: Pass, precision: str) -> int:
    """Bytes that one layer keeps for the backward pass.

    For each token, the input and the normalised input of both norms in float32; in the precision
    of the products, what enters each of them, the queries, and four vectors of the feed-forward
    network; for each token attended to, key and value, repeated for all heads that share them; and
    a copy of the mask. Under autocast each product makes its own copy of its input, so the outputs
    of the two norms are kept five times and not twice. Norms that do not learn keep their inputs
    only; an adapter beside a matrix keeps what enters both of its own.
    """
    size, width = BYTES[precision], shape.width
    copies = 2 if precision == "float32" else 5
    norms = 2 if shape.rank else 4
    per_token = (
        norms * width * FLOAT32
        + 7 * shape.rank * size
        + ((copies + 2) * width + 4 * shape.feed_forward + forward.columns) * size
        + (shape.heads + 2) * FLOAT32  # one number for each softmax and each norm
    )
    return forward.tokens * per_token + 2 * forward.rows * forward.columns * width * size


def activation_bytes(
    shape: Shape, forward: Pass, precision: str, *, checkpointing: bool = False
) -> int:
    """Bytes that a forward pass keeps for the backward pass, without the logits.

    Args:
        shape: of the model.
        forward: which pass.
        precision: of the matrix products.
        checkpointing: layers keep nothing but their inputs, and compute the rest again, one at a
            time, which needs `layer_activation_bytes` on top.
    """
    width = shape.width
    # Token numbers, the angles of the rotation, and the last norm with its output.
    angles = 2 * width // shape.heads
    ends = 8 + (angles + 2 * width + 1) * FLOAT32 + width * BYTES[precision]
    inputs = forward.tokens * width * FLOAT32
    if checkpointing:
        return forward.tokens * ends + shape.layers * inputs
    layers = shape.layers * layer_activation_bytes(shape, forward, precision)
    if shape.rank:  # then the first layer's input has no gradient
        layers -= inputs
    return forward.tokens * ends + layers
