"""A run by TRL's trainer keeps witnesses as ours does: health is not accused, faults are named."""

import math

import pytest
import torch
from torch.testing import assert_close

from nbcourse.diagnosis.diagnose import diagnose
from nbcourse.errors import UserError
from nbcourse.experiments import evidence, run, trl_stated, trl_witness
from nbcourse.experiments import trl as engine
from nbcourse.training.algorithms import ALGORITHMS
from tests import small
from tests.effort import swept

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
trl = pytest.importorskip("trl")

PIECES = {"minibatches": 2, "epochs": 2, "prompts_at_once": 1, "learning_rate": 1e-3}


def recipe(name="grpo", **changes):
    as_drawn = {"dynamic_sampling": False} if ALGORITHMS[name].dynamic_sampling else {}
    given = {"steps": 2, "warm_start": {"steps": 60}, "witness": {"every": 1}, **changes}
    rollouts = {"prompts": 6, **as_drawn, **given.pop("rollouts", {})}
    return small.recipe(name, rollouts=rollouts, **given)


def by_recipe(folder, name="grpo", **changes):
    """The witnesses and curves of a run by our engine."""
    engine.train_with_trl(recipe(name, **changes), folder=folder, progress=False)
    return evidence.read(folder)


def paid(completions, **_):
    return [text.count("1") - text.count("7") / 3 for text in completions]


def own(folder, kind=None, **options):
    """A reader's own trainer, without a recipe, around the small model."""
    from datasets import Dataset
    from transformers import PrinterCallback

    learner = small.learner(recipe())
    learner.policy.save_pretrained(folder / "reference")
    learner.policy.config._name_or_path = str(folder / "reference")  # where TRL looks for it
    torch.manual_seed(0)
    kind = kind or trl.GRPOTrainer
    defaults = {
        "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 4,
        "num_generations": 6,
        "max_completion_length": 4,
        "learning_rate": 1e-3,
        "max_steps": 3,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
    }
    trainer = kind(
        model=learner.policy,
        args=trl.GRPOConfig(output_dir=str(folder), **defaults | options),
        reward_funcs=paid,
        train_dataset=Dataset.from_list(
            [{"prompt": f"{a}+{b}=", "secret": f"sk-{a}{b}"} for a in range(9) for b in range(8)]
        ),
        processing_class=learner.tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def trained(trainer, folder, *, every=1, **options):
    engine.keep_witnesses(trainer, folder, every=every, **options)
    trainer.train()
    return evidence.read(folder)


def causes(found):
    return [finding.id for finding in diagnose(found).findings]


# ---------------------------------------------------------------- health


RECIPES = {
    "kl, several updates": ("grpo", {"kl": {"beta": 0.05}, "optimiser": PIECES}),
    "token mean": ("dapo", {"optimiser": PIECES}),
    "cispo": ("cispo", {"optimiser": PIECES}),
    "dr-grpo": ("dr-grpo", {}),
    "gspo": ("gspo", {"optimiser": PIECES}),
    "cold": ("grpo", {"rollouts": {"temperature": 0.7}, "reward": {"overlong_buffer": 3}}),
}


@pytest.mark.parametrize("case", swept(RECIPES, keep=("kl, several updates", "token mean")))
def test_a_recipe_by_trl_is_diagnosed_as_healthy(tmp_path, case):
    name, changes = RECIPES[case]
    found = by_recipe(tmp_path / "run", name, **changes)
    report = diagnose(found)
    assert [witness.step for witness in found.witnesses] == [1, 2]
    assert report.findings == []
    (unseen,) = report.unseen  # of a recipe of ours it knows all but this
    assert unseen.startswith("the sampler's log-probs")
    witness = found.witnesses[-1]
    assert witness.has("coefficients", "verified", "verdicts", "scored_log_probs")
    assert witness["coefficients"].abs().max() > 0
    assert witness.facts["weight_change"] > 0
    for place, sizes in enumerate(witness.facts["minibatches"]):  # the last epoch, if of several
        prefix = "last_" if witness.has("last_minibatch") else ""
        rows = witness[f"{prefix}minibatch"] == place
        if rows.any():
            assert sizes["rows"] == rows.sum()
            assert sizes["tokens"] == witness["mask"][rows].sum()
    assert len(witness.facts["minibatches"]) == (4 if "optimiser" in changes else 1)


OPTIONS = {
    "TRL's own": {},
    "no row of ours": {"loss_type": "dr_grpo", "beta": 0.1, "use_bias_correction_kl": False},
    "two updates": {"loss_type": "grpo", "steps_per_generation": 8},
    "cold": {"per_device_train_batch_size": 16, "num_generations": 4, "temperature": 0.8},
}


def test_an_adapter_is_watched_while_it_samples_and_learns(tmp_path):
    """An untrained model is never right, but of what it does not end it loses half a point."""
    changes = {"warm_start": {"steps": 0}, "model": {"lora_rank": 2}, "kl": {"beta": 0.1}}
    rewarded = {"reward": {"truncation_penalty": 0.5}, "rollouts": {"max_new_tokens": 12}}
    found = by_recipe(tmp_path / "run", **changes, **rewarded)
    report = diagnose(found)
    assert report.findings == []
    assert not [line for line in report.unseen if "not seen while it sampled" in line]
    assert [witness.facts["weight_change"] > 0 for witness in found.witnesses] == [True, True]


@pytest.mark.parametrize("case", swept(OPTIONS, keep=("no row of ours", "two updates")))
def test_a_trainer_of_ones_own_is_diagnosed_as_healthy(tmp_path, case):
    found = trained(own(tmp_path, **OPTIONS[case]), tmp_path)
    report = diagnose(found)
    assert report.findings == []
    assert all("parts" in witness.facts for witness in found.witnesses)
    assert any(witness["coefficients"].abs().max() > 0 for witness in found.witnesses)
    assert any(line.startswith("whether rewards are deserved") for line in report.unseen)


def test_the_numbers_are_those_of_the_formula(tmp_path):
    """DAPO's loss on its first update, by hand: −A / (tokens of the batch), A = (r − r̄)/(σ + ε)."""
    trainer = own(tmp_path, max_steps=1, loss_type="dapo")
    (witness,) = trained(trainer, tmp_path).witnesses
    r = torch.tensor(paid(witness.facts["responses"]))
    assert_close(witness["scores"], r)
    groups = r.view(-1, 6)
    spread = groups.std(dim=1, keepdim=True) + 1e-4
    A = ((groups - groups.mean(dim=1, keepdim=True)) / spread).view(-1, 1)
    mask = witness["mask"]
    assert len(mask) == 24
    assert_close(witness["advantages"], A * mask, rtol=1e-4, atol=1e-3)
    by_hand = -witness["advantages"] / mask.sum()
    assert_close(witness["coefficients"], by_hand, rtol=1e-4, atol=1e-7)
    assert (witness["group"].view(-1, 6) == witness["group"].view(-1, 6)[:, :1]).all()


# ---------------------------------------------------------------- faults


class WithoutEnd(trl.GRPOTrainer):
    """Takes the end of each response for padding."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        ended = batch["completion_ids"] == self.eos_token_ids[0]
        batch["completion_mask"] = batch["completion_mask"] * ~ended
        return batch


class Stale(trl.GRPOTrainer):
    """Samples with the weights of the first step."""

    first = None

    def _generate_single_turn(self, *arguments, **options):
        now = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.first = self.first or now
        self.model.load_state_dict(self.first)
        try:
            return super()._generate_single_turn(*arguments, **options)
        finally:
            self.model.load_state_dict(now)


class OtherGroups(trl.GRPOTrainer):
    """Compares the responses of different prompts."""

    def _calculate_rewards(self, *arguments):
        rewards = super()._calculate_rewards(*arguments)
        self.order = torch.arange(len(rewards)).view(self.num_generations, -1).T.flatten()
        return rewards

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        r = torch.tensor(paid(self.processing_class.batch_decode(batch["completion_ids"], True)))
        groups = r[self.order].view(-1, self.num_generations)
        A = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
        batch["advantages"] = A.flatten()[self.order.argsort()]
        return batch


@pytest.mark.parametrize(
    ("kind", "cause"),
    [(WithoutEnd, "masked-eos"), (Stale, "stale-sampler"), (OtherGroups, "mixed-groups")],
)
def test_a_trainer_with_a_fault_is_found_out(tmp_path, kind, cause):
    found = trained(own(tmp_path, kind), tmp_path)
    assert causes(found)[:1] == [cause]


def test_a_loss_that_divides_by_each_micro_batch_is_found_out(tmp_path):
    trainer = own(tmp_path, loss_type="dapo")
    trainer.loss_type = "bnpo"  # what is stated stays
    assert causes(trained(trainer, tmp_path)) == ["micro-batch-means"]


def test_a_sampler_that_keeps_to_a_nucleus_is_found_out(tmp_path):
    """Its log-probs are not told: the tokens give it away, if there are enough of them."""
    trainer = own(tmp_path, per_device_train_batch_size=48, max_steps=2, top_p=0.8)
    found = trained(trainer, tmp_path, tokens=10_000)
    assert causes(found) == ["sampler-truncation"]
    assert sum(int(witness["lengths"].sum()) for witness in found.witnesses) > 500


# ---------------------------------------------------------------- what it costs, what it keeps


def test_the_run_is_the_run_without(tmp_path):
    left = []
    for every in (None, 1):
        trainer = own(tmp_path / str(every), num_iterations=2, beta=0.1)
        if every:
            engine.keep_witnesses(trainer, tmp_path, every=every)
        trainer.train()
        left.append((trainer.state.log_history, trainer.model.state_dict()))
    (plain, before), (watched, after) = left
    assert [row.get("loss") for row in plain] == [row.get("loss") for row in watched]
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


def test_it_is_bounded_and_holds_no_column_but_the_prompt(tmp_path):
    found = trained(own(tmp_path), tmp_path, every=2, tokens=30)
    assert [witness.step for witness in found.witnesses] == [1, 2]
    for witness in found.witnesses:
        assert int(witness["lengths"].sum()) <= 30
        assert len(witness["tokens"]) % 6 == 0
        content = witness.to_bytes()
        assert len(content) < 60_000
        assert b"sk-" not in content
        assert str(tmp_path).encode() not in content


def test_there_are_none_unless_they_are_asked_for(tmp_path):
    engine.train_with_trl(recipe(witness={"every": 0}), folder=tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / run.WITNESS).exists()


# ---------------------------------------------------------------- what it cannot


OTHERS = [("loss_type", "bnpo"), ("scale_rewards", "batch")]
OTHERS += [("mask_truncated_completions", True), ("top_entropy_quantile", 0.5)]


@pytest.mark.parametrize(("key", "value"), swept(OTHERS, keep=OTHERS[:1]))
def test_a_loss_that_no_function_of_ours_computes_is_not_judged_and_that_is_said(
    tmp_path, key, value
):
    report = diagnose(trained(own(tmp_path, max_steps=1, **{key: value}), tmp_path))
    named = f"{key} = {value!r}"
    assert report.findings == []
    assert any(named in line for line in report.unseen)
    assert named in str(report)


def test_what_a_witness_cannot_hold_is_refused_by_name(tmp_path):
    trainer = own(tmp_path, steps_per_generation=2, gradient_accumulation_steps=4)
    with pytest.raises(UserError, match="a batch that is spent within an update"):
        engine.keep_witnesses(trainer, tmp_path)
    with pytest.raises(UserError, match="TRL's GRPOTrainer, and this is object"):
        trl_witness.check(object())
    with pytest.raises(UserError, match=r"witness\.every is 1, .*GRPOTrainer"):
        by_recipe(tmp_path / "run", "rloo")


@pytest.mark.parametrize(
    ("options", "parts", "settings"),
    [
        ({}, ("group_relative", "ppo_clip", "token-mean"), (0.2, 0.2)),
        ({"loss_type": "grpo"}, ("group_relative", "ppo_clip", "seq-mean-token-mean"), (0.2, 0.2)),
        (
            {"loss_type": "dr_grpo", "scale_rewards": "none", "epsilon_high": 0.28},
            ("group_centred", "ppo_clip", "seq-mean-token-sum-norm"),
            (0.2, 0.28),
        ),
        (
            {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4},
            ("group_relative", "gspo", "seq-mean-token-mean"),
            (3e-4, 3e-4),
        ),
        (
            {"loss_type": "cispo", "epsilon_high": 5.0},
            ("group_relative", "cispo", "token-mean"),
            (1.0, 4.0),
        ),
    ],
)
def test_the_stated_loss_is_read_from_the_arguments(tmp_path, options, parts, settings):
    found = trl_stated.stated(
        trl.GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **options)
    )
    assert tuple(found["parts"].values()) == parts
    assert (found["settings"]["clip_low"], found["settings"]["clip_high"]) == settings
    assert math.isclose(found["penalty"]["beta"], 0.0)


@pytest.mark.parametrize(
    ("options", "followed"),
    [
        ({"delta": 2.0}, True),
        ({"delta": 1.1}, False),  # below 1 + epsilon it caps the tokens of good responses as well
        ({"delta": 2.0, "importance_sampling_level": "sequence"}, False),  # ours caps no sequence
        ({"delta": 2.0, "loss_type": "cispo", "epsilon_high": 5.0}, True),  # has no use for it
    ],
)
def test_a_cap_that_no_function_of_ours_has_is_not_followed(tmp_path, options, followed):
    """TRL clamps ρ to at most δ before the minimum, whatever the sign of the advantage."""
    found = trl_stated.stated(
        trl.GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **options)
    )
    assert ("parts" in found) == followed
    assert followed or f"delta = {options['delta']}" in found["not_followed"]
