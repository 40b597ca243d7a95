"""Each row of the table: its advantages and gradients by hand, and that it learns."""

import math
from dataclasses import replace

import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch.testing import assert_close

from nbcourse.agents import AGENTS, Agent, evaluate, train
from nbcourse.agents.loop import (
    Batch,
    critic_loss,
    estimate,
    log_prob,
    minibatch_loss,
    next_coefficient,
    update,
)
from nbcourse.agents.networks import MLPActorCritic
from nbcourse.agents.table import gae, importance_weighted, reward_to_go
from nbcourse.agents.trajectories import Simulation, collect
from nbcourse.experiments.controlled import differ
from nbcourse.functional.surrogates import policy_gradient, ppo_clip
from tests.agents.environments import Choice, Corridor, vector
from tests.effort import swept

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP]


class Known(torch.nn.Module):
    """Always right, and worth 10 in cell 0, 20 in cell 1, …: a critic whose word is easy to see."""

    def logits(self, observations):
        return torch.tensor([-100.0, 100.0]).expand(*observations.shape[:-1], 2)

    def values(self, observations):
        return 10.0 + 10.0 * observations.squeeze(-1)


def estimates(agent: Agent, *, mode, steps, length, limit) -> Batch:
    simulation = Simulation(vector(Corridor, 1, mode, length=length, limit=limit))
    simulation.restart(seed=0)
    generator = torch.Generator().manual_seed(0)
    return estimate(agent, Known(), collect(Known(), simulation, steps=steps, generator=generator))


# ---------------------------------------------------------------- credit


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_terminated_episode_is_worth_nothing_afterwards(mode):
    """γ = ½, λ = 1, rewards 1, 2, 3: 3 = 3, 2 + 3/2 = 3.5, 1 + 3.5/2 = 2.75; minus 10, 20, 30."""
    agent = AGENTS["gae"].with_settings(gamma=0.5, lam=1.0)
    batch = estimates(agent, mode=mode, steps=8, length=3, limit=100)
    assert_close(batch.targets[:3], torch.tensor([2.75, 3.5, 3.0]))
    assert_close(batch.advantages[:3], torch.tensor([2.75 - 10, 3.5 - 20, 3.0 - 30]))
    assert_close(batch.targets[3:6], batch.targets[:3])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_truncated_episode_is_worth_what_the_critic_says_of_its_final_state(mode):
    """The clock stops in cell 3, worth 40: 3 + 20 = 23, 2 + 23/2 = 13.5, 1 + 13.5/2 = 7.75.

    The next episode begins in cell 0, worth 10: to take that for the state that followed would
    give 3 + 5 = 8, and no bootstrap at all 3.
    """
    agent = AGENTS["gae"].with_settings(gamma=0.5, lam=1.0)
    batch = estimates(agent, mode=mode, steps=8, length=50, limit=3)
    assert_close(batch.targets[:3], torch.tensor([7.75, 13.5, 23.0]))
    assert_close(batch.targets[3:6], batch.targets[:3])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_trajectory_cut_within_an_episode_bootstraps_too(mode):
    """Two steps, then cell 2, worth 30: 2 + 15 = 17, 1 + 17/2 = 9.5."""
    agent = AGENTS["n-step"].with_settings(gamma=0.5)
    batch = estimates(agent, mode=mode, steps=2, length=50, limit=50)
    assert_close(batch.targets, torch.tensor([9.5, 17.0]))


def test_one_step_is_the_td_residual():
    """1 + 20/2 − 10 = 1, 2 + 30/2 − 20 = −3, 3 + 0 − 30 = −27."""
    agent = AGENTS["a2c"].with_settings(gamma=0.5)
    batch = estimates(agent, mode=AutoresetMode.SAME_STEP, steps=3, length=3, limit=50)
    assert_close(batch.advantages, torch.tensor([1.0, -3.0, -27.0]))


def test_without_a_critic_the_advantage_is_the_return_to_go():
    """2.75, 3.5, 3 as above; three steps per episode, so that each weighs 3 in the mean."""
    agent = AGENTS["vanilla"].with_settings(gamma=0.5)
    batch = estimates(agent, mode=AutoresetMode.NEXT_STEP, steps=None, length=3, limit=50)
    assert_close(batch.advantages, torch.tensor([2.75, 3.5, 3.0]))
    assert batch.weights.tolist() == [3.0, 3.0, 3.0]
    assert estimates(
        AGENTS["gae"], mode=AutoresetMode.NEXT_STEP, steps=3, length=3, limit=50
    ).weights.tolist() == [1.0, 1.0, 1.0]


# ---------------------------------------------------------------- what is minimised


def random_batch(size: int = 64, *, drift: float = 0.0) -> tuple[MLPActorCritic, Batch]:
    """A batch sampled by a policy from which the network has drifted away since."""
    generator = torch.Generator().manual_seed(5)
    network = MLPActorCritic(3, 4, hidden=8, generator=generator)
    observations = torch.randn(size, 3, generator=generator)
    actions = torch.randint(4, (size,), generator=generator)
    with torch.no_grad():
        now = network.logits(observations)
        old = now + drift * torch.randn(now.shape, generator=generator)
        values = network.values(observations)
    return network, Batch(
        observations,
        actions,
        old_logits=old,
        old_log_probs=log_prob(old, actions),
        old_values=values,
        advantages=torch.randn(size, generator=generator),
        targets=values + torch.randn(size, generator=generator),
        weights=torch.ones(size),
    )


def gradient(loss: torch.Tensor, network: MLPActorCritic) -> torch.Tensor:
    grads = torch.autograd.grad(loss, list(network.actor.parameters()))
    return torch.cat([g.flatten() for g in grads])


def test_ppos_loss_and_gradient_by_the_six_cases():
    """Each step by its own rule: min of the objectives, written with ifs in plain Python."""
    network, batch = random_batch(drift=0.5)
    ppo = replace(AGENTS["ppo"], whiten=False, entropy_coefficient=0.0, value_coefficient=0.0)
    loss, numbers = minibatch_loss(ppo, network, batch, beta=0.0)
    objective, cut, k3 = torch.tensor(0.0), 0, 0.0
    for i in range(len(batch)):
        now = network.logits(batch.observations[i]).log_softmax(0)[batch.actions[i]]
        ratio, A = (now - batch.old_log_probs[i]).exp(), batch.advantages[i].item()
        k3 += ratio.item() - 1 - math.log(ratio.item())
        if A > 0 and ratio.item() > 1.2:
            objective, cut = objective + 1.2 * A, cut + 1
        elif A < 0 and ratio.item() < 0.8:
            objective, cut = objective + 0.8 * A, cut + 1
        else:
            objective = objective + ratio * A
    assert 8 < cut < 56
    assert numbers["clip_fraction"] == pytest.approx(cut / 64)
    assert numbers["approx_kl"] == pytest.approx(k3 / 64, rel=1e-4)
    assert_close(loss, -objective / 64)
    assert_close(gradient(loss, network), gradient(-objective / 64, network))


def test_on_its_own_samples_every_surrogate_has_the_vanilla_gradient():
    """One step per batch: the ratio is 1, nothing is clipped, KL and its gradient are 0."""
    network, batch = random_batch()
    expected = None
    for name in ("vanilla", "ppo", "ppo-penalty"):
        agent = replace(AGENTS[name], whiten=False, entropy_coefficient=0.0, value_coefficient=0.0)
        loss, numbers = minibatch_loss(agent, network, batch, beta=agent.kl_coefficient)
        assert numbers["clip_fraction"] == numbers["approx_kl"] == 0
        direction = gradient(loss, network)
        expected = direction if expected is None else expected
        assert_close(direction, expected, rtol=1e-4, atol=1e-7)
    assert expected is not None
    assert expected.abs().max() > 1e-3


def test_the_entropy_is_a_bonus_and_the_kl_a_penalty_from_old_to_new():
    network, batch = random_batch(drift=1.0)
    plain = replace(AGENTS["ppo-penalty"], entropy_coefficient=0.0, value_coefficient=0.0)
    loss, numbers = minibatch_loss(plain, network, batch, beta=0.0)
    old = batch.old_logits.softmax(-1)
    new = network.logits(batch.observations).softmax(-1)
    with_kl, _ = minibatch_loss(plain, network, batch, beta=2.0)
    divergence = (old * (old.log() - new.log())).sum(-1).mean()
    assert_close(with_kl - loss, 2.0 * divergence)
    assert_close(
        gradient(with_kl, network), gradient(loss, network) + 2.0 * gradient(divergence, network)
    )
    bonus = replace(plain, entropy_coefficient=0.5)
    entropy = -(new * new.log()).sum(-1).mean()
    assert_close(minibatch_loss(bonus, network, batch, beta=0.0)[0] - loss, -0.5 * entropy)
    assert numbers["entropy"] == pytest.approx(entropy.item())


def test_the_critic_is_fitted_to_its_targets_and_clipped_only_where_asked():
    """Far from its old word, a clipped prediction has no gradient: half the squared error, × ½."""
    network, batch = random_batch()
    agent = replace(AGENTS["gae"], value_coefficient=0.5)
    _, numbers = minibatch_loss(agent, network, batch, beta=0.0)
    error = (network.values(batch.observations) - batch.targets).square()
    assert numbers["value_loss"] == pytest.approx(0.5 * error.mean().item(), rel=1e-5)
    moved = replace(batch, old_values=batch.old_values - 3.0, targets=batch.old_values + 1.0)
    _, clipped = minibatch_loss(replace(agent, value_clip=0.2), network, moved, beta=0.0)
    assert clipped["value_loss"] == pytest.approx(0.5 * 3.8**2, rel=1e-4)  # −3 + 0.2 against +1


def test_whitening_happens_within_the_minibatch_and_only_where_asked():
    network, batch = random_batch()
    shifted = replace(batch, advantages=3.0 * batch.advantages + 7.0)
    for whiten in (True, False):
        agent = replace(AGENTS["ppo"], whiten=whiten, value_coefficient=0.0)
        losses = [minibatch_loss(agent, network, b, beta=0.0)[0] for b in (batch, shifted)]
        assert torch.allclose(*losses, atol=1e-5) is whiten


def test_the_policy_cannot_lower_its_loss_by_longer_episodes():
    """The mean over steps becomes the sum over an episode: each step weighs steps / episodes."""
    network, batch = random_batch()
    agent = AGENTS["vanilla"]
    once, _ = minibatch_loss(agent, network, batch, beta=0.0)
    tripled, _ = minibatch_loss(
        agent, network, replace(batch, weights=torch.full((64,), 3.0)), beta=0.0
    )
    assert_close(tripled, 3 * once)


# ---------------------------------------------------------------- updates


def run_update(agent: Agent, size: int = 64):
    network, batch = random_batch(size)
    optimiser = torch.optim.SGD(network.parameters(), lr=agent.learning_rate)
    generator = torch.Generator().manual_seed(0)
    return update(agent, network, optimiser, batch, beta=0.0, generator=generator)


def test_the_kl_stops_the_passes():
    agent = replace(AGENTS["ppo"], epochs=10, minibatches=4, learning_rate=1.0)
    assert run_update(agent)["minibatches"] == 40
    stopped = run_update(replace(agent, kl_stop=1e-6))
    assert stopped["minibatches"] == 4
    assert stopped["kl"] > 1e-6


def test_every_step_is_used_once_in_a_pass(monkeypatch):
    seen: list[torch.Tensor] = []
    plain = Batch.__getitem__
    monkeypatch.setattr(Batch, "__getitem__", lambda b, rows: seen.append(rows) or plain(b, rows))
    run_update(replace(AGENTS["ppo"], epochs=2, minibatches=3), size=64)
    assert [len(rows) for rows in seen] == [22, 21, 21] * 2
    for rows in (torch.cat(seen[:3]), torch.cat(seen[3:])):
        assert rows.sort().values.tolist() == list(range(64))
    assert not torch.cat(seen[:3]).equal(torch.cat(seen[3:]))


def test_further_steps_of_the_critic_leave_the_actor_alone():
    """They bring the critic nearer to its targets; the actor moves with none of them."""
    actors, losses = [], []
    for critic_steps in (0, 40):
        agent = replace(AGENTS["gae"], critic_steps=critic_steps, learning_rate=1e-2)
        network, batch = random_batch()
        optimiser = torch.optim.Adam(network.parameters(), lr=agent.learning_rate)
        generator = torch.Generator().manual_seed(0)
        update(agent, network, optimiser, batch, beta=0.0, generator=generator)
        actors.append(torch.cat([p.flatten() for p in network.actor.parameters()]))
        losses.append(critic_loss(agent, network, batch).item())
    assert actors[0].equal(actors[1])
    assert losses[1] < 0.9 * losses[0]
    with pytest.raises(ValueError, match="critic_steps is 3, expected at least 0, and 0 without"):
        replace(AGENTS["vanilla"], critic_steps=3)


def test_the_penalty_doubles_and_halves():
    """Target 0.03: below 0.02 too timid, above 0.045 too bold."""
    for divergence, expected in ((0.01, 0.5), (0.03, 1.0), (0.05, 2.0)):
        assert next_coefficient(1.0, divergence, target=0.03) == expected


# ---------------------------------------------------------------- the table


def one_field_steps() -> list[tuple[str, Agent, Agent]]:
    """From row to row of the table, with what PPO's three changes pass through."""
    gae, ppo, penalty = (AGENTS[name] for name in ("gae", "ppo", "ppo-penalty"))
    whitened = replace(gae, whiten=True)
    clipped = replace(whitened, surrogate=ppo_clip)
    free = replace(ppo, surrogate=importance_weighted)
    fixed = replace(free, kl_coefficient=1.0)
    return [
        ("advantage", AGENTS["vanilla"], AGENTS["baseline"]),
        ("steps", AGENTS["baseline"], AGENTS["n-step"]),
        ("settings.lam", AGENTS["n-step"], gae),
        ("settings.lam", gae, AGENTS["a2c"]),
        ("whiten", gae, whitened),
        ("surrogate", whitened, clipped),
        ("epochs", clipped, ppo),
        ("surrogate", ppo, free),
        ("kl_coefficient", free, fixed),
        ("kl_target", fixed, penalty),
    ]


@pytest.mark.parametrize(("field", "before", "after"), one_field_steps())
def test_each_row_is_another_with_one_field_changed(field, before, after):
    assert differ({"before": before, "after": after}).field == field


def test_the_steps_reach_every_row():
    reached = {id(agent) for _, *pair in one_field_steps() for agent in pair}
    assert {id(agent) for agent in AGENTS.values()} <= reached


# ---------------------------------------------------------------- learning

LEARNING = ("vanilla", "gae", "ppo")  # whole episodes, some steps with a critic, several updates


@pytest.mark.parametrize("name", swept(AGENTS, keep=LEARNING))
def test_every_row_learns_to_look(name):
    """Chance is 2.5 of 5; a policy that does not look stays there whatever it does."""
    agent = replace(AGENTS[name].with_settings(gamma=0.5), learning_rate=1e-2)
    if agent.steps is not None:
        agent = replace(agent, steps=min(agent.steps, 16))
    envs = vector(Choice, 8)
    before = train(replace(agent, learning_rate=0.0), envs, steps=1, seed=0, progress=False).network
    assert sum(evaluate(before, envs, episodes=200, seed=1)) / 200 < 3.5
    trained = train(agent, envs, steps=4000, seed=0, progress=False)
    assert sum(evaluate(trained.network, envs, episodes=200, seed=1)) / 200 > 4.5
    assert trained.curve[-1]["step"] >= 4000
    assert len(trained.returns) == trained.curve[-1]["episodes"]
    unexplained = [math.isnan(numbers["explained_variance"]) for numbers in trained.curve]
    assert all(unexplained) is not agent.critic


def test_a_seed_decides_everything():
    runs = [
        train(AGENTS["n-step"], vector(Choice, 4), steps=600, seed=s, progress=False)
        for s in (0, 0, 1)
    ]
    first, again, other = (
        torch.cat([p.flatten() for p in run.network.parameters()]) for run in runs
    )
    assert first.equal(again)
    assert runs[0].returns == runs[1].returns
    assert not first.equal(other)


def test_training_stops_when_it_is_good_enough():
    envs = vector(Corridor, 4, length=1, limit=9)  # one cell: every episode that ends pays ≥ 1
    trained = train(AGENTS["n-step"], envs, steps=50_000, seed=0, until=1.0, progress=False)
    assert trained.curve[-1]["episodes"] >= 100
    assert trained.curve[-1]["step"] < 2000


def test_an_evaluation_takes_one_episode_from_each_environment_in_turn():
    envs = vector(Corridor, 3, AutoresetMode.NEXT_STEP, length=3, limit=100)
    network = MLPActorCritic(1, 2, hidden=4, generator=torch.Generator().manual_seed(0))
    torch.nn.init.zeros_(network.actor[-1].weight)
    with torch.no_grad():
        network.actor[-1].bias.copy_(torch.tensor([-9.0, 9.0]))
    assert evaluate(network, envs, episodes=4, seed=0, greedy=True) == [6.0] * 6


# ---------------------------------------------------------------- what is refused


def test_rows_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="steps is 0"):
        replace(AGENTS["gae"], steps=0)
    with pytest.raises(ValueError, match="steps is 0, expected at least 1"):
        train(AGENTS["gae"], vector(Choice, 1), steps=0, seed=0)
    with pytest.raises(ValueError, match=r"lam is 1\.5, expected a number from 0 to 1"):
        AGENTS["gae"].with_settings(lam=1.5)
    with pytest.raises(ValueError, match=r"is 'clip', .* did you mean 'clip_low'"):
        AGENTS["ppo"].with_settings(clip=0.1)


def my_own(log_probs, advantages):
    return -advantages * log_probs


def with_reference(log_probs, ref_log_probs, advantages):
    return -advantages * (log_probs - ref_log_probs)


def monte_carlo(rewards, values, mask, *, gamma=0.5):
    """Returns to go with the critic as a baseline, and no bootstrap."""
    targets, _ = reward_to_go(rewards, mask, gamma=gamma)
    return targets - values, targets


@pytest.mark.parametrize("surrogate", [policy_gradient, my_own])
def test_samples_are_used_again_only_with_a_surrogate_that_needs_old_log_probs(surrogate):
    for again in ({"epochs": 2}, {"minibatches": 2}):
        with pytest.raises(ValueError, match=r"use samples of a policy .* needs 'old_log_probs'"):
            Agent(gae, surrogate, "a test", steps=5, **again)
        for ratio in (ppo_clip, importance_weighted):
            assert Agent(gae, ratio, "a test", steps=5, **again).critic


@pytest.mark.parametrize("advantage", [reward_to_go, monte_carlo])
def test_an_episode_is_cut_only_with_an_advantage_that_needs_next_values(advantage):
    with pytest.raises(ValueError, match=r"steps is 5, expected None .* need 'next_values'"):
        Agent(advantage, policy_gradient, "a test", steps=5)


def test_a_need_that_is_not_offered_is_refused_by_name():
    with pytest.raises(ValueError, match="surrogate 'with_reference' needs 'ref_log_probs'"):
        Agent(reward_to_go, with_reference, "a test")


def test_a_new_row_gets_what_it_needs_and_has_a_critic_if_it_needs_values():
    """γ = ½, rewards 1, 2, 3, values 10, 20, 30: 2.75 − 10, 3.5 − 20, 3 − 30."""
    agent = Agent(monte_carlo, my_own, "a test")
    assert agent.critic
    assert not replace(agent, advantage=reward_to_go).critic
    batch = estimates(agent, mode=AutoresetMode.SAME_STEP, steps=None, length=3, limit=50)
    assert_close(batch.advantages, torch.tensor([2.75 - 10, 3.5 - 20, 3.0 - 30]))
    trained = train(agent, vector(Choice, 2), steps=20, seed=0, progress=False)
    assert trained.curve[-1]["value_loss"] > 0


def test_the_clip_of_the_loss_and_of_its_diagnostic_is_the_rows():
    """At a drift of ½, ±0.5 clips fewer samples than ±0.1, above fewer than on both sides."""
    network, batch = random_batch(drift=0.5)
    found = []
    for settings in ({"clip_low": 0.5}, {"clip_low": 0.1, "clip_high": 0.5}, {"clip_low": 0.1}):
        agent = AGENTS["ppo"].with_settings(**settings)
        agent = replace(agent, whiten=False, value_coefficient=0.0)
        loss, numbers = minibatch_loss(agent, network, batch, beta=0.0)
        now = log_prob(network.logits(batch.observations), batch.actions)
        expected = ppo_clip(now, batch.old_log_probs, batch.advantages, **settings).mean()
        assert_close(loss, expected)
        found.append(numbers["clip_fraction"])
    assert 0 < found[0] < found[1] < found[2]
