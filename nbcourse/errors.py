"""Mistakes of a user, which get one line as an answer; faults of ours keep their stack trace.

Whatever reads what a user wrote (a recipe, a command, a class list, a file) raises one of these.
They are the built-in errors that they derive from, so that catching them needs no import from here.
"""


class UserError(ValueError):
    """Something that a user gave is wrong; the message names it, its value, and what would do."""


class NotFound(UserError, FileNotFoundError):
    """Something that a user named is not there; the message says what is."""
