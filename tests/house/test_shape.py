"""Code and notebooks are as `make format` leaves them, and no run of a chapter is committed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("command", [["format", "--check"], ["check"]], ids=" ".join)
def test_ruff_has_nothing_to_say(command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "--no-cache", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"`make format` mends most of this:\n{done.stdout}{done.stderr}"


def test_nothing_that_a_chapter_wrote_is_committed_beside_it():
    listed = subprocess.run(
        ["git", "ls-files", "book/*/*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("there is no repository here")
    folders = {Path(line).parts[1] for line in listed.stdout.splitlines()}
    assert folders == {"_static", "_templates", "exercises", "runs", "studies", "text"}
