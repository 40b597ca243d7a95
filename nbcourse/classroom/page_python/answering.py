"""Runs an answer as a reader typed it, and says what the check says. Lists stand for tensors."""

from collections.abc import Callable
from typing import Any

from nbcourse.checks.attempt import Attempt, NotRight, NotYet, copied
from nbcourse.checks.sheet import Exercise, Sheet
from nbcourse.checks.worked import Case
from nbcourse.classroom.page_python.stand_ins import (
    Tensor,
    leaves,
    linecache,
    mapped,
    shape_of,
    traceback,
)

STEP, DIGITS = 1e-5, 9  # of central differences, and the decimals of a slope that are accurate
FULL = ("Maximum call stack size exceeded", "too much recursion")  # Chromium's words, and Firefox's
OWN = "<string>"  # the file that `exec` names; Brython cannot run all that `compile` returns


class ByDifferences(Attempt):
    """An answer while it is being checked; the gradient of a loss is taken by small differences."""

    def _gradient(self, handed: list[Any], keywords: dict[str, Any], wrt: int) -> Any:
        numbers, shape = leaves(handed[wrt].data), handed[wrt].shape

        def value(place: int, step: float) -> float:
            moved = [number + step * (i == place) for i, number in enumerate(numbers)]
            given = copied(handed)
            given[wrt] = Tensor(moved).reshape(shape)
            return self.number(self._run(given, keywords))

        slopes = [(value(i, STEP) - value(i, -STEP)) / (2 * STEP) for i in range(len(numbers))]
        return Tensor([round(slope, DIGITS) + 0.0 for slope in slopes]).reshape(shape)


class InPage(Sheet):
    """The exercises of a sheet that a page offers.

    Args:
        number: of the chapter.
        exercises: by their names.
    """

    attempt = ByDifferences

    def __init__(self, number: str, exercises: dict[str, Exercise]) -> None:
        self.number, self.exercises = number, exercises

    def _generator(self, exercise: str) -> Any:
        """Nothing is drawn here: the cases were, when the page was made."""


class Answer:
    """A function of lists, as a function of tensors, whose changes to these are not lost."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.__code__ = function, getattr(function, "__code__", None)

    def __call__(self, *given: Any) -> Any:
        handed = lists(given)
        result = tensors(self.function(*handed))
        for argument, left in zip(given, handed, strict=True):
            if isinstance(argument, Tensor):
                argument.data, argument.shape = left, shape_of(left)
        return result


def lists(value: Any) -> Any:
    """A value with lists in place of tensors, at every level."""
    match value:
        case Tensor():
            return value.tolist()
        case list() | tuple():
            return type(value)([lists(part) for part in value])
        case dict():
            return {key: lists(part) for key, part in value.items()}
    return value


def tensors(value: Any) -> Any:
    """A value with tensors in place of lists of numbers."""
    match value:
        case list() if all(isinstance(number, int | float) for number in leaves(value)):
            return Tensor(mapped(lambda number: number, value))
        case list() | tuple():
            return type(value)([tensors(part) for part in value])
        case dict():
            return {key: tensors(part) for key, part in value.items()}
    return value


def by_cases(*cases: Case) -> Callable[..., None]:
    """A check that compares case by case; unlike in a bundle, no further cases follow."""

    def check(attempt: Attempt, generator: Any) -> None:
        for case in cases:
            case.compare(attempt)

    return check


def answer(sheet: Sheet, exercise: str, name: str, code: str) -> str:
    """Run a reader's code and check the function of this name; what there is to say is printed.

    Returns:
        "right", "wrong", "not yet" or, where the code does not run, "error".
    """
    linecache.sources[OWN] = code
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(code, names)
    except BaseException as error:
        print(stopped(error))
        return "error"
    if name not in names:
        print(f"There is no {name} in your code: keep the name of the function.")
        return "error"
    function = names[name]
    try:
        sheet.check(exercise, Answer(function) if callable(function) else function)
    except NotYet as missing:
        print(missing)
        return "not yet"
    except NotRight as wrong:
        print(wrong)
        return "wrong"
    return "right"


def stopped(error: BaseException) -> str:
    """An error with the lines of the reader's own that were running."""
    kind, said = type(error).__name__, str(error)
    if said in FULL:  # of the browser's stack, before Python has counted its own calls
        kind, said = "RecursionError", "maximum recursion depth exceeded"
    if isinstance(error, ImportError):
        said = "this page has only Python itself and `math`; for anything else, use the notebook"
    if isinstance(error, SyntaxError):
        line = linecache.getline(OWN, error.lineno or 0).strip()
        return f"  line {error.lineno}: {line}\n{kind}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == OWN]
    lines = [f"  line {f.lineno}: {linecache.getline(OWN, f.lineno).strip()}" for f in frames]
    return "\n".join([*lines[-3:], ": ".join(filter(None, (kind, said)))])
