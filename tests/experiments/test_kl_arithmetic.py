"""The ablation of the KL on arithmetic: five recipes that differ in the form of the KL alone."""

import json

import pytest

from nbcourse.experiments import records
from nbcourse.training.recipe import RewardSection, load

FORMS = ("k1-reward", "k2-loss", "k3-loss", "k3-token", "k3-prefix")


def recipe(form):
    return load(f"kl-{form}")


def test_the_recipes_differ_in_the_kl_alone():
    first, *others = (recipe(form).model_dump(exclude={"kl"}) for form in FORMS)
    assert all(other == first for other in others)
    assert first["optimiser"]["epochs"] == 4


def test_each_form_is_the_one_it_is_called_after():
    penalties = {form: recipe(form).penalty for form in FORMS}
    assert penalties["k1-reward"].placement == "reward"
    for form in ("k2-loss", "k3-loss"):
        assert (penalties[form].placement, penalties[form].estimator) == ("loss", form[:2])
    for form in ("k3-token", "k3-prefix"):
        assert (penalties[form].placement, penalties[form].weight) == ("surrogate", form[3:])


@pytest.mark.parametrize("form", FORMS)
def test_the_kl_is_equally_strong_in_all_forms(form):
    """Against E[R], whose gradient the group mean scales by (G−1)/G and the constant by 1/L."""
    made = recipe(form)
    own_mean = 1 - 1 / made.rollouts.group_size
    by_length = 1 / made.rollouts.max_new_tokens
    scale = {
        "reward": own_mean * by_length,
        "loss": by_length,
        "surrogate": 1.0,
    }[made.penalty.placement]
    assert made.row.aggregation == "seq-mean-token-sum-norm"
    assert made.penalty.beta * scale / (own_mean * by_length) == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("form", FORMS)
def test_the_recorded_runs_are_whole_and_of_the_recipes_in_the_folder(form, seed):
    run = records.RUNS / "kl-arithmetic" / f"{form}-seed{seed}"
    # as runs were before these keys: unfinished answers paid, and weights without a cap
    earlier = {"reward": RewardSection(accept_truncated=True)}
    made = load(f"kl-{form}", [f"seed={seed}"])
    earlier["kl"] = made.kl.model_copy(update={"weight_cap": None})
    assert records.read_recipe(run).in_use() == made.model_copy(update=earlier).in_use()
    assert [row["step"] for row in records.read_metrics(run)] == list(range(1, made.steps + 1))
    assert records.summarised_steps(run) == made.steps
    environment = json.loads((run / records.ENVIRONMENT).read_text(encoding="utf-8"))
    assert not environment["uncommitted_changes"]
