"""A sheet of exercises: one chapter's checks, and the numbers that differ between students."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from typing import Any, Literal

import torch

from nbcourse.checks.attempt import Attempt, NotRight

Numbers = dict[str, Any]


@dataclass(frozen=True)
class Exercise:
    """What is known about an exercise besides its text.

    Args:
        section: heading in the chapter where the matter is explained.
        check: raises `NotRight` where an answer is wrong. Random cases come from the generator,
            which depends on the variant.
        numbers: generator → the numbers of the statement, where they differ between variants. The
            check gets a generator in the same state and can ask for the same numbers.
        travels: how a bundle holds the check, which must not hold the answer. As "cases", with
            their values; "results" takes whole results for the cases where the check itself
            compares none; "sealed" shows no value, for answers that are one word of few; "code" is
            the check itself, where it tests a property and knows no answer.
        elsewhere: why the page of the site cannot check it, but a notebook can, in a sentence;
            empty if it can.
    """

    section: str
    check: Callable[[Attempt, torch.Generator], None]
    numbers: Callable[[torch.Generator], Numbers] | None = None
    travels: Literal["cases", "results", "sealed", "code"] = "cases"
    elsewhere: str = ""


class Exercises(dict):
    """Name → `Exercise` of one chapter, in the order of the sheet."""

    def add(self, section: str, **more: Any) -> Callable[..., Any]:
        """Make the function below a check, and its name that of the exercise.

        Args:
            section: as in `Exercise`, and so are all others.
        """

        def added(check: Callable[..., None]) -> Callable[..., None]:
            self[check.__name__.replace("_", "-")] = Exercise(section, check, **more)
            return check

        return added


class Sheet:
    """The exercises of one chapter, for one student.

    Args:
        chapter: name of the notebook, such as "02-sequences".
        variant: which numbers and cases; a class may give each student another one.

    Attributes:
        attempt: how an answer is called and compared.

    Raises:
        ValueError: if the chapter has no exercises or the variant is no number ≥ 0.
    """

    attempt = Attempt

    def __init__(self, chapter: str, *, variant: int = 0) -> None:
        if isinstance(variant, bool) or not isinstance(variant, int) or variant < 0:
            raise ValueError(f"variant is {variant!r}, expected a whole number, 0 or more")
        number, _, name = chapter.partition("-")
        room = f"nbcourse.checks.{name.replace('-', '_')}"
        try:
            module = import_module(room)
        except ModuleNotFoundError as error:
            if error.name != room:
                raise
            raise ValueError(
                f"chapter is {chapter!r}: there are no exercises of that name"
            ) from None
        self.chapter, self.variant = chapter, variant
        self.number = number.lstrip("0") or "0"
        self.exercises: dict[str, Exercise] = module.EXERCISES

    def numbers(self, exercise: str) -> Numbers:
        """The numbers that the statement of an exercise speaks of.

        Raises:
            ValueError: if there is no such exercise, or it has no numbers of its own.
        """
        numbers = self._find(exercise).numbers
        if numbers is None:
            raise ValueError(f"exercise {exercise!r} has no numbers of its own")
        return numbers(self._generator(exercise))

    def check(self, exercise: str, answer: Callable[..., Any]) -> None:
        """Check an answer and say what was found.

        Raises:
            NotRight: with what is wrong, the likely mistake, and where to look.
            ValueError: if there is no such exercise.
        """
        found = self._find(exercise)
        try:
            attempt = self.attempt(answer)
            found.check(attempt, self._generator(exercise))
        except NotRight as wrong:
            look = f"Look again at chapter {self.number}, “{found.section}”."
            raise type(wrong)(f"{exercise}: {wrong}\n{look}") from None
        except Exception as error:  # a later call may return something quite unlike the first
            raise NotRight(
                f"{exercise}: the check cannot make sense of what your function returned "
                f"({type(error).__name__}: {error}). Return what the stub says, in every case."
            ) from None
        print(f"{exercise}: right. Checked: {'; '.join(attempt.passed)}.")

    def _find(self, exercise: str) -> Exercise:
        if exercise not in self.exercises:
            known = ", ".join(self.exercises)
            raise ValueError(f"exercise is {exercise!r}, expected one of: {known}")
        return self.exercises[exercise]

    def _generator(self, exercise: str) -> torch.Generator:
        name = self.chapter.partition("-")[2]  # a new edition may give it another number
        digest = sha256(f"{name}/{exercise}/{self.variant}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
