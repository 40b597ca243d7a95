"""The loop: its gradient against one plain backward pass, learning, controls and alarms."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from nbcourse.experiments.run import train
from nbcourse.functional import surrogates
from nbcourse.lm import sampling
from nbcourse.lm.actor_critic import ActorCritic, Critic
from nbcourse.lm.log_probs import rollout_log_probs
from nbcourse.lm.rollouts import group_rows, model_inputs, select
from nbcourse.training import diagnostics, loop
from nbcourse.training import experience as experiences
from nbcourse.training import update as updating
from nbcourse.training.algorithms import ALGORITHMS, Tokens, moves_without_advantage, policy_loss
from nbcourse.training.clock import Clock
from nbcourse.training.experience import Draws, add_reference_and_values, collect
from nbcourse.training.held_out import verdicts
from nbcourse.training.recipe_sections import OptimiserSection
from nbcourse.training.update import Update, backward, minibatches, packed, slices
from tests.effort import swept
from tests.small import ALONE, learner, recipe, weights

WARM = {"steps": 25, "batch_size": 32}


def jolt(module, size, seed=0):
    """Move the weights, so that the learner is no longer the policy that sampled."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=size)


def prepared(name, **changes):
    """A learner some way off the policy that sampled, and a batch of experience with estimates."""
    changes = {"warm_start": WARM, "rollouts": {"prompts": 6}} | changes
    made = learner(recipe(name, **changes))
    jolt(made.reference, 0.02, seed=1)
    if made.critic is not None:
        jolt(made.critic.head, 0.3, seed=2)
    penalty = made.recipe.penalty
    experience = collect(made, Draws(made.recipe), ALONE)
    experience = add_reference_and_values(
        made, experience, ALONE, reference=penalty.placement != "none"
    )
    estimate = made.recipe.row.estimate(
        made.recipe.settings,
        rewards=experience.rewards(penalty),
        mask=experience.rollout.mask,
        values=experience.values,
        group_size=made.recipe.rollouts.group_size,
        greedy_scores=experience.greedy_scores,
        average=0.2,
        **experience.rewards_of_steps(),
    )
    jolt(made.critic or made.policy, 0.01, seed=3)
    if isinstance(made.critic, Critic):
        jolt(made.policy, 0.01, seed=4)
    experience = replace(experience, old_log_probs=experience.rollout.log_probs)
    return Update(made, experience, estimate, penalty, ALONE)


def parts(update):
    return update.learner, update.experience, update.estimate, update.penalty


def silent(update):
    """The same without any advantage."""
    advantages = torch.zeros_like(update.estimate.advantages)
    return replace(update, estimate=replace(update.estimate, advantages=advantages))


def choosing(model, part):
    """(B, T, V) log-probs of everything that each token was chosen from."""
    inputs = {name: x[:, :-1] for name, x in model_inputs(part).items()}
    return model(**inputs).logits[:, -part.tokens.shape[1] :].log_softmax(dim=-1)


def plain_gradient(update, groups):
    """All rows at once, each with its own prompt, one loss, one backward pass."""
    made, experience, estimate, penalty = parts(update)
    rows = group_rows(groups, made.recipe.rollouts.group_size)
    batch, width = experience.rollout, experience.rollout.tokens.shape[1]
    part = replace(
        batch, **{key: value[rows] for key, value in vars(batch).items()}
    )  # padding and all
    assert part.tokens.shape[1] == width
    values = None
    if isinstance(made.critic, ActorCritic):
        log_probs, values = made.critic(part, temperature=made.recipe.rollouts.temperature)
    else:
        log_probs = rollout_log_probs(
            made.policy, part, temperature=made.recipe.rollouts.temperature
        )
        values = None if made.critic is None else made.critic(part)
    reference = experience.ref_log_probs
    divergences = None
    if penalty.exact:
        own, other = (choosing(model, part) for model in (made.policy, made.reference))
        divergences = (own.exp() * (own - other.detach())).sum(dim=-1)
    loss = policy_loss(
        made.recipe.row,
        made.recipe.settings,
        penalty,
        Tokens(
            log_probs,
            old_log_probs=experience.old_log_probs[rows],
            ref_log_probs=log_probs.detach() if reference is None else reference[rows],
            advantages=estimate.advantages[rows],
            mask=part.mask,
        ),
        divergences=divergences,
        max_length=made.recipe.rollouts.max_new_tokens,
    )
    if values is not None:
        old, target = experience.values[rows], estimate.returns[rows]
        error = (values - target) ** 2
        if (clip := made.recipe.critic.clip) is not None:
            error = torch.maximum(error, (old + (values - old).clamp(-clip, clip) - target) ** 2)
        loss = loss + made.recipe.critic.coefficient * 0.5 * error[part.mask].mean()
    names, parameters = zip(*made.trained(), strict=True)
    gradients = torch.autograd.grad(loss, parameters)
    return dict(zip(names, gradients, strict=True)), loss.item()


EXACT = {"beta": 0.2, "placement": "surrogate", "estimator": "exact"}
GRADIENTS = {
    "reinforce": ("reinforce", {}),
    "reinforce-ema": ("reinforce-ema", {}),
    "remax": ("remax", {"rollouts": {"group_size": 1, "prompts": 12, "temperature": 0.8}}),
    "rloo": ("rloo", {}),
    "rloo, KL in the reward": ("rloo", {"kl": {"beta": 0.2}}),
    "grpo": ("grpo", {}),
    "grpo-process, without steps": ("grpo-process", {}),
    "grpo, KL in the loss": ("grpo", {"kl": {"beta": 0.2}}),
    "dr-grpo, KL in a surrogate": ("dr-grpo", {"kl": {"beta": 0.2, "placement": "surrogate"}}),
    "grpo, KL in the advantage": ("grpo", {"kl": {"beta": 0.2, "placement": "advantage"}}),
    "grpo, KL recomputed": (
        "grpo",
        {
            "kl": {"beta": 0.2, "placement": "advantage", "weight": "prefix", "recomputed": True},
            "optimiser": {"epochs": 2},
        },
    ),
    "grpo, exact KL": ("grpo", {"kl": EXACT}),
    "grpo, packed layers": ("grpo", {"kl": {"beta": 0.2}, "model": {"forward": "packed"}}),
    "ppo, shared critic, exact KL": ("ppo", {"kl": EXACT}),
    "ppo, own critic, exact KL": ("ppo", {"kl": EXACT, "critic": {"shared": False}}),
    "dapo": ("dapo", {"rollouts": {"dynamic_sampling": False}}),
    "gspo": ("gspo", {"algorithm": {"clip_low": 0.1, "clip_high": 0.1}}),
    "cispo": ("cispo", {}),
    "reinforce++": ("reinforce++", {}),
    "ppo, shared critic": ("ppo", {}),
    "ppo, shared critic, one response": ("ppo", {"rollouts": {"group_size": 1, "prompts": 12}}),
    "ppo, own critic, clipped": ("ppo", {"critic": {"shared": False, "clip": 0.05}}),
}


# Rows are compared with their papers in test_algorithms; those that are left out here go the way of
# another one through reference, critic, divergences and slices.
OF_EACH_WAY = [
    *("reinforce", "remax", "rloo, KL in the reward", "grpo", "grpo, KL in the loss"),
    *("grpo, KL recomputed", "grpo, exact KL", "ppo, shared critic, exact KL", "dapo", "gspo"),
    "grpo, packed layers",
    *("ppo, shared critic, one response", "ppo, own critic, clipped"),
]


@pytest.mark.parametrize("case", swept(GRADIENTS, keep=OF_EACH_WAY))
def test_the_gradient_is_that_of_one_plain_backward_pass(case):
    """With every number of prompts at once, on the whole batch and on a shuffled minibatch."""
    name, changes = GRADIENTS[case]
    update = prepared(name, **changes)
    made, experience = update.learner, update.experience
    assert update.estimate.advantages.abs().sum() > 0
    lengths = experience.rollout.mask.sum(dim=1)
    assert lengths.min() < lengths.max()
    count = len(experience.scores) // made.recipe.rollouts.group_size
    for groups in (torch.arange(count), torch.tensor([4, 0, 5])):
        expected, value = plain_gradient(update, groups)
        largest = max(gradient.abs().max().item() for gradient in expected.values())
        for at_once in (None, 1, 2, 5):
            optimiser = made.recipe.optimiser.model_copy(update={"prompts_at_once": at_once})
            made.recipe = made.recipe.model_copy(update={"optimiser": optimiser})
            for _, parameter in made.trained():
                parameter.grad = torch.full_like(parameter, 7.0)  # of the step before
            seen = backward(update, groups, first=True).result()
            for key, parameter in made.trained():
                assert_close(parameter.grad, expected[key], rtol=1e-3, atol=1e-5 * largest)
            critic = made.recipe.critic.coefficient * seen.get("value_loss", 0.0)
            assert seen["policy_loss"] + critic == pytest.approx(value, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("lengths", "room", "sizes"),
    [
        ([], 10, []),
        ([30], 10, [1]),  # one goes alone, however long
        ([2, 2, 3, 4, 5, 9], 12, [3, 2, 1]),  # 3 · 3 and 2 · 5 fit, 4 · 4 does not
        ([2, 3, 3, 5], 10, [3, 1]),
        ([5] * 5, 10, [2, 2, 1]),
    ],
)
def test_as_many_go_together_as_their_longest_leaves_room_for(lengths, room, sizes):
    assert packed(lengths, room=room) == sizes


def test_short_answers_go_together_in_micro_batches_of_no_more_memory():
    """Prompts of 4 tokens, answers of at most 8: room for 2 · 12 tokens of a row of each prompt."""
    update = prepared(
        "ppo",
        rollouts={"prompts": 6, "group_size": 2, "max_new_tokens": 8},
        optimiser={"prompts_at_once": 2},
    )
    rollout = update.experience.rollout
    assert rollout.prompt_ids.shape == (12, 4)
    ends = torch.tensor([1, 2, 2, 1, 8, 3, 3, 8, 1, 1, 2, 2])
    rollout = replace(rollout, mask=torch.arange(8) < ends[:, None])
    update = replace(update, experience=replace(update.experience, rollout=rollout))
    found = slices(update, torch.arange(6))
    assert [part.tolist() for part in found] == [[8, 9, 0, 1, 2, 3, 10, 11], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("case", "dropped"), [("grpo", True), ("grpo, KL in the loss", False), ("ppo", False)]
)
def test_groups_without_spread_are_left_out_only_where_nothing_wants_them(
    case, dropped, monkeypatch
):
    name, changes = GRADIENTS.get(case, (case, {}))
    update = prepared(name, **changes)
    made, experience, estimate, _ = parts(update)
    group = made.recipe.rollouts.group_size
    flat = torch.tensor([0, 2, 3])
    estimate.advantages[group_rows(flat, group)] = 0.0
    estimate.advantages[group_rows(torch.tensor([1, 4, 5]), group)] += 0.1
    estimate.advantages.masked_fill_(~experience.rollout.mask, 0.0)
    expected, _ = plain_gradient(update, torch.arange(6))
    seen, whole = [], made.log_probs_and_values

    def watch(part, *, group_size):
        seen.append(len(part.tokens))
        return whole(part, group_size=group_size)

    monkeypatch.setattr(made, "log_probs_and_values", watch)
    backward(update, torch.arange(6), first=True)
    assert sum(seen) == (3 if dropped else 6) * group
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    for key, parameter in made.trained():
        assert_close(parameter.grad, expected[key], rtol=1e-3, atol=1e-5 * largest)


@pytest.mark.parametrize("flat", [[0, 2, 3], [0, 1, 2, 3, 4, 5]])
def test_a_clip_share_is_of_all_tokens_those_of_groups_without_spread_too(flat):
    update = prepared("dapo", algorithm={"clip_low": 0.02, "clip_high": 0.02})
    made, experience = update.learner, update.experience
    group, mask = made.recipe.rollouts.group_size, experience.rollout.mask
    advantages = torch.where(torch.arange(mask.shape[1]) % 2 == 0, 1.0, -1.0) * mask
    advantages[group_rows(torch.tensor(flat), group)] = 0.0
    update = replace(update, estimate=replace(update.estimate, advantages=advantages))
    found = backward(update, torch.arange(6), first=True).result()
    with torch.no_grad():
        now = made.log_probs(experience.rollout, group_size=group)
    ratio = (now - experience.old_log_probs).exp()
    low = mask & (advantages < 0) & (ratio < 0.98)
    high = mask & (advantages > 0) & (ratio > 1.02)
    assert found["clip_low"] == pytest.approx(low.sum().item() / mask.sum().item())
    assert found["clip_high"] == pytest.approx(high.sum().item() / mask.sum().item())
    assert (min(found["clip_low"], found["clip_high"]) > 0) is (len(flat) < 6)


def test_a_batch_that_says_nothing_has_gradient_zero_and_numbers_all_the_same():
    update = silent(prepared("grpo"))
    made, before = update.learner, weights(update.learner)
    numbers = loop.learn(update, 0)
    assert (numbers["policy_loss"], numbers["grad_norm"], numbers["updates"]) == (0.0, 0.0, 1)
    assert_close(weights(made), before, rtol=0, atol=0)


def test_one_step_of_adamw_by_hand():
    """The first step of Adam is lr · g/(|g| + ε), whatever the size of g; clipping comes first."""
    update = prepared("grpo", optimiser={"max_grad_norm": 1e-3})
    made = update.learner
    before = weights(made)
    expected, _ = plain_gradient(update, torch.arange(6))
    norm = math.sqrt(sum(g.double().square().sum().item() for g in expected.values()))
    numbers = loop.learn(update, 0)
    assert numbers["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 1e-3
    rate = made.recipe.optimiser.learning_rate
    for name, parameter in made.trained():
        g = expected[name] * 1e-3 / norm
        step = (parameter.detach() - before[name]) / rate
        certain = g.abs() > 1e-6  # against the ε of 1e-8
        assert_close(step[certain], -(g / (g.abs() + 1e-8))[certain], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("step", "share"), [(0, 1 / 4), (1, 2 / 4), (2, 3 / 4), (3, 1.0), (9, 1.0)]
)
def test_the_learning_rate_warms_up(step, share):
    update = prepared("grpo", optimiser={"warm_up": 3})
    loop.learn(update, step)
    assert update.learner.optimiser.param_groups[0]["lr"] == pytest.approx(3e-4 * share)


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        ("constant", [1 / 3, 2 / 3, 1, 1, 1, 1]),
        ("linear", [1 / 3, 2 / 3, 1, 3 / 4, 2 / 4, 1 / 4]),
        ("cosine", [1 / 3, 2 / 3, 1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]),
    ],
)
def test_the_learning_rate_falls_to_zero_after_the_last_step(schedule, shares):
    update = prepared("grpo", steps=6, optimiser={"warm_up": 2, "schedule": schedule})
    rates = []
    for step in range(6):
        loop.learn(update, step)
        rates.append(update.learner.optimiser.param_groups[0]["lr"] / 3e-4)
    assert rates == pytest.approx(shares)


def test_a_run_that_warms_up_to_its_end_has_no_rest_to_fall_over():
    settings = OptimiserSection(warm_up=3, schedule="linear")
    assert [settings.share_of_rate(step, 3) for step in range(3)] == [1 / 4, 2 / 4, 3 / 4]


def test_the_betas_of_a_recipe_are_those_of_the_optimiser():
    update = prepared("grpo", optimiser={"betas": [0.8, 0.95]})
    assert {group["betas"] for group in update.learner.optimiser.param_groups} == {(0.8, 0.95)}
    with pytest.raises(ValueError, match=r"optimiser\.betas"):
        recipe("grpo", optimiser={"betas": [0.9, 1.0]})


# ---------------------------------------------------------------- minibatches, epochs, early stop


@pytest.mark.parametrize(("prompts", "parts"), [(12, 1), (12, 5), (11, 11)])
def test_each_epoch_goes_through_every_group_once_in_an_order_of_its_own(prompts, parts):
    made = learner(
        recipe("grpo", rollouts={"prompts": prompts}, optimiser={"epochs": 3, "minibatches": parts})
    )
    experience = collect(made, Draws(made.recipe), ALONE)
    orders = []
    for step in (0, 1):
        found = list(minibatches(made.recipe, experience, step))
        assert len(found) == 3 * parts
        sizes = [len(groups) for groups in found]
        assert max(sizes) - min(sizes) <= 1
        for epoch in range(3):
            order = torch.cat(found[epoch * parts : (epoch + 1) * parts]).tolist()
            assert sorted(order) == list(range(prompts))
            orders.append(tuple(order))
    assert len(set(orders)) == 6
    again = list(minibatches(made.recipe, experience, 1))
    assert torch.cat(again[:parts]).tolist() == list(orders[3])


SAMPLED = {
    "float32": {},
    "bfloat16": {"model": {"precision": "bfloat16"}},
    "one prompt at once": {"optimiser": {"prompts_at_once": 1}, "model": {"precision": "bfloat16"}},
    "computed twice": {"model": {"gradient_checkpointing": True, "precision": "bfloat16"}},
    "packed layers": {"model": {"forward": "packed", "precision": "bfloat16"}},
    "a KL over the vocabulary": {
        "model": {"precision": "bfloat16"},
        "kl": {"beta": 0.1, "placement": "surrogate", "estimator": "exact"},
    },
}


@pytest.mark.parametrize(
    ("case", "name"),
    swept(
        product(SAMPLED, ["gspo", "ppo", "ppo, own critic"]),
        keep=[
            *(("bfloat16", name) for name in ("gspo", "ppo", "ppo, own critic")),
            *((case, "gspo") for case in SAMPLED),
        ],
    ),
)
def test_every_ratio_is_exactly_one_before_the_first_update(case, name):
    """GSPO clips at 3e-4, and bfloat16 rounds otherwise token by token than in one pass."""
    changes = {"warm_start": WARM, **SAMPLED[case]}
    changes["optimiser"] = {"minibatches": 3, **changes.get("optimiser", {})}
    if name == "ppo, own critic":
        changes["critic"] = {"shared": False}
    made = learner(recipe(name.split(",")[0], **changes))
    state, penalty = loop.begin(made.recipe), made.recipe.penalty
    seen, whole, collected = [], updating.policy_loss, loop.collect

    def another_sampler(*arguments):
        experience = collected(*arguments)
        rollout = experience.rollout
        return replace(experience, rollout=replace(rollout, log_probs=rollout.log_probs - 0.5))

    def watch(row, settings, penalty, tokens, **others):
        ratio = (tokens.log_probs - tokens.old_log_probs)[tokens.mask]
        seen.append(ratio.abs().max().item())
        return whole(row, settings, penalty, tokens, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "collect", another_sampler)
        patch.setattr(updating, "policy_loss", watch)
        patch.setattr(made.optimiser, "step", lambda: None)  # no update at all
        numbers = loop.one_step(made, state, ALONE)
    assert seen
    assert max(seen) == 0.0
    assert numbers["clip_low"] == numbers["clip_high"] == numbers["kl_old"] == 0.0
    assert numbers["gap"] == pytest.approx(0.5, abs=0.1)
    assert penalty.exact == (case == "a KL over the vocabulary")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_update_on_what_the_static_engine_wrote_corrects_its_rounding(precision, monkeypatch):
    """Its gap is told, and weighed if asked; in bfloat16 a unit in the last place is 2⁻⁶ nats."""
    made = learner(
        recipe(
            "grpo",
            warm_start=WARM,
            model={"precision": precision},
            rollouts={"engine": "static"},
            optimiser={"truncated_importance_sampling": 2.0},
        )
    )
    seen, whole = {}, updating.policy_loss

    def watch(row, settings, penalty, tokens, **others):
        seen.update(tokens._asdict(), **others)
        return whole(row, settings, penalty, tokens, **others)

    monkeypatch.setattr(updating, "policy_loss", watch)
    numbers = loop.one_step(made, loop.begin(made.recipe), ALONE)
    # Without a processor's vector instructions, the two may well round alike.
    assert numbers["gap"] < (1e-5 if precision == "float32" else 4 * 2**-6)
    weights_ = seen["sampler_weights"][seen["mask"]]
    assert weights_.log().abs().max().item() == pytest.approx(numbers["gap"], rel=1e-2, abs=1e-6)
    assert numbers["grad_norm"] > 0


def test_all_that_a_run_samples_is_written_by_the_engine_of_its_recipe(monkeypatch):
    """Comparisons for a reward model, groups, a greedy baseline, and evaluations."""
    asked, static = [], sampling.ENGINES["static"]

    def watched(model, job):
        asked.append((job.group_size, job.generator is None))
        return static(model, job)

    engines = {"eager": None, "static": watched}
    monkeypatch.setattr(sampling, "ENGINES", engines)
    judged = {"source": "reward_model"}
    made = learner(
        recipe(
            "remax",
            warm_start=WARM,
            reward=judged,
            reward_model={"comparisons": 8, "steps": 1, "batch_size": 8},
            rollouts={"engine": "static"},
        )
    )
    assert set(asked) == {(2, False)}
    asked.clear()
    collect(made, Draws(made.recipe), ALONE)
    assert asked == [(4, False), (1, True)]
    asked.clear()
    verdicts(made, 3)
    assert asked == [(1, True)]


def test_the_old_policy_stays_the_same_while_a_batch_is_used(monkeypatch):
    """That of before the first update, in every epoch and slice."""
    changes = {"epochs": 2, "minibatches": 3, "learning_rate": 1e-2}
    made = learner(recipe("grpo", warm_start=WARM, optimiser=changes))
    batches, before = [], {}
    whole = loop.add_old_log_probs

    def keep(update, epoch):
        update = whole(update, epoch)
        before["log_probs"] = update.experience.old_log_probs.clone()
        batches.append(update.experience)
        return update

    monkeypatch.setattr(loop, "add_old_log_probs", keep)
    numbers = loop.one_step(made, loop.begin(made.recipe), ALONE)
    (experience,) = batches
    assert torch.equal(experience.old_log_probs, before["log_probs"])
    asked = (experience.old_log_probs != 0).any(dim=1)
    mask = experience.rollout.mask & asked[:, None]
    assert asked.any()
    gap = (experience.old_log_probs - experience.rollout.log_probs)[mask].abs().max()
    assert gap < 1e-5  # float32
    assert numbers["kl_old"] > 1e-6


@pytest.mark.parametrize("two", [{"epochs": 2}, {"minibatches": 2}])
def test_the_second_of_two_updates_is_told_and_clipped_by_how_far_the_first_has_moved(two):
    made = learner(
        recipe(
            "grpo",
            warm_start=WARM,
            algorithm={"clip_low": 0.01, "clip_high": 0.01},
            optimiser={"learning_rate": 1e-2, **two},
        )
    )
    numbers = loop.one_step(made, loop.begin(made.recipe), ALONE)
    assert numbers["updates"] == 2
    assert numbers["kl_old"] > 1e-6
    assert numbers["clip_low"] + numbers["clip_high"] > 0


def test_one_update_needs_no_pass_for_the_old_policy(monkeypatch):
    made = learner(recipe("grpo", warm_start=WARM))
    monkeypatch.setattr(made, "log_probs", None)
    numbers = loop.one_step(made, loop.begin(made.recipe), ALONE)
    assert numbers["kl_old"] == 0.0
    assert numbers["grad_norm"] > 0


@pytest.mark.parametrize(("cap", "floor"), [(None, 0.0), (1.0, 0.0), (1.5, 0.0), (1.5, 0.9)])
def test_the_samplers_rounding_is_a_weight_of_its_own(cap, floor, monkeypatch):
    """The sampler's log-probs are moved by hand; the ratio does not see it, the weight does."""
    settings = {"truncated_importance_sampling": cap}
    settings |= {"truncated_importance_floor": floor} if floor else {}
    made = learner(recipe("grpo", warm_start=WARM, optimiser=settings if cap else {}))
    seen, whole, collected = {}, updating.policy_loss, loop.collect
    shift = torch.tensor([0.3, -1.0, 0.0, 0.3])

    def shifted(*arguments):
        experience = collected(*arguments)
        moved = experience.rollout.log_probs + shift[: experience.rollout.tokens.shape[1]]
        return replace(experience, rollout=replace(experience.rollout, log_probs=moved))

    def watch(row, settings, penalty, tokens, **others):
        seen.update(tokens._asdict(), **others)
        return whole(row, settings, penalty, tokens, **others)

    monkeypatch.setattr(loop, "collect", shifted)
    monkeypatch.setattr(updating, "policy_loss", watch)
    loop.one_step(made, loop.begin(made.recipe), ALONE)
    assert torch.equal(seen["log_probs"].detach(), seen["old_log_probs"])
    mask, sampled = seen["mask"], seen["old_log_probs"] + shift[: seen["mask"].shape[1]]
    assert_close(seen["sampler_log_probs"][mask], sampled[mask], rtol=1e-4, atol=1e-4)
    if cap is None:
        assert seen["sampler_weights"] is None
        return
    low = max(math.exp(-0.3), floor)
    expected = torch.tensor([low, min(math.e, cap), 1.0, low])
    expected = expected[: mask.shape[1]].expand(mask.shape)
    assert_close(seen["sampler_weights"][mask], expected[mask], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [None, 1e-9, 1e3])
def test_too_far_from_the_policy_that_sampled_ends_the_batch(target):
    """The first update is always made: at its start the KL is 0. The second is not, or all are."""
    changes = {"optimiser": {"epochs": 3, "minibatches": 2, "learning_rate": 1e-3}}
    if target is not None:
        changes["optimiser"]["target_kl"] = target
    made = learner(recipe("ppo", warm_start=WARM, **changes))
    state = loop.begin(made.recipe)
    numbers = loop.one_step(made, state, ALONE)
    assert numbers["updates"] == (1 if target == 1e-9 else 6)
    assert (numbers["kl_old"] > 1e-7) == (target != 1e-9)
    assert numbers["gap"] < 1e-5


# ---------------------------------------------------------------- the KL and its controller


@pytest.mark.parametrize(
    ("target", "factor"), [(1e-6, 1 + 0.2 * 24 / 100), (1e6, 1 - 0.2 * 24 / 100)]
)
@pytest.mark.parametrize("placement", ["reward", "advantage", "loss", "surrogate"])
def test_the_controller_moves_beta_towards_its_target(placement, target, factor):
    """A reference some way off: KL > 0. Far above the target β rises by the most it can, 0.2."""
    settings = {"beta": 0.1, "controller": "adaptive", "target": target, "horizon": 100.0}
    made = learner(recipe("grpo", warm_start=WARM, kl={**settings, "placement": placement}))
    with torch.no_grad():  # a reference that hardly ever says what the policy says
        for parameter in made.reference.parameters():
            parameter.mul_(1.6)
    state = loop.begin(made.recipe)
    numbers = loop.one_step(made, state, ALONE)
    assert numbers["kl_ref"] > 0.1
    assert numbers["beta"] == 0.1  # of this step
    assert state.controller.beta == pytest.approx(0.1 * factor)
    assert loop.one_step(made, state, ALONE)["beta"] == pytest.approx(0.1 * factor)


def test_a_fixed_beta_stays_and_without_one_none_is_told():
    _, history = train(recipe("grpo", kl={"beta": 0.1}), progress=False)
    assert [row["beta"] for row in history] == [0.1, 0.1]
    _, history = train(recipe("grpo"), progress=False)
    assert all("beta" not in row for row in history)


@pytest.mark.parametrize("placement", [None, "loss"])
def test_the_kl_to_the_reference_is_summed_over_a_response(placement):
    """By a loop over rows; without a KL in the recipe, over the first response of each group."""
    kl = {} if placement is None else {"kl": {"beta": 0.1, "placement": placement}}
    made = learner(recipe("grpo", warm_start=WARM, **kl))
    jolt(made.reference, 0.05)
    experience = collect(made, Draws(made.recipe), ALONE)
    experience = add_reference_and_values(made, experience, ALONE, reference=placement is not None)
    total, rows = 0.0, range(0, 24, 4 if placement is None else 1)
    for row in rows:
        single = select(experience.rollout, torch.tensor([row]))
        with torch.no_grad():
            reference = rollout_log_probs(made.reference, single)
        total += (single.log_probs - reference).sum().item()
    found = diagnostics.kl_to_reference(made, experience)
    assert found == pytest.approx(total / len(rows), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "measured"),
    [
        ({}, [1, 3, 6, 7]),  # the first, those that evaluate, and the last
        ({"algorithm": {"name": "ppo"}}, [1, 3, 6, 7]),
        ({"kl": {"beta": 0.1}}, range(1, 8)),
        ({"kl": {"beta": 0.1, "placement": "reward"}}, range(1, 8)),
        ({"evaluation": {"every": 1}}, range(1, 8)),
    ],
)
def test_the_reference_is_not_asked_for_the_log_alone_in_every_step(changes, measured, monkeypatch):
    made = learner(recipe(**{"steps": 7, "evaluation": {"every": 3}} | changes))
    asked, ask = [], made.ref_log_probs
    state = loop.begin(made.recipe)

    def counted(*arguments, **options):
        asked.append(state.step + 1)
        return ask(*arguments, **options)

    monkeypatch.setattr(made, "ref_log_probs", counted)
    history = list(loop.steps(made, state, ALONE))
    assert [row["step"] for row in history if "kl_ref" in row] == [*measured]
    assert sorted({*asked}) == [*measured]


def test_a_row_that_takes_the_reference_measures_the_kl_in_every_step(monkeypatch):
    def near(log_probs, advantages, ref_log_probs):
        return surrogates.policy_gradient(log_probs, advantages)

    row = replace(ALGORITHMS["rloo"], surrogate=near, source="here")
    monkeypatch.setitem(ALGORITHMS, "near", row)
    made = learner(recipe("near", steps=4, evaluation={"every": 4}))
    assert all("kl_ref" in row for row in loop.steps(made, loop.begin(made.recipe), ALONE))


# ---------------------------------------------------------------- what a response earns


def test_penalties_are_taken_off_the_score_and_not_off_the_verdict():
    plain = learner(recipe("grpo", warm_start={"steps": 12, "batch_size": 32}))
    experience = collect(plain, Draws(plain.recipe), ALONE)
    cut, length = experience.rollout.truncated, experience.rollout.mask.sum(dim=1)
    assert cut.any()
    assert not cut.all()
    assert torch.equal(experience.scores, experience.correct)
    penalised = recipe(
        "grpo",
        warm_start={"steps": 12, "batch_size": 32},
        reward={"truncation_penalty": 0.3, "overlong_buffer": 2},
    )
    plain.recipe = penalised
    again = collect(plain, Draws(penalised), ALONE)
    assert torch.equal(again.rollout.tokens, experience.rollout.tokens)
    assert torch.equal(again.correct, experience.correct)
    for row in range(len(length)):
        over = {3: 0.5, 4: 1.0}.get(int(length[row]), 0.0)  # max_new_tokens is 4
        expected = experience.correct[row] - 0.3 * bool(cut[row]) - over
        assert again.scores[row].item() == pytest.approx(expected.item())


def test_an_unfinished_response_is_wrong_unless_the_recipe_says_otherwise():
    """With room for two tokens, sums of two digits are there and have not ended."""
    common = {"warm_start": {"steps": 60, "batch_size": 32}, "rollouts": {"max_new_tokens": 2}}
    strict, lenient = (
        learner(recipe("grpo", **common, reward={"accept_truncated": accept}))
        for accept in (False, True)
    )
    paid, told = (collect(made, Draws(made.recipe), ALONE) for made in (strict, lenient))
    assert torch.equal(paid.rollout.tokens, told.rollout.tokens)
    cut = paid.rollout.truncated
    assert told.correct[cut].sum() > 0
    assert paid.correct[cut].sum() == 0
    assert torch.equal(paid.correct[~cut], told.correct[~cut])
    assert paid.correct[~cut].sum() > 0
    assert torch.equal(paid.scores, paid.correct)


@pytest.mark.parametrize(("prompts", "group"), [(4, 4), (3, 2)])
def test_dynamic_sampling_gives_groups_with_spread_only(prompts, group):
    """A policy that is right now and then: some groups agree, and those are replaced."""
    made = learner(
        recipe(
            "dapo",
            warm_start={"steps": 60, "batch_size": 32},
            rollouts={"prompts": prompts, "group_size": group},
        )
    )
    draws = Draws(made.recipe)
    experience = collect(made, draws, ALONE)
    assert draws.taken > 1
    groups = experience.scores.view(-1, group)
    assert len(groups) == prompts
    assert all(len(set(row)) > 1 for row in groups.tolist())
    assert experience.sampled.responses == draws.taken * prompts * group
    # The same draws, looked at one by one
    flat, kept, alone, tokens = 0, [], [], 0
    fixed = made.recipe.rollouts.model_copy(update={"dynamic_sampling": False})
    made.recipe = made.recipe.model_copy(update={"rollouts": fixed})
    again = Draws(made.recipe)
    while again.taken < draws.taken:
        batch = collect(made, again, ALONE)
        alone.append(diagnostics.of_experience(batch))
        tokens += int(batch.rollout.mask.sum())
        scores = batch.scores.view(-1, group)
        spread = [len(set(row)) > 1 for row in scores.tolist()]
        flat += spread.count(False)
        kept += [row for row, yes in zip(scores.tolist(), spread, strict=True) if yes]
    assert experience.sampled.no_spread == pytest.approx(flat / (draws.taken * prompts))
    assert groups.tolist() == kept[:prompts]
    # What is told of the step is of all these draws: the prompts that were kept say little
    told = diagnostics.of_experience(experience)
    for name in ("accuracy", "reward", "no_spread"):
        assert told[name] == pytest.approx(sum(one[name] for one in alone) / len(alone))
    assert told["accuracy"] != pytest.approx(experience.correct.mean().item(), abs=0.02)
    clock = Clock()
    clock.seconds = dict.fromkeys(("sample", "consult", "learn"), 2.0)
    costs = loop.costs(clock, experience)
    assert (costs["tokens"], costs["tokens_per_second"]) == (tokens, tokens / 6)
    assert costs["responses"] == len(alone) * prompts * group


def test_dynamic_sampling_gives_up_after_some_rounds():
    """A policy that is never right has no group with spread; the step is made all the same."""
    made = learner(recipe("dapo", task={"digits": 9}))
    draws = Draws(made.recipe)
    experience = collect(made, draws, ALONE)
    assert draws.taken >= experiences.ROUNDS
    assert len(experience.scores) == 24
    assert experience.sampled.responses == 24 * draws.taken
    assert experience.sampled.no_spread == 1.0
    assert loop.one_step(made, loop.begin(made.recipe), ALONE)["grad_norm"] == 0.0


def test_dynamic_sampling_makes_do_with_the_groups_it_has(monkeypatch):
    """One group with spread in all rounds: the batch is that group."""
    made = learner(recipe("dapo", task={"digits": 9}))
    whole = experiences._sample_and_score

    def one_in_all(learner, number, problems, processes):
        batch = whole(learner, number, problems, processes)
        batch.scores[9] += number == 5  # a member of the third group
        return batch

    monkeypatch.setattr(experiences, "_sample_and_score", one_in_all)
    experience = collect(made, Draws(made.recipe), ALONE)
    assert experience.scores.tolist() == [0.0, 1.0, 0.0, 0.0]
    assert experience.rollout.tokens.shape[0] == 4
    assert experience.sampled.responses == 24 * experiences.ROUNDS
    assert experience.sampled.no_spread == pytest.approx(1 - 1 / 6 / experiences.ROUNDS)


def test_the_share_without_spread_is_right_in_the_batch_of_last_resort(monkeypatch):
    made = learner(recipe("dapo", task={"digits": 9}))
    whole = experiences._sample_and_score

    def late(learner, number, problems, processes):
        batch = whole(learner, number, problems, processes)
        batch.scores[::4] += number >= experiences.ROUNDS
        return batch

    monkeypatch.setattr(experiences, "_sample_and_score", late)
    experience = collect(made, Draws(made.recipe), ALONE)
    rounds = experience.sampled.responses // 24
    spread = (experience.scores.view(-1, 4).amax(1) > experience.scores.view(-1, 4).amin(1)).sum()
    assert experience.sampled.no_spread == pytest.approx(1 - spread.item() / 6 / rounds)


@pytest.mark.parametrize("at_once", [1, 4])
def test_asking_reference_and_critic_in_chunks_changes_nothing(at_once):
    made = learner(recipe("ppo", warm_start=WARM, kl={"beta": 0.1}))
    jolt(made.reference, 0.05)
    jolt(made.critic.head, 0.3)
    experience = collect(made, Draws(made.recipe), ALONE)
    whole = add_reference_and_values(made, experience, ALONE, reference=True)
    chunks = made.recipe.rollouts.model_copy(update={"prompts_at_once": at_once})
    made.recipe = made.recipe.model_copy(update={"rollouts": chunks})
    parts = add_reference_and_values(made, experience, ALONE, reference=True)
    mask = experience.rollout.mask
    for name in ("ref_log_probs", "values"):
        one, two = getattr(whole, name), getattr(parts, name)
        assert one.shape == two.shape == mask.shape
        assert_close(one[mask], two[mask], rtol=1e-4, atol=1e-5)


def test_sampling_in_chunks_gives_groups_in_the_order_of_the_problems():
    made = learner(recipe("remax", warm_start=WARM, rollouts={"prompts_at_once": 4}))
    number, problems = Draws(made.recipe).next()
    experience = collect(made, Draws(made.recipe), ALONE)
    assert number == 0
    prompts = [
        made.tokenizer.decode(ids[mask])
        for ids, mask in zip(
            experience.rollout.prompt_ids, experience.rollout.prompt_mask, strict=True
        )
    ]
    assert prompts == [problem.prompt for problem in problems for _ in range(4)]
    texts = experience.rollout.texts(made.tokenizer)
    answers = [problem.answer for problem in problems for _ in range(4)]
    assert experience.correct.tolist() == [
        float(a == b) for a, b in zip(texts, answers, strict=True)
    ]
    greedy = experience.greedy_scores.view(-1, 4)
    assert (greedy == greedy[:, :1]).all()


# ---------------------------------------------------------------- alarms


def silence(made):
    return {name: value.clone() for name, value in weights(made).items()}


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_parameter_that_is_not_finite_is_noticed_in_the_first_step(number):
    made = learner(recipe("grpo", warm_start=WARM))
    with torch.no_grad():
        made.policy.model.layers[0].mlp.up_proj.weight[0, 0] = number
    before = silence(made)
    message = "^step 1: the policy's logits at response token 0 are not finite$"
    with pytest.raises(FloatingPointError, match=message):
        list(loop.steps(made, loop.begin(made.recipe), ALONE))
    assert_close(weights(made), before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("placement", ["reward", "advantage", "loss", "surrogate"])
def test_a_reference_that_is_nan_stops_the_step_before_anything_moves(placement):
    kl = {"beta": 0.1, "placement": placement}
    made = learner(recipe("grpo", warm_start=WARM, kl=kl))
    with torch.no_grad():
        made.reference.model.norm.weight[0] = math.nan
    before = silence(made)
    with pytest.raises(FloatingPointError, match=r"^step 1: the policy_loss is nan$"):
        list(loop.steps(made, loop.begin(made.recipe), ALONE))
    assert_close(weights(made), before, rtol=0, atol=0)


@pytest.mark.parametrize("shared", [True, False])
def test_a_critic_that_is_nan_stops_the_step_before_anything_moves(shared):
    made = learner(recipe("ppo", warm_start=WARM, critic={"shared": shared}))
    with torch.no_grad():
        made.critic.head.linear.weight[0, 3] = math.nan
    before = silence(made)
    with pytest.raises(FloatingPointError, match=r"step 1: the policy_loss is nan"):
        list(loop.steps(made, loop.begin(made.recipe), ALONE))
    assert_close(weights(made), before, rtol=0, atol=0, equal_nan=True)


def test_a_reward_model_that_is_nan_is_named():
    made = learner(
        recipe(
            "ppo",
            warm_start=WARM,
            reward={"source": "reward_model"},
            reward_model={"comparisons": 16, "steps": 1, "batch_size": 8},
        )
    )
    with torch.no_grad():
        made.reward_model.head.linear.bias.fill_(math.inf)
    before = silence(made)
    state = loop.begin(made.recipe)
    state.step = 1
    with pytest.raises(FloatingPointError, match="step 2: the reward model's scores are not fin"):
        list(loop.steps(made, state, ALONE))
    assert_close(weights(made), before, rtol=0, atol=0)


def poison(made, name, number):
    """The gradient of one parameter comes out broken in one place."""
    parameter = dict(made.trained())[name]

    def broken(gradient):
        gradient = gradient.clone()
        gradient.view(-1)[0] = number
        return gradient

    parameter.register_hook(broken)


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_broken_gradient_moves_nothing(number):
    made = learner(recipe("grpo", warm_start=WARM))
    poison(made, "model.norm.weight", number)
    before = silence(made)
    with pytest.raises(FloatingPointError, match=r"step 1: the gradient of .* is not finite"):
        list(loop.steps(made, loop.begin(made.recipe), ALONE))
    assert_close(weights(made), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "number",
    [
        math.inf,
        math.nan,
    ],
)
def test_the_parameter_whose_gradient_is_broken_is_named_and_no_other(number):
    made = learner(recipe("grpo", warm_start=WARM))
    poison(made, "model.norm.weight", number)
    message = r"^step 1: the gradient of model\.norm\.weight is not finite$"
    with pytest.raises(FloatingPointError, match=message):
        list(loop.steps(made, loop.begin(made.recipe), ALONE))


def test_the_loss_that_is_broken_is_named():
    update = prepared("ppo")
    update.estimate.returns[0, 0] = math.nan
    made, before = update.learner, silence(update.learner)
    with pytest.raises(FloatingPointError, match="the value_loss is nan"):
        loop.learn(update, 0)
    assert_close(weights(made), before, rtol=0, atol=0)


# ---------------------------------------------------------------- learning


def test_what_a_step_tells():
    _, history = train(
        recipe("ppo", steps=3, kl={"beta": 0.1}, evaluation={"every": 2}), progress=False
    )
    text = """step reward accuracy no_spread truncated length length_right length_wrong
        entropy kl_ref kl_old gap kl_sampler clip_low clip_high grad_norm policy_loss value_loss
        explained_variance monte_carlo_explained_variance updates beta responses tokens
        tokens_per_second seconds_sample seconds_consult seconds_learn memory_sample
        memory_consult memory_learn"""
    always = set(text.split())
    assert [row["step"] for row in history] == [1, 2, 3]
    for row in history:
        assert always == set(row) - {"held_out", "seconds_evaluate", "memory_evaluate"}
    assert ["held_out" in row for row in history] == [False, True, True]  # every second, and last


def test_the_moving_average_goes_from_step_to_step():
    made = learner(recipe("reinforce-ema", steps=3, warm_start=WARM))
    state, expected = loop.begin(made.recipe), 0.0
    for row in loop.steps(made, state, ALONE):
        expected = 0.9 * expected + 0.1 * row["reward"]
        assert state.average == pytest.approx(expected, rel=1e-5)


LEARNING = {
    "steps": 26,
    "warm_start": {"steps": 40, "batch_size": 64, "careless_steps": 15},
    "rollouts": {"prompts": 32, "group_size": 8, "max_new_tokens": 3},
    "optimiser": {"learning_rate": 4e-3},
    "evaluation": {"every": 100, "problems": 1},
}


def gain(name, **changes):
    """How much more is right in the last four steps than in the first four."""
    made = learner(recipe(name, **{**LEARNING, **changes}))
    history = loop.steps(made, loop.begin(made.recipe), ALONE)
    accuracy = torch.tensor([row["accuracy"] for row in history])
    return (accuracy[-4:].mean() - accuracy[:4].mean()).item()


# Four steps ask 128 sums. If all eight responses to a sum were alike, the standard error of their
# mean would be at most √(¼/128) = 0.044, and that of a difference 0.0625. They are not alike.
STANDARD_ERROR = 0.0625


OF_EACH_KIND = ("reinforce", "ppo", "grpo")  # no ratio, a critic, a group


@pytest.mark.slow
@pytest.mark.parametrize("name", swept(ALGORITHMS, keep=OF_EACH_KIND))
def test_every_algorithm_learns(name):
    """To add two digits, from a quarter right to more than half, in 26 steps of 256 responses."""
    assert gain(name) > 3 * STANDARD_ERROR


@pytest.mark.slow
def test_the_problems_do_not_get_easier_by_themselves():
    assert abs(gain("grpo", optimiser={"learning_rate": 1e-9})) < 2 * STANDARD_ERROR


# ---------------------------------------------------------------- rows of a reader's own


def lively(log_probs, advantages):
    """A surrogate that moves every token, whatever its advantage."""
    return -(advantages + 0.5) * log_probs


def anchored(log_probs, old_log_probs, ref_log_probs, advantages, values, mask):
    """One that looks at everything there is to look at."""
    pull = (log_probs - ref_log_probs).square() * values.square()
    return -advantages * (log_probs - old_log_probs).exp() + pull * mask


def test_published_surrogates_do_nothing_without_an_advantage_and_others_may():
    for name, row in ALGORITHMS.items():
        assert not moves_without_advantage(row, row.all_settings), name
    mine = replace(ALGORITHMS["rloo"], surrogate=lively)
    assert moves_without_advantage(mine, mine.all_settings)
    mine = replace(ALGORITHMS["ppo"], surrogate=anchored)
    assert moves_without_advantage(mine, mine.all_settings)


def test_groups_without_advantage_are_computed_where_the_surrogate_moves_them(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "lively", replace(ALGORITHMS["rloo"], surrogate=lively))
    update, groups = silent(prepared("lively")), torch.arange(6)
    expected, _ = plain_gradient(update, groups)
    backward(update, groups, first=True)
    for name, parameter in update.learner.trained():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)
    assert max(gradient.abs().max() for gradient in expected.values()) > 0


def test_a_surrogate_gets_the_reference_and_the_critic_if_it_asks(monkeypatch):
    """Without any KL penalty, the reference is looked up for the surrogate alone."""
    seen = []

    def watched(log_probs, old_log_probs, ref_log_probs, advantages, values, mask):
        seen.append((ref_log_probs.detach(), values.detach(), old_log_probs, mask))
        return anchored(log_probs, old_log_probs, ref_log_probs, advantages, values, mask)

    monkeypatch.setitem(ALGORITHMS, "watched", replace(ALGORITHMS["ppo"], surrogate=watched))
    made = learner(recipe("watched", warm_start=WARM))
    jolt(made.reference, 0.05)
    jolt(made.critic.head, 0.3)
    loop.one_step(made, loop.begin(made.recipe), ALONE)
    ref_log_probs, values, old_log_probs, mask = seen[-1]
    assert (ref_log_probs - old_log_probs)[mask].abs().max() > 1e-3
    assert values[mask].abs().max() > 1e-3


def test_a_critic_without_targets_is_named(monkeypatch):
    row = replace(ALGORITHMS["rloo"], surrogate=anchored)
    monkeypatch.setitem(ALGORITHMS, "no targets", row)
    made = learner(recipe("no targets"))
    with pytest.raises(ValueError, match=r"no targets has a critic, but .* 'leave_one_out' gives"):
        loop.one_step(made, loop.begin(made.recipe), ALONE)
