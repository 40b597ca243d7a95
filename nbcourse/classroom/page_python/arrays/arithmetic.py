"""What is computed number by number, with its derivatives."""

import math
from collections.abc import Callable
from typing import Any

from nbcourse.classroom.page_python.arrays.dtypes import (
    BFLOAT16,
    BOOL,
    BOOLEAN,
    FLOAT,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    DType,
    joined,
    real,
)
from nbcourse.classroom.page_python.arrays.layout import Shape, broadcast, expanded
from nbcourse.classroom.page_python.arrays.storage import Stored, insist, scattered

Of = Callable[..., float]


def safely(function: Of) -> Of:
    """A function of `math` as torch computes it: infinite where it overflows, never an error."""

    def safe(*numbers: float) -> float:
        try:
            return function(*numbers)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return safe


def quotient(x: float, y: float) -> float:
    """x/y, also for y = 0."""
    if y != 0:
        return x / y
    if x == 0 or x != x:
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def power(x: float, y: float) -> float:
    """xʸ, also where Python has no real number."""
    if isinstance(x, int) and isinstance(y, int) and y >= 0:
        return x**y
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x != 0:
            return math.nan
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def _power_in_exponent(x: float, y: float, result: float) -> float:
    if x == 0 and y >= 0:
        return 0.0
    return result * logarithm(x)


def logarithm(x: float) -> float:
    """log x, −∞ at 0."""
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def sigmoid(x: float) -> float:
    """1/(1 + e⁻ˣ)."""
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x) if x == x else x


def log_sigmoid(x: float) -> float:
    """log σ(x), where σ(x) itself may be 0."""
    return min(x, 0.0) - math.log1p(math.exp(-abs(x))) if x == x else x


def larger(x: float, y: float) -> float:
    """The larger of two; NaN if one of them is."""
    return x if x > y or x != x else y


def smaller(x: float, y: float) -> float:
    """The smaller of two; NaN if one of them is."""
    return x if x < y or x != x else y


def sign(x: float) -> float:
    """−1, 0 or 1."""
    return (x > 0) - (x < 0)


def same(dtype: DType) -> DType:
    """A result of the type of what it was made of."""
    return dtype


def counted(dtype: DType) -> DType:
    """The same, but a whole number for truth values."""
    return INT64 if dtype.kind == BOOL else dtype


def truth(dtype: DType) -> DType:
    """A result that is a truth value."""
    return BOOLEAN


exponential = safely(math.exp)
_MAKES_TWO: dict[str, tuple[Callable[[DType], DType], Of, Of | None, Of | None]] = {
    # type, function of x and y, its derivatives in x and in y, from x, y and the result
    "add": (same, lambda x, y: x + y, lambda x, y, z: 1.0, lambda x, y, z: 1.0),
    "sub": (same, lambda x, y: x - y, lambda x, y, z: 1.0, lambda x, y, z: -1.0),
    "mul": (same, lambda x, y: x * y, lambda x, y, z: y, lambda x, y, z: x),
    "div": (
        real,
        quotient,
        lambda x, y, z: quotient(1.0, y),
        lambda x, y, z: -quotient(z, y),
    ),
    "pow": (
        same,
        power,
        lambda x, y, z: y * power(float(x), y - 1) if y else 0.0,
        _power_in_exponent,
    ),
    "remainder": (
        same,
        lambda x, y: x % y if y else math.nan,
        lambda x, y, z: 1.0,
        lambda x, y, z: -(x // y),
    ),
    "floor_divide": (same, lambda x, y: x // y if y else quotient(x, y), None, None),
    "maximum": (
        same,
        larger,
        lambda x, y, z: 0.5 if x == y else float(x > y),
        lambda x, y, z: 0.5 if x == y else float(y > x),
    ),
    "minimum": (
        same,
        smaller,
        lambda x, y, z: 0.5 if x == y else float(x < y),
        lambda x, y, z: 0.5 if x == y else float(y < x),
    ),
    "atan2": (real, math.atan2, None, None),
    "eq": (truth, lambda x, y: x == y, None, None),
    "ne": (truth, lambda x, y: x != y, None, None),
    "lt": (truth, lambda x, y: x < y, None, None),
    "le": (truth, lambda x, y: x <= y, None, None),
    "gt": (truth, lambda x, y: x > y, None, None),
    "ge": (truth, lambda x, y: x >= y, None, None),
    "logical_and": (truth, lambda x, y: bool(x) and bool(y), None, None),
    "logical_or": (truth, lambda x, y: bool(x) or bool(y), None, None),
    "logical_xor": (truth, lambda x, y: bool(x) != bool(y), None, None),
    "bitwise_and": (same, lambda x, y: x & y, None, None),
    "bitwise_or": (same, lambda x, y: x | y, None, None),
    "bitwise_xor": (same, lambda x, y: x ^ y, None, None),
}
_MAKES_ONE: dict[str, tuple[Callable[[DType], DType], Of, Of | None]] = {
    # type, function of x, its derivative from x and the result
    "neg": (same, lambda x: -x, lambda x, y: -1.0),
    "abs": (same, abs, lambda x, y: sign(x)),
    "sign": (same, sign, lambda x, y: 0.0),
    "square": (counted, lambda x: x * x, lambda x, y: 2 * x),
    "exp": (real, exponential, lambda x, y: y),
    "expm1": (real, safely(math.expm1), lambda x, y: y + 1),
    "log": (real, logarithm, lambda x, y: quotient(1.0, x)),
    "log2": (
        real,
        lambda x: math.log2(x) if x > 0 else logarithm(x),
        lambda x, y: quotient(1.0, x * math.log(2)),
    ),
    "log10": (
        real,
        lambda x: math.log10(x) if x > 0 else logarithm(x),
        lambda x, y: quotient(1.0, x * math.log(10)),
    ),
    "log1p": (
        real,
        lambda x: math.log1p(x) if x > -1 else logarithm(x + 1),
        lambda x, y: quotient(1.0, 1 + x),
    ),
    "logit": (
        real,
        lambda x: logarithm(quotient(x, 1 - x)),
        lambda x, y: quotient(1.0, x * (1 - x)),
    ),
    "sqrt": (real, safely(math.sqrt), lambda x, y: quotient(0.5, y)),
    "rsqrt": (real, lambda x: quotient(1.0, safely(math.sqrt)(x)), lambda x, y: -0.5 * y**3),
    "reciprocal": (real, lambda x: quotient(1.0, x), lambda x, y: -y * y),
    "sigmoid": (real, sigmoid, lambda x, y: y * (1 - y)),
    "logsigmoid": (real, log_sigmoid, lambda x, y: sigmoid(-x)),
    "softplus": (real, lambda x: -log_sigmoid(-x), lambda x, y: sigmoid(x)),
    "tanh": (real, math.tanh, lambda x, y: 1 - y * y),
    "sin": (real, safely(math.sin), lambda x, y: math.cos(x)),
    "cos": (real, safely(math.cos), lambda x, y: -math.sin(x)),
    "relu": (same, lambda x: x if x > 0 or x != x else 0, lambda x, y: float(x > 0)),
    "floor": (same, lambda x: math.floor(x) if math.isfinite(x) else x, lambda x, y: 0.0),
    "ceil": (same, lambda x: math.ceil(x) if math.isfinite(x) else x, lambda x, y: 0.0),
    "trunc": (same, lambda x: math.trunc(x) if math.isfinite(x) else x, lambda x, y: 0.0),
    "isnan": (truth, lambda x: x != x, None),
    "isinf": (truth, math.isinf, None),
    "isfinite": (truth, math.isfinite, None),
    "logical_not": (truth, lambda x: not x, None),
}
_SYMBOLS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "pow": "pow",
    "mod": "remainder",
    "floordiv": "floor_divide",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
_TYPES = {
    "double": FLOAT64,
    "float": FLOAT32,
    "half": FLOAT16,
    "bfloat16": BFLOAT16,
    "int": INT32,
    "long": INT64,
    "bool": BOOLEAN,
}


class Arithmetic(Stored):
    """What is computed number by number."""

    # All of a Python class's own comparisons go, or none: Python forgets the hash with __eq__.
    __hash__ = Stored.__hash__

    def bitwise_not(self) -> Any:
        flip = (lambda x: not x) if self.dtype.kind == BOOL else (lambda x: ~x)
        return _each(self, self.dtype, flip)

    __invert__ = bitwise_not

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        ends = [end for end in (min, max) if end is not None]
        if len({isinstance(end, Stored) for end in ends}) > 1:
            raise TypeError("clamp(): min and max must both be numbers, or both tensors")
        low, high = self.operand(min), self.operand(max)
        shape = broadcast(self.shape, *[self.operand(end).shape for end in ends])
        kept, dtype = self.expand(shape), joined([self, *ends])
        if low is not None:
            kept = _chosen(kept < low, low, kept, shape, dtype)
        if high is not None:
            kept = _chosen(kept > high, high, kept, shape, dtype)
        return kept

    clip = clamp

    def clamp_min(self, min: Any) -> Any:
        return self.clamp(min=min)

    def clamp_max(self, max: Any) -> Any:
        return self.clamp(max=max)

    def where(self, condition: Any, other: Any) -> Any:
        return chosen_where(condition, self, other)

    def masked_fill(self, mask: Any, value: Any) -> Any:
        shape = broadcast(self.shape, mask.shape)
        return _chosen(mask, self.operand(value), self, shape, self.dtype)

    def nan_to_num(self, nan: float = 0.0) -> Any:
        if not self.dtype.is_floating_point:
            return self.clone()
        large = self.dtype.rounded(3.4028234663852886e38) if self.dtype.bits else 1.797693e308

        def finite(x: float) -> float:
            return nan if x != x else math.copysign(large, x) if math.isinf(x) else x

        return _each(self, self.dtype, finite, lambda x, y: float(math.isfinite(x)))

    def round(self, *, decimals: int = 0) -> Any:
        scale = 10.0**decimals

        def near(x: float) -> float:
            return round(x * scale) / scale if math.isfinite(x) else x

        return _each(self, self.dtype, near, lambda x, y: 0.0)

    def isclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Any:
        insist("isclose", other)
        shape = broadcast(self.shape, other.shape)

        def near(x: float, y: float) -> bool:
            if x == y or (equal_nan and x != x and y != y):
                return True
            return math.isfinite(y) and abs(x - y) <= atol + rtol * abs(y)

        return self.made(map(near, _read(self, shape)[0], _read(other, shape)[0]), shape, BOOLEAN)

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Any:
        return all(self.isclose(other, rtol, atol, equal_nan).values())

    def to(self, dtype: Any = None, **_: Any) -> Any:
        dtype = dtype.dtype if isinstance(dtype, Stored) else dtype
        if not isinstance(dtype, DType) or dtype is self.dtype:
            return self
        return self.made(self.values(), self.shape, dtype, (self, lambda gradient: gradient))

    type = to

    def cpu(self) -> Any:
        return self

    def clone(self) -> Any:
        return self.made(self.values(), self.shape, self.dtype, (self, lambda gradient: gradient))

    def contiguous(self) -> Any:
        return self if self.at is None else self.clone()

    def copy_(self, source: Any) -> Any:
        self.write(list(range(self.numel())), self.shape, source)
        return self

    fill_ = copy_

    def zero_(self) -> Any:
        return self.copy_(0)


def combined(name: str, left: Any, right: Any) -> Any:
    """A function of two tensors, or of one and a number; NotImplemented of anything else."""
    dtype_of, function, by_left, by_right = _MAKES_TWO[name]
    tensor = left if isinstance(left, Stored) else right
    one, two = tensor.operand(left), tensor.operand(right)
    if one is None or two is None:
        return NotImplemented
    dtype, shape = joined([left, right]), broadcast(one.shape, two.shape)
    if name == "sub" and BOOL in (one.dtype.kind, two.dtype.kind):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    if name.startswith("bitwise") and dtype.kind == FLOAT:
        raise RuntimeError(f'"{name}_cpu" not implemented for floating point numbers')
    xs, of_left = _read(one, shape)
    ys, of_right = _read(two, shape)
    values = list(map(function, xs, ys))
    result = dtype_of(dtype)
    if by_left is None or by_right is None:
        return tensor.made(values, shape, result)

    def back(by: Of, to: Callable[[list[float]], list[float]]) -> Callable[..., list[float]]:
        return lambda gradient: to(
            [g * by(x, y, z) for g, x, y, z in zip(gradient, xs, ys, values, strict=True)]
        )

    return tensor.made(
        values, shape, result, (one, back(by_left, of_left)), (two, back(by_right, of_right))
    )


def _read(tensor: Any, shape: Shape) -> tuple[list[Any], Callable[[list[float]], list[float]]]:
    """The numbers of a tensor that is expanded into a shape, and how a gradient shrinks again."""
    values = tensor.values()
    if tensor.shape == shape:
        return values, lambda gradient: gradient
    if len(values) == 1:
        return values * math.prod(shape), lambda gradient: [sum(gradient)]
    places = expanded(tensor.shape, shape)
    return (
        [values[place] for place in places],
        lambda gradient: scattered(gradient, places, len(values)),
    )


def mapped(name: str, tensor: Any) -> Any:
    """A function of each number."""
    dtype_of, function, by = _MAKES_ONE[name]
    if dtype_of is same and tensor.dtype.kind == BOOL and name != "sign":
        raise RuntimeError(f'"{name}_cpu" not implemented for Bool')
    return _each(tensor, dtype_of(tensor.dtype), function, by)


def _each(tensor: Any, dtype: DType, function: Of, by: Of | None = None) -> Any:
    """A function of each number; `by` is its derivative, from the number and the result."""
    xs = tensor.values()
    values = list(map(function, xs))
    if by is None:
        return tensor.made(values, tensor.shape, dtype)
    return tensor.made(
        values,
        tensor.shape,
        dtype,
        (tensor, lambda g: [p * by(x, y) for p, x, y in zip(g, xs, values, strict=True)]),
    )


def chosen_where(condition: Any, one: Any, other: Any) -> Any:
    """One where a condition is true, the other where it is not."""
    insist("where", condition)
    if condition.dtype.kind != BOOL:
        raise RuntimeError("where expected condition to be a boolean tensor")
    left, right = condition.operand(one), condition.operand(other)
    shape = broadcast(condition.shape, left.shape, right.shape)
    return _chosen(condition, left, right, shape, joined([one, other]))


def _chosen(condition: Any, one: Any, other: Any, shape: Shape, dtype: DType) -> Any:
    chosen, _ = _read(condition, shape)
    xs, of_one = _read(one, shape)
    ys, of_other = _read(other, shape)
    return condition.made(
        [x if c else y for c, x, y in zip(chosen, xs, ys, strict=True)],
        shape,
        dtype,
        (one, lambda g: of_one([p if c else 0.0 for p, c in zip(g, chosen, strict=True)])),
        (other, lambda g: of_other([0.0 if c else p for p, c in zip(g, chosen, strict=True)])),
    )


def _two(name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        result = combined(name, self, other)
        if result is NotImplemented:
            raise TypeError(
                f"{name}(): argument 'other' must be Tensor or number, not {type(other).__name__}"
            )
        return result

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: Any, *others: Any, **keywords: Any) -> Any:
        return self.copy_(getattr(self, name)(*others, **keywords))

    return method


def _symbol(name: str, *, turned: bool = False) -> Callable[..., Any]:
    if turned:
        return lambda self, other: combined(name, other, self)
    return lambda self, other: combined(name, self, other)


def _add_all() -> None:
    for name in _MAKES_ONE:
        if name not in ("logsigmoid", "softplus"):  # of torch.nn.functional alone
            setattr(Arithmetic, name, lambda self, name=name: mapped(name, self))
    for name in _MAKES_TWO:
        setattr(Arithmetic, name, _two(name))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Arithmetic, f"__{name}__", _symbol(name))
    for symbol, name in _SYMBOLS.items():
        setattr(Arithmetic, f"__{symbol}__", _symbol(name))
        setattr(Arithmetic, f"__r{symbol}__", _symbol(name, turned=True))
        setattr(Arithmetic, f"__i{symbol}__", _in_place(f"__{symbol}__"))
    for name in ("neg", "abs"):
        setattr(Arithmetic, f"__{name}__", lambda self, name=name: mapped(name, self))
    for name, dtype in _TYPES.items():
        setattr(Arithmetic, name, lambda self, dtype=dtype: self.to(dtype))
    for name in (
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "clamp",
        "masked_fill",
        "exp",
        "log",
        "neg",
        "sqrt",
        "scatter",
        "scatter_add",
        "index_add",
    ):
        setattr(Arithmetic, f"{name}_", _in_place(name))


_add_all()
