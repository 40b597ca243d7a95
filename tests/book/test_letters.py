"""The site's signs are cut from a font, and those that it has not are made of its outlines."""

from io import BytesIO
from pathlib import Path

import matplotlib
import pytest
from fontTools.pens.boundsPen import BoundsPen
from fontTools.ttLib import TTFont

from nbcourse.publishing import chapters, letters, stored
from nbcourse.repository import ROOT

MADE = "∇‖⁻␣"


def bounds(font: TTFont, letter: str) -> tuple[float, float, float, float]:
    glyphs = font.getGlyphSet()
    pen = BoundsPen(glyphs)
    glyphs[font.getBestCmap()[ord(letter)]].draw(pen)
    return pen.bounds


@pytest.fixture(scope="module")
def cut() -> TTFont:
    whole = Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSerif.ttf")
    file = BytesIO()
    letters.symbols(TTFont(whole)).save(file)
    return TTFont(file)


def test_signs_that_a_font_has_not_are_made_of_its_outlines(cut):
    assert {*map(ord, MADE)} <= cut.getBestCmap().keys()
    for one, two in (("∇", "Δ"), ("‖", "|")):  # as high, and turned or twice as many
        low, high = bounds(cut, one)[1::2]
        assert high - low == pytest.approx(bounds(cut, two)[3] - bounds(cut, two)[1], abs=2)
    delta, nabla = (cut["glyf"][cut.getBestCmap()[ord(x)]].coordinates for x in "Δ∇")
    width, top = cut["hmtx"][cut.getBestCmap()[ord("Δ")]][0], bounds(cut, "Δ")[3]
    turned = sorted((width - x, top - y) for x, y in delta)
    assert sorted(nabla) == [pytest.approx(point, abs=1) for point in turned]
    left, _, right, _ = bounds(cut, "‖")
    assert right - left > 2 * (bounds(cut, "|")[2] - bounds(cut, "|")[0])
    assert bounds(cut, "⁻")[1] > bounds(cut, "−")[1]  # raised
    low, high = bounds(cut, "␣")[1::2]
    assert low < high < bounds(cut, "_")[3] + 0.3 * cut["head"].unitsPerEm


def test_the_files_of_the_site_have_every_sign_and_not_the_name_that_is_reserved():
    files = sorted((ROOT / "book/_static/fonts").glob("symbols-*.woff"))
    assert len(files) == len(letters.WEIGHTS)
    for file in files:
        font = TTFont(file)
        assert {*map(ord, letters.TAKEN + MADE)} <= font.getBestCmap().keys()
        assert font["name"].getBestFamilyName() == letters.NAME
        assert "Source" not in letters.NAME


def test_letters_of_figures_are_outlines():
    """No machine draws them with letters of its own."""
    for notebook in chapters.notebooks():
        for cell in stored.read(notebook).cells:
            for output in cell.get("outputs", []):
                assert "<text" not in output.get("data", {}).get("image/svg+xml", "")
