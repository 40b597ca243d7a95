"""Mistakes of a user, which get one line as an answer; faults of ours keep their stack trace.

Whatever reads what a user wrote (a recipe, a command, a class list, a file) raises one of these.
They are the built-in errors that they derive from, so that catching them needs no import from here.
"""

from collections.abc import Collection
from difflib import get_close_matches


class UserError(ValueError):
    """Something that a user gave is wrong; the message names it, its value, and what would do."""


class NotFound(UserError, FileNotFoundError):
    """Something that a user named is not there; the message says what is."""


class NotAvailable(UserError, OSError):
    """Something cannot be had from where it should come; the message says from where else."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The question behind an error message; empty if nothing known is close to the name."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
