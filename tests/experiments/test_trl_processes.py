"""Two processes that `accelerate launch` started do with TRL what one does: one batch, one run."""

import json
import math
from pathlib import Path
from statistics import fmean

import pytest
import torch

from nbcourse.experiments import evaluation, records, trl_trainer
from nbcourse.lm import lora
from nbcourse.training.experience import Experience
from nbcourse.training.update import Update, backward
from tests import script, small
from tests.experiments.test_trl import TOLD

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("trl_parallel.py")
# On a machine without a GPU too, `--multi_gpu` it is: `--cpu` starts one process.
LAUNCH = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
SAID = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
IMPORTS = ["nbcourse.cli", "nbcourse.experiments.trl", "trl.trainer.grpo_trainer"]
IMPORTS += ["trl.trainer.rloo_trainer", "torch.distributed.run"]
TOML = """
steps = 2
task = { digits = 1 }
rollouts = { prompts = 6, group_size = 4, max_new_tokens = 12 }
evaluation = { problems = 8 }
"""
RECIPES = {
    "grpo": """
algorithm = { name = "grpo" }
model = { layers = 1, width = 32, heads = 4 }
kl = { beta = 0.1 }
warm_start = { steps = 20 }
""",
    "dapo": """
algorithm = { name = "dapo" }
model = { layers = 1, width = 32, heads = 4 }
""",
    "adapter": """
algorithm = { name = "rloo" }
model = { layers = 1, width = 32, heads = 4, lora_rank = 2 }
kl = { beta = 0.1 }
""",
}


def prepared(folder, launcher):
    """A run of the script in a folder with the recipes."""
    (folder / "recipes").mkdir()
    for name, text in RECIPES.items():
        text = TOML + text
        if name == "dapo":
            text = text.replace("group_size = 4,", "group_size = 4, dynamic_sampling = false,")
        (folder / "recipes" / f"{name}.toml").write_text(text, encoding="utf-8")
    return script.Run(SCRIPT, ["out.json", "recipes", "runs"], folder, launcher)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folders of one process and of two, and what each process reported."""
    launchers = {"one": [], "two": [*LAUNCH, *SAID, "--main_process_port", "0"]}
    runs = [prepared(tmp_path_factory.mktemp(name), words) for name, words in launchers.items()]
    for printed in script.run_each(runs, imports=IMPORTS):
        assert printed.count("held-out accuracy") == len(RECIPES)  # told once
    folders = [run.folder for run in runs]
    told = [[path.read_text("utf-8") for path in sorted(f.glob("out-*.json"))] for f in folders]
    return list(zip(folders, [[*map(json.loads, texts)] for texts in told], strict=True))


@pytest.fixture(scope="module")
def one(both):
    return both[0]


@pytest.fixture(scope="module")
def two(both):
    return both[1]


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", RECIPES)
def test_two_leave_the_files_of_one(one, two, name):
    assert [report["count"] for report in one[1]] == [1]
    assert [(report["rank"], report["count"]) for report in two[1]] == [(0, 2), (1, 2)]
    alone, together = (folder / "runs" / name for folder in (one[0], two[0]))
    assert files(together) == files(alone)
    environment = json.loads((together / records.ENVIRONMENT).read_text("utf-8"))
    assert (environment["processes"], environment["engine"]) == (2, "trl")
    assert [row["step"] for row in records.read_metrics(together)] == [1, 2]
    summary = json.loads((together / records.SUMMARY).read_text("utf-8"))
    assert summary["held_out"] == records.read_metrics(together)[-1]["held_out"]
    result = evaluation.evaluate(together, problems=3, progress=False)
    assert result["before"]["strict"]["of"] == result["after"]["strict"]["of"] == 3


@pytest.mark.parametrize("name", RECIPES)
def test_both_end_with_the_same_weights(two, name):
    first, second = (report["runs"][name]["weights"] for report in two[1])
    assert first == second


@pytest.mark.parametrize("name", RECIPES)
def test_each_samples_its_own_share(two, name):
    first, second = (report["runs"][name]["batches"] for report in two[1])
    for ours, theirs in zip(first, second, strict=True):
        assert len(ours["prompts"]) == len(theirs["prompts"]) == 12
        assert ours["prompts"] != theirs["prompts"]
        assert ours["completions"] != theirs["completions"]


@pytest.mark.parametrize("name", RECIPES)
def test_the_numbers_are_those_of_the_whole_batch(two, name):
    history = records.read_metrics(two[0] / "runs" / name)
    shares = [report["runs"][name]["batches"] for report in two[1]]
    for number, row in enumerate(history):
        parts = [share[number] for share in shares]
        scores = [score for part in parts for score in part["scores"]]
        lengths = [len(ids) for part in parts for ids in part["completions"]]
        by_verdict = {
            verdict: fmean(n for n, score in zip(lengths, scores, strict=True) if score == verdict)
            for verdict in (0.0, 1.0)
        }
        groups = [scores[i : i + 4] for i in range(0, 24, 4)]
        expected = {
            "reward": fmean(scores),
            "accuracy": fmean(scores),
            "no_spread": fmean(len(set(group)) == 1 for group in groups),
            "length": fmean(lengths),
            "length_right": by_verdict[1.0],
            "length_wrong": by_verdict[0.0],
            "tokens": sum(lengths),
            "responses": 24,
        }
        assert set(row) >= TOLD
        for key, value in expected.items():
            assert row[key] == pytest.approx(value, rel=1e-5), key
        # the mean of one share is another, so that neither was taken for all
        assert fmean(lengths[:12]) != fmean(lengths)
        assert by_verdict[0.0] != by_verdict[1.0]


@pytest.mark.parametrize("name", RECIPES)
def test_the_gradient_is_that_of_the_whole_batch(two, name):
    """Our own, of all responses to the first prompts, in one process."""
    folder = two[0] / "runs" / name
    learner = small.learner(records.read_recipe(folder))
    recipe, group = learner.recipe, 4
    parts = [report["runs"][name]["batches"][0] for report in two[1]]
    prompts, completions, scores = (
        [value for part in parts for value in part[key]]
        for key in ("prompts", "completions", "scores")
    )
    rollout = trl_trainer._as_rollout(learner, prompts, completions)
    with torch.no_grad():
        log_probs, _ = learner.log_probs_and_values(rollout, group_size=group)
        reference = learner.ref_log_probs(rollout, group_size=group)
    rollout.log_probs.copy_(log_probs.masked_fill(~rollout.mask, 0.0))
    experience = Experience(
        rollout, torch.tensor(scores), torch.tensor(scores), ref_log_probs=reference
    )
    estimate = recipe.row.estimate(
        recipe.settings,
        rewards=experience.rewards(recipe.penalty),
        mask=rollout.mask,
        group_size=group,
    )
    update = Update(learner, experience, estimate, recipe.penalty, small.ALONE)
    backward(update, torch.arange(6), first=True)
    norm = math.sqrt(sum(p.grad.square().sum().item() for _, p in learner.trained()))
    assert norm > 0.01
    assert lora.is_on(learner.policy) == (name == "adapter")
    assert records.read_metrics(folder)[0]["grad_norm"] == pytest.approx(norm, rel=1e-4)
