"""The rows of the table `catalogue.toml`, by their names and by those that they once had."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Mistake:
    """Something that a loss, a run or a trainer does.

    Attributes:
        id: its name.
        sentence: what is wrong, or what is done.
        section: of the book, as it is headed.
        evidence: kind, and perhaps a way of seeing it → what shows it, with braces for numbers.
        fix: what to do instead; empty for a choice, and where the sentence says it.
        erratum: id of the entry of appendix B, if it is in there.
        former: names that it once had, or has as an edit in a build.
    """

    id: str
    sentence: str
    section: str
    evidence: Mapping[str, str]
    fix: str = ""
    erratum: str | None = None
    former: tuple[str, ...] = ()


def _read() -> Iterator[Mistake]:
    content = files("nbcourse.mistakes").joinpath("catalogue.toml").read_text("utf-8")
    for rows in tomllib.loads(content).values():
        heading = rows.pop("heading")
        for name, row in rows.items():
            named = {key: row.pop(key) for key in ("sentence", "fix", "erratum") if key in row}
            former = tuple(row.pop("former", "").split())
            yield Mistake(name, section=heading, evidence=row, former=former, **named)


CATALOGUE: Mapping[str, Mistake] = {row.id: row for row in _read()}
_FORMER = {name: row.id for row in CATALOGUE.values() for name in row.former}


def current(name: str) -> str:
    """What a mistake is called today, by a name that it once had, as older records have it."""
    return _FORMER.get(name, name)
