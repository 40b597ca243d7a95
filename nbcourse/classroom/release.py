"""What students get: a zip that opens in JupyterLab and holds no solution.

A bundle has the student notebook, a page that says how to begin and how to hand in, and the checks,
which need nothing but torch. It is the same bytes whenever and wherever it is made.
"""

import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

from nbcourse.classroom import leaks
from nbcourse.classroom.variants import variant_of
from nbcourse.publishing import chapters
from nbcourse.repository import ROOT

MOMENT = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # the earliest time that a zip can name: bundles do not depend on now
UNCHOSEN = "variant=0"  # stands in the locked cell of every student notebook

README = """# {title}

1. Unpack this folder and open a terminal in it.
2. `python -m pip install torch jupyterlab jupyterlab-myst` (not needed where you have the book's
   own environment).
3. `python -m jupyterlab {notebook}`
4. Write your answers, run the checks below them, mend what they find, save.
5. Hand in the one file `{notebook}`. Do not rename it, and do not delete cells.

The folder `nbcourse` holds the checks that the notebook calls. Changing them changes what your own
screen says, and nothing else: what you hand in is graded elsewhere.
"""


class Leak(ValueError):
    """A bundle would have held a secret. Nothing was written."""


def assignments(root: Path = ROOT) -> list[Path]:
    """The student notebooks that can be released, in reading order."""
    return sorted((root / "book" / "exercises").glob("*.ipynb"))


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
        ValueError: if there is no such assignment, or a student's name cannot be a file's name.
        FileNotFoundError: if the master is not here.
        Leak: if a bundle held a line of a solution or of a hidden test.
    """
    notebook = chapters.find(assignment, assignments(root))
    if not (root / "solutions" / notebook.name).exists():
        raise FileNotFoundError(
            f"solutions/{notebook.name} is missing: it says what must not be in a release"
        )
    hidden = leaks.secrets(root)
    if students is None:
        yield _write(out / f"{notebook.stem}.zip", notebook, 0, hidden, root)
        return
    names = list(students)
    for name in names:
        if not name or name.startswith(".") or set(name) & set('/\\:*?"<>|\n\0'):
            raise ValueError(f"student {name!r} cannot be the name of a file")
    for name in names:
        variant = variant_of(name, notebook.stem)
        yield _write(out / notebook.stem / f"{name}.zip", notebook, variant, hidden, root)


def _write(target: Path, notebook: Path, variant: int, hidden: leaks.Secrets, root: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(
        f".unfinished-{target.name}"
    )  # ends in .zip, and is scanned as one
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _files(notebook, variant, root):
            entry = zipfile.ZipInfo(f"{notebook.stem}/{name}", MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    found = leaks.scan([unfinished], hidden)
    if found:
        unfinished.unlink()
        raise Leak("no bundle was written, since it held secrets:\n" + "\n".join(found))
    return unfinished.replace(target)


def _files(notebook: Path, variant: int, root: Path) -> Iterator[tuple[str, str]]:
    """Name and text of everything in a bundle."""
    yield notebook.name, with_variant(notebook.read_text(encoding="utf-8"), variant)
    title = nbformat.read(notebook, as_version=4).cells[0].source.splitlines()[0].lstrip("# ")
    yield "README.md", README.format(title=title, notebook=notebook.name)
    yield "LICENSE", (root / "LICENSE").read_text(encoding="utf-8")
    chapter = notebook.stem.partition("-")[2].replace("-", "_")
    package = root / "nbcourse"
    for name in (
        "__init__",
        "checks/__init__",
        "checks/attempt",
        "checks/sheet",
        f"checks/{chapter}",
    ):
        yield f"nbcourse/{name}.py", (package / f"{name}.py").read_text(encoding="utf-8")


def with_variant(notebook: str, variant: int) -> str:
    """The text of a student notebook with another variant in its locked cell."""
    if notebook.count(UNCHOSEN) != 1:
        raise ValueError(
            f"the notebook says {UNCHOSEN!r} {notebook.count(UNCHOSEN)} times, not once"
        )
    return notebook.replace(UNCHOSEN, f"variant={variant}")
