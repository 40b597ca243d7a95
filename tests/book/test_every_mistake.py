"""The page of all mistakes: each has its line, its section, and somebody who finds it."""

import re

import pytest

from nbcourse.builds.mistakes import MISTAKES
from nbcourse.mistakes.catalogue import CATALOGUE
from nbcourse.publishing import every_mistake, numbering, reference


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    book = tmp_path_factory.mktemp("book")
    (book / reference.FOLDER).mkdir()
    return (book / f"{every_mistake.write(book, numbering.places())}.md").read_text("utf-8")


def lines(page):
    return dict(re.findall(r'^- <span id="([^"]*)"></span>(.*)$', page, re.M))


def test_each_has_one_line_and_somebody_who_finds_it(page):
    assert list(lines(page)) == list(CATALOGUE)
    assert len(re.findall(r"^- ", page, re.M)) == len(CATALOGUE)
    assert all("*Found by* `nbcourse " in line for line in lines(page).values())


def test_who_finds_it_and_where_it_is_taught(page):
    assert lines(page)["masked-eos"] == (
        "**`masked-eos`** The token that ends a response is not in the mask, so the choice to stop "
        "is never credited itself. *Instead:* build the mask from lengths, the end of sequence "
        "included. *Found by* "
        "`nbcourse examine` (mistake), `nbcourse diagnose` (certain), `nbcourse build check` "
        "(estimator, grpo, reinforce). *In the wild:* "
        "[B.11](../appendix-b-errata.ipynb#sec-b-11). *Also read as* `eos-untrained`, "
        "`last-token-left-out`, `mask-by-value`, `untrained-eos`, `untrained-ends`."
    )
    above = page.partition('<span id="masked-eos">')[0].splitlines()
    heading = next(line for line in reversed(above) if line.startswith("## "))
    assert heading == "## [7.4 Masks by position](../07-language-model.ipynb#sec-7-4)"


def test_what_markdown_would_read_as_its_own_is_escaped(page):
    assert r"log\_probs.float() before the subtraction" in lines(page)["half-precision"]


def test_the_edits_of_the_builds_are_read_as_the_builds_read_them():
    built = every_mistake._built()
    assert sorted((name, piece) for name, pieces in built.items() for piece in pieces) == sorted(
        (wrong.id, wrong.piece) for wrong in MISTAKES.values()
    )
