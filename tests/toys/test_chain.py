"""Values, biases and variances on the chain, against every trajectory listed in plain Python."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from nbcourse.functional.returns import env_gae, n_step_returns, token_gae
from nbcourse.toys import chain as chains
from nbcourse.toys import enumeration
from nbcourse.toys.chain import (
    Chain,
    DecisionProcess,
    gradient_estimator,
    k_step_estimator,
    lambda_estimator,
    values,
)

LAMBDAS = [0.0, 0.3, 0.95, 1.0]


def doubles(*rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def layered() -> Chain:
    """States only lead downwards, so that no episode is longer than four steps."""
    transitions = doubles(
        [0.0, 0.6, 0.4, 0.0, 0.0],
        [0.0, 0.0, 0.5, 0.3, 0.2],
        [0.0, 0.0, 0.0, 0.7, 0.3],
        [0.0, 0.0, 0.0, 0.0, 1.0],
        [torch.nan] * 5,  # terminal: not read
    )
    generator = torch.Generator().manual_seed(3)
    rewards = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    noise = torch.rand(5, 5, generator=generator, dtype=torch.float64)
    rewards[3, 0] = noise[3, 0] = torch.nan  # cannot happen: not read
    return Chain(transitions, rewards, torch.arange(5) == 4, 0.9, noise)


def looping() -> Chain:
    """Two states that lead back to each other, and an end."""
    transitions = doubles([0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.0, 0.0, 1.0])
    rewards = doubles([1.0, -2.0, 0.5], [0.3, 4.0, -1.0], [7.0, 7.0, 7.0])
    return Chain(transitions, rewards, torch.tensor([False, False, True]), 0.8)


# terminal entries are garbage: what a critic says of the dead must not matter
WRONG = {5: doubles(0.5, -1.0, 2.0, 0.25, torch.nan), 3: doubles(3.0, -1.0, torch.nan)}


def trajectories(chain: Chain, start: int, steps: int) -> Iterator[tuple[float, list, list]]:
    """Every (probability, states, rewards) of up to `steps` steps; noise is a coin ±σ."""
    P, r, v = (x.tolist() for x in (chain.transitions, chain.rewards, chain.noise))
    ends = chain.terminal.tolist()
    pending = [(1.0, [start], [])]
    while pending:
        prob, states, rewards = pending.pop()
        now = states[-1]
        if ends[now] or len(rewards) == steps:
            yield prob, states, rewards
            continue
        for to in range(len(ends)):
            if P[now][to] > 0:
                signs = [-1.0, 1.0] if v[now][to] > 0 else [0.0]
                for sign in signs:
                    reward = r[now][to] + sign * v[now][to] ** 0.5
                    chance = prob * P[now][to] / len(signs)
                    pending.append((chance, [*states, to], [*rewards, reward]))


def brute_force(chain: Chain, estimate, start: int, steps: int) -> tuple[float, float]:
    """Mean and variance of `estimate(states, rewards)` over every trajectory."""
    listed = list(trajectories(chain, start, steps))
    probs = doubles(*[prob for prob, _, _ in listed])
    assert probs.sum().item() == pytest.approx(1)
    estimates = torch.stack([estimate(states, rewards) for _, states, rewards in listed])
    return (
        enumeration.mean(probs, estimates).item(),
        enumeration.variance(probs, estimates).item(),
    )


def of_states(critic: torch.Tensor, chain: Chain, states: list[int]) -> torch.Tensor:
    return torch.where(chain.terminal, 0.0, critic)[torch.tensor(states)]


def agrees(moments, start: int, truth: torch.Tensor, by_hand: tuple[float, float]) -> None:
    assert moments.bias[start].item() == pytest.approx(by_hand[0] - truth[start].item(), abs=1e-12)
    assert moments.variance[start].item() == pytest.approx(by_hand[1], abs=1e-12)


# ---------------------------------------------------------------- values


def test_the_values_of_a_coin_by_hand():
    """Stay with ½, end with ½, each step pays 1: V = 1 + V/2 = 2; with γ = ½, V = 1 + V/4 = 4/3."""
    for gamma, expected in ((1.0, 2.0), (0.5, 4 / 3)):
        coin = Chain(doubles([0.5, 0.5], [0, 1]), torch.ones(2, 2), torch.arange(2) == 1, gamma)
        assert_close(values(coin), doubles(expected, 0.0))


def test_the_moments_of_a_coin_by_hand():
    """The return is the number of steps, geometric with p = ½: mean 2, variance (1 − p)/p² = 2.

    One step with V̂ = 3: 1 + 3 or 1, mean 2.5, so the bias is ½ and the variance (3/2)² = 2.25.
    """
    coin = Chain(doubles([0.5, 0.5], [0, 1]), torch.ones(2, 2), torch.arange(2) == 1)
    critic = doubles(3.0, 0.0)
    everything = lambda_estimator(coin, critic, lam=1.0)
    assert_close((everything.bias, everything.variance), (doubles(0.0, 0.0), doubles(2.0, 0.0)))
    one = k_step_estimator(coin, critic, k=1)
    assert_close((one.bias, one.variance), (doubles(0.5, 0.0), doubles(2.25, 0.0)))
    assert_close(one.mean_squared_error, doubles(2.5, 0.0))


def test_the_walk_is_worth_the_chance_to_leave_on_the_right():
    expected = torch.arange(7, dtype=torch.float64) / 6
    expected[-1] = 0.0  # the end itself
    assert_close(values(chains.random_walk(5)), expected)


@pytest.mark.parametrize("chain", [layered(), looping()], ids=["layered", "looping"])
def test_the_values_are_mean_returns(chain):
    """Far out the rest is γⁿ: what a sweep of 400 backups leaves is below 1e-38."""
    swept = torch.zeros(len(chain.terminal), dtype=torch.float64)
    for _ in range(400):
        swept = (chain.transitions * (chain.rewards + chain.gamma * swept)).sum(1)
    assert_close(values(chain), swept)
    assert values(chain)[chain.terminal].eq(0).all()


# ---------------------------------------------------------------- against every trajectory


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("start", [0, 1, 3])
def test_the_lambda_estimator_is_token_gae_over_all_trajectories(start, lam):
    chain, critic = layered(), WRONG[5]

    def estimate(states, rewards):
        v = of_states(critic, chain, states[:-1])[None]
        everything = torch.ones_like(v, dtype=torch.bool)
        _, targets = token_gae(doubles(rewards), v, everything, gamma=chain.gamma, lam=lam)
        return targets[0, 0]

    by_hand = brute_force(chain, estimate, start, steps=4)
    agrees(lambda_estimator(chain, critic, lam=lam), start, values(chain), by_hand)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("chain", [layered(), looping()], ids=["layered", "looping"])
def test_the_k_step_estimator_is_n_step_returns_over_all_trajectories(chain, k):
    critic = WRONG[len(chain.terminal)]

    def estimate(states, rewards):
        v = of_states(critic, chain, states)[None]
        return n_step_returns(doubles(rewards), v, n=k, gamma=chain.gamma)[0, 0]

    for start in (0, 1):
        by_hand = brute_force(chain, estimate, start, steps=k)
        agrees(k_step_estimator(chain, critic, k=k), start, values(chain), by_hand)


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("bootstrap", [True, False], ids=["truncated", "taken for terminated"])
def test_a_truncated_estimate_is_env_gae_over_all_trajectories(bootstrap, lam):
    chain, critic, steps = looping(), WRONG[3], 4

    def estimate(states, rewards):
        v = of_states(critic, chain, states)[:, None]
        terminated = torch.zeros(len(rewards), 1, dtype=torch.bool)
        truncated = terminated.clone()
        over = bool(chain.terminal[states[-1]])
        terminated[-1], truncated[-1] = over or not bootstrap, not over
        _, targets = env_gae(
            doubles(*rewards)[:, None],
            v[:-1],
            v[1:],
            terminated,
            truncated,
            gamma=chain.gamma,
            lam=lam,
        )
        return targets[0, 0]

    moments = lambda_estimator(chain, critic, lam=lam, steps=steps, bootstrap=bootstrap)
    for start in (0, 1):
        agrees(moments, start, values(chain), brute_force(chain, estimate, start, steps))


# ---------------------------------------------------------------- what the chapter claims


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("chain", [layered(), looping()], ids=["layered", "looping"])
def test_the_bias_in_closed_form(chain, lam):
    """γ(1 − λ)(1 − γλP)⁻¹ P e, summed as a series; γᵏPᵏe for k steps."""
    critic = WRONG[len(chain.terminal)]
    ahead = torch.where(chain.terminal, 0.0, critic) - values(chain)
    expected, error = torch.zeros_like(ahead), ahead
    for k in range(1, 400):
        ahead = chain.gamma * chain.transitions @ ahead
        expected += (1 - lam) * lam ** (k - 1) * ahead
        if k in (1, 3):
            assert_close(k_step_estimator(chain, critic, k=k).bias, ahead)
    assert_close(lambda_estimator(chain, critic, lam=lam).bias, expected)
    one_step = lambda_estimator(chain, critic, lam=0.0)
    assert_close(one_step.bias, chain.gamma * chain.transitions @ error)


def test_lambda_trades_bias_for_variance():
    """Monte Carlo: no bias, most variance. One step: all of the critic's, and least variance.

    So it is away from the ends. One step before them a wrong critic adds variance of its own: what
    it says jumps from V̂ to 0.
    """
    walk = chains.random_walk(7)
    critic = values(walk) + 0.1
    inner = ~walk.terminal
    moments = [lambda_estimator(walk, critic, lam=lam) for lam in (0.0, 0.5, 0.9, 1.0)]
    for less, more in pairwise(moments):
        assert (more.variance > less.variance)[2:-2].all()
        assert (more.bias[inner].abs() < less.bias[inner].abs()).all()
    assert_close(moments[-1].bias, torch.zeros(9, dtype=torch.float64))
    assert_close(moments[0].bias[2:-2], torch.full((5,), 0.1, dtype=torch.float64))
    # the walk ends on the right or not: a coin with chance V, variance V (1 − V)
    truth = values(walk)
    assert_close(moments[-1].variance, truth * (1 - truth))


def test_without_chance_a_single_step_has_no_variance_but_all_the_bias():
    """0 → 1 → end, paying 1 each, V̂(1) = 5 instead of 1: the one-step target is 1 + 5, always."""
    line = Chain(doubles([0, 1, 0], [0, 0, 1], [0, 0, 0]), torch.ones(3, 3), torch.arange(3) == 2)
    one = lambda_estimator(line, doubles(2, 5, 0), lam=0.0)
    assert_close((one.bias, one.variance), (doubles(4.0, 0, 0), doubles(0.0, 0, 0)))


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("steps", [None, 1, 6])
@pytest.mark.parametrize("chain", [layered(), looping()], ids=["layered", "looping"])
def test_with_the_exact_critic_no_lambda_has_a_bias(chain, lam, steps):
    moments = lambda_estimator(chain, values(chain), lam=lam, steps=steps)
    assert_close(moments.bias, torch.zeros_like(moments.bias), rtol=0, atol=1e-13)


def test_a_critic_saves_the_more_variance_the_better_it_is():
    """Not with λ = 1: there V̂ only adds a number, and the variance is that of the return."""
    chain = looping()
    for critic in (values(chain), WRONG[3]):
        whole = lambda_estimator(chain, critic, lam=1.0).variance
        assert_close(whole, lambda_estimator(chain, torch.zeros(3), lam=1.0).variance)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_many_steps_before_the_cut_are_as_good_as_none_cut(lam):
    chain = looping()
    cut = lambda_estimator(chain, WRONG[3], lam=lam, steps=400)
    uncut = lambda_estimator(chain, WRONG[3], lam=lam)
    assert_close((cut.bias, cut.variance), (uncut.bias, uncut.variance))


@pytest.mark.parametrize("lam", [0.6, 1.0])
def test_a_truncation_taken_for_a_termination_loses_what_was_still_to_come(lam):
    """−γ(γλ)ⁿ⁻¹PⁿV̂ more bias; with λ = 1 it is −γⁿPⁿV in all, for every critic."""
    chain, critic, n = looping(), WRONG[3], 3
    reach = torch.linalg.matrix_power(chain.transitions, n)
    wrong, right = (
        lambda_estimator(chain, critic, lam=lam, steps=n, bootstrap=b).bias for b in (False, True)
    )
    lost = chain.gamma * (chain.gamma * lam) ** (n - 1) * reach @ critic.nan_to_num()
    assert_close(wrong - right, -lost)
    if lam == 1:
        assert_close(wrong, -(chain.gamma**n) * reach @ values(chain))


# ---------------------------------------------------------------- samples


def test_samples_follow_the_chain():
    """40,000 episodes: mean and variance of the return within five standard errors."""
    chain, count = layered(), 40_000
    states, rewards, mask = chains.sample(
        chain,
        torch.zeros(count, dtype=torch.long),
        steps=4,
        generator=torch.Generator().manual_seed(0),
    )
    assert states[:, -1].eq(4).all()
    assert rewards[~mask].eq(0).all()
    assert mask.equal(states[:, :-1] != 4)
    returns = rewards @ (chain.gamma ** torch.arange(4, dtype=torch.float64))
    truth = lambda_estimator(chain, values(chain), lam=1.0).variance[0]
    assert abs(returns.mean() - values(chain)[0]) < 5 * (truth / count).sqrt()
    squares = (returns - values(chain)[0]).square()
    assert abs(squares.mean() - truth) < 5 * squares.std() / count**0.5
    step = torch.bincount(states[:, 1], minlength=5) / count
    chance = chain.transitions[0]
    assert ((step - chance).abs() <= 5 * (chance * (1 - chance) / count).sqrt()).all()


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transitions": torch.eye(2)}, r"rewards has shape \(3, 3\), expected \(2, 2\)"),
        (
            {"transitions": torch.ones(3, 2), "rewards": torch.ones(3, 2)},
            r"transitions has shape \(3, 2\), expected \(S, S\)$",
        ),
        ({"terminal": torch.zeros(3)}, "terminal has dtype torch.float32"),
        ({"terminal": torch.tensor([True])}, r"terminal has shape \(1,\), expected \(3,\)"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"transitions": torch.full((3, 3), 0.25)}, "for state 0, expected probabilities"),
        (
            {"transitions": torch.tensor([[1.5, -0.5, 0], [0, 0, 1], [0, 0, 1]])},
            "for state 0, expected probabilities",
        ),
        ({"transitions": torch.full((3, 3), torch.nan)}, "for state 0, expected probabilities"),
        ({"reward_variances": -torch.ones(3, 3)}, "reward_variances goes down to -1"),
        ({"transitions": torch.eye(3)}, "state 0 never reaches a terminal state"),
    ],
)
def test_a_chain_that_is_none_is_refused(change, message):
    fine = {
        "transitions": torch.tensor([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]]),
        "rewards": torch.ones(3, 3),
        "terminal": torch.tensor([False, False, True]),
    }
    Chain(**fine)
    with pytest.raises(ValueError, match=message):
        Chain(**{**fine, **change})


def test_other_mistakes_are_named():
    chain, critic = looping(), torch.zeros(3)
    with pytest.raises(ValueError, match=r"critic has shape \(2,\), expected \(3,\)"):
        lambda_estimator(chain, critic[:2], lam=0.5)
    with pytest.raises(ValueError, match=r"lam is 1\.1"):
        lambda_estimator(chain, critic, lam=1.1)
    with pytest.raises(ValueError, match="steps is 0"):
        lambda_estimator(chain, critic, lam=0.5, steps=0)
    with pytest.raises(ValueError, match="bootstrap is False but steps is None"):
        lambda_estimator(chain, critic, lam=0.5, bootstrap=False)
    with pytest.raises(ValueError, match="k is 0"):
        k_step_estimator(chain, critic, k=0)
    with pytest.raises(ValueError, match="size is 0"):
        chains.random_walk(0)
    generator = torch.Generator()
    with pytest.raises(ValueError, match="starts has the terminal state 2"):
        chains.sample(chain, torch.tensor([0, 2]), steps=3, generator=generator)
    with pytest.raises(ValueError, match="steps is 0"):
        chains.sample(chain, torch.tensor([0]), steps=0, generator=generator)


# ---------------------------------------------------------------- the policy gradient


def game(gamma: float = 0.9) -> DecisionProcess:
    """Three states and an end, two actions with chance behind them, at most three steps."""
    transitions = doubles(
        [[0.0, 0.7, 0.2, 0.1], [0.0, 0.0, 0.9, 0.1], [0.0, 0.0, 0.0, 1.0], [torch.nan] * 4],
        [[0.0, 0.1, 0.5, 0.4], [0.0, 0.0, 0.3, 0.7], [0.0, 0.0, 0.0, 1.0], [torch.nan] * 4],
    ).nan_to_num()
    rewards = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return DecisionProcess(transitions, rewards, torch.arange(4) == 3, gamma)


POLICY = doubles([0.3, 0.7], [0.8, 0.2], [0.4, 0.6], [torch.nan, torch.nan])


def returning() -> DecisionProcess:
    """Both states may come again, rarely: after five steps less than 1e-5 of all episodes go on."""
    transitions = doubles(
        [[0.05, 0.03, 0.92], [0.02, 0.06, 0.92], [0.0] * 3],
        [[0.01, 0.08, 0.91], [0.07, 0.01, 0.92], [0.0] * 3],
    )
    rewards = doubles([2.0, -1.0, 0.5], [1.0, 3.0, -2.0], [0.0] * 3)
    return DecisionProcess(transitions, rewards, torch.arange(3) == 2)


def episodes(process: DecisionProcess, start: int) -> Iterator[tuple[float, list, list]]:
    """Every (probability, states, actions) of up to five steps."""
    pending = [(1.0, [start], [])]
    while pending:
        prob, states, actions = pending.pop()
        now = states[-1]
        if process.terminal[now]:
            yield prob, states, actions
            continue
        for action in range(2 if len(actions) < 5 else 0):
            for to, chance in enumerate(process.transitions[action, now].tolist()):
                if chance > 0:
                    taken = prob * POLICY[now, action].item() * chance
                    pending.append((taken, [*states, to], [*actions, action]))


def gradient_of(process, states, actions, critic, lam) -> torch.Tensor:
    """Σ Â ∇ log π by autograd, the advantages by `token_gae`."""
    rewards = process.rewards[states[:-1], states[1:]][None]
    v = of_states(critic, process, states[:-1])[None]
    everything = torch.ones_like(v, dtype=torch.bool)
    found, _ = token_gae(rewards, v, everything, gamma=process.gamma, lam=lam)
    logits = POLICY[: len(process.terminal)].nan_to_num(0.5).log().requires_grad_()
    taken = logits.log_softmax(dim=1)[states[:-1], actions]
    (gradient,) = torch.autograd.grad((found[0] * taken).sum(), logits)
    return gradient


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_the_gradient_estimator_is_the_sum_over_all_episodes(gamma, lam):
    process, critic = game(gamma), doubles(0.5, -1.0, 2.0, torch.nan)
    listed = list(episodes(process, 0))
    probs = doubles(*[prob for prob, _, _ in listed])
    assert probs.sum().item() == pytest.approx(1)
    found = torch.stack([gradient_of(process, s, a, critic, lam) for _, s, a in listed])
    moments = gradient_estimator(process, POLICY, critic, start=0, lam=lam)
    assert_close(moments.gradient + moments.bias, enumeration.mean(probs, found))
    variance = enumeration.variance(probs, found).sum().item()
    assert moments.variance == pytest.approx(variance, abs=1e-12)
    assert moments.bias.abs().max() > 1e-3 or lam == 1
    expected = moments.bias.square().sum().item() + variance / 5
    assert moments.mean_squared_error(5) == pytest.approx(expected)


def test_a_state_that_comes_again_adds_to_the_same_logits():
    process, critic = returning(), doubles(0.5, -1.0, torch.nan)
    listed = list(episodes(process, 0))
    probs = doubles(*[prob for prob, _, _ in listed])
    assert 1 - probs.sum().item() < 1e-5
    found = torch.stack([gradient_of(process, s, a, critic, 0.9) for _, s, a in listed])
    moments = gradient_estimator(process, POLICY[:3], critic, start=0, lam=0.9)
    assert_close(moments.gradient + moments.bias, enumeration.mean(probs, found), atol=1e-4, rtol=0)
    variance = enumeration.variance(probs, found).sum().item()
    assert moments.variance == pytest.approx(variance, abs=2e-4)


def test_without_discount_it_estimates_the_gradient_of_the_value():
    process, logits = game(1.0), POLICY.nan_to_num(0.5).log().requires_grad_()
    (expected,) = torch.autograd.grad(values(process.under(logits.softmax(dim=1)))[0], logits)
    exact = values(process.under(POLICY))
    for critic, lam in ((exact, 0.3), (torch.zeros(4), 1.0)):
        moments = gradient_estimator(process, POLICY, critic, start=0, lam=lam)
        assert_close(moments.gradient, expected)
        assert moments.bias.abs().max() < 1e-12


def test_action_values_average_to_the_value():
    process = game()
    v = values(process.under(POLICY))
    found = (POLICY.nan_to_num() * process.action_values(v)).sum(dim=1)
    assert_close(found, v)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": POLICY[:, :1]}, r"policy has shape \(4, 1\), expected \(4, 2\)"),
        ({"critic": torch.zeros(3)}, r"critic has shape \(3,\), expected \(4,\)"),
        ({"start": 3}, "start is 3, expected a state that is not terminal"),
        ({"start": 4}, "start is 4"),
        ({"lam": 1.5}, "lam is 1.5, expected a number from 0 to 1"),
    ],
)
def test_an_estimate_of_what_is_not_there_is_refused(change, message):
    given = {"policy": POLICY, "critic": torch.zeros(4), "start": 0, "lam": 0.5, **change}
    with pytest.raises(ValueError, match=message):
        gradient_estimator(game(), **given)


def test_an_episode_without_an_end_has_no_gradient():
    forever = DecisionProcess(torch.eye(2)[None], torch.ones(2, 2), torch.zeros(2) > 1, 0.5)
    with pytest.raises(ValueError, match="state 0 never reaches a terminal state"):
        gradient_estimator(forever, torch.ones(2, 1), torch.zeros(2), start=0, lam=0.5)


def test_a_decision_process_has_square_matrices_like_its_rewards():
    with pytest.raises(
        ValueError, match=r"rewards has shape \(3, 3\), expected \(2, 2\): .* \(A, S, S\)$"
    ):
        DecisionProcess(torch.eye(2)[None], torch.ones(3, 3), torch.zeros(3) > 1)
