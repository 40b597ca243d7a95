"""What the functions here demand of their arguments, said once, in the annotations.

`@checked` reads them at every call: the axes of a tensor (`BT`), what it holds, the range of a
number (`Share`). Nothing in this package broadcasts silently. A `(B, 1)` advantage against a
`(B, T)` ratio is a bug far more often than a wish, so it is refused with a line that names the
argument.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_args, get_type_hints

import torch
from annotated_types import Ge, GroupedMetadata, Gt, Interval, Le, Lt
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")

HALF_PRECISION = (torch.bfloat16, torch.float16)
KINDS: dict[str, tuple[str, Callable[[Tensor], bool]]] = {
    "floats": ("a floating-point dtype", torch.is_floating_point),
    "bools": ("torch.bool", lambda x: x.dtype == torch.bool),
    "integers": (
        "integers",
        lambda x: not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool),
    ),
}


@dataclass(frozen=True)
class Axes:
    """The axes of a tensor, in an annotation: `Annotated[Tensor, Axes("B T")]`.

    A letter is the same length wherever it stands in a signature; `T+1` is one more. Tensors of
    equal `names` have equal shapes, and "..." stands for any number of axes.

    Attributes:
        names: of the axes, separated by spaces.
        kind: "floats", "bools" or "integers".
    """

    names: str
    kind: str = "floats"

    @functools.cached_property
    def letters(self) -> tuple[tuple[str, int], ...]:
        """Each axis as a letter and what is added to its length: T+1 is ("T", 1)."""
        parts = (axis.partition("+") for axis in self.names.split())
        return tuple((letter, int(more or 0)) for letter, _, more in parts)

    def __str__(self) -> str:
        """As shapes are written: (B, T), and (B,)."""
        names = self.names.split()
        return f"({', '.join(names)}{',' * (len(names) == 1)})"

    def check(self, tensor: object, *, name: str, seen: dict[str, tuple[str, torch.Size]]) -> None:
        """Require a tensor of these axes.

        Args:
            tensor: what was given.
            name: of the argument.
            seen: the first argument of each `names` and its shape; a new one is added.

        Raises:
            ValueError: naming the argument, what came and what was expected.
        """
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} is a {type(tensor).__name__}, expected a torch tensor")
        if self.names in seen:
            first, shape = seen[self.names]
            if tensor.shape != shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}, "
                    f"expected {tuple(shape)} as {first} has"
                )
        elif "..." not in self.names:
            self._compare_lengths(tensor.shape, name, seen)
        expected, fits = KINDS[self.kind]
        if not fits(tensor):
            raise ValueError(f"{name} has dtype {tensor.dtype}, expected {expected}")
        seen.setdefault(self.names, (name, tensor.shape))

    def _compare_lengths(
        self, shape: torch.Size, name: str, seen: dict[str, tuple[str, torch.Size]]
    ) -> None:
        known = {
            letter: length
            for names, (_, other) in seen.items()
            for letter, length in zip(names.split(), other, strict=False)
        }
        bound = dict(known)
        if len(shape) == len(self.letters) and all(
            bound.setdefault(letter, length) + more == length
            for (letter, more), length in zip(self.letters, shape, strict=True)
        ):
            return
        expected = str(self)
        if all(letter in known for letter, _ in self.letters):
            names, (first, _) = next(iter(seen.items()))
            lengths = tuple(known[letter] + more for letter, more in self.letters)
            expected = f"{lengths}: {self} where {first} has {Axes(names)}"
        raise ValueError(f"{name} has shape {tuple(shape)}, expected {expected}")


AnyShape = Annotated[Tensor, Axes("...")]
AnyMask = Annotated[Tensor, Axes("...", "bools")]
B = Annotated[Tensor, Axes("B")]
BT = Annotated[Tensor, Axes("B T")]
BTMask = Annotated[Tensor, Axes("B T", "bools")]
K = Annotated[Tensor, Axes("K")]
TN = Annotated[Tensor, Axes("T N")]
TNFlags = Annotated[Tensor, Axes("T N", "bools")]

Share = Annotated[float, Interval(ge=0, le=1)]
NonNegative = Annotated[float, Interval(ge=0)]
Positive = Annotated[float, Interval(gt=0)]
AboveOne = Annotated[float, Interval(gt=1)]
AtLeastOne = Annotated[float, Interval(ge=1)]


def bounds_of(annotation: Any) -> Interval | None:
    """The bounds that an annotation states, also one such as `NonNegative | None`.

    >>> bounds_of(Annotated[int, Ge(1), Le(9)] | None)
    Interval(gt=None, ge=1, lt=None, le=9)
    """
    limits: dict[str, Any] = {}
    for extra in _extras(annotation):
        for limit in extra if isinstance(extra, GroupedMetadata) else (extra,):
            if isinstance(limit, Gt | Ge | Lt | Le):
                limits |= asdict(limit)
    return Interval(**limits) if limits else None


def in_words(bounds: Interval) -> str:
    """The numbers that are within the bounds.

    >>> in_words(Interval(ge=0, le=1)), in_words(Interval(gt=1))
    ('a number from 0 to 1', 'a number above 1')
    """
    if bounds.ge is not None and bounds.le is not None:
        return f"a number from {bounds.ge:g} to {bounds.le:g}"
    limits = {"above": bounds.gt, "at least": bounds.ge, "below": bounds.lt, "at most": bounds.le}
    said = [f"{word} {limit:g}" for word, limit in limits.items() if limit is not None]
    return f"a number {'of ' * said[0].startswith('at')}{' and '.join(said)}"


def within(value: Any, bounds: Interval, *, name: str) -> None:
    """Require a number within the bounds (NaN is not).

    Raises:
        ValueError: naming the number, its value and the bounds.

    >>> within(1.5, Interval(ge=0, le=1), name="gamma")
    Traceback (most recent call last):
    ValueError: gamma is 1.5, expected a number from 0 to 1
    """
    if not (
        (bounds.ge is None or value >= bounds.ge)
        and (bounds.gt is None or value > bounds.gt)
        and (bounds.le is None or value <= bounds.le)
        and (bounds.lt is None or value < bounds.lt)
    ):
        raise ValueError(f"{name} is {value}, expected {in_words(bounds)}")


def one_of(value: str, choices: tuple[str, ...], *, name: str) -> None:
    """Require `value` to be one of the named choices.

    >>> one_of("k4", ("k1", "k3"), name="kind")
    Traceback (most recent call last):
    ValueError: kind is 'k4', expected one of 'k1', 'k3'
    """
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(map(repr, choices))}")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Hold the arguments of each call against the `Axes` and bounds that their annotations state.

    Half-precision tensors come in as float32: a small difference of two log-probabilities of size
    10 has no correct digit left in bfloat16. float32 and float64 stay as they are.

    >>> @checked
    ... def weigh(loss: BT, gain: BT, *, share: Share = 0.5) -> Tensor:
    ...     return share * loss - gain
    >>> weigh(torch.ones(2, 3), torch.ones(2, 1))
    Traceback (most recent call last):
    ValueError: gain has shape (2, 1), expected (2, 3) as loss has
    """
    form = signature(function)
    names = tuple(form.parameters)
    demands = _demands(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if widened := _require(demands, {**dict(zip(names, args)), **kwargs}):  # noqa: B905
            wide = form.bind(*args, **kwargs)
            wide.arguments.update(widened)
            return function(*wide.args, **wide.kwargs)
        return function(*args, **kwargs)

    return call


def check_fields(record: object) -> None:
    """Hold the fields of a dataclass against their annotations, in its `__post_init__`.

    >>> @dataclass
    ... class Walk:
    ...     back: Share
    ...     __post_init__ = check_fields
    >>> Walk(back=2)
    Traceback (most recent call last):
    ValueError: back is 2, expected a number from 0 to 1
    """
    _require(_demands(type(record)), vars(record))  # type: ignore[arg-type]  # classes are hashable


class _Demand(NamedTuple):
    name: str
    axes: Axes | None
    bounds: Interval | None
    optional: bool


def _require(demands: list[_Demand], given: Mapping[str, Any]) -> dict[str, Tensor]:
    """Refuse what does not fit, and return in float32 what came in half precision."""
    seen: dict[str, tuple[str, torch.Size]] = {}
    widened = {}
    for name, axes, bounds, optional in demands:
        if name not in given or ((value := given[name]) is None and optional):
            continue
        if bounds is not None:
            within(value, bounds, name=name)
        if axes is not None:
            axes.check(value, name=name, seen=seen)
            if value.dtype in HALF_PRECISION:
                widened[name] = value.float()
    return widened


@functools.cache
def _demands(annotated: Callable) -> list[_Demand]:
    """What a signature, or a dataclass, asks; most axes first, as they say what the lengths are."""
    found = []
    for name, hint in get_type_hints(annotated, include_extras=True).items():
        axes = next((extra for extra in _extras(hint) if isinstance(extra, Axes)), None)
        bounds = bounds_of(hint)
        if name != "return" and (axes or bounds):
            found.append(_Demand(name, axes, bounds, type(None) in get_args(hint)))
    return sorted(found, key=lambda demand: -len(demand.axes.names.split()) if demand.axes else 0)


def _extras(annotation: Any) -> list[Any]:
    """What is annotated to a type, also to one in a union."""
    parts = (annotation, *get_args(annotation))
    return [extra for part in parts for extra in getattr(part, "__metadata__", ())]
