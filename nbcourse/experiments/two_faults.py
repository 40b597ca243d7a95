"""Two faults at once: planted pair by pair, and what `diagnose` sees of them.

    python -m nbcourse.experiments.two_faults book/runs/two-faults --count 80

Names of causes are counted against faults that were planted, here a diagnosis's, and in the hunt
(`nbcourse.builds.hunt`) a student's.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from nbcourse.diagnosis.causes import CAUSES
from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.errors import UserError
from nbcourse.experiments import records, silent_failures
from nbcourse.experiments.combinations import pairs, together
from nbcourse.experiments.silent_failures import SCORE
from nbcourse.functional.accuracy import wilson_interval
from nbcourse.progress import track
from nbcourse.seeds import generator


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


def train(names: Sequence[str], seed: int, name: str, *, algorithm: str | None = None) -> Evidence:
    """A run with all of these faults, by the first row of the table that has them, or a named one.

    Raises:
        Apart: if they do not go together.
    """
    tables = together(*names, algorithm=algorithm)
    return silent_failures.train(silent_failures.recipe_of(tables, seed), name, faults=names)


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


def record_pairs(folder: Path, count: int, seed: int) -> None:
    """Plant pairs that go together, drawn at random, and record what is seen of each."""
    folder.mkdir(parents=True, exist_ok=True)
    began, environment = perf_counter(), records.environment(1)
    possible = list(pairs())
    order = torch.randperm(len(possible), generator=generator(seed, "pairs")).tolist()[:count]
    results: list[dict[str, Any]] = []
    for place in track(order, "pairs", total=len(order)):
        planted = possible[place]
        report = diagnose(train(planted, seed, " and ".join(planted)))
        found = mark(planted, [finding.cause for finding in report.findings])
        results.append(
            {"faults": list(planted), "missed": list(found.missed), "false": list(found.false)}
        )
    records.write_results(folder, results)
    records.write_json(folder / SCORE, {"pairs_possible": len(possible), **score_of(results)})
    environment |= {"seed": seed, "seconds": round(perf_counter() - began, 1)}
    records.write_json(folder / records.ENVIRONMENT, environment)


def score_of(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How many of the pairs were seen whole, in part, or not at all, and how many false names."""
    whole = sum(not one["missed"] for one in results)
    return {
        "pairs": len(results),
        "both_named": whole,
        "both_named_interval_95": list(wilson_interval(whole, len(results))),
        "one_named": sum(len(one["missed"]) == 1 for one in results),
        "none_named": sum(len(one["missed"]) == 2 for one in results),
        "false_names": sum(len(one["false"]) for one in results),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="What a diagnosis sees of two faults at once.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=3000)
    given = parser.parse_args(arguments)
    record_pairs(given.folder, given.count, given.seed)


if __name__ == "__main__":
    main()
