"""What students get: a zip that opens in JupyterLab and holds no solution.

A bundle has the student notebook, a page that says how to begin and how to hand in, and its checks
as worked cases (`worked_cases`), which need nothing but torch. It is the same bytes whenever and
wherever it is made.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

from nbcourse.classroom import files, leaks, worked_cases
from nbcourse.classroom.masters import UNCHOSEN, Master, load_master
from nbcourse.classroom.variants import variant_of
from nbcourse.errors import NotFound, UserError
from nbcourse.publishing import chapters
from nbcourse.repository import ROOT

README = """# {title}

1. Unpack this folder and open a terminal in it.
2. `python -m pip install torch jupyterlab jupyterlab-myst` (not needed where you have the book's
   own environment).
3. `python -m jupyterlab {notebook}`
4. Write your answers, run the checks below them, fix what they find, save.
5. Hand in the one file `{notebook}`. Do not rename it, and do not delete cells.

The folder `nbcourse` holds the checks that the notebook calls: worked cases, some of which are
sealed. Your answer is graded elsewhere, by other cases too, in a process that has Python's standard
library, torch and NumPy, and nothing of `nbcourse` but the numbers of the sheet.
"""


def assignments(root: Path = ROOT) -> list[Path]:
    """The student notebooks that can be released, in reading order."""
    return chapters.notebooks(root / "book" / "exercises")


def write_bundles(
    assignment: str,
    out: Path,
    *,
    students: Iterable[str] | None = None,
    root: Path = ROOT,
) -> Iterator[Path]:
    """Write `out`/NAME.zip for the class, or `out`/NAME/STUDENT.zip with each one's own numbers.

    Args:
        assignment: a number or a name: `2`, `sequences`, `02-sequences`.
        out: folder for the bundles.
        students: whom to make a personal bundle for; None makes one for all.
        root: the book.

    Yields:
        Each bundle's path once it is written.

    Raises:
        UserError: if there is no such assignment, a student's name cannot be a file's name, or
            a bundle cannot be written.
        NotFound: if the master is not here.
        Leak: if a bundle would hold a line of a solution or of a hidden test; it is not written.
    """
    notebook = chapters.find(assignment, assignments(root))
    solved = root / "solutions" / notebook.name
    if not solved.exists():
        raise NotFound(
            f"solutions/{notebook.name} is missing: it says what must not be in a release"
        )
    variants = {notebook.stem: 0}  # name of a bundle → variant
    if students is not None:
        out /= notebook.stem
        variants = {name: variant_of(name, notebook.stem) for name in students}
    for name in variants:
        if not name or name.startswith(".") or set(name) & set('/\\:*?"<>|\n\0'):
            raise UserError(f"student {name!r} cannot be the name of a file")
    master = load_master(solved)
    files.make_folder(out)
    hidden = leaks.secrets(root)  # which takes seconds
    for name, variant in variants.items():
        target = out / f"{name}.zip"
        texts = _bundle(notebook, master, variant, root)
        content = files.zipped({f"{notebook.stem}/{path}": text for path, text in texts})
        if found := leaks.scan_bytes(str(target), content, hidden):
            raise leaks.Leak(
                f"{target} was not written, since it held secrets:\n" + "\n".join(found)
            )
        files.write_file(target, content)
        yield target


def _bundle(notebook: Path, master: Master, variant: int, root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of everything in a bundle."""
    yield notebook.name, with_variant(notebook.read_text(encoding="utf-8"), variant)
    title = nbformat.read(notebook, as_version=4).cells[0].source.splitlines()[0].lstrip("# ")
    yield "README.md", README.format(title=title, notebook=notebook.name)
    yield "LICENSE", (root / "LICENSE").read_text(encoding="utf-8")
    chapter = notebook.stem.partition("-")[2].replace("-", "_")
    package = root / "nbcourse"
    for name in ("__init__", "checks/__init__", "checks/attempt", "checks/sheet", "checks/worked"):
        yield f"nbcourse/{name}.py", (package / f"{name}.py").read_text(encoding="utf-8")
    yield f"nbcourse/checks/{chapter}.py", worked_cases.module(master, variant)


def with_variant(notebook: str, variant: int) -> str:
    """The text of a student notebook with another variant in its locked cell."""
    if notebook.count(UNCHOSEN) != 1:
        raise UserError(
            f"the notebook says {UNCHOSEN!r} {notebook.count(UNCHOSEN)} times, not once"
        )
    return notebook.replace(UNCHOSEN, f"variant={variant}")
