"""Base models: the loss of both stages in plain loops, and a run that may die at any moment."""

import itertools
import json
import math
import re
import shutil
import signal
from dataclasses import replace
from statistics import median
from zlib import crc32

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.experiments import checkpoint, pretraining, records, run
from nbcourse.experiments.pretraining import pretrain
from nbcourse.functional.accuracy import wilson_interval
from nbcourse.lm.descent import up_and_down
from nbcourse.seeds import generator
from nbcourse.tasks import word_problems
from nbcourse.tasks.questions import Verified
from nbcourse.training.models import load_model
from nbcourse.training.recipe import Pretraining, validate
from tests import hub, script
from tests.effort import PATIENCE, swept
from tests.experiments import crash
from tests.small import base_recipe, base_tables, recipe, without_costs, write_toml

STEPS = 7  # three of the first stage, four of the second; a checkpoint after 2, 4, 6 and 7
PLAIN = {"prompt": {"instruction": "Think."}}


def make_it_small(monkeypatch):
    """Few texts to learn a tokenizer from, and verdicts that a model of a few steps can earn."""
    monkeypatch.setattr("nbcourse.training.models.TEXTS", 60)

    def rewards(self, responses, asked):
        pairs = zip(responses, asked, strict=True)
        return torch.tensor([float(crc32((r + p.question).encode()) % 2) for r, p in pairs])

    monkeypatch.setattr(Verified, "rewards", rewards)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make_it_small(monkeypatch)


def test_its_plan_has_both_stages_and_what_an_earlier_one_took(tmp_path):
    """The same recipe again: each part is expected to take the median of what it took."""
    first, second = tmp_path / "first", tmp_path / "second"
    pretrain(base_recipe(), folder=first, progress=False)
    pretrain(base_recipe(), folder=second, progress=False, like=first)
    alone, like = (records.read_json(folder / records.PLAN) for folder in (first, second))
    assert (alone["like"], like["like"]) == (None, str(first))
    assert list(alone["phases"]) == ["pretraining", "supervised", "evaluate"]
    assert all(list(phase["seconds"]) == ["least"] for phase in alone["phases"].values())
    steps = records.read_metrics(first)
    for number, phase in enumerate(("pretraining", "supervised")):
        taken = median(row["seconds_learn"] for row in steps if row["stage"] == number)
        assert like["phases"][phase]["seconds"]["expected"] == pytest.approx(taken)
        held = max(row["memory_learn"] for row in steps if row["stage"] == number)
        assert 0 < alone["phases"][phase]["memory"] < 2 * held


# ---------------------------------------------------------------- the loss


def plain_loss(chosen, tokenizer, model, stage, step):
    """Minus the mean log-probability, problem by problem and token by token.

    Of a whole text after an end of sequence, or of the solution after the question; each up to the
    end of sequence behind it.
    """
    settings, end = getattr(chosen, stage), tokenizer.eos_token_id
    drawn = chosen.batch(stage, step)
    assert len(drawn) == settings.batch_size
    total, count = torch.zeros((), dtype=model.dtype), 0
    for problem in drawn:
        if stage == "pretraining":
            first, then = [end], tokenizer(problem.question + "\n" + problem.solution).input_ids
        else:
            instruction = chosen.prompt.instruction
            prompt = f"{instruction}\n\n{problem.question}\n" if instruction else problem.prompt
            first, then = tokenizer(prompt).input_ids, tokenizer(problem.solution).input_ids
        ids = [*first, *then, end]
        logits = model(torch.tensor([ids])).logits[0]
        for t in range(len(first), len(ids)):
            total = total - (logits[t - 1, ids[t]] - logits[t - 1].logsumexp(dim=0))
            count += 1
    return total / count


def gradient(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def same(ours, theirs, tolerance):
    largest = max(g.abs().max().item() for g in ours.values())
    for name in ours:
        assert_close(theirs[name], ours[name], rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("stage", ["pretraining", "supervised"])
@pytest.mark.parametrize("at_once", [1, 2, 5, 64])
def test_the_loss_and_its_gradient_are_those_of_plain_loops_whatever_the_parts(stage, at_once):
    """In float64, but for the norms, which Qwen2 takes in float32."""
    chosen = base_recipe(**PLAIN, **{stage: {"at_once": at_once}})
    tokenizer, model = load_model(chosen, "cpu")
    model.double()
    found = []
    expected = plain_loss(chosen, tokenizer, model, stage, 1)
    expected.backward()
    found.append(gradient(model))
    total, parts = 0.0, 0
    for loss in pretraining._losses(chosen, tokenizer, model, stage, 1):
        loss.backward()
        total, parts = total + loss.item(), parts + 1
    found.append(gradient(model))
    assert parts == math.ceil(getattr(chosen, stage).batch_size / at_once)
    assert total == pytest.approx(expected.item(), rel=1e-6)
    same(*found, 1e-5)
    assert not model.training


def test_a_run_is_adamw_on_these_losses():
    """By hand: rates that rise and fall in each stage, gradients of norm 1 at most.

    The moments go on from the first stage to the second, and activations are computed twice.
    """
    few = {"batch_size": 3, "at_once": 2}
    rates = {"steps": 12, "learning_rate": 2e-3, **few}
    chosen = base_recipe(
        **PLAIN,
        pretraining=rates,
        supervised={"steps": 5, "learning_rate": 5e-4, **few},
        model={"gradient_checkpointing": True},
        evaluation={"every": 100},
    )
    tokenizer, model, history = pretrain(chosen, progress=False)
    other, mine = load_model(chosen, "cpu")
    assert other.get_vocab() == tokenizer.get_vocab()
    optimiser = torch.optim.AdamW(mine.parameters(), weight_decay=0.0)
    losses = []
    for stage, steps in (("pretraining", 12), ("supervised", 5)):
        for step in range(steps):
            optimiser.zero_grad()
            loss = plain_loss(chosen, tokenizer, mine, stage, step)
            loss.backward()
            losses.append(loss.item())
            torch.nn.utils.clip_grad_norm_(mine.parameters(), 1.0)
            rise = (step + 1) / max(1, steps // 10)
            fall = (1 + math.cos(math.pi * step / steps)) / 2
            for group in optimiser.param_groups:
                group["lr"] = getattr(chosen, stage).learning_rate * min(rise, fall)
            optimiser.step()
    assert [row["loss"] for row in history] == pytest.approx(losses, rel=1e-3)
    assert [row["stage"] for row in history] == [0] * 12 + [1] * 5
    assert losses[11] < losses[0] - 0.5
    for (_, a), (_, b) in zip(model.named_parameters(), mine.named_parameters(), strict=True):
        assert_close(a, b, rtol=0, atol=2e-3)
    assert not model.training


def test_the_rate_rises_for_a_tenth_and_falls_to_nothing():
    shares = [up_and_down(step, 40) for step in range(40)]
    assert shares[:4] == pytest.approx([0.25, 0.5, 0.75, (1 + math.cos(3 * math.pi / 40)) / 2])
    assert shares[20] == pytest.approx(0.5)
    assert 0 < shares[-1] < 0.01
    assert up_and_down(0, 1) == 1.0


def test_low_precision_is_for_the_products_only():
    chosen = base_recipe(model={"precision": "bfloat16"})
    exact = base_recipe()
    _, model, low = pretrain(chosen, progress=False)
    _, _, high = pretrain(exact, progress=False)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    ours, theirs = ([row["loss"] for row in rows] for rows in (low, high))
    assert ours != theirs
    assert ours == pytest.approx(theirs, rel=0.02)


def test_no_step_sees_the_problems_of_another_and_none_is_held_out():
    chosen = base_recipe()
    names = {
        (stage, step): {p.question for p in chosen.examples(64, generator(0, stage, step))}
        for stage in ("pretraining", "supervised")
        for step in range(3)
    }
    held_out = chosen.task.build().draw(2000, split="validation", generator=torch.Generator())
    pairs = [(a, b) for a in names for b in names if a < b]
    assert all(len(names[a] & names[b]) < 10 for a, b in pairs)  # there are not that many stories
    assert not set().union(*names.values()) & {p.question for p in held_out}


def test_some_examples_are_gsm8ks(tmp_path, monkeypatch):
    """Training problems, as many as the share says: five standard errors."""
    from nbcourse.tasks.gsm8k import three_way_split

    folder = hub.data(tmp_path / "gsm8k", train=900)
    monkeypatch.setenv("NBCOURSE_GSM8K", str(folder))
    chosen = base_recipe(gsm8k_share=0.3)
    counts = []
    for step in range(10):
        drawn = chosen.examples(100, generator(0, "pretraining", step))
        assert len(drawn) == 100
        theirs = [p for p in drawn if not isinstance(p, word_problems.WordProblem)]
        assert set(theirs) <= set(three_way_split("train", None))
        counts.append(len(theirs))
    assert abs(sum(counts) - 300) < 5 * math.sqrt(1000 * 0.3 * 0.7)
    assert len(set(counts)) > 1
    whole = validate(Pretraining, base_tables(gsm8k_share=1.0), name="recipe")
    drawn = whole.examples(30, generator(0, "x"))
    assert not any(isinstance(p, word_problems.WordProblem) for p in drawn)


# ---------------------------------------------------------------- a run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    with pytest.MonkeyPatch.context() as patch:
        make_it_small(patch)
        folder = tmp_path_factory.mktemp("base") / "run"
        outcome = pretrain(base_recipe(), folder=folder, progress=False)
    return folder, *outcome


def timeless(folder):
    return without_costs(records.read_metrics(folder))


def same_run(one, two):
    assert timeless(one) == timeless(two)
    assert [p.name for p in (one / "checkpoint").iterdir()] == ["step-000007"]
    for file in ("model/model.safetensors", "checkpoint/step-000007/tensors.safetensors"):
        ours, theirs = load_file(one / file), load_file(two / file)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), file
    for name in ("tokenizer.json", "config.json"):
        texts = [(folder / "model" / name).read_text("utf-8") for folder in (one, two)]
        assert texts[0] == texts[1]
    summaries = [json.loads((folder / "summary.json").read_text("utf-8")) for folder in (one, two)]
    for key in ("held_out", "held_out_interval_95", "held_out_problems", "gain", "steps"):
        assert summaries[0][key] == summaries[1][key]


def test_a_run_leaves_its_records(whole):
    folder, _, model, history = whole
    assert {path.name for path in folder.iterdir()} == {
        "recipe.json",
        "environment.json",
        "plan.json",
        "start.json",
        "metrics.jsonl",
        "summary.json",
        "checkpoint",
        "model",
    }
    assert records.read_metrics(folder) == history
    assert records.read_any_recipe(folder) == base_recipe()
    with pytest.raises(ValueError, match=r"holds a base model, expected a run of reinforcement"):
        records.read_recipe(folder)
    assert [row["step"] for row in history] == [*range(1, STEPS + 1)]
    assert [row["stage"] for row in history] == [0, 0, 0, 1, 1, 1, 1]
    assert [row["step"] for row in history if "held_out" in row] == [2, 4, 6, 7]
    assert all(row["seconds_learn"] > 0 < row["memory_learn"] for row in history)
    assert all("memory_evaluate" in row for row in history if "held_out" in row)
    kept = load_file(folder / "model" / "model.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.equal(kept[name], parameter)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["steps"] == STEPS
    assert summary["held_out"] == history[-1]["held_out"]
    right = round(3 * summary["held_out"])
    assert summary["held_out_interval_95"] == [*wilson_interval(right, 3)]
    assert summary["seconds_of_steps"] == pytest.approx(sum(map(records.seconds, history)))


def test_evaluation_asks_the_held_out_problems_greedily(whole, monkeypatch):
    """One after the other, with the answers' own limit; the prompt is the question's.

    A model of seven steps never ends itself; every other answer is told as if it had.
    """
    _, tokenizer, model, history = whole
    chosen = base_recipe(**{"evaluation": {"problems": 40}})
    source = generator(0, "evaluation")
    problems = chosen.task.build().draw(40, split="validation", generator=source)
    verdicts = []
    for problem in problems:
        ids = tokenizer(problem.question + "\n").input_ids
        answer = []
        while len(answer) < 4:
            with torch.no_grad():
                token = model(torch.tensor([ids + answer])).logits[0, -1].argmax().item()
            assert token != tokenizer.eos_token_id
            answer.append(token)
        text = tokenizer.decode(answer)
        verdicts.append(float(crc32((text + problem.question).encode()) % 2))
    assert not pretraining._held_out(chosen, tokenizer, model).any()
    assert history[-1]["held_out"] == 0
    whole_answers, ended = pretraining.held_out.ask, torch.arange(40) % 2 == 0

    def as_if_ended(*arguments, **options):
        return replace(whole_answers(*arguments, **options), truncated=~ended)

    monkeypatch.setattr(pretraining.held_out, "ask", as_if_ended)
    found = pretraining._held_out(chosen, tokenizer, model)
    assert found.tolist() == [v * e for v, e in zip(verdicts, ended.tolist(), strict=True)]
    assert 0 < found.sum() < 20


def test_its_curve_starts_where_the_model_was(tmp_path, monkeypatch):
    """The model is asked before its first step, and the gain is paired with that."""
    asked, verdicts = [], pretraining._held_out

    def remembered(chosen, tokenizer, model):
        asked.append(model.model.embed_tokens.weight.detach().clone())
        right = torch.tensor([1.0, 0.0, 0.0]) if len(asked) == 1 else torch.tensor([0.0, 1.0, 1.0])
        assert verdicts(chosen, tokenizer, model).shape == right.shape
        return right

    monkeypatch.setattr(pretraining, "_held_out", remembered)
    pretrain(base_recipe(), folder=tmp_path, progress=False)
    _, model = load_model(base_recipe(), torch.device("cpu"))
    assert torch.equal(asked[0], model.model.embed_tokens.weight)
    assert records.read_start(tmp_path).tolist() == [1, 0, 0]
    summary = records.read_json(tmp_path / "summary.json")
    assert summary["gain"] == pytest.approx(1 / 3)
    assert len(summary["gain_interval_95"]) == 2


def test_a_run_that_was_begun_without_asking_has_no_gain(whole, tmp_path):
    """As runs of earlier versions: the model before the first step is not there any more."""
    folder = shutil.copytree(whole[0], tmp_path / "run")
    (folder / "start.json").unlink()
    (folder / "summary.json").unlink()
    pretrain(base_recipe(), folder=folder, resume=True, progress=False)
    assert records.read_start(folder) is None
    assert "gain" not in records.read_json(folder / "summary.json")


def test_without_a_folder_the_numbers_are_the_same(whole):
    _, _, history = pretrain(base_recipe(), progress=False)
    assert without_costs(history) == timeless(whole[0])


class Killed(BaseException):
    """Nobody catches it, like a kill."""


WHEN = ("before the line", "in the line", "after the line")


@pytest.mark.parametrize(
    ("when", "lines"),
    swept(
        itertools.product(WHEN, range(STEPS)),
        keep=[("before the line", 0), ("in the line", STEPS - 1), ("after the line", 3)],
    ),
)
def test_killed_at_any_step_it_goes_on_bit_by_bit(whole, tmp_path, monkeypatch, lines, when):
    write = records.Metrics.write

    def die(self, row):
        if row["step"] <= lines:
            return write(self, row)
        if when == "in the line":
            self.stream.write('{"step": ')
            self.stream.flush()
        elif when == "after the line":
            write(self, row)
        raise Killed

    monkeypatch.setattr(records.Metrics, "write", die)
    with pytest.raises(Killed):
        pretrain(base_recipe(), folder=tmp_path, progress=False)
    monkeypatch.setattr(records.Metrics, "write", write)
    found = checkpoint._steps(tmp_path / "checkpoint")
    assert [path.name for path in found] == [f"step-{lines - lines % 2:06d}"][: lines // 2]
    _, _, history = pretrain(base_recipe(), folder=tmp_path, resume=True, progress=False)
    assert [row["step"] for row in history] == [*range(1, STEPS + 1)]
    same_run(tmp_path, whole[0])


def test_asked_to_stop_it_keeps_the_step_it_is_at(whole, tmp_path, monkeypatch):
    """Checkpoints are written every two steps, and this one after the third."""
    write = records.Metrics.write

    def ask(self, row):
        write(self, row)
        if row["step"] == 2:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(records.Metrics, "write", ask)
    with pytest.raises(KeyboardInterrupt):
        pretrain(base_recipe(), folder=tmp_path, progress=False)
    monkeypatch.setattr(records.Metrics, "write", write)
    found = checkpoint._steps(tmp_path / "checkpoint")
    assert [path.name for path in found] == ["step-000003"]
    pretrain(base_recipe(), folder=tmp_path, resume=True, progress=False)
    same_run(tmp_path, whole[0])


def test_asked_to_stop_at_its_last_step_it_is_done(whole, tmp_path):
    asked = [*[False] * (STEPS - 1), True]
    pretrain(base_recipe(), folder=tmp_path, progress=False, stop=iter(asked).__next__)
    same_run(tmp_path, whole[0])


@pytest.mark.parametrize("lost", ["summary.json", "model", "both"])
def test_killed_before_the_summary_it_writes_it_in_the_end(whole, tmp_path, lost):
    folder = shutil.copytree(whole[0], tmp_path / "run")
    if lost in ("model", "both"):
        shutil.rmtree(folder / "model")
    (folder / "summary.json").unlink()
    pretrain(base_recipe(), folder=folder, resume=True, progress=False)
    same_run(folder, whole[0])


def train_small(*arguments):
    """What the fixture `small` does holds in this process alone, not in one that is started."""
    with pytest.MonkeyPatch.context() as patch:
        make_it_small(patch)
        crash.train(*arguments)


def test_killed_for_good_in_a_process_of_its_own(whole, tmp_path):
    """Within a checkpoint of each stage."""
    for death in (("in the tensors", 1), ("after the renaming", 3), ()):
        process = script.process(train_small, base_tables(), tmp_path, *death)
        process.join(PATIENCE)
        assert process.exitcode == (-signal.SIGKILL if death else 0)
    same_run(tmp_path, whole[0])


def test_a_finished_run_has_nothing_left_to_do(whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "run")
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    _, model, history = pretrain(base_recipe(), folder=folder, resume=True, progress=False)
    assert history == whole[3]
    for ours, theirs in zip(model.parameters(), whole[2].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert files == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- what is refused


def test_a_run_is_not_overwritten_and_not_mixed_with_another(whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"holds a run already: --resume goes on with it"):
        pretrain(base_recipe(), folder=folder, progress=False)
    changes = {
        "seed was 0 and is 1": {"seed": 1},
        "supervised.steps was 4 and is 6": {"supervised": {"steps": 6}},
        "pretraining.learning_rate was 0.001 and is 0.1": {"pretraining": {"learning_rate": 0.1}},
        "task.max_steps was 2 and is 3": {"task": {"max_steps": 3}},
    }
    for message, change in changes.items():
        with pytest.raises(ValueError, match=f"a run of another recipe: {re.escape(message)}$"):
            pretrain(base_recipe(**change), folder=folder, resume=True, progress=False)
    with pytest.raises(ValueError, match=r"holds a run of another recipe: "):
        run.train(recipe(steps=9), folder=folder, resume=True, progress=False)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_of_reinforcement_learning_is_not_taken_for_a_base_model(tmp_path):
    run.train(recipe(), folder=tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"holds a run of another recipe: .*pretraining was None"):
        pretrain(base_recipe(), folder=tmp_path, resume=True, progress=False)


def test_a_loss_that_is_not_finite_stops_it_by_name(monkeypatch):
    def lost(model, batch, rows):
        return next(iter(model.parameters())).sum() * math.nan

    monkeypatch.setattr(pretraining, "imitation_loss", lost)
    with pytest.raises(FloatingPointError, match="pretraining: the loss of step 1 is nan"):
        pretrain(base_recipe(), progress=False)


# ---------------------------------------------------------------- as a user types it


def test_stopped_by_hand_it_says_how_to_go_on(tmp_path, monkeypatch):
    path = tmp_path / "base.toml"
    write_toml(path, base_tables())
    folder = tmp_path / "runs" / "base"
    write = records.Metrics.write

    def stop(self, row):
        write(self, row)
        if row["step"] == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(records.Metrics, "write", stop)
    command = ["train", str(path), "--out", str(folder)]
    stopped = CliRunner().invoke(app, command)
    monkeypatch.setattr(records.Metrics, "write", write)
    assert stopped.exit_code == 1
    assert f"stopped; go on with: nbcourse train {path} --out {folder} --resume" in stopped.output
    done = CliRunner().invoke(app, [*command, "--resume"])
    assert done.exit_code == 0, done.output
    assert "held-out accuracy" in done.output
    assert [row["step"] for row in records.read_metrics(folder)] == [*range(1, STEPS + 1)]


def test_what_makes_no_base_model_is_refused(tmp_path):
    path = tmp_path / "base.toml"
    path.write_text(
        '[pretraining]\nsteps = 1\n[supervised]\n[task]\nname = "gsm8k"\n[model]\nvocabulary = 300',
        encoding="utf-8",
    )
    command = ["train", str(path), "--out", str(tmp_path / "run"), "--engine", "trl"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "makes no base model" in done.output
    assert not (tmp_path / "run").exists()
