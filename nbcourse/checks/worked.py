"""Worked cases: how a sheet is checked where a reader of the check must not find the answer.

In a released bundle a check is a list of cases: arguments, what should come back, and what known
mistakes would return. An answer without arguments, and a word among few, would stand there in
plain sight; such a value is *sealed*: a guess can be compared with it, but it cannot be read.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, NotRight, likely_mistakes

ROUNDS = 20_000  # of hashing, for each guess: some milliseconds


@dataclass(frozen=True)
class Sealed:
    """Values that can be compared with others, but not read.

    Each number lies in the middle of a cell of a grid. The offset of the grid is public; the number
    of the cell is not: it is hashed together with those of all other numbers.

    Args:
        salt: what the hash begins with.
        width: of a cell, twice the tolerance.
        offsets: of each number's grid; None for a word.
        digest: hash of the numbers of the cells.
    """

    salt: str
    width: float
    offsets: tuple[float | None, ...]
    digest: str

    def opens(self, values: Sequence[Any]) -> bool:
        """Whether these are the values, as far as the tolerance goes."""
        if len(values) != len(self.offsets):
            return False
        cells: list[Any] = []
        for value, offset in zip(values, self.offsets, strict=True):
            if (offset is None) is isinstance(value, float):
                return False
            if offset is not None and not math.isfinite(value):
                return False
            cells.append(value if offset is None else math.floor((value - offset) / self.width))
        return _digest(self.salt, cells) == self.digest


def seal(values: Sequence[Any], *, salt: str, tolerance: float) -> Sealed:
    """Seal values: numbers to within the tolerance, and words.

    Args:
        values: as `flat` gives them; numbers are finite.
        salt: another one for each exercise and variant.
        tolerance: absolute; below 1e-4 relative to the power of ten of the largest number.
    """
    numbers = [abs(value) for value in values if isinstance(value, float)]
    if tolerance < 1e-4 and max(numbers, default=0.0) > 1:
        tolerance *= 10 ** math.ceil(math.log10(max(numbers)))
    width = 2 * tolerance
    offsets = tuple((v - tolerance) % width if isinstance(v, float) else None for v in values)
    cells = [
        v if o is None else math.floor((v - o) / width)
        for v, o in zip(values, offsets, strict=True)
    ]
    return Sealed(salt, width, offsets, _digest(salt, cells))


def _digest(salt: str, cells: list[Any]) -> str:
    content = json.dumps(cells).encode()
    return hashlib.pbkdf2_hmac("sha256", content, salt.encode(), ROUNDS).hex()


def flat(value: Any) -> list[Any]:
    """The numbers and words in a value, in order: floats, strings and None.

    Raises:
        NotRight: if something else is in it.
    """
    match value:
        case None | str():
            return [value]
        case bool() | int() | float():
            return [float(value)]
        case Tensor():
            return [float(number) for number in value.detach().flatten().tolist()]
        case list() | tuple():
            return [leaf for item in value for leaf in flat(item)]
        case dict():
            return [
                leaf for key in sorted(value, key=str) for leaf in (str(key), *flat(value[key]))
            ]
    if hasattr(value, "tolist"):  # of NumPy
        return flat(value.tolist())
    raise NotRight(f"Expected numbers and words, got {type(value).__name__} {value!r:.80}.")


@dataclass(frozen=True)
class Case:
    """One comparison.

    Args:
        case: which case this is, in words.
        arguments: what the answer is called with.
        expected: what should come back: a tensor, a number, a word or a dict of words; a list for
            values that are compared as `flat` gives them.
        mistakes: explanation → the value that this mistake would have led to; where a word is
            expected, wrong word → what speaks against it, and for a dict that for each key.
        tolerance: absolute and relative.
        wrt: which argument the sum of the result is differentiated by; None compares the result.
        shape: of the sealed tensor; None if it is not a tensor.
        part: which of the result's flat values are compared: the first, and one past the last.
    """

    case: str
    arguments: tuple[Any, ...]
    expected: Any
    mistakes: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-6
    wrt: int | None = None
    part: tuple[int, int] | None = None
    shape: tuple[int, ...] | None = None

    def compare(self, attempt: Attempt) -> None:
        """Call the answer, and insist on what is expected."""
        if self.wrt is None:
            result = attempt(*self.arguments)
        else:
            result = attempt.gradient(*self.arguments, wrt=self.wrt)
        if isinstance(self.expected, Sealed):
            self._compare_sealed(attempt, result, self.expected)
        elif isinstance(self.expected, list):
            self._compare_flat(attempt, result)
        elif isinstance(self.expected, str):
            attempt.choice(result, self.expected, self.mistakes)
        elif isinstance(self.expected, dict):
            attempt.choices(result, self.expected, self.mistakes)
        else:
            attempt.equal(
                result if self.part is None else self._part(result),
                self.expected,
                case=self.case,
                mistakes=self.mistakes,
                tolerance=self.tolerance,
            )

    def _part(self, result: Any) -> Tensor | float:
        first, end = self.part or (0, 0)
        values = flat(result)
        if len(values) < end or not all(isinstance(x, float) for x in values):
            raise NotRight(f"Expected {end} numbers or more for {self.case}, got {result!r:.80}.")
        if not isinstance(self.expected, Tensor):
            return values[first]
        found = torch.tensor(values[first:end], dtype=torch.float64)
        return found.reshape(self.expected.shape)

    def _compare_sealed(self, attempt: Attempt, result: Any, expected: Sealed) -> None:
        values = flat(result if self.shape is None else attempt.tensor(result, self.shape))
        if len(values) != len(expected.offsets):
            raise NotRight(f"Expected {len(expected.offsets)} values, got {result!r:.80}.")
        lines = [f"Wrong for {self.case}:", f"  got      {result!r:.200}"]
        lines += likely_mistakes([why for why, v in self.mistakes.items() if v.opens(values)])
        attempt.holds(expected.opens(values), self.case, otherwise="\n".join(lines))

    def _compare_flat(self, attempt: Attempt, result: Any) -> None:
        values = flat(result)
        same = len(values) == len(self.expected) and all(
            math.isclose(x, y, rel_tol=self.tolerance, abs_tol=self.tolerance)
            if isinstance(x, float) and isinstance(y, float)
            else x == y
            for x, y in zip(values, self.expected, strict=True)
        )
        wanted = self.expected[0] if len(self.expected) == 1 else self.expected
        attempt.holds(
            same,
            self.case,
            otherwise=f"Wrong for {self.case}:\n  expected {wanted!r}\n  got      {result!r:.200}",
        )


def by_cases(*cases: Case) -> Callable[[Attempt, Generator], None]:
    """A check that compares case by case."""

    def check(attempt: Attempt, generator: Generator) -> None:
        for case in cases:
            case.compare(attempt)
        attempt.passed.append("other cases follow when it is graded")

    return check
