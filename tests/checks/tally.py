"""How many wrong answers are refused and right ones accepted, by the grader and in a bundle.

    python -m tests.checks.tally book/runs/exercise-verdicts 0 290 1 2 3

tries every exercise with the sheets of the students of these numbers, and records a line of counts
for each exercise and student in the folder. What is there already is not tried again, and keeps the
environment in which it was tried. The table of appendix D is made from there
(`tests.guide_tables`).
"""

import contextlib
import functools
import io
import json
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from nbcourse.checks import Sheet, worked
from nbcourse.checks.attempt import NotRight
from nbcourse.checks.sheet import Exercise
from nbcourse.classroom import masters as classroom_masters
from nbcourse.classroom import worked_cases
from nbcourse.experiments import records
from nbcourse.progress import track
from nbcourse.publishing.chapters import ROOT
from tests.checks import equivalent, masters, mutated, rewritten
from tests.checks.bench import ACCEPTED, PATIENCE, Desk, at_most
from tests.checks.remembered import helpers

Answers = dict[str, Callable[..., Any] | str]


def accepted(at: Desk, answers: Answers) -> list[str]:
    """The wrong ones that pass, less those that are right in truth."""
    return [
        change
        for change, answer in answers.items()
        if at.says(answer) == ACCEPTED and _is_mistake(at, change, answer)
    ]


def _is_mistake(at: Desk, change: str, answer: Callable[..., Any] | str) -> bool:
    known = change.startswith("code") and at.calls[0].arguments
    return bool(known or at.departs(answer)) and not equivalent.reason(at, change, answer)


def refused(at: Desk, answers: Answers) -> dict[str, str]:
    """The right ones that do not pass, with what was said."""
    says = {form: at.says(answer) for form, answer in answers.items()}
    return {
        form: said
        for form, said in says.items()
        if said != ACCEPTED and rewritten.fits(at, form, answers[form])
    }


@functools.lru_cache(maxsize=16)
def _travelling(chapter: str, variant: int, rounds: int) -> dict[str, Exercise]:
    """The exercises of a sheet as they are in a bundle, sealed with so many rounds of hashing."""
    path = ROOT / "solutions" / f"{chapter}.ipynb"
    names: dict[str, Any] = {}
    exec(worked_cases.module(classroom_masters.load_master(path), variant), names)
    names |= helpers(names)
    return names["EXERCISES"]


def released(chapter: str, variant: int) -> Sheet:
    """The sheet as it is in a bundle."""
    sheet = Sheet(chapter, variant=variant)
    sheet.exercises = _travelling(chapter, variant, worked.ROUNDS)
    return sheet


def refused_in_a_bundle(at: Desk, answers: Collection[Callable[..., Any] | str]) -> int:
    """How many of these answers a student's own copy of the check refuses."""
    sheet, count = released(at.chapter, at.variant), 0
    for answer in answers:
        try:
            with at_most(PATIENCE):
                function = at.written(answer)[at.name] if isinstance(answer, str) else answer
                sheet.check(at.exercise, function)
        except (NotRight, TimeoutError):
            count += 1
    return count


@contextlib.contextmanager
def at_small_cost(chapter: str, exercise: str) -> Iterator[None]:
    """Seal with one round of hashing, and work out once what a check expects.

    No verdict depends on what a guess at a sealed value costs.
    """
    names = Sheet(chapter).exercises[exercise].check.__globals__
    with mock.patch.object(worked, "ROUNDS", 1), mock.patch.dict(names, helpers(names)):
        yield


def counts(chapter: str, exercise: str, student: int) -> dict[str, int]:
    """What is said to all known answers to one exercise of one student.

    Returns:
        "wrong" and "right" answers, and of these how many are refused, by the grader and
        ("… in a bundle") by the student's own copy; "right in truth" are changes without effect.
    """
    with contextlib.redirect_stdout(io.StringIO()), at_small_cost(chapter, exercise):
        at = Desk(chapter, exercise, student)
        changed, forms = mutated.all_of(at), rewritten.all_of(at)
        passed = {change: a for change, a in changed.items() if at.says(a) == ACCEPTED}
        missed = [change for change, a in passed.items() if _is_mistake(at, change, a)]
        wrong = [a for change, a in changed.items() if change not in passed or change in missed]
        right = {form: a for form, a in forms.items() if rewritten.fits(at, form, a)}
        return {
            "wrong": len(wrong),
            "wrong refused": len(wrong) - len(missed),
            "wrong refused in a bundle": refused_in_a_bundle(at, wrong),
            "right in truth": len(changed) - len(wrong),
            "right": len(right),
            "right refused": len(refused(at, right)),
            "right refused in a bundle": refused_in_a_bundle(at, right.values()),
        }


def record(folder: Path, students: list[int]) -> None:
    """Add the counts of these students to those in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / records.RESULTS).touch()
    found = records.read_results(folder)
    known = {(each["chapter"], each["exercise"], each["student"]) for each in found}
    command = " ".join(["python -m tests.checks.tally", str(folder), *map(str, students)])
    places = [(*place, student) for student in students for place in masters.EVERY_EXERCISE]
    todo = [place for place in places if place not in known]
    environment = records.environment(1) | {"command": command}
    if (folder / records.ENVIRONMENT).exists():
        sheets = sorted({chapter for chapter, *_ in todo})
        first = records.read_json(folder / records.ENVIRONMENT)
        added = [*first.get("added", []), environment | {"sheets": sheets}]
        environment = first | {"added": added}
    records.write_json(folder / records.ENVIRONMENT, environment)
    with track(todo, "exercises", total=len(todo)) as tried:
        for chapter, exercise, student in tried:
            line = {"chapter": chapter, "exercise": exercise, "student": student}
            line |= counts(chapter, exercise, student)
            with (folder / records.RESULTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]), [int(number) for number in sys.argv[2:]])
