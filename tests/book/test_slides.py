"""Slides that are cut from a page: what they show, and what stands in their notes."""

import pytest
from bs4 import BeautifulSoup

from nbcourse.errors import UserError
from nbcourse.publishing import slides

PAGE = """<html><head><link rel="stylesheet" href="_static/book.css"></head><body>
<article class="bd-article"><section><h1>9 · Title<a class="headerlink" href="#t">#</a></h1>
<div class="nb-opening"><p class="nb-question">Why?</p><div class="nb-shown">
<picture><img src="_images/first.svg"></picture></div><p class="nb-conditions">A minute.</p></div>
<p>A story. It goes on.</p>
<div class="cell tag_opening"><div class="cell_input">code</div>
<div class="cell_output">7</div></div>
<section><h2>9.1 Main</h2><p>A table says it. Here it is:</p>
<div class="cell" id="tab-one"><div class="cell_input">table()</div>
<div class="cell_output">1 2 3</div><p class="nb-caption">Table 9.1. What it says.</p></div>
<p>Words after.</p><div class="cell"><div class="cell_output">only a check</div></div>
<div class="cell"><div class="cell_output"><div class="nb-explorer" id="nb-1">…</div></div></div>
<section><h3>○ Deeper</h3><p>The gist.</p></section>
<section><h3>Beside</h3><div class="dropdown admonition">
<p class="admonition-title">Predict first: How many?</p><p>Two.</p></div>
<p>So it is. See <a href="02.html#sec-2-1">there</a>.</p></section></section>
</section></article></body></html>"""


@pytest.fixture(scope="module")
def cut() -> list[list]:
    """The stacks of slides, a list each."""
    soup = BeautifulSoup(slides.cut(PAGE, "09.html"), "html.parser")
    stacks = soup.select(".slides > section")
    return [stack.find_all("section", recursive=False) for stack in stacks]


def shown(slide) -> str:
    """What the class sees of a slide."""
    slide = BeautifulSoup(str(slide), "html.parser")
    for notes in slide.select(".notes"):
        notes.decompose()
    return " ".join(slide.get_text(" ").split())


def test_each_slide_has_one_idea(cut):
    assert [[shown(slide) for slide in stack] for stack in cut] == [
        ["9 · Title Why?"],
        ["A story. It goes on.", "code", "7"],
        [
            "9.1 Main Here it is: 1 2 3 Table 9.1. What it says.",
            "9.1 Main Words after. Move it on the page",
            "Beside How many? Two.",
        ],
    ]


def test_the_answer_to_a_prediction_comes_with_a_click_of_its_own(cut):
    poll = cut[-1][-1]
    assert poll.select_one(".fragment").get_text() == "Two."
    assert "Two." not in poll.select_one(".nb-poll > p").get_text()


def test_all_words_are_in_the_notes_of_what_they_speak_of(cut):
    table, _, poll = cut[-1]
    assert "A table says it. Here it is:" in table.select_one(".notes").get_text()
    assert "So it is." in poll.select_one(".notes").get_text()


def test_pictures_styles_and_links_are_found_from_the_folder(cut):
    whole = BeautifulSoup(slides.cut(PAGE, "09.html"), "html.parser")
    assert whole.select_one("img")["src"] == "../_images/first.svg"
    assert whole.select_one("link")["href"] == "../_static/book.css"
    assert cut[-1][1].select_one("a")["href"] == "../09.html#nb-1"
    assert cut[-1][2].select_one(".notes a")["href"] == "../02.html#sec-2-1"


def test_pages_that_are_not_built_are_asked_for(tmp_path):
    with pytest.raises(UserError, match="run: nbcourse site"):
        slides.write("10", tmp_path)


def test_a_chapter_that_there_is_not_is_named(tmp_path):
    with pytest.raises(UserError, match="99"):
        slides.write("99", tmp_path)
