"""What each part of a step computes, and the bytes that it moves.

The work is that of a step in which every prompt is as long as the longest and every response as
long as said; a real step whose responses end earlier, or in which groups without advantage are
skipped, has less to do.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import NamedTuple

from nbcourse.budget.machines import BYTES, FLOAT32
from nbcourse.budget.memory import computed_again
from nbcourse.budget.passes import (
    Pass,
    activation_bytes,
    cache_bytes,
    decoding_bytes,
    layer_flops,
    output_flops,
    pass_bytes,
    spared_flops,
    weight_bytes,
)
from nbcourse.budget.plan import Plan
from nbcourse.budget.shapes import Shape


class Work(NamedTuple):
    """What a part of a step computes and moves.

    Attributes:
        flops: floating-point operations in matrix products.
        moved: bytes read from memory and written to it, at least.
    """

    flops: float
    moved: float


def work_of(plan: Plan, response_tokens: int) -> dict[str, Work]:
    """What a step computes and moves on average, by part."""
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
    again = computed_again(plan, plan.learning(plan.slice, response_tokens))
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


def _sum(works: Mapping[str, Work]) -> Work:
    return Work(*map(sum, zip(*works.values(), strict=True)))
