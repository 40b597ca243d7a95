"""`make` explains itself, and says what to do when it cannot go on."""

import os
import re
import shutil
import subprocess
import time

import pytest

from nbcourse.publishing.chapters import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder, *arguments: str) -> subprocess.CompletedProcess:
    """make as typed in a shell, also where these tests are themselves run by make."""
    ours = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
    env = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(["make", *arguments], cwd=folder, env=env, capture_output=True, text=True)


def test_bare_make_lists_every_target():
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    listed = re.findall(r"^  make ([\w-]+) ", make(ROOT).stdout, re.MULTILINE)
    assert sorted(listed) == sorted(set(targets.split()) - {"FORCE"})


@pytest.fixture
def project(tmp_path):
    """project(program) → a folder with our Makefile and a `./python` that is this shell program."""
    folder = tmp_path / "a book"

    def write(program: str):
        folder.mkdir()
        for file in ("Makefile", "requirements.txt", "requirements-dev.txt", "pyproject.toml"):
            shutil.copy(ROOT / file, folder)
        python = folder / "python"
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
        return folder

    return write


@pytest.mark.parametrize(
    ("program", "remedy"),
    [
        ("exit 1", "This book needs Python 3.11 or newer"),
        ('case "$*" in *ensurepip*) exit 1;; esac', "apt install python3-venv"),
    ],
    ids=["too old", "no venv"],
)
def test_an_unfit_python_is_answered_in_one_line(project, program, remedy):
    folder = project(program)
    answer = make(folder, "PYTHON=./python", "lab")
    assert answer.returncode == 2
    assert remedy in answer.stdout
    assert answer.stdout.count("\n") == 1
    assert not (folder / ".venv").exists()


# Makes an environment of itself, notes every install, and fails one where a file says so; notes
# whether its Jupyter was told how to save.
PRETENDER = """case "$*" in
  "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python;;
  *"pip install"*) echo "$@" >> installs; test ! -e out-of-disk;;
  "-m nbcourse.publishing.reading") touch .venv/told;;
esac"""


def test_the_environment_is_made_once_and_again_when_it_must_be(project):
    folder = project(PRETENDER)

    def installs(folder, status: int = 0) -> int:
        (folder / "installs").write_text("")
        assert make(folder, "PYTHON=./python", "run", "CH=1").returncode == status
        return len((folder / "installs").read_text().splitlines())

    (folder / "out-of-disk").touch()
    assert installs(folder, status=2) == 1
    (folder / "out-of-disk").unlink()
    assert installs(folder) == 2  # the failed one did not count: requirements, then the package
    assert (folder / ".venv" / "told").exists()
    assert installs(folder) == 0
    later = time.time() + 10
    for file in ("requirements.txt", "Makefile"):  # an older clone, after its recipe has changed
        os.utime(folder / file, (later, later))
        assert installs(folder) == 2
        os.utime(folder / file, (0, 0))
        assert installs(folder) == 0
    assert installs(folder.rename(folder.with_name("moved"))) == 2
