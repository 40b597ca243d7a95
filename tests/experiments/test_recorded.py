"""Runs of chapters that are read from a record: which are trained, kept and refused."""

import pytest
import torch

from nbcourse.errors import UserError
from nbcourse.experiments import recorded as module
from nbcourse.experiments.recorded import RECORD, recorded


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLDER", tmp_path / "chapters")
    return tmp_path / "chapters"


def trainer(name, trained, **options):
    @recorded(name, **options)
    def run(configuration, seed):
        trained.append((configuration["rate"], seed))
        noise = torch.rand((), generator=torch.Generator().manual_seed(seed)).item()
        return [{"step": step, "loss": configuration["rate"] * step + noise} for step in (1, 2)]

    return run


def record(monkeypatch, seeds=(0, 1, 2)):
    monkeypatch.setenv(RECORD, "1")
    trained = []
    run = trainer("lesson", trained)
    rows = {seed: run({"rate": 0.5}, seed) for seed in seeds}
    monkeypatch.delenv(RECORD)
    assert len(trained) == len(seeds)
    return rows


def test_recording_trains_all_and_reading_trains_the_first(folder, monkeypatch):
    before, trained = record(monkeypatch), []
    run = trainer("lesson", trained)
    for seed, rows in before.items():
        for now, then in zip(run({"rate": 0.5}, seed), rows, strict=True):
            assert now == pytest.approx(then, rel=1e-8)
    assert trained == [(0.5, 0)]


def test_a_cell_says_which_of_its_runs_are_trained(folder, monkeypatch):
    before, trained = record(monkeypatch), []
    run = trainer("lesson", trained, live=lambda chosen, seed: (chosen["rate"], seed) == (0.5, 1))
    for seed, rows in before.items():
        for now, then in zip(run({"rate": 0.5}, seed), rows, strict=True):
            assert now == pytest.approx(then, rel=1e-8)
    assert trained == [(0.5, 1)]


def test_a_run_is_made_once(folder):
    trained = []
    run = trainer("lesson", trained)
    assert run({"rate": 0.5}, 0) is run({"rate": 0.5}, 0)
    assert trained == [(0.5, 0)]


def test_another_setting_or_seed_is_not_taken_for_the_recorded_one(folder, monkeypatch):
    record(monkeypatch)
    run = trainer("lesson", [])
    for configuration, seed in (({"rate": 0.25}, 1), ({"rate": 0.5}, 3)):
        with pytest.raises(UserError, match=r"lesson\.json has no run .*NBCOURSE_RECORD=1"):
            run(configuration, seed)


def test_a_record_says_where_it_was_made(folder, monkeypatch):
    record(monkeypatch)
    made = module.records.read_json(folder / "lesson.json")["environment"]
    assert made["versions"]["torch"] == torch.__version__
    assert made["hardware"]
    assert made["command"] == "NBCOURSE_RECORD=1 make chapters CH=lesson"


def test_without_the_book_every_run_is_made(folder, monkeypatch):
    monkeypatch.setattr(module.records, "RUNS", folder / "nowhere")
    trained = []
    trainer("lesson", trained)({"rate": 0.5}, 7)
    assert trained == [(0.5, 7)]


def test_another_clone_finds_what_was_trained_from_a_recorded_model(folder, monkeypatch):
    """Where the repository lies is no setting of a run."""
    keys = []
    for root in ("here/runs", "there/runs"):
        monkeypatch.setattr(module.records, "RUNS", folder.parent / root)
        source = folder.parent / root / "arithmetic-sft-seed0" / "model"
        keys.append(module._key({"model": {"source": str(source)}, "rate": 0.5}, 1))
    assert keys[0] == keys[1]
    assert "arithmetic-sft-seed0/model" in keys[0]
    assert str(folder.parent) not in keys[0]
