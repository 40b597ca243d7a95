"""What the chapters say to the package: their titles, and the functions that their code uses."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbcourse.publishing import chapters, stored
from nbcourse.publishing.numbering import CODE, SECTION
from nbcourse.repository import ROOT

TITLE = re.compile(rf"^#+ (?:(?P<number>{SECTION}) )?(?P<title>\S.*)$", re.M)
MAGIC = re.compile(r"^[%!].*$", re.M)


@dataclass(frozen=True)
class Headings:
    """The chapters and their sections by name.

    Attributes:
        chapters: the file of each, by its number or letter: 03, B.
        sections: title → file and anchor of the sections that have it; a section without a number
            has no anchor of its own.
    """

    chapters: Mapping[str, str]
    sections: Mapping[str, list[str]]

    def find(self, title: str, *, chapter: str = "") -> str | None:
        """The section of this title, in one chapter's file or else the only one in the book."""
        found = [each for each in self.sections.get(title, []) if each.startswith(chapter)]
        return found[0] if len(found) == 1 else None


def headings(book: Path = chapters.BOOK) -> Headings:
    """Those of a book."""
    files, sections = {}, defaultdict(list)
    for page in (*chapters.notebooks(book), *sorted(book.glob("appendix-*.md"))):
        letter = chapters.names(page)[0].upper()
        files[f"{int(letter):02}" if letter.isdigit() else letter] = page.name
        text = chapters.text_of(page) if page.suffix == ".ipynb" else page
        prose = re.sub(CODE, "", text.read_text(encoding="utf-8"), flags=re.M | re.S)
        for found in TITLE.finditer(prose):
            anchor = f"#sec-{found['number'].lower().replace('.', '-')}" if found["number"] else ""
            sections[found["title"]].append(page.name + anchor)
    return Headings(files, dict(sections))


def called(chapter: str) -> str:
    """`chapter 3` or `appendix B`, by the name of its file."""
    name = chapters.names(Path(chapter))[0]
    return f"chapter {name}" if name.isdigit() else f"appendix {name.upper()}"


def by_chapters(book: Path = chapters.BOOK) -> dict[str, list[str]]:
    """The chapters whose code names a function of the package, by the function's dotted name."""
    again, found = _exported_again(), defaultdict(list)
    for notebook in chapters.notebooks(book):
        cells = [cell.source for cell in stored.read(notebook).cells if cell.cell_type == "code"]
        trees = [ast.parse(MAGIC.sub("", source)) for source in cells]
        known = {name: target for tree in trees for name, target in _imported(tree)}
        named = {again.get(name, name) for tree in trees for name in _names(tree, known)}
        for name in named:
            found[name].append(notebook.stem)
    return found


def _exported_again() -> dict[str, str]:
    """What a room's `__init__` imports, such as nbcourse.display.table → its own module's name."""
    return {
        f"nbcourse.{file.parent.name}.{name}": target
        for file in (ROOT / "nbcourse").glob("*/__init__.py")
        for name, target in _imported(ast.parse(file.read_text(encoding="utf-8")))
    }


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name that code imports from the package, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nbcourse"):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("nbcourse") and alias.asname:
                    yield alias.asname, alias.name


def _names(tree: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    """Every name and attribute, in full, that begins with something imported."""
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in known:
            yield ".".join([known[node.id], *parts])
