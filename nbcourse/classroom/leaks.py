"""Proof that nothing of a solution or of a hidden test is in what students can get.

The masters say what is secret: every line inside a solution or hidden-test region that stands
nowhere else in masters, book and package, and every word that occurs only in such lines. Files are
searched as a reader would see them: notebooks cell by cell, pages without their tags, archives file
by file, search indexes for words.
"""

import json
import keyword
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import unescape
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import nbformat

from nbcourse.repository import ROOT

REGION = re.compile(
    r"^[ \t]*### BEGIN (SOLUTION|HIDDEN TESTS)[ \t]*$(.*?)^[ \t]*### END \1",
    re.DOTALL | re.MULTILINE,
)
SHORTEST_LINE = 14  # characters without spaces; shorter lines stand in any program
SHORTEST_WORD = 6
KEYWORDS = {word.lower() for word in keyword.kwlist}


@dataclass(frozen=True)
class Secrets:
    """What must not be found.

    Args:
        lines: line without spaces → where it stands, such as "02-sequences, unequal-groups".
        words: lower-case word → where it stands.
    """

    lines: dict[str, str]
    words: dict[str, str]


def secrets(root: Path = ROOT) -> Secrets:
    """What stands in the regions of the masters of `root`, and nowhere that is public."""
    public_files = [
        *(root / "book").glob("*.md"),
        *(root / "book" / "text").glob("*.md"),
        *(root / "nbcourse").rglob("*.py"),
    ]
    given = [file.read_text(encoding="utf-8") for file in public_files]
    secret = []
    for path in sorted((root / "solutions").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            where = f"{path.stem}, {cell.metadata.get('nbgrader', {}).get('grade_id', cell.id)}"
            secret += [(where, found.group(2)) for found in REGION.finditer(cell.source)]
            given.append(REGION.sub("", cell.source))
    public_words = set(_words("\n".join(given)))
    public_text = _dense("\n".join(given))
    lines: dict[str, str] = {}
    words: dict[str, str] = {}
    for where, text in secret:
        for line in map(_dense, text.splitlines()):
            if len(line) >= SHORTEST_LINE and line not in public_text:
                lines.setdefault(line, where)
        for word in _words(text):
            if len(word) >= SHORTEST_WORD and word not in public_words | KEYWORDS:
                words.setdefault(word, where)
    return Secrets(lines, words)


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
    if PurePosixPath(name).name == "searchindex.js":
        terms = set(_words(content.decode("utf-8", "replace")))
        return [
            f"{name}: the word {word!r} of {where}"
            for word, where in hidden.words.items()
            if word in terms
        ]
    texts = {_dense(text) for text in _readings(name, content)}
    return [
        f"{name}: a line of {where}"
        for line, where in hidden.lines.items()
        if any(line in text for text in texts)
    ]


def _readings(name: str, content: bytes) -> Iterator[str]:
    """The file's text, as it stands and as a reader sees it."""
    text = content.decode("utf-8", "replace")
    yield text
    if name.endswith(".ipynb"):
        yield "\n".join(_strings(json.loads(text)))
    if name.endswith((".html", ".xml", ".svg")):
        yield unescape(re.sub(r"<[^>]*>", "", text))


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
