"""Sampler and learner in a coarse precision, tokens nobody drew, empty masks, and half a model."""

from itertools import islice

import pytest
import torch

from nbcourse.diagnosis import planting
from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.diagnosis.names import translated
from nbcourse.diagnosis.recorder import Recorder
from nbcourse.diagnosis.stated import DRIFT, apart, sampled
from nbcourse.diagnosis.witness import Witness
from nbcourse.experiments import evidence, records
from nbcourse.experiments.small_lab import ALONE, learner_of, recipe_of, train
from nbcourse.functional import kl
from nbcourse.training import loop
from tests.diagnosis.runs import SEED, causes, sound

BFLOAT16 = {"model": {"precision": "bfloat16"}}
BATCH = records.RUNS / "smollm2-word-problems-batch"


def changed(witness, *, facts=None, without=(), **tensors):
    """A witness with other facts and tensors."""
    kept = {name: t.clone() for name, t in witness.tensors.items() if name not in without}
    return Witness(witness.facts | (facts or {}), kept | tensors)


def rows(count=6, **numbers):
    return [{"step": step, **numbers} for step in range(1, count + 1)]


# ---------------------------------------------------------------- two passes


def test_the_mean_k3_of_a_recorded_run_in_bfloat16_is_far_below_the_limit():
    (one,) = evidence.read(BATCH).witnesses
    assert one.facts["precision"] == "bfloat16"
    drew, scored, mask = one["sampler_log_probs"], one["plain_log_probs"], sampled(one)
    assert 1e-4 < kl.estimate(drew, scored, "k3")[mask].mean() < DRIFT["bfloat16"] / 5
    assert not apart(one, drew, scored, mask)
    assert causes(Evidence("x", [one])) == []


@pytest.mark.parametrize(
    ("precision", "others", "one", "named"),
    [
        ("bfloat16", 0.02, -5.0, []),  # the largest of a recorded sound run
        ("float32", 0.0, -5.0, ["sampler-mismatch"]),
        ("bfloat16", 0.2, 0.0, ["sampler-mismatch"]),  # all of them, and none by much
    ],
)
def test_one_token_far_off_is_no_fault_in_a_coarse_precision(precision, others, one, named):
    (batch,) = evidence.read(BATCH).witnesses
    signs = torch.where(torch.arange(batch["tokens"].shape[1]) % 2 == 0, 1.0, -1.0)
    drew = batch["plain_log_probs"] + others * signs
    drew[0, 0] = batch["plain_log_probs"][0, 0] - one
    found = changed(batch, facts={"precision": precision}, sampler_log_probs=drew)
    assert [name for name in causes(Evidence("x", [found])) if name.startswith("sampler")] == named


@pytest.mark.parametrize(("faults", "named"), [((), []), (("sampler-temperature",), ["yes"])])
def test_the_mean_in_the_log_tells_another_temperature_from_rounding(faults, named):
    recipe = recipe_of(BFLOAT16, SEED)
    history = train(recipe, "x", faults=faults).history
    found = diagnose(Evidence("x", (), history, recipe.model_dump(mode="json"))).findings
    assert [one.id for one in found] == ["sampler-mismatch"] * len(named)
    if found:
        assert "KL(sampler‖learner) is up to" in found[0].evidence


@pytest.mark.parametrize(
    ("numbers", "recipe", "answer"),
    [
        ({"kl_sampler": 6e-4, "gap": 5.1}, BFLOAT16, "fine"),
        ({"kl_sampler": 6e-3}, BFLOAT16, "found"),
        ({"kl_sampler": 2e-8, "gap": 2e-4}, {}, "fine"),
        ({"kl_sampler": 2e-6}, {}, "found"),
        ({"gap": 5.1}, BFLOAT16, "not looked at"),
        ({"gap": 1e-5}, {}, "fine"),
        ({"rollout_corr/k3_kl": 0.03}, {}, "fine"),  # a sampler in eight bits
        ({"rollout_corr/k3_kl": 0.06}, {}, "found"),
    ],
)
def test_the_mean_and_the_largest_are_judged_by_the_precision(numbers, recipe, answer):
    history = [translated(row) for row in rows(reward=0.5, **numbers)]
    report = diagnose(Evidence("x", (), history, recipe))
    assert report.as_dict()["questions"]["gap of the sampler"] == answer


# ---------------------------------------------------------------- tokens that nobody drew


def _uniform(sample, *arguments, **options):
    return sample(*arguments, **options | {"temperature": 1e3})


def test_tokens_that_the_policy_did_not_draw():
    """A sampler that lost its weights, and whose log-probs the learner took for its own."""
    plant = planting._sampled_by(planting._unreported(_uniform))
    with plant():
        found = train(recipe_of({}, SEED), "x")
    (finding,) = diagnose(found).findings
    assert finding.id == "unlikely-tokens"
    assert "below −log V = -2.83 of 17 possible ones" in finding.evidence


@pytest.mark.parametrize(
    ("entropy", "recipe", "answer"),
    [
        (13.0, {"model": {}}, "found"),
        (12.0, {"model": {}}, "fine"),  # of 2^18 tokens, each equally likely: 12.5
        (6.5, {"model": {"vocabulary": 400}}, "found"),
        (5.9, {"model": {"vocabulary": 400}}, "fine"),
        (13.0, {}, "not looked at"),  # another trainer may add it up over tokens
    ],
)
def test_no_entropy_is_above_that_of_the_uniform_distribution(entropy, recipe, answer):
    report = diagnose(Evidence("x", (), rows(entropy=entropy, tokens=100), recipe))
    assert report.as_dict()["questions"]["likelihood of the tokens"] == answer
    if answer == "found":
        assert [one.id for one in report.findings] == ["unlikely-tokens"]


# ---------------------------------------------------------------- nothing in the mask


def test_an_empty_mask_has_one_name():
    found = []
    for one in sound("grpo").witnesses:
        nothing = {name: torch.zeros_like(one[name]) for name in ("mask", "coefficients")}
        counts = [{"rows": 0, "tokens": 0} for _ in one.facts["minibatches"]]
        found.append(changed(one, facts={"minibatches": counts}, **nothing))
    assert causes(Evidence("x", found)) == ["empty-mask"]


@pytest.mark.parametrize(("length", "named"), [(0.0, "empty-mask"), (9.0, "detached-loss")])
def test_a_log_with_responses_of_no_length_and_no_gradient(length, named):
    history = rows(grad_norm=0.0, no_spread=0.5, length=length)
    assert causes(Evidence("x", (), history)) == [named]


# ---------------------------------------------------------------- parts of a model


def recorded(changes, prepare, *, steps=20):
    """The witnesses of a run whose learner was changed before its first step."""
    recipe, found = recipe_of(changes, SEED), []
    learner = learner_of(recipe)
    prepare(learner)
    learner.watch = Recorder(recipe.witness.every, recipe.witness.tokens, found.append)
    list(islice(loop.steps(learner, loop.begin(recipe), ALONE), steps))
    return found


def _half_of_the_optimiser(learner):
    (group,) = learner.optimiser.param_groups
    group["params"] = group["params"][len(group["params"]) // 2 :]


def test_half_of_the_parameters_stand_still():
    found = recorded({}, _half_of_the_optimiser)
    (finding,) = diagnose(Evidence("x", found)).findings
    assert finding.id == "idle-parameters"
    assert "tensors with 22% of the weights" in finding.evidence


def test_an_adapter_whose_second_factor_waits_for_the_first_is_sound():
    changes = {
        "model": {"lora_rank": 2},
        "warm_start": {"steps": 0},
        "rollouts": {"prompts": 48, "group_size": 8, "max_new_tokens": 3},
        "witness": {"every": 1},
    }
    found = recorded(changes, lambda learner: None, steps=2)
    assert any(one.has("coefficients") and one["coefficients"].any() for one in found)
    assert "idle-parameters" not in causes(Evidence("x", found))


@pytest.mark.parametrize(("rate", "named"), [(0.0, []), (1e-6, ["idle-optimiser"])])
def test_a_schedule_that_begins_at_0_moves_nothing_and_is_sound(rate, named):
    first = sound("grpo").witnesses[0]
    still = {"weight_change": 0.0, "weights_unchanged": 1.0, "learning_rate": rate}
    assert causes(Evidence("x", [changed(first, facts=still)])) == named
