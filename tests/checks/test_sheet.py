"""A sheet in unusual hands: no function, other types, mistakes in the notebook's own cell."""

import pytest
import torch

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import NotRight
from nbcourse.checks.sheet import Exercise

SHEET = Sheet("02-sequences")


@pytest.mark.parametrize("variant", [-1, 1.5, "3", True, None])
def test_a_variant_is_a_whole_number(variant):
    with pytest.raises(ValueError, match="expected a whole number, 0 or more"):
        Sheet("02-sequences", variant=variant)


def test_an_unknown_chapter_or_exercise_is_said():
    with pytest.raises(ValueError, match="'02-nothing': there are no exercises of that name"):
        Sheet("02-nothing")
    with pytest.raises(ValueError, match="expected one of: mend-the-groups, by-hand"):
        SHEET.check("mend", lambda: None)
    with pytest.raises(ValueError, match="has no numbers of its own"):
        SHEET.numbers("mend-the-groups")


def test_a_result_in_place_of_the_function():
    with pytest.raises(NotRight, match="Hand in the function itself"):
        SHEET.check("mend-the-groups", torch.zeros(6))


def test_an_error_names_the_student_s_own_line():
    def group_means(rewards, group_size):
        groups = rewards.view(-1, group_size)
        return groups.mean(dim=1).repeat_interleaved(group_size)

    with pytest.raises(NotRight) as refusal:
        SHEET.check("mend-the-groups", group_means)
    assert "stopped with AttributeError" in str(refusal.value)
    assert "in the line: return groups.mean(dim=1).repeat_interleaved" in str(refusal.value)


def test_a_notebook_shows_the_message_and_no_stack_trace():
    with pytest.raises(NotRight) as refusal:
        SHEET.check("mend-the-groups", lambda rewards, group_size: 1.0)
    assert refusal.value._render_traceback_() == str(refusal.value).splitlines()


def test_a_result_that_a_check_cannot_look_into_gets_no_stack_trace_either():
    def check(attempt, generator):
        attempt.holds(bool(attempt(1.0).isfinite()), "finite", otherwise="Infinite.")

    sheet = Sheet("02-sequences")
    sheet.exercises = {"made-up": Exercise("2.5 Which baseline?", check)}
    with pytest.raises(NotRight, match="cannot make sense of what your function returned"):
        sheet.check("made-up", lambda x: object())
