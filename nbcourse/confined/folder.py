"""The one folder that a submission may write to: how much is in it, and removing it."""

import itertools
import os
from pathlib import Path


def size(folder: Path, enough: int) -> int:
    """Bytes in a folder, each file counted as 4 KiB at least; counting ends beyond `enough`."""
    total, folders = 0, [str(folder)]
    while folders and total <= enough:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    total += max(4096, entry.stat(follow_symlinks=False).st_size)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            return enough + 1  # a path too long to follow
    return total


def remove(folder: Path) -> None:
    """Remove a folder that nothing writes to any more, however deep and write-protected it is.

    Subfolders are emptied into the folder itself, level by level, so that no path gets too long;
    links are not followed.

    Raises:
        OSError: if something does write to it, or belongs to another user.
    """
    os.chmod(folder, 0o700)
    names = (folder / f"moved-{number}" for number in itertools.count())
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            for child in list(os.scandir(entry.path)):
                if child.is_dir(follow_symlinks=False):
                    os.chmod(child.path, 0o700)
                    os.rename(child.path, next(n for n in names if not os.path.lexists(n)))
                else:
                    os.unlink(child.path)
            os.rmdir(entry.path)
    os.rmdir(folder)
