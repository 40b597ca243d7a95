"""The rules of a class, in TOML: deadlines, penalties for lateness, partial credit.

    partial_credit = ["02-sequences", "kl-budget"]    # sheets and exercises, or true for all

    [deadlines]
    "02-sequences" = 2027-03-12 23:59:00              # by the clock of the submission times

    [late]
    free_days = 1       # of each sheet; a day that has begun is a day
    term_days = 4       # shared by all sheets with a deadline, spent in the order of the deadlines
    per_day = 10        # per cent of the points reached, for each further day
    closes_after = 7    # days; what is handed in later gets no points

Times of submission are those that the class list has: the column `Last modified (submission)` of
Moodle's grading worksheet, or `submitted` of a list of one's own, as in `2027-03-13 08:30`. Without
a deadline, or without a time, nothing is taken off.

How many of a term's late days a sheet uses is computed each time from the deadlines and from when
the student handed in which sheet (`late_days` keeps those times), so no day can be charged twice.
"""

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nbcourse.classroom import masters, times
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.masters import Master, Test
from nbcourse.classroom.results import SubmissionResult
from nbcourse.classroom.tables import written
from nbcourse.errors import NotFound, UserError, did_you_mean

KEYS = ("partial_credit", "deadlines", "late")


@dataclass(frozen=True)
class LatePolicy:
    """What lateness costs.

    Args:
        free_days: days of each sheet that cost nothing.
        term_days: further days that cost nothing, shared by all sheets with a deadline.
        per_day: per cent of the points reached, for each further day.
        closes_after: days after which a submission gets no points; None if there is no such day.
    """

    free_days: float = 0.0
    term_days: float = 0.0
    per_day: float = 0.0
    closes_after: float | None = None


@dataclass(frozen=True)
class Rules:
    """The rules of a class.

    Args:
        file: where they are from.
        partial_credit: sheets and exercises whose points are given in proportion; True means all.
        deadlines: sheet → when it was due.
        late: what lateness costs.
    """

    file: str = ""
    partial_credit: bool | Collection[str] = False
    deadlines: Mapping[str, datetime] = field(default_factory=dict)
    late: LatePolicy = field(default_factory=LatePolicy)

    def partial(self, master: Master) -> frozenset[str]:
        """The tests of a sheet whose points are given in proportion."""
        shared = self.partial_credit
        return frozenset(
            step.grade_id
            for step in master.steps
            if isinstance(step, Test)
            and (shared if isinstance(shared, bool) else _names(master, step) & set(shared))
        )

    def applied(
        self, result: SubmissionResult, submitted: str, others: Mapping[str, str] | None = None
    ) -> SubmissionResult:
        """A result with what lateness costs, and a note that says how it was computed.

        Args:
            result: with all points that are known.
            submitted: when, as the class list has it; empty if it does not say.
            others: when the student handed in other sheets: sheet → time.

        Raises:
            UserError: if a time cannot be compared with its deadline.
        """
        sheet = result.assignment
        if sheet not in self.deadlines:
            return result
        if submitted in ("", "-"):
            told = "The platform says late, but not by how much: nothing was deducted."
            return replace(result, notes=(*result.notes, told)) if result.late else result
        days, policy = self.days_late(sheet, submitted), self.late
        if not days:
            return result
        spent = self.spent({**(others or {}), sheet: submitted})
        charged = max(0.0, days - policy.free_days - spent[sheet])
        share = min(100.0, policy.per_day * charged)
        of_the_term = f"{spent[sheet]:g} of the term's, " if policy.term_days else ""
        how = (
            f"{policy.free_days:g} free, {of_the_term}{policy.per_day:g} % for each of {charged:g}"
        )
        if self._closed(days):
            share, how = 100.0, f"closed after {policy.closes_after:g}"
        penalty = min(result.points, round(result.points * share / 100, 2))  # never below 0
        told = (
            f"Late by {days} {'day' if days == 1 else 'days'} ({how}): "
            f"{written(result.points)} − {written(penalty)} = {written(result.points - penalty)}."
        )
        if policy.term_days:
            left = policy.term_days - sum(spent.values())
            told += f" Of the term's {policy.term_days:g} late days {left:g} are left."
        entry = LedgerEntry(f"late by {days} {'day' if days == 1 else 'days'} ({how})", -penalty)
        return replace(
            result,
            late=True,
            adjustments=(*result.adjustments, entry),
            notes=(*result.notes, told),
        )

    def spent(self, times: Mapping[str, str]) -> dict[str, float]:
        """How many of the term's late days each sheet uses, in the order of their deadlines.

        A sheet that was handed in after it had closed uses none.

        Args:
            times: sheet → when one student handed it in.

        Raises:
            UserError: if a time cannot be compared with its deadline.
        """
        due = self.deadlines
        left, found = self.late.term_days, {}
        for sheet in sorted(times.keys() & due.keys(), key=lambda name: (due[name], name)):
            days = self.days_late(sheet, times[sheet])
            needed = 0.0 if self._closed(days) else max(0.0, days - self.late.free_days)
            found[sheet] = min(left, needed)
            left -= found[sheet]
        return found

    def days_late(self, sheet: str, submitted: str) -> int:
        """Days after the deadline of a sheet that has one, rounded up; 0 if it was in time.

        Raises:
            UserError: if the time cannot be compared with the deadline.
        """
        due = self.deadlines[sheet]
        if (when := times.read(submitted)) is None:
            raise UserError(
                f"the class list has the submission time {submitted!r}, expected one such as "
                "'2027-03-13 08:30', or as Moodle writes it"
            )
        try:
            after = when - due
        except TypeError:
            raise UserError(
                f"the deadline {due} in {self.file} and the time {submitted!r} in the class "
                "list must both have a time zone, or neither"
            ) from None
        return max(0, math.ceil(after / timedelta(days=1)))

    def _closed(self, days: int) -> bool:
        return self.late.closes_after is not None and days > self.late.closes_after


def read_rules(path: Path, sheets: Collection[str] | None) -> Rules:
    """Read the rules of a class.

    Args:
        path: a TOML file.
        sheets: the names of all sheets, such as "02-sequences"; None where not all are there.

    Raises:
        UserError: if there is none, it is not TOML, or it has an unknown key or a wrong value.
    """
    if not path.exists():
        raise NotFound(f"there is no file of rules {path}")
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is not valid TOML: {error}") from None
    _known(given, KEYS, path.name)
    shared = given.get("partial_credit", False)
    if not isinstance(shared, bool) and not (
        isinstance(shared, list) and all(isinstance(name, str) for name in shared)
    ):
        raise UserError(
            f"{path.name}: partial_credit is {shared!r}, expected true, false or a list of names"
        )
    deadlines = _table(given, "deadlines", path.name)
    _known(deadlines, deadlines if sheets is None else sheets, f"{path.name}, [deadlines]")
    for sheet, due in deadlines.items():
        if not isinstance(due, datetime):
            raise UserError(
                f"{path.name}: the deadline of {sheet} is {due!r}, expected a day and a time, "
                "as in 2027-03-12 23:59:00"
            )
    if len({due.tzinfo is None for due in deadlines.values()}) > 1:
        raise UserError(f"{path.name}: the deadlines must all have a time zone, or none")
    late = _table(given, "late", path.name)
    _known(late, LatePolicy.__dataclass_fields__, f"{path.name}, [late]")
    for key, value in late.items():
        most = 100 if key == "per_day" else 1000
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise UserError(f"{path.name}: {key} is {value!r}, expected a number from 0 to {most}")
        if key == "closes_after" and value != int(value):
            raise UserError(
                f"{path.name}: closes_after is {value!r}, expected a whole number: a day that has "
                "begun counts as a day"
            )
    return Rules(
        path.name,
        shared if isinstance(shared, bool) else tuple(shared),
        deadlines,
        LatePolicy(**late),
    )


def read_for_book(path: Path) -> Rules:
    """Read the rules of a class whose sheets are those of this book.

    Raises:
        UserError: as `read_rules` and `check_names`.
    """
    sheets = masters.sheets()
    rules = read_rules(path, [sheet.stem for sheet in sheets])
    check_names(rules, map(masters.load_master, sheets))
    return rules


def check_names(rules: Rules, sheets: Iterable[Master]) -> None:
    """Make sure that partial credit is for sheets and exercises that exist.

    Raises:
        UserError: if a name is none of them.
    """
    if isinstance(rules.partial_credit, bool):
        return
    known: set[str] = set()
    for sheet in sheets:
        known.update(*(_names(sheet, step) for step in sheet.steps if isinstance(step, Test)))
    for name in rules.partial_credit:
        if name not in known:
            raise UserError(
                f"{rules.file}: partial_credit has {name!r}, which names no sheet or exercise with "
                f"a check{did_you_mean(name, sorted(known))}"
            )


def _names(master: Master, step: Test) -> set[str]:
    """By what a test is named where points are given in proportion: its sheet and itself."""
    return {master.assignment, step.grade_id.removesuffix("-check")}


def _table(given: Mapping[str, Any], name: str, file: str) -> dict[str, Any]:
    if not isinstance(table := given.get(name, {}), dict):
        raise UserError(f"{file}: {name} is {table!r}, expected a table [{name}]")
    return table


def _known(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise UserError(
                f"{where}: there is no {key!r}{did_you_mean(key, known)} "
                f"(expected: {', '.join(known)})"
            )
