"""The gate's verdicts on the recorded runs: made again, and as their README tells them."""

import re

import pytest

from book.studies import gate_on_records as study
from nbcourse.experiments import records

FOLDER = records.RUNS / "gate-on-records"
RESULTS = records.read_results(FOLDER)


def test_the_record_is_what_the_runs_say():
    assert [row["run"] for row in RESULTS] == [run.name for run in study.runs()]
    for name in ("gsm8k-qwen2.5-coder-0.5b-h200", "smollm2-gsm8k-h100-grpo-seed0"):
        (kept,) = (row for row in RESULTS if row["run"] == name)
        made = study.judged(records.RUNS / name)
        for key in ("verdict", "gained", "right", "reason"):
            assert made[key] == kept[key]
        assert made["mixed"] == pytest.approx(kept["mixed"])
    assert (FOLDER / "table.md").read_text("utf-8") == study.table(RESULTS)


def test_the_readme_counts_what_is_there():
    readme = (FOLDER / "README.md").read_text("utf-8")
    judged = [row for row in RESULTS if row["right"] is not None]
    opened = [row for row in judged if row["verdict"] == "train"]
    closed = [row for row in judged if row["verdict"] != "train"]
    assert f"{len(judged)} runs" in readme
    assert f"*train*: {len(opened)} runs, {sum(r['gained'] for r in opened)} gained" in readme
    assert f"else: {len(closed)} runs, {sum(r['gained'] for r in closed)} gained" in readme
    wrong = {row["run"] for row in judged if not row["right"]}
    named = set(re.findall(r"`([\w.-]+)`", readme))
    assert wrong <= named


def test_luck_is_bounded_by_the_best_constant_answer():
    found = study.measurements(records.RUNS / "smollm2-gsm8k-h100-grpo-seed0")
    bound = study.luck_at_most(found, 8)
    assert bound == pytest.approx((1 - (1 - 40 / 1319) ** 8) / found.mixed, rel=1e-6)
