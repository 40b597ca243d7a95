"""Losses without a mistake: equal formulas written differently, and choices that go by a name."""

import math

import pytest
import torch
from torch.nn.functional import relu

from nbcourse.functional.advantages import group_relative, leave_one_out
from tests.effort import swept
from tests.examine.parts import (
    advantages_of,
    centred,
    clipped,
    codes,
    k3,
    mean_of_means,
    mean_of_sums,
    mistakes,
    ratio_of,
    report_of,
    safe,
    says_what_is_written,
    token_mean,
    with_kl,
)

# ---------------------------------------------------------------- exact, in several ways


def reinforce_one(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages, mask)


def reinforce_two(log_probs, advantages, mask):
    """Another order of summation, and the mean by hand."""
    total = log_probs.new_zeros(())
    for row in range(len(mask)):
        total = total - (log_probs[row] * advantages[row])[mask[row]].sum()
    return total / len(mask)


def reinforce_three(log_probs, advantages, mask):
    return -torch.einsum("bt,bt,bt->", log_probs, advantages, mask.to(log_probs.dtype)) / len(mask)


def reinforce_four(log_probs, advantages, mask):
    return -torch.dot(log_probs[mask], advantages[mask]) / len(mask)


def score_with_a_ratio_of_one(log_probs, advantages, mask):
    """π over itself, detached: its value is 1 and its gradient ∇log π."""
    return mean_of_sums(-(log_probs - log_probs.detach()).exp() * advantages, mask)


def probability_over_itself(log_probs, advantages, mask):
    probs = log_probs.exp()
    return mean_of_sums(-probs / probs.detach() * advantages, mask)


def wide_clip(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    pushed = torch.minimum(ratio * advantages, ratio.clamp(0.03, 40.0) * advantages)
    return mean_of_sums(-pushed, mask)


def no_number_off_policy(log_probs, old_log_probs, advantages, mask):
    """The root of how far a token has fallen, which is that of a negative number if it rises."""
    fallen = (old_log_probs - log_probs).detach()
    return mean_of_sums(-advantages * log_probs * torch.exp(-fallen.sqrt()), mask)


def good_and_bad_apart(log_probs, advantages, mask):
    good, bad = relu(advantages), relu(-advantages)
    return mean_of_sums(-log_probs * good, mask) + mean_of_sums(log_probs * bad, mask)


def with_a_value_added(log_probs, advantages, mask):
    """A constant changes no gradient."""
    return mean_of_sums(-log_probs * advantages, mask) + 3.0 + advantages.square().sum()


def per_token(log_probs, advantages, mask):
    """Losses of tokens instead of a scalar."""
    return -log_probs * advantages


def loss_and_metrics(log_probs, advantages, mask):
    loss = mean_of_sums(-log_probs * advantages, mask)
    return loss, {"loss": loss.item()}


def in_float32(log_probs, advantages, mask):
    return mean_of_sums(-log_probs.float() * advantages.float(), mask)


def rloo_of_sequences(log_probs, rewards, mask, group_size):
    sequence = log_probs.masked_fill(~mask, 0.0).sum(dim=1)
    return -(leave_one_out(rewards, group_size=group_size) * sequence).mean()


def rloo_by_hand(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
    sequence = log_probs.masked_fill(~mask, 0.0).sum(dim=1)
    return -((groups - others).view(-1) * sequence).mean()


def rloo_from_the_mean(log_probs, rewards, mask, group_size):
    """G/(G − 1) times the distance from the mean of all."""
    advantages = centred(rewards, group_size) * group_size / (group_size - 1)
    return mean_of_sums(-log_probs * advantages.view(-1, 1), mask)


def rloo_by_pairs(log_probs, rewards, mask, group_size):
    """Every response against every other one of its group."""
    sequence = safe(log_probs, mask).sum(dim=1).view(-1, group_size)
    groups = rewards.view(-1, group_size)
    better = groups[:, :, None] - groups[:, None, :]
    ahead = sequence[:, :, None] - sequence[:, None, :]
    return -(better * ahead).sum() / (2 * (group_size - 1) * len(mask))


def ppo(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def ppo_max_of_losses(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    losses = torch.max(-ratio * advantages, -ratio.clamp(0.8, 1.2) * advantages)
    return mean_of_sums(losses, mask)


def ppo_by_cases(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    good, bad = ratio.clamp(max=1.2) * advantages, ratio.clamp(min=0.8) * advantages
    return mean_of_sums(-torch.where(advantages > 0, good, bad), mask)


def ppo_as_openai_wrote_it(log_probs, old_log_probs, advantages, mask):
    """The bound (1 ± ε)A computed beforehand, as in Spinning Up's g(ε, A)."""
    bound = torch.where(advantages > 0, 1.2 * advantages, 0.8 * advantages)
    return mean_of_sums(-torch.min(ratio_of(log_probs, old_log_probs) * advantages, bound), mask)


def ppo_by_a_mask(log_probs, old_log_probs, advantages, mask):
    """The clip as a weight: tokens whose clipped branch is active are left out."""
    ratio = ratio_of(log_probs, old_log_probs)
    out = ((advantages > 0) & (ratio > 1.2)) | ((advantages < 0) & (ratio < 0.8))
    return mean_of_sums(-(ratio * advantages).masked_fill(out, 0.0), mask)


def ppo_with_its_ratio_detached(log_probs, old_log_probs, advantages, mask):
    """∇ρ = ρ ∇log π."""
    ratio = ratio_of(log_probs, old_log_probs).detach()
    out = ((advantages > 0) & (ratio > 1.2)) | ((advantages < 0) & (ratio < 0.8))
    return mean_of_sums(-(ratio * advantages * log_probs).masked_fill(out, 0.0), mask)


def k1_in_the_reward(log_probs, ref_log_probs, rewards, mask, group_size):
    paid = rewards - 0.1 * safe(log_probs - ref_log_probs, mask).detach().sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(paid, group_size, mask), mask)


def k1_to_go(log_probs, ref_log_probs, advantages, mask):
    """A token is charged for itself and for what follows."""
    d = safe(log_probs - ref_log_probs, mask).detach()
    to_go = d.flip(1).cumsum(1).flip(1)
    return mean_of_sums(-log_probs * (advantages - 0.1 * to_go), mask)


def k2_of_the_sequence(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask).sum(dim=1)
    return mean_of_sums(-log_probs * advantages, mask) + 0.1 * (d.square() / 2).mean()


def k1_with_its_prefix(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    prefix = safe(log_probs - old_log_probs.detach(), mask).cumsum(dim=1).clamp(max=50.0).exp()
    policy = ratio_of(log_probs, old_log_probs) * -advantages
    return mean_of_sums(policy + 0.1 * prefix * d, mask)


EXACT = [
    reinforce_one,
    reinforce_two,
    reinforce_three,
    reinforce_four,
    score_with_a_ratio_of_one,
    probability_over_itself,
    good_and_bad_apart,
    with_a_value_added,
    per_token,
    loss_and_metrics,
    in_float32,
    rloo_of_sequences,
    rloo_by_hand,
    rloo_from_the_mean,
    rloo_by_pairs,
    ppo,
    ppo_max_of_losses,
    ppo_by_cases,
    ppo_as_openai_wrote_it,
    ppo_by_a_mask,
    ppo_with_its_ratio_detached,
]
WITH_KL = [k1_in_the_reward, k1_to_go, k2_of_the_sequence, k1_with_its_prefix]
# what it returns, in which precision, what it detaches, of what it is made, what it clips and how
OF_EACH_KIND = [
    reinforce_one,
    score_with_a_ratio_of_one,
    with_a_value_added,
    per_token,
    loss_and_metrics,
    in_float32,
    rloo_by_pairs,
    ppo,
    ppo_by_a_mask,
    *WITH_KL,
]


@pytest.mark.parametrize("loss", swept([*EXACT, *WITH_KL], keep=OF_EACH_KIND))
def test_a_right_loss_is_exact_and_not_accused(loss):
    report = report_of(loss)
    assert report.facts.fresh.verdict == "exact"
    assert not mistakes(report), str(report)
    assert not codes(report, "choice"), str(report)
    assert says_what_is_written(report), str(report)


@pytest.mark.parametrize("loss", WITH_KL)
def test_a_right_kl_descends_the_reverse_one(loss):
    descent = report_of(loss).facts.descent
    assert descent.descends == "reverse"
    assert descent.beta == pytest.approx(0.1)


def test_only_a_weighted_kl_stays_right_on_stale_samples():
    exact = {loss.__name__: report_of(loss).as_dict()["kl"]["stale_exact"] for loss in WITH_KL}
    assert exact == {loss.__name__: loss is k1_with_its_prefix for loss in WITH_KL}


# ---------------------------------------------------------------- choices


def grpo(log_probs, old_log_probs, rewards, mask, group_size):
    advantages = group_relative(rewards, group_size=group_size)[:, None]
    return mean_of_means(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def grpo_by_hand(log_probs, old_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    scaled = centred(rewards, group_size) / (groups.std(dim=1, keepdim=True) + 1e-4)
    ratio = ratio_of(log_probs, old_log_probs)
    losses = safe(clipped(ratio, scaled.view(-1, 1)), mask)
    return sum(row.sum() / own.sum() for row, own in zip(losses, mask, strict=True)) / len(mask)


def token_level(log_probs, old_log_probs, advantages, mask):
    return token_mean(clipped(ratio_of(log_probs, old_log_probs), advantages, high=1.28), mask)


def mean_baseline(log_probs, rewards, mask, group_size):
    return mean_of_sums(-log_probs * centred(rewards, group_size).view(-1, 1), mask)


def no_baseline(log_probs, rewards, mask):
    return mean_of_sums(-log_probs * rewards[:, None], mask)


def whitened(log_probs, rewards, mask):
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    return mean_of_sums(-log_probs * advantages[:, None], mask)


def k2_in_the_loss(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, d.square() / 2)


def k3_in_the_loss(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, k3(d))


def k3_with_a_weight_for_each_token(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    ratio = safe(ratio_of(log_probs, old_log_probs), mask)
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return mean_of_sums(-ratio * advantages + 0.1 * ratio * k3(d), mask)


def kl_before_the_division(log_probs, ref_log_probs, rewards, mask, group_size):
    paid = rewards - 0.1 * safe(log_probs - ref_log_probs, mask).detach().sum(dim=1)
    advantages = group_relative(paid, group_size=group_size)
    return mean_of_sums(-log_probs * advantages[:, None], mask)


def dual_clip(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    objective = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    bounded = torch.where(advantages < 0, torch.max(objective, 3 * advantages), objective)
    return mean_of_sums(-bounded, mask)


def capped(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach().clamp(max=5.0)
    return mean_of_sums(-weight * advantages * log_probs, mask)


def ratio_of_the_response(log_probs, old_log_probs, advantages, mask):
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratio = (safe(log_probs - old_log_probs.detach(), mask).sum(1, True) / lengths).exp()
    return mean_of_means(clipped(ratio, advantages).expand(mask.shape), mask)


def only_good_answers(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages.clamp(min=0), mask)


def discounted(log_probs, advantages, mask):
    to_come = mask.flip(1).cumsum(1).flip(1) - 1
    return mean_of_sums(-log_probs * advantages * 0.9**to_come, mask)


CHOICES = {
    grpo: {"spread-divided", "seq-mean-token-mean"},
    grpo_by_hand: {"spread-divided", "seq-mean-token-mean"},
    token_level: {"token-mean", "clip-asymmetric"},
    mean_baseline: {"own-reward-in-baseline"},
    no_baseline: {"missing-baseline"},
    whitened: {"batch-baseline", "spread-divided"},
    k2_in_the_loss: {"kl-token"},
    k3_in_the_loss: {"kl-forward"},
    k3_with_a_weight_for_each_token: {"kl-token"},
    kl_before_the_division: {"spread-divided", "kl-divided-by-spread"},
    dual_clip: {"dual-clip"},
    capped: {"ratio-capped"},
    ratio_of_the_response: {"sequence-ratio", "seq-mean-token-mean"},
    only_good_answers: {"good-only"},
    discounted: {"discounted"},
}


AGAIN = {grpo_by_hand, k3_with_a_weight_for_each_token}  # what other losses are called, too


@pytest.mark.parametrize("loss", swept(CHOICES, keep=CHOICES.keys() - AGAIN))
def test_a_choice_is_named_and_not_accused(loss):
    report = report_of(loss)
    assert not mistakes(report), str(report)
    assert codes(report, "choice") == CHOICES[loss]
    assert says_what_is_written(report), str(report)


def test_the_numbers_are_those_of_the_book():
    """Leave-one-out beside the group's mean: (G − 1)/G; a fair coin with G = 2 counts a half."""
    report = report_of(mean_baseline)
    assert report.facts.fresh.verdict == "proportional"
    assert report.facts.fresh.factors == pytest.approx({2: 1 / 2, 3: 2 / 3, 4: 3 / 4})
    assert report_of(k2_in_the_loss).facts.descent.beta == pytest.approx(0.1)
    assert report_of(ppo).facts.clip.bounds == pytest.approx((0.8, 1.2), abs=1e-4)
    assert math.isinf(report_of(reinforce_one).facts.clip.bounds[1])
    assert report_of(wide_clip).facts.clip.bounds == pytest.approx((0.03, 40), rel=1e-3)


def test_a_step_that_is_no_number_on_stale_samples_alone_is_told_so():
    said = report_of(no_number_off_policy).verdict()
    assert said[:2] == [
        "On fresh samples its expected step is ∇J, exactly, in every world that was listed.",
        "On stale samples it is not a number: some batch gives NaN.",
    ]
    assert "cannot be said" in said[2]
