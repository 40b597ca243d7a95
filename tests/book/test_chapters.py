"""Finding chapters, and the book being what lies in its folders."""

from pathlib import Path

import pytest

from nbcourse.publishing import chapters

SHELF = [
    Path("book/00-start-here.ipynb"),
    Path("book/01-bandit.ipynb"),
    Path("book/12-kl.ipynb"),
    Path("book/appendix-b-errata.ipynb"),
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("0", "00-start-here"),
        ("1", "01-bandit"),
        ("01", "01-bandit"),
        ("bandit", "01-bandit"),
        ("01-bandit", "01-bandit"),
        ("book/01-bandit.ipynb", "01-bandit"),
        ("start-here", "00-start-here"),
        ("12", "12-kl"),
        ("B", "appendix-b-errata"),
        ("b", "appendix-b-errata"),
        ("errata", "appendix-b-errata"),
        ("book/appendix-b-errata.ipynb", "appendix-b-errata"),
    ],
)
def test_a_chapter_answers_to_its_names(name, found):
    assert chapters.find(name, SHELF).stem == found


@pytest.mark.parametrize("name", ["", "2", "001", "1.5", "band", "start", "bandit-01", "appendix"])
def test_an_unknown_name_is_answered_with_the_known_ones(name):
    known = "00-start-here, 01-bandit, 12-kl, appendix-b-errata"
    with pytest.raises(ValueError, match=known) as caught:
        chapters.find(name, SHELF)
    assert "\n" not in str(caught.value)


def test_no_two_chapters_share_a_name():
    names = [name for notebook in chapters.notebooks() for name in chapters.names(notebook)]
    assert len(names) == len(set(names))


def test_a_text_and_its_notebook_find_each_other():
    for notebook in SHELF:
        assert chapters.notebook_of(chapters.text_of(notebook)) == notebook
