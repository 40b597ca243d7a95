"""A script that lies beside the tests, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
