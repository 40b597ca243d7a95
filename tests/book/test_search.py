"""The search of the site: what is in its index, and in which order sections are found."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from docutils import nodes
from docutils.utils import new_document
from py_mini_racer import MiniRacer

from nbcourse.publishing import chapters, search

PROGRAM = (chapters.BOOK / "_static" / "ranking.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def find():
    """find(sections, query, definitions=()) → the headings that are found, best first."""
    machine = MiniRacer()
    machine.eval(
        f"{PROGRAM}; const ask = (index, query) => nbRanking.find(JSON.parse(index), query);"
    )

    def ask(texts: dict[str, str], query: str, definitions=()) -> list[str]:
        sections = [[0, heading, heading, text] for heading, text in texts.items()]
        index = {"pages": [["1.html", "1"]], "sections": sections, "definitions": definitions}
        found = machine.eval(
            f"JSON.stringify(ask({json.dumps(json.dumps(index))}, {json.dumps(query)}))"
        )
        return [list(texts)[one["section"]] for one in json.loads(found)]

    yield ask
    machine.close()


TEXTS = {
    "Words apart": "One would rather leave. Out of four rewards, this is one.",
    "Phrase": "Subtract the mean of the others: leave-one-out.",
    "The clip of PPO": "It bounds what a token gains.",
    "Elsewhere": "The clipped objective, for β of 0.8.",
}


@pytest.mark.parametrize(
    ("query", "headings"),
    [
        ("leave one out", ["Phrase", "Words apart"]),
        ("leave-one-ou", ["Phrase"]),
        (
            "what is the clip",
            ["The clip of PPO", "Elsewhere"],
        ),  # a heading first, other endings last
        ("clippe", ["Elsewhere"]),
        ("beta", ["Elsewhere"]),
        ("0", []),  # which 0.8 is not
        ("0.8", ["Elsewhere"]),
        ("nowhere", []),
        ("?", []),
        ("rewards objective", ["Elsewhere", "Words apart"]),  # none has both
    ],
)
def test_what_is_found_and_in_which_order(find: Callable, query, headings):
    found = find(TEXTS, query)
    assert found[: len(headings)] == headings
    assert set(found) >= set(headings)
    assert headings or not found


@pytest.mark.parametrize(
    ("definitions", "first"),
    [
        ([], "The clip of PPO"),
        ([["clip", 3, search.TERM, ""]], "Elsewhere"),
        ([["clip_low", 3, search.FUNCTION, ""]], "The clip of PPO"),
    ],
)
def test_what_the_book_defines_comes_first_and_a_function_by_its_own_name(find, definitions, first):
    assert find(TEXTS, "clip", definitions)[0] == first


def test_a_section_is_one_result_however_often_it_is_found(find):
    terms = [["clip", 2, 0, ""], ["clipping", 2, 0, ""]]
    assert find(TEXTS, "clip", terms).count("The clip of PPO") == 1


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\rho_t", "ρ_t"),
        (r"\pi_{\text{ref}}", "π_ref"),
        (r"\lambda = 0.95", "λ = 0.95"),
        (r"p \pm z", "p ± z"),
        (r"\frac{1}{2}", "…"),
        ("x" * (search.LONGEST + 1), "…"),
    ],
)
def test_a_formula_is_letters_or_dots(tex, text):
    assert search.plain(tex) == text


def page() -> nodes.document:
    document = new_document("page")
    outer = nodes.section(
        "", nodes.title("", "1 · A page"), nodes.paragraph("", "About."), ids=["a"]
    )
    inner = nodes.section("", nodes.title("", "1.1 Part"), ids=["part", "sec-1-1"])
    inner += nodes.paragraph("", "", nodes.Text("With "), nodes.math("", r"\beta"))
    inner += nodes.literal_block("", "code = 1")
    inner += nodes.admonition("", nodes.title("", "Hint 1"), nodes.paragraph("", "Secret."))
    outer += inner
    document += outer
    return document


def test_an_index_has_each_section_once_with_its_own_lines():
    found = search.index({"01-x": page()}, Path("nowhere"))
    assert found["pages"] == [("01-x.html", "1 · A page")]
    assert found["sections"] == [
        (0, "a", "1 · A page", "About."),
        (0, "sec-1-1", "1.1 Part", "With β"),
    ]
    anchors, texts = json.loads(zlib.decompress(search.packed(found)))["sections"][1::2]
    assert (anchors, texts) == (["a", "sec-1-1"], ["About.", "With β"])
