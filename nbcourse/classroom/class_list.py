"""The students of a class, read from what Canvas or Moodle exports, and whose a submission is.

Four files are understood. Each is recognised by its columns, and read as what it is:

- Canvas's gradebook (*Grades → Export*; `lib/gradebook_exporter.rb` of canvas-lms): `Student`, or
  `LastName` and `FirstName`, then `ID`, perhaps other ids, and `Section`. Its `ID` is the number
  in the names of downloaded files.
- Moodle's grading worksheet (*Assignment → Download grading worksheet*; `assignfeedback_offline`):
  `Identifier`, `Grade` and `Last modified (grade)`. The number of its `Identifier` is the one in
  the names of downloaded folders.
- Moodle's gradebook (*Grades → Export*): `First name`, `Last name` and more, but not that number.
- A list of one's own with a column `student`, perhaps with `name` and `submitted`.

A submission from a platform is matched by the platform's number, in the one column that holds it,
and by nothing else: names are not unique, and a number of another column is another number. A
folder of one's own is matched by its name with what names the student's bundle (`Student.key`).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nbcourse.classroom import tables
from nbcourse.errors import NotFound, UserError

# In Canvas's export, the row that is no student but says what assignments are worth.
POINTS_POSSIBLE = "points possible"


class Platform(StrEnum):
    """Where submissions were downloaded."""

    CANVAS = "Canvas"
    MOODLE = "Moodle"
    OWN = "folders of one's own"


class Kind(StrEnum):
    """What a class list is."""

    CANVAS = "Canvas's gradebook"
    WORKSHEET = "Moodle's grading worksheet"
    MOODLE = "Moodle's gradebook"
    OWN = "a list of your own"


# The columns by which a kind is recognised; some kinds have two versions.
COLUMNS = {
    Kind.CANVAS: ({"Student", "ID", "Section"}, {"LastName", "FirstName", "ID", "Section"}),
    Kind.WORKSHEET: ({"Identifier", "Grade", "Last modified (grade)"},),
    Kind.MOODLE: ({"First name", "Last name"}, {"First name", "Surname"}),
    Kind.OWN: ({"student"},),
}
# Moodle's columns that may tell students apart: the first one that is filled in for all of them.
MOODLE_KEYS = ("Email address", "Username", "ID number", "Identifier")
# The kind of list that holds the numbers in the names of a platform's downloads.
NUMBERED = {Platform.CANVAS: Kind.CANVAS, Platform.MOODLE: Kind.WORKSHEET}


@dataclass(frozen=True)
class Student:
    """A student of the class.

    Args:
        key: what names the student's bundle and decides on the variant.
        name: what people call the student; empty where the list does not say.
        number: the platform's number, as in the names of downloaded files; empty where the list
            has none.
        late: whether the list says that the student handed in late.
        cells: the row of the file, in the order of `ClassList.columns`.
        submitted: when the student handed in, as the list has it; empty if it does not say.
    """

    key: str
    name: str
    number: str
    late: bool
    cells: tuple[str, ...]
    submitted: str = ""


@dataclass(frozen=True)
class ClassList:
    """The students of a class, no two of whom have the same key or number.

    Args:
        kind: what the file is.
        file: its name.
        columns: its columns.
        key: the column that `Student.key` comes from.
        students: in the order of the rows.
        maximum: what the assignment is worth by the grading worksheet; None if that is not known.
    """

    kind: Kind
    file: str
    columns: tuple[str, ...]
    key: str
    students: tuple[Student, ...]
    maximum: float | None = None

    def check_platform(self, platform: Platform, download: str) -> None:
        """Make sure that the list can tell whose a download from this platform is.

        Raises:
            UserError: if it has no numbers of that platform.
        """
        needed = NUMBERED.get(platform, self.kind)
        if self.kind is not needed:
            raise UserError(
                f"{download} was downloaded from {platform}, and only {needed} says whose it is; "
                f"{self.file} is {self.kind}"
            )

    def find(self, platform: Platform, identity: str) -> Student | None:
        """The student with this number or, for a folder of one's own, with this key."""
        if platform is Platform.OWN:
            found = (s for s in self.students if folded(s.key) == folded(identity))
        else:
            found = (s for s in self.students if s.number == identity)
        return next(found, None)


def folded(name: str) -> str:
    """A name without what file systems and people change: case, and how accents are encoded."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name.strip()).casefold())


def read_class_list(path: Path) -> ClassList:
    """Read a class list of any of the four kinds, as `tables.read` reads a table.

    Raises:
        UserError: if there is none, it is no table, it is none of the kinds, it names no students,
            a student has no usable id, or two rows have the same.
        OSError: if it cannot be read.
    """
    if not path.exists():
        raise NotFound(f"there is no class list {path}")
    table = tables.read(path)
    if not any(table.columns):
        raise UserError(f"the class list {path} is empty")
    columns = table.columns
    cells = [tuple(cell or "" for cell in row) for row in table.rows]
    rows = [(dict(zip(columns, row, strict=True)), row) for row in cells]
    kinds = [kind for kind, sets in COLUMNS.items() if any(s <= set(columns) for s in sets)]
    if len(kinds) != 1:
        raise UserError(
            f"{path.name} has the columns {', '.join(columns)}; expected those of "
            f"{Kind.CANVAS}, {Kind.WORKSHEET} or {Kind.MOODLE}, as they are exported in English, "
            "or a column 'student'"
        )
    read = {Kind.CANVAS: _canvas, Kind.OWN: _own}.get(kinds[0], _moodle)
    key, students = read(columns, rows, path.name)
    if not students:
        raise UserError(f"the class list {path} names no students")
    _check_unique(key, [student.key for student in students], path.name)
    _check_unique("ID", [student.number for student in students if student.number], path.name)
    maxima = {row.get("Maximum Grade") or row.get("Maximum grade", "") for row, _ in rows}
    maximum = (
        tables.number(maxima.pop()) if kinds[0] is Kind.WORKSHEET and len(maxima) == 1 else None
    )
    return ClassList(kinds[0], path.name, columns, key, tuple(students), maximum)


Row = tuple[Mapping[str, str], tuple[str, ...]]  # by column, and as it stands


def _check_unique(column: str, ids: Sequence[str], file: str) -> None:
    counts = Counter(map(folded, ids))
    for found in ids:
        if counts[folded(found)] > 1:
            raise UserError(f"{file}: {column} {found!r} is in more than one row")


def _canvas(columns: Sequence[str], rows: Sequence[Row], file: str) -> tuple[str, list[Student]]:
    """The students of Canvas's export, without its rows of points and of hidden assignments.

    The key is the login, or the number where there is no login, as for Canvas's test student.
    """
    students = []
    for row, cells in rows:
        name = row.get("Student") or f"{row.get('FirstName', '')} {row.get('LastName', '')}".strip()
        possible = POINTS_POSSIBLE in cells[0].lower()
        if not row["ID"] and (possible or not name):
            continue
        if not re.fullmatch(r"[1-9]\d*", row["ID"], re.ASCII):
            raise UserError(
                f"{file}: the ID of {name!r} is {row['ID']!r}, expected a whole number, as Canvas "
                "exports it"
            )
        if possible:
            raise UserError(
                f"{file}: a student is called {name!r}, which Canvas takes for its row of points "
                "when it imports grades; have the name changed"
            )
        students.append(
            Student(row.get("SIS Login ID") or row["ID"], name, row["ID"], False, cells)
        )
    return "SIS Login ID" if "SIS Login ID" in columns else "ID", students


def _moodle(columns: Sequence[str], rows: Sequence[Row], file: str) -> tuple[str, list[Student]]:
    """The students of Moodle's gradebook or grading worksheet."""
    key = next((k for k in MOODLE_KEYS if k in columns and all(row[k] for row, _ in rows)), None)
    for name in MOODLE_KEYS[:2]:
        if name == key:
            break
        if any(row.get(name) for row, _ in rows):
            raise UserError(
                f"{file}: {name} is empty in some rows. Another column would give every student "
                "other numbers: fill it in, or remove it if it was not there at the release"
            )
    if key is None:
        raise UserError(
            f"{file} has no column that tells all students apart: {', '.join(MOODLE_KEYS[:3])}"
        )
    students = []
    for row, cells in rows:
        number = re.search(r"\d*$", row.get("Identifier", ""), re.ASCII)
        assert number is not None
        if "Identifier" in columns and not number[0]:
            raise UserError(f"{file}: {row['Identifier']!r} is not a Moodle Identifier")
        last = row.get("Last name") or row.get("Surname", "")
        name = row.get("Full name") or f"{row.get('First name', '')} {last}".strip()
        late = re.search(r"\blate\b", row.get("Status", "")) is not None
        when = row.get("Last modified (submission)", "")
        students.append(Student(row[key], name, number[0], late, cells, when))
    return key, students


def _own(columns: Sequence[str], rows: Sequence[Row], file: str) -> tuple[str, list[Student]]:
    """The students of a list with a column "student", perhaps with their names and times."""
    students = [
        Student(row["student"], row.get("name", ""), "", False, cells, row.get("submitted", ""))
        for row, cells in rows
        if row["student"]
    ]
    return "student", students
