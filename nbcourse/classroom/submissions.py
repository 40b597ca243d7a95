"""Where the submissions are in a folder, as teachers have it from their learning platform.

Four layouts are understood, also mixed, and each notebook may be in a zip file:

- `STUDENT/02-sequences.ipynb`, and nbgrader's `STUDENT/02-sequences/02-sequences.ipynb`;
- Moodle's `Full Name_12345_assignsubmission_file_/02-sequences.ipynb`;
- Canvas's `doejane_12345_67890_02-sequences.ipynb`, with `_LATE` after the name and `-1` after a
  file that was handed in again.

Nothing is unpacked onto the disk. A zip file is read member by member, and no more of it than a
notebook may have.
"""

import re
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from nbcourse.classroom.gradebook import ClassList
from nbcourse.classroom.notebooks import LARGEST, Unreadable

CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<file>\d+)_(?P<rest>.+)")
MOODLE = re.compile(r"(?P<name>.+)_(?P<user>\d+)_assignsubmission_\w+?_?")
MEMBERS = 1000  # files in a zip that are looked at
DEEPEST = 4  # folders below a student's


@dataclass(frozen=True)
class Candidate:
    """A notebook that a student handed in: a file, or a member of a zip file."""

    path: Path
    member: str = ""

    @property
    def name(self) -> str:
        return PurePosixPath(self.member).name or self.path.name

    def read(self) -> bytes:
        """The notebook's bytes, one more than is allowed at most.

        Raises:
            Unreadable: if the zip file is damaged, or locked with a password.
        """
        if not self.member:
            with self.path.open("rb") as file:
                return file.read(LARGEST + 1)
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                return file.read(LARGEST + 1)
        except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, NotImplementedError):
            raise Unreadable(f"The zip file {self.path.name} is damaged or locked.") from None


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

    def read(self) -> bytes:
        """The notebook's bytes.

        Raises:
            Unreadable: if there is no notebook, or none that can be read.
        """
        if self.notebook is None:
            raise Unreadable(self.problem)
        return self.notebook.read()


@dataclass
class _Student:
    """A student while the folder is being read: the platform's marks, and all notebooks found."""

    name: str
    user_id: str
    found: list[tuple[str, bool, Candidate]]  # the student's own file name, late, where
    problem: str = "No notebook was handed in."


def find(folder: Path, assignment: str) -> list[Submission]:
    """All students' submissions for an assignment, in the order of their names.

    Args:
        folder: what the platform gave, or `submitted/` of nbgrader.
        assignment: name of the master, such as "02-sequences".

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if nothing in it looks like a submission.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} of submissions")
    students: dict[str, _Student] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__MACOSX")) or entry.is_symlink():
            continue
        if entry.is_dir():
            _read_folder(entry, students)
        elif (canvas := CANVAS.fullmatch(entry.name)) is not None:
            key = f"{canvas['name']}_{canvas['user']}"
            student = students.setdefault(key, _Student(canvas["name"], canvas["user"], []))
            _add(student, entry, canvas["rest"], late=canvas["late"] is not None)
    if not students:
        raise ValueError(
            f"{folder} holds no submissions, expected STUDENT/{assignment}.ipynb or the folder "
            "that Canvas, Moodle or nbgrader makes"
        )
    return _told_apart([_chosen(key, s, assignment) for key, s in sorted(students.items())])


def identified(submissions: list[Submission], listed: ClassList) -> list[Submission]:
    """The submissions under the names that the class list has for their students.

    Raises:
        ValueError: if two submissions belong to one student.
    """
    renamed = [replace(s, student=listed.student(s.user_id or s.student)) for s in submissions]
    for name, count in Counter(submission.student for submission in renamed).items():
        if count > 1:
            keys = ", ".join(s.key for s in renamed if s.student == name)
            raise ValueError(f"{name} has several submissions: {keys}. Which is to count?")
    return renamed


def _told_apart(submissions: list[Submission]) -> list[Submission]:
    """The same, with the key as name where two students have the same one."""
    names = Counter(submission.student for submission in submissions)
    return [replace(s, student=s.key) if names[s.student] > 1 else s for s in submissions]


def _read_folder(folder: Path, students: dict[str, _Student]) -> None:
    moodle = MOODLE.fullmatch(folder.name)
    if moodle is None:
        key, student = folder.name, _Student(folder.name, "", [])
    else:
        key = f"{moodle['name']}_{moodle['user']}"
        student = _Student(moodle["name"], moodle["user"], [])
    student = students.setdefault(_file_name(key), student)
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        hidden = any(part.startswith((".", "__MACOSX")) for part in inside)
        linked = any(p.is_symlink() for p in (path, *path.parents) if p.is_relative_to(folder))
        if path.is_file() and not hidden and not linked and len(inside) <= DEEPEST:
            _add(student, path, "/".join(inside), late=False)


def _add(student: _Student, path: Path, own_name: str, *, late: bool) -> None:
    """Add the notebooks in a file, which is one, or is a zip file, or is neither."""
    if own_name.lower().endswith(".ipynb"):
        student.found.append((own_name, late, Candidate(path)))
    elif own_name.lower().endswith(".zip"):
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.namelist()[:MEMBERS]
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            student.problem = f"The zip file {PurePosixPath(own_name).name} is damaged."
            return
        for member in members:
            parts = PurePosixPath(member).parts
            hidden = any(part.startswith((".", "__MACOSX")) and part != ".." for part in parts)
            if member.lower().endswith(".ipynb") and not hidden:
                student.found.append((member, late, Candidate(path, member)))


def _chosen(key: str, student: _Student, assignment: str) -> Submission:
    """The one notebook for this assignment: by its name, else the only one that there is."""
    ranks = [(_rank(name, assignment), late, where) for name, late, where in student.found]
    named = [entry for entry in ranks if entry[0] is not None]
    # Of a file that was handed in again the last counts.
    latest = [e for e in named if e[0] == max(rank for rank, *_ in named if rank is not None)]
    chosen = latest or ranks
    submission = Submission(student.name, _file_name(key), student.user_id)
    if len(chosen) == 1:
        _, late, notebook = chosen[0]
        return Submission(student.name, submission.key, student.user_id, late, notebook)
    problem = student.problem
    if chosen:
        names = ", ".join(sorted(where.name for *_, where in chosen))
        problem = f"Several notebooks were handed in, and it is not clear which counts: {names}."
    return Submission(student.name, submission.key, student.user_id, problem=problem)


def _rank(name: str, assignment: str) -> int | None:
    """0, or how often the file was handed in again; None if it is another one."""
    stem = PurePosixPath(name).stem
    again = re.fullmatch(re.escape(assignment) + r"(?:-(\d+)| ?\((\d+)\))?", stem, re.IGNORECASE)
    return int(again[1] or again[2] or 0) if again else None


def _file_name(key: str) -> str:
    """A name that every file system takes."""
    return re.sub(r"[^\w .,'()@+-]", "_", key).strip(" .") or "_"
