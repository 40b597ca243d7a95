"""The works that the chapters send readers to, on one page of the site, with where each is read.

They are written where they are read, in the *Readings* of a chapter:
`- Authors (year), [*Title*](address).` An address that is given twice has the same year and title.
Elsewhere a text cites them by key, {cite}`schulman2017proximal`: surname, year, word of the title.
(sphinxcontrib-bibtex would cite on the site alone; notebooks are read in JupyterLab as well.)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nbcourse.errors import UserError
from nbcourse.publishing import chapters

# From there on, section numbers that are not this chapter's belong to other works.
READINGS = re.compile(r"^(?=#+ Readings$)", re.M)
WORK = re.compile(
    r"^- (?P<authors>[^\[\n]+?) \((?P<year>\d{4})\), "
    r"\[\*(?P<title>[^\]\n]+)\*\]\((?P<url>[^)\s]+)\)",
    re.M,
)
CITATION = r"\{cite\}`(?P<key>[^`\n]*)`"
CITED = (  # what a citation becomes in a notebook, to be read when that is converted back
    r"\[(?P<authors>[^\]\n]+) (?P<year>\d{4})\]"
    r'\((?P<url>[^)\s]+) "(?P<title>[^"\n]*)"\)'
)
SMALL_WORDS = {"a", "an", "the", "on", "is", "for", "in", "of", "to"}
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
    def key(self) -> str:
        """schulman2017proximal: the first surname, the year, the first word of weight."""
        surname = re.split(r",| & | et al| and ", self.authors)[0].split()[-1]
        words = re.findall(r"[^\W_]+", self.title.lower())
        word = next((word for word in words if word not in SMALL_WORDS), "")
        return surname.lower() + self.year + word

    @property
    def citation(self) -> str:
        """A link that reads *Schulman et al. 2017* and shows the title under the mouse."""
        return f'[{self.authors} {self.year}]({self.url} "{self.title}")'

    @property
    def identifier(self) -> str:
        """arXiv:2402.03300, doi:10.1007/BF00992696, or the host where it is."""
        for pattern, form in IDENTIFIERS.items():
            if found := re.fullmatch(pattern, self.url):
                return form.format(**found.groupdict())
        return self.url.split("/")[2].removeprefix("www.")


def works(book: Path = chapters.BOOK) -> dict[Work, list[str]]:
    """Every work in the readings of a book, by author and year, with the chapters that name it.

    A chapter names what it has in its readings, and what it cites.

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
    keys = {work.key: work for work in read}
    for text in chapters.texts(book):
        for match in re.finditer(CITATION, text.read_text(encoding="utf-8")):
            cited = keys.get(match["key"])  # an unknown one is refused where the text is read
            if cited is not None and text.stem not in read[cited]:
                read[cited] = sorted([*read[cited], text.stem])
    return dict(sorted(read.items(), key=lambda item: (item[0].authors.lower(), item[0].year)))


def by_key(book: Path = chapters.BOOK) -> dict[str, Work]:
    """What can be cited.

    Raises:
        UserError: if two works have the same key.
    """
    found: dict[str, Work] = {}
    for work in works(book):
        if work.key in found:
            raise UserError(f"{work.title} and {found[work.key].title} are both {work.key}")
        found[work.key] = work
    return found


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
