"""How much better was this response than expected? A number for each response, or each token.

Rewards come as `(B,)` with the responses to one prompt side by side: response j to prompt i is
row `i * group_size + j`. The advantages come back in the same order. They are targets, not
functions of the policy: no gradient flows through them.
"""

from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from nbcourse.functional.arguments import Axes, B, K, NonNegative, Share, checked

GroupSize = Annotated[int, Ge(2)]  # a response cannot be compared with itself


def _groups(rewards: Tensor, group_size: int) -> Tensor:
    """View `(B,)` rewards as `(prompts, group_size)` without gradient."""
    if len(rewards) == 0 or len(rewards) % group_size:
        raise ValueError(
            f"rewards has {len(rewards)} entries, expected a multiple of group_size={group_size}"
        )
    return rewards.detach().reshape(-1, group_size)


def _centred(groups: Tensor) -> Tensor:
    """Subtract each row's mean; a row of equal entries gives exactly 0, not rounding noise."""
    deviation = groups - groups.mean(dim=1, keepdim=True)
    no_spread = groups.amax(dim=1, keepdim=True) == groups.amin(dim=1, keepdim=True)
    return deviation.masked_fill(no_spread, 0.0)


@checked
def mean_baseline(rewards: B, *, group_size: GroupSize) -> Tensor:
    """Reward minus the mean reward of the group, the response itself included.

        Aᵢ = rᵢ − (1/G) Σⱼ rⱼ

    The baseline contains rᵢ, so it depends on the action: the expected gradient comes out as
    (G−1)/G times the true one. `leave_one_out` repairs that.

    Args:
        rewards: (B,), groups side by side.
        group_size: G, at least 2.

    Returns:
        (B,) advantages; each group sums to 0.

    Raises:
        ValueError: if B is not a multiple of G, or G < 2.

    Book: equation (eq-mean-baseline).

    >>> mean_baseline(torch.tensor([1.0, 0.0, 5.0, 3.0]), group_size=2)  # the means are ½ and 4
    tensor([ 0.5000, -0.5000,  1.0000, -1.0000])
    """
    return _centred(_groups(rewards, group_size)).view(-1)


@checked
def leave_one_out(rewards: B, *, group_size: GroupSize) -> Tensor:
    """Reward minus the mean reward of the *other* responses to the same prompt.

        Aᵢ = rᵢ − (1/(G−1)) Σ_{j≠i} rⱼ = G/(G−1) · (rᵢ − mean)

    The baseline is independent of response i, so the estimator is unbiased.

    Args:
        rewards: (B,), groups side by side.
        group_size: G, at least 2.

    Returns:
        (B,) advantages; each group sums to 0.

    Raises:
        ValueError: if B is not a multiple of G, or G < 2.

    Book: equation (eq-rloo). Source: Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline
    for free!"; Ahmadian et al. 2024 (RLOO).

    >>> leave_one_out(torch.tensor([3.0, 1.0, 2.0]), group_size=3)  # 3 − 3/2, 1 − 5/2, 2 − 4/2
    tensor([ 1.5000, -1.5000,  0.0000])
    """
    return mean_baseline(rewards, group_size=group_size) * (group_size / (group_size - 1))


@checked
def group_relative(
    rewards: B, *, group_size: GroupSize, scale: bool = True, eps: NonNegative = 1e-4
) -> Tensor:
    """The group-relative advantage of GRPO: a standard score within the group.

        Aᵢ = (rᵢ − mean) / (std + eps)        std with denominator G − 1
        Aᵢ = rᵢ − mean                         with scale=False (Dr. GRPO)

    Args:
        rewards: (B,), groups side by side.
        group_size: G, at least 2.
        scale: divide by the group's standard deviation.
        eps: added to the standard deviation; TRL's default.

    Returns:
        (B,) advantages. A group whose rewards are all equal gets exactly 0 by an explicit test:
        in float32 the deviations of ten equal rewards of 0.7 are not all 0, and dividing them by
        a tiny eps would turn rounding noise into a signal.

    Raises:
        ValueError: if B is not a multiple of G, G < 2 or eps < 0.

    Book: equation (eq-group-relative). Source: Shao et al. 2024 (GRPO), section 4.1.2;
    Liu et al. 2025 (Dr. GRPO).

    >>> rewards = torch.tensor([3.0, 1.0, 2.0, 0.7, 0.7, 0.7])
    >>> group_relative(rewards, group_size=3, eps=0.0)  # mean 2, std √((1 + 1 + 0) / 2) = 1
    tensor([ 1., -1.,  0.,  0.,  0.,  0.])
    """
    deviation = _centred(_groups(rewards, group_size))
    if scale:
        std = (deviation.square().sum(dim=1, keepdim=True) / (group_size - 1)).sqrt()
        deviation = (deviation / (std + eps)).masked_fill(std == 0, 0.0)  # a NaN stays NaN
    return deviation.view(-1)


@checked
def process_supervision(
    step_rewards: Annotated[Tensor, Axes("B S")],
    step_ends: Annotated[Tensor, Axes("B S", "integers")],
    lengths: Annotated[Tensor, Axes("B", "integers")],
    *,
    group_size: GroupSize,
    eps: NonNegative = 1e-4,
) -> Tensor:
    """GRPO's advantages when every reasoning *step* has a reward of its own.

        r̃ᵢₛ = (rᵢₛ − mean) / (std + eps)     over all steps of all G responses of the group
        Aᵢₜ = Σ_{s: end(s) ≥ t} r̃ᵢₛ           steps that end at token t or later

    Args:
        step_rewards: (B, S) reward of each step; anything where `step_ends` is −1.
        step_ends: (B, S) integer index of the last token of each step, −1 where a response has
            fewer than S steps.
        lengths: (B,) integer number of tokens in each response.
        group_size: G, at least 2.
        eps: added to the standard deviation.

    Returns:
        (B, T) advantages, T = max(lengths), 0 after the end of a response. A zero-variance group
        gets exactly 0.

    Raises:
        ValueError: if shapes differ, a step ends outside its response, or a group has fewer than
            two steps in all.

    Book: equation (eq-process-supervision). Source: Shao et al. 2024, section 4.1.3.

    >>> steps, ends = torch.tensor([[3.0, 1.0], [2.0, 0.0]]), torch.tensor([[0, 1], [1, -1]])
    >>> lengths = torch.tensor([3, 2])
    >>> process_supervision(steps, ends, lengths, group_size=2, eps=0.0)  # 3, 1, 2: mean 2, std 1
    tensor([[ 0., -1.,  0.],
            [ 0.,  0.,  0.]])
    """
    outside = (step_ends < -1) | (step_ends >= lengths[:, None])
    if outside.any():
        row, step = (int(i) for i in outside.nonzero()[0])
        raise ValueError(
            f"step_ends[{row}, {step}] is {int(step_ends[row, step])}, expected −1 (no such step) "
            f"or an index below lengths[{row}] = {int(lengths[row])}"
        )
    if len(lengths) % group_size:
        raise ValueError(f"group_size is {group_size}, expected a divisor of B={len(lengths)}")
    scores = _step_scores(step_rewards.detach(), step_ends >= 0, group_size, eps)
    tokens = torch.arange(int(lengths.max()), device=lengths.device)
    ends_later = step_ends[:, :, None] >= tokens  # (B, S, T)
    advantages = (scores[:, :, None] * ends_later).sum(dim=1)
    return torch.where(tokens < lengths[:, None], advantages, 0.0)


def _step_scores(step_rewards: Tensor, exists: Tensor, group_size: int, eps: float) -> Tensor:
    """(B, S): the rewards of the steps that exist as standard scores within the group."""
    pooled = torch.where(exists, step_rewards, 0.0).reshape(-1, group_size * exists.shape[1])
    in_group = exists.reshape(pooled.shape)
    counts = in_group.sum(dim=1, keepdim=True)
    if (counts < 2).any():
        raise ValueError("step_ends leaves a group with fewer than two steps: nothing to compare")
    deviation = torch.where(in_group, pooled - pooled.sum(1, keepdim=True) / counts, 0.0)
    std = (deviation.square().sum(dim=1, keepdim=True) / (counts - 1)).sqrt()
    highest = pooled.masked_fill(~in_group, -torch.inf).amax(dim=1, keepdim=True)
    lowest = pooled.masked_fill(~in_group, torch.inf).amin(dim=1, keepdim=True)
    return (deviation / (std + eps)).masked_fill(highest == lowest, 0.0).view_as(step_rewards)


@checked
def moving_average_baseline(
    rewards: B, average: float, *, decay: Share = 0.9
) -> tuple[Tensor, float]:
    """Reward minus a running mean of the rewards of *earlier* batches.

        A = r − b,      b ← decay · b + (1 − decay) · mean(r)

    The baseline was fixed before this batch was sampled, so it adds no bias, and it needs no
    groups. It lags: after a jump of the reward it takes about 1/(1 − decay) batches to follow.

    Args:
        rewards: (B,).
        average: b, the running mean so far.
        decay: from 0 (the last batch alone) to 1 (never moves).

    Returns:
        (B,) advantages, and the running mean to pass in next time.

    Raises:
        ValueError: if rewards is not (B,) or decay is outside [0, 1].

    Book: equation (eq-moving-average). Source: Williams 1992, section 4 (reinforcement
    comparison, after Sutton 1984).

    >>> moving_average_baseline(torch.tensor([2.0, 4.0]), 1.0, decay=0.5)  # ½ · 1 + ½ · 3
    (tensor([1., 3.]), 2.0)
    """
    if len(rewards) == 0:
        raise ValueError("rewards is empty, expected at least one entry")
    rewards = rewards.detach()
    return rewards - average, decay * average + (1 - decay) * rewards.mean().item()


@checked
@torch.no_grad()
def variance_optimal_baseline(probs: K, rewards: K, *, per_component: bool = False) -> Tensor:
    """The constant that minimises the variance of the policy gradient of a softmax bandit.

        b* = E[|g|² r] / E[|g|²],      g = ∇_θ log π(a)
        b*_c = E[g_c² r] / E[g_c²]     for each component c of θ on its own

    It is a weighted mean of the rewards, not their mean: an arm with a long score vector, which
    is an unlikely arm, weighs more than its probability.

    Args:
        probs: (K,) probabilities of the arms under the policy.
        rewards: (K,) reward of each arm.
        per_component: return one baseline for each logit.

    Returns:
        A scalar, or (K,) if `per_component`; NaN where no score varies, so that the gradient
        estimate is 0 whatever the baseline. No gradient.

    Raises:
        ValueError: if shapes differ or probs is not a distribution.

    Book: equation (eq-optimal-baseline). Source: Greensmith et al. 2004, "Variance Reduction
    Techniques for Gradient Estimates in Reinforcement Learning".

    >>> pi, r = torch.tensor([0.75, 0.25]), torch.tensor([0.0, 4.0])
    >>> variance_optimal_baseline(pi, r)  # |g|² = 2/16, 18/16; π|g|² ∝ 3/16, 9/16; 4 · 9/12
    tensor(3.)
    """
    if (probs < 0).any():
        raise ValueError(f"probs goes down to {probs.min().item():.6g}, expected a distribution")
    if abs(probs.sum().item() - 1) > 1e-2:
        raise ValueError(f"probs sums to {probs.sum().item():.6g}, expected a distribution")
    scores = torch.eye(len(probs), dtype=probs.dtype, device=probs.device) - probs  # (arm, logit)
    squares = scores.square() if per_component else scores.square().sum(dim=1, keepdim=True)
    weights = probs[:, None] * squares
    baseline = (weights * rewards[:, None]).sum(dim=0) / weights.sum(dim=0)
    return baseline if per_component else baseline.squeeze(0)
