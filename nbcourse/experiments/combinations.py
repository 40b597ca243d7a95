"""Several faults at once: which go together, a run that has them, what naming them is worth."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.diagnosis.suspects import CAUSES, CHECKS
from nbcourse.errors import UserError
from nbcourse.experiments import small_lab

# Mistakes of a trainer; the others are recipes that leave a sound trainer nothing to learn from.
# A fault that is not among the recorded runs needs a recipe that is none of the benchmark's.
OF_A_TRAINER = tuple(
    name for name, fault in FAULTS.items() if fault.plant is not nullcontext and fault.recorded
)


class Apart(ValueError):
    """Faults that cannot be planted together."""


def together(*names: str, algorithm: str | None = None) -> dict[str, Any]:
    """Tables of a recipe in which all of these faults have something to spoil.

    Faults go together if no two of them are asked after by one check of the tree (they would spoil
    one quantity, and only their sum could be seen), if some algorithm has all of them, and if what
    they need makes one recipe of the benchmark's.

    Args:
        names: of `FAULTS`, one or more.
        algorithm: a row of the table that they have to be of; None for the first that has them.

    Raises:
        Apart: if they do not go together; says why.
        KeyError: if there is no such fault.
    """
    faults = [FAULTS[name] for name in names]
    checks = [_check_of(fault.cause) for fault in faults]
    for check in checks:
        if checks.count(check) > 1:
            both = [name for name, own in zip(names, checks, strict=True) if own == check]
            raise Apart(f"{' and '.join(both)} spoil one quantity: {CHECKS[check].question}")
    shared = [
        row for row in faults[0].algorithms if all(row in fault.algorithms for fault in faults)
    ]
    if algorithm is not None:
        shared = [row for row in shared if row == algorithm]
    if not shared:
        raise Apart(f"no algorithm has all of {', '.join(names)}")
    tables: dict[str, Any] = {"algorithm": {"name": shared[0]}}
    for name, fault in zip(names, faults, strict=True):
        _merge(tables, fault.recipe, name)
    try:
        small_lab.recipe_of(tables, 0)
    except UserError as error:
        raise Apart(f"{' and '.join(names)}: {error}") from None
    return tables


def pairs() -> Iterator[tuple[str, str]]:
    """All pairs of a trainer's faults that go together."""
    for place, one in enumerate(OF_A_TRAINER):
        for other in OF_A_TRAINER[place + 1 :]:
            if go_together(one, other):
                yield one, other


def go_together(*names: str, algorithm: str | None = None) -> bool:
    """Whether `together` has a recipe for them."""
    try:
        together(*names, algorithm=algorithm)
    except Apart:
        return False
    return True


def train(names: Sequence[str], seed: int, name: str, *, algorithm: str | None = None) -> Evidence:
    """A run with all of these faults, by the first row of the table that has them, or a named one.

    Raises:
        Apart: if they do not go together.
    """
    tables = together(*names, algorithm=algorithm)
    return small_lab.train(small_lab.recipe_of(tables, seed), name, faults=names)


@dataclass(frozen=True)
class Mark:
    """What a list of accusations is worth.

    Attributes:
        found: causes that were planted and named.
        missed: causes that were planted and not named.
        false: causes that were named and not planted.
    """

    found: tuple[str, ...]
    missed: tuple[str, ...]
    false: tuple[str, ...]

    @property
    def share(self) -> float:
        """Found less falsely accused, of those planted; 0 at least."""
        planted = len(self.found) + len(self.missed)
        return max(0, len(self.found) - len(self.false)) / planted

    def __str__(self) -> str:
        """In a line."""
        planted = len(self.found) + len(self.missed)
        return (
            f"found {len(self.found)} of {planted}, accused {len(self.false)} falsely: "
            f"{self.share:.0%}"
        )


def mark(planted: Sequence[str], named: Sequence[str]) -> Mark:
    """Count causes that were named against faults that were planted.

    Raises:
        UserError: if there is no such cause.
    """
    for cause in named:
        if cause not in CAUSES:
            raise UserError(f"there is no cause {cause!r}; `nbcourse diagnose --causes` lists them")
    causes = tuple(FAULTS[name].cause for name in planted)
    return Mark(
        found=tuple(cause for cause in causes if cause in named),
        missed=tuple(cause for cause in causes if cause not in named),
        false=tuple(cause for cause in dict.fromkeys(named) if cause not in causes),
    )


def _check_of(cause: str) -> str:
    return next(name for name, check in CHECKS.items() if cause in check.causes)


def _merge(tables: dict[str, Any], wanted: Mapping[str, Any], name: str) -> None:
    for section, table in wanted.items():
        there = tables.setdefault(section, {})
        for key, value in table.items():
            if there.setdefault(key, copy.copy(value)) != value:
                raise Apart(f"{name} needs {section}.{key} = {value!r}, another {there[key]!r}")
