"""Where the chapters are. What lies in `book/` is the book: no list of chapters is typed anywhere.

A chapter is a notebook `book/01-bandit.ipynb`; its text twin is `book/text/01-bandit.md`. An
appendix is a chapter with a letter, `book/appendix-b-errata.ipynb`. The masters of the exercises
lie in `solutions/` in the same way, and are found by the same names.
"""

from pathlib import Path

from nbcourse.errors import UserError
from nbcourse.repository import ROOT

BOOK, SOLUTIONS = ROOT / "book", ROOT / "solutions"


def notebooks(folder: Path = BOOK) -> list[Path]:
    """The notebooks of a folder, in reading order."""
    return sorted(folder.glob("*.ipynb"))


def texts(folder: Path = BOOK) -> list[Path]:
    """The text twins of a folder, in reading order."""
    return sorted((folder / "text").glob("*.md"))


def text_of(notebook: Path) -> Path:
    """FOLDER/NAME.ipynb → FOLDER/text/NAME.md"""
    return notebook.parent / "text" / f"{notebook.stem}.md"


def notebook_of(text: Path) -> Path:
    """FOLDER/text/NAME.md → FOLDER/NAME.ipynb"""
    return text.parent.parent / f"{text.stem}.ipynb"


def names(chapter: Path) -> list[str]:
    """What a reader may call a chapter, shortest first: 1, 01, bandit, 01-bandit.

    An appendix goes by its letter: b, errata, appendix-b-errata.
    """
    number, _, title = chapter.stem.removeprefix("appendix-").partition("-")
    if number.isdigit() and title:
        return list(dict.fromkeys([str(int(number)), number, title, chapter.stem]))
    if chapter.stem.startswith("appendix-") and title:
        return [number, title, chapter.stem]
    return [chapter.stem]


def find(name: str, among: list[Path] | None = None) -> Path:
    """The chapter that has `name` among its `names`; a path to its file is understood too.

    Capitals do not matter: appendix B is the one that lies in a file with a small b.
    """
    chapters = notebooks() if among is None else among
    file = Path(name)  # a name may have a point, and is no shorter for it: there is no chapter 1.5
    wanted = (file.stem if file.suffix in (".ipynb", ".md") else file.name).lower()
    for chapter in chapters:
        if wanted in names(chapter):
            return chapter
    known = ", ".join(chapter.stem for chapter in chapters) or "none yet"
    raise UserError(
        f"there is no chapter {name!r}; the chapters are: {known} (a number or a name is enough)"
    )
