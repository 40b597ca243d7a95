"""What a phase took: its seconds, and the memory that it needed and no other did."""

import subprocess
import sys
from time import sleep

import pytest
import torch

from nbcourse.training.clock import Clock, peak_memory, resident

MEGABYTES = 1_000_000
SIZE = 400 * MEGABYTES
ON_LINUX = pytest.mark.skipif(
    not sys.platform.startswith("linux") or torch.cuda.is_available(),
    reason="only Linux forgets a peak, and a GPU counts its own memory",
)


def test_a_phase_takes_what_happens_in_it():
    clock = Clock()
    with clock("short"):
        pass
    with clock("long"):
        sleep(0.05)
    assert clock.seconds["short"] < 0.05 <= clock.seconds["long"]
    assert list(clock.report()) == ["seconds_short", "seconds_long", "memory_short", "memory_long"]


def test_a_phase_that_comes_twice_or_within_another(monkeypatch):
    passed = [0.0]
    monkeypatch.setattr("nbcourse.training.clock.perf_counter", lambda: passed[0])
    clock = Clock()
    for _ in range(2):
        with clock("outer"):
            passed[0] += 1.0
            with clock("inner"):
                passed[0] += 10.0
            passed[0] += 100.0
    assert clock.seconds == {"outer": 202.0, "inner": 20.0}
    with clock("after"):  # the time between phases is counted in none
        passed[0] += 3.0
    passed[0] += 1000.0
    with clock("after"):
        passed[0] += 4.0
    assert clock.seconds["after"] == 7.0


IN_A_PROCESS = """
import torch
from nbcourse.training.clock import Clock, peak_memory, resident
clock = Clock()
with clock("nothing"):
    pass
print(clock.memory["nothing"], peak_memory(), resident())
with clock("large"):
    blocks = [torch.ones(16_000) for _ in range(4_000)]  # 64 kB each, taken from the heap
    last = torch.ones(16_000)  # while it stays, the heap does not shrink by itself
    del blocks
with clock("small"):
    pass
print(clock.memory["large"], clock.memory["small"])
"""


@pytest.fixture(scope="module")
def told():
    """By a process that was started from one that held a lot: the lines that it prints."""
    held = bytearray(SIZE)
    command = [sys.executable, "-c", IN_A_PROCESS]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    del held
    return [[*map(int, line.split())] for line in said.splitlines()]


@ON_LINUX
def test_memory_is_that_of_this_process_and_not_of_the_one_that_started_it(told):
    phase, peak, now = told[0]
    assert phase == pytest.approx(now, abs=50 * MEGABYTES)
    assert peak == pytest.approx(now, abs=50 * MEGABYTES)


@ON_LINUX
def test_a_phase_answers_for_its_own_memory_and_the_process_for_all():
    """What is mapped and touched is held; what was unmapped before counts no more."""
    clock = Clock()
    with clock("large"):
        block = bytearray(SIZE)
    del block
    with clock("small"):
        before = resident()
    assert clock.memory["large"] - clock.memory["small"] == pytest.approx(SIZE, rel=0.1)
    assert clock.memory["small"] == pytest.approx(before, abs=5 * MEGABYTES)
    assert peak_memory() >= clock.memory["large"]
    with clock("small again"):
        pass
    assert peak_memory() >= clock.memory["large"]  # however often a peak was forgotten since


@ON_LINUX
def test_a_phase_does_not_answer_for_blocks_that_an_earlier_one_gave_back(told):
    """The C library keeps them for later; 4,000 blocks of 64 kB are 256 MB."""
    large, small = told[1]
    assert large - small == pytest.approx(256 * MEGABYTES, rel=0.1)
