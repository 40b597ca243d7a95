"""Runs an answer as a reader typed it, and says what the check says."""

import math
from typing import Any

from nbcourse.checks.attempt import NotRight, NotYet
from nbcourse.checks.sheet import Exercise, Sheet
from nbcourse.classroom.page_python.arrays.tensor import Generator, functional, torch
from nbcourse.classroom.page_python.stand_ins import linecache, traceback

FULL = ("Maximum call stack size exceeded", "too much recursion")  # Chromium's words, and Firefox's
OWN = "<string>"  # the file that `exec` names; Brython cannot run all that `compile` returns
MODULES = {  # what a reader can import besides math
    "torch": torch,
    "torch.nn": torch.nn,
    "torch.nn.functional": functional,
    "torch.autograd": torch.autograd,
    "torch.linalg": torch.linalg,
}


class InPage(Sheet):
    """The exercises of a sheet that a page offers.

    Args:
        number: of the chapter.
        exercises: by their names.
        drawn: what each check draws, call by call: function, numbers, shape and type.
    """

    def __init__(
        self, number: str, exercises: dict[str, Exercise], drawn: dict[str, list[Any]]
    ) -> None:
        self.number, self.exercises, self.drawn = number, exercises, drawn

    def _generator(self, exercise: str) -> Any:
        """The numbers of the notebook, which were drawn when the page was made."""
        return Generator(self.drawn[exercise])


def answer(sheet: Sheet, exercise: str, name: str, code: str) -> str:
    """Run a reader's code and check the function of this name; what there is to say is printed.

    Returns:
        "right", "wrong", "not yet" or, where the code does not run, "error".
    """
    linecache.sources[OWN] = code
    names: dict[str, Any] = {"__name__": "__main__", "math": math, "torch": torch, "sheet": sheet}
    try:
        exec(code, names)
    except BaseException as error:
        print(stopped(error))
        return "error"
    if name not in names:
        print(f"There is no {name} in your code: keep the name of the function.")
        return "error"
    try:
        sheet.check(exercise, names[name])
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
        said = (
            "this page has Python itself, `math` and a small `torch`; for anything else, use the "
            "notebook"
        )
    if isinstance(error, SyntaxError):
        line = linecache.getline(OWN, error.lineno or 0).strip()
        return f"  line {error.lineno}: {line}\n{kind}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == OWN]
    lines = [f"  line {f.lineno}: {linecache.getline(OWN, f.lineno).strip()}" for f in frames]
    return "\n".join([*lines[-3:], ": ".join(filter(None, (kind, said)))])
