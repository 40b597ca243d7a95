"""The sentences that show a cause, word by word: of recorded runs, and of one number changed."""

import math
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from nbcourse.diagnosis import credit, draws, policies, updates
from nbcourse.diagnosis.diagnose import diagnose
from nbcourse.diagnosis.witness import Witness
from nbcourse.experiments import evidence, records
from nbcourse.experiments.small_lab import recipe_of, train
from nbcourse.functional.kl import rewards_with_kl
from tests.diagnosis.runs import SEED, causes, sound

WRITTEN = [
    line.split("\t")
    for line in Path(__file__).with_name("evidence.tsv").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("run", [run for run, *_ in WRITTEN])
def test_a_recorded_run_shows_its_cause_in_these_words(run):
    report = diagnose(evidence.read(records.RUNS / "silent-failures" / "logs" / f"{run}.zip"))
    said = [[run, one.kind, one.id, one.evidence] for one in report.findings]
    assert said == [row for row in WRITTEN if row[0] == run]


# ---------------------------------------------------------------- one number changed


@pytest.fixture
def healthy():
    """The first witness of a healthy run, to be changed."""
    one, *_ = sound("grpo").witnesses
    return Witness(dict(one.facts), {name: tensor.clone() for name, tensor in one.tensors.items()})


def learning(witness):
    """The first row that has an advantage, follows a prompt without padding, and is two long."""
    rows = (witness["advantages"] != 0).any(dim=1) & ~witness["padded"]
    return int((rows & (witness["lengths"] > 1)).nonzero()[0])


def said(finding):
    return (finding.kind, finding.id, finding.evidence)


def test_a_score_that_is_not_the_verdict(healthy):
    healthy["scores"][0] += 0.25
    assert said(credit.verdicts(healthy)) == (
        "certain",
        "wrong-scores",
        f"at step 1 1 of {len(healthy['scores'])} scores are not the verdict less the stated "
        "penalties; the largest difference is 0.25",
    )


def test_an_advantage_that_does_not_follow(healthy):
    row = learning(healthy)
    healthy["advantages"][row, healthy["mask"][row]] += 0.5
    assert said(credit.advantages(healthy)) == (
        "certain",
        "wrong-advantages",
        "at step 1 the advantages differ by up to 0.5 from those that follow from the rewards",
    )


def test_a_log_prob_of_the_learner_that_is_another(healthy):
    healthy["scored_log_probs"][learning(healthy), 0] += 0.5
    assert said(policies.learner(healthy)) == (
        "certain",
        "learner-mismatch",
        "at step 1 the learner's log-probs differ by up to 0.5 nats from those of the same "
        "response without padding",
    )


def test_a_log_prob_of_the_sampler_that_is_another(healthy):
    healthy["sampler_log_probs"][0, 0] += 0.5
    assert said(policies.sampler(healthy)) == (
        "likely",
        "sampler-mismatch",
        "at step 1 the log-probs of sampler and learner differ by up to 0.5 nats, which no "
        "temperature and no top-p explains",
    )


def test_a_log_prob_of_the_reference_that_is_another(healthy):
    for name in ("ref_log_probs", "plain_ref_log_probs"):
        healthy.tensors[name] = healthy["plain_log_probs"].clone()
    assert policies.reference(healthy) is None
    healthy["ref_log_probs"][0, 0] += 0.5
    assert said(policies.reference(healthy)) == (
        "certain",
        "reference-mismatch",
        "at step 1 the reference's log-probs differ by up to 0.5 nats from those of the same "
        "response without padding",
    )


def test_a_penalty_that_is_not_the_stated_one(healthy):
    healthy.facts["penalty"] = healthy.facts["penalty"] | {"placement": "reward", "beta": 0.1}
    ref = healthy.tensors["ref_log_probs"] = healthy["sampler_log_probs"] - 1
    given = healthy["scores"], healthy["sampler_log_probs"], ref, healthy["mask"]
    healthy.tensors["token_rewards"] = rewards_with_kl(*given, beta=0.1)
    assert credit.token_rewards(healthy) is None
    healthy["token_rewards"][0, 0] += 0.3
    assert said(credit.token_rewards(healthy)) == (
        "certain",
        "wrong-kl",
        "at step 1 the rewards of tokens differ by up to 0.3 from score and stated KL",
    )


def test_a_derivative_that_is_another(healthy):
    entry = healthy["coefficients"].abs() * (healthy["lengths"][:, None] > 1)
    row, column = divmod(int(entry.argmax()), entry.shape[1])
    share = healthy["coefficients"][row, column] / healthy["coefficients"].abs().max() / 2
    healthy["coefficients"][row, column] *= 1.5
    assert said(updates.loss(healthy)) == (
        "certain",
        "wrong-loss",
        "at step 1 the derivative of the loss in the log-probs differs from that of grpo by up to "
        f"{abs(share):.2g} of its largest entry",
    )


def test_a_token_that_was_not_drawn(healthy):
    ours = healthy["tokens"][0, : healthy["lengths"][0]].tolist()
    theirs = [ours[0] + 1, *ours[1:]]
    healthy["drawn_tokens"][0, 0] += 1
    assert said(draws.tokens(healthy))[1:] == (
        "re-tokenised",
        f"at step 1 the learner's tokens of 1 of {len(healthy['tokens'])} responses are not the "
        f"sampler's, and in 1 they are those of the decoded text: {ours[:8]} for {theirs[:8]}",
    )


# ---------------------------------------------------------------- who is not to be accused


@pytest.mark.parametrize(("log_prob", "named"), [(-0.001, None), (-5.0, "same-samples")])
def test_equal_samples_are_a_fault_only_if_chance_does_not_make_them(healthy, log_prob, named):
    """A policy that has collapsed says the same each time, and is right to."""
    group = healthy.facts["group_size"]
    for name in ("tokens", "lengths", "group"):
        table = healthy[name]
        healthy.tensors[name] = table[::group].repeat_interleave(group, dim=0)
    healthy.tensors["plain_log_probs"] = torch.full(healthy["tokens"].shape, log_prob)
    finding = draws.samples([healthy])
    assert (finding and finding.id) == named
    if finding:
        counted = healthy["lengths"].view(-1, group)[:, 1:].sum()
        assert finding.evidence == (
            "at step 1 all responses of each group are the same; of independent draws that has "
            f"probability 10^{log_prob * counted / math.log(10):.0f}"
        )


@pytest.mark.parametrize("accepted", [True, False])
def test_a_truncated_answer_may_be_paid_where_the_recipe_says_so(healthy, accepted):
    healthy.facts["reward"] = healthy.facts["reward"] | {"accept_truncated": accepted}
    right = int(healthy["verified"].nonzero()[0])
    healthy["truncated"][right] = True
    finding = credit.verdicts(healthy)
    assert (finding is None) == accepted
    if finding:
        assert said(finding)[1:] == (
            "paid-truncation",
            "at step 1 1 responses were paid although they had been cut off",
        )


def test_a_loss_weighed_by_its_sampler_is_right_only_that_way_round(healthy):
    """Each token by π_old/π_sampler, at most 2: a token that the sampler gave less counts more."""
    said_less = torch.where(healthy["mask"], 0.5, 0.0)
    healthy.facts["importance_cap"] = 2.0
    healthy.tensors["sampler_log_probs"] = healthy["old_log_probs"] - said_less
    plain = healthy["coefficients"].clone()
    healthy.tensors["coefficients"] = plain * said_less.exp()
    assert updates.loss(healthy) is None
    healthy.tensors["coefficients"] = plain * (-said_less).exp()
    assert updates.loss(healthy) is not None


# ---------------------------------------------------------------- losses that are wrong


@pytest.mark.parametrize("high", [None, 0.5])
def test_the_wrong_surrogates_are_those_of_their_formulas(high):
    source = torch.Generator().manual_seed(0)
    now, old, advantages = torch.randn(3, 40, generator=source, dtype=torch.float64)
    now = now.requires_grad_()
    top = 1.2 if high is None else 1.5
    inverted = (old - now).exp()
    sides = (now - old).exp() * advantages, (now - old).exp().clamp(0.8, top) * advantages
    expected = {
        updates.inverted_ratio: -torch.minimum(
            inverted * advantages, inverted.clamp(0.8, top) * advantages
        ),
        updates.inverted_clip: -torch.where(
            advantages >= 0, torch.minimum(*sides), torch.maximum(*sides)
        ),
    }
    for surrogate, losses in expected.items():
        found = surrogate(now, old, advantages, clip_low=0.2, clip_high=high)
        assert_close(found, losses)
        slopes = [torch.autograd.grad(x.sum(), now, retain_graph=True) for x in (found, losses)]
        assert_close(*slopes)


def test_a_loss_that_is_upside_down_is_known_by_the_clip_that_the_run_states():
    tables = {
        "algorithm": {"name": "grpo", "clip_high": 1.0},
        "optimiser": {"epochs": 4, "minibatches": 2, "learning_rate": 0.02},
    }
    found = train(recipe_of(tables, SEED), "inverted-ratio", faults=["inverted-ratio"])
    assert found.name == "inverted-ratio"
    assert {"step", "reward"} < found.history[0].keys()  # what a run tells but for its seconds
    assert not any("second" in key for row in found.history for key in row)
    assert causes(found) == ["inverted-ratio"]
