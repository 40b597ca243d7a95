"""Types of numbers: how they round, and which one a result has."""

import math
from collections.abc import Callable, Iterable
from typing import Any

BOOL, INT, FLOAT = 0, 1, 2  # the kinds; a higher one wins


class DType:
    """A type of numbers.

    Args:
        name: as torch calls it.
        rank: of two types of a kind, that of the higher rank wins.
        kind: BOOL, INT or FLOAT.
        bits: of a float's significand; 0 for those of Python's floats.
        exponents: the lowest of a normal number and the highest, as `math.frexp` counts.
    """

    def __init__(
        self, name: str, rank: int, kind: int, bits: int = 0, exponents: tuple[int, int] = (0, 0)
    ) -> None:
        self.name, self.rank, self.kind, self.bits = name, rank, kind, bits
        self.lowest, self.highest = exponents
        self.factor = 2.0 ** (53 - bits) + 1
        self.normal = 2.0 ** exponents[0], 2.0 ** (exponents[1] - 1)
        self.is_floating_point = kind == FLOAT

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def held(self, values: Iterable[Any]) -> list[Any]:
        """Values as this type holds them."""
        if self.bits:
            return self._rounded(values)
        cast: Callable[[Any], Any] = (bool, _whole, float)[self.kind]
        return [cast(value) for value in values]

    def _rounded(self, values: Iterable[float]) -> list[float]:
        """As `rounded`, many at once: in a browser some checks round for seconds.

        Veltkamp's splitting (Dekker 1971): a number times 2ˢ + 1, less what that has more than the
        number itself, is the number without its last s bits, rounded as the machine rounds.
        """
        factor, (least, most), found = self.factor, self.normal, []
        for value in values:
            if least < value < most or least < -value < most:
                times = value * factor
                found.append(times - (times - value))
            else:
                found.append(self.rounded(value))
        return found

    def rounded(self, value: float) -> float:
        """The nearest number of this type, of two that are as near the even one."""
        if value == 0 or not math.isfinite(value):
            return float(value)
        fraction, exponent = math.frexp(value)
        lost = max(self.lowest - exponent, 0)  # subnormal numbers have fewer bits
        exponent += lost
        whole = round(math.ldexp(fraction, self.bits - lost))
        if whole == 0:
            return math.copysign(0.0, value)
        if abs(whole) == 2**self.bits:
            whole, exponent = whole // 2, exponent + 1
        if exponent > self.highest:
            return math.copysign(math.inf, value)
        return math.ldexp(whole, exponent - self.bits)


def _whole(value: Any) -> int:
    return int(value) if math.isfinite(value) else -(2**63)


BOOLEAN = DType("bool", 0, BOOL)
INT32 = DType("int32", 1, INT)
INT64 = DType("int64", 2, INT)
BFLOAT16 = DType("bfloat16", 3, FLOAT, 8, (-125, 128))
FLOAT16 = DType("float16", 4, FLOAT, 11, (-13, 16))
FLOAT32 = DType("float32", 5, FLOAT, 24, (-125, 128))
FLOAT64 = DType("float64", 6, FLOAT)


def of_number(number: Any) -> DType:
    """The type of a number of Python."""
    return BOOLEAN if isinstance(number, bool) else INT64 if isinstance(number, int) else FLOAT32


def joined(operands: Iterable[Any]) -> DType:
    """The type of a result: numbers, and tensors without dimensions, only change the kind."""
    groups: list[list[DType]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, bool | int | float):
            groups[2].append(of_number(operand))
        else:
            groups[0 if operand.shape else 1].append(operand.dtype)
    bests = [max(group, key=lambda dtype: dtype.rank) for group in groups if group]
    return max(bests, key=lambda dtype: dtype.kind)  # of several the first


def added_up(dtype: DType) -> DType:
    """The type of a sum or a product of many such numbers."""
    return dtype if dtype.is_floating_point else INT64


def real(dtype: DType) -> DType:
    """The type of a quotient, a mean or a logarithm of such numbers."""
    return dtype if dtype.is_floating_point else FLOAT32
