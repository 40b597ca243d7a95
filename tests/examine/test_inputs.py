"""Losses that take more than one policy: a critic, flags, three policies, many answers in a row."""

import pytest
import torch

from nbcourse.examine import Subject
from tests.effort import swept
from tests.examine.parts import (
    clipped,
    codes,
    mistakes,
    ratio_of,
    report_of,
    safe,
    says_what_is_written,
    token_mean,
)

PLANTED = {}


def planted(*wrong, named=(), convention="book"):
    """A loss, all of its mistakes, and what else has to be said of it."""

    def keep(loss):
        PLANTED[loss.__name__] = (loss, {*wrong}, {*named}, convention)
        return loss

    return keep


# ---------------------------------------------------------------- a critic


def estimated(deltas, fade=0.95):
    """Σ fadeᵏ δₜ₊ₖ."""
    total, sums = torch.zeros_like(deltas[:, 0]), []
    for delta in deltas.flip(1).unbind(1):
        total = delta + fade * total
        sums.append(total)
    return torch.stack(sums[::-1], dim=1)


def scores(rewards, mask):
    last = mask.sum(dim=1, keepdim=True) - 1
    return torch.where(torch.arange(mask.shape[1]) == last, rewards[:, None], 0.0)


def following(values):
    return torch.cat([values[:, 1:], 0 * values[:, :1]], dim=1)


def of_critic(log_probs, rewards, values, mask, td, fade=0.95):
    values = safe(values, mask)
    deltas = td(scores(rewards, mask), values, following(values))
    return token_mean(-log_probs * safe(estimated(deltas, fade), mask), mask)


@planted(named={"token-mean", "discounted"})
def critic_subtracted(log_probs, rewards, values, mask):
    return of_critic(log_probs, rewards, values, mask, lambda r, v, after: r + after - v)


@planted(named={"token-mean"})
def critic_subtracted_from_returns(log_probs, rewards, values, mask):
    return of_critic(log_probs, rewards, values, mask, lambda r, v, after: r + after - v, fade=1.0)


@planted(named={"batch-baseline", "spread-divided"})
def critic_and_whitening(log_probs, rewards, values, mask):
    values = safe(values, mask)
    advantages = estimated(scores(rewards, mask) + following(values) - values)
    centred = advantages - advantages[mask].mean()
    return token_mean(-log_probs * centred / (advantages[mask].std() + 1e-8), mask)


@planted("critic-added")
def critic_with_the_other_sign(log_probs, rewards, values, mask):
    return of_critic(log_probs, rewards, values, mask, lambda r, v, after: r - after + v)


@planted("values-one-place-late")
def critic_one_place_late(log_probs, rewards, values, mask):
    return of_critic(
        log_probs, rewards, values, mask, lambda r, _, after: r + following(after) - after
    )


@planted("no-bootstrap")
def critic_without_what_follows(log_probs, rewards, values, mask):
    return of_critic(log_probs, rewards, values, mask, lambda r, v, _: r - v)


@planted("value-behind-the-end")
def critic_asked_again_at_the_end(log_probs, rewards, values, mask):
    def td(scored, value, after):
        return scored + torch.where(after == 0, value, after) - value

    return of_critic(log_probs, rewards, values, mask, td)


@planted(named={"token-mean"})
def critic_of_one_step(log_probs, rewards, values, mask):
    return of_critic(log_probs, rewards, values, mask, lambda r, v, after: r + after - v, fade=0.0)


@planted(named={"no-critic", "missing-baseline"})
def critic_not_asked(log_probs, rewards, values, mask):
    return of_critic(log_probs, rewards, values, mask, lambda r, *_: r, fade=1.0)


@planted("padding-read")
def critic_of_padding(log_probs, rewards, values, mask):
    deltas = scores(rewards, mask) + following(values) - values
    return token_mean(-log_probs * safe(estimated(deltas), mask), mask)


# ---------------------------------------------------------------- flags, and discounts by length


@planted("truncated-only", named={"token-mean"})
def only_those_cut_off(log_probs, advantages, mask, truncated):
    kept = mask & truncated[:, None]
    return safe(-log_probs * advantages, kept).sum() / kept.sum().clamp(min=1)


# ---------------------------------------------------------------- three policies


def three(log_probs, old_log_probs, advantages, mask, weight):
    losses = clipped(ratio_of(log_probs, old_log_probs), advantages)
    return token_mean(weight * losses, mask)


@planted(named={"sampler-weight", "ratio-mask"})
def icepop(log_probs, old_log_probs, sampler_log_probs, advantages, mask):
    weight = (old_log_probs - sampler_log_probs).exp()
    kept = (weight >= 0.4) & (weight <= 3.0)
    return three(log_probs, old_log_probs, advantages, mask, weight * kept)


@planted("sampler-power")
def corrected_twice(log_probs, old_log_probs, sampler_log_probs, advantages, mask):
    weight = (old_log_probs - sampler_log_probs).exp()
    return three(log_probs, sampler_log_probs, advantages, mask, weight)


@planted("bound-on-the-wrong-side", named={"sampler-weight"})
def floor_for_a_cap(log_probs, old_log_probs, sampler_log_probs, advantages, mask):
    weight = (old_log_probs - sampler_log_probs).exp().clamp(min=2.0)
    return three(log_probs, old_log_probs, advantages, mask, weight)


@planted("bound-on-the-wrong-side")
def floor_for_a_cap_of_the_ratio(log_probs, old_log_probs, advantages, mask):
    weight = ratio_of(log_probs, old_log_probs).detach().clamp(min=3.0)
    return token_mean(-weight * advantages * log_probs, mask)


@planted(named={"token-mean"}, convention="nemo-rl")
def a_dictionary_that_holds_a_reference_too(next_token_logprobs, data, global_valid_toks):
    places = data["token_mask"][:, 1:]
    ratio = (next_token_logprobs - data["prev_logprobs"][:, 1:]).exp()
    return (clipped(ratio, data["advantages"][:, 1:]) * places).sum() / global_valid_toks


# ---------------------------------------------------------------- several responses in one row


def of_row(log_probs, old_log_probs, advantages):
    return clipped(ratio_of(log_probs, old_log_probs), advantages)


@planted(named={"seq-mean-token-mean"}, convention="packed")
def mean_of_segments(log_probs, old_log_probs, advantages, mask, segment_ids):
    losses, at = of_row(log_probs, old_log_probs, advantages) * mask, segment_ids[0] - 1
    sums = torch.zeros(int(at.max()) + 1, dtype=losses.dtype).index_add(0, at, losses[0])
    lengths = torch.zeros_like(sums).index_add(0, at, mask[0].to(sums.dtype))
    return (sums / lengths.clamp(min=1)).mean()


@planted(named={"token-mean"}, convention="packed")
def mean_of_the_row(log_probs, old_log_probs, advantages, mask):
    losses = of_row(log_probs, old_log_probs, advantages) * mask
    return (losses.sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)).mean()


@planted("masked-eos", convention="packed")
def ends_left_out(log_probs, old_log_probs, advantages, mask, position_ids):
    last = torch.cat([position_ids[:, 1:] == 0, torch.ones_like(mask[:, :1])], dim=1)
    losses = of_row(log_probs, old_log_probs, advantages) * (mask & ~last)
    return losses.sum() / mask.sum().clamp(min=1)


@planted(named={"sequence-ratio"}, convention="packed")
def ratio_of_each_segment(log_probs, old_log_probs, advantages, mask, cu_seqlens):
    losses = []
    for begin, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        if begin < end:
            change = (log_probs - old_log_probs)[0, begin:end][mask[0, begin:end]]
            losses.append(clipped(change.mean().exp(), advantages[0, begin]))
    return torch.stack(losses).mean()


KEPT = (
    *("critic_subtracted", "critic_and_whitening", "critic_one_place_late", "only_those_cut_off"),
    *("critic_asked_again_at_the_end", "critic_of_one_step"),
    *("corrected_twice", "floor_for_a_cap", "mean_of_segments"),
    "a_dictionary_that_holds_a_reference_too",
)


@pytest.mark.parametrize("name", swept(PLANTED, keep=KEPT))
def test_a_loss_with_these_inputs_is_judged_rightly(name):
    loss, wrong, named, convention = PLANTED[name]
    subject = loss if convention == "book" else Subject.of(loss, convention=convention)
    report = report_of(subject)
    assert mistakes(report) == wrong, str(report)
    assert named <= codes(report, "choice") | codes(report, "note"), str(report)
    assert says_what_is_written(report), str(report)
