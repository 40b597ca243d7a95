"""Which numbers a student gets, where a release gives each student other ones."""

from hashlib import sha256


def variant_of(student: str, assignment: str) -> int:
    """The student's variant: below 10⁶, the same on every machine, and not to be guessed at sight.

    Variant 0 is the book's own, and no student's.
    """
    digest = sha256(f"{assignment}/{student}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "big") % 999_999
