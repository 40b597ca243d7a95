"""Does it fit, and how long will it take: the arithmetic of a run before any weight is loaded.

Memory is counted as this package spends it: weights, gradients and AdamW's moments in float32, a
frozen reference, a critic, the keys and values of what is being sampled, and the activations of
one backward pass; where an adapter learns, gradients and moments are its own, and there is no
reference to keep. Time is a roofline: no machine with these peak numbers does *this work* faster,
and most are slower. The work is that of a step in which every prompt is as long as the longest and
every response as long as said; a real step whose responses end earlier, or in which groups without
advantage are skipped, has less to do.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from nbcourse.budget.machines import BYTES, FLOAT32, Machine, roofline
from nbcourse.budget.shapes import Shape
from nbcourse.errors import UserError
from nbcourse.lm.log_probs import CHUNK, KEPT, ON_A_CARD, ROWS
from nbcourse.lm.packed import Packed
from nbcourse.lm.rollouts import with_room
from nbcourse.lm.sampling import ENGINES
from nbcourse.lm.static import Static
from nbcourse.seeds import generator
from nbcourse.training.learner import CHUNKED_VOCABULARY
from nbcourse.training.models import Reading, load_tokenizer, rendered
from nbcourse.training.recipe import Pretraining, Recipe

PROMPTS = 1_000  # looked at to find a long one
USUAL_PROMPT = 320  # tokens: GSM8K's longest question, about, in a chat template

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


def spared_flops(shape: Shape, forward: Pass, *, checkpointing: bool = False) -> int:
    """FLOPs that a backward pass through the layers is spared where an adapter learns.

    Those of the gradients of all matrices, and of the input of the first layer, which goes into
    its queries, keys and values; with checkpointing transformers has that one computed.
    """
    if not shape.rank:
        return 0
    first = shape.width * (shape.width + 2 * shape.keys + 3 * shape.rank)
    first = 0 if checkpointing else first
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


# ---------------------------------------------------------------- a whole run


@dataclass(frozen=True)
class Plan:
    """A recipe put in numbers: how much of what is in memory, and computed, at once.

    Attributes:
        recipe: what is to be run.
        shape: of its model.
        prompt_tokens: P, tokens of the longest prompt.
        card: it runs on a GPU.
    """

    recipe: Recipe
    shape: Shape
    prompt_tokens: int
    card: bool = False

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1:
            raise UserError(f"prompt_tokens is {self.prompt_tokens}, expected at least 1")

    @property
    def piece(self) -> int:
        """Logits in float32 at a time, where they are taken in pieces."""
        return ON_A_CARD * CHUNK if self.card else CHUNK

    @property
    def policy(self) -> Shape:
        """Of the model that learns, and of an own critic: with its adapter, if there is one."""
        return replace(self.shape, rank=self.recipe.model.lora_rank or 0)

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
    def reference_chunked(self) -> bool:
        """Whether the reference's logits are never whole."""
        return self.shape.vocabulary >= CHUNKED_VOCABULARY or self.exact

    @property
    def exact(self) -> bool:
        """Whether the KL is made of divergences over the whole vocabulary."""
        return self.recipe.penalty.exact

    @property
    def chunked(self) -> bool:
        """Whether the policy's logits are never whole while it learns."""
        return self.reference_chunked or (self.has_critic and not self.has_own_critic)

    @property
    def checkpointing(self) -> bool:
        """Whether the learner computes activations twice."""
        return self.recipe.model.gradient_checkpointing

    @property
    def evaluations(self) -> float:
        """In a step, on average: every so many evaluate, and the last."""
        steps = max(1, self.recipe.steps)
        return ceil(steps / self.recipe.evaluation.every) / steps

    @property
    def kl_measurements(self) -> float:
        """In a step, on average, as `Recipe.measures_kl` has them."""
        first = min(self.recipe.evaluation.every, self.recipe.steps) > 1  # and does not evaluate
        return self.evaluations + first / max(1, self.recipe.steps)

    @property
    def feed_forward_bytes(self) -> int:
        """Of a token's vector inside the feed-forward network and one outside."""
        return self.shape.feed_forward * BYTES[self.precision] + self.shape.width * FLOAT32

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

    @property
    def static(self) -> Static | None:
        """The engine that samples, if its shapes are fixed."""
        engine = ENGINES[self.recipe.rollouts.engine]
        return engine if isinstance(engine, Static) else None

    def room(self, columns: int) -> int:
        """Columns for which the engine that samples makes room, to hold this many."""
        return with_room(columns, self.static.columns) if self.static else with_room(columns)

    def consulting(self, prompts: int, response_tokens: int) -> list[Pass]:
        """The passes in which the reference, if it is asked, or else the critic sees responses."""
        chunked = self.reference_chunked if self.recipe.asks_reference else self.chunked
        return scoring(
            prompts,
            self.recipe.rollouts.group_size,
            self.prompt_tokens,
            response_tokens,
            chunked=chunked,
        )

    def diagnosing(self, prompts: int, response_tokens: int) -> list[Pass]:
        """The pass in which the reference sees one response of each group, for the log's KL."""
        return scoring(prompts, 1, self.prompt_tokens, response_tokens)

    def learning(self, prompts: int, response_tokens: int) -> list[Pass]:
        """The passes in which the policy sees responses that it learns from.

        With gradient checkpointing no prompt is shared: layers that forget their activations take
        no cache.
        """
        return scoring(
            prompts,
            self.recipe.rollouts.group_size,
            self.prompt_tokens,
            response_tokens,
            shared=not self.checkpointing,
            chunked=self.chunked,
        )


def standing_bytes(plan: Plan) -> dict[str, int]:
    """Bytes that are there in every phase, by owner.

        16 N = 4 N (weights) + 4 N (gradients) + 8 N (AdamW's two moments),  and 4 for each
        parameter that is not trained

    An adapter is its own N, beside weights that are not trained; switched off, it is the reference.

    Book: equation (eq-memory).
    """
    head = plan.shape.width + 1
    policy = plan.policy
    found = {
        "weights": FLOAT32 * (policy.parameters + policy.adapter),
        "gradients": FLOAT32 * policy.learning,
        "moments": 2 * FLOAT32 * policy.learning,
    }
    if not policy.rank:
        found["reference"] = FLOAT32 * policy.parameters
    if plan.has_critic:
        backbone = policy.parameters + policy.adapter + 3 * policy.learning
        found["critic"] = FLOAT32 * (4 * head + plan.has_own_critic * backbone)
    if plan.recipe.reward.source == "reward_model":
        found["reward model"] = FLOAT32 * (plan.shape.parameters + head)
    return found


def checkpoint_bytes(plan: Plan) -> int:
    """Bytes of a checkpoint: in float32 all that learns, and AdamW's two moments of it.

        12 N,  of the policy or its adapter, and of the critic

    Book: appendix L, "What each setting saves, and what it costs".
    """
    learning = plan.policy.learning
    critic = plan.has_critic * (plan.shape.width + 1) + plan.has_own_critic * learning
    return 3 * FLOAT32 * (learning + critic)


def sampling_bytes(plan: Plan, prompts: int, group_size: int) -> dict[str, int]:
    """Bytes where sampling needs most of them, beside the standing ones.

    That is while the last token of the longest responses is drawn, or while the cache is given its
    last room, or, for long prompts and small groups, while the prompts are read.

    Args:
        plan: of the run.
        prompts: sampled together.
        group_size: responses to each.
    """
    shape, rows = plan.policy, prompts * group_size
    columns = plan.room(plan.prompt_tokens + plan.recipe.rollouts.max_new_tokens - 1)
    cache = cache_bytes(shape, rows, columns, plan.precision)
    # As they come, as log-probabilities, as probabilities, and the random numbers of the draw.
    logits = rows * shape.vocabulary * (BYTES[plan.precision] + 3 * FLOAT32)
    drawing = {"keys and values": cache, "logits": logits}
    growing = {"keys and values": cache, "working set": _growing(plan, cache)}
    if not plan.static:  # which makes room while the logits of the last token are still there
        drawing |= growing
    prompt = Pass(prompts, plan.prompt_tokens, plan.prompt_tokens, 1)
    reading = {
        "keys and values": cache_bytes(
            shape, prompts, with_room(plan.prompt_tokens), plan.precision
        ),
        "working set": _layer_bytes(plan, prompt, adapter=bool(shape.rank)),
    }
    copies = _copies(plan, saved=shape.matrices)
    if plan.static and plan.static.decoder is Packed:
        copies["packed"] = BYTES[plan.precision] * shape.layers * shape.layer_packed
    return copies | _largest(drawing, growing, reading)


def consulting_bytes(plan: Plan) -> dict[str, int]:
    """Bytes while reference and critic look at the responses, beside the standing ones.

    Where learning does not ask the reference, it sees one response of each group, for the log, as
    many prompts at a time as there are in a backward pass.
    """
    length = plan.recipe.rollouts.max_new_tokens
    moments = []
    if plan.recipe.asks_reference or plan.has_critic:
        moments.append(_looking_bytes(plan, plan.consulting(plan.together, length)))
    if not plan.recipe.asks_reference:
        passes = plan.diagnosing(plan.slice, length)
        moments.append(_looking_bytes(plan, passes, reference=True))
    return _largest(*moments)


def _looking_bytes(plan: Plan, passes: list[Pass], *, reference: bool = False) -> dict[str, int]:
    """Bytes while `passes` go through the reference, or the critic too if there is one."""
    reference_alone = reference or not plan.has_critic
    adapter = bool(plan.policy.rank) and not reference_alone
    last = passes[-1]
    cache = cache_bytes(plan.shape, last.rows, last.columns, "float32") if len(passes) > 1 else 0
    layers = {
        "keys and values": cache,
        "working set": _growing(plan, cache) + _layer_bytes(plan, last, adapter=adapter),
    }
    chunked = plan.reference_chunked if reference or plan.recipe.asks_reference else plan.chunked
    joining = {"keys and values": cache, "logits": _joining_bytes(plan, passes, chunked)}
    choosing = {"logits": _choosing_bytes(plan, passes, chunked)}
    copies = {} if reference_alone else _copies(plan)
    return copies | _largest(layers, joining, choosing)


def learning_bytes(plan: Plan) -> dict[str, int]:
    """Bytes in the backward pass of the largest slice, beside the standing ones.

    What is kept to compare the halves of a batch is left out: 12 MB at most, see `halves.MOST`.
    """
    shape, precision, checkpointing = plan.policy, plan.precision, plan.checkpointing
    passes = plan.learning(plan.slice, plan.recipe.rollouts.max_new_tokens)
    models = 2 if plan.has_own_critic else 1
    kept = sum(
        activation_bytes(shape, forward, precision, checkpointing=checkpointing)
        for forward in passes
    )
    layer = 2 * passes[-1].tokens * plan.feed_forward_bytes
    if checkpointing:  # which keeps the layer's input already
        layer += layer_activation_bytes(shape, passes[-1], precision)
        layer -= passes[-1].tokens * shape.width * FLOAT32
        if shape.rank and precision != "float32":
            layer += BYTES[precision] * shape.layer_matrices
    logits = max(
        _joining_bytes(plan, passes, plan.chunked),
        _choosing_bytes(plan, passes, plan.chunked, back=True),
    )
    # What was computed last goes back first: a critic of its own, or divergences, beside the
    # policy's logits.
    whole = _positions(passes) * shape.vocabulary
    if plan.chunked:
        whole = min(whole, KEPT // BYTES[precision])
    waiting = whole * (FLOAT32 if whole <= plan.piece else BYTES[precision])
    moments = [
        {"activations": kept, "logits": logits},
        {"activations": kept, "working set": layer},
    ]
    if plan.has_own_critic:
        moments.append({"activations": 2 * kept, "logits": waiting, "working set": layer})
    if plan.exact:
        divergences = waiting + _divergence_bytes(plan, passes)
        # The gradient of the output matrix is whole before it is added to what is there.
        divergences += 0 if shape.rank else FLOAT32 * shape.output_matrix
        moments.append({"activations": models * kept, "logits": divergences})
    saved = 0 if checkpointing else len(passes) * models * shape.layers * shape.layer_matrices
    if not _computed_again(plan, passes):
        saved += (1 if plan.chunked else len(passes)) * shape.output_matrix
    copies = _copies(plan, models=models, saved=saved)
    return copies | _largest(*moments)


def _largest(*moments: dict[str, int]) -> dict[str, int]:
    """Of moments that follow each other, the one that needs most."""
    return max(moments, key=lambda moment: sum(moment.values()))


def _copies(plan: Plan, *, models: int = 1, saved: int = 0) -> dict[str, int]:
    """Autocast keeps copies of matrices that learn while it is on.

    Of other matrices each pass makes its own; `saved` is how many weights of these are kept, by
    the sampler for its next token or by autograd for the backward pass.
    """
    if plan.precision == "float32":
        return {}
    shape = plan.policy
    weights = models * shape.adapter + saved if shape.rank else models * shape.matrices
    return {"copies": BYTES[plan.precision] * weights}


def _growing(plan: Plan, cache: int) -> int:
    """Bytes of one layer's keys, which are there twice while they are given more room."""
    return cache // (2 * plan.shape.layers)


def _layer_bytes(plan: Plan, forward: Pass, *, adapter: bool) -> int:
    """Bytes alive within a layer in a forward pass that keeps nothing for a backward one."""
    wide = 4 if adapter else 3  # vectors inside the feed-forward network
    size, width = BYTES[plan.precision], plan.shape.width
    always = 2 * width // plan.shape.heads * FLOAT32 + forward.columns  # rotation and mask
    vectors = 4 * width * FLOAT32
    queries = 0 if plan.precision == "float32" else 2 * width * size  # as cast, and turned
    # Keys and values of a shared prompt come in float32, and are repeated for all heads.
    cached = FLOAT32 if forward.columns > forward.queries else size
    repeated = 2 * forward.rows * forward.columns * width * cached
    return forward.tokens * always + max(  # either half of the layer
        forward.tokens * (vectors + queries + forward.columns * size) + repeated,
        forward.tokens * (wide * plan.feed_forward_bytes + width * FLOAT32),
    )


def _joining_bytes(plan: Plan, passes: list[Pass], chunked: bool) -> int:
    """Bytes of whole logits while the first token's and the later ones' are put side by side."""
    if chunked or len(passes) == 1:
        return 0
    return 2 * _positions(passes) * plan.shape.vocabulary * BYTES[plan.precision]


def _choosing_bytes(plan: Plan, passes: list[Pass], chunked: bool, *, back: bool = False) -> int:
    """Bytes while log-probs are taken from the learner's logits, whole or a piece at a time.

    In the backward pass, with the gradient of the output matrix. Where logits would be too large
    to be kept, those of a smaller batch may be kept all the same.
    """
    logits = _positions(passes) * plan.shape.vocabulary
    if not chunked:
        return _whole_bytes(plan, logits, back=back)
    most = KEPT // BYTES[plan.precision]
    pieces = _piece_bytes(plan, logits, back=back) if logits > most else 0
    kept = _whole_bytes(plan, min(logits, most), back=back)
    return FLOAT32 * _positions(passes) * plan.shape.width + max(kept, pieces)


def _whole_bytes(plan: Plan, logits: int, *, back: bool) -> int:
    """Bytes while so many logits are there at once, and then their gradient in their place."""
    size, shape = BYTES[plan.precision], plan.shape
    learned = shape.output_matrix if back and not plan.policy.rank else 0
    if logits <= plan.piece:  # a table of log-probs; in the backward pass, two more
        converted = FLOAT32 * logits if _scaled(plan) else 0
        table = 3 * FLOAT32 * logits if back else (size + FLOAT32) * logits + converted
        return table + FLOAT32 * learned
    scratch = FLOAT32 * max(1, plan.piece // shape.vocabulary) * shape.vocabulary
    choosing = size * logits + (2 if _scaled(plan) else 1) * scratch
    if plan.precision == "float32":
        return max(choosing, size * logits + FLOAT32 * learned)
    # Autocast copies the output matrix before there are logits; its gradient comes in bfloat16, and
    # is converted when they are gone.
    copy = 0 if back else size * shape.output_matrix
    return max(choosing, size * (logits + max(copy, learned)), (size + FLOAT32) * learned)


def _piece_bytes(plan: Plan, logits: int, *, back: bool) -> int:
    """Bytes while logits are computed a piece at a time."""
    shape, size = plan.shape, BYTES[plan.precision]
    at_once = max(ROWS, plan.piece // shape.vocabulary) * shape.vocabulary
    piece = min(logits, at_once)
    scratch, scaled = FLOAT32 * piece, FLOAT32 * piece if _scaled(plan) else 0
    learned = shape.output_matrix if back and not plan.policy.rank else 0
    whole = scratch + FLOAT32 * learned
    if plan.precision == "float32":
        pieces = min(logits, 2 * at_once if back else at_once)  # one goes when the next has come
        return whole + max(FLOAT32 * pieces, FLOAT32 * piece + scaled)
    # Autocast copies the output matrix. In the backward pass it copies a piece's gradient too,
    # after the converted piece is gone, and the gradient of a matrix that learns exists in bfloat16
    # before it is added in float32.
    copies = piece + shape.output_matrix
    return whole + size * copies + max(scaled, size * (piece + learned) if back else 0)


def _computed_again(plan: Plan, passes: list[Pass]) -> bool:
    """Whether the logits of a backward pass are not kept for it."""
    size = BYTES[plan.precision]
    return plan.chunked and size * _positions(passes) * plan.shape.vocabulary > KEPT


def _scaled(plan: Plan) -> bool:
    """Whether logits have to be converted or divided before they are normalised."""
    return plan.precision != "float32" or plan.recipe.rollouts.temperature != 1


def _divergence_bytes(plan: Plan, passes: list[Pass]) -> int:
    """Bytes while a piece of divergences is computed for the second time, with what they keep.

    Both models' states, and for a piece the logits of both as they come, scaled and cleaned, both
    log-probabilities, the probabilities and the log-ratio.
    """
    vocabulary = plan.shape.vocabulary
    piece = min(_positions(passes), max(ROWS, plan.piece // vocabulary)) * vocabulary
    return FLOAT32 * (2 * _positions(passes) * plan.shape.width + 9 * piece)


def _positions(passes: list[Pass]) -> int:
    """Responses · tokens: where there are two passes, the first one keeps the first token."""
    return passes[-1].rows * (passes[-1].kept + len(passes) - 1)


# ---------------------------------------------------------------- the work of one step


class Work(NamedTuple):
    """What a part of a step computes and moves.

    Attributes:
        flops: floating-point operations in matrix products.
        moved: bytes read from memory and written to it, at least.
    """

    flops: float
    moved: float


def sampling_work(
    plan: Plan, prompts: int, group_size: int, response_tokens: int, *, batches: int = 1
) -> dict[str, Work]:
    """Reading the prompts, and drawing one token after the other.

    Args:
        plan: of the run.
        prompts: in all.
        group_size: responses to each.
        response_tokens: in each response.
        batches: parts in which the prompts are taken; each reads the weights anew.
    """
    shape, length, rows = plan.policy, plan.prompt_tokens, prompts * group_size
    weights = BYTES[plan.precision] * (shape.matrices + shape.adapter)
    prompt = Pass(prompts, length, length, 1)
    cache = cache_bytes(shape, prompts, length, plan.precision)
    reading = _flops(shape, prompt), batches * weights + cache
    columns = range(length + 1, length + response_tokens)
    return {
        "read prompts": Work(*reading),
        "draw tokens": Work(
            _of_all(columns, lambda column: _flops(shape, Pass(rows, 1, column, 1))),
            _of_all(columns, lambda column: decoding_bytes(shape, rows, column, plan.precision))
            + (batches - 1) * len(columns) * weights,
        ),
    }


def _of_all(columns: range, of_one: Callable[[int], int]) -> int:
    """The sum over columns of what grows by the same with each: their number times the mean."""
    if not columns:
        return 0
    return len(columns) * (of_one(columns[0]) + of_one(columns[-1])) // 2


def scoring_work(plan: Plan, response_tokens: int) -> dict[str, Work]:
    """Asking the reference for log-probs and the critic for values, as far as there is need.

    The reference is asked for every response in each step, or, if only the log wants its KL, for
    one of each group in some of the steps: of these it is the average.
    """
    shape, settings = plan.shape, plan.recipe.rollouts
    passes = plan.consulting(settings.prompts, response_tokens)
    batches = ceil(settings.prompts / plan.together)
    read = weight_bytes(shape.matrices, plan.precision, learning=False)
    found = {}
    if plan.recipe.asks_reference:
        flops = sum(_flops(shape, forward) for forward in passes)
        found["ask reference"] = Work(flops, batches * len(passes) * read)
    else:
        (once,) = plan.diagnosing(settings.prompts, response_tokens)
        slices = ceil(settings.prompts / plan.slice)
        share = plan.kl_measurements
        found["ask reference"] = Work(share * _flops(shape, once), share * slices * read)
    if plan.has_critic:
        layers = sum(layer_flops(plan.policy, forward) for forward in passes)
        backbone = pass_bytes(plan.policy, plan.precision, output=False)
        found["ask critic"] = Work(layers, batches * len(passes) * backbone)
    return found


def learning_work(plan: Plan, response_tokens: int) -> dict[str, Work]:
    """Forward and backward passes of all epochs, and the steps of AdamW.

    A backward pass computes twice what the forward pass does: the gradients of inputs and of
    weights; where an adapter learns, of its weights only. With gradient checkpointing the layers'
    forward pass is computed twice, and so is the output matrix's where the logits are not kept.
    Where there are several updates, the log-probs before the first take a pass of their own.
    Divergences over the vocabulary take a pass of the reference, the logits of both models once
    more, and a backward pass through the policy's. A slice reads the weights in each pass and adds
    its gradient to what is there; activations are written and read. AdamW reads weight, gradient
    and two moments of each parameter, and writes all but the gradient.
    """
    shape, settings = plan.policy, plan.recipe.optimiser
    size, prompts = BYTES[plan.precision], plan.recipe.rollouts.prompts
    passes = plan.learning(prompts, response_tokens)
    models = 2 if plan.has_own_critic else 1
    again = _computed_again(plan, plan.learning(plan.slice, response_tokens))
    output = 3 + again + 6 * plan.exact
    if shape.rank:
        output -= 1 + plan.exact
    flops = sum(
        models * 3 * layer_flops(shape, forward)
        - models * spared_flops(shape, forward, checkpointing=plan.checkpointing)
        + output * output_flops(shape, forward)
        for forward in passes
    )
    if plan.exact:
        flops += sum(layer_flops(plan.shape, forward) for forward in passes)
    if plan.checkpointing:  # a layer again, but for its last product, which nothing is saved from
        last = shape.width * (shape.rank or shape.feed_forward)
        flops += models * sum(
            layer_flops(shape, forward) - 2 * forward.tokens * shape.layers * last
            for forward in passes
        )
    kept = sum(
        activation_bytes(shape, forward, plan.precision, checkpointing=plan.checkpointing)
        for forward in passes
    )
    slices = settings.minibatches * ceil(plan.minibatch / plan.slice)
    once = pass_bytes(shape, plan.precision)
    gradients = shape.adapter if shape.rank else shape.matrices
    each = (1 + plan.checkpointing) * once
    each += size * (shape.matrices + shape.adapter + gradients) + 2 * FLOAT32 * shape.learning
    moved = models * (2 * kept + slices * each)
    if plan.exact:
        moved += slices * weight_bytes(shape.matrices, plan.precision, learning=False)
    several = settings.updates > 1
    before = several * sum(_flops(shape, forward) for forward in passes)
    return {
        "learn": Work(
            settings.epochs * flops + before, settings.epochs * moved + several * slices * once
        ),
        "update weights": Work(0, settings.updates * 7 * FLOAT32 * models * shape.learning),
    }


def _flops(shape: Shape, forward: Pass) -> int:
    return layer_flops(shape, forward) + output_flops(shape, forward)


# ---------------------------------------------------------------- the answer


def setting_of(plan: Plan, phase: str) -> str:
    """The key of a recipe that decides how much a phase has in memory at once."""
    consulted = plan.recipe.asks_reference or plan.has_critic
    return {
        "sample": "rollouts.prompts_at_once",
        "consult": f"{'rollouts' if consulted else 'optimiser'}.prompts_at_once",
        "learn": "optimiser.prompts_at_once",
        "evaluate": "evaluation.problems",
    }[phase]


class Entry(NamedTuple):
    """A line of a table: what the number is, in which part of a step, and its unit."""

    part: str
    label: str
    number: float
    unit: str


@dataclass(frozen=True)
class Prediction:
    """What a recipe needs of a machine.

    Attributes:
        plan: the recipe, its model's shape and the length of its prompts.
        machine: on which it is to run.
        memory: bytes by phase ("sample", "consult", "learn", "evaluate", as the loop's clock calls
            them) and owner, if all responses reach `rollouts.max_new_tokens`; what a phase holds
            includes the standing bytes.
        work: FLOPs and bytes moved of an average step, by part.
    """

    plan: Plan
    machine: Machine
    memory: Mapping[str, Mapping[str, int]]
    work: Mapping[str, Work]

    @property
    def peaks(self) -> dict[str, int]:
        """Bytes needed by each phase."""
        return {phase: sum(owners.values()) for phase, owners in self.memory.items()}

    @property
    def fits(self) -> bool:
        """Whether no phase needs more than the machine has."""
        return max(self.peaks.values()) <= self.machine.memory

    @property
    def seconds(self) -> dict[str, float]:
        """Roofline of each part of a step of this size. Book: equation (eq-roofline)."""
        return {
            part: roofline(*work, self.machine, self.plan.precision)
            for part, work in self.work.items()
        }

    @property
    def hours(self) -> float:
        """Roofline of all steps, without what comes before the first one."""
        return self.plan.recipe.steps * sum(self.seconds.values()) / 3600

    @property
    def verdict(self) -> str:
        """Whether it fits; if not, what is largest and which setting would make it fit."""
        peaks, has = self.peaks, self.machine.memory
        phase = max(peaks, key=lambda name: peaks[name])
        share = f"{_gigabytes(peaks[phase])} of {_gigabytes(has)} in phase {phase!r}"
        if self.fits:
            return f"fits: {share}, {peaks[phase] / has:.0%}"
        owners = self.memory[phase]
        largest = max(owners, key=lambda name: owners[name])
        return "; ".join(
            [
                f"does not fit: {share}; the largest item is {largest}, "
                f"{_gigabytes(owners[largest])}",
                *self._advice(),
            ]
        )

    def _advice(self) -> list[str]:
        """For each setting whose phases need too much, the largest with which they do not."""
        phases = [phase for phase, bytes_ in self.peaks.items() if bytes_ > self.machine.memory]
        keys = dict.fromkeys(setting_of(self.plan, phase) for phase in phases)
        return [self._advice_on(key) for key in keys]

    def _advice_on(self, key: str) -> str:
        """What to do about `key`, a section and a key of the recipe."""
        section, name = key.split(".")

        def fits(value: int) -> bool:
            changed = getattr(self.plan.recipe, section).model_copy(update={name: value})
            recipe = self.plan.recipe.model_copy(update={section: changed})
            return all(
                sum(owners.values()) <= self.machine.memory
                for phase, owners in _memory(replace(self.plan, recipe=recipe)).items()
                if setting_of(self.plan, phase) == key
            )

        values = range(1, self.plan.recipe.rollouts.responses)  # with all responses it does not fit
        most = bisect_left(values, True, key=lambda value: not fits(value))
        return f"lower {key} to {most}" if most else f"{key} = 1 is still too much"

    @property
    def rows(self) -> list[Entry]:
        """Everything as lines of a table: memory by phase and owner, then time by part."""
        memory = [
            Entry(phase, owner, number, "bytes")
            for phase, owners in self.memory.items()
            for owner, number in (*owners.items(), ("all", self.peaks[phase]))
        ]
        time = [
            row
            for part, work in self.work.items()
            for row in (
                Entry(part, "computed", work.flops, "FLOP"),
                Entry(part, "moved", work.moved, "bytes"),
                Entry(part, "roofline", self.seconds[part], "s"),
            )
        ]
        return [
            *memory,
            *time,
            Entry("step", "roofline", sum(self.seconds.values()), "s"),
            Entry("run", "roofline", self.hours, "hours"),
        ]


def predict(
    recipe: Recipe,
    shape: Shape,
    machine: Machine,
    *,
    prompt_tokens: int,
    response_tokens: int | None = None,
) -> Prediction:
    """Memory and time of a run on one machine, before it.

    Memory is that of the worst step: all responses reach the limit. Time is an estimate, the
    roofline of a step whose prompts are all as long as the longest, whose responses all have the
    given length, and which learns from every group: no such step is faster, but one with shorter
    responses, or with groups that are skipped because all their responses earned the same, may be.

    Args:
        recipe: what is to be run.
        shape: of its model; see `shape_of`.
        machine: on which; see `measure` and `DATASHEETS`.
        prompt_tokens: P, tokens of the longest prompt.
        response_tokens: T, mean length of the responses for the time; the limit if not given.

    Raises:
        ValueError: if a length is out of range, or another package's engine is to sample.

    Book: appendix L, "What each setting saves, and what it costs".
    """
    if recipe.rollouts.engine not in ENGINES:
        raise UserError(
            f"rollouts.engine is {recipe.rollouts.engine!r}, and only this package's own engines "
            f"are predicted: {', '.join(map(repr, ENGINES))}"
        )
    limit = recipe.rollouts.max_new_tokens
    length = limit if response_tokens is None else response_tokens
    if not 1 <= length <= limit:
        raise UserError(
            f"response_tokens is {length}, expected 1 to rollouts.max_new_tokens = {limit}"
        )
    plan = Plan(recipe, shape, prompt_tokens, machine.card)
    return Prediction(plan, machine, _memory(plan), _work(plan, length))


def _memory(plan: Plan) -> dict[str, dict[str, int]]:
    settings = plan.recipe.rollouts
    phases = {"sample": sampling_bytes(plan, plan.together, settings.group_size)}
    phases["consult"] = consulting_bytes(plan)
    phases["learn"] = learning_bytes(plan)
    asked = min(settings.responses, plan.recipe.evaluation.problems)
    phases["evaluate"] = sampling_bytes(plan, asked, 1)
    return {phase: {**standing_bytes(plan), **owners} for phase, owners in phases.items()}


def _work(plan: Plan, response_tokens: int) -> dict[str, Work]:
    settings, evaluation = plan.recipe.rollouts, plan.recipe.evaluation
    batches = ceil(settings.prompts / plan.together)
    parts = [
        sampling_work(
            plan, settings.prompts, settings.group_size, response_tokens, batches=batches
        ),
        scoring_work(plan, response_tokens),
        learning_work(plan, response_tokens),
    ]
    if plan.recipe.row.needs("greedy_scores"):
        greedy = sampling_work(plan, settings.prompts, 1, response_tokens, batches=batches)
        parts.append({"draw greedily": _sum(greedy)})
    asked = _sum(sampling_work(plan, evaluation.problems, 1, response_tokens))
    share = plan.evaluations
    parts.append({"evaluate": Work(share * asked.flops, share * asked.moved)})
    return {name: work for part in parts for name, work in part.items()}


def _sum(works: Mapping[str, Work]) -> Work:
    return Work(*map(sum, zip(*works.values(), strict=True)))


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.3g} GB"


class Prompts(NamedTuple):
    """Lengths of a recipe's prompts in tokens.

    Attributes:
        shortest: of those that were looked at.
        longest: of them.
        source: where the numbers are from, in words.
    """

    shortest: int
    longest: int
    source: str


def prompts_of(recipe: Recipe | Pretraining) -> Prompts:
    """How long the prompts are: of many training problems, or assumed where none can be had."""
    try:
        lengths = prompt_lengths(recipe)
    except OSError:
        return Prompts(1, USUAL_PROMPT, "assumed: the tokenizer was not downloaded yet")
    return Prompts(min(lengths), max(lengths), "the longest of many")


def prompt_lengths(recipe: Recipe | Pretraining) -> list[int]:
    """Tokens of each of many training prompts; of the model only the tokenizer is loaded.

    Raises:
        OSError: if the tokenizer or the problems are not on this machine.
    """
    reading = Reading.of(recipe)
    from_files = recipe.model.source != "tiny" or reading.is_listed
    return _lengths_anew(reading) if from_files else [*_lengths(reading)]


def _lengths_anew(reading: Reading) -> list[int]:
    recipe = reading.recipe
    tokenizer = load_tokenizer(recipe, local=True)
    drawn = recipe.examples(PROMPTS, generator(recipe.seed, "problems", 0))
    prompts = rendered(recipe.prompt, tokenizer, drawn)
    return [len(ids) for ids in tokenizer(prompts, add_special_tokens=False).input_ids]


_lengths = lru_cache(maxsize=4)(_lengths_anew)  # a plan asks several times
