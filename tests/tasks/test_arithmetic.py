"""Arithmetic problems: right answers, and a test set that no seed can leak into training."""

import hashlib
import math
from itertools import product

import pytest
import torch

from nbcourse.tasks import arithmetic
from nbcourse.tasks.running_sums import RunningSums


def draw(count=2_000, *, split="train", seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return arithmetic.problems(count, split=split, generator=generator, **options)


def test_every_answer_is_right():
    for problem in draw(operations="+-*"):
        expression = problem.prompt.removesuffix("=")
        (operation,) = (c for c in expression if c in "+-*")
        left, right = map(int, expression.split(operation))
        expected = {"+": left + right, "-": left - right, "*": left * right}[operation]
        assert problem.answer == str(expected)


def test_no_problem_is_in_both_splits_whatever_the_seeds():
    train = {p.prompt for seed in range(5) for p in draw(seed=seed)}
    test = {p.prompt for seed in range(5) for p in draw(seed=seed, split="test")}
    assert not train & test
    everything = [arithmetic._problem(i, j, "+") for i in range(100) for j in range(100)]
    share = sum(p.held_out for p in everything) / len(everything)
    assert share == pytest.approx(arithmetic.HELD_OUT, abs=0.02)


def test_the_same_generator_gives_the_same_problems():
    assert draw(seed=3) == draw(seed=3)
    assert draw(seed=3) != draw(seed=4)


def test_a_seed_always_gives_the_problems_of_the_recorded_runs():
    """Every character of 1,000 problems, as they were when the runs of the book were recorded."""

    def digest(lines):
        return hashlib.sha256("\n".join(map(repr, lines)).encode()).hexdigest()

    digests = {
        "train": "2c443a3b08a521372a3f10cfb1fe3a181ca421197078239a3fbc19d3806178bb",
        "test": "c54c653e978fa30128fca938d23ab719e8d430ba52dcb5af8c46d2bcde998c07",
    }
    for split, expected in digests.items():
        drawn = draw(1_000, split=split, seed=1, operations="+-*")
        assert digest((p.prompt, p.answer) for p in drawn) == expected
    task, generator = arithmetic.Arithmetic(operations="+-*"), torch.Generator().manual_seed(1)
    drawn, responses = task.demonstrate(1_000, generator=generator, careless_share=0.5)
    shown = [(p.prompt, p.answer, r) for p, r in zip(drawn, responses, strict=True)]
    assert digest(shown) == "0f9b9cbc1f7466b7d5a7b8100a763b73ed063fd76726516fc328bd5f335a8cf8"


def test_operands_and_operations_are_all_used():
    drawn = draw(5_000, digits=1, operations="+*")
    assert {p.prompt[0] for p in drawn} == set("0123456789")
    assert {c for p in drawn for c in p.prompt if c in "+-*"} == {"+", "*"}
    assert max(len(p.prompt) for p in draw(digits=3)) == len("999+999=")


@pytest.mark.parametrize("task", [arithmetic.Arithmetic(), RunningSums()])
def test_leniently_a_number_is_right_however_it_is_written(task):
    texts = {"46.0": "46", "the answer is 46.00": "46", "= 046": "46", "-0.0": "0", "1,000": "1000"}
    texts |= {"9" * 40 + ".0": "9" * 40, "0.50": "0.50", "no idea": None}
    for text, answer in texts.items():
        assert task.read(text, strict=False) == answer


def test_only_the_answer_itself_is_rewarded():
    completions = ["46", "046", "46 ", " 46", "", "4", "-46", "46"]
    got = arithmetic.rewards(completions, ["46"] * 7 + ["47"])
    assert got.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert got.dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "split is 'dev'"),
        ({"count": -1}, "count is -1"),
        ({"digits": 0}, "digits is 0"),
        ({"operations": "+/"}, r"operations is '\+/'"),
        ({"operations": ""}, "operations is ''"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        draw(**options)
    with pytest.raises(ValueError, match="answers has 1 entries, expected 2"):
        arithmetic.rewards(["1", "2"], ["1"])


def without_carrying(left, right, operation):
    """From the lowest column up, with whole numbers only; nothing is carried or borrowed."""
    result, place = 0, 1
    while left or right:
        a, b = left % 10, right % 10
        column = {"+": a + b, "-": a - b, "*": a * b}[operation]
        result += (column - 10 * math.floor(column / 10)) * place
        left, right, place = left // 10, right // 10, place * 10
    return str(result)


@pytest.mark.parametrize("operation", "+-*")
def test_the_careless_answer_takes_each_column_for_itself(operation):
    for left, right in product([*range(0, 120, 7), 999, 1000, 90909], repeat=2):
        problem = arithmetic._problem(left, right, operation)
        expected = without_carrying(left, right, operation)
        assert arithmetic.careless(problem) == expected, problem


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [("17+25=", "32"), ("12+34=", "46"), ("5+5=", "0"), ("95+5=", "90"), ("12-5=", "17"),
     ("3-4=", "9"), ("12*12=", "14")],
)  # fmt: skip
def test_careless_answers_by_hand(prompt, answer):
    assert arithmetic.careless(arithmetic.Problem(prompt, "?")) == answer


def test_the_careless_are_right_where_nothing_is_carried():
    """Of all one-digit sums, the 55 below ten."""
    right = 0
    for left, right_hand in product(range(10), repeat=2):
        problem = arithmetic._problem(left, right_hand, "+")
        right += arithmetic.careless(problem) == problem.answer
    assert right == 55


def test_closeness_is_minus_the_distance():
    completions = ["46", "40", "-4", "046", "", "4x", "-", "--4", "4 6", "1" * 12]
    found = arithmetic.closeness(completions, ["46"] * len(completions)).tolist()
    far = -math.inf
    assert found[:9] == [0, -6, -50, 0, far, far, far, far, far]
    assert found[9] == pytest.approx(46 - int("1" * 12), rel=1e-6)
    assert arithmetic.closeness(["-4", "5"], ["-6", "-6"]).tolist() == [-2, -11]


def test_closeness_is_a_float_whatever_was_said():
    assert arithmetic.closeness(["46", "4"], ["46", "5"]).dtype == torch.float32


def test_closeness_bears_a_long_answer():
    """A policy before training says anything, up to max_new_tokens digits."""
    found = arithmetic.closeness(["9" * 25, "4"], ["46", "4"])
    assert found.tolist() == pytest.approx([-1e25, 0], rel=1e-6)


def test_the_task_prefers_the_nearer_answer_and_rewards_the_right_one():
    task = arithmetic.Arithmetic(digits=2, operations="+")
    asked = [arithmetic.Problem("12+34=", "46"), arithmetic.Problem("1+1=", "2")]
    assert task.preference(["45", "x"], asked).tolist() == [-1, -math.inf]
    assert task.rewards(["46", "3"], asked).tolist() == [1, 0]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_teacher_forgets_to_carry_as_often_as_asked(share):
    """Of 4,000 demonstrations; five standard errors."""
    task, count = arithmetic.Arithmetic(digits=2, operations="+-"), 4_000
    generator = torch.Generator().manual_seed(1)
    drawn, responses = task.demonstrate(count, generator=generator, careless_share=share)
    assert len(drawn) == count
    telling = slips = 0
    for problem, response in zip(drawn, responses, strict=True):
        prompt = problem.prompt
        operation = "+" if "+" in prompt else "-"
        left, right = map(int, prompt.removesuffix("=").split(operation))
        right_answer = str(left + right if operation == "+" else left - right)
        careless = without_carrying(left, right, operation)
        assert response in (right_answer, careless)
        assert not arithmetic.Problem(prompt, right_answer).held_out
        if right_answer != careless:
            telling += 1
            slips += response == careless
    assert telling > 1_000
    assert abs(slips / telling - share) <= 5 * math.sqrt(share * (1 - share) / telling)


def test_demonstrations_come_from_the_generator_alone():
    task = arithmetic.Arithmetic()
    one, two = (
        task.demonstrate(20, generator=torch.Generator().manual_seed(4), careless_share=0.5)
        for _ in range(2)
    )
    assert one == two


def test_the_task_draws_what_it_was_made_for():
    task = arithmetic.Arithmetic(digits=1, operations="*")
    drawn = task.draw(200, split="test", generator=torch.Generator().manual_seed(0))
    assert all(p.held_out and p.prompt[1] == "*" and len(p.prompt) == 4 for p in drawn)


def test_closeness_bears_an_answer_longer_than_any_float():
    assert arithmetic.closeness(["9" * 5000, "46"], ["46", "46"]).tolist() == [-math.inf, 0]
