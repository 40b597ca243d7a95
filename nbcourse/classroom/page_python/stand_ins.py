"""What the checks use of torch and the standard library, as a page has neither.

A tensor is a nested list of numbers, a value without dimensions a plain number. Nothing is computed
here but comparisons and the few sums that a check itself takes.
"""

import math
from typing import Any


class Tensor:
    """Numbers in rows of equal length.

    Args:
        data: a number or nested lists; rows of unequal length are refused.
    """

    def __init__(self, data: Any) -> None:
        self.data = data
        self.shape = shape_of(data)
        if None in self.shape:
            raise ValueError(f"rows of unequal length or depth: {data!r:.80}")

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def item(self) -> Any:
        (number,) = leaves(self.data)
        return number

    def tolist(self) -> Any:
        return mapped(lambda number: number, self.data)

    def clone(self) -> "Tensor":
        return Tensor(self.tolist())

    def detach(self) -> "Tensor":
        return self

    def double(self) -> "Tensor":
        return Tensor(mapped(float, self.data))

    def flatten(self) -> "Tensor":
        return Tensor(leaves(self.data))

    def reshape(self, shape: tuple[int, ...]) -> "Tensor":
        rows = leaves(self.data)
        for length in reversed(shape[1:]):
            rows = [rows[i : i + length] for i in range(0, len(rows), length)]
        return Tensor(rows if shape else rows[0])

    view = reshape

    def nan_to_num(self) -> "Tensor":
        return Tensor(mapped(lambda number: 0.0 if number != number else number, self.data))

    def is_floating_point(self) -> bool:
        return any(isinstance(number, float) for number in leaves(self.data))

    @property
    def dtype(self) -> type:
        return type(next(iter(leaves(self.data)), 0.0))

    def sum(self) -> Any:
        return sum(leaves(self.data))

    def min(self) -> Any:
        return min(leaves(self.data))

    def max(self) -> Any:
        return max(leaves(self.data))

    def argmax(self) -> int:
        numbers = leaves(self.data)
        return numbers.index(max(numbers))

    def __mul__(self, other: "Tensor") -> "Tensor":
        pairs = zip(leaves(self.data), leaves(other.data), strict=True)
        return Tensor([a * b for a, b in pairs]).reshape(self.shape)

    def __matmul__(self, other: "Tensor") -> Any:
        return sum(a * b for a, b in zip(self.data, other.data, strict=True))

    def __invert__(self) -> "Tensor":
        return Tensor(mapped(lambda number: not number, self.data))

    def __getitem__(self, place: int) -> Any:
        part = self.data[place]
        return Tensor(part) if isinstance(part, list) else part

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return repr(self.data)


class torch:
    """The functions of torch by which a check compares."""

    Generator = dtype = object
    float32 = float64 = float
    int64 = int
    bool = bool

    @staticmethod
    def tensor(data: Any, dtype: type | None = None) -> Tensor:
        return Tensor(data if dtype is None else mapped(dtype, data))

    @staticmethod
    def as_tensor(value: Any, dtype: type) -> Tensor:
        return Tensor(mapped(dtype, value.data if isinstance(value, Tensor) else value))

    @staticmethod
    def linspace(first: float, last: float, steps: int) -> Tensor:
        return Tensor([first + (last - first) * i / max(steps - 1, 1) for i in range(steps)])

    @staticmethod
    def equal(left: Tensor, right: Tensor) -> Any:
        return left.tolist() == right.tolist()

    @staticmethod
    def allclose(left: Tensor, right: Tensor, *, rtol: float, atol: float, equal_nan: Any) -> Any:
        pairs = zip(leaves(left.data), leaves(right.data), strict=True)
        return all(
            a == b or _near(a, b, rtol, atol) or (equal_nan and a != a and b != b) for a, b in pairs
        )


class numbers:
    """What counts as a number."""

    Integral, Real = int, float


class traceback:
    """Where an answer stopped: the lines that were running, the outermost first."""

    @staticmethod
    def extract_tb(place: Any) -> list["Line"]:
        lines = []
        while place is not None:
            lines.append(Line(place.tb_frame.f_code.co_filename, place.tb_lineno))
            place = place.tb_next
        return lines


class Line:
    """A line of a file."""

    def __init__(self, filename: str, lineno: int) -> None:
        self.filename, self.lineno = filename, lineno


class linecache:
    """The text of what readers typed, by the name of the file."""

    sources: dict[str, str] = {}  # noqa: RUF012 — shared on purpose

    @classmethod
    def getline(cls, file: str, number: int) -> str:
        lines = cls.sources.get(file, "").splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""


def field(*, default_factory: Any) -> Any:
    """The default of a field."""
    return default_factory()


def _near(a: float, b: float, rtol: float, atol: float) -> bool:
    return math.isfinite(b) and abs(a - b) <= atol + rtol * abs(b)


def shape_of(data: Any) -> tuple[Any, ...]:
    """The lengths of nested lists; None at the end where they differ."""
    if not isinstance(data, list):
        return ()
    shapes = {shape_of(part) for part in data}
    if len(shapes) > 1:
        return len(data), None
    return (len(data), *(shapes.pop() if shapes else ()))


def leaves(data: Any) -> list[Any]:
    """The numbers of nested lists, in order."""
    return (
        [number for part in data for number in leaves(part)] if isinstance(data, list) else [data]
    )


def mapped(function: Any, data: Any) -> Any:
    """Nested lists with a function of each number."""
    if isinstance(data, list):
        return [mapped(function, part) for part in data]
    return function(data)
