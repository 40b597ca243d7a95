"""Where the submissions are in a folder, as teachers have it from their learning platform.

Four layouts are understood, also mixed, and each notebook may be in a zip file:

- `STUDENT/02-sequences.ipynb`, and nbgrader's `STUDENT/02-sequences/02-sequences.ipynb`;
- Moodle's `Full Name_12345_assignsubmission_file_/02-sequences.ipynb`;
- Canvas's `doejane_12345_67890_02-sequences.ipynb`, with `_LATE` after the name and `-1` after a
  file that was handed in again.

Nothing is unpacked onto the disk. A zip file is read member by member, and no more of it than a
notebook may have.
"""

import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

from nbcourse.classroom.gradebook import ClassList
from nbcourse.classroom.notebooks import LARGEST_NOTEBOOK, Unreadable, writable
from nbcourse.errors import NotFound, UserError

CANVAS_FILE = re.compile(
    r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<file>\d+)_(?P<rest>.+)"
)
MOODLE_FOLDER = re.compile(r"(?P<name>.+)_(?P<user>\d+)_assignsubmission_\w+?_?")
MEMBERS = 1000  # files in a zip that are looked at
DEEPEST_FOLDER = 4  # folders below a student's
LONGEST_FILE_NAME = 200  # bytes of a file's name, which gets an ending as well


@dataclass(frozen=True)
class Candidate:
    """A notebook that a student handed in: a file, or a member of a zip file."""

    path: Path
    member: str = ""

    @property
    def name(self) -> str:
        return writable(PurePosixPath(self.member).name or self.path.name)

    def read_bytes(self) -> bytes:
        """The notebook's bytes, one more than is allowed at most.

        Raises:
            Unreadable: if the file cannot be opened, or it is a zip file that is damaged, or
                locked with a password.
        """
        name = writable(self.path.name)
        if not self.member:
            try:
                with self.path.open("rb") as file:
                    return file.read(LARGEST_NOTEBOOK + 1)
            except OSError:
                raise Unreadable(f"The file {name} cannot be opened.") from None
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                return file.read(LARGEST_NOTEBOOK + 1)
        except Exception:  # each way of packing has its own errors, and some are OSErrors
            raise Unreadable(f"The zip file {name} is damaged or locked.") from None


@dataclass(frozen=True)
class Submission:
    """What one student handed in for one assignment.

    Args:
        student: the name that the folder or file gives.
        key: name of the student's files among the results, different for each student.
        user_id: the platform's number for the student; empty where the layout has none.
        late: whether the platform marked it as late.
        notebook: what to grade; None if there is none, and then `problem` says why.
        problem: why there is no notebook, for the student to read.
    """

    student: str
    key: str
    user_id: str = ""
    late: bool = False
    notebook: Candidate | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        return self.notebook.name if self.notebook else ""

    def read_bytes(self) -> bytes:
        """The notebook's bytes.

        Raises:
            Unreadable: if there is no notebook, or none that can be read.
        """
        if self.notebook is None:
            raise Unreadable(self.problem)
        return self.notebook.read_bytes()


@dataclass
class _StudentFiles:
    """A student while the folder is being read: the platform's marks, and all notebooks found."""

    name: str
    user_id: str
    found: list[tuple[str, bool, Candidate]]  # the student's own file name, late, where
    problem: str = "No notebook was handed in."


def find_submissions(folder: Path, assignment: str) -> list[Submission]:
    """All students' submissions for an assignment, in the order of their names.

    Args:
        folder: what the platform gave, or `submitted/` of nbgrader.
        assignment: name of the master, such as "02-sequences".

    Raises:
        UserError: if there is none, it is a zip file, or nothing in it looks like a submission.
        OSError: if it cannot be read.
    """
    if zipfile.is_zipfile(folder):
        raise UserError(f"{folder} is a zip file: unpack it, and name the folder")
    if not folder.exists():
        raise NotFound(f"there is no folder {folder} of submissions")
    students = _files_by_student(folder)
    if not students:
        raise UserError(
            f"{folder} holds no submissions, expected STUDENT/{assignment}.ipynb or, unpacked, "
            "what Canvas, Moodle or nbgrader makes"
        )
    return _told_apart([_chosen(key, s, assignment) for key, s in sorted(students.items())])


def _files_by_student(folder: Path) -> dict[str, _StudentFiles]:
    """Each student's files, by a key that differs between students."""
    students: dict[str, _StudentFiles] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__MACOSX")) or entry.is_symlink():
            continue
        if entry.is_dir():
            _read_folder(entry, students)
        elif entry.is_file() and (canvas := CANVAS_FILE.fullmatch(entry.name)) is not None:
            key = f"{canvas['name']}_{canvas['user']}"
            student = students.setdefault(key, _StudentFiles(canvas["name"], canvas["user"], []))
            _add(student, entry, canvas["rest"], late=canvas["late"] is not None)
    return students


def with_listed_names(submissions: list[Submission], listed: ClassList) -> list[Submission]:
    """The submissions under the names that the class list has for their students.

    Raises:
        UserError: if two submissions belong to one student.
    """
    renamed = [replace(s, student=listed.student(s.user_id or s.student)) for s in submissions]
    for name, count in Counter(submission.student for submission in renamed).items():
        if count > 1:
            keys = ", ".join(s.key for s in renamed if s.student == name)
            raise UserError(f"{name} has several submissions: {keys}. Which is to count?")
    return renamed


def _told_apart(submissions: list[Submission]) -> list[Submission]:
    """The same, with the key as name where two students have the same one."""
    names = Counter(submission.student for submission in submissions)
    return [replace(s, student=s.key) if names[s.student] > 1 else s for s in submissions]


def _read_folder(folder: Path, students: dict[str, _StudentFiles]) -> None:
    moodle = MOODLE_FOLDER.fullmatch(folder.name)
    if moodle is None:
        key, student = folder.name, _StudentFiles(folder.name, "", [])
    else:
        key = f"{moodle['name']}_{moodle['user']}"
        student = _StudentFiles(moodle["name"], moodle["user"], [])
    student = students.setdefault(key, student)
    for path in _files_below(folder, DEEPEST_FOLDER):
        _add(student, path, "/".join(path.relative_to(folder).parts), late=False)


def _files_below(folder: Path, depth: int) -> Iterator[Path]:
    """The files in a folder, down to a depth, in order; nothing hidden, and no links."""
    with suppress(OSError):  # a folder that may not be looked into
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.name.startswith((".", "__MACOSX")):
                continue
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
            elif depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _files_below(Path(entry.path), depth - 1)


def _add(student: _StudentFiles, path: Path, own_name: str, *, late: bool) -> None:
    """Add the notebooks in a file, which is one, or is a zip file, or is neither."""
    if own_name.lower().endswith(".ipynb"):
        student.found.append((own_name, late, Candidate(path)))
    elif own_name.lower().endswith(".zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.namelist()[:MEMBERS]
        except Exception:  # as in `Candidate.read_bytes`
            student.problem = f"The zip file {PurePosixPath(own_name).name} is damaged."
            return
        for member in members:
            parts = PurePosixPath(member).parts
            hidden = any(part.startswith((".", "__MACOSX")) and part != ".." for part in parts)
            if member.lower().endswith(".ipynb") and not hidden:
                student.found.append((member, late, Candidate(path, member)))


def _chosen(key: str, student: _StudentFiles, assignment: str) -> Submission:
    """The one notebook for this assignment: by its name, else the only one that there is."""
    ranks = [(_rank(name, assignment), late, where) for name, late, where in student.found]
    named = [entry for entry in ranks if entry[0] is not None]
    # Of a file that was handed in again the last counts.
    latest = [e for e in named if e[0] == max(rank for rank, *_ in named if rank is not None)]
    chosen = latest or ranks
    submission = Submission(writable(student.name), _file_name(key), student.user_id)
    if len(chosen) == 1:
        _, late, notebook = chosen[0]
        return replace(submission, late=late, notebook=notebook)
    problem = student.problem
    if chosen:
        names = ", ".join(sorted(where.name for *_, where in chosen))
        problem = (
            f"Several notebooks were handed in, and it is not clear which counts: {names:.500}."
        )
    return replace(submission, problem=writable(problem))


def _rank(name: str, assignment: str) -> int | None:
    """0, or how often the file was handed in again; None if it is another one."""
    stem = PurePosixPath(name).stem
    again = re.fullmatch(re.escape(assignment) + r"(?:-(\d+)| ?\((\d+)\))?", stem, re.IGNORECASE)
    return int(again[1] or again[2] or 0) if again else None


def _file_name(key: str) -> str:
    """A name that every file system takes, with a digest where it cannot be the key itself."""
    name = re.sub(r"[^\w .,'()@+-]", "_", key).strip(" .")
    if name == key and len(name.encode()) <= LONGEST_FILE_NAME:
        return name
    return f"{name[:40]}-{sha256(os.fsencode(key)).hexdigest()[:8]}"
