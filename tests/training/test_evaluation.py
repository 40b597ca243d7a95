"""Verdicts on held-out problems: which problems, and whether each verdict is the verifier's."""

import pytest
import torch

from nbcourse.lm import sampling
from nbcourse.training.evaluation import held_out_accuracy, verdicts

from .small import learner, recipe

WARM = {"steps": 60, "batch_size": 32}


@pytest.fixture(scope="module")
def half_taught():
    return learner(recipe("rloo", warm_start=WARM, task={"operations": "+-"}))


def test_verdicts_are_those_of_one_problem_after_the_other(half_taught, monkeypatch):
    """Greedily, on held-out problems, in batches of 24 and the rest."""
    asked = []
    whole = sampling.sample

    def watch(model, tokenizer, prompts, **options):
        assert options["greedy"]
        asked.extend(prompts)
        return whole(model, tokenizer, prompts, **options)

    monkeypatch.setattr(sampling, "sample", watch)
    found = verdicts(half_taught, 31)
    monkeypatch.undo()
    assert len(asked) == 31
    task = half_taught.recipe.task.build()
    trained = {
        p.prompt for p in task.draw(400, split="train", generator=torch.Generator().manual_seed(0))
    }
    assert not trained & set(asked)
    expected = []
    for prompt in asked:
        rollout = sampling.sample(
            half_taught.policy, half_taught.tokenizer, [prompt], max_new_tokens=4, greedy=True
        )
        answer = str(eval(prompt.removesuffix("=")))
        expected.append(float(rollout.texts(half_taught.tokenizer)[0] == answer))
    assert found.tolist() == expected


def test_every_evaluation_of_a_run_asks_the_same_problems(half_taught):
    assert torch.equal(verdicts(half_taught, 40), verdicts(half_taught, 40))
    assert held_out_accuracy(half_taught) == verdicts(half_taught, 8).mean().item()


def test_the_training_problems_can_be_asked_too(half_taught):
    assert 0.05 < verdicts(half_taught, 60, split="train").mean() <= 1.0
