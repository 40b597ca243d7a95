"""Losses with one planted mistake each, and what they are called.

Among them is every mistake that the appendix "Found in the wild" and the threads of other projects
know of and that a loss function can make.
"""

import pytest
import torch

from nbcourse.functional.advantages import leave_one_out
from nbcourse.mistakes.catalogue import current
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
    with_kl,
)

PLANTED = {}


def planted(*names, besides=()):
    """A loss that makes the mistake of the first name, and those of the others with it.

    Args:
        names: codes of findings.
        besides: codes of what follows from it and may be said, too.
    """

    def keep(loss):
        assert loss.__name__ not in PLANTED
        PLANTED[loss.__name__] = (loss, {*names}, {*besides})
        return loss

    return keep


@planted("flipped-loss")
def minus_forgotten(log_probs, advantages, mask):
    return mean_of_sums(log_probs * advantages, mask)


@planted("flipped-loss")
def minus_forgotten_in_a_ratio(log_probs, old_log_probs, advantages, mask):
    return -mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


@planted("rewards-ignored", "term-without-gradient")
def advantages_forgotten(log_probs, advantages, mask):
    return mean_of_sums(-log_probs, mask)


@planted("rewards-ignored")
def everything_detached(log_probs, advantages, mask):
    return mean_of_sums(-log_probs.detach() * advantages, mask) + 0 * log_probs.sum()


@planted("mixed-groups")
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


@planted("flat-nan")
def mean_of_right_answers_where_there_is_none(log_probs, advantages, rewards, mask):
    """The value is NaN, and the gradient is not."""
    likelihood = safe(log_probs, mask).sum(dim=1)[rewards > 0.5].mean()
    return mean_of_sums(-log_probs * advantages, mask) - 0.1 * likelihood


@planted("nobody-left-out")
def the_sum_of_all_for_that_of_others(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    baseline = groups.sum(dim=1, keepdim=True) / (group_size - 1)
    return mean_of_sums(-log_probs * (groups - baseline).view(-1, 1), mask)


@planted("nobody-left-out")
def the_sum_of_a_batch(log_probs, rewards, mask):
    baseline = rewards.sum() / (len(rewards) - 1)
    return mean_of_sums(-log_probs * (rewards - baseline)[:, None], mask)


@planted("padding-in-denominator")
def mean_over_the_tensor(log_probs, advantages, mask):
    return (-log_probs * advantages).masked_fill(~mask, 0.0).mean()


@planted("padding-in-denominator")
def width_in_the_denominator(log_probs, advantages, mask):
    return (-log_probs * advantages).masked_fill(~mask, 0.0).sum() / mask.shape[1]


@planted("trained-padding")
def kl_without_the_mask(log_probs, ref_log_probs, advantages, mask):
    kl = 0.1 * k3(log_probs - ref_log_probs)
    return mean_of_sums(-log_probs * advantages, mask) + kl.sum() / len(mask)


@planted("trained-padding")
def no_mask(log_probs, rewards, group_size):
    return -(log_probs.sum(dim=1) * leave_one_out(rewards, group_size=group_size)).mean()


@planted("padding-read", "trained-padding")
def sequence_ratio_without_the_mask(log_probs, old_log_probs, rewards, mask, group_size):
    ratio = ((log_probs - old_log_probs.detach()).sum(dim=1) / mask.sum(dim=1)).exp()
    return -(ratio * leave_one_out(rewards, group_size=group_size)).mean()


@planted("entropy-without-gradient")
def entropy_without_a_graph(log_probs, advantages, mask, entropy):
    return mean_of_sums(-log_probs * advantages - 0.01 * entropy.detach(), mask)


@planted("masked-eos")
def end_masked_away(log_probs, advantages, mask):
    last = mask.sum(dim=1, keepdim=True) - 1
    without = mask & (torch.arange(mask.shape[1]) < last)
    return mean_of_sums(-log_probs * advantages, without)


@planted("tokens-untrained")
def first_token_dropped(log_probs, advantages, mask):
    return mean_of_sums((-log_probs * advantages)[:, 1:], mask[:, 1:])


@planted("inverted-ratio", "flipped-loss")
def old_over_new(log_probs, old_log_probs, advantages, mask):
    ratio = (old_log_probs.detach() - log_probs).exp()
    return mean_of_sums(clipped(ratio, advantages), mask)


@planted("flipped-loss", "probability-weighted")
def logarithms_divided(log_probs, old_log_probs, advantages, mask):
    ratio = log_probs / old_log_probs.masked_fill(~mask, 1.0)
    return mean_of_sums(clipped(ratio, advantages), mask)


@planted("inverted-clip")
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


@planted("inverted-kl")
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


# ---------------------------------------------------------------- who learns from what


@planted("broadcast", besides=["rewards-ignored"])
def one_axis_too_many(log_probs, old_log_probs, advantages, mask):
    wide = -advantages.unsqueeze(1) * ratio_of(log_probs, old_log_probs)
    return (wide * mask).sum() / len(mask)


@planted("broadcast")
def a_column_against_a_row(log_probs, advantages, mask):
    sequence = safe(log_probs, mask).sum(dim=1)
    return -(sequence * advantages[:, :1]).mean()


def test_what_two_rules_see_is_told_once():
    found = report_of(a_column_against_a_row).findings
    assert [finding.id for finding in found].count("broadcast") == 1


@planted("alike")
def advantage_without_its_sign(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages.abs(), mask)


@planted("alike")
def squared_advantage(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages.square(), mask)


@planted("bad-only")
def only_bad_answers(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages.clamp(max=0), mask)


@planted("clip-when-fresh")
def log_ratio_clipped_around_one(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(log_probs - old_log_probs.detach(), advantages), mask)


@planted("clip-when-fresh")
def interval_around_zero(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages, -0.2, 0.2), mask)


@planted("probability-weighted")
def probability_for_its_logarithm(log_probs, advantages, mask):
    return mean_of_sums(-log_probs.exp() * advantages, mask)


@planted("probability-weighted")
def kl_in_the_reward_not_detached(log_probs, ref_log_probs, rewards, mask, group_size):
    paid = rewards - 0.1 * safe(log_probs - ref_log_probs, mask).sum(dim=1)
    return mean_of_sums(-log_probs * centred(paid, group_size).view(-1, 1), mask)


@planted("misaligned")
def old_log_probs_off_by_one(log_probs, old_log_probs, advantages, mask):
    shifted = torch.cat([old_log_probs[:, :1], old_log_probs[:, :-1]], dim=1)
    return mean_of_sums(ratio_of(log_probs, shifted) * -advantages, mask)


@planted("misaligned")
def reference_off_by_one(log_probs, ref_log_probs, advantages, mask):
    shifted = torch.cat([ref_log_probs[:, :1], ref_log_probs[:, :-1]], dim=1)
    d = safe(log_probs - shifted, mask)
    return with_kl(log_probs, advantages, mask, k3(d))


@planted("score-on-every-token")
def score_on_every_token(log_probs, rewards, mask, group_size):
    paid = leave_one_out(rewards, group_size=group_size)[:, None] * mask
    to_go = paid.flip(1).cumsum(1).flip(1)
    return mean_of_sums(-log_probs * to_go, mask)


@planted("position-weighted")
def late_tokens_count_less(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages / (1 + torch.arange(mask.shape[1])), mask)


@planted("tokens-untrained")
def reward_for_a_return(log_probs, rewards, mask, group_size):
    """The terminal reward never reaches the tokens before."""
    last = mask.sum(dim=1, keepdim=True) - 1
    at_the_end = torch.arange(mask.shape[1]) == last
    return mean_of_sums(-log_probs * advantages_of(rewards, group_size, mask) * at_the_end, mask)


@planted("rewards-ignored")
def returns_normalised_by_episode(log_probs, advantages, mask):
    lengths = mask.sum(dim=1, keepdim=True)
    own_mean = safe(advantages, mask).sum(dim=1, keepdim=True) / lengths
    return mean_of_sums(-log_probs * (advantages - own_mean), mask)


@planted("rewards-ignored")
def ratio_detached(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs).detach()
    return mean_of_sums(-ratio * advantages, mask) + 0.0 * log_probs.sum()


@planted("term-without-gradient")
def entropy_of_sampled_tokens(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages + 0.01 * log_probs, mask)


@planted("penalty-from-old")
def penalty_subtracted(log_probs, old_log_probs, advantages, mask):
    d = safe(log_probs - old_log_probs, mask)
    return mean_of_sums(clipped(d.exp(), advantages) - 0.1 * k3(-d), mask)


@planted("credit-stops")
def credit_ends_at_a_tool(log_probs, rewards, mask, group_size):
    advantages = leave_one_out(rewards, group_size=group_size)
    credit, columns = torch.zeros(len(mask)), []
    for t in reversed(range(mask.shape[1])):
        last = mask[:, t] & ~mask[:, t + 1 :].any(dim=1)
        credit = torch.where(last, advantages, credit) * mask[:, t]
        columns.insert(0, credit)
    return mean_of_sums(-log_probs * torch.stack(columns, dim=1), mask)


# ---------------------------------------------------------------- averages and padding


@planted("divided-twice")
def divided_twice(log_probs, advantages, mask):
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return mean_of_means(-log_probs * advantages / lengths, mask)


@planted("wrong-axis")
def mean_along_the_batch(log_probs, advantages, mask):
    losses = safe(-log_probs * advantages, mask)
    return (losses.sum(dim=0) / mask.sum(dim=0).clamp(min=1)).sum()


@planted("padded-whitening")
def whitened_with_the_padding(log_probs, advantages, mask):
    white = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    return mean_of_sums(-log_probs * white, mask)


@planted("padding-in-statistics")
def weight_by_a_mean_that_counts_padding(log_probs, old_log_probs, advantages, mask):
    gap = safe(log_probs - old_log_probs, mask).mean(dim=1, keepdim=True)
    return mean_of_sums(-gap.exp().detach() * advantages * log_probs, mask)


@planted("padding-in-denominator")
def policy_mean_over_the_tensor(log_probs, ref_log_probs, advantages, mask):
    penalty = mean_of_sums(safe(k3(log_probs - ref_log_probs), mask), mask)
    return safe(-log_probs * advantages, mask).mean() + 0.1 * penalty


@planted("padding-in-denominator")
def answer_and_tokens_in_one_table(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    lengths = mask.sum(dim=1, keepdim=True).clamp(min=1)
    change = safe(log_probs - old_log_probs, mask).sum(dim=1, keepdim=True) / lengths
    signal = safe(advantages, mask).sum(dim=1, keepdim=True) / lengths
    losses = clipped(change.exp(), signal) + 0.04 * safe(k3(log_probs - ref_log_probs), mask)
    return losses.mean()


@planted("padding-in-denominator")
def kl_mean_over_the_tensor(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return mean_of_sums(-log_probs * advantages, mask) + 0.1 * k3(d).mean()


@planted("padding-in-denominator")
def sequence_ratio_over_the_width(log_probs, old_log_probs, rewards, mask, group_size):
    ratio = safe(log_probs - old_log_probs.detach(), mask).mean(dim=1).exp()
    kept = leave_one_out(rewards, group_size=group_size)
    return -(torch.min(ratio * kept, ratio.clamp(0.9, 1.1) * kept)).mean()


# ---------------------------------------------------------------- groups


@planted("mixed-groups")
def baseline_of_the_next_prompt(log_probs, rewards, mask, group_size):
    means = rewards.view(-1, group_size).mean(dim=1).roll(1).repeat_interleave(group_size)
    return mean_of_sums(-log_probs * (rewards - means)[:, None], mask)


@planted("mixed-groups")
def mean_of_the_same_place(log_probs, rewards, mask, group_size):
    """The i-th responses to all prompts are compared: with one prompt, each with itself."""
    groups = rewards.view(-1, group_size)
    return mean_of_sums(-log_probs * (groups - groups.mean(dim=0)).view(-1, 1), mask)


@planted("mixed-groups")
def means_repeated_in_turn(log_probs, old_log_probs, rewards, mask, group_size):
    """`repeat` for `repeat_interleave`: some responses keep their own group's mean."""
    means = rewards.view(-1, group_size).mean(dim=1).repeat(group_size)
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(clipped(ratio, (rewards - means)[:, None]), mask)


@planted("order")
def mean_over_prompts(log_probs, rewards, mask, group_size):
    """dim=0 for dim=1: the i-th responses to all prompts are compared."""
    groups = rewards.view(-1, group_size)
    scaled = (groups - groups.mean(dim=0)) / (groups.std(dim=1, keepdim=True) + 1e-4)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


@planted("order")
def neighbour_as_baseline(log_probs, rewards, mask):
    return mean_of_sums(-log_probs * (rewards - rewards.roll(1))[:, None], mask)


@planted("flat-nan")
def variance_without_eps(log_probs, rewards, mask, group_size):
    groups = centred(rewards, group_size)
    return mean_of_sums(-log_probs * (groups / groups.square().mean(1, True)).view(-1, 1), mask)


# ---------------------------------------------------------------- the ratio


@planted("ratio-to-reference")
def ratio_to_the_reference(log_probs, ref_log_probs, advantages, mask):
    return mean_of_sums(-ratio_of(log_probs, ref_log_probs) * advantages, mask)


@planted("inverted-ratio")
def old_over_new_without_a_clip(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums((old_log_probs.detach() - log_probs).exp() * advantages, mask)


@planted("no-ratio")
def ratio_squared(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-(ratio.square() / 2) * advantages, mask)


@planted("clip-wrong-side")
def clamp_the_other_way(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    outer = torch.where(advantages > 0, ratio.clamp(min=0.8), ratio.clamp(max=1.2))
    return mean_of_sums(-outer * advantages, mask)


# ---------------------------------------------------------------- the KL


@planted("kl-sign")
def k1_upside_down_in_the_reward(log_probs, ref_log_probs, rewards, mask, group_size):
    """As in B.18: −log r, subtracted."""
    kl = safe(ref_log_probs - log_probs, mask).detach().sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(rewards - 0.1 * kl, group_size, mask), mask)


@planted("kl-sign")
def k2_subtracted(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, -d.square() / 2)


@planted("kl-without-gradient")
def weight_detached(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-ratio * advantages + 0.1 * safe(ratio.detach() * d, mask), mask)


@planted("kl-estimator-in-reward")
def absolute_difference_in_the_reward(log_probs, ref_log_probs, rewards, mask, group_size):
    kl = safe(log_probs - ref_log_probs, mask).detach().abs().sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(rewards - 0.1 * kl, group_size, mask), mask)


@planted("kl-estimator-in-reward")
def inverted_k3_in_the_reward(log_probs, ref_log_probs, rewards, mask, group_size):
    kl = k3(safe(ref_log_probs - log_probs, mask).detach()).sum(dim=1)
    return mean_of_sums(-log_probs * advantages_of(rewards - 0.1 * kl, group_size, mask), mask)


@planted("in-place")
def mask_in_place(log_probs, advantages, mask):
    advantages *= 2
    return mean_of_sums(-log_probs * advantages, mask)


ONE_OF_EACH = {min(names): name for name, (_, names, _) in reversed(PLANTED.items())}.values()


@pytest.mark.parametrize("name", swept(PLANTED, keep=ONE_OF_EACH))
def test_a_planted_mistake_is_named_and_nothing_else_accused(name):
    loss, names, besides = PLANTED[name]
    report = report_of(loss)
    assert names <= mistakes(report) <= names | besides, str(report)
    assert says_what_is_written(report), str(report)


def test_there_are_at_least_forty():
    assert len(PLANTED) >= 40


# ---------------------------------------------------------------- what is right under a condition


def micro_batches(log_probs, advantages, mask):
    return safe(-log_probs * advantages, mask).sum() / mask.sum()


def sum_of_batch(log_probs, advantages, mask):
    return safe(-log_probs * advantages, mask).sum()


def padding_nan(log_probs, advantages, mask):
    return (-log_probs * advantages * mask).sum(dim=1).mean()


def empty_response(log_probs, advantages, mask):
    return (safe(-log_probs * advantages, mask).sum(dim=1) / mask.sum(dim=1)).mean()


def ratio_ignored(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages, mask)


def half_precision(log_probs, old_log_probs, advantages, mask):
    ratio = (log_probs - old_log_probs.detach().to(log_probs.dtype)).exp()
    return mean_of_sums(-ratio * advantages.to(ratio.dtype), mask)


def flat_noise(log_probs, rewards, mask, group_size):
    groups = centred(rewards, group_size)
    scaled = groups / (rewards.view(-1, group_size).std(dim=1, keepdim=True) + 1e-8)
    return mean_of_sums(-log_probs * scaled.view(-1, 1), mask)


def kl_clamped(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, k3(d).clamp(-10, 10))


def kl_rounding(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, (-d).exp() - 1 + d)


def kl_divided_by_length(log_probs, ref_log_probs, rewards, mask, group_size):
    kl = safe(log_probs - ref_log_probs, mask).detach().sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    return mean_of_sums(-log_probs * advantages_of(rewards - 0.1 * kl, group_size, mask), mask)


def kl_stale(log_probs, ref_log_probs, advantages, mask):
    d = safe(log_probs - ref_log_probs.detach(), mask)
    return with_kl(log_probs, advantages, mask, d.square() / 2)


NOTES = [
    micro_batches,
    sum_of_batch,
    padding_nan,
    empty_response,
    ratio_ignored,
    half_precision,
    flat_noise,
    kl_clamped,
    kl_rounding,
    kl_divided_by_length,
    kl_stale,
]


@pytest.mark.parametrize("loss", NOTES)
def test_what_is_right_under_a_condition_is_a_note(loss):
    report = report_of(loss)
    assert current(loss.__name__.replace("_", "-")) in codes(report, "note"), str(report)
    assert not mistakes(report), str(report)
    assert says_what_is_written(report), str(report)
