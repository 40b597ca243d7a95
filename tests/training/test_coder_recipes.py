"""The recipes for Qwen2.5-Coder-0.5B on GSM8K: untried on a card, tried here with all made small.

Each loads, says so in the list, is planned without its model, and trains two steps of a tiny one.
"""

import pytest
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.experiments.run import train
from nbcourse.training import recipe_files
from nbcourse.training.recipe import load
from tests import hub
from tests.effort import swept

FAMILY = "gsm8k-qwen2.5-coder-0.5b-"
NAMES = [name for name in recipe_files.names() if name.startswith(FAMILY)]
SMALL = {
    "steps": 2,
    "model.precision": "float32",
    "rollouts.engine": "eager",
    "rollouts.prompts": 2,
    "rollouts.group_size": 3,
    "rollouts.max_new_tokens": 5,
    "optimiser.prompts_at_once": 1,
    "evaluation.problems": 2,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Files in GSM8K's form, and a checkpoint in Qwen2.5's."""
    folder = tmp_path_factory.mktemp("coder")
    return hub.data(folder / "gsm8k", train=60, test=6), hub.checkpoint(folder / "qwen")


def test_the_family_is_there():
    kinds = {name.removeprefix(FAMILY) for name in NAMES}
    assert kinds == {"grpo", "rloo", "reinforce", "ppo", "icepop", "shuffled"}


@pytest.mark.parametrize("name", NAMES)
def test_the_list_says_that_it_is_untried_and_how_to_try_it(name):
    assert "Untried on a card: `nbcourse" in recipe_files.summary(name)
    assert f"`nbcourse train {name}" in recipe_files.summary(name)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_recorded_run_but_for_the_form_the_limit_and_its_own_change(name):
    made, base = load(name), load("gsm8k-qwen2.5-coder-0.5b-grpo")
    assert made.prompt == base.prompt
    assert made.rollouts == base.rollouts
    assert made.reward.lenient
    assert made.reward.shuffled == name.endswith("shuffled")
    assert (made.model.precision, made.model.gradient_checkpointing) == ("bfloat16", False)
    assert (made.optimiser.minibatches, made.optimiser.learning_rate) == (1, 5e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_needs_no_model_and_fits_one_card_of_80_gigabytes(name, places, monkeypatch):
    monkeypatch.setenv("NBCOURSE_GSM8K", str(places[0]))
    done = CliRunner().invoke(app, ["train", name, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "H100" in done.output
    assert "H100 does not fit" not in done.output


@pytest.mark.parametrize(
    "name", swept(NAMES, keep=[f"{FAMILY}{kind}" for kind in ("ppo", "icepop", "shuffled")])
)
def test_it_trains_two_steps_of_a_tiny_model(name, places, monkeypatch, tmp_path):
    monkeypatch.setenv("NBCOURSE_GSM8K", str(places[0]))
    changes = {**SMALL, "model.source": places[1]}
    made = load(name, [f"{key}={value}" for key, value in changes.items()])
    _, history = train(made, folder=tmp_path / "run", progress=False)
    assert [line["step"] for line in history] == [1, 2]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
