"""The critic's loss."""

import math

import torch
from torch import Tensor

from nbcourse.functional.aggregation import BatchMask, aggregate
from nbcourse.functional.arguments import BT, AnyMask, AnyShape, BTMask, Positive, checked
from nbcourse.functional.masking import set_aside


@checked
def value_loss(
    values: BT,
    old_values: BT,
    returns: BT,
    mask: BTMask,
    *,
    clip: Positive | None = None,
    batch_mask: BatchMask | None = None,
) -> Tensor:
    """Half the mean squared error of the critic, optionally clipped around its old prediction.

        L = ½ mean (v − R)²
        L = ½ mean max( (v − R)², (v_old + clip(v − v_old, ±clip) − R)² )

    The target R is the *return* (GAE advantages + old values), not the reward of the token.
    With clipping, a prediction that has moved more than `clip` towards R gets no gradient, unless
    it has passed R by so far that the unclipped error is the larger one.

    Args:
        values: (B, T) predictions, with gradient.
        old_values: (B, T) predictions at sampling time; used by the clip only.
        returns: (B, T) targets.
        mask: (B, T) bool.
        clip: how far a prediction may move, > 0; None does not clip.
        batch_mask: (N, T') bool, the mask of the whole batch if this is a micro-batch, as in
            `aggregation.aggregate`.

    Returns:
        A scalar, the mean over the tokens at which the mask is True.

    Raises:
        ValueError: if shapes differ or are not (B, T), mask is not boolean or clip not positive.

    Book: equation (eq-value-loss). Source: the clip is from OpenAI baselines' ppo2 (2017), not
    from a paper; Engstrom et al. 2020 study it.

    >>> v, v_old, R = (torch.tensor([[x, x]]) for x in (3.0, 1.0, 5.0))
    >>> value_loss(v, v_old, R, R > 0, clip=0.5)  # moved to 3, counted as 1.5: ½ (1.5 − 5)²
    tensor(6.1250)
    """
    values, old_values, returns = set_aside(~mask, values, old_values.detach(), returns.detach())
    error = (values - returns).square()
    if clip is not None:
        clipped = old_values + (values - old_values).clamp(-clip, clip)
        error = torch.max(error, (clipped - returns).square())
    return 0.5 * aggregate(error, mask, "token-mean", batch_mask=batch_mask)


@checked
@torch.no_grad()
def explained_variance(values: AnyShape, returns: AnyShape, mask: AnyMask) -> float:
    """Share of the returns' variance that the critic explains.

        1 − Var(R − V) / Var(R)

    1 is a critic that is right up to a constant, 0 one that says the same everywhere.

    Args:
        values: any shape, predictions at sampling time.
        returns: the same shape, targets.
        mask: bool, the same shape.

    Returns:
        A number of at most 1; NaN if all returns are equal but for rounding, when there is nothing
        to explain.

    Raises:
        ValueError: if shapes differ or mask is not boolean.

    >>> R, V = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0])
    >>> explained_variance(V, R, R > 0)  # Var R = 1; R − V is 0 and 1, with variance ¼
    0.75
    """
    values, returns = values[mask], returns[mask]
    variance = returns.var(correction=0)
    # Returns that are advantages + values were rounded as numbers of the size of either.
    size = torch.cat([values, returns]).square().mean().sqrt()
    if not variance.sqrt() > 100 * torch.finfo(returns.dtype).eps * size:
        return math.nan
    return (1 - (returns - values).var(correction=0) / variance).item()
