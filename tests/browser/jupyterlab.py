"""JupyterLab for tests: a private server, a notebook in a tab, Run All, what went wrong."""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from nbcourse.publishing import reading
from tests import forked_programs
from tests.effort import PATIENCE

TOKEN = "only-for-this-test"
# Cells out of sight must be in the page too, and nobody is asked anything.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
# What Jupyter finds here and readers do not have: nbgrader, which is in the environment for a test.
NBGRADER = ["assignment_list", "course_list", "formgrader", "validate_assignment"]
PROMPTS = ".jp-CodeCell .jp-InputArea-prompt"
FINISHED = f"""() => [...document.querySelectorAll("{PROMPTS}")]
  .every(prompt => /^\\[\\d+\\]:$/.test(prompt.textContent.trim()))"""
# Errors, and warnings that a reader would have to make sense of.
ERRORS = """() => [...document.querySelectorAll(
  '[data-mime-type$="jupyter.error"], [data-mime-type$="jupyter.stderr"]')]
  .map(output => output.textContent)"""


@contextmanager
def serve(folder: Path, private: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves `folder` and keeps its own files in `private`.

    It is started as by `jupyter lab`, in an environment that is set up as ours are.
    """
    reading.enable(private / "environment")
    absent = {f"nbgrader.server_extensions.{name}": False for name in NBGRADER}
    file = private / "config" / "jupyter_server_config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"ServerApp": {"jpserver_extensions": absent}}))
    file = private / "config" / "labconfig" / "page_config.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"disabledExtensions": {"@jupyter/nbgrader": True}}))
    for name, settings in SETTINGS.items():
        file = private / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    places = {
        "JUPYTER_CONFIG_DIR": private / "config",
        "JUPYTER_CONFIG_PATH": private / "environment" / "etc" / "jupyter",
        "JUPYTER_DATA_DIR": private / "data",
        "JUPYTER_RUNTIME_DIR": private / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": private / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": private / "workspaces",
    }
    port = _free_port()
    options = ["--no-browser", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"]
    options += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    options += ["--LanguageServerManager.autodetect=False"]  # to look for some takes a second
    options += ["--LabApp.expose_app_in_browser=True"]  # for `open_notebook`
    options += ["--allow-root"] if os.geteuid() == 0 else []
    log = private / "log"
    with log.open("wb") as stream:
        server = forked_programs.popen()(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=folder,
            env={**os.environ, **{name: str(path) for name, path in places.items()}},
            stdout=stream,
            stderr=stream,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(f"{address}/api?token={TOKEN}", server, log)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=PATIENCE)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(address: str, server: Popen, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.poll() is None:
        try:
            urlopen(address).close()
            return
        except URLError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()[-2000:]}")


def start(page, address: str) -> None:
    """Open JupyterLab, which takes 8 processor seconds: notebooks need not do that each."""
    page.goto(f"{address}/lab?token={TOKEN}&reset")
    page.wait_for_function("() => window.jupyterapp")
    page.evaluate("async () => { await jupyterapp.restored; }")


def open_notebook(page, notebook: str) -> None:
    """Open a notebook, by its path below the served folder, and wait for its kernel.

    What was open is saved and closed.
    """
    page.evaluate(
        """async path => {
          const { commands } = jupyterapp;
          await commands.execute("docmanager:save-all");
          await commands.execute("application:close-all");
          await commands.execute("docmanager:open", { path });
        }""",
        notebook,
    )
    # The status bar: the tool bar calls a kernel idle before there is one.
    page.get_by_text("Python 3 (ipykernel) | Idle").first.wait_for()


def choose_theme(page, theme: str) -> None:
    """As the menu of settings does; it lasts."""
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)


def run_all(page) -> None:
    """Run all cells, as the menu does; a folded cell has no prompt, and so all are unfolded."""
    page.get_by_role("menuitem", name="View", exact=True).click()
    page.locator('[data-command="notebook:show-all-cell-code"]').click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('[data-command="runmenu:run-all"]').click()


def save(page) -> None:
    """Save the notebook, as the keyboard does, and wait until it is."""
    with page.expect_response(is_save):
        page.keyboard.press("Control+s")


def is_save(response) -> bool:
    """Whether the server answers that it has saved a file."""
    return response.request.method == "PUT" and "/api/contents" in response.url
