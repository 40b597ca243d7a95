"""Look into archives that students hand in: zip and tar, also packed, and one in another.

Nothing is unpacked onto the disk, and of no archive more is read than `LARGEST_CONTENT`, however
little room it takes.
"""

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any

MEMBERS = 1000  # files in an archive that are looked at
ARCHIVES_INSIDE = 10  # archives in an archive that are looked into
DEEPEST = 3  # archives in each other
LARGEST_CONTENT = 64 * 2**20  # bytes that are read of an archive
PACKED: dict[str, Any] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
TARS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


class Damaged(ValueError):
    """Not an archive that can be read: it is damaged, locked with a password, or too big."""


def is_archive(name: str) -> bool:
    """Whether a file of this name can be looked into."""
    return name.lower().endswith((".zip", *TARS))


def members(path: Path) -> list[tuple[str, ...]]:
    """The files in an archive: the name of each, after those of the archives that it is in.

    Raises:
        Damaged: if it cannot be read.
    """
    with _opened(path) as file:
        return list(islice(_members(file, path.name, DEEPEST), MEMBERS))


def read(path: Path, member: tuple[str, ...], most: int) -> bytes:
    """What a file in an archive holds, of more than `most` bytes the first ones.

    Raises:
        Damaged: if it cannot be read.
    """
    name, content = path.name, b""
    with _opened(path) as file:
        source: IO[bytes] = file
        for part in member:
            size = most if part is member[-1] else LARGEST_CONTENT
            content = _content(source, name, part, size)
            source, name = BytesIO(content), part
    return content


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """An archive's file; whatever goes wrong while it is read says that it is damaged."""
    try:
        with path.open("rb") as file:
            yield file
    except Exception as error:  # each way of packing has its own errors, and some are OSErrors
        raise Damaged(f"The archive {path.name} is damaged or locked.") from error


def _members(source: IO[bytes], name: str, depth: int) -> Iterator[tuple[str, ...]]:
    inside = 0
    for member in _names(source, name):
        if is_archive(member) and depth > 1 and inside < ARCHIVES_INSIDE:
            inside += 1
            content = BytesIO(_content(source, name, member, LARGEST_CONTENT))
            try:
                yield from ((member, *rest) for rest in _members(content, member, depth - 1))
            except Exception:  # the others may be sound
                yield (member,)
        else:
            yield (member,)


def _names(source: IO[bytes], name: str) -> list[str]:
    if name.lower().endswith(".zip"):
        with zipfile.ZipFile(source) as archive:
            return [entry for entry in archive.namelist()[:MEMBERS] if not entry.endswith("/")]
    return [entry.name for entry, _ in islice(_tar(source, name), MEMBERS)]


def _content(source: IO[bytes], name: str, member: str, most: int) -> bytes:
    if name.lower().endswith(".zip"):
        with zipfile.ZipFile(source) as archive, archive.open(member) as file:
            return file.read(most)
    (content,) = islice(
        (file.read(most) for entry, file in _tar(source, name) if entry.name == member), 1
    )
    return content


def _tar(source: IO[bytes], name: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """The files of a tar, each to be read before the next."""
    source.seek(0)
    opened = next((PACKED[end] for end in PACKED if name.lower().endswith(end)), None)
    file = opened(source, "rb") if opened else source
    with tarfile.open(fileobj=_Bounded(file), mode="r|") as archive:  # type: ignore[call-overload]
        for entry in archive:
            if entry.isfile() and (found := archive.extractfile(entry)) is not None:
                yield entry, found


class _Bounded:
    """A file of which no more than `LARGEST_CONTENT` is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, LARGEST_CONTENT

    def read(self, count: int) -> bytes:
        content = self.file.read(count)
        self.left -= len(content)
        if self.left < 0:
            raise Damaged("the archive holds too much")
        return content
