"""Control groups: where they are found, what they bound, and that nothing is left in them.

What is only reading and writing of files is tried on trees of files. The rest takes the kernel's
groups, of whichever version it lends them here, and is skipped where it lends none. Submissions
are not confined here: a confined one could not even start a second process.
"""

import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nbcourse.classroom import batch, feedback
from nbcourse.classroom.grading import grade_submission
from nbcourse.classroom.results import Terms
from nbcourse.confined import cgroups
from nbcourse.confined.cgroups import ControlGroup
from nbcourse.confined.forkserver import ForkServer
from nbcourse.confined.remote import Session, StudentCell
from nbcourse.confined.sandbox import Limits
from nbcourse.confined.submission_errors import Ending
from tests.classroom import a_class
from tests.classroom.conftest import LIMITS

SMALL = replace(LIMITS, memory=2**27, threads=32)
LAST = StudentCell(9, "def double(x):\n    return 2 * x", functions=("double",))

# ---------------------------------------------------------------- trees of files

MOUNTS = """
24 1 0:22 / / rw - ext4 /dev/vda rw
30 24 0:26 /docker/abc /sys/fs/cgroup/memory ro shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
33 24 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
""".strip()


def test_a_process_is_found_in_each_hierarchy_that_is_mounted():
    groups = "5:pids:/\n4:memory:/docker/abc/job\n3:cpu,cpuacct:/a:b\n1:name=systemd:/x\n0::/user/1"
    at = Path("/sys/fs/cgroup")
    assert cgroups.own(groups, MOUNTS) == {
        "pids": at / "pids",
        "memory": at / "memory/job",
        "cpu": at / "cpu,cpuacct/a:b",
        "cpuacct": at / "cpu,cpuacct/a:b",
        cgroups.UNIFIED: at / "unified/user/1",
    }


@pytest.mark.parametrize("path", ["/docker/abcd", "/docker", "/docker/abc/../def", "/../.."])
def test_a_group_outside_of_what_is_mounted_is_not_found(path):
    assert cgroups.own(f"4:memory:{path}", MOUNTS) == {}


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")
    return folder


@pytest.mark.parametrize(
    ("there", "shared", "found"),
    [
        ("cpu memory pids", "cpu memory pids io", True),
        ("memory pids", "memory pids", True),
        ("memory pids", "", True),  # and then it is shared out
        ("cpu memory", "cpu memory", False),
        ("", "", False),
    ],
)
@pytest.mark.parametrize("inside", ["", cgroups.LEAF])
def test_a_group_shares_out_its_limits_if_it_has_them(tmp_path, there, shared, found, inside):
    tree(tmp_path, cgroup_controllers=there, cgroup_subtree_control=shared)
    (tmp_path / inside).mkdir(exist_ok=True)
    assert cgroups._shared_out(tmp_path / inside) == (tmp_path if found else None)
    written = (tmp_path / "cgroup.subtree_control").read_text().strip()
    assert written == ("+memory +pids" if found and not shared else shared)


def test_both_versions_tell_the_same(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = tree(
        tmp_path / "one",
        cpuacct_usage="1500000000",
        cpu_stat="nr_periods 3\nnr_throttled 0",
        memory_max_usage_in_bytes="4096",
        memory_oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2",
        pids_events="max 5",
    )
    two = tree(
        tmp_path / "two",
        cpu_stat="usage_usec 1500000\nuser_usec 7",
        memory_peak="4096",
        memory_events="low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 1",
        pids_events="max 5",
    )
    for group in (
        ControlGroup(dict.fromkeys(cgroups.CONTROLLERS, folder)) for folder in (one, two)
    ):
        assert group.seconds() == 1.5
        assert group.peak() == 4096
        assert group.limits_met() == (5, 2)


def test_an_old_kernel_tells_nothing_of_the_peak(tmp_path):
    assert ControlGroup(dict.fromkeys(cgroups.CONTROLLERS, tmp_path)).peak() == 0


def test_what_cannot_be_limited_is_no_group_and_leaves_nothing(tmp_path):
    """In a folder that is none of the kernel's, no file appears that a limit could go to."""
    with pytest.raises(OSError, match="no limit on"):
        cgroups.make(
            ControlGroup(dict.fromkeys(cgroups.CONTROLLERS, tmp_path)), processes=1, memory=2**20
        )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def trusting(zygote):
    with ForkServer(zygote, confined=False) as server:
        yield server


def test_without_groups_the_report_says_so(monkeypatch, trusting, master, tmp_path):
    monkeypatch.setattr(cgroups, "place", lambda: None)
    submission = a_class.submission(tmp_path, a_class.notebook(a_class.solved()))
    result = grade_submission(submission, Terms(master, LIMITS, confined=False), trusting)
    assert (result.points, result.watched, result.memory) == (6, (cgroups.LACKING,), 0)
    page = feedback.class_page([(submission, result)])
    assert cgroups.LACKING in page
    assert "MB of memory" not in page


# ---------------------------------------------------------------- the kernel's groups


@pytest.fixture
def place():
    if (found := cgroups.place()) is None:
        pytest.skip("this machine lends no control group that limits processes and memory")
    before = left_behind(found)
    yield found
    end = time.monotonic() + 60  # a server may still be at it
    while left := left_behind(found) - before:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def left_behind(place: ControlGroup) -> set[Path]:
    """Groups that this process has made, and those whose maker has ended: nothing uses them.

    Those of tests that run beside this one are in use.
    """
    groups = {at for folder in place.folders.values() for at in folder.glob("submission-*")}
    makers = {at: int(at.name.split("-")[1]) for at in groups}
    return {at for at, pid in makers.items() if pid == os.getpid() or not is_running(pid)}


def runs(server, source: str, *, limits=SMALL, **names):
    """A session with this cell and, behind it, one that works."""
    return Session(server, [StudentCell(1, source, **names), LAST], limits)


def test_where_there_are_groups_the_report_tells_the_memory(place, trusting, master, tmp_path):
    answer = "held = bytearray(50 * 2**20)\nanswer = 42"
    submission = a_class.submission(tmp_path, a_class.notebook(a_class.solved(answer=answer)))
    result = grade_submission(submission, Terms(master, LIMITS, confined=False), trusting)
    assert (result.points, result.watched) == (6, ())
    assert 50 * 2**20 < result.memory < 50 * 2**20 + cgroups.COPIED
    assert f"{result.memory / 2**20:.0f} MB" in feedback.class_page([(submission, result)])


FORK_BOMB = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        os.fork()
        os.setsid()
    except OSError:
        pass
"""
MEMORY_BOMB = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        held = bytearray(100 * 2**20)  # less than each may have
        time.sleep(600)
time.sleep(600)
"""
THREAD_BOMB = """
import threading, time
threading.stack_size(2**16)
try:
    for _ in range(3000):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
except RuntimeError:
    pass
"""


@pytest.mark.parametrize(
    ("bomb", "state", "says"),
    [
        (FORK_BOMB, Ending.TOO_MANY, "it started more than 32 threads"),
        (THREAD_BOMB, Ending.TOO_MANY, "it started more than 32 threads"),
        (MEMORY_BOMB, Ending.OUT_OF_MEMORY, "it asked for more memory than there is"),
    ],
    ids=["processes", "threads", "memory of several processes"],
)
def test_a_bomb_is_named_and_costs_its_own_cell(place, trusting, bomb, state, says):
    with runs(trusting, bomb) as session:
        assert session.outcomes[1].error.state == state
        assert str(session.outcomes[1].error) == says
        assert session.outcomes[9].defined["double"](4) == 8
        assert len(session._group.processes()) == 1
    assert session.memory <= SMALL.memory + SMALL.disk + cgroups.COPIED


SURVIVOR = """
import os, signal, time
taken, given = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.close(3)  # by which the grader would see that the submission's process goes on
    os.chdir("/")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    while time.process_time() < 0.3:
        pass
    os.write(given, str(os.getpid()).encode())
    time.sleep(600)
os.wait()
survivor = int(os.read(taken, 20))
"""


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_detaches_itself_ends_with_its_submission(place, trusting):
    with runs(trusting, SURVIVOR, values=("survivor",)) as session:
        survivor = session.outcomes[1].defined["survivor"]
        assert is_running(survivor)
    assert not is_running(survivor)


def test_what_detaches_itself_ends_when_its_cell_ends_the_process(place, trusting, tmp_path):
    said = tmp_path / "survivor"
    source = f"{SURVIVOR}\nopen({str(said)!r}, 'w').write(str(survivor))\nos._exit(0)"
    with runs(trusting, source) as session:
        assert session.outcomes[1].error.state == Ending.ENDED
        assert not is_running(int(said.read_text()))
        assert session.outcomes[9].defined["double"](4) == 8


def test_restarts_share_a_group_which_counts_what_was_detached(place, trusting, monkeypatch):
    """Three cells that end their process, each with a child that nobody waits for."""
    made, make = [], cgroups.make
    monkeypatch.setattr(cgroups, "make", lambda *a, **k: made.append(make(*a, **k)) or made[-1])
    cells = [StudentCell(n, f"{SURVIVOR}\nos._exit(0)") for n in range(3)]
    with Session(trusting, [*cells, LAST], SMALL) as session:
        assert session.outcomes[9].defined["double"](4) == 8
        assert [session.outcomes[n].error.state for n in range(3)] == [Ending.ENDED] * 3
        assert session._computed > 3 * 0.3
    assert len(made) == 1


def test_a_submission_has_one_processor(place, trusting):
    """The setting, and, where another processor is idle, what comes of it."""
    spins = "import os, time\nend = time.time() + 1.0\nos.fork()\nwhile time.time() < end: pass"
    with runs(trusting, f"{spins}\nos._exit(0)") as session:
        shares = [session._group.file(name) for name in ("cpu.max", "cpu.cfs_quota_us")]
        if not any(shares):
            pytest.skip("there is no share of the processor to limit")
        assert next(filter(None, shares)).read_text().split()[0] == "100000"
        assert session._computed < 1.3 * 1.0


def test_bombs_of_some_change_no_result_of_others(place, zygote, master, tmp_path):
    answers = {"ann": {}, "bea": {"double": FORK_BOMB}, "cid": {"answer": "answer = 1"}}
    answers |= {"dan": {"cube": MEMORY_BOMB}, "eve": {}, "fay": {"answer": SURVIVOR}}
    handed_in = [
        a_class.submission(tmp_path, a_class.notebook(a_class.solved(**given)), student)
        for student, given in answers.items()
    ]
    terms = Terms(master, SMALL, confined=False)
    (tmp_path / "out").mkdir()
    graded = batch.grade_submissions(handed_in, terms, tmp_path / "out", jobs=2)
    assert {submission.student: result.points for submission, result in graded} == {
        "ann": 6,
        "bea": 4,
        "cid": 5,
        "dan": 3,
        "eve": 6,
        "fay": 5,
    }


def grade_without_end(told, zygote):
    with (
        ForkServer(zygote, confined=False) as server,
        runs(server, SURVIVOR, limits=Limits(), values=("survivor",)) as session,
    ):
        told.send((session.outcomes[1].defined["survivor"], session._group.folders["pids"]))
        time.sleep(600)


def test_when_the_grader_is_killed_its_group_goes(place, zygote):
    forked = multiprocessing.get_context("fork")  # it has imported torch
    ours, theirs = forked.Pipe()
    grader = forked.Process(target=grade_without_end, args=(theirs, zygote))
    grader.start()
    survivor, folder = ours.recv()
    assert is_running(survivor)
    grader.kill()
    grader.join()
    end = time.monotonic() + 30
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not folder.exists()
    assert not is_running(survivor)
