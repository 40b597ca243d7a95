"""The works that the chapters send readers to, on one page of the site, with where each is read.

They are written where they are read, in the *Readings* of a chapter:
`- Authors (year), [*Title*](address).` An address that is given twice has the same year and title.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbcourse.errors import UserError
from nbcourse.publishing import chapters
from nbcourse.publishing.numbering import READINGS

WORK = re.compile(
    r"^- (?P<authors>[^\[\n]+?) \((?P<year>\d{4})\), "
    r"\[\*(?P<title>[^\]\n]+)\*\]\((?P<url>[^)\s]+)\)",
    re.M,
)
NAME = "reference/bibliography"
IDENTIFIERS = {  # how an address names a work, shortest first
    r"https://arxiv\.org/abs/(?P<number>\d{4}\.\d{4,5})": "arXiv:{number}",
    r"https://doi\.org/(?P<number>10\..+)": "doi:{number}",
}


@dataclass(frozen=True)
class Work:
    """A work, as the first chapter that sends readers to it has it."""

    authors: str
    year: str
    title: str
    url: str

    @property
    def identifier(self) -> str:
        """arXiv:2402.03300, doi:10.1007/BF00992696, or the host where it is."""
        for pattern, form in IDENTIFIERS.items():
            if found := re.fullmatch(pattern, self.url):
                return form.format(**found.groupdict())
        return self.url.split("/")[2].removeprefix("www.")


def works(book: Path = chapters.BOOK) -> dict[Work, list[str]]:
    """Every work in the readings of a book, by author and year, with the chapters that name it.

    Raises:
        UserError: if two chapters give the same address another year or title.
    """
    found: dict[str, Work] = {}
    read: dict[Work, list[str]] = {}
    for text in chapters.texts(book):
        for readings in READINGS.split(text.read_text(encoding="utf-8"))[1:]:
            for match in WORK.finditer(readings):
                work = Work(**match.groupdict())
                first = found.setdefault(work.url, work)
                if (first.year, first.title) != (work.year, work.title):
                    raise UserError(
                        f"{text.name} calls {work.url} {work.title} ({work.year}), and "
                        f"{read[first][0]} {first.title} ({first.year}): give both the same"
                    )
                read.setdefault(first, []).append(text.stem)
    return dict(sorted(read.items(), key=lambda item: (item[0].authors.lower(), item[0].year)))


def write(book: Path) -> str:
    """Write the page into a folder of the pages, beside the reference; its name without suffix."""
    (book / NAME).with_suffix(".md").write_text(page(works(book)), encoding="utf-8")
    return NAME


def page(read: Mapping[Work, list[str]]) -> str:
    """The page: a line for each work, with its identifier and links to where it is read."""
    lines = ["# Bibliography\n", "What the chapters send you to, and where they do.\n"]
    for work, places in read.items():
        where = ", ".join(f"[{chapters.names(Path(p))[0]}](../{p}.ipynb)" for p in places)
        lines.append(
            f"- {work.authors} ({work.year}). *{work.title}*. "
            f"[{work.identifier}]({work.url}). Chapter {where}."
        )
    return "\n".join(lines) + "\n"
