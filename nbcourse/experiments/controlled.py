"""A controlled experiment: configurations that differ in one field, seeds that pair their runs.

differ       → the one field in which they differ, or an error that names all of them
differences  → all the fields in which they differ
experiment   → each configuration with each seed, read at the same steps of one schedule
Experiment   → the curves, and the difference between two configurations, seed by seed
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from statistics import mean, stdev
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.progress import track
from nbcourse.rows import Row
from nbcourse.training.recipe import Recipe


@dataclass(frozen=True)
class Difference:
    """The one field in which configurations differ.

    Attributes:
        field: its name, with the section in front: `settings.lam`.
        values: what each configuration has there.
    """

    field: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        """Such as `steps: rloo 80, dapo 40`."""
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in self.values.items())
        return f"{self.field}: {shown}"

    def rows(self) -> list[list[str]]:
        """For a table: name of the configuration, value of the field."""
        return [[name, _shown(value)] for name, value in self.values.items()]


@dataclass(frozen=True)
class Experiment:
    """What came of it.

    Attributes:
        difference: the field that was changed.
        seeds: S of them, the same for every configuration.
        schedule: M steps at which the curves were read.
        curves: configuration → name of a number → (S, M) float64.
    """

    difference: Difference
    seeds: Sequence[int]
    schedule: Sequence[float]
    curves: Mapping[str, Mapping[str, Tensor]]

    def paired(self, number: str, name: str, *, against: str) -> Tensor:
        """(S, M): how far `name` lies above `against` with the same seed.

        Raises:
            ValueError: if there is no such configuration or number.
        """
        for wanted in (name, against):
            if wanted not in self.curves:
                raise UserError(f"configuration is {wanted!r}, expected one of {list(self.curves)}")
            if number not in self.curves[wanted]:
                raise UserError(
                    f"number is {number!r}, expected one of {list(self.curves[wanted])}"
                )
        return self.curves[name][number] - self.curves[against][number]

    def gain(
        self, number: str, name: str, *, against: str, at: int = -1
    ) -> tuple[float, float, float]:
        """Mean paired difference at a point of the schedule, and its 95 % interval."""
        column = self.paired(number, name, against=against)[:, at].tolist()
        return mean(column), *interval(column)


def differ(configurations: Mapping[str, Any]) -> Difference:
    """The one field in which configurations differ.

    What follows from that field does not count: a field that one of them does not have (another
    advantage function has other settings), and settings of an algorithm that was chosen by name,
    where they are that algorithm's own. All others must agree, but for the seed.

    Args:
        configurations: name → rows of a table, recipes, other dataclasses, or mappings.

    Raises:
        ValueError: if there are fewer than two, or they differ in no field or in several.
    """
    found = differences(configurations)
    if len(found) != 1:
        listed = "; ".join(map(str, found))
        raise UserError(
            f"configurations differ in {len(found)} fields, expected one"
            + (f" ({listed})" if found else "")
        )
    return found[0]


def differences(configurations: Mapping[str, Any]) -> list[Difference]:
    """Every field in which configurations differ, as `differ` counts them.

    Args:
        configurations: name → rows of a table, recipes, other dataclasses, or mappings.

    Raises:
        ValueError: if there are fewer than two.
    """
    if len(configurations) < 2:
        raise UserError(f"configurations are {list(configurations)}, expected at least two")
    flat = {name: fields_of(configuration) for name, configuration in configurations.items()}
    usual = [_usual(configuration) for configuration in configurations.values()]
    found = []
    for key, first in next(iter(flat.values())).items():
        column = {name: known[key] for name, known in flat.items() if key in known}
        same = all(value == first for value in column.values())
        if len(column) == len(flat) and not same and not all(key in names for names in usual):
            found.append(Difference(key, column))
    return found


def experiment(
    configurations: Mapping[str, Any],
    run: Callable[[Any, int], Sequence[Mapping[str, float]]],
    *,
    seeds: Sequence[int],
    schedule: Sequence[float],
    step: str = "step",
    progress: bool = True,
) -> Experiment:
    """Run every configuration with every seed.

    Args:
        configurations: name → configuration; they differ in one field.
        run: (configuration, seed) → the numbers after each update, those of `step` growing. What
            it fixes itself, such as the length of a run, is the same for all of them.
        seeds: at least two, or there is no interval.
        schedule: steps at which each curve is read: what was known last by then.
        step: the name of the number that counts steps.
        progress: whether to draw a bar.

    Raises:
        ValueError: if the configurations do not differ in one field; if seeds are fewer than two
            or repeat; or if a run begins after the schedule's first step or ends before its last.
    """
    difference = differ(configurations)
    if len(seeds) < 2 or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds are {list(seeds)}, expected at least two different ones")
    pairs = [(name, seed) for seed in seeds for name in configurations]
    found: dict[str, list[dict[str, list[float]]]] = {name: [] for name in configurations}
    for name, seed in track(pairs, "runs", visible=progress):
        rows = run(configurations[name], seed)
        found[name].append(_read(rows, schedule, step, f"{name}, seed {seed}"))
    curves = {
        name: {
            key: torch.tensor([run[key] for run in runs], dtype=torch.float64)
            for key in runs[0]
            if all(key in run for run in runs)  # a recorded run may lack what is logged today
        }
        for name, runs in found.items()
    }
    return Experiment(difference, tuple(seeds), tuple(schedule), curves)


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of a few seeds, by Student's t: wide for three, as it has to be.

    NaN if one of them is not finite: then nothing is known of the mean.

    Raises:
        ValueError: for fewer than two numbers, which say nothing about their spread.
    """
    count = len(numbers)
    if count < 2:
        raise UserError(f"numbers has {count} entries, expected at least 2")
    if not all(map(math.isfinite, numbers)):
        return math.nan, math.nan
    radius = _student(count - 1) * stdev(numbers) / math.sqrt(count)
    return mean(numbers) - radius, mean(numbers) + radius


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: √n tan θ, where θ is found by bisection."""
    low, high = 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        if _within(angle, freedom) < 0.95:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan(high)


def _within(angle: float, freedom: int) -> float:
    """P(|t| < √n tan θ) with n degrees of freedom, as a finite sum.

        n odd:   2/π (θ + sin θ (cos θ + 2/3 cos³ θ + … + (2·4 ⋯ (n−3)) / (3·5 ⋯ (n−2)) cosⁿ⁻² θ))
        n even:  sin θ (1 + 1/2 cos² θ + … + (1·3 ⋯ (n−3)) / (2·4 ⋯ (n−2)) cosⁿ⁻² θ)

    Source: Abramowitz & Stegun 1964, equations 26.7.3 and 26.7.4.
    """
    odd, square = freedom % 2, math.cos(angle) ** 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= square * (power + 1) / (power + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def fields_of(configuration: Any) -> dict[str, Any]:
    """Every field of a configuration by its dotted name, but for the seed.

    The settings of a row are all of them, defaults too.
    """
    if isinstance(configuration, Recipe) and configuration.known:
        named = configuration.in_use()
        del named["seed"]
    elif isinstance(configuration, BaseModel):
        named = configuration.model_dump(exclude={"seed"})
    elif is_dataclass(configuration):
        named = {f.name: getattr(configuration, f.name) for f in fields(configuration)}
    else:
        named = dict(configuration)
    if isinstance(configuration, Row):
        named |= {"settings": configuration.all_settings}
        del named["source"]
    return _flat(named)


def _usual(configuration: Any) -> set[str]:
    """The settings of an algorithm that was chosen by name, where they are that algorithm's own."""
    if not (isinstance(configuration, Recipe) and configuration.known):
        return set()
    there = fields_of(configuration)
    own = {f"algorithm.{name}": value for name, value in configuration.row.all_settings.items()}
    return {key for key, value in own.items() if key in there and there[key] == value}


def _flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        nested = isinstance(value, Mapping)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat


def _read(
    rows: Sequence[Mapping[str, float]], schedule: Sequence[float], step: str, label: str
) -> dict[str, list[float]]:
    """Each number where the schedule asks for it: the last one known by then.

    A number that is not measured in every step keeps its value until it is measured again.
    """
    first, last = rows[0][step], rows[-1][step]
    if first > schedule[0] or last < schedule[-1]:
        raise UserError(
            f"{label}: its steps go from {first:g} to {last:g}, expected them to hold the "
            f"schedule's {schedule[0]:g} to {schedule[-1]:g}"
        )
    found, known, position = [], dict(rows[0]), 0
    for wanted in schedule:
        while position + 1 < len(rows) and rows[position + 1][step] <= wanted:
            position += 1
            known |= rows[position]
        found.append(dict(known))
    return {key: [row[key] for row in found] for key in rows[0] if key != step}


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)
