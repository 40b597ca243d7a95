"""The plain programs and the real loop: the same numbers, to the last bit."""

import copy

import pytest
import torch

from nbcourse import grpo_on_one_page as page
from nbcourse import ppo_on_one_page
from nbcourse.experiments import records
from nbcourse.training import loop
from nbcourse.training.recipe import check, load
from tests.effort import swept
from tests.small import ALONE, learner, without_costs

SFT = records.RUNS / "arithmetic-sft-seed0" / "model"
STEPS, EVERY = 7, 5  # past the warm-up of the learning rate, and two evaluations
PROMPTS, HELD_OUT = 16, 16  # of which enough have something to teach
SEEDS = pytest.mark.parametrize("seed", swept([0, 1], keep=[0]))
PPO = ["kl.beta=0.05", "optimiser.epochs=2", "optimiser.minibatches=2"]
PAGES = {
    "grpo": (page, page.grpo, load("arithmetic-grpo"), [1, EVERY, STEPS]),
    "ppo": (ppo_on_one_page, ppo_on_one_page.ppo, load("arithmetic-ppo", PPO), range(1, STEPS + 1)),
}


@pytest.mark.slow
@SEEDS
@pytest.mark.parametrize("name", PAGES)
def test_the_page_gives_the_numbers_of_the_real_loop(name, seed, monkeypatch):
    """From one model that was warmed up before; the next test compares two warm starts.

    It is loaded twice, not copied: where in memory weights begin decides how products are rounded.
    """
    module, program, whole, measured = PAGES[name]
    monkeypatch.setattr(module, "EVERY", EVERY)
    monkeypatch.setattr(page, "HELD_OUT", HELD_OUT)
    for each in {page, module}:
        monkeypatch.setattr(each, "PROMPTS", PROMPTS)
    tables = whole.model_dump(exclude_unset=True, exclude={"warm_start"})
    tables |= {"seed": seed, "steps": STEPS, "model": {"source": str(SFT)}}
    tables["rollouts"] = {**tables.get("rollouts", {}), "prompts": PROMPTS}
    recipe = check({**tables, "evaluation": {"every": EVERY, "problems": HELD_OUT}})
    made, start = learner(recipe), learner(recipe).policy
    plain = program(made.tokenizer, start, seed, STEPS)
    real = without_costs(loop.steps(made, loop.begin(recipe), ALONE))
    assert len(real) == STEPS
    assert {"reward", "grad_norm", "policy_loss", "updates"} < real[0].keys()
    assert [row["step"] for row in real if "held_out" in row] == [EVERY, STEPS]
    assert [row["step"] for row in real if "kl_ref" in row] == list(measured)
    assert 0 < real[0]["no_spread"] < 1  # some groups have something to teach, and not all
    if name == "ppo":
        assert all(min(row["clip_low"], row["clip_high"], row["kl_old"]) > 0 for row in real)
    for expected, found in zip(real, plain, strict=True):
        expected.pop("kl_sampler")  # which the page does without
        # The loop asks the reference in parts, whose products a processor may round otherwise.
        nearly = (
            {"kl_ref": pytest.approx(expected["kl_ref"], abs=1e-6)} if "kl_ref" in found else {}
        )
        assert found == {**expected, **nearly}


@SEEDS
def test_the_page_warms_up_the_same_model(seed, monkeypatch):
    """The same weights and a tokenizer alike, if both teachers teach for fewer steps."""
    changes = [f"seed={seed}", "warm_start.steps=6", "warm_start.careless_steps=3"]
    (_, *careful), (_, *careless) = page.TEACHERS
    monkeypatch.setattr(page, "TEACHERS", [(6, *careful), (3, *careless)])
    tokenizer, policy = page.warmed_up(seed)
    made = learner(load("arithmetic-grpo", changes))
    assert tokenizer.get_vocab() == made.tokenizer.get_vocab()
    for (name, found), (_, expected) in zip(
        policy.named_parameters(), made.policy.named_parameters(), strict=True
    ):
        assert torch.equal(found, expected), name


def test_a_batch_without_any_spread_is_a_step_without_a_gradient(monkeypatch):
    """A new model is never right; the real loop makes the same step."""
    for name, value in {"PROMPTS": 4, "GROUP_SIZE": 2, "HELD_OUT": 4}.items():
        monkeypatch.setattr(page, name, value)
    sizes = ["rollouts.prompts=4", "rollouts.group_size=2", "evaluation.problems=4", "steps=1"]
    changed = load("arithmetic-grpo", sizes)
    recipe = check(changed.model_dump(exclude_unset=True, exclude={"warm_start"}))
    made = learner(recipe)
    policy = copy.deepcopy(made.policy)
    (found,) = page.grpo(made.tokenizer, policy, seed=0, steps=1)
    assert (found["no_spread"], found["grad_norm"], found["policy_loss"]) == (1, 0, 0)
    for before, after in zip(made.policy.parameters(), policy.parameters(), strict=True):
        assert before.equal(after)
    (real,) = without_costs(loop.steps(made, loop.begin(recipe), ALONE))
    assert {"kl_ref", "grad_norm", "policy_loss"} < real.keys() < found.keys()
    # kl_ref is rounding alone, and that depends on the processor
    assert {name: found[name] for name in real} == pytest.approx(real, abs=1e-6, nan_ok=True)


def test_what_these_runs_cannot_show_is_as_in_the_recipe():
    """How long training and teaching last, on how many problems; a clip, which is idle at first."""
    for _, _, recipe, _ in PAGES.values():
        taught = [recipe.warm_start.steps, recipe.warm_start.careless_steps]
        assert [steps for steps, _, _ in page.TEACHERS] == taught
        assert (recipe.steps, recipe.evaluation.every) == (page.STEPS, page.EVERY)
        asked = (recipe.rollouts.prompts, recipe.evaluation.problems)
        assert asked == (page.PROMPTS, page.HELD_OUT)
    settings = PAGES["grpo"][2].settings
    assert settings["clip_low"] == page.CLIP
    assert settings["clip_high"] is settings["dual_clip"] is None
