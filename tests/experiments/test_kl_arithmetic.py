"""The ablation of the KL on arithmetic: two fields of the KL, crossed, and nothing else."""

import pytest

from nbcourse.experiments.controlled import differ
from nbcourse.training.recipe import load

FORMS = ("frozen", "recomputed", "frozen-unclipped", "recomputed-unclipped")


def recipe(form):
    return load(f"kl-{form}")


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ("frozen", "recomputed", "kl.recomputed"),
        ("frozen-unclipped", "recomputed-unclipped", "kl.recomputed"),
        ("frozen", "frozen-unclipped", "kl.weight"),
        ("recomputed", "recomputed-unclipped", "kl.weight"),
    ],
)
def test_the_recipes_cross_two_fields(one, other, field):
    assert differ({form: recipe(form) for form in (one, other)}).field == field


def test_each_form_is_the_one_it_is_called_after():
    for form in FORMS:
        penalty = recipe(form).penalty
        assert penalty.placement == "advantage"
        assert penalty.recomputed == form.startswith("recomputed")
        assert penalty.weight == ("prefix" if form.endswith("unclipped") else "row")
    assert recipe("frozen").optimiser.epochs == 4


@pytest.mark.parametrize("form", FORMS)
def test_the_kl_is_as_strong_as_the_comment_says(form):
    """Against E[R], whose gradient the group mean scales by (G−1)/G."""
    made = recipe(form)
    own_mean = 1 - 1 / made.rollouts.group_size
    assert made.row.aggregation == "seq-mean-token-sum-norm"
    assert made.penalty.beta / own_mean == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize(
    ("row", "penalty"),
    [
        (["placement='advantage'"], ("advantage", "k3", "row", None, False)),
        (
            ["placement='advantage'", "recomputed=true", "weight='prefix'"],
            ("advantage", "k3", "prefix", 2.0, True),
        ),
        (["placement='surrogate'"], ("surrogate", "k3", "prefix", 2.0, False)),
        (
            ["placement='surrogate'", "estimator='exact'", "weight_cap=5"],
            ("surrogate", "exact", "prefix", 5.0, False),
        ),
    ],
)
def test_the_trainer_knows_each_row_of_the_decision_card(row, penalty):
    """The book says under `[kl]` what to write."""
    settings = ["optimiser.epochs=4", "kl.beta=0.1", *(f"kl.{setting}" for setting in row)]
    made = load("arithmetic-dr-grpo", settings).penalty
    found = (made.placement, made.estimator, made.weight, made.weight_cap, made.recomputed)
    assert found == penalty
