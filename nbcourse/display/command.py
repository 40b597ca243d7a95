"""A command of the package in a cell of a notebook, on hosts that show no terminal."""

import os
import signal
import subprocess
import sys
from codecs import getincrementaldecoder

COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE")  # kernels ask for them; stored outputs want plain text


def command(*words: object) -> None:
    """Run `nbcourse …` in a process of its own; what it prints appears under the cell as it comes.

    The process gives back all memory when it ends, and a run's record names its command. The
    notebook's ■ asks it to stop as Ctrl-C does: training goes on to the end of its step, which is
    kept.

    Args:
        words: what follows `nbcourse` on the command line, each one word whatever is in it.

    Raises:
        RuntimeError: if the command fails, after it has printed why.
        KeyboardInterrupt: when it has ended because it was asked to stop.
    """
    parts = [str(word) for word in words]
    environment = {key: value for key, value in os.environ.items() if key not in COLOURS}
    process = subprocess.Popen(
        [sys.executable, "-m", "nbcourse", *parts],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
    )
    assert process.stdout is not None
    decode, stopped = getincrementaldecoder("utf-8")("replace").decode, False
    with process.stdout as printed:
        while True:
            try:
                piece = printed.read1()  # type: ignore[attr-defined]
                if not piece:
                    break
                print(decode(piece), end="", flush=True)
            except KeyboardInterrupt:
                stopped = True
                if os.name != "nt":  # some kernels tell it already: within a second, twice is once
                    process.send_signal(signal.SIGINT)
    if process.wait() and not stopped:
        raise RuntimeError(f"`nbcourse {' '.join(parts)}` failed, as it says above")
    if stopped:
        raise KeyboardInterrupt
