"""The search of the site, in place of Sphinx's own: a Sphinx extension.

What is found is a section, with a line of its text. The index is one file, which a browser reads
when a reader begins to search: the text of every section without its code, formulas as plain
letters, and the names that sections define, which are those of the glossary, of the reference and
of the catalogue of mistakes. `ranking.js` puts the sections in order; `search.js` has the box, and
leads to the place of the match.

Sphinx's index has no text: for a line of it, its search reads every page that it has found. The
libraries that we looked at (MiniSearch, lunr) find words, and a phrase only as words; and their
index of this book is larger than its text.
"""

import base64
import json
import re
import tomllib
import unicodedata
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

from nbcourse.mistakes.catalogue import CATALOGUE
from nbcourse.publishing import index_entries

NAME = "search"  # the page with the results of an address
QUESTIONS = "questions.toml"  # in the folder of the book
FILE = "search-index.bin"  # below _static: JSON made small by DEFLATE
# The same as a script: to a page on a disk a browser gives no other file.
FROM_DISK = "search-index.js"
PROGRAM = 'globalThis.nbSearchIndex = "{}";\n'
SKIPPED = (
    nodes.literal_block
    | nodes.raw
    | nodes.comment
    | nodes.image
    | nodes.math_block
    | nodes.Invisible
    | nodes.section
)
GLOSSARY = index_entries.GLOSSARY.removesuffix(".md")
LONGEST = 24  # characters of a formula in a line of text: a longer one becomes "…"
NUMBER = re.compile(r"^(?:[\d.]+ )?(?:○ )?")


LAMDA = {"lambda": "lamda", "varepsilon": "epsilon"}  # what Unicode calls them
SIGNS = {name: name for name in ("log", "exp", "min", "max")} | {
    "nabla": "∇", "times": "×", "cdot": "·", "sum": "Σ", "pm": "±", "infty": "∞", "sqrt": "√",
    "le": "≤", "ge": "≥", "ne": "≠", "approx": "≈", "to": "→", "mid": "|", "ast": "*", "in": "∈",
}  # fmt: skip


class Section(NamedTuple):
    """What can be found: an anchor of a page, its heading, and its text, a line for each block."""

    page: int
    anchor: str
    heading: str
    text: str


class Definition(NamedTuple):
    """A name that a section defines, in which order it comes among equals, and what it means."""

    name: str
    section: int
    rank: int
    line: str


TERM, COMMAND, MISTAKE, FUNCTION = range(4)  # ranks of definitions


def index(documents: Mapping[str, nodes.document], book: Path) -> dict[str, Any]:
    """What `ranking.js` searches.

    Args:
        documents: the pages of the site by their names.
        book: the folder with the glossary.

    Returns:
        `pages`: address and title of each; `sections` and `definitions`: rows as in `Section` and
        `Definition`.
    """
    pages: list[tuple[str, str]] = []
    sections: list[Section] = []
    definitions: list[Definition] = []
    places: dict[tuple[str, str], int] = {}
    for number, (name, document) in enumerate(documents.items()):
        found = list(document.findall(nodes.section))
        pages.append((f"{name}.html", line(found[0][0]) if found else name))
        for section in found:
            place, heading = len(sections), line(section[0])
            places |= {(name, anchor): place for anchor in section["ids"]}
            places.setdefault(("", NUMBER.sub("", heading)), place)
            said = list(lines(section))
            if name.startswith("exercises/"):
                said = said[:2]  # what kind of exercise, and how it begins
            if name == GLOSSARY:
                said = []  # its lines are what the terms' own sections are found by
            if index_entries.is_entry(name, section):
                said = said[:1]  # arguments, errors and sources are read there
                command = heading.removeprefix("nbcourse ")
                rank = FUNCTION if command == heading else COMMAND
                definitions.append(Definition(command, place, rank, ""))
            sections.append(Section(number, anchor_of(section), heading, "\n".join(said)))
    definitions += [*_terms(documents, places, book), *_questions(places, book), *_mistakes(places)]
    return {"pages": pages, "sections": sections, "definitions": definitions}


def anchor_of(section: nodes.section) -> str:
    """The id of a section that does not change with its heading, if it has one."""
    return next((one for one in section["ids"] if one.startswith("sec-")), section["ids"][0])


def lines(section: nodes.section) -> Iterator[str]:
    """The blocks of text of a section, without those of the sections in it."""
    for child in section.children[1:]:
        yield from _lines(child)


def _lines(node: nodes.Node) -> Iterator[str]:
    if isinstance(node, SKIPPED) or _is_hint(node):
        return
    if isinstance(node, nodes.row):
        yield " · ".join(filter(None, (" ".join(_lines(cell)) for cell in node.children)))
    elif isinstance(node, nodes.TextElement):
        if text := line(node):
            yield text
    else:
        printed = "cell_output" in node.get("classes", [])
        for child in node.children:
            if not printed or "nb-caption" in child.get("classes", []):
                yield from _lines(child)


def _is_hint(node: nodes.Node) -> bool:
    """Whether this is a hint to an exercise, which a search shall not give away."""
    return isinstance(node, nodes.Admonition) and node.astext().startswith("Hint ")


def line(node: nodes.Node) -> str:
    """A block of text as one line, its formulas as plain letters."""
    parts = []
    for one in node.findall(lambda part: isinstance(part, nodes.Text | nodes.math | nodes.raw)):
        if isinstance(one, nodes.math):
            parts.append(plain(one.astext()))
        elif isinstance(one, nodes.Text) and not isinstance(one.parent, nodes.math | nodes.raw):
            parts.append(one.astext())
    return " ".join("".join(parts).split())


def plain(tex: str) -> str:
    r"""A formula as letters: `\rho_t` becomes ρ_t; one that is long or has other commands, "…"."""
    text = re.sub(r"\\(?:text|mathrm|mathbb|operatorname|hat|tilde|bar)\b", "", tex)
    text = re.sub(r"\\([A-Za-z]+)", _letter, re.sub(r"\\[,;!: ]", " ", text))
    text = " ".join(re.sub(r"[{}]", "", text).split())
    return text if "\\" not in text and len(text) <= LONGEST else "…"


def _letter(command: re.Match[str]) -> str:
    name = command[1]
    case = "CAPITAL" if name[0].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {LAMDA.get(name.lower(), name)}")
    except KeyError:
        return SIGNS.get(name, command[0])


def _terms(
    documents: Mapping[str, nodes.document], places: Mapping[tuple[str, str], int], book: Path
) -> Iterator[Definition]:
    """The glossary's, each at the section that introduces it, with what the glossary says."""
    document = documents.get(GLOSSARY)
    said = {}
    for item in document.findall(nodes.definition_list_item) if document else ():
        said[line(item[0])] = re.sub(r" Section [\dA-Z.]+$", "", line(item[-1][0]))
    for term in index_entries.glossary(book):
        yield Definition(term.name, places[term.page, term.anchor], TERM, said.get(term.name, ""))


def _questions(places: Mapping[tuple[str, str], int], book: Path) -> Iterator[Definition]:
    """What readers ask, each at the section that answers; a section may be missing from a part."""
    file = book / QUESTIONS
    for at, asked in tomllib.loads(file.read_text("utf-8") if file.exists() else "").items():
        page, _, anchor = at.partition("#")
        if (page, anchor) in places:
            yield from (Definition(one, places[page, anchor], TERM, "") for one in asked)


def _mistakes(places: Mapping[tuple[str, str], int]) -> Iterator[Definition]:
    """What the doctors name, each at the section that teaches it."""
    for name, mistake in CATALOGUE.items():
        place = places.get(("", NUMBER.sub("", mistake.section)))
        if place is not None:
            yield Definition(name, place, MISTAKE, mistake.sentence)


def packed(found: dict[str, Any]) -> bytes:
    """An index as `ranking.js` opens it, its sections in columns: what is alike is together."""
    columns = {**found, "sections": list(zip(*found["sections"], strict=True))}
    return zlib.compress(json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode(), 9)


def set_page(app: Sphinx, config: Config) -> None:
    """Add the page of the search."""
    config.html_additional_pages = {**config.html_additional_pages, NAME: f"{NAME}.html"}


def replace(app: Sphinx) -> None:
    """Let Sphinx make no index and no page of its own for the search."""
    app.builder.search = False  # type: ignore[attr-defined]  # builders of HTML have it


def only_ours(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Leave out the script that marks single words of a search in every page."""
    context["script_files"] = [
        file for file in context["script_files"] if "sphinx_highlight" not in str(file)
    ]


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the file with the index."""
    if error is not None:
        return
    documents = {name: app.env.get_doctree(name) for name in sorted(app.env.found_docs)}
    squeezed, static = packed(index(documents, Path(app.srcdir))), Path(app.outdir, "_static")
    (static / FILE).write_bytes(squeezed)
    program = PROGRAM.format(base64.b64encode(squeezed).decode())
    (static / FROM_DISK).write_text(program, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", replace)
    app.connect("config-inited", set_page)
    app.connect("html-page-context", only_ours)
    app.connect("build-finished", write)
