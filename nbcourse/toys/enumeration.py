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
