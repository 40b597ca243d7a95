"""Entries of the index: a Sphinx extension.

Each term of the glossary becomes an entry at the section that introduces it, and each function and
command of the reference one at its own section, by its name and by the terms in its name: under GAE
stand the section that introduces it, and `token_gae`.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from nbcourse.publishing.reference import COMMAND_LINE, FOLDER

GLOSSARY = "appendix-a-glossary.md"
ENTRY = re.compile(
    r"^(?P<term>\S.*)\n  \S.*\[Section [\dA-Z.]+\]"
    r"\((?P<page>[\w-]+)\.ipynb#(?P<anchor>sec-[\w-]+)\)$",
    re.M,
)


class Term(NamedTuple):
    """A term of the glossary, and the page and anchor of the section that introduces it."""

    name: str
    page: str
    anchor: str


def glossary(book: Path) -> list[Term]:
    """The terms of a book's glossary; none where it has no glossary."""
    file = book / GLOSSARY
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [Term(*found.groups()) for found in ENTRY.finditer(text)]


def of_name(name: str, terms: Iterable[Term]) -> Iterator[str]:
    """What a function is found by: its name, and the terms that are words of it."""
    yield name
    for term in terms:
        if f"_{_as_words(term.name)}_" in f"_{_as_words(name)}_":
            yield term.name


def _as_words(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_")


class IndexEntries(SphinxTransform):
    """Adds a page's entries, each of which leads to a section."""

    default_priority = 850  # once the sections have their ids

    def apply(self, **kwargs: Any) -> None:
        page, terms = self.env.docname, glossary(Path(self.env.srcdir))
        # the first id is on the section itself
        first = {
            anchor: section["ids"][0]
            for section in self.document.findall(nodes.section)
            for anchor in section["ids"]
        }
        entries = [(term.name, first[term.anchor]) for term in terms if term.page == page]
        for section in self.document.findall(nodes.section):
            if is_entry(page, section):
                title = section[0].astext().removeprefix("nbcourse ")
                entries += [(entry, section["ids"][0]) for entry in of_name(title, terms)]
        for entry, anchor in entries:
            self.document += addnodes.index(entries=[("single", entry, anchor, "main", None)])


def is_entry(page: str, section: nodes.section) -> bool:
    """Whether a section of a page has a function or a command of the reference."""
    least = 1 if page == f"{FOLDER}/{COMMAND_LINE}" else 2
    return page.startswith(f"{FOLDER}/") and _depth(section) > least


def _depth(section: nodes.Node) -> int:
    """1 for the page's own section, 2 for those in it, and so on."""
    return 1 + _depth(section.parent) if isinstance(section.parent, nodes.section) else 1


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_transform(IndexEntries)
