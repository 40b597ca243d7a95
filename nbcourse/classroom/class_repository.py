"""The repository of a class: the book, the package and the sheets, without anything of the answers.

It is a folder without git. So nothing of the history that it comes from can be in it, and the first
commit is made under the instructor's own name. Of what `PUBLISHED` names, only what git tracks is
copied: untracked notes are not published, nor is anything that is added to the book's repository
later, until it is named here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nbcourse import repository
from nbcourse.classroom import files, leaks, worked_cases
from nbcourse.classroom.masters import load_master, sheets
from nbcourse.errors import NotFound, UserError
from nbcourse.repository import ROOT

PUBLISHED = (
    *("README.md", "LICENSE", "LICENSE-TEXT", "CITATION.cff", "CHANGELOG.md", "Makefile"),
    *("pyproject.toml", "requirements.txt", "requirements-dev.txt", "_config.yml", "_toc.yml"),
    *(".gitignore", "book", "nbcourse"),
)


@dataclass(frozen=True)
class PublishedClass:
    """What was published.

    Args:
        files: how many.
        left_out: the files and folders that git tracks here and that are not in it.
        rewritten: the files that hold worked cases in place of checks that know the answers.
    """

    files: int
    left_out: tuple[str, ...]
    rewritten: tuple[str, ...]


def publish(
    folder: Path,
    root: Path = ROOT,
    *,
    watched: Callable[[list[str]], Iterable[str]] = iter,
) -> PublishedClass:
    """Write the repository of a class into an empty folder, once it holds no answer.

    Args:
        folder: is made if it is not there.
        root: the book, with its masters.
        watched: shows how far the search through the files has come.

    Raises:
        UserError: if the folder is not empty, git does not know the files here, or a file cannot
            be written.
        NotFound: if the masters are not here, which say what must not be published.
        Leak: if a file holds a part of a solution or of a hidden test. Nothing is written then.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"the folder {folder} is not empty, expected a new one")
    tracked = repository.tracked(root)
    if not tracked:
        raise UserError(f"git tracks no files in {root}, and only what it tracks is published")
    cases = dict(_cases(root))
    names = [name for name in tracked if PurePosixPath(name).parts[0] in PUBLISHED]
    hidden, found = leaks.secrets(root), []
    content: dict[str, bytes] = {}
    for name in watched(names):
        written = cases.get(name)
        content[name] = written.encode() if written else (root / name).read_bytes()
        found += leaks.scan_bytes(name, content[name], hidden)
    if found:
        raise leaks.Leak("nothing was published, since it held secrets:\n" + "\n".join(found))
    for name, data in content.items():
        files.make_folder((folder / name).parent)
        files.write_file(folder / name, data)
    left_out = dict.fromkeys(
        f"{top}/" if rest else top
        for top, *rest in (PurePosixPath(name).parts for name in tracked)
        if top not in PUBLISHED
    )
    return PublishedClass(len(content), tuple(left_out), tuple(cases))


def _cases(root: Path) -> Iterator[tuple[str, str]]:
    """Each module of checks that knows answers, and what stands in its place, as in a bundle."""
    masters = sheets(root)
    if not masters:
        raise NotFound("solutions/ holds no masters, which say what must not be published")
    for path in masters:
        sheet = path.stem.partition("-")[2].replace("-", "_")
        yield f"nbcourse/checks/{sheet}.py", worked_cases.module(load_master(path), 0)
