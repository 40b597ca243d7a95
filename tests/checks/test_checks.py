"""Every check accepts the solution, is friendly to the stub, and knows the mistakes by name.

The catalogue of wrong answers is in `wrong/`, one module for each chapter. A wrong answer has to be
refused with the message meant for it, whatever the student's variant.
"""

import functools
import math
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from nbcourse.checks import Sheet, ppo_in_practice
from nbcourse.checks.attempt import Attempt, NotRight, NotYet, plain
from nbcourse.confined import wire
from nbcourse.publishing.chapters import ROOT
from tests.effort import case, swept

from . import masters

VARIANTS = (0, 1, 2, 123456789)


@functools.lru_cache(maxsize=256)
def wrong_answers(chapter: str, variant: int) -> dict:
    module = chapter.partition("-")[2].replace("-", "_")
    return import_module(f"tests.checks.wrong.{module}").wrong_answers(
        Sheet(chapter, variant=variant)
    )


@pytest.mark.parametrize("variant", swept(VARIANTS, keep=[VARIANTS[0], VARIANTS[-1]]))
@pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)
def test_the_solution_passes_whatever_the_variant(chapter, exercise, variant, capsys):
    namespace = masters.work(masters.master(chapter), variant=variant)
    exec(masters.check_cell(masters.master(chapter), exercise), namespace)  # hidden tests too
    assert f"{exercise}: right. Checked: " in capsys.readouterr().out


def in_precision(result: Any, dtype: torch.dtype) -> Any:
    """The same result, with every floating-point tensor in it in this precision."""
    if isinstance(result, torch.Tensor):
        return result.to(dtype) if result.is_floating_point() else result
    if isinstance(result, tuple | list):
        return type(result)(in_precision(part, dtype) for part in result)
    if isinstance(result, dict):
        return {key: in_precision(part, dtype) for key, part in result.items()}
    return result


SINGLE, DOUBLE = (
    [(*each, dtype) for each in masters.EVERY_EXERCISE] for dtype in (torch.float32, torch.float64)
)


@pytest.mark.parametrize(
    ("chapter", "exercise", "dtype"), swept([*SINGLE, *DOUBLE], keep=[*SINGLE, *DOUBLE[::3]])
)
def test_a_right_answer_passes_in_either_precision(chapter, exercise, dtype):
    namespace = masters.work(masters.master(chapter), variant=0)
    name = masters.answer_name(chapter, exercise)
    solution = namespace[name]
    namespace[name] = lambda *arguments: in_precision(solution(*arguments), dtype)
    exec(masters.check_cell(masters.master(chapter), exercise), namespace)  # hidden tests too


@pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)
def test_the_stub_gets_a_friendly_word(chapter, exercise):
    namespace = masters.work(masters.student(chapter), variant=0)
    with pytest.raises(NotYet, match="Not implemented yet"):
        exec(masters.check_cell(masters.student(chapter), exercise), namespace)


def simulated_in_float32(weight: float, step: float) -> int:
    start = x = torch.tensor(weight)
    for taken in range(1, 100_000):
        x = x + torch.tensor(step)
        if x.bfloat16() != start.bfloat16():
            return taken
    raise AssertionError("never seen")


def compared_by_a_matrix(rewards: torch.Tensor, prompts: torch.Tensor) -> torch.Tensor:
    same = (prompts[:, None] == prompts).float() - torch.eye(len(prompts))
    return torch.where(same.sum(1) > 0, rewards - same @ rewards / same.sum(1).clamp(min=1), 0.0)


def against_the_other_answers(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Minus the entropy, less a leave-one-out baseline: another value, the same mean gradient."""
    now, then = (x.masked_fill(~mask, 0.0) for x in (log_probs, old_log_probs))
    weight, worth = (now - then).sum(1).exp(), now.detach().sum(1)
    others = (worth.sum() - worth) / max(len(worth) - 1, 1)
    return (weight * (now.sum(1) - others)).mean()


@pytest.mark.parametrize(
    ("chapter", "exercise", "rewritten", "variant"),
    [
        ("02-sequences", "unequal-groups", lambda f: compared_by_a_matrix, 0),
        ("10-grpo", "two-answers", lambda f: lambda A: torch.tensor(f(A)), 0),
        ("10-grpo", "two-answers", lambda f: lambda A: torch.tensor(f(A)).numpy(), 0),
        ("10-grpo", "two-answers", lambda f: lambda A: tuple(map(torch.tensor, f(A))), 0),
        ("10-grpo", "two-answers", lambda f: lambda A: [[*map(torch.tensor, x)] for x in f(A)], 0),
        ("10-grpo", "length-drift", lambda f: lambda *a: torch.tensor(f(*a)), 0),
        ("11-kl", "entropy-bonus", lambda f: against_the_other_answers, 0),
        ("15-gpu-runs", "steps-until-seen", lambda f: simulated_in_float32, 0),
        ("15-gpu-runs", "steps-until-seen", lambda f: simulated_in_float32, 290),
    ],
)
def test_a_right_answer_in_another_form_passes(chapter, exercise, rewritten, variant):
    namespace = masters.work(masters.master(chapter), variant=variant)
    solution = namespace[masters.answer_name(chapter, exercise)]
    Sheet(chapter, variant=variant).check(exercise, rewritten(solution))


@pytest.mark.parametrize("kind", ["healthy", "recomputed", "stale", "upside down"])
def test_the_watchdogs_logs_differ_as_its_text_promises(kind):
    """Exercise 6.3: 1e-9 where numbers are equal, 1e-5 in the last row where they are not."""
    for seed in range(300):
        rates = (0.15, 0.006) if kind == "healthy" else (0.15,)
        for rate in rates:
            log = ppo_in_practice._log(kind, rate, torch.Generator().manual_seed(seed))
            last, off = log[-1], abs(log[-1]["mean_ratio"] - 1)
            assert last["kl"] > 1e-5
            assert abs(log[0]["approx_kl"]) > 1e-5 if kind == "stale" else off < 1e-9 or off > 1e-5
            assert (abs(last["approx_kl"]) < 1e-9) == (kind == "recomputed")
            if kind == "upside down":
                assert off > 1e-5
                assert abs(last["approx_kl"] - last["kl"]) > 1e-5


@pytest.mark.parametrize("chapter", masters.MASTERS)
def test_at_least_five_wrong_answers_are_known(chapter):
    for exercise in masters.exercises(chapter):
        assert len(wrong_answers(chapter, 0)[exercise]) >= 5, exercise


def refused(chapter: str, exercise: str, variant: int, *, sure: bool = False) -> None:
    """Assert that each wrong answer gets the message meant for it.

    Args:
        chapter: of the sheet.
        exercise: its id.
        variant: of the student.
        sure: whether to leave out what was rounded too early: it may come out as it should.
    """
    sheet = Sheet(chapter, variant=variant)
    for mistake, (answer, says) in wrong_answers(chapter, variant)[exercise].items():
        if sure and mistake == "rounded in between":
            continue
        with case(f"{mistake}, variant {variant}"):
            with pytest.raises(NotRight) as refusal:
                sheet.check(exercise, answer)
            assert says in str(refusal.value)
            assert not isinstance(refusal.value, NotYet)


@pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)
def test_a_wrong_answer_is_refused_with_the_message_meant_for_it(chapter, exercise):
    """The book's own numbers are those of `test_known_mistakes_are_told_as_in_the_notebook`."""
    elsewhere = Sheet(chapter).exercises[exercise].elsewhere
    for variant in VARIANTS[:2] if elsewhere else VARIANTS[1:2]:
        refused(chapter, exercise, variant)


@pytest.mark.sweep
@pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)
def test_it_is_so_in_two_hundred_variants(chapter, exercise):
    for variant in range(2, 202):
        refused(chapter, exercise, variant, sure=True)


@pytest.mark.parametrize("chapter", masters.MASTERS)
def test_the_message_sends_the_student_to_a_section_that_exists(chapter):
    text = (ROOT / "book" / "text" / f"{chapter}.md").read_text(encoding="utf-8")
    headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("##")]
    without_mark = [heading.replace("○ ", "") for heading in headings]
    for name, exercise in Sheet(chapter).exercises.items():
        assert exercise.section in without_mark, name


@pytest.mark.parametrize("chapter", masters.MASTERS)
def test_no_two_messages_of_an_exercise_are_meant_for_the_same_mistake(chapter):
    for exercise, known in wrong_answers(chapter, 0).items():
        says = [says for _, says in known.values()]
        assert len(set(says)) == len(says), exercise


@pytest.mark.parametrize(
    ("chapter", "exercise", "answer"),
    [
        ("01-bandit", "mend-the-loss", lambda logits, arms, rewards: (0 * logits).sum()),
        ("02-sequences", "length-bias", lambda theta, short, long: 0.0),
        ("10-grpo", "mend-the-filter", lambda rewards, size: torch.ones_like(rewards).bool()),
        ("14-measuring", "weights-for-pass-at-k", lambda correct, k: torch.zeros(len(correct))),
    ],
)
def test_a_constant_is_not_taken_for_a_known_mistake(chapter, exercise, answer):
    """Each of these is what one of the known mistakes would return for the check's own case."""
    with pytest.raises(NotRight, match=r"With other numbers you return the same\."):
        Sheet(chapter).check(exercise, answer)


def test_a_known_mistake_is_told_as_before():
    with pytest.raises(NotRight, match="Likely mistake: that is the gradient of the exp") as told:
        Sheet("02-sequences").check("length-bias", lambda theta, short, long: 0.1875)
    assert "With other numbers" in str(told.value)
    with pytest.raises(NotRight, match="Likely mistake: that is the gradient of the exp") as told:
        Sheet("02-sequences").check("length-bias", wrong_expected_reward)
    assert "With other numbers" not in str(told.value)


ONE_TO_FOUR = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (-ONE_TO_FOUR, "These are the right numbers with the opposite sign."),
        (ONE_TO_FOUR.T, "These are the right numbers in another order."),
        (ONE_TO_FOUR / 3, "Each is 0.333333 times what it should be."),
        (ONE_TO_FOUR - 0.5, "Each is off by the same -0.5."),
        (torch.tensor([[1.0, 2.0], [3.0, 5.0]]), "Not right are 1 of 4 entries"),
        (torch.tensor([[1.0, 2.0], [3.0, math.nan]]), "Not right are 1 of 4 entries"),
        (torch.zeros(2, 2), ""),
        (ONE_TO_FOUR.square() + 1, ""),
    ],
)
def test_what_the_entries_of_an_unknown_mistake_have_in_common_is_told(result, says):
    attempt = Attempt(lambda x: result)
    with pytest.raises(NotRight) as wrong:
        attempt.equal(attempt(torch.ones(1)), ONE_TO_FOUR, case="a table")
    *_, last = str(wrong.value).splitlines()
    assert last.startswith(says) if says else last.startswith("  got")


@pytest.mark.parametrize("result", [ONE_TO_FOUR / 3, ONE_TO_FOUR - 0.5])
def test_no_factor_leads_to_an_answer_that_is_all_that_is_asked_for(result):
    attempt = Attempt(lambda: result)
    with pytest.raises(NotRight) as wrong:
        attempt.equal(attempt(), ONE_TO_FOUR, case="a table")
    assert "Each is" not in str(wrong.value)


@pytest.mark.parametrize(("right", "wrong"), [(2.0, 6.0), (torch.ones(3), torch.zeros(3))])
def test_nothing_is_told_of_one_number_or_of_equal_ones(right, wrong):
    attempt = Attempt(lambda x: wrong)
    with pytest.raises(NotRight) as told:
        attempt.equal(attempt(torch.ones(1)), right, case="equal numbers")
    assert str(told.value).splitlines()[-1].startswith("  got")


@pytest.mark.parametrize("result", [torch.tensor([1, 0]), torch.tensor([1.0, 0.0]), [1, 0]])
def test_truth_values_are_no_numbers(result):
    attempt = Attempt(lambda: result)
    with pytest.raises(NotRight, match=r"Expected dtype torch\.bool"):
        attempt.equal(attempt(), torch.tensor([True, False]), case="a mask")


def test_a_missing_gradient_is_told_with_its_argument_and_its_likely_end():
    attempt = Attempt(lambda x, y: (x.detach() * y).sum())
    with pytest.raises(NotRight, match="through the result to argument number 1"):
        attempt.gradient(torch.ones(2), torch.ones(2))
    with pytest.raises(NotRight, match=r"got float 2\.0\. .* float\(\), \.item\(\)"):
        Attempt(lambda x: x.sum().item()).gradient(torch.ones(2))


def wrong_expected_reward(theta: float, short: float, long: float) -> float:
    stop = 1 / (1 + math.exp(-theta))
    return stop * (1 - stop) * (short - long)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ([1.0, math.nan], True),
        ([math.nan, math.nan], True),
        ([1.0, math.inf], False),
        ([1, 3], False),
    ],
)
def test_a_mistake_of_nan_is_any_result_with_a_nan_in_it(result, told):
    attempt = Attempt(lambda x: torch.tensor(result) * x)
    with pytest.raises(NotRight, match="Wrong for two numbers") as wrong:
        attempt.equal(
            attempt(torch.ones(2)),
            torch.tensor([1.0, 2.0]),
            case="two numbers",
            mistakes={"a NaN": math.nan},
        )
    assert ("Likely mistake: a NaN" in str(wrong.value)) == told


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"A": "one", "B": "two"}, ""),
        ({"B": "two", "A": "one"}, ""),
        ({"A": "one", "B": "one"}, "Not 'one': B is not one"),
        ({"A": "two", "B": "one"}, "Not 'two': A is not two"),
        ({"A": "one", "B": "six"}, "Expected one of 'one', 'two', got 'six'."),
        ({"A": "one"}, 'Expected a dict with one word for each of "A" and "B".'),
        ({"A": "one", "B": "two", "C": "two"}, "Expected a dict with one word for each"),
        (["one", "two"], "Expected a dict with one word for each"),
    ],
)
def test_a_dict_of_words_is_compared_key_by_key(result, says):
    attempt = Attempt(lambda: result)
    among = {"A": {"two": "A is not two"}, "B": {"one": "B is not one"}}
    told = ""
    try:
        attempt.choices(attempt(), {"A": "one", "B": "two"}, among)
    except NotRight as wrong:
        told = str(wrong)
    assert says in told
    assert bool(says) == bool(told)


@pytest.mark.parametrize(
    ("off", "right"), [(0.005, True), (-0.005, True), (0.007, False), (-0.007, False)]
)
def test_two_decimals_are_two_decimals_of_large_values_too(off, right):
    """A relative tolerance would let 8.04 pass for 8."""
    attempt = Attempt(lambda: None)
    if right:
        attempt.equal(8.0 + off, 8.0, case="8", tolerance=6e-3)
    else:
        with pytest.raises(NotRight, match="Wrong for 8"):
            attempt.equal(8.0 + off, 8.0, case="8", tolerance=6e-3)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.array(0.5), 0.5),
        (Fraction(1, 4), 0.25),
        ([np.float32(0.5), (Fraction(3),)], [0.5, (3.0,)]),
        ({"a": np.int8(2)}, {"a": 2}),
        (True, True),
        ("text", "text"),
    ],
)
def test_numbers_of_other_libraries_are_numbers_to_check_and_grader_alike(value, number):
    assert plain(value) == number
    sent = wire.unpack(*wire.pack(value))
    assert sent == number
    assert type(sent) is type(number)
