"""The recipe as TRL gets it: options, refusals, and the same gradient on the same batch."""

import json
import math
import sys
from dataclasses import replace

import pytest
import torch

from book.studies import trl_replay
from book.studies.trl_replay import CASES, replay
from nbcourse import rows
from nbcourse.errors import UserError
from nbcourse.experiments import (
    comparison,
    evaluation,
    forecast,
    records,
    run,
    trl_options,
    trl_trainer,
)
from nbcourse.experiments import trl as engine
from nbcourse.functional import aggregation, kl, surrogates
from nbcourse.lm import loading, lora, sampling
from nbcourse.lm.sampling import ENGINES
from nbcourse.seeds import generator
from nbcourse.training import algorithms
from nbcourse.training.algorithms import ALGORITHMS, Estimate
from nbcourse.training.clock import Clock
from nbcourse.training.experience import Draws, Experience, score
from nbcourse.training.held_out import verdicts
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import check
from nbcourse.training.update import Update, backward
from tests import small
from tests.effort import swept

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def recipe(name: str, **changes):
    """A recipe that TRL can follow."""
    as_drawn = {"dynamic_sampling": False} if ALGORITHMS[name].dynamic_sampling else {}
    rollouts = {**as_drawn, **changes.pop("rollouts", {})}
    return small.recipe(name, rollouts=rollouts, **changes)


def config(name: str, folder, **changes):
    """TRL's own configuration object, with everything that TRL made of our options."""
    learner = small.learner(recipe(name, **changes))
    return trl_trainer.make_trainer(learner, folder, small.ALONE).args


# ---------------------------------------------------------------- the mapping


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("grpo", {}, {"loss_type": "grpo", "epsilon": 0.2, "scale_rewards": "group"}),
        ("grpo", {"algorithm": {"dual_clip": 3.0}}, {"delta": 3.0}),
        ("dr-grpo", {}, {"loss_type": "dr_grpo", "scale_rewards": "none"}),
        ("dapo", {}, {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28}),
        (
            "gspo",
            {},
            {
                "loss_type": "grpo",
                "importance_sampling_level": "sequence",
                "epsilon": 3e-4,
                "epsilon_high": 4e-4,
            },
        ),
        ("cispo", {}, {"loss_type": "cispo", "epsilon_high": 5.0}),
        (
            "sapo",
            {"algorithm": {"tau_negative": 1.5}},
            {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.5},
        ),
        ("rloo", {"kl": {"beta": 0.05}}, {"beta": 0.05, "normalize_advantages": False}),
        ("grpo", {"kl": {"beta": 0.05}}, {"beta": 0.05, "use_bias_correction_kl": False}),
        ("grpo", {"model": {"precision": "bfloat16"}}, {"bf16": True}),
        (
            "grpo",
            {},
            {
                "seed": 0,
                "max_steps": 2,
                "logging_steps": 1,
                "num_generations": 4,
                "max_completion_length": 4,
                "temperature": 1.0,
                "learning_rate": 3e-4,
                "max_grad_norm": 1.0,
                "beta": 0.0,
                "bf16": False,
                "per_device_train_batch_size": 24,
                "gradient_accumulation_steps": 1,
                "steps_per_generation": 1,
                "num_iterations": 1,
                "gradient_checkpointing": False,
            },
        ),
        (
            "grpo",
            {"optimiser": {"epochs": 2, "minibatches": 3, "prompts_at_once": 1}},
            {
                "max_steps": 12,
                "logging_steps": 6,
                "per_device_train_batch_size": 4,
                "gradient_accumulation_steps": 2,
                "steps_per_generation": 6,
                "num_iterations": 2,
            },
        ),
    ],
)
def test_options_arrive_in_trls_configuration(name, changes, expected, tmp_path):
    args = config(name, tmp_path, **changes)
    assert {key: getattr(args, key) for key in expected} == expected


VLLM = {"rollouts": {"engine": "vllm"}}


@pytest.mark.parametrize(
    ("name", "cap", "expected"),
    [
        ("grpo", None, {"vllm_importance_sampling_correction": False}),
        (
            "cispo",
            2.0,
            {
                "vllm_importance_sampling_correction": True,
                "vllm_importance_sampling_mode": "token_truncate",
                "vllm_importance_sampling_clip_max": 2.0,
                "vllm_importance_sampling_clip_min": None,
            },
        ),
        ("rloo", None, {}),
    ],
)
def test_vllm_is_asked_for_in_the_recipe(name, cap, expected, tmp_path):
    """TRL's configuration takes these options without vLLM; no trainer was made with them."""
    import trl

    chosen = recipe(name, optimiser={"truncated_importance_sampling": cap}, **VLLM)
    kind = "RLOO" if name == "rloo" else "GRPO"
    args = getattr(trl, f"{kind}Config")(
        output_dir=str(tmp_path), **trl_options.options(chosen, small.ALONE)
    )
    expected = {"use_vllm": True, "vllm_mode": "colocate", **expected}
    assert {key: getattr(args, key) for key in expected} == expected
    assert not any("vllm" in key for key in trl_options.options(recipe(name), small.ALONE))


def test_vllm_is_handed_the_model_of_the_run(tmp_path, monkeypatch):
    """It loads one from a folder, before it is given weights; an adapter is left out."""
    asked = []

    class NoVLLM:
        def __init__(self, model, **_):
            asked.append(model.name_or_path)

    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", NoVLLM)
    learner = small.learner(recipe("grpo", model={"lora_rank": 2}, **VLLM))
    trl_trainer.make_trainer(learner, tmp_path, small.ALONE)
    assert asked == [str(tmp_path / "reference")]
    tokenizer, found = loading.load(asked[0], "cpu")
    assert tokenizer.get_vocab() == learner.tokenizer.get_vocab()
    own = dict(lora.own_parameters(learner.policy))
    assert all(torch.equal(own[name], tensor) for name, tensor in found.named_parameters())


def test_vllm_is_for_trl_alone(tmp_path):
    chosen = recipe("grpo", **VLLM)
    for folder in (tmp_path / "run", None):
        with pytest.raises(
            UserError, match=r"rollouts\.engine is 'vllm', which --engine trl alone"
        ):
            run.train(chosen, folder=folder, progress=False)
    assert not (tmp_path / "run").exists()


def test_our_own_engines_are_for_evaluations_and_trl_is_told_nothing_of_them():
    told = [
        trl_options.options(recipe("grpo", rollouts={"engine": own}), small.ALONE)
        for own in ENGINES
    ]
    assert told == [told[0]] * len(ENGINES)


def test_a_model_that_vllm_sampled_from_is_evaluated_by_our_own_engine():
    right = verdicts(small.learner(recipe("grpo", warm_start={"steps": 60})), 40)
    assert right.any()
    chosen = recipe("grpo", warm_start={"steps": 60}, **VLLM)
    assert torch.equal(verdicts(small.learner(chosen), 40), right)


def test_a_run_that_vllm_sampled_for_is_evaluated_later(tmp_path):
    folder = tmp_path / "run"
    engine.train_with_trl(recipe("grpo", steps=1), folder=folder, progress=False)
    before = evaluation.evaluate(folder, problems=5, progress=False)
    told = records.read_json(folder / records.RECIPE)
    told["rollouts"]["engine"] = "vllm"
    records.write_json(folder / records.RECIPE, told)
    after = evaluation.evaluate(folder, problems=5, progress=False)
    assert after["after"]["strict"] == before["after"]["strict"]


def test_what_a_reward_model_compares_is_sampled_by_our_own_engine():
    learned = {
        "warm_start": {"steps": 20},
        "reward": {"source": "reward_model"},
        "reward_model": {"comparisons": 8, "steps": 1, "batch_size": 4},
    }
    first, second = (
        small.learner(recipe("grpo", **learned, **engine_of)).reward_model
        for engine_of in ({}, VLLM)
    )
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_every_setting_of_a_translated_function_is_in_the_tables():
    """A setting added to a function is refused by this test until TRL's side of it is stated."""
    for function, part in {**trl_options.ADVANTAGES, **trl_options.SURROGATES}.items():
        assert set(part.settings) == set(rows.settings_of(function)), function.__name__
    assert {*trl_options.AVERAGES} == {*aggregation.MODES}


def test_a_row_is_followed_for_its_functions_and_not_for_its_name(monkeypatch):
    mine = replace(ALGORITHMS["grpo"], aggregation="token-mean", settings={"clip_low": 0.1})
    monkeypatch.setitem(ALGORITHMS, "mine", mine)
    found = trl_options.options(recipe("mine"), small.ALONE)
    assert (found["loss_type"], found["epsilon"], found["epsilon_high"]) == ("dapo", 0.1, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"advantage": algorithms.batch_mean}, "its advantage function 'batch_mean'"),
        ({"advantage": algorithms.leave_one_out}, "TRL's RLOOTrainer has no counterpart of its s"),
        ({"surrogate": surrogates.policy_gradient}, "TRL's GRPOTrainer has no counterpart of its"),
        ({"aggregation": "seq-mean-token-sum"}, "its aggregation 'seq-mean-token-sum'"),
        ({"surrogate": surrogates.cispo}, "TRL averages its surrogate by 'token-mean'"),
        (
            {"surrogate": surrogates.sapo, "aggregation": "token-mean"},
            "TRL averages its surrogate by 'seq-mean-token-mean'",
        ),
    ],
)
def test_a_row_with_a_part_that_trl_lacks_is_refused_by_that_part(change, reason):
    with pytest.raises(ValueError, match=reason):
        trl_options.parts(replace(ALGORITHMS["grpo"], **change))


def test_two_processes_share_the_responses():
    two = Processes(0, 2, torch.device("cpu"))
    assert trl_options.options(recipe("grpo"), two)["per_device_train_batch_size"] == 12
    with pytest.raises(ValueError, match=r"rollouts\.prompts is 5"):
        trl_options.options(recipe("grpo", rollouts={"prompts": 5}), two)


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("ppo", {}, "algorithm.name is 'ppo'"),
        ("reinforce", {}, "algorithm.name is 'reinforce'"),
        ("dapo", {"rollouts": {"dynamic_sampling": True}}, "rollouts.dynamic_sampling is True"),
        ("grpo", {"rollouts": {"prompts_at_once": 2}}, "rollouts.prompts_at_once is 2"),
        ("grpo", {"model": {"forward": "packed"}}, "model.forward is 'packed'"),
        (
            "grpo",
            {"kl": {"beta": 0.1, "placement": "surrogate"}},
            "kl.placement is 'surrogate'",
        ),
        ("grpo", {"kl": {"beta": 0.1, "placement": "reward"}}, "kl.placement is 'reward'"),
        ("rloo", {"kl": {"beta": 0.1, "placement": "advantage"}}, "kl.placement is 'advantage'"),
        (
            "grpo",
            {"optimiser": {"truncated_importance_sampling": 2.0}},
            "optimiser.truncated_importance_sampling is 2.0",
        ),
        ("rloo", {"kl": {"beta": 0.1, "placement": "loss"}}, "kl.placement is 'loss'"),
        ("grpo", {"kl": {"beta": 0.1, "estimator": "k1"}}, "kl.estimator is 'k1'"),
        ("grpo", {"kl": {"beta": 0.1, "controller": "adaptive"}}, "kl.controller is 'adaptive'"),
        ("grpo", {"algorithm": {"eps": 0.1}}, "algorithm.eps is 0.1"),
        ("cispo", {"algorithm": {"clip_low": 0.5}}, "algorithm.clip_low is 0.5"),
        ("cispo-two-sided", {}, "algorithm.clip_low is 0.2"),
        ("icepop", {}, "algorithm.name is 'icepop'"),
        (
            "dapo",
            {"algorithm": {"dual_clip": 1.1}},
            "algorithm.dual_clip is 1.1",
        ),
        ("grpo", {"optimiser": {"target_kl": 0.1, "epochs": 2}}, "optimiser.target_kl is 0.1"),
        ("grpo", {"steps": 0}, "steps is 0"),
        ("grpo", {"checkpoint": {"every": 5}}, "checkpoint.every is 5"),
        ("rloo", {"witness": {"every": 5}}, "witness.every is 5"),
        ("grpo", {"optimiser": {"minibatches": 4}}, "rollouts.prompts is 6"),
    ],
)
def test_what_trl_cannot_do_is_refused_by_name(name, changes, key, tmp_path):
    with pytest.raises(ValueError, match=key) as caught:
        engine.train_with_trl(recipe(name, **changes), folder=tmp_path / "run", progress=False)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("grpo", {"rollouts": {}}),
        ("grpo", {"kl": {"beta": 0.1}, **VLLM}),
        ("rloo", VLLM),
    ],
)
def test_trl_weighs_tokens_by_the_ratio_to_the_sampler_in_one_case(name, changes):
    chosen = recipe(name, optimiser={"truncated_importance_sampling": 2.0}, **changes)
    with pytest.raises(UserError, match=r"optimiser\.truncated_importance_sampling is 2\.0"):
        trl_options.options(chosen, small.ALONE)


ZERO_3 = {"zero_optimization": {"stage": 3}}


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"ACCELERATE_USE_FSDP": "true"}, "accelerate launch asks for FSDP"),
        (
            {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"},
            "asks for DeepSpeed's ZeRO-3, .* take DeepSpeed with zero_stage 0, 1 or 2",
        ),
        (
            {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "zero.json"},
            "asks for DeepSpeed's ZeRO-3",
        ),
        (
            {"ACCELERATE_MIXED_PRECISION": "bf16"},
            "model.precision is 'float32', but accelerate launch has mixed_precision = 'bf16'",
        ),
        (
            {"ACCELERATE_USE_CPU": "True", "MASTER_ADDR": "127.0.0.1"},
            "--cpu starts one process, whatever --num_processes says",
        ),
    ],
)
def test_what_accelerate_cannot_be_asked_for_is_refused(environment, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zero.json").write_text(json.dumps(ZERO_3), encoding="utf-8")
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=reason) as caught:
        engine.train_with_trl(recipe("grpo"), folder=tmp_path / "run", progress=False)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_deepspeed_that_leaves_the_weights_whole_is_not_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage in ("0", "1", "2"):
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", stage)
        engine._check_launch(recipe("grpo"))


def test_without_vllm_the_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match=r"pip install 'trl\[vllm\]==1\.16\.0'"):
        engine.train_with_trl(recipe("grpo", **VLLM), folder=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_without_trl_the_missing_package_is_named(tmp_path, monkeypatch):
    learner = small.learner(recipe("grpo"))
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(ValueError, match=r"pip install trl==1\.16\.0"):
        trl_trainer.make_trainer(learner, tmp_path, small.ALONE)


# ---------------------------------------------------------------- the same gradient


def stale_experience(learner) -> Experience:
    """Responses whose sampler was another policy, so that some tokens are clipped.

    Half of the scores are drawn: an untrained model hardly ever earns anything.
    """
    settings = learner.recipe.rollouts
    _, problems = Draws(learner.recipe).next()
    rollout = sampling.sample(
        learner.policy,
        learner.tokenizer,
        [problem.prompt for problem in problems],
        max_new_tokens=settings.max_new_tokens,
        group_size=settings.group_size,
        generator=generator(0, "test"),
    )
    source = torch.Generator().manual_seed(0)
    noise = torch.randn(rollout.mask.shape, generator=source).masked_fill(~rollout.mask, 0.0)
    scores = (torch.rand(len(rollout.mask), generator=source) < 0.5).float()
    rollout = replace(rollout, log_probs=rollout.log_probs + 0.3 * noise)
    ref_log_probs = rollout.log_probs + 0.2 * noise
    return Experience(
        rollout, scores, scores, old_log_probs=rollout.log_probs, ref_log_probs=ref_log_probs
    )


def their_inputs(experience: Experience, estimate: Estimate, trainer: str) -> dict:
    rollout, log_probs = experience.rollout, experience.rollout.log_probs
    mask = rollout.mask.long()
    return {
        "prompt_ids": rollout.prompt_ids,
        "prompt_mask": rollout.prompt_mask.long(),
        "completion_ids": rollout.tokens,
        "completion_mask": mask,
        "advantages": estimate.advantages[:, 0],
        "num_items_in_batch": mask.sum(),
        "ref_per_token_logps": experience.ref_log_probs,
        **({"old_logps": None} if trainer == "RLOO" else {"old_per_token_logps": log_probs}),
    }


def our_gradient(
    learner, trainer: str, experience: Experience | None = None
) -> tuple[dict[str, torch.Tensor], dict]:
    """Of a stale batch, by parameter and left there, too; and TRL's inputs for the same batch."""
    chosen, experience = learner.recipe, experience or stale_experience(learner)
    estimate = chosen.row.estimate(
        chosen.settings,
        rewards=experience.rewards(chosen.penalty),
        mask=experience.rollout.mask,
        group_size=4,
    )
    groups = torch.arange(6)
    update = Update(learner, experience, estimate, chosen.penalty, small.ALONE)
    backward(update, groups, first=True)
    inputs = their_inputs(experience, estimate, trainer)
    if trainer == "RLOO":  # on-policy: ours has no ratio, and theirs is 1
        with torch.no_grad():
            log_probs, _ = learner.log_probs_and_values(experience.rollout, group_size=1)
        inputs["old_logps"] = log_probs.masked_fill(~experience.rollout.mask, 0.0).sum(dim=1)
    return {key: parameter.grad.clone() for key, parameter in learner.trained()}, inputs


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("name", trl_options.followed())
def test_the_gradient_of_a_batch_is_ours(name, beta, tmp_path):
    kind = trl_options.parts(ALGORITHMS[name])[0].trainer
    settings = {"beta": beta, "placement": "reward" if kind == "RLOO" else "loss"} if beta else {}
    dual_clip = {"dual_clip": 1.5} if "dual_clip" in ALGORITHMS[name].known_settings else {}
    # A width in which rounding stays small, so that the tolerance says something.
    chosen = recipe(name, kl=settings, algorithm=dual_clip, warm_start={"steps": 20})
    learner = small.learner(chosen)
    ours, inputs = our_gradient(learner, kind)

    trainer = trl_trainer.make_trainer(learner, tmp_path, small.ALONE)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, inputs).backward()
    for key, parameter in learner.trained():
        torch.testing.assert_close(parameter.grad, ours[key], rtol=1e-4, atol=2e-6)
    assert any(gradient.abs().max() > 1e-2 for gradient in ours.values())


def recipe_of(case):
    """As the study has it, with a smaller model that is taught for less long."""
    chosen = trl_replay.recipe(case)
    model = chosen.model.model_copy(update={"layers": 1, "width": 32})
    taught = chosen.warm_start.model_copy(update={"steps": 60, "careless_steps": 0})
    return chosen.model_copy(update={"model": model, "warm_start": taught})


@pytest.mark.parametrize(
    "case",
    swept(CASES, keep=["GRPO with k3 in the loss"]),
)
def test_trls_own_training_ends_where_ours_ends(case):
    """Whole updates: rewards' statistics, loss, accumulation, clipping, AdamW, old log-probs."""
    found = replay(recipe_of(case))
    assert found.updates == (4 if "RLOO" in case else 8)
    assert found.moved > 0.05
    assert found.silent < 0.9
    assert found.largest < 1e-5
    assert found.apart < 1e-4 * found.moved


def test_a_replay_tells_two_algorithms_apart():
    found = replay(recipe_of("GRPO"), by=recipe_of("Dr. GRPO"))
    assert found.largest > 1e-4
    assert found.apart > 0.05 * found.moved


def with_adapter(name, beta=0.0, **changes):
    """A recipe whose adapter learns; with a KL penalty in its row's place."""
    settings = {"placement": "reward" if name == "rloo" else "loss"} if beta else {}
    return recipe(name, model={"lora_rank": 3}, kl={"beta": beta, **settings}, **changes)


def away_from_its_start(learner):
    """As if the adapter had learned: at first it does nothing, and A gets no gradient."""
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in learner.policy.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=source))


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_an_update_of_an_adapter_is_ours(name, beta, tmp_path):
    """The gradient of a batch, and the step that the optimisers take with it."""
    chosen = with_adapter(name, beta)
    learner = small.learner(chosen)
    away_from_its_start(learner)
    start = small.weights(learner)
    ours, inputs = our_gradient(learner, "RLOO" if name == "rloo" else "GRPO")
    assert all("lora_" in key for key in ours)
    learner.optimiser.step()
    moved = small.weights(learner)
    for key, parameter in learner.trained():
        parameter.data.copy_(start[key])

    trainer = trl_trainer.make_trainer(learner, tmp_path, small.ALONE)
    assert not (tmp_path / "reference").exists()
    assert small.weights(learner).keys() == start.keys()
    trainer.create_optimizer_and_scheduler(1)
    held = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for _, p in learner.trained()}
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, inputs).backward()
    for key, parameter in learner.trained():
        torch.testing.assert_close(parameter.grad, ours[key], rtol=1e-4, atol=2e-6)
    for kind in ("lora_A", "lora_B"):
        assert any(g.abs().max() > 1e-2 for key, g in ours.items() if kind in key)
    trainer.optimizer.step()
    for key, parameter in learner.trained():
        certain = ours[key].abs() > 1e-3  # Adam's first step is the sign of the gradient
        torch.testing.assert_close(parameter[certain], moved[key][certain], rtol=0, atol=1e-6)
        assert certain.any()
        assert not torch.equal(moved[key], start[key])


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_the_reference_of_an_adapter_is_the_model_without_it(name, tmp_path, monkeypatch):
    learner = small.learner(with_adapter(name, 0.1))
    trainer = trl_trainer.make_trainer(learner, tmp_path, small.ALONE)
    away_from_its_start(learner)
    asked = []
    log_probs = trainer._get_per_token_logps_and_entropies
    monkeypatch.setattr(
        trainer,
        "_get_per_token_logps_and_entropies",
        lambda *args, **options: asked.append(log_probs(*args, **options)) or asked[-1],
    )
    examples = [row for row in trainer.train_dataset.select(range(6)) for _ in range(4)]
    trainer.model.train()
    batch = trainer._generate_and_score_completions(examples)
    keep = batch["completion_mask"].bool()
    completions = [
        row[mask].tolist() for row, mask in zip(batch["completion_ids"], keep, strict=True)
    ]
    rollout = trl_trainer._as_rollout(learner, [row["prompt"] for row in examples], completions)
    with torch.no_grad():
        policy, _ = learner.log_probs_and_values(rollout, group_size=4)
        reference = learner.ref_log_probs(rollout, group_size=4)
    assert (policy - reference)[keep].abs().max() > 1e-2
    torch.testing.assert_close(asked[-1][0][keep], reference[keep], rtol=1e-4, atol=1e-5)
    assert trainer.model.active_adapter == "default"
    if name == "grpo":
        torch.testing.assert_close(
            batch["ref_per_token_logps"][keep], reference[keep], rtol=1e-4, atol=1e-5
        )


def test_the_weight_of_a_token_that_vllm_drew_is_ours(tmp_path):
    """Nothing is sampled here: the trainer is told that vLLM did, and what the ratios were."""
    chosen = recipe("dapo", optimiser={"truncated_importance_sampling": 1.2}, **VLLM)
    learner = small.learner(
        recipe("dapo", optimiser={"truncated_importance_sampling": 1.2}, warm_start={"steps": 20})
    )
    experience = stale_experience(learner)
    with torch.no_grad():
        log_probs, _ = learner.log_probs_and_values(experience.rollout, group_size=1)
    experience = replace(experience, old_log_probs=log_probs)
    ratio = (log_probs - experience.rollout.log_probs).exp()
    assert (ratio[experience.rollout.mask] > 1.2).any()
    ours, inputs = our_gradient(learner, "GRPO", experience)

    plain = replace(learner, recipe=recipe("dapo"))
    trainer = trl_trainer.make_trainer(plain, tmp_path, small.ALONE)
    asked = trl_options.options(chosen, small.ALONE)
    trainer.use_vllm = asked["use_vllm"]
    trainer.vllm_importance_sampling_correction = asked["vllm_importance_sampling_correction"]
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    trainer.model.zero_grad()
    inputs |= {
        "old_per_token_logps": log_probs,
        "importance_sampling_ratio": ratio.clamp(max=asked["vllm_importance_sampling_clip_max"]),
    }
    trainer.compute_loss(trainer.model, inputs).backward()
    for key, parameter in learner.trained():
        torch.testing.assert_close(parameter.grad, ours[key], rtol=1e-4, atol=2e-6)
    assert any(gradient.abs().max() > 1e-2 for gradient in ours.values())


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "rloo"])
def test_advantages_are_ours(name, tmp_path):
    """One step of TRL from sampling to advantages, against our estimate for its own responses."""
    beta = 0.1 if name == "rloo" else 0.0
    chosen = recipe(name, kl={"beta": beta}, warm_start={"steps": 60})
    learner = small.learner(chosen)
    trainer = trl_trainer.make_trainer(learner, tmp_path, small.ALONE)
    with torch.no_grad():  # away from the reference, so that there is a KL
        for parameter in learner.policy.parameters():
            parameter.mul_(1.05)
    rows = [row for row in trainer.train_dataset.select(range(6)) for _ in range(4)]
    asked = [problem for problem in Draws(chosen).next()[1] for _ in range(4)]
    assert [row["prompt"] for row in rows] == [problem.prompt for problem in asked]
    trainer.model.train()
    torch.manual_seed(0)
    batch = trainer._generate_and_score_completions(rows)
    completions = [
        row[keep].tolist()
        for row, keep in zip(batch["completion_ids"], batch["completion_mask"].bool(), strict=True)
    ]
    rollout = trl_trainer._as_rollout(learner, [problem.prompt for problem in asked], completions)
    torch.testing.assert_close(rollout.mask, batch["completion_mask"].bool())
    with torch.no_grad():
        log_probs, _ = learner.log_probs_and_values(rollout, group_size=4)
        reference = learner.ref_log_probs(rollout, group_size=4)
    rollout = replace(rollout, log_probs=log_probs.masked_fill(~rollout.mask, 0.0))
    scores, correct = score(learner, rollout, asked)
    assert 0 < correct.mean() < 1
    rewards = Experience(rollout, scores, correct, ref_log_probs=reference).rewards(chosen.penalty)
    if beta:
        assert kl.estimate(log_probs, reference, "k1")[rollout.mask].abs().max() > 1e-2
    estimate = chosen.row.estimate(
        chosen.settings, rewards=rewards, mask=rollout.mask, group_size=4
    )
    torch.testing.assert_close(batch["advantages"], estimate.advantages[:, 0], rtol=1e-4, atol=1e-5)


def test_any_token_that_ends_a_response_ends_it():
    learner = small.learner(recipe("grpo"))
    own, other = learner.tokenizer.eos_token_id, 5
    learner.policy.generation_config.eos_token_id = [own, other]
    completions = [[7, other], [7, own], [7, 8]]
    rollout = trl_trainer._as_rollout(learner, ["1+2="] * 3, completions)
    assert rollout.truncated.tolist() == [False, False, True]
    first, second, third = rollout.texts(learner.tokenizer)
    assert first == second != third


def test_the_optimiser_moves_as_ours_does(tmp_path):
    optimiser = {"warm_up": 1, "schedule": "linear", "epochs": 2, "weight_decay": 0.1}
    chosen = recipe("grpo", steps=3, optimiser={**optimiser, "betas": [0.8, 0.95]})
    trainer = trl_trainer.make_trainer(small.learner(chosen), tmp_path, small.ALONE)
    trainer.create_optimizer_and_scheduler(6)
    rates = []
    for _ in range(6):
        rates.append(trainer.lr_scheduler.get_last_lr()[0] / 3e-4)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    # two updates in a step: half of it, all, half
    assert rates == pytest.approx([0.5, 0.5, 1, 1, 0.5, 0.5])
    assert {g["betas"] for g in trainer.optimizer.param_groups} == {(0.8, 0.95)}
    decays = {g["weight_decay"] for g in trainer.optimizer.param_groups if g["params"]}
    assert decays == {0.1}  # of norms and biases too


# ---------------------------------------------------------------- a run


def test_a_run_leaves_what_ours_leaves(tmp_path):
    folder = tmp_path / "grpo-seed0"
    chosen = recipe("grpo", warm_start={"steps": 5}, reward={"truncation_penalty": 0.5})
    history = engine.train_with_trl(chosen, folder=folder, progress=False)
    assert [row["step"] for row in history] == [1, 2]
    for row in history:  # a response that did not end itself has lost half a point
        assert row["reward"] == pytest.approx(row["accuracy"] - 0.5 * row["truncated"], abs=1e-6)
        assert row["responses"] == 24
        assert row["tokens"] == pytest.approx(24 * row["length"])
    assert json.dumps(records.read_metrics(folder)) == json.dumps(history)  # NaN is not itself
    assert records.read_recipe(folder) == chosen
    summary = json.loads((folder / records.SUMMARY).read_text())
    assert summary["held_out"] == history[-1]["held_out"]
    assert (folder / "model" / "config.json").is_file()
    assert (folder / records.ENVIRONMENT).is_file()
    (line,) = comparison.rows(comparison.groups([folder]))
    assert len(line) == len(comparison.HEADER)
    with pytest.raises(ValueError, match="holds a run already"):
        engine.train_with_trl(chosen, folder=folder, progress=False)


def test_activations_that_are_computed_twice_do_not_change_the_evaluation(tmp_path):
    """TRL leaves the model in training mode, in which such layers take no cache."""
    changes = {
        "warm_start": {"steps": 60},
        "optimiser": {"learning_rate": 1e-12},
        "evaluation": {"every": 1, "problems": 40},
    }
    chosen = recipe("grpo", model={"gradient_checkpointing": True}, **changes)
    right = verdicts(small.learner(chosen), 40).mean().item()
    assert 0 < right < 1
    history = engine.train_with_trl(chosen, folder=tmp_path / "run", progress=False)
    assert [row["held_out"] for row in history] == pytest.approx([right] * 2)
    summary = json.loads((tmp_path / "run" / records.SUMMARY).read_text())
    assert summary["held_out"] == pytest.approx(right)


def test_word_problems_are_trained_on_and_evaluated(tmp_path, monkeypatch):
    """Each response is judged by the problem that it answers, and by no other."""
    judged = []

    def rewards(self, responses, asked):
        judged.append(asked)
        return torch.tensor([float(len(text) % 2) for text in responses])

    monkeypatch.setattr("nbcourse.tasks.questions.Verified.rewards", rewards)
    chosen = check(
        {
            **small.tables(steps=1, model={"vocabulary": 300}),
            "task": {"name": "word-problems", "max_steps": 2},
            "reward": {"accept_truncated": True},  # of four tokens, all are
            "evaluation": {"problems": 3},
        }
    )
    (row,) = engine.train_with_trl(chosen, folder=tmp_path / "run", progress=False)
    drawn = Draws(chosen).next()[1]
    assert len(judged[0]) == 3  # the held-out ones, before the first step
    assert judged[1] == [problem for problem in drawn for _ in range(4)]
    assert row["responses"] == 24
    assert row["grad_norm"] > 0
    result = evaluation.evaluate(tmp_path / "run", problems=3, progress=False)
    assert result["before"]["strict"]["of"] == result["after"]["strict"]["of"] == 3


def test_an_adapter_is_trained_kept_and_evaluated(tmp_path):
    folder = tmp_path / "grpo-seed0"
    chosen = with_adapter("grpo", 0.05, reward={"accept_truncated": True})
    start = dict(lora.own_parameters(small.learner(chosen).policy))
    start = {name: tensor.clone() for name, tensor in start.items()}
    engine.train_with_trl(chosen, folder=folder, progress=False)
    assert not (folder / "reference").exists()
    _, kept = loading.load(str(folder / "model"), "cpu")
    assert not lora.is_on(kept)
    assert {name for name, _ in kept.named_parameters()} == set(start)
    result = evaluation.evaluate(folder, problems=3, progress=False)
    assert result["before"]["strict"]["of"] == result["after"]["strict"]["of"] == 3


def test_the_matrices_move_by_the_product_of_the_adapter(tmp_path, monkeypatch):
    """Rewards that differ, so that there is a gradient; what is kept is the merged model."""
    monkeypatch.setattr(trl_trainer, "score", by_parity)
    chosen = with_adapter("grpo", optimiser={"learning_rate": 1e-2})
    trained = []
    finish = run.finish
    monkeypatch.setattr(
        run, "finish", lambda *args, **rest: trained.append(args[1]) or finish(*args, **rest)
    )
    history = engine.train_with_trl(chosen, folder=tmp_path / "run", progress=False)
    assert all(row["grad_norm"] > 0 for row in history)
    (learner,) = trained
    start = dict(lora.own_parameters(small.learner(chosen).policy))
    _, kept = loading.load(str(tmp_path / "run" / "model"), "cpu")
    adapter = dict(learner.policy.named_parameters())
    moved = 0
    for name, tensor in kept.named_parameters():
        expected = start[name].detach().clone()
        stem = name.removesuffix(".weight")
        if f"{stem}.lora_A.default.weight" in adapter:
            a, b = (adapter[f"{stem}.lora_{side}.default.weight"] for side in "AB")
            assert b.abs().max() > 1e-3
            expected += (lora.ALPHA / 3) * (b @ a).detach()
            moved += 1
        torch.testing.assert_close(tensor.detach(), expected, rtol=1e-5, atol=1e-6)
    assert moved == 7  # four matrices of attention, three of the feed-forward layer


# ---------------------------------------------------------------- its numbers

TOLD = {
    "step",
    "reward",
    "accuracy",
    "no_spread",
    "truncated",
    "length",
    "length_right",
    "length_wrong",
    "entropy",
    "clip_low",
    "clip_high",
    "grad_norm",
    "policy_loss",
    "updates",
    "responses",
    "tokens",
    "tokens_per_second",
    *(
        f"{what}_{phase}"
        for what in ("seconds", "memory")
        for phase in ("sample", "consult", "learn")
    ),
}
AT_EVALUATIONS = {"held_out", "seconds_evaluate", "memory_evaluate"}


def by_parity(learner, rollout, asked):
    """A reward that an untrained model gets, too: whether the sum of its tokens is odd."""
    odd = (rollout.tokens.masked_fill(~rollout.mask, 0).sum(dim=1) % 2).float()
    return odd, odd


@pytest.mark.parametrize("name", swept(["grpo", "cispo", "rloo"], keep=["cispo", "rloo"]))
def test_the_numbers_of_a_step_have_our_names(name, tmp_path, monkeypatch):
    """Two updates in a step, where the algorithm allows them; all are logged once."""
    drawn = []

    def scored(learner, rollout, asked):
        scores, correct = by_parity(learner, rollout, asked)
        scores[:4] = 0.0  # a group without spread, whatever the KL of its responses is
        drawn.append((rollout.mask.sum(dim=1).float(), correct))
        return scores, correct

    monkeypatch.setattr(trl_trainer, "score", scored)
    changes = (
        {"kl": {"beta": 0.5}, "optimiser": {"learning_rate": 0.03}}  # no reward has a KL in it
        if name == "rloo"
        else {"optimiser": {"minibatches": 2, "prompts_at_once": 1}}
    )
    chosen = recipe(name, rollouts={"max_new_tokens": 12}, evaluation={"every": 2}, **changes)
    history = engine.train_with_trl(chosen, folder=tmp_path / "run", progress=False)
    absent = {"cispo": {"clip_low"}, "rloo": set()}.get(name, set())
    assert [set(row) for row in history] == [TOLD - absent, (TOLD - absent) | AT_EVALUATIONS]
    own = run.train(recipe("grpo"), progress=False)[1]
    assert set(own[-1]) >= TOLD | AT_EVALUATIONS
    assert len(drawn) == len(history) == 2
    for row, (lengths, correct) in zip(history, drawn, strict=True):
        assert lengths[correct == 1].mean() != lengths[correct == 0].mean()
        expected = {
            "reward": correct.mean(),
            "no_spread": (correct.view(6, 4).std(dim=1) == 0).float().mean(),
            "accuracy": correct.mean(),
            "length": lengths.mean(),
            "length_right": lengths[correct == 1].mean(),
            "length_wrong": lengths[correct == 0].mean(),
            "tokens": lengths.sum(),
        }
        for key, value in expected.items():
            assert row[key] == pytest.approx(value.item(), rel=1e-5), key
        phases = [row[f"seconds_{phase}"] for phase in ("sample", "consult", "learn")]
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / sum(phases))
        assert min(phases) > 0
        assert all(row[f"memory_{phase}"] > 0 for phase in ("sample", "consult", "learn"))


def test_each_phase_is_charged_with_what_happens_in_it(tmp_path, monkeypatch):
    """A slow reward is sampling, a slow reference consulting, a slow optimiser learning."""
    chosen = recipe("grpo", kl={"beta": 0.1}, optimiser={"minibatches": 2})
    learner = small.learner(chosen)
    trainer = trl_trainer.make_trainer(learner, tmp_path, small.ALONE)
    recorder = engine.Recorder(learner, trainer, None, False)
    trainer.add_callback(recorder)
    passed = [0.0]  # seconds, on a clock of our own
    monkeypatch.setattr("nbcourse.training.clock.perf_counter", lambda: passed[0])

    def slowed(function, seconds):
        def slow(*args, **options):
            passed[0] += seconds
            return function(*args, **options)

        return slow

    monkeypatch.setattr(trl_trainer, "score", slowed(by_parity, 1.0))
    trainer.ref_model.forward = slowed(trainer.ref_model.forward, 10.0)
    create = trainer.create_optimizer

    def create_optimizer(*args, **options):
        made = create(*args, **options)
        made.step = slowed(made.step, 100.0)
        return made

    trainer.create_optimizer = create_optimizer
    monkeypatch.setattr(engine, "held_out_accuracy", slowed(lambda _: 0.5, 1000.0))
    trainer.train()
    for row in recorder.history:
        assert row["seconds_sample"] == 1.0
        assert row["seconds_learn"] == 200.0
        assert row["seconds_consult"] % 10.0 == 0.0 < row["seconds_consult"]
    assert recorder.history[-1]["seconds_evaluate"] == 1000.0


LOGS = {
    "reward": 0.5,
    "accuracy": 0.25,
    engine.LENGTH_OF_RIGHT: 0.5,
    "completions/mean_length": 2.0,
    "loss": 0.1,
    "grad_norm": 1.0,
}


def taken(seconds: float) -> Clock:
    clock = Clock()
    clock.seconds["learn"] = seconds
    return clock


def test_lengths_by_verdict_are_nan_where_there_is_none():
    """A quarter is right, whose lengths sum to half a token a response: two in each."""
    row = engine._translated(LOGS, recipe("grpo"), 1, taken(2.0))
    assert (row["tokens"], row["tokens_per_second"]) == (48, 24.0)
    assert (row["length_right"], row["length_wrong"]) == (2.0, 2.0)
    none = engine._translated(
        {**LOGS, "accuracy": 0.0, engine.LENGTH_OF_RIGHT: 0.0}, recipe("grpo"), 1, taken(1.0)
    )
    assert math.isnan(none["length_right"])
    assert none["length_wrong"] == 2.0
    all_right = engine._translated(
        {**LOGS, "accuracy": 1.0, engine.LENGTH_OF_RIGHT: 2.0}, recipe("grpo"), 1, taken(1.0)
    )
    assert math.isnan(all_right["length_wrong"])
    assert all_right["length_right"] == 2.0


def test_the_gap_to_vllm_has_our_name():
    logs = {**LOGS, "sampling/sampling_logp_difference/max": 0.03}
    assert engine._translated(logs, recipe("grpo"), 1, taken(1.0))["gap"] == 0.03


def test_the_speed_of_trl_is_not_expected_of_our_own_engine(tmp_path):
    engine.train_with_trl(recipe("grpo", steps=1), folder=tmp_path / "run", progress=False)
    environment = json.loads((tmp_path / "run" / records.ENVIRONMENT).read_text())
    assert environment["engine"] == "trl"
    with pytest.raises(UserError, match="another engine"):
        forecast.earlier_run(tmp_path / "run", None)


@pytest.mark.parametrize("key", ["loss", "grad_norm"])
def test_what_is_not_finite_stops_the_run(key):
    with pytest.raises(FloatingPointError, match=f"step 7: the .*{key} is nan"):
        engine._translated({**LOGS, key: float("nan")}, recipe("grpo"), 7, taken(1.0))


@pytest.mark.sweep  # what TRL does in one step, or eight, is compared in every run
def test_trl_learns_from_the_careless_start(tmp_path):
    """15 steps with fewer prompts than usual: a quarter right at first, then many more."""
    chosen = {
        "steps": 15,
        "algorithm": {"name": "grpo"},
        "model": {"source": str(records.RUNS / "arithmetic-sft-seed0" / "model")},
        "optimiser": {"learning_rate": 5e-4, "warm_up": 5},
        "rollouts": {"prompts": 64},
        "evaluation": {"every": 15},
    }
    history = engine.train_with_trl(check(chosen), folder=tmp_path / "run", progress=False)
    first = sum(row["accuracy"] for row in history[:3]) / 3
    last = sum(row["accuracy"] for row in history[-3:]) / 3
    # 3 · 512 responses: a standard error of 0.013 at each end, were they independent
    assert last > first + 0.1
