"""Exercises in their pages, in a browser without a network: typed, checked, told, stopped."""

import contextlib
import inspect
import io
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import NotRight
from nbcourse.classroom.page_python import site as page_python
from nbcourse.publishing import reference, site, stored
from nbcourse.publishing.chapters import ROOT
from tests.book.test_site_build import PROSE, write_book
from tests.browser import plain_answers
from tests.browser.test_pages import (
    LOOKS,
    MOST_BYTES,
    MOST_REQUESTS,
    WIDER_THAN_THE_PAGE,
    objections,
)
from tests.checks import masters
from tests.classroom.test_page_python import page_of, rounded, wrong_module
from tests.conftest import Watched
from tests.effort import swept

pytestmark = [pytest.mark.browser, pytest.mark.slow, masters.needed]

SHEETS = ("01-bandit", "02-sequences", "03-critics", "07-language-model", "10-grpo", "13-gsm8k")
ENDINGS = ("10-grpo", "13-gsm8k")
WITH_TENSORS = ("02-sequences", "07-language-model", "10-grpo")
RIGHT = """def policy_loss(logits, arms, rewards):
    mean = sum(rewards) / len(rewards)
    total = 0.0
    for row, arm, reward in zip(logits, arms, rewards):
        log_prob = row[arm] - row.logsumexp(0)
        total += (reward - mean) * log_prob
    return -total / len(arms)
"""
SECOND = """def group_means(rewards, group_size):
    means = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        means += [sum(group) / group_size] * group_size
    return means
"""
COMPARISONS = """import torch
one, two = torch.tensor(1.0), torch.tensor(2.0)
print(float(max(one, two)), float(max(two, one)), float(min([two, one])), float(max(1.5, one)))
print([float(x) for x in sorted([two, one])], [one, two].index(two), two in [one], [one] == [two])
print(bool(0 < one < 2), bool(one < one < 2), bool(2 > one > 1), 1 if one > two else 2)
"""
ENDLESS = "print('on and on')\nwhile True:\n    pass\n"
SMALL_TARGETS = """box => [...box.querySelectorAll("button")]
  .map(button => button.getBoundingClientRect())
  .filter(({height, width}) => height < 44 || width < 44)"""


class Cell:
    """One exercise on a page."""

    def __init__(self, tab: Watched, number: int = 0) -> None:
        self.box = tab.page.locator(".nb-python").nth(number)
        self.field = self.box.get_by_role("textbox")
        self.output = self.box.get_by_role("status")

    def press(self, name: str) -> None:
        self.box.get_by_role("button", name=name, exact=True).click()

    def check(self, code: str) -> None:
        self.field.fill(code)
        self.press("Check")

    def says(self, verdict: str) -> str:
        """What stands there once a check has ended, in this way."""
        self.box.locator("pre[data-verdict]").wait_for()
        said = self.output.inner_text()
        assert self.output.get_attribute("data-verdict") == verdict, said
        return said


@pytest.fixture(scope="module")
def built(forked, tmp_path_factory) -> Path:
    """A small site with these sheets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "ROOMS", {})
        root = write_book(tmp_path_factory.mktemp("site"), PROSE)
        for sheet in SHEETS:
            shutil.copy(ROOT / "book" / "exercises" / f"{sheet}.ipynb", root / "book" / "exercises")
        for chapter in ENDINGS:
            ending = new_markdown_cell("# A chapter\n\n## Exercises\n\nHere they are.")
            stored.write(new_notebook(cells=[ending]), root / "book" / f"{chapter}.ipynb")
        return site.build(root, root=root)


@pytest.fixture(scope="module")
def address(built, serve) -> Iterator[str]:
    with serve(built) as address:
        yield f"{address}/exercises/01-bandit.html#main-content"  # all of it is laid out


@pytest.fixture(scope="module")
def loaded(request, browser, address) -> Iterator[Watched]:
    """The page of a sheet, opened once, so that Python is loaded once for all of its tests."""
    tab = Watched(browser)
    tab.page.goto(address.replace("01-bandit", request.param))
    yield tab
    assert tab.foreign == []
    assert tab.errors == []
    tab.context.close()


def on_sheet(name: str):
    return pytest.mark.parametrize("loaded", [name], indirect=True)


def names(requests: list[str]) -> set[str]:
    return {urlsplit(url).path for url in requests}


def test_every_exercise_of_the_sheets_has_its_cell(built):
    for sheet in SHEETS:
        page = (built / "exercises" / f"{sheet}.html").read_text("utf-8")
        exercises = Sheet(sheet).exercises
        here = [name for name, exercise in exercises.items() if not exercise.elsewhere]
        assert re.findall(r'data-exercise="([\w-]+)"', page) == here
        reasons = [exercise.elsewhere for exercise in exercises.values() if exercise.elsewhere]
        assert page.count("Answer this one in <a href=") == len(reasons)
        assert all(why in page for why in reasons)
        assert "and press Check" in page
        assert "run the cell" not in page
        assert "from nbcourse.checks import Sheet" not in page
        assert f'<a href="../_sources/exercises/{sheet}.ipynb">the notebook</a>' in page
    assert "nb-python" not in (built / "exercises" / "01-one.html").read_text("utf-8")


@on_sheet("01-bandit")
def test_python_comes_with_the_first_check_and_not_before(loaded, built):
    """The first test of this page: the others find Python there."""
    loaded.page.wait_for_load_state("networkidle")
    opened = names(loaded.requests)
    assert not any(page_python.FILE in path for path in opened)
    assert len(opened) <= MOST_REQUESTS
    assert sum((built / path.lstrip("/")).stat().st_size for path in opened) < MOST_BYTES
    cell = Cell(loaded)
    cell.check(RIGHT)
    assert cell.says("right").startswith("mend-the-loss: right. Checked: ")
    asked = names(loaded.requests) - opened  # fonts and pictures may come late as well
    assert {path for path in asked if path.endswith(".js")} == {f"/_static/{page_python.FILE}"}


@on_sheet("01-bandit")
def test_a_mistake_is_told_in_the_words_of_the_notebook(loaded):
    cell = Cell(loaded)
    cell.check(RIGHT.replace("-total", "total"))
    said = cell.says("wrong")

    def wrong_sign(logits, arms, rewards):
        log_probs = logits.log_softmax(1)[range(len(arms)), arms]
        return ((rewards - rewards.mean()) * log_probs).mean()

    with pytest.raises(NotRight) as notebook:
        Sheet("01-bandit").check("mend-the-loss", wrong_sign)
    assert said == str(notebook.value)
    assert "the sign is the wrong way round" in said


@on_sheet("01-bandit")
def test_what_does_not_run_is_told_with_its_line(loaded):
    cell = Cell(loaded)
    cell.check("def policy_loss(logits, arms, rewards)\n    return 0\n")
    assert cell.says("error").startswith("line 1: def policy_loss(logits, arms, rewards)\nSyntax")
    cell.check("print(0.1 + 0.2)\nprint(1 / 0)")
    assert cell.says("error") == (
        "0.30000000000000004\n  line 2: print(1 / 0)\nZeroDivisionError: division by zero"
    )
    cell.check("import numpy")
    assert "`math`" in cell.says("error")
    cell.check("def f(n):\n    return f(n)\n\nf(0)")
    assert "RecursionError" in cell.says("error")
    cell.check("raise SystemExit")
    assert "SystemExit" in cell.says("error")
    cell.press("Start over")
    cell.press("Check")
    assert cell.says("not yet").startswith("mend-the-loss: Not implemented yet.")


@on_sheet("01-bandit")
def test_an_endless_loop_is_stopped_and_the_page_goes_on(loaded):
    cell, other = Cell(loaded), Cell(loaded, 2)
    cell.check(ENDLESS)
    loaded.page.get_by_text("on and on", exact=True).wait_for()
    cell.press("Stop")
    assert cell.says("stopped") == "on and on\n\nStopped."
    cell.check(ENDLESS)
    loaded.page.get_by_text("on and on", exact=True).wait_for()
    other.check("def harmful_bandit():\n    return [0.9, 0.1], [1.0, 0.0]\n")
    assert "64 times the variance" in other.says("right")
    assert cell.says("stopped").endswith("Stopped.")


@on_sheet("01-bandit")
def test_a_cell_is_there_for_everyone(loaded):
    """The page around it is looked at with the other pages."""
    for number, (code, verdict) in enumerate(((RIGHT, "right"), ("1 / 0", "error"))):
        cell = Cell(loaded, number)
        cell.check(code)
        cell.says(verdict)
    for look in LOOKS.values():
        loaded.page.emulate_media(color_scheme=look["color_scheme"])
        loaded.page.set_viewport_size(look["viewport"])
        assert objections(loaded.page, ".nb-python") == []
        assert not loaded.page.evaluate(WIDER_THAN_THE_PAGE)
        assert cell.box.evaluate(SMALL_TARGETS) == []


@on_sheet("01-bandit")
def test_python_in_the_browser_compares_tensors_by_their_truth(loaded):
    cell = Cell(loaded)
    cell.check(COMPARISONS)
    said, _, _ = cell.says("error").partition("\nThere is no")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(COMPARISONS, {})
    assert said == printed.getvalue().strip()


@on_sheet("01-bandit")
def test_a_cell_is_used_by_keys_and_keeps_what_is_typed(loaded):
    cell = Cell(loaded)
    page = loaded.page
    cell.field.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("def policy_loss(logits, arms, rewards):")
    page.keyboard.press("Enter")
    page.keyboard.type("if True:")
    page.keyboard.press("Enter")
    page.keyboard.type("return 0")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    typed = "def policy_loss(logits, arms, rewards):\n    if True:\n        return 0\n            "
    assert cell.field.input_value() == typed
    page.keyboard.press("Control+Enter")
    assert "Expected a tensor to differentiate, got int 0" in cell.says("wrong")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check"
    page.reload()  # Python is gone: whoever comes after this test fetches it anew
    assert Cell(loaded).field.input_value() == typed


@on_sheet("02-sequences")
def test_the_second_sheet_is_checked_too(loaded):
    cell = Cell(loaded)
    cell.check(SECOND)
    assert "12 rewards, groups of 4" in cell.says("right")
    cell.check(SECOND.replace(" / group_size", ""))
    assert "Likely mistake: that is the sum of each group" in cell.says("wrong")


ANSWERS = {
    (exercise, words): code
    for exercise, said in plain_answers.SAID.items()
    for code, words in said.items()
}


@on_sheet("03-critics")
@pytest.mark.parametrize(
    ("exercise", "words"),
    swept(ANSWERS, keep=plain_answers.KEPT),
)
def test_the_third_sheet_says_what_python_says_without_a_browser(loaded, exercise, words):
    cell = Cell(loaded, list(plain_answers.SAID).index(exercise))
    cell.press("Start over")
    given, _, _ = cell.field.input_value().partition("def ")
    code = given + ANSWERS[exercise, words]
    verdict, said = page_of("03-critics").says(exercise, code)
    assert words in said
    cell.check(code)
    assert cell.says(verdict) == said


@pytest.mark.parametrize("chapter", ENDINGS)
def test_a_chapter_ends_with_its_first_exercise(open_tab, address, built, chapter):
    tab, page = open_tab(), page_of(chapter)
    tab.page.goto(address.replace("exercises/01-bandit", chapter))
    (first, *others) = Sheet(chapter).exercises
    box = tab.page.locator(".nb-python")
    if first not in page.stubs:
        assert box.count() == 0
        assert "Answer it in the notebook of the sheet" in tab.page.inner_text("article")
        return
    assert box.get_attribute("data-exercise") == first
    cell = Cell(tab)
    cell.check(page.solution(first))
    assert cell.says("right").startswith(f"{first}: right.")
    text = (built / f"{chapter}.html").read_text("utf-8")
    assert not any(f"def {name.replace('-', '_')}(" in text for name in others)


TENSORS = [*itertools.product(WITH_TENSORS, (None, 0, 1))]
KEPT = [("02-sequences", 0), ("07-language-model", None)]


@pytest.mark.parametrize(
    ("loaded", "nth"), swept(TENSORS, keep=KEPT), indirect=["loaded"], scope="module"
)
def test_a_sheet_with_tensors_says_what_python_says_without_a_browser(loaded, nth):
    """The master's answers, and if there is an n the nth known mistake of each exercise, typed."""
    sheet = Path(urlsplit(loaded.page.url).path).stem
    page = page_of(sheet)
    # They are read once, with the first one that is typed: Brython takes most of a second for it.
    given = f"{inspect.getsource(wrong_module(sheet))}\nsheet.known = wrong_answers(sheet)\n"
    for number, (exercise, (name, _)) in enumerate(page.stubs.items()):
        cell = Cell(loaded, number)
        known = [] if nth is None else [list(page.wrong_answers[exercise])[nth]]
        for mistake in (None, *known):
            code = f"{given}{name} = sheet.known[{exercise!r}][{mistake!r}][0]\n"
            given = given if mistake is None else ""
            typed = page.solution(exercise) if mistake is None else code
            verdict, said = page.says(exercise, typed)
            assert verdict == ("wrong" if mistake else "right")
            cell.check(typed)
            assert rounded(cell.says(verdict)) == rounded(said)


@on_sheet("10-grpo")
def test_what_is_typed_in_a_sheet_with_tensors_is_there_after_a_reload(loaded):
    typed = [f"import torch\n\nx = torch.tensor({number})\n" for number in range(2)]
    for number, code in enumerate(typed):
        Cell(loaded, number).field.fill(code)
    loaded.page.reload()
    assert [Cell(loaded, number).field.input_value() for number in range(2)] == typed


def test_it_works_straight_from_the_disk(open_tab, built):
    tab = open_tab()
    tab.page.goto((built / "exercises" / "01-bandit.html").as_uri())
    cell = Cell(tab)
    cell.check(RIGHT)
    assert "right. Checked" in cell.says("right")
    assert tab.foreign == []


def test_without_scripts_there_is_the_notebook(open_tab, address):
    tab = open_tab(java_script_enabled=False)
    tab.page.goto(address)
    box = tab.page.locator(".nb-python").first
    link = box.get_by_role("link", name="the notebook")
    assert link.get_attribute("href") == "../_sources/exercises/01-bandit.ipynb"
    assert "raise NotImplementedError" not in box.inner_text()
