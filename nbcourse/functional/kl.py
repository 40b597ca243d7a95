"""The Kullback–Leibler divergence to a reference policy: its value, its place, its gradient.

With actions sampled from π, and d = log π(a|s) − log π_ref(a|s), three estimators of KL(π‖π_ref)
are in use (Schulman 2020, "Approximating KL Divergence", there with r = π_ref/π = e^{−d}):

    k1 = d          unbiased, either sign
    k2 = d²/2       biased, never negative
    k3 = e^{−d} − 1 + d    unbiased, never negative

An estimator of the *value* is not an estimator of the *gradient*: differentiating k1 gives zero on
average, k3 the gradient of the other KL in each state. `exact_surrogate` and `gradient_surrogate`
are the ones to differentiate.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.functional.aggregation import BatchMask, aggregate
from nbcourse.functional.arguments import (
    BT,
    AnyShape,
    AtLeastOne,
    Axes,
    B,
    BTMask,
    NonNegative,
    Positive,
    check_fields,
    checked,
    one_of,
)
from nbcourse.functional.masking import set_aside

ESTIMATORS = ("k1", "k2", "k3", "abs")
WEIGHTS = ("prefix", "sequence", "token")
Logits = Annotated[Tensor, Axes("... V")]


@checked
def estimate(log_probs: AnyShape, ref_log_probs: AnyShape, kind: str) -> Tensor:
    """Estimate KL(π‖π_ref) at each sampled token, from its two log-probabilities.

        d = log π − log π_ref
        "k1": d     "k2": d²/2     "k3": e^{−d} − 1 + d     "abs": |d|

    Args:
        log_probs: any shape, at tokens sampled from π.
        ref_log_probs: the same shape.
        kind: one of `ESTIMATORS`.

    Returns:
        The estimate at each token, NaN (with zero gradient) where it is not finite. k3 is computed
        as expm1(−d) + d, which never comes out negative, in float32 and from bfloat16 too.

    Raises:
        ValueError: if shapes differ or the kind is unknown.

    Book: equation (eq-kl-estimators). Source: Schulman 2020.

    >>> new, ref = torch.tensor([0.5, 0.25]).log(), torch.tensor([0.25, 0.5]).log()
    >>> estimate(new, ref, "k3")  # ½ − 1 + log 2, and 2 − 1 − log 2
    tensor([0.1931, 0.3069])
    """
    one_of(kind, ESTIMATORS, name="kind")
    d = log_probs - ref_log_probs
    broken = ~_of_log_ratio(d.detach(), kind).isfinite()
    (d,) = set_aside(broken, d)
    return _of_log_ratio(d, kind).masked_fill(broken, math.nan)


def _of_log_ratio(d: Tensor, kind: str) -> Tensor:
    if kind == "k1":
        return d.clone()
    if kind == "k2":
        return d.square() / 2
    if kind == "k3":
        return torch.expm1(-d) + d
    return d.abs()


@checked
def exact(logits: Logits, ref_logits: Logits) -> Tensor:
    """KL(π‖π_ref) over the whole vocabulary, for each position.

        KL = Σₐ π(a) (log π(a) − log π_ref(a))

    Args:
        logits: (..., V), unnormalised.
        ref_logits: (..., V).

    Returns:
        (...) the divergence in nats; a token with π(a) = 0 adds nothing, one with π(a) > 0 and
        π_ref(a) = 0 makes it infinite. NaN (with zero gradient) where a logit is NaN.

    Raises:
        ValueError: if shapes differ.

    Book: equation (eq-kl-exact).

    >>> exact(torch.tensor([1.0, 0.0]).log(), torch.tensor([0.25, 0.75]).log())  # 1 · log(1 / ¼)
    tensor(1.3863)
    """
    broken = logits.detach().sum(dim=-1).isnan() | ref_logits.detach().sum(dim=-1).isnan()
    logits, ref_logits = set_aside(broken[..., None], logits, ref_logits)
    log_probs = logits.log_softmax(dim=-1)
    probs, log_ratio = log_probs.exp(), log_probs - ref_logits.log_softmax(dim=-1)
    divergence = (probs * log_ratio.masked_fill(probs == 0, 0.0)).sum(dim=-1)
    return divergence.masked_fill(broken, math.nan)


@checked
def rewards_with_kl(
    scores: B, log_probs: BT, ref_log_probs: BT, mask: BTMask, *, beta: NonNegative
) -> Tensor:
    """A reward for each token: the KL penalty everywhere, the score on the last token.

        rₜ = −β (log π − log π_ref) + [t is the last token] · score

    Only k1 belongs here. The policy gradient multiplies the reward by the score function ∇log π,
    and E[k1 ∇log π] is the gradient of the KL; with k3 in its place the penalty vanishes to first
    order and can point the wrong way.

    Args:
        scores: (B,) one score for each response.
        log_probs: (B, T) of the policy that sampled.
        ref_log_probs: (B, T).
        mask: (B, T) bool.
        beta: strength of the penalty, ≥ 0.

    Returns:
        (B, T) rewards, 0 where the mask is False, without gradient.

    Raises:
        ValueError: if shapes differ, beta is negative, or a response has no token to carry its
            score.

    Book: equation (eq-kl-reward). Source: Ziegler et al. 2019, equation 2; Stiennon et al. 2020.

    >>> new, ref = torch.tensor([[-1.0, -2.0, 0.0]]), torch.tensor([[-3.0, -1.0, 0.0]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> rewards_with_kl(torch.tensor([1.0]), new, ref, mask, beta=0.5)  # −½ · 2; −½ · −1 + 1
    tensor([[-1.0000,  1.5000,  0.0000]])
    """
    if not mask.any(dim=1).all():
        row = int((~mask.any(dim=1)).nonzero()[0])
        raise ValueError(f"mask[{row}] is False everywhere: no token can carry scores[{row}]")
    penalty = -beta * (log_probs - ref_log_probs).detach()
    columns = torch.arange(mask.shape[1], device=mask.device)
    is_last = columns == torch.where(mask, columns, -1).amax(dim=1, keepdim=True)
    rewards = torch.where(is_last, penalty + scores.detach()[:, None], penalty)
    return torch.where(mask, rewards, 0.0)


@checked
def penalty_to_go(
    log_probs: BT,
    ref_log_probs: BT,
    mask: BTMask,
    *,
    old_log_probs: BT | None = None,
    frozen: bool = False,
    weight: str | None = None,
    weight_cap: AtLeastOne | None = None,
) -> Tensor:
    """What each token is charged for itself and for all that follows: k1 as a return to go.

        Pₜ = Σ_{t'≥t} w_{t'} d_{t'},    d = log π − log π_ref
        None: w = 1     "prefix": ρ_{1:t'}     "sequence": ρ_{1:T}     "token": ρₜ, of the token t
        ρ = π/π_old

    −β Pₜ is added to an advantage *after* it was divided by a spread or whitened, so that β stays
    what it is; OpenRLHF does so. With the loss Pₜ log π, summed over tokens, "prefix" and
    "sequence" give ∇KL(π‖π_ref) from stale samples too, if d is that of the policy that learns. If
    d is frozen, the gradient is right only until the first update; with "sequence" it lacks
    ∇KL(π‖π_old) afterwards.

    Args:
        log_probs: (B, T) of the policy that learns.
        ref_log_probs: (B, T).
        mask: (B, T) bool; skipped positions have ratio 1 and d = 0.
        old_log_probs: (B, T) of the policy that sampled; None means it was the current one.
        frozen: take d from the policy that sampled, as PPO does with a KL in the reward.
        weight: one of `WEIGHTS`, or None.
        weight_cap: the largest value a weight may have, ≥ 1; None means no limit.

    Returns:
        (B, T), 0 where the mask is False, without gradient: what multiplies a score is a constant.

    Raises:
        ValueError: if shapes differ, mask is not boolean, weight is unknown, or weight_cap is
            below 1.

    Book: equations (eq-kl-to-go) and (eq-weight-cap). Source: Ziegler et al. 2019 for d in the
    reward; the recomputed form with its weights is derived in chapter 11.

    >>> new, ref = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -1.0]])
    >>> penalty_to_go(new, ref, new < 0)  # d = 2, −1: what is to come is 2 − 1, then −1
    tensor([[ 1., -1.]])
    """
    one_of(weight or "none", ("none", *WEIGHTS), name="weight")
    if old_log_probs is None:
        old_log_probs = log_probs
    log_probs, ref_log_probs, old_log_probs = set_aside(
        ~mask, log_probs.detach(), ref_log_probs.detach(), old_log_probs.detach()
    )
    d = (old_log_probs if frozen else log_probs) - ref_log_probs
    if weight is None:
        to_go = _to_go(d)
    else:
        weights = _capped(_log_weights(log_probs - old_log_probs, weight), weight_cap)
        to_go = weights * _to_go(d) if weight == "token" else _to_go(weights * d)
    return to_go.masked_fill(~mask, 0.0)


def _to_go(costs: Tensor) -> Tensor:
    """Σ_{t'≥t} of (B, T) costs."""
    return costs.flip(1).cumsum(1).flip(1)


@checked
def gradient_surrogate(
    log_probs: BT,
    ref_log_probs: BT,
    mask: BTMask,
    *,
    old_log_probs: BT | None = None,
    weight: str = "prefix",
    kind: str = "k3",
    weight_cap: AtLeastOne | None = None,
    batch_mask: BatchMask | None = None,
) -> Tensor:
    """A value whose expected gradient is ∇KL(π‖π_ref), for fresh and for stale samples.

        L = mean over responses of Σₜ wₜ(θ) · kₜ(θ)
        "prefix":    wₜ = Π_{s≤t} π(aₛ|·)/π_old(aₛ|·)     exact gradient, noisier with length
        "sequence":  wₜ = Π_{s≤T} π(aₛ|·)/π_old(aₛ|·)     exact gradient, noisier with length
        "token":     wₜ = π(aₜ|·)/π_old(aₜ|·)             biased: states stay those of π_old

    The weight keeps its gradient. That is what makes the identity E_old[w(θ) k(θ)] = KL(θ) hold as
    a function of θ, so differentiating both sides is allowed; a detached weight gives zero for k1,
    and for k3 the forward KL of each state that is visited. On-policy the weight has the value 1
    but not the gradient 0.

    Args:
        log_probs: (B, T), with gradient.
        ref_log_probs: (B, T).
        mask: (B, T) bool; skipped positions have ratio 1.
        old_log_probs: (B, T) of the policy that sampled; None means it was the current one.
        weight: one of `WEIGHTS`.
        kind: "k1" or "k3". Both are exact; near the reference k3 has the smaller variance: its
            gradient uses k1 for the current token, and there the less noisy k3 for later ones.
        weight_cap: the largest value a weight may have, ≥ 1, as in `exact_surrogate`; None means
            no limit.
        batch_mask: (N, T') bool, the mask of the whole batch if this is a micro-batch, as in
            `aggregation.aggregate`.

    Returns:
        A scalar; on fresh samples its value is an estimate of the KL of a whole response, in nats.

    Raises:
        ValueError: if shapes differ, mask is not boolean, weight or kind is unknown, or weight_cap
            is below 1.

    Book: equation (eq-kl-surrogate). Source: Tang & Munos 2025 for what goes wrong without the
    weight; the prefix-weighted form is derived in chapter 11.

    >>> new, ref = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-3.0, -1.0]])
    >>> gradient_surrogate(new, ref, new < 0, kind="k1")  # fresh: w = 1, so 2 − 1
    tensor(1.)
    """
    one_of(weight, WEIGHTS, name="weight")
    one_of(kind, ("k1", "k3"), name="kind")
    if old_log_probs is None:
        old_log_probs = log_probs
    log_probs, ref_log_probs, old_log_probs = set_aside(
        ~mask, log_probs, ref_log_probs.detach(), old_log_probs.detach()
    )
    weights = _capped(_log_weights(log_probs - old_log_probs, weight), weight_cap)
    per_token = weights * estimate(log_probs, ref_log_probs, kind)
    return aggregate(per_token, mask, "seq-mean-token-sum", batch_mask=batch_mask)


@checked
def exact_surrogate(
    log_probs: BT,
    conditional_kl: BT,
    mask: BTMask,
    *,
    old_log_probs: BT | None = None,
    weight_cap: AtLeastOne | None = None,
    batch_mask: BatchMask | None = None,
) -> Tensor:
    """A value whose expected gradient is ∇KL(π‖π_ref), from divergences over the whole vocabulary.

        L = mean over responses of Σₜ wₜ(θ) · KLₜ(θ),    wₜ = Π_{s<t} π(aₛ|·)/π_old(aₛ|·)

    Like `gradient_surrogate` with prefix weights, with the estimate of token t replaced by its
    conditional expectation: no noise is left but that of the states visited. The weight keeps its
    gradient, through which a token is charged for the states it leads to; differentiating KLₜ alone
    gives a partial gradient.

    Args:
        log_probs: (B, T), with gradient.
        conditional_kl: (B, T), KL(π‖π_ref) of the next token in each state, with gradient: what
            `exact` returns for the logits with which each token was chosen.
        mask: (B, T) bool; skipped positions have ratio 1 and no divergence.
        old_log_probs: (B, T) of the policy that sampled; None means it was the current one.
        weight_cap: the largest value a weight may have, ≥ 1; None means no limit. Only the value
            is limited: the gradient of a capped weight is weight_cap · ∇log w, where a clamp would
            have none. A cap bounds the variance on long or stale responses at the price of a bias;
            on fresh samples it changes nothing.
        batch_mask: (N, T') bool, the mask of the whole batch if this is a micro-batch, as in
            `aggregation.aggregate`.

    Returns:
        A scalar; its mean value, without a cap, is the KL of a whole response, in nats.

    Raises:
        ValueError: if shapes differ, mask is not boolean, or weight_cap is below 1.

    Book: equations (eq-kl-exact-surrogate) and (eq-weight-cap). Source: derived in chapters 11
    and 12; the value of KLₜ as a Rao–Blackwell estimate is from Amini et al. 2025.

    >>> new, old = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.5]]).log()
    >>> exact_surrogate(new, torch.tensor([[3.5, 1.0]]), new < 0, old_log_probs=old)  # 3.5 + 2 · 1
    tensor(5.5000)
    """
    if old_log_probs is None:
        old_log_probs = log_probs
    log_probs, conditional_kl, old_log_probs = set_aside(
        ~mask, log_probs, conditional_kl, old_log_probs.detach()
    )
    so_far = (log_probs - old_log_probs).cumsum(dim=1)
    before = pad(so_far[:, :-1], (1, 0))  # the state of token t is due to the tokens before it
    per_token = _capped(before, weight_cap) * conditional_kl
    return aggregate(per_token, mask, "seq-mean-token-sum", batch_mask=batch_mask)


def _log_weights(log_ratio: Tensor, weight: str) -> Tensor:
    """log wₜ of each token, of (B, T) log-ratios that are 0 where nothing was chosen."""
    if weight == "prefix":
        return log_ratio.cumsum(dim=1)
    if weight == "sequence":
        return log_ratio.sum(dim=1, keepdim=True).expand_as(log_ratio)
    return log_ratio


def _capped(log_weight: Tensor, weight_cap: float | None) -> Tensor:
    """exp(log_weight), at most weight_cap in value; its derivative is its value times ∇log w."""
    if weight_cap is None:
        return log_weight.exp()
    value = log_weight.detach()
    return (value.clamp(max=math.log(weight_cap)) + (log_weight - value)).exp()


@dataclass
class FixedKL:
    """A KL coefficient that stays where it is."""

    beta: float

    def update(self, kl: float, responses: int) -> float:
        """Return `beta`, whatever was measured."""
        return self.beta


@dataclass
class AdaptiveKL:
    """A KL coefficient steered so that the measured KL approaches a target.

        β ← β · (1 + clip(KL/target − 1, −0.2, 0.2) · responses/horizon)

    Args:
        beta: the coefficient to begin with, > 0.
        target: the wanted KL of a whole response, in nats, > 0: the *sum* over its tokens. A
            per-token mean is another quantity and needs another target.
        horizon: number of responses over which a full correction is spread, > 0.

    Raises:
        ValueError: if beta, target or horizon is not positive, or `update` gets a KL that is not
            finite or so many responses that beta would turn negative.

    Book: equation (eq-adaptive-kl). Source: Ziegler et al. 2019, section 2.2.
    """

    beta: Positive
    target: Positive
    horizon: Positive

    def __post_init__(self) -> None:
        check_fields(self)

    def update(self, kl: float, responses: int) -> float:
        """Move `beta` after `responses` responses with mean divergence `kl`, and return it."""
        if not math.isfinite(kl):
            raise ValueError(f"kl is {kl}, expected a finite number")
        if responses < 1:
            raise ValueError(f"responses is {responses}, expected at least 1")
        error = min(max(kl / self.target - 1, -0.2), 0.2)
        factor = 1 + error * responses / self.horizon
        if factor <= 0:
            raise ValueError(
                f"horizon is {self.horizon:g}, expected more than a fifth of "
                f"responses={responses}: this step would turn beta negative"
            )
        self.beta *= factor
        return self.beta
