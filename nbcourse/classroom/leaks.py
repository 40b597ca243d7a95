"""Search what students can get for anything of a solution or of a hidden test.

The masters say what is secret: what the code inside a solution or hidden-test region computes, in
forms that no renaming changes (`code_forms`); every line of it that occurs nowhere else in masters,
book and package; and every word that occurs only in such lines. Model answers in words and the
criteria of the rubrics are secret, too, line by line. That a check in `nbcourse.checks` computes
something does not make it public: checks know the answers, and are released in another form. Files
are searched as a reader would see them: notebooks cell by cell, pages without their tags, archives
file by file, search indexes for words. Keys of exams, in `solutions/course`, are searched for
phrase by phrase.
"""

import csv
import json
import keyword
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import unescape
from io import BytesIO, StringIO
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat

from nbcourse.classroom import code_forms
from nbcourse.classroom.code_forms import Forms
from nbcourse.errors import UserError
from nbcourse.publishing import chapters, search
from nbcourse.repository import ROOT

REGION = re.compile(
    r"^[ \t]*### BEGIN (SOLUTION|HIDDEN TESTS)[ \t]*$(.*?)^[ \t]*### END \1",
    re.DOTALL | re.MULTILINE,
)
# The key of a question of an exam, and what of it looks different once a page is made of it.
KEY = re.compile(r"^:::\{admonition\} Key\n:class: dropdown\n(.*?)^:::$", re.DOTALL | re.MULTILINE)
MARKUP = re.compile(r"""[*`$'"\n]|(?<=[.:;?]) """)
SHORTEST_PHRASE = 20  # characters without spaces of a key, in which words are as anywhere
SHORTEST_LINE = 14  # characters without spaces; shorter lines stand in any program
SHORTEST_WORD = 6
ENOUGH = 14  # nodes in secret forms that one piece of code has by copying, and not by chance
ENOUGH_OF_ALL = 10  # nodes in a region all of whose forms one piece of code has
WITHOUT_ANSWERS = ("__init__", "attempt", "sheet", "worked")  # of nbcourse.checks
WITH_CODE = (".py", ".ipynb", ".md", ".rst", ".txt", ".html")
KEYWORDS = {word.lower() for word in keyword.kwlist}


class Leak(UserError):
    """What was to be published holds a secret; it was not written."""


@dataclass(frozen=True)
class Region:
    """What the code of a solution, or of hidden tests, computes.

    Args:
        where: its place, such as "02-sequences, unequal-groups".
        secret: its forms that nothing public has, at least one.
        forms: all of its forms.
    """

    where: str
    secret: Forms
    forms: Forms

    def is_in(self, piece: Forms) -> bool:
        """Whether a function or cell computes this: much of what is secret, or everything."""
        found = sum(size for form, size in self.secret.items() if form in piece)
        everything = self.forms.keys() <= piece.keys()
        return found >= ENOUGH or (everything and sum(self.forms.values()) >= ENOUGH_OF_ALL)


@dataclass(frozen=True)
class Secrets:
    """What must not be found.

    Args:
        lines: line without spaces → where it stands, such as "02-sequences, unequal-groups".
        words: lower-case word → where it stands.
        code: what is computed.
    """

    lines: dict[str, str]
    words: dict[str, str]
    code: tuple[Region, ...] = ()


def secrets(root: Path = ROOT) -> Secrets:
    """What is in the regions of the masters of `root`, and nowhere that is public."""
    given, checks = _public_texts(root)
    secret, regions, others = _of_masters(root)
    given += others
    for path in sorted((root / "solutions" / "rubrics").glob("*.csv")):
        criteria = csv.DictReader(StringIO(path.read_text(encoding="utf-8")))
        secret += [(f"{path.stem}, {row['exercise']}", row["criterion"]) for row in criteria]
    public = "\n".join([*given, *checks])
    public_words = KEYWORDS.union(_words(public))
    public_text = _dense(public).encode()  # bytes: a text of wide characters takes twice the time
    public_forms = {form for text in given for piece in code_forms.pieces(text) for form in piece}
    lines: dict[str, str] = {}
    words: dict[str, str] = {}
    for where, text in secret:
        for line in map(_dense, text.splitlines()):
            if len(line) >= SHORTEST_LINE and line.encode() not in public_text:
                lines.setdefault(line, where)
        for word in _words(text):
            if len(word) >= SHORTEST_WORD and word not in public_words:
                words.setdefault(word, where)
    for path in sorted((root / "solutions" / "course").glob("*.md")):
        for key in KEY.findall(path.read_text(encoding="utf-8")):
            for phrase in map(_dense, MARKUP.split(key)):
                if len(phrase) >= SHORTEST_PHRASE and phrase.encode() not in public_text:
                    lines.setdefault(phrase, f"the keys of {path.stem}")
    code = (
        Region(where, {f: n for f, n in forms.items() if f not in public_forms}, forms)
        for where, forms in regions
    )
    return Secrets(lines, words, tuple(region for region in code if region.secret))


def _public_texts(root: Path) -> tuple[list[str], list[str]]:
    """The texts of book and package, and apart from them the checks that know answers.

    The site prints what the tables of book and package say: the mistakes that have names, and what
    readers ask.
    """
    paths = [
        *(root / "book").glob("*.md"),
        *(root / "book").glob("*.toml"),
        *(root / "book" / "text").glob("*.md"),
        *(root / "nbcourse").rglob("*.py"),
        *(root / "nbcourse").rglob("*.toml"),
    ]
    given: list[str] = []
    checks: list[str] = []
    for path in paths:
        knows_answers = path.parent.name == "checks" and path.stem not in WITHOUT_ANSWERS
        (checks if knows_answers else given).append(path.read_text(encoding="utf-8"))
    return given, checks


def _of_masters(root: Path) -> tuple[list[tuple[str, str]], list[tuple[str, Forms]], list[str]]:
    """The text of each region with its place, the forms of those of code, and all other text."""
    texts: list[tuple[str, str]] = []
    regions: list[tuple[str, Forms]] = []
    others: list[str] = []
    for path in chapters.notebooks(root / "solutions"):
        for cell in nbformat.read(path, as_version=4).cells:
            where = f"{path.stem}, {cell.metadata.get('nbgrader', {}).get('grade_id', cell.id)}"
            for found in REGION.finditer(cell.source):
                texts.append((where, found.group(2)))
                first = cell.source.count("\n", 0, found.start()) + 1
                last = cell.source.count("\n", 0, found.end()) + 1
                if cell.cell_type == "code":
                    regions.append((where, code_forms.statements(cell.source, first, last)))
            others.append(REGION.sub(_stub, cell.source))
    return texts, regions, others


def _stub(region: re.Match[str]) -> str:
    indented = region.group()
    return indented[: len(indented) - len(indented.lstrip())] + "pass"


def scan(paths: Iterable[Path], hidden: Secrets) -> list[str]:
    """Every secret that the files hold: "site/page.html: a line of 02-sequences, by-hand".

    Args:
        paths: files, or folders which are searched through.
        hidden: what to look for.
    """
    found = []
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                found += scan_bytes(str(file), file.read_bytes(), hidden)
    return found


def scan_bytes(name: str, content: bytes, hidden: Secrets) -> list[str]:
    """Every secret in the content of a file of this name; the name's ending says how to read it."""
    if name.endswith(".zip"):
        with zipfile.ZipFile(BytesIO(content)) as archive:
            return [
                leak
                for member in archive.namelist()
                if not member.endswith("/")
                for leak in scan_bytes(f"{name}/{member}", archive.read(member), hidden)
            ]
    if PurePosixPath(name).name == search.FILE:
        terms = set(_words(zlib.decompress(content).decode("utf-8", "replace")))
        return [
            f"{name}: the word {word!r} of {where}"
            for word, where in hidden.words.items()
            if word in terms
        ]
    readings = [*_readings(name, content)]
    texts = {_dense(text) for text in readings}
    found = [
        f"{name}: a line of {where}"
        for line, where in hidden.lines.items()
        if any(line in text for text in texts)
    ]
    if hidden.code and name.endswith(WITH_CODE):
        pieces = [p for text in _code(name, content, readings) for p in code_forms.pieces(text)]
        found += [
            f"{name}: the code of {region.where}"
            for region in hidden.code
            if any(region.is_in(piece) for piece in pieces)
        ]
    return found


def _readings(name: str, content: bytes) -> Iterator[str]:
    """The file's text, as it stands and as a reader sees it."""
    text = content.decode("utf-8", "replace")
    if name.endswith(".ipynb"):
        text = "\n".join(_texts(text))
    yield text
    if name.endswith((".html", ".xml", ".svg")):
        yield unescape(re.sub(r"<[^>]*>", "", text))


def _code(name: str, content: bytes, readings: list[str]) -> list[str]:
    """The parts of a file that may be code."""
    if name.endswith(".ipynb"):
        return _texts(content.decode("utf-8", "replace"))
    if name.endswith(".html"):
        listings = re.findall(r"<pre[^>]*>(.*?)</pre>", readings[0], re.DOTALL)
        return [unescape(re.sub(r"<[^>]*>", "", listing)) for listing in listings]
    return readings


def _texts(notebook: str) -> list[str]:
    """The texts in a notebook: cells, outputs, metadata; no pictures, which have no spaces."""
    return [text for text in _strings(json.loads(notebook)) if " " in text]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _strings(entry)
    elif isinstance(value, list):
        if all(isinstance(entry, str) for entry in value):  # a cell's source, line by line
            yield "".join(value)
        for entry in value:
            yield from _strings(entry)


def _dense(text: str) -> str:
    return "".join(text.split())


def _words(text: str) -> list[str]:
    """The words of a text as a search index has them."""
    return re.findall(r"[a-z_][a-z0-9_]+", text.lower())
