"""Two faults at once: planted pair by pair, and what `diagnose` sees of them.

    python -m book.studies.two_faults book/runs/two-faults --count 80

Names of causes are counted against faults that were planted, here a diagnosis's, and in the hunt
(`nbcourse.builds.hunt`) a student's.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from nbcourse.diagnosis.diagnose import diagnose
from nbcourse.experiments import records
from nbcourse.experiments.combinations import mark, pairs, train
from nbcourse.experiments.small_lab import SCORE
from nbcourse.functional.accuracy import wilson_interval
from nbcourse.progress import track
from nbcourse.seeds import generator


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
        found = mark(planted, [finding.id for finding in report.findings])
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
