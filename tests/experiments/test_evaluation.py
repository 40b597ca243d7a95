"""Evaluations: every number again in plain loops, from responses that are made up here."""

import json
import math
import shutil
from itertools import combinations, count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nbcourse.errors import UserError
from nbcourse.experiments import evaluation, records
from nbcourse.experiments.pretraining import pretrain
from nbcourse.experiments.run import train
from nbcourse.functional.accuracy import wilson_interval
from nbcourse.lm import loading
from nbcourse.seeds import generator
from nbcourse.tasks.answers import extract
from nbcourse.training.held_out import Answers
from nbcourse.training.recipe import check
from nbcourse.training.recipe_sections import PromptSection
from tests import hub
from tests.command import invoke, nbcourse
from tests.small import base_recipe, recipe, tables

PROBLEMS, SAMPLES = 40, 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A base model, a run that goes on from it, and one on sums whose model can do some."""
    folder = tmp_path_factory.mktemp("runs")
    pretrain(base_recipe(), folder=folder / "base", progress=False)
    train(check(story(folder)), folder=folder / "story", progress=False)
    changes = {"warm_start": {"steps": 60, "batch_size": 64}, "optimiser": {"learning_rate": 3e-3}}
    train(recipe("rloo", **changes, steps=3), folder=folder / "sums", progress=False)
    return folder


def story(folder, **more):
    content = tables(
        rollouts={"prompts": 2, "group_size": 2, "max_new_tokens": 5, "engine": "static"},
        evaluation={"problems": 2},
        seed=7,
        **more,
    )
    return {
        **content,
        "task": {"name": "word-problems", "max_steps": 3, "distractors": 0.5},
        "model": {"source": str(folder / "base" / "model")},
    }


@pytest.fixture
def copy(runs, tmp_path):
    """copy(name): a run to write into."""
    return lambda name: shutil.copytree(runs / name, tmp_path / name)


# ---------------------------------------------------------------- the numbers


def response(problem, kind):
    """Right, right in the wrong form, wrong, and nothing."""
    return [
        problem.solution,
        f"So the answer is {problem.answer}.",
        f"#### {problem.answer + 1}",
        "I do not know",
    ][kind]


def cut_off(kind):
    """What says nothing, and now and then what says the right answer."""
    return kind % 4 == 3 or kind % 12 == 8


class Spoken:
    """Stands in for a model: says of problem i, sample j, what `kind(label, i, j)` is."""

    def __init__(self, kind):
        self.kind, self.asked = kind, []

    def __call__(self, model, tokenizer, prompts, **options):
        samples = options.get("samples")
        label = ("after", "before")[sum(o["samples"] == samples for o in self.asked)]
        self.asked.append({"prompts": [*prompts], **options, "samples": samples})
        drawn = self.problems
        assert [p.prompt for p in drawn] == [*prompts]
        kinds = [self.kind(label, i, j) for i in range(len(prompts)) for j in range(samples or 1)]
        texts = [response(drawn[row // (samples or 1)], kind % 4) for row, kind in enumerate(kinds)]
        return Answers(
            texts,
            torch.tensor([cut_off(kind) for kind in kinds]),
            torch.tensor([len(text) for text in texts]),
        )


def kind(label, i, j):
    if label == "after":
        return (i * i + j) // 3
    return (i // 2 + j * j) % 5 + 1


@pytest.fixture
def spoken(copy, monkeypatch):
    folder = copy("story")
    stand_in = Spoken(kind)
    chosen = records.read_recipe(folder)
    stand_in.problems = chosen.task.build().draw(
        PROBLEMS, split="validation", generator=generator(7, "evaluation")
    )
    monkeypatch.setattr(evaluation, "ask", stand_in)
    clock = count(step=4)  # each look at it is four seconds after the last
    monkeypatch.setattr(evaluation, "perf_counter", lambda: next(clock))
    result = evaluation.evaluate(folder, problems=PROBLEMS, samples=SAMPLES, progress=False)
    return stand_in, result, folder


def test_responses_are_written_by_the_engine_of_training(spoken):
    stand_in, _, _ = spoken
    assert [one["engine"] for one in stand_in.asked] == ["static"] * 4


def verdicts(stand_in, label, j=0):
    """Strict and lenient, as lists of booleans, of the j-th response to each problem."""
    found = []
    for i, problem in enumerate(stand_in.problems):
        said = kind(label, i, j)
        strict, lenient = (
            extract(response(problem, said % 4), strict=s) == problem.answer for s in (True, False)
        )
        found.append([strict and not cut_off(said), lenient])
    return [[row[0] for row in found], [row[1] for row in found]]


def test_counts_and_intervals_are_those_of_the_responses(spoken):
    stand_in, result, _ = spoken
    for label in ("before", "after"):
        strict, lenient = verdicts(stand_in, label)
        said = [kind(label, i, 0) for i in range(PROBLEMS)]
        kinds = [one % 4 for one in said]
        assert 0 < sum(strict) < sum(lenient) < PROBLEMS
        unfinished = sum(one % 12 == 8 for one in said)
        assert unfinished or label == "before"
        assert sum(strict) == kinds.count(0) - unfinished
        assert sum(lenient) == kinds.count(0) + kinds.count(1)
        counts = {
            "strict": sum(strict),
            "lenient": sum(lenient),
            "no_answer": kinds.count(1) + kinds.count(3),
            "truncated": kinds.count(3) + unfinished,
        }
        for key, number in counts.items():
            assert result[label][key] == {
                "count": number,
                "of": PROBLEMS,
                "share": number / PROBLEMS,
                "interval_95": wilson_interval(number, PROBLEMS),
            }
        digits = result[label]["verdicts"]
        assert digits["strict"] == "".join("01"[right] for right in strict)
        assert digits["lenient"] == "".join("01"[right] for right in lenient)
        texts = [response(p, k) for p, k in zip(stand_in.problems, kinds, strict=True)]
        lengths = [len(text) for text in texts]
        assert result[label]["mean_tokens"] == pytest.approx(sum(lengths) / PROBLEMS)
        assert result[label]["tokens_per_second"] == sum(lengths) / 4
        assert result[label]["examples"] == [
            {
                "question": p.prompt,
                "response": text,
                "answer": str(p.answer),
                "right": right,
            }
            for p, text, right in zip(stand_in.problems[:5], texts, strict, strict=False)
        ]


def test_a_run_that_paid_for_unfinished_answers_is_judged_as_it_was_trained(spoken):
    stand_in, result, folder = spoken
    content = json.loads((folder / "recipe.json").read_text("utf-8"))
    content["reward"]["accept_truncated"] = True
    (folder / "recipe.json").write_text(json.dumps(content), "utf-8")
    stand_in.asked.clear()
    accepted = evaluation.evaluate(folder, problems=PROBLEMS, samples=SAMPLES, progress=False)
    kinds = [kind("after", i, 0) % 4 for i in range(PROBLEMS)]
    assert accepted["after"]["strict"]["count"] == kinds.count(0)
    assert accepted["after"]["strict"]["count"] > result["after"]["strict"]["count"]


def test_accuracy_by_steps_is_by_the_sums_of_the_solution(spoken):
    stand_in, result, _ = spoken
    for label in ("before", "after"):
        strict, _ = verdicts(stand_in, label)
        by_steps = {1: [], 2: [], 3: []}
        for problem, right in zip(stand_in.problems, strict, strict=True):
            by_steps[problem.steps].append(right)
        assert result[label]["by_steps"].keys() == {"1", "2", "3"}
        for steps, right in by_steps.items():
            found = result[label]["by_steps"][str(steps)]
            assert (found["count"], found["of"]) == (sum(right), len(right))


def test_pass_at_k_is_the_share_of_ways_to_take_k_samples_with_a_right_one(spoken):
    """Every way is tried; k doubles up to the number of samples."""
    stand_in, result, _ = spoken
    for label in ("before", "after"):
        right = [verdicts(stand_in, label, j)[0] for j in range(SAMPLES)]
        assert result[label]["pass_at"].keys() == {"1", "2", "4"}
        for k, found in result[label]["pass_at"].items():
            ways = [
                any(right[j][i] for j in chosen)
                for i in range(PROBLEMS)
                for chosen in combinations(range(SAMPLES), int(k))
            ]
            assert found["mean"] == pytest.approx(sum(ways) / len(ways))
            low, high = found["interval_95"]
            assert low < found["mean"] < high


def test_the_gain_adds_up(spoken):
    stand_in, result, _ = spoken
    (s0, l0), (s1, l1) = (verdicts(stand_in, label) for label in ("before", "after"))
    gain = {key: found["mean"] for key, found in result["gain"].items()}
    assert gain["total"] == pytest.approx((sum(s1) - sum(s0)) / PROBLEMS)
    assert gain["content"] == pytest.approx((sum(l1) - sum(l0)) / PROBLEMS)
    assert gain["total"] == pytest.approx(gain["form"] + gain["content"])
    assert gain["form"] != 0 != gain["content"]
    for found in result["gain"].values():
        assert found["interval_95"][0] < found["mean"] < found["interval_95"][1]


def test_the_gain_of_samples_is_that_of_the_shares(spoken):
    stand_in, result, _ = spoken
    counts = {
        label: [
            sum(right)
            for right in zip(
                *(verdicts(stand_in, label, j)[0] for j in range(SAMPLES)), strict=True
            )
        ]
        for label in ("before", "after")
    }
    for label, found in counts.items():
        assert result[label]["verdicts"]["samples"] == found
    gain = (sum(counts["after"]) - sum(counts["before"])) / (PROBLEMS * SAMPLES)
    assert result["gain"]["sampled"]["mean"] == pytest.approx(gain)


def test_both_models_are_asked_the_same(spoken):
    """Greedily, then in samples, with the run's longest response and the temperature asked for."""
    stand_in, _, folder = spoken
    assert [options["samples"] for options in stand_in.asked] == [None, SAMPLES] * 2
    assert all(options["max_new_tokens"] == 5 for options in stand_in.asked)
    first, _, third, _ = (options["prompts"] for options in stand_in.asked)
    assert first == third
    sampled = [options for options in stand_in.asked if options["samples"]]
    assert [options["temperature"] for options in sampled] == [1.0, 1.0]
    states = [options["generator"].initial_seed() for options in sampled]
    assert states[0] == states[1]
    assert (folder / "evaluation-word-problems-validation.json").is_file()


def test_the_file_is_json_and_says_where_it_comes_from(spoken):
    _, result, folder = spoken

    def no_constant(name):
        raise AssertionError(name)

    path = folder / "evaluation-word-problems-validation.json"
    kept = json.loads(path.read_text("utf-8"), parse_constant=no_constant)
    assert kept == json.loads(json.dumps(result))
    assert kept["recipe"] == json.loads((folder / "recipe.json").read_text("utf-8"))
    assert kept["task"] == kept["recipe"]["task"]
    assert (kept["seed"], kept["split"], kept["problems"]) == (7, "validation", PROBLEMS)
    assert (kept["max_new_tokens"], kept["samples"], kept["temperature"]) == (5, SAMPLES, 1.0)
    expected = set(records.environment(1))
    assert set(kept["environment"]) == expected
    assert {"commit", "hardware", "versions", "began"} <= expected
    assert kept["seconds"] > 0
    assert kept["peak_memory_bytes"] > 10_000_000
    assert kept["times_asked"] == 1
    assert not list(folder.glob("*.unfinished"))


def test_each_time_is_counted(copy, monkeypatch):
    """By task and split; of the test split above all."""
    folder = copy("sums")
    for times in (1, 2, 3):
        assert evaluation.evaluate(folder, problems=3, progress=False)["times_asked"] == times
    story_run = copy("story")
    for final, times in ((True, 1), (False, 1), (True, 2)):
        result = evaluation.evaluate(story_run, final=final, problems=2, progress=False)
        assert result["times_asked"] == times
        assert result["split"] == ("test" if final else "validation")
    names = {path.name for path in story_run.glob("evaluation-*")}
    assert names == {
        "evaluation-word-problems-test.json",
        "evaluation-word-problems-validation.json",
    }


# ---------------------------------------------------------------- the models


def greedy(tokenizer, model, prompt, limit):
    """Token by token, without a cache."""
    ids, answer = tokenizer(prompt).input_ids, []
    while len(answer) < limit:
        with torch.no_grad():
            token = model(torch.tensor([ids + answer])).logits[0, -1].argmax().item()
        if token == tokenizer.eos_token_id:
            return "".join(tokenizer.convert_ids_to_tokens(answer)), False
        answer.append(token)
    return "".join(tokenizer.convert_ids_to_tokens(answer)), True


@pytest.mark.parametrize("label", ["before", "after"])
def test_before_is_the_policy_of_the_start_and_after_that_of_the_end(copy, label):
    folder = copy("sums")
    result = evaluation.evaluate(folder, problems=60, progress=False)[label]
    tokenizer, model = loading.load(folder / "model", "cpu")
    if label == "before":
        start = load_file(folder / "checkpoint" / "start" / "tensors.safetensors")
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                assert not torch.equal(parameter, start[f"reference.{name}"])
                parameter.copy_(start[f"reference.{name}"])
    task = records.read_recipe(folder).task.build()
    problems = task.draw(60, split="test", generator=generator(0, "evaluation"))
    said = [greedy(tokenizer, model, p.prompt, 4) for p in problems]
    right = [text == p.answer for (text, _), p in zip(said, problems, strict=True)]
    assert 5 < sum(right) < 55
    assert result["verdicts"]["strict"] == "".join("01"[r] for r in right)
    assert result["truncated"]["count"] == sum(cut for _, cut in said)
    assert result["by_steps"] == {}  # sums are not worked out


def test_the_source_of_the_model_may_have_gone(copy, runs):
    """What a run needs for its evaluation is in its own folder."""
    folder = copy("story")
    path = folder / "recipe.json"
    content = json.loads(path.read_text("utf-8"))
    content["model"]["source"] = str(folder / "gone")
    path.write_text(json.dumps(content), encoding="utf-8")
    here = evaluation.evaluate(folder, problems=4, progress=False)
    there = evaluation.evaluate(shutil.copytree(runs / "story", folder / "again"), problems=4)
    for label in ("before", "after"):
        assert here[label]["examples"] == there[label]["examples"]


def test_what_a_run_has_not_left_is_named(copy, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run in .*: expected a file recipe\.json"):
        evaluation.evaluate(tmp_path, progress=False)
    folder = copy("sums")
    shutil.rmtree(folder / "checkpoint" / "start")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint in .*: expected a folder start"):
        evaluation.evaluate(folder, problems=2, progress=False)
    shutil.rmtree(folder / "model")
    with pytest.raises(FileNotFoundError, match=r"no model in .*: expected a folder with a config"):
        evaluation.evaluate(folder, problems=2, progress=False)
    assert not list(folder.glob("evaluation-*"))


def test_a_base_model_is_not_compared_with_what_it_was(copy):
    folder = copy("base")
    result = evaluation.evaluate(folder, problems=3, samples=2, progress=False)
    assert result["max_new_tokens"] == 4
    assert "before" not in result
    assert "gain" not in result
    assert result["recipe"]["pretraining"]["steps"] == 3
    assert [len(row) for row in evaluation.rows(result)] == [2] * 6


def test_what_is_right_strictly_is_right_leniently_whatever_a_task_reads(copy, monkeypatch):
    """A task of a reader's own need not find leniently what it finds strictly."""
    folder = copy("sums")
    task = type(records.read_recipe(folder).task.build())
    whole = task.read

    def read(self, text, *, strict=True):
        return whole(self, text) if strict else None

    monkeypatch.setattr(task, "read", read)
    result = evaluation.evaluate(folder, problems=60, progress=False)
    strict, lenient = (
        [digit == "1" for digit in result["after"]["verdicts"][name]]
        for name in ("strict", "lenient")
    )
    assert any(strict)
    assert all(right for said, right in zip(strict, lenient, strict=True) if said)


# ---------------------------------------------------------------- which problems


def test_the_test_split_is_asked_by_final_alone(copy, monkeypatch):
    folder, splits = copy("story"), []
    whole = evaluation.asked_of

    def watch(recipe, task, split, count):
        drawn = whole(recipe, task, split, count)
        splits.append({p.template.rpartition("/")[2] for p in drawn})
        return drawn

    monkeypatch.setattr(evaluation, "asked_of", watch)
    evaluation.evaluate(folder, problems=5, progress=False)
    evaluation.evaluate(folder, final=True, problems=5, progress=False)
    assert splits == [{"validation"}, {"test"}]


def test_two_thousand_problems_are_asked_unless_told_otherwise(copy, monkeypatch):
    folder, counts = copy("sums"), []
    whole = evaluation.asked_of

    def watch(recipe, task, split, count):
        counts.append(count)
        return whole(recipe, task, split, 3)

    monkeypatch.setattr(evaluation, "asked_of", watch)
    evaluation.evaluate(folder, progress=False)
    evaluation.evaluate(folder, problems=7, progress=False)
    assert counts == [2000, 7]


def test_what_is_asked_more_than_once_is_told(copy):
    """Of 40 draws of the eleven held-out sums of single digits, most are repetitions."""
    folder = copy("sums")
    output = " ".join(nbcourse("evaluate", folder, "--problems", 40).split())
    kept = json.loads((folder / "evaluation-arithmetic-test.json").read_text())
    drawn = evaluation.asked_of(
        records.read_recipe(folder), records.read_recipe(folder).task.build(), "test", 40
    )
    different = len({problem.prompt for problem in drawn})
    assert different <= 11
    assert (kept["problems"], kept["different"]) == (40, different)
    assert f"40 problems ({different} different ones), split 'test', asked" in output


def test_another_task_can_be_asked(copy, tmp_path, monkeypatch):
    """With its usual settings; all there are of GSM8K, from where the environment says."""

    data = hub.data(tmp_path / "gsm8k")
    monkeypatch.setenv("NBCOURSE_GSM8K", str(data))
    folder = copy("story")
    result = evaluation.evaluate(folder, task="gsm8k", final=True, progress=False)
    assert (result["problems"], result["task"]) == (8, {"name": "gsm8k", "path": None})
    assert result["recipe"]["task"]["name"] == "word-problems"
    assert sum(found["of"] for found in result["after"]["by_steps"].values()) == 8
    assert (folder / "evaluation-gsm8k-test.json").is_file()
    same = evaluation.evaluate(folder, task="word-problems", problems=2, progress=False)
    assert same["task"]["max_steps"] == 3  # the run's own settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "gsm9k"}, "task.name is 'gsm9k', expected one of .*; did you mean 'gsm8k'"),
        ({"samples": -1}, "samples=-1"),
        ({"problems": 0}, "problems=0"),
        ({"temperature": 0.0}, r"temperature=0\.0"),
        ({"temperature": math.nan}, "temperature=nan"),
    ],
)
def test_what_cannot_be_asked_is_refused(runs, options, message):
    with pytest.raises(ValueError, match=message):
        evaluation.evaluate(runs / "sums", progress=False, **options)


# ---------------------------------------------------------------- as a user types it

ROOT = Path(__file__).resolve().parents[2]


def test_from_nothing_to_an_evaluation(tmp_path):
    """The recipes of appendix J at toy size, one after the other."""
    shape = ["model.layers=1", "model.width=16", "model.heads=2", "model.vocabulary=300"]
    base = [
        *shape,
        "pretraining.steps=2",
        "supervised.steps=2",
        "evaluation.problems=4",
        "evaluation.max_new_tokens=6",
    ]
    reinforced = [
        "steps=2",
        f"model.source={tmp_path / 'base' / 'model'}",
        "rollouts.prompts=2",
        "rollouts.group_size=2",
        "rollouts.max_new_tokens=6",
        "evaluation.problems=4",
    ]

    def settings(changes):
        return [word for change in changes for word in ("--set", change)]

    told = nbcourse(
        "train",
        "word-problems-tiny-base",
        *settings(base),
        "--out",
        tmp_path / "base",
    )
    assert "held-out accuracy 0.000 (95 % interval 0.000 to 0.490)" in told
    for name in ("grpo", "ppo"):
        nbcourse(
            "train",
            f"word-problems-tiny-{name}",
            *settings(reinforced),
            "--out",
            tmp_path / name,
        )
        told = nbcourse("evaluate", tmp_path / name, "--final", "--problems", "3", "--samples", "2")
        for line in ("right, strictly", "right, leniently", "not ended", "pass@1", "pass@2"):
            assert line in told
        assert "3 problems, split 'test', asked once so far" in told
        result = json.loads((tmp_path / name / "evaluation-word-problems-test.json").read_text())
        assert result["after"]["strict"]["of"] == 3
    assert "3 problems" in nbcourse("evaluate", tmp_path / "base", "--problems", "3")


def test_without_the_base_model_the_next_recipe_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("train", "word-problems-tiny-grpo", "--out", "run")
    assert done.exit_code == 2
    assert "no model in runs/word-problems-tiny-base-seed0/model" in done.output
    assert "train that one first" in done.output
    assert "Traceback" not in done.output


def test_without_data_and_without_a_network_it_is_told_in_a_line(copy, monkeypatch):
    import sys

    monkeypatch.delenv("NBCOURSE_GSM8K", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)
    done = invoke("evaluate", copy("story"), "--task", "gsm8k")
    assert done.exit_code == 2
    assert "cannot fetch openai/gsm8k" in done.output
    assert "NBCOURSE_GSM8K" in done.output


def test_a_model_without_a_recipe_is_asked_alone(runs, tmp_path):
    model = shutil.copytree(runs / "story" / records.MODEL, tmp_path / "somebodys")
    asking = evaluation.Asking(limit=20, instruction="Count.")
    result = evaluation.evaluate(
        model, task="word-problems", problems=3, samples=2, progress=False, asking=asking
    )
    assert {"strict", "lenient", "truncated", "pass_at"} <= set(result["after"])
    assert not {"before", "gain"} & set(result)
    assert result["max_new_tokens"] == 20
    assert result["recipe"]["prompt"] == PromptSection(instruction="Count.").model_dump(mode="json")
    assert (model / "evaluation-word-problems-validation-20-tokens.json").is_file()
    longer = evaluation.Asking(limit=30)
    again = evaluation.evaluate(
        model, task="word-problems", problems=2, progress=False, asking=longer
    )
    assert again["times_asked"] == 2  # two files, one split
    with pytest.raises(UserError, match="a model without a recipe: name what to ask it"):
        evaluation.evaluate(model, progress=False)


def test_a_run_is_asked_with_another_limit(runs, tmp_path):
    folder = shutil.copytree(runs / "story", tmp_path / "run")
    result = evaluation.evaluate(
        folder, problems=2, progress=False, asking=evaluation.Asking(limit=5)
    )
    assert result["max_new_tokens"] == 5
    assert "gain" in result or "before" not in result
    assert (folder / result["file"]).name.endswith("-5-tokens.json")


@pytest.mark.parametrize(
    ("asking", "asked"),
    [
        ({}, ("", "")),
        ({"base_instruction": "Think."}, ("", "Think.")),
        ({"instruction": "Count."}, ("Count.", "Count.")),
        ({"instruction": "Count.", "base_instruction": "Think."}, ("Count.", "Think.")),
    ],
    ids=str,
)
def test_the_model_of_the_start_may_have_an_instruction_of_its_own(
    copy, monkeypatch, asking, asked
):
    """The trained model is asked first."""
    folder, ask, seen = copy("story"), evaluation.ask, []

    def watched(model, tokenizer, prompts, **options):
        seen.append(prompts[0])
        return ask(model, tokenizer, prompts, **options)

    monkeypatch.setattr(evaluation, "ask", watched)
    result = evaluation.evaluate(
        folder, problems=2, progress=False, asking=evaluation.Asking(limit=3, **asking)
    )
    assert result["max_new_tokens"] == 3
    assert result["base_instruction"] == asked[1]
    for prompt, instruction in zip(seen, asked, strict=True):
        assert prompt.startswith(instruction)
        assert instruction or not prompt.startswith(("Think.", "Count."))
