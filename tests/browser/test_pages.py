"""The site in a real browser, with every other host refused: complete, rendered, moving."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbcourse.publishing import chapters, site, stored

CHAPTERS = [notebook.stem for notebook in chapters.notebooks()]
PAGES = [page.stem for page in (chapters.ROOT / "book").glob("*.md")]  # nothing in them runs
FORMULA = ".math.notranslate"  # what Sphinx makes of $…$ and $$…$$
RAW_TEX = re.compile(r"\$\$|\\\(|\\\[|\\[A-Za-z]{2,}")
# What can be seen of an explorer: the visible shapes of its drawing, and its read-out.
SEEN = """explorer => [...explorer.querySelectorAll("svg *, .nb-readout")]
  .filter(part => part.checkVisibility()).map(part => part.outerHTML).join()"""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return site.build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(built, serve) -> Iterator[str]:
    with serve(built) as address:
        yield address


@pytest.fixture
def visit(open_tab, address):
    """visit(name) → the tab with that page, its mathematics drawn."""

    def visit(name: str, where: str = address):
        tab = open_tab()
        tab.page.goto(f"{where}/{name}.html", wait_until="load")
        if tab.page.locator(FORMULA).count():
            tab.page.wait_for_function("window.MathJax?.startup?.promise !== undefined")
            tab.page.evaluate("MathJax.startup.promise.then(() => true)")
        return tab

    return visit


def test_every_chapter_has_its_page(built):
    others = {"index", "search", "genindex"}
    assert {page.stem for page in built.glob("*.html")} == {*CHAPTERS, *PAGES, *others}


def test_a_foreign_request_and_an_error_are_noticed(open_tab, serve, tmp_path):
    """The net itself: without this, the tests below could pass because nothing listens."""
    (tmp_path / "page.html").write_text('<img src="http://example.org/x"><script>oops()</script>')
    with serve(tmp_path) as address:
        tab = open_tab()
        tab.page.goto(f"{address}/page.html")
    assert tab.foreign == ["http://example.org/x"]
    assert any("oops" in error for error in tab.errors)


@pytest.mark.parametrize("name", ["index", "intro", "search", "genindex", *CHAPTERS])
def test_a_page_needs_nothing_from_elsewhere(visit, name):
    tab = visit(name)
    tab.page.wait_for_load_state("networkidle")
    assert tab.foreign == []
    assert tab.errors == []


@pytest.mark.parametrize("name", ["intro", *CHAPTERS])
def test_every_equation_is_drawn(visit, name):
    page = visit(name).page
    for formula in page.locator(FORMULA).all():
        assert formula.locator("mjx-container").count() > 0, formula.text_content()
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0
    prose = page.locator("article").evaluate(
        "article => { const copy = article.cloneNode(true);"
        " copy.querySelectorAll('pre, code, script, style').forEach(node => node.remove());"
        " return copy.textContent; }"
    )
    assert RAW_TEX.findall(prose) == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_figure_is_there_and_says_what_it_shows(visit, name):
    images = visit(name).page.locator(".cell_output img").all()
    stored_texts = [data["alt"] for data in output_data(name, "metadata", "image/png")]
    assert [image.get_attribute("alt") for image in images] == stored_texts
    for image in images:
        image.scroll_into_view_if_needed()  # lazy images load when they come into sight
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_explorer_moves_without_a_kernel(visit, name):
    explorers = visit(name).page.locator(".nb-explorer")
    pages = output_data(name, "data", "text/html")
    assert explorers.count() == sum('class="nb-explorer"' in page for page in pages)
    for explorer in explorers.all():
        before = explorer.evaluate(SEEN)
        explorer.get_by_role("slider").first.press("ArrowRight")
        assert explorer.evaluate(SEEN) != before


def output_data(name: str, part: str, kind: str) -> list:
    """What the outputs stored in a chapter have of one kind, in order."""
    cells = stored.read(chapters.find(name)).cells
    parts = [output.get(part, {}) for cell in cells for output in cell.get("outputs", [])]
    return [part[kind] for part in parts if kind in part]


def test_the_pages_work_straight_from_the_disk(visit, built):
    tab = visit(CHAPTERS[-1], where=built.as_uri())
    assert tab.page.locator("mjx-container").count() > 0
    assert tab.foreign == []
