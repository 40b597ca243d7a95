"""A class: results that stay, work that goes on where it stopped, and machines that cannot."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from nbcourse.classroom import batch, masters, results
from nbcourse.classroom.grading import grade_submission
from nbcourse.classroom.results import Terms
from nbcourse.confined import sandbox
from nbcourse.confined.submission_errors import Ending
from tests import forked_programs
from tests.classroom import a_class
from tests.classroom.conftest import LIMITS, running_submissions

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason="needs Linux with Landlock")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def out(tmp_path):
    (tmp_path / "graded").mkdir()
    return tmp_path / "graded"


@pytest.fixture
def terms(tmp_path):
    return Terms(a_class.master(tmp_path), LIMITS)


def hand_in(folder, student, **answers):
    return a_class.submission(folder, a_class.notebook(a_class.solved(**answers)), student)


@pytest.fixture
def in_this_process(monkeypatch, server):
    """Grade by a fork server that is there: a process for each submission, and no new ones."""

    def graded(jobs, terms, workers):
        for submission in jobs:
            yield submission, grade_submission(submission, terms, server)

    return lambda: monkeypatch.setattr(batch, "_graded", graded)


@pytest.mark.usefixtures("zygote")
def test_each_gets_a_result_and_only_what_changed_is_graded_again(
    tmp_path, terms, out, in_this_process
):
    handed_in = [
        hand_in(tmp_path, "ada"),
        hand_in(tmp_path, "bob", double="import os\nos.kill(os.getppid(), 9)\nos._exit(1)"),
        hand_in(tmp_path, "cid", answer="answer = 1"),
    ]
    graded = {s.student: r for s, r in batch.grade_submissions(handed_in, terms, out, jobs=1)}
    assert {name: result.points for name, result in graded.items()} == {
        "ada": 6,
        "bob": 4,
        "cid": 5,
    }
    assert sorted(path.name for path in out.iterdir()) == ["ada.json", "bob.json", "cid.json"]
    assert results.read_result(out / "cid.json") == graded["cid"]

    stamps = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    hand_in(tmp_path, "cid", answer="answer = 42")
    in_this_process()
    again = {s.student: r.points for s, r in batch.grade_submissions(handed_in, terms, out, jobs=1)}
    assert again == {"ada": 6, "bob": 4, "cid": 6}
    changed = [path.name for path in out.iterdir() if path.stat().st_mtime_ns != stamps[path.name]]
    assert changed == ["cid.json"]


def test_other_terms_are_graded_anew(tmp_path, terms):
    submission = a_class.listed(hand_in(tmp_path, "ada"))
    digests = {
        str(Terms(terms.master, limits, personal, confined).conditions(submission))
        for limits in (LIMITS, sandbox.Limits())
        for personal in (True, False)
        for confined in (True, False)
    }
    assert len(digests) == 8
    stored = results.not_graded(submission, terms.master, "power cut")
    results.write_result(stored, tmp_path / "ada.json")
    assert batch._done(submission, terms, tmp_path / "ada.json") is None


def test_a_grading_process_that_dies_costs_one_submission(tmp_path, terms, zygote):
    submission = hand_in(tmp_path, "ada")
    worker = batch._Worker(terms, zygote)  # a process of its own, which is not the submission's
    worker.process.kill()
    worker.process.join()
    worker.give(submission)
    result = worker.take()
    worker.end()
    assert result.student == "ada"
    assert "ended with status -9" in result.failure
    assert {exercise.state for exercise in result.exercises} == {Ending.NOT_GRADED}


def test_a_master_that_fails_its_own_tests_stops_everything(
    tmp_path, out, monkeypatch, in_this_process
):
    in_this_process()
    monkeypatch.setitem(a_class.TESTS, "answer", "assert answer == 43")
    terms = Terms(a_class.master(tmp_path), LIMITS)
    with pytest.raises(ValueError, match="fails its own test 'answer-check'"):
        [*batch.grade_submissions([hand_in(tmp_path, "ada")], terms, out, jobs=1)]


@pytest.fixture
def background():
    """Tests run in the background of a shell without job control: they ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def command(request, tmp_path, background):
    """The command that grades a class, once it has graded ada and runs bob's endless loop.

    It is started by `Popen`, or by what is given as a parameter.
    """
    stub = (ROOT / "book" / "exercises" / "02-sequences.ipynb").read_text(encoding="utf-8")
    loop = stub.replace("raise NotImplementedError", "while True: pass")
    for student, content in (("ada", stub), ("bob", loop)):
        path = tmp_path / "submissions" / student / "02-sequences.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(content, encoding="utf-8")
    arguments = ["grade", "submissions", "--assignment", "2", "--seconds", "600", "--jobs", "1"]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what is ignored would be inherited
    running = getattr(request, "param", subprocess.Popen)(
        [sys.executable, "-m", "nbcourse", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    stored = tmp_path / "graded" / "results" / "ada.json"
    wait_until(lambda: stored.exists() and any(map(is_submission, below(running.pid))))
    yield running
    for process in psutil.process_iter():  # what a test that fails has left
        if home(process) == tmp_path:
            process.kill()


def wait_until(condition):
    """Wait for what comes soon, or never; the time is for a machine that is very busy."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)


def below(number: int) -> list[psutil.Process]:
    return psutil.Process(number).children(recursive=True)


def home(process: psutil.Process) -> Path:
    try:
        return Path(process.cwd())
    except psutil.Error:  # it has ended, or is not ours to look at
        return Path("/")


def is_submission(process: psutil.Process) -> bool:
    return home(process).name.startswith("submission-")


def ignores_ctrl_c(process: psutil.Process) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    (ignored,) = re.findall(r"(?m)^SigIgn:\s+(\w+)", status)
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)


def test_the_command_stops_at_ctrl_c_with_what_is_done(tmp_path, command):
    """No other process sees it, not even while it starts, since what they are forked from ignores
    it: a stack trace would be the last thing on the screen."""
    started = below(command.pid)
    assert len(started) >= 5  # of two kinds, and what those are forked from
    assert all(map(ignores_ctrl_c, started))
    os.killpg(command.pid, signal.SIGINT)  # as a terminal does
    _, said = command.communicate(timeout=300)
    assert command.returncode == 1
    assert "the same command continues" in said
    assert "Traceback" not in said
    wait_until(lambda: not running_submissions())
    (stored,) = (tmp_path / "graded" / "results").iterdir()
    assert stored.name == "ada.json"
    assert json.loads(stored.read_text(encoding="utf-8"))["verdicts"][0]["state"] == "not attempted"


@pytest.mark.parametrize("command", [forked_programs.Forked], indirect=True)
def test_nothing_goes_on_when_the_command_is_killed(command, tmp_path):
    """Its grader is no child of a forked command, but starts in the same folder."""
    started = below(command.pid)
    assert any(map(is_submission, started))
    started += [process for process in psutil.process_iter() if home(process) == tmp_path]
    assert len(started) >= 5  # itself, two kinds of processes, and what one of them is forked from
    command.kill()
    command.communicate(timeout=300)  # returns when each process that could write has ended
    _, left = psutil.wait_procs(started, timeout=300)
    assert left == []


def test_a_machine_that_cannot_confine_is_told_what_is_missing_and_what_helps(monkeypatch):
    monkeypatch.setattr(sandbox, "missing", lambda: ["Landlock"])
    with pytest.raises(ValueError, match=r"lacks Landlock.*container.*--trust-submissions"):
        sandbox.require_confinement([])


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems_cannot_confine(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    assert "Landlock and seccomp" in sandbox.missing()[0]


def test_secrets_among_pythons_own_files_are_refused():
    sandbox.require_confinement([masters.find_master("2").parent])
    for exposed in (Path(torch.__file__).parent, Path(sys.prefix), Path("/")):
        with pytest.raises(ValueError, match="could be read by submissions"):
            sandbox.require_confinement([exposed])
