"""What the search of the site leads to."""

import re

import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes

from nbcourse.publishing import chapters, index_entries
from nbcourse.publishing.index_entries import IndexEntries, Term

TERMS = [
    Term("GAE", "03-critics", "sec-3-8"),
    Term("clip fraction", "05-ppo", "sec-5-9"),
    Term("leave-one-out", "02-sequences", "sec-2-6"),
]


def test_every_entry_of_the_glossary_is_a_term():
    text = (chapters.BOOK / index_entries.GLOSSARY).read_text(encoding="utf-8")
    found = [term.name for term in index_entries.glossary(chapters.BOOK)]
    assert found == re.findall(r"^(\S.*)\n  \S", text, re.M)
    assert len(found) > 50


def test_a_book_without_a_glossary_has_no_terms(tmp_path):
    assert index_entries.glossary(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("token_gae", ["token_gae", "GAE"]),
        ("clip_fraction", ["clip_fraction", "clip fraction"]),
        ("leave_one_out", ["leave_one_out", "leave-one-out"]),
        ("gaelic", ["gaelic"]),
        ("clip", ["clip"]),
    ],
)
def test_a_function_is_found_by_its_name_and_the_terms_in_it(name, entries):
    assert list(index_entries.of_name(name, TERMS)) == entries


class Environment:
    def __init__(self, page, folder):
        self.docname, self.srcdir = page, folder


def entries_of(page, folder, *titles, ids=None):
    """The entries of a page whose sections lie in one another, each with the ids of its title."""
    document = new_document("page")
    document.settings.env = Environment(page, folder)
    inside = document
    for title in titles:
        section = nodes.section(ids=ids[title] if ids else [title.replace("_", "-")])
        section += nodes.title("", title)
        inside += section
        inside = section
    IndexEntries(document).apply()
    return [node["entries"] for node in document.findall(addnodes.index)]


def test_a_page_of_the_reference_has_an_entry_for_each_function():
    page = entries_of("reference/functional", chapters.BOOK, "nbcourse", "returns", "token_gae")
    assert page == [
        [("single", "token_gae", "token-gae", "main", None)],
        [("single", "GAE", "token-gae", "main", None)],
    ]


def test_a_command_is_found_without_the_name_of_the_program():
    titles = ("The command line", "nbcourse compare")
    assert entries_of("reference/command-line", chapters.BOOK, *titles) == [
        [("single", "compare", "nbcourse compare", "main", None)]
    ]


def test_a_chapter_has_an_entry_for_each_term_that_it_introduces(tmp_path):
    """At the section's own id: at another one search would find no text to show."""
    (tmp_path / index_entries.GLOSSARY).write_text(
        "GAE\n  In [Section 3.8](03-critics.ipynb#sec-3-8)\n\n"
        "clip fraction\n  In [Section 5.9](05-ppo.ipynb#sec-5-9)\n"
    )
    sections = {"5 PPO": ["ppo"], "clip_fraction": ["how-far", "sec-5-9"]}
    assert entries_of("05-ppo", tmp_path, *sections, ids=sections) == [
        [("single", "clip fraction", "how-far", "main", None)]
    ]
