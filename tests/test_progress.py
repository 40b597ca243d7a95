"""Bars for long work."""

import io
import sys

from nbcourse.progress import track


def test_every_step_comes_by_and_nothing_stays_where_nobody_watches(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert list(track(range(4), "sums")) == [0, 1, 2, 3]
    drawn = sys.stdout.getvalue()
    assert "sums" in drawn
    assert drawn.endswith("\r")  # wiped, so that a notebook stores no times


def test_an_invisible_bar_writes_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert list(track(iter("ab"), "letters", visible=False, total=2)) == ["a", "b"]
    assert sys.stdout.getvalue() == ""


def test_the_bar_counts_what_was_done_before(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    bar = track(range(6, 10), "steps", total=10, done=6)
    bar.refresh()
    assert "6/10" in sys.stdout.getvalue()
    bar.close()
