"""Recorded LunarLander runs: what a run leaves behind; and the committed ones are whole."""

import json
import sys
from dataclasses import replace
from statistics import fmean, stdev

import gymnasium
import pytest

from book.studies import lunar_lander
from nbcourse.agents import train
from nbcourse.experiments import records

SMALL = lunar_lander.Recording(
    seed=3,
    agent=replace(lunar_lander.PPO, steps=16, minibatches=2, epochs=1),
    environments=2,
    steps=3 * 2 * 16,
    hidden=4,
    episodes=4,
)


@pytest.fixture(scope="module")
def box2d():
    """LunarLander moves in it; there is no wheel for Python 3.14, nor for Linux on ARM."""
    pytest.importorskip("Box2D")


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, box2d):
    folder = tmp_path_factory.mktemp("runs") / "lunar-lander" / "seed3"
    lunar_lander.record(SMALL, folder, progress=False)
    return folder


def test_a_run_leaves_the_four_files(folder):
    names = {records.RECIPE, records.ENVIRONMENT, records.METRICS, records.SUMMARY}
    assert {path.name for path in folder.iterdir()} == names


def test_the_recipe_holds_every_setting_with_functions_by_name(folder):
    recipe = read(folder, records.RECIPE)
    assert (recipe["seed"], recipe["environment"], recipe["steps"]) == (3, "LunarLander-v3", 96)
    assert recipe["agent"]["advantage"] == "gae"
    assert recipe["agent"]["surrogate"] == "ppo_clip"
    assert recipe["agent"]["lam"] == 0.98
    assert recipe["agent"]["clip_low"] == 0.2


def test_the_metrics_are_those_of_the_same_training_without_records(folder):
    envs = lunar_lander.environments(SMALL, 2)
    trained = train(SMALL.agent, envs, steps=96, seed=3, hidden=4, progress=False)
    kept = records.read_metrics(folder)
    assert [row["step"] for row in kept] == [32, 64, 96]
    assert kept[-1]["policy_loss"] == trained.curve[-1]["policy_loss"]


def test_the_evaluation_begins_where_the_training_did_not(box2d, tmp_path, monkeypatch):
    asked = []

    def evaluated(network, envs, *, episodes, seed, greedy):
        asked.append((episodes, seed != SMALL.seed, greedy))
        return [1.0, 2.0]

    monkeypatch.setattr(lunar_lander, "evaluate", evaluated)
    lunar_lander.record(SMALL, tmp_path, progress=False)
    assert asked == [(4, True, False), (4, True, True)]


def test_the_summary_follows_from_the_returns(folder):
    summary = read(folder, records.SUMMARY)
    assert summary["steps"] == 96
    for way in ("sampled", "greedy"):
        found = summary[way]
        assert len(found["returns"]) == 4
        assert found["mean"] == pytest.approx(fmean(found["returns"]), abs=0.1)
        assert found["standard_error"] == pytest.approx(stdev(found["returns"]) / 2, abs=0.1)


def test_the_command_in_the_record_is_the_one_that_makes_it(monkeypatch):
    monkeypatch.setattr("sys.argv", ["lunar_lander.py", "runs/x", "--seed", "3"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", lunar_lander.__spec__)
    command = lunar_lander.environment()["command"]
    assert command == "python -m book.studies.lunar_lander runs/x --seed 3"


def test_a_second_run_takes_the_place_of_the_first(folder, tmp_path):
    lunar_lander.record(SMALL, tmp_path, progress=False)
    again = lunar_lander.record(SMALL, tmp_path, progress=False)
    assert len(records.read_metrics(tmp_path)) == 3
    assert again["sampled"] == read(folder, records.SUMMARY)["sampled"]


def test_without_box2d_one_line_says_what_to_do(tmp_path, monkeypatch, capsys):
    def missing(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make_vec", missing)
    with pytest.raises(SystemExit) as stopped:
        lunar_lander.main([str(tmp_path / "run"), "--seed", "0"])
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert said.endswith(f"{lunar_lander.NO_BOX2D}\n")
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def in_the_names_of_today(recipe):
    """The runs were recorded when PPO's surrogate was "clipped" and had one setting, "clip".

    Its interval had the same width on either side and no dual clip, and the row said whether there
    is a critic, which now follows from its functions. The critic took no further steps.
    """
    agent = dict(recipe["agent"])
    assert agent.pop("surrogate") == "clipped"
    assert agent.pop("critic") is lunar_lander.PPO.critic is True
    clip = {"clip_low": agent.pop("clip"), "clip_high": None, "dual_clip": None}
    return {**recipe, "agent": {**agent, **clip, "surrogate": "ppo_clip", "critic_steps": 0}}


@pytest.mark.parametrize("seed", range(3))
def test_the_recorded_runs_are_whole_and_of_the_plan_that_the_module_holds(seed):
    run = records.RUNS / "lunar-lander" / f"seed{seed}"
    plan = lunar_lander.Recording(seed)
    today = lunar_lander.recipe(plan)
    assert in_the_names_of_today(read(run, records.RECIPE)) == today
    assert records.read_metrics(run)[-1]["step"] == plan.steps <= 500_000
    assert len(read(run, records.SUMMARY)["sampled"]["returns"]) == 100
