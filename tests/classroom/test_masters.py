"""What a master is made of, and the mistakes in one that are said before anything is graded."""

import pytest

from nbcourse.classroom import masters
from nbcourse.classroom.masters import Given, Solution, Written
from tests.classroom.a_class import cell, notebook


def load(tmp_path, *cells):
    path = tmp_path / "01-fake.ipynb"
    path.write_bytes(notebook(list(cells)))
    return masters.load_master(path)


HIDDEN = (
    "x = f(1)\n### BEGIN HIDDEN TESTS\n# student: zero\nassert f(0)\n### END HIDDEN TESTS\ny = 2"
)


def test_cells_become_steps(tmp_path):
    master = load(
        tmp_path,
        cell("# Title", "markdown"),
        cell("import math"),
        cell("import re\ndef f(x): ...\na, b = 1, 2\nc: int = 3", grade_id="f", solution=True),
        cell(HIDDEN, grade_id="f-check", grade=True, points=2.5),
        cell("Why?", "markdown", grade_id="why", grade=True, solution=True, points=4),
    )
    given, solution, test, written = master.steps
    assert given == Given("import math")
    assert solution == Solution(
        "f",
        ("f",),
        ("a", "b", "c"),
        "import re",
        "import re\ndef f(x): ...\na, b = 1, 2\nc: int = 3",
    )
    assert test == masters.Test(
        "f-check", 2.5, "x = f(1)\n\n\n\n\ny = 2", "\n\n# student: zero\nassert f(0)\n\n", ("f",)
    )
    assert written == Written("why", 4, above=("# Title", "import math"))
    assert (master.assignment, master.exercises) == ("01-fake", [test, written])


def test_a_remark_holds_until_the_next(tmp_path):
    hidden = [
        "### BEGIN HIDDEN TESTS",
        "assert f(0)",
        "# student: twos",
        "x = f(2)",
        "assert x",
        "# student:",
        "assert f(3)",
        "### END HIDDEN TESTS",
    ]
    master = load(tmp_path, cell("\n".join(hidden), grade_id="check", grade=True, points=1))
    (test,) = master.steps
    assert [test.remark(line) for line in (2, 4, 5, 7)] == ["", "twos", "twos", ""]


@pytest.mark.parametrize(
    ("source", "marks", "says"),
    [
        ("### BEGIN HIDDEN TESTS\nassert 1", {"grade": True}, "hidden tests without END"),
        ("### END HIDDEN TESTS", {"grade": True}, "out of order"),
        ("if 1:\n    ### BEGIN HIDDEN TESTS\n    assert 1\n    ### END HIDDEN TESTS",
         {"grade": True}, "complete statements"),
        ("class A: ...", {"solution": True}, "class 'A'"),
    ],
)  # fmt: skip
def test_a_master_that_cannot_be_graded_by_is_refused(tmp_path, source, marks, says):
    with pytest.raises(ValueError, match=says):
        load(tmp_path, cell(source, grade_id="a", **marks))


def test_two_cells_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="several cells with the grade_id 'a'"):
        load(tmp_path, cell("x = 1", grade_id="a"), cell("y = 1", grade_id="a"))


def test_a_master_is_found_by_number_or_name():
    assert (
        masters.find_master("2")
        == masters.find_master("sequences")
        == masters.find_master("02-sequences")
    )
    with pytest.raises(ValueError, match="no chapter 'nothing'"):
        masters.find_master("nothing")
