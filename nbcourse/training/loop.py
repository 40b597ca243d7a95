"""The training loop: prompts → rollouts → rewards → advantages → loss → step, again and again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nbcourse.functional.kl import AdaptiveKL, FixedKL
from nbcourse.training import diagnostics
from nbcourse.training.algorithms import Estimate, Penalty
from nbcourse.training.clock import Clock
from nbcourse.training.diagnostics import Means
from nbcourse.training.experience import Draws, Experience, add_reference_and_values, collect
from nbcourse.training.held_out import held_out_accuracy
from nbcourse.training.learner import Learner
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe
from nbcourse.training.update import (
    Update,
    add_old_log_probs,
    backward,
    clip_gradients,
    minibatches,
)


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
        estimate = credited(recipe, experience, penalty, average=state.average)
        metrics |= learn(Update(learner, experience, estimate, penalty, processes), state.step)
    if estimate.average is not None:
        state.average = estimate.average
    if penalty.placement != "none":
        metrics["beta"] = penalty.beta
        state.controller.update(metrics["kl_ref"], len(experience.scores))
    if recipe.evaluates(step):
        with clock("evaluate"):
            metrics["held_out"] = held_out_accuracy(learner)
    return metrics | costs(clock, experience)


def credited(
    recipe: Recipe, experience: Experience, penalty: Penalty, *, average: float
) -> Estimate:
    """What the tokens of a batch are credited with; `average` is that of rewards before it."""
    return recipe.row.estimate(
        recipe.settings,
        rewards=experience.rewards(penalty),
        mask=experience.rollout.mask,
        values=experience.values,
        group_size=recipe.rollouts.group_size,
        greedy_scores=experience.greedy_scores,
        average=average,
        **experience.rewards_of_steps(),
    )


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


def learn(update: Update, step: int) -> dict[str, float]:
    """Epochs of minibatches over one batch of experience; returns what was seen on the way."""
    learner, settings = update.learner, update.learner.recipe.optimiser
    share = settings.share_of_rate(step, learner.recipe.steps)
    for group in learner.optimiser.param_groups:
        group["lr"] = group["initial_lr"] * share
    plan = list(minibatches(learner.recipe, update.experience, step))
    if len(plan) > 1:  # with one update, the log-probs that it differentiates are the old ones
        update = add_old_log_probs(update, plan[: len(plan) // settings.epochs])
    told = learner, update.experience, update.estimate, update.penalty
    learner.watch.before_updates(*told, step)
    means, updates = Means(), 0
    for groups in plan:
        seen = backward(update, groups, first=updates == 0)
        if settings.target_kl is not None and seen.mean("kl_old") > settings.target_kl:
            break
        means.merge(seen)
        means.add("grad_norm", clip_gradients(learner))
        learner.scaler.step(learner.optimiser)  # leaves an update out whose gradient overflowed
        learner.scaler.update()
        updates += 1
    learner.watch.after_updates(learner)
    scale = {"loss_scale": learner.scaler.get_scale()} if learner.scaler.is_enabled() else {}
    return {**means.result(), **diagnostics.of_critic(*told), **scale, "updates": updates}
