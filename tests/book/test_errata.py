"""Appendix B: every entry in the same form, and every test that it names is there."""

import ast
import re

import pytest
from nbformat import NotebookNode

from nbcourse.publishing import chapters, stored

CELLS = stored.read(chapters.find("errata")).cells
HEADING = re.compile(r"^### (B\.\d+) · \S", re.MULTILINE)


def entries(cells: list[NotebookNode]) -> dict[str, list[NotebookNode]]:
    """The cells of each entry, by the number in its heading."""
    found: dict[str, list[NotebookNode]] = {}
    number = None
    for cell in cells:
        if cell.cell_type == "markdown":
            heading = HEADING.search(cell.source)
            number = heading[1] if heading else None if cell.source.startswith("## ") else number
        if number is not None:
            found.setdefault(number, []).append(cell)
    return found


def calls_of_entry(cells: list[NotebookNode]) -> list[ast.Call]:
    return [
        node
        for cell in cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "entry"
    ]


def named_test(call: ast.Call) -> tuple[str, str]:
    """The file and the name of the test that would have caught it."""
    (named,) = (keyword.value for keyword in call.keywords if keyword.arg == "test")
    file, name = ast.literal_eval(named)
    return file, name


def exists(file: str, name: str) -> bool:
    """Whether tests/FILE.py defines NAME, which is `test_…` or `TestClass::test_…`."""
    path = chapters.ROOT / "tests" / f"{file}.py"
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    *classes, function = name.split("::")
    for wanted in classes:
        body = next(
            (node.body for node in body if isinstance(node, ast.ClassDef) and node.name == wanted),
            [],
        )
    return any(isinstance(node, ast.FunctionDef) and node.name == function for node in body)


ENTRIES = entries(CELLS)


def test_there_are_more_than_twenty_numbered_without_a_gap():
    assert list(ENTRIES) == [f"B.{n}" for n in range(1, len(ENTRIES) + 1)]
    assert len(ENTRIES) > 20


@pytest.mark.parametrize("number", ENTRIES)
def test_an_entry_has_the_form(number):
    cells = ENTRIES[number]
    assert [cell.cell_type for cell in (cells[0], cells[1], cells[-1])] == [
        "markdown",
        "code",
        "markdown",
    ]
    claim, *_, fix = cells
    assert claim.source.index("**The claim.**") < claim.source.index("**What is wrong.**")
    assert fix.source.startswith("**The fix.**")
    (call,) = calls_of_entry(cells)
    assert ast.literal_eval(call.args[0]) == number
    assert any("assert" in cell.source for cell in cells if cell.cell_type == "code")


@pytest.mark.parametrize("number", ENTRIES)
def test_the_test_that_would_have_caught_it_exists(number):
    (call,) = calls_of_entry(ENTRIES[number])
    assert exists(*named_test(call))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("functional/test_nothing", "TestPpoClip::test_cases"),
        ("functional/test_surrogates", "TestPpoClip::test_no_such_case"),
        ("functional/test_surrogates", "test_cases"),
        ("functional/test_surrogates", "TestNothing::test_cases"),
    ],
)
def test_a_test_that_does_not_exist_is_noticed(file, name):
    assert not exists(file, name)
