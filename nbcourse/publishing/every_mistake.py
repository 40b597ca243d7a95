"""The page of the site that lists every mistake: what it is, the fix, and who finds it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from nbcourse.mistakes.catalogue import CATALOGUE, Mistake
from nbcourse.mistakes.findings import CHOICE, CONFIDENCES, MISTAKE, NOTE
from nbcourse.publishing import errata
from nbcourse.publishing.numbering import Place
from nbcourse.publishing.reference import FOLDER, escaped
from nbcourse.publishing.uses import PACKAGE

NAME = f"{FOLDER}/every-mistake"
ABOUT = (
    "What `nbcourse examine` finds in a loss, `nbcourse diagnose` in a run, and "
    "`nbcourse build check` in the pieces of a trainer, by the section that teaches it. A *choice* "
    "is no mistake, and a *note* asks for some care of the caller."
)
Built = Mapping[str, list[str]]  # a mistake → the pieces of a build in which it is planted


def write(book: Path, places: Mapping[str, Place]) -> str:
    """Write the page into the folder of the reference; its name without suffix."""
    text = "\n".join(_page(places, _built()))
    (book / NAME).with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    return NAME


def _built() -> Built:
    """By the list of edits, which is read as text: the builds stand above this room."""
    found: dict[str, list[str]] = defaultdict(list)
    piece = ""
    for line in (PACKAGE / "builds" / "edits.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            piece = line[2:]
        elif line and line[0] not in "+-":
            name, _, mistake = line.partition(": ")
            found[mistake or name].append(piece)
    return found


def _page(places: Mapping[str, Place], built: Built) -> Iterator[str]:
    wild = {entry.id: _link(places, entry.number) for entry in errata.read()}
    yield f"# Every mistake\n\n{ABOUT}"
    for section, rows in groupby(CATALOGUE.values(), key=lambda row: row.section):
        yield f"\n## {_link(places, section)}\n"
        yield from (_line(row, finders(row, built), wild) for row in rows)


def _link(places: Mapping[str, Place], words: str) -> str:
    """Words that begin with the number of a section, which they lead to."""
    place = places.get(words.split(" ")[0])
    return f"[{words}](../{place.chapter}.ipynb#{place.anchor})" if place else words


def finders(row: Mistake, built: Built) -> list[str]:
    """The commands that name a mistake, each with how."""
    kinds = {how.partition(":")[0] for how in row.evidence}
    of_a_loss = [kind for kind in (MISTAKE, CHOICE, NOTE) if kind in kinds]
    of_a_run = [kind for kind in CONFIDENCES if kind in kinds]
    pieces = sorted(set(built.get(row.id, [])))
    by = {"examine": of_a_loss, "diagnose": of_a_run, "build check": pieces}
    return [f"`nbcourse {name}` ({', '.join(how)})" for name, how in by.items() if how]


def _line(row: Mistake, by: list[str], wild: Mapping[str, str]) -> str:
    parts = [f'- <span id="{row.id}"></span>**`{row.id}`** {escaped(row.sentence)}']
    if row.fix:
        parts.append(f"*Instead:* {escaped(row.fix)}.")
    parts.append(f"*Found by* {', '.join(by)}.")
    if row.erratum:
        parts.append(f"*In the wild:* {wild[row.erratum]}.")
    if row.former:
        parts.append(f"*Also read as* {', '.join(f'`{name}`' for name in row.former)}.")
    return " ".join(parts)
