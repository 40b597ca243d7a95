"""What would the gate have said before the recorded runs, and was it right?

    python -m book.studies.gate_on_records --out gate-on-records

Only what the runs kept is used, and nothing is sampled anew. Of a run's first steps there are the
accuracy as it was paid, the mixed groups and the answers cut off; of its evaluation, where it has
one, the accuracy of the base read leniently (greedy, which stands for the sampled one) and its
answers in the form asked for. Not kept were the answers themselves, so that luck is known by an
upper bound alone, nor the gradients of half-batches, nor the mixed groups as a lenient reader sees
them. A verdict that rests on those cannot be had here. The thresholds of `experiments.gate` were
committed before it was put to any of these runs.
"""

import argparse
from pathlib import Path
from typing import Any

from nbcourse.experiments import records
from nbcourse.experiments.gate import Estimate, Measurements, verdict
from nbcourse.experiments.gauging import GOLDS, constant_accuracy
from nbcourse.functional.accuracy import wilson_interval
from nbcourse.seeds import generator
from nbcourse.training.recipe import Recipe

FAMILIES = ("gsm8k", "smollm2", "word-problems")
FIRST = 4  # steps that stand for the base: the learning rate still rises
CONSTANT = {"gsm8k": 40 / 1319}  # of the test questions, for which no data are needed here


def runs(folder: Path = records.RUNS) -> list[Path]:
    """The recorded runs of reinforcement learning in these families, with enough steps to judge."""
    found = []
    for run in sorted(folder.iterdir()):
        whole = (run / records.METRICS).is_file() and (run / records.RECIPE).is_file()
        if whole and run.name.startswith(FAMILIES):
            recipe = records.read_any_recipe(run)
            if isinstance(recipe, Recipe) and len(records.read_metrics(run)) > FIRST:
                found.append(run)
    return found


def measurements(run: Path) -> Measurements:
    """What a run's records say of its start."""
    recipe, rows = records.read_recipe(run), records.read_metrics(run)[:FIRST]
    groups = recipe.rollouts.prompts * len(rows)

    def mean(name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    before: dict[str, Any] = (evaluation(run) or {}).get("before", {})
    greedy, best_of = None, None
    if before:
        lenient = before["lenient"]
        greedy = _share(lenient["count"], lenient["of"])
        tries = before.get("pass_at", {}).get(str(recipe.rollouts.group_size))
        best_of = tries["mean"] if tries else None
    paid = _share(mean("accuracy") * groups, groups)  # as if a group were one answer: a wide error
    return Measurements(
        paid=paid,
        mixed=1 - mean("no_spread"),
        prompts=recipe.rollouts.prompts,
        steps=recipe.steps,
        lenient=max(paid, greedy) if greedy else None,
        form=1 - before["no_answer"]["share"] if before else None,
        greedy=greedy,
        best_of=best_of,
        constant=_constant(recipe),
        truncated=mean("truncated"),
    )


def evaluation(run: Path) -> dict[str, Any] | None:
    """The evaluation on the task that a run was trained on: on its test, if that was asked."""
    task = records.read_recipe(run).task.name
    files = sorted(run.glob(f"evaluation-{task}-*.json"))  # "test" comes before "validation"
    return records.read_json(files[0]) if files else None


def gain(run: Path) -> tuple[float, float, float] | None:
    """What came of a run in content, or else in all: mean and interval; None if not known.

    Without an evaluation, it is the last held-out accuracy over that before the first step, by
    independent intervals.
    """
    if (found := evaluation(run)) and "gain" in found:
        by = found["gain"].get("content") or found["gain"]["total"]
        return by["mean"], *by["interval_95"]
    asked = [row["held_out"] for row in records.read_metrics(run) if "held_out" in row]
    start = records.read_start(run)
    if start is None or not asked:
        return None
    p, q, n = start.mean().item(), asked[-1], len(start)
    half = 1.96 * ((p * (1 - p) + q * (1 - q)) / n) ** 0.5
    return q - p, q - p - half, q - p + half


def luck_at_most(found: Measurements, group: int) -> float | None:
    """Share of the mixed groups that luck may explain, if it is as good as the best constant."""
    if found.constant is None or not found.mixed:
        return None
    lucky = 1 - (1 - found.constant) ** group - found.constant**group
    return min(1.0, lucky / found.mixed)


def judged(run: Path) -> dict[str, Any]:
    """One line of the table."""
    found, came = measurements(run), gain(run)
    said = verdict(found)
    gained = None if came is None else came[1] > 0
    right = None if gained is None else (said.action == "train") == gained
    return {
        "run": run.name,
        "paid": found.paid.mean,
        "lenient": found.lenient.mean if found.lenient else None,
        "constant": found.constant,
        "mixed": found.mixed,
        "luck_at_most": luck_at_most(found, records.read_recipe(run).rollouts.group_size),
        "truncated": found.truncated,
        "verdict": said.action,
        "reason": said.reason,
        "further": list(said.further),
        "gain": came,
        "gained": gained,
        "right": right,
    }


def _share(count: float, of: int) -> Estimate:
    low, high = wilson_interval(round(count), of, z=1.0)
    return Estimate(count / of, (high - low) / 2)


def _constant(recipe: Recipe) -> float:
    if recipe.task.name in CONSTANT:
        return CONSTANT[recipe.task.name]
    source = generator(recipe.seed, "golds")
    drawn = recipe.task.build().draw(GOLDS, split="train", generator=source)
    return constant_accuracy([problem.answer for problem in drawn])


def table(results: list[dict[str, Any]]) -> str:
    """The results as a table in Markdown, and how often the verdict was right."""
    lines = [
        "| run | paid, % | lenient, % | constant, % | mixed, % | luck at most, % | cut, % | "
        "verdict | gain in content, points | right |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results:
        numbers = [
            "" if row[name] is None else f"{100 * row[name]:.1f}"
            for name in ("paid", "lenient", "constant", "mixed", "luck_at_most", "truncated")
        ]
        came = row["gain"]
        gained = (
            "" if came is None else "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * x for x in came))
        )
        right = {True: "yes", False: "no", None: ""}[row["right"]]
        lines.append(f"| {' | '.join([row['run'], *numbers, row['verdict'], gained, right])} |")
    known = [row for row in results if row["right"] is not None]
    for word, opened in (("train", True), ("anything else", False)):
        said = [row for row in known if (row["verdict"] == "train") == opened]
        gained = sum(row["gained"] for row in said)
        lines.append(f"\nVerdict *{word}*: {len(said)} runs, of which {gained} gained.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judge all runs, and write results and table."""
    parser = argparse.ArgumentParser(description="The gate's verdicts on the recorded runs.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    results = [judged(run) for run in runs()]
    records.write_results(folder, results)
    records.write_json(folder / records.ENVIRONMENT, records.environment(1))
    (folder / "table.md").write_text(table(results), encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
