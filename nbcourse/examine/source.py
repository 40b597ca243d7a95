"""Where a loss comes from: a file and the name of a function in it, or the table of algorithms.

Appendix B shows how to examine one from a file.
"""

from pathlib import Path

from nbcourse.errors import NotFound, UserError, did_you_mean
from nbcourse.examine import known
from nbcourse.examine.conventions import BOOK, CONVENTIONS
from nbcourse.examine.subject import Subject
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.own_code import imported


def load(target: str, *, convention: str = BOOK) -> Subject:
    """The loss that a user names, `FILE.py:FUNCTION` or the name of a row.

    Args:
        target: the name.
        convention: whose names and shapes the arguments of a function have, of `CONVENTIONS`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: in one line, if it is neither, the file cannot be imported, or holds no such
            function.
    """
    if convention not in CONVENTIONS:
        raise UserError(
            f"--as is {convention!r}, expected one of {', '.join(CONVENTIONS)}"
            f"{did_you_mean(convention, CONVENTIONS)}"
        )
    file, colon, name = target.rpartition(":")
    if not colon:
        if target.endswith(".py"):
            raise UserError(f"which function of {target}? Say {target}:FUNCTION")
        return known.row(target)
    path = Path(file)
    if not path.is_file():
        raise NotFound(f"there is no file {file}; rows go by name: {', '.join(ALGORITHMS)}")
    defined = imported(path)
    functions = [
        key
        for key, value in defined.items()
        if callable(value) and getattr(value, "__module__", None) == defined["__name__"]
    ]
    if not callable(defined.get(name)):
        raise UserError(
            f"{path} defines no function {name!r}; it defines {', '.join(functions) or 'none'}"
            f"{did_you_mean(name, functions)}"
        )
    return Subject.of(defined[name], name=name, convention=convention)
