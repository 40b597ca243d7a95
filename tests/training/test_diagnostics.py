"""What a run tells about itself, against loops over tokens and the functions of the book."""

import math
import statistics
from dataclasses import replace

import pytest
import torch

from nbcourse.functional.surrogates import clip_fraction
from nbcourse.training import diagnostics
from nbcourse.training.algorithms import ALGORITHMS, Estimate, Penalty, Tokens, gae
from nbcourse.training.diagnostics import Means
from nbcourse.training.experience import Draws, collect
from tests.small import ALONE, learner, recipe

NAN = math.nan


def doubles(rows):
    return torch.tensor(rows, dtype=torch.float64)


def tokens(name, log_ratio, advantages, mask, *, sampler_log_probs=None, **settings):
    """What `of_tokens` counts, for log-probs at this distance from the old ones."""
    old = torch.full_like(log_ratio, -2.0)
    means = Means()
    diagnostics.of_tokens(
        means,
        ALGORITHMS[name],
        {**ALGORITHMS[name].all_settings, **settings},
        Tokens(old + log_ratio, old, old, advantages, mask),
        sampler_log_probs=sampler_log_probs,
    )
    return means.result()


# ---------------------------------------------------------------- clip fractions


@pytest.mark.parametrize("clips", [{}, {"clip_low": 0.1, "clip_high": 0.4}, {"clip_low": 1.0}])
@pytest.mark.parametrize("name", ["ppo", "grpo", "dapo", "reinforce++"])
def test_for_ppos_clip_it_is_the_clip_fraction(name, clips):
    generator = torch.Generator().manual_seed(0)
    log_ratio = 0.4 * torch.randn(8, 9, generator=generator, dtype=torch.float64)
    advantages = torch.randn(8, 9, generator=generator, dtype=torch.float64)
    advantages[3] = 0.0
    mask = torch.rand(8, 9, generator=generator) < 0.7
    log_ratio[~mask] = NAN
    found = tokens(name, log_ratio, advantages, mask, **clips)
    settings = {**ALGORITHMS[name].all_settings, **clips}
    old = torch.zeros_like(log_ratio)
    for side in ("low", "high"):
        expected = clip_fraction(
            log_ratio.masked_fill(~mask, 0.0),
            old,
            advantages,
            mask,
            clip_low=settings["clip_low"],
            clip_high=settings["clip_high"],
            side=side,
        )
        assert found[f"clip_{side}"] == pytest.approx(expected.item())
    if not clips:
        assert found["clip_low"] > 0.05
        assert found["clip_high"] > 0.05


def test_a_dual_clip_is_on_the_high_side():
    """Ratios 4 and 2 with A < 0 and a dual clip of 3: the first has no gradient; 0.5 is low."""
    log_ratio = doubles([[4.0, 2.0, 0.5, 4.0, NAN]]).log()
    advantages = doubles([[-1.0, -1.0, -1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, True, True, False]])
    found = tokens("grpo", log_ratio, advantages, mask, dual_clip=3.0)
    assert (found["clip_high"], found["clip_low"]) == (2 / 4, 1 / 4)
    found = tokens("grpo", log_ratio, advantages, mask)
    assert (found["clip_high"], found["clip_low"]) == (1 / 4, 1 / 4)


def test_gspo_clips_whole_responses():
    """Mean log-ratios 0.1, −0.1, 0.1, −0.1 and one inside; by length 2, 1, 2, 3 and 2 of 10."""
    log_ratio = doubles(
        [[0.5, -0.3, NAN], [-0.1, NAN, NAN], [0.3, -0.1, NAN], [0.4, -0.6, -0.1], [0.3, -0.3, NAN]]
    )
    advantages = doubles([[1.0], [1.0], [-1.0], [-1.0], [1.0]]).expand(5, 3)
    mask = log_ratio.isfinite()
    found = tokens("gspo", log_ratio, advantages, mask, clip_low=0.05, clip_high=0.05)
    # Row 0 is too likely already, row 3 too unlikely; rows 1 and 2 are on the way back.
    assert (found["clip_high"], found["clip_low"]) == (2 / 10, 3 / 10)


def test_cispo_leaves_every_token_its_gradient():
    log_ratio = doubles([[3.0, -3.0, 0.1, NAN]])
    advantages = doubles([[1.0, -1.0, 1.0, 1.0]])
    found = tokens("cispo", log_ratio, advantages, log_ratio.isfinite())
    assert (found["clip_high"], found["clip_low"]) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["reinforce", "reinforce-ema", "remax", "rloo"])
def test_without_a_ratio_there_is_no_clip_to_speak_of(name):
    found = tokens(name, doubles([[1.0]]), doubles([[1.0]]), torch.tensor([[True]]))
    assert set(found) == {"kl_old"}


def test_on_average_over_what_the_old_policy_draws_it_is_the_kl_from_the_old_policy():
    old, new = doubles([0.8, 0.15, 0.05]), doubles([0.3, 0.3, 0.4])
    counted, one = torch.tensor([[True]]), doubles([[1.0]])
    mean = 0.0
    for p, log_ratio in zip(old.tolist(), (new / old).log(), strict=True):
        mean += p * tokens("grpo", log_ratio * one, one, counted)["kl_old"]
    assert mean == pytest.approx((old * (old / new).log()).sum().item())


def test_the_kl_to_the_old_policy_and_the_largest_gap_to_the_sampler_by_hand():
    log_ratio = doubles([[0.5, -0.25, NAN], [0.1, NAN, NAN]])
    mask = log_ratio.isfinite()
    sampler = doubles(
        [[-1.5, -2.25, 7.0], [-2.6, NAN, 7.0]]
    )  # where −1.5, −2.25 and −1.9 stand now
    found = tokens("grpo", log_ratio, torch.ones(2, 3).double(), mask, sampler_log_probs=sampler)
    k3 = [math.exp(d) - 1 - d for d in (0.5, -0.25, 0.1)]
    assert found["kl_old"] == pytest.approx(sum(k3) / 3)
    assert found["gap"] == pytest.approx(0.7)
    now = [d - s for d, s in zip((-1.5, -2.25, -1.9), (-1.5, -2.25, -2.6), strict=True)]
    assert found["kl_sampler"] == pytest.approx(sum(math.exp(d) - 1 - d for d in now) / 3)
    assert "gap" not in tokens("grpo", log_ratio, torch.ones(2, 3), log_ratio.isfinite())


def test_counting_leaves_no_trace():
    """The gradient that is looked at belongs to a copy."""
    log_probs = doubles([[-1.0, -2.0]]).requires_grad_()
    diagnostics.of_tokens(
        Means(),
        ALGORITHMS["ppo"],
        ALGORITHMS["ppo"].all_settings,
        Tokens(
            log_probs,
            old_log_probs=doubles([[-1.5, -1.5]]),
            ref_log_probs=doubles([[-1.5, -1.5]]),
            advantages=doubles([[1.0, 1.0]]),
            mask=torch.tensor([[True, True]]),
        ),
    )
    assert log_probs.grad is None


# ---------------------------------------------------------------- means


def test_means_are_totals_by_counts():
    means = Means()
    means.add("a", torch.tensor(6.0), torch.tensor(3))
    means.add("a", 2.0)
    means.add("loss", 0.25, 0)  # slices of one loss add up,
    means.add("loss", 0.5, 0)
    means.add("loss", 0.0)  # and are counted once
    means.peak("top", 1.0)
    means.peak("top", torch.tensor(-3.0))
    assert means.result() == {"a": 2.0, "loss": 0.75, "top": 1.0}
    assert means.mean("nothing") == 0.0


def test_means_of_two_processes_are_the_means_of_all():
    one, two, all_of_it = Means(), Means(), Means()
    for means in (one, all_of_it):
        means.add("a", 4.0, 2)
        means.peak("top", -5.0)
    for means in (two, all_of_it):
        means.add("a", 1.0, 8)
        means.add("b", 3.0)
        means.peak("top", -7.0)
    one.merge(two)
    assert one.result() == all_of_it.result() == {"a": 0.5, "b": 3.0, "top": -5.0}


# ---------------------------------------------------------------- before learning


def test_what_is_said_of_experience_by_loops_over_it():
    made = learner(
        recipe(
            "grpo",
            warm_start={"steps": 15, "batch_size": 32},
            reward={"truncation_penalty": 0.5},
        )
    )
    experience = collect(made, Draws(made.recipe), ALONE)
    rollout, rows = experience.rollout, range(24)
    log_probs = [rollout.log_probs[i][rollout.mask[i]].tolist() for i in rows]
    found = diagnostics.of_experience(experience)
    lengths = [len(row) for row in log_probs]
    assert found["length"] == pytest.approx(sum(lengths) / 24)
    for name, verdict in (("length_right", 1.0), ("length_wrong", 0.0)):
        some = [lengths[i] for i in rows if experience.correct[i] == verdict]
        mean = sum(some) / len(some) if some else math.nan
        assert found[name] == pytest.approx(mean, nan_ok=True)
    assert found["length_wrong"] > 0
    assert found["entropy"] == pytest.approx(-sum(map(sum, log_probs)) / sum(lengths), rel=1e-5)
    assert found["truncated"] == sum(rollout.truncated.tolist()) / 24 > 0
    assert found["reward"] == pytest.approx(sum(experience.scores.tolist()) / 24)
    assert found["accuracy"] == pytest.approx(found["reward"] + 0.5 * found["truncated"], abs=1e-6)
    groups = [experience.scores.tolist()[i : i + 4] for i in range(0, 24, 4)]
    assert found["no_spread"] == sum(len(set(group)) == 1 for group in groups) / 6
    distance = diagnostics.kl_to_reference(made, experience)
    assert distance == pytest.approx(0.0, abs=1e-5)  # the reference is the policy still


# ---------------------------------------------------------------- the critic


def judged(*, advantage, beta=0.0, **settings):
    """Both explained variances of a critic that says something else about each state."""
    made = learner(recipe("ppo", warm_start={"steps": 15, "batch_size": 32}, algorithm=settings))
    experience = collect(made, Draws(made.recipe), ALONE)
    source = torch.Generator().manual_seed(0)
    values = 0.3 * torch.randn(experience.rollout.mask.shape, generator=source)
    penalty = Penalty("reward" if beta else "none", beta=beta)
    experience = replace(
        experience, values=values, ref_log_probs=experience.rollout.log_probs + 2 * values
    )
    row = replace(ALGORITHMS["ppo"], advantage=advantage)
    estimate = row.estimate(
        made.recipe.settings,
        rewards=experience.rewards(penalty),
        mask=experience.rollout.mask,
        values=values,
    )
    found = diagnostics.of_critic(made, experience, estimate, penalty)
    return experience, values, penalty, list(found.values())


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_what_was_paid_is_the_target_where_lambda_is_one(gamma):
    _, _, _, (targets, paid) = judged(advantage=gae, beta=0.3, lam=1.0, gamma=gamma)
    assert paid == pytest.approx(targets, abs=1e-5)
    _, _, _, (targets, after) = judged(advantage=gae, beta=0.3, lam=0.2, gamma=gamma)
    assert after == pytest.approx(paid, abs=1e-5)  # λ says nothing about what was paid
    assert abs(targets - paid) > 0.1


def test_what_was_paid_is_added_up_token_by_token_whatever_the_targets_are():
    def wrong(rewards, mask, *, values, lam=0.95, gamma=1.0):
        return replace(gae(rewards, mask, values=values), returns=values + 1.0)

    experience, values, penalty, (targets, paid) = judged(advantage=wrong, beta=0.3)
    rewards, mask = experience.rewards(penalty), experience.rollout.mask
    to_go, said = [], []
    for i in range(len(mask)):
        kept = rewards[i][mask[i]].tolist()
        to_go += [sum(kept[t:]) for t in range(len(kept))]
        said += values[i][mask[i]].tolist()
    errors = [r - v for r, v in zip(to_go, said, strict=True)]
    assert targets == pytest.approx(1.0)  # a critic that is graded by itself
    expected = 1 - statistics.pvariance(errors) / statistics.pvariance(to_go)
    assert paid == pytest.approx(expected, abs=1e-6)  # of 1, in float32


def test_where_there_is_no_critic_nothing_is_said_of_one():
    made = learner(recipe("grpo"))
    experience = collect(made, Draws(made.recipe), ALONE)
    estimate = Estimate(experience.rewards(Penalty()))
    assert diagnostics.of_critic(made, experience, estimate, Penalty()) == {}
