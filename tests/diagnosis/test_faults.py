"""Each fault is named from its witnesses, none is seen in a healthy run, and none stays behind."""

import inspect
import re

import pytest
import torch

from book.studies.silent_failures import SOUND
from nbcourse.diagnosis import credit, curves, draws, policies, updates
from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.faults import FAULTS, planted
from nbcourse.diagnosis.planting import PLANTS
from nbcourse.diagnosis.recorder import Recorder
from nbcourse.diagnosis.report import UNTOLD
from nbcourse.diagnosis.suspects import CAUSES
from nbcourse.diagnosis.witness import Witness
from nbcourse.experiments.small_lab import recipe_of, train
from nbcourse.functional import advantages, kl, returns
from nbcourse.lm import log_probs, sampling
from nbcourse.tasks.task import Task
from nbcourse.training import algorithms, experience, loop
from nbcourse.training import learner as learners
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.recipe_sections import RewardSection
from tests.diagnosis.runs import SEED, broken, causes, sound
from tests.effort import swept
from tests.small import ALONE, learner, recipe

# one of each kind: sampler, learner, mask, reward, credit, loss, weights
SAMPLE = ("stale-sampler", "shifted-log-probs", "masked-eos", "shifted-rewards", "mixed-groups")
SAMPLE += ("inverted-kl", "idle-optimiser", "re-tokenised", "trained-padding")


BESIDE = {"no-signal": ["often-truncated"]}  # what else is so in that run


@pytest.mark.parametrize("name", swept(FAULTS, keep=SAMPLE))
def test_a_fault_has_one_name(name):
    assert causes(broken(name)) == [FAULTS[name].cause, *BESIDE.get(name, ())]


def test_whitening_that_reads_padding_takes_it_for_zeros():
    """By hand: 3, 1 and a padded 5, which counts as 0, have the mean 4/3."""
    x, mask = torch.tensor([[3.0, 1.0, 5.0]]), torch.tensor([[True, True, False]])
    with planted("padded-whitening"):
        found = algorithms.masked_whiten(x, mask)
    spread = torch.tensor([3.0, 1.0, 0.0]).std()
    expected = torch.tensor([[5 / 3, -1 / 3, 0.0]]) / (spread + 1e-8)
    torch.testing.assert_close(found, expected)
    assert algorithms.masked_whiten(x, mask)[0, 0] == pytest.approx(1 / 2**0.5, abs=1e-3)


@pytest.mark.parametrize(("minibatches", "seen"), [(1, []), (2, ["kl-sign"])])
def test_a_wrong_sign_of_the_kl_shows_in_the_first_step_if_it_has_a_second_update(
    minibatches, seen
):
    """Section 16.9: before it the policy is the reference, and the KL has no gradient."""
    tables = {"steps": 1, "kl": {"beta": 0.05}, "witness": {"every": 1}}
    one_step = recipe_of(tables | {"optimiser": {"minibatches": minibatches}}, SEED)
    assert causes(train(one_step, "one step", faults=["kl-sign-in-loss"])) == seen


def test_a_mask_without_its_end_leaves_the_penalty_for_length_as_it_was():
    """The penalty was paid for the tokens that were sampled, which the mask does not count."""
    tables = FAULTS["masked-eos"].changes(0) | {"reward": {"overlong_buffer": 4}}
    found = train(recipe_of(tables, SEED), "masked-eos", faults=["masked-eos"])
    assert causes(found) == ["masked-eos"]


@pytest.mark.parametrize("name", swept(SOUND, keep=("grpo", "kl in the reward")))
def test_a_healthy_run_is_not_accused(name):
    assert causes(sound(name)) == []


ROWS = {name: {} for name in ALGORITHMS} | {
    "grpo-process": {"task": {"name": "running-sums", "digits": 1}},
    "grpo": {"optimiser": {"minibatches": 3, "target_kl": 1e-6}},
}


@pytest.mark.parametrize("name", ROWS)
def test_no_row_of_the_table_is_accused(name):
    made = learner(recipe(name, warm_start={"steps": 25, "batch_size": 32}, **ROWS[name]))
    found = []
    made.watch = Recorder(1, 1024, found.append)
    list(loop.steps(made, loop.begin(made.recipe), ALONE))
    assert len(found) == 2
    assert causes(Evidence(name, found)) == []


def test_a_run_whose_batches_are_not_full_is_not_accused():
    """Dynamic sampling makes do with the groups that it has, in fewer minibatches."""
    changes = {
        "steps": 4,
        "witness": {"every": 4},
        "algorithm": {"name": "dapo"},
        "optimiser": {"minibatches": 8},
        "task": {"digits": 2},
        "warm_start": {"steps": 100, "careless_steps": 0, "batch_size": 64},
    }
    found = train(recipe_of(changes, SEED), "healthy")
    assert min(row["updates"] for row in found.history) < 8
    assert set(causes(found)) <= {"no-signal"}  # which is so: hardly a group has a spread
    assert [witness.facts["may_leave_early"] for witness in found.witnesses] == [False, False]


def test_there_are_the_faults_that_were_asked_for():
    assert len(FAULTS) >= 25
    assert {fault.cause for fault in FAULTS.values()} <= set(CAUSES)
    assert set(FAULTS) - set(PLANTS) == {"no-signal", "all-truncated"}  # faults of a recipe
    assert set(PLANTS) <= set(FAULTS)
    for name, fault in FAULTS.items():
        assert fault.sentence.endswith("."), name
        assert fault.source, name


PLACES = (loop, experience, experience.Experience, learners, learners.Learner, sampling, log_probs)
PLACES += (advantages, kl, returns, algorithms, Task, RewardSection)


def test_nothing_of_a_fault_stays_behind():
    before = [dict(vars(place)) for place in PLACES] + [dict(algorithms.ALGORITHMS)]
    with planted(*FAULTS):
        during = [dict(vars(place)) for place in PLACES] + [dict(algorithms.ALGORITHMS)]
    after = [dict(vars(place)) for place in PLACES] + [dict(algorithms.ALGORITHMS)]
    assert before == after
    assert sum(a != b for a, b in zip(before, during, strict=True)) >= 10


def test_a_fault_is_not_seen_once_it_is_mended():
    """The same recipe and seed with and without: what is named is the fault, not the recipe."""
    assert FAULTS["mixed-groups"].changes(0) == SOUND["grpo"]  # so the healthy run is that
    again = train(recipe_of(FAULTS["inverted-kl"].changes(0), SEED), "mended")
    assert causes(again) == []


@pytest.mark.parametrize(("size", "named"), [(3e-4, None), (0.5, "amplified-flat-groups")])
def test_what_an_eps_of_a_ten_thousandth_leaves_of_a_rounding_error_is_no_fault(size, named):
    """Four scores of −1/3 have a spread of 3e-8, over 1e-4 3e-4. Token rewards are not needed."""
    healthy, *_ = sound("grpo").witnesses
    tensors = {name: t.clone() for name, t in healthy.tensors.items() if name != "token_rewards"}
    tensors["scores"][:4] = -1 / 3
    tensors["advantages"][:4] = size
    finding = credit.advantages(Witness(healthy.facts, tensors))
    assert (finding and finding.id) == named


def test_verdicts_of_a_trainer_that_states_no_reward_are_not_looked_at():
    """A reward function of a reader's own may log what it calls a verdict."""
    healthy, *_ = sound("grpo").witnesses
    facts = {name: fact for name, fact in healthy.facts.items() if name != "reward"}
    assert credit.verdicts(Witness(facts, healthy.tensors)) == UNTOLD


def test_a_text_that_can_be_written_in_several_ways_is_no_fault_by_itself():
    """The same vocabulary, and tokens handed on as they are."""
    healthy = train(recipe_of(FAULTS["re-tokenised"].changes(0), SEED), "healthy")
    assert "re-tokenised" not in causes(healthy)
    for witness in healthy.witnesses:
        rows = zip(
            witness["drawn_tokens"].tolist(), witness["encoded_tokens"].tolist(), strict=True
        )
        assert sum(drawn != again[: len(drawn)] for drawn, again in rows) > 10


def test_every_cause_that_a_rule_names_is_known_and_the_other_way_round():
    rules = (credit, curves, draws, policies, updates)
    sources = "".join(map(inspect.getsource, rules))
    named = set(re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"', sources))
    assert set(CAUSES) <= named, set(CAUSES) - named
