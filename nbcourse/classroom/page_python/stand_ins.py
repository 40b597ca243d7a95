"""What the checks use of the standard library, in plain Python, as a page has only `math` of it."""

import math
from collections.abc import Iterator
from typing import Any


class Types:
    """What stands for a type of which others are written in brackets."""

    def __getitem__(self, types: Any) -> Any:
        return self


Callable = Mapping = Collection = Types()


class Fraction:
    """A ratio of whole numbers, as far as a check needs it."""

    def __init__(self, above: int, below: int = 1) -> None:
        shared = math.gcd(above, below)
        self.above, self.below = above // shared, below // shared

    def __add__(self, other: "Fraction") -> "Fraction":
        above = self.above * other.below + other.above * self.below
        return Fraction(above, self.below * other.below)

    def __sub__(self, other: "Fraction") -> "Fraction":
        return self + Fraction(-other.above, other.below)

    def __abs__(self) -> "Fraction":
        return Fraction(abs(self.above), self.below)

    def __ge__(self, other: "Fraction") -> bool:
        return self.above * other.below >= other.above * self.below

    def __float__(self) -> float:
        return self.above / self.below


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


def product(*pools: Any, repeat: int = 1) -> Iterator[tuple[Any, ...]]:
    """As in itertools: every way to take one of each, the last one changing fastest."""
    found: list[tuple[Any, ...]] = [()]
    for pool in [list(pool) for pool in pools] * repeat:
        found = [(*taken, one) for taken in found for one in pool]
    return iter(found)


def combinations(pool: Any, count: int) -> Iterator[tuple[Any, ...]]:
    """As in itertools: every way to take so many, in the order of the pool."""
    of = list(pool)
    places = product(range(len(of)), repeat=count)
    return iter(
        [tuple([of[i] for i in chosen]) for chosen in places if list(chosen) == sorted(set(chosen))]
    )
