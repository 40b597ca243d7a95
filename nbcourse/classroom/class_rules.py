"""The rules of a class, in TOML: deadlines, what lateness costs, where points are shared.

    partial_credit = ["02-sequences", "kl-budget"]    # sheets and exercises, or true for all

    [deadlines]
    "02-sequences" = 2027-03-12 23:59:00              # by the clock of the submission times

    [late]
    free_days = 2       # of each sheet; a day that has begun is a day
    per_day = 10        # per cent of the points reached, for each further day
    closes_after = 7    # days; what is handed in later gets no points

Times of submission are those that the class list has: the column `Last modified (submission)` of
Moodle's grading worksheet, or `submitted` of a list of one's own, as in `2027-03-13 08:30`. Without
a deadline, or without a time, nothing is taken off.
"""

import math
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from nbcourse.classroom.gradebook import number
from nbcourse.classroom.masters import Master, Test
from nbcourse.classroom.results import SubmissionResult
from nbcourse.errors import NotFound, UserError, did_you_mean

KEYS = ("partial_credit", "deadlines", "late")
MOODLE = "%A, %d %B %Y, %I:%M %p"  # of its worksheet, in English: strftimedaydatetime


@dataclass(frozen=True)
class LatePolicy:
    """What lateness costs.

    Args:
        free_days: days of each sheet that cost nothing.
        per_day: per cent of the points reached, for each further day.
        closes_after: days after which a submission gets no points; None if there is no such day.
    """

    free_days: float = 0.0
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
            and (
                shared
                if isinstance(shared, bool)
                else {master.assignment, step.grade_id.removesuffix("-check")} & set(shared)
            )
        )

    def applied(self, result: SubmissionResult, submitted: str) -> SubmissionResult:
        """A result with its penalty, and the words that say how it comes about.

        Args:
            result: with all points that are known.
            submitted: when, as the class list has it; empty if it does not say.

        Raises:
            UserError: if the time cannot be compared with the deadline.
        """
        due = self.deadlines.get(result.assignment)
        if due is None:
            return result
        if submitted in ("", "-"):
            told = "The platform says late, and not by how much: nothing was taken off."
            return replace(result, notes=(*result.notes, told)) if result.late else result
        after = self._after(submitted, due)
        if after <= timedelta(0):
            return result
        days, policy = math.ceil(after / timedelta(days=1)), self.late
        charged = max(0.0, days - policy.free_days)
        share = min(100.0, policy.per_day * charged)
        how = f"{policy.free_days:g} free, {policy.per_day:g} % for each of {charged:g}"
        if policy.closes_after is not None and days > policy.closes_after:
            share, how = 100.0, f"closed after {policy.closes_after:g}"
        penalty = round(result.points * share / 100, 2)
        told = (
            f"Late by {days} {'day' if days == 1 else 'days'} ({how}): "
            f"{number(result.points)} − {number(penalty)} = {number(result.points - penalty)}."
        )
        return replace(result, late=True, penalty=penalty, notes=(*result.notes, told))

    def _after(self, submitted: str, due: datetime) -> timedelta:
        for read in (datetime.fromisoformat, lambda text: datetime.strptime(text, MOODLE)):
            try:
                return read(submitted) - due
            except ValueError:
                continue
            except TypeError:
                raise UserError(
                    f"the deadline {due} in {self.file} and the time {submitted!r} in the class "
                    "list must both have a time zone, or neither"
                ) from None
        raise UserError(
            f"the class list has the submission time {submitted!r}, expected one such as "
            "'2027-03-13 08:30', or Moodle's in English"
        )


def read_rules(path: Path, sheets: Collection[str] | None) -> Rules:
    """Read the rules of a class.

    Args:
        path: a TOML file.
        sheets: the names of all sheets, such as "02-sequences"; None where not all are there.

    Raises:
        UserError: if there is none, it is no TOML, or it has a key or a value that means nothing.
    """
    if not path.exists():
        raise NotFound(f"there is no file of rules {path}")
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is no TOML: {error}") from None
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
    late = _table(given, "late", path.name)
    _known(late, LatePolicy.__dataclass_fields__, f"{path.name}, [late]")
    for key, value in late.items():
        most = 100 if key == "per_day" else 1000
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise UserError(f"{path.name}: {key} is {value!r}, expected a number from 0 to {most}")
    return Rules(
        path.name,
        shared if isinstance(shared, bool) else tuple(shared),
        deadlines,
        LatePolicy(**late),
    )


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
