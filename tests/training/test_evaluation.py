"""Intervals for shares against the equation they solve, and verdicts on held-out problems."""

import math

import pytest
import torch

from nbcourse.lm import sampling
from nbcourse.training.evaluation import held_out_accuracy, verdicts, wilson_interval

from .small import learner, recipe

WARM = {"steps": 60, "batch_size": 32}


def root(function, low, high):
    """Where a function changes its sign, by bisection."""
    sign = function(low) > 0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) > 0) == sign else (low, middle)
    return (low + high) / 2


@pytest.mark.parametrize("z", [1.0, 1.96, 3.0])
@pytest.mark.parametrize(
    ("successes", "trials"), [(1, 2), (1, 10), (9, 10), (37, 100), (512, 1024), (3, 100_000)]
)
def test_the_ends_are_the_shares_that_lie_z_standard_errors_away(successes, trials, z):
    """|p̂ − p| = z √(p(1 − p)/n), the standard error taken at the unknown p and not at p̂."""
    seen = successes / trials

    def distance(p):
        return abs(seen - p) - z * math.sqrt(p * (1 - p) / trials)

    low, high = wilson_interval(successes, trials, z=z)
    assert low == pytest.approx(root(distance, 1e-12, seen), rel=1e-9)
    assert high == pytest.approx(root(distance, seen, 1 - 1e-12), rel=1e-9)


@pytest.mark.parametrize("trials", [1, 10, 1000])
def test_at_the_extremes_the_interval_neither_vanishes_nor_leaves_the_unit_interval(trials):
    """With no success p̂ = 0: n p² = z² p (1 − p), so p = z²/(n + z²)."""
    far = 1.96**2 / (trials + 1.96**2)
    assert wilson_interval(0, trials) == (0.0, pytest.approx(far))
    assert wilson_interval(trials, trials) == (pytest.approx(1 - far), 1.0)


def test_for_many_trials_it_is_the_textbooks_interval():
    low, high = wilson_interval(400_000, 1_000_000)
    radius = 1.96 * math.sqrt(0.4 * 0.6 / 1_000_000)
    assert (low, high) == pytest.approx((0.4 - radius, 0.4 + radius), abs=1e-6)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 4), (1, -4)])
def test_what_is_no_share_is_refused(successes, trials):
    with pytest.raises(ValueError, match=f"successes={successes} of trials={trials}: expected"):
        wilson_interval(successes, trials)


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
