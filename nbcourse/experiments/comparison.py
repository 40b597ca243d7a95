"""Runs side by side: the same recipe with several seeds is one line and one curve."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.experiments.controlled import Difference, differences, interval
from nbcourse.training.recipe import Recipe

SECONDS = ("at least", "expected", "taken", "ratio")
GIGABYTES = ("predicted", "held", "ratio")
NO_STEP = ("witness", "checkpoint")  # tables of a recipe that change no step
PLAN_HEADER = ("run", "phase", *(f"s {x}" for x in SECONDS), *(f"GB {x}" for x in GIGABYTES))
HEADER = ("run", "seeds", "steps", "held out", "95 % interval", "responses", "seconds", "tokens/s")


@dataclass(frozen=True)
class Group:
    """Runs of one recipe that differ in nothing but the seed, and in what changes no step.

    Attributes:
        name: of their folders, without the seed.
        folders: where they are.
        recipe: of the first.
        metrics: the lines of each run.
    """

    name: str
    folders: list[Path]
    recipe: Recipe
    metrics: list[list[dict[str, float]]]

    def shared_steps(self) -> list[float]:
        """The steps after which all seeds were asked."""
        first, *others = map(_curve, self.metrics)
        return [step for step in first if all(step in curve for curve in others)]

    def held_out(self) -> list["Evaluations"]:
        """The learning curve, at the steps after which all seeds were asked.

        From before the first step, where all were asked then.
        """
        curves = [_curve(rows) for rows in self.metrics]
        starts = [records.held_out_at_start(folder) for folder in self.folders]
        known = [start for start in starts if start is not None]
        first = [Evaluations(0.0, 0.0, known)] if len(known) == len(starts) else []
        together = [[curve[step] for curve in curves] for step in self.shared_steps()]
        return first + [
            Evaluations(
                mean(point.responses for point in points),
                mean(point.seconds for point in points),
                [share for point in points for share in point.held_out],
            )
            for points in together
        ]


class Evaluations(NamedTuple):
    """The held-out accuracy of each seed after one step, and what it had cost by then.

    Attributes:
        responses: sampled so far.
        seconds: measured so far, over all phases of the steps, sampling and evaluation included;
            a mean over seeds.
        held_out: one number for each seed.
    """

    responses: float
    seconds: float
    held_out: list[float]


class PlannedPhase(NamedTuple):
    """A phase of a step as it was predicted, and as it was; NaN where that is not known.

    Attributes:
        phase: its name.
        least: seconds that it takes at least.
        expected: seconds that were expected.
        taken: seconds that it took.
        predicted: bytes, if all responses reach the limit.
        held: bytes, at most.
    """

    phase: str
    least: float
    expected: float
    taken: float
    predicted: float
    held: float

    def cells(self) -> list[str]:
        """For a table."""
        seconds = [self.least, self.expected, self.taken, self.expected / self.taken]
        gigabytes = [self.predicted / 1e9, self.held / 1e9, self.predicted / self.held]
        numbers = [f"{number:.3g}" for number in seconds + gigabytes]
        return [self.phase, *("–" if number == "nan" else number for number in numbers)]


def groups(folders: Sequence[str | Path]) -> list[Group]:
    """Sort runs by what they share.

    Raises:
        FileNotFoundError: if a folder holds no run.
        ValueError: if a run has not come to its first evaluation, or seeds share none.
    """
    found: dict[str, Group] = {}
    for folder in map(Path, folders):
        recipe, lines = records.read_recipe(folder), records.read_metrics(folder)
        if not _curve(lines):
            raise UserError(f"{folder}: no held-out accuracy yet, the run is too short")
        shared = json.dumps(recipe.model_dump(exclude={"seed", *NO_STEP}), sort_keys=True)
        name = re.sub(r"-seed\d+$", "", folder.name)
        group = found.setdefault(shared, Group(name, [], recipe, []))
        group.folders.append(folder)
        group.metrics.append(lines)
    made = list(found.values())
    for group in made:
        if not group.shared_steps():
            count = len(group.folders)
            raise UserError(f"{group.name}: no step at which all {count} seeds were evaluated")
    return made


def confounded(compared: Sequence[Group]) -> list[Difference]:
    """The fields in which groups differ, if there are several: no run says which of them mattered.

    `in_use` decides what counts: a critic's settings do not where only one of them has a critic.
    """
    if len(compared) < 2:
        return []
    names = [group.name for group in compared]
    if len({*names}) < len(names):
        names = [str(group.folders[0]) for group in compared]
    found = differences({name: group.recipe for name, group in zip(names, compared, strict=True)})
    return found if len(found) > 1 else []


def rows(compared: Sequence[Group]) -> list[list[str]]:
    """The table, a line for each group, up to the last step that its seeds share; see `HEADER`."""
    return [_row(group) for group in compared]


def plan_rows(compared: Sequence[Group]) -> list[list[str]]:
    """What was predicted of each phase of a step beside what it took; see `PLAN_HEADER`.

    Lines for each group whose runs have all kept a plan: means of seconds over steps and seeds,
    and the largest of the memories. What was predicted of memory is what is needed, or, like an
    earlier run, what was expected to be held.

    Book: appendix L, "Predicted and measured".
    """
    return [
        [group.name, *line.cells()]
        for group in compared
        if all((folder / records.PLAN).is_file() for folder in group.folders)
        for line in _planned_phases(group)
    ]


def _planned_phases(group: Group) -> list[PlannedPhase]:
    plans = [records.read_json(folder / records.PLAN)["phases"] for folder in group.folders]
    steps = [step for lines in group.metrics for step in lines]
    found = []
    for phase in plans[0]:
        seconds = [plan[phase]["seconds"] for plan in plans]
        found.append(
            PlannedPhase(
                phase,
                least=mean(each["least"] for each in seconds),
                expected=mean(each.get("expected", nan) for each in seconds),
                taken=mean(step.get(f"seconds_{phase}", 0.0) for step in steps),
                predicted=max(plan[phase].get("held", plan[phase]["memory"]) for plan in plans),
                held=max(step.get(f"memory_{phase}", 0.0) for step in steps) or nan,
            )
        )
    _, *seconds_and_bytes = zip(*found, strict=True)
    totals = [*map(sum, seconds_and_bytes[:3]), *map(max, seconds_and_bytes[3:])]
    return [*found, PlannedPhase("a step", *totals)]


def _row(group: Group) -> list[str]:
    last, end = group.held_out()[-1].held_out, group.shared_steps()[-1]
    metrics = [[line for line in lines if line["step"] <= end] for lines in group.metrics]
    low_high = "one seed"
    if len(last) > 1:
        low, high = interval(last)
        low_high = f"{max(low, 0.0):.3f} to {min(high, 1.0):.3f}"
    return [
        group.name,
        str(len(last)),
        f"{mean(len(lines) for lines in metrics):.0f}",
        f"{mean(last):.3f}",
        low_high,
        f"{mean(sum(line['responses'] for line in lines) for lines in metrics):,.0f}",
        f"{mean(sum(map(records.seconds, lines)) for lines in metrics):,.0f}",
        f"{mean(mean(r['tokens_per_second'] for r in lines) for lines in metrics):,.0f}",
    ]


def _curve(lines: Sequence[dict[str, float]]) -> dict[float, Evaluations]:
    """What was measured of one run, by the step after which it was."""
    points, responses, seconds = {}, 0.0, 0.0
    for line in lines:
        responses += line["responses"]
        seconds += records.seconds(line)
        if "held_out" in line:
            points[line["step"]] = Evaluations(responses, seconds, [line["held_out"]])
    return points
