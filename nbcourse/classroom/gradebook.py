"""Class lists and gradebooks: CSV files as Canvas and Moodle write them and read them back."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from nbcourse.errors import NotFound, UserError

# The column that tells students apart, the best one first: Canvas, then Moodle, then one's own.
KEYS = ("SIS Login ID", "Username", "Email address", "ID number", "SIS User ID", "ID", "student")
CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
POINTS_POSSIBLE = "points possible"


@dataclass(frozen=True)
class ClassList:
    """The students of a class.

    Args:
        key: the column that tells them apart.
        rows: column → text, for each student.
    """

    key: str
    rows: tuple[Mapping[str, str], ...]

    @property
    def students(self) -> list[str]:
        return [row[self.key] for row in self.rows]

    def student(self, name: str) -> str:
        """The student whom one of the columns calls `name`; `name` itself if there is none.

        A learning platform names submissions by its own numbers, and the class list has those too.
        """
        wanted = name.strip().lower()
        for row in self.rows:
            if wanted in (row[column].strip().lower() for column in KEYS if column in row):
                return row[self.key]
        return name


def read_class_list(path: Path) -> ClassList:
    """A class list: a gradebook exported from Canvas or Moodle, or a CSV with a column "student".

    Raises:
        UserError: if there is none, it is no CSV in UTF-8, no column tells the students apart, or
            two rows have the same name in it.
        OSError: if it cannot be read.
    """
    if not path.exists():
        raise NotFound(f"there is no class list {path}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is no text in UTF-8; save it as 'CSV UTF-8'") from None
    if not text.strip():
        raise UserError(f"the class list {path} is empty")
    try:
        columns, rows = _table(text)
    except csv.Error as error:
        raise UserError(f"the class list {path} is no CSV: {error}") from None
    key = next((key for key in KEYS if key in columns and any(row[key] for row in rows)), None)
    if key is None:
        raise UserError(
            f"{path.name} has the columns {', '.join(columns)}; expected one of "
            f"{', '.join(KEYS)} with an entry in it"
        )
    students = [row for row in rows if row[key] and not _is_points_row(row)]
    if not students:
        raise UserError(f"the class list {path} names no students")
    names = [row[key] for row in students]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UserError(f"{path.name}: {key} {twice!r} stands in more than one row")
    return ClassList(key, tuple(students))


def _table(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """The columns and rows of a CSV, whichever of `,` `;` and tab separates its columns."""
    first = text.lstrip().partition("\n")[0]
    reader = csv.DictReader(StringIO(text), delimiter=max(",;\t", key=first.count))
    rows = [
        {column.strip(): (entry or "").strip() for column, entry in row.items() if column}
        for row in reader
    ]
    return [column.strip() for column in reader.fieldnames or ()], rows


def _is_points_row(row: Mapping[str, str]) -> bool:
    """Canvas writes one row that is no student: what each assignment is worth."""
    return any(entry.lower() == POINTS_POSSIBLE for entry in row.values())


def canvas(
    assignment: str, points: Mapping[str, float], most: float, listed: ClassList | None = None
) -> str:
    """A CSV for Canvas: Grades, Import. Rows without a grade stay empty and change nothing there.

    Args:
        assignment: title of the column; Canvas offers to create an assignment of that name.
        points: student → points.
        most: what the assignment is worth.
        listed: the class, if known: who handed in nothing is in the file too.
    """
    rows = [["    Points Possible", "", "", "", "", _number(most)]]
    for student, row in _class_rows(points, listed):
        fields = [row.get(column, "") for column in CANVAS_COLUMNS]
        if not row:
            fields = [student, "", "", student, ""]
        rows.append([*fields, _number(points[student]) if student in points else ""])
    return _as_csv([[*CANVAS_COLUMNS, assignment], *rows])


def moodle(
    assignment: str,
    points: Mapping[str, float],
    feedback: Mapping[str, str],
    listed: ClassList | None = None,
) -> str:
    """A CSV for Moodle: Grades, Import, CSV file. Map the first column to the one of its name.

    Args:
        assignment: title of the column of grades.
        points: student → points.
        feedback: student → a line of text.
        listed: the class, if known.
    """
    key = listed.key if listed else "Username"
    rows = [
        [student, _number(points[student]) if student in points else "-", feedback.get(student, "")]
        for student, _ in _class_rows(points, listed)
    ]
    return _as_csv([[key, assignment, f"{assignment} feedback"], *rows])


def _class_rows(
    points: Mapping[str, float], listed: ClassList | None
) -> list[tuple[str, Mapping[str, str]]]:
    """The class in its order, then students who handed in and are not on the list."""
    rows = {row[listed.key]: row for row in listed.rows} if listed else {}
    unlisted = sorted(set(points) - set(rows))
    return [*rows.items(), *((name, {}) for name in unlisted)]


def _number(points: float) -> str:
    return f"{points:.2f}".rstrip("0").rstrip(".")


def _as_csv(rows: Sequence[Sequence[str]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
