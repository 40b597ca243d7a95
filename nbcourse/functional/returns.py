"""Returns and advantages that look forward in time: to-go, n-step, and GAE.

All of them are one linear recurrence read from the end, xₜ = dₜ + c · xₜ₊₁, so they share one
scan. They are targets: none of them lets a gradient through.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.functional.arguments import (
    Share,
    boolean,
    boolean_mask,
    bounded,
    dimensions,
    same_shape,
)

SCAN_ENTRIES = 1 << 17  # at a time: temporaries of this size find memory that is warm already
SCAN_BLOCK = 16  # larger: fewer rounds, but a larger triangular product and more rounding


def _discounted_suffix_sums(x: Tensor, decay: float) -> Tensor:
    """yₜ = Σ_{k≥t} decay^{k−t} xₖ along the last axis of a (B, T) tensor.

    Blocks of columns are summed at once by a product with the triangular matrix of powers, then
    what lies behind each block is carried in by the same scan over the blocks' first entries.
    Only powers ≤ 1 appear, so nothing overflows, unlike in a ratio of cumulative products.
    """
    batch, length = x.shape
    width = min(SCAN_BLOCK, length)
    step = torch.arange(width, device=x.device)
    lag = step[:, None] - step  # row k contributes to column t with decay^(k−t)
    powers = torch.where(lag >= 0, torch.tensor(decay, dtype=x.dtype) ** lag.clamp(min=0), 0.0)
    if length <= width:
        return _product(x, powers.to(x))
    blocks = -(-length // width)
    padded = pad(x, (0, blocks * width - length)) if length % width else x
    local = _product(padded.reshape(batch, blocks, width), powers.to(x))
    behind = _discounted_suffix_sums(local[:, 1:, 0], decay**width)
    distance = torch.tensor(decay, dtype=x.dtype) ** (width - step)
    local[:, :-1].addcmul_(behind[:, :, None], distance.to(x))
    return local.view(batch, blocks * width)[:, :length]


def _product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y in their own precision, whatever autocast makes of other products."""
    with torch.autocast(x.device.type, enabled=False):
        return x @ y


def _masked_scan(
    mask: Tensor, decay: float, increments: Callable[..., Tensor], *tensors: Tensor
) -> Tensor:
    """Scan `increments(*tensors)` where the mask is True, as if there were no other entries."""
    rows = max(1, SCAN_ENTRIES // max(1, mask.shape[1]))
    pieces = zip(*(x.split(rows) for x in (mask, *tensors)), strict=True)
    return torch.cat([_scan_kept(kept, decay, increments, *parts) for kept, *parts in pieces])


def _scan_kept(
    mask: Tensor, decay: float, increments: Callable[..., Tensor], *tensors: Tensor
) -> Tensor:
    """The kept entries of each row are moved to its front, scanned there, and moved back.

    Where they are at the front already, as in responses without a tool's output, the rest is set to
    0 and scanned with them. Otherwise column 0 takes the rest: whatever garbage falls there is cut
    off before the scan, and what masked entries read back from there is 0.
    """
    if not (mask[:, 1:] > mask[:, :-1]).any():
        return _discounted_suffix_sums(
            increments(*(torch.where(mask, x, 0.0) for x in tensors)), decay
        )
    place = mask.cumsum(dim=1).mul_(mask)  # 1, 2, 3, … along the kept entries, 0 elsewhere
    shape = (len(mask), mask.shape[1] + 1)
    packed = [x.new_zeros(shape).scatter_(1, place, x)[:, 1:] for x in tensors]
    scanned = _discounted_suffix_sums(increments(*packed), decay)
    return pad(scanned, (1, 0)).gather(1, place)


@bounded
@torch.no_grad()
def discounted_returns(
    rewards: Tensor, mask: Tensor | None = None, *, gamma: Share = 1.0
) -> Tensor:
    """The return to go: what is still to come, discounted.

        Gₜ = rₜ + γ Gₜ₊₁ = Σ_{k≥t} γ^{k−t} rₖ

    Args:
        rewards: (B, T), the reward that follows action t in column t.
        mask: (B, T) bool; masked positions are skipped, as if they were not there. None keeps all.
        gamma: discount γ in [0, 1]; language-model episodes are short and use 1.

    Returns:
        (B, T) returns, 0 where the mask is False, without gradient.

    Raises:
        ValueError: if shapes differ, mask is not boolean or gamma is outside [0, 1].

    Book: equation (eq-return-to-go). Source: Sutton & Barto 2018, equation 3.9.
    """
    (rewards,) = same_shape(rewards=rewards)
    dimensions(rewards, "BT", name="rewards")
    if mask is None:
        mask = torch.ones_like(rewards, dtype=torch.bool)
    boolean_mask(mask, like=rewards, name="rewards")
    return _masked_scan(mask, gamma, lambda r: r, rewards)


@bounded
@torch.no_grad()
def n_step_returns(rewards: Tensor, values: Tensor, *, n: int, gamma: Share = 1.0) -> Tensor:
    """n rewards, then the critic's estimate of the rest.

        Gₜ⁽ⁿ⁾ = rₜ + γ rₜ₊₁ + … + γ^{m−1} rₜ₊ₘ₋₁ + γᵐ V(sₜ₊ₘ),   m = min(n, T − t)

    Args:
        rewards: (B, T).
        values: (B, T+1), V(s₀) … V(s_T); the last column is 0 if the episode ended there, and
            the critic's estimate if it was merely cut off.
        n: number of rewards, at least 1; n ≥ T is the Monte Carlo return.
        gamma: discount γ in [0, 1].

    Returns:
        (B, T) targets without gradient.

    Raises:
        ValueError: if values is not (B, T+1), n < 1 or gamma is outside [0, 1].

    Book: equation (eq-n-step). Source: Sutton & Barto 2018, equation 7.1.
    """
    (rewards,) = same_shape(rewards=rewards)
    (values,) = same_shape(values=values)
    dimensions(rewards, "BT", name="rewards")
    batch, length = rewards.shape
    if values.shape != (batch, length + 1):
        raise ValueError(
            f"values has shape {tuple(values.shape)}, expected {(batch, length + 1)}: "
            "one column more than rewards, for the state after the last action"
        )
    if n < 1:
        raise ValueError(f"n is {n}, expected at least 1")
    longest = min(n, length)
    weights = torch.tensor(gamma, dtype=rewards.dtype) ** torch.arange(longest)
    windows = pad(rewards, (0, longest - 1)).unfold(1, longest, 1)  # (B, T, n)
    times = torch.arange(length, device=rewards.device)
    ends = (times + n).clamp(max=length)
    discount = torch.tensor(gamma, dtype=values.dtype, device=values.device) ** (ends - times)
    return _product(windows, weights.to(rewards)) + discount * values[:, ends]


@bounded
@torch.no_grad()
def token_gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: Share = 1.0, lam: Share = 0.95
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over the tokens of a response.

        δₜ = rₜ + γ V(sₜ₊₁) − V(sₜ)          V = 0 after the last token
        Aₜ = δₜ + γλ Aₜ₊₁

    where t+1 is the *next token whose mask is True*: the result equals plain GAE on the row with
    its masked positions cut out. λ = 1 is the Monte Carlo return minus V, λ = 0 the TD residual.

    Args:
        rewards: (B, T), the reward of token t in column t.
        values: (B, T), V of the state in which token t was chosen.
        mask: (B, T) bool, True on the model's own tokens; padding and a tool's output are False.
        gamma: discount γ in [0, 1].
        lam: λ in [0, 1].

    Returns:
        advantages and value targets (advantages + values, before any whitening), both (B, T), 0
        where the mask is False, without gradient.

    Raises:
        ValueError: if shapes differ, mask is not boolean, or gamma or lam is outside [0, 1].

    Book: equation (eq-gae). Source: Schulman et al. 2016, equations 11–16.
    """
    rewards, values = same_shape(rewards=rewards, values=values)
    dimensions(rewards, "BT", name="rewards")
    boolean_mask(mask, like=rewards, name="rewards")

    def residuals(r: Tensor, v: Tensor) -> Tensor:
        delta = r - v
        delta[:, :-1].add_(v[:, 1:], alpha=gamma)
        return delta

    advantages = _masked_scan(mask, gamma * lam, residuals, rewards, values)
    return advantages, torch.where(mask, advantages + values, 0.0)


@bounded
@torch.no_grad()
def env_gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Share,
    lam: Share,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation for vectorised environments, time first.

        δₜ = rₜ + γ (1 − terminatedₜ) V(sₜ₊₁) − V(sₜ)
        Aₜ = δₜ + γλ (1 − terminatedₜ ∨ truncatedₜ) Aₜ₊₁

    A *terminated* episode is worth nothing afterwards. A *truncated* one was cut by the clock: its
    last state still has a value, so the bootstrap stays. Either way the next row belongs to a new
    episode and the recursion must not reach into it.

    Args:
        rewards: (T, N), T steps of N environments.
        values: (T, N), V(sₜ) of the state acted in.
        next_values: (T, N), V(sₜ₊₁) of the state that *followed*, which at the end of an episode is
            its final observation and not the first one after the automatic reset.
        terminated: (T, N) bool.
        truncated: (T, N) bool.
        gamma: discount γ in [0, 1].
        lam: λ in [0, 1].

    Returns:
        advantages and value targets, both (T, N), without gradient.

    Raises:
        ValueError: if shapes differ, a flag is not boolean, or gamma or lam is outside [0, 1].

    Book: equation (eq-env-gae). Source: Schulman et al. 2016, equation 16; Pardo et al. 2018,
    "Time Limits in Reinforcement Learning".
    """
    rewards, values, next_values = same_shape(
        rewards=rewards, values=values, next_values=next_values
    )
    dimensions(rewards, "TN", name="rewards")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        boolean(flag, name=name)
        if flag.shape != rewards.shape:
            raise ValueError(
                f"{name} has shape {tuple(flag.shape)}, "
                f"expected {tuple(rewards.shape)} as rewards has"
            )
    delta = rewards + gamma * torch.where(terminated, 0.0, next_values) - values
    ended = terminated | truncated
    advantages = torch.empty_like(delta)
    following = values.new_zeros(values.shape[1])
    for t in reversed(range(len(delta))):
        # where, not a product with 0: a NaN of the next episode must not reach into this one
        following = delta[t] + gamma * lam * torch.where(ended[t], 0.0, following)
        advantages[t] = following
    return advantages, advantages + values
