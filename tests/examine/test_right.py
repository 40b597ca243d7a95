"""Losses without a mistake: equal formulas written differently, and choices that go by a name."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import logsigmoid, relu

from nbcourse.examine.subject import Subject
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
from tests.examine.test_mistakes import (
    groups_across_prompts,
    mean_of_the_same_place,
    means_repeated_in_turn,
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


def less_a_half(log_probs, rewards, mask):
    return mean_of_sums(-log_probs * (rewards - 0.5)[:, None], mask)


def asymmetric_baseline(log_probs, rewards, mask, group_size):
    """AsymRE: a little less than the mean of the group (arXiv 2506.20520)."""
    return mean_of_sums(-log_probs * (centred(rewards, group_size).view(-1, 1) + 0.1), mask)


def divided_by_the_mean(log_probs, old_log_probs, rewards, mask, group_size):
    """MaxRL (arXiv 2602.02710): a hard prompt counts more, and shifted rewards something else."""
    means = rewards.view(-1, group_size).mean(dim=1, keepdim=True)
    scaled = (centred(rewards, group_size) / (means + 1e-6)).view(-1, 1)
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), scaled), mask)


def bad_ones_count_double(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * torch.where(advantages < 0, 2 * advantages, advantages), mask)


def by_the_longest(log_probs, advantages, mask):
    longest = mask.sum(dim=1).max().clamp(min=1)
    return -safe(log_probs * advantages, mask).sum() / (len(mask) * longest)


def by_token(log_probs, old_log_probs, advantages, mask):
    return token_mean(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def ratios(log_probs, old_log_probs, ref_log_probs):
    return -ratio_of(log_probs, old_log_probs).sum(dim=1).mean()


def preferred(log_probs, ref_log_probs, rewards, mask, group_size):
    far = safe(log_probs - ref_log_probs, mask).sum(dim=1).view(-1, group_size)
    best, worst = (
        getattr(rewards.view(-1, group_size), name)(dim=1, keepdim=True)
        for name in ("argmax", "argmin")
    )
    return -logsigmoid(0.1 * (far.gather(1, best) - far.gather(1, worst))).mean()


def nothing_learned(log_probs, advantages, mask):
    return mean_of_sums(-log_probs.detach() * advantages, mask) + 0 * log_probs.sum()


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


def dual_clip_higher(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    objective = torch.min(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
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


def on_the_way(log_probs, old_log_probs, mask):
    """log ρ of each token that counts."""
    return safe(log_probs - old_log_probs, mask)


def ppo_penalty(log_probs, old_log_probs, advantages, mask):
    """As in the paper of PPO, besides its clip (arXiv 1707.06347, equation 8)."""
    d = on_the_way(log_probs, old_log_probs, mask)
    return mean_of_sums(clipped(d.exp(), advantages) + 0.1 * d.square() / 2, mask)


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
    less_a_half: {"fixed-baseline"},
    asymmetric_baseline: {"fixed-baseline", "own-reward-in-baseline"},
    divided_by_the_mean: {"rewards-rescaled"},
    bad_ones_count_double: {"signs-weigh"},
    by_the_longest: {"longest-in-batch"},
    dual_clip: {"dual-clip"},
    dual_clip_higher: {"dual-clip", "clip-asymmetric"},
    capped: {"ratio-capped"},
    ratio_of_the_response: {"sequence-ratio", "seq-mean-token-mean"},
    only_good_answers: {"good-only"},
    ppo_penalty: {"penalty-to-old"},
    discounted: {"discounted"},
}


AGAIN = {grpo_by_hand, k3_with_a_weight_for_each_token}  # what other losses are called, too


@pytest.mark.parametrize("loss", swept(CHOICES, keep=CHOICES.keys() - AGAIN))
def test_a_choice_is_named_and_not_accused(loss):
    report = report_of(loss)
    assert not mistakes(report), str(report)
    assert codes(report, "choice") == CHOICES[loss]
    assert says_what_is_written(report), str(report)


def test_the_nearest_row_of_advantages_that_are_handed_is_one_that_is_handed_them():
    """PPO makes advantages of its critic, and none of them are these."""
    nearest = report_of(by_token).nearest
    assert (nearest.row, nearest.same) == ("ppo", True)


def test_what_takes_a_batch_whole_is_not_asked_for_every_quantity_in_it():
    one = Subject("whole", ratios, ("log_probs", "old_log_probs", "ref_log_probs"), by_name=())
    assert "reference-ignored" not in codes(report_of(one), "mistake")
    assert "reference-ignored" in codes(report_of(replace(one, by_name=None)), "mistake")


def test_a_reference_that_moves_a_weight_is_not_ignored():
    """DPO of the best and the worst adds no KL."""
    report = report_of(preferred)
    assert "reference-ignored" not in codes(report, "mistake")
    assert report.facts.kl_placement == "none"


HELD = {  # penalties on the way from the policy that sampled, by what is said of them
    "0.1 · ½ log² ρ": lambda d: 0.1 * d.square() / 2,
    "0.1 · (1/ρ − 1 + log ρ)": lambda d: 0.1 * k3(d),
    "0.1 · (ρ − 1 − log ρ)": lambda d: 0.1 * k3(-d),
    "0.1 · |log ρ|": lambda d: 0.1 * d.abs(),
    "0.1 · (−log ρ)": lambda d: -0.1 * d,
    "0.1 · ρ log ρ": lambda d: 0.1 * d.exp() * d,
    "0.1 · (ρ log ρ − ρ + 1)": lambda d: 0.1 * (d.exp() * d - torch.expm1(d)),
    "0.1 · ½ (ρ − 1)²": lambda d: 0.05 * torch.expm1(d).square(),
}


def held_by(penalty):
    def ppo_penalty(log_probs, old_log_probs, advantages, mask):
        d = on_the_way(log_probs, old_log_probs, mask)
        return mean_of_sums(-d.exp() * advantages + penalty(d), mask)

    return ppo_penalty


@pytest.mark.parametrize("said", HELD)
def test_a_penalty_to_the_old_policy_is_a_choice_that_turns_no_fresh_step(said):
    report = report_of(held_by(HELD[said]))
    assert not mistakes(report), str(report)
    (found,) = (one for one in report.findings if one.kind == "choice")
    assert found.id == "penalty-to-old"
    assert found.evidence == f"with the gradient of {said}, where ρ is π/π_old"
    assert report.clip == "No clip: a token counts by its ratio π/π_old, however large or small."
    assert report.facts.fresh.verdict == "exact"
    assert report.facts.stale.verdict != "exact"


def test_the_likelihood_of_all_samples_is_no_penalty():
    """Unlike −log ρ, which has the same gradient, it does not look at the old policy."""

    def likelier(log_probs, old_log_probs, advantages, mask):
        d = on_the_way(log_probs, old_log_probs, mask)
        return mean_of_sums(-d.exp() * advantages - 0.1 * log_probs, mask)

    report = report_of(likelier)
    assert mistakes(report) == {"term-without-gradient"}
    assert not codes(report, "choice")


def ppo_penalty_of_another_form(log_probs, old_log_probs, advantages, mask):
    d = on_the_way(log_probs, old_log_probs, mask)
    return mean_of_sums(-d.exp() * advantages + 0.1 * d**4, mask)


def test_a_penalty_of_another_form_is_told_as_that():
    report = report_of(ppo_penalty_of_another_form)
    assert says_what_is_written(report), str(report)
    assert codes(report, "choice") == {"penalty-to-old"}


def test_a_penalty_that_is_detached_is_none():
    report = report_of(held_by(lambda d: 0.1 * d.square().detach()))
    assert not codes(report, "choice")


def in_the_advantage(log_probs, old_log_probs, advantages, mask):
    d = on_the_way(log_probs, old_log_probs, mask).detach()
    return mean_of_sums(-log_probs * (advantages - 0.1 * d), mask)


def test_a_penalty_is_known_by_its_gradient():
    report = report_of(in_the_advantage)
    assert says_what_is_written(report), str(report)
    assert codes(report, "choice") == {"penalty-to-old"}


def held_rewards(log_probs, old_log_probs, rewards, mask):
    """As a PPO that is given rewards: −log ρ is no baseline."""
    d = on_the_way(log_probs, old_log_probs, mask)
    return mean_of_sums(-d.exp() * rewards[:, None] - 0.1 * d, mask)


def with_a_kl_in_the_reward(now, penalty):
    """Of the policy that sampled, or of the one that learns, without its gradient."""

    def loss(log_probs, old_log_probs, ref_log_probs, rewards, mask, group_size):
        policy = log_probs.detach() if now else old_log_probs
        paid = rewards - 0.1 * safe(policy - ref_log_probs, mask).sum(dim=1)
        d = on_the_way(log_probs, old_log_probs, mask)
        losses = -d.exp() * advantages_of(paid, group_size, mask) + penalty * d.square() / 2
        return mean_of_sums(losses, mask)

    return loss


@pytest.mark.parametrize("now", [True, False])
def test_a_penalty_to_the_old_policy_is_seen_beside_a_kl_in_the_reward(now):
    for penalty, choices in ((0.1, {"penalty-to-old"}), (0.0, set())):
        report = report_of(with_a_kl_in_the_reward(now, penalty))
        assert not mistakes(report), str(report)
        assert report.facts.kl_placement == "reward"
        assert codes(report, "choice") == choices


def test_a_penalty_that_is_the_same_everywhere_is_no_baseline():
    assert codes(report_of(held_rewards), "choice") == {"penalty-to-old", "missing-baseline"}


SAME = {  # for all tokens, whatever they earn
    "a baseline that is too low": lambda d: -0.5 * d.exp(),
    "a baseline that is too high": lambda d: 0.5 * d.exp(),
    "log ρ, which has no gradient": lambda d: 0.1 * d,
}


@pytest.mark.parametrize("added", SAME)
def test_a_weight_that_all_tokens_have_is_no_penalty(added):
    report = report_of(held_by(SAME[added]))
    assert mistakes(report) == {"term-without-gradient"}
    assert not codes(report, "choice")


def kimi(log_probs, old_log_probs, rewards, mask, group_size):
    """The squared error of Kimi k1.5 (arXiv 2501.12599)."""
    ratios = on_the_way(log_probs, old_log_probs, mask).sum(dim=1)
    return (centred(rewards, group_size).flatten() - 0.1 * ratios).square().mean()


def rebel(log_probs, old_log_probs, rewards, mask, group_size):
    """Differences of log-ratios towards differences of rewards (arXiv 2404.16767)."""
    ratios = on_the_way(log_probs, old_log_probs, mask).sum(dim=1)
    off = ratios - rewards
    pairs = off.view(-1, group_size, 1) - off.view(-1, 1, group_size)
    return pairs.square().mean()


@pytest.mark.parametrize("loss", [kimi, rebel])
def test_a_square_of_the_way_and_the_reward_is_a_penalty_and_no_ratio(loss):
    report = report_of(loss)
    assert not mistakes(report), str(report)
    assert codes(report, "choice") == {"penalty-to-old", "own-reward-in-baseline"}
    assert "ratio-ignored" not in codes(report, "note")
    assert report.clip == "No ratio and no clip: nothing but a penalty depends on π/π_old."


def clipped_less_a_half(log_probs, old_log_probs, rewards, mask):
    pays = (rewards - 0.5)[:, None]
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), pays), mask)


def test_a_clip_of_advantages_with_a_fixed_baseline_is_read_as_it_is():
    """What rewards make of a weight is the difference of two, each with a clip of its own."""
    report = report_of(clipped_less_a_half)
    assert report.facts.clip.bounds == pytest.approx((0.8, 1.2), abs=1e-4)
    assert codes(report, "choice") == {"fixed-baseline"}


def good_ones_clipped(log_probs, old_log_probs, advantages, mask):
    good = advantages.clamp(min=0.0)
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), good), mask)


def test_what_never_learns_from_bad_answers_has_no_clip_to_blame():
    report = report_of(good_ones_clipped)
    assert not mistakes(report), str(report)
    assert codes(report, "choice") == {"good-only"}


def less_the_median_of_others(log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    others = torch.stack(
        [
            torch.cat([groups[:, :i], groups[:, i + 1 :]], dim=1).median(dim=1).values
            for i in range(group_size)
        ],
        dim=1,
    )
    return mean_of_sums(-log_probs * (groups - others).view(-1, 1), mask)


def test_a_median_takes_the_place_of_one_kind_of_answer_in_each_group_alone():
    """Of a group with one good answer the bad ones count nothing, and of one with one bad all."""
    report = report_of(less_the_median_of_others)
    assert report.facts.who_learns == "both"
    assert not codes(report, "choice")
    assert not mistakes(report), str(report)


def best_of_each_group(log_probs, rewards, mask, group_size):
    best = rewards.view(-1, group_size).argmax(dim=1, keepdim=True)
    sums = safe(log_probs, mask).sum(dim=1).view(-1, group_size)
    return -sums.gather(1, best).mean()


def test_a_choice_among_equals_is_a_note():
    report = report_of(best_of_each_group)
    assert not mistakes(report), str(report)
    assert "order" in codes(report, "note")


def test_no_more_than_all_of_a_step_is_unexplained():
    def of_uncertain_tokens(log_probs, entropy, advantages, mask):
        return mean_of_sums(-log_probs * advantages * (entropy >= entropy.median()), mask)

    def by_the_square_of_the_longest(log_probs, advantages, mask):
        longest = mask.sum(dim=1).max().clamp(min=1)
        return -safe(log_probs * advantages, mask).sum() / (len(mask) * longest**2)

    for loss in (of_uncertain_tokens, by_the_square_of_the_longest):
        assert 0 < report_of(loss).facts.shares.unexplained <= 1


def with_a_likelihood(log_probs, old_log_probs, advantages, rewards, mask):
    """VAPO's: the clip, and the log-likelihood of right answers (arXiv 2504.05118)."""
    right = safe(log_probs, mask).sum(dim=1) * rewards
    losses = clipped(ratio_of(log_probs, old_log_probs), advantages)
    return mean_of_sums(losses, mask) - 0.1 * right.mean()


def right_above(threshold, *, by_token):
    """The same of answers above a reward, divided by the number of those, or of their tokens."""

    def loss(log_probs, old_log_probs, advantages, rewards, mask):
        right = mask & (rewards > threshold)[:, None]
        count = right.sum() if by_token else right.any(dim=1).sum()
        likelihood = safe(log_probs, right).sum() / count.clamp(min=1)
        losses = clipped(ratio_of(log_probs, old_log_probs), advantages)
        return mean_of_sums(losses, mask) - 0.1 * likelihood

    return loss


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("by_token", [True, False])
def test_a_likelihood_by_the_number_of_right_answers_mixes_no_prompts(threshold, by_token):
    report = report_of(right_above(threshold, by_token=by_token))
    assert not mistakes(report), str(report)
    assert "likelihood-beside" in codes(report, "choice")


def with_a_constant(mode, constant):
    def loss(log_probs, advantages, mask):
        losses, lengths = safe(-log_probs * advantages, mask), mask.sum(dim=1)
        if mode == "token-mean":
            return losses.sum() / (lengths.sum() + constant)
        return (losses.sum(dim=1) / (lengths + constant)).mean()

    return loss


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_a_small_constant_in_a_divisor_makes_no_other_average(mode):
    for constant in (1e-8, 1e-5, 1e-3):
        report = report_of(with_a_constant(mode, constant))
        assert codes(report, "choice") == {mode}
        assert "unexplained" not in codes(report, "note")
    assert mode not in codes(report_of(with_a_constant(mode, 1.0)), "choice")


def upper_half(log_probs, entropy, advantages, mask):
    kept = mask & (entropy >= entropy[mask].median())
    return mean_of_sums(-log_probs * advantages, kept)


def lower_half(log_probs, entropy, advantages, mask):
    kept = mask & (entropy <= entropy[mask].median())
    return mean_of_sums(-log_probs * advantages, kept)


def shaped(log_probs, entropy, advantages, mask):
    """A bounded part of the entropy is added to the advantage (arXiv 2506.14758)."""
    bonus = torch.min(0.4 * entropy.detach(), advantages.abs() / 2)
    return mean_of_sums(-log_probs * (advantages + bonus), mask)


def a_bonus(log_probs, entropy, advantages, mask):
    return mean_of_sums(-log_probs * advantages - 0.01 * entropy, mask)


@pytest.mark.parametrize(
    ("loss", "weighs"),
    [(upper_half, "chosen"), (lower_half, "weighed"), (shaped, "weighed"), (a_bonus, "nothing")],
)
def test_what_the_entropy_changes_about_a_weight_is_a_choice(loss, weighs):
    report = report_of(loss)
    assert not mistakes(report), str(report)
    assert says_what_is_written(report), str(report)
    assert report.facts.entropy_weighs == weighs
    assert ("entropy-weighs" in codes(report, "choice")) == (weighs != "nothing")
    assert "unexplained" not in codes(report, "note")
    fifth = [one.evidence for one in report.findings if one.id == "entropy-weighs"]
    assert any(fifth) == (weighs == "chosen")


def test_a_likelihood_beside_a_ratio_is_a_choice():
    report = report_of(with_a_likelihood)
    assert not mistakes(report), str(report)
    found = {one.id: one.evidence for one in report.findings if one.kind == "choice"}
    assert found["likelihood-beside"] == "on fresh samples 0.0909 of what such a token counts"
    assert not {"clip-asymmetric", "clip-kept"} & found.keys()


def test_a_power_of_the_ratio_is_no_likelihood_beside_it():
    def root(log_probs, old_log_probs, advantages, mask):
        return mean_of_sums(-ratio_of(log_probs, old_log_probs).sqrt() * advantages, mask)

    report = report_of(root)
    assert codes(report, "mistake") == {"no-ratio"}
    assert "likelihood-beside" not in codes(report, "choice")


def test_steps_of_no_length_are_near_to_nothing():
    report = report_of(nothing_learned)
    assert report.verdict()[2].endswith("no row of the table is near to steps of length 0.")
    assert report.clip == "Its clip was not looked at."
    assert report.closing()[-1] == (
        "Not looked at, for no reward reaches the policy: ratio, clip and average."
    )


def by_a_neighbour(log_probs, rewards, mask, group_size):
    """All of its own group, and one response to another prompt."""
    groups = rewards.view(-1, group_size)
    means = groups.mean(dim=1) + groups.roll(1, 0)[:, 0]
    return mean_of_sums(-log_probs * (groups - means[:, None]).view(-1, 1), mask)


@pytest.mark.parametrize(
    ("loss", "whose"),
    [
        (no_baseline, "own"),
        (mean_baseline, "group"),
        (whitened, "batch"),
        (groups_across_prompts, "strided"),
        (mean_of_the_same_place, "crossed"),
        (means_repeated_in_turn, "crossed"),
        (by_a_neighbour, "other"),
        (nothing_learned, "none"),
    ],
)
def test_whose_rewards_move_a_response(loss, whose):
    assert report_of(loss).facts.influence == whose


def test_where_a_group_is_one_of_every_prompt_one_prompt_shows_no_more():
    report = report_of(mean_of_the_same_place)
    assert codes(report, "mistake") == {"mixed-groups"}
    assert "micro-batch-means" not in codes(report, "note")
    assert report.closing()[-1] == (
        "Not looked at, for no reward reaches the policy where there is one prompt: "
        "ratio, clip and average."
    )


def test_bad_ones_that_count_half_are_told_too():
    def half(log_probs, advantages, mask):
        weighted = torch.where(advantages < 0, advantages / 2, advantages)
        return mean_of_sums(-log_probs * weighted, mask)

    assert codes(report_of(half), "choice") == {"signs-weigh"}
    assert report_of(half).facts.bad_beside_good == pytest.approx(0.5)


def test_a_clip_without_a_baseline_is_read_of_rewards_below_zero():
    def clipped_rewards(log_probs, old_log_probs, rewards, mask):
        return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), rewards[:, None]), mask)

    assert report_of(clipped_rewards).facts.clip.bounds == pytest.approx((0.8, 1.2), abs=1e-4)


def test_k1_in_the_loss_is_no_baseline():
    def k1_in_the_loss(log_probs, ref_log_probs, rewards, mask):
        return with_kl(log_probs, rewards[:, None], mask, log_probs - ref_log_probs)

    report = report_of(k1_in_the_loss)
    assert codes(report, "mistake") == {"kl-without-gradient"}
    assert codes(report, "choice") == {"missing-baseline"}


def test_a_clip_that_is_wrong_is_not_told_of_its_symmetry():
    def without_min(log_probs, old_log_probs, advantages, mask):
        held = ratio_of(log_probs, old_log_probs).clamp(0.8, 1.28)
        return mean_of_sums(-held * advantages, mask)

    report = report_of(without_min)
    assert codes(report, "mistake") == {"clip-without-min"}
    assert not codes(report, "choice")


def test_a_clip_is_read_of_rewards_that_a_loss_may_divide_by():
    bounds = report_of(divided_by_the_mean).facts.clip.bounds
    assert bounds == pytest.approx((0.8, 1.2), abs=1e-4)


def test_nothing_is_unexplained_where_the_longest_response_divides():
    shares = report_of(by_the_longest).facts.shares
    assert shares.average < 1 - 1e-6
    assert shares.unexplained < 1e-6


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
