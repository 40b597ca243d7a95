"""Files and folders that an instructor names: errors are one line, and files are written whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def explained(problem: str) -> Iterator[None]:
    """Turn an error of the operating system into one line.

    Args:
        problem: what cannot be done, with the path, such as "cannot read the class list x.csv".

    Raises:
        ValueError: with the problem and the system's reason, such as "Permission denied".
    """
    try:
        yield
    except OSError as error:
        raise ValueError(f"{problem}: {error.strerror or error}") from error


def make_folder(path: Path) -> None:
    """Make sure that a folder is there and can be written to, before work begins.

    Raises:
        ValueError: if it cannot be made, is a file, or is read-only.
    """
    with explained(f"cannot write to the folder {path}"):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            file = next(p for p in (path, *path.parents) if p.exists() and not p.is_dir())
            raise ValueError(f"{file} is a file, expected a folder to write to") from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise ValueError(f"the folder {path} is read-only, expected one to write to")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file; one in its place stays whole until the new one is complete.

    Raises:
        ValueError: if it cannot be written, such as on a full disk. No part of it is left then.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    unfinished = path.with_name(f".unfinished-{path.name}")
    with explained(f"cannot write {path}"):
        try:
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise
