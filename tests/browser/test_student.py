"""A new student: the bundle unpacked somewhere, an exercise left alone, done wrong, done right."""

import zipfile
from collections.abc import Iterator

import pytest

from nbcourse.classroom.release import write_bundles
from tests.checks import masters

from . import jupyterlab
from .jupyterlab import ERRORS, FINISHED

pytestmark = [masters.needed, pytest.mark.browser, pytest.mark.slow]

OUTPUTS = """() => [...document.querySelectorAll(".jp-OutputArea-output")]
  .map(output => output.textContent)"""
WRONG = """def group_means(rewards, group_size):
return rewards.mean().expand(len(rewards))"""  # the editor indents the second line itself
RIGHT = """def group_means(rewards, group_size):
return rewards.view(-1, group_size).mean(1).repeat_interleave(group_size)"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[str]:
    """The address of a JupyterLab started in an unpacked bundle, far from the book."""
    folder = tmp_path_factory.mktemp("student")
    (bundle,) = write_bundles("2", folder)
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(folder)
    with jupyterlab.serve(folder / "02-sequences", tmp_path_factory.mktemp("private")) as address:
        yield address


def test_a_stub_a_mistake_and_the_right_answer(lab, open_tab):
    tab = open_tab(viewport={"width": 1400, "height": 1000})
    page = tab.page
    jupyterlab.open_notebook(page, lab, "02-sequences.ipynb")

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
    assert tab.foreign == []


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
