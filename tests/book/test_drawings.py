"""Figures as the site has them: smaller, and others for phones."""

import re
from io import StringIO
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pytest

from nbcourse.publishing import drawings


@pytest.fixture(autouse=True)
def usual_letters():
    """Whatever style the figures of other tests have set."""
    with plt.style.context("default", after_reset=True):
        yield


def drawn(rows: int, columns: int, *, bar: bool = False, **options) -> str:
    """A grid of panels with a line each, as SVG."""
    fig, axes = plt.subplots(rows, columns, squeeze=False, layout="constrained", **options)
    for number, ax in enumerate(axes.flat):
        ax.plot([0, 1, 2], [number, number + 1, 0.5])
        ax.set_ylabel(f"label {number}" if not options else "")
    if bar:
        fig.colorbar(plt.cm.ScalarMappable(), ax=axes[0, -1])
    with StringIO() as file:
        fig.savefig(file, format="svg")
        plt.close(fig)
        return file.getvalue()


def ends(svg: str) -> list[tuple[float, float]]:
    """Where the steps of all paths end, in the path's own points."""
    found = []
    for path in re.findall(r' d="([^"]*)"', svg):
        x = y = start_x = start_y = 0.0
        for command, arguments in re.findall(r"([A-Za-z])([^A-Za-z]*)", path):
            if command in "zZ":
                x, y = start_x, start_y
                continue
            numbers = [float(n) for n in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", arguments)]
            from_x, from_y = (x, y) if command.islower() else (0.0, 0.0)
            x, y = from_x + numbers[-2], from_y + numbers[-1]
            if command in "mM":
                start_x, start_y = x, y
            found.append((x, y))
    return found


def test_a_smaller_drawing_looks_the_same():
    svg = drawn(1, 2)
    small = drawings.smaller(svg)
    assert len(small) < 0.6 * len(svg)
    for before, after in zip(ends(svg), ends(small), strict=True):
        assert after == pytest.approx(before, abs=0.0051)  # no error grows along a path
    transforms = [re.findall(r"(?:scale|rotate)\([^)]*\)", text) for text in (svg, small)]
    assert transforms[0] == transforms[1]
    elements = [[part.tag for part in ElementTree.fromstring(text).iter()] for text in (svg, small)]
    plain = [tag for tag in elements[0] if "svg}" in tag and not tag.endswith("metadata")]
    assert [tag for tag in elements[1] if "svg}" in tag] == plain


def test_what_is_referred_to_has_its_new_name():
    small = drawings.smaller(drawn(1, 1))
    referred = set(re.findall(r'href="#(\w+)"|url\(#(\w+)\)', small))
    assert {a or b for a, b in referred} == set(re.findall(r' id="(\w+)"', small))
    assert set(re.findall(r'class="(\w+)"', small)) == set(re.findall(r"\.(s\d+)\{", small))
