"""The works that chapters send readers to."""

import re

import pytest

from nbcourse.errors import UserError
from nbcourse.publishing import bibliography, chapters

ONE = "- Doe & Roe (2024), [*A title*](https://arxiv.org/abs/2402.03300). Read section 2."
OLD = "- Coe (1992), [*Older*](https://doi.org/10.1007/BF00992696). All of it."


def book(tmp_path, **readings):
    (tmp_path / "text").mkdir()
    for name, lines in readings.items():
        text = f"# Title\n\n{ONE}\n\n## Readings\n\n{lines}\n"
        (tmp_path / "text" / f"{name}.md").write_text(text.replace("_", "-"), encoding="utf-8")
    return tmp_path


def test_works_are_found_in_the_readings_with_all_chapters_that_name_them(tmp_path):
    read = bibliography.works(book(tmp_path, **{"01-one": f"{ONE}\n{OLD}", "02-two": OLD}))
    assert [(work.authors, work.identifier, where) for work, where in read.items()] == [
        ("Coe", "doi:10.1007/BF00992696", ["01-one", "02-two"]),
        ("Doe & Roe", "arXiv:2402.03300", ["01-one"]),
    ]
    assert bibliography.page(read).splitlines()[4] == (
        "- Coe (1992). *Older*. [doi:10.1007/BF00992696](https://doi.org/10.1007/BF00992696). "
        "Chapter [1](../01-one.ipynb), [2](../02-two.ipynb)."
    )


def test_two_titles_for_one_address_are_refused(tmp_path):
    texts = {"01-one": OLD, "02-two": OLD.replace("Older", "Other")}
    with pytest.raises(UserError, match=r"02-two\.md calls .* Other \(1992\), and 01-one Older"):
        bibliography.works(book(tmp_path, **texts))


def test_the_book_has_an_identifier_for_most_works():
    read = bibliography.works()
    with_number = [work for work in read if ":" in work.identifier]
    assert len(read) > 60
    assert len(with_number) > 0.7 * len(read)


@pytest.mark.parametrize(
    ("authors", "title", "key"),
    [
        (
            "Williams, Waterman and Patterson",
            "Roofline: an insightful model",
            "williams2009roofline",
        ),
        ("Kool, van Hoof & Welling", "Buy 4 samples", "kool2009buy"),
        ("Liu et al.", "On a few pitfalls", "liu2009few"),
        ("van Hasselt", "The N+ details", "hasselt2009n"),
    ],
)
def test_a_key_is_surname_year_and_a_word_of_weight(authors, title, key):
    assert bibliography.Work(authors, "2009", title, "https://x.org/y").key == key


def test_a_chapter_that_cites_a_work_is_one_that_names_it(tmp_path):
    cites = "- Poe (2020), [*Other*](https://x.org/y). Beside {cite}`coe1992older`."
    read = bibliography.works(book(tmp_path, **{"01-one": cites, "02-two": OLD}))
    assert [(work.key, where) for work, where in read.items()] == [
        ("coe1992older", ["01-one", "02-two"]),
        ("poe2020other", ["01-one"]),
    ]


def test_two_works_of_one_key_are_refused(tmp_path):
    twice = OLD.replace("BF00992696", "BF00992697").replace("Older", "Older ones")
    with pytest.raises(UserError, match="Older ones and Older are both coe1992older"):
        bibliography.by_key(book(tmp_path, **{"01-one": OLD, "02-two": twice}))


# Without an address that could be given: it is in the readings of chapter 5 in words.
BY_NAME = {"Kakade & Langford 2002"}


def test_the_book_cites_by_key():
    """Names and a year in brackets, in prose, are those of a work that has no key."""
    name = r"[A-Z][\w-]+(?: et al\.| (?:&|and) [A-Z]\w+)"
    for text in chapters.texts(chapters.BOOK):
        prose = text.read_text(encoding="utf-8").split("\n## Readings")[0]
        found = re.findall(rf"\([^()\[\]\n]*?({name},? \d{{4}})", prose)
        assert set(found) <= BY_NAME, text.name


def test_every_citation_leads_to_a_work_and_says_its_title():
    keys = bibliography.by_key()
    cited = [
        key
        for text in chapters.texts(chapters.BOOK)
        for key in re.findall(bibliography.CITATION, text.read_text(encoding="utf-8"))
    ]
    assert len(cited) > 15
    assert set(cited) <= set(keys)
