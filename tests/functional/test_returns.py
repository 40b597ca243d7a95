"""Returns and GAE against slow loops over the row with its masked positions cut out.

The loops below are in plain Python on lists of floats. The code under test scans in blocks, so
lengths on both sides of the block's multiples are tried.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.functional.returns import discounted_returns, env_gae, n_step_returns, token_gae
from tests.effort import case, examples

from .enumeration import Responses, gradient

# TRL 1.16 has no critic and exports neither returns nor GAE: no parity to check here.

LENGTHS = [1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300, 1000]
COEFFICIENTS = [(1.0, 1.0), (1.0, 0.95), (0.99, 0.95), (0.9, 0.0), (0.0, 0.9), (0.0, 0.0), (1, 1)]
QUICK = examples(40)


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def bools(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def holes(batch: int, length: int, seed: int) -> torch.Tensor:
    """A mask with holes inside; row 0 is full and row 1 is empty."""
    mask = random(batch, length, seed=seed) > -0.5
    mask[0], mask[1] = True, False
    return mask


def slow_returns(rewards: list[float], gamma: float) -> list[float]:
    out, following = [], 0.0
    for r in reversed(rewards):
        following = r + gamma * following
        out.insert(0, following)
    return out


def slow_gae(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    out, advantage, next_value = [], 0.0, 0.0
    for r, v in zip(reversed(rewards), reversed(values), strict=True):
        advantage = r + gamma * next_value - v + gamma * lam * advantage
        next_value = v
        out.insert(0, advantage)
    return out


def by_row(slow, mask: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
    """Apply a slow loop to each row without its masked positions; 0 there."""
    out = torch.zeros(mask.shape, dtype=torch.float64)
    for i, kept in enumerate(mask):
        out[i, kept] = doubles(slow(*(x[i, kept].tolist() for x in tensors)))
    return out


@pytest.mark.parametrize("length", [5, 40])
def test_autocast_does_not_round_targets(length):
    """A reader's loop may keep one autocast around the whole step."""
    rewards, values = (random(3, length, seed=s).float() for s in (1, 2))
    mask, following = torch.ones(3, length, dtype=torch.bool), random(3, length + 1, seed=3).float()

    def targets():
        found = [discounted_returns(rewards, gamma=0.9), *token_gae(rewards, values, mask)]
        found.append(n_step_returns(rewards, following, n=3, gamma=0.9))
        return [*found, *env_gae(rewards, values, values, ~mask, ~mask, gamma=0.9, lam=0.9)]

    plain = targets()
    with torch.autocast("cpu", torch.bfloat16):
        found = targets()
    for one, other in zip(found, plain, strict=True):
        assert one.dtype == torch.float32
        assert one.equal(other)


class TestDiscountedReturns:
    @pytest.mark.parametrize("length", [1, 3, 30])
    def test_a_batch_without_rows_stays_one(self, length):
        assert discounted_returns(torch.zeros(0, length)).shape == (0, length)

    @pytest.mark.parametrize(
        ("gamma", "expected"),
        [
            (1.0, [6, 5, 3]),  # 1+2+3, 2+3, 3
            (0.5, [2.75, 3.5, 3]),  # 3, 2 + 3/2, 1 + 3.5/2
            (0.0, [1, 2, 3]),
        ],
    )
    def test_literal(self, gamma, expected):
        found = discounted_returns(doubles([[1, 2, 3]]), gamma=gamma)
        torch.testing.assert_close(found, doubles([expected]))

    def test_a_hole_is_skipped_without_discount(self):
        # the row without its hole is [1, 4]: 1 + 4/2 = 3, and 4
        found = discounted_returns(doubles([[1, 99, 4]]), bools([[1, 0, 1]]), gamma=0.5)
        torch.testing.assert_close(found, doubles([[3, 0, 4]]))

    def test_does_not_discount_by_default(self):
        torch.testing.assert_close(discounted_returns(doubles([[1, 1]])), doubles([[2, 1]]))

    @pytest.mark.parametrize("gamma", [1.0, 0.97, 0.5, 0.0, 1])
    def test_equals_the_loop(self, gamma):
        for length in LENGTHS:
            rewards, mask = random(4, length, seed=length), holes(4, length, seed=length + 1)
            expected = by_row(lambda r: slow_returns(r, gamma), mask, rewards)
            whole = by_row(lambda r: slow_returns(r, gamma), torch.ones_like(mask), rewards)
            with case(length):
                found = discounted_returns(rewards, mask, gamma=gamma)
                torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
                found = discounted_returns(rewards, gamma=gamma)
                torch.testing.assert_close(found, whole, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan])
    def test_refuses_a_discount_outside_zero_to_one(self, gamma):
        with pytest.raises(ValueError, match="gamma"):
            discounted_returns(torch.zeros(1, 2), gamma=gamma)


class TestNStepReturns:
    rewards = doubles([[1, 2, 3]])
    values = doubles([[10, 20, 30, 40]])

    @pytest.mark.parametrize(
        ("n", "expected"),
        [
            (1, [1 + 10, 2 + 15, 3 + 20]),  # r + γV(next), with γ = 1/2
            (2, [1 + 1 + 7.5, 2 + 1.5 + 10, 3 + 20]),  # r + γr + γ²V; the last has one step only
            (3, [1 + 1 + 0.75 + 5, 13.5, 23]),
            (99, [7.75, 13.5, 23]),  # Monte Carlo, and the critic's word at the cut-off
        ],
    )
    def test_literal(self, n, expected):
        found = n_step_returns(self.rewards, self.values, n=n, gamma=0.5)
        torch.testing.assert_close(found, doubles([expected]))

    @pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
    @pytest.mark.parametrize(
        ("length", "n"),
        [(20, n) for n in (1, 2, 7, 19, 20, 21, 100)] + [(200, n) for n in (64, 65, 99, 100, 200)],
    )
    def test_equals_the_definition(self, length, n, gamma):
        rewards, values = random(3, length, seed=1), random(3, length + 1, seed=2)
        expected = torch.zeros_like(rewards)
        for b, (r, v) in enumerate(zip(rewards.tolist(), values.tolist(), strict=True)):
            for t in range(length):
                end = min(t + n, length)
                paid = sum(gamma ** (k - t) * r[k] for k in range(t, end))
                expected[b, t] = paid + gamma ** (end - t) * v[end]
        found = n_step_returns(rewards, values, n=n, gamma=gamma)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    def test_does_not_discount_by_default(self):
        found = n_step_returns(self.rewards, self.values, n=3)
        torch.testing.assert_close(found, doubles([[46, 45, 43]]))

    def test_all_steps_and_no_value_at_the_end_is_the_discounted_return(self):
        rewards = random(2, 40, seed=3)
        values = torch.cat([random(2, 40, seed=4), torch.zeros(2, 1, dtype=torch.float64)], dim=1)
        found = n_step_returns(rewards, values, n=40, gamma=0.9)
        expected = by_row(
            lambda r: slow_returns(r, 0.9), torch.ones_like(rewards, dtype=torch.bool), rewards
        )
        torch.testing.assert_close(found, expected)

    @pytest.mark.parametrize("n", [0, -1])
    def test_refuses_fewer_than_one_step(self, n):
        with pytest.raises(ValueError, match=f"n is {n}, expected a number of at least 1"):
            n_step_returns(self.rewards, self.values, n=n)

    @pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan])
    def test_refuses_a_discount_outside_zero_to_one(self, gamma):
        with pytest.raises(ValueError, match="gamma"):
            n_step_returns(self.rewards, self.values, n=1, gamma=gamma)

    def test_wants_one_value_more_than_rewards(self):
        with pytest.raises(ValueError, match=r"values has shape \(1, 3\), expected \(1, 4\)"):
            n_step_returns(self.rewards, self.values[:, :3], n=1)


class TestTokenGae:
    @pytest.mark.parametrize(
        ("lam", "expected"),
        [
            # δ = (0 + .2 − .1, 0 + .3 − .2, 1 − .3) = (.1, .1, .7), γ = 1
            # λ = .95: .7, then .1 + .95·.7 = .765, then .1 + .95·.765 = .82675
            (0.95, [0.82675, 0.765, 0.7]),
            (0.0, [0.1, 0.1, 0.7]),  # the residuals themselves
            (1.0, [0.9, 0.8, 0.7]),  # return 1 minus V
        ],
    )
    def test_literal(self, lam, expected):
        values = doubles([[0.1, 0.2, 0.3]])
        mask = torch.ones_like(values, dtype=torch.bool)
        found = token_gae(doubles([[0, 0, 1]]), values, mask, gamma=1.0, lam=lam)
        torch.testing.assert_close(found, (doubles([expected]), doubles([expected]) + values))

    def test_defaults_to_no_discount_and_lambda_095(self):
        values = doubles([[0.1, 0.2, 0.3]])
        mask = torch.ones_like(values, dtype=torch.bool)
        advantages, _ = token_gae(doubles([[0, 0, 1]]), values, mask)
        torch.testing.assert_close(advantages, doubles([[0.82675, 0.765, 0.7]]))

    def test_credit_passes_over_a_tools_output(self):
        # Mask 11011 with V = .1 … .5 and reward 1 at the end. Without the hole V = .1 .2 .4 .5:
        # δ = (.1, .2, .1, .5); backwards with λ = .95 .5, .575, .74625, .8089375
        values, mask = doubles([[0.1, 0.2, 0.3, 0.4, 0.5]]), bools([[1, 1, 0, 1, 1]])
        rewards = doubles([[0, 0, 7, 0, 1]])  # a reward on a masked position is dropped
        advantages, returns = token_gae(rewards, values, mask)
        expected = doubles([[0.8089375, 0.74625, 0, 0.575, 0.5]])
        torch.testing.assert_close(advantages, expected)
        torch.testing.assert_close(returns, torch.where(mask, expected + values, 0.0))

    @pytest.mark.parametrize(("gamma", "lam"), COEFFICIENTS)
    def test_equals_the_loop_on_the_compressed_row(self, gamma, lam):
        for length in LENGTHS:
            rewards, values = random(5, length, seed=length), random(5, length, seed=length + 1)
            mask = holes(5, length, seed=length + 2)
            expected = by_row(lambda r, v: slow_gae(r, v, gamma, lam), mask, rewards, values)
            targets = torch.where(mask, expected + values, 0.0)
            with case(length):
                advantages, returns = token_gae(rewards, values, mask, gamma=gamma, lam=lam)
                torch.testing.assert_close(advantages, expected, rtol=1e-11, atol=1e-11)
                torch.testing.assert_close(returns, targets, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("gamma", [1.0, 0.9])
    def test_lambda_one_is_the_return_minus_the_value(self, gamma):
        rewards, values, mask = random(3, 50, seed=1), random(3, 50, seed=2), holes(3, 50, seed=3)
        advantages, returns = token_gae(rewards, values, mask, gamma=gamma, lam=1.0)
        to_go = by_row(lambda r: slow_returns(r, gamma), mask, rewards)
        torch.testing.assert_close(advantages, torch.where(mask, to_go - values, 0.0))
        torch.testing.assert_close(returns, to_go)

    @pytest.mark.parametrize("lam", [0.3, 0.95])
    def test_is_the_lambda_mixture_of_n_step_advantages(self, lam):
        # A_t = (1−λ) Σ_{n=1}^{T−t−1} λ^{n−1} A⁽ⁿ⁾ + λ^{T−t−1} A⁽ᵀ⁻ᵗ⁾, with V = 0 at the end
        length, gamma = 12, 0.9
        rewards, values = random(2, length, seed=5), random(2, length, seed=6)
        ended = torch.cat([values, torch.zeros(2, 1, dtype=torch.float64)], dim=1)
        views = [
            n_step_returns(rewards, ended, n=n, gamma=gamma) - values for n in range(1, length + 1)
        ]
        expected = torch.zeros_like(rewards)
        for t in range(length):
            left = length - t
            weights = [(1 - lam) * lam ** (n - 1) for n in range(1, left)] + [lam ** (left - 1)]
            expected[:, t] = sum(w * a[:, t] for w, a in zip(weights, views, strict=False))
        advantages, _ = token_gae(
            rewards, values, torch.ones_like(rewards, dtype=torch.bool), gamma=gamma, lam=lam
        )
        torch.testing.assert_close(advantages, expected)

    @pytest.mark.parametrize("eos", [None, 0])
    def test_with_lambda_one_any_critic_leaves_the_gradient_exact(self, eos):
        # E[Σ_t A_t ∇log π_t] over every response is ∇E[R], however wrong V is
        world = Responses(eos)
        logits = world.logits(seed=1)
        rewards = random(len(world.prefixes), 3, seed=2)[world.state, world.action] * world.mask
        values = random(len(world.prefixes), seed=3)[world.state]  # one value for each state
        truth = gradient((world.probs(logits) * rewards.sum(dim=1)).sum(), logits)
        advantages, _ = token_gae(rewards, values, world.mask, gamma=1.0, lam=1.0)
        found = world.expected_gradient(
            lambda i: (advantages[i] * world.log_probs(logits)[i]).sum(), logits, logits
        )
        torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (1.0, 0.95), (0.99, 0.95), (0.999, 1)])
    @pytest.mark.parametrize("length", [64, 1000])
    def test_float32_is_as_accurate_as_the_loop_in_float32(self, length, gamma, lam):
        rewards, values = (random(64, length, seed=s).float() for s in (1, 2))
        mask = holes(64, length, seed=3)
        mask[1] = True
        exact = by_row(lambda r, v: slow_gae(r, v, gamma, lam), mask, rewards, values)
        loop = torch.zeros_like(rewards)
        following, next_value = torch.zeros(64), torch.zeros(64)
        for t in reversed(range(length)):
            m = mask[:, t]
            delta = rewards[:, t] + gamma * next_value - values[:, t]
            following = torch.where(m, delta + gamma * lam * following, following)
            next_value = torch.where(m, values[:, t], next_value)
            loop[:, t] = torch.where(m, following, 0.0)
        found, _ = token_gae(rewards, values, mask, gamma=gamma, lam=lam)
        ours, theirs = ((x.double() - exact).square().mean().sqrt() for x in (found, loop))
        assert found.dtype == torch.float32
        assert ours <= 1.25 * theirs

    @pytest.mark.parametrize("option", ["gamma", "lam"])
    @pytest.mark.parametrize("value", [-0.01, 1.01, math.nan])
    def test_refuses_coefficients_outside_zero_to_one(self, option, value):
        zeros = torch.zeros(1, 2)
        with pytest.raises(ValueError, match=option):
            token_gae(zeros, zeros, zeros == 0, **{option: value})

    @given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 2**31))
    @QUICK
    def test_padding_and_the_order_of_rows_do_not_matter(self, length, padding, seed):
        rewards, values = random(4, length, seed=seed), random(4, length, seed=seed + 1)
        mask = holes(4, length, seed=seed + 2)
        order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))

        def longer(x, fill):
            return torch.cat([x, torch.full((4, padding), fill, dtype=x.dtype)], dim=1)[order]

        narrow = token_gae(rewards, values, mask, gamma=0.9, lam=0.9)
        wide = token_gae(
            longer(rewards, math.nan),
            longer(values, math.inf),
            longer(mask, False),
            gamma=0.9,
            lam=0.9,
        )
        for before, after in zip(narrow, wide, strict=True):
            torch.testing.assert_close(after, longer(before, 0.0))


class TestEnvGae:
    """(T, N): time goes down, environments go across."""

    @staticmethod
    def column(*entries: float) -> torch.Tensor:
        return doubles(entries)[:, None]

    @pytest.mark.parametrize(
        ("terminated", "truncated", "expected"),
        [
            # r = (.5, 1), V = (.2, .3), V(s_T) = .7, γ = 1, λ = .9. δ₀ = .5 + .3 − .2 = .6.
            # Cut by the clock, or by the end of the rollout: δ₁ = 1 + .7 − .3 = 1.4, A₀ = .6 + 1.26
            (False, True, [1.86, 1.4]),
            (False, False, [1.86, 1.4]),
            # Over: δ₁ = 1 − .3 = .7, A₀ = .6 + .63. Both at once is over.
            (True, False, [1.23, 0.7]),
            (True, True, [1.23, 0.7]),
        ],
    )
    def test_literal_at_the_last_step(self, terminated, truncated, expected):
        advantages, returns = env_gae(
            self.column(0.5, 1.0),
            self.column(0.2, 0.3),
            self.column(0.3, 0.7),
            bools([[False], [terminated]]),
            bools([[False], [truncated]]),
            gamma=1.0,
            lam=0.9,
        )
        torch.testing.assert_close(advantages, self.column(*expected))
        torch.testing.assert_close(returns, self.column(*expected) + self.column(0.2, 0.3))

    @pytest.mark.parametrize(
        ("terminated", "truncated", "first"),
        [
            # Row 1 belongs to the next episode. Its V is .3; the final observation of the first
            # episode had value .9. γ = .5
            (False, True, 1 + 0.5 * 0.9 - 0.2),  # bootstrap from the final observation, then stop
            (True, False, 1 - 0.2),  # neither bootstrap nor recursion
            (True, True, 1 - 0.2),
        ],
    )
    def test_nothing_reaches_into_the_next_episode(self, terminated, truncated, first):
        advantages, _ = env_gae(
            self.column(1.0, 100.0),
            self.column(0.2, 0.3),
            self.column(0.9, 50.0),
            bools([[terminated], [False]]),
            bools([[truncated], [False]]),
            gamma=0.5,
            lam=1.0,
        )
        torch.testing.assert_close(advantages, self.column(first, 100 + 25 - 0.3))

    @pytest.mark.parametrize("garbage", [math.nan, math.inf])
    @pytest.mark.parametrize("over", [True, False], ids=["terminated", "truncated"])
    def test_a_broken_episode_leaves_the_one_before_alone(self, over, garbage):
        # zero times infinity is not zero: the recursion has to stop, not to be multiplied away
        advantages, _ = env_gae(
            self.column(1.0, garbage),
            self.column(0.2, 0.3),
            self.column(0.9, 50.0),
            bools([[over], [False]]),
            bools([[not over], [False]]),
            gamma=0.5,
            lam=1.0,
        )
        assert advantages[0, 0].item() == pytest.approx(0.8 if over else 1.25)

    @pytest.mark.parametrize("steps", [2, 16, 17, 96])
    def test_a_short_table_is_the_plain_loop_to_the_last_bit(self, steps):
        """Chapter 4 finds the package's agents equal to its own, bit for bit."""
        tables = [random(steps, 8, seed=s).float() for s in (1, 2, 3)]
        flags = [random(steps, 8, seed=s) > 1.5 for s in (4, 5)]
        rewards, values, next_values = tables
        delta = rewards + 0.99 * torch.where(flags[0], 0.0, next_values) - values
        expected, following = torch.empty_like(delta), torch.zeros(8)
        for t in reversed(range(steps)):
            ended = flags[0][t] | flags[1][t]
            following = delta[t] + 0.99 * 0.95 * torch.where(ended, 0.0, following)
            expected[t] = following
        found, _ = env_gae(*tables, *flags, gamma=0.99, lam=0.95)
        assert torch.equal(found, expected)

    @pytest.mark.parametrize("garbage", [math.nan, math.inf])
    def test_in_a_long_table_what_is_broken_shows_in_its_own_episode_alone(self, garbage):
        shape, broken = (300, 2), (100, 1)
        rewards, values, next_values = (random(*shape, seed=s) for s in (1, 2, 3))
        over = torch.zeros(shape, dtype=torch.bool)
        over[[39, 150], 1] = True  # so rows 40 to 150 of column 1 are the episode
        given = (values, next_values, over, ~over & False)
        clean, _ = env_gae(rewards, *given, gamma=0.9, lam=0.9)
        rewards[broken] = garbage
        found, _ = env_gae(rewards, *given, gamma=0.9, lam=0.9)
        reached = torch.zeros(shape, dtype=torch.bool)
        reached[40:101, 1] = True  # back to the start of the episode, and not beyond
        assert torch.equal(found.isnan(), reached)
        assert torch.equal(found[~reached], clean[~reached])

    @pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e30])
    def test_the_value_after_a_terminal_state_is_not_read(self, garbage):
        advantages, returns = env_gae(
            self.column(1.0),
            self.column(0.2),
            self.column(garbage),
            bools([[True]]),
            bools([[False]]),
            gamma=0.9,
            lam=0.9,
        )
        torch.testing.assert_close(advantages, self.column(0.8))
        torch.testing.assert_close(returns, self.column(1.0))

    @pytest.mark.parametrize(("gamma", "lam"), COEFFICIENTS)
    @pytest.mark.parametrize("steps", [1, 2, 17, 300, 1000])
    def test_equals_the_sum_over_each_episode(self, steps, gamma, lam):
        # A_t = Σ_l (γλ)^l δ_{t+l}, up to and including the step that ends the episode
        rewards, values, next_values = (random(steps, 3, seed=s) for s in (1, 2, 3))
        terminated, truncated = random(steps, 3, seed=4) > 1.5, random(steps, 3, seed=5) > 1.5
        if steps > 2:
            terminated[2, 0] = truncated[2, 0] = True
        expected = torch.zeros_like(rewards)
        for n in range(3):
            r, v, following = (x[:, n].tolist() for x in (rewards, values, next_values))
            final, over = terminated[:, n].tolist(), (terminated | truncated)[:, n].tolist()
            ends = [t for t in range(steps) if over[t]]
            begin = 0
            for end in sorted({*ends, steps - 1}):
                deltas = [
                    r[t] + (0.0 if final[t] else gamma * following[t]) - v[t]
                    for t in range(begin, end + 1)
                ]
                for t in range(begin, end + 1):
                    later = deltas[t - begin :]
                    expected[t, n] = sum((gamma * lam) ** k * d for k, d in enumerate(later))
                begin = end + 1
        advantages, returns = env_gae(
            rewards, values, next_values, terminated, truncated, gamma=gamma, lam=lam
        )
        torch.testing.assert_close(advantages, expected, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(returns, expected + values, rtol=1e-11, atol=1e-11)

    def test_agrees_with_token_gae_on_one_terminated_episode(self):
        rewards, values = random(1, 50, seed=1), random(1, 50, seed=2)
        mask = torch.ones_like(rewards, dtype=torch.bool)
        next_values = torch.cat([values[:, 1:], doubles([[123.0]])], dim=1)
        terminated = torch.zeros_like(mask)
        terminated[0, -1] = True
        timewise = [x.T for x in (rewards, values, next_values, terminated, ~mask)]
        found = env_gae(*timewise, gamma=0.99, lam=0.9)
        expected = token_gae(rewards, values, mask, gamma=0.99, lam=0.9)
        torch.testing.assert_close([x.T for x in found], list(expected))

    def test_is_the_lambda_mixture_of_n_step_advantages_when_cut_off(self):
        # the same forward view as for tokens, with the critic's word for the state after the end
        length, gamma, lam = 6, 0.9, 0.7
        rewards, values = random(1, length, seed=5), random(1, length + 1, seed=6)
        flags = torch.zeros(length, 1, dtype=torch.bool)
        found, _ = env_gae(
            rewards.T, values[:, :-1].T, values[:, 1:].T, flags, flags, gamma=gamma, lam=lam
        )
        for t in range(length):
            left = length - t
            weights = [(1 - lam) * lam ** (n - 1) for n in range(1, left)] + [lam ** (left - 1)]
            views = (n_step_returns(rewards, values, n=n, gamma=gamma) for n in range(1, left + 1))
            mixed = sum(w * g[0, t] for w, g in zip(weights, views, strict=True)) - values[0, t]
            torch.testing.assert_close(found[t, 0], mixed)

    @pytest.mark.parametrize("option", ["gamma", "lam"])
    @pytest.mark.parametrize("value", [-0.01, 1.01, math.nan])
    def test_refuses_coefficients_outside_zero_to_one(self, option, value):
        zeros, flags = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.bool)
        with pytest.raises(ValueError, match=option):
            env_gae(zeros, zeros, zeros, flags, flags, **{"gamma": 0.9, "lam": 0.9, option: value})
