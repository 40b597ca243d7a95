"""What every function here demands of its arguments: matching shapes, real dtypes, boolean masks.

Nothing in this package broadcasts silently. A `(B, 1)` advantage against a `(B, T)` ratio is a
bug far more often than a wish, so it is refused with a line that names the argument.
"""

import torch
from torch import Tensor


def is_tensor(value: object, *, name: str) -> None:
    """Require a torch tensor; a list or an array is not converted behind the caller's back."""
    if not torch.is_tensor(value):
        raise ValueError(f"{name} is a {type(value).__name__}, expected a torch tensor")


def same_shape(**tensors: Tensor) -> list[Tensor]:
    """Return the tensors as floats, all of one shape.

    Half-precision inputs come back in float32: a difference of two log-probabilities of size 10
    has no correct digit left in bfloat16. float32 and float64 stay as they are.

    Raises:
        ValueError: naming the first argument whose shape or dtype does not fit.
    """
    first, reference = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        is_tensor(tensor, name=name)
        if tensor.shape != reference.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, "
                f"expected {tuple(reference.shape)} as {first} has"
            )
        if not tensor.is_floating_point():
            raise ValueError(f"{name} has dtype {tensor.dtype}, expected a floating-point dtype")
    low_precision = (torch.bfloat16, torch.float16)
    return [t.float() if t.dtype in low_precision else t for t in tensors.values()]


def boolean(mask: Tensor, *, name: str) -> None:
    """Require a boolean tensor."""
    is_tensor(mask, name=name)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} has dtype {mask.dtype}, expected torch.bool")


def integer(tensor: Tensor, *, name: str) -> None:
    """Require a tensor of integers."""
    is_tensor(tensor, name=name)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}, expected integers")


def boolean_mask(mask: Tensor, *, like: Tensor, name: str) -> None:
    """Require `mask` to be boolean and of the shape of `like`, which the caller knows as `name`."""
    boolean(mask, name="mask")
    if mask.shape != like.shape:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, expected {tuple(like.shape)} as {name} has"
        )


def dimensions(tensor: Tensor, axes: str, *, name: str) -> None:
    """Require one axis for each letter of `axes`, such as "BT"."""
    if tensor.dim() != len(axes):
        expected = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {expected}")


def within(value: float, low: float, high: float, *, name: str) -> None:
    """Require low <= value <= high (NaN is refused too)."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}, expected a number from {low} to {high}")


def one_of(value: str, choices: tuple[str, ...], *, name: str) -> None:
    """Require `value` to be one of the named choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
