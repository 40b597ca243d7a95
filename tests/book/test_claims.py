"""Sentences of the chapters, each in a world in which the stronger sentence that it replaced fails.

Every world is small enough to be summed by hand; the sums are written out, without the package.
"""

import itertools
import math

import pytest
import torch

DOUBLE = torch.float64


def variance(probs, estimates):
    """Of rows of estimates, summed over the columns."""
    mean = probs @ estimates
    return (probs @ (estimates - mean).square().sum(dim=1)).item()


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


@pytest.mark.parametrize("seed", range(20))
def test_a_samplers_own_tokens_do_not_score_below_chance(seed):
    """Section 7.3: E log π ≥ −log V, whatever the policy; shifted log-probs have no such floor."""
    logits = 5 * torch.randn(17, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    pi = logits.softmax(dim=0)
    assert (pi @ pi.log()).item() >= -math.log(17)


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
