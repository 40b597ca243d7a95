"""The verifier that tasks with questions share: verdicts and preferences."""

import math
from decimal import Decimal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.tasks import arithmetic
from nbcourse.tasks.gsm8k import GSM8K
from nbcourse.tasks.questions import Problem
from nbcourse.tasks.word_problems import WordProblems


def asked(*answers):
    return [Problem("How many?", f"#### {a}", Decimal(a)) for a in answers]


RESPONSES = {
    "3 + 4 = 7\n#### 7": (1.0, Decimal(7), Decimal(7)),
    "#### 7.0": (1.0, Decimal(7), Decimal(7)),
    "#### 8": (0.0, Decimal(8), Decimal(8)),
    "The answer is 7.": (0.0, None, Decimal(7)),
    "7": (0.0, None, Decimal(7)),
    "#### 7 apples": (0.0, None, Decimal(7)),
    "#### 7\n#### 8": (0.0, None, None),
    "#### 7<|endoftext|>": (0.0, None, Decimal(7)),
    "seven": (0.0, None, None),
    "": (0.0, None, None),
}


@pytest.mark.parametrize("response", RESPONSES)
def test_only_the_marker_line_earns_and_leniently_more_is_read(response):
    reward, strict, lenient = RESPONSES[response]
    task = WordProblems()
    found = task.rewards([response], asked(7))
    assert found.tolist() == [reward]
    assert found.dtype == torch.float32
    assert task.read(response) == strict
    assert task.read(response, strict=False) == lenient


PIECES = st.sampled_from(
    ["#### ", "7", "8", ".", ",", "-", "\n", " ", "answer is ", "\\boxed{", "}"]
)


@given(response=st.lists(PIECES, max_size=12).map("".join))
def test_what_is_right_strictly_is_right_leniently(response):
    """As `gain_split` has it; and the reward is the strict verdict."""
    (problem,) = asked(7)
    for task in (WordProblems(), GSM8K("nowhere")):
        strict = task.read(response)
        if strict is not None:
            assert task.read(response, strict=False) == strict
        assert task.rewards([response], [problem]).item() == (strict == 7)


@given(response=st.text(st.sampled_from("0123456789+-*= "), max_size=8))
def test_so_it_is_for_sums(response):
    task = arithmetic.Arithmetic()
    strict = task.read(response)
    for answer in ("7", "-5", "0", "12"):
        problem = arithmetic.Problem("3+4=", answer)
        right = task.rewards([response], [problem]).item()
        assert right == (strict == answer)
        assert not right or task.read(response, strict=False) == answer


def test_as_many_responses_as_problems():
    for judge in (WordProblems().rewards, WordProblems().preference):
        with pytest.raises(ValueError, match="zip"):
            judge(["#### 7"], asked(7, 8))


def test_the_nearer_answer_is_preferred_and_none_at_all_is_last():
    """A number in the wrong form is no answer."""
    responses = ["#### 7", "#### 9", "#### -3", "#### 7.5", "7", ""]
    liking = WordProblems().preference(responses, asked(*[7] * 6))
    assert liking.tolist() == [0.0, -2.0, -10.0, -0.5, -math.inf, -math.inf]


def test_a_right_answer_needs_no_memory_of_questions():
    """Rewards are for pairs: the same response to another problem earns something else."""
    assert WordProblems().rewards(["#### 7"] * 3, asked(7, 8, 7)).tolist() == [1, 0, 1]
