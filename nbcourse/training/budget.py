"""Does it fit, and how long will it take: the arithmetic of a run before any weight is loaded.

Memory is counted as this package spends it: weights, gradients and AdamW's moments in float32, a
frozen reference, a critic, the keys and values of what is being sampled, and the activations of
one backward pass. Time is a roofline, a lower bound: no machine with these peak numbers does this
work faster, and most are slower.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import torch

from nbcourse.lm.log_probs import CHUNK, ROWS
from nbcourse.training.learner import LARGE_VOCABULARY, load_model
from nbcourse.training.recipe import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FLOAT32 = 4
BYTES = {"float32": 4, "bfloat16": 2}  # of a number in a matrix product


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Shape:
    """The numbers that fix the size of a decoder of the Qwen2 architecture.

    Attributes:
        layers: blocks.
        width: W, size of the hidden states.
        heads: of the queries.
        key_value_heads: of keys and values; each serves heads / key_value_heads query heads.
        feed_forward: F, width inside the feed-forward network.
        vocabulary: V, rows of the embedding.
        tied: the output matrix is the embedding.

    Source: Yang et al. 2024, "Qwen2.5 Technical Report", section 2.
    """

    layers: int
    width: int
    heads: int
    key_value_heads: int
    feed_forward: int
    vocabulary: int
    tied: bool

    @classmethod
    def of(cls, config: "PreTrainedConfig") -> "Shape":
        """The shape that a configuration of transformers describes.

        Raises:
            ValueError: if it is not of the Qwen2 architecture.
        """
        if config.model_type != "qwen2":
            raise ValueError(f"config has model_type {config.model_type!r}, expected 'qwen2'")
        return cls(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            key_value_heads=config.num_key_value_heads,
            feed_forward=config.intermediate_size,
            vocabulary=config.vocab_size,
            tied=config.tie_word_embeddings,
        )

    @property
    def keys(self) -> int:
        """Numbers in the key of one token in one layer, and as many in the value."""
        return self.width // self.heads * self.key_value_heads

    @property
    def layer_matrices(self) -> int:
        """Weights in the matrices of one layer: each is used once for every token."""
        attention = 2 * self.width * (self.width + self.keys)
        return attention + 3 * self.width * self.feed_forward

    @property
    def output_matrix(self) -> int:
        """Weights in the matrix that turns a hidden state into logits."""
        return self.vocabulary * self.width

    @property
    def matrices(self) -> int:
        """Weights that are factors of a matrix product: all but biases, norms and look-ups."""
        return self.layers * self.layer_matrices + self.output_matrix

    @property
    def parameters(self) -> int:
        """All parameters, tied ones counted once."""
        biases = self.width + 2 * self.keys
        vectors = self.layers * (biases + 2 * self.width) + self.width
        return self.matrices + vectors + (0 if self.tied else self.output_matrix)


PUBLISHED = {
    "Qwen/Qwen2.5-0.5B-Instruct": Shape(24, 896, 14, 2, 4864, 151_936, tied=True),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape(28, 1536, 12, 2, 8960, 151_936, tied=True),
}
"""Shapes by their names on the hub (config.json there), so that a prediction needs no download."""


def shape_of(recipe: Recipe) -> Shape:
    """The shape of the model that a recipe trains; no weight is allocated or read.

    A folder is asked for its config.json, a published name is looked up in `PUBLISHED`, and any
    other name is asked of the hub, or of what was downloaded from it.

    Raises:
        ValueError: if the model is not of the Qwen2 architecture.
        OSError: if the source is nowhere to be found.
    """
    source = recipe.model.source
    if source == "tiny":
        with torch.device("meta"):
            return Shape.of(load_model(recipe, "meta")[1].config)
    if source in PUBLISHED and not Path(source).exists():
        return PUBLISHED[source]
    from transformers import AutoConfig

    return Shape.of(AutoConfig.from_pretrained(source))


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Machine:
    """What a roofline needs to know of a machine.

    Attributes:
        name: for people.
        memory: bytes.
        bandwidth: bytes per second between the memory and where it is computed.
        speed: FLOP/s of a matrix product, for each precision in `BYTES`.
    """

    name: str
    memory: float
    bandwidth: float
    speed: Mapping[str, float]


def _datasheet(
    name: str, gigabytes: float, bandwidth: float, *, low: float, full: float
) -> Machine:
    """In the units of datasheets: GB (taken as 10⁹ bytes), GB/s and TFLOP/s."""
    speed = {"float32": full * 1e12, "bfloat16": low * 1e12}
    return Machine(name, gigabytes * 1e9, bandwidth * 1e9, speed)


# Dense bfloat16 with tensor cores; float32 without, for PyTorch does not round to TF32 unasked.
DATASHEETS = {
    # NVIDIA A100 datasheet, SXM, 80 GB
    "A100-80GB": _datasheet("A100-80GB", 80, 2039, low=312, full=19.5),
    # NVIDIA H100 datasheet, SXM; half of the figure "with sparsity"
    "H100": _datasheet("H100", 80, 3350, low=989.5, full=67),
    # NVIDIA H200 datasheet, SXM; half of the figure "with sparsity"
    "H200": _datasheet("H200", 141, 4800, low=989.5, full=67),
    # NVIDIA Ada GPU architecture whitepaper, appendix A; bfloat16 summed in float32
    "RTX 4090": _datasheet("RTX 4090", 24, 1008, low=165.2, full=82.6),
    # NVIDIA T4 datasheet; it has no bfloat16 units, so at best the speed of float32
    "T4": _datasheet("T4", 16, 320, low=8.1, full=8.1),
}


def measure(device: torch.device | str = "cpu") -> Machine:
    """Bandwidth from a large copy and speed from large matrix products, on this machine, now.

    Takes about a second. A datasheet states peaks; this is what PyTorch reaches when nothing else
    is asked of it, the threads being those that PyTorch uses.

    Args:
        device: "cpu" or "cuda", with or without a number.
    """
    device = torch.device(device)
    cuda = device.type == "cuda"
    numbers, size = (1 << 28, 8192) if cuda else (1 << 26, 1024)

    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    copying = _shortest(lambda: target.copy_(source), device)
    speed = {}
    for precision in BYTES:
        square = torch.ones(size, size, dtype=getattr(torch, precision), device=device)
        speed[precision] = 2 * size**3 / _shortest(lambda square=square: square @ square, device)
    if cuda:
        name = torch.cuda.get_device_name(device)
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        import psutil

        name, memory = "this machine's CPU", psutil.virtual_memory().total
    return Machine(name, memory, 2 * FLOAT32 * numbers / copying, speed)


def _shortest(work, device: torch.device, times: int = 4) -> float:
    """Seconds of the fastest of a few runs; the first ones pay for what is done only once."""
    seconds = []
    for _ in range(times):
        start = perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(perf_counter() - start)
    return min(seconds)


def roofline(flops: float, moved: float, machine: Machine, precision: str = "float32") -> float:
    """Seconds that some work takes at least.

        t ≥ max(FLOPs / speed, bytes / bandwidth)

    What stays in a processor's cache costs no bandwidth, so for models of a few megabytes count
    only what cannot stay there.

    Args:
        flops: floating-point operations, a multiplication and an addition being two.
        moved: bytes read from memory and written to it.
        machine: on which.
        precision: of the matrix products.

    Book: equation (eq-roofline). Source: Williams, Waterman and Patterson 2009, "Roofline".
    """
    return max(flops / machine.speed[precision], moved / machine.bandwidth)


# ---------------------------------------------------------------- one pass through the model


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
    prompts: int, group_size: int, prompt_tokens: int, response_tokens: int, *, shared: bool = True
) -> list[Pass]:
    """The passes in which the log-probs of responses that are there already are computed.

    Args:
        prompts: number of prompts.
        group_size: responses to each.
        prompt_tokens: P.
        response_tokens: T.
        shared: each prompt runs through the model once, not once for each response to it.
    """
    rows, width = prompts * group_size, prompt_tokens + response_tokens - 1
    if group_size == 1 or not shared:
        return [Pass(rows, width, width, response_tokens)]
    return [
        Pass(prompts, prompt_tokens, prompt_tokens, 1),
        Pass(rows, response_tokens - 1, width, response_tokens - 1),
    ]


def layer_flops(shape: Shape, forward: Pass) -> int:
    """FLOPs of all layers in a forward pass; a backward pass has twice as many.

    Two for each weight and token, and two for each of the products of queries with keys and of
    attention with values. What is not a matrix product is left out.
    """
    attention = 2 * shape.width * forward.columns
    return 2 * forward.tokens * shape.layers * (shape.layer_matrices + attention)


def output_flops(shape: Shape, forward: Pass) -> int:
    """FLOPs of the output matrix in a forward pass; a backward pass has twice as many."""
    return 2 * forward.rows * forward.kept * shape.output_matrix


def cache_bytes(shape: Shape, rows: int, columns: int) -> int:
    """Bytes of the keys and values of `columns` tokens in each of `rows` sequences.

        2 · layers · rows · columns · key_value_heads · head size · 4

    In float32 also where products are taken in bfloat16: transformers rotates the keys in the
    precision of the embedding, and what is put beside them is raised to theirs.

    Book: equation (eq-kv-cache).
    """
    return 2 * shape.layers * rows * columns * shape.keys * FLOAT32


def decoding_bytes(shape: Shape, rows: int, columns: int, precision: str) -> int:
    """Bytes that have to move for one more token in each of `rows` sequences.

    Every matrix is read once, however many rows there are; the keys and values of all `columns`
    tokens are read, and the logits written and read. That is the least there is to move; copying
    the cache to make room for a token, as transformers' dynamic cache does, comes on top.
    """
    logits = 2 * rows * shape.vocabulary
    return BYTES[precision] * (shape.matrices + logits) + cache_bytes(shape, rows, columns)


def activation_bytes(
    shape: Shape, forward: Pass, precision: str, *, checkpointing: bool = False
) -> int:
    """Bytes that a forward pass through the layers keeps for the way back, logits not included.

    For each token, a layer keeps the input and the normalised input of both norms in float32; in
    the precision of the products what enters each product, and four times F in the feed-forward
    network; for each token attended to, key and value, repeated for all heads that share them; and
    its own copy of the mask. Under autocast each product makes a copy of its input, so the norms'
    outputs are kept five times and not twice.

    Args:
        shape: of the model.
        forward: which pass.
        precision: of the matrix products.
        checkpointing: layers keep their inputs only, and compute the rest again, one at a time.
    """
    size, width = BYTES[precision], shape.width
    copies = 2 if precision == "float32" else 5
    per_token = 4 * width * FLOAT32 + (copies + 2) * width * size + 4 * shape.feed_forward * size
    per_token += (shape.heads + 2) * FLOAT32  # of the softmax and the two norms
    per_token += forward.columns * size  # the mask
    keys_and_values = 2 * forward.rows * forward.columns * width * size
    layer = forward.tokens * per_token + keys_and_values
    # Token ids, the angles of the rotation, and the last norm with its output.
    ends = 8 + 2 * (width // shape.heads) * FLOAT32 + 2 * width * FLOAT32 + FLOAT32
    around = forward.tokens * (ends + width * size)
    if checkpointing:
        return around + forward.tokens * shape.layers * width * FLOAT32 + layer
    return around + shape.layers * layer


# ---------------------------------------------------------------- a whole run


class Work(NamedTuple):
    """What a part of a step computes and moves.

    Attributes:
        flops: floating-point operations in matrix products.
        moved: bytes read from memory and written to it, at least.
    """

    flops: float
    moved: float


class Row(NamedTuple):
    """A line of a table: `part` and `label` say what the number is, in plain units."""

    part: str
    label: str
    number: float
    unit: str


@dataclass(frozen=True)
class Plan:
    """A recipe put in numbers: how much of what is in memory, and computed, at once.

    Attributes:
        recipe: what is to be run.
        shape: of its model.
        prompt_tokens: P, tokens of the longest prompt.
    """

    recipe: Recipe
    shape: Shape
    prompt_tokens: int

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise ValueError(f"prompt_tokens is {self.prompt_tokens}, expected at least 1")

    @property
    def precision(self) -> str:
        """Of the matrix products."""
        return self.recipe.model.precision

    @property
    def has_critic(self) -> bool:
        """Whether there are values to learn."""
        return self.recipe.row.needs("values")

    @property
    def has_own_critic(self) -> bool:
        """Whether the critic has a backbone of its own."""
        return self.has_critic and not self.recipe.critic.shared

    @property
    def chunked(self) -> bool:
        """Whether the learner's logits are never whole."""
        shared_critic = self.has_critic and not self.has_own_critic
        return shared_critic or self.shape.vocabulary >= LARGE_VOCABULARY

    @property
    def checkpointing(self) -> bool:
        """Whether the learner computes activations twice."""
        return self.recipe.model.gradient_checkpointing

    @property
    def together(self) -> int:
        """Prompts sampled at once."""
        settings = self.recipe.rollouts
        return min(settings.prompts_at_once or settings.prompts, settings.prompts)

    @property
    def minibatch(self) -> int:
        """Prompts in the largest minibatch."""
        return ceil(self.recipe.rollouts.prompts / self.recipe.optimiser.minibatches)

    @property
    def slice(self) -> int:
        """Prompts in one backward pass."""
        return min(self.recipe.optimiser.prompts_at_once or self.minibatch, self.minibatch)

    def scoring(self, prompts: int, response_tokens: int, *, learning: bool = False) -> list[Pass]:
        """The passes that give log-probs or values of the responses to some prompts.

        With gradient checkpointing no prompt is shared while learning: layers that forget their
        activations take no cache.
        """
        shared = not (learning and self.checkpointing)
        group = self.recipe.rollouts.group_size
        return scoring(prompts, group, self.prompt_tokens, response_tokens, shared=shared)


def standing_bytes(plan: Plan) -> dict[str, int]:
    """Bytes that are there in every phase, by owner.

        16 N = 4 N (weights) + 4 N (gradients) + 8 N (AdamW's two moments),  and 4 for each
        parameter that is not trained

    Book: equation (eq-memory).
    """
    head = plan.shape.width + 1
    found = {
        "weights": FLOAT32 * plan.shape.parameters,
        "gradients": FLOAT32 * plan.shape.parameters,
        "moments": 2 * FLOAT32 * plan.shape.parameters,
        "reference": FLOAT32 * plan.shape.parameters,
    }
    if plan.has_critic:
        backbone = plan.shape.parameters if plan.has_own_critic else 0
        found["critic"] = 4 * FLOAT32 * (backbone + head)
    if plan.recipe.reward.source == "reward_model":
        found["reward model"] = FLOAT32 * (plan.shape.parameters + head)
    return found


def sampling_bytes(plan: Plan) -> dict[str, int]:
    """Bytes at the last token of the longest responses, beside the standing ones."""
    shape, size = plan.shape, BYTES[plan.precision]
    rows = plan.together * plan.recipe.rollouts.group_size
    columns = plan.prompt_tokens + plan.recipe.rollouts.max_new_tokens - 1
    cache = cache_bytes(shape, rows, columns)
    growing = cache // (2 * shape.layers)  # the keys of a layer, old and new, stand side by side
    prefill = _working_bytes(plan, plan.together * plan.prompt_tokens)
    return {
        **_casts(plan, shape.matrices),
        "keys and values": cache,
        # As they come, as log-probabilities, as probabilities, and the draws' random numbers.
        "logits": rows * shape.vocabulary * (size + 3 * FLOAT32),
        "working set": max(growing, prefill),
    }


def consulting_bytes(plan: Plan) -> dict[str, int]:
    """Bytes while reference or critic look at the responses, beside the standing ones."""
    asked = plan.recipe.penalty.placement != "none"
    if not (asked or plan.has_critic):
        return {}
    passes = plan.scoring(plan.together, plan.recipe.rollouts.max_new_tokens)
    last = passes[-1]
    cache = cache_bytes(plan.shape, last.rows, last.columns) if len(passes) > 1 else 0
    growing = cache // (2 * plan.shape.layers)
    casts = _casts(plan, plan.shape.matrices) if plan.has_critic else {}
    return {
        **casts,
        "keys and values": cache,
        "logits": _logits_bytes(plan, passes),
        "working set": growing + _working_bytes(plan, last.tokens),
    }


def learning_bytes(plan: Plan) -> dict[str, int]:
    """Bytes when the way back through one slice begins, beside the standing ones."""
    shape, precision = plan.shape, plan.precision
    passes = plan.scoring(plan.slice, plan.recipe.rollouts.max_new_tokens, learning=True)
    activations = sum(
        activation_bytes(shape, forward, precision, checkpointing=plan.checkpointing)
        for forward in passes
    )
    models = 2 if plan.has_own_critic else 1
    # The gradient of the output matrix is whole before it is added to the others.
    output = _logits_bytes(plan, passes) + shape.output_matrix * FLOAT32
    tokens = passes[-1].tokens
    layer = tokens * 2 * (shape.feed_forward * BYTES[precision] + shape.width * FLOAT32)
    return {
        **_casts(plan, models * shape.matrices),
        "activations": models * activations,
        "logits": output,
        "working set": max(0, layer - output),
    }


def _casts(plan: Plan, weights: int) -> dict[str, int]:
    """Autocast keeps a copy of the trained matrices while it is on."""
    if plan.precision == "float32":
        return {}
    return {"copies in bfloat16": BYTES["bfloat16"] * weights}


def _working_bytes(plan: Plan, tokens: int) -> int:
    """Bytes of what is alive within one layer on a way there without gradient."""
    shape = plan.shape
    return tokens * 3 * (shape.feed_forward * BYTES[plan.precision] + shape.width * FLOAT32)


def _logits_bytes(plan: Plan, passes: list[Pass]) -> int:
    """Bytes of the learner's logits, and of what stands in for them where they are never whole."""
    shape, size = plan.shape, BYTES[plan.precision]
    positions = sum(forward.rows * forward.kept for forward in passes)
    piece = shape.vocabulary * max(ROWS if plan.chunked else 1, CHUNK // shape.vocabulary)
    if plan.chunked:
        cast = 0 if plan.precision == "float32" else size * shape.output_matrix
        return positions * shape.width * FLOAT32 + piece * (FLOAT32 + size) + cast
    joined = 1 if len(passes) == 1 else 2  # first token and later ones, before and after joining
    return joined * positions * shape.vocabulary * size + piece * FLOAT32
