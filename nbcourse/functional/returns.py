"""Returns and advantages that look forward in time: to-go, n-step, and GAE.

Each is a linear recurrence read from the end, xₜ = dₜ + c · xₜ₊₁, computed a block of steps at a
time. They are targets: none of them lets a gradient through.
"""

import math
from collections.abc import Callable
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.functional.arguments import BT, TN, Axes, BTMask, Share, TNFlags, checked

SCAN_ENTRIES = 1 << 17  # at a time: temporaries of this size find memory that is warm already
SCAN_BLOCK = 16  # larger: fewer rounds, but a larger triangular product and more rounding
STEP_BY_STEP = 96  # fewer rows are added one by one, which gives the bits of the plain loop
LONGEST_WINDOW = 64  # beyond it, two scans cost less than a product with every window


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


def _window_sums(x: Tensor, width: int, decay: float) -> Tensor:
    """yₜ = Σ_{k<width} decay^k xₜ₊ₖ along the last axis of a (B, T) tensor, x = 0 after its end.

    A wide window is the rest of one block and the beginning of the next, so a scan of each block
    from its end and one from its start are all that is needed, however wide it is.
    """
    batch, length = x.shape
    powers = torch.tensor(decay, dtype=x.dtype) ** torch.arange(width)
    if width <= LONGEST_WINDOW:
        return _product(pad(x, (0, width - 1)).unfold(1, width, 1), powers.to(x))
    blocks = pad(x, (0, -length % width)).view(-1, width)
    rest = _discounted_suffix_sums(blocks, decay).reshape(batch, -1)
    beginning = (blocks * powers.to(x)).cumsum(dim=1).view(batch, -1, width)
    beginning = pad(beginning[:, 1:, :-1], (1, 0, 0, 1)).flatten(1)  # of the next block, up to t
    reach = torch.tensor(decay, dtype=x.dtype) ** torch.arange(width, 0, -1)
    reach = reach.repeat(len(beginning[0]) // width).to(x)
    return (rest + reach * beginning)[:, :length]


def _product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y in their own precision, whatever autocast makes of other products."""
    with torch.autocast(x.device.type, enabled=False):
        return x @ y


def _scan_episodes(x: Tensor, decay: float, *, ended: Tensor) -> Tensor:
    """yₜ = xₜ + decay yₜ₊₁ down the first axis of (T, N) tensors, and yₜ = xₜ where ended.

    It may overwrite x.
    """
    scan = _scan_rows if len(x) <= STEP_BY_STEP else _scan_blocks
    decays = torch.full_like(x, decay).masked_fill_(ended, 0.0)
    if math.isfinite(x.sum()):
        return scan(x, decays)
    # 0 · NaN is NaN: what is broken is set aside, and marked up to the start of its own episode
    broken = ~x.isfinite()
    reached = scan(broken.to(x), (~ended).to(x)) > 0
    return scan(x.masked_fill(broken, 0.0), decays).masked_fill_(reached, math.nan)


def _scan_rows(x: Tensor, decays: Tensor) -> Tensor:
    """yₜ = xₜ + decaysₜ yₜ₊₁ down the first axis of two (T, N) tensors, which it overwrites."""
    following = x[-1] if len(x) else x
    for row, decay in reversed(list(zip(x.unbind()[:-1], decays.unbind()[:-1], strict=True))):
        following = row.add_(decay.mul_(following))  # not addcmul_, which rounds once or twice
    return x


def _scan_blocks(x: Tensor, decays: Tensor) -> Tensor:
    """The same, through the rows of all blocks at once.

    What lies behind each block is then carried in by the same scan over the blocks' first rows. A
    block hands on what it gets times the product of its decays: 0 if an episode ends in it.
    """
    length, columns = x.shape
    if length <= SCAN_BLOCK:
        return _scan_rows(x, decays)
    x, decays = (
        pad(y, (0, 0, 0, -length % SCAN_BLOCK))
        .view(-1, SCAN_BLOCK, columns)
        .transpose(0, 1)
        .contiguous()
        for y in (x, decays)
    )
    following, product = x[-1], decays[-1]
    for row, decay in zip(x.unbind()[-2::-1], decays.unbind()[-2::-1], strict=True):
        following = row.addcmul_(decay, following)
        product = decay.mul_(product)
    firsts = _scan_blocks(following.clone(), product.clone())
    x[:, :-1].addcmul_(decays[:, :-1], firsts[1:])
    return x.transpose(0, 1).reshape(-1, columns)[:length]


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


@checked
@torch.no_grad()
def discounted_returns(rewards: BT, mask: BTMask | None = None, *, gamma: Share = 1.0) -> Tensor:
    """The return to go: what is still to come, discounted.

        Gₜ = rₜ + γ Gₜ₊₁ = Σ_{k≥t} γ^{k−t} rₖ

    Args:
        rewards: (B, T), the reward that follows action t in column t.
        mask: (B, T) bool; masked positions are skipped, as if they were not there. None keeps all.
        gamma: discount γ in [0, 1]; language models use 1.

    Returns:
        (B, T) returns, 0 where the mask is False, without gradient.

    Raises:
        ValueError: if shapes differ, mask is not boolean or gamma is outside [0, 1].

    Book: equation (eq-return-to-go). Source: Sutton & Barto 2018, equation 3.9.

    >>> discounted_returns(torch.tensor([[1.0, 2.0, 4.0]]), gamma=0.5)  # 1 + ½ · 4, 2 + ½ · 4, 4
    tensor([[3., 4., 4.]])
    """
    if mask is None:
        mask = torch.ones_like(rewards, dtype=torch.bool)
    return _masked_scan(mask, gamma, lambda r: r, rewards)


@checked
@torch.no_grad()
def n_step_returns(
    rewards: BT,
    values: Annotated[Tensor, Axes("B T+1")],
    *,
    n: Annotated[int, Ge(1)],
    gamma: Share = 1.0,
) -> Tensor:
    """n rewards, then the critic's estimate of the rest.

        Gₜ⁽ⁿ⁾ = rₜ + γ rₜ₊₁ + … + γ^{m−1} rₜ₊ₘ₋₁ + γᵐ V(sₜ₊ₘ),   m = min(n, T − t)

    Args:
        rewards: (B, T).
        values: (B, T+1), V(s₀) … V(s_T); the last column is 0 if the episode ended there, and
            the critic's estimate if it was merely cut off.
        n: number of rewards, at least 1; n ≥ T is the Monte Carlo return if the
            episode ended.
        gamma: discount γ in [0, 1].

    Returns:
        (B, T) targets without gradient.

    Raises:
        ValueError: if values is not (B, T+1), n < 1 or gamma is outside [0, 1].

    Book: equation (eq-n-step). Source: Sutton & Barto 2018, equation 7.1.

    >>> rewards, values = torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[9.0, 9.0, 4.0, 8.0]])
    >>> n_step_returns(rewards, values, n=2, gamma=0.5)  # 1 + ½ + ¼ · 4, 1 + ½ + ¼ · 8, 1 + ½ · 8
    tensor([[2.5000, 3.5000, 5.0000]])
    """
    length = rewards.shape[1]
    times = torch.arange(length, device=rewards.device)
    ends = (times + n).clamp(max=length)
    discount = torch.tensor(gamma, dtype=values.dtype, device=values.device) ** (ends - times)
    return _window_sums(rewards, min(n, length), gamma) + discount * values[:, ends]


@checked
@torch.no_grad()
def token_gae(
    rewards: BT, values: BT, mask: BTMask, *, gamma: Share = 1.0, lam: Share = 0.95
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

    >>> rewards, values = torch.tensor([[0.0, 7.0, 2.0]]), torch.tensor([[1.0, 7.0, 1.0]])
    >>> mask = torch.tensor([[True, False, True]])  # δ = 0 + 1 − 1 = 0 and 2 − 1 = 1
    >>> token_gae(rewards, values, mask, lam=0.5)[0]  # 0 + ½ · 1, and 1
    tensor([[0.5000, 0.0000, 1.0000]])
    """

    def residuals(r: Tensor, v: Tensor) -> Tensor:
        delta = r - v
        delta[:, :-1].add_(v[:, 1:], alpha=gamma)
        return delta

    advantages = _masked_scan(mask, gamma * lam, residuals, rewards, values)
    return advantages, torch.where(mask, advantages + values, 0.0)


@checked
@torch.no_grad()
def env_gae(
    rewards: TN,
    values: TN,
    next_values: TN,
    terminated: TNFlags,
    truncated: TNFlags,
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

    >>> r, v, v_next = torch.tensor([[1.0], [1.0]]), torch.zeros(2, 1), torch.tensor([[0.0], [8.0]])
    >>> no, last = torch.tensor([[False], [False]]), torch.tensor([[False], [True]])
    >>> env_gae(r, v, v_next, last, no, gamma=1.0, lam=0.5)[0].T  # δ = 1, 1: 1 + ½ · 1, 1
    tensor([[1.5000, 1.0000]])
    >>> env_gae(r, v, v_next, no, last, gamma=1.0, lam=0.5)[0].T  # δ = 1, 1 + 8: 1 + ½ · 9, 9
    tensor([[5.5000, 9.0000]])
    """
    delta = torch.where(terminated, 0.0, next_values).mul_(gamma).add_(rewards).sub_(values)
    advantages = _scan_episodes(delta, gamma * lam, ended=terminated | truncated)
    return advantages, advantages + values
