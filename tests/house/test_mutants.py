"""A small change of the package makes a test red: 150 changes, drawn by chance."""

import os
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from nbcourse.repository import ROOT
from tests import mutants
from tests.effort import PATIENCE

MUTANTS = mutants.of_the_package()
KILLED = [one for one in MUTANTS if not one.survives]


def test_nine_in_ten_are_noticed_and_of_the_others_it_is_said_why_not():
    assert len(MUTANTS) == 150
    assert len(KILLED) >= 0.9 * len(MUTANTS)
    for rooms in (Counter(one.kind for one in MUTANTS), Counter(one.room for one in MUTANTS)):
        assert min(rooms.values()) >= 10
    assert all(len(one.killer.split()) > 5 for one in MUTANTS if one.survives)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_line_is_there_and_what_notices_it(mutant):
    compile(mutant.source(ROOT / "nbcourse"), mutant.file, "exec")
    if not mutant.survives:
        file, _, test = mutant.killer.partition("::")
        name = test.partition("[")[0]
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository, to be changed."""
    there = tmp_path_factory.mktemp("mutants") / "copy"
    command = ["git", "clone", "--quiet", "--shared", str(ROOT), str(there)]
    subprocess.run(command, check=True)
    for folder in ("nbcourse", "tests"):
        shutil.rmtree(there / folder)
        shutil.copytree(ROOT / folder, there / folder)
    return there


def tried(copy, *tests):
    """These tests in the copy: the exit status, and what was said."""
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.sweep
@pytest.mark.parametrize("file", sorted({one.killer.partition("::")[0] for one in KILLED}))
def test_what_notices_them_is_green_without_them(file, copy):
    tests = sorted({one.killer for one in KILLED if one.killer.partition("::")[0] == file})
    status, said = tried(copy, *tests)
    assert status == 0, said


@pytest.mark.sweep
@pytest.mark.parametrize("mutant", KILLED, ids=str)
def test_a_test_is_red_with_it(mutant, copy):
    """Or does not come to an end, or cannot be collected."""
    file = copy / "nbcourse" / mutant.file
    text = file.read_text(encoding="utf-8")
    for kept in file.parent.glob(f"__pycache__/{file.stem}.*"):
        kept.unlink()
    file.write_text(mutant.source(copy / "nbcourse"), encoding="utf-8")
    try:
        status, said = tried(copy, mutant.killer)
    except subprocess.TimeoutExpired:
        return
    finally:
        file.write_text(text, encoding="utf-8")
    assert status in (1, 2, 4), said  # failed, interrupted, or not to be found in its file
