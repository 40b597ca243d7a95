"""What every function here demands of its arguments: matching shapes, real dtypes, boolean masks.

Nothing in this package broadcasts silently. A `(B, 1)` advantage against a `(B, T)` ratio is a
bug far more often than a wish, so it is refused with a line that names the argument.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


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


@dataclass(frozen=True)
class Bounds:
    """The range of a number, stated in an annotation: `Annotated[float, Bounds(0, 1)]`.

    Attributes:
        low: the least.
        high: the greatest.
        above: the least itself is out of range.
    """

    low: float
    high: float = math.inf
    above: bool = False

    def __str__(self) -> str:
        if self.above:
            upper = "" if self.high == math.inf else f" and at most {self.high:g}"
            return f"a number above {self.low:g}{upper}"
        if self.high == math.inf:
            return f"a number of at least {self.low:g}"
        return f"a number from {self.low:g} to {self.high:g}"

    def check(self, value: float, *, name: str) -> None:
        """Require a number in the range (NaN is none).

        Raises:
            ValueError: naming the number, its value and the range.
        """
        if not self.low <= value <= self.high or (self.above and value == self.low):
            raise ValueError(f"{name} is {value}, expected {self}")


Share = Annotated[float, Bounds(0, 1)]
NonNegative = Annotated[float, Bounds(0)]
AboveOne = Annotated[float, Bounds(1, above=True)]
AtLeastOne = Annotated[float, Bounds(1)]


def bounds_of(annotation: Any) -> Bounds | None:
    """The bounds that an annotation states, also one such as `NonNegative | None`."""
    for part in (annotation, *get_args(annotation)):
        for extra in getattr(part, "__metadata__", ()):
            if isinstance(extra, Bounds):
                return extra
    return None


def bounded(function: Callable[P, T]) -> Callable[P, T]:
    """Refuse a keyword outside of the bounds that its annotation states."""
    hints = get_type_hints(function, include_extras=True)
    ranges = {name: bounds for name, hint in hints.items() if (bounds := bounds_of(hint))}

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in kwargs.items():
            if name in ranges and value is not None:
                ranges[name].check(value, name=name)  # type: ignore[arg-type]
        return function(*args, **kwargs)

    return checked


def one_of(value: str, choices: tuple[str, ...], *, name: str) -> None:
    """Require `value` to be one of the named choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")
