"""A stand-in for `nbcourse.checks` in the process of a student's code: numbers, and no checks.

A check knows the right answer, so there must be none in that process: the numbers of the exercises'
statements come from the grader, and nothing else of the package can be imported.
"""

import sys
from types import ModuleType
from typing import Any

import nbcourse


def install(chapter: str, variant: int, numbers: dict[str, Any]) -> None:
    """Put a `nbcourse.checks` in place that knows these numbers, and hide the rest of `nbcourse`.

    Args:
        chapter: which sheet there is, such as "02-sequences"; empty if there is none.
        variant: which numbers the student got.
        numbers: exercise → the numbers of its statement.
    """

    class Sheet:
        """The exercises of one chapter: their numbers. Checks are made elsewhere."""

        def __init__(self, asked: str, *, variant: int = 0) -> None:
            if asked != chapter:
                raise ValueError(f"chapter is {asked!r}, expected the sheet's own, {chapter!r}")
            self.chapter, self.variant = chapter, variant

        def numbers(self, exercise: str) -> Any:
            if self.variant != variant:
                raise ValueError(
                    f"variant is {self.variant}, and you are graded by variant {variant}"
                )
            if exercise not in numbers:
                raise ValueError(f"exercise {exercise!r} has no numbers of its own")
            return numbers[exercise]

        def check(self, exercise: str, answer: Any) -> None:
            """Say nothing: what the answer is worth is found out by the grader."""

    checks = ModuleType("nbcourse.checks")
    checks.__dict__["Sheet"] = Sheet
    sys.modules["nbcourse.checks"] = checks
    nbcourse.__dict__["checks"] = checks
    nbcourse.__path__ = []
