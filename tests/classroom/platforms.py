"""Canvas and Moodle as far as a class meets them: what they let download, and how they read back.

Written after their own code, of which each function names the file: canvas-lms and moodle.
"""

import csv
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO


@dataclass(frozen=True)
class User:
    """A person in a course.

    Args:
        id: Canvas's number.
        login, sis: Canvas's other ids.
        name: last name first, as Canvas sorts it.
        email: Moodle's id.
        participant: Moodle's number in one assignment.
    """

    id: int
    login: str
    sis: str
    name: str
    email: str
    participant: int


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(StringIO(text)))


# ---------------------------------------------------------------- Canvas


def canvas_gradebook(users: Iterable[User]) -> str:
    """`lib/gradebook_exporter.rb`, with SIS ids and one hidden assignment."""
    header = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Homework 1 (815)"]
    hidden = ["", "", "", "", "", "Manual Posting"]
    possible = ["    Points Possible", "", "", "", "", "10.00"]
    rows = []
    for user in users:
        name = f'="{user.name}"' if re.match(r"\s*=", user.name) else user.name
        rows.append([name, user.id, user.sis, user.login, "A", "9.00"])
    return as_csv([header, hidden, possible, *rows])


def canvas_file(user: User, attachment: int, own_name: str, *, late: bool = False) -> str:
    """`lib/content_zipper.rb`: get_filename, add_upload_submission."""
    name = re.sub(r"_(\d+)_", r"\1", user.name).lower()
    words = "_".join([name, *(["LATE"] if late else []), str(user.id)])
    own = re.sub(r'[\x00/\\:*?"<>|]+', "_", own_name)
    return "_".join([re.sub(r"\W", "", words), str(attachment), own])


def canvas_imports(text: str, users: Sequence[User]) -> dict[User | None, str]:
    """`lib/gradebook_importer.rb`: user → the grade that is set; None is a user that is made up."""
    header, *rows = read_csv(text)
    assert "Student" in header[0]
    assert "ID" in header[1]
    last = 3 + (header[2:4] == ["SIS User ID", "SIS Login ID"]) * 2
    assert "Section" in header[last - 1]
    (column,) = range(last, len(header))
    grades: dict[User | None, str] = {}
    for row in rows:
        if "Points Possible" in row[0]:
            continue
        by = [
            next((u for u in users if str(u.id) == row[1]), None),
            next((u for u in users if row[2] and u.sis == row[2]), None),
            next((u for u in users if row[3] and u.login == row[3]), None),
            next((u for u in users if u.name == row[0]), None),
        ]
        user = next((found for found in by if found is not None), None)
        assert user not in grades
        grades[user] = row[column]
    return grades


def canvas_takes_back(content: bytes, given: Mapping[str, User]) -> dict[User, str]:
    """`infer_comment_context_from_filename` in `app/models/abstract_assignment.rb`.

    Args:
        content: a zip.
        given: number of a file → who handed it in.
    """
    taken = {}
    with zipfile.ZipFile(BytesIO(content)) as archive:
        for name in archive.namelist():
            parts = name.split("_")
            user, attachment = [part for part in parts if re.fullmatch(r"\d+", part)][:2]
            assert not parts[-1].startswith("link")
            assert not name.startswith("._")
            owner = given[attachment]
            assert str(owner.id) == user
            taken[owner] = archive.read(name).decode()
    return taken


# ---------------------------------------------------------------- Moodle


def moodle_name(user: User) -> str:
    last, _, first = user.name.partition(", ")
    return f"{first} {last}".strip()


def moodle_folder(user: User, group: str, ending: str) -> str:
    """`assign::download_submissions`, `clean_filename`; before Moodle 4.1 it ends in `_`."""
    prefix = f"{group}-{moodle_name(user)}" if group else moodle_name(user)
    name = re.sub(r"[\x00-\x1f&<>\"`|':\\/]", "", f"{prefix.replace('_', ' ')}_{user.participant}")
    return re.sub(r"\.\.+", "", name) + f"_assignsubmission_file{ending}"


def moodle_worksheet(
    users: Iterable[User],
    late: Iterable[User] = (),
    *,
    most: float = 11.0,
    handed_in: Mapping[User, str] | None = None,
) -> str:
    """`mod/assign/gradingtable.php`, downloaded.

    Args:
        users: of the course.
        late: those who handed in late.
        most: the maximum grade.
        handed_in: when each did; without this, all at one time.
    """
    header = [
        "Identifier", "Full name", "Email address", "Status", "Grade", "Maximum Grade",
        "Grade can be changed", "Last modified (submission)", "Last modified (grade)",
        "Feedback comments",
    ]  # fmt: skip
    late = set(late)
    rows = []
    for user in users:
        when = "Sunday, 1 November 2026, 10:00 AM"
        when = when if handed_in is None else handed_in.get(user, "-")
        status = "No submission" if when == "-" else "Submitted for grading"
        status += " - 2 days late" if user in late else ""
        row = [f"Participant {user.participant}", moodle_name(user), user.email, status]
        rows.append([*row, "", f"{most:.2f}", "Yes", when, "-", ""])
    return as_csv([header, *rows])


def moodle_gradebook(users: Iterable[User]) -> str:
    """`grade/export/txt`."""
    header = ["First name", "Last name", "ID number", "Email address", "Course total (Real)"]
    rows = []
    for user in users:
        first, _, last = moodle_name(user).partition(" ")
        rows.append([first, last, "", user.email, "-"])
    return as_csv([header, *rows])


def moodle_takes_worksheet(text: str, users: Sequence[User]) -> dict[User, tuple[str, str]]:
    """`mod/assign/feedback/offline/importgradeslib.php`: user → grade and comment that are set."""
    header, *rows = read_csv(text)
    number, grade = header.index("Identifier"), header.index("Grade")
    assert "Last modified (grade)" in header
    taken = {}
    for row in rows:
        found = row[number][len("Participant ") :]
        (user,) = (user for user in users if str(user.participant) == found)
        if row[grade]:
            taken[user] = row[grade], row[header.index("Feedback comments")]
    return taken


def moodle_imports(text: str, users: Sequence[User]) -> dict[User, str]:
    """`grade/import/csv/classes/load_data.php`, with the first column mapped to the email."""
    header, *rows = read_csv(text)
    assert header[0] == "Email address"
    imported = {}
    for row in rows:
        (user,) = (user for user in users if user.email == row[0])  # else all is refused
        assert row[1] not in ("", "-")  # which would take a grade away
        imported[user] = row[1]
    return imported


def moodle_takes_feedback(content: bytes, users: Sequence[User]) -> dict[User, str]:
    """`mod/assign/feedback/file/importziplib.php`: is_valid_filename_for_import."""
    taken = {}
    with zipfile.ZipFile(BytesIO(content)) as archive:
        for path in archive.namelist():
            assert not path.startswith((".", "~"))
            _, number, kind, plugin, rest = path.split("_", 4)
            assert (kind, plugin) == ("assignsubmission", "file")
            assert rest
            (user,) = (user for user in users if str(user.participant) == number)
            taken[user] = archive.read(path).decode()
    return taken
