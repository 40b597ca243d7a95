"""Explorers as they start, for e-readers: pictures and words, and no program."""

from xml.etree import ElementTree

import pytest

from nbcourse import display, installation
from nbcourse.errors import NotAvailable
from nbcourse.publishing import stills
from tests.browser.test_explorers_in_browser import witness

pytestmark = pytest.mark.browser
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn(browser):
    outputs = [display.explore_downhill().data, display.explore_tokens(witness()).data]
    return stills.draw(outputs)


def test_drawings_are_pictures_with_letters_of_their_own_size(drawn):
    arrows, _ = drawn.explorers.values()
    (image,) = arrows.select("img")
    drawing = ElementTree.fromstring(drawn.pictures[image["src"]])
    assert drawing.get("viewBox")
    assert int(image["width"]) > 200
    texts = drawing.findall(f".//{SVG}text")
    assert {"".join(text.itertext()) for text in texts} >= {"∇J", "downhill: J falls"}
    assert all("font-size: 13px" in text.get("style") for text in texts)


def test_controls_say_where_they_stand_and_words_keep_their_colours(drawn):
    arrows, tokens = drawn.explorers.values()
    labels = [" ".join(label.get_text().split()) for label in arrows.select("label")]
    assert labels[0] == "probability 0.70"
    assert " ".join(tokens.select("label")[0].get_text().split()) == "problem 1"
    assert all("gradient" in word["style"] for word in tokens.select(".nb-tokens > span"))
    for explorer in (arrows, tokens):
        assert explorer.select("input, select, button, script, svg, output, a") == []


def test_a_browser_that_draws_none_is_named_and_without_one_there_are_none(browser, monkeypatch):
    with pytest.raises(NotAvailable, match="did not open the explorers"):
        stills.draw(["<p>no explorer</p>"])
    monkeypatch.setattr(installation, "browser", lambda: None)
    assert stills.draw([display.explore_group().data]) == stills.Stills()
