"""A command under a cell: what it prints, that it fails, and ■, which keeps the step at work."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from nbcourse import display
from nbcourse.experiments import checkpoint, records
from tests import forked_programs
from tests.effort import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """
steps = 100_000
algorithm = { name = "grpo" }
task = { digits = 1 }
model = { layers = 1, width = 16, heads = 2 }
rollouts = { prompts = 2, group_size = 2, max_new_tokens = 2 }
evaluation = { every = 100_000, problems = 2 }
checkpoint = { every = 100_000 }
"""
CELL = """
from nbcourse.display import command
if __name__ == "__main__":  # what is forked from it reads this file again
    try:
        command("train", "endless.toml", "--out", "run")
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_what_a_command_prints_appears_as_plain_text(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels do
    display.command("recipes")
    told = capsys.readouterr()
    assert "arithmetic-grpo" in told.out
    assert "━" in told.out  # a table's frame, in three bytes
    assert "\x1b" not in told.out
    assert told.err == ""


@pytest.mark.usefixtures("forked")
def test_a_command_that_fails_ends_the_cell(capsys, tmp_path):
    missing = tmp_path / "no such folder"
    with pytest.raises(RuntimeError, match=r"^`nbcourse evaluate .*no such folder` failed"):
        display.command("evaluate", missing)
    assert f"no run in {missing}" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_the_stop_button_keeps_the_step_at_work(tmp_path, ctrl_c):
    """A kernel that is interrupted alone: nothing else tells its command."""
    (tmp_path / "endless.toml").write_text(RECIPE)
    (tmp_path / "cell.py").write_text(CELL)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    kernel = forked_programs.popen()(
        [sys.executable, "-m", "cell"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
        start_new_session=True,
    )
    metrics, end = tmp_path / "run" / records.METRICS, monotonic() + PATIENCE
    try:
        while not (metrics.is_file() and metrics.stat().st_size) and monotonic() < end:
            sleep(0.05)
        kernel.send_signal(signal.SIGINT)
        told, _ = kernel.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(kernel.pid, signal.SIGKILL)  # whatever is left
    assert told.endswith("interrupted\n")
    assert "stopping after this step" in told
    done = len(records.read_metrics(tmp_path / "run"))
    assert checkpoint.last_step(tmp_path / "run" / records.CHECKPOINTS) == done > 0
