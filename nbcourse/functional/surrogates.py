"""Per-token losses whose gradient is the policy gradient, or a clipped version of it.

Each function returns a loss for each token, to be minimised: the sign is in here, never at the
call. `log_probs` carries the gradient; `old_log_probs`, of the policy that sampled, and
`advantages` are constants. Averaging over tokens is the business of `aggregation`.
"""

import math

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
    The gradient equals that of the sequence-level objective only under `seq-mean-token-mean`.

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
    log_ratio = masked_mean(log_probs.detach() - old_log_probs, mask, dim=1)
    zero = log_probs - log_probs.detach()  # first, so that one ratio is not rounded T ways
    ratio = (log_ratio[:, None] + zero).exp()
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
def truncated_importance_weights(
    log_probs: AnyShape, sampler_log_probs: AnyShape, *, cap: AtLeastOne = 2.0
) -> Tensor:
    """How much likelier a token was to the learner than to the sampler, and never more than a cap.

        wₜ = min( π_old(aₜ|sₜ) / π_sampler(aₜ|sₜ), cap )

    Sampler and learner hold the same weights and round differently, so the tokens come from a
    policy that is not quite the learner's. Each token's loss is multiplied by its weight; the
    ratio that a surrogate clips, π/π_old, is then the learner's own and begins at exactly 1.

    Args:
        log_probs: any shape, usually (B, T), of the learner before its first update.
        sampler_log_probs: the same shape, as the tokens were sampled.
        cap: the largest weight, at least 1; it bounds the variance at the price of a bias.

    Returns:
        The weights, without gradient; NaN where an input is not finite.

    Raises:
        ValueError: if shapes differ or cap is below 1.

    Book: equation (eq-truncated-importance). Source: Yao et al. 2025, "Your efficient RL framework
    secretly brings you off-policy RL training" (TIS); Ionides 2008, "Truncated Importance
    Sampling".

    >>> learner, sampler = torch.tensor([0.2, 0.6]).log(), torch.tensor([0.4, 0.2]).log()
    >>> truncated_importance_weights(learner, sampler)  # 0.2/0.4, and 0.6/0.2 = 3 cut to 2
    tensor([0.5000, 2.0000])
    """
    log_ratio = log_probs.detach() - sampler_log_probs.detach()
    broken = ~log_ratio.isfinite()
    return log_ratio.clamp(max=math.log(cap)).exp().masked_fill(broken, math.nan)


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


def _clipped_loss(ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float) -> Tensor:
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.min(ratio * advantages, clipped * advantages)
