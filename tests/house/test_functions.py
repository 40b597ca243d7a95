"""Functions are short: sixty lines, docstring and all. (Parameters and branches: ruff, pyproject.)

A check of an exercise is a page of cases with what each wrong answer means, and a table; it may
be longer, and so may a command, whose parameters are its documentation.
"""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "nbcourse"
LONGEST = 60
TABLES = ("checks", "cli")


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path.relative_to(PACKAGE)}: {node.name} has {length} lines"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in TABLES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := node.end_lineno - node.lineno + 1) > LONGEST
    ]
    assert not long, "\n".join(long)
