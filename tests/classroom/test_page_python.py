"""What a page of the site checks is what the notebook checks, and it says it in the same words."""

import ast
import builtins
import contextlib
import functools
import inspect
import io
import itertools
import random
import re
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import NotRight
from nbcourse.classroom import leaks
from nbcourse.classroom.masters import Solution, find_master, load_master
from nbcourse.classroom.page_python import answering, program, site, stand_ins
from tests.checks import masters, mutated, rewritten, wrong
from tests.checks.test_checks import wrong_answers
from tests.effort import swept

pytestmark = masters.needed
CHAPTERS = masters.MASTERS
OFFERED = [
    (chapter, name)
    for chapter in CHAPTERS
    for name, exercise in Sheet(chapter).exercises.items()
    if not exercise.elsewhere
]
CHANGES_TRIED = 6  # of a solution
CHANGED = swept(OFFERED, keep=OFFERED[::3])
HERE = sorted({chapter for chapter, _ in OFFERED})


@functools.cache
def shared() -> SimpleNamespace:
    """What all pages share, run by this Python instead of Brython."""
    return SimpleNamespace(**run(program.shared(), "shared"))


def imported(name: str, *given: Any) -> Any:
    """What an import gives in a page."""
    if name in program.PLAIN:
        return builtins.__import__(name, *given)
    modules = {"shared": shared(), **shared().MODULES}
    if name not in modules:
        raise ImportError(name)
    wanted = given[2] if len(given) > 2 else ()
    return modules[name if wanted else name.partition(".")[0]]


def run(code: str, name: str, sheet: Any = None) -> dict[str, Any]:
    """Run code with the modules of a page."""
    names = {"__builtins__": {**vars(builtins), "__import__": imported}, "__name__": name}
    names["sheet"] = sheet
    exec(compile(code, name, "exec"), names)
    return names


class Page:
    """The program of a page, run by this Python instead of Brython."""

    def __init__(self, chapter: str) -> None:
        self.master = load_master(find_master(chapter))
        self.stubs = program.stubs(self.master)
        self.text = program.program(self.master, self.stubs)
        self.sheet = run(self.text, "program")["SHEET"]

    def says(self, exercise: str, code: str) -> tuple[str, str]:
        """The verdict on a reader's code, and what is printed."""
        name = self.stubs[exercise][0]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            verdict = shared().answer(self.sheet, exercise, name, code)
        return verdict, printed.getvalue().strip()

    def solution(self, exercise: str) -> str:
        """The master's answer, as a reader would type it."""
        name, stub = self.stubs[exercise]
        (step,) = (
            step
            for step in self.master.steps
            if isinstance(step, Solution) and name in step.functions
        )
        source = step.source.replace("logged[", "given[")  # a name that a notebook gives it
        return stub.partition("\ndef ")[0] + "\n" + source

    @functools.cached_property
    def wrong_answers(self) -> dict[str, dict[str, Any]]:
        """The known mistakes, with the page's torch."""
        source = inspect.getsource(wrong_module(self.master.assignment))
        source = source.replace("import re\n", "\n")  # of answers that are given elsewhere
        shared().linecache.sources["wrong"] = source
        return run(source, "wrong")["wrong_answers"](self.sheet)


def wrong_module(chapter: str) -> Any:
    name = chapter.partition("-")[2].replace("-", "_")
    return __import__(f"{wrong.__name__}.{name}", fromlist=["wrong_answers"])


@functools.cache
def page_of(chapter: str) -> Page:
    return Page(chapter)


def said_of(sheet: Any, exercise: str, answer: Callable[..., Any], wrong: Any) -> str:
    """What a check says."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            sheet.check(exercise, answer)
        except wrong as error:
            return str(error)
    return printed.getvalue().strip()


def rounded(said: str) -> str:
    """What was said, with 0 in place of numbers that differ from it by rounding alone."""
    return re.sub(r"-?\d(\.\d+)?e-1\d", "0", said).replace("-0,", "0,")


@pytest.mark.parametrize(("chapter", "exercise"), OFFERED)
def test_the_solution_is_right_for_the_reasons_of_the_notebook(chapter, exercise):
    page = page_of(chapter)
    verdict, said = page.says(exercise, page.solution(exercise))
    assert verdict == "right", said
    answer = masters.work(masters.master(chapter), variant=0)[page.stubs[exercise][0]]
    assert said.splitlines()[-1] == said_of(Sheet(chapter), exercise, answer, NotRight)


@pytest.mark.parametrize(("chapter", "exercise"), OFFERED)
def test_known_mistakes_are_told_as_in_the_notebook(chapter, exercise):
    page, torchs = page_of(chapter), wrong_answers(chapter, 0)[exercise]
    pages = page.wrong_answers[exercise]
    assert list(pages) == list(torchs)
    for mistake, (answer, words) in pages.items():
        said = said_of(page.sheet, exercise, answer, shared().NotRight)
        wanted = said_of(Sheet(chapter), exercise, torchs[mistake][0], NotRight)
        assert words in said, mistake
        assert rounded(said) == rounded(wanted), mistake


def judged(sheet: Any, exercise: str, code: str, name: str, wrong: Any, page: bool) -> str:
    """What a check says of code, without its numbers and the words of an error."""
    try:
        names = run(code, "answer", sheet) if page else {"sheet": sheet}
        if not page:
            exec(code, names)
    except Exception:
        return "stopped"
    said = re.sub(r"-?\d[\d.e+-]*", "#", said_of(sheet, exercise, names[name], wrong))
    return "stopped" if "function stopped with" in said or "Not implemented" in said else said


@pytest.mark.parametrize(("chapter", "exercise"), CHANGED)
def test_small_changes_of_a_solution_are_judged_as_in_the_notebook(chapter, exercise):
    """Wrong ones mostly, and right ones in other forms; other ones than the catalogue's."""
    page, name = page_of(chapter), page_of(chapter).stubs[exercise][0]
    source = page.solution(exercise)
    known = [*mutated.of_code(source, name), *rewritten.of_code(source, name)]
    for label, code in random.Random(exercise).sample(known, min(len(known), CHANGES_TRIED)):
        found = judged(page.sheet, exercise, code, name, shared().NotRight, page=True)
        wanted = judged(Sheet(chapter), exercise, code, name, NotRight, page=False)
        assert found == wanted, label


def test_sheets_can_be_answered_in_their_pages():
    assert len(CHAPTERS) == len(HERE)
    assert len(OFFERED) >= 70


def test_what_a_page_cannot_check_is_said_in_a_sentence():
    for chapter in CHAPTERS:
        master = load_master(find_master(chapter))
        reasons = program.elsewhere(master)
        assert set(program.stubs(master)) | set(reasons) == set(Sheet(chapter).exercises)
        for why in reasons.values():
            assert re.fullmatch(r"[A-Z].{20,100}\.", why), why


@pytest.mark.parametrize(("chapter", "exercise"), OFFERED)
def test_a_stub_is_friendly_and_runs(chapter, exercise):
    page = page_of(chapter)
    verdict, said = page.says(exercise, page.stubs[exercise][1])
    assert verdict == "not yet"
    assert said.startswith(f"{exercise}: Not implemented yet.")


@pytest.mark.parametrize(("chapter", "exercise"), OFFERED)
def test_a_stub_has_the_numbers_and_the_docstring_of_the_notebook(chapter, exercise):
    name, code = page_of(chapter).stubs[exercise]
    names = run(code, "stub")
    sheet, solution = Sheet(chapter), masters.work(masters.master(chapter), variant=0)[name]
    numbers = sheet.numbers(exercise) if sheet.exercises[exercise].numbers else None
    assert names.get("given") == numbers
    assert names[name].__doc__ == solution.__doc__
    assert list(inspect.signature(names[name]).parameters) == list(
        inspect.signature(solution).parameters
    )
    assert all(len(line) <= 100 for line in code.splitlines())
    if numbers is not None:
        assert page_of(chapter).sheet.numbers(exercise) == numbers


def imports(text: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return found | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_what_all_pages_share_imports_nothing_but_math():
    assert imports(program.shared()) == {"math"}


@pytest.mark.parametrize("chapter", HERE)
def test_a_page_needs_nothing_else_and_holds_no_solution(chapter):
    text = page_of(chapter).text
    assert imports(text) <= {"math", "shared"}
    page = site._script(text, "")  # its checks compute answers, as those of the notebook do
    assert leaks.scan_bytes("page.html", page.encode(), leaks.secrets()) == []
    assert len(page) < 75_000


def test_the_parts_of_the_program_have_different_names():
    names = [
        node.name
        for part in program.PARTS
        for node in ast.parse(inspect.getsource(part)).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    assert sorted(names) == sorted(set(names))


SAID = {
    "x = (1": ("error", "line 1: x = (1\nSyntaxError: '(' was never closed"),
    "x = 1\ny = x / 0": ("error", "line 2: y = x / 0\nZeroDivisionError: division by zero"),
    "def f(x):\n    return x.y\n\nf(1)": (
        "error",
        "line 4: f(1)\n  line 2: return x.y\nAttributeError: 'int' object has no attribute 'y'",
    ),
    "import numpy": ("error", "`math` and a small `torch`"),
    "import torch\ntorch.fft.fft": ("error", "torch of this page has no fft: use the notebook"),
    "import torch.nn.functional as F\nF.gelu": ("error", "functional of this page has no gelu"),
    "from torch import Tensor\nprint(1.5, [0.1])": ("error", "1.5 [0.1]\nThere is no my_gradient"),
    "import torch\nprint(torch.ones(2) / 3)": ("error", "tensor([0.3333, 0.3333])"),
    "my_gradient = 3": ("wrong", "Expected a function, got int 3."),
    "def my_gradient():\n    return [[1.0], [2.0, 3.0]]": ("wrong", "Expected a tensor of shape"),
    "def my_gradient():\n    return [1.0, 'a', 2.0]": ("wrong", "Expected a tensor of shape (3,)"),
    "def my_gradient():\n    return {'a': [1.0]}": ("wrong", "got dict {'a': [1.0]}"),
    "def my_gradient():\n    y = 1\n    return y[0]": ("wrong", "in the line: return y[0]"),
}


@pytest.mark.parametrize("code", SAID)
def test_what_does_not_run_is_told_with_its_line(code):
    verdict, words = SAID[code]
    found, said = page_of("01-bandit").says("by-hand", code)
    assert found == verdict
    assert words in said


@pytest.mark.parametrize("words", answering.FULL)
def test_a_stack_of_the_browser_that_is_full_is_told_as_by_python(words):
    said = answering.stopped(Exception(words))
    assert said == "RecursionError: maximum recursion depth exceeded"


CHANGES = ["rewards[0][0] = 9.0", "rewards[0] += 1", "rewards.zero_()", "rewards.view(-1)[1] = 5"]


@pytest.mark.parametrize("change", CHANGES)
def test_an_argument_that_is_changed_is_noticed(change):
    code = f"def td_targets(rewards, *others):\n    {change}\n    return rewards * 0\n"
    verdict, said = page_of("03-critics").says("mend-the-reset", code)
    assert verdict == "wrong"
    assert "Your function changed its argument number 1 in place" in said


def test_stand_ins_do_what_the_standard_library_does():
    for given in (("ab", "cde"), ([], "a"), ("ab",), ()):
        for repeat in (1, 2):
            wanted = itertools.product(*given, repeat=repeat)
            assert list(stand_ins.product(*given, repeat=repeat)) == list(wanted)
    for count in range(4):
        wanted = itertools.combinations("abc", count)
        assert list(stand_ins.combinations("abc", count)) == list(wanted)
    numbers = [(1, 2), (-3, 4), (6, 8), (0, 5)]
    for (a, b), (c, d) in itertools.product(numbers, repeat=2):
        one, two = stand_ins.Fraction(a, b), stand_ins.Fraction(c, d)
        x, y = Fraction(a, b), Fraction(c, d)
        found = [float(one + two), float(one - two), float(abs(one)), one >= two]
        assert found == [float(x + y), float(x - y), float(abs(x)), x >= y]


def test_a_brython_of_another_form_is_refused():
    with pytest.raises(ValueError, match="in another way than Brython"):
        site.mended("$B.rich_comp=function(x,y){}")


def test_a_site_without_brython_is_told_what_to_install(monkeypatch, caplog):
    monkeypatch.setattr(site, "brython", lambda: None)
    app = SimpleNamespace(env=SimpleNamespace(docname="exercises/01-bandit", metadata={}))
    site.insert(app, None)
    assert "python -m pip install brython" in caplog.text
