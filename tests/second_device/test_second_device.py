"""Training on a device that is not the CPU, where there is no GPU: `device.py` stands in for one.

It finds a tensor that was left on the CPU, a mask made there, a generator of the wrong device. What
only CUDA has (its kernels, streams, graphs, the size of its memory) it cannot find.
"""

import json
from pathlib import Path

import pytest

from tests import script

SCRIPT = Path(__file__).with_name("train.py")
ALLOWED = {
    "a number",
    "an index from the CPU",
    "a copy",
    "a counter where it belongs",
    "its own generator",
}
RUNS = [
    "ppo, everything",
    "dapo, exact KL, truncated importance sampling",
    "bfloat16, static engine",
    "float16, process supervision",
    "a model of the hub",
    "a base model",
    "stopped and resumed",
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("second_device")
    script.run(SCRIPT, folder, folder=folder)
    return json.loads((folder / "report.json").read_text("utf-8"))


def test_the_device_refuses_what_a_gpu_refuses_and_no_more(report):
    assert {name for name, refused in report["refused"].items() if not refused} == ALLOWED
    assert len(report["refused"]) > len(ALLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_it_is_that_of_the_cpu(report, name):
    here, there = report["cpu"][name], report["second"][name]
    assert len(here) == len(there) > 1
    assert any(row.get("grad_norm", 0) > 0 or row.get("loss", 0) > 0 for row in here)
    low = name.split(",")[0] in ("bfloat16", "float16")
    near = {"rel": 1e-2, "abs": 2e-2} if low else {"rel": 1e-4, "abs": 2e-6}
    for ours, theirs in zip(there, here, strict=True):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert ours[key] == pytest.approx(theirs[key], nan_ok=True, **near), key


def test_all_runs_are_compared(report):
    assert list(report["cpu"]) == list(report["second"]) == RUNS
