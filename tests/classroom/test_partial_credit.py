"""Shares of points: counted case by case, told as a number, and only where they were asked for."""

import pytest
import torch

from nbcourse.classroom import masters, partial_credit
from nbcourse.classroom.masters import Test as GradedTest
from nbcourse.classroom.results import Terms
from nbcourse.confined.remote import SandboxFailed
from nbcourse.confined.submission_errors import Ending
from tests.checks import masters as sheets
from tests.classroom import a_class


def right(master, exercise: str, **names) -> int:
    (step,) = (s for s in master.steps if isinstance(s, GradedTest) and s.grade_id == exercise)
    return partial_credit.right_cases(step, names).total()


def test_asserting_statements_are_counted_each_for_itself(master):
    asked = partial_credit.all_cases(master, 0)
    assert {name: sum(cases.asked.values()) for name, cases in asked.items()} == {
        "double-check": 4, "answer-check": 1, "cube-check": 1
    }  # fmt: skip
    # what stands in the student's notebook can be looked up
    assert {name: cases.not_free for name, cases in asked.items()} == {
        "double-check": 2, "answer-check": 0, "cube-check": 1
    }  # fmt: skip
    assert right(master, "double-check", double=lambda x: 2 * abs(x)) == 3
    assert right(master, "double-check", double=lambda x: 6) == 1
    assert right(master, "double-check", double=lambda x: 1 / 0) == 0
    assert right(master, "double-check") == 0


def test_points_do_not_depend_on_what_was_drawn_before():
    test = GradedTest("x-check", 1.0, "assert torch.rand(()) < p", "", ())
    torch.manual_seed(0)
    first = float(torch.rand(()))
    for seed in range(10):
        for above in (True, False):
            torch.manual_seed(seed)
            names = {"torch": torch, "p": first + (1e-3 if above else -1e-3)}
            assert partial_credit.right_cases(test, names).total() == above


@sheets.needed
def test_comparisons_and_properties_of_a_check_are_counted():
    master = masters.load_master(masters.find_master("2"))
    names = partial_credit.worked_cases.worked_out(master, 0)
    count = sum(partial_credit.all_cases(master, 0)["unequal-groups-check"].asked.values())
    assert count >= 5
    # three in the check, and two calls of `torch.testing.assert_close` in the hidden tests
    assert len(partial_credit.all_cases(master, 0)["discounted-weights-check"].asked) == 5

    def without_lone_ones(rewards, prompts):
        same = prompts[:, None] == prompts[None, :]
        total = (same * rewards[None, :]).sum(dim=1)
        return rewards - (total - rewards) / (same.sum(dim=1) - 1).clamp(min=1)

    def stub(rewards, prompts):
        raise NotImplementedError

    almost = right(master, "unequal-groups-check", **names | {"unequal_groups": without_lone_ones})
    assert 0 < almost < count
    assert right(master, "unequal-groups-check", **names | {"unequal_groups": stub}) == 0
    assert right(master, "unequal-groups-check", **names) == count


@pytest.mark.parametrize(
    ("partial", "points"), [((), 0), (["double-check"], 1), (["cube-check"], 0)]
)
def test_a_share_is_given_where_it_is_asked_for(server, tmp_path, partial, points):
    from nbcourse.classroom import grading
    from tests.classroom.conftest import LIMITS

    wrong = "def double(x):\n    return 2 * abs(x)"
    content = a_class.notebook(a_class.solved(double=wrong))
    result = grading.grade_submission(
        a_class.submission(tmp_path, content),
        Terms(a_class.master(tmp_path), LIMITS, partial=frozenset(partial)),
        server,
    )
    found = {exercise.exercise: exercise for exercise in result.exercises}
    double = found["double-check"]
    assert (double.state, double.points) == (Ending.FAILED, points)
    assert found["cube-check"].state is Ending.PASSED
    told = "3 of 4 cases are right, and 1 of the 2 that cannot be looked up: 1 of 2 points."
    assert (told in double.feedback) == bool(points)
    assert "-154" not in double.feedback  # a hidden test
    assert "negative numbers count too" in double.feedback
    assert result.conditions["partial credit"] == ", ".join(partial)


@sheets.needed
def test_what_a_check_asks_160_times_is_one_case():
    """Wrong answers weigh nothing, in 160 batches: so it is by weights that are all 0."""
    master = masters.load_master(masters.find_master("14"))
    names = partial_credit.worked_cases.worked_out(master, 0)
    names |= {"pass_at_k_weights": lambda correct, k: 0.0 * correct}
    (step,) = (s for s in master.steps if isinstance(s, GradedTest) and "pass-at-k" in s.grade_id)
    asked = partial_credit.all_cases(master, 0)[step.grade_id]
    assert max(asked.asked.values()) > 100
    assert asked.share(partial_credit.right_cases(step, names))[0] < 0.3


def test_a_failure_of_the_grader_is_no_wrong_case(master):
    """It ends the grading, so that an instructor can try again; the student loses nothing."""

    def broken():
        raise SandboxFailed("no process could be started")

    (step, *_) = (s for s in master.steps if isinstance(s, GradedTest))
    with pytest.raises(SandboxFailed):
        partial_credit.right_cases(step, {"double": lambda x: 2 * x}, before_each=broken)


@pytest.mark.parametrize(
    ("right", "share"),
    [({}, 0), ({"a": 1}, 1), ({"b": 2}, 0.5), ({"a": 1, "b": 4}, 2), ({"a": 3, "c": 9}, 1)],
)
def test_each_case_is_right_in_proportion(right, share):
    cases = partial_credit.Cases({"a": 1, "b": 4}, {"a": 0.0, "b": 0.0})
    assert cases.right(right) == cases.earned(right) == share
    assert cases.not_free == 2


def test_what_can_be_looked_up_earns_nothing():
    cases = partial_credit.Cases({"a": 1, "b": 4}, {"a": 1.0, "b": 0.25})
    assert cases.not_free == 0.75
    assert [cases.earned(right) for right in ({"a": 1}, {"b": 1}, {"b": 2}, {"b": 4})] == [
        *(0, 0, 0.25, 0.75)
    ]
    assert cases.share({"a": 1, "b": 1}) == (
        0.0, "1.25 of 2 cases are right, and 0 of the 0.75 that cannot be looked up",
    )  # fmt: skip
    assert cases.share({"b": 4}) == (0.5, "1 of 2 cases are right")
    assert partial_credit.Cases({"a": 1}, {"a": 1.0}).share({})[0] == 0


def test_a_word_said_each_time_earns_nothing_whichever_it_is():
    """Three words are asked for: whoever says one of them each time has one right."""
    cases = partial_credit.Cases({"a": 1, "b": 1, "c": 1}, {"a": 0.0, "b": 0.0, "c": 0.0}, said=1.0)
    assert cases.not_free == 2
    assert [cases.earned(dict.fromkeys(right, 1)) for right in ("", "a", "b", "ac", "abc")] == [
        *(0, 0, 0, 1, 2)
    ]
    assert cases.share({"b": 1})[0] == 0
    assert cases.share({"a": 1, "c": 1})[0] == 0.5
    assert partial_credit.Cases({"a": 1}, {"a": 0.0}, said=1.0).share({"a": 1})[0] == 0


def test_a_failed_exercise_never_has_all_points(server, tmp_path, monkeypatch):
    """What raises an error of its own is no case: three of three are right, and it failed."""
    from nbcourse.classroom import grading
    from tests.classroom.conftest import LIMITS

    raising = "if double(-77) != -154:\n    raise ArithmeticError"
    test = a_class.TESTS["double"].replace("assert double(-77) == -154", raising)
    monkeypatch.setitem(a_class.TESTS, "double", test)
    content = a_class.notebook(a_class.solved(double="def double(x):\n    return 2 * abs(x)"))
    result = grading.grade_submission(
        a_class.submission(tmp_path, content),
        Terms(a_class.master(tmp_path), LIMITS, partial=frozenset({"double-check"})),
        server,
    )
    double = result.exercises[0]
    assert (double.state, double.points) == (Ending.FAILED, 1.33)
    assert "2 of 3 cases are right: 1.33 of 2 points." in double.feedback


def test_a_case_that_ends_the_process_costs_only_itself(server, tmp_path):
    from nbcourse.classroom import grading
    from tests.classroom.conftest import LIMITS

    ends = """
import os

def double(x):
    if x == 4:
        os._exit(0)
    return 7 if x == 3 else 2 * x
"""
    content = a_class.notebook(a_class.solved(double=ends))
    result = grading.grade_submission(
        a_class.submission(tmp_path, content),
        Terms(a_class.master(tmp_path), LIMITS, partial=frozenset({"double-check"})),
        server,
    )
    double = result.exercises[0]
    assert (double.state, double.points) == (Ending.FAILED, 1)
    assert "2 of 4 cases are right: 1 of 2 points." in double.feedback
