"""What a token counts by its ratio: published methods are choices by name, mistakes stay mistakes.

Each loss is a member of a kind, with other numbers than its paper's, and what has to be said of it.
"""

import math

import pytest
import torch

from nbcourse.examine import Subject, families, ratio
from tests.effort import swept
from tests.examine.parts import (
    clipped,
    codes,
    mean_of_means,
    mean_of_sums,
    mistakes,
    ratio_of,
    report_of,
    safe,
    says_what_is_written,
    token_mean,
)

MEMBERS = {}


def member(*named, wrong=(), says=()):
    """A loss, the codes of its choices about the ratio, and words of its report."""

    def keep(loss):
        MEMBERS[loss.__name__] = (loss, {*named}, {*wrong}, says)
        return loss

    return keep


def gap(log_probs, old_log_probs):
    return (log_probs.exp() - old_log_probs.exp()).detach()


def binary_kl(q, p):
    q, p = q.clamp(1e-9, 1 - 1e-9), p.clamp(1e-9, 1 - 1e-9)
    return q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()


# ---------------------------------------------------------------- masks by the ratio


@member("ratio-mask", says=["below 0.4", "above 2.5", "whatever the sign"])
def mask_on_either_side(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach()
    weight = torch.where((weight >= 0.4) & (weight <= 2.5), weight, 0.0)
    return mean_of_sums(-weight * advantages * log_probs, mask)


@member("ratio-mask", says=["above 3"])
def mask_above_alone(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-torch.where(ratio <= 3.0, ratio, 0.0) * advantages, mask)


@member("ratio-mask", says=["below 0.3"])
def mask_below_alone(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-torch.where(ratio >= 0.3, ratio, 0.0) * advantages, mask)


@member("ratio-mask", "token-mean")
def mask_around_a_clip(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    inside = (ratio.detach() > 0.5) & (ratio.detach() < 4.0)
    return token_mean(clipped(ratio, advantages) * inside, mask)


@member(wrong=["clip-wrong-side"])
def mask_of_the_wrong_tokens(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    out = ((advantages > 0) & (ratio < 0.8)) | ((advantages < 0) & (ratio > 1.2))
    return mean_of_sums(-(ratio * advantages).masked_fill(out, 0.0), mask)


@member(wrong=["clip-without-min"])
def clamp_around_the_ratio(log_probs, old_log_probs, advantages, mask):
    return mean_of_means(-ratio_of(log_probs, old_log_probs).clamp(0.6, 1.7) * advantages, mask)


# ---------------------------------------------------------------- a guard against far-off tokens


def guarded(log_probs, old_log_probs, low=None, high=None):
    return (log_probs - old_log_probs).clamp(low, high).exp()


@member(
    "ratio-guard", says=["below 0.8 with A < 0", "above 20.1 with A < 0, below 0.0498 with A > 0"]
)
def guard_around_a_clip(log_probs, old_log_probs, advantages, mask):
    ratio = guarded(log_probs, old_log_probs, -3.0, 3.0)
    return mean_of_sums(clipped(ratio, advantages), mask)


@member("ratio-guard", "dual-clip")
def guard_around_a_dual_clip(log_probs, old_log_probs, advantages, mask):
    losses = clipped(guarded(log_probs, old_log_probs, -2.5, 2.5), advantages)
    losses = torch.where(advantages < 0, torch.min(losses, -3 * advantages), losses)
    return mean_of_sums(losses, mask)


@member("ratio-guard")
def guard_alone(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(-guarded(log_probs, old_log_probs, -2.0, 2.0) * advantages, mask)


@member("ratio-guard", "clip-asymmetric")
def guard_above_alone(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(-guarded(log_probs, old_log_probs, high=2.0) * advantages, mask)


@member("ratio-mask")
def mask_as_wide_as_a_guard(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    inside = (ratio.detach() > 0.1) & (ratio.detach() < 10.0)
    return mean_of_sums(-ratio * advantages * inside, mask)


@member("dual-clip")
def dual_clip_as_wide_as_a_guard(log_probs, old_log_probs, advantages, mask):
    losses = clipped(ratio_of(log_probs, old_log_probs), advantages)
    losses = torch.where(advantages < 0, torch.min(losses, -10 * advantages), losses)
    return mean_of_sums(losses, mask)


@member(wrong=["clip-without-min"])
def clamp_within_a_guard(log_probs, old_log_probs, advantages, mask):
    ratio = guarded(log_probs, old_log_probs, -3.0, 3.0).clamp(0.8, 1.2)
    return mean_of_sums(-ratio * advantages, mask)


# ---------------------------------------------------------------- masks by the probability


@member("probability-mask", says=["risen by more than 0.15", "fallen by more than 0.15"])
def signed_total_variation(log_probs, old_log_probs, advantages, mask):
    moved = gap(log_probs, old_log_probs)
    out = ((advantages > 0) & (moved > 0.15)) | ((advantages < 0) & (moved < -0.15))
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-(ratio * advantages).masked_fill(out, 0.0), mask)


@member("probability-mask", says=["0.25", "whatever the sign"])
def total_variation_whatever_the_sign(log_probs, old_log_probs, advantages, mask):
    out = gap(log_probs, old_log_probs).abs() > 0.25
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-(ratio * advantages).masked_fill(out, 0.0), mask)


@member("probability-mask", says=["binary KL(π_old‖π) is above 0.05"])
def signed_binary_kl(log_probs, old_log_probs, advantages, mask):
    moved = gap(log_probs, old_log_probs)
    far = binary_kl(old_log_probs.exp(), log_probs.detach().exp()) > 0.05
    out = far & (((advantages > 0) & (moved > 0)) | ((advantages < 0) & (moved < 0)))
    ratio = ratio_of(log_probs, old_log_probs)
    return mean_of_sums(-(ratio * advantages).masked_fill(out, 0.0), mask)


@member("map-unfitted", says=["fits no method known here"])
def mask_by_something_else(log_probs, old_log_probs, advantages, mask):
    """A threshold on the ratio that goes with the probability: neither a ratio nor a distance."""
    ratio = ratio_of(log_probs, old_log_probs)
    out = ratio.detach() > 1.2 + 2 * log_probs.detach().exp().sqrt()
    return mean_of_sums(-(ratio * advantages).masked_fill(out, 0.0), mask)


# ---------------------------------------------------------------- caps, floors, gates


@member("ratio-bounded", says=["between 0.7 and 1.6"])
def cap_and_floor(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach().clamp(0.7, 1.6)
    return mean_of_sums(-weight * advantages * log_probs, mask)


@member("ratio-floored", says=["raised to 0.5"])
def floor_alone(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach().clamp(min=0.5)
    return mean_of_sums(-weight * advantages * log_probs, mask)


@member("ratio-capped", says=["cut at 8"])
def cap_alone(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach().clamp(max=8.0)
    return mean_of_sums(-weight * advantages * log_probs, mask)


@member("clip-kept")
def gradient_beyond_the_interval(log_probs, old_log_probs, advantages, mask):
    """CE-GPPO: beyond the interval a constant weight in the place of none."""
    ratio = ratio_of(log_probs, old_log_probs)
    straight = ratio / ratio.detach()
    held = torch.where((advantages > 0) & (ratio > 1.2), 0.5 * 1.2 * straight, ratio)
    held = torch.where((advantages < 0) & (ratio < 0.8), 0.75 * 0.8 * straight, held)
    return mean_of_sums(-held * advantages, mask)


@member("soft-clip", says=["2 with A > 0", "3 with A < 0"])
def sigmoid_gate(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    tau = torch.where(advantages > 0, 2.0, 3.0)
    return mean_of_sums(-torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages, mask)


def drawn_back(penalty):
    """A penalty that grows with |A|, on how far the ratio is from 1."""

    def loss(log_probs, old_log_probs, advantages, mask):
        change = safe(log_probs - old_log_probs, mask)
        gain = change.exp() * advantages - advantages.abs() * penalty(change)
        return mean_of_sums(-gain, mask)

    loss.__name__ = penalty.__name__
    return loss


@member("soft-clip", says=["0.73 at a ratio of 1.1 and -1.00 at 1.5", "A < 0 0.60 at 0.9"])
@drawn_back
def by_the_square(change):
    """SPO and CFPO, with ε = .3."""
    return (change.exp() - 1).square() / 0.6


@member("soft-clip", says=["by the distance of its ratio"])
@drawn_back
def by_k3_too_weakly_to_turn_a_token(change):
    return 0.5 * (change.expm1() - change)


@member("map-unfitted", says=["no family known here"])
@drawn_back
def near_one_alone(change):
    return (change.exp() - 1).clamp(-0.2, 0.2).square()


@member("no-clip", "map-unfitted", wrong=["no-ratio"])
@drawn_back
def away_from_a_ratio_of_one(change):
    return -(change.exp() - 1).square()


@member("ratio-capped", says=["cut at 1 whatever the sign of A"])
def cap_at_one(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach().clamp(max=1.0)
    return mean_of_sums(-weight * advantages * log_probs, mask)


@member(says=["No ratio and no clip", "With A < 0 it counts nothing"])
def good_answers_alone(log_probs, rewards, mask):
    kept = mask & (rewards > 0.5)[:, None]
    return safe(-log_probs, kept).sum() / kept.sum().clamp(min=1)


@member("inverted-ratio-if-better", "no-clip", says=["ASPO"])
def upside_down_for_good_tokens(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs).detach()
    weight = torch.where(advantages > 0, 1 / ratio, ratio)
    return mean_of_sums(-weight * advantages * log_probs, mask)


# ---------------------------------------------------------------- whole responses


@member("sequence-mask", says=["mean log-ratio is below -0.2", "A < 0", "above 1.2 with A > 0"])
def bad_responses_far_off(log_probs, old_log_probs, advantages, mask):
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    change = safe(log_probs - old_log_probs, mask).detach().sum(dim=1, keepdim=True) / count
    bad = safe(advantages, mask).sum(dim=1, keepdim=True) < 0
    kept = ~(bad & (change < -0.2))
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages) * kept, mask)


@member(wrong=["mask-by-token"])
def bad_tokens_of_responses_far_off(log_probs, old_log_probs, advantages, mask):
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    change = safe(log_probs - old_log_probs, mask).detach().sum(dim=1, keepdim=True) / count
    kept = ~((advantages < 0) & (change < -0.05))
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages) * kept, mask)


@member("sequence-mask", says=["the log-ratio of one token"])
def vetoed_by_one_token(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    least = ratio.detach().masked_fill(~mask, math.inf).min(dim=1, keepdim=True).values
    return mean_of_sums(-ratio * advantages * (least > 1e-3), mask)


@member("sequence-ratio", "ratio-capped", says=["product", "cut at 2"])
def product_that_is_capped(log_probs, old_log_probs, advantages, mask):
    weight = safe(log_probs - old_log_probs, mask).detach().sum(1, True).exp().clamp(max=2.0)
    return mean_of_sums(-weight * advantages * log_probs, mask)


@member("sequence-ratio", "sequence-mask", says=["product", "above 4"])
def product_that_is_masked(log_probs, old_log_probs, advantages, mask):
    weight = safe(log_probs - old_log_probs, mask).detach().sum(1, True).exp()
    return mean_of_sums(-torch.where(weight <= 4, weight, 0.0) * advantages * log_probs, mask)


@member("sequence-ratio", says=["geometric mean", "above 1.4918 with A > 0"])
def geometric_mean_of_clipped_ratios(log_probs, old_log_probs, advantages, mask):
    """GMPO."""
    signs = safe(advantages, mask).sum(dim=1, keepdim=True).sign()
    signed = signs * safe(log_probs - old_log_probs.detach(), mask)
    held = signs * torch.min(signed, signed.clamp(-0.4, 0.4))
    mean = held.sum(1, True) / mask.sum(1, True).clamp(min=1)
    return mean_of_means(-mean.exp() * advantages, mask)


# ---------------------------------------------------------------- none


@member("no-clip", says=["No clip: a token counts by its ratio π/π_old"])
def clip_that_is_not_used(log_probs, old_log_probs, advantages, mask):
    ratio = ratio_of(log_probs, old_log_probs)
    _unread = torch.max(-ratio * advantages, -ratio.clamp(0.8, 1.2) * advantages)
    return mean_of_sums(-ratio * advantages, mask)


@member("no-clip", "map-unfitted", says=["No clip: no ratio takes a token's gradient or bounds it"])
def ratios_beside_the_mean_of_their_column(log_probs, old_log_probs, advantages, mask):
    change = safe(log_probs - old_log_probs, mask)
    change = change - change.sum(dim=0) / mask.sum(dim=0).clamp(min=1)
    return mean_of_sums(-change.exp() * advantages, mask)


@member("no-clip", "map-unfitted", "sequence-ratio", says=["No clip", "no family known here"])
def ratios_beside_their_mean(log_probs, old_log_probs, advantages, mask):
    ratio = safe(ratio_of(log_probs, old_log_probs).detach(), mask)
    ratio = ratio * mask.sum() / ratio.sum()
    return token_mean(-ratio * advantages * log_probs, mask)


@member("no-clip", "map-unfitted", says=["No clip", "1.5 at a ratio of 1.65"])
def a_power_series_for_a_ratio(log_probs, old_log_probs, advantages, mask):
    change = safe(log_probs - old_log_probs, mask)
    return mean_of_sums(-(change + change.square() / 2) * advantages, mask)


@member(says=["No ratio and no clip"])
def no_ratio_at_all(log_probs, advantages, mask):
    return mean_of_sums(-log_probs * advantages, mask)


@member(says=["no gradient above 1.2 with A > 0; no gradient below 0.8 with A < 0"])
def the_clip_itself(log_probs, old_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


OF_RATIOS = {
    "ratio-guard",
    "ratio-mask",
    "probability-mask",
    "map-unfitted",
    "ratio-bounded",
    "ratio-floored",
    "ratio-capped",
    "clip-kept",
    "soft-clip",
    "inverted-ratio-if-better",
    "sequence-mask",
    "sequence-ratio",
    "dual-clip",
    "clip-asymmetric",
    "no-clip",
    "bound-on-the-wrong-side",
}
KEPT = [
    "guard_around_a_clip",
    "mask_on_either_side",
    "mask_of_the_wrong_tokens",
    "signed_total_variation",
    "mask_by_something_else",
    "cap_and_floor",
    "cap_at_one",
    "good_answers_alone",
    "ratios_beside_the_mean_of_their_column",
    "sigmoid_gate",
    "by_the_square",
    "near_one_alone",
    "away_from_a_ratio_of_one",
    "bad_tokens_of_responses_far_off",
    "geometric_mean_of_clipped_ratios",
]


@pytest.mark.parametrize("name", swept(MEMBERS, keep=KEPT))
def test_a_method_goes_by_its_name_and_a_mistake_by_its(name):
    loss, named, wrong, says = MEMBERS[name]
    report = report_of(loss)
    assert mistakes(report) == wrong, str(report)
    found = (codes(report, "choice") | codes(report, "note")) & (OF_RATIOS | named)
    assert found == named - wrong, str(report)
    assert all(words in str(report) for words in says), str(report)
    assert says_what_is_written(report), str(report)


def test_the_edges_are_those_that_were_written():
    subject = Subject.of(mask_on_either_side)
    sides = ratio.clip(subject).sides
    assert [sides[sign, 1].edge for sign in (1, -1)] == pytest.approx([2.5, 2.5], rel=1e-4)
    assert [sides[sign, -1].edge for sign in (1, -1)] == pytest.approx([0.4, 0.4], rel=1e-4)
    assert all(side.jumps for side in sides.values())
    gate = ratio.clip(Subject.of(sigmoid_gate)).sides
    assert [gate[sign, 1].value for sign in (1, -1)] == pytest.approx([2.0, 3.0], rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "low", "high"),
    [
        (the_clip_itself, 0.8, 1.2),
        (signed_total_variation, 0.0, math.inf),
        (mask_by_something_else, 0.0, math.inf),
        (no_ratio_at_all, 0.0, math.inf),
    ],
)
def test_no_interval_is_said_where_there_is_none(loss, low, high):
    bounds = ratio.clip(Subject.of(loss)).bounds
    assert bounds == (pytest.approx(low, rel=1e-4), pytest.approx(high, rel=1e-4))


def weight_for_the_sampler(log_probs, old_log_probs, sampler_log_probs, advantages, mask):
    weight = (old_log_probs - sampler_log_probs).exp().clamp(max=2.0)
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages) * weight, mask)


def weight_upside_down(log_probs, old_log_probs, sampler_log_probs, advantages, mask):
    weight = (sampler_log_probs - old_log_probs).exp()
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages) * weight, mask)


def sampler_ignored(log_probs, old_log_probs, sampler_log_probs, advantages, mask):
    return mean_of_sums(clipped(ratio_of(log_probs, old_log_probs), advantages), mask)


def test_a_loss_of_three_policies_has_two_clips():
    report = report_of(weight_for_the_sampler)
    assert not mistakes(report)
    assert says_what_is_written(report)
    assert families.said(report.facts.correction, families.OF_SAMPLER) == (
        "Clip of the sampler's weight, by its ratio π_old/π_sampler: cut at 2 whatever the sign "
        "of A."
    )
    assert report.facts.clip.bounds == pytest.approx((0.8, 1.2), abs=1e-4)


def test_a_weight_for_the_sampler_has_a_right_side_up_and_is_read():
    assert mistakes(report_of(weight_upside_down)) == {"sampler-inverted"}
    assert "sampler-ignored" in codes(report_of(sampler_ignored), "note")
