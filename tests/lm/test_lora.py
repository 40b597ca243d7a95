"""Adapters: what learns and what stays, the reference without a copy, the model that is kept."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from nbcourse.experiments import checkpoint, evaluation, forecast, pretraining, run
from nbcourse.lm import loading, lora, tiny
from nbcourse.training.experience import Draws, collect
from nbcourse.training.recipe import check
from tests.small import ALONE, base_recipe, learner, tables, weights, without_costs

RANK = 3
IDS = torch.arange(2, 10).view(2, 4)


@pytest.fixture
def model():
    made = tiny.model(tiny.tokenizer(), layers=2, width=32, heads=4)
    lora.add(made, rank=RANK, seed=1)
    return made


def shifted(model, by=0.3):
    """As if the adapter had learned."""
    source = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data += by * torch.randn(parameter.shape, generator=source)
    return model


def test_a_fresh_adapter_changes_nothing_and_alone_is_trained(model):
    plain = tiny.model(tiny.tokenizer(), layers=2, width=32, heads=4)
    assert torch.equal(model(IDS).logits, plain(IDS).logits)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    matrices = [m for n, m in plain.named_modules() if isinstance(m, torch.nn.Linear) and "_" in n]
    matrices = [m for m in matrices if m is not plain.get_output_embeddings()]
    assert len(matrices) == 14
    assert sum(p.numel() for p in trained.values()) == sum(
        RANK * sum(m.weight.shape) for m in matrices
    )
    assert all("lora_" in name for name in trained)
    names = dict(plain.named_parameters())
    assert {n for n, _ in lora.own_parameters(model)} == set(names)
    assert all(torch.equal(p, names[n]) for n, p in lora.own_parameters(model))


def test_the_adapter_stays_what_it_is_in_the_class_of_peft(model):
    """The same parameters, which learn and are switched off on either side."""
    shifted(model)
    before = dict(model.named_parameters())
    logits = model(IDS).logits
    state = torch.get_rng_state()
    whole = lora.as_peft(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert whole.get_base_model() is model
    assert lora.inside(whole) is lora.inside(model) is model
    after = dict(model.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert {n for n, p in after.items() if p.requires_grad} == {n for n in after if "lora_" in n}
    assert torch.equal(whole(IDS).logits, logits)
    with lora.off(model):
        plain = model(IDS).logits
    with whole.disable_adapter():
        assert torch.equal(model(IDS).logits, plain)
    assert torch.equal(model(IDS).logits, logits)
    assert not torch.equal(plain, logits)


def test_the_seed_decides_the_adapter_and_no_other_random_number():
    def first(seed):
        made = tiny.model(tiny.tokenizer(), layers=1, width=32, heads=4)
        before = torch.get_rng_state()
        lora.add(made, rank=2, seed=seed)
        assert torch.equal(before, torch.get_rng_state())
        return next(p for n, p in made.named_parameters() if "lora_A" in n)

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_switched_off_it_is_what_it_was_and_learns_on_afterwards(model):
    before = model(IDS).logits
    after = shifted(model)(IDS).logits
    assert (after - before).abs().max() > 0.1
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    with lora.off(model):
        assert torch.equal(model(IDS).logits, before)
    assert torch.equal(model(IDS).logits, after)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == trained
    with pytest.raises(KeyError), lora.off(model):
        raise KeyError
    assert torch.equal(model(IDS).logits, after)


def test_merged_it_is_the_same_function_without_an_adapter(model):
    shifted(model)
    plain = lora.merged(model)
    assert not lora.is_on(plain)
    assert lora.is_on(model)
    assert_close(plain(IDS).logits, model(IDS).logits, rtol=1e-4, atol=1e-5)
    assert lora.merged(plain) is plain
    delta = plain.model.layers[0].mlp.up_proj.weight - model.model.layers[0].mlp.up_proj.weight
    layer = model.model.layers[0].mlp.up_proj
    product = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    assert_close(delta, lora.ALPHA / RANK * product, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------- in a run


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A folder with a model that answers a few sums."""
    folder = tmp_path_factory.mktemp("source")
    made = check(tables(steps=1, warm_start={"steps": 60, "batch_size": 32}))
    run.train(made, folder=folder, progress=False)
    return folder / "model"


def adapted(source, *, precision="float32", **changes):
    made = tables(
        steps=3,
        kl={"beta": 0.1, "placement": "loss"},
        optimiser={"learning_rate": 0.01, "prompts_at_once": 2},
        checkpoint={"every": 1},
        evaluation={"problems": 8},
        **changes,
    )
    model = {"source": str(source), "lora_rank": RANK, "precision": precision}
    return check({**made, "model": model})


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_a_run_moves_the_adapter_alone_and_its_reference_stays(source, tmp_path, name):
    made, history = run.train(
        adapted(source, algorithm={"name": name}), folder=tmp_path, progress=False
    )
    assert made.reference is made.policy
    _, before = loading.load(source, "cpu")
    names = dict(before.named_parameters())
    assert all(torch.equal(p.cpu(), names[n]) for n, p in lora.own_parameters(made.policy))
    moved = [p for n, p in made.trained() if "lora_B" in n]
    assert any(p.abs().max() > 0 for p in moved)
    assert history[-1]["kl_ref"] != 0.0
    rollout = collect(made, Draws(made.recipe), ALONE).rollout
    plain = learner(check({**tables(), "model": {"source": str(source)}}))
    expected = plain.ref_log_probs(rollout, group_size=4)
    assert torch.equal(made.ref_log_probs(rollout, group_size=4), expected)
    assert not torch.equal(made.log_probs(rollout, group_size=4), expected)
    # what is kept is a model as any other, and is compared with the one before
    _, kept = loading.load(tmp_path / "model", "cpu")
    assert_close(kept(IDS).logits, made.policy.cpu()(IDS).logits, rtol=1e-4, atol=1e-4)
    result = evaluation.evaluate(tmp_path, problems=8, progress=False)
    checkpoint.load_start(tmp_path / run.CHECKPOINTS, kept)
    assert torch.equal(kept(IDS).logits, before(IDS).logits)
    assert {"before", "after"} <= set(result)


def test_the_plan_of_a_run_with_an_adapter_is_that_of_less_memory(source, tmp_path, monkeypatch):
    """12 bytes less for each weight that does not learn, and 4 for the reference it saves."""
    monkeypatch.setattr(forecast, "resident", lambda: 0)  # of this process, which is not the run's
    needed = {}
    for rank in (RANK, None):
        asked = adapted(source)
        model = asked.model.model_copy(update={"lora_rank": rank})
        run.keep_plan(tmp_path, asked.model_copy(update={"model": model}), None)
        phases = json.loads((tmp_path / "plan.json").read_text("utf-8"))["phases"]
        needed[rank] = phases["sample"]["memory"]
    weights = sum(p.numel() for p in loading.load(source, "cpu")[1].parameters())
    assert 12 * weights < needed[None] - needed[RANK] < 16 * weights


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(source, tmp_path, precision):
    """In float16 too, as on an older card: the adapter and its moments stay in float32."""
    asked = adapted(source, precision=precision)
    whole, history = run.train(asked, folder=tmp_path / "whole", progress=False)
    short = asked.model_copy(update={"steps": 1})
    run.train(short, folder=tmp_path / "parts", progress=False)
    parts, again = run.train(asked, folder=tmp_path / "parts", resume=True, progress=False)
    assert parts.reference is parts.policy
    assert without_costs(history[1:]) == without_costs(again[1:])
    assert all(0 < row["grad_norm"] < math.inf for row in history)
    assert all(("loss_scale" in row) == (precision == "float16") for row in history)
    ours, theirs = weights(whole), weights(parts)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert {parameter.dtype for parameter in ours.values()} == {torch.float32}
    with parts.precision():
        assert parts.policy(IDS.to(parts.policy.device)).logits.dtype == getattr(torch, precision)
    (tensors,) = (tmp_path / "parts").glob("checkpoint/step-*/tensors.safetensors")
    trained = sum(p.numel() for _, p in whole.trained())
    assert tensors.stat().st_size < 3 * 4 * trained + 20_000  # and no weight that never moves


def test_supervised_learning_with_an_adapter(tmp_path):
    made = base_recipe(model={"lora_rank": RANK})
    _, model, history = pretraining.pretrain(made, folder=tmp_path, progress=False)
    assert history[-1]["loss"] < history[0]["loss"]
    _, kept = loading.load(tmp_path / "model", "cpu")
    assert not lora.is_on(kept)
    assert_close(kept(IDS).logits, model.cpu()(IDS).logits, rtol=1e-4, atol=1e-4)
