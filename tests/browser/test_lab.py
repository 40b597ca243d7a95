"""A chapter as a reader meets it: JupyterLab in a browser, Run All, explorers by key and mouse."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbcourse.publishing import chapters, numbering, stored
from tests.conftest import Watched
from tests.effort import swept

from . import jupyterlab
from .jupyterlab import ERRORS, FINISHED, PROMPTS

# Every cell of every chapter runs in `make test` as well, without the browser.
READ = "05-ppo"
TABLES, TWO_EXPLORERS = "10-grpo", slice(50, 80)  # cells with both, text, code, a figure, tables
CHAPTERS = swept(chapters.notebooks(), keep=[chapters.find(READ)])
# What an explorer draws and says.
SEEN = """explorer => [...explorer.querySelectorAll("svg, .nb-readout")]
  .map(part => part.innerHTML).join()"""

TAGS = """count => document.querySelectorAll(
  ".jp-MarkdownCell .katex-display .tag").length >= count"""

AT_THE_TOP = """([heading, view]) => {
  const below = heading.getBoundingClientRect().y - view.getBoundingClientRect().y;
  return below >= 0 && below < 300;
}"""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """A private JupyterLab: its address, and its copy of the book."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(chapters.ROOT / "book", folder / "book")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    with jupyterlab.serve(folder, folder) as address:
        yield address, folder


def open_chapter(page, lab: tuple[str, Path], name: str) -> None:
    """Open a chapter that has no outputs yet, and whose deeper sections are unfolded."""
    address, folder = lab
    file = folder / "book" / f"{name}.ipynb"
    notebook = stored.read(file)
    for cell in notebook.cells:
        if stored.DEEPER in cell.metadata.get("tags", []):  # what is folded away is not drawn
            cell.metadata.tags.remove(stored.DEEPER)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    stored.write(notebook, file)
    subprocess.run(["git", "add", str(file)], cwd=folder, check=True)
    jupyterlab.open_notebook(page, address, f"book/{name}.ipynb")


@pytest.fixture(scope="module")
def page(browser, lab):
    """A chapter that four tests read one after the other, as a reader does."""
    tab = Watched(browser, viewport={"width": 1400, "height": 1000})
    open_chapter(tab.page, lab, READ)
    yield tab.page
    assert tab.foreign == []
    tab.context.close()


def test_numbers_and_links_are_those_of_the_book(page):
    """With the MyST extension, which has a numbering of its own."""
    places = [place for place in numbering.places().values() if place.chapter == READ]
    numbers = [f"({place.number})" for place in places if place.anchor.startswith("eq-")]
    tags = page.locator(".jp-MarkdownCell .katex-display .tag")
    page.wait_for_function(TAGS, arg=len(numbers))
    assert tags.all_inner_texts() == numbers
    prose = " ".join(page.locator(".jp-MarkdownCell").all_inner_texts())
    assert re.findall(r"\{eq\}|\(eq-|\(\d+\)$|\$\$", prose) == []
    assert "Figure 5.2. " in prose

    page.get_by_role("link", name="section 5.3").first.click()  # from far below
    heading = page.get_by_role("heading", name="5.3 The surrogate")
    view = page.locator(".jp-WindowedPanel-outer")
    page.wait_for_function(AT_THE_TOP, arg=[heading.element_handle(), view.element_handle()])


def test_the_code_of_figures_is_folded_and_unfolds(page):
    cells = stored.read(chapters.find(READ)).cells
    plots = sum("hide-input" in cell.metadata.get("tags", []) for cell in cells)
    folded = page.locator(".jp-CodeCell .jp-InputPlaceholder")
    assert folded.count() == plots > 0
    folded.first.click()
    assert folded.count() == plots - 1
    assert "import" in page.locator(".jp-CodeCell .cm-content:visible").first.inner_text()


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_run_all(lab, page, chapter):
    file = lab[1] / "book" / chapter.name
    if chapter.stem not in page.url:
        open_chapter(page, lab, chapter.stem)
    before_reading = file.read_bytes()
    jupyterlab.run_all(page)
    prompts = page.locator(PROMPTS)
    assert prompts.count() == code_cells(chapter)
    page.wait_for_function(f"() => ({ERRORS})().length || ({FINISHED})()")
    assert page.evaluate(ERRORS) == []
    assert prompts.last.inner_text().strip() == f"[{code_cells(chapter)}]:"

    explorers = page.locator(".nb-explorer:has(input[type=range])")
    for explorer in explorers.all():
        slider = explorer.locator("input[type=range]").first
        first = explorer.evaluate(SEEN)
        slider.press("ArrowRight")
        second = explorer.evaluate(SEEN)
        assert second != first
        drag_to_the_left(page, slider)
        assert explorer.evaluate(SEEN) != second
    assert explorers.count() or chapter.stem != READ
    jupyterlab.save(page)
    assert file.read_bytes() == before_reading


def test_a_chapter_looks_like_a_page_and_closing_it_asks_nothing(page, lab):
    """With the style sheet and the settings of `publishing.reading`."""
    if READ not in page.url:
        open_chapter(page, lab, READ)
    column, code = (
        page.locator(f".jp-Notebook {kind}:visible").first.bounding_box()["width"]
        for kind in (".jp-MarkdownCell .myst", ".jp-InputArea-editor")
    )
    assert 600 < column < 800 < code  # at most so many letters to a line, and room for code
    words = page.locator(".jp-MarkdownCell aside + blockquote")
    assert words.inner_text().startswith("A good action that has become rarer")
    assert words.evaluate("element => getComputedStyle(element).borderLeftWidth") == "4px"

    page.locator(".jp-CodeCell .jp-InputArea-editor:visible").first.click()
    with page.expect_response(jupyterlab.is_save, timeout=60_000):  # JupyterLab's own: 2 minutes
        page.keyboard.press("Shift+Enter")
    tab = page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text=READ)
    page.wait_for_function("() => !document.querySelector('.lm-DockPanel-tabBar .jp-mod-dirty')")
    tab.locator(".lm-TabBar-tabCloseIcon").click()
    tab.wait_for(state="detached")
    assert page.locator(".jp-Dialog").count() == 0


# Texts with a contrast below 4.5 to the ground that lies behind them. An explorer in the dark turns
# all of its colours, and so keeps the contrast that it has in the light.
FAINT = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = numbers(colour).map(part => part / 255)
      .map(part => part <= 0.04 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = part => {
    for (; part; part = part.parentElement) {
      const colour = getComputedStyle(part).backgroundColor;
      if ((numbers(colour)[3] ?? 1) > 0.9) return colour;
    }
  };
  const found = [], all = document.createTreeWalker(
    document.querySelector(".jp-NotebookPanel-notebook"), NodeFilter.SHOW_TEXT);
  while (all.nextNode()) {
    const text = all.currentNode.textContent.trim(), part = all.currentNode.parentElement;
    if (!text || !part.checkVisibility()) continue;
    if (part.closest("script, style, svg, .katex-mathml, .nb-key, .nb-tokens")) continue;
    const both = [getComputedStyle(part).color, ground(part)].map(light).sort((a, b) => b - a);
    if ((both[0] + 0.05) / (both[1] + 0.05) < 4.5) found.push(text);
  }
  return found;
}"""


@pytest.mark.parametrize(
    "cells", swept([slice(None), TWO_EXPLORERS], keep=[TWO_EXPLORERS]), ids=str
)
def test_in_the_dark_all_text_has_contrast_and_figures_the_ground_of_the_page(browser, lab, cells):
    """In a chapter whose explorers have tables, trusted as `make lab` trusts it."""
    address, folder = lab
    chosen = folder / "settings" / "@jupyterlab" / "apputils-extension" / "themes"
    chosen.with_suffix(".jupyterlab-settings").write_text('{"theme": "JupyterLab Dark"}')
    notebook = stored.read(chapters.find(TABLES))
    notebook.cells = notebook.cells[cells]
    stored.write(notebook, folder / "book" / f"{TABLES}.ipynb")
    subprocess.run(
        [sys.executable, "-m", "jupyter", "trust", folder / "book" / f"{TABLES}.ipynb"],
        env={**os.environ, "JUPYTER_DATA_DIR": str(folder / "data")},
        check=True,
    )
    tab = Watched(browser, viewport={"width": 1400, "height": 1000})
    jupyterlab.open_notebook(tab.page, address, f"book/{TABLES}.ipynb")
    tab.page.locator(".nb-explorer table").first.wait_for()
    assert tab.page.locator("body").get_attribute("data-jp-theme-light") == "false"
    tab.page.wait_for_timeout(1000)  # until the editors of code have their colours
    assert tab.page.evaluate(FAINT) == []
    figure = tab.page.locator(".jp-RenderedSVG img").first
    assert "invert(1)" in figure.evaluate("image => getComputedStyle(image).filter")
    tab.context.close()


def code_cells(chapter: Path) -> int:
    return sum(cell.cell_type == "code" for cell in stored.read(chapter).cells)


def drag_to_the_left(page, slider) -> None:
    """Move a slider as a hand does, from its middle to its left end."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 4, y, steps=10)
    page.mouse.up()
