"""Formulas drawn while the site is built: their letters, their MathML, and their mistakes."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from docutils import nodes

from nbcourse.publishing import bundles, mathematics

LETTER = re.compile(r'<mjx-c class="mjx-c([0-9A-F]+)')


def letters(drawn: str) -> str:
    return "".join(chr(int(code, 16)) for code in LETTER.findall(drawn))


def mathml(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(re.search(r"<math .*</math>", drawn)[0])


@pytest.mark.parametrize(
    ("tex", "seen"),
    [
        (r"x_1 < y", "𝑥1<𝑦"),
        (r"\boldsymbol{\theta}", "𝜽"),
        (r"\operatorname{clip} \le \tfrac{1}{2}", "clip≤12"),
        (r"\begin{align*} a &= b \\ c &= d \end{align*}", "𝑎=𝑏𝑐=𝑑"),
    ],
)
def test_what_is_seen_is_what_is_read_aloud(tex, seen):
    drawn = mathematics.drawn(tex, display=True)
    assert letters(drawn) == seen
    said = "".join(mathml(drawn).itertext()).replace("\u2061", "")  # an invisible "of"
    plain = {"𝑥": "x", "𝑦": "y", "𝜽": "θ", "𝑎": "a", "𝑏": "b", "𝑐": "c", "𝑑": "d"}
    assert said in (seen, "".join(plain.get(letter, letter) for letter in seen))


def test_a_formula_in_a_line_does_not_scroll_and_one_by_itself_can():
    line, block = (mathematics.drawn("x", display=display) for display in (False, True))
    assert 'display="true"' not in line
    assert "tabindex" not in line
    assert 'display="true"' in block
    assert 'tabindex="0"' in block
    assert [mathml(one).get("display") for one in (line, block)] == [None, "block"]


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"\frac{1", "Missing close brace"),
        (r"\pii", r"Undefined control sequence \pii"),
        ("x^2^3", "Double exponent"),
        (r"\begin{align} a", r"Missing \end{align}"),
    ],
)
def test_a_mistake_is_named(tex, reason):
    with pytest.raises(ValueError, match=f"{re.escape(repr(tex))}.*{re.escape(reason)}"):
        mathematics.drawn(tex, display=False)


def test_the_sheet_draws_every_letter_and_of_others_none_is_kept():
    """As the site joins its style sheets: only what a page names stays."""
    drawn = mathematics.drawn(r"\alpha + \tfrac12", display=False)
    sheet = mathematics.mathjax().call("sheet")
    few = bundles.needed(sheet, set(re.findall(r"[\w-]+", drawn)))
    kept = {code for code in LETTER.findall(drawn) if f"mjx-c{code}" in few}
    assert kept == set(LETTER.findall(drawn))
    assert "mjx-c1D6FD" in sheet
    assert "mjx-c1D6FD" not in few
    assert len(few) < len(sheet) / 10


@pytest.mark.parametrize(
    ("tex", "nowrap", "rows"),
    [
        (r"a &= b \\ c &= d", False, 2),
        (r"a = b", False, 0),
        (r"\begin{align*} a &= b \\ c &= d \end{align*}", True, 2),
    ],
)
def test_lines_of_a_formula_by_itself_stand_below_each_other(tex, nowrap, rows):
    translator = SimpleNamespace(body=[], starttag=lambda *_, **__: "<div>")
    node = nodes.math_block("", tex, number=None, nowrap=nowrap)
    with pytest.raises(nodes.SkipNode):
        mathematics.visit_block(translator, node)
    page = "".join(translator.body)
    assert mathml(page).get("display") == "block"
    assert len(mathml(page).findall(".//{*}mtr")) == rows
