"""The book's repository: whether this copy of the package lies in it, and its state."""

import subprocess
from pathlib import Path

from nbcourse.errors import NotFound

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds this package: the repository's, or that of all installed packages."""


def is_here(root: Path = ROOT) -> bool:
    """Whether the book lies beside the package."""
    return (root / "book").is_dir() and (root / "pyproject.toml").is_file()


def require() -> None:
    """Require the book's repository, for commands that make no sense without it.

    Raises:
        NotFound: if it is not here.
    """
    if not is_here():
        raise NotFound(
            "this command works on the book's repository, and this nbcourse was installed without "
            "it: clone the repository, and run `make lab` in it once"
        )


def commit(root: Path = ROOT) -> str | None:
    """The commit that is checked out; None where there is no repository of the book's own.

    A package that was installed into an environment may lie inside some other repository, whose
    commit says nothing about it: so git has to know this very file, at this very place.
    """
    own = "nbcourse/__init__.py"
    if not is_here(root) or _git(root, "ls-files", "--full-name", "--", own) != own:
        return None
    return _git(root, "rev-parse", "--verify", "HEAD")


def has_changes(*paths: str, root: Path = ROOT) -> bool:
    """Whether anything under the paths differs from the commit; False where there is none."""
    return commit(root) is not None and bool(_git(root, "status", "--porcelain", "--", *paths))


def tracked(root: Path = ROOT) -> list[str]:
    """The files that git tracks under a folder, as far as they are there; none without git."""
    names = (_git(root, "-c", "core.quotepath=off", "ls-files") or "").splitlines()
    return [name for name in names if (root / name).is_file()]


def is_tracked(file: Path) -> bool:
    """Whether a file lies in some git repository, and git knows it."""
    return file.exists() and _git(file.parent, "ls-files", "--error-unmatch", file.name) is not None


def changed(pattern: str, root: Path = ROOT) -> dict[str, str]:
    """What the index has of the files that were changed since, by their paths; none without git."""
    names = _git(
        root, "-c", "core.quotepath=off", "diff", "--name-only", "--relative", "--", pattern
    )
    index = {name: _git(root, "show", f":./{name}") for name in (names or "").splitlines()}
    return {name: text for name, text in index.items() if text and (root / name).is_file()}


def restore(name: str, root: Path = ROOT) -> None:
    """Write a file as the index has it."""
    _git(root, "checkout", "--", name)


def _git(root: Path, *arguments: str) -> str | None:
    """What git answers; None if it refuses, or is not installed."""
    try:
        answer = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=True, cwd=root
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
