"""A run that is killed, whenever it is, ends as if it had not been; and damage is seen."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import stat
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nbcourse import durable
from nbcourse.experiments import checkpoint, records
from nbcourse.experiments.run import train
from nbcourse.training.loop import begin
from nbcourse.training.recipe import check
from tests import script
from tests.effort import PATIENCE, swept
from tests.experiments import crash
from tests.small import learner, recipe, tables, without_costs

ROOT = Path(__file__).resolve().parents[2]
EVERY = {"steps": 7, "checkpoint": {"every": 2}, "evaluation": {"every": 2, "problems": 8}}
WARM = {"warm_start": {"steps": 20, "batch_size": 32}}
ADAPTIVE = {"kl": {"beta": 0.1, "controller": "adaptive", "target": 0.01, "horizon": 100.0}}
# Between them, all that a run carries from step to step: the moments of the optimiser, a critic of
# its own, β, the running mean, the cursor into the problems; and what it only reads.
RUNS = {
    "ppo": tables(
        algorithm={"name": "ppo"},
        critic={"shared": False},
        optimiser={"minibatches": 2, "learning_rate": 1e-3, "warm_up": 5},
        **EVERY,
        **{"warm_start": {"steps": 2, "batch_size": 8}},
        **ADAPTIVE,
    ),
    "reinforce-ema": tables(algorithm={"name": "reinforce-ema"}, **EVERY, **WARM, **ADAPTIVE),
    "dapo": tables(
        algorithm={"name": "dapo"},
        reward={"overlong_buffer": 2},
        **EVERY,
        **{"warm_start": {"steps": 60, "batch_size": 32}},
    ),
    "ppo, judged": tables(
        algorithm={"name": "ppo"},
        reward={"source": "reward_model"},
        reward_model={"comparisons": 16, "steps": 3, "batch_size": 8},
        **EVERY,
        **WARM,
    ),
}
BREAKABLE = "ppo"
SYNCS, FILES = 47, 38  # fsyncs and files opened for writing, in the whole of the breakable run


def live(name, folder, *arguments):
    """One life of a run, to its end or its violent death; says whether it ended."""
    process = script.process(crash.train, RUNS[name], folder, *arguments)
    process.join(PATIENCE)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """undisturbed(name): the folder of a run that nobody killed."""
    folders = {}

    def find(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name.replace(", ", "-"))
            assert live(name, folders[name])
        return folders[name]

    return find


@pytest.fixture(scope="module")
def shorter(tmp_path_factory):
    """The folder of a run that ended after four steps."""
    folder = tmp_path_factory.mktemp("shorter")
    train(check({**RUNS[BREAKABLE], "steps": 4}), folder=folder, progress=False)
    return folder


@pytest.fixture
def run(undisturbed, tmp_path):
    """A copy of a finished run, to be damaged."""
    return shutil.copytree(undisturbed(BREAKABLE), tmp_path / "run")


def timeless(folder):
    """What metrics.jsonl says, as text, without the times."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return json.dumps(without_costs(map(json.loads, lines)))


def same_run(one, two):
    assert timeless(one) == timeless(two)
    assert sorted(p.name for p in (one / "checkpoint").iterdir()) == ["start", "step-000007"]
    for file in (
        "model/model.safetensors",
        "checkpoint/start/tensors.safetensors",
        "checkpoint/step-000007/tensors.safetensors",
    ):
        ours, theirs = load_file(one / file), load_file(two / file)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), file
    ours, theirs = (
        json.loads((folder / "checkpoint/step-000007/numbers.json").read_text("utf-8"))
        for folder in (one, two)
    )
    assert ours == theirs
    summaries = [json.loads((folder / "summary.json").read_text("utf-8")) for folder in (one, two)]
    assert all(summary["steps"] == 7 for summary in summaries)
    assert summaries[0]["held_out"] == summaries[1]["held_out"]


@pytest.mark.parametrize("name", swept(RUNS, keep=[BREAKABLE]))
def test_the_runs_carry_something_from_step_to_step(undisturbed, name):
    """Otherwise the tests below would prove little."""
    numbers = json.loads((undisturbed(name) / "checkpoint/step-000007/numbers.json").read_text())
    metrics = records.read_metrics(undisturbed(name))
    assert any(row["grad_norm"] > 0 for row in metrics)
    if name == "ppo":
        assert numbers["beta"] != 0.1
        assert all(row["updates"] == 2 for row in metrics)
    elif name == "reinforce-ema":
        assert numbers["average"] != 0
    elif name == "dapo":
        assert numbers["taken"] > numbers["step"] == 7
    else:
        assert any(row["accuracy"] != row["reward"] for row in metrics)


@pytest.mark.parametrize(
    ("moment", "count"),
    swept(
        [
            ("in the tensors", 1),  # of what never changes
            ("in the tensors", 2),  # of step 0
            ("in the tensors", 4),  # of step 4
            ("in the numbers", 1),
            ("in the numbers", 3),
            ("in the recipe", 1),
            ("before the renaming", 1),
            ("before the renaming", 3),
            ("after the renaming", 1),
            ("after the renaming", 4),
            ("while older ones are removed", 2),
            ("in a line of metrics", 1),
            ("in a line of metrics", 4),
            ("after a line of metrics", 3),
            ("after a line of metrics", 7),
            ("before the summary", 1),
        ],
        keep=[("before the renaming", 3)],  # and the others one after the other, below
    ),
)
def test_a_run_that_dies_at_a_bad_moment_goes_on_as_if_it_had_not(
    undisturbed, tmp_path, moment, count
):
    assert not live(BREAKABLE, tmp_path, moment, count)
    assert live(BREAKABLE, tmp_path)
    same_run(tmp_path, undisturbed(BREAKABLE))


@pytest.mark.parametrize(
    ("lines", "step"), swept([(1, 0), (2, 0), (3, 2), (6, 4), (7, 6)], keep=[(6, 4)])
)
def test_a_kill_costs_no_more_than_the_steps_since_the_last_checkpoint(tmp_path, lines, step):
    """Checkpoints are written every two steps, each after the line of its step."""
    assert not live(BREAKABLE, tmp_path, "after a line of metrics", lines)
    folder = tmp_path / "checkpoint"
    assert sorted(p.name for p in folder.iterdir()) == ["start", f"step-{step:06d}"]
    _, state = checkpoint.load(folder, check(RUNS[BREAKABLE]), torch.device("cpu"))
    assert state.step == step


def test_a_run_that_is_asked_to_stop_keeps_the_step_it_is_at(
    undisturbed, tmp_path, monkeypatch, ctrl_c
):
    """After steps 2 and 4 it is asked, and does 3 and 5 to their end, no multiples of two."""
    asking = {2: signal.SIGINT, 4: signal.SIGTERM}
    write = records.Metrics.write

    def ask(self, row):
        write(self, row)
        if row["step"] in asking:
            signal.raise_signal(asking[row["step"]])

    monkeypatch.setattr(records.Metrics, "write", ask)
    for step in (3, 5):
        with pytest.raises(KeyboardInterrupt):
            train(check(RUNS[BREAKABLE]), folder=tmp_path, resume=True, progress=False)
        kept = sorted(p.name for p in (tmp_path / "checkpoint").iterdir())
        assert kept == ["start", f"step-{step:06d}"]
    assert live(BREAKABLE, tmp_path)
    same_run(tmp_path, undisturbed(BREAKABLE))


def test_a_run_that_dies_at_one_bad_moment_after_the_other_ends_all_the_same(undisturbed, tmp_path):
    """Each life begins on what the death before it has left."""
    deaths = [("before the renaming", 2), ("in the tensors", 1), ("in a line of metrics", 3)]
    deaths += [("while metrics are mended", 1), ("after a line of metrics", 2)]
    deaths += [("after the renaming", 1), ("while older ones are removed", 1)]
    deaths += [("in the numbers", 1), ("in the recipe", 1), ("before the summary", 1)]
    for death in deaths:
        assert not live(BREAKABLE, tmp_path, *death), death
    assert live(BREAKABLE, tmp_path)
    same_run(tmp_path, undisturbed(BREAKABLE))


@pytest.mark.parametrize("name", swept(RUNS, keep=[BREAKABLE]))
def test_a_run_that_is_killed_anywhere_goes_on_as_if_it_had_not(undisturbed, tmp_path, name):
    """Three times, in the middle of whatever it does; a step makes 8,000 calls or more."""
    chance = random.Random(name)
    for lines in (1, 2, 1):
        place = (lines, chance.randrange(1, 8_000))
        process = script.process(crash.train_some_calls_more, RUNS[name], tmp_path, *place)
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL, place
    assert live(name, tmp_path)
    same_run(tmp_path, undisturbed(name))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads files by their number")
@pytest.mark.parametrize("syncs", swept(range(1, SYNCS + 2), keep=[28, SYNCS + 1]))
def test_a_power_cut_costs_no_more_than_a_kill(undisturbed, tmp_path, syncs):
    """The disk keeps only what was synced, and only under names that were."""
    left = tmp_path / "left"
    process = script.process(
        crash.train_until_the_power_fails, RUNS[BREAKABLE], tmp_path / "run", syncs, left
    )
    process.join(PATIENCE)
    assert process.exitcode == (0 if syncs > SYNCS else -signal.SIGKILL)
    if syncs < SYNCS:
        assert live(BREAKABLE, left)
    # That the one before was removed need not have reached the disk.
    shutil.rmtree(left / "checkpoint" / "step-000006", ignore_errors=True)
    same_run(left, undisturbed(BREAKABLE))  # what says that it has ended is there as a whole


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits that a process sets itself")
@pytest.mark.parametrize("files", swept(range(1, FILES + 2), keep=[20, FILES]))
def test_a_disk_that_fills_up_stops_a_run_that_can_go_on(undisturbed, tmp_path, files):
    process = script.process(
        crash.train_until_the_disk_is_full, RUNS[BREAKABLE], tmp_path / "run", files
    )
    process.join(PATIENCE)
    assert process.exitcode == (0 if files > FILES else 1)
    assert live(BREAKABLE, tmp_path / "run")
    same_run(tmp_path / "run", undisturbed(BREAKABLE))


def test_a_folder_has_one_writer(run, tmp_path):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    longer = check({**RUNS[BREAKABLE], "steps": 8})
    expected = re.escape(f"another process is at work in {run}: ")
    with durable.locked(run), pytest.raises(ValueError, match=expected):
        train(longer, folder=run, resume=True, progress=False)
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    train(longer, folder=run, resume=True, progress=False)
    assert records.summarised_steps(run) == 8


def failing_for_folders(monkeypatch, number):
    """A file system that answers a request to sync a folder with an error of this number."""
    sync = os.fsync

    def fsync(opened):
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            raise OSError(number, os.strerror(number))
        sync(opened)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.skipif(os.name == "nt", reason="Windows is not asked to sync a folder")
def test_a_mounted_drive_that_cannot_sync_a_folder_will_do(tmp_path, monkeypatch):
    failing_for_folders(monkeypatch, errno.EINVAL)
    durable.write(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.skipif(os.name == "nt", reason="Windows is not asked to sync a folder")
def test_a_disk_that_fails_to_sync_a_folder_is_an_error(tmp_path, monkeypatch):
    failing_for_folders(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        durable.write(tmp_path / "file", b"lost")


def test_a_longer_run_goes_on_where_the_shorter_one_ended(undisturbed, shorter, tmp_path):
    folder = shutil.copytree(shorter, tmp_path / "run")
    _, history = train(check(RUNS[BREAKABLE]), folder=folder, resume=True, progress=False)
    assert [row["step"] for row in history] == list(range(1, 8))
    same_run(folder, undisturbed(BREAKABLE))


def test_a_longer_run_that_dies_before_its_summary_writes_it_in_the_end(
    undisturbed, shorter, tmp_path
):
    folder = shutil.copytree(shorter, tmp_path / "run")
    assert not live(BREAKABLE, folder, "before the summary")
    assert live(BREAKABLE, folder)
    same_run(folder, undisturbed(BREAKABLE))


def test_a_finished_run_has_nothing_left_to_do(run):
    files = {
        path: path.read_bytes()
        for path in run.rglob("*")
        if path.suffix in (".safetensors", ".jsonl")
    }
    _, history = train(check(RUNS[BREAKABLE]), folder=run, resume=True, progress=False)
    assert [row["step"] for row in history] == list(range(1, 8))
    assert files == {path: path.read_bytes() for path in files}


# ---------------------------------------------------------------- what is refused


def test_a_run_is_not_overwritten(run):
    before = timeless(run)
    with pytest.raises(ValueError, match=re.escape(f"{run} holds a run already: --resume goes")):
        train(check(RUNS[BREAKABLE]), folder=run, progress=False)
    assert timeless(run) == before


def test_numbers_without_a_checkpoint_are_not_begun_again(run):
    for step in (run / "checkpoint").glob("step-*"):
        shutil.rmtree(step)  # what --engine trl leaves, and git of a recorded run
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="the numbers of 7 steps and no checkpoint"):
        train(check(RUNS[BREAKABLE]), folder=run, resume=True, progress=False)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 3}, "seed was 0 and is 3"),
        ({"kl": {**ADAPTIVE["kl"], "target": 0.5}}, "kl.target was 0.01 and is 0.5"),
        (
            {"rollouts": {"prompts": 8}},
            "rollouts.prompts was 6 and is 8; rollouts.group_size was 4",
        ),
        ({"checkpoint": {"every": 3}}, "checkpoint.every was 2 and is 3"),
    ],
)
def test_another_recipe_is_refused_by_the_key_that_differs(run, change, message):
    before = (run / "recipe.json").read_bytes()
    expected = re.escape(f"{run} holds a run of another recipe: {message}")
    with pytest.raises(ValueError, match=expected):
        train(check({**RUNS[BREAKABLE], **change}), folder=run, resume=True, progress=False)
    assert (run / "recipe.json").read_bytes() == before


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty(file):
    file.write_bytes(b"")


def rewritten(numbers):
    def change(file):
        there = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps(numbers(there)), encoding="utf-8")

    return change


DAMAGE = {
    "tensors cut short": ("tensors.safetensors", truncate),
    "a bit of the tensors flipped": ("tensors.safetensors", flip),
    "empty tensors": ("tensors.safetensors", empty),
    "no tensors": ("tensors.safetensors", Path.unlink),
    "no numbers": ("numbers.json", Path.unlink),
    "numbers cut short": ("numbers.json", lambda file: file.write_bytes(file.read_bytes()[:20])),
    "empty numbers": ("numbers.json", empty),
    "a list": ("numbers.json", rewritten(lambda there: [1, 2])),
    "a foreign table": ("numbers.json", rewritten(lambda there: {"epoch": 3})),
    "another format": ("numbers.json", rewritten(lambda there: {**there, "format": 1})),
    "another number": ("numbers.json", rewritten(lambda there: {**there, "step": 6, "beta": 0.2})),
    "not text": ("numbers.json", lambda file: file.write_bytes(b"\xff\xfe\x00")),
}


@pytest.mark.parametrize("place", ["start", "step-000007"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused_in_one_line_that_names_it(run, damage, place):
    name, spoil = DAMAGE[damage]
    folder = run / "checkpoint" / place
    spoil(folder / name)
    for attempt in (
        lambda: checkpoint.load(run / "checkpoint", check(RUNS[BREAKABLE]), torch.device("cpu")),
        lambda: train(check(RUNS[BREAKABLE]), folder=run, resume=True, progress=False),
    ):
        with pytest.raises(ValueError, match=re.escape(str(folder))) as error:
            attempt()
        assert "\n" not in str(error.value)
        assert "damaged" in str(error.value)


def reseal(folder, tensors=None, numbers=None):
    """Change a checkpoint so that its checksums are right."""
    if tensors is not None:
        save_file(tensors, folder / "tensors.safetensors")
    changed = (
        json.loads((folder / "numbers.json").read_text("utf-8")) if numbers is None else numbers
    )
    changed = {key: value for key, value in changed.items() if key != "sha256"}
    changed["tensors"] = hashlib.sha256((folder / "tensors.safetensors").read_bytes()).hexdigest()
    text = json.dumps(dict(sorted(changed.items())))
    changed["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "numbers.json").write_text(json.dumps(changed), encoding="utf-8")


@pytest.mark.parametrize("missing", ["step", "taken", "beta", "average"])
def test_numbers_that_are_missing_are_named(run, missing):
    folder = run / "checkpoint" / "step-000007"
    numbers = json.loads((folder / "numbers.json").read_text("utf-8"))
    del numbers[missing]
    reseal(folder, numbers=numbers)
    expected = f"is not a checkpoint of this program: it has no '{missing}'"
    with pytest.raises(ValueError, match=expected):
        checkpoint.load(run / "checkpoint", check(RUNS[BREAKABLE]), torch.device("cpu"))


@pytest.mark.parametrize(
    "key",
    [
        "weights.linear.weight",
        "weights.model.norm.weight",
        "optimiser.exp_avg.model.norm.weight",
    ],
)
def test_a_tensor_that_is_missing_is_named(run, key):
    folder = run / "checkpoint" / "step-000007"
    tensors = load_file(folder / "tensors.safetensors")
    (key,) = [
        name for name in tensors if name == key or name == key.replace("linear", "head.linear")
    ]
    del tensors[key]
    reseal(folder, tensors)
    with pytest.raises(ValueError, match=re.escape(key)):
        checkpoint.load(run / "checkpoint", check(RUNS[BREAKABLE]), torch.device("cpu"))


def test_a_checkpoint_of_another_model_is_refused(run):
    wider = check({**RUNS[BREAKABLE], "model": {"layers": 1, "width": 64, "heads": 4}})
    deeper = check({**RUNS[BREAKABLE], "model": {"layers": 2, "width": 32, "heads": 4}})
    start = re.escape(str(run / "checkpoint" / "start"))
    expected = rf"^{start} does not fit this recipe: expected reference\.\S+ of shape \(17, 64\), "
    with pytest.raises(ValueError, match=expected + r"found shape \(17, 32\)$"):
        checkpoint.load(run / "checkpoint", wider, torch.device("cpu"))
    with pytest.raises(ValueError, match=rf"^{start} does not fit.*layers\.1\..*found nothing$"):
        checkpoint.load(run / "checkpoint", deeper, torch.device("cpu"))


def test_no_checkpoint_yet_is_no_mistake(tmp_path):
    assert checkpoint.load(tmp_path, recipe(), torch.device("cpu")) is None
    made = learner(recipe())
    checkpoint.save_start(tmp_path, made)
    assert checkpoint.load(tmp_path, recipe(), torch.device("cpu")) is None


# ---------------------------------------------------------------- what lies around


def test_what_was_left_unfinished_does_no_harm(run, undisturbed):
    content = RUNS[BREAKABLE]
    folder = run / "checkpoint"
    (folder / "unfinished").mkdir()
    (folder / "unfinished" / "tensors.safetensors").write_bytes(b"half")
    (folder / "step-000006").mkdir()  # half removed
    (run / "metrics.unfinished").write_text("half", encoding="utf-8")
    _, state = checkpoint.load(folder, check(content), torch.device("cpu"))
    assert state.step == 7
    longer = check({**content, "steps": 8})
    train(longer, folder=run, resume=True, progress=False)
    assert sorted(p.name for p in folder.iterdir()) == ["start", "step-000008"]


def test_a_last_line_that_was_cut_is_mended(run):
    whole = (run / "metrics.jsonl").read_text("utf-8")
    lines = whole.splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines) + lines[-1][:25], encoding="utf-8")
    assert len(records.read_metrics(run)) == 7
    train(check(RUNS[BREAKABLE]), folder=run, resume=True, progress=False)
    assert (run / "metrics.jsonl").read_text("utf-8") == whole


def test_lines_after_the_last_checkpoint_are_written_again(tmp_path):
    """Steps 5 to 7 were done and told, and the checkpoint is that of step 4."""
    told(tmp_path, range(1, 8))
    kept = records.read_history(tmp_path, done=4)
    assert [row["step"] for row in kept] == [1, 2, 3, 4]
    metrics = records.Metrics(tmp_path, kept=kept)
    assert records.read_metrics(tmp_path) == kept
    metrics.write({"step": 5, "reward": 0.2})
    metrics.close()
    assert [row["step"] for row in records.read_metrics(tmp_path)] == [1, 2, 3, 4, 5]
    assert records.read_history(tmp_path, done=0) == []


def told(folder, steps):
    lines = [json.dumps({"step": step, "reward": 0.1}) + "\n" for step in steps]
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([1, 2, 3], "no line of step 4"),
        ([2, 3, 4], "no line of step 1"),
        ([1, 2, 4, 5], "no line of step 3"),
        ([1, 2, 2, 3, 4], "5 lines"),
        ([], "no line of step 1"),
    ],
)
def test_a_gap_before_the_checkpoint_is_refused(tmp_path, steps, found):
    told(tmp_path, steps)
    with pytest.raises(ValueError, match=rf"has {found}, but the checkpoint is of step 4"):
        records.read_history(tmp_path, done=4)


def test_a_run_does_not_go_on_with_a_gap(run):
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:4]), encoding="utf-8")
    with pytest.raises(ValueError, match="no line of step 5, but the checkpoint is of step 7"):
        train(check({**RUNS[BREAKABLE], "steps": 8}), folder=run, resume=True, progress=False)


# ---------------------------------------------------------------- what is kept


def test_a_learner_comes_back_as_it_was(tmp_path):
    """Weights, moments and numbers, and the next step of both is the same."""
    made = learner(check(RUNS["ppo, judged"]))
    state = begin(made.recipe)
    state.step, state.draws.taken, state.controller.beta, state.average = 3, 5, 0.7, 0.25
    generator = torch.Generator().manual_seed(0)
    for _, parameter in made.trained():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    made.optimiser.step()
    checkpoint.save_start(tmp_path, made)
    checkpoint.save(tmp_path, made, state)
    again, other = checkpoint.load(tmp_path, made.recipe, torch.device("cpu"))
    assert (other.step, other.draws.taken, other.average) == (3, 5, 0.25)
    assert other.controller.beta == 0.7
    for mine, theirs in (
        (made.reference, again.reference),
        (made.reward_model, again.reward_model),
    ):
        pairs = zip(mine.parameters(), theirs.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert not any(p.requires_grad for p in theirs.parameters())
    for one in (made, again):
        generator = torch.Generator().manual_seed(1)
        for _, parameter in one.trained():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        one.optimiser.step()
    for (name, mine), (other_name, theirs) in zip(made.trained(), again.trained(), strict=True):
        assert name == other_name
        assert torch.equal(mine, theirs), name
        for key in checkpoint.OPTIMISER:
            assert torch.equal(
                made.optimiser.state[mine][key], again.optimiser.state[theirs][key]
            ), key


def test_adamw_keeps_nothing_that_is_not_saved():
    made = learner(recipe("ppo"))
    for _, parameter in made.trained():
        parameter.grad = torch.ones_like(parameter)
    made.optimiser.step()
    assert all(set(state) == set(checkpoint.OPTIMISER) for state in made.optimiser.state.values())


def test_the_last_of_a_million_checkpoints_is_found(tmp_path):
    for step in (0, 999_999, 1_000_000):
        (tmp_path / f"step-{step:06d}").mkdir()
    assert checkpoint.last_step(tmp_path) == 1_000_000


def test_only_the_last_checkpoint_is_kept_and_it_can_be_read_without_running_code(undisturbed):
    folder = undisturbed(BREAKABLE) / "checkpoint"
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} == {".safetensors", ".json"}
    assert not list(folder.glob("unfinished"))


def test_nothing_is_pickled():
    words = re.compile(r"torch\.(load|save)\b|\bpickle\b|allow_pickle|\bjoblib\b|\bdill\b")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "nbcourse").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if words.search(line)
    ]
    assert not found


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_cannot_be_made_shorter_than_it_is(run, finished):
    if not finished:
        (run / "summary.json").unlink()  # the checkpoint says how far it has come
    shorter = check({**RUNS[BREAKABLE], "steps": 3})
    before = (run / "recipe.json").read_bytes()
    with pytest.raises(ValueError, match=r"steps is 3, but the run in .* has done 7"):
        train(shorter, folder=run, resume=True, progress=False)
    assert (run / "recipe.json").read_bytes() == before
