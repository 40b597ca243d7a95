"""Files, folders and zips that the classroom writes and removes."""

import os
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path

from nbcourse.errors import UserError

EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold


def make_folder(path: Path) -> None:
    """Make sure that a folder is there and can be written to.

    Raises:
        UserError: if it is a file, or read-only.
        OSError: if it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(p for p in (path, *path.parents) if p.exists() and not p.is_dir())
        raise UserError(f"{file} is a file, expected a folder to write to") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"the folder {path} is read-only, expected one to write to")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file; one in its place stays whole until the new one is complete.

    Raises:
        UserError: if it cannot be written, such as on a full disk. No part of it is left then.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    unfinished = path.with_name(f".unfinished-{os.getpid()}-{path.name}")  # others may write it
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def zipped(content: Mapping[str, str | bytes], *, programs: Collection[str] = ()) -> bytes:
    """A zip of files: the same bytes for the same files, whenever and wherever it is made.

    Args:
        content: path in the zip → content.
        programs: those of the paths that can be executed once unpacked.
    """
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, written in content.items():
            entry = zipfile.ZipInfo(path, EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if path in programs else 0o644) << 16
            archive.writestr(entry, written)
    return data.getvalue()
