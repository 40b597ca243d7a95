"""What a page of the site checks is what the notebook checks, and it says it in the same words."""

import ast
import contextlib
import functools
import io
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import NotRight
from nbcourse.classroom import leaks
from nbcourse.classroom.masters import find_master, load_master
from nbcourse.classroom.page_python import answering, program, site, stand_ins
from tests.checks import masters
from tests.checks.test_checks import wrong_answers

pytestmark = masters.needed
CHAPTERS = ["01-bandit", "02-sequences", "03-critics"]
OFFERED = [
    (chapter, name)
    for chapter in CHAPTERS
    for name, exercise in Sheet(chapter).exercises.items()
    if exercise.in_page
]
# What is no mistake, or another one, where lists stand for tensors: → what a page says.
OTHERWISE = {
    ("mend-the-loss", "no gradient"): "mend-the-loss: right.",  # nothing is detached
    ("by-hand", "one number"): "Expected a tensor of shape (3,), got float",  # not of shape ()
    ("by-hand", "a list"): "by-hand: right.",
}


class Page:
    """The program of a page, run by this Python instead of Brython."""

    def __init__(self, chapter: str) -> None:
        master = load_master(find_master(chapter))
        self.text, self.stubs = program.program(master), program.stubs(master)
        self.names: dict[str, Any] = {}
        exec(compile(self.text, "program", "exec"), self.names)

    def says(self, exercise: str, code: str) -> tuple[str, str]:
        """The verdict on a reader's code, and what is printed."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            verdict = self.names["answer"](
                self.names["SHEET"], exercise, self.stubs[exercise][0], code
            )
        return verdict, printed.getvalue().strip()

    def says_to(self, exercise: str, answer) -> tuple[str, str]:
        """The same for a function of tensors, which is given lists and returns lists."""

        def of_lists(*given: Any) -> Any:
            handed = list(map(tensor, given))
            result = listed(answer(*handed))
            for argument, left in zip(given, handed, strict=True):
                if isinstance(argument, list):  # an answer may have changed it
                    argument[:] = left.tolist()
            return result

        name = self.stubs[exercise][0]
        builtin = {"page_answer": of_lists}
        self.names["__builtins__"] |= builtin
        code = f"def {name}(*given):\n    return page_answer(*given)\n"
        return self.says(exercise, code)


@pytest.fixture(scope="module", params=CHAPTERS)
def chapter(request) -> str:
    return request.param


@functools.cache
def page_of(chapter: str) -> Page:
    return Page(chapter)


@pytest.fixture
def page(chapter) -> Page:
    return page_of(chapter)


def tensor(value: Any) -> Any:
    """Lists as tensors; floats in double precision, as a page computes."""
    if not isinstance(value, list):
        return value
    is_real = torch.tensor(value).is_floating_point()
    return torch.tensor(value, dtype=torch.float64 if is_real else None)


def listed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(map(listed, value))
    return value


def notebook_says(chapter: str, exercise: str, answer) -> str:
    """The notebook's check on the same answer, in double precision."""

    def in_double(*given: Any) -> Any:
        handed = list(map(doubled, given))
        result = answer(*handed)
        for argument, left in zip(given, handed, strict=True):
            if isinstance(argument, torch.Tensor):  # an answer may have changed it
                argument.data.copy_(left.data)
        return result

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            Sheet(chapter).check(exercise, in_double)
        except NotRight as wrong:
            return str(wrong)
    return printed.getvalue().strip()


def doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def test_the_solutions_are_right_for_the_reasons_of_the_notebook(chapter, page):
    names = masters.work(masters.master(chapter), variant=0)
    for exercise, (name, _) in page.stubs.items():
        verdict, said = page.says_to(exercise, names[name])
        assert verdict == "right", said
        assert said == notebook_says(chapter, exercise, names[name])


def test_every_exercise_with_a_check_is_offered(chapter, page):
    assert list(page.stubs) == list(Sheet(chapter).exercises)


def test_known_mistakes_are_told_as_in_the_notebook(chapter, page):
    for exercise, mistakes in wrong_answers(chapter, 0).items():
        for mistake, (answer, words) in mistakes.items():
            verdict, said = page.says_to(exercise, answer)
            if otherwise := OTHERWISE.get((exercise, mistake)):
                assert otherwise in said, mistake
                continue
            assert verdict == "wrong", mistake
            assert words in said, mistake
            assert said == notebook_says(chapter, exercise, answer), mistake


@pytest.mark.parametrize(("chapter", "exercise"), OFFERED)
def test_a_stub_is_friendly_and_runs(chapter, exercise):
    page = page_of(chapter)
    verdict, said = page.says(exercise, page.stubs[exercise][1])
    assert verdict == "not yet"
    assert said.startswith(f"{exercise}: Not implemented yet.")


@pytest.mark.parametrize(("chapter", "exercise"), OFFERED)
def test_a_stub_has_the_numbers_and_the_docstring_of_the_notebook(chapter, exercise):
    name, code = page_of(chapter).stubs[exercise]
    names: dict[str, Any] = {}
    exec(code, names)
    sheet, solution = Sheet(chapter), masters.work(masters.master(chapter), variant=0)[name]
    numbers = sheet.numbers(exercise) if sheet.exercises[exercise].numbers else None
    assert names.get("given") == numbers
    assert names[name].__doc__ == solution.__doc__
    assert all(len(line) <= 88 for line in code.splitlines())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_page_imports_nothing_but_math_and_holds_no_solution(chapter):
    text = page_of(chapter).text
    nodes = list(ast.walk(ast.parse(text)))
    imported = {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported == {"math"}
    assert leaks.scan_bytes("program.py", text.encode(), leaks.secrets()) == []


SAID = {
    "x = (1": ("error", "line 1: x = (1\nSyntaxError: '(' was never closed"),
    "x = 1\ny = x / 0": ("error", "line 2: y = x / 0\nZeroDivisionError: division by zero"),
    "def f(x):\n    return x.y\n\nf(1)": (
        "error",
        "line 4: f(1)\n  line 2: return x.y\nAttributeError: 'int' object has no attribute 'y'",
    ),
    "import no_such_module": ("error", "`math`"),
    "print(1.5, [0.1])": ("error", "1.5 [0.1]\nThere is no my_gradient in your code"),
    "my_gradient = 3": ("wrong", "Expected a function, got int 3."),
    "def my_gradient():\n    return [[1.0], [2.0, 3.0]]": ("wrong", "rows of unequal length"),
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


ROWS = [[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]]


@pytest.mark.parametrize(
    "of",
    [
        lambda made: made.shape,
        lambda made: made.dim(),
        lambda made: made.numel(),
        lambda made: made.tolist(),
        lambda made: made.flatten().tolist(),
        lambda made: made.reshape((3, 2)).tolist(),
        lambda made: made.view((1, 6)).tolist(),
        lambda made: (made * made).tolist(),
        lambda made: made[1].tolist(),
        lambda made: float(made[1][2]),
        lambda made: (float(made.sum()), float(made.min()), float(made.max()), len(made)),
        lambda made: (int(made[0].argmax()), float(made[0] @ made[1])),
        lambda made: made.is_floating_point(),
    ],
)
def test_a_stand_in_for_a_tensor_does_what_torch_does(of):
    assert of(stand_ins.Tensor(ROWS)) == of(torch.tensor(ROWS))


def test_stand_ins_compare_as_torch_does():
    nan, inf = math.nan, math.inf
    pairs = [([1.0, nan], [1.0, nan]), ([1.0, inf], [1.0, inf]), ([1.0, 2.0], [1.0, 2.002])]
    pairs += [([nan], [1.0]), ([inf], [-inf]), ([100.0], [100.05])]
    for left, right in pairs:
        for equal_nan in (False, True):
            of = {"rtol": 1e-3, "atol": 1e-6, "equal_nan": equal_nan}
            stood = stand_ins.torch.allclose(stand_ins.Tensor(left), stand_ins.Tensor(right), **of)
            assert stood == torch.allclose(torch.tensor(left), torch.tensor(right), **of)
    assert stand_ins.torch.linspace(0.5, 1.5, 5).tolist() == torch.linspace(0.5, 1.5, 5).tolist()


def test_a_gradient_by_differences_is_that_of_autograd():
    logits = [[0.3, -0.5, 1.2], [0.0, 0.1, -0.4]]

    def loss(rows):
        return sum(math.log(sum(map(math.exp, row))) * row[0] for row in rows)

    attempt = answering.ByDifferences(answering.Answer(loss))
    found = attempt._gradient([stand_ins.Tensor(logits)], {}, 0)
    made = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    (made.logsumexp(1) * made[:, 0]).sum().backward()
    assert made.grad is not None
    assert torch.tensor(found.tolist(), dtype=torch.float64).allclose(made.grad, atol=1e-8)


def test_a_loss_that_changes_its_arguments_is_differentiated_as_if_it_were_called_once():
    def loss(rows, weights):
        weights[0] += 1.0
        return rows[0] * weights[0]

    names = page_of("01-bandit").names
    attempt, tensor = names["ByDifferences"](names["Answer"](loss)), names["Tensor"]
    assert attempt.gradient(tensor([3.0]), tensor([1.0])).tolist() == [2.0]


CHANGES = ["rewards[0][0] = 0.0", "rewards[0].pop()", "rewards.append([0, 0])", "rewards.clear()"]


@pytest.mark.parametrize("change", CHANGES)
def test_an_argument_that_is_changed_is_noticed(change):
    code = f"def td_targets(rewards, *others):\n    {change}\n    return [[0.0] * 2] * 3\n"
    verdict, said = page_of("03-critics").says("mend-the-reset", code)
    assert verdict == "wrong"
    assert "Your function changed its argument number 1 in place" in said


def test_a_site_without_brython_is_told_what_to_install(monkeypatch, caplog):
    monkeypatch.setattr(site, "brython", lambda: None)
    app = SimpleNamespace(env=SimpleNamespace(docname="exercises/01-bandit", metadata={}))
    site.insert(app, None)
    assert "python -m pip install brython" in caplog.text
