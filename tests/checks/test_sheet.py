"""A sheet in unusual hands: no function, other types, mistakes in the notebook's own cell."""

import pytest
import torch

from nbcourse.checks import Sheet
from nbcourse.checks.attempt import NotRight

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


def test_a_function_that_changes_its_mind_gets_no_stack_trace_either():
    """The first calls are right, and what the last one returns has none of a tensor's methods."""
    namespace: dict = {}
    source = (
        "def discounted_weights(rewards, mask, gamma):\n"
        "    if rewards.isnan().any():\n"
        "        return object()\n"
        "    powers = gamma ** torch.arange(rewards.shape[1], dtype=rewards.dtype)\n"
        "    return (rewards * mask * powers).flip(1).cumsum(1).flip(1) * mask\n"
    )
    exec(source, {"torch": torch}, namespace)
    with pytest.raises(NotRight, match="cannot make sense of what your function returned"):
        SHEET.check("discounted-weights", namespace["discounted_weights"])
