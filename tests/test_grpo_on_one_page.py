"""The plain program and the real loop: the same numbers, to the last bit."""

import pytest

from nbcourse import grpo_on_one_page as page
from nbcourse.training import loop
from nbcourse.training.recipe import load
from tests.small import ALONE, learner

STEPS = 20


def is_timing(name: str) -> bool:
    return name.startswith("seconds_") or name == "tokens_per_second"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_page_gives_the_numbers_of_the_real_loop(seed):
    """Nothing is shared: each program warms up a model of its own, from the same seed."""
    recipe = load("arithmetic-grpo", [f"seed={seed}", f"steps={STEPS}"])
    real = [
        {name: value for name, value in row.items() if not is_timing(name)}
        for row in loop.steps(learner(recipe), loop.begin(recipe), ALONE)
    ]
    assert len(real) == STEPS
    assert {"reward", "kl_ref", "grad_norm", "policy_loss", "updates"} < real[0].keys()
    assert [row["step"] for row in real if "held_out" in row] == [10, 20]

    plain = page.grpo(*page.warmed_up(seed), seed, STEPS)
    for expected, found in zip(real, plain, strict=True):
        assert found == expected


def test_what_these_numbers_cannot_show_is_as_in_the_recipe():
    """The clip is idle in a first update, and nobody's responses reach the limit."""
    recipe = load("arithmetic-grpo")
    settings = recipe.settings
    assert (settings["clip_low"], settings["clip_high"], settings["dual_clip"]) == (
        page.CLIP,
        None,
        None,
    )
    assert recipe.steps == page.STEPS
    assert recipe.rollouts.max_new_tokens == page.MAX_NEW_TOKENS
