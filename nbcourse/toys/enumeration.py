"""Exact means and variances: list every outcome with its probability, and add up.

An estimator is a table with one row for each outcome that sampling could produce. Its mean and its
variance are then sums, not averages over luck.
"""

import torch
from torch import Tensor


def mean(probs: Tensor, values: Tensor) -> Tensor:
    """E[X] = Σₙ p(n) X(n).

    Args:
        probs: (N,) probabilities of the outcomes.
        values: (N, ...) what the estimator returns for each outcome.

    Returns:
        (...) the exact mean.
    """
    return torch.tensordot(probs, values, dims=1)


def variance(probs: Tensor, values: Tensor) -> Tensor:
    """Var[X] = Σₙ p(n) (X(n) − E[X])², for each component of X on its own.

    Args:
        probs: (N,).
        values: (N, ...).

    Returns:
        (...) the exact variance; its sum is the trace of the covariance matrix.
    """
    return mean(probs, (values - mean(probs, values)).square())


def weighted_mean(
    probs: Tensor, values: Tensor, weights: Tensor, *, draws: int
) -> tuple[Tensor, Tensor]:
    """Mean and variance of Σᵢ wᵢ xᵢ / Σᵢ wᵢ over n independent draws of (w, x).

    With all weights 1 they are E[X] and Var[X] / n; otherwise the mean depends on n. Outcomes are
    sorted by their weight, and the law of a sum of weights is a convolution, taken in Fourier
    space. With W for the sum, P(W) for its probability and a mean over the draws in brackets:

        E = Σ_W P(W) ⟨Σᵢ wᵢ xᵢ⟩ / W,      E of the square = Σ_W P(W) ⟨(Σᵢ wᵢ xᵢ)²⟩ / W²

    Args:
        probs: (N,) probabilities of the outcomes.
        values: (N, ...) x of each outcome, in float64.
        weights: (N,) w of each outcome, whole numbers from 1.
        draws: n.

    Returns:
        (...) the exact mean, and (...) the exact variance of each component on its own.

    Raises:
        ValueError: if a weight or the number of draws is below 1.
    """
    if draws < 1 or weights.min() < 1:
        raise ValueError(
            f"draws is {draws} and the least weight {weights.min().item()}, expected at least 1"
        )
    totals = torch.arange(draws * int(weights.max()) + 1)  # what n weights may add up to
    centre = mean(probs, values)  # near the mean, little is lost to rounding
    x = (values - centre).flatten(1)
    wx = weights[:, None] * x

    def by_weight(parts: Tensor) -> Tensor:
        table = parts.new_zeros(len(totals), parts.shape[1])
        return torch.fft.rfft(table.index_add(0, weights, probs[:, None] * parts), dim=0)

    chance, first, second = map(by_weight, (x.new_ones(len(x), 1), wx, wx.square()))
    pairs = draws * (draws - 1) * first.square() * chance ** max(draws - 2, 0)
    sums = draws * first * chance ** (draws - 1)
    squares = draws * second * chance ** (draws - 1) + pairs
    sums, squares = (torch.fft.irfft(part, len(totals), dim=0)[1:] for part in (sums, squares))
    divisors = totals[1:, None].to(x.dtype)
    shift = (sums / divisors).sum(dim=0)
    variances = (squares / divisors.square()).sum(dim=0) - shift.square()
    return centre + shift.view_as(centre), variances.clamp(min=0).view_as(centre)


def groups(outcomes: int, group_size: int) -> Tensor:
    """Every ordered group of outcomes that drawing `group_size` times could produce.

    Returns:
        (outcomes ** group_size, group_size) indices of outcomes.

    Raises:
        ValueError: if there would be more than ten million groups.
    """
    if outcomes**group_size > 10_000_000:
        raise ValueError(
            f"outcomes={outcomes} and group_size={group_size} make "
            f"{outcomes**group_size:,} groups, expected at most 10,000,000"
        )
    draws = [torch.arange(outcomes)] * group_size
    return torch.cartesian_prod(*draws).view(-1, group_size)


def group_probs(probs: Tensor, members: Tensor) -> Tensor:
    """Probability of each group, its members drawn independently.

    Args:
        probs: (N,) probabilities of the outcomes.
        members: (M, G) indices, as `groups` returns them.

    Returns:
        (M,) products of the members' probabilities.
    """
    return probs[members].prod(dim=1)
