"""The recorded runs: what computes in bfloat16 is judged as that, and no healthy run is accused."""

import json

import pytest

from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.experiments import evidence, records
from tests.command import nbcourse

IN_BFLOAT16 = sorted(
    path.parent
    for path in records.RUNS.rglob(records.RECIPE)
    if json.loads(path.read_text("utf-8")).get("model", {}).get("precision") == "bfloat16"
    and (path.parent / records.METRICS).is_file()
)
GAPS = [{"step": step, "gap": 0.4} for step in range(6)]


def test_there_are_such_runs():
    assert len(IN_BFLOAT16) >= 39


@pytest.mark.parametrize("folder", IN_BFLOAT16, ids=lambda path: path.name)
def test_what_rounding_does_in_bfloat16_is_no_mismatch(folder):
    report = diagnose(evidence.read(folder))
    # in two trials of two and three steps every response was cut off, which is so
    so = ["all-truncated"] if folder.name.startswith("trial-") else []
    # and three runs fell from .90 to .65
    so = ["reward-collapse"] if "-fast-grpo-" in folder.name else so
    assert [finding.id for finding in report.findings] == so, str(report)


def test_the_command_that_ci_runs_accepts_one():
    nbcourse("diagnose", records.RUNS / "smollm2-gsm8k-h100-grpo-seed1", "--require", "healthy")


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        ({"model": {"precision": "bfloat16"}}, []),
        ({"model": {"precision": "float32"}}, ["sampler-mismatch"]),
        ({"model": {"precision": "int7"}}, ["sampler-mismatch"]),
        ({"model": "another program's"}, ["sampler-mismatch"]),
        ({}, ["sampler-mismatch"]),
    ],
)
def test_the_recipe_says_how_exactly_two_passes_should_agree(recipe, named):
    report = diagnose(Evidence("run", (), GAPS, recipe))
    assert [finding.id for finding in report.findings] == named


@pytest.mark.parametrize("content", ["[]", '{"model": {"precision": "bfloat16"}}'])
def test_a_recipe_beside_the_curves_is_read(tmp_path, content):
    (tmp_path / records.METRICS).write_text("".join(map(records.line, GAPS)), "utf-8")
    (tmp_path / records.RECIPE).write_text(content, "utf-8")
    assert diagnose(evidence.read(tmp_path)).healthy == ("bfloat16" in content)
