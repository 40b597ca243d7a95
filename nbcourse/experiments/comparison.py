"""Runs side by side: the same recipe with several seeds is one line and one curve."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.experiments.controlled import Difference, differences, interval
from nbcourse.training.recipe import Recipe

HEADER = ("run", "seeds", "steps", "held out", "95 % interval", "responses", "seconds", "tokens/s")


@dataclass(frozen=True)
class Group:
    """Runs of one recipe that differ in nothing but the seed.

    Attributes:
        name: of their folders, without the seed.
        folders: where they are.
        recipe: of the first.
        metrics: the lines of each run.
    """

    name: str
    folders: Sequence[Path]
    recipe: Recipe
    metrics: Sequence[list[dict[str, float]]]

    def held_out(self) -> list[tuple[float, list[float]]]:
        """The learning curve: responses sampled so far, and each seed's held-out accuracy then.

        As far as all seeds have come; from before the first step, where all were asked then.
        """
        curves = [_curve(rows) for rows in self.metrics]
        starts = [records.read_start(folder) for folder in self.folders]
        at_start = [start.mean().item() for start in starts if start is not None]
        first = [(0.0, at_start)] if len(at_start) == len(starts) else []
        return first + [
            (mean(x for x, _ in points), [y for _, y in points])
            for points in zip(*curves, strict=False)
        ]


def groups(folders: Sequence[str | Path]) -> list[Group]:
    """Sort runs by what they share.

    Raises:
        FileNotFoundError: if a folder holds no run.
        ValueError: if a run has not come to its first evaluation.
    """
    found: dict[str, list[Path]] = {}
    for folder in map(Path, folders):
        recipe = records.read_recipe(folder).model_dump(exclude={"seed"})
        if not _curve(records.read_metrics(folder)):
            raise UserError(f"{folder}: no held-out accuracy yet, the run is too short")
        found.setdefault(json.dumps(recipe, sort_keys=True), []).append(folder)
    return [
        Group(
            re.sub(r"-seed\d+$", "", members[0].name),
            members,
            records.read_recipe(members[0]),
            [records.read_metrics(folder) for folder in members],
        )
        for members in found.values()
    ]


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
    """The table, a line for each group; see `HEADER`."""
    return [_row(group) for group in compared]


def _row(group: Group) -> list[str]:
    last = group.held_out()[-1][1]
    low_high = "one seed"
    if len(last) > 1:
        low, high = interval(last)
        low_high = f"{low:.3f} to {min(high, 1.0):.3f}"
    return [
        group.name,
        str(len(last)),
        f"{mean(len(lines) for lines in group.metrics):.0f}",
        f"{mean(last):.3f}",
        low_high,
        f"{mean(_total(lines, 'responses') for lines in group.metrics):,.0f}",
        f"{mean(sum(map(records.seconds, lines)) for lines in group.metrics):,.0f}",
        f"{mean(mean(r['tokens_per_second'] for r in lines) for lines in group.metrics):,.0f}",
    ]


def _curve(lines: Sequence[dict[str, float]]) -> list[tuple[float, float]]:
    """(responses so far, held-out accuracy) wherever it was measured."""
    points, responses = [], 0.0
    for line in lines:
        responses += line["responses"]
        if "held_out" in line:
            points.append((responses, line["held_out"]))
    return points


def _total(lines: Sequence[dict[str, float]], key: str) -> float:
    return sum(line[key] for line in lines)
