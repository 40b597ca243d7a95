"""What can go wrong with a student's code, as exceptions in the grader's process.

Their messages are for the student. An error that the code raised keeps its type as far as it is one
of Python's own, so that a test may expect a ValueError, and a check may say "not implemented yet".
"""

import builtins
from enum import StrEnum


class Ending(StrEnum):
    """How an exercise ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_ATTEMPTED = "not attempted"
    RAISED = "error"
    OUT_OF_TIME = "out of time"
    OUT_OF_MEMORY = "out of memory"
    ENDED = "ended itself"
    TOO_BIG = "too much output"
    TOO_MANY = "too many threads"
    NOT_PLAIN = "no plain data"
    MALFORMED = "broken answer"
    BY_HAND = "to be graded by hand"
    MARKED = "graded by hand"
    UNREADABLE = "unreadable"
    WRONG_SHEET = "wrong sheet"
    NOT_GRADED = "not graded"


class SubmissionError(Exception):
    """A student's code did not answer a call as it should.

    Args:
        state: how an exercise ends that fails by it.
        message: for the student.
        fatal: whether the process of the student's code has ended by it.
    """

    def __init__(self, state: Ending, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.state, self.fatal = state, fatal

    @property
    def reason(self) -> str:
        """What follows "it stopped" or "it failed": the kind of error, and the message."""
        return f"({self.state}): {self}"


class Raised(SubmissionError):
    """The code raised an exception, whose name the type of this one has."""

    def __init__(self, message: str) -> None:
        super().__init__(Ending.RAISED, message)

    @property
    def reason(self) -> str:
        return f"with {type(self).__name__}: {self}"


# Exceptions whose constructor takes any one message, so that they can be mixed with `Raised`.
PYTHONS_OWN = (
    *(ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, IndexError),
    *(KeyError, LookupError, MemoryError, NameError, NotImplementedError, OverflowError),
    *(RecursionError, RuntimeError, TypeError, ValueError, ZeroDivisionError),
)


def raised(kind: str, message: str, line: str) -> Raised:
    """An exception of the student's code, of the same name, and of the same type if Python has it.

    Args:
        kind: name of its type.
        message: what it said.
        line: the student's line that was running; empty if unknown.
    """
    python_type = getattr(builtins, kind, None)
    bases = (Raised, python_type) if python_type in PYTHONS_OWN else (Raised,)
    name = kind if kind.isidentifier() else "Exception"
    text = f"{message}\n  in the line: {line}" if line else message
    members = {"__str__": lambda self: text}  # a KeyError would show the repr of its message
    return type(name, bases, members)(text)  # type: ignore[call-overload]
