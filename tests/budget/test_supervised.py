"""Supervised steps as the arithmetic has them, against what PyTorch counts and allocates."""

import pytest

from nbcourse.budget import shapes, supervised
from nbcourse.budget.supervised import Lengths
from nbcourse.experiments import pretraining
from nbcourse.lm.descent import optimiser_of, updates
from nbcourse.training.models import load_model, load_tokenizer
from tests.budget.test_prediction import allocated, counting
from tests.small import base_recipe, recipe

PARTS = ("pretraining", "supervised")


def test_texts_are_as_long_as_they_are_padded():
    """Three texts, the shorter two of which are learned from at once; each response has an end."""
    tokenizer = load_tokenizer(recipe(task={"digits": 2}))
    pairs = [("1+1=", "2"), ("12+13=", "25"), ("99+99=", "198")]
    found = supervised.look_at(lambda step: pairs, tokenizer, 1, at_once=2)
    assert found.shortest == Lengths(4, 2)
    assert found.usual == Lengths(6, round((3 + 4) / 2))
    assert found.longest == Lengths(6, 4)


@pytest.mark.parametrize("name", PARTS)
def test_the_work_of_a_supervised_step_is_what_pytorch_counts(name):
    """The mean over the stage's own batches; texts of other lengths than the mean cost a little."""
    asked = base_recipe()
    tokenizer, model = load_model(asked, "cpu")
    model.set_attn_implementation("eager")
    (stage,) = (s for s in supervised.stages_of(asked) if s.name == name)
    with counting() as seen:
        for step in range(stage.steps):
            for loss in pretraining._losses(asked, tokenizer, model, name, step):
                loss.backward()
    shape = shapes.shape_of(asked)
    shortest, usual, longest = (
        stage.work(shape, lengths)["learn"].flops
        for lengths in (stage.texts.shortest, stage.texts.usual, stage.texts.longest)
    )
    counted = seen.get_total_flops() / stage.steps
    assert shortest < counted < longest
    assert usual == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize("name", PARTS)
def test_the_peak_of_a_supervised_step_is_what_the_allocator_sees(name):
    """Of the stage's batches, the largest; weights and moments are there before.

    Texts are learned from one by one, so that the longest is not padded. The longest prompt need
    not be that of the longest solution; in pretraining all prompts are one token.
    """
    one = {"at_once": 1}
    asked = base_recipe(model={"width": 64, "layers": 2}, pretraining=one, supervised=one)
    tokenizer, model = load_model(asked, "cpu")
    (stage,) = (s for s in supervised.stages_of(asked) if s.name == name)
    optimiser = optimiser_of(model)

    def step(number: int) -> None:
        losses = updates(
            optimiser,
            lambda step: pretraining._losses(asked, tokenizer, model, name, step),
            label=name,
            steps=range(number, number + 1),
            learning_rate=lambda step: 1e-4,
        )
        list(losses)

    step(0)  # makes the moments
    optimiser.zero_grad()
    measured = max(max(allocated(lambda n=n: step(n))) for n in range(stage.steps))
    owners = stage.memory(shapes.shape_of(asked))
    assert "reference" not in owners
    standing = owners["weights"] + owners["moments"]
    tolerance = 1 / 8 if name == "pretraining" else 1 / 4
    assert sum(owners.values()) - standing == pytest.approx(measured, rel=tolerance)


def test_a_warm_start_is_planned_in_float32_and_in_one_piece():
    """Which is how it is made, whatever the precision of the steps that follow."""
    asked = recipe(
        model={"precision": "bfloat16"},
        warm_start={"steps": 3, "careless_steps": 2, "batch_size": 8},
        task={"digits": 1},
    )
    stages = supervised.warm_start_of(asked)
    assert [(s.name, s.steps) for s in stages] == [("warm start", 3), ("careless teacher", 2)]
    assert {(s.batch_size, s.at_once, s.model.precision) for s in stages} == {(8, 8, "float32")}
    assert supervised.warm_start_of(recipe()) == []
    plan = stages[0].plan(shapes.shape_of(asked), stages[0].texts.longest)
    assert (plan.minibatch, plan.slice) == (8, 8)


def test_the_logits_of_a_supervised_step_are_whole_whatever_the_vocabulary():
    asked = recipe(warm_start={"steps": 3, "batch_size": 8})
    (stage,) = supervised.warm_start_of(asked)
    assert not stage.plan(shapes.PUBLISHED["smollm2"], Lengths(10, 10)).chunked
