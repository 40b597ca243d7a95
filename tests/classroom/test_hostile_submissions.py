"""Submissions that try to break out, to hold up the grader, or to be given points for nothing.

Each is graded by the same fork server, right after the one before it, and each time the exercise
that nothing is wrong with must get its points.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from nbcourse.classroom import masters
from nbcourse.classroom.grading import grade_submission
from nbcourse.classroom.results import Terms
from nbcourse.confined import student
from nbcourse.confined.forkserver import ForkServer
from nbcourse.confined.remote import Session, StudentCell
from nbcourse.confined.submission_errors import Ending
from tests.classroom import a_class
from tests.classroom.conftest import LIMITS
from tests.zygotes import Here

ROOT = Path(__file__).resolve().parents[2]
GRADER = os.getpid()

ENDLESS = """
def double(x):
    while True:
        pass
"""
SWALLOWS_EVERYTHING = """
import signal, threading
for number in set(range(1, 65)) - {9, 19, 32, 33}:
    signal.signal(number, lambda *_: None)

def double(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
"""
MEMORY = """
def double(x):
    hoard = []
    while True:
        hoard.append(bytearray(2**24))
"""
TENSOR_MEMORY = """
import torch

def double(x):
    return torch.ones(2**40).sum()
"""
FORKS = """
import os, time

def double(x):
    for _ in range(200):  # a bomb, but a tame one, should the sandbox be broken
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
"""
DAEMON = """
import os, subprocess, time

def double(x):
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
    except OSError:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return 2 * x
"""
ENDS_ITSELF = """
import os

def double(x):
    os._exit(0)
"""
CRASHES = """
import ctypes

def double(x):
    ctypes.string_at(0)
"""
EXITS = """
import sys

def double(x):
    sys.exit("passed")
"""
NO_ASSERT = """
import builtins, sys

builtins.AssertionError = builtins.BaseException = ()
for module in list(sys.modules.values()):
    for name in ("assert_close", "equal", "allclose"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: True)

def double(x):
    return 0
"""
EQUAL_TO_ALL = """
class Right(int):
    def __eq__(self, other):
        return True
    def __hash__(self):
        return 0

def double(x):
    return Right(5)
"""
AN_OBJECT = """
class Right:
    def __eq__(self, other):
        return True

def double(x):
    return Right()
"""
TENSOR_EQUAL_TO_ALL = """
import torch

class Right(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.__eq__:
            return torch.tensor(True)
        return super().__torch_function__(function, types, arguments, keywords or {})

def double(x):
    return torch.tensor(5).as_subclass(Right)
"""
READS_THE_STACK = """
import inspect, sys

def double(x):
    told = [frame.filename + str(frame.frame.f_locals) for frame in inspect.stack()]
    told += [name for name in sys.modules if "grading" in name or "masters" in name]
    told += [str(vars(sys.modules["__main__"]))]
    return 2 * x if any("-check" in text or "assert" in text for text in told) else 0
"""
HOLDS_ON = """
import threading, time

def forever():
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass

for _ in range(3):
    threading.Thread(target=forever).start()

def double(x):
    return 2 * x
"""
TALKS = """
import os, sys

def double(x):
    os.write(1, b"x" * 10**8)
    for _ in range(1000):
        print("y" * 10**4, file=sys.stderr)
    return 2 * x
"""
FILLS_THE_DISK = """
import time

def double(x):
    for number in range(48):
        with open(f"{number}.bin", "wb") as file:
            file.write(bytes(2**20))
    time.sleep(100)
"""
A_HUGE_FILE = """
def double(x):
    with open("huge.bin", "wb") as file:
        for _ in range(10**6):
            file.write(bytes(2**20))
"""
TOO_MUCH = """
def double(x):
    return "x" * 2**26
"""
FILLS_THE_DISK_IN_PASSING = """
def double(x):
    for number in range(3):
        with open(f"{number}.bin", "wb") as file:
            file.write(bytes(15 * 2**20))
    return 2 * x
"""
TOO_DEEP = """
def double(x):
    found = []
    for _ in range(10**5):
        found = [found]
    return found
"""
LIES_ON_THE_WIRE = """
import os

def double(x):
    os.write(3, b"\\x00\\x00\\x00\\x02[]")
    return 2 * x
"""
ANNOUNCES_TOO_MUCH = """
import os

def double(x):
    os.write(3, b"\\xff" * 4)
    return 2 * x
"""
ANSWERS_IN_ADVANCE = """
import json, os, struct

def double(x):
    for number in range(1, 50):
        reply = json.dumps({"number": number, "structure": 6, "tensors": [], "changed": []})
        os.write(3, struct.pack(">I", len(reply)) + reply.encode())
    return 0
"""
HANGS_UP = """
import os, time

def double(x):
    os.close(3)
    time.sleep(1000)
"""
WITHOUT_DESCRIPTION = """
import time

class Silent(Exception):
    def __str__(self):
        raise KeyboardInterrupt

def double(x):
    raise Silent
"""

EXPECTED = {
    "endless": (ENDLESS, Ending.OUT_OF_TIME),
    "swallows everything": (SWALLOWS_EVERYTHING, Ending.OUT_OF_TIME),
    "memory": (MEMORY, Ending.OUT_OF_MEMORY),
    "memory of tensors": (TENSOR_MEMORY, Ending.OUT_OF_MEMORY),
    "forks": (FORKS, Ending.RAISED),
    "a daemon": (DAEMON, Ending.RAISED),
    "ends itself": (ENDS_ITSELF, Ending.ENDED),
    "crashes": (CRASHES, Ending.ENDED),
    "exits": (EXITS, Ending.ENDED),
    "no assert": (NO_ASSERT, Ending.FAILED),
    "equal to all": (EQUAL_TO_ALL, Ending.FAILED),
    "an object": (AN_OBJECT, Ending.NOT_PLAIN),
    "a tensor equal to all": (TENSOR_EQUAL_TO_ALL, Ending.FAILED),
    "reads the stack": (READS_THE_STACK, Ending.FAILED),
    "holds on": (HOLDS_ON, Ending.PASSED),
    "talks": (TALKS, Ending.PASSED),
    "fills the disk": (FILLS_THE_DISK, Ending.TOO_BIG),
    "fills the disk in passing": (FILLS_THE_DISK_IN_PASSING, Ending.TOO_BIG),
    "a huge file": (A_HUGE_FILE, Ending.RAISED),
    "too much": (TOO_MUCH, Ending.TOO_BIG),
    "too deep": (TOO_DEEP, Ending.NOT_PLAIN),
    "lies on the wire": (LIES_ON_THE_WIRE, Ending.MALFORMED),
    "announces too much": (ANNOUNCES_TOO_MUCH, Ending.MALFORMED),
    "answers in advance": (ANSWERS_IN_ADVANCE, Ending.MALFORMED),
    "hangs up": (HANGS_UP, Ending.ENDED),
    "without description": (WITHOUT_DESCRIPTION, Ending.RAISED),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hostile_answer_has_its_state_and_costs_no_other_exercise(grade, grade_endless, name):
    source, state = EXPECTED[name]
    graded = (grade_endless if state == Ending.OUT_OF_TIME else grade)(double=source)
    found = graded["double-check"]
    assert found.state == state, found
    assert found.points == (2 if state == Ending.PASSED else 0)
    assert bool(found.feedback) == (state != Ending.PASSED)
    if state not in (Ending.PASSED, Ending.FAILED, Ending.RAISED):
        assert found.feedback.startswith(f"Your function stopped ({state}): ")
    for other in ("answer-check", "cube-check"):
        assert graded[other].state == Ending.PASSED, graded[other]


@pytest.mark.parametrize("name", ["endless", "ends itself", "memory"])
def test_what_a_cell_does_while_it_is_run_costs_no_other_exercise(grade, grade_endless, name):
    source, state = EXPECTED[name]
    run = grade_endless if state == Ending.OUT_OF_TIME else grade
    graded = run(double=f"{source}\n\ndouble(1)\n")
    assert graded["double-check"].state == state
    assert graded["answer-check"].state == graded["cube-check"].state == Ending.PASSED


FORBIDDEN = {
    "read the master": "open({master!r}).read()",
    "list the masters": "os.listdir(os.path.dirname({master!r}))",
    "read solutions/": f"open({str(ROOT / 'solutions' / 'README.md')!r}).read()",
    "read another submission": "open({neighbour!r}).read()",
    "list the home folder": "os.listdir(os.path.expanduser('~root'))",
    "read /etc/passwd": "open('/etc/passwd').read()",
    "list the processes": "os.listdir('/proc')",
    "read the grader's environment": f"open('/proc/{GRADER}/environ').read()",
    "read the grader's memory": f"open('/proc/{GRADER}/mem', 'rb')",
    "read its parent's memory": "open(f'/proc/{{os.getppid()}}/mem', 'rb')",
    "trace its parent": "libc.ptrace(16, os.getppid(), 0, 0) and raise_errno()",
    "kill its parent": "os.kill(os.getppid(), 0)",  # whether one may: nothing is sent
    "kill the grader": f"os.kill({GRADER}, 0)",
    "kill everybody": "os.kill(-1, 0)",
    "kill by a file": "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "limit the grader": f"resource.prlimit({GRADER}, resource.RLIMIT_CORE, (0, 0))",
    "raise its limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "open a TCP socket": "socket.create_connection(('127.0.0.1', 80), timeout=1)",
    "open a UDP socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "open a Unix socket": "socket.socket(socket.AF_UNIX)",
    "ask for a name": "socket.getaddrinfo('example.org', 80)",
    "write into /tmp": "open({neighbour!r} + '.mine', 'w')",
    "change a file's mode": "os.chmod({master!r}, 0)",
    "change a file's times": "os.utime({master!r})",
    "delete a file": "os.remove({neighbour!r})",
    "hear of files": "libc.inotify_init1(0) < 0 and raise_errno()",
    "keep others from a file": "fcntl.fcntl(mine(), fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "hear of files by a signal": "fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, fcntl.DN_CREATE)",
    "lock a file": "fcntl.flock(mine(), fcntl.LOCK_EX)",
    "look at a file's flags": "fcntl.ioctl(mine(), 0x80086601, bytes(8))",  # FS_IOC_GETFLAGS
    "take space that is not seen": (
        "libc.fallocate(mine(), 1, ctypes.c_long(0), ctypes.c_long(4096)) < 0 and raise_errno()"
    ),
    "make a file without a name": "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "make one in another way": (
        "libc.syscall(437, -100, b'.', (ctypes.c_uint64 * 3)(os.O_TMPFILE | 2, 0o600, 0), 24) < 0"
        " and raise_errno()"  # openat2
    ),
    "take a file its name": "mine() and os.remove('mine')",
    "link to a file": "os.link({neighbour!r}, 'mine')",
    "make a symbolic link": "os.symlink({neighbour!r}, 'mine')",
    "start a program": "subprocess.run(['true'])",
    "share memory": "os.memfd_create('mine')",
    "become another user": "os.setuid(12345) if os.getuid() == 0 else os.setuid(0)",
    "mount": "libc.mount(b'a', b'b', b'c', 0, None) and raise_errno()",
}


TRY_EACH = """
import ctypes, fcntl, os, resource, socket, subprocess

libc = ctypes.CDLL(None, use_errno=True)

def mine():
    return os.open("mine", os.O_RDWR | os.O_CREAT)

def raise_errno():
    raise OSError(ctypes.get_errno(), "refused")

def became():
    found = {}
    for what, attempt in ATTEMPTS.items():
        try:
            found[what] = f"this worked: {attempt()!r:.100}"
        except (OSError, ValueError):
            found[what] = "refused"
        except Exception as error:
            found[what] = repr(error)
    return found
"""


@pytest.fixture(scope="module")
def became(server, tmp_path_factory):
    """What became of each attempt. All are made in one process: what is refused changes nothing."""
    folder = tmp_path_factory.mktemp("attempts")
    path = a_class.master(folder).path
    neighbour = a_class.submission(folder, b"{}", "neighbour").notebook.path
    attempts = ",".join(
        f"{what!r}: lambda: {attempt.format(master=str(path), neighbour=str(neighbour))}"
        for what, attempt in FORBIDDEN.items()
    )
    cell = StudentCell(1, f"{TRY_EACH}\nATTEMPTS = {{{attempts}}}", ("became",))
    with Session(server, [cell], LIMITS) as session:
        found = session.outcomes[1].defined["became"]()
    assert path.exists()
    assert neighbour.read_bytes() == b"{}"
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_kernel_refuses_to(became, what):
    assert became[what] == "refused"


def test_what_a_submission_knows_of_hidden_tests_never_comes_out(grade):
    """Neither by the message of an error, nor by keeping it for the next exercise to tell."""
    graded = grade(
        double="""
seen = []

class Seen(Exception):
    pass

def double(x):
    seen.append(x)
    if x == 20250:
        raise type(f"Seen{x}", (Seen,), {})(f"I was asked {x}")
    return 2 * x
""",
        cube="""
def cube(x):
    raise ValueError(f"it was asked {seen}")
""",
    )
    feedback = " ".join(exercise.feedback for exercise in graded["result"].exercises)
    assert graded["double-check"].state == Ending.RAISED
    assert "[3, 4]" in graded["cube-check"].feedback  # what the visible part asked
    for secret in ("20250", "40500", "77", "154", "-1"):
        assert secret not in feedback


def test_a_hidden_test_compares_with_its_tensors_as_it_made_them(monkeypatch, grade):
    test = """
x = torch.tensor([2.0])
assert cube(x) == 8
### BEGIN HIDDEN TESTS
x = torch.tensor([1.0, 3.0])
assert torch.equal(cube(x), x**3)
### END HIDDEN TESTS
"""
    monkeypatch.setitem(a_class.TESTS, "cube", test)
    for cube, state in [
        ("def cube(x):\n    return x**3 if len(x) == 1 else x.zero_()", Ending.FAILED),
        ("def cube(x):\n    x *= x**2\n    return x", Ending.PASSED),
    ]:
        found = grade(cube=cube)["cube-check"]
        assert found.state == state, found


NESTS = """
import os
for level in range(1500):
    os.mkdir("d")
    os.chdir("d")
    open("f", "w").write("x" * 1000)
os.mkdir("locked", 0)
os._exit(0)
"""


def test_nothing_of_a_submission_stays_behind(grade, monkeypatch, tmp_path):
    """Not a tree that is too deep for a path; each cell that is killed leaves its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where no other test grades
    graded = grade(double=NESTS, answer=NESTS)
    assert graded["double-check"].state == graded["answer-check"].state == Ending.ENDED
    assert graded["cube-check"].state == Ending.PASSED
    left = list(tmp_path.glob("submission-*"))
    subprocess.run(["rm", "-rf", *left], check=True)  # too deep for pytest
    assert left == []


def test_where_there_is_no_room_for_a_process_the_next_submission_has_one(tmp_path, master):
    """As after a bomb of threads, where the number of processes is limited."""
    fork, forks = student._fork, []

    def scarce() -> int:
        forks.append(None)
        if len(forks) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    def change() -> None:
        student._fork = scarce

    submitted = a_class.submission(tmp_path, a_class.notebook(a_class.solved()))
    with ForkServer(Here(change)) as server:
        before = set(Path(tempfile.gettempdir()).iterdir())
        assert grade_submission(submitted, Terms(master, LIMITS), server).points == 6
        with pytest.raises(RuntimeError, match=r"no process for the submission: .*unavailable"):
            grade_submission(submitted, Terms(master, LIMITS), server)
        assert set(Path(tempfile.gettempdir()).iterdir()) == before
        assert grade_submission(submitted, Terms(master, LIMITS), server).points == 6


def test_a_fork_is_tried_again(monkeypatch):
    forks = iter([BlockingIOError(), BlockingIOError(), 42])

    def fork():
        if isinstance(found := next(forks), Exception):
            raise found
        return found

    monkeypatch.setattr(os, "fork", fork)
    assert student._fork() == 42


def test_an_enormous_answer_makes_no_enormous_feedback(monkeypatch, grade):
    monkeypatch.setitem(a_class.TESTS, "answer", "assert answer == 42, answer")
    found = grade(answer="answer = 'x' * 10**7")["answer-check"]
    assert found.state == Ending.FAILED
    assert 0 < len(found.feedback) <= 5000


def test_patched_checks_change_nothing_but_the_students_own_screen(server, tmp_path):
    master = masters.load_master(masters.find_master("02-sequences"))
    content = (ROOT / "book" / "exercises" / "02-sequences.ipynb").read_text(encoding="utf-8")
    patched = content.replace(
        "    raise NotImplementedError",
        "    import nbcourse.checks.sheet as s, nbcourse.checks.attempt as a\\n"
        "    s.Sheet.check = a.Attempt.equal = lambda *x, **y: None\\n    return torch.zeros(4)",
    )
    assert patched != content
    submitted = a_class.submission(tmp_path, patched.encode())
    result = grade_submission(submitted, Terms(master, LIMITS), server)
    checked = len(result.exercises) - len(master.written)
    states = [exercise.state for exercise in result.exercises]
    assert states[:checked] == [Ending.RAISED] * checked  # no such module
    assert "No module named 'nbcourse.checks.sheet'" in result.exercises[0].feedback
