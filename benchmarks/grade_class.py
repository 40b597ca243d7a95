"""What it costs to grade a class: processor seconds for each submission, all processes counted.

    python benchmarks/grade_class.py [--submissions 200]

Every submission is the master of sheet 2, so that every test runs to its end. The seconds of the
processor hardly depend on what else the machine does; those on the clock do.
"""

import argparse
import ctypes
import os
import resource
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from nbcourse.classroom import batch, masters
from nbcourse.classroom.results import Terms
from nbcourse.classroom.submissions import Candidate, Submission
from nbcourse.confined.sandbox import Limits

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--submissions", type=int, default=200)
    count = options.parse_args().submissions
    master = masters.load_master(masters.find_master("2"))
    handed_in = [
        Submission(f"student-{n}", "", notebook=Candidate(master.path)) for n in range(count)
    ]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # Linux, as grading is
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        terms = Terms(master, Limits())
        graded = batch.grade_submissions(handed_in, terms, Path(folder), jobs=os.cpu_count() or 1)
        points = {result.points for _, result in graded}
    seconds = time.monotonic() - begun
    assert len(points) == 1
    end = time.monotonic() + 10
    with suppress(ChildProcessError):  # the fork servers of the workers that were ended
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.1)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    computed = used.ru_utime + used.ru_stime
    print(
        f"{count} submissions: {computed:.1f} processor seconds, {computed / count:.3f} each; "
        f"{seconds:.1f} s on the clock with {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    main()
