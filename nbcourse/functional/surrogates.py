"""Per-token losses whose gradient is the policy gradient, or a clipped version of it.

Each function returns a loss for each token, to be minimised: the sign is in here, never at the
call. `log_probs` carries the gradient; `old_log_probs`, of the policy that sampled, and
`advantages` are constants. Averaging over tokens is the business of `aggregation`.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from nbcourse.functional.arguments import (
    BT,
    AboveOne,
    AnyMask,
    AnyShape,
    AtLeastOne,
    BTMask,
    NonNegative,
    Positive,
    Share,
    checked,
    one_of,
)
from nbcourse.functional.masking import masked_mean, set_aside


@checked
def policy_gradient(log_probs: AnyShape, advantages: AnyShape) -> Tensor:
    """The vanilla surrogate: its value means nothing, its gradient everything.

        Lₜ = −Aₜ log π(aₜ|sₜ),      −∇Lₜ = Aₜ ∇log π(aₜ|sₜ)

    Args:
        log_probs: any shape, usually (B, T).
        advantages: the same shape.

    Returns:
        Loss of each token, NaN (with zero gradient) where an input is not finite.

    Raises:
        ValueError: if shapes differ.

    Book: equation (eq-pg-loss). Source: Williams 1992, theorem 1.

    >>> log_probs = torch.tensor([-0.5, -2.0], requires_grad=True)
    >>> loss = policy_gradient(log_probs, torch.tensor([2.0, -1.0]))  # −2 · −0.5 and 1 · −2
    >>> loss.tolist(), *torch.autograd.grad(loss.sum(), log_probs)  # the gradient is −A
    ([1.0, -2.0], tensor([-2.,  1.]))
    """
    broken = ~(log_probs.detach() * advantages.detach()).isfinite()
    log_probs, advantages = set_aside(broken, log_probs, advantages.detach())
    return (-advantages * log_probs).masked_fill(broken, math.nan)


@checked
def ppo_clip(
    log_probs: AnyShape,
    old_log_probs: AnyShape,
    advantages: AnyShape,
    *,
    clip_low: Share = 0.2,
    clip_high: NonNegative | None = None,
    dual_clip: AboveOne | None = None,
) -> Tensor:
    """PPO's clipped surrogate: no reward for moving further than the interval.

        ρₜ = π(aₜ|sₜ) / π_old(aₜ|sₜ)
        Lₜ = −min(ρₜ Aₜ, clip(ρₜ, 1 − clip_low, 1 + clip_high) Aₜ)
        Lₜ = min(Lₜ, −dual_clip · Aₜ)   where Aₜ < 0, if dual_clip is given

    The minimum of objectives is the maximum of losses, for either sign of A.

    Args:
        log_probs: any shape, usually (B, T).
        old_log_probs: the same shape, under the policy that sampled.
        advantages: the same shape.
        clip_low: distance below 1, at most 1.
        clip_high: distance above 1; `clip_low` if None. DAPO's clip-higher is 0.2 and 0.28.
        dual_clip: cap c > 1 on the ratio of a token with negative advantage; 3 is usual.

    Returns:
        Loss of each token, NaN (with zero gradient) where an input is not finite.

    Raises:
        ValueError: if shapes differ or a clip is out of range.

    Book: equation (eq-ppo-clip). Source: Schulman et al. 2017, equation 7; dual clip: Ye et al.
    2020, equation 5; clip-higher: Yu et al. 2025 (DAPO), equation 10.

    >>> old = torch.zeros(3)
    >>> new, A = torch.tensor([1.5, 1.5, 0.5]).log(), torch.tensor([1.0, -1.0, 1.0])
    >>> ppo_clip(new, old, A)  # ρ = 1.5 is clipped at 1.2 if A > 0; no clip: 1.5 · 1, −0.5 · 1
    tensor([-1.2000,  1.5000, -0.5000])
    """
    clip_high = clip_low if clip_high is None else clip_high
    ratio, advantages, broken = _ratio(log_probs, old_log_probs, advantages)
    loss = _clipped_loss(ratio, advantages, clip_low, clip_high)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.min(loss, -dual_clip * advantages), loss)
    return loss.masked_fill(broken, math.nan)


@checked
def gspo(
    log_probs: BT,
    old_log_probs: BT,
    advantages: BT,
    mask: BTMask,
    *,
    clip_low: Share = 3e-4,
    clip_high: NonNegative | None = 4e-4,
) -> Tensor:
    """Sequence-level ratios and clipping, written as a loss for each token.

        sᵢ = exp( (1/|yᵢ|) Σₜ log ρᵢₜ )
        sᵢₜ = sg[sᵢ] · πᵢₜ / sg[πᵢₜ],      Lᵢₜ = −min(sᵢₜ Aᵢₜ, clip(sᵢₜ) Aᵢₜ)

    Every token of a response carries the response's ratio, so a response is clipped as a whole.
    For responses of different lengths the gradient equals that of the sequence-level objective only
    under `seq-mean-token-mean`.

    Args:
        log_probs: (B, T).
        old_log_probs: (B, T).
        advantages: (B, T), one number along each row.
        mask: (B, T) bool.
        clip_low: distance below 1; the paper's value is tiny because s is a geometric mean.
        clip_high: distance above 1; `clip_low` if None.

    Returns:
        (B, T) loss of each token, 0 where the mask is False.

    Raises:
        ValueError: if shapes differ, mask is not boolean or a clip is out of range.

    Book: equation (eq-gspo). Source: Zheng et al. 2025 (GSPO), equations 5, 7 and 14.

    >>> new, old = torch.tensor([[2.0, 4.5]]).log(), torch.zeros(1, 2)
    >>> A = torch.full((1, 2), 0.5)
    >>> gspo(new, old, A, A > 0, clip_high=9.0)  # s = √(2 · 4.5) = 3 for both tokens: −3 · ½
    tensor([[-1.5000, -1.5000]])
    """
    clip_high = clip_low if clip_high is None else clip_high
    log_probs, old_log_probs, advantages = set_aside(
        ~mask, log_probs, old_log_probs.detach(), advantages.detach()
    )
    ratio = _geometric_mean(log_probs - old_log_probs, mask)
    return _clipped_loss(ratio, advantages, clip_low, clip_high).masked_fill(~mask, 0.0)


@checked
def cispo(
    log_probs: AnyShape,
    old_log_probs: AnyShape,
    advantages: AnyShape,
    *,
    clip_low: Share = 0.2,
    clip_high: NonNegative | None = None,
) -> Tensor:
    """Clip the importance weight, not the update: every token keeps a gradient.

        Lₜ = −sg[clip(ρₜ, 1 − clip_low, 1 + clip_high)] · Aₜ · log π(aₜ|sₜ)

    Args:
        log_probs: any shape, usually (B, T).
        old_log_probs: the same shape.
        advantages: the same shape.
        clip_low: distance below 1; 1.0 leaves the weight without a lower bound, as the paper does.
        clip_high: distance above 1; `clip_low` if None.

    Returns:
        Loss of each token, NaN (with zero gradient) where an input is not finite.

    Raises:
        ValueError: if shapes differ or a clip is out of range.

    Book: equation (eq-cispo). Source: MiniMax 2025 (MiniMax-M1), equation 4.

    >>> new, old = torch.tensor([-1.0, -1.0]), torch.tensor([-1.0, -3.0])
    >>> cispo(new, old, torch.ones(2))  # −ρ log π with ρ = 1, and e² clipped at 1.2
    tensor([1.0000, 1.2000])
    """
    clip_high = clip_low if clip_high is None else clip_high
    ratio, advantages, broken = _ratio(log_probs, old_log_probs, advantages)
    weight = ratio.detach().clamp(1 - clip_low, 1 + clip_high)
    (log_probs,) = set_aside(broken, log_probs)
    return (-weight * advantages * log_probs).masked_fill(broken, math.nan)


@checked
def gmpo(
    log_probs: BT,
    old_log_probs: BT,
    advantages: BT,
    mask: BTMask,
    *,
    clip_low: NonNegative = 0.4,
    clip_high: NonNegative | None = None,
) -> Tensor:
    """The geometric mean of clipped token ratios, written as a loss for each token.

        dᵢₜ = log ρᵢₜ,   hᵢₜ = σ min(σ dᵢₜ, σ clip(dᵢₜ, −clip_low, clip_high)),   σ = sign Aᵢ
        gᵢ = exp( (1/|yᵢ|) Σₜ hᵢₜ ),   Lᵢₜ = −Aᵢ · sg[gᵢ] · exp(hᵢₜ − sg[hᵢₜ])

    Tokens are clipped one by one, as in PPO and on the same side, before the mean is taken; GSPO
    takes the mean first, and clips the response. For responses of different lengths the gradient
    equals that of the sequence-level objective only under `seq-mean-token-mean`.

    Args:
        log_probs: (B, T).
        old_log_probs: (B, T).
        advantages: (B, T), one number along each row.
        mask: (B, T) bool.
        clip_low: of log ratios, below 0; the paper's ratios lie between e^−0.4 and e^0.4.
        clip_high: of log ratios, above 0; `clip_low` if None.

    Returns:
        (B, T) loss of each token, 0 where the mask is False.

    Raises:
        ValueError: if shapes differ, mask is not boolean or a clip is out of range.

    Book: equation (eq-gmpo). Source: Zhao et al. 2025 (GMPO), section 4; verl 1dda039,
    `compute_policy_loss_geo_mean`.

    >>> new, old = torch.tensor([[2.0, 1.0]]).log(), torch.zeros(1, 2)
    >>> A = torch.ones(1, 2)
    >>> gmpo(new, old, A, A > 0, clip_low=math.log(1.44))  # √(1.44 · 1) = 1.2 for both tokens
    tensor([[-1.2000, -1.2000]])
    """
    clip_high = clip_low if clip_high is None else clip_high
    log_probs, old_log_probs, advantages = set_aside(
        ~mask, log_probs, old_log_probs.detach(), advantages.detach()
    )
    change, sign = log_probs - old_log_probs, advantages.sign()
    held = sign * torch.min(sign * change, sign * change.clamp(-clip_low, clip_high))
    return (-_geometric_mean(held, mask) * advantages).masked_fill(~mask, 0.0)


@checked
def sapo(
    log_probs: AnyShape,
    old_log_probs: AnyShape,
    advantages: AnyShape,
    *,
    tau_positive: Positive = 1.0,
    tau_negative: Positive = 1.05,
) -> Tensor:
    """A sigmoid gate in the place of a clip: far from 1 a ratio counts less and less.

        Lₜ = −(4/τ) σ(τ (ρₜ − 1)) Aₜ,      −∇Lₜ = 4 σ(1 − σ) · ρₜ Aₜ ∇log π(aₜ|sₜ)

    The factor 4 σ(1 − σ) is 1 at ρ = 1 and falls off on both sides, whatever the sign of A.

    Args:
        log_probs: any shape, usually (B, T).
        old_log_probs: the same shape, under the policy that sampled.
        advantages: the same shape.
        tau_positive: temperature where A > 0; the larger, the narrower the gate.
        tau_negative: elsewhere.

    Returns:
        Loss of each token, NaN (with zero gradient) where an input is not finite.

    Raises:
        ValueError: if shapes differ or a temperature is not positive.

    Book: equation (eq-sapo). Source: Gao et al. 2025 (SAPO); verl 1dda039,
    `compute_policy_loss_sapo`.

    >>> new, A = torch.tensor([1.0, 3.0]).log(), torch.tensor([1.0, -1.0])
    >>> sapo(new, torch.zeros(2), A, tau_negative=2.0)  # −4 · ½, and 2 σ(2 · 2)
    tensor([-2.0000,  1.9640])
    """
    ratio, advantages, broken = _ratio(log_probs, old_log_probs, advantages)
    tau = torch.full_like(advantages, tau_negative).masked_fill(advantages > 0, tau_positive)
    gate = 4 / tau * torch.sigmoid(tau * (ratio - 1))
    return (-gate * advantages).masked_fill(broken, math.nan)


@checked
def dppo(
    log_probs: AnyShape,
    sampler_log_probs: AnyShape,
    advantages: AnyShape,
    *,
    mask_low: Share = 0.2,
    mask_high: Share | None = None,
    two_sided: bool = False,
    cap: AtLeastOne | None = 20.0,
) -> Tensor:
    """A trust region by how far the *probability* of a token has moved, and not its ratio.

        Lₜ = −sg[min(ρₜ, cap)] Aₜ log π(aₜ|sₜ),    ρ = π/π_sampler
        Lₜ = 0   where A > 0 and π − π_sampler > mask_high, or A < 0 and π_sampler − π > mask_low;
                 two-sided (IPO): where either holds, whatever the sign of A

    |π − π_sampler| is the total variation between "this token" and "another one" under the two
    policies. A token of probability 0.001 may become a hundred times as likely; one of 0.75 may
    not rise to 0.955, whose ratio of 1.27 a clip at 1.28 lets pass.

    Args:
        log_probs: any shape, usually (B, T).
        sampler_log_probs: the same shape, under the policy that sampled.
        advantages: the same shape.
        mask_low: the largest fall of a probability.
        mask_high: the largest rise; `mask_low` if None.
        two_sided: both bounds for every token, so that nothing brings one back that is outside.
        cap: the largest ratio; None for no limit.

    Returns:
        Loss of each token, NaN (with zero gradient) where an input is not finite.

    Raises:
        ValueError: if shapes differ or a bound is out of range.

    Book: equation (eq-dppo). Source: Qi et al. 2026 (DPPO), the binary total variation, and
    section 5.4 for the cap; verl 1dda039, `compute_policy_loss_dppo_tv`; two-sided: prime-rl
    559b447, `ipo_loss_fn`.

    >>> sampler, new = torch.tensor([0.5, 0.01]).log(), torch.tensor([0.8, 0.05]).log()
    >>> new.requires_grad_()
    tensor([-0.2231, -2.9957], requires_grad=True)
    >>> loss = dppo(new, sampler, torch.ones(2)).sum()  # 0.3 is too far, and a ratio of 5 is not
    >>> torch.autograd.grad(loss, new)[0]
    tensor([-0., -5.])
    """
    mask_high = mask_low if mask_high is None else mask_high
    ratio, advantages, broken = _ratio(log_probs, sampler_log_probs, advantages)
    (log_probs,) = set_aside(broken, log_probs)
    moved = (log_probs.exp() - sampler_log_probs.exp()).detach()
    risen, fallen = moved > mask_high, moved < -mask_low
    out = risen | fallen if two_sided else torch.where(advantages > 0, risen, fallen)
    weight = ratio.detach().clamp(max=math.inf if cap is None else cap).masked_fill(out, 0.0)
    return (-weight * advantages * log_probs).masked_fill(broken, math.nan)


@checked
def importance_weights(
    log_probs: AnyShape,
    sampler_log_probs: AnyShape,
    mask: AnyMask | None = None,
    *,
    floor: Share = 0.0,
    cap: AtLeastOne = 2.0,
    level: Literal["token", "sequence"] = "token",
    outside: Literal["truncate", "mask"] = "truncate",
) -> Tensor:
    """How much likelier a token was to the learner than to the sampler, within bounds.

        wₜ = π_old(aₜ|sₜ) / π_sampler(aₜ|sₜ),   or their product over the response, for each token
        w → max(floor, min(w, cap)),             or 0 where w is outside [floor, cap]

    Sampler and learner hold the same weights and round differently, so the tokens come from a
    policy that is not quite the learner's. Each token's loss is multiplied by its weight; the
    ratio that a surrogate clips, π/π_old, is then the learner's own and begins at exactly 1.

    Args:
        log_probs: any shape, usually (B, T), of the learner before its first update.
        sampler_log_probs: the same shape, as the tokens were sampled.
        mask: bool, the shape of `log_probs`; None counts every token.
        floor: the smallest weight, from 0 to 1.
        cap: the largest weight, at least 1; it bounds the variance at the price of a bias.
        level: "token", or "sequence" for the product over the last axis: exact, uncapped; noisier.
        outside: "truncate" (TIS), or "mask" (0: IcePop by token, TRL's default by sequence).

    Returns:
        The weights, without gradient; 0 where the mask is False, and NaN where an input that
        counts is not finite.

    Raises:
        ValueError: if shapes differ, a bound is out of range or a choice unknown.

    Book: equation (eq-truncated-importance). Source: Yao et al. 2025, "Your efficient RL framework
    secretly brings you off-policy RL training" (TIS); Ionides 2008, "Truncated Importance
    Sampling"; masks: Ling Team 2025, "Every step evolves" (IcePop), Liu et al. 2025, "When speed
    kills stability".

    >>> learner, sampler = torch.tensor([0.2, 0.6]).log(), torch.tensor([0.4, 0.2]).log()
    >>> importance_weights(learner, sampler)  # 0.2/0.4, and 0.6/0.2 = 3 cut to 2
    tensor([0.5000, 2.0000])
    >>> importance_weights(learner, sampler, outside="mask")  # 3 is outside
    tensor([0.5000, 0.0000])
    """
    one_of(level, ("token", "sequence"), name="level")
    one_of(outside, ("truncate", "mask"), name="outside")
    log_ratio = log_probs.detach() - sampler_log_probs.detach()
    if mask is not None:
        log_ratio = log_ratio.masked_fill(~mask, 0.0)
    if level == "sequence":
        log_ratio = log_ratio.sum(dim=-1, keepdim=True).expand(log_ratio.shape)
    broken = ~log_ratio.isfinite()
    lowest = math.log(floor) if floor else -math.inf
    weights = log_ratio.clamp(lowest, math.log(cap)).exp()
    if outside == "mask":
        weights = weights.masked_fill((log_ratio < lowest) | (log_ratio > math.log(cap)), 0.0)
    weights = weights.masked_fill(broken, math.nan)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


@checked
def clip_fraction(
    log_probs: AnyShape,
    old_log_probs: AnyShape,
    advantages: AnyShape,
    mask: AnyMask | None = None,
    *,
    clip_low: Share = 0.2,
    clip_high: NonNegative | None = None,
    side: str = "both",
) -> Tensor:
    """Fraction of tokens whose clipped branch is active, hence without gradient.

        A > 0 and ρ > 1 + clip_high   ("high")      A < 0 and ρ < 1 − clip_low   ("low")

    A ratio outside the interval on the *other* side is not clipped: it still has its gradient.

    Args:
        log_probs: (B, T).
        old_log_probs: (B, T).
        advantages: (B, T).
        mask: (B, T) bool; None counts every token.
        clip_low: distance below 1.
        clip_high: distance above 1; `clip_low` if None.
        side: "both", "low" or "high".

    Returns:
        A scalar between 0 and 1, without gradient.

    Raises:
        ValueError: if shapes differ, mask is not boolean, or an option is out of range.

    Book: equation (eq-clip-fraction). Source: Schulman et al. 2017, section 3, figure 1.

    >>> new, old = torch.tensor([1.5, 1.5, 0.5, 1.0]).log(), torch.zeros(4)
    >>> clip_fraction(new, old, torch.tensor([1.0, -1.0, -1.0, 1.0]))  # the first and the third
    tensor(0.5000)
    """
    one_of(side, ("both", "low", "high"), name="side")
    clip_high = clip_low if clip_high is None else clip_high
    ratio, advantages, _ = _ratio(log_probs, old_log_probs, advantages)
    ratio = ratio.detach()
    if mask is None:
        mask = torch.ones_like(ratio, dtype=torch.bool)
    high = (advantages > 0) & (ratio > 1 + clip_high)
    low = (advantages < 0) & (ratio < 1 - clip_low)
    active = {"both": high | low, "low": low, "high": high}[side]
    return masked_mean(active.to(ratio.dtype), mask)


def _ratio(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The importance ratio, the advantages, and where the two make no finite product.

    A ratio too large for its dtype is held at the largest one: the clip brings it back, and where
    there is none it still stands out.
    """
    log_ratio, advantages = log_probs - old_log_probs.detach(), advantages.detach()
    largest = math.log(torch.finfo(log_ratio.dtype).max) - 1
    ratio = log_ratio.detach().clamp(max=largest).exp()
    broken = ~(log_ratio.isfinite() & (ratio * advantages).isfinite())
    log_ratio, advantages = set_aside(broken, log_ratio, advantages)
    return log_ratio.clamp(max=largest).exp(), advantages, broken


def _geometric_mean(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """(B, T) of each response's ratios, for each token with the gradient of its own."""
    mean = masked_mean(log_ratio.detach(), mask, dim=1)
    zero = log_ratio - log_ratio.detach()  # first, so that one ratio is not rounded T ways
    return (mean[:, None] + zero).exp()


def _clipped_loss(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.min(ratio * advantages, clipped * advantages)
