"""Notebooks as readers and students meet them: in one JupyterLab, one after the other.

A chapter: Run All, explorers by key and mouse. The training panel: a run is started, stopped and
resumed by its buttons. A new student: the bundle unpacked somewhere, an exercise left alone, done
wrong, done right.
"""

import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from nbcourse.classroom.release import write_bundles
from nbcourse.experiments import records, run
from nbcourse.publishing import chapters, numbering, stored
from tests.checks import masters
from tests.conftest import Watched
from tests.effort import swept
from tests.small import recipe, without_costs

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

TAB = ".lm-DockPanel-tabBar .lm-TabBar-tab"

CHANGES = {"steps": 8, "evaluation": {"every": 2, "problems": 8}}
HELD = 3  # steps before the run waits for Stop to be pressed
CELLS = [
    f"""import time
from nbcourse.display import training_panel
from nbcourse.training import recipe
panel = training_panel(
    recipe.check({recipe(**CHANGES).model_dump(exclude_unset=True)!r}),
    folder="run", compare=["other"],
)
def hold():
    while panel.run.step == {HELD} and panel.run.state == "training":
        time.sleep(0.02)
panel.run.listeners.append(hold)""",
    "panel",
    'print("the kernel answers:", panel.run.state)',
]
# The points of a chart; the second runs are drawn first, so that all of both are counted.
POINTS = """chart => [...document.querySelectorAll(".nb-panel .nb-curves svg")][chart]
  .querySelectorAll("circle").length"""

OUTPUTS = """() => [...document.querySelectorAll(".jp-OutputArea-output")]
  .map(output => output.textContent)"""
WRONG = """def group_means(rewards, group_size):
return rewards.mean().expand(len(rewards))"""  # the editor indents the second line itself
RIGHT = """def group_means(rewards, group_size):
return rewards.view(-1, group_size).mean(1).repeat_interleave(group_size)"""


pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """A private JupyterLab: its address, and its folder with a copy of the book."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(
        chapters.ROOT / "book", folder / "book", ignore=shutil.ignore_patterns("exercises", "text")
    )
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    with jupyterlab.serve(folder, folder) as address:
        yield address, folder


def open_chapter(page, folder: Path, name: str) -> None:
    """Open a chapter that has no outputs yet, and whose deeper sections are unfolded."""
    if page.locator(TAB, has_text=name).count():
        return
    file = folder / "book" / f"{name}.ipynb"
    notebook = stored.read(file)
    for cell in notebook.cells:
        if stored.DEEPER in cell.metadata.get("tags", []):  # what is folded away is not drawn
            cell.metadata.tags.remove(stored.DEEPER)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    stored.write(notebook, file)
    subprocess.run(["git", "add", str(file)], cwd=folder, check=True)
    jupyterlab.open_notebook(page, f"book/{name}.ipynb")


@pytest.fixture(scope="module")
def page(browser, lab):
    """JupyterLab in a browser: one notebook at a time."""
    tab = Watched(browser, viewport={"width": 1400, "height": 1000})
    jupyterlab.start(tab.page, lab[0])
    yield tab.page
    assert tab.foreign == []
    tab.context.close()


@pytest.fixture
def chapter_read(page, lab):
    """A chapter that four tests read one after the other, as a reader does."""
    open_chapter(page, lab[1], READ)
    return page


def test_numbers_and_links_are_those_of_the_book(chapter_read):
    """With the MyST extension, which has a numbering of its own."""
    page = chapter_read
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


def test_the_code_of_figures_is_folded_and_unfolds(chapter_read):
    page = chapter_read
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
    open_chapter(page, lab[1], chapter.stem)
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


def test_a_chapter_looks_like_a_page_and_closing_it_asks_nothing(chapter_read):
    """With the style sheet and the settings of `publishing.reading`."""
    page = chapter_read
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
    tab = page.locator(TAB, has_text=READ)
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
def test_in_the_dark_all_text_has_contrast_and_figures_the_ground_of_the_page(page, lab, cells):
    """In a chapter whose explorers have tables, trusted as `make lab` trusts it."""
    _, folder = lab
    notebook = stored.read(chapters.find(TABLES))
    notebook.cells = notebook.cells[cells]
    file = folder / "book" / f"{TABLES}.ipynb"
    stored.write(notebook, file)
    NotebookNotary(data_dir=str(folder / "data")).sign(stored.read(file))
    jupyterlab.choose_theme(page, "JupyterLab Dark")
    jupyterlab.open_notebook(page, f"book/{TABLES}.ipynb")
    page.locator(".nb-explorer table").first.wait_for()
    assert page.locator("body").get_attribute("data-jp-theme-light") == "false"
    page.wait_for_timeout(1000)  # until the editors of code have their colours
    assert page.evaluate(FAINT) == []
    figure = page.locator(".jp-RenderedSVG img").first
    assert "invert(1)" in figure.evaluate("image => getComputedStyle(image).filter")
    jupyterlab.choose_theme(page, "JupyterLab Light")


def test_a_run_is_started_stopped_and_resumed_by_mouse_and_keys(page, lab):
    folder = lab[1] / "panel"
    folder.mkdir()
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=stored.METADATA)
    nbformat.write(notebook, folder / "panel.ipynb")
    run.train(recipe(seed=1, **CHANGES), folder=folder / "other", progress=False)
    jupyterlab.open_notebook(page, "panel/panel.ipynb")
    jupyterlab.run_all(page)
    panel = page.locator(".nb-panel")
    state = panel.locator(".nb-state")
    state.filter(has_text="Not started: 8 steps of grpo").wait_for()
    buttons = {
        name: panel.get_by_role("button", name=name, exact=True)
        for name in ("Start", "Stop", "Resume", "Earlier", "Later")
    }
    assert enabled(buttons) == ["Start"]
    assert page.evaluate(POINTS, 0) == 8  # the other run's

    buttons["Start"].click()
    state.filter(has_text=f"Training: step {HELD} of 8").wait_for()
    assert "s left" in state.inner_text()
    assert page.evaluate(POINTS, 0) == 8 + HELD  # the curve has grown
    assert page.evaluate(POINTS, 1) == 5 + 2  # steps 0 and 2, and all of the other run's
    assert panel.locator(".nb-texts tbody tr").count() == 6
    page.locator(".jp-CodeCell").last.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+Enter")
    page.get_by_text("the kernel answers: training").wait_for()  # while the run is at work

    buttons["Stop"].focus()
    page.keyboard.press("Enter")
    state.filter(
        has_text=f"Stopped after step {HELD + 1} of 8; Resume goes on from there"
    ).wait_for()
    assert enabled(buttons) == ["Resume"]
    assert len(records.read_metrics(folder / "run")) == HELD + 1  # the step at work is kept

    texts = panel.get_by_label("Texts of step")  # by keys, and by buttons for fingers
    texts.fill("1")
    texts.press("Enter")
    panel.get_by_text("Written in step 1", exact=True).wait_for()
    assert buttons["Earlier"].is_disabled()
    buttons["Later"].click()
    panel.get_by_text("Written in step 2", exact=True).wait_for()
    for control in (*buttons.values(), texts):
        assert control.bounding_box()["height"] >= 44

    page.keyboard.press("Escape")
    buttons["Resume"].focus()
    page.keyboard.press("Space")
    state.filter(has_text="Finished: 8 steps").wait_for()
    assert page.evaluate(POINTS, 0) == 8 + 8
    assert panel.get_by_text("Written in step 2", exact=True).is_visible()  # still being read
    assert enabled(buttons) == []
    assert "seed: 1, not 0" in panel.inner_text()
    assert page.evaluate(ERRORS) == []

    _, whole = run.train(recipe(**CHANGES), progress=False)
    kept = records.read_metrics(folder / "run")
    assert str(without_costs(kept)) == str(without_costs(whole))


@masters.needed
def test_a_student_leaves_a_stub_makes_a_mistake_and_gives_the_right_answer(page, lab):
    """In an unpacked bundle, which brings its checks."""
    folder = lab[1] / "student"
    (bundle,) = write_bundles("2", folder)
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    jupyterlab.open_notebook(page, "student/02-sequences/02-sequences.ipynb")

    jupyterlab.run_all(page)  # the checks stop nothing: every cell has run
    page.wait_for_function(FINISHED)
    untouched = page.evaluate(ERRORS)
    assert len(untouched) == 5
    assert all("Not implemented yet" in message for message in untouched)
    assert not any("Traceback" in message for message in untouched)

    answer(page, WRONG)
    page.wait_for_function(f"() => ({OUTPUTS})().some(o => o.includes('whole batch'))")
    assert "the mean of the whole batch" in page.evaluate(ERRORS)[0]
    assert "Look again at chapter 2" in page.evaluate(ERRORS)[0]

    answer(page, RIGHT)
    page.wait_for_function(f"() => ({OUTPUTS})().some(o => o.includes('mend-the-groups: right.'))")
    assert len(page.evaluate(ERRORS)) == 4


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


def enabled(buttons) -> list[str]:
    """Which of the buttons for the run can be pressed."""
    return [name for name in ("Start", "Stop", "Resume") if buttons[name].is_enabled()]


def answer(page, source: str) -> None:
    """Type an answer into the cell of the first exercise, run it, and run its check."""
    cell = page.locator(".jp-CodeCell", has_text="def group_means").first
    cell.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(source)
    page.keyboard.press("ControlOrMeta+Enter")
    page.locator(".jp-CodeCell", has_text='"mend-the-groups", group_means').locator(
        ".cm-content"
    ).click()
    page.keyboard.press("ControlOrMeta+Enter")
