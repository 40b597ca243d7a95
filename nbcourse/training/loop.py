"""The training loop: prompts → rollouts → rewards → advantages → loss → step, again and again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.functional.kl import AdaptiveKL, FixedKL
from nbcourse.functional.surrogates import truncated_importance_weights
from nbcourse.functional.values import value_loss
from nbcourse.lm.rollouts import group_rows, select
from nbcourse.seeds import generator
from nbcourse.training import diagnostics
from nbcourse.training.algorithms import (
    Estimate,
    Penalty,
    moves_without_advantage,
    policy_loss,
)
from nbcourse.training.clock import Clock
from nbcourse.training.diagnostics import Means
from nbcourse.training.experience import Draws, Experience, add_reference_and_values, collect
from nbcourse.training.held_out import held_out_accuracy
from nbcourse.training.learner import Learner
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe


@dataclass
class State:
    """Where a run is: all that changes from step to step, apart from the weights.

    Attributes:
        step: steps done.
        draws: the cursor into the training problems.
        controller: the KL coefficient and how it moves.
        average: the running mean of rewards, for the baseline that uses it.
    """

    step: int
    draws: Draws
    controller: FixedKL | AdaptiveKL
    average: float = 0.0


def begin(recipe: Recipe) -> State:
    """The state before the first step."""
    settings = recipe.kl
    if settings.controller == "adaptive":
        controller: FixedKL | AdaptiveKL = AdaptiveKL(
            settings.beta, settings.target, settings.horizon
        )
    else:
        controller = FixedKL(settings.beta)
    return State(step=0, draws=Draws(recipe), controller=controller)


def steps(learner: Learner, state: State, processes: Processes) -> Iterator[dict[str, float]]:
    """Run the remaining steps; after each, yield its numbers. `diagnostics` says what they are.

    Raises:
        FloatingPointError: naming the step and the tensor that is not finite; the weights are then
            those before that update.
    """
    recipe = learner.recipe
    while state.step < recipe.steps:
        try:
            metrics = one_step(learner, state, processes)
        except FloatingPointError as error:
            raise FloatingPointError(f"step {state.step + 1}: {error}") from error
        state.step += 1
        yield {"step": state.step, **metrics}


def one_step(learner: Learner, state: State, processes: Processes) -> dict[str, float]:
    """Prompts → rollouts → rewards → advantages → updates, and the numbers that describe it."""
    recipe, clock = learner.recipe, Clock()
    penalty = replace(recipe.penalty, beta=state.controller.beta)
    step = state.step + 1

    with clock("sample"):
        experience = collect(learner, state.draws, processes)
    with clock("consult"):
        asked = recipe.asks_reference
        experience = add_reference_and_values(learner, experience, processes, reference=asked)
        metrics = diagnostics.of_experience(experience)
        if recipe.measures_kl(step):
            metrics["kl_ref"] = diagnostics.kl_to_reference(learner, experience)
    with clock("learn"):
        estimate = recipe.row.estimate(
            recipe.settings,
            rewards=experience.rewards(penalty),
            mask=experience.rollout.mask,
            values=experience.values,
            group_size=recipe.rollouts.group_size,
            greedy_scores=experience.greedy_scores,
            average=state.average,
            **experience.rewards_of_steps(),
        )
        if experience.values is not None and estimate.returns is None:
            raise UserError(
                f"{recipe.algorithm.name} has a critic, but its advantage function "
                f"{recipe.row.advantage.__name__!r} gives no returns to train it on"
            )
        metrics |= learn(learner, experience, estimate, penalty, state.step, processes)
    if estimate.average is not None:
        state.average = estimate.average
    if penalty.placement != "none":
        metrics["beta"] = penalty.beta
        state.controller.update(metrics["kl_ref"], len(experience.scores))
    if recipe.evaluates(step):
        with clock("evaluate"):
            metrics["held_out"] = held_out_accuracy(learner)
    return metrics | costs(clock, experience)


def costs(clock: Clock, experience: Experience) -> dict[str, float]:
    """Responses and tokens that a step sampled, and what its phases took."""
    sampled = experience.sampled
    working = sum(clock.seconds[phase] for phase in ("sample", "consult", "learn"))
    return {
        "responses": sampled.responses,
        "tokens": sampled.tokens,
        "tokens_per_second": sampled.tokens / working,
        **clock.report(),
    }


def learn(
    learner: Learner,
    experience: Experience,
    estimate: Estimate,
    penalty: Penalty,
    step: int,
    processes: Processes,
) -> dict[str, float]:
    """Epochs of minibatches over one batch of experience; returns what was seen on the way."""
    settings = learner.recipe.optimiser
    for group in learner.optimiser.param_groups:
        group["lr"] = group["initial_lr"] * min(1.0, (step + 1) / (settings.warm_up + 1))
    means, updates = Means(), 0
    plan = list(minibatches(learner.recipe, experience, step))
    if len(plan) > 1:
        epoch = plan[: len(plan) // settings.epochs]
        experience = add_old_log_probs(learner, experience, estimate, penalty, epoch, processes)
    learner.watch.before_updates(learner, experience, estimate, penalty, step)
    for groups in plan:
        first = updates == 0
        seen = backward(learner, experience, estimate, penalty, groups, processes, first=first)
        if settings.target_kl is not None and seen.mean("kl_old") > settings.target_kl:
            break
        means.merge(seen)
        means.add("grad_norm", clip_gradients(learner))
        learner.scaler.step(learner.optimiser)  # leaves an update out whose gradient overflowed
        learner.scaler.update()
        updates += 1
    learner.watch.after_updates(learner)
    critic = diagnostics.of_critic(learner, experience, estimate, penalty)
    scale = {"loss_scale": learner.scaler.get_scale()} if learner.scaler.is_enabled() else {}
    return {**means.result(), **critic, **scale, "updates": updates}


def minibatches(recipe: Recipe, experience: Experience, step: int) -> Iterator[Tensor]:
    """The numbers of the groups in each minibatch; a group is never split."""
    groups = len(experience.scores) // recipe.rollouts.group_size
    for epoch in range(recipe.optimiser.epochs):
        source = generator(recipe.seed, "minibatches", step, epoch)
        order = torch.randperm(groups, generator=source)
        yield from order.tensor_split(min(recipe.optimiser.minibatches, groups))


def add_old_log_probs(
    learner: Learner,
    experience: Experience,
    estimate: Estimate,
    penalty: Penalty,
    epoch: Sequence[Tensor],
    processes: Processes,
) -> Experience:
    """Add the learner's log-probs before its first update, given the minibatches of an epoch.

    They are taken slice by slice as `backward` will take them, so that they round alike: those of
    the sampler, token after token from a cache, differ in bfloat16 by more than GSPO's clip.
    """
    group = learner.recipe.rollouts.group_size
    found = torch.zeros_like(experience.rollout.log_probs)
    parts = [
        rows
        for groups in epoch
        for rows in slices(learner, experience, estimate, penalty, groups, processes)
    ]

    def ask(rows: Tensor) -> Tensor:
        with learner.precision():
            return learner.log_probs(select(experience.rollout, rows), group_size=group)

    answers = processes.gather([ask(rows) for rows in processes.share(parts)], len(parts))
    for rows, log_probs in zip(parts, answers, strict=True):
        found[rows, : log_probs.shape[1]] = log_probs
    return replace(experience, old_log_probs=found)


def slices(
    learner: Learner,
    experience: Experience,
    estimate: Estimate,
    penalty: Penalty,
    groups: Tensor,
    processes: Processes,
) -> list[Tensor]:
    """The rows of each slice of a minibatch, given by its groups.

    Groups whose advantages are all 0 count in every mean but are not computed where their gradient
    is exactly 0.
    """
    recipe, mask = learner.recipe, experience.rollout.mask
    group = recipe.rollouts.group_size
    if leaves_out_flat_groups(recipe, penalty):
        active = (estimate.advantages != 0).any(dim=1).view(-1, group).any(dim=1)
        groups = groups[active.cpu()[groups]]
    # Groups of similar length go together, so that little padding is computed.
    longest = mask.sum(dim=1).view(-1, group).amax(dim=1).cpu()
    groups = groups[longest[groups].argsort(stable=True)]
    prompt, limit = experience.rollout.prompt_ids.shape[1], recipe.rollouts.max_new_tokens
    if recipe.optimiser.prompts_at_once is None:
        parts = groups.split(max(1, -(-len(groups) // processes.count))) if len(groups) else []
    else:  # with short answers, more prompts fit into the memory of as many with the longest ones
        room = recipe.optimiser.prompts_at_once * (prompt + limit)
        parts = groups.split(packed((prompt + longest[groups]).tolist(), room=room))
    return [group_rows(part, group).to(mask.device) for part in parts]


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


def backward(
    learner: Learner,
    experience: Experience,
    estimate: Estimate,
    penalty: Penalty,
    groups: Tensor,
    processes: Processes,
    *,
    first: bool,
) -> Means:
    """Gradient of the loss of one minibatch, given by its groups, summed over slices of it."""
    group = learner.recipe.rollouts.group_size
    batch_mask = experience.rollout.mask[group_rows(groups, group)]
    parts = slices(learner, experience, estimate, penalty, groups, processes)
    gradients = []
    for _, parameter in learner.trained():
        gradients.append(torch.zeros_like(parameter))
        parameter.grad = gradients[-1]
    means = Means()
    for rows in processes.share(parts):
        loss = slice_loss(learner, experience, estimate, penalty, rows, batch_mask, means, first)
        learner.scaler.scale(loss).backward()
    processes.add(gradients)
    everyone = Means()
    for share in processes.gather([means], processes.count):
        everyone.merge(share)
    if learner.recipe.row.needs("old_log_probs"):  # tokens that are left out are not clipped
        left_out = int(batch_mask.sum()) - everyone.counts["kl_old"]
        everyone.add("clip_low", 0.0, left_out)
        everyone.add("clip_high", 0.0, left_out)
    everyone.add("policy_loss", 0.0)
    if learner.critic is not None:
        everyone.add("value_loss", 0.0)
    return everyone


def slice_loss(
    learner: Learner,
    experience: Experience,
    estimate: Estimate,
    penalty: Penalty,
    rows: Tensor,
    batch_mask: Tensor,
    means: Means,
    first: bool,
) -> Tensor:
    """The part that some rows have in the loss of their minibatch, whose mask is `batch_mask`.

    Raises:
        FloatingPointError: if it is not finite.
    """
    recipe = learner.recipe
    minibatch = select(experience.rollout, rows)
    mask = minibatch.mask

    def part_of(tensor: Tensor | None) -> Any:
        return None if tensor is None else tensor[rows, : mask.shape[1]]

    divergences = None
    with learner.precision():
        group = recipe.rollouts.group_size
        if penalty.exact:
            log_probs, values, divergences = learner.log_probs_values_and_divergences(
                minibatch, group_size=group
            )
        else:
            log_probs, values = learner.log_probs_and_values(minibatch, group_size=group)
    old_log_probs = part_of(experience.old_log_probs)
    if old_log_probs is None:
        old_log_probs = log_probs.detach()
    learner.watch.tokens(rows, batch_mask, log_probs, old_log_probs)
    cap = recipe.optimiser.truncated_importance_sampling
    policies = {
        "log_probs": log_probs,
        "old_log_probs": old_log_probs,
        # without a reference, nothing looks at it
        "ref_log_probs": old_log_probs
        if experience.ref_log_probs is None
        else part_of(experience.ref_log_probs),
        "mask": mask,
    }
    tokens = {
        **policies,
        "advantages": part_of(estimate.advantages),
        "values": part_of(experience.values),
    }
    losses = {
        "policy_loss": policy_loss(
            recipe.row,
            recipe.settings,
            penalty,
            max_length=recipe.rollouts.max_new_tokens,
            divergences=divergences,
            sampler_weights=None
            if cap is None
            else truncated_importance_weights(old_log_probs, minibatch.log_probs, cap=cap),
            batch_mask=batch_mask,
            **tokens,
        )
    }
    if values is not None:
        losses["value_loss"] = value_loss(
            values,
            tokens["values"],
            part_of(estimate.returns),
            mask,
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
        {**tokens, "advantages": penalty.charged(tokens["advantages"], **policies)},
        sampler_log_probs=minibatch.log_probs if first else None,
    )
    return losses["policy_loss"] + recipe.critic.coefficient * losses.get("value_loss", 0.0)


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
