"""The first signal is noted, the second one interrupts, and all is as before afterwards."""

import signal
import threading

import pytest

from nbcourse.experiments import stopping

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers(ctrl_c):
    before = [signal.getsignal(number) for number in BOTH]
    yield before
    assert [signal.getsignal(number) for number in BOTH] == before


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_the_first_signal_is_noted_and_the_second_interrupts(monkeypatch, capsys, first, second):
    with stopping.after_this_step() as asked:
        assert not asked()
        signal.raise_signal(first)
        assert asked()
        assert "once more to stop at once" in capsys.readouterr().err
        signal.raise_signal(second)  # within a second: torchrun passes on what came before
        monkeypatch.setattr(stopping, "REPEATED", -1.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)


def test_what_is_ignored_stays_ignored(handlers):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stopping.after_this_step() as asked:
        signal.raise_signal(signal.SIGINT)
        assert not asked()
    signal.signal(signal.SIGINT, handlers[0])


def test_another_thread_is_asked_nothing(handlers):
    found = []

    def work():
        with stopping.after_this_step() as asked:
            found.extend([asked(), [signal.getsignal(number) for number in BOTH]])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, handlers]


def test_another_reason_to_stop_is_asked_for():
    wanted = []
    with stopping.after_this_step(lambda: bool(wanted)) as asked:
        assert not asked()
        wanted.append(True)
        assert asked()


def test_time_is_counted_in_minutes_from_the_call(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(stopping, "monotonic", lambda: now[0])
    over = stopping.after_minutes(2.5)
    now[0] += 149
    assert not over()
    now[0] += 1
    assert over()


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_no_time_at_all_is_refused(minutes):
    with pytest.raises(ValueError, match="expected a number above 0"):
        stopping.after_minutes(minutes)
