"""Which cells of a submission hold the answers, in a notebook as people leave it.

A cell is known by nbgrader's name of it (`grade_id`). Editors lose that name, and people write into
new cells, split and join them, copy them, and rename functions. What counts is what the check saw
in Jupyter: of all cells that define a name, the last one above the check that is not as it was
handed out. An answer is looked for in this order, and a note says how it was found:

1. in the cell of that name, unless it was defined anew between that cell and the check;
2. in the cell that has Jupyter's id of it;
3. where a cell defines what the stub was to define;
4. where a cell defines what the check was called with, or the one function of the named cell.

An answer in words is all that stands beside its place: its own cell, and the cells next to it that
were not handed out.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nbcourse.classroom import notebooks
from nbcourse.classroom.masters import NOTHING_YET, STUB, Master, Solution, Test, Written
from nbcourse.classroom.notebooks import Cell
from nbcourse.classroom.submissions import Candidate
from nbcourse.confined.cells import plain_python

CHECK = re.compile(r"""\bcheck\(\s*["']([\w-]+)["']\s*,\s*(\w+)\s*\)""")
TIMED = re.compile(r"\A\s*%%(?:time|timeit|capture)\b[^\n]*\n")  # cells that are run all the same
SCOPES = (  # whose names are no names of the cell
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
DEFINES = re.compile(r"^(?:(?:async )?def (\w+)|(\w+)\s*(?::[^=\n]*)?=(?!=))", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """Where a name of the master is defined in a submission: in which cell, and under what name."""

    cell: Cell
    name: str


@dataclass
class Answers:
    """What a submission holds of the answers.

    Args:
        places: name of a solution cell → name it is to define → where that is defined.
        checks: name of a solution cell → number of the cell that checks it, where there is one.
        notes: on what is unusual, for the student and the instructor.
        written: as the function of this name gives it.
    """

    places: dict[str, dict[str, Place]] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    written: dict[str, list[Cell]] = field(default_factory=dict)

    def found(self) -> Iterator[tuple[str, str, Place]]:
        """Name of a solution cell, name that it is to define, and where that is defined."""
        for solution, places in self.places.items():
            for name, place in places.items():
                yield solution, name, place


def match(cells: list[Cell], master: Master) -> Answers:
    """Where each name that a master asks for is defined in a submission, and what is in words."""
    found = Answers(written=written(cells, master))
    code = [cell for cell in cells if cell.kind == "code"]
    given = {_plain(text) for text in master.texts}
    bound = {c.number: {} if _plain(c.source) in given else _bindings(c.source) for c in code}
    wanted = Counter(master.names)
    elsewhere = []
    for step in (step for step in master.steps if isinstance(step, Test)):
        check = _check_of(step, code)
        for solution in (master.solutions[name] for name in step.solutions):
            if check:
                found.checks[solution.grade_id] = check.number
            begun = [c for c in code if bound[c.number].keys() & set(solution.names)]
            named = _own(solution, code, begun)
            many = len([cell for cell in named if cell.grade_id == solution.grade_id])
            if many > 1:
                found.notes.append(
                    f"There are {many} cells called `{solution.grade_id}`; the last one counts."
                )
            looked = _Search(code, bound, named, check.number if check else None)
            places = {
                name: place
                for name in solution.names
                if (place := looked.place(name, once=wanted[name] == 1)) is not None
            }
            if renamed := _renamed(solution, step, check, looked, wanted, places):
                places |= renamed
            if named:  # what is not defined at all: its own cell may say why
                places = {n: Place(named[-1], n) for n in solution.names} | places
            if not places:
                found.notes.append(
                    f"The cell called `{solution.grade_id}` is missing: it was deleted, or copied "
                    "without its name, and no cell defines "
                    f"{' or '.join(f'`{name}`' for name in solution.names)}."
                )
                continue
            found.places[solution.grade_id] = places
            elsewhere += [
                f"`{name}`{f' as `{place.name}`' if place.name != name else ''} in cell "
                f"{place.cell.number}, {_how(place.cell, solution, named)}"
                for name, place in places.items()
                if place.cell.grade_id != solution.grade_id or place.name != name
            ]
    if elsewhere:
        found.notes.append(
            f"Answers were found in other cells than their own: {'; '.join(elsewhere)}."
        )
    return found


def worth(notebook: Candidate, master: Master) -> int:
    """0 for a notebook that cannot be read, 1 for one as handed out, 2 for one with answers."""
    try:
        cells = notebooks.read_cells(notebook.read_bytes())
    except notebooks.Unreadable:
        return 0
    bound = [_bindings(cell.source) for cell in cells if cell.kind == "code"]
    names = set(master.names)
    begun = any(name in names and not stub for each in bound for name, stub in each.items())
    return 2 if begun or any(written(cells, master).values()) else 1


def written(cells: list[Cell], master: Master) -> dict[str, list[Cell]]:
    """For each answer in words, or plot, the cells that hold it; none if it is not begun."""
    known = {_plain(text) for text in master.texts}
    wanted = set(master.names)
    found: dict[str, list[Cell]] = {}
    for step in master.written:
        own = _own(step, cells, [c for c in cells if _plain(c.source) not in known])
        free = {cell.number for cell in cells if _is_free(cell, known, wanted)}
        place = own[-1].number if own else _place(step, cells, free)
        beside = [cell for cell in cells if cell in own or cell.number in _around(place, free, own)]
        found[step.grade_id] = [cell for cell in beside if cell.pictures or not _is_empty(cell)]
    return found


def _is_empty(cell: Cell) -> bool:
    stub = cell.kind == "code" and STUB in cell.source  # in words it is an answer
    return stub or cell.source.strip() in ("", NOTHING_YET)


def _is_free(cell: Cell, known: set[str], wanted: set[str]) -> bool:
    """Whether a cell was added by the student and answers no exercise that has a check."""
    if cell.grade_id or _plain(cell.source) in known or CHECK.search(cell.source):
        return False
    return cell.kind != "code" or not wanted & _bindings(cell.source).keys()


def _around(place: int, free: set[int], own: list[Cell]) -> set[int]:
    """The numbers of free cells in an unbroken row with a place."""
    there = {cell.number for cell in own}
    found = set()
    for step in (1, -1):
        number = place if place not in there else place + step
        while number in free | there:
            found.add(number)
            number += step
    return found


def _place(step: Written, cells: list[Cell], free: set[int]) -> int:
    """Where an answer stands whose cell is gone: the first free cell below what is above it."""
    texts = {_plain(cell.source): cell.number for cell in cells}
    above = [texts[text] for text in map(_plain, step.above) if text in texts]
    return min((number for number in free if number > above[-1]), default=0) if above else 0


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _check_of(step: Test, code: list[Cell]) -> Cell | None:
    """The last cell that checks what a test checks."""
    asked = {name for name, _ in CHECK.findall(step.visible)}
    named = [c for c in code if c.grade_id == step.grade_id]
    calls = [c for c in code if asked & {name for name, _ in CHECK.findall(c.source)}]
    return (named or calls or [None])[-1]  # type: ignore[list-item]


def _own(step: Solution | Written, cells: list[Cell], begun: list[Cell]) -> list[Cell]:
    """The cells that have the name of a master's cell, or else its id if they are begun."""
    return [cell for cell in cells if cell.grade_id == step.grade_id] or [
        cell for cell in begun if cell.cell_id == step.cell_id != "" and not cell.grade_id
    ]


def _how(cell: Cell, solution: Solution, named: list[Cell]) -> str:
    """By what a cell with an answer was found."""
    if cell.grade_id == solution.grade_id:
        return "which has its name"
    return "by the id of the cell" if cell in named else "by its definition"


@dataclass
class _Search:
    """Looks for the cell that defines a name where the check stands.

    Args:
        code: the code cells of a submission.
        bound: number of a cell → what it defines, and whether that is only a stub.
        named: those with the name, or id, of the solution cell.
        check: number of the cell that checks; None if there is none.
    """

    code: list[Cell]
    bound: dict[int, dict[str, bool]]
    named: list[Cell]
    check: int | None

    def place(self, name: str, *, once: bool) -> Place | None:
        """Where a name is defined; where several exercises ask for it, in the named cells only."""
        cells = self.code if once else self.named
        defining = [cell for cell in cells if name in self.bound[cell.number]]
        # A check that was joined with the answer below it keeps its own name.
        defining = [cell for cell in defining if not cell.grade] or defining
        answered = [cell for cell in defining if not self.bound[cell.number][name]]
        seen = [c for c in answered if self.check is None or c.number <= self.check]
        own = [cell for cell in answered if cell in self.named]
        if own and own[-1] not in seen:  # the student's last word, below the check
            seen = own
        chosen = seen or answered or [c for c in defining if c in self.named] or defining
        return Place(chosen[-1], name) if chosen else None


def _renamed(
    solution: Solution,
    step: Test,
    check: Cell | None,
    looked: _Search,
    wanted: Iterable[str],
    places: dict[str, Place],
) -> dict[str, Place]:
    """Functions that a student calls something else: what the check is called with tells which."""
    missing = [
        name
        for name in solution.functions
        if name not in places or looked.bound[places[name].cell.number][name]
    ]
    asked = {name: exercise for exercise, name in CHECK.findall(step.visible)}
    given = dict(CHECK.findall(check.source)) if check else {}
    found = {}
    for name in missing:
        other = given.get(asked.get(name, ""), name)
        if other == name and len(missing) == 1 and looked.named:
            own, source = looked.bound[looked.named[-1].number], looked.named[-1].source
            functions = re.findall(
                r"^(?:async )?def (\w+)|^(\w+) *= *lambda\b", source, re.MULTILINE
            )
            others = [
                o for o in map("".join, functions) if not own.get(o, True) and o not in wanted
            ]
            other = others[0] if len(others) == 1 else name
        if other != name and (place := looked.place(other, once=True)) is not None:
            found[name] = place
    return found


def _bindings(source: str) -> dict[str, bool]:
    """The names that a cell defines at its top level: name → whether that is only a stub."""
    text = plain_python(TIMED.sub("", source))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {name or value: STUB in source for name, value in DEFINES.findall(text)}
    found: dict[str, bool] = {}
    left_open: set[ast.AST] = set()
    for node in _at_top_level(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found[name] = _is_stub(node.body)
            case ast.ClassDef(name=name):
                found[name] = False
            case ast.alias(name=name, asname=other):
                found[(other or name).partition(".")[0]] = False
            case ast.Assign(value=value) | ast.AnnAssign(value=value):
                if isinstance(value, ast.Constant) and value.value is ...:
                    left_open.update(ast.walk(node))
            case ast.Name(id=name, ctx=ast.Store()):
                found[name] = node in left_open
    return found


def _at_top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """What is computed in the cell itself, in order: nothing of functions and comprehensions."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += [*ast.iter_child_nodes(node)][::-1]


def _is_stub(body: list[ast.stmt]) -> bool:
    """Whether a function is as it was handed out: nothing in it comes before the stub's line."""
    return ast.unparse(body[-1]) == STUB and not any(
        isinstance(node, ast.Return) for statement in body for node in ast.walk(statement)
    )
