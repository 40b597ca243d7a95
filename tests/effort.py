"""How long a test waits, how many examples it tries, and which cases wait for `make test-slow`."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

sweeping = False  # whether this run tries the cases that `make test-slow` is for: conftest sets it

PATIENCE = 300.0  # seconds, before what comes by itself is called hung: no machine is that busy

# The same examples every time, however slow the machine; `make test-slow` tries others, and more.
settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), derandomize=False, max_examples=2000
)
settings.load_profile("quick")


def examples(count: int) -> settings:
    """So many examples of a property, and twenty times as many in `make test-slow`."""
    return settings(max_examples=count * settings().max_examples // 100)


def swept(cases: Iterable[Any], *, keep: Collection[Any]) -> list[Any]:
    """Cases for `parametrize`, all but a few of which are made in `make test-slow` alone.

    Args:
        cases: a value each, or a tuple of values.
        keep: those that every run tries, one of each kind.

    Raises:
        ValueError: if a case to keep is none of them.
    """
    cases = list(cases)
    if missing := [case for case in keep if case not in cases]:
        raise ValueError(f"keep has {missing}, expected some of {cases}")
    if not sweeping:
        return [case for case in cases if case in keep]
    return [
        case
        if case in keep
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.sweep)
        for case in cases
    ]


@contextmanager
def case(named: Any) -> Iterator[None]:
    """One of several cases of a test, which its failure then names.

    An item of pytest costs as much as ten such cases: report, fixtures, another process.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {named}")
        raise
