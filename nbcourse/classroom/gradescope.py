"""An autograder for Gradescope: a zip that it unpacks, and what runs there for each submission.

The zip and its output are as Gradescope documents them
(https://gradescope-autograders.readthedocs.io/en/latest/specs/): `setup.sh` installs,
`run_autograder` reads `submission/` and writes `results/results.json`. Both work in `/autograder`,
or in the folder that `AUTOGRADER_ROOT` names. Where a submission cannot be confined, or the grader
itself fails, no result is written: Gradescope then says that the autograder failed, and gives no
grade.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from nbcourse.classroom import batch, class_rules, files, masters, matching, submissions
from nbcourse.classroom.class_rules import Rules
from nbcourse.classroom.results import SubmissionResult, Terms
from nbcourse.confined import sandbox
from nbcourse.confined.sandbox import Limits
from nbcourse.errors import UserError
from nbcourse.repository import ROOT

NEEDED = ("ipython", "numpy", "torch")  # what grading needs besides Python
RULES = "rules.toml"
SETUP = """#!/usr/bin/env bash
# Installs what grading needs, with a Python of its own: which one the system has does not count.
set -euo pipefail
root="${AUTOGRADER_ROOT:-/autograder}"
if [ -z "${PYTHON:-}" ]; then
  command -v curl > /dev/null || { apt-get update; apt-get install -y curl ca-certificates; }
  export UV_INSTALL_DIR="$root/uv" UV_NO_MODIFY_PATH=1 UV_PYTHON_INSTALL_DIR="$root/uv/python"
  curl --location --fail --silent --show-error https://astral.sh/uv/install.sh | sh
  "$root/uv/uv" venv --seed --python 3.11 "$root/python"
  PYTHON="$root/python/bin/python"
fi
"$PYTHON" -m pip install --no-cache-dir \\
  --extra-index-url https://download.pytorch.org/whl/cpu \\
  --requirement "$root/source/requirements.txt"
"""
RUN = """#!/usr/bin/env bash
set -euo pipefail
root="${AUTOGRADER_ROOT:-/autograder}"
export PYTHONPATH="$root/source" OMP_NUM_THREADS=1
exec "${PYTHON:-$root/python/bin/python}" -m nbcourse.classroom.gradescope "$root"
"""


def autograder(assignment: str, rules: Path | None = None) -> bytes:
    """The zip for *Configure Autograder*. It holds the solutions: it is for Gradescope alone.

    Args:
        assignment: a number or a name: `2`, `sequences`, `02-sequences`.
        rules: those of the class, for partial credit; lateness is left to Gradescope.

    Raises:
        UserError: if there is no such assignment, or the rules cannot be read.
    """
    master = masters.find_master(assignment)
    content: dict[str, bytes] = {"setup.sh": SETUP.encode(), "run_autograder": RUN.encode()}
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lock if line.partition("==")[0] in NEEDED]
    content["requirements.txt"] = "".join(f"{line}\n" for line in wanted).encode()
    content[f"solutions/{master.name}"] = master.read_bytes()
    if rules is not None:
        class_rules.read_for_book(rules)
        content[RULES] = rules.read_bytes()
    for path in sorted((ROOT / "nbcourse").rglob("*.py")):
        content[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    return files.zipped(content, programs=("setup.sh", "run_autograder"))


def report(result: SubmissionResult, by_hand: Collection[str]) -> dict[str, Any]:
    """A result as the content of `results.json`.

    Args:
        result: of one submission.
        by_hand: the answers that a person grades: they are not in it, begun or not.
    """
    return {
        "output": "\n".join(result.notes),
        "tests": [
            {
                "name": exercise.name,
                "score": exercise.points,
                "max_score": exercise.max_points,
                "output": f"{exercise.state}\n{exercise.feedback}".strip(),
            }
            for exercise in result.exercises
            if exercise.points is not None and exercise.exercise not in by_hand
        ],
    }


def run(root: Path, source: Path = ROOT) -> None:
    """Grade what lies in `root`/submission, and write `root`/results/results.json.

    Raises:
        UserError: if submissions cannot be confined here, or this one could not be graded.
    """
    (path,) = masters.sheets(source)
    master, rules = masters.load_master(path), Rules()
    if (source / RULES).exists():
        rules = class_rules.read_rules(source / RULES, None)
    sandbox.require_confinement([path.parent, root / "submission", root / "results"])
    with tempfile.TemporaryDirectory(prefix="gradescope-") as folder:
        handed_in, done = Path(folder, "submissions"), Path(folder, "results")
        shutil.copytree(root / "submission", handed_in / "student", symlinks=True)
        files.make_folder(done)
        found = submissions.find_submissions(
            handed_in, master.assignment, partial(matching.worth, master=master)
        )
        terms = Terms(master, Limits(), partial=rules.partial(master))
        ((_, result),) = batch.grade_submissions(found, terms, done, jobs=1)
    if result.failure:
        raise UserError(f"this could not be graded: {result.failure}")
    by_hand = [step.grade_id for step in master.written]
    files.make_folder(root / "results")
    files.write_file(
        root / "results" / "results.json", json.dumps(report(result, by_hand), indent=1)
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]))
