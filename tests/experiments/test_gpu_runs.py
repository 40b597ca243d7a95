"""`make gpu-runs` at toy size: every command that a reader with a GPU would have run for him."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from nbcourse.publishing.chapters import ROOT
from tests import hub

SMALL = {
    "BASE": "pretraining.steps=1 supervised.steps=1 pretraining.batch_size=4 "
    "supervised.batch_size=4 evaluation.problems=4 evaluation.max_new_tokens=4 "
    "model.layers=1 model.width=32 model.heads=2 "
    "model.vocabulary=300",
    "RL": "steps=1 rollouts.prompts=2 rollouts.group_size=2 rollouts.max_new_tokens=4 "
    "evaluation.problems=4",
}


@pytest.mark.sweep  # half a minute of commands, each of which other tests run as well
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_one_command_makes_the_base_model_trains_from_it_and_from_a_checkpoint_and_evaluates(
    tmp_path,
):
    data = hub.data(tmp_path / "gsm8k", test=8)
    changes = {
        name: " ".join(f"--set {change}" for change in text.split()) for name, text in SMALL.items()
    }
    ours = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    answer = subprocess.run(
        ["make", "gpu-runs", "READY=", f"PY={sys.executable}", "SEEDS=0", "ALGORITHMS=ppo"]
        + [f"RUNS={tmp_path}", f"CHECKPOINT={hub.checkpoint(tmp_path / 'checkpoint')}"]
        + [f"{name}={text}" for name, text in changes.items()]
        + ["ASK=--problems 4 --samples 2"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in ours} | {"NBCOURSE_GSM8K": str(data)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    large, qwen = "word-problems-large", "gsm8k-qwen2.5-0.5b"
    assert json.loads((tmp_path / f"{large}-base-seed0/summary.json").read_text())["steps"] == 2
    asked = tmp_path / f"{large}-ppo-seed0" / "evaluation-word-problems-validation.json"
    assert set(json.loads(asked.read_text())["after"]["pass_at"]) == {"1", "2"}
    asked = tmp_path / f"{qwen}-ppo-seed0" / "evaluation-gsm8k-test.json"
    found = json.loads(asked.read_text())
    assert (found["split"], found["problems"]) == ("test", 8)
    assert found["recipe"]["algorithm"]["name"] == "ppo"
    assert found["recipe"]["model"]["gradient_checkpointing"]
