"""How many wrong answers were refused and right ones accepted: `python -m tests.checks.tally`.

Prints a table in Markdown, one row for each exercise. Give numbers of students' variants to choose
whose sheets are tried; without any these are the ones that `test_verdicts` tries.
"""

import contextlib
import io
import sys
from collections.abc import Iterator

from tests.checks import masters, mutated, rewritten
from tests.checks.bench import ACCEPTED, desk

HEAD = "| exercise | wrong, refused | accepted, without effect | right, accepted | refused |"


def row(chapter: str, exercise: str, students: list[int]) -> str:
    """One exercise, all of its students' sheets together."""
    counts = {(kind, passed): 0 for kind in ("wrong", "right") for passed in (True, False)}
    for student in students:
        with contextlib.redirect_stdout(io.StringIO()):
            at = desk(chapter, exercise, student)
            answers = [("wrong", answer) for answer in mutated.all_of(at).values()]
            answers += [
                ("right", answer)
                for form, answer in rewritten.all_of(at).items()
                if rewritten.fits(at, form, answer)
            ]
            for kind, answer in answers:
                counts[kind, at.says(answer) == ACCEPTED] += 1
    order = [("wrong", False), ("wrong", True), ("right", True), ("right", False)]
    cells = [f"{int(chapter[:2])} `{exercise}`", *(f"{counts[key]:,}" for key in order)]
    return f"| {' | '.join(cells)} |"


def table(students: list[int]) -> Iterator[str]:
    """Its lines."""
    yield HEAD
    yield "|---|--:|--:|--:|--:|"
    for chapter, exercise in masters.EVERY_EXERCISE:
        yield row(chapter, exercise, students)


if __name__ == "__main__":
    for line in table([int(number) for number in sys.argv[1:]] or [0, 290]):
        print(line, flush=True)
