"""The updates of one step: minibatches of its experience, slices of these, and their loss."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.functional.surrogates import importance_weights
from nbcourse.functional.values import value_loss
from nbcourse.lm.rollouts import Rollout, group_rows, select
from nbcourse.seeds import generator
from nbcourse.training import diagnostics
from nbcourse.training.algorithms import (
    Estimate,
    Penalty,
    Tokens,
    moves_without_advantage,
    policy_loss,
)
from nbcourse.training.diagnostics import Means
from nbcourse.training.experience import Experience
from nbcourse.training.halves import Halves
from nbcourse.training.learner import Learner
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe


@dataclass(frozen=True)
class Update:
    """What all updates of a step are made from.

    Attributes:
        learner: who learns.
        experience: from what.
        estimate: what its tokens are credited with.
        penalty: the KL, as strong as it is in this step.
        processes: who share the work.

    Raises:
        ValueError: if there is a critic, and nothing to train it on.
    """

    learner: Learner
    experience: Experience
    estimate: Estimate
    penalty: Penalty
    processes: Processes

    def __post_init__(self) -> None:
        recipe = self.learner.recipe
        if self.experience.values is not None and self.estimate.returns is None:
            raise UserError(
                f"{recipe.algorithm.name} has a critic, but its advantage function "
                f"{recipe.row.advantage.__name__!r} gives no returns to train it on"
            )


def minibatches(recipe: Recipe, experience: Experience, step: int) -> Iterator[Tensor]:
    """The numbers of the groups in each minibatch; a group is never split."""
    groups = len(experience.scores) // recipe.rollouts.group_size
    for epoch in range(recipe.optimiser.epochs):
        source = generator(recipe.seed, "minibatches", step, epoch)
        order = torch.randperm(groups, generator=source)
        yield from order.tensor_split(min(recipe.optimiser.minibatches, groups))


def slices(update: Update, groups: Tensor) -> list[Tensor]:
    """The rows of each slice of a minibatch, given by its groups.

    Groups whose advantages are all 0 count in every mean but are not computed where their gradient
    is exactly 0.
    """
    recipe, rollout = update.learner.recipe, update.experience.rollout
    group = recipe.rollouts.group_size
    if leaves_out_flat_groups(recipe, update.penalty):
        active = (update.estimate.advantages != 0).any(dim=1).view(-1, group).any(dim=1)
        groups = groups[active.cpu()[groups]]
    # Groups of similar length go together, so that little padding is computed.
    longest = rollout.mask.sum(dim=1).view(-1, group).amax(dim=1).cpu()
    groups = groups[longest[groups].argsort(stable=True)]
    prompt, limit = rollout.prompt_ids.shape[1], recipe.rollouts.max_new_tokens
    if recipe.optimiser.prompts_at_once is None:
        share = max(1, -(-len(groups) // update.processes.count))
        parts = groups.split(share) if len(groups) else ()
    else:  # with short answers, more prompts fit into the memory of as many with the longest ones
        room = recipe.optimiser.prompts_at_once * (prompt + limit)
        parts = groups.split(packed((prompt + longest[groups]).tolist(), room=room))
    return [group_rows(part, group).to(rollout.mask.device) for part in parts]


def leaves_out_flat_groups(recipe: Recipe, penalty: Penalty) -> bool:
    """Whether groups whose advantages are all 0 have a gradient of exactly 0, and are not computed.

    A critic, a KL beside the reward and some surrogates want something of them too.
    """
    return (
        not recipe.row.needs("values")
        and penalty.placement in ("none", "reward")
        and not moves_without_advantage(recipe.row, recipe.settings)
    )


def packed(lengths: Sequence[int], *, room: int) -> list[int]:
    """Split ascending lengths into consecutive parts; returns how many lengths each part has.

    A part is padded to its longest. Its area is at most `room`, unless it is a single length.
    """
    sizes: list[int] = []
    for length in lengths:
        if sizes and (sizes[-1] + 1) * length <= room:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def add_old_log_probs(update: Update, epoch: Sequence[Tensor]) -> Update:
    """Add the learner's log-probs before its first update, given the minibatches of an epoch.

    They are taken slice by slice as `backward` will take them, so that they round alike: those of
    the sampler, token after token from a cache, differ in bfloat16 by more than GSPO's clip.
    """
    learner, rollout = update.learner, update.experience.rollout
    found = torch.zeros_like(rollout.log_probs)
    parts = [rows for groups in epoch for rows in slices(update, groups)]

    def ask(rows: Tensor) -> Tensor:
        with learner.precision():
            group = learner.recipe.rollouts.group_size
            return learner.log_probs(select(rollout, rows), group_size=group)

    answers = update.processes.gather([ask(rows) for rows in update.processes.share(parts)])
    for rows, log_probs in zip(parts, answers, strict=True):
        found[rows, : log_probs.shape[1]] = log_probs
    return replace(update, experience=replace(update.experience, old_log_probs=found))


def backward(update: Update, groups: Tensor, *, first: bool) -> Means:
    """Gradient of the loss of one minibatch, given by its groups, summed over slices of it."""
    learner, processes = update.learner, update.processes
    rows_of_all = group_rows(groups, learner.recipe.rollouts.group_size)
    batch_mask = update.experience.rollout.mask[rows_of_all]
    parts = slices(update, groups)
    gradients = []
    for _, parameter in learner.trained():
        gradients.append(torch.zeros_like(parameter))
        parameter.grad = gradients[-1]
    means = Means()
    halves = Halves(gradients) if first and len(parts) > 1 else None
    for piece in processes.share(range(len(parts))):
        loss = slice_loss(update, parts[piece], batch_mask, means, first=first)
        learner.scaler.scale(loss).backward()
        if halves is not None:
            halves.add(piece)
    processes.add(gradients)
    everyone = Means()
    for share in processes.gather([means]):
        everyone.merge(share)
    if learner.recipe.row.has_ratio:  # tokens that are left out are not clipped
        left_out = int(batch_mask.sum()) - everyone.counts["kl_old"]
        everyone.add("clip_low", 0.0, left_out)
        everyone.add("clip_high", 0.0, left_out)
    everyone.add("policy_loss", 0.0)
    if learner.critic is not None:
        everyone.add("value_loss", 0.0)
    if halves is not None and (cosine := halves.cosine(processes)) is not None:
        everyone.add("half_cosine", cosine)
    return everyone


def slice_loss(
    update: Update, rows: Tensor, batch_mask: Tensor, means: Means, *, first: bool
) -> Tensor:
    """The part that some rows have in the loss of their minibatch, whose mask is `batch_mask`.

    Raises:
        FloatingPointError: if it is not finite.
    """
    learner, recipe = update.learner, update.learner.recipe
    part = select(update.experience.rollout, rows)
    tokens, values, divergences = recomputed(update, rows, part)
    learner.watch.tokens(rows, batch_mask, tokens.log_probs, tokens.old_log_probs)
    weights, bounds = None, recipe.optimiser.importance_bounds
    if bounds is not None:
        weights = importance_weights(tokens.old_log_probs, part.log_probs, part.mask, **bounds)
    losses = {
        "policy_loss": policy_loss(
            recipe.row,
            recipe.settings,
            update.penalty,
            tokens,
            max_length=recipe.rollouts.max_new_tokens,
            divergences=divergences,
            sampler_weights=weights,
            batch_mask=batch_mask,
        )
    }
    if values is not None:
        before, returns = update.experience.values, update.estimate.returns
        losses["value_loss"] = value_loss(
            values,
            cut(before, rows, part),
            cut(returns, rows, part),
            part.mask,
            clip=recipe.critic.clip,
            batch_mask=batch_mask,
        )
    for name, loss in losses.items():
        if not loss.isfinite():
            raise FloatingPointError(f"the {name} is {loss.item()}")
        means.add(name, loss.detach(), 0)  # slices add up; `backward` counts the minibatch
    diagnostics.of_tokens(
        means,
        recipe.row,
        recipe.settings,
        update.penalty.charged(tokens),
        sampler_log_probs=part.log_probs if first else None,
    )
    return losses["policy_loss"] + recipe.critic.coefficient * losses.get("value_loss", 0.0)


def recomputed(
    update: Update, rows: Tensor, part: Rollout
) -> tuple[Tokens, Tensor | None, Tensor | None]:
    """What the models say now of some rows: tokens, and with gradient values and divergences.

    Without a reference its log-probs are the old ones, and nothing looks at them.
    """
    learner, experience = update.learner, update.experience
    group, divergences = learner.recipe.rollouts.group_size, None
    with learner.precision():
        if update.penalty.exact:
            log_probs, values, divergences = learner.log_probs_values_and_divergences(
                part, group_size=group
            )
        else:
            log_probs, values = learner.log_probs_and_values(part, group_size=group)
    old_log_probs = cut(experience.old_log_probs, rows, part)
    if old_log_probs is None:
        old_log_probs = log_probs.detach()
    ref_log_probs = cut(experience.ref_log_probs, rows, part)
    tokens = Tokens(
        log_probs,
        old_log_probs,
        ref_log_probs=old_log_probs if ref_log_probs is None else ref_log_probs,
        advantages=update.estimate.advantages[rows, : log_probs.shape[1]],
        mask=part.mask,  # True on EOS too: when to stop is learned as any token is
        values=cut(experience.values, rows, part),
        sampler_log_probs=part.log_probs,
    )
    return tokens, values, divergences


def cut(table: Tensor | None, rows: Tensor, part: Rollout) -> Any:
    """Some rows of a table (B, T), as wide as their part of the rollout; None of none."""
    return None if table is None else table[rows, : part.mask.shape[1]]


def clip_gradients(learner: Learner) -> float:
    """Scale the gradient down to the recipe's norm; returns the norm it had.

    Where the loss was scaled, the gradient is scaled back first; it may then have overflowed, and
    its norm is not finite.

    Raises:
        FloatingPointError: naming a parameter whose gradient is not finite, whatever the scale.
    """
    learner.scaler.unscale_(learner.optimiser)
    gradients = {name: p.grad for name, p in learner.trained() if p.grad is not None}
    norm = torch.nn.utils.get_total_norm(gradients.values())
    if not norm.isfinite():
        if learner.scaler.is_enabled() and learner.scaler.get_scale() > 1:
            return norm.item()
        broken = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
        raise FloatingPointError(f"the gradient of {', '.join(broken[:3])} is not finite")
    parameters = [parameter for _, parameter in learner.trained()]
    limit = learner.recipe.optimiser.max_grad_norm
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm.item()
