"""Functions are short: sixty lines, docstring and all. (Parameters and branches: ruff, pyproject.)

A check of an exercise is a page of cases with what each wrong answer means, and a table; it may
be longer, and so may a command, whose parameters are its documentation.
"""

from tests.house.sources import PACKAGE, ROOT, source

LONGEST = 60
TABLES = ("checks", "cli")


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path.relative_to(ROOT)}: {name} has {length} lines"
        for path in PACKAGE
        if path.relative_to(ROOT / "nbcourse").parts[0] not in TABLES
        for name, length in source(path).functions
        if length > LONGEST
    ]
    assert not long, "\n".join(long)
