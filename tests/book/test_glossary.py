"""Every word of the glossary leads to a section that has it."""

import re

import pytest

from nbcourse.publishing import chapters, numbering

GLOSSARY = (chapters.BOOK / "appendix-a-glossary.md").read_text(encoding="utf-8")
ENTRY = re.compile(
    r"^(?P<term>\S.*)\n  \S.*\[Section (?P<number>[\dA-Z.]+)\]"
    r"\((?P<file>[\w-]+)\.ipynb#(?P<anchor>.+)\)$",
    re.M,
)
PLACES = numbering.places()
ENTRIES = [found.groups() for found in ENTRY.finditer(GLOSSARY)]


def test_every_entry_says_where_its_word_is_introduced():
    terms = re.findall(r"^(\S.*)\n  \S", GLOSSARY, re.M)
    assert [entry[0] for entry in ENTRIES] == terms
    assert terms == sorted(terms, key=lambda term: term.lower().replace("–", "-"))


@pytest.mark.parametrize(("term", "number", "file", "anchor"), ENTRIES)
def test_the_section_is_there_and_has_the_word(term, number, file, anchor):
    place = PLACES[number]
    assert (place.chapter, place.anchor) == (file, anchor)
    text = (chapters.BOOK / "text" / f"{file}.md").read_text(encoding="utf-8").lower()
    section = re.split(r"^## ", text, flags=re.M)
    here = next(part for part in section if part.startswith(f"{number.lower()} "))
    stems = [re.sub(r"s$", "", word) for word in re.findall(r"[\w@]+", term.lower())]
    assert any(stem in here for stem in stems if len(stem) > 1)
