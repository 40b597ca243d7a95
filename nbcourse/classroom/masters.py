"""Masters: the notebooks from which exercises are made and by which submissions are graded.

A master is a notebook with nbgrader's cell metadata:

- A *solution cell* (`solution`) defines functions, or names with plain values. Students get it
  without its `### BEGIN SOLUTION … ### END SOLUTION`.
- A *test cell* (`grade`) carries points and tests what was defined above it. What stands between
  `### BEGIN HIDDEN TESTS` and `### END HIDDEN TESTS`, at the top level, students never see; where
  such a test fails they read the last comment `# student: …` above the failing line, if there is
  one. A comment holds until the next; `# student:` alone ends it. Hidden tests see what a function
  returns, and not what it does to the tensors it is given.
- A *written answer* (`grade` and `solution`), in words or a plot, is read and graded by a person.
  Students get `NOTHING_YET` in place of the master's answer.
- Every other code cell is *given*: imports, the sheet, data.
"""

import ast
import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nbcourse.classroom import notebooks
from nbcourse.classroom.notebooks import Cell
from nbcourse.confined.cells import plain_python
from nbcourse.errors import UserError
from nbcourse.notebooks import bound
from nbcourse.publishing import chapters
from nbcourse.repository import ROOT

STUB = "raise NotImplementedError"  # what students get in place of code
NOTHING_YET = "YOUR ANSWER HERE"  # and in place of words; the text is nbgrader's
MODEL = re.compile(r"^### BEGIN SOLUTION\n(.*?)^### END SOLUTION", re.DOTALL | re.MULTILINE)
BEGIN, END = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
UNCHOSEN = "variant=0"  # in the locked cell of a notebook, until a variant is put in its place
REMARK = re.compile(r"\s*# student:\s*(.*?)\s*")


@dataclass(frozen=True)
class Given:
    """A code cell that is run as it stands."""

    source: str


@dataclass(frozen=True)
class Solution:
    """A cell that the student fills in.

    Args:
        grade_id: its name.
        functions: names of the functions it defines.
        values: names it assigns.
        imports: its import statements, which tests may rely on.
        source: its text, with the solution.
        cell_id: Jupyter's name of the cell.
    """

    grade_id: str
    functions: tuple[str, ...]
    values: tuple[str, ...]
    imports: str
    source: str
    cell_id: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return self.functions + self.values


@dataclass(frozen=True)
class Test:
    """A cell that carries points.

    Args:
        grade_id: its name.
        points: what it is worth.
        visible, hidden: its two parts; each keeps its lines at their numbers in the cell.
        solutions: names of the solution cells between this test and the one before.
    """

    grade_id: str
    points: float
    visible: str
    hidden: str
    solutions: tuple[str, ...]

    def remark(self, line: int) -> str:
        """What the student may know of the hidden test in this line; empty if nothing."""
        for above in reversed(self.hidden.splitlines()[:line]):
            if found := REMARK.fullmatch(above):
                return found.group(1)
        return ""


@dataclass(frozen=True)
class Written:
    """An answer in words, or a plot, for a person to grade.

    Args:
        grade_id: its name.
        points: what it is worth.
        model: the answer of the master; empty if it has none.
        cell_id: Jupyter's name of the cell.
        above: the sources of the cells above it that students get as they are.
    """

    grade_id: str
    points: float
    model: str = ""
    cell_id: str = ""
    above: tuple[str, ...] = ()


@dataclass(frozen=True)
class Master:
    """What a submission is graded by.

    Args:
        path: its file; the name without the ending is the assignment's, such as "02-sequences".
        steps: what happens, in the order of the cells.
        digest: SHA-256 of the file.
        texts: the sources of the cells that students get as they are.
    """

    path: Path
    steps: tuple[Given | Solution | Test | Written, ...]
    digest: str
    texts: tuple[str, ...] = ()

    @property
    def assignment(self) -> str:
        return self.path.stem

    @property
    def exercises(self) -> list[Test | Written]:
        """What points are given for."""
        return [step for step in self.steps if isinstance(step, Test | Written)]

    @property
    def written(self) -> list[Written]:
        """What a person grades."""
        return [step for step in self.steps if isinstance(step, Written)]

    @property
    def solutions(self) -> dict[str, Solution]:
        return {step.grade_id: step for step in self.steps if isinstance(step, Solution)}

    @property
    def names(self) -> list[str]:
        """What all solution cells are to define."""
        return [name for solution in self.solutions.values() for name in solution.names]


def sheets(root: Path = ROOT) -> list[Path]:
    """The masters of all sheets, in reading order."""
    return chapters.notebooks(root / "solutions")


def find_master(assignment: str) -> Path:
    """The master that has this number or name.

    Raises:
        UserError: if there is none.
    """
    return chapters.find(assignment, sheets())


def load_master(path: Path) -> Master:
    """Read a master.

    Raises:
        FileNotFoundError: if there is no such file.
        UserError: if it is no notebook, two cells have one name, a region is not closed, hidden
            tests do not stand on their own, or a solution cell defines a class.
    """
    content = path.read_bytes()
    cells = notebooks.read_cells(content)
    twice = [
        name for name, count in Counter(c.grade_id for c in cells).items() if name and count > 1
    ]
    if twice:
        raise UserError(f"{path.name} has several cells with the grade_id {twice[0]!r}")
    steps: list[Given | Solution | Test | Written] = []
    pending: list[str] = []  # solution cells that wait for their test
    texts: tuple[str, ...] = ()
    for cell in cells:
        if not (cell.solution or cell.grade):
            texts += (cell.source,)
        if cell.grade and cell.solution:
            model = "\n".join(MODEL.findall(cell.source)).strip()
            steps.append(Written(cell.grade_id, cell.points, model, cell.cell_id, texts))
        elif cell.kind != "code":
            continue
        elif cell.grade:
            steps.append(_test(cell, tuple(pending), path))
            pending = []
        elif cell.solution:
            steps.append(_solution(cell, path))
            pending.append(cell.grade_id)
        else:
            steps.append(Given(plain_python(cell.source)))
    return Master(path, tuple(steps), hashlib.sha256(content).hexdigest(), texts)


def _solution(cell: Cell, path: Path) -> Solution:
    functions, values, imports = [], [], []
    for statement in ast.parse(plain_python(cell.source)).body:
        match statement:
            case ast.FunctionDef(name=name):
                functions.append(name)
            case ast.ClassDef(name=name):
                raise UserError(
                    f"{path.name}, cell {cell.grade_id!r}: the class {name!r} cannot be graded; "
                    "ask for functions and plain values"
                )
            case ast.Import() | ast.ImportFrom():
                imports.append(ast.unparse(statement))
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                values += bound(statement)
    values = [name for name in dict.fromkeys(values) if name not in functions]
    return Solution(
        cell.grade_id,
        tuple(dict.fromkeys(functions)),
        tuple(values),
        "\n".join(imports),
        plain_python(cell.source),
        cell.cell_id,
    )


def _test(cell: Cell, solutions: tuple[str, ...], path: Path) -> Test:
    visible, hidden, inside = [], [], False
    for line in plain_python(cell.source).splitlines():
        marker = line.strip() in (BEGIN, END)
        if marker and (line.strip() == BEGIN) is inside:
            raise UserError(f"{path.name}, cell {cell.grade_id!r}: {line.strip()} out of order")
        inside = inside is not marker
        visible.append("" if inside or marker else line)
        hidden.append(line if inside and not marker else "")
    if inside:
        raise UserError(f"{path.name}, cell {cell.grade_id!r}: hidden tests without END")
    parts = "\n".join(visible), "\n".join(hidden)
    for part in parts:
        try:
            ast.parse(part)
        except SyntaxError as error:
            raise UserError(
                f"{path.name}, cell {cell.grade_id!r}: the hidden tests and the rest must each be "
                f"complete statements at the top level ({error})"
            ) from None
    return Test(cell.grade_id, cell.points, *parts, solutions)
