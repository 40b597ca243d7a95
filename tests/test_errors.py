"""Mistakes of a user get one line; faults of ours keep their stack trace."""

import errno
import os

import pytest

from nbcourse.errors import NotAvailable, NotFound, UserError, did_you_mean
from nbcourse.experiments import records, run
from nbcourse.functional import advantages
from nbcourse.lm import loading
from nbcourse.training import algorithms
from nbcourse.training.recipe import check
from tests import small
from tests.command import invoke, refused

SMALL = ["steps=1", "model.layers=1", "model.width=16", "model.heads=2", "warm_start.steps=1"]
SMALL += ["warm_start.careless_steps=0", "rollouts.prompts=4", "evaluation.problems=8"]
SETTINGS = [word for change in SMALL for word in ("--set", change)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that a test may damage a copy of."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run.train(check(small.tables(steps=2)), folder=folder, progress=False)
    return folder


@pytest.fixture
def damaged(finished, tmp_path):
    import shutil

    return shutil.copytree(finished, tmp_path / "run")


def test_the_classes_are_the_errors_that_they_stand_for():
    assert issubclass(UserError, ValueError)
    assert issubclass(NotFound, FileNotFoundError)
    assert issubclass(NotAvailable, OSError)
    assert did_you_mean("grop", ["grpo", "ppo"]) == "; did you mean 'grpo'?"
    assert did_you_mean("x", ["grpo", "ppo"]) == ""


def test_a_command_that_is_almost_one():
    assert "there is no command 'trian'; did you mean 'train'?" in refused("trian", "x")


def test_an_output_path_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    assert "taken: " in refused("train", "arithmetic-grpo", "--out", "taken", *SETTINGS)


@pytest.mark.skipif(os.name != "posix", reason="needs permissions as POSIX has them")
def test_an_output_path_where_nothing_can_be_written(tmp_path):
    if os.geteuid() == 0:  # root may write anywhere but here
        folder = "/proc/nowhere"
    else:
        (tmp_path / "closed").mkdir(mode=0o500)
        folder = str(tmp_path / "closed" / "run")
    assert folder in refused("train", "arithmetic-grpo", "--out", folder, *SETTINGS)


def test_a_disk_that_is_full(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(records.Metrics, "write", full)
    answer = invoke("train", "arithmetic-grpo", "--out", "run", *SETTINGS)
    assert answer.exit_code == 2
    assert answer.stderr.splitlines() == ["nbcourse: No space left on device"]


def test_a_disk_that_is_full_when_tensors_are_written(tmp_path):
    from safetensors import SafetensorError

    reason = "I/O error: No space left on device (os error 28)"
    with pytest.raises(UserError, match="No space left"), loading.disk(tmp_path):
        raise SafetensorError(reason)


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 100_000, "\0"])
@pytest.mark.parametrize("name", [records.RECIPE, records.SUMMARY])
def test_a_damaged_run(damaged, name, content):
    (damaged / name).write_text(content, encoding="utf-8")
    command = ["train", "arithmetic-grpo", "--out", damaged, "--resume"]
    if name == records.RECIPE:
        command = ["evaluate", damaged]
    assert f"{name} is damaged" in refused(*command)


def test_a_checkpoint_that_is_cut_short(damaged):
    (tensors,) = damaged.glob("checkpoint/step-*/tensors.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    recipe = check(small.tables(steps=3))
    with pytest.raises(UserError, match="damaged"):
        run.train(recipe, folder=damaged, resume=True, progress=False)


def test_a_step_that_was_renamed(damaged):
    """The weights of step 2 are not those of step 3, whatever the folder is called."""
    (folder,) = damaged.glob("checkpoint/step-*")
    folder.rename(folder.with_name("step-000003"))
    with pytest.raises(UserError, match="step-000003 is damaged: it says that it is of step 2"):
        run.train(check(small.tables(steps=3)), folder=damaged, resume=True, progress=False)


def test_a_missing_package(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "nbcourse.training.recipe", None)
    monkeypatch.delitem(sys.modules, "nbcourse.training.recipe")
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert "pydantic" in refused("train", "arithmetic-grpo")


@pytest.mark.parametrize("error", [OSError("not a valid\nmodel identifier"), KeyError("qwen9")])
def test_a_wrong_model_name(monkeypatch, error):
    """What transformers says in many lines, or by the name of a key, is one line."""
    import transformers.models.auto.tokenization_auto as auto

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(auto, "get_tokenizer_config", refuse)
    with pytest.raises(NotAvailable, match=r"^no model 'nobody/nothing': [^\n]*$"):
        loading.tokenizer("nobody/nothing")


def test_a_recipe_that_is_too_deep_or_too_long(tmp_path):
    (tmp_path / "deep.toml").write_text("x = " + "[" * 5000 + "]" * 5000, encoding="utf-8")
    assert "deep.toml is nested too deeply" in refused("train", "deep.toml")
    for i in range(40):
        (tmp_path / f"r{i}.toml").write_text(f'extends = "r{i + 1}.toml"', encoding="utf-8")
    assert "extended over more than 20 files" in refused("train", "r0.toml")


def test_two_keys_in_one_override():
    assert "expected one line, and one key" in refused(
        "train", "arithmetic-grpo", "--set", "steps=1\nseed=2"
    )


def test_a_fault_of_ours_keeps_its_trace_also_where_functional_raised_it(monkeypatch):
    """A wrong shape inside the loop is a ValueError of `functional`, and no mistake of the user."""

    def broken(rewards, mask, *, group_size):
        return advantages.leave_one_out(rewards, group_size=group_size)  # (B, T), not (B,)

    row = algorithms.ALGORITHMS["rloo"]
    monkeypatch.setitem(
        algorithms.ALGORITHMS,
        "rloo",
        algorithms.Algorithm(broken, row.surrogate, row.aggregation, row.source),
    )
    answer = invoke("train", "arithmetic-rloo", "--out", "run", *SETTINGS)
    assert type(answer.exception) is ValueError
    assert "rewards has shape" in str(answer.exception)
