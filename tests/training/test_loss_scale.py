"""Products in float16: a loss that is scaled, gradients that overflow, and a run that goes on."""

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from nbcourse.experiments import checkpoint
from nbcourse.experiments.run import train
from nbcourse.lm import descent
from nbcourse.training import loop
from tests.small import ALONE, learner, recipe, weights, without_costs

WARM = {"steps": 25, "batch_size": 32}
HALF = {"warm_start": WARM, "model": {"precision": "float16"}, "evaluation": {"every": 1}}


def scaler(scale):
    return torch.amp.GradScaler("cpu", init_scale=scale)


def steps(made, count):
    made.recipe = made.recipe.model_copy(update={"steps": count})
    return list(loop.steps(made, loop.begin(made.recipe), ALONE))


def broken(made, times):
    """The gradient of one parameter overflows so many times."""
    left = iter(range(times))
    parameter = dict(made.trained())["model.norm.weight"]
    parameter.register_hook(lambda g: g * math.inf if next(left, None) is not None else g)


def test_a_scale_changes_no_bit_where_nothing_underflows():
    """It is a power of two, and float32 has room for it."""
    plain, scaled = (learner(recipe("ppo", warm_start=WARM)) for _ in range(2))
    scaled.scaler = scaler(2.0**10)
    rows = [{**row, "loss_scale": 1024.0} for row in without_costs(steps(plain, 3))]
    assert without_costs(steps(scaled, 3)) == rows
    assert_close(weights(scaled), weights(plain), rtol=0, atol=0)


def test_small_gradients_survive_in_float16():
    """A loss of a millionth: without its scale, hardly a gradient of a product is a number."""
    made, gradients = learner(recipe("grpo", **HALF)), {}
    batch = torch.randint(3, 9, (4, 5), generator=torch.Generator().manual_seed(0))
    for name, scale in (("full", None), ("lost", 1.0), ("kept", 2.0**16)):
        with nullcontext() if scale is None else made.precision():
            loss = 1e-6 * made.policy(input_ids=batch, labels=batch).loss
        made.policy.zero_grad()
        (loss if scale is None else scaler(scale).scale(loss)).backward()
        weight = made.policy.model.layers[0].mlp.up_proj.weight
        gradients[name] = weight.grad / (scale or 1.0)
    wanted = gradients["full"].norm()
    assert (gradients["kept"] - gradients["full"]).norm() < 0.02 * wanted
    assert (gradients["lost"] - gradients["full"]).norm() > 0.2 * wanted


def test_an_update_that_overflows_is_left_out_and_the_next_is_smaller_in_scale():
    made = learner(recipe("grpo", **HALF))
    broken(made, 1)
    before = weights(made)
    (first,) = steps(made, 1)
    assert first["grad_norm"] == math.inf
    assert first["loss_scale"] == 2.0**15
    assert_close(weights(made), before, rtol=0, atol=0)
    (second,) = steps(made, 1)
    assert 0 < second["grad_norm"] < math.inf
    assert second["loss_scale"] == 2.0**15
    assert any(not torch.equal(now, before[name]) for name, now in weights(made).items())


def test_a_first_batch_without_a_gradient_is_a_step_like_any_other():
    """Every group has one reward, so that no loss is computed, and none is scaled."""
    made = learner(recipe("grpo", **{**HALF, "warm_start": {"steps": 0}}))
    (row,) = steps(made, 1)
    assert (row["no_spread"], row["grad_norm"], row["loss_scale"]) == (1.0, 0.0, 2.0**16)


def test_what_overflows_at_any_scale_is_named():
    made = learner(recipe("grpo", **HALF))
    made.scaler = scaler(2.0)
    broken(made, 2)
    message = r"^step 2: the gradient of model\.norm\.weight is not finite$"
    with pytest.raises(FloatingPointError, match=message):
        steps(made, 2)


def test_supervised_updates_are_the_same_with_a_scale_and_left_out_where_they_overflow():
    torch.manual_seed(0)
    one = nn.Linear(3, 2)
    other, start = copy.deepcopy(one), copy.deepcopy(one)
    inputs = torch.randn(8, 3)

    def learn(module, size, count, scale=None):
        return list(
            descent.updates(
                descent.optimiser_of(module),
                lambda step: [size * module(part).square().mean() for part in inputs.split(4)],
                label="a test",
                steps=range(count),
                learning_rate=lambda step: 0.1,
                scaler=scale,
            )
        )

    assert learn(one, 1.0, 3) == learn(other, 1.0, 3, scaler(2.0**10))
    assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
    before, overflowing = copy.deepcopy(start.state_dict()), scaler(2.0**127)
    learn(start, 1e3, 1, overflowing)
    assert overflowing.get_scale() == 2.0**126
    assert_close(start.state_dict(), before, rtol=0, atol=0)


def test_a_run_in_float16_goes_on_with_its_scale(tmp_path):
    whole, history = train(recipe("grpo", **HALF, steps=3), folder=tmp_path / "a", progress=False)
    train(recipe("grpo", **HALF, steps=2), folder=tmp_path / "b", progress=False)
    again, resumed = train(
        recipe("grpo", **HALF, steps=3), folder=tmp_path / "b", resume=True, progress=False
    )
    assert_close(weights(again), weights(whole), rtol=0, atol=0)
    assert without_costs(history) == without_costs(resumed)
    assert {row["loss_scale"] for row in history} == {2.0**16}
    assert all(row["grad_norm"] > 0 and row["gap"] < 0.1 for row in history)


def test_a_checkpoint_keeps_the_scale(tmp_path):
    made = learner(recipe("grpo", **HALF))
    made.scaler = scaler(1024.0)
    checkpoint.save_start(tmp_path, made)
    checkpoint.save(tmp_path, made, loop.begin(made.recipe))
    loaded, _ = checkpoint.load(tmp_path, made.recipe, torch.device("cpu"))
    assert loaded.scaler.get_scale() == 1024.0
