"""What travels of a check accepts what is right, and refuses what is wrong, without knowing it."""

import math

import pytest
import torch

from nbcourse.checks import Sheet, worked
from nbcourse.checks.attempt import NotRight
from tests.checks import masters
from tests.checks.tally import released
from tests.checks.test_checks import in_precision, wrong_answers
from tests.effort import swept

pytestmark = masters.needed
VARIANT = 290
WITHOUT_WORDS = [("03-critics", "whose-advantages"), ("13-gsm8k", "by-hand")]  # sealed as a whole
each_sheet = pytest.mark.parametrize("chapter", masters.MASTERS)


@pytest.fixture(autouse=True)
def cheap_guesses(monkeypatch):
    """No verdict depends on what a guess at a sealed value costs."""
    monkeypatch.setattr(worked, "ROUNDS", 1)


@pytest.mark.parametrize(
    ("chapter", "dtype"),
    swept(
        [(chapter, d) for chapter in masters.MASTERS for d in (torch.float32, torch.float64)],
        keep=[(chapter, torch.float32) for chapter in masters.MASTERS],
    ),
)
def test_the_solutions_pass_in_either_precision(chapter, dtype):
    names = masters.work(masters.master(chapter), variant=VARIANT)
    sheet = released(chapter, VARIANT)
    for exercise in sheet.exercises:
        solution = names[masters.answer_name(chapter, exercise)]
        sheet.check(exercise, lambda *given, f=solution: in_precision(f(*given), dtype))


@each_sheet
def test_the_sheet_has_the_same_exercises_sections_and_numbers(chapter):
    book, sheet = Sheet(chapter, variant=VARIANT), released(chapter, VARIANT)
    assert list(sheet.exercises) == list(book.exercises)
    for name, exercise in book.exercises.items():
        assert sheet.exercises[name].section == exercise.section
        if exercise.numbers:
            assert sheet.numbers(name) == book.numbers(name)


def refusal(sheet: Sheet, exercise: str, answer) -> str:
    """What the check says to an answer; empty if it accepts it."""
    try:
        sheet.check(exercise, answer)
    except NotRight as wrong:
        return str(wrong)
    return ""


@pytest.mark.parametrize("chapter", swept(masters.MASTERS, keep=masters.MASTERS[::3]))
def test_known_mistakes_are_refused_most_of_them_in_the_same_words(chapter):
    """A mistake that only other cases show is left to the grader."""
    sheet = released(chapter, VARIANT)
    for exercise, mistakes in wrong_answers(chapter, VARIANT).items():
        found = [refusal(sheet, exercise, answer) for answer, _ in mistakes.values()]
        told = [says in text for text, (_, says) in zip(found, mistakes.values(), strict=True)]
        assert found.count("") <= 2, exercise
        silent = Sheet(chapter).exercises[exercise].travels in ("sealed", "results")
        if not silent and (chapter, exercise) not in WITHOUT_WORDS:
            assert sum(told) >= 0.7 * len(told), exercise


def test_a_sealed_value_is_open_to_what_lies_within_the_tolerance_and_not_to_be_read():
    values = [-6.66, 4.001, 0.002, 2.671, "left"]
    sealed = worked.seal(values, salt="a", tolerance=6e-3)
    for off in (-0.0059, 0.0, 0.0059):
        assert sealed.opens([value + off for value in values[:-1]] + ["left"])
    for place in range(4):
        for off in (-0.0061, 0.0061, math.nan, math.inf):
            other = list(values)
            other[place] += off
            assert not sealed.opens(other)
    assert not sealed.opens([*values[:-1], "right"])
    assert not sealed.opens(values[:-1])
    # what is written down is the same for a value that lies whole cells away
    far = worked.seal([v + 12.0 for v in values[:-1]] + ["left"], salt="a", tolerance=6e-3)
    assert far.offsets[:-1] == pytest.approx(sealed.offsets[:-1])
    assert far.digest != sealed.digest
    assert worked.seal(values, salt="b", tolerance=6e-3).digest != sealed.digest
