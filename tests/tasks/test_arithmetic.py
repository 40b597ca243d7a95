"""Arithmetic problems: right answers, and a test set that no seed can leak into training."""

import pytest
import torch

from nbcourse.tasks import arithmetic


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


def test_operands_and_operations_are_all_used():
    drawn = draw(5_000, digits=1, operations="+*")
    assert {p.prompt[0] for p in drawn} == set("0123456789")
    assert {c for p in drawn for c in p.prompt if c in "+-*"} == {"+", "*"}
    assert max(len(p.prompt) for p in draw(digits=3)) == len("999+999=")


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
