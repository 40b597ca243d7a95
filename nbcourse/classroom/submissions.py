"""Find the submissions in a folder that was downloaded from a learning platform.

Four layouts are understood, also mixed, and each notebook may be in a zip file:

- `STUDENT/02-sequences.ipynb`, and nbgrader's `STUDENT/02-sequences/02-sequences.ipynb`;
- Moodle's `Full Name_12345_assignsubmission_file_/02-sequences.ipynb`, also without the last `_`;
  Moodle takes every `_` out of the name;
- Canvas's `doejane_12345_67890_02-sequences.ipynb`, with `_LATE` after the name and `-1` after a
  file that was handed in again (`lib/content_zipper.rb` of canvas-lms). Both the student's name and
  that of the file may hold `_` and numbers: where the file's name can be read in two ways, nothing
  says whose it is. `anon_…` of an anonymous assignment says of nobody whose it is;
- Moodle's files without folders, `Full Name_12345_assignsubmission_file_02-sequences.ipynb`. Where
  names are hidden, or groups hand in, what stands in place of the name is read over: the number
  tells.

A notebook may have another ending, as browsers and editors give it, or be a copy; and it may be in
an archive, where it is read (`archives`). Of several notebooks the one with answers counts.
"""

import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nbcourse.classroom import archives
from nbcourse.classroom.class_list import ClassList, Platform, Student
from nbcourse.classroom.notebooks import LARGEST_NOTEBOOK, Unreadable
from nbcourse.confined.cells import writable
from nbcourse.errors import NotFound, UserError

NUMBER = re.compile(r"[1-9]\d*", re.ASCII)
MOODLE_FOLDER = re.compile(r"(?P<name>[^_]+)_(?P<user>[1-9]\d*)_assignsubmission_\w+?_?", re.ASCII)
MOODLE_FILE = re.compile(
    r"(?P<name>[^_]+)_(?P<user>[1-9]\d*)_assignsubmission_[a-z]+_(?P<file>.+)", re.ASCII
)
ANONYMOUS = re.compile(r"(?P<student>anon_\w+?)_(?:LATE_)?[1-9]\d*_(?P<file>.+)", re.ASCII)
# What browsers and editors add: Safari `.json`, Notepad `.txt`, and a number to a second download.
NOTEBOOK = re.compile(r"\.ipynb(?: ?\(\d+\))?(?:\.(?:json|txt|download))?", re.IGNORECASE)
LOOSELY = (".json", ".txt")  # which may be a notebook
LOOKED_AT = 2**16  # bytes of such a file, in which a notebook's list of cells has begun
COPIES = (
    re.compile(r"(?:copy of|copy_of|kopie von|copie de|copia de|copia di)[ _](.+)", re.IGNORECASE),
    re.compile(r"(.+?)(?: - |[-_ ])(?:copy|kopie|copie|copia) ?\(?\d*\)?", re.IGNORECASE),
)
LISTED = 300  # characters of the names of files that are no notebooks
DEEPEST_FOLDER = 4  # folders below a student's
LONGEST_FILE_NAME = 200  # bytes of a file's name, which gets an ending as well


@dataclass(frozen=True)
class Candidate:
    """A notebook that a student handed in: a file, or a file in an archive."""

    path: Path
    member: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        names = (self.path.name, *self.member)
        return writable(PurePosixPath(names[-1]).name or self.path.name)

    def read_bytes(self, most: int = LARGEST_NOTEBOOK + 1) -> bytes:
        """The notebook's bytes, one more than is allowed at most.

        Raises:
            Unreadable: if the file cannot be opened, or it is an archive that is damaged, or
                locked with a password.
        """
        try:
            if self.member:
                return archives.read(self.path, self.member, most)
            with self.path.open("rb") as file:
                return file.read(most)
        except archives.Damaged as error:
            raise Unreadable(writable(str(error))) from None
        except OSError:
            raise Unreadable(f"The file {writable(self.path.name)} cannot be opened.") from None


@dataclass(frozen=True)
class Submission:
    """What one student handed in for one assignment.

    Args:
        student: the name that the folder or file gives; the key of its owner where that is known.
        key: name of the student's files among the results, different for each submission.
        download: name of the folder or file, as the platform gave it.
        platform: which platform that was.
        user_id: the platform's number for the student; empty where the name has none, or where it
            can be read in two ways.
        late: whether the platform marked it as late.
        notebook: what to grade; None if there is none, and then `problem` says why.
        problem: why there is no notebook, for the student to read.
        owner: whose it is, by the class list.
        unmatched: why no student of the class list is its owner; empty if one is, or there is no
            list.
        claimed: whose it would be, if another one were not by the same student.
    """

    student: str
    key: str
    download: str = ""
    platform: Platform = Platform.OWN
    user_id: str = ""
    late: bool = False
    notebook: Candidate | None = None
    problem: str = ""
    owner: Student | None = None
    unmatched: str = ""
    claimed: Student | None = None

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

    platform: Platform
    name: str
    user_id: str
    download: str
    found: list[tuple[str, bool, Candidate]] = field(default_factory=list)  # own name, late, where
    others: list[str] = field(default_factory=list)  # the names of files that are no notebooks
    damaged: str = ""  # what is wrong with an archive

    @property
    def problem(self) -> str:
        """Why there is no notebook."""
        if self.damaged or not self.others:
            return self.damaged or "No notebook was handed in."
        return f"No notebook was handed in. What was: {', '.join(self.others):.{LISTED}}."


def find_submissions(
    folder: Path, assignment: str, worth: Callable[[Candidate], int] = lambda notebook: 0
) -> list[Submission]:
    """All students' submissions for an assignment, in the order of their names.

    Args:
        folder: what the platform gave, or `submitted/` of nbgrader.
        assignment: name of the master, such as "02-sequences".
        worth: of several notebooks of a student, those for which this is largest may count.

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
    in_order = sorted(students.items(), key=lambda item: item[0][::-1])
    return _told_apart([_chosen(key, s, assignment, worth) for key, s in in_order])


Key = tuple[Platform, str]  # and what differs between the students of a platform


def _files_by_student(folder: Path) -> dict[Key, _StudentFiles]:
    """Each student's files."""
    students: dict[Key, _StudentFiles] = {}
    loose = []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith((".", "__MACOSX")) or entry.is_symlink():
            continue
        if entry.is_dir():
            _read_folder(entry, students)
        elif entry.is_file() and (read := canvas_names(entry.name)):
            # Of several readings the first is Canvas's own, when it takes a file back.
            found, certain = read[0], len(read) == 1
            key = Platform.CANVAS, f"{found.student}_{found.user}" if certain else entry.name
            user = found.user if certain else ""
            fresh = _StudentFiles(key[0], found.student, user, entry.name)
            _add(students.setdefault(key, fresh), entry, found.own_name, late=found.late)
        elif entry.is_file() and (moodle := MOODLE_FILE.fullmatch(entry.name)):
            key = Platform.MOODLE, f"{moodle['name']}_{moodle['user']}"
            fresh = _StudentFiles(key[0], moodle["name"], moodle["user"], entry.name)
            _add(students.setdefault(key, fresh), entry, moodle["file"], late=False)
        elif entry.is_file() and (anonymous := ANONYMOUS.fullmatch(entry.name)):
            key = Platform.CANVAS, anonymous["student"]
            fresh = _StudentFiles(key[0], anonymous["student"], "", entry.name)
            _add(students.setdefault(key, fresh), entry, anonymous["file"], late=False)
        elif entry.is_file() and NOTEBOOK.search(entry.name):
            loose.append(entry)
    if students:  # else they are no submissions
        for entry in loose:
            student = _StudentFiles(Platform.OWN, entry.name, "", entry.name)
            students[Platform.OWN, entry.name] = student
            _add(student, entry, entry.name, late=False)
    return students


class CanvasName(NamedTuple):
    """A reading of a name that Canvas gives a file.

    Args:
        student: the student's name, in small letters and digits.
        late: whether it was handed in late.
        user: the student's number.
        file: the file's number.
        own_name: what the student called the file.
    """

    student: str
    late: bool
    user: str
    file: str
    own_name: str


def canvas_names(file: str) -> list[CanvasName]:
    """How a file's name can be read as one that Canvas gives.

    Canvas writes `NAME_NUMBER_NUMBER_FILE`, or `NAME_LATE_…`. There is no reading of another
    name, and more than one where NAME or FILE holds numbers in such places.
    """
    parts = file.split("_")
    found = []
    for i in range(1, len(parts) - 2):
        if NUMBER.fullmatch(parts[i]) and NUMBER.fullmatch(parts[i + 1]):
            late = i > 1 and parts[i - 1] == "LATE"
            name = "_".join(parts[: i - 1] if late else parts[:i])
            own_name = "_".join(parts[i + 2 :])
            found.append(CanvasName(name, late, parts[i], parts[i + 1], own_name))
    return found


def with_owners(submissions: list[Submission], listed: ClassList) -> list[Submission]:
    """The submissions, each with its owner, or with the reason why nothing says whose it is.

    Raises:
        UserError: if the list cannot have the numbers of the platform that they come from.
    """
    for submission in submissions:
        listed.check_platform(submission.platform, submission.download)
    owners = [
        listed.find(s.platform, s.download if s.platform is Platform.OWN else s.user_id)
        for s in submissions
    ]
    by_key: dict[str, list[str]] = {}
    for submission, owner in zip(submissions, owners, strict=True):
        if owner is not None:
            by_key.setdefault(owner.key, []).append(writable(submission.download))
    known = []
    for submission, owner in zip(submissions, owners, strict=True):
        reason = _why_unmatched(submission, owner, by_key.get(owner.key, []) if owner else [])
        if reason:
            known.append(
                replace(submission, student=submission.key, unmatched=reason, claimed=owner)
            )
        elif owner:
            late = submission.late or owner.late
            known.append(replace(submission, student=owner.key, owner=owner, late=late))
    return known


def _why_unmatched(submission: Submission, owner: Student | None, claims: list[str]) -> str:
    if len(claims) > 1:
        return f"several are by one student: {', '.join(claims)}; keep only the one that counts"
    if owner is not None:
        return ""
    if submission.platform is Platform.OWN:
        return f"the class list has no {writable(submission.download)!r}"
    if ANONYMOUS.fullmatch(submission.download):
        return f"{writable(submission.download)} is anonymous: download it again with names shown"
    if not submission.user_id:
        return f"the name {writable(submission.download)} can be read in two ways; rename the file"
    return f"the class list has no student with {submission.platform}'s number {submission.user_id}"


def _told_apart(submissions: list[Submission]) -> list[Submission]:
    """The same, each with a key of its own, which is the name where two have the same one."""
    keys = Counter(submission.key for submission in submissions)
    different = [
        replace(s, key=_with_digest(s.key, s.platform + s.download)) if keys[s.key] > 1 else s
        for s in submissions
    ]
    names = Counter(submission.student for submission in submissions)
    return [replace(s, student=s.key) if names[s.student] > 1 else s for s in different]


def _read_folder(folder: Path, students: dict[Key, _StudentFiles]) -> None:
    moodle = MOODLE_FOLDER.fullmatch(folder.name)
    if moodle is None:
        key = Platform.OWN, folder.name
        student = _StudentFiles(key[0], folder.name, "", folder.name)
    else:
        key = Platform.MOODLE, f"{moodle['name']}_{moodle['user']}"
        student = _StudentFiles(key[0], moodle["name"], moodle["user"], folder.name)
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
    """Add the notebooks in a file, which is one, or is an archive, or is neither."""
    if not archives.is_archive(own_name):
        _add_one(student, Candidate(path), own_name, late=late)
        return
    try:
        members = archives.members(path)
    except archives.Damaged:
        student.damaged = f"The archive {PurePosixPath(own_name).name} is damaged."
        return
    for member in members:
        parts = PurePosixPath(*member).parts
        if not any(part.startswith((".", "__MACOSX")) and part != ".." for part in parts):
            _add_one(student, Candidate(path, member), member[-1], late=late)


def _add_one(student: _StudentFiles, file: Candidate, own_name: str, *, late: bool) -> None:
    if _ending(own_name) or (own_name.lower().endswith(LOOSELY) and _has_cells(file)):
        student.found.append((own_name, late, file))
    else:
        student.others.append(PurePosixPath(own_name).name)


def _ending(own_name: str) -> str:
    """What tells a notebook in a file's name; empty if nothing does."""
    found = re.search(rf"(?:{NOTEBOOK.pattern})\Z", own_name, re.IGNORECASE)
    return found[0] if found else ""


def _has_cells(file: Candidate) -> bool:
    """Whether a file begins as a notebook does, in any encoding."""
    try:
        text = file.read_bytes(LOOKED_AT).replace(b"\0", b"")
    except Unreadable:
        return False
    return (
        b'"cells"' in text
        and b'"cell_type"' in text
        and text.lstrip(b"\xef\xbb\xbf\xff\xfe \r\n\t")[:1] == b"{"
    )


Entry = tuple[int | None, bool, Candidate]  # rank, late, where


def _chosen(
    key: Key, student: _StudentFiles, assignment: str, worth: Callable[[Candidate], int]
) -> Submission:
    """The one notebook for this assignment: by its name, else the only one that there is."""
    ranks: list[Entry] = [
        (_rank(name, assignment), late, where) for name, late, where in student.found
    ]
    named = [entry for entry in ranks if entry[0] is not None]
    chosen = _that_count(named, worth) if named else _worthiest(ranks, worth)
    submission = Submission(
        writable(student.name),
        _file_name(key[1]),
        student.download,
        student.platform,
        student.user_id,
        late=any(late for _, late, _ in chosen),
    )
    if len(chosen) == 1:
        notebook = chosen[0][2]
        given = notebook.path.name if student.platform is Platform.CANVAS else student.download
        return replace(submission, download=given, notebook=notebook)
    problem = student.problem
    if chosen:
        names = ", ".join(sorted(where.name for *_, where in chosen))
        problem = (
            f"Several notebooks were handed in, and it is not clear which counts: {names:.500}."
        )
    return replace(submission, problem=writable(problem))


def _worthiest(entries: list[Entry], worth: Callable[[Candidate], int]) -> list[Entry]:
    if len(entries) < 2:
        return entries
    worths = [worth(where) for *_, where in entries]
    return [entry for entry, own in zip(entries, worths, strict=True) if own == max(worths)]


def _that_count(named: list[Entry], worth: Callable[[Candidate], int]) -> list[Entry]:
    """Of notebooks with the sheet's name: those with answers, the last of them, each once."""
    answered = _worthiest(named, worth)
    last = max(rank for rank, *_ in answered if rank is not None)
    latest = [entry for entry in answered if entry[0] == last]
    if len(latest) > 1:
        with suppress(Unreadable):
            latest = list({entry[2].read_bytes(): entry for entry in latest}.values())
    return latest


def _rank(name: str, assignment: str) -> int | None:
    """0, or how often the file was handed in again; None if it is another one."""
    path = PurePosixPath(name)
    stem = path.name.removesuffix(_ending(name) or path.suffix)
    for copy in COPIES:
        if found := copy.fullmatch(stem):
            stem = found[1]
    again = re.fullmatch(re.escape(assignment) + r"(?:-(\d+)| ?\((\d+)\))?", stem, re.IGNORECASE)
    return int(again[1] or again[2] or 0) if again else None


def _file_name(key: str) -> str:
    """A name that every file system takes, with a digest where it cannot be the key itself."""
    name = re.sub(r"[^\w .,'()@+-]", "_", key).strip(" .")
    if name == key and len(name.encode()) <= LONGEST_FILE_NAME:
        return name
    return _with_digest(name, key)


def _with_digest(name: str, key: str) -> str:
    return f"{name[:40]}-{sha256(os.fsencode(key)).hexdigest()[:8]}"
