"""Sentences of the chapters, each in a world in which the stronger sentence that it replaced fails.

Every world is small enough to be summed by hand; the sums are written out, without the package.
What was said of recorded runs is counted in their records.
"""

import itertools
import json
import math
import re

import pytest
import torch

from nbcourse.budget import machines, shapes
from nbcourse.budget.passes import Pass, decoding_bytes, layer_flops, output_flops
from nbcourse.experiments import records
from nbcourse.experiments.controlled import interval
from nbcourse.experiments.evaluation import asked_of
from nbcourse.publishing import chapters, libraries
from nbcourse.tasks import answers

DOUBLE = torch.float64


def variance(probs, estimates):
    """Of rows of estimates, summed over the columns."""
    mean = probs @ estimates
    return (probs @ (estimates - mean).square().sum(dim=1)).item()


def expected_step(probs, rewards, scores, size, weigh):
    """Mean of advantage × score over every group of this size, for one weight θ."""
    total = 0.0
    for members in itertools.product(range(len(probs)), repeat=size):
        group = list(members)
        A = weigh(rewards[group])
        total += (probs[group].prod() * (A * scores[group]).mean()).item()
    return total


def divided(r):
    return (r - r.mean()) / r.std() if r.std() > 0 else torch.zeros_like(r)


def others(r):
    return r - (r.sum() - r) / (len(r) - 1)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_grpo_can_go_downhill_on_one_prompt_with_rewards_of_0_and_1(size):
    """README, section 1.7: it is the division by the deviation that cannot, not that by |y|."""
    # θ chooses the first token, a or b; then right or wrong, 2 or 5 tokens
    probs = torch.tensor([0.2, 0.3, 0.3, 0.2], dtype=DOUBLE)
    rewards = torch.tensor([1, 0, 1, 0], dtype=DOUBLE)
    scores = torch.tensor([-0.5, -0.5, 0.5, 0.5], dtype=DOUBLE)
    length = torch.tensor([2, 5, 5, 2], dtype=DOUBLE)
    assert (probs * rewards) @ scores > 0
    assert expected_step(probs, rewards, scores, size, divided) > 0
    assert expected_step(probs, rewards, scores / length, size, divided) < 0


def test_dividing_goes_downhill_with_two_prompts_and_rewards_of_0_and_1():
    """Section 1.7: "right or wrong" is not enough; it takes a single prompt."""

    def of_both(weigh):
        steps = []
        for p, slope in ((0.5, 1.0), (0.02, -11.0)):  # success, and d logit / dθ
            probs, right = torch.tensor([p, 1 - p], dtype=DOUBLE), torch.tensor([1.0, 0.0])
            scores = slope * torch.tensor([1 - p, -p], dtype=DOUBLE)
            steps.append(expected_step(probs, right.to(DOUBLE), scores, 8, weigh))
        return sum(steps) / 2

    assert of_both(others) == pytest.approx(0.0172, abs=5e-5)
    assert of_both(divided) == pytest.approx(-0.0425, abs=5e-5)


def softmax_variance(pi, rewards, baseline):
    return variance(pi, (rewards - baseline)[:, None] * (torch.eye(len(pi), dtype=DOUBLE) - pi))


def test_near_certain_success_does_not_make_the_mean_worse_than_no_baseline():
    """Section 2.5: one right answer has to be certain, and what is left mostly wrong."""
    right = torch.tensor([1, 1, 0], dtype=DOUBLE)
    for pi, mean_is_better in (
        ([0.49, 0.49, 0.02], True),
        ([0.90, 0.09, 0.01], True),  # one answer has nine tenths, and yet
        ([0.97, 0.01, 0.02], False),
        ([0.98, 0.00, 0.02], False),
    ):
        pi = torch.tensor(pi, dtype=DOUBLE)
        with_mean, none = (softmax_variance(pi, right, b) for b in (pi @ right, 0.0))
        assert (with_mean < none) == mean_is_better


def test_seven_right_answers_alike_want_the_mean():
    """Section 2.5: 27 answers of three digits, 7 right with .98 in all: 20 times the variance."""
    answers = list(itertools.product(range(3), repeat=3))
    right = torch.tensor([float(sum(a) == 3) for a in answers], dtype=DOUBLE)
    pi = right * 0.98 / 7 + (1 - right) * 0.02 / 20
    scores = torch.zeros(27, 13, 3, dtype=DOUBLE)
    for state, prefix in enumerate(
        p for n in range(3) for p in itertools.product(range(3), repeat=n)
    ):
        here = torch.tensor([a[: len(prefix)] == prefix for a in answers])
        chosen = torch.tensor([a[len(prefix)] for a in answers])
        odds = torch.stack([pi[here & (chosen == c)].sum() for c in range(3)]) / pi[here].sum()
        scores[here, state] = torch.eye(3, dtype=DOUBLE)[chosen[here]] - odds
    scores = scores.flatten(1)
    none, mean = (variance(pi, (right - b)[:, None] * scores) for b in (0.0, 0.98))
    assert none == pytest.approx(1.200, abs=5e-4)
    assert mean == pytest.approx(none / 20, rel=2e-3)


@pytest.mark.parametrize("high", [0.05, 0.3, 0.6, 0.98])
def test_offsets_that_hide_what_they_cost_and_one_that_does_not(high):
    """Section 2.5: ±1 can have less variance than its mean leaves; 4 and 3 never has."""
    pi = torch.tensor([high, 1 - high], dtype=DOUBLE)
    right = torch.tensor([1, 0], dtype=DOUBLE)
    at_mean = softmax_variance(pi, right, high)
    assert softmax_variance(pi, right + 3, 0.0) > 6 * at_mean
    if high > 0.5:
        assert softmax_variance(pi, 2 * right - 1, 0.0) < 4 * at_mean  # ±1: 2 apart


BANDIT = torch.tensor([0.7, 0.2, 0.1], dtype=DOUBLE), torch.tensor([1, 2, 5], dtype=DOUBLE)


@pytest.mark.parametrize(
    ("offset", "exact", "by_size"), [(0, 3.07, (1.78, 2.25, 2.47)), (30, 372, (215, 273, 299))]
)
def test_what_a_pull_is_worth_with_a_baseline_that_a_sampler_has(offset, exact, by_size):
    """Section 1.6: the mean of the others is less than the exact mean."""
    pi, rewards = BANDIT[0], BANDIT[1] + offset
    scores = torch.eye(3, dtype=DOUBLE) - pi
    none = softmax_variance(pi, rewards, 0.0)
    assert none / softmax_variance(pi, rewards, pi @ rewards) == pytest.approx(exact, rel=2e-3)
    for size, worth in zip((2, 3, 4), by_size, strict=True):
        groups = torch.tensor(list(itertools.product(range(3), repeat=size)))
        estimates = torch.stack([(others(rewards[g])[:, None] * scores[g]).mean(0) for g in groups])
        of_group = variance(pi[groups].prod(dim=1), estimates)
        assert none / (size * of_group) == pytest.approx(worth, rel=3e-3)


def test_an_arm_that_was_pulled_and_paid_may_fall():
    """Section 1.6: each pull pushes its arm up; with pulls 1, 1, 2, 3 arm 1 falls all the same."""
    pi, rewards = BANDIT[0], BANDIT[1] + 30
    scores = torch.eye(3, dtype=DOUBLE) - pi
    pulls = torch.tensor([0, 0, 1, 2])
    assert all(rewards[a] * scores[a, a] > 0 for a in pulls)
    step = (rewards[pulls][:, None] * scores[pulls]).mean(dim=0)
    assert step[0].item() == pytest.approx(-7.075)
    assert (pi.log() + 0.3 * step).softmax(dim=0)[0] < pi[0]
    often = torch.tensor([0, 0, 0, 2])  # even three pulls of four, with a probability of 0.7,
    step = (rewards[often][:, None] * scores[often]).mean(dim=0)
    assert step[0] > 0 > (pi.log() + 0.3 * step).softmax(dim=0)[0] - pi[0]  # raise the logit only


@pytest.mark.parametrize(
    ("right", "square", "ratio", "of_none"), [(0.9, 1, 2.17, 1 / 0.62), (0.9, 4, 1.01, 0.034)]
)
def test_the_value_may_be_a_poor_baseline_near_an_end(right, square, ratio, of_none):
    """Section 3.8: within 3 % of the least in the middle of the walk, 2.17 times it in square 1."""
    pi = torch.tensor([1 - right, right], dtype=DOUBLE)
    up = 0.8 * right + 0.2 * (1 - right)  # a step to the right, the slips included
    odds = (1 - up) / up
    value = [(1 - odds**s) / (1 - odds**8) for s in range(9)]  # gambler's ruin: wins at 8
    q = torch.tensor(
        [p * value[square + 1] + (1 - p) * value[square - 1] for p in (0.2, 0.8)], dtype=DOUBLE
    )
    length = torch.tensor([2 * right**2, 2 * (1 - right) ** 2], dtype=DOUBLE)
    mean = (pi * (q - value[square]))[:, None] * (torch.eye(2, dtype=DOUBLE) - pi)

    def noise(b):
        return (pi * length) @ (q * (1 - q) + (q - b) ** 2) - mean.sum(dim=0).square().sum()

    best = (pi * length) @ q / (pi @ length)
    assert (noise(value[square]) / noise(best)).item() == pytest.approx(ratio, abs=0.005)
    assert (noise(value[square]) / noise(0.0)).item() == pytest.approx(of_none, rel=0.02)


def test_a_sweep_takes_twelve_percent_and_four_by_turns():
    """Section 3.4: a walk has period 2, so 8 % is only the mean."""
    P = torch.zeros(9, 9, dtype=DOUBLE)
    for s in range(1, 8):
        P[s, s + 1], P[s, s - 1] = 0.56, 0.44
    odds = 0.44 / 0.56
    value = [(1 - odds**s) / (1 - odds**8) for s in range(9)]
    error = torch.tensor([0, *(0.5 - v for v in value[1:8]), 0], dtype=DOUBLE)
    P[0] = P[8] = 0
    largest = []
    for _ in range(61):
        largest.append(error.abs().max().item())
        error = P @ error
    shares = sorted(1 - b / a for a, b in itertools.pairwise(largest[58:]))
    assert shares == pytest.approx([0.044, 0.120], abs=5e-4)
    assert 1 - (largest[60] / largest[40]) ** (1 / 20) == pytest.approx(0.083, abs=5e-4)


def test_a_baseline_that_has_seen_the_return_is_biased():
    """Chapter 3: fitted to the two returns that it is subtracted from, it halves the gradient."""
    pi, rewards = BANDIT
    groups = torch.tensor(list(itertools.product(range(3), repeat=2)))
    scores, chance = torch.eye(3, dtype=DOUBLE) - pi, pi[groups].prod(dim=1)
    seen = torch.stack([((r := rewards[g]) - r.mean())[:, None] * scores[g] for g in groups])
    exact = pi * (rewards - pi @ rewards)
    torch.testing.assert_close(chance @ seen.mean(dim=1), exact / 2)


def test_the_mean_ratio_of_a_batch_wanders_although_the_policy_did_not_look():
    """Section 5.2: 1 on average, and in half of the batches of two pulls something else."""
    old, new = (torch.tensor(p, dtype=DOUBLE) for p in ([0.5, 0.5], [0.8, 0.2]))
    groups = torch.tensor(list(itertools.product(range(2), repeat=2)))
    means = (new / old)[groups].mean(dim=1)
    assert old[groups].prod(dim=1) @ means == pytest.approx(1)
    assert sorted(means.tolist()) == pytest.approx([0.4, 1.0, 1.0, 1.6])


def test_a_small_kl_does_not_make_a_ratio_harmless():
    """Section 12.1: one rare token, raised from 0.0001 to 0.05."""
    old = torch.tensor([1 - 1e-4, 1e-4], dtype=DOUBLE)
    new = torch.tensor([0.95, 0.05], dtype=DOUBLE)
    ratio = new / old
    assert (new @ ratio.log()).item() == pytest.approx(0.26, abs=0.005)
    share = 1 / (old @ ratio.square()).item()  # the effective sample size, of the batch
    assert share == pytest.approx(0.04, abs=0.002)
    assert share < math.exp(-0.26) / 10  # the bound is far away


def test_k1_as_a_loss_has_a_baseline_and_not_only_noise():
    """Section 12.1: against (½, ½) the sharp policy (.8, .2) has less variance with it."""
    pi = torch.tensor([0.8, 0.2], dtype=DOUBLE)
    score = torch.eye(2, dtype=DOUBLE) - pi
    d = (pi / 0.5).log()
    in_the_reward = d[:, None] * score
    in_the_loss = (d + 1)[:, None] * score  # its own derivative is the score
    torch.testing.assert_close(pi @ in_the_reward, pi @ in_the_loss)
    assert variance(pi, in_the_reward) == pytest.approx(0.131, abs=5e-4)
    assert variance(pi, in_the_loss) == pytest.approx(0.042, abs=5e-4)


def test_exact_divergences_can_be_noisier_than_k1():
    """Section 11.3: answers x and ya, half each; the reference also writes yb."""
    answers = torch.tensor([0.5, 0.5], dtype=DOUBLE)  # x, ya
    reference = torch.tensor([0.2, 0.2], dtype=DOUBLE)
    k1 = (answers / reference).log()
    first = (answers * (answers / torch.tensor([0.2, 0.8], dtype=DOUBLE)).log()).sum()
    after_y = math.log(1 / 0.25)  # the reference goes on with a in a quarter of the cases
    exact = torch.stack([first, first + after_y])
    assert (answers @ exact).item() == pytest.approx((answers @ k1).item())
    assert variance(answers, k1[:, None]) == pytest.approx(0, abs=1e-12)
    assert variance(answers, exact[:, None]) == pytest.approx(0.48, abs=5e-3)


def test_k1_averaged_over_tokens_may_shorten_answers():
    """Section 11.7: answers of 1, 2 and 100 tokens; the middle one gains from both others."""
    probs = torch.tensor([0.04, 0.95, 0.01], dtype=DOUBLE)
    length = torch.tensor([1.0, 2.0, 100.0], dtype=DOUBLE)
    of_inverse = probs * (1 / length - probs @ (1 / length))  # ∇E[1/|y|], by logit
    of_length = probs * (length - probs @ length)
    descent = torch.nn.functional.cosine_similarity(-of_inverse, of_length, dim=0)
    assert descent.item() < -0.15


@pytest.mark.parametrize("seed", range(20))
def test_a_samplers_own_tokens_do_not_score_below_chance(seed):
    """Section 7.3: E log π ≥ −log V, whatever the policy; shifted log-probs have no such floor."""
    logits = 5 * torch.randn(17, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    pi = logits.softmax(dim=0)
    assert (pi @ pi.log()).item() >= -math.log(17)


def test_the_derivative_of_a_prefix_weight_is_more_than_the_path_part():
    """Section 11.8: with k1 of the present token it is the whole ∇KL; without it, the path part."""
    source = torch.Generator().manual_seed(0)
    ref, start = torch.randn(2, 3, 2, generator=source, dtype=DOUBLE).log_softmax(dim=2)

    def of_tokens(log_p):  # the first of two tokens is b = 0 or 1, and row 1 + b draws the second
        return torch.stack([log_p[0, [0, 0, 1, 1]], log_p[1:].flatten()], dim=1)

    def gradient(value):
        z = start.clone().requires_grad_()
        return torch.autograd.grad(value(z.log_softmax(dim=1)), z)[0]

    def divergence(log_p):
        return (of_tokens(log_p).sum(dim=1).exp() * of_tokens(log_p - ref).sum(dim=1)).sum()

    def path(log_p):  # only how often each state is reached is differentiated
        rows = (start.exp() * (start - ref)).sum(dim=1)
        return log_p[0].exp() @ rows[1:]

    def weight(log_p, shift):
        ratios = of_tokens(log_p - start)
        weights = (ratios.cumsum(dim=1) - shift * ratios).exp()
        return (of_tokens(start).sum(dim=1).exp()[:, None] * weights * of_tokens(start - ref)).sum()

    whole, part = gradient(divergence), gradient(path)
    torch.testing.assert_close(gradient(lambda x: weight(x, 0)), whole)
    torch.testing.assert_close(gradient(lambda x: weight(x, 1)), part)
    assert (whole - part).norm() > part.norm()


def test_a_smaller_lambda_can_add_noise():
    """Section 8.5: nothing is paid, and the critic says ±5 once the first token is known."""
    for lam in (0.0, 0.5, 0.95, 1.0):
        first = [(v - 0.0) + lam * (0.0 - v) for v in (5.0, -5.0)]  # δ₁ + λ δ₂
        assert first == pytest.approx([5 * (1 - lam), -5 * (1 - lam)])


def test_the_share_right_may_fall_though_the_reference_is_ranked_better_than_chance():
    """Section 9.6: its slope in 1/β is a covariance under the best policy, not the reference."""
    ref = torch.tensor([0.5, 0.4, 0.1], dtype=DOUBLE)
    score, right = torch.tensor([[0.0, 1, 2], [0, 1, 0]], dtype=DOUBLE)
    assert 0.5 > 0.1  # of the pairs with the right answer it is above the first, below the third
    shares, slopes = [], []
    for inverse in (0.0, 0.5, 1.0, 3.0):
        x = torch.tensor(inverse, dtype=DOUBLE, requires_grad=True)
        best = (ref.log() + x * score).softmax(dim=0)
        (slope,) = torch.autograd.grad(best @ right, x, retain_graph=True)
        covariance = best @ (score * right) - (best @ score) * (best @ right)
        torch.testing.assert_close(slope, covariance)
        shares.append((best @ right).item())
        slopes.append(slope.item())
    assert shares[0] < shares[1] > shares[3] < shares[0]
    assert slopes[1] > 0 > slopes[2]


def test_a_shifted_log_prob_may_lie_above_chance_and_above_the_right_one():
    """Section 7.3: a policy that says the same token again with probability 0.2."""
    said_again, vocabulary = 0.2, 17
    other = (1 - said_again) / (vocabulary - 1)
    right = said_again * math.log(said_again) + (1 - said_again) * math.log(other)
    shifted = math.log(said_again)  # the logits after a token, asked for that token
    assert shifted > right > -math.log(vocabulary)


def test_a_sum_of_squares_does_not_say_how_hard_a_group_pulls():
    """Section 10.2: eight answers, one right or four."""
    sizes = []
    for k in (1, 4):
        r = (torch.arange(8) < k).to(DOUBLE)
        z = (r - r.mean()) / r.std()
        assert z.square().sum().item() == pytest.approx(7)
        sizes.append(z.abs().sum().item())
    assert sizes == pytest.approx([4.95, 7.48], abs=5e-3)


def test_a_prediction_beyond_its_target_keeps_its_gradient():
    """Section 6.3: the larger of two squares; 0.2 further is allowed, the target is 0.25."""
    slopes = []
    for said in (0.24, 0.28, 0.6):
        v = torch.tensor(said, dtype=DOUBLE, requires_grad=True)
        loss = torch.maximum((v - 0.25).square(), (v.clamp(-0.2, 0.2) - 0.25).square()) / 2
        slopes.append(torch.autograd.grad(loss, v)[0].item())
    assert slopes == pytest.approx([0, 0, 0.35])


def test_whitening_takes_the_unit_out_of_the_policys_loss_alone():
    """Section 6.3: one norm for both clips the policy's gradient by the critic's."""
    score = torch.tensor([0.5, -0.3, 0.1, -0.2], dtype=DOUBLE)  # d log π / dθ of four samples
    found = []
    for unit in (1.0, 10.0):
        A, error = torch.tensor([[1.0, 2, -1, 0], [1, -1, 2, 1]], dtype=DOUBLE) * unit
        policy = ((A - A.mean()) / A.std() * score).mean()
        critic = error.mean()
        together = policy * 0.5 / (policy.square() + critic.square()).sqrt()  # clipped to 0.5
        found.append((policy.item(), together.item()))
    (first, clipped), (second, held) = found
    assert first == pytest.approx(second)
    assert abs(held) < abs(clipped) / 5


def test_k1_of_trained_samples_may_come_back_above_zero():
    """Section 6.2: the bare ratio, one sample in each state, 20 actions, Adam."""
    source = torch.Generator().manual_seed(0)
    pays = torch.randn(20, generator=source, dtype=DOUBLE)
    drawn = torch.randint(20, (256,), generator=source)
    A, old, k1 = (pays - pays.mean())[drawn], -math.log(20), []
    W = torch.zeros(256, 20, dtype=DOUBLE, requires_grad=True)
    adam = torch.optim.Adam([W], lr=0.03)
    for _ in range(200):
        d = W.log_softmax(dim=1)[torch.arange(256), drawn] - old
        k1.append(-d.mean().item())
        adam.zero_grad()
        (-d.exp() * A).mean().backward()
        adam.step()
    assert max(k1[1:41]) < 0.02 < k1[-1]
    assert min(k1) < -0.05


def test_spare_samples_speak_for_the_states_that_were_visited():
    """Section 6.2: a table, two states; the second is never visited, and does not move."""
    old = torch.tensor([0.5, 0.5], dtype=DOUBLE)
    new = torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=DOUBLE)
    exact = (old * (old / new).log()).sum(dim=1)
    spare = old @ (new[0] / old - 1 - (new[0] / old).log())  # the mean of k3 where we are
    torch.testing.assert_close(spare, exact[0])
    assert spare > 1.9 * exact.mean()


def test_agreement_bounds_nothing_if_errors_are_shared():
    """Section 9.4: two raters who agree in 75 of 100; who is always right agrees with one in …"""
    agree = {"independent": None, "few shared": (0.70, 0.05), "many": (0.50, 0.25)}
    found = {}
    for name, both in agree.items():
        right, wrong = both or ((1 + math.sqrt(0.5)) ** 2 / 4, (1 - math.sqrt(0.5)) ** 2 / 4)
        assert right + wrong == pytest.approx(0.75)
        found[name] = right + 0.25 / 2
    assert [round(x, 3) for x in found.values()] == [0.854, 0.825, 0.625]


def test_an_answer_that_was_never_said_becomes_likelier_if_the_others_were_bad():
    """Section 7.6: with rewards below 0, or another baseline, learning begins all the same."""
    pi, said, A = torch.tensor([0.50, 0.49, 0.01], dtype=DOUBLE), [0, 1], -1.0
    step = sum(A * (torch.eye(3, dtype=DOUBLE)[a] - pi) for a in said)
    assert step[2].item() == pytest.approx(0.02)


def test_a_bfloat16_below_minus_sixteen_is_off_by_more_than_three_per_cent():
    """Section 7.3: the spacing doubles."""
    for low, high, most in ((-16, -8, 1.032), (-32, -16, 1.065)):
        exact = torch.linspace(low, high, 10_001, dtype=DOUBLE)[1:-1]
        ratio = (exact.bfloat16().to(DOUBLE) - exact).exp()
        assert ratio.max().item() == pytest.approx(most, abs=2e-3)


def test_from_right_and_wrong_a_model_learned_to_multiply_better_and_not_when_to():
    """Section J.3: most questions call for a product, and the others are not answered better."""
    for name in ("grpo", "rloo", "ppo", "reinforce"):
        right = {(when, product): 0 for when in ("before", "after") for product in (True, False)}
        products = 0
        for seed in range(3):
            folder = records.RUNS / f"word-problems-tiny-{name}-seed{seed}"
            told = records.read_json(folder / "evaluation-word-problems-validation.json")
            recipe = records.read_recipe(folder)
            asked = asked_of(recipe, recipe.task.build(), "validation", 1000)
            products += sum("*" in problem.solution for problem in asked)
            for when in ("before", "after"):
                for problem, verdict in zip(asked, told[when]["verdicts"]["strict"], strict=True):
                    right[when, "*" in problem.solution] += int(verdict)
        assert products > 0.8 * 3000
        assert right["after", True] > 1.4 * right["before", True]
        assert right["after", False] < right["before", False]


def test_what_equal_numbers_of_answers_cost():
    """Section 10.10: learning took longer than sampling, and PPO most of all."""
    seconds = {}
    for name in ("grpo", "reinforce", "rloo", "dr-grpo", "ppo"):
        for seed in range(3):
            folder = records.RUNS / "arithmetic-family" / f"{name}-seed{seed}"
            steps = records.read_metrics(folder)
            assert sum(row["responses"] for row in steps) == 81_920
            sample, learn = (
                sum(row[f"seconds_{of}"] for row in steps) for of in ("sample", "learn")
            )
            assert learn > sample
            seconds[name, seed] = sample + learn
    assert seconds["ppo", 0] > 2.5 * seconds["reinforce", 0]


def test_the_program_with_the_bug_learned_a_little_faster():
    """Section 8.11: B minus A in the share of right answers, over the last three steps."""
    runs = records.read_json(records.RUNS / "chapters/08-ppo.json")["runs"]
    late = {}
    for key, run in runs.items():
        name, seed = json.loads(key)["algorithm.name"], json.loads(key)["seed"]
        late[name, seed] = sum(run["columns"]["reward"][-3:]) / 3
    gains = [late["ppo, wrong target", seed] - late["ppo", seed] for seed in range(3)]
    low, high = interval(gains)
    assert 0.03 < low < high < 0.05


def test_best_of_n_beside_the_optimum_depends_on_the_reward_model():
    """Section 9.6: of seeds 1 and 2, one is decided at every n, the other at n = 2, against it."""
    runs = records.read_json(records.RUNS / "chapters/09-best-of-n.json")["runs"]
    ends = {}
    for key, run in runs.items():
        asked, columns = json.loads(key), run["columns"]
        ends[asked["n"], asked["seed"]] = columns["low"][0], columns["high"][0]
    for n in (2, 4, 8, 16, 32, 64):
        assert ends[n, 2][0] > 0
        assert ends[n, 1][0] < 0
        assert (ends[n, 1][1] < 0) == (n == 2)
        assert (ends[n, 0][0] > 0) == (n >= 16)


def test_a_stop_at_a_kl_is_past_it():
    """Section 9.5: where the runs without a penalty passed the KL of those with one."""
    at = {}
    for name in ("09-stopped", "09-scores"):
        for key, run in records.read_json(records.RUNS / f"chapters/{name}.json")["runs"].items():
            asked = json.loads(key)
            at[asked.get("at", asked.get("beta")), asked["seed"]] = run["columns"]
    for seed in range(3):
        held = sum(at[0.3, seed]["kl_ref"][-5:]) / 5
        assert at["the KL of β = 0.3", seed]["kl"][0] > 1.05 * held
    assert at["the KL of β = 0.3", 2]["kl"][0] > 1.9 * held
    assert at["1 nat", 0]["kl"][0] > 3.5


def test_ratios_of_one_after_a_step_are_an_alarm_only_if_the_policy_moved():
    """Section 6.6: equal advantages, whitened; the program is right, and every ratio is 1."""
    logits = torch.zeros(2, dtype=DOUBLE, requires_grad=True)
    actions, A = torch.tensor([0, 1, 1]), torch.tensor([2.0, 2.0, 2.0], dtype=DOUBLE)
    old = logits.log_softmax(dim=0)[actions].detach()  # stored when they were drawn
    ratio = (logits.log_softmax(dim=0)[actions] - old).exp()
    (slope,) = torch.autograd.grad(-(ratio * (A - A.mean())).mean(), logits)
    after = (logits - 10 * slope).log_softmax(dim=0)[actions]
    assert torch.equal(after, old)


def test_a_bad_update_may_never_be_made_good():
    """Section 6.4: CartPole after updates of 1.7 to 4 nats, and no ratio was ever clipped."""
    runs = records.read_json(records.RUNS / "chapters/06-recomputed.json")["runs"]
    bold = [run["columns"] for key, run in runs.items() if json.loads(key)["epochs"] == 10]
    assert len(bold) == 4
    for columns in bold:
        assert columns["log10"][-1] > math.log10(1.7)
        assert columns["recent"][-1] < 10
        assert max(columns["clip_fraction"]) == 0  # though the steps were long


def test_k3_in_the_reward_is_weak_only_near_the_reference():
    """Section 8.4: two answers; its share of the true pull, near and far."""
    ref, shares = torch.tensor([0.8, 0.2], dtype=DOUBLE), []
    for p in (0.798, 0.78, 0.05):
        pi = torch.tensor([p, 1 - p], dtype=DOUBLE)
        d = (pi / ref).log()
        k3 = (-d).exp() - 1 + d
        pulls = [(pi * (x - pi @ x)).norm() for x in (k3, d)]
        shares.append((pulls[0] / pulls[1]).item())
    assert shares[1] == pytest.approx(10 * shares[0], rel=0.1)
    assert shares[0] < 0.01 < 2 < shares[2]


def test_healthy_runs_of_one_update_have_no_kl_and_no_clip():
    """Section 8.9: 0 in all steps is suspicious only with several updates a batch."""
    for seed in range(3):
        steps = records.read_metrics(records.RUNS / "arithmetic-family" / f"ppo-seed{seed}")
        for number in ("kl_old", "clip_low", "clip_high"):
            assert max(row[number] for row in steps) == 0
        assert max(row.get("held_out", 0) for row in steps) > 0.9


def test_a_gap_above_one_in_a_hundred_thousand_is_no_alarm_in_float32():
    """Section 8.9: runs of a model of 135 million weights."""
    folders = [*records.RUNS.glob("smollm2-*float32-[gpr]*-seed*/metrics.jsonl")]
    largest = [
        max(row.get("gap", 0) for row in records.read_metrics(one.parent)) for one in folders
    ]
    assert len(largest) > 6
    assert min(largest) > 2e-5
    assert max(largest) < 1e-3


def test_a_second_seed_got_somewhere_without_lambda_one():
    """Section 8.10: walks of a hundred tokens, a critic that shares the backbone."""
    results = records.read_results(records.RUNS / "critic-study/walk")
    own = {one["configuration"]: one["reward"] for one in results if one["seed"] == 1}
    late = {name: sum(own[name][-10:]) / 10 for name in ("own", "shared", "own, λ = 1")}
    assert own["shared"][0] == 0
    assert own["shared"][-1] > 0.1
    assert max(late, key=late.get) == "own, λ = 1"


def test_a_penalty_inside_the_division_may_be_far_too_strong_or_too_weak():
    """Section 11.7: groups of four from three answers, β = 0.01, the middle one is right."""

    def strength(pi, ref, beta=0.01):
        pi, ref = (torch.tensor(x, dtype=DOUBLE) for x in (pi, ref))
        right, d = torch.tensor([0.0, 1.0, 0.0], dtype=DOUBLE), (pi / ref).log()
        score, total = torch.eye(3, dtype=DOUBLE) - pi, torch.zeros(3, dtype=DOUBLE)

        def divided(x):
            return (x - x.mean()) / x.std() if x.amax() > x.amin() else torch.zeros(4)

        for group in map(list, itertools.product(range(3), repeat=4)):
            due = divided((right - beta * d)[group]) - divided(right[group])
            total += pi[group].prod() * (due[:, None] * score[group]).mean(dim=0)
        return (total.norm() / (beta * (pi * (d - pi @ d)).norm())).item()

    ref = [0.4, 0.35, 0.25]
    found = [strength(pi, ref) for pi in ([0.5, 0.3, 0.2], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1])]
    assert found == pytest.approx([79.8, 38.5, 0.244], rel=2e-3)


def test_self_normalised_weights_may_be_far_off():
    """Section 9.6: an answer that the reference gives once in a hundred, 64 samples, a small β."""
    given, factor, N = 0.01, 1e4, 64  # e^{s/β} is 10⁴ for it, and 1 for all others
    optimum = given * factor / (given * factor + 1 - given)
    k = torch.arange(N + 1, dtype=DOUBLE)
    chance = torch.distributions.Binomial(N, torch.tensor(given, dtype=DOUBLE)).log_prob(k).exp()
    estimate = (chance @ (k * factor / (k * factor + N - k))).item()
    assert optimum > 0.99
    assert estimate < 0.48


def test_a_gradient_of_ppo_has_no_limit_for_a_bad_sample_that_became_likelier():
    """Section 5.6: for A < 0 it is −ρ; for A > 0 it is at most 1 + ε."""
    ratio = torch.tensor([0.1, 1.0, 10.0, 1000.0], dtype=DOUBLE)
    for advantage in (1.0, -1.0):
        log_ratio = ratio.log().requires_grad_()
        rho = log_ratio.exp()
        term = torch.minimum(rho * advantage, rho.clamp(0.8, 1.2) * advantage)
        (slope,) = torch.autograd.grad(term.sum(), log_ratio)
        if advantage > 0:
            assert slope.abs().max() <= 1.2
        else:
            torch.testing.assert_close(slope[1:], -ratio[1:])


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_z_score_weighs_all_prompts_alike_in_groups_of_two_and_three_alone(size):
    """Section I.5: a sum over all verdicts of a group, for a policy with one parameter, p."""
    found = []
    for p in (0.05, 0.3, 0.5):
        expected = 0.0
        for verdicts in itertools.product((0.0, 1.0), repeat=size):
            r = torch.tensor(verdicts, dtype=DOUBLE)
            chance = (r * p + (1 - r) * (1 - p)).prod()
            if r.std() > 0:
                score = r / p - (1 - r) / (1 - p)  # d log π / dp, so that ∇p = 1
                expected += (chance * ((r - r.mean()) / r.std() * score).mean()).item()
        found.append(expected)
    alike = max(found) - min(found) < 1e-12
    assert alike == (size <= 3)


def test_no_rule_by_counts_has_the_weight_of_the_logarithm():
    """Section I.5: w(p) = Σ_k Bin(G−1, k) c_k is finite at p = 0, whatever the c_k; 1/p is not."""
    size, p = 8, torch.tensor([0.2, 0.1, 0.05, 0.01], dtype=DOUBLE)
    k = torch.arange(size, dtype=DOUBLE)
    ways = torch.tensor([math.comb(size - 1, int(i)) for i in k], dtype=DOUBLE)
    basis = ways * p[:, None] ** k * (1 - p[:, None]) ** (size - 1 - k)
    right_ones = basis @ (size / (k + 1))  # the mean score of the right answers
    torch.testing.assert_close(right_ones * p, 1 - (1 - p) ** size)
    assert right_ones.max() < size < 1 / p[-1]


def test_a_mask_takes_the_learners_share_and_a_cap_less():
    """Section 12.1: what is missing of the mean weight."""
    sampler = torch.tensor([0.7, 0.2, 0.1], dtype=DOUBLE)
    learner = torch.tensor([0.5, 0.1, 0.4], dtype=DOUBLE)
    ratio, cap = learner / sampler, 2.0
    masked = 1 - (sampler @ (ratio * (ratio <= cap))).item()
    capped = 1 - (sampler @ ratio.clamp(max=cap)).item()
    assert masked == pytest.approx(0.4)  # π(ρ > c)
    assert capped == pytest.approx(0.4 - cap * 0.1)  # less c π_old(ρ > c)


def test_discount_zero_ends_elsewhere_if_the_student_cannot_become_the_teacher():
    """Section 12.3: two tokens, one probability to go on; the teacher has 0.99 and then 0.2."""
    s = torch.linspace(0.01, 0.99, 9_801, dtype=DOUBLE)
    first, second = (s * (s / q).log() + (1 - s) * ((1 - s) / (1 - q)).log() for q in (0.99, 0.2))
    best = s[(first + s * second).argmin()].item()  # the KL of whole answers
    step = s[1] - s[0]
    frozen = first.diff() / step + s[1:] * second.diff() / step  # without d/ds of the reach
    ends = s[1:][(frozen > 0).to(torch.int).argmax()].item()
    assert (best, ends) == pytest.approx((0.81, 0.86), abs=5e-3)


@pytest.mark.parametrize("pays", [[0.0, 1.0], [0.0, 3.0, 5.0, 4.0]])
def test_the_last_gap_of_a_softmax_does_not_depend_on_what_the_arms_pay(pays):
    """Section 1.6: (K − 1)/(K η t), by exact steps."""
    r, theta = torch.tensor(pays, dtype=DOUBLE), torch.zeros(len(pays), dtype=DOUBLE)
    for _ in range(10_000):
        pi = theta.softmax(dim=0)
        theta = theta + 0.3 * pi * (r - pi @ r)
    gap = r.max() - theta.softmax(dim=0) @ r
    expected = (len(pays) - 1) / (len(pays) * 0.3 * 10_000)
    assert gap.item() == pytest.approx(expected, rel=0.02)


def without_path_part(right, beta, length=1_000):
    """Section 12.3's chain: success and KL where the partial gradient ends; π*'s success and J*."""
    stay = right ** (1 / length)  # the reference's chance to go on at each token
    success, spent = 1.0, 0.0
    for _ in range(length):
        odds = stay * math.exp(success / beta)
        go = odds / (odds + 1 - stay)
        here = go * math.log(go / stay) + (1 - go) * math.log((1 - go) / (1 - stay))
        success, spent = go * success, here + go * spent
    odds = right * math.exp(1 / beta)
    best = beta * math.log(1 - right + odds)
    return success, spent, odds / (1 - right + odds), best


def test_an_undecided_optimum_does_not_decide_what_the_path_part_is_worth():
    """Section 12.3: references that are right in .5, .2 and .001; the chapter's is in .05."""
    lost = {}
    for right, beta in ((0.5, 1.0), (0.2, 0.55), (0.05, 0.5), (0.001, 0.3)):
        success, spent, sure, best = without_path_part(right, beta)
        lost[right] = sure, 1 - (success - beta * spent) / best
    assert 0.7 < lost[0.5][0] < 0.75
    assert lost[0.5][1] < 0.005
    assert 0.55 < lost[0.2][0] < 0.65
    assert lost[0.2][1] < 0.05
    assert lost[0.05][1] == pytest.approx(0.53, abs=0.005)
    assert lost[0.001][0] < 0.03  # π* stays near the reference
    assert lost[0.001][1] > 50


def test_a_fixed_point_without_the_path_part_may_spend_more_than_the_reward_is_worth():
    """Section 12.3: more than 1/β nats, and for a regret above the largest reward."""
    success, spent, _, best = without_path_part(1e-6, 0.2)
    assert spent > 2 / 0.2
    assert best - (success - 0.2 * spent) > 1.5
    for right, beta in ((0.05, 0.05), (0.05, 0.3), (1e-6, 0.2)):
        assert without_path_part(right, beta)[1] < math.log(1 / right)  # what does bound it


def student_to_teacher(logits, *, path):
    """Section 12.3's chain of 100 tokens: KL to a teacher that is right in .9, and its slopes."""
    teacher = torch.tensor(0.9 ** (1 / 100), dtype=DOUBLE)
    x = logits.clone().requires_grad_()
    go = x.sigmoid()
    here = go * (go / teacher).log() + (1 - go) * ((1 - go) / (1 - teacher)).log()
    before = torch.cat([torch.ones(1, dtype=DOUBLE), go[:-1].cumprod(dim=0)])
    kl = ((before if path else before.detach()) * here).sum()
    return kl.item(), torch.autograd.grad(kl, x)[0]


def test_discount_zero_is_behind_with_each_at_its_best_step_size():
    """Section 12.3: at steps of 2 it is ahead; the best are 128 and 48, or neighbours of them."""
    left = {}
    for path, sizes in ((True, (2, 128)), (False, (2, 32, 40, 48, 56, 64))):
        for size in sizes:
            x = torch.full((100,), 0.05 ** (1 / 100), dtype=DOUBLE).logit()
            for _ in range(100):
                x = x - size * student_to_teacher(x, path=path)[1]
            left[path, size] = student_to_teacher(x, path=True)[0]
    assert left[False, 2] < 0.7 * left[True, 2]
    best = min(kl for (path, _), kl in left.items() if not path)
    assert left[True, 128] < best / 1e6


def test_a_right_penalty_too_small_to_be_felt_does_not_lower_the_kl():
    """Section 12.4: three arms, k1 in the reward, batches of 16; β times ten, and the KL rises."""

    def kl_at_the_end(beta):
        generator = torch.Generator().manual_seed(0)
        logits, r = torch.zeros(3, dtype=DOUBLE), torch.tensor([0.0, 0.0, 1.0], dtype=DOUBLE)
        for _ in range(40):
            pi = logits.softmax(dim=0)
            a = torch.multinomial(pi, 16, True, generator=generator)
            gain = (r - beta * (3 * pi).log())[a]
            score = torch.eye(3, dtype=DOUBLE)[a] - pi
            logits = logits + 0.5 * ((gain - gain.mean())[:, None] * score).mean(dim=0)
        pi = logits.softmax(dim=0)
        return (pi @ (3 * pi).log()).item()

    assert kl_at_the_end(1e-3) > kl_at_the_end(1e-4)
    assert kl_at_the_end(1.0) < kl_at_the_end(1e-4) / 5  # at one that costs reward it falls


def test_without_a_baseline_the_reward_is_the_noisier_place_for_the_penalty():
    """Section 12.3: three of four answers pay, from equal chances, at π* for β = 0.2."""
    r, beta = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=DOUBLE), 0.2
    pi = (r / beta).softmax(dim=0)
    d, score = (4 * pi).log(), torch.eye(4, dtype=DOUBLE) - pi
    exact = pi @ (d[:, None] * score)  # in the loss: the gradient of the KL, and no noise of it
    in_the_loss = (r - pi @ r)[:, None] * score - beta * exact
    in_the_reward = (r - beta * d)[:, None] * score
    assert variance(pi, in_the_reward) > 30 * variance(pi, in_the_loss)
    held = r - beta * d - pi @ (r - beta * d)  # with a baseline nothing is left
    assert variance(pi, held[:, None] * score) < 1e-30


@pytest.mark.parametrize(("lost", "paid"), [(0.2, 0.1), (0.6, 0.5)])
def test_a_random_error_turns_the_gradient_round_if_its_rates_exceed_one(lost, paid):
    """Section 13.1: the slope in p of the reward p (1 − f₋) + (1 − p) f₊."""
    p = torch.tensor(0.3, dtype=DOUBLE, requires_grad=True)
    (p * (1 - lost) + (1 - p) * paid).backward()
    assert p.grad.item() == pytest.approx(1 - lost - paid)
    assert (p.grad.item() > 0) == (lost + paid < 1)


def test_a_loop_that_gives_nothing_back_can_still_be_slow_to_search():
    """Section 13.6: a*+b from each of n places goes through what is left, n (n + 1)/2 in all."""
    places = [re.compile(r"a*+").match("a" * 40, start).end() - start for start in range(41)]
    assert sum(places) == 40 * 41 / 2
    assert re.compile(r"a*+b").search("a" * 40) is None


def test_a_constant_error_leaves_the_explained_variance_at_one():
    """Glossary: a critic that says G + 5."""
    returns = torch.tensor([1.0, 2.0, 6.0], dtype=DOUBLE)
    assert 1 - (returns - (returns + 5)).var() / returns.var() == 1


def test_the_last_advantage_of_gae_has_the_largest_weight():
    """Glossary: an episode of three steps, λ = 0.95."""
    of_steps = torch.ones(3, 3, dtype=DOUBLE).tril()  # which TD errors an n-step advantage adds up
    weights = torch.tensor([0.05, 0.05 * 0.95, 0.95**2], dtype=DOUBLE)
    torch.testing.assert_close(weights @ of_steps, 0.95 ** torch.arange(3, dtype=DOUBLE))
    assert weights[2] > 10 * weights[:2].max()


def test_a_mean_that_multiplies_by_one_over_n_is_not_exact_for_ones():
    """B.28, section 16.5: 41 rewards of 1 in float32; a quotient of sums is exact."""
    ones = torch.ones(41, dtype=torch.float32)
    assert ones.sum() / 41 == 1
    assert ones.sum() * (1 / torch.tensor(41.0, dtype=torch.float32)) != 1


def test_what_a_cast_rounds_hardly_changes_from_step_to_step():
    """Section 15.6: weights N(0, 0.02²) in float32, a step of 1e-6, products in bfloat16."""
    generator = torch.Generator().manual_seed(0)
    before = 0.02 * torch.randn(100_000, generator=generator, dtype=torch.float32)
    after = before + 1e-6 * torch.randn(before.shape, generator=generator).sign()
    was, now = (w.bfloat16().double() - w.double() for w in (before, after))
    assert (before.bfloat16() == after.bfloat16()).double().mean() > 0.95
    assert torch.corrcoef(torch.stack([was, now]))[0, 1] > 0.95


@pytest.mark.parametrize(("columns", "waits"), [(500, "memory"), (192, "arithmetic")])
def test_what_decoding_waits_for_depends_on_the_context(columns, waits):
    """Section 15.5: the 0.5B model on an H200, 1,024 answers at once."""
    shape = shapes.PUBLISHED["Qwen/Qwen2.5-0.5B-Instruct"]
    token = Pass(1_024, 1, columns, 1)
    flops = layer_flops(shape, token) + output_flops(shape, token)
    moved = decoding_bytes(shape, 1_024, columns, "bfloat16")
    h200 = machines.DATASHEETS["H200"]
    balance = h200.speed["bfloat16"] / h200.bandwidth
    assert (flops / moved > balance) == (waits == "arithmetic")


def test_a_tenth_of_a_batch_is_left_a_little_beyond_2300_tokens():
    """Section 12.1: 0.001 nats a token."""
    assert math.exp(-0.001 * 2_303) < 0.1 < math.exp(-0.001 * 2_300)


def test_k1_in_the_loss_has_a_gradient_if_it_is_averaged_over_each_answer():
    """Front page, section 11.4: the sum over an answer has none; an answer ends with chance 1/3."""
    theta = torch.tensor(math.log(2.0), dtype=DOUBLE, requires_grad=True)
    go, end = torch.nn.functional.logsigmoid(theta), torch.nn.functional.logsigmoid(-theta)
    answers = [(1, end), (2, go + end), (3, 3 * go)]  # length, log π; the reference is a constant
    chance = [log_prob.detach().exp() for _, log_prob in answers]
    for mean in (False, True):
        loss = sum(
            p * log_prob / (length if mean else 1)
            for p, (length, log_prob) in zip(chance, answers, strict=True)
        )
        (slope,) = torch.autograd.grad(loss, theta, retain_graph=True)
        assert (abs(slope.item()) > 0.1) == mean


def test_a_log_of_fresh_samples_is_the_kl_and_one_of_the_batch_learned_from_is_not():
    """Front page, section 6.2: two arms, a batch of one, a step towards the arm that was drawn."""
    old = torch.tensor([0.5, 0.5], dtype=DOUBLE)
    new = torch.tensor([0.6, 0.4], dtype=DOUBLE)  # after the first arm; after the other, mirrored
    k1 = (old / new).log()
    kl = (old @ k1).item()  # fresh samples of the old policy: unbiased
    assert kl > 0.02
    assert k1[0].item() < 0  # on the very sample that was learned from, in every batch


def test_a_group_without_spread_still_moves_by_a_kl_in_the_loss():
    """Glossary, section 15.10: no gradient comes from the rewards."""
    theta = torch.tensor([1.0, 0.0], dtype=DOUBLE, requires_grad=True)
    log_pi = theta.log_softmax(dim=0)
    advantages = torch.zeros(4, dtype=DOUBLE)  # of four equal rewards, to the first answer
    from_rewards = (advantages * log_pi[0]).sum()
    from_kl = (log_pi.exp() * (log_pi - math.log(0.5))).sum()
    for loss, moves in ((from_rewards, False), (from_kl, True)):
        (slope,) = torch.autograd.grad(loss, theta, retain_graph=True)
        assert (slope.abs().max().item() > 0) == moves


def test_seven_of_twelve_libraries_do_nothing_about_another_sampler():
    """Appendix K.3, by its own table: TRL's two trainers are one library."""
    rows = {row.name: row.said("mismatch") for row in libraries.read()}
    off = [name for name, said in rows.items() if said.startswith("off")]
    assert len({name.partition(",")[0] for name in rows}) == 12
    assert len(off) == 7
    assert rows["TRL, GRPO"].startswith("on")


def test_the_exam_of_the_tiny_model_sees_its_gain_in_four_of_five_cases():
    """Section J.6: 1.3 points, by the verdicts of its record."""
    file = records.RUNS / "gsm8k-tiny-grpo-seed0" / "evaluation-gsm8k-test.json"
    result = records.read_json(file)
    before, after = (
        torch.tensor([float(digit) for digit in result[when]["verdicts"]["strict"]])
        for when in ("before", "after")
    )
    error = ((after - before).std() / len(before) ** 0.5).item()
    power = torch.distributions.Normal(0, 1).cdf(torch.tensor(0.013 / error - 1.96)).item()
    assert 0.77 < power < 0.8


def test_what_the_gate_let_through_did_not_always_gain():
    """Section 17.4: mixed groups are needed, and do not suffice."""
    runs = records.read_results(records.RUNS / "gate-on-records")
    passed = [run for run in runs if run["verdict"] == "train"]
    assert (len(passed), sum(run["gained"] for run in passed)) == (40, 25)


def test_what_published_tools_name_in_runs_this_short():
    """Section 16.10: of 126 broken runs."""
    scores = records.read_json(records.RUNS / "silent-failures-peers" / "score.json")
    named = {tool: score["named"]["count"] for tool, score in scores.items()}
    assert named == {"rlprobe": 0, "rlprobe, floor of 20 steps": 9, "rl-doctor": 13}


@pytest.mark.parametrize("space", [[3, 3, None], [3, 4, 0]])
def test_a_frozen_penalty_is_not_far_off_at_sixteen_updates_without_noise(space):
    """Section 12.3: one problem in each space; with batches of 256 it is."""
    runs = records.read_results(records.RUNS / "kl-sequences")

    def left(form, seed):
        (run,) = (
            run
            for run in runs
            if (run["space"], run["problem"], run["form"]) == (space, 0, form)
            and (run["inner_steps"], run["seed"]) == (16, seed)
        )
        return run["distance"][-1]

    frozen, recomputed = "k1 in reward", "k1 in reward, recomputed"
    assert left(frozen, None) < 1.3 * left(recomputed, None)
    noisy = [left(frozen, seed) for seed in range(5)]
    assert all(far > 100 * left(recomputed, seed) for seed, far in enumerate(noisy))
    if space == [3, 3, None]:  # the one that is drawn: 2 on average, and not with every seed
        assert 0.8 < min(noisy) < 1.5 < 2.5 < max(noisy)


def test_k3_with_the_policies_exchanged_still_holds_the_policy_back():
    """Section 16.6: its gradient is that of half a χ²; k1 exchanged pays for leaving."""
    reference = torch.tensor([0.5, 0.5], dtype=DOUBLE)
    theta = torch.tensor([1.0, 0.0], dtype=DOUBLE, requires_grad=True)
    log_pi = theta.log_softmax(dim=0)
    d, fresh = log_pi - reference.log(), log_pi.exp().detach()
    chi2 = (log_pi.exp().square() / reference).sum() - 1
    (half,) = torch.autograd.grad(chi2 / 2, theta, retain_graph=True)
    (k3,) = torch.autograd.grad(fresh @ (d.exp() - 1 - d), theta, retain_graph=True)
    torch.testing.assert_close(k3, half)
    assert k3[0] > 0  # descending it makes the likelier answer less likely
    kl = (log_pi.exp() * d).sum()
    (away,) = torch.autograd.grad((fresh * -d.detach() * log_pi).sum(), theta, retain_graph=True)
    torch.testing.assert_close(-away, torch.autograd.grad(kl, theta)[0])


def test_k2_of_the_whole_answer_in_the_loss_leaves_little_noise_of_the_reward():
    """Section 12.3: at π* for a large β; the exact divergence of a token leaves all of it."""
    r, beta = torch.tensor([0.0, 1.0], dtype=DOUBLE), 4.0
    pi = (r / beta).softmax(dim=0)
    d, score = (2 * pi).log(), torch.eye(2, dtype=DOUBLE) - pi
    rewards = (r - pi @ r)[:, None] * score
    left = {
        "k2": rewards - beta * d[:, None] * score,  # its derivative is d times the score
        "exact": rewards - beta * pi @ (d[:, None] * score),
    }
    share = {form: variance(pi, each) / variance(pi, rewards) for form, each in left.items()}
    assert share["k2"] < 0.1
    assert share["exact"] == pytest.approx(1)


def test_the_last_line_won_no_set_of_questions():
    """Section 17.3: its 22.7 points are 305 right in another form before, less 6 after."""
    exam = records.read_json(
        records.RUNS / "gsm8k-qwen2.5-coder-0.5b-h200" / "evaluation-gsm8k-test.json"
    )
    other = [
        exam[when]["lenient"]["count"] - exam[when]["strict"]["count"]
        for when in ("before", "after")
    ]
    assert other == [305, 6]
    assert (other[0] - other[1]) / exam["problems"] == pytest.approx(0.227, abs=5e-4)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("\\boxed{x}. So 18", 18),  # no digits in the box: the next rule may look
        ("The answer is seven. 18 eggs", 18),
        ("\\boxed{17 or 18}. So 20", None),  # digits, and not one number: nothing rescues it
        ("The answer is 17 or 18. So 20", None),
        ("#### Step 1\nThe answer is 18", 18),  # a heading
        ("\\boxed{17} The final answer is 18", 18),
    ],
)
def test_the_first_lenient_rule_that_finds_digits_decides(text, read):
    """Section 13.4, and its two exceptions."""
    assert answers.extract(text, strict=False) == read


def test_questions_of_gsm8k_take_two_to_eleven_steps():
    facts = records.read_json(records.RUNS / "gsm8k-census" / "census.json")["facts"]
    steps = {int(n) for split in ("train", "test") for n in facts[split]["steps"]}
    assert (min(steps), max(steps)) == (2, 11)


def test_a_frozen_kl_under_token_weights_is_no_difference_of_two_gradients():
    """Section C.7: ∇KL(π‖ref) − ∇KL(π‖old) takes the ratio of the whole answer."""
    source = torch.Generator().manual_seed(0)
    old, ref = (torch.randn(4, 3, generator=source, dtype=DOUBLE).log_softmax(1) for _ in range(2))
    theta = torch.randn(4, 3, generator=source, dtype=DOUBLE, requires_grad=True)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))  # answers of two tokens

    def tokens(table):  # the second token's row depends on the first token
        return torch.stack([table[0, pairs[:, 0]], table[1 + pairs[:, 0], pairs[:, 1]]], dim=1)

    def gradient(value):
        return torch.autograd.grad(value, theta, retain_graph=True)[0]

    log_pi, log_old, log_ref = tokens(theta.log_softmax(1)), tokens(old), tokens(ref)
    frozen, chance = (log_old - log_ref).sum(1), log_old.sum(1).exp()
    kl = {
        name: (log_pi.sum(1).exp() * (log_pi - other).sum(1)).sum()
        for name, other in (("ref", log_ref), ("old", log_old))
    }
    told = gradient(kl["ref"]) - gradient(kl["old"])
    ratio = (log_pi - log_old).exp()
    torch.testing.assert_close(gradient((chance * ratio.prod(1) * frozen).sum()), told)
    by_token = gradient((chance[:, None] * ratio * frozen[:, None]).sum())
    assert (by_token - told).norm() > 0.1 * told.norm()


# What chapters work out by hand, in words of theirs and as Python does it.
BY_HAND = {
    "04-agent": [
        (r"then $1+\tfrac12\cdot1=1\tfrac12$, then $1+\tfrac12\cdot1\tfrac12=1\tfrac34$", 1.75),
    ],
    "06-ppo-in-practice": [
        ("$k_1=-1.10$", -math.log(3)),
        ("$k_3=0.90$", 3 - 1 - math.log(3)),
    ],
    "08-rlhf": [
        (r"$A_1 = 0.07 + 0.95\cdot0.41 = 0.46$", 0.07 + 0.95 * (0.23 + 0.95 * 0.19)),
        (r"$0.95\cdot1 + 0.05\cdot0.3 - 0.01 - 0.8 = 0.155$", 0.95 + 0.05 * 0.3 - 0.01 - 0.8),
    ],
    "09-reward-models": [
        ("the better one gets 73 %", 100 / (1 + math.exp(-1))),
        ("it gets 97 %", 100 / (1 + math.exp(-1 / 0.3))),
        ("$(0.378-0.731)/3=-0.118$", (0.378 - 0.731) / 3),
    ],
    "14-measuring": [(r"$1-\tfrac34\cdot\tfrac34=0.44$", 1 - 0.75 * 0.75)],
    "15-gpu-runs": [
        (r"$494\cdot10^6\cdot20$ bytes are 9.9 GB", 494e6 * 20 / 1e9),
        (
            "Around 0.02 the numbers of bfloat16 are 0.00012",
            2.0**-6 * torch.finfo(torch.bfloat16).eps,
        ),
    ],
}


@pytest.mark.parametrize("chapter", BY_HAND)
def test_a_number_worked_out_in_words_is_right_to_its_last_digit(chapter):
    text = chapters.text_of(chapters.find(chapter)).read_text(encoding="utf-8")
    for words, number in BY_HAND[chapter]:
        assert words in text
        told = words.replace(r"1\tfrac34", "1.75")
        printed = re.findall(r"-?\d+(?:\.\d+)?", told)[-1]
        decimals = len(printed.partition(".")[2])
        assert float(printed) == pytest.approx(number, abs=0.5001 * 10**-decimals)
