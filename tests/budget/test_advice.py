"""What a run would be slow at on this machine, and when that is worth a line."""

import pytest

from nbcourse.budget import advice, machines
from tests.small import base_recipe, recipe


def slow(monkeypatch, made, *, gpu=True, best="bfloat16", times=1.0, **options):
    """What is said on a machine with or without a card, which is so many times slower."""
    monkeypatch.setattr(machines, "has_gpu", lambda: gpu)
    monkeypatch.setattr(machines, "best_precision", lambda: best)
    monkeypatch.setattr(machines, "slower_than_float32", lambda precision: times)
    return advice.slow(made, **options)


@pytest.mark.parametrize(("times", "warned"), [(1.49, False), (1.5, True)])
def test_a_processor_that_is_slow_in_the_precision(monkeypatch, times, warned):
    made = recipe("rloo", model={"precision": "bfloat16"})
    said = slow(monkeypatch, made, gpu=False, times=times)
    expected = "this processor multiplies bfloat16 1.5 times slower than float32"
    assert [line.startswith(expected) for line in said] == [True] * warned
    assert slow(monkeypatch, recipe("rloo"), gpu=False, times=9.0) == []


@pytest.mark.parametrize(("best", "count"), [("bfloat16", 0), ("float16", 1)])
def test_a_card_without_the_precision(monkeypatch, best, count):
    made = recipe("rloo", model={"precision": "bfloat16"}, rollouts={"engine": "static"})
    assert len(slow(monkeypatch, made, best=best)) == count


def test_a_card_that_waits_while_sampling(monkeypatch):
    assert "rollouts.engine=static-graphs" in slow(monkeypatch, recipe("rloo"))[0]
    assert slow(monkeypatch, recipe("rloo"), sampling=False) == []
    assert slow(monkeypatch, recipe("rloo"), gpu=False) == []
    assert slow(monkeypatch, recipe("rloo", rollouts={"engine": "static"})) == []
    assert slow(monkeypatch, recipe("rloo", model={"lora_rank": 2})) == []
    assert slow(monkeypatch, base_recipe()) == []
