"""A run in a thread: who may start it, and what Ctrl-C does to a program that waits for it."""

import _thread

import pytest

from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.experiments.background import BackgroundRun
from tests.small import recipe


def test_ctrl_c_while_waiting_stops_the_run_and_keeps_the_step(tmp_path, ctrl_c):
    followed = BackgroundRun(recipe(steps=50), tmp_path / "run")

    def interrupt():
        if followed.step == 2:  # once: a second Ctrl-C does not wait
            followed.listeners.remove(interrupt)
            _thread.interrupt_main()

    followed.listeners.append(interrupt)
    followed.start()
    with pytest.raises(KeyboardInterrupt):
        followed.wait()
    assert followed.state == "stopped"
    assert len(records.read_metrics(tmp_path / "run")) == followed.step < 50


def test_one_run_at_a_time_in_a_folder_wherever_the_program_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = BackgroundRun(recipe(steps=50), "run")
    second = BackgroundRun(recipe(steps=50), tmp_path / "run")
    refused = []

    def look():
        if first.step == 1 and not refused:
            with pytest.raises(UserError, match=r"a run is at work in .* already"):
                second.start()
            refused.append(second.state)
            first.stop()

    first.listeners.append(look)
    first.start()
    first.wait()
    assert refused == ["new"]
