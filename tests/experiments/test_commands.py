"""The commands that train, evaluate and compare, as a user types them."""

import functools
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from statistics import mean
from typing import Annotated

import matplotlib.pyplot as plt
import pytest
import safetensors.torch
import torch

from nbcourse.budget import machines
from nbcourse.display import curves
from nbcourse.experiments import checkpoint, comparison, records
from nbcourse.training.recipe import Pretraining, Recipe
from tests import small
from tests.command import invoke, refused

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "arithmetic-rloo"
SMALL = (
    "steps=3",
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "warm_start.steps=2",
    "warm_start.careless_steps=0",
    "rollouts.prompts=4",
    "rollouts.group_size=2",
    "evaluation.problems=20",
    "evaluation.every=1",
    "checkpoint.every=1",
)


def train(folder: Path, *more: str):
    changes = [word for change in SMALL for word in ("--set", change)]
    return invoke("train", RECIPE, *changes, "--out", str(folder), *more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one recipe, and another recipe."""
    folder = tmp_path_factory.mktemp("runs")
    for name, changes in {
        "rloo-seed0": (),
        "rloo-seed1": ("--set", "seed=1"),
        "other": ("--set", "rollouts.temperature=0.9"),
    }.items():
        done = train(folder / name, *changes)
        assert done.exit_code == 0, done.output
    return folder


def test_a_run_leaves_its_records_and_says_how_it_ended(runs):
    folder = runs / "rloo-seed0"
    summary = json.loads((folder / "summary.json").read_text())
    low, high = summary["held_out_interval_95"]
    assert low <= summary["held_out"] <= high
    assert summary["held_out_problems"] == 20
    environment = json.loads((folder / "environment.json").read_text())
    assert {"command", "commit", "hardware", "versions", "began"} <= set(environment)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert (folder / "model" / "model.safetensors").is_file()


def test_a_second_run_in_the_same_folder_is_refused_in_one_line(runs):
    done = train(runs / "rloo-seed0")
    assert done.exit_code == 2
    assert "--resume" in done.output
    assert "Traceback" not in done.output


def test_resuming_a_finished_run_changes_nothing(runs):
    folder = runs / "rloo-seed0"
    before = {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}
    assert train(folder, "--resume").exit_code == 0
    assert {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()} == before


def test_a_wrong_key_is_named_with_what_would_be_right(tmp_path):
    done = train(tmp_path / "run", "--set", "rollouts.group_sizes=4")
    assert done.exit_code == 2
    assert "rollouts.group_sizes is unknown" in done.output
    assert "group_size" in done.output
    assert not (tmp_path / "run").exists()


def test_deterministic_kernels_are_asked_for_and_recorded(runs, tmp_path, monkeypatch):
    """The numbers of a CPU are those of a run without."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        done = train(tmp_path / "again", "--deterministic")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.enable_mem_efficient_sdp(True)
    assert done.exit_code == 0, done.output
    before, again = runs / "rloo-seed0", tmp_path / "again"
    told = [records.read_json(run / records.ENVIRONMENT) for run in (before, again)]
    assert [one.get("deterministic") for one in told] == [None, True]
    numbers = [small.without_costs(records.read_metrics(run)) for run in (before, again)]
    assert numbers[0] == numbers[1]


def test_an_unknown_engine_is_refused(tmp_path):
    done = train(tmp_path / "run", "--engine", "magic")
    assert done.exit_code == 2
    assert "'magic'" in done.output


@pytest.mark.parametrize(("engine", "advice"), [("nbcourse", True), ("trl", False)])
def test_a_run_that_is_stopped_is_told_to_go_on_only_where_it_can(
    tmp_path, monkeypatch, engine, advice
):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbcourse.experiments.run.train", stopped)
    monkeypatch.setattr("nbcourse.experiments.trl.train_with_trl", stopped)
    told = train(tmp_path / "run", "--engine", engine).stderr
    assert "stopped" in told
    assert ("--resume" in told) == advice


@pytest.mark.parametrize("kind", ["a run", "a base model"])
def test_a_run_whose_time_is_up_prints_the_command_that_finishes_it(kind, tmp_path, monkeypatch):
    """With its options, and in quotes where a shell needs them."""
    monkeypatch.chdir(tmp_path)
    recipe, changes = RECIPE, SMALL
    if kind == "a base model":
        recipe, changes = "base.toml", ("checkpoint.every=100",)
        small.write_toml(Path(recipe), small.base_tables())
    options = [word for change in changes for word in ("--set", change)]
    stopped = invoke("train", recipe, *options, "--out", "my runs", "--max-minutes", "1e-9")
    assert stopped.exit_code == 1
    assert [row["step"] for row in records.read_metrics("my runs")] == [1]
    program, *command = shlex.split(stopped.output.rpartition("go on with: ")[2])
    assert program == "nbcourse"
    done = invoke(*command)
    assert done.exit_code == 0, done.output
    steps = [row["step"] for row in records.read_metrics("my runs")]
    assert len(steps) > 1
    assert steps == [*range(1, len(steps) + 1)]


def test_only_a_run_that_can_go_on_has_a_last_minute(tmp_path):
    told = refused("train", RECIPE, "--engine", "trl", "--max-minutes", "5")
    assert "--max-minutes is for this package's own engine" in told
    told = refused("train", RECIPE, "--out", tmp_path / "run", "--max-minutes", "0")
    assert "--max-minutes is 0, expected a number above 0" in told
    assert not (tmp_path / "run").exists()


def test_evaluate_gives_a_share_and_its_interval(runs):
    done = invoke("evaluate", str(runs / "other"), "--problems", "50")
    assert done.exit_code == 0, done.output
    told = " ".join(done.output.split())
    assert re.search(r"50 problems \(4\d different ones\), split 'test', asked once so far", told)
    assert re.search(r"right, strictly .* \d+\.\d% \(\d+\.\d% to \d+\.\d%\)", done.output)
    assert (runs / "other" / "evaluation-arithmetic-test.json").is_file()


def test_evaluate_says_where_there_is_no_run(tmp_path):
    done = invoke("evaluate", str(tmp_path))
    assert done.exit_code == 2
    assert "no run in" in done.output


def test_compare_puts_seeds_together_and_draws(runs, tmp_path):
    figure, open_before = tmp_path / "curves.png", plt.get_fignums()
    folders = [str(runs / name) for name in ("rloo-seed0", "rloo-seed1", "other")]
    done = invoke("compare", *folders, "--figure", str(figure))
    assert done.exit_code == 0, done.output
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert plt.get_fignums() == open_before  # closed again
    compared = comparison.groups(folders)
    assert [(group.name, len(group.folders)) for group in compared] == [("rloo", 2), ("other", 1)]
    assert [point.responses for point in compared[0].held_out()] == [
        0,
        8,
        16,
        24,
    ]  # responses so far
    assert "differ in" not in done.output  # rollouts.temperature is one field


LONG = "smollm2-word-problems-float32-grpo-and-more"
OTHER = "smollm2-word-problems-float32-rloo-and-more"


@pytest.mark.parametrize("columns", [200, 90, 80, 30])
def test_compare_cuts_no_name_and_no_header(runs, tmp_path, monkeypatch, columns):
    """As one table, a table for each run, or a line for each number: whatever the width allows."""
    folders = [
        shutil.copytree(runs / name, tmp_path / new)
        for name, new in (("rloo-seed0", LONG), ("other", OTHER))
    ]
    monkeypatch.setenv("COLUMNS", str(columns))
    told = invoke("compare", *folders).output
    assert "…" not in told
    for word in " ".join((LONG, OTHER, *comparison.HEADER, *comparison.PLAN_HEADER)).split():
        assert word == "run" or word in told.split() or f"┃ {word} " in told
    tables = [line for line in told.splitlines() if re.match(r"[ ┏━─]+[┓━─]", line)]
    assert len(tables) == {200: 2, 90: 4, 80: 4, 30: 0}[columns], told
    assert all(len(line) <= columns for line in told.splitlines() if line not in (LONG, OTHER))


def test_the_curves_are_by_samples_and_by_time_from_before_the_first_step(runs):
    groups = comparison.groups([runs / "rloo-seed0", runs / "rloo-seed1", runs / "other"])
    drawn = curves.learning_curves(groups)
    by_samples, by_time = drawn.axes
    assert by_samples.get_xlabel() == "responses sampled"
    assert by_time.get_xlabel() == "seconds, sampling and evaluation included"
    for position, group in enumerate(groups):
        points = group.held_out()
        assert list(by_samples.lines[position].get_xdata()) == [0, 8, 16, 24]
        seconds = [
            [sum(map(records.seconds, lines[:step])) for lines in group.metrics]
            for step in range(4)
        ]
        assert list(by_time.lines[position].get_xdata()) == pytest.approx([*map(mean, seconds)])
        heights = [mean(point.held_out) for point in points]
        assert list(by_time.lines[position].get_ydata()) == heights
    plt.close(drawn)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("curves.docx", "the suffix is '.docx', expected one of .png, .svg, .pdf"),
        ("curves", "the suffix is missing, expected one of .png, .svg, .pdf"),
        ("nowhere/curves.png", "there is no folder"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path, file, reason
):
    told = refused("compare", tmp_path / "no-run", "--figure", tmp_path / file)
    assert reason in told
    assert "no run in" not in told


def test_compare_says_so_if_runs_differ_in_more_than_one_field(runs, tmp_path):
    """It refuses nothing: people compare what they have."""
    third = shutil.copytree(runs / "rloo-seed0", tmp_path / "third")
    recipe = json.loads((third / "recipe.json").read_text())
    recipe["rollouts"]["temperature"] = 0.5
    recipe["optimiser"]["max_grad_norm"] = 2.0
    recipe["critic"]["coefficient"] = 9.0  # which rloo does not read
    (third / "recipe.json").write_text(json.dumps(recipe))
    done = invoke("compare", *(str(f) for f in (runs / "rloo-seed0", runs / "other", third)))
    assert done.exit_code == 0, done.output
    told = done.output[done.output.index("They differ") :].splitlines()
    assert told[0].startswith("They differ in 2 fields, ")
    assert sorted(map(str.strip, told[1:])) == [
        "optimiser.max_grad_norm: rloo 1.0, other 1.0, third 2.0",
        "rollouts.temperature: rloo 1.0, other 0.9, third 0.5",
    ]


def test_a_dry_run_of_a_small_run_knows_its_parameters_and_prompts_and_trains_nothing(tmp_path):
    """V·W + L (4 W² + 3 W·4 W + 5 W) + W by hand; the longest two-digit sum is `99+99=`."""
    answer = train(tmp_path / "run", "--dry-run")
    assert answer.exit_code == 0
    parameters = 17 * 16 + (4 + 12) * 16**2 + 5 * 16 + 16
    assert f"tiny: {parameters:,} parameters; rloo, 4 × 2 responses" in answer.output
    assert "to prompts of 6 (the longest of many)" in " ".join(answer.output.split())
    assert not (tmp_path / "run").exists()


def test_a_dry_run_expects_what_an_earlier_run_took(runs, tmp_path):
    answer = train(tmp_path / "run", "--dry-run", "--like", str(runs / "rloo-seed0"))
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.output.split())
    assert "at the speed of" in shown
    assert "times the roofline: sample" in shown
    assert not (tmp_path / "run").exists()


def cells(output: str, first: str) -> list[str]:
    """Of the line of a table that begins with this cell."""
    (line,) = (line for line in output.splitlines() if line.startswith(f"│ {first} "))
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_dry_run_always_has_a_floor_an_expectation_and_a_worst_case(tmp_path):
    """Without an earlier run, of half the limit: (1 + 8) / 2 tokens; or of what is said."""
    plain = train(tmp_path / "run", "--dry-run")
    said = train(tmp_path / "run", "--dry-run", "--lengths", "4", "--flat", "0.25")
    assert "responses of 4.5 tokens, 0% of the groups" in " ".join(plain.output.split())
    assert "responses of 4 tokens, 25% of the groups" in " ".join(said.output.split())
    for answer in (plain, said):
        assert answer.exit_code == 0, answer.output
        header = " ".join(answer.output.replace("┃", " ").split())
        assert "on this machine times at least expected at most" in header
        assert all(cells(answer.output, "the run")[2:])
        assert all(cells(answer.output, "H200")[1:])


def test_a_dry_run_counts_the_warm_start_and_the_evaluations_around_the_steps(tmp_path):
    answer = train(
        tmp_path / "run",
        *("--dry-run", "--set", "warm_start.steps=30", "--set", "warm_start.batch_size=4"),
    )
    assert answer.exit_code == 0, answer.output
    assert cells(answer.output, "warm start")[1] == "30"
    assert cells(answer.output, "sample")[1] == "3"
    assert cells(answer.output, "evaluate")[1] == "5"  # after each of three steps, and around them


def test_a_dry_run_counts_the_checkpoints(runs, tmp_path):
    """Three steps, one checkpoint after the second and one at the end; and the file of a run."""
    answer = train(tmp_path / "run", "--dry-run", "--set", "checkpoint.every=2")
    said = " ".join(answer.output.split())
    assert "checkpoints: 2 of 0.054 MB, 0.11 MB in all (checkpoint.every = 2)" in said
    (kept,) = (runs / "rloo-seed0" / records.CHECKPOINTS).glob(f"step-*/{checkpoint.TENSORS}")
    tensors = safetensors.torch.load_file(kept).values()
    assert sum(x.nbytes for x in tensors if x.dim()) == 12 * 4464  # parameters, as above


def test_a_dry_run_says_so_if_it_cannot_count_the_warm_start(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    changes = ("warm_start.steps=3", "task.name=word-problems", "task.max_steps=1")
    more = [word for change in changes for word in ("--set", change)]
    answer = invoke("train", "gsm8k-qwen2.5-0.5b-grpo", "--dry-run", *more)
    assert answer.exit_code == 0, answer.output
    assert "left out is the warm start: the tokenizer was not" in " ".join(answer.output.split())


def test_what_a_dry_run_is_told_to_expect_is_checked(tmp_path):
    for option, value, reason in (
        ("--lengths", "99", "--lengths is 99, expected 1 to rollouts.max_new_tokens"),
        ("--flat", "1.5", "--flat is 1.5, expected a share"),
    ):
        answer = train(tmp_path / "run", "--dry-run", option, value)
        assert answer.exit_code == 2
        assert reason in answer.stderr
        answer = train(tmp_path / "run", option, value)
        assert "they change no run" in answer.stderr
        answer = invoke("train", "word-problems-tiny-base", "--dry-run", option, "1")
        assert "--lengths and --flat are for reinforcement learning" in answer.stderr


def test_a_run_is_compared_with_what_was_expected_of_it(runs, tmp_path):
    earlier = str(runs / "rloo-seed0")
    assert train(tmp_path / "run", "--like", earlier).exit_code == 0
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["like"] == earlier
    answer = invoke("compare", str(tmp_path / "run"))
    assert answer.exit_code == 0, answer.output
    assert "a step" in answer.output
    refused = train(tmp_path / "trl", "--like", earlier, "--engine", "trl")
    assert "--like is for this package's own engine" in refused.stderr


def test_a_dry_run_of_a_checkpoint_that_is_not_here_names_what_to_lower(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    answer = invoke("train", "gsm8k-qwen2.5-1.5b-ppo", "--dry-run")
    shown = " ".join(answer.output.split())
    assert answer.exit_code == 0
    assert "1,543,714,304 parameters" in shown
    assert "T4 does not fit: " in shown
    assert "the largest item is " in shown


@pytest.mark.parametrize(
    ("precision", "bfloat16", "warned", "dry"),
    [
        ("bfloat16", 1e9, True, ["--dry-run"]),
        ("bfloat16", 1e9, True, []),
        ("bfloat16", 6e9, False, ["--dry-run"]),
        ("float32", 1e9, False, ["--dry-run"]),
    ],
    ids=["slow", "slow, trained", "fast", "unused"],
)
def test_a_processor_that_is_slow_in_bfloat16_is_named(
    precision, bfloat16, warned, dry, tmp_path, monkeypatch
):
    """A processor of 6 GFLOP/s in float32, and a recipe of its products' precision."""
    speeds = {"float32": 6e9, "bfloat16": bfloat16, "float16": 6e9}
    monkeypatch.setattr(machines, "has_gpu", lambda: False)
    monkeypatch.setattr(machines, "product_speed", lambda name, *_: speeds[name])
    anew = functools.cache(machines.this_machine.__wrapped__)
    monkeypatch.setattr(machines, "this_machine", anew)
    answer = train(tmp_path / "run", "--set", f"model.precision={precision}", *dry)
    assert answer.exit_code == 0
    shown = " ".join(f"{answer.output} {answer.stderr}".split())
    assert ("multiplies bfloat16 6 times slower than float32" in shown) == warned
    assert ("--set model.precision=float32" in shown) == warned


@pytest.mark.parametrize(
    ("precision", "best", "warned"),
    [
        ("bfloat16", "float16", True),
        ("float16", "float16", False),
        ("bfloat16", "bfloat16", False),
        ("float32", "float16", False),
    ],
)
def test_a_gpu_without_bfloat16_is_named(precision, best, warned, tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "has_gpu", lambda: True)
    monkeypatch.setattr(machines, "best_precision", lambda: best)
    answer = train(tmp_path / "run", "--set", f"model.precision={precision}", "--dry-run")
    assert answer.exit_code == 0
    shown = " ".join(answer.output.split())
    assert ("--set model.precision=float16" in shown) == warned
    assert "slower than float32" not in shown


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["trained", "dry"])
@pytest.mark.parametrize(("engine", "warned"), [("eager", True), ("static-graphs", False)])
def test_a_gpu_that_would_wait_for_its_kernels_is_told_of(
    engine, warned, dry, tmp_path, monkeypatch
):
    monkeypatch.setattr(machines, "has_gpu", lambda: True)
    monkeypatch.setattr(machines, "best_precision", lambda: "bfloat16")
    answer = train(tmp_path / "run", "--set", f"rollouts.engine={engine}", *dry)
    assert answer.exit_code == 0
    shown = " ".join(f"{answer.output} {answer.stderr}".split())
    assert ("--set rollouts.engine=static-graphs is 3 to 5 times as fast" in shown) == warned


BASE = """
[pretraining]
steps = 2
batch_size = 4

[supervised]
steps = 3
batch_size = 4

[task]
name = "word-problems"
max_steps = 1

[model]
layers = 1
width = 16
heads = 2
vocabulary = 300

[evaluation]
every = 2
problems = 2
max_new_tokens = 4
"""


def test_a_dry_run_of_a_base_model_counts_its_texts_and_its_evaluations(tmp_path):
    (tmp_path / "base.toml").write_text(BASE, encoding="utf-8")
    recipe, run = str(tmp_path / "base.toml"), str(tmp_path / "run")
    answer = invoke("train", recipe, "--dry-run")
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.output.split())
    assert "2 pretraining steps of 4 texts, 3 supervised steps of 4 texts" in shown
    assert "seconds by the roofline" in shown
    assert [cells(answer.output, name)[1] for name in ("pretraining", "supervised")] == ["2", "3"]
    assert cells(answer.output, "evaluate")[1] == "5"  # first, after steps 2, 4, 5, and at the end
    assert all(cells(answer.output, "H200")[1:])

    assert invoke("train", recipe, "--out", run).exit_code == 0
    answer = invoke("train", recipe, "--dry-run", "--like", run)
    assert answer.exit_code == 0, answer.output
    shown = " ".join(answer.output.split())
    assert "times the roofline: pretraining" in shown
    answer = invoke("train", "arithmetic-grpo", "--dry-run", "--like", run)
    assert "made a base model: expected a run of reinforcement learning" in answer.stderr


def test_the_keys_of_recipes_are_listed_with_the_settings_of_every_row_and_task(monkeypatch):
    """From the signatures: a row that is new, with a setting of its own, is there at once."""
    from annotated_types import Interval

    from nbcourse.training.algorithms import ALGORITHMS, Algorithm

    row = ALGORITHMS["rloo"]

    def sharper(log_probs, advantages, *, sharpness: Annotated[float, Interval(ge=1, le=7)] = 3.0):
        return -advantages * log_probs * sharpness

    mine = Algorithm(row.advantage, sharper, row.aggregation, row.source)
    monkeypatch.setitem(ALGORITHMS, "mine", mine)
    shown = " ".join(invoke("recipes", "--keys").output.split())
    assert "mine: sharpness = 3.0 (a number from 1 to 7)" in shown
    assert "digits = 2 (a number from 1 to 9)" in shown
    assert "Keys of [rollouts]: What is sampled at each step." in shown
    assert "group_size = 8 (a whole number of at least 1): responses to each prompt" in shown
    for key in {**Recipe.model_fields, **Pretraining.model_fields}:
        assert re.search(rf"\b{key}\b", shown), key
