"""One submission: what counts, what is said, and answers that behave as if they were local."""

import json
import os
import re
import resource
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from nbcourse.classroom import grading, masters, matching, notebooks, results
from nbcourse.classroom.results import Terms
from nbcourse.classroom.submissions import Candidate
from nbcourse.classroom.variants import variant_of
from nbcourse.confined import sandbox, wire
from nbcourse.confined.remote import CellOutcome, Session, StudentCell
from nbcourse.confined.submission_errors import Ending, Raised, SubmissionError
from tests.classroom import a_class
from tests.classroom.conftest import LIMITS

EVERYTHING = {f"{name}-check": points for name, points in a_class.POINTS.items()}


def points(graded) -> dict[str, float]:
    return {exercise.exercise: exercise.points for exercise in graded["result"].exercises}


def test_the_master_itself_gets_all_points(grade):
    graded = grade()
    assert points(graded) == EVERYTHING
    assert graded["result"].points == graded["result"].max_points == 6
    assert all(exercise.feedback == "" for exercise in graded["result"].exercises)


@pytest.mark.parametrize(
    "path", sorted(masters.ROOT.glob("solutions/*.ipynb")), ids=lambda p: p.stem
)
def test_every_master_of_the_book_passes_its_own_tests(server, path):
    submitted = grading.Submission("", "", notebook=Candidate(path))
    limits = replace(LIMITS, memory=sandbox.Limits().memory)
    result = grading.grade_submission(submitted, Terms(masters.load_master(path), limits), server)
    assert result.exercises
    for exercise in result.exercises:
        assert exercise.state in (Ending.PASSED, Ending.BY_HAND), exercise


def test_a_student_notebook_as_it_was_handed_out_is_not_attempted(server):
    """Also where a check has turned the NotImplementedError into words of its own."""
    path = masters.find_master("02-sequences")
    handed_out = path.parents[1] / "book" / "exercises" / path.name
    submitted = grading.Submission("ada", "ada", notebook=Candidate(handed_out))
    result = grading.grade_submission(submitted, Terms(masters.load_master(path), LIMITS), server)
    assert {exercise.state for exercise in result.exercises} == {Ending.NOT_ATTEMPTED}


def test_nothing_of_the_graders_environment_is_there(grade):
    assert "PYTEST_CURRENT_TEST" in os.environ
    look = (
        "import os\ndef double(x):\n    return 0 if 'PYTEST_CURRENT_TEST' in os.environ else 2 * x"
    )
    assert points(grade(double=look)) == EVERYTHING


@pytest.mark.parametrize(
    ("double", "state", "says"),
    [
        ("def double(x):\n    return x + 3", Ending.FAILED, "assert double(4) == 8"),
        ("def double(x):\n    return x", Ending.FAILED, "2 · 3 is 6"),
        ("def double(x):\n    raise NotImplementedError", Ending.NOT_ATTEMPTED, ""),
        ("def double(x):\n    return x / 0", Ending.RAISED, "in the line: return x / 0"),
        ("def double(x):\n    return {}[x]", Ending.RAISED, "KeyError: 3"),
        ("def double(x):\n    return [", Ending.RAISED, "SyntaxError"),
        ("1 / 0", Ending.RAISED, "ZeroDivisionError"),
        ("raise NotImplementedError", Ending.NOT_ATTEMPTED, "`double`"),
        ("", Ending.NOT_ATTEMPTED, "does not define `double`"),
        ("double = 5", Ending.NOT_PLAIN, "not a function"),
        ("def double(x):\n    return lambda: x", Ending.NOT_PLAIN, "type function"),
        (
            "def double(x):\n    return -2 * x if x < 0 else 2 * x",
            Ending.FAILED,
            "negative numbers",
        ),
        ("def double(x):\n    return min(2 * x, 100)", Ending.FAILED, "not shown"),
    ],
)
def test_a_wrong_answer_costs_its_exercise_and_the_feedback_says_why(grade, double, state, says):
    graded = grade(double=double)
    assert graded["double-check"].state == state, graded["double-check"]
    assert says in graded["double-check"].feedback
    assert points(graded) == EVERYTHING | {"double-check": 0}


def test_feedback_on_a_hidden_test_shows_the_remark_for_students_and_not_the_test(grade):
    found = grade(double="def double(x):\n    return abs(2 * x)")["double-check"]
    assert found.feedback == (
        "A further test, which is not shown, failed: negative numbers count too."
    )
    found = grade(double="def double(x):\n    return min(2 * x, 100)")["double-check"]
    assert found.feedback == "A further test, which is not shown, failed."


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("answer = 41", Ending.FAILED),
        ("answer = ...", Ending.NOT_ATTEMPTED),
        ("answer = object()", Ending.NOT_PLAIN),
        ("answer = open('nothing')", Ending.RAISED),
    ],
)
def test_a_value_is_an_answer_too(grade, answer, state):
    graded = grade(answer=answer)
    assert graded["answer-check"].state == state, graded["answer-check"]
    assert points(graded) == EVERYTHING | {"answer-check": 0}


def test_gradients_flow_through_a_call_and_stop_where_they_should(grade):
    assert points(grade(cube="def cube(x):\n    return x * x * x")) == EVERYTHING
    detached = grade(cube="def cube(x):\n    return x.detach()**3")["cube-check"]
    wrong = grade(cube="def cube(x):\n    return x**3 + x - x.detach()")["cube-check"]
    assert detached.state == wrong.state == Ending.FAILED


def test_magics_and_shell_commands_do_no_harm(grade):
    cells = a_class.solved(double="%time y = 1\n!echo hello\ndef double(x):\n    return 2 * x")
    timed = a_class.cell("%%time\nunit = 1")
    shell = a_class.cell("%%bash\nexit 1")
    cells[1:1] = [timed, shell, a_class.cell("%matplotlib inline\nassert unit == 1")]
    assert points(grade(a_class.notebook(cells))) == EVERYTHING


def test_half_precision_is_there(grade):
    halved = "import torch\n\ndef cube(x):\n    return x**3 + 0 * x.float().half().double()"
    assert grade(cube=halved)["cube-check"].points == a_class.POINTS["cube"]


def test_code_that_reads_its_own_source_finds_it_as_in_a_notebook(grade):
    looks = "import inspect\n\ndef double(x):\n    return 2 * x\n\n"
    assert grade(double=looks + "assert 'return 2 * x' in inspect.getsource(double)")[
        "double-check"
    ].points
    compiled = "@torch.jit.script\ndef double(x: int) -> int:\n    return 2 * x"
    assert grade(double=compiled)["double-check"].points


def test_cells_of_the_student_run_in_order_and_broken_ones_are_passed_over(grade):
    cells = a_class.solved(double="def double(x):\n    return two * x")
    cells[1:1] = [a_class.cell("two = 2\nthree = 1 / 0"), a_class.cell("## a title", "markdown")]
    assert points(grade(a_class.notebook(cells))) == EVERYTHING


def test_what_is_in_the_students_test_cells_does_no_harm(grade):
    cells = a_class.solved()
    for cell in cells:
        if cell["metadata"]["nbgrader"].get("grade"):
            cell["source"] = "double = None\nimport os\nos._exit(0)"
    assert points(grade(a_class.notebook(cells))) == EVERYTHING


def test_a_missing_cell_is_not_attempted_and_the_notes_name_it(grade):
    cells = [c for c in a_class.solved() if c["metadata"]["nbgrader"]["grade_id"] != "double"]
    graded = grade(a_class.notebook(cells))
    assert graded["double-check"].state == Ending.NOT_ATTEMPTED
    assert points(graded) == EVERYTHING | {"double-check": 0}
    (note,) = graded["result"].notes
    assert "`double` is missing" in note


def test_a_missing_test_cell_is_still_asked(grade):
    cells = [c for c in a_class.solved() if not c["metadata"]["nbgrader"].get("grade")]
    assert points(grade(a_class.notebook(cells))) == EVERYTHING


def test_of_two_cells_with_one_name_the_last_counts(grade):
    cells = a_class.solved(double="def double(x):\n    return 0")
    right = a_class.SOLUTIONS["double"]
    cells.append(a_class.cell(right, grade_id="double", solution=True))
    graded = grade(a_class.notebook(cells))
    assert points(graded) == EVERYTHING
    assert "2 cells called `double`" in graded["result"].notes[0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b'{"cells": [', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 10**6, "not valid JSON"),
        (b"{}", "format 4"),
        (b"[]", "format 4"),
        (b'{"cells": [1]}', "cell 1"),
        (b'{"cells": [{"cell_type": "code", "source": 1}]}', "cell 1"),
        (b" " * (notebooks.LARGEST_NOTEBOOK + 1), "at most 20 are read"),
        (a_class.notebook([], language="R"), "for r"),
        (a_class.notebook([], language="julia"), "for julia"),
        (a_class.notebook([], language="\ud800" * 10**6), "for ????"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_notebook_says_so_on_every_exercise(grade, content, says):
    graded = grade(content)
    for exercise in EVERYTHING:
        assert graded[exercise].state == Ending.UNREADABLE
        assert says in graded[exercise].feedback
        assert len(graded[exercise].feedback) < 200
    assert graded["result"].points == 0


@pytest.mark.parametrize("points", [10**400, float("nan"), float("inf"), -1, True, "3", None])
def test_points_are_numbers(points):
    cells = [a_class.cell("", grade=True, grade_id="x", points=points)]
    (cell,) = notebooks.read_cells(a_class.notebook(cells))
    assert cell.points in (0, 1)


def test_another_sheet_is_named_and_not_graded(server):
    """Exercises of two sheets may have the same name."""
    master = masters.load_master(masters.find_master("02-sequences"))
    other = masters.find_master("03-critics")
    submitted = grading.Submission("ada", "ada", notebook=Candidate(other))
    result = grading.grade_submission(submitted, Terms(master, LIMITS), server)
    assert {exercise.state for exercise in result.exercises} == {Ending.WRONG_SHEET}
    assert result.points == 0
    assert result.notes == (
        "The notebook is sheet 03-critics, but 02-sequences was to be handed in.",
    )


@pytest.mark.parametrize(
    ("sources", "wrong"),
    [
        (['sheet = Sheet("02-sequences", variant=3)'], False),
        (["sheet = Sheet( '02-sequences')", 'other = Sheet("03-critics")'], False),
        (["print('no sheet at all')"], False),
        (['sheet = Sheet("03-critics")'], True),
    ],
)
def test_a_sheet_is_another_one_if_the_notebook_names_no_right_one(sources, wrong):
    master = masters.load_master(masters.find_master("02-sequences"))
    cells = notebooks.read_cells(a_class.notebook([a_class.cell(source) for source in sources]))
    assert bool(grading._wrong_sheet(cells, master)) is wrong


@pytest.mark.parametrize(
    ("damage", "costs"),
    [
        ({"metadata": None}, False),
        ({"metadata": {"nbgrader": 7}}, False),
        ({"metadata": {"nbgrader": {"grade_id": [], "solution": "yes", "points": "all"}}}, False),
        ({"source": ["double", 5, " = 1"]}, True),
        ({"cell_type": 5}, True),
    ],
    ids=repr,
)
def test_a_damaged_cell_costs_at_most_the_exercise(grade, damage, costs):
    """Damaged metadata cost nothing: the answer is found by what it defines."""
    cells = a_class.solved()
    cells[1] |= damage
    graded = grade(a_class.notebook(cells))
    assert points(graded) == EVERYTHING | ({"double-check": 0} if costs else {})


def test_a_test_that_an_answer_keeps_busy_here_is_interrupted(monkeypatch, grade_endless):
    """A number is plain data, and `range` of it runs in the grader's process."""
    monkeypatch.setitem(a_class.TESTS, "answer", "for _ in range(answer):\n    pass")
    graded = grade_endless(answer="answer = 2**62")
    assert graded["answer-check"].state == Ending.OUT_OF_TIME
    assert "the test computed" in graded["answer-check"].feedback
    assert graded["double-check"].state == graded["cube-check"].state == Ending.PASSED


def test_reading_a_value_has_its_time_too(monkeypatch, grade_endless):
    """A value may take long to build here, such as a dict of keys whose hashes are equal."""
    unpack = wire.unpack

    def slow(structure, tensors):
        end = time.process_time() + 70
        while structure == 43 and time.process_time() < end:
            pass
        return unpack(structure, tensors)

    monkeypatch.setattr(wire, "unpack", slow)
    graded = grade_endless(answer="answer = 43")
    assert graded["answer-check"].state == Ending.OUT_OF_TIME
    assert "the grader was reading what it gave for over" in graded["answer-check"].feedback
    assert graded["double-check"].state == graded["cube-check"].state == Ending.PASSED


def test_time_is_limited_for_everything_together(grade):
    slow = "import time\ndef double(x):\n    time.sleep(1.5)\n    return 2 * x"
    limits = replace(LIMITS, total=2.5)  # enough for one call, and what is tested calls twice
    found = grade(double=slow, limits=limits)["double-check"]
    assert found.state == Ending.OUT_OF_TIME
    assert "all cells and calls took over 2.5 seconds" in found.feedback


def test_personal_numbers_are_those_of_the_student(server, tmp_path):
    path = masters.find_master("02-sequences")
    master, variant = masters.load_master(path), variant_of("ada", "02-sequences")
    by_checks = sum(e.points for e in master.exercises if e not in master.written)
    content = path.read_text(encoding="utf-8")
    for sheet, notes in [(f"variant={variant}", 0), ("variant=0", 1)]:
        text = content.replace("variant=0", sheet)
        submitted = a_class.listed(a_class.submission(tmp_path, text.encode(), "ada"))
        result = grading.grade_submission(submitted, Terms(master, LIMITS, personal=True), server)
        assert len(result.notes) == notes
        assert (result.points == by_checks) == (notes == 0)


def test_variants_are_stable_and_differ():
    assert variant_of("ada", "02-sequences") == variant_of("ada", "02-sequences") != 0
    assert len({variant_of(f"student {n}", "02-sequences") for n in range(500)}) == 500
    assert variant_of("ada", "02-sequences") != variant_of("ada", "03-critics")


def test_a_result_is_the_same_after_it_was_written(grade, tmp_path):
    result = grade(double="def double(x):\n    return x")["result"]
    (tmp_path / "results").mkdir()
    results.write_result(result, tmp_path / "results" / "ada.json")
    assert results.read_result(tmp_path / "results" / "ada.json") == result
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["ada.json"]
    (tmp_path / "results" / "ada.json").write_text(json.dumps({"student": "ada"}))
    with pytest.raises(ValueError, match=r"ada\.json holds no result"):
        results.read_result(tmp_path / "results" / "ada.json")


# ---------------------------------------------------------------- functions that run elsewhere


@pytest.fixture
def remote(server):
    """Functions of a cell, as proxies: `remote("def f(x): …").f`."""
    sessions = []

    def start(source: str, *names: str):
        session = Session(server, [StudentCell(1, source, functions=names or ("f",))], LIMITS)
        sessions.append(session.__enter__())
        return session.outcomes[1].defined[names[0] if names else "f"]

    yield start
    for session in sessions:
        session.__exit__(None, None, None)


def test_a_call_takes_and_gives_any_plain_data(remote):
    f = remote("def f(*a, **k):\n    return {'a': a, 'k': k}")
    assert f(1, (2.5, [None]), k="é") == {"a": (1, (2.5, [None])), "k": {"k": "é"}}
    with pytest.raises(ValueError, match="plain data"):
        f(object())


def test_too_little_time_to_start_again_is_told_by_the_next_call(server):
    """What was right before stays right: only what still needs the process has run out of time."""
    cell = StudentCell(1, "def f():\n    return 1", ("f",))
    with Session(server, [cell], LIMITS) as session:
        f = session.outcomes[1].defined["f"]
        session._stop()
        session._left = 0.001
        session.begin()
        with pytest.raises(SubmissionError) as caught:
            f()
    assert caught.value.state is Ending.OUT_OF_TIME


def test_gradients_of_several_inputs_and_outputs_equal_local_ones(remote):
    source = "def f(x, n, *, w):\n    return {'y': [(x * w).sum(), n], 'z': x.exp() / w}"
    names: dict = {}
    exec(source, names)
    gradients = []
    for f in (names["f"], remote(source)):
        generator = torch.Generator().manual_seed(0)
        x, w = (
            torch.rand(3, dtype=torch.float64, generator=generator).requires_grad_()
            for _ in range(2)
        )
        result = f(x * 2, 5, w=w.sin())
        assert result["y"][1] == 5
        loss = result["y"][0] * 3 + result["z"].square().sum()
        gradients.append(torch.autograd.grad(loss, (x, w)))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_gradients_are_asked_for_twice_and_after_other_calls(remote):
    f = remote("def f(x):\n    return x**2")
    x, y = torch.tensor(3.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    first, second = f(x), f(y)
    f(torch.tensor(1.0))
    for _ in range(2):
        assert torch.autograd.grad(first, x, retain_graph=True)[0] == 6
    assert torch.autograd.grad(second, y)[0] == 10


def test_a_first_gradient_loads_nothing(remote):
    """What PyTorch loads then takes a second, and each submission is a new process."""
    f = remote("""
import sys, torch

def f(x):
    before = set(sys.modules)
    torch.autograd.grad([x**2], [x], [torch.ones(())])
    return sorted(set(sys.modules) - before)
""")
    with torch.enable_grad():
        assert f(torch.tensor(1.0, requires_grad=True)) == []


def test_a_result_requires_gradients_exactly_where_it_would_locally(remote):
    f = remote("def f(x):\n    return x * 2, x.detach(), x > 0, x")
    doubled, detached, positive, same = f(torch.tensor([1.0], requires_grad=True))
    wanted = [t.requires_grad for t in (doubled, detached, positive, same)]
    assert wanted == [True, False, False, True]
    assert not f(torch.tensor([1.0]))[0].requires_grad
    with torch.no_grad():
        assert not f(torch.tensor([1.0], requires_grad=True))[0].requires_grad


def test_an_argument_changed_in_place_is_changed_here(remote):
    x = torch.zeros(2)
    remote("def f(x):\n    x += 1\n    return None")(x)
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("kind", [ValueError, KeyError, NotImplementedError, ZeroDivisionError])
def test_an_error_of_pythons_own_is_of_its_type_here_too(remote, kind):
    f = remote(f"def f():\n    raise {kind.__name__}('because')")
    with pytest.raises(kind) as caught:
        f()
    assert isinstance(caught.value, Raised)
    assert type(caught.value).__name__ == kind.__name__
    assert "because" in str(caught.value)
    assert "in the line: raise" in str(caught.value)


def test_an_error_of_the_students_own_type_keeps_its_name(remote):
    f = remote("class Oops(Exception): pass\ndef f():\n    raise Oops('because')")
    with pytest.raises(SubmissionError, match="because") as caught:
        f()
    assert type(caught.value).__name__ == "Oops"


def test_the_process_forgets_the_graphs_of_results_that_are_gone(remote):
    f = remote(
        "import gc\ndef f(x):\n    return x * 2, len([o for o in gc.get_objects()"
        " if type(o).__name__ == 'StudentCode'][0].graphs)"
    )
    for _ in range(5):
        _, kept = f(torch.ones(1, requires_grad=True))
    assert kept <= 2


def test_a_result_is_the_same_whoever_was_graded_before(grade):
    """Each of the others tries to leave something behind: numbers, patches, files, an exit."""
    alone = grade()["result"]
    for other in (
        "import torch, builtins\ntorch.manual_seed(7)\ntorch.set_default_dtype(torch.float64)\n"
        "torch.Tensor.__eq__ = lambda a, b: True\nbuiltins.abs = None\n"
        "def double(x):\n    return 0",
        "import os, tempfile\nopen('answer.py', 'w').write('x')\nos.environ['A'] = 'b'\n"
        "def double(x):\n    os._exit(3)",
        "import torch\ndef double(x):\n    return torch.full((3,), float('nan'))",
    ):
        assert grade(double=other)["double-check"].points == 0
        assert grade()["result"] == alone


@pytest.mark.parametrize("points", [10**400, -1, float("inf"), float("nan"), "9", True, None])
def test_points_that_a_submission_gives_itself_count_for_nothing(grade, points):
    cells = a_class.solved()
    for cell in cells:
        if cell["metadata"].get("nbgrader", {}).get("grade"):
            cell["metadata"]["nbgrader"]["points"] = points
    assert grade(a_class.notebook(cells))["result"].max_points == 6


# ---------------------------------------------------------------- names, without a process


def by_hand(tmp_path, cells, **answers):
    """The states of a master's exercises, for answers that are functions of this process."""
    path = tmp_path / "01-fake.ipynb"
    path.write_bytes(a_class.notebook(cells))
    master = masters.load_master(path)
    read = {c.grade_id: c for c in notebooks.read_cells(path.read_bytes())}
    handed_in = matching.Answers(
        {
            grade_id: {name: matching.Place(read[grade_id], name) for name in solution.names}
            for grade_id, solution in master.solutions.items()
        }
    )
    session = SimpleNamespace(
        outcomes={read[n].number: CellOutcome({n.split("_")[0]: f}) for n, f in answers.items()},
        limits=sandbox.Limits(),
        begin=lambda: None,
    )
    tests = grading._Tests(master, session, handed_in, 0)
    return {e.name: e.state for e in tests.exercises(())}


def test_a_name_that_was_not_answered_is_not_that_of_an_earlier_cell(tmp_path):
    solution, points = {"solution": True}, {"grade": True, "points": 1}
    for before in ({}, {"grade_id": "double_first", **solution}):  # given, or answered once
        cells = [
            a_class.cell("def double(x):\n    return 2 * x", **before),
            a_class.cell("def double(x):\n    return 2 * x", grade_id="double_again", **solution),
            a_class.cell("assert double(3) == 6", grade_id="double-check", **points),
        ]
        answers = {"double_first": lambda x: 2 * x} if before else {}
        assert by_hand(tmp_path, cells, **answers) == {"double": Ending.NOT_ATTEMPTED}


def test_hidden_tests_see_the_names_of_the_place_where_they_stand(tmp_path):
    hidden = "### BEGIN HIDDEN TESTS\nassert scaled(1) == factor\n### END HIDDEN TESTS"
    cells = [
        a_class.cell("factor = 2"),
        a_class.cell("def scaled(x):\n    return 2 * x", grade_id="scaled", solution=True),
        a_class.cell(f"scaled(0)\n{hidden}", grade_id="scaled-check", grade=True, points=1),
        a_class.cell("factor = 3"),
    ]
    assert by_hand(tmp_path, cells, scaled=lambda x: 2 * x) == {"scaled": Ending.PASSED}


def test_hidden_tests_get_a_list_as_the_tensor_that_the_master_declares(tmp_path):
    hidden = "### BEGIN HIDDEN TESTS\nassert halves(2).sum() == 1\n### END HIDDEN TESTS"
    source = "def halves(x) -> Tensor:\n    return torch.full((x,), 0.5)"
    cells = [
        a_class.cell("import torch\nfrom torch import Tensor"),
        a_class.cell(source, grade_id="halves", solution=True),
        a_class.cell(f"halves(2)\n{hidden}", grade_id="halves-check", grade=True, points=1),
    ]
    for answer in (lambda x: [0.5] * x, lambda x: (0.5,) * x, lambda x: torch.full((x,), 0.5)):
        assert by_hand(tmp_path, cells, halves=answer) == {"halves": Ending.PASSED}
    assert by_hand(tmp_path, cells, halves=lambda x: [1.0] * x) == {"halves": Ending.FAILED}


def test_another_variant_is_no_part_of_a_longer_number(tmp_path):
    path = tmp_path / "01-fake.ipynb"
    path.write_bytes(a_class.notebook([a_class.cell("sheet = Sheet('01-fake', variant=0)")]))
    master = masters.load_master(path)
    for variant, noted in ((1, True), (2, True), (12, False), (123, True)):
        cells = [notebooks.Cell(1, "code", "sheet = Sheet('01-fake', variant=12)")]
        assert bool(grading._of_another_variant(cells, master, variant)) is noted


# ---------------------------------------------------------------- feedback is about their code


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("raise ValueError('no')", "raise ValueError('no')"),
        ("return rewards.mean(7)", "return rewards.mean(7)"),
        ("return open('/nowhere/x')", "return open('/nowhere/x')"),
        (f"return open({str(masters.ROOT / 'README.md')!r})", "return open("),
        ("return rewards + undefined", "return rewards + undefined"),
        ("import nbcourse.functional", "import nbcourse.functional"),
        ("return helper(rewards)", "return values.no_such_thing"),
    ],
)
def test_feedback_quotes_the_student_s_line_and_nothing_of_the_grader(
    server, tmp_path, source, line
):
    notebook = json.loads(masters.find_master("02-sequences").read_text(encoding="utf-8"))
    helper = "def helper(values):\n    return values.no_such_thing\n\n"
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "mend-the-groups":
            cell["source"] = f"{helper}def group_means(rewards, group_size):\n    {source}"
    submitted = a_class.submission(tmp_path, json.dumps(notebook).encode())
    master = masters.load_master(masters.find_master("02-sequences"))
    result = grading.grade_submission(submitted, Terms(master, LIMITS), server)
    (told,) = [e.feedback for e in result.exercises if e.name == "mend-the-groups"]
    assert f"in the line: {line}" in told
    for words in ("_raise", "_reported", "remote", "submission-", "site-packages", "raise wire"):
        assert words not in told
    assert str(masters.ROOT) not in told.replace(line, "") or "README" in told


def test_a_path_of_this_machine_is_no_part_of_a_message():
    told = str(_reported(f"no file {masters.ROOT}/solutions/x, {sys.prefix}/lib, /tmp/a"))
    assert "solutions/x" in told
    assert str(masters.ROOT) not in told
    assert sys.prefix not in told


def _reported(message):
    from nbcourse.confined.remote import _reported_error

    return _reported_error({"kind": "raised", "type": "OSError", "message": message, "line": ""})


def test_who_runs_out_of_time_reads_which_cell_ran_for_how_long(grade, grade_endless):
    found = grade_endless(double="def double(x):\n    while True:\n        pass")["double-check"]
    assert re.search(r"`double` of cell 2 was still running after [\d.]+ seconds", found.feedback)
    found = grade_endless(double="while True:\n    pass")["double-check"]
    assert re.search(r"cell 2 was still running after [\d.]+ seconds", found.feedback)
    slow = "import time\ntime.sleep(1.5)\ndef double(x):\n    time.sleep(9)\n    return 2 * x"
    found = grade(double=slow, limits=replace(LIMITS, total=4))["double-check"]
    assert re.search(r"took over 4 seconds, `double` of cell 2 \d\.\d of them", found.feedback)


def test_a_reply_of_millions_of_values_is_refused_before_it_takes_up_room(server, tmp_path):
    """As objects, 32 MB of empty lists are over a gigabyte."""
    forged = (
        "import nbcourse.confined.wire as wire, json, struct\n"
        "def send(channel, message):\n"
        "    body = b'{\"number\": 1, \"x\": [' + b'[],' * 10**7 + b'[]]}'\n"
        "    channel.sendall(struct.pack('>I', len(body)) + body)\n"
        "wire.send = send\n"
        "def double(x):\n    return 2 * x"
    )
    content = a_class.notebook(a_class.solved(double=forged))
    master, submitted = a_class.master(tmp_path), a_class.submission(tmp_path, content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = grading.grade_submission(submitted, Terms(master, LIMITS), server)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # in KiB
    assert grown < 250 * 2**10
    assert {e.exercise for e in result.exercises if e.state is Ending.MALFORMED} >= {"double-check"}


def test_a_long_list_is_refused_in_words(grade):
    found = grade(double="def double(x):\n    return [0] * 6 * 10**5")["double-check"]
    assert found.state == Ending.TOO_BIG
    assert "hand in a tensor instead of a long list" in found.feedback
