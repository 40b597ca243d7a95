"""The recorded study of the critic: what it trains, what it leaves behind, and if it is whole."""

import pytest
import torch
from torch.testing import assert_close

from book.studies import critic_study
from book.studies.critic_study import CONFIGURATIONS, NUMBERS, ROUNDS
from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.experiments.controlled import differ, experiment
from nbcourse.lm.actor_critic import Critic
from nbcourse.training import loop
from nbcourse.training.experience import Draws
from nbcourse.training.recipe import check, load
from tests.small import ALONE, learner, recipe

NAMES = ("shared", "own", "own, warmed up")
WARM = {"steps": 25, "batch_size": 32}
SMALL = recipe("ppo", warm_start=WARM)
FEW = 3  # rounds, in the place of `ROUNDS`


@pytest.fixture(scope="module")
def few_rounds():
    warmed_up = {**CONFIGURATIONS["own, warmed up"], "critic_rounds": FEW}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critic_study, "ROUNDS", FEW)
        patch.setitem(CONFIGURATIONS, "own, warmed up", warmed_up)
        yield


@pytest.fixture(scope="module")
def folder(few_rounds, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "critic-study"
    critic_study.record(SMALL, folder, seeds=(3, 4), names=NAMES, progress=False)
    return folder


def test_every_configuration_is_trained_with_every_seed(folder):
    found = records.read_results(folder)
    expected = [(name, seed) for seed in (3, 4) for name in NAMES]
    assert [(one["configuration"], one["seed"]) for one in found] == expected
    for one in found:
        assert all(len(one[name]) == SMALL.steps for name in NUMBERS)
        assert len(one["stopped"]) == FEW
        assert len(one["before"]) == (FEW if one["configuration"] == "own, warmed up" else 0)


def test_configurations_of_a_seed_begin_with_the_same_samples(folder):
    by_seed = {}
    for one in records.read_results(folder):
        by_seed.setdefault(one["seed"], set()).add((one["reward"][0], one["kl_ref"][0]))
    assert [len(firsts) for firsts in by_seed.values()] == [1, 1]


def test_the_kl_is_measured_in_every_step(few_rounds):
    """Where the loop measures it in few of them; in these it says the same."""
    tables = critic_study.configurations(SMALL, ["own"])["own"]
    tables = {**tables, "steps": 4, "evaluation": {"every": 4, "problems": 8}}
    found = critic_study.result(learner(SMALL), tables, ALONE)
    seldom = {key: table for key, table in tables.items() if key != "critic_rounds"}
    made = learner(check(seldom, complete=True))
    told = list(loop.steps(made, loop.begin(made.recipe), ALONE))
    assert [row["step"] for row in told if "kl_ref" in row] == [1, 4]
    assert len(found["kl_ref"]) == 4
    assert all(distance is not None for distance in found["kl_ref"])
    assert found["kl_ref"][::3] == pytest.approx([told[0]["kl_ref"], told[3]["kl_ref"]], rel=1e-4)


def test_only_the_critic_that_was_warmed_up_has_an_opinion_at_the_start(folder):
    for one in records.read_results(folder):
        first = one["monte_carlo_explained_variance"][0]
        assert (first != 0.0) == (one["configuration"] == "own, warmed up")


def test_what_was_recorded_can_be_read_as_an_experiment(folder):
    made = critic_study.configurations(SMALL, ["shared", "own"])
    results = records.read_results(folder)
    run = critic_study.recorded(results, made)
    read = experiment(made, run, seeds=(4, 3), schedule=(1, 2), progress=False)
    assert read.difference.field == "critic.shared"
    (own,) = (one for one in results if (one["configuration"], one["seed"]) == ("own", 3))
    assert_close(read.curves["own"]["reward"][1], torch.tensor(own["reward"]).double())


@pytest.mark.parametrize(
    ("pair", "field"),
    [
        (("shared", "own"), "critic.shared"),
        (("shared", "shared, c = 1"), "critic.coefficient"),
        (("own", "own, λ = 1"), "algorithm.lam"),
        (("own", "own, warmed up"), "critic_rounds"),
    ],
)
def test_neighbours_differ_in_one_field(pair, field):
    assert differ(critic_study.configurations(SMALL, pair)).field == field


def test_a_critic_learns_about_a_policy_that_stands_still():
    made = learner(recipe("ppo", critic={"shared": False}, warm_start=WARM))
    before = [p.clone() for p in made.policy.parameters()]
    head = made.critic.head.linear.bias.clone()
    found = critic_study.learn_values(made, Draws(made.recipe), ALONE, rounds=3)
    assert len(found) == 3
    assert all(torch.equal(a, b) for a, b in zip(before, made.policy.parameters(), strict=True))
    assert isinstance(made.critic, Critic)
    assert not torch.equal(head, made.critic.head.linear.bias)


def test_a_critic_on_the_policys_trunk_cannot_learn_alone():
    made = learner(recipe("ppo"))
    with pytest.raises(UserError, match="expected one of its own"):
        critic_study.learn_values(made, Draws(made.recipe), ALONE, rounds=1)


def test_the_recorded_study_is_whole_and_of_the_recipe_in_the_package():
    run = records.RUNS / "critic-study" / "arithmetic"
    made, results = load("arithmetic-critic"), records.read_results(run)
    assert records.read_recipe(run).in_use() == made.in_use()
    found = [(one["configuration"], one["seed"]) for one in results]
    assert found == [(name, seed) for seed in range(3) for name in CONFIGURATIONS]
    assert all(len(one["reward"]) == made.steps for one in results)
    assert {(one["configuration"] == "own, warmed up", len(one["before"])) for one in results} == {
        (True, ROUNDS),
        (False, 0),
    }
    assert {len(one["stopped"]) for one in results} == {ROUNDS}
    assert not records.read_json(run / records.ENVIRONMENT)["uncommitted_changes"]
    assert records.read_json(run / records.SUMMARY)["trainings"] == len(results)
