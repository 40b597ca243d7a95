"""A tracker is told what the file of metrics is told. The real ones are not installed here."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.experiments import records, trackers
from nbcourse.experiments.pretraining import pretrain
from nbcourse.experiments.run import train
from nbcourse.training.recipe import check
from tests.small import base_recipe, tables


class Wandb(ModuleType):
    """What accelerate's tracker calls of the package wandb, written down."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)  # accelerate looks whether it is installed
        self.begun, self.logged, self.finished = [], [], 0

    def init(self, **options):
        self.begun.append(options)
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_it_is_told_every_line_under_its_step(tmp_path, wandb):
    recipe = check(tables())
    _, history = train(recipe, folder=tmp_path / "mine", progress=False, log="wandb")
    assert str(wandb.logged) == str([(row["step"], row) for row in history])
    (begun,) = wandb.begun
    assert (begun["project"], begun["name"]) == ("nbcourse", "mine")
    assert begun["config"] == recipe.model_dump(mode="json")
    assert wandb.finished == 1


def test_a_run_that_goes_on_is_the_same_run_there(tmp_path, wandb):
    """And is told what is new, and nothing twice."""
    train(check(tables(steps=1)), folder=tmp_path, progress=False, log="wandb")
    train(check(tables()), folder=tmp_path, resume=True, progress=False, log="wandb")
    first, second = wandb.begun
    assert first["id"] == second["id"]
    assert second["resume"] == "allow"
    assert [step for step, _ in wandb.logged] == [1, 2]


def test_another_run_of_the_same_name_is_another_run_there(tmp_path, wandb, monkeypatch):
    for began in ("2026-01-01T10:00:00+00:00", "2026-01-01T10:00:01+00:00"):
        folder = tmp_path / began / "mine"
        environment = records.environment(1) | {"began": began}
        monkeypatch.setattr(records, "environment", lambda *_, found=environment: found)
        train(check(tables()), folder=folder, progress=False, log="wandb")
    first, second = (begun["id"] for begun in wandb.begun)
    assert first != second
    assert not set("/\\#?%:") & set(first)  # which W&B refuses


def test_a_base_model_tells_it_too(tmp_path, wandb):
    _, _, history = pretrain(base_recipe(), folder=tmp_path, progress=False, log="wandb")
    assert [step for step, _ in wandb.logged] == [row["step"] for row in history]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wandbb", "--log is 'wandbb', expected one of tensorboard, wandb"),
        ("wandb", "--log wandb needs a package: pip install wandb"),
    ],
)
def test_what_is_not_to_be_had_is_said_before_any_work(tmp_path, name, words, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda _: None)
    out = tmp_path / "run"
    done = CliRunner().invoke(app, ["train", "arithmetic-grpo", "--out", str(out), "--log", name])
    assert done.exit_code == 2
    assert words in done.output
    assert not out.exists()
