"""Who trains, with which of the options, and what is refused before any work is done."""

import pytest

from nbcourse.errors import UserError
from nbcourse.experiments import launch, pretraining, run, stopping, trl
from nbcourse.experiments.launch import Launch
from tests.small import base_recipe, recipe


@pytest.mark.parametrize(
    ("options", "made", "message"),
    [
        ({"engine": "trl", "resume": True}, recipe(), "--engine trl takes no --resume"),
        ({"engine": "trl"}, base_recipe(), "--engine trl .* makes no base model"),
        ({"engine": "trl", "like": "runs/x"}, recipe(), "--like is for this package's own engine"),
        ({"engine": "trl", "max_minutes": 1.0}, recipe(), "--max-minutes is for this package's"),
        ({"log": "paper"}, recipe(), "--log is 'paper', expected one of tensorboard, wandb"),
        ({"max_minutes": 0.0}, recipe(), "--max-minutes is 0, expected a number above 0"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path, options, made, message):
    with pytest.raises(UserError, match=message):
        Launch(tmp_path, **options).check(made)


@pytest.mark.parametrize(
    ("options", "made", "trainer"),
    [
        ({}, recipe(), (run, "train")),
        ({}, base_recipe(), (pretraining, "pretrain")),
        ({"engine": "trl"}, recipe(), (trl, "train_with_trl")),
    ],
)
def test_the_engine_and_the_kind_of_recipe_say_who_trains(
    tmp_path, monkeypatch, options, made, trainer
):
    called = []

    def note(*trainer):
        monkeypatch.setattr(*trainer, lambda recipe, **given: called.append((trainer, given)))

    note(run, "train")
    note(pretraining, "pretrain")
    note(trl, "train_with_trl")
    asked = Launch(tmp_path, log="tensorboard", **options)
    asked.start(made)
    ((found, given),) = called
    assert found == trainer
    own = {} if options else {"resume": False, "like": None, "stop": stopping.never}
    assert given == {"folder": tmp_path, "log": "tensorboard", **own}


def test_the_minutes_are_counted_from_the_start(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stopping, "monotonic", lambda: now[0])
    stops = []
    monkeypatch.setattr(run, "train", lambda recipe, *, stop, **_: stops.append(stop))
    asked = Launch(tmp_path, max_minutes=2.0)
    asked.check(recipe())
    now[0] = 300.0
    asked.start(recipe())
    now[0] = 419.0
    assert not stops[0]()
    now[0] = 420.0
    assert stops[0]()


@pytest.mark.parametrize(
    ("options", "own"), [({}, True), ({"resume": True}, False), ({"engine": "trl"}, False)]
)
def test_sampling_is_the_recipes_only_where_a_run_of_ours_begins(tmp_path, options, own):
    assert launch.ENGINES == ("nbcourse", "trl")
    assert Launch(tmp_path, **options).samples_anew == own
