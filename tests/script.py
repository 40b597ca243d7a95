"""A script that lies beside the tests, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from nbcourse.training.processes import Processes
from tests.effort import PATIENCE

ROOT = Path(__file__).resolve().parents[1]


def run(script: Path, *arguments: object, folder: Path, launcher: Sequence[str] = ()) -> str:
    """What it printed, after it has ended well.

    Args:
        script: which; it may import the tests.
        arguments: that it is given.
        folder: in which it starts.
        launcher: arguments of Python before the script, such as `-m torch.distributed.run`.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *launcher, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": path,
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def end(report: Mapping[str, Any], out: Path, processes: Processes) -> None:
    """What a process does last: write its report into a file of its own, and wait for the others.

    Args:
        report: what it saw.
        out: `out.json` is written as `out-0.json` by process 0, and so on.
        processes: those that work together.
    """
    path = out.with_name(f"{out.stem}-{processes.rank}{out.suffix}")
    path.write_text(json.dumps(report), encoding="utf-8")
    processes.wait()
    if processes.count > 1:
        torch.distributed.destroy_process_group()
