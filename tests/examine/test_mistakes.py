"""Losses with one planted mistake each, and what they are called; right ones beside them."""

import math

import pytest
import torch

from nbcourse.examine import examine
from nbcourse.functional.advantages import group_relative, leave_one_out


def ratio_of(log_probs, old_log_probs):
    return (log_probs - old_log_probs.detach()).exp()


def clipped(ratio, advantages, low=0.8, high=1.2):
    return -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)


def token_mean(losses, mask):
    return losses.masked_fill(~mask, 0.0).sum() / mask.sum()


def mean_of_sums(losses, mask):
    return losses.masked_fill(~mask, 0.0).sum(dim=1).mean()


def mean_of_means(losses, mask):
    return (losses.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1)).mean()


def safe(ratio_or_d, mask):
    return ratio_or_d.masked_fill(~mask, 0.0)


def advantages_of(rewards, group_size, mask):
    return leave_one_out(rewards, group_size=group_size)[:, None].expand(mask.shape)


# ---------------------------------------------------------------- right, in several ways


def reinforce_one(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages, mask)


def reinforce_two(log_probs, advantages, mask):
    """Another order of summation, and the mean by hand."""
    total = log_probs.new_zeros(())
    for row in range(len(mask)):
        total = total - (log_probs[row] * advantages[row])[mask[row]].sum()
    return total / len(mask)


def rloo_of_sequences(log_probs, rewards, mask, group_size):
    sequence = log_probs.masked_fill(~mask, 0.0).sum(dim=1)
    return -(leave_one_out(rewards, group_size=group_size) * sequence).mean()


def rloo_by_hand(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
    sequence = log_probs.masked_fill(~mask, 0.0).sum(dim=1)
    return -((groups - others).view(-1) * sequence).mean()


def per_token(log_probs, advantages, mask):
    """Losses of tokens instead of a scalar."""
    return -log_probs * advantages


def ppo(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def ppo_max_of_losses(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    losses = torch.max(-ratio * advantages, -ratio.clamp(0.8, 1.2) * advantages)
    return mean_of_sums(losses, mask)


@pytest.mark.parametrize(
    "loss",
    [
        reinforce_one,
        reinforce_two,
        rloo_of_sequences,
        rloo_by_hand,
        per_token,
        ppo,
        ppo_max_of_losses,
    ],
)
def test_a_right_loss_is_exact_and_not_accused(loss):
    report = examine(loss)
    assert report.facts.fresh.verdict == "exact"
    assert not [f for f in report.findings if f.kind == "mistake"], str(report)


# ---------------------------------------------------------------- one mistake each

PLANTED = {}


def planted(code):
    def keep(loss):
        assert loss.__name__ not in PLANTED
        PLANTED[loss.__name__] = (loss, code)
        return loss

    return keep


@planted("sign")
def minus_forgotten(log_probs, advantages, mask):
    return mean_of_sums(log_probs * advantages, mask)


@planted("sign")
def minus_forgotten_in_a_ratio(log_probs, old_log_probs, advantages, mask):
    return -mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


@planted("no-signal")
def advantages_forgotten(log_probs, advantages, mask):
    return mean_of_sums(-log_probs, mask)


@planted("no-signal")
def everything_detached(log_probs, advantages, mask):
    return mean_of_sums(-log_probs.detach() * advantages, mask) + 0 * log_probs.sum()


@planted("layout")
def groups_across_prompts(log_probs, rewards, mask, group_size):
    groups = rewards.view(group_size, -1).T
    advantages = (groups - groups.mean(dim=1, keepdim=True)).T.reshape(-1)
    return mean_of_sums(-log_probs * advantages[:, None], mask)


@planted("flat-nan")
def spread_without_eps(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    advantages = (centred / groups.std(dim=1, keepdim=True)).view(-1, 1)
    return mean_of_sums(-log_probs * advantages, mask)


@planted("padding-counts")
def mean_over_the_tensor(log_probs, advantages, mask):
    return (-log_probs * advantages).masked_fill(~mask, 0.0).mean()


@planted("padding-counts")
def width_in_the_denominator(log_probs, advantages, mask):
    return (-log_probs * advantages).masked_fill(~mask, 0.0).sum() / mask.shape[1]


@planted("padding-trained")
def no_mask(log_probs, rewards, group_size):
    return -(log_probs.sum(dim=1) * leave_one_out(rewards, group_size=group_size)).mean()


@planted("padding-read")
def mean_ratio_with_the_padding(log_probs, old_log_probs, rewards, mask, group_size):
    sequence = (log_probs - old_log_probs.detach() + log_probs.detach() * 0.1).mean(dim=1).exp()
    return -(sequence * leave_one_out(rewards, group_size=group_size)).mean()


@planted("eos-untrained")
def end_masked_away(log_probs, advantages, mask):
    last = mask.sum(dim=1, keepdim=True) - 1
    without = mask & (torch.arange(mask.shape[1]) < last)
    return mean_of_sums(-log_probs * advantages, without)


@planted("tokens-untrained")
def first_token_dropped(log_probs, advantages, mask):
    return mean_of_sums((-log_probs * advantages)[:, 1:], mask[:, 1:])


@planted("ratio-inverted")
def old_over_new(log_probs, old_log_probs, advantages, mask):
    ratio = (old_log_probs.detach() - log_probs).exp()
    return mean_of_sums(clipped(ratio, advantages), mask)


@planted("no-ratio")
def logarithms_divided(log_probs, old_log_probs, advantages, mask):
    ratio = log_probs / old_log_probs.masked_fill(~mask, 1.0)
    return mean_of_sums(clipped(ratio, advantages), mask)


@planted("clip-maximum")
def maximum_of_objectives(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    plain, other = ratio * advantages, ratio.clamp(0.8, 1.2) * advantages
    losses = -torch.where(advantages > 0, torch.min(plain, other), torch.max(plain, other))
    return mean_of_sums(losses, mask)


@planted("clip-without-min")
def clipped_always(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-ratio.clamp(0.8, 1.2) * advantages, mask)


@planted("clip-wrong-side")
def minimum_of_losses(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    losses = torch.min(-ratio * advantages, -ratio.clamp(0.8, 1.2) * advantages)
    return mean_of_sums(losses, mask)


def with_kl(log_probs, advantages, mask, kl):
    return mean_of_sums(-log_probs * advantages + 0.1 * kl, mask)


@planted("kl-without-gradient")
def k1_in_the_loss(log_probs, ref_log_probs, advantages, mask):
    return with_kl(log_probs, advantages, mask, log_probs - ref_log_probs.detach())


@planted("kl-without-gradient")
def detached_kl(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs, mask).detach()
    return with_kl(log_probs, advantages, mask, torch.expm1(-d) + d)


@planted("reference-ignored")
def kl_forgotten(log_probs, ref_log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages, mask)


@planted("kl-sign")
def k3_subtracted(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, -(torch.expm1(-d) + d))


@planted("kl-sign")
def kl_paid_out(log_probs, ref_log_probs, rewards, mask, group_size):
    paid = rewards + 0.1 * safe(log_probs - ref_log_probs, mask).detach().sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(paid, group_size, mask), mask)


@planted("k3-inverted")
def k3_upside_down(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, torch.expm1(d) - d)


@planted("kl-estimator-in-reward")
def k3_in_the_reward(log_probs, ref_log_probs, rewards, mask, group_size):
    d = safe(log_probs - ref_log_probs, mask).detach()
    paid = rewards - 0.1 * (torch.expm1(-d) + d).sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(paid, group_size, mask), mask)


@planted("kl-estimator-in-reward")
def k2_in_the_reward(log_probs, ref_log_probs, rewards, mask, group_size):
    d = safe(log_probs - ref_log_probs, mask).detach()
    paid = rewards - 0.1 * (d.square() / 2).sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(paid, group_size, mask), mask)


@planted("in-place")
def rewards_centred_in_place(log_probs, rewards, mask, group_size):
    rewards -= rewards.view(-1, group_size).mean(dim=1).repeat_interleave(group_size)
    return mean_of_sums(-log_probs * rewards[:, None], mask)


@planted("overflow")
def product_of_ratios(log_probs, old_log_probs, rewards, mask, group_size):
    sequence = safe(log_probs - old_log_probs.detach(), mask).sum(dim=1).exp()
    return -(sequence * leave_one_out(rewards, group_size=group_size)).mean()


@planted("order")
def the_first_as_baseline(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    advantages = (groups - groups[:, :1]).view(-1, 1)
    return mean_of_sums(-log_probs * advantages, mask)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named(name):
    loss, code = PLANTED[name]
    report = examine(loss)
    assert code in [f.code for f in report.findings if f.kind == "mistake"], str(report)


# ---------------------------------------------------------------- choices that are no mistakes


def grpo(log_probs, old_log_probs, rewards, mask, group_size):
    advantages = group_relative(rewards, group_size=group_size)[:, None]
    return mean_of_means(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def token_level(log_probs, old_log_probs, advantages, mask):
    return token_mean(clipped(ratio_of(log_probs, old_log_probs), advantages, high=1.28), mask)


def mean_baseline(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    advantages = (groups - groups.mean(dim=1, keepdim=True)).view(-1, 1)
    return mean_of_sums(-log_probs * advantages, mask)


def no_baseline(log_probs, rewards, mask):
    return mean_of_sums(-log_probs * rewards[:, None], mask)


def k2_in_the_loss(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, d.square() / 2)


def k3_in_the_loss(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, torch.expm1(-d) + d)


def dual_clip(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    objective = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    bounded = torch.where(advantages < 0, torch.max(objective, 3 * advantages), objective)
    return mean_of_sums(-bounded, mask)


@pytest.mark.parametrize(
    ("loss", "codes"),
    [
        (grpo, {"spread-divided", "seq-mean-token-mean"}),
        (token_level, {"token-mean", "clip-asymmetric"}),
        (mean_baseline, {"own-reward-in-baseline"}),
        (no_baseline, {"no-baseline"}),
        (k2_in_the_loss, {"kl-token"}),
        (k3_in_the_loss, {"kl-forward"}),
        (dual_clip, {"dual-clip"}),
    ],
)
def test_a_choice_is_named_and_not_accused(loss, codes):
    report = examine(loss)
    assert not [f.code for f in report.findings if f.kind == "mistake"], str(report)
    assert {f.code for f in report.findings if f.kind == "choice"} == codes


def test_the_numbers_are_those_of_the_book():
    """Leave-one-out beside the group's mean: (G − 1)/G; a fair coin with G = 2 counts a half."""
    report = examine(mean_baseline)
    assert report.facts.fresh.verdict == "proportional"
    assert report.facts.fresh.factors == pytest.approx({2: 1 / 2, 3: 2 / 3, 4: 3 / 4})
    assert examine(k2_in_the_loss).facts.descent.beta == pytest.approx(0.1)
    assert examine(ppo).facts.clip.bounds == pytest.approx((0.8, 1.2), abs=1e-4)
    assert math.isinf(examine(reinforce_one).facts.clip.bounds[1])
