r"""One numbering for the book: equations (11.3), figures, tables, sections, and links to them.

A text names things by labels: `$$ … $$ (eq-x)` is an equation and {eq}`eq-x` refers to it,
`*Figure (fig-x).* …` and `*Table (tab-x).* …` are captions and {numref}`fig-x` refers to one, and a
section has its number in its heading. `numbered` turns this into Markdown that shows the same
numbers in JupyterLab, with and without its MyST extension, and on the site: `\tag{11.3}`, and links
to anchors. `plain` leads back, so that no number but a section's is written by hand.

Display mathematics becomes `\begin{equation*}`, since the MyST extension would give every `$$` a
number of its own.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from nbcourse.errors import UserError, did_you_mean
from nbcourse.publishing import bibliography, chapters
from nbcourse.publishing.bibliography import READINGS, Work

SECTION = r"(?:\d{1,2}|[A-Z])\.\d{1,2}\b(?!\.\d)"  # 2.4 and B.18, but not the 4.1.2 of a paper
EQUATION = r"^(?P<indent> *)\$\$\n(?P<body>.*?)\n(?P=indent)\$\$(?: \((?P<label>eq-[a-z0-9-]+)\))?$"
CAPTION = r"^\*(?P<kind>{}) \((?P<label>{}-[a-z0-9-]+)\)\.\*"
FIGURE, TABLE = CAPTION.format("Figure", "fig"), CAPTION.format("Table", "tab")
HEADING = rf"^(?=#+ (?P<label>{SECTION}) )"
REFERENCE = r"\{(?P<role>eq|numref)\}`(?P<label>[^`\n]*)`"
# section 2.4 · Sections 8.5, 8.6 and 8.7 · § 12.1 · appendix C.7 · (B.18)
MENTION = (
    rf"(?:\b[Ss]ections? |§ |\b[Aa]ppendix (?=[A-Z])|(?<=\()(?=[A-Z])){SECTION}"
    rf"(?:(?:, and|, or|,| and| or| to) {SECTION})*"
)

# Where a label means nothing: blocks of code, and for what stands in a line code, mathematics,
# links, tags and headings as well.
CODE = r"^(?P<fence>`{3,})[^\n]*\n.*?^(?P=fence)$"
LITERAL = (
    rf"{CODE}|^\\begin\{{equation\*\}}.*?^\\end\{{equation\*\}}|^#[^\n]*"
    r"|`[^`\n]*`|\$[^$\n]+\$|\[[^\]\n]*\]\([^)\n]*\)|<[^>\n]+>"
)
ANCHOR = '<div id="{}"></div>\n\n'
# What `numbered` writes, for the way back.
WRITTEN = [
    (
        r'(?:^ *<div id="(?P<label>eq-[a-z0-9-]+)"></div>\n\n)?'
        r"^(?P<indent> *)\\begin\{equation\*\}\n(?P<body>.*?)\n"
        r"(?: *\\tag\{[^}\n]*\}\n)?(?P=indent)\\end\{equation\*\}$",
        lambda m: (
            "{indent}$$\n{body}\n{indent}$$".format(**m.groupdict())
            + (f" ({m['label']})" if m["label"] else "")
        ),
    ),
    (
        r'^<div id="(?P<label>(?:fig|tab)-[a-z0-9-]+)"></div>\n\n\*(?P<kind>\w+) [^*\n]*\.\*',
        lambda m: f"*{m['kind']} ({m['label']}).*",
    ),
    (r'^<div id="sec-[a-z0-9-]+"></div>\n\n', lambda m: ""),
    (r"\[[^\]\n]*\]\([^)\n]*#(?P<label>eq-[a-z0-9-]+)\)", lambda m: f"{{eq}}`{m['label']}`"),
    (
        r"\[[^\]\n]*\]\([^)\n]*#(?P<label>(?:fig|tab)-[a-z0-9-]+)\)",
        lambda m: f"{{numref}}`{m['label']}`",
    ),
    (
        bibliography.CITED,
        lambda m: f"{{cite}}`{Work(m['authors'], m['year'], m['title'], m['url']).key}`",
    ),
    (r"\[(?P<words>[^\]\n]*)\]\([^)\n]*#sec-[a-z0-9-]+\)", lambda m: m["words"]),
]


@dataclass(frozen=True)
class Place:
    """Something with a number.

    Attributes:
        anchor: what a link to it ends in.
        number: as it is printed: 11.3.
        chapter: the stem of the chapter it is in.
    """

    anchor: str
    number: str
    chapter: str


def places(book: Path = chapters.BOOK) -> dict[str, Place]:
    """Everything in the texts of a book that has a number, by its label: eq-x, fig-x, tab-x, 11.5.

    Raises:
        UserError: if two things have the same label.
    """
    found: dict[str, Place] = {}
    for text in chapters.texts(book):
        for label, place in _places_in(text):
            if label in found:
                raise UserError(f"{label} is in {found[label].chapter} and again in {text.stem}")
            found[label] = place
    return found


def _places_in(text: Path) -> Iterator[tuple[str, Place]]:
    chapter = chapters.names(text)[0].upper()
    source = re.sub(CODE, "", text.read_text(encoding="utf-8"), flags=re.M | re.S)
    for kind in (EQUATION, FIGURE, TABLE):
        labels = [found["label"] for found in re.finditer(kind, source, re.M | re.S)]
        for position, label in enumerate(filter(None, labels), start=1):
            yield label, Place(label, f"{chapter}.{position}", text.stem)
    for found in re.finditer(HEADING, source, re.M):
        anchor = f"sec-{found['label'].lower().replace('.', '-')}"
        yield found["label"], Place(anchor, found["label"], text.stem)


def numbered(notebook: NotebookNode, text: Path) -> NotebookNode:
    """The notebook of a text with the numbers of its book, its labels made into anchors and links.

    Sheets of exercises link to the chapters from where students find the sheets, one folder down;
    the sections they mention stay words.

    Raises:
        UserError: if a reference leads nowhere, naming the text and what is near.
    """
    folder = text.parent.parent
    book = folder.parent / chapters.BOOK.name
    here = text.stem if folder == book else None
    write = Writer(places(book), bibliography.by_key(book), text.name, here)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = write(cell.source)
    return notebook


def plain(notebook: NotebookNode) -> NotebookNode:
    """The notebook with the labels of its text again: the inverse of `numbered`."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for pattern, replace in WRITTEN:
                cell.source = _outside(CODE, pattern, replace, cell.source)
    return notebook


@dataclass(frozen=True)
class Writer:
    """Writes numbers into Markdown; see `numbered`.

    Attributes:
        places: what there is to refer to.
        works: what there is to cite, by key.
        file: the name of the text, for messages.
        here: the stem of the chapter, or None for a sheet of exercises.
    """

    places: Mapping[str, Place]
    works: Mapping[str, Work]
    file: str
    here: str | None

    def __call__(self, source: str) -> str:
        source = _outside(CODE, EQUATION, self._equation, source)
        for caption in (FIGURE, TABLE):
            source = _outside(CODE, caption, self._caption, source)
        if self.here is not None:
            source = _outside(CODE, HEADING, self._heading, source)
        source = _outside(CODE, REFERENCE, self._reference, source)
        source = _outside(CODE, bibliography.CITATION, self._citation, source)
        if self.here is None:
            return source
        prose, *readings = READINGS.split(source)
        return "".join(
            [_outside(LITERAL, MENTION, self._mention, prose)]
            + [_outside(LITERAL, MENTION, self._mention_of_ours, part) for part in readings]
        )

    def _equation(self, found: re.Match[str]) -> str:
        indent, body, label = found["indent"], found["body"], found["label"]
        anchor = tag = ""
        if label is not None:
            anchor = indent + ANCHOR.format(label)
            tag = f"{indent}\\tag{{{self.places[label].number}}}\n"
        begin, end = (rf"{indent}\{word}{{equation*}}" for word in ("begin", "end"))
        return f"{anchor}{begin}\n{body}\n{tag}{end}"

    def _caption(self, found: re.Match[str]) -> str:
        place = self.places[found["label"]]
        return f"{ANCHOR.format(place.anchor)}*{found['kind']} {place.number}.*"

    def _heading(self, found: re.Match[str]) -> str:
        return ANCHOR.format(self.places[found["label"]].anchor)

    def _reference(self, found: re.Match[str]) -> str:
        role, label = found["role"], found["label"]
        place = self._find(label, f"{{{role}}}`{label}`")
        kind = "table" if label.startswith("tab-") else "figure"
        return self._link(f"({place.number})" if role == "eq" else f"{kind} {place.number}", place)

    def _citation(self, found: re.Match[str]) -> str:
        if found["key"] not in self.works:
            near = did_you_mean(found["key"], self.works)
            raise UserError(f"{self.file}: {found[0]} is in no chapter's readings{near}")
        return self.works[found["key"]].citation

    def _mention(self, found: re.Match[str]) -> str:
        """`sections 8.5 and 8.6`: the first link has the word in it, the others their number."""

        def link(part: re.Match[str]) -> str:
            place = self._find(part["number"], found[0])
            return part["comma"] + self._link(part["words"] + part["number"], place)

        part = rf"(?P<comma>(?:,? (?:and |or |to )?|, )?)(?P<words>[^\d,.]*?)(?P<number>{SECTION})"
        return re.sub(part, link, found[0])

    def _mention_of_ours(self, found: re.Match[str]) -> str:
        numbers = re.findall(SECTION, found[0])
        ours = all(n in self.places and self.places[n].chapter == self.here for n in numbers)
        return self._mention(found) if ours else found[0]

    def _link(self, words: str, place: Place) -> str:
        file = "" if place.chapter == self.here else f"{place.chapter}.ipynb"
        return f"[{words}]({'../' if self.here is None else ''}{file}#{place.anchor})"

    def _find(self, label: str, reference: str) -> Place:
        if label not in self.places:
            near = did_you_mean(label, self.places)
            raise UserError(f"{self.file}: {reference} leads nowhere in the book{near}")
        return self.places[label]


def _outside(
    literal: str, pattern: str, replace: Callable[[re.Match[str]], str], source: str
) -> str:
    """`source` with every match of `pattern` replaced that is not inside of a `literal`."""
    joint = re.compile(f"(?P<literal>{literal})|{pattern}", re.M | re.S)
    return joint.sub(lambda m: m[0] if m["literal"] is not None else replace(m), source)
