"""Advantages against exact enumeration of a bandit, closed forms and slow loops.

The bandit has three arms and a softmax policy, so a group of G responses is one of 3^G tuples and
the expected gradient is a sum over them.
"""

import math
import statistics
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.functional.advantages import (
    group_relative,
    leave_one_out,
    mean_baseline,
    moving_average_baseline,
    process_supervision,
    variance_optimal_baseline,
)
from tests.effort import case, examples

QUICK = examples(40)
PROBS = (0.7, 0.2, 0.1)
REWARDS = (1.0, 2.0, 5.0)  # of the three arms


def doubles(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def scores(probs) -> torch.Tensor:
    """∇_θ log π(a) = e_a − π of a softmax bandit, one row for each arm."""
    return torch.eye(len(probs), dtype=torch.float64) - doubles(probs)


def true_gradient(probs, rewards) -> torch.Tensor:
    """∇ Σ_a π(a) r(a): component c is π(c) (r(c) − V)."""
    value = sum(p * r for p, r in zip(probs, rewards, strict=True))
    return doubles([p * (r - value) for p, r in zip(probs, rewards, strict=True)])


def expected_estimate(advantages_of, group_size: int, probs=PROBS, rewards=REWARDS) -> torch.Tensor:
    """E[(1/G) Σ_i A_i ∇log π(a_i)] over every group of arms."""
    g = scores(probs)
    total = torch.zeros(len(probs), dtype=torch.float64)
    for arms in product(range(len(probs)), repeat=group_size):
        weight = math.prod(probs[a] for a in arms)
        advantages = advantages_of(doubles([rewards[a] for a in arms]), group_size=group_size)
        total += weight / group_size * advantages @ g[list(arms)]
    return total


class TestBaselinesByEnumeration:
    @pytest.mark.parametrize("group_size", [2, 3, 4])
    def test_leave_one_out_is_unbiased(self, group_size):
        found = expected_estimate(leave_one_out, group_size)
        torch.testing.assert_close(found, true_gradient(PROBS, REWARDS), rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("group_size", [2, 3, 4])
    def test_the_own_mean_shrinks_the_gradient_by_g_minus_1_over_g(self, group_size):
        shrunk = true_gradient(PROBS, REWARDS) * (group_size - 1) / group_size
        for baseline in (mean_baseline, lambda r, **g: group_relative(r, scale=False, **g)):
            found = expected_estimate(baseline, group_size)
            torch.testing.assert_close(found, shrunk, rtol=1e-12, atol=1e-14)

    def test_literal_for_two_arms_and_groups_of_three(self):
        # logits (0, .3), reward 1 for the second arm: the gradient is p (1 − p), p = sigmoid(.3)
        p = 1 / (1 + math.exp(-0.3))
        bandit = {"probs": (1 - p, p), "rewards": (0.0, 1.0), "group_size": 3}
        unbiased = expected_estimate(leave_one_out, **bandit)
        own_mean = expected_estimate(mean_baseline, **bandit)
        assert unbiased[1].item() == pytest.approx(0.244458, abs=5e-7)
        assert own_mean[1].item() == pytest.approx(0.162972, abs=5e-7)  # two thirds of it

    def test_scaling_by_the_standard_deviation_changes_the_direction(self):
        scaled = expected_estimate(group_relative, 3)
        cosine = torch.cosine_similarity(scaled, true_gradient(PROBS, REWARDS), dim=0)
        assert cosine < 0.999


class TestGroupsAreContiguousAndPromptMajor:
    # two prompts with two responses each: the first prompt got (1, 0), the second (1, 1)
    rewards = doubles([1, 0, 1, 1])

    @pytest.mark.parametrize(
        ("estimator", "expected"),
        [
            (mean_baseline, [0.5, -0.5, 0, 0]),
            (leave_one_out, [1, -1, 0, 0]),  # generation-major would give (0, −1, 0, 1)
            # std of (1, 0) is √(2 · 1/4) = √½
            (group_relative, [0.5 / (math.sqrt(0.5) + 1e-4), -0.5 / (math.sqrt(0.5) + 1e-4), 0, 0]),
        ],
    )
    def test_literal(self, estimator, expected):
        torch.testing.assert_close(estimator(self.rewards, group_size=2), doubles(expected))

    @pytest.mark.parametrize("estimator", [mean_baseline, leave_one_out, group_relative])
    @given(data=st.data())
    @QUICK
    def test_shuffling_prompts_and_responses_shuffles_the_advantages(self, estimator, data):
        prompts, size = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 5))
        number = st.floats(-5, 5, allow_subnormal=False, width=16)
        flat = data.draw(st.lists(number, min_size=prompts * size, max_size=prompts * size))
        groups = doubles(flat).view(prompts, size)
        by_prompt = data.draw(st.permutations(range(prompts)))
        by_response = data.draw(st.permutations(range(size)))

        def shuffle(x):
            return x.view(prompts, size)[list(by_prompt)][:, list(by_response)].reshape(-1)

        found = estimator(shuffle(groups), group_size=size)
        expected = shuffle(estimator(groups.view(-1), group_size=size))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("estimator", [mean_baseline, leave_one_out, group_relative])
    @pytest.mark.parametrize(
        ("count", "size", "named"),
        [(4, 3, "rewards"), (0, 2, "rewards"), (4, 1, "group_size"), (4, 0, "group_size")],
    )
    def test_a_group_that_does_not_come_out_even_is_refused(self, estimator, count, size, named):
        with pytest.raises(ValueError, match=f"^{named} .*expected"):
            estimator(torch.zeros(count), group_size=size)


class TestLeaveOneOut:
    def test_literal(self):
        # the others' means are (2+6)/2 = 4, (1+6)/2 = 3.5, (1+2)/2 = 1.5
        found = leave_one_out(doubles([1, 2, 6]), group_size=3)
        torch.testing.assert_close(found, doubles([-3, -1.5, 4.5]))

    @pytest.mark.parametrize("group_size", [2, 3, 8])
    def test_equals_the_mean_of_the_others_written_out(self, group_size):
        rewards = torch.randn(
            4 * group_size, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        expected = []
        for start in range(0, len(rewards), group_size):
            group = rewards[start : start + group_size].tolist()
            for i, r in enumerate(group):
                expected.append(r - statistics.fmean(group[:i] + group[i + 1 :]))
        torch.testing.assert_close(leave_one_out(rewards, group_size=group_size), doubles(expected))


class TestGroupRelative:
    def test_literal(self):
        # mean 3; deviations −2, −1, 3; unbiased variance (4 + 1 + 9)/2 = 7
        expected = doubles([-2, -1, 3]) / (math.sqrt(7) + 1e-4)
        torch.testing.assert_close(group_relative(doubles([1, 2, 6]), group_size=3), expected)

    def test_without_scale_is_the_deviation(self):
        found = group_relative(doubles([1, 2, 6]), group_size=3, scale=False)
        torch.testing.assert_close(found, doubles([-2, -1, 3]))

    def test_eps_is_added_to_the_deviation_and_not_to_the_variance(self):
        # (0, √2·10⁻⁴) has unbiased standard deviation exactly 10⁻⁴, as large as the default eps:
        # ±10⁻⁴/√2 over 2·10⁻⁴
        tiny = doubles([0, math.sqrt(2) * 1e-4])
        found = group_relative(tiny, group_size=2)
        torch.testing.assert_close(found, doubles([-1, 1]) / (2 * math.sqrt(2)))
        found = group_relative(tiny, group_size=2, eps=3e-4)
        torch.testing.assert_close(found, doubles([-1, 1]) / (4 * math.sqrt(2)))

    @pytest.mark.parametrize("group_size", [2, 3, 5, 16])
    def test_sums_to_zero_and_squares_sum_to_g_minus_1(self, group_size):
        rewards = torch.randn(
            3 * group_size, generator=torch.Generator().manual_seed(2), dtype=torch.float64
        )
        found = group_relative(rewards, group_size=group_size, eps=0.0).view(3, group_size)
        zeros = torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(found.sum(dim=1), zeros, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.square().sum(dim=1), zeros + group_size - 1)

    @pytest.mark.parametrize(("right", "size"), [(k, g) for g in (2, 3, 4, 8) for k in range(1, g)])
    def test_binary_rewards_follow_the_closed_form(self, right, size):
        # p = k/G; deviations 1 − p and −p; variance p(1−p) G/(G−1)
        p = right / size
        shrink = (size - 1) / size
        good = math.sqrt((1 - p) / p * shrink)
        bad = -math.sqrt(p / (1 - p) * shrink)
        rewards = doubles([1.0] * right + [0.0] * (size - right))
        expected = doubles([good] * right + [bad] * (size - right))
        torch.testing.assert_close(group_relative(rewards, group_size=size, eps=0.0), expected)

    def test_no_advantage_exceeds_g_minus_1_over_root_g(self):
        # one success among G: √((1 − 1/G)/(1/G) · (G−1)/G) = (G−1)/√G
        for size in (2, 4, 9):
            one = doubles([1.0] + [0.0] * (size - 1))
            top = group_relative(one, group_size=size, eps=0.0).max().item()
            assert top == pytest.approx((size - 1) / math.sqrt(size))

    @given(
        st.lists(st.integers(-20, 20), min_size=4, max_size=4).filter(lambda r: len(set(r)) > 1),
        st.floats(0.1, 10),
        st.floats(-10, 10),
    )
    @QUICK
    def test_without_eps_only_the_pattern_matters(self, rewards, gain, shift):
        before = group_relative(doubles(rewards), group_size=4, eps=0.0)
        after = group_relative(gain * doubles(rewards) + shift, group_size=4, eps=0.0)
        torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("eps", [-1e-9, math.nan])
    def test_refuses_a_negative_eps(self, eps):
        with pytest.raises(ValueError, match="eps"):
            group_relative(torch.zeros(2), group_size=2, eps=eps)

    @pytest.mark.peer
    def test_agrees_with_trl(self, trl_utils):
        # TRL 1.16: (r − nanmean) / (nanstd + 1e-4), inside a method that cannot be called alone.
        # It exports no leave-one-out, moving average or process supervision.
        rewards = torch.rand(6, 4, generator=torch.Generator().manual_seed(3))
        std = trl_utils.nanstd(rewards, dim=1, keepdim=True)
        expected = (rewards - rewards.nanmean(dim=1, keepdim=True)) / (std + 1e-4)
        found = group_relative(rewards.view(-1), group_size=4)
        torch.testing.assert_close(found, expected.view(-1))


class TestAGroupWithoutSpread:
    """In float32 the mean of ten times 0.7 is not 0.7; an eps of 1e-8 would make that ±0.9."""

    estimators = pytest.mark.parametrize(
        "estimator",
        [
            mean_baseline,
            leave_one_out,
            lambda r, group_size: group_relative(r, group_size=group_size, scale=False),
            lambda r, group_size: group_relative(r, group_size=group_size),
            lambda r, group_size: group_relative(r, group_size=group_size, eps=1e-8),
            lambda r, group_size: group_relative(r, group_size=group_size, eps=0.0),
        ],
        ids=["mean", "leave one out", "unscaled", "eps 1e-4", "eps 1e-8", "eps 0"],
    )

    @estimators
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_gets_exactly_zero(self, estimator, dtype):
        for size, constant in product(
            (2, 3, 6, 7, 10, 12, 16), (0.7, 0.1, 1 / 3, -2.3, 1e4 + 0.1, 0.0)
        ):
            with case((size, constant)):
                rewards = torch.full((size,), constant, dtype=dtype)
                assert estimator(rewards, group_size=size).eq(0).all()

    @estimators
    def test_does_not_silence_its_neighbour(self, estimator):
        rewards = torch.tensor([0.7] * 6 + [0.7] * 5 + [0.8])
        found = estimator(rewards, group_size=6)
        assert found[:6].eq(0).all()
        assert found[6:].ne(0).all()


def slow_process_supervision(step_rewards, step_ends, lengths, group_size, eps):
    """Loops over groups, responses, tokens and steps, on lists."""
    longest = max(lengths)
    out = [[0.0] * longest for _ in lengths]
    for start in range(0, len(lengths), group_size):
        rows = range(start, start + group_size)
        steps = [
            (i, s) for i in rows for s, end in enumerate(step_ends[i]) if end >= 0
        ]  # a step that is not there ends at −1
        pool = [step_rewards[i][s] for i, s in steps]
        mean, std = statistics.fmean(pool), statistics.stdev(pool)
        for i, s in steps:
            for t in range(lengths[i]):
                if step_ends[i][s] >= t and std > 0:
                    out[i][t] += (step_rewards[i][s] - mean) / (std + eps)
    return doubles(out)


class TestProcessSupervision:
    def test_literal(self):
        # One group. Response 0: 4 tokens, steps ending at 1 and 3, rewards 1 and 0. Response 1:
        # 3 tokens, one step ending at 2, reward 1. The pool (1, 0, 1) has mean 2/3 and unbiased
        # variance (1 + 4 + 1)/9 / 2 = 1/3, so the scores are √3/3, −2√3/3 and √3/3.
        up, down = math.sqrt(3) / 3, -2 * math.sqrt(3) / 3
        found = process_supervision(
            doubles([[1, 0], [1, math.nan]]),
            torch.tensor([[1, 3], [2, -1]]),
            torch.tensor([4, 3]),
            group_size=2,
            eps=0.0,
        )
        expected = [[up + down, up + down, down, down], [up, up, up, 0]]
        torch.testing.assert_close(found, doubles(expected))

    @pytest.mark.parametrize("eps", [0.0, 1e-4, 0.5])
    @pytest.mark.parametrize("group_size", [2, 3, 6])
    def test_equals_the_slow_loop_on_ragged_steps(self, group_size, eps):
        generator = torch.Generator().manual_seed(group_size)
        lengths = torch.randint(1, 9, (6,), generator=generator)
        ends = [sorted(torch.randperm(int(n), generator=generator)[:3].tolist()) for n in lengths]
        step_ends = torch.tensor([row + [-1] * (4 - len(row)) for row in ends])
        step_rewards = torch.randn(6, 4, generator=generator, dtype=torch.float64)
        expected = slow_process_supervision(
            step_rewards.tolist(), step_ends.tolist(), lengths.tolist(), group_size, eps
        )
        found = process_supervision(
            step_rewards, step_ends, lengths, group_size=group_size, eps=eps
        )
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    def test_the_default_eps_is_that_of_grpo(self):
        # steps (0, √2·10⁻⁴) have standard deviation 10⁻⁴: half of the score without eps
        steps = doubles([[0], [math.sqrt(2) * 1e-4]])
        ends, lengths = torch.zeros(2, 1, dtype=torch.long), torch.ones(2, dtype=torch.long)
        found = process_supervision(steps, ends, lengths, group_size=2)
        torch.testing.assert_close(found, doubles([[-1], [1]]) / (2 * math.sqrt(2)))

    def test_one_step_at_the_last_token_is_grpo_on_every_token(self):
        rewards = doubles([0, 1, 3, 4, 4, 5])
        lengths = torch.tensor([2, 3, 1, 2, 2, 3])
        found = process_supervision(rewards[:, None], lengths[:, None] - 1, lengths, group_size=3)
        per_response = group_relative(rewards, group_size=3)
        tokens = torch.arange(3) < lengths[:, None]
        torch.testing.assert_close(found, torch.where(tokens, per_response[:, None], 0.0))

    def test_the_order_of_the_steps_does_not_matter(self):
        rewards, ends = doubles([[1, 2, 4], [0, 3, 5]]), torch.tensor([[0, 2, 4], [1, 2, 3]])
        order = [2, 0, 1]
        lengths = torch.tensor([5, 4])
        torch.testing.assert_close(
            process_supervision(rewards[:, order], ends[:, order], lengths, group_size=2),
            process_supervision(rewards, ends, lengths, group_size=2),
        )

    @pytest.mark.parametrize("eps", [0.0, 1e-8, 1e-4])
    @pytest.mark.parametrize("constant", [0.7, 0.1, -1 / 3])
    def test_steps_without_spread_get_exactly_zero_and_leave_the_others_alone(self, constant, eps):
        rewards = torch.full((4, 5), constant)
        rewards[1, 4] = math.nan  # not a step
        rewards[3, 0] += 1
        ends = torch.arange(5).repeat(4, 1)
        ends[1, 4] = -1
        lengths = torch.full((4,), 5)
        found = process_supervision(rewards, ends, lengths, group_size=2, eps=eps)
        assert found[:2].eq(0).all()
        assert found[2:].ne(0).any(dim=1).all()

    @pytest.mark.parametrize(
        ("ends", "lengths", "size", "message"),
        [
            ([[0, 3], [0, 1]], [3, 3], 2, r"step_ends\[0, 1\] is 3, .* lengths\[0\] = 3"),
            ([[0, 1], [0, -2]], [3, 3], 2, r"step_ends\[1, 1\] is -2, expected"),
            ([[0, -1], [-1, -1]], [3, 3], 2, "fewer than two steps"),
            ([[0, 1], [0, 1]], [3, 3], 1, "group_size is 1, expected a number of at least 2"),
            ([[0, 1]] * 3, [3, 3, 3], 2, "group_size is 2, expected a divisor of B=3"),
        ],
    )
    def test_refuses_what_makes_no_sense(self, ends, lengths, size, message):
        with pytest.raises(ValueError, match=message):
            process_supervision(
                torch.zeros(len(ends), 2),
                torch.tensor(ends),
                torch.tensor(lengths),
                group_size=size,
            )

    def test_refuses_a_negative_eps(self):
        with pytest.raises(ValueError, match="eps"):
            process_supervision(
                torch.zeros(2, 1),
                torch.zeros(2, 1, dtype=torch.long),
                torch.ones(2, dtype=torch.long),
                group_size=2,
                eps=-1.0,
            )


class TestMovingAverage:
    def test_subtracts_the_old_average_and_moves_it_a_tenth_of_the_way(self):
        # batch mean 2; .9 · 1 + .1 · 2 = 1.1
        advantages, average = moving_average_baseline(doubles([1, 3]), 1.0)
        torch.testing.assert_close(advantages, doubles([0, 2]))
        assert average == pytest.approx(1.1)

    @pytest.mark.parametrize(("decay", "expected"), [(0.0, 2.0), (0.5, 1.5), (1.0, 1.0)])
    def test_decay_runs_from_the_last_batch_alone_to_never_moving(self, decay, expected):
        _, average = moving_average_baseline(doubles([1, 3]), 1.0, decay=decay)
        assert average == pytest.approx(expected)

    def test_over_batches_is_a_geometric_mixture(self):
        # b_n = (1 − d) Σ_k d^{n−1−k} mean_k, starting from 0
        batches, decay, average = [[1.0, 2.0], [4.0, 0.0], [3.0, 5.0]], 0.8, 0.0
        for batch in batches:
            _, average = moving_average_baseline(doubles(batch), average, decay=decay)
        assert average == pytest.approx(0.2 * (0.64 * 1.5 + 0.8 * 2.0 + 4.0))

    def test_is_unbiased_because_the_baseline_was_there_before(self):
        def advantages(rewards, *, group_size):
            return moving_average_baseline(rewards, 17.0)[0]

        found = expected_estimate(advantages, 2)
        torch.testing.assert_close(found, true_gradient(PROBS, REWARDS), rtol=1e-12, atol=1e-12)

    def test_hands_back_a_plain_number(self):
        assert type(moving_average_baseline(torch.ones(2), 0.0)[1]) is float

    @pytest.mark.parametrize("decay", [-0.1, 1.1, math.nan])
    def test_refuses_a_decay_outside_zero_to_one(self, decay):
        with pytest.raises(ValueError, match="decay"):
            moving_average_baseline(torch.zeros(2), 0.0, decay=decay)

    def test_refuses_an_empty_batch(self):
        with pytest.raises(ValueError, match="rewards is empty"):
            moving_average_baseline(torch.zeros(0), 0.0)


def gradient_variance(probs, rewards, baseline) -> torch.Tensor:
    """Var[g_c (r − b)] of each component, over the arms; `baseline` may differ by component."""
    g = scores(probs)
    samples = g * (doubles(rewards)[:, None] - baseline)
    weights = doubles(probs)[:, None]
    mean = (weights * samples).sum(dim=0)
    return (weights * (samples - mean).square()).sum(dim=0)


class TestVarianceOptimalBaseline:
    def test_literal(self):
        # p = (.7, .2, .1), r = (1, 2, 5), g_c(a) = [a = c] − p_c. In hundredths, p(a) g_c(a)²:
        #   c = 0: 6.3, 9.8, 4.9 → Σ 21,  Σ · r = 50.4 → 2.4
        #   c = 1: 2.8, 12.8, .4 → Σ 16,  Σ · r = 30.4 → 1.9
        #   c = 2:  .7,  .2, 8.1 → Σ  9,  Σ · r = 41.6 → 4.6222…
        # and the scalar is (50.4 + 30.4 + 41.6)/(21 + 16 + 9) = 122.4/46; V = 1.6 is neither
        arms = doubles(PROBS), doubles(REWARDS)
        by_component = variance_optimal_baseline(*arms, per_component=True)
        torch.testing.assert_close(by_component, doubles([2.4, 1.9, 41.6 / 9]))
        torch.testing.assert_close(variance_optimal_baseline(*arms), doubles(122.4 / 46))

    def test_leaves_almost_no_variance_where_one_arm_dominates(self):
        # Third component: E[g² r²] = 2.04, E[g² r] = .416, E[g²] = .09, (E[g r])² = .34² = .1156.
        # b = 0: 2.04 − .1156; b = V = 1.6: 2.04 − 3.2·.416 + 2.56·.09 − .1156;
        # b = .416/.09: 2.04 − .416²/.09 − .1156
        best = variance_optimal_baseline(doubles(PROBS), doubles(REWARDS), per_component=True)
        variances = [gradient_variance(PROBS, REWARDS, b)[2] for b in (0.0, 1.6, best)]
        expected = doubles([1.9244, 0.8236, 1.9244 - 0.416**2 / 0.09])
        torch.testing.assert_close(torch.stack(variances), expected)

    @pytest.mark.parametrize("per_component", [False, True])
    @pytest.mark.parametrize("seed", range(3))
    def test_equals_the_minimum_found_by_search(self, seed, per_component):
        generator = torch.Generator().manual_seed(seed)
        probs = torch.rand(4, generator=generator, dtype=torch.float64)
        probs /= probs.sum()
        rewards = torch.randn(4, generator=generator, dtype=torch.float64)

        def variances(b: float) -> torch.Tensor:
            by_component = gradient_variance(probs.tolist(), rewards.tolist(), b)
            return by_component if per_component else by_component.sum()

        # the variance is a parabola in b, so three points give its lowest place
        low, middle, high = variances(-1.0), variances(0.0), variances(1.0)
        expected = (low - high) / (2 * (low - 2 * middle + high))
        found = variance_optimal_baseline(probs, rewards, per_component=per_component)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        # and stepping away from it never helps
        component = [int(c) for c in range(4)] if per_component else [None]
        for c in component:
            best = found if c is None else found[c]
            at, left, right = (variances((best + h).item()) for h in (0.0, -0.01, 0.01))
            if c is not None:
                at, left, right = at[c], left[c], right[c]
            assert at < left
            assert at < right

    def test_equal_rewards_are_their_own_baseline(self):
        found = variance_optimal_baseline(doubles(PROBS), doubles([3, 3, 3]))
        torch.testing.assert_close(found, doubles(3.0))

    def test_weighs_an_unlikely_arm_more_than_the_mean_does(self):
        # two arms, p and 1 − p: |g|² of arm a is 2 (1 − p_a)², so b* = (1−p) r₀ + p r₁ exactly
        p = Fraction(9, 10)
        found = variance_optimal_baseline(doubles([0.9, 0.1]), doubles([0, 1]))
        torch.testing.assert_close(found, doubles(float(p)))  # the mean reward is .1

    @pytest.mark.parametrize(
        ("probs", "message"),
        [
            ([0.5, 0.4], r"probs sums to 0\.9, expected"),
            ([0.0, 0.0], "probs sums to 0, expected"),
            ([math.inf, 0.0], "probs sums to inf, expected"),
            ([1.2, -0.2], r"probs goes down to -0\.2, expected"),
        ],
    )
    def test_refuses_what_is_not_a_distribution(self, probs, message):
        with pytest.raises(ValueError, match=message):
            variance_optimal_baseline(doubles(probs), doubles([1, 2]))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_accepts_probabilities_that_half_precision_has_rounded(self, dtype):
        # bfloat16 turns (.7, .2, .1) into numbers that sum to .9995
        probs, rewards = torch.tensor(PROBS, dtype=dtype), torch.tensor(REWARDS, dtype=dtype)
        found = variance_optimal_baseline(probs, rewards)
        torch.testing.assert_close(found, torch.tensor(122.4 / 46), rtol=0.01, atol=0)
