"""Chapter 1 as a reader meets it: JupyterLab in a browser, Run All, the mouse on the explorer."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from nbcourse.publishing import chapters, stored

TOKEN = "only-for-this-test"
CHAPTERS = [book for book in chapters.notebooks() if "1" in chapters.names(book)]
# Cells out of sight must be in the page too, and nobody is asked anything.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
PROMPTS = ".jp-CodeCell .jp-InputArea-prompt"
FINISHED = f"""() => [...document.querySelectorAll("{PROMPTS}")]
  .every(prompt => /^\\[\\d+\\]:$/.test(prompt.textContent.trim()))"""
# Errors, and warnings that a reader would have to make sense of.
ERRORS = """() => [...document.querySelectorAll(
  '[data-mime-type$="jupyter.error"], [data-mime-type$="jupyter.stderr"]')]
  .map(output => output.textContent)"""
# What the outputs with a live slider draw.
DRAWING = """() => [...document.querySelectorAll(".jp-OutputArea-output")]
  .filter(output => output.querySelector(".noUi-handle"))
  .flatMap(output => [...output.querySelectorAll("svg, img")].map(drawing => drawing.outerHTML))
  .join()"""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[str]:
    """The address of a JupyterLab with private settings, on a copy of the book without outputs."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(chapters.ROOT / "book", folder / "book")
    for notebook in (folder / "book").glob("*.ipynb"):
        stored.write(without_outputs(stored.read(notebook)), notebook)
    for name, settings in SETTINGS.items():
        file = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    private = {
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": folder / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
    }
    port = free_port()
    options = ["--no-browser", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    options += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    options += ["--allow-root"] if os.geteuid() == 0 else []
    log = folder / "log"
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=folder,
            env={**os.environ, **{name: str(path) for name, path in private.items()}},
            stdout=stream,
            stderr=stream,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api?token={TOKEN}", server, log)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


def without_outputs(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(address: str, server: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            urlopen(address).close()
            return
        except URLError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()[-2000:]}")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_run_all_and_the_explorer(lab, open_tab, chapter):
    tab = open_tab(viewport={"width": 1400, "height": 1000})
    page = tab.page
    page.goto(f"{lab}/lab/tree/book/{chapter.name}?token={TOKEN}&reset", timeout=60_000)
    # The status bar: the tool bar calls a kernel idle before there is one.
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for(timeout=60_000)

    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('[data-command="runmenu:run-all"]').click()
    prompts = page.locator(PROMPTS)
    assert prompts.count() == code_cells(chapter)
    page.wait_for_function(f"() => ({ERRORS})().length || ({FINISHED})()", timeout=300_000)
    assert page.evaluate(ERRORS) == []
    assert prompts.last.inner_text().strip() == f"[{code_cells(chapter)}]:"

    before = page.evaluate(DRAWING)
    drag(page, page.locator(".noUi-handle").first, by=120)
    page.wait_for_function(f"before => ({DRAWING})() !== before", arg=before, timeout=20_000)
    assert tab.foreign == []


def code_cells(chapter: Path) -> int:
    return sum(cell.cell_type == "code" for cell in stored.read(chapter).cells)


def drag(page, handle, *, by: int) -> None:
    """Move a slider as a hand does."""
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by, y, steps=10)
    page.mouse.up()
