"""Means and standard scores over the tokens that count.

A batch of responses is padded to a rectangle; `mask` is True on the tokens a model produced,
its end-of-sequence token included, and False on padding. What stands under False is arbitrary:
it may be NaN, and it must change neither a value nor a gradient.
"""

import torch
from torch import Tensor

from nbcourse.functional.arguments import AnyMask, AnyShape, checked

WHITENING_EPS = 1e-8  # added to the variance, as in TRL and verl


@checked
def masked_mean(x: AnyShape, mask: AnyMask, dim: int | None = None) -> Tensor:
    """Mean of the entries of `x` at which `mask` is True.

        mean = Σ x·m / Σ m

    Args:
        x: any shape; entries under a False mask may hold anything, NaN included.
        mask: bool, the shape of `x`.
        dim: the axis to reduce; all axes if None.

    Returns:
        A scalar, or `x` without axis `dim`. Where no entry is True the mean is 0 with zero
        gradient: an empty response adds nothing.

    Raises:
        ValueError: if `mask` is not boolean or its shape differs.

    Book: equation (eq-masked-mean).

    >>> mask = torch.tensor([True, True, False])
    >>> masked_mean(torch.tensor([1.0, 2.0, torch.nan]), mask)  # (1 + 2) / 2
    tensor(1.5000)
    """
    kept = torch.where(mask, x, 0.0)  # not x * mask: NaN times 0 is NaN
    if dim is None:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum(dim) / mask.sum(dim).clamp(min=1)


@checked
def masked_whiten(x: AnyShape, mask: AnyMask, *, shift_mean: bool = True) -> Tensor:
    """Shift and scale `x` to mean 0 and standard deviation 1 over the entries that count.

        x̂ = (x − mean) / sqrt(var + 1e-8),   var with the unbiased denominator Σ m − 1

    Args:
        x: any shape.
        mask: bool, the shape of `x`.
        shift_mean: if False the mean is added back, so that only the scale changes. Used for
            rewards, whose sign should survive.

    Returns:
        The shape of `x`, 0 where the mask is False. If the entries that count are all equal (or
        there is only one) their deviations are exactly 0, not rounding noise blown up.

    Raises:
        ValueError: if `mask` is not boolean or its shape differs.

    Book: equation (eq-whiten). Source: Engstrom et al. 2020, "Implementation Matters".

    >>> mask = torch.tensor([True, True, True, False])
    >>> masked_whiten(torch.tensor([1.0, 3.0, 5.0, 9.0]), mask)  # mean 3, var (4 + 0 + 4) / 2 = 4
    tensor([-1.,  0.,  1.,  0.])
    """
    mean = masked_mean(x, mask)
    deviation = torch.where(mask, x - mean, 0.0)
    variance = deviation.square().sum() / (mask.sum() - 1).clamp(min=1)
    highest = torch.where(mask, x, -torch.inf).max()
    lowest = torch.where(mask, x, torch.inf).min()
    scaled = deviation * (variance + WHITENING_EPS).rsqrt()
    scaled = scaled.masked_fill(highest == lowest, 0.0)  # not torch.where(>): a NaN must survive
    return torch.where(mask, scaled if shift_mean else scaled + mean, 0.0)


def set_aside(broken: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Replace by 0 the entries at which `broken` is True, so that no gradient passes there.

    Elementwise formulas such as exp(x)·A return NaN gradients for NaN entries even if a later
    mask ignores them, because 0 · NaN is NaN in the backward pass. So they compute on these cleaned
    tensors and write NaN into the result afterwards: where a mask is False that NaN is dropped, and
    anywhere else it surfaces in the loss at once.

    >>> set_aside(torch.tensor([False, True]), torch.tensor([2.0, torch.nan]))
    [tensor([2., 0.])]
    """
    return [tensor.masked_fill(broken, 0.0) for tensor in tensors]
