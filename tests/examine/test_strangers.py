"""Losses as strangers reported them, written anew from what their threads say was wrong, or right.

The verdicts were written down, and kept, before `examine` had seen any of these losses. Each line
of `REPORTED` names the thread and its date.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from nbcourse.errors import UserError
from nbcourse.examine import Subject, examine
from tests.effort import swept
from tests.examine.parts import clipped, codes, mistakes


@dataclass(frozen=True)
class Reported:
    """What a report has to say of a loss.

    Attributes:
        loss: the function.
        source: the thread.
        convention: whose names it takes.
        wrong: codes of its mistakes, all of them.
        named: codes that have to be among the others.
        said: words that the report has to hold.
    """

    loss: Any
    source: str
    convention: str
    wrong: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    said: tuple[str, ...] = ()


REPORTED = []


def reported(source, convention, **expected):
    def keep(loss):
        REPORTED.append(Reported(loss, source, convention, **expected))
        return loss

    return keep


def masked_mean(losses, mask):
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def mean_of_rows(losses, mask):
    return ((losses * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def low_var_kl(log_probs, ref):
    d = (ref - log_probs).clamp(-20, 20)
    return (d.exp() - d - 1).clamp(-10, 10)


@reported("qiancheng0/ToolRL #52, 2026-01-07", "verl", wrong={"kl-sign"}, named={"token-mean"})
def kl_loss_subtracted(log_prob, old_log_prob, ref_log_prob, advantages, response_mask):
    """With a KL loss the training becomes unstable and collapses."""
    losses = clipped((log_prob - old_log_prob).exp(), advantages)
    kl = low_var_kl(log_prob, ref_log_prob)
    return masked_mean(losses, response_mask) - 0.001 * masked_mean(kl, response_mask)


@reported("Goekdeniz-Guelmez/mlx-lm-lora #49, 2026-04-19", "trl", wrong={"rewards-ignored"})
def ratio_that_is_a_constant(per_token_logps, ref_per_token_logps, advantages, completion_mask):
    """Without a level of importance sampling the log-weights are zeros, and exp(0) has no slope."""
    ratio = torch.zeros_like(per_token_logps).exp()
    losses = -torch.min(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    losses = losses + 0.04 * low_var_kl(per_token_logps, ref_per_token_logps)
    return mean_of_rows(losses, completion_mask)


@reported("alibaba/ROLL #444, 2026-05-18", "verl", wrong={"trained-padding"})
def numerator_without_the_mask(log_prob, old_log_prob, advantages, response_mask):
    """Masked tokens get a gradient of .5 where they should get 0."""
    losses = clipped((log_prob - old_log_prob).exp(), advantages)
    return losses.sum() / response_mask.sum()


@reported(
    "huggingface/trl #6369, 2026-07-17",
    "ms-swift",
    named={"truncated-counted", "token-mean"},
)
def truncated_answers_in_the_denominator(
    per_token_logps,
    old_per_token_logps,
    advantages,
    completion_mask,
    truncated_mask,
    num_items_in_batch,
):
    """Answers that were cut off are dropped above the line, and counted below it."""
    kept = completion_mask * (~truncated_mask[:, None])
    losses = clipped((per_token_logps - old_per_token_logps).exp(), advantages)
    return (losses * kept).sum() / num_items_in_batch


@reported(
    "huggingface/trl #5814, 2026-05-22",
    "trl",
    named={"sampler-weight"},
    said=("product", "cut at 3"),
)
def product_where_a_mean_was_asked_for(
    per_token_logps,
    old_per_token_logps,
    sampling_per_token_logps,
    advantages,
    completion_mask,
):
    """The sum of log-ratios is reported as a bug; it is the weight of an answer, and right."""
    mask = completion_mask
    losses = clipped((per_token_logps - old_per_token_logps).exp(), advantages[:, None])
    gap = ((old_per_token_logps - sampling_per_token_logps) * mask).sum(-1, keepdim=True)
    return mean_of_rows(losses * gap.exp().clamp(max=3.0), mask)


@reported(
    "arcee-ai/NeMo-RL #24, 2025-11-29",
    "nemo-rl",
    named={"sampler-weight", "seq-mean-token-mean"},
    said=("No clip of the sampler's weight",),
)
def icepop_that_the_mean_forgets(
    curr_logprobs, prev_logprobs, generation_logprobs, advantages, token_mask, sample_mask
):
    """The mask of IcePop is made, and the mean over answers takes the other one."""
    mask = token_mask * sample_mask[:, None]
    weight = (prev_logprobs - generation_logprobs).exp()
    _unread = mask * ((weight >= 0.5) & (weight <= 5.0))
    losses = clipped((curr_logprobs - prev_logprobs).exp(), advantages) * weight
    return mean_of_rows(losses, mask)


@reported("MakazhanAlpamys/Soup #342, 2026-08-29", "trl", named={"unbounded", "padding-nan"})
def nothing_held_and_masked_by_a_product(
    per_token_logps, old_per_token_logps, advantages, completion_mask
):
    """Runs end in NaN: the ratio is not clamped, and 0 · NaN is NaN."""
    ratio = (per_token_logps - old_per_token_logps).exp()
    losses = -torch.min(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    return mean_of_rows(losses, completion_mask)


@reported(
    "PrimeIntellect-ai/prime-rl, its loss of December 2025",
    "prime-rl",
    named={"ratio-mask", "sequence-mask"},
)
def masked_by_ratio_and_by_the_least_ratio(
    trainer_logprobs, inference_logprobs, advantages, loss_mask
):
    """Tokens outside of .125 to 8 are left out, and answers that hold one below .001."""
    ratio = (trainer_logprobs - inference_logprobs).exp()
    least = ratio.masked_fill(~loss_mask, torch.inf).min(dim=-1, keepdim=True).values
    kept = loss_mask & (ratio >= 0.125) & (ratio <= 8.0) & (least >= 1e-3)
    return (-ratio * advantages)[kept].sum() / len(loss_mask)


@reported(
    "PrimeIntellect-ai/prime-rl, ipo_loss_fn of 2026-08-21",
    "prime-rl",
    named={"probability-mask"},
    said=("0.1",),
)
def masked_by_the_probability_whatever_the_sign(
    trainer_logprobs, inference_logprobs, advantages, loss_mask
):
    change = trainer_logprobs - inference_logprobs
    kept = loss_mask & ((trainer_logprobs.exp() - inference_logprobs.exp()).abs() <= 0.1)
    losses = -(kept * advantages * change.exp()) + 1e-3 * loss_mask * change.square()
    return losses.sum() / len(loss_mask)


@reported("rasbt/reasoning-from-scratch #185, 2026-02-22", "book", wrong={"masked-eos"})
def end_of_the_sample_left_out(log_probs, rewards, mask):
    """The token that ends an answer was not among the sampled ones that are trained."""
    inside = mask[:, 1:] & mask[:, :-1]
    summed = (log_probs[:, :-1] * inside).sum(dim=1)
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    return -(advantages.detach() * summed).mean()


@reported(
    "agentscope-ai/Trinity-RFT #420, 2025-12-02",
    "verl",
    named={"sequence-mask", "token-mean"},
    said=("A < 0", "0.1"),
)
def answers_masked_that_are_bad_and_far_off(log_prob, old_log_prob, advantages, response_mask):
    """DeepSeek-V3.2: bad answers whose mean log-ratio is far below 0 are left out whole."""
    losses = clipped((log_prob - old_log_prob).exp(), advantages)
    gap = ((old_log_prob - log_prob.detach()) * response_mask).sum(-1, keepdim=True)
    gap = gap / response_mask.sum(-1, keepdim=True).clamp(min=1)
    bad = (advantages * response_mask).sum(-1, keepdim=True) < 0
    return masked_mean(losses * ~(bad & (gap > 0.1)), response_mask)


@reported(
    "huggingface/trl #6095, 2026-06-18",
    "trl",
    named={"sequence-ratio"},
    said=("geometric",),
)
def gmpo(per_token_logps, old_per_token_logps, advantages, completion_mask):
    """The geometric mean of ratios, each of which is clipped by the sign of the advantage."""
    mask, signal = completion_mask, advantages[:, None]
    change = per_token_logps - old_per_token_logps
    signed = signal.sign() * change
    held = signal.sign() * torch.min(signed, signed.clamp(-0.4, 0.4))
    ratio = ((held * mask).sum(-1) / mask.sum(-1).clamp(min=1)).exp()
    return -(ratio * advantages).mean()


@reported(
    "areal-project/AReaL #1405, 2026-06-10",
    "areal",
    named={"sampler-weight"},
    said=("KL",),
)
def kpop(logprobs, proximal_logprobs, old_logprobs, advantages, loss_mask):
    """Tokens whose two policies are a binary KL of .05 apart, in either direction, are left out."""
    p, q = proximal_logprobs.exp(), old_logprobs.exp()

    def binary(p, q):
        p, q = p.clamp(1e-6, 1 - 1e-6), q.clamp(1e-6, 1 - 1e-6)
        return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()

    kept = (binary(p, q) <= 0.05) & (binary(q, p) <= 0.05)
    losses = clipped((logprobs - proximal_logprobs).exp(), advantages) * (p / q)
    return (losses * kept * loss_mask).sum() / loss_mask.sum()


KEPT = (
    kl_loss_subtracted,
    numerator_without_the_mask,
    truncated_answers_in_the_denominator,
    masked_by_ratio_and_by_the_least_ratio,
    end_of_the_sample_left_out,
    kpop,
)


@pytest.mark.parametrize(
    "case",
    swept(REPORTED, keep=[case for case in REPORTED if case.loss in KEPT]),
    ids=lambda case: case.loss.__name__,
)
def test_a_reported_loss_is_judged_as_its_thread_bears_out(case):
    report = examine(Subject.of(case.loss, convention=case.convention))
    assert mistakes(report) == case.wrong, str(report)
    assert case.named <= codes(report, "choice") | codes(report, "note"), str(report)
    assert all(words in str(report) for words in case.said), str(report)


def test_a_mask_of_another_shape_is_refused_in_one_line():
    """huggingface/trl #6095, 2026-06-18: advantages (B,) beside gaps (B, 1) make (B, B)."""

    def loss(per_token_logps, old_per_token_logps, advantages, completion_mask):
        change = per_token_logps - old_per_token_logps
        gap = -(change * completion_mask).sum(-1, keepdim=True) / completion_mask.sum(-1, True)
        dropped = (advantages < 0) & (gap.detach() > 0.1)
        return masked_mean(-change.exp() * advantages[:, None] * ~dropped, completion_mask)

    with pytest.raises(UserError, match="raises RuntimeError"):
        examine(Subject.of(loss, convention="trl"))
