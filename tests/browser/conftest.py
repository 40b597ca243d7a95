"""An explorer on a page of its own, offline."""

from collections.abc import Callable, Iterator

import pytest

# What is drawn over what in an element: pairs of texts of one drawing whose boxes share more than a
# sliver, and texts that its frame cuts. Panels of frames hide what belongs to the others.
OVERLAPS = """element => [...element.querySelectorAll("svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const hidden = box => svg.closest(".nb-frames")
    && (box.right < frame.left || box.left > frame.right);
  const texts = [...svg.querySelectorAll("text")].filter(text =>
    text.textContent && !hidden(text.getBoundingClientRect()));
  const boxes = texts.map(text => text.getBoundingClientRect());
  const shared = (a, b) => [Math.min(a.right, b.right) - Math.max(a.left, b.left),
                            Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
  const outside = texts.filter((_, i) => boxes[i].left < frame.left - 1
    || boxes[i].right > frame.right + 1 || boxes[i].top < frame.top - 3
    || boxes[i].bottom > frame.bottom + 3);
  return texts.flatMap((one, i) => texts.slice(i + 1)
    .filter((_, j) => shared(boxes[i], boxes[i + 1 + j]).every((side, k) => side > [1, 5][k]))
    .map(other => one.textContent + " | " + other.textContent))
    .concat(outside.map(text => text.textContent + " is cut off"));
})"""


@pytest.fixture
def open_alone(open_tab, tmp_path) -> Iterator[Callable]:
    """open_alone(html) → the page that holds nothing else; it may not ask for anything, nor err."""
    tabs = []

    def open_one(html: str, width: int = 800, has_touch: bool = False):
        viewport = {"width": width, "height": 700}
        tab = open_tab(viewport=viewport, has_touch=has_touch, offline=True)
        tabs.append(tab)
        file = tmp_path / f"{len(tabs)}.html"
        file.write_text(f'<!doctype html><meta charset="utf-8">{html}', encoding="utf-8")
        tab.page.goto(file.as_uri())
        return tab.page

    yield open_one
    for tab in tabs:
        assert tab.errors == []
        assert tab.foreign == []
