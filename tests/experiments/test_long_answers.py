"""The recorded study on long answers: each question changes one field, and runs pair by seed."""

import json
import math

import pytest

from nbcourse.experiments import long_answers, records
from nbcourse.experiments.controlled import differ
from nbcourse.experiments.long_answers import QUESTIONS, recipes, recorded

FIELDS = {
    "aggregation": "algorithm.name",
    "surrogate": "algorithm.name",
    "overlong": "reward.overlong_buffer",
    "lambda": "algorithm.lam",
}
SMALL = (
    "steps=2",
    "task.crossings=3",
    "task.blocks=1",
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "warm_start.steps=2",
    "warm_start.careless_steps=1",
    "rollouts.prompts=4",
    "rollouts.group_size=2",
    "rollouts.max_new_tokens=80",
    "evaluation.problems=4",
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_changes_one_field(question):
    assert differ(recipes(question)).field == FIELDS[question]


def test_the_rows_of_the_first_question_differ_in_the_mean_over_tokens():
    rows = {name: recipe.row for name, recipe in recipes("aggregation").items()}
    difference = differ(rows)
    assert difference.field == "aggregation"
    assert all(name == mode for name, mode in difference.values.items())


def test_what_is_recorded_is_read_again_as_an_experiment(tmp_path):
    long_answers.record(tmp_path, *SMALL, questions=("overlong",), seeds=(0, 3), progress=False)
    lines = long_answers.read(tmp_path)
    assert [(line["name"], line["seed"]) for line in lines] == [
        ("without", 0),
        ("with", 0),
        ("without", 3),
        ("with", 3),
    ]
    assert {"command", "commit", "hardware"} <= {*records.read_json(tmp_path / "environment.json")}
    assert records.read_json(tmp_path / "summary.json")["trainings"] == 4
    made = recorded(tmp_path, "overlong", every=2)
    assert made.seeds == (0, 3)
    for i, seed in enumerate(made.seeds):
        steps = next(x["metrics"] for x in lines if (x["name"], x["seed"]) == ("with", seed))
        mean = (steps[0]["length"] + steps[1]["length"]) / 2
        assert made.curves["with"]["length"][i].tolist() == pytest.approx([mean])


def test_a_second_call_trains_only_what_is_missing(tmp_path):
    arguments = {"questions": ("overlong",), "progress": False}
    long_answers.record(tmp_path, *SMALL, seeds=(0,), **arguments)
    first = (tmp_path / long_answers.RESULTS).read_text()
    long_answers.record(tmp_path, *SMALL, seeds=(0, 1), **arguments)
    both = (tmp_path / long_answers.RESULTS).read_text()
    assert both.startswith(first)
    assert [json.loads(line)["seed"] for line in both.splitlines()] == [0, 0, 1, 1]


def test_a_number_that_was_not_to_be_had_is_left_out_of_the_mean():
    rows = [{"step": 1, "length": 4.0}, {"step": 2, "length": None, "held_out": 0.5}]
    assert long_answers._mean(rows)["length"] == 4.0
    assert math.isnan(long_answers._mean(rows[1:])["length"])
