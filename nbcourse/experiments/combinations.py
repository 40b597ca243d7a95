"""Several faults at once: which go together, and what a recipe needs for all of them."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from nbcourse.diagnosis.faults import FAULTS
from nbcourse.diagnosis.suspects import CHECKS
from nbcourse.errors import UserError
from nbcourse.experiments.silent_failures import recipe_of

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
        recipe_of(tables, 0)
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


def _check_of(cause: str) -> str:
    return next(name for name, check in CHECKS.items() if cause in check.causes)


def _merge(tables: dict[str, Any], wanted: Mapping[str, Any], name: str) -> None:
    for section, table in wanted.items():
        there = tables.setdefault(section, {})
        for key, value in table.items():
            if there.setdefault(key, copy.copy(value)) != value:
                raise Apart(f"{name} needs {section}.{key} = {value!r}, another {there[key]!r}")
