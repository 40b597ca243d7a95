"""The training panel in JupyterLab: a run is started, stopped and resumed by its buttons."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from nbcourse.experiments import records, run
from nbcourse.publishing import stored
from tests.small import recipe, without_costs

from . import jupyterlab
from .jupyterlab import ERRORS

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

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab with a notebook that shows a panel, and its folder."""
    folder = tmp_path_factory.mktemp("lab")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=stored.METADATA)
    nbformat.write(notebook, folder / "panel.ipynb")
    run.train(recipe(seed=1, **CHANGES), folder=folder / "other", progress=False)
    with jupyterlab.serve(folder, tmp_path_factory.mktemp("private")) as address:
        yield address, folder


def test_start_stop_and_resume_by_mouse_and_keys(lab, open_tab):
    address, folder = lab
    tab = open_tab(viewport={"width": 1400, "height": 1000})
    page = tab.page
    jupyterlab.open_notebook(page, address, "panel.ipynb")
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
    assert tab.foreign == []

    _, whole = run.train(recipe(**CHANGES), progress=False)
    kept = records.read_metrics(folder / "run")
    assert str(without_costs(kept)) == str(without_costs(whole))


def enabled(buttons) -> list[str]:
    """Which of the buttons for the run can be pressed."""
    return [name for name in ("Start", "Stop", "Resume") if buttons[name].is_enabled()]
