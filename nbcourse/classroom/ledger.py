"""How a grade is computed: every reason for points is an entry of a ledger; a grade is their sum.

Whatever gives points or takes them off adds an entry, and nothing else changes a grade: a test that
is passed or not (`grading`), cases that are right (`grading`, by `partial_credit`), criteria that a
person marks (`marks`), days that a submission is late (`class_rules`). The instructor's page shows
the entries of each student.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LedgerEntry:
    """Points, and why.

    Args:
        reason: in words, such as "passed", or "2 of 3 cases are right".
        points: that are given; below 0 if they are taken off.
    """

    reason: str
    points: float


Ledger = tuple[LedgerEntry, ...]


def total(ledger: Iterable[LedgerEntry]) -> float:
    """The sum of the points, in order."""
    return sum((entry.points for entry in ledger), 0.0)
