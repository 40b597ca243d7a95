"""An explorer on a page of its own, offline."""

import os
from collections.abc import Callable, Iterator

import pytest

from nbcourse import installation
from tests.conftest import BROWSER_OPTIONS, Watched

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
  const empty = box => box.height / 4; // above the letters of most fonts, and below
  const outside = texts.filter((_, i) => boxes[i].left < frame.left - 1
    || boxes[i].right > frame.right + 1 || boxes[i].top < frame.top - empty(boxes[i])
    || boxes[i].bottom > frame.bottom + empty(boxes[i]));
  const slivers = box => [1, 1.2 * empty(box)];
  return texts.flatMap((one, i) => texts.slice(i + 1)
    .filter((_, j) => shared(boxes[i], boxes[i + 1 + j])
      .every((side, k) => side > slivers(boxes[i])[k]))
    .map(other => one.textContent + " | " + other.textContent))
    .concat(outside.map(text => text.textContent + " is cut off"));
})"""


SIZE = {"width": 1280, "height": 720}  # of a window, unless a test says another


@pytest.fixture(scope="package")
def browser() -> Iterator:
    """Headless Chromium, for all tests of this folder: to start it takes over a processor second.

    Without one the test is skipped, but under CI it fails.
    """
    from playwright.sync_api import sync_playwright

    path = installation.browser()
    if path is None:
        remedy = "no Chromium or Chrome found; install one, for example: apt install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(remedy)
        pytest.skip(remedy)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=BROWSER_OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def lent(browser) -> Iterator[Callable[..., Watched]]:
    """lent(**options) → a Watched tab of this kind, the same one each time, with a blank page.

    A page takes half as much time in it as in a new one. What lasts longer than a page, such as an
    init script or a slow network, belongs into `open_tab`.
    """
    tabs: dict[str, Watched] = {}

    def one(**options) -> Watched:
        kind = repr(options)
        if kind in tabs:
            tabs[kind].forget()
            tabs[kind].page.mouse.move(0, 0)
            scheme = options.get("color_scheme", "light")
            tabs[kind].page.emulate_media(media="null", color_scheme=scheme)
            tabs[kind].page.set_viewport_size(options.get("viewport", SIZE))
        else:
            tabs[kind] = Watched(browser, **options)
        return tabs[kind]

    yield one
    for tab in tabs.values():
        tab.context.close()


@pytest.fixture(scope="module")
def offline(browser) -> Iterator[Callable[[bool], Watched]]:
    """offline(has_touch) → a tab without a network, one each for mouse and finger."""
    tabs = {}

    def tab(has_touch: bool) -> Watched:
        if has_touch not in tabs:
            tabs[has_touch] = Watched(browser, has_touch=has_touch, offline=True)
        return tabs[has_touch]

    yield tab
    for one in tabs.values():
        one.context.close()


@pytest.fixture
def open_alone(offline, tmp_path) -> Iterator[Callable]:
    """open_alone(html) → the page that holds nothing else; it may not ask for anything, nor err.

    The next one of a test takes its place, and so does that of the next test.
    """
    used = []

    def open_one(html: str, width: int = 800, has_touch: bool = False):
        tab = offline(has_touch)
        used.append(tab)
        file = tmp_path / f"{len(used)}.html"
        file.write_text(f'<!doctype html><meta charset="utf-8">{html}', encoding="utf-8")
        tab.page.set_viewport_size({"width": width, "height": 700})
        tab.page.mouse.move(0, 0)
        tab.page.goto(file.as_uri())
        return tab.page

    yield open_one
    for tab in used:
        for button in ("left", "right"):  # whatever the test, or its failure, left pressed
            tab.page.mouse.up(button=button)
        errors, foreign = tab.errors[:], tab.foreign[:]
        tab.errors.clear()
        tab.foreign.clear()
        assert errors == []
        assert foreign == []
