"""The recorded ablation on sequences: what it trains, what it leaves behind, and if it is whole."""

import json
import sys
from dataclasses import asdict

import pytest
import torch

from book.studies import kl_sequences
from nbcourse.experiments import records
from nbcourse.toys import regularised
from nbcourse.toys.sequences import SequenceSpace

SMALL = kl_sequences.Ablation(
    spaces=((2, 2, 0),),
    problems=(4, 7),
    beta=0.8,
    learning_rate=0.5,
    updates=8,
    inner_steps=(2, 4),
    batch_size=16,
    seeds=(5, 6),
    points=2,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "kl-sequences"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["kl_sequences.py", str(folder)])
        patch.setattr(sys.modules["__main__"], "__spec__", kl_sequences.__spec__)
        kl_sequences.record(SMALL, folder, progress=False)
    return folder


def read_json(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_every_form_gets_the_same_trainings(folder):
    """The first problem in every way, others without noise and with the first number of steps."""
    found = {}
    for each in records.read_results(folder):
        what = (each["problem"], each["inner_steps"], each["seed"])
        found.setdefault(each["form"], []).append(what)
    everything = [(4, steps, seed) for steps in (2, 4) for seed in (None, 5, 6)] + [(7, 2, None)]
    assert found == dict.fromkeys(regularised.FORMS, everything)


@pytest.mark.parametrize(("steps", "seed"), [(2, None), (4, 6)])
def test_a_result_is_that_of_the_training_in_its_description(folder, steps, seed):
    space = SequenceSpace(2, 2, eos=0)
    generator = torch.Generator().manual_seed(4)
    ref = space.random_logits(generator)
    rewards = torch.randn(3, generator=generator, dtype=torch.float64)
    star = regularised.optimum(space, ref, rewards, beta=0.8)
    noise = {"batch_size": 16, "generator": torch.Generator().manual_seed(6)} if seed else {}
    path = regularised.optimise(
        space,
        ref,
        rewards,
        form="k3 in loss",
        beta=0.8,
        learning_rate=0.5,
        iterations=8 // steps,
        inner_steps=steps,
        **noise,
    )
    distances = [regularised.divergence(space, path[i], star) for i in (0, 4 // steps, 8 // steps)]
    (found,) = (
        each
        for each in records.read_results(folder)
        if (each["form"], each["problem"], each["inner_steps"], each["seed"])
        == ("k3 in loss", 4, steps, seed)
    )
    assert found["distance"] == pytest.approx([x.item() for x in distances], rel=1e-5)
    final = regularised.divergence(space, path[-1], ref).item()
    assert found["kl_ref"] == pytest.approx(final, rel=1e-5)
    best = regularised.divergence(space, star, ref).item()
    assert found["kl_ref_of_the_optimum"] == pytest.approx(best, rel=1e-5)


def test_the_records_say_what_was_done_and_how(folder):
    assert read_json(folder, records.RECIPE) == json.loads(json.dumps(asdict(SMALL)))
    command = read_json(folder, records.ENVIRONMENT)["command"]
    assert command == f"python -m book.studies.kl_sequences {folder}"
    summary = read_json(folder, records.SUMMARY)
    assert summary["trainings"] == len(records.read_results(folder)) == 77
    assert summary["seconds"] > 0


def test_updates_that_are_no_whole_batches_are_refused(tmp_path):
    plan = kl_sequences.Ablation(updates=100)
    with pytest.raises(ValueError, match=r"updates is 100, expected a multiple of .* = 32"):
        kl_sequences.record(plan, tmp_path / "none")
    assert not (tmp_path / "none").exists()


# ---------------------------------------------------------------- what is recorded

RUN = records.RUNS / "kl-sequences"


def finals(form, **wanted):
    """KL(π‖π*) at the end of the recorded trainings of a form that are as wanted."""
    found = [
        each["distance"][-1]
        for each in records.read_results(RUN)
        if each["form"] == form and all(each[key] == value for key, value in wanted.items())
    ]
    assert found
    return found


def test_the_recorded_trainings_are_whole_and_of_the_plan_that_the_module_holds():
    plan = kl_sequences.Ablation()
    assert read_json(RUN, records.RECIPE) == json.loads(json.dumps(asdict(plan)))
    assert not read_json(RUN, records.ENVIRONMENT)["uncommitted_changes"]
    described = [json.loads(json.dumps(asdict(each))) for each in kl_sequences.trainings(plan)]
    assert [
        {key: each[key] for key in described[0]} for each in records.read_results(RUN)
    ] == described


@pytest.mark.parametrize("form", regularised.FORMS)
def test_a_recorded_training_can_be_made_again(form):
    plan = kl_sequences.Ablation()
    training = kl_sequences.Training((3, 3, None), 5, form, 4, None)
    (recorded,) = (
        each["distance"]
        for each in records.read_results(RUN)
        if (each["space"], each["form"], each["problem"]) == ([3, 3, None], form, 5)
    )
    again = kl_sequences.result(plan, training)["distance"]
    assert again[0] == pytest.approx(recorded[0], rel=1e-4)
    assert again[-1] == pytest.approx(recorded[-1], rel=1e-2)


@pytest.mark.parametrize("space", [[3, 3, None], [3, 4, 0]])
def test_in_the_record_every_wrong_form_stays_farther_away_than_every_right_one(space):
    """By a factor of two and more with four steps on a batch: on each problem, with each seed."""
    right = {"k1 in reward", "k1 in reward, recomputed", "k2 of the sequence in loss"}
    right |= {"k3, prefix weight", "exact, prefix weight"}
    of_forms = {form: finals(form, space=space, inner_steps=4) for form in regularised.FORMS}
    farthest = [max(of_forms[form][i] for form in right) for i in range(15)]
    for form in regularised.FORMS.keys() - right:
        pairs = zip(of_forms[form], farthest, strict=True)
        assert all(wrong > 2 * distance for wrong, distance in pairs), form


@pytest.mark.parametrize("space", [[3, 3, None], [3, 4, 0]])
def test_in_the_record_a_stale_batch_leaves_the_exact_forms_alone(space):
    for form, moved in {
        "k1 in reward": True,
        "k1 in reward, recomputed": False,
        "k3, prefix weight": False,
        "exact, prefix weight": False,
    }.items():
        (few,), (many,) = (
            finals(form, space=space, problem=0, inner_steps=steps, seed=None) for steps in (1, 64)
        )
        assert (many > 50 * few) == moved
