"""Files that survive a kill and a power cut, and a folder that one process writes at a time.

write        → a file that is there as a whole, or as it was before
sync         → what was written to a stream is on the disk
sync_folder  → so are the files of a folder, and their names
locked       → no other process of this machine works in the folder meanwhile
sha256       → what tells whether a file is still the same
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import IOBase
from pathlib import Path

from nbcourse.errors import UserError


def write(path: Path, content: bytes) -> None:
    """Write a file under another name, make sure it is on the disk, and rename it."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    _sync_file(unfinished)
    unfinished.replace(path)
    sync_names(path.parent)


def sync(stream: IOBase) -> None:
    """Return when the disk has all that was written to a stream."""
    stream.flush()
    os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Return when the disk has the files in a folder, and the folder their names."""
    for file in folder.iterdir():
        _sync_file(file)
    sync_names(folder)


def sync_names(folder: Path) -> None:
    """Return when the disk knows what a folder holds: a new or renamed file is lost without it.

    Some file systems that are mounted over a network know no such request; there it is left out.
    """
    if os.name == "nt":  # Windows opens no folders, and writes names through by itself
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:  # as PostgreSQL, which ignores these two, of folders alone
        if error.errno not in (errno.EBADF, errno.EINVAL):
            raise
    finally:
        os.close(number)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; however this one ends, the kernel unlocks it.

    Windows and some network file systems cannot lock a folder; there nothing is locked.

    Raises:
        ValueError: if another process has locked it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(number)
        raise UserError(
            f"another process is at work in {folder}: wait for it, or name another folder (--out)"
        ) from error
    except OSError:  # the file system has no such lock
        pass
    try:
        yield
    finally:
        os.close(number)


def sha256(file: Path) -> str:
    """Of a file's content, however large it is."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync_file(path: Path) -> None:
    # Opened for writing: Windows syncs no other.
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
