"""When each student handed in which sheet: what a term's late days are counted from.

The file lies beside the rules of the class, `class.late.csv` beside `class.toml`:

    Email address,sheet,submitted
    ada@uni.example,02-sequences,2027-03-14 08:00

`nbcourse grade` replaces the rows of its own sheet, so grading again counts nothing twice. The
first column is the one that names students in the class list. A file with another one is refused:
the same word in two different columns may mean two people.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from nbcourse.classroom import files, tables
from nbcourse.classroom.class_list import ClassList, Student, folded
from nbcourse.classroom.class_rules import Rules
from nbcourse.classroom.tables import as_csv, inert
from nbcourse.errors import UserError

Times = Mapping[str, Mapping[str, str]]  # student, folded → sheet → when it was handed in


def beside(rules: Path) -> Path:
    """Where the times of a class with these rules are kept."""
    return rules.with_suffix(".late.csv")


def kept(path: Path, listed: ClassList) -> Times:
    """The times of all sheets that were graded; none if there is no file.

    Raises:
        UserError: if the file is damaged, or its students are named by another column.
    """
    if not path.exists():
        return {}
    names = {_written(student): folded(student.key) for student in listed.students}
    try:
        table = tables.read(path)
        key, *others = table.columns
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for student, sheet, submitted in table.rows:
            if student is None or sheet is None or submitted is None:
                raise ValueError("a row is shorter than the first")
            found[names.get(folded(student), folded(student))][sheet] = submitted
    except ValueError:  # no table, or not of three columns
        others = []
    if others != ["sheet", "submitted"]:
        raise UserError(
            f"{path.name} is damaged: it does not have three columns, …, sheet, submitted"
        )
    if key != listed.key:
        raise UserError(
            f"{path.name} names students by {key!r}, and {listed.file} by {listed.key!r}: late "
            "days are counted over a term with one kind of class list"
        )
    return found


def with_sheet(times: Times, sheet: str, submitted: Mapping[str, str]) -> Times:
    """The times with those of one sheet replaced.

    Args:
        times: of all sheets.
        sheet: the one that is graded.
        submitted: student → when; students who handed in nothing are not in it.
    """
    found = {
        student: {name: when for name, when in sheets.items() if name != sheet}
        for student, sheets in times.items()
    }
    for student, when in submitted.items():
        found.setdefault(folded(student), {})[sheet] = when
    return {student: sheets for student, sheets in found.items() if sheets}


def keep(times: Times, path: Path, listed: ClassList) -> None:
    """Write the times.

    Raises:
        UserError: if the file cannot be written, or two students would be one in it.
    """
    if len({_written(student) for student in listed.students}) < len(listed.students):
        raise UserError(f"{listed.file}: two students differ only in a leading apostrophe")
    names = {folded(student.key): student.key for student in listed.students}
    rows = [
        [names.get(student, student), sheet, when]
        for student, sheets in sorted(times.items())
        for sheet, when in sorted(sheets.items())
    ]
    files.write_file(path, as_csv([[listed.key, "sheet", "submitted"], *rows]))


def _written(student: Student) -> str:
    """What the file has for a student, folded."""
    return folded(inert(student.key))


def changed(before: Times, after: Times, rules: Rules, sheet: str) -> dict[str, list[str]]:
    """Other sheet → the students of whose late days it now uses another number."""
    found: dict[str, list[str]] = defaultdict(list)
    for student in sorted(before.keys() | after.keys()):
        old, new = rules.spent(before.get(student, {})), rules.spent(after.get(student, {}))
        for name in sorted((old.keys() | new.keys()) - {sheet}):
            if old.get(name) != new.get(name):
                found[name].append(student)
    return dict(found)
