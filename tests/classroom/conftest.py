import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from nbcourse.classroom import grading, leaks
from nbcourse.classroom.results import Terms
from nbcourse.confined import sandbox
from nbcourse.confined.forkserver import ForkServer
from nbcourse.confined.submission_errors import Ending
from nbcourse.repository import ROOT
from tests.checks import masters
from tests.classroom import a_class
from tests.zygotes import zygote as zygote

# Time enough on a busy machine. A submission that is to run out of time gets less: `grade_endless`.
LIMITS = sandbox.Limits(memory=2**29, seconds=120, total=600, disk=32 * 2**20)


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """Where submissions have their folders, here and in processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def secrets_of_the_book():
    """What no release may hold: no test changes the book's own masters, so it is read once."""
    whole = leaks.secrets

    def secrets(root=ROOT):
        return masters.secrets() if root == ROOT else whole(root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaks, "secrets", secrets)
        yield


@pytest.fixture(scope="session")
def server(zygote):
    """One for all tests: whatever a submission does, the next one is graded from the same."""
    if lacking := sandbox.missing():
        pytest.skip(f"no submission can be confined here: {lacking}")
    with ForkServer(zygote) as running:
        yield running


@pytest.fixture
def master(tmp_path):
    return a_class.master(tmp_path)


@pytest.fixture
def grade(server, tmp_path):
    """Grade a notebook's bytes, or the solved notebook with other answers."""

    def graded(content: bytes | None = None, *, limits=LIMITS, **answers: str):
        content = a_class.notebook(a_class.solved(**answers)) if content is None else content
        master, submitted = a_class.master(tmp_path), a_class.submission(tmp_path, content)
        result = grading.grade_submission(submitted, Terms(master, limits), server)
        assert not running_submissions(), "a process of the submission is still there"
        return {exercise.exercise: exercise for exercise in result.exercises} | {"result": result}

    return graded


@pytest.fixture
def grade_endless(grade):
    """Grade a notebook in which one exercise never ends, in little time for each call.

    The other exercises need theirs: where the machine is too busy for them, everything gets more.
    """

    def graded(**answers: str):
        for seconds in (0.4, 2, 10, 60):
            found = grade(limits=replace(LIMITS, seconds=seconds), **answers)
            states = [exercise.state for exercise in found["result"].exercises]
            if states.count(Ending.OUT_OF_TIME) == 1:
                break
        return found

    return graded


def running_submissions() -> list[Path]:
    """Processes that are at home in a submission's folder, of these tests and no others."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "cwd").readlink()).startswith(f"{tempfile.gettempdir()}/submission-"):
                found.append(process)
        except OSError:
            continue  # ended meanwhile, or not ours to look at
    return found
