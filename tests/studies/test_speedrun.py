"""The speed run: one clock, both examinations, and a line that says whether it is an entry."""

import json
import time

import pytest

from book.studies import speedrun
from book.studies.speedrun import Entry
from nbcourse.errors import UserError
from tests import hub

RECIPE = """
steps = 2
[algorithm]
name = "grpo"
[task]
name = "gsm8k"
path = "{data}"
[model]
layers = 1
width = 32
vocabulary = 300
[prompt]
instruction = "Write #### and the answer."
[rollouts]
prompts = 4
group_size = 2
max_new_tokens = 6
[evaluation]
problems = 4
"""


def test_the_clock_runs_from_the_start_of_the_process():
    before = speedrun.since_the_start()
    time.sleep(0.05)
    assert 0.05 <= speedrun.since_the_start() - before < 5
    assert before > 0.1  # this process has imported torch


def test_a_run_is_trained_and_both_models_are_asked_the_whole_test(tmp_path):
    data = hub.data(tmp_path / "gsm8k", train=40, test=7)
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(RECIPE.format(data=data), encoding="utf-8")
    options = {"base_instruction": "Think.", "limit": 9}
    found = speedrun.run(str(recipe), ["seed=3"], tmp_path / "run", **options)
    exam = json.loads((tmp_path / "run" / "evaluation-gsm8k-test-9-tokens.json").read_text())
    assert (exam["split"], exam["problems"], exam["max_new_tokens"]) == ("test", 7, 9)
    assert exam["recipe"]["prompt"]["instruction"] == "Write #### and the answer."
    assert exam["base_instruction"] == found.base_instruction == "Think."
    kept = json.loads((tmp_path / "run" / speedrun.FILE).read_text())
    assert kept == json.loads(json.dumps(found._asdict()))
    assert (found.seed, found.times_asked) == (3, 1)
    assert found.gain == exam["gain"]["content"]["mean"]
    assert exam["seconds"] < found.seconds <= speedrun.since_the_start()
    with pytest.raises(UserError):
        speedrun.run(str(recipe), ["seed=3"], tmp_path / "run", **options)


@pytest.mark.parametrize(
    ("gain", "low", "reached"),
    [(0.05, 0.001, True), (0.049, 0.02, False), (0.06, 0.0, False), (0.2, -0.01, False)],
)
def test_an_entry_has_five_points_and_an_interval_above_zero(gain, low, reached):
    entry = Entry("x", 0, 1.0, gain, (low, 0.3), 1, "a card", "abc", "")
    assert entry.reached is reached
