"""What one submission may use, where the kernel limits it and where the grader has to watch.

`SERVERS` are: with a control group and a root of its own in a user namespace, as far as this
machine has them; without the group; and without either.
"""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from nbcourse.classroom import feedback
from nbcourse.classroom.grading import grade_submission
from nbcourse.classroom.results import Terms
from nbcourse.confined import cgroups, namespaces
from nbcourse.confined.forkserver import ForkServer
from nbcourse.confined.remote import Session, StudentCell
from nbcourse.confined.submission_errors import Ending
from tests.classroom import a_class
from tests.classroom.conftest import LIMITS, running_submissions
from tests.classroom.test_hostile_submissions import NESTS, ROOT
from tests.effort import swept
from tests.zygotes import Here

SERVERS = ("in a group", "of its own", "watched")
THREAD_BOMB = """
import threading, time
threading.stack_size(2**16)

def double(x):
    for _ in range(3000):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    time.sleep(600)
"""
FORK_BOMB = """
import os, time
refused = 0
for _ in range(50):
    try:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
    except OSError:
        refused += 1
assert refused == 50

def double(x):
    return 2 * x
"""


@pytest.fixture(scope="module")
def without_namespace(server):
    """A fork server like the other one, but that its submissions get no root of their own."""

    def refuse() -> None:
        namespaces.enter = lambda *given: False

    with ForkServer(Here(refuse)) as watched:
        yield watched


@pytest.fixture(params=SERVERS, scope="module")
def bounded(request, server):
    """A fork server whose submissions have a group and a root of their own, or have not."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != SERVERS[0]:
            patch.setattr(cgroups, "place", lambda: None)
        watched = request.param == SERVERS[-1]
        yield request.getfixturevalue("without_namespace") if watched else server


@pytest.fixture
def graded(bounded, master, tmp_path):
    def grade(limits=LIMITS, **answers: str):
        content = a_class.notebook(a_class.solved(**answers))
        result = grade_submission(
            a_class.submission(tmp_path, content), Terms(master, limits), bounded
        )
        assert not running_submissions()
        return result

    return grade


BOMBS = {
    # by the kernel, where it limits threads: "can't start new thread"
    "threads": (THREAD_BOMB, (Ending.TOO_MANY, Ending.RAISED)),
    "forks": (FORK_BOMB, (Ending.PASSED,)),
    "nests": (NESTS, (Ending.ENDED,)),
}
# A fork is refused by the same filter everywhere.
THROWN = swept(
    [(server, bomb) for server in SERVERS for bomb in BOMBS],
    keep=[(server, bomb) for server in SERVERS for bomb in ("threads", "nests")]
    + [("watched", "forks")],
)
KEPT = swept(SERVERS, keep=[SERVERS[0], SERVERS[-1]])  # between them: with less of the kernel


@pytest.mark.parametrize(("bounded", "name"), THROWN, indirect=["bounded"])
def test_a_bomb_costs_its_own_exercise_and_the_next_submission_nothing(
    graded, monkeypatch, tmp_path, name
):
    bomb, states = BOMBS[name]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = graded(double=bomb)
    assert found.exercises[0].state in states, found.exercises[0].feedback
    assert [e.state for e in found.exercises[1:]] == [Ending.PASSED] * 2
    assert list(tmp_path.glob("submission-*")) == []
    assert graded().points == 6


@pytest.mark.parametrize("bounded", KEPT, indirect=True)
def test_ten_cells_that_are_killed_share_one_allowance(bounded, monkeypatch, tmp_path):
    """Each is run once; processor time counts over all processes; at the end nothing is there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    burn = (
        "import os, time\nwhile time.process_time() < {}: pass\nopen('f', 'w').write('x' * 10**6)"
    )
    cells = [StudentCell(n, burn.format(0.06) + "\nos._exit(0)") for n in range(10)]
    last = StudentCell(10, "def double(x):\n    return 2 * x", functions=("double",))
    with Session(bounded, [*cells, last], LIMITS) as session:
        states = [session.outcomes[n].error.state for n in range(10)]
        assert states == [Ending.ENDED] * 10
        assert session.outcomes[10].defined["double"](4) == 8
        assert session._computed > 10 * 0.03
        assert len(list(tmp_path.glob("submission-*"))) == 1
    assert list(tmp_path.glob("submission-*")) == []


@pytest.mark.parametrize("bounded", KEPT, indirect=True)
def test_processor_time_that_is_used_up_is_not_given_again(bounded):
    limits = replace(LIMITS, total=1.0)
    spins = StudentCell(1, "import time\nwhile True: pass")
    with Session(bounded, [spins, StudentCell(2, "x = 1", values=("x",))], limits) as session:
        assert session.outcomes[1].error.state == Ending.OUT_OF_TIME
        assert 2 not in session.outcomes or session.outcomes[2].error is not None
        assert session._left <= 0.5


def test_what_a_submission_can_ask_after_is_what_it_may_read(graded, request):
    hidden = [str(ROOT / "solutions"), str(ROOT / "README.md"), "/etc/passwd", "/proc"]
    asks = f"""
import os

def double(x):
    found = [path for path in {hidden!r} if os.path.exists(path)]
    assert not found, found
    return 2 * x
"""
    found = graded(double=asks)
    alone = not any("no user namespace" in words for words in found.watched)
    assert (found.exercises[0].state == Ending.PASSED) == alone
    if request.node.callspec.params["bounded"] == "watched":
        assert not alone


def test_the_page_of_the_class_names_what_was_only_watched(graded, tmp_path):
    result = graded()
    submission = a_class.submission(tmp_path, b"{}")
    page = feedback.class_page([(submission, result)], [])
    assert ("What this machine's kernel did not limit" in page) == bool(result.watched)
    assert all(words in page for words in result.watched)


def test_a_root_that_cannot_be_filled_stops_the_process(tmp_path):
    """Half done, the rest of the machine would lie in the folder that may be written to."""
    code = f"""
import sys
from pathlib import Path
from nbcourse.confined import namespaces
try:
    print(namespaces.enter(Path({str(tmp_path)!r}), 2**20, [Path("/no/such/file")]))
except OSError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the kernel refuses mounting" in ran.stdout or ran.stdout == "False\n"
    assert list(Path(tmp_path).iterdir()) == []
