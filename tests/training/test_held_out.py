"""Verdicts on held-out problems: which problems, and whether each verdict is the verifier's."""

from dataclasses import replace

import pytest
import torch

from nbcourse.lm import sampling
from nbcourse.training.held_out import ask, held_out_accuracy, verdicts
from tests.small import learner, recipe

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


def test_an_answer_that_is_cut_off_is_wrong_unless_the_recipe_says_otherwise(half_taught):
    """With room for one character, no answer ends itself, and those of one digit are there."""
    recipe = half_taught.recipe
    rollouts = recipe.rollouts.model_copy(update={"max_new_tokens": 1})
    shares = []
    for accept in (False, True):
        reward = recipe.reward.model_copy(update={"accept_truncated": accept})
        changed = recipe.model_copy(update={"rollouts": rollouts, "reward": reward})
        shares.append(verdicts(replace(half_taught, recipe=changed), 60, split="train").mean())
    assert shares[0] == 0 < shares[1]


def test_the_training_problems_can_be_asked_too(half_taught):
    assert 0.05 < verdicts(half_taught, 60, split="train").mean() <= 1.0


def test_samples_of_one_problem_stand_side_by_side_whatever_the_batches(half_taught, monkeypatch):
    """Almost without chance, so that each sample is the greedy answer; two prompts at a time."""
    task = half_taught.recipe.task.build()
    problems = task.draw(7, split="test", generator=torch.Generator().manual_seed(0))
    common = {"max_new_tokens": 4, "precision": half_taught.precision()}
    models = (half_taught.policy, half_taught.tokenizer, half_taught.prompts(problems))
    greedy = ask(*models, **common)
    source = torch.Generator().manual_seed(0)
    sizes, whole = [], sampling.sample

    def watch(*arguments, **options):
        rollout = whole(*arguments, **options)
        sizes.append(len(rollout.tokens))
        return rollout

    monkeypatch.setattr(sampling, "sample", watch)
    sampled = ask(*models, **common, samples=3, temperature=1e-5, generator=source, at_once=7)
    assert sizes == [6, 6, 6, 3]
    assert len(set(greedy.texts)) > 4
    assert sampled.texts == [text for text in greedy.texts for _ in range(3)]
    assert sampled.lengths.tolist() == greedy.lengths.repeat_interleave(3).tolist()
    assert sampled.truncated.tolist() == greedy.truncated.repeat_interleave(3).tolist()
    assert greedy.lengths.tolist() == [
        len(text) + (not cut) for text, cut in zip(greedy.texts, greedy.truncated, strict=True)
    ]
