"""The bytes that a run holds, by phase and owner.

They are counted as this package spends them: weights, gradients and AdamW's moments in float32, a
frozen reference, a critic, the keys and values of what is being sampled, and the activations of
one backward pass; where an adapter learns, gradients and moments are its own, and there is no
reference to keep.
"""

from nbcourse.budget.machines import BYTES, FLOAT32
from nbcourse.budget.passes import Pass, activation_bytes, cache_bytes, layer_activation_bytes
from nbcourse.budget.plan import Plan
from nbcourse.lm.log_probs import KEPT, ROWS
from nbcourse.lm.packed import Packed
from nbcourse.lm.rollouts import with_room


def memory_of(plan: Plan) -> dict[str, dict[str, int]]:
    """Bytes by phase and owner, of the step in which every response reaches the limit."""
    settings = plan.recipe.rollouts
    phases = {"sample": sampling_bytes(plan, plan.together, settings.group_size)}
    phases["consult"] = consulting_bytes(plan)
    phases["learn"] = learning_bytes(plan)
    asked = min(settings.responses, plan.recipe.evaluation.problems)
    phases["evaluate"] = sampling_bytes(plan, asked, 1)
    return {phase: {**standing_bytes(plan), **owners} for phase, owners in phases.items()}


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
    copies = {} if reference_alone else _copies(plan)
    if not (reference or plan.recipe.asks_reference):  # values need no logits
        return copies | layers
    chunked = plan.reference_chunked
    joining = {"keys and values": cache, "logits": _joining_bytes(plan, passes, chunked)}
    choosing = {"logits": _choosing_bytes(plan, passes, chunked)}
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
    if not computed_again(plan, passes):
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


def computed_again(plan: Plan, passes: list[Pass]) -> bool:
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
