"""What a run leaves behind, and the random numbers that it draws."""

import json
import math
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch

from nbcourse.experiments import comparison, records
from nbcourse.experiments.run import summarise, train
from nbcourse.lm import loading
from nbcourse.seeds import generator
from nbcourse.training.held_out import verdicts
from nbcourse.training.preparation import build
from nbcourse.training.processes import connect
from nbcourse.training.recipe import check
from tests.small import tables, without_costs

CONTENT = tables(
    algorithm={"name": "rloo"},
    kl={"beta": 0.1},
    evaluation={"every": 5, "problems": 8},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "deep" / "rloo"
    _, history = train(check(CONTENT), folder=folder, progress=False)
    return folder, history


def read(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_the_folder_holds_what_the_module_says(run):
    documented = {
        line.split()[0].rstrip("/")
        for line in records.__doc__.splitlines()
        if line[:1].isalpha() and "  " in line
    }
    documented -= {"mine.py", "witness"}  # this recipe asks for neither
    documented -= {"samples.jsonl"}  # this run has no observer
    assert {path.name for path in run[0].iterdir()} == documented


def test_the_metrics_are_what_train_returned(run):
    folder, history = run
    assert str(records.read_metrics(folder)) == str(history)  # as text, where NaN is itself
    assert [row["step"] for row in history] == [1, 2]


def test_a_run_without_a_folder_gives_the_same_numbers(run):
    _, history = train(check(CONTENT), progress=False)
    assert str(without_costs(history)) == str(without_costs(run[1]))


def test_a_curve_starts_where_the_model_was(run):
    """The verdicts before the first step are those of the untrained model, asked by itself."""
    recipe = check(CONTENT)
    untrained = build(recipe, connect(), progress=False)
    before = verdicts(untrained, 8)
    assert records.read_start(run[0]).tolist() == before.tolist()
    (group,) = comparison.groups([run[0]])
    assert group.held_out()[0] == (0.0, 0.0, [before.mean().item()])


def made_up(folder, seed, held_out, **changes):
    """A run of as many steps as it takes, each of 10 responses, with these held-out accuracies."""
    recipe = check({**CONTENT, "seed": seed, **changes}).model_dump(mode="json")
    lines = [
        {"step": step, "responses": 10, "seconds_learn": 1.0, "tokens_per_second": 1.0}
        | ({"held_out": held_out[step]} if step in held_out else {})
        for step in range(1, max(held_out) + 1)
    ]
    path = folder / f"run-seed{seed}"
    path.mkdir()
    records.write_json(path / "recipe.json", recipe)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_seeds_are_compared_at_the_same_steps(tmp_path):
    """The first was made longer, and was asked after its former last step as well."""
    folders = [
        made_up(tmp_path, 0, {2: 0.1, 4: 0.2, 5: 0.25, 6: 0.9}),
        made_up(tmp_path, 1, {2: 0.3, 4: 0.4, 6: 0.8}),
    ]
    (group,) = comparison.groups(folders)
    assert group.held_out() == [
        (20, 2, [0.1, 0.3]),
        (40, 4, [0.2, 0.4]),
        (60, 6, [0.9, 0.8]),
    ]
    assert comparison.rows([group])[0][3] == "0.850"


def test_the_seconds_of_a_curve_are_those_of_all_phases(tmp_path):
    """The second seed samples for two seconds more at each step: means of 1 and 3, of 2 and 6."""
    folders = [made_up(tmp_path, seed, {1: 0.5, 2: 0.5}) for seed in (0, 1)]
    lines = [json.loads(line) for line in (folders[1] / "metrics.jsonl").open()]
    slower = [line | {"seconds_sample": 2.0} for line in lines]
    (folders[1] / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in slower))
    (group,) = comparison.groups(folders)
    assert [point.seconds for point in group.held_out()] == [2, 4]


def test_seeds_without_a_common_evaluation_are_refused(tmp_path):
    folders = [made_up(tmp_path, 0, {3: 0.1}), made_up(tmp_path, 1, {2: 0.3, 4: 0.5})]
    with pytest.raises(ValueError, match="run: no step at which all 2 seeds were evaluated"):
        comparison.groups(folders)


def test_the_numbers_of_a_row_are_all_of_one_step(tmp_path):
    """The second seed was interrupted after the evaluation of step 2."""
    folders = [made_up(tmp_path, 0, {2: 0.1, 4: 0.9}), made_up(tmp_path, 1, {2: 0.3})]
    (row,) = comparison.rows(comparison.groups(folders))
    by_name = dict(zip(comparison.HEADER, row, strict=True))
    assert [by_name[name] for name in ("steps", "held out", "responses", "seconds")] == [
        *("2", "0.200", "20", "2")
    ]


def test_no_interval_of_accuracies_leaves_the_unit_interval(tmp_path):
    folders = [made_up(tmp_path, seed, {1: x}) for seed, x in enumerate((0.0, 0.0, 0.1))]
    folders_up = [made_up(tmp_path, seed, {1: x}) for seed, x in ((3, 1.0), (4, 1.0), (5, 0.9))]
    # ± t(2 degrees of freedom) 4.303 · 0.0577/√3 = 0.143 around 0.033 and 0.967
    found = [comparison.rows(comparison.groups(some))[0][4] for some in (folders, folders_up)]
    assert found == ["0.000 to 0.177", "0.823 to 1.000"]


def test_what_changes_no_step_parts_no_seeds(tmp_path):
    folders = [
        made_up(tmp_path, 0, {1: 0.5}, witness={"every": 1}),
        made_up(tmp_path, 1, {1: 0.5}, checkpoint={"every": 7}),
    ]
    assert [len(group.folders) for group in comparison.groups(folders)] == [2]


def test_a_plan_is_put_beside_what_came(run, tmp_path):
    """Two seeds with numbers of a hand's making: means of seconds, the largest of memories."""
    phases = ("sample", "consult", "learn", "evaluate")
    for seed in (0, 1):
        folder = tmp_path / f"planned-seed{seed}"
        shutil.copytree(run[0], folder)
        recipe = {**read(run[0], "recipe.json"), "seed": seed}
        records.write_json(folder / "recipe.json", recipe)
        seconds = {"least": 1 + seed, "expected": 4 + 2 * seed}
        plan = {phase: {"memory": 10**9 * (2 + seed), "seconds": seconds} for phase in phases}
        records.write_json(folder / "plan.json", {"phases": plan})
        costs = {f"memory_{phase}": 4 * 10**9 + seed for phase in phases}
        steps = [
            row | costs | {"seconds_sample": 1, "seconds_consult": 2, "seconds_learn": 3 + 4 * seed}
            for row in run[1]
        ]
        steps[0].pop("seconds_evaluate", None)
        steps[1]["seconds_evaluate"] = 10
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    found = comparison.plan_rows(comparison.groups(sorted(tmp_path.iterdir())))
    assert [row[1:] for row in found] == [
        ["sample", "1.5", "5", "1", "5", "3", "4", "0.75"],
        ["consult", "1.5", "5", "2", "2.5", "3", "4", "0.75"],
        ["learn", "1.5", "5", "5", "1", "3", "4", "0.75"],
        ["evaluate", "1.5", "5", "5", "1", "3", "4", "0.75"],
        ["a step", "6", "20", "13", "1.54", "3", "4", "0.75"],
    ]
    assert {row[0] for row in found} == {"planned"}
    plan["learn"]["held"] = 5 * 10**9  # of the second seed, like an earlier run
    records.write_json(folder / "plan.json", {"phases": plan})
    found = comparison.plan_rows(comparison.groups(sorted(tmp_path.iterdir())))
    assert found[2][-3:] == found[4][-3:] == ["5", "4", "1.25"]
    assert all(len(row) == len(comparison.PLAN_HEADER) for row in found)


def test_a_run_that_was_told_nothing_has_a_floor_below_what_it_took(run, tmp_path):
    rows = comparison.plan_rows(comparison.groups([run[0]]))
    assert [row[1] for row in rows] == ["sample", "consult", "learn", "evaluate", "a step"]
    for _, _, least, expected, taken, ratio, *memory in rows:
        assert float(least) < float(taken)
        assert expected == ratio == "–"
        assert all(float(each) > 0 for each in memory)
    old = shutil.copytree(run[0], tmp_path / "old")
    (old / "plan.json").unlink()
    assert comparison.plan_rows(comparison.groups([old])) == []


def test_a_run_of_no_steps_keeps_the_model_that_others_start_from(tmp_path):
    taught = {"warm_start": {"steps": 3, "batch_size": 4}}
    train(check(tables(steps=0, **taught)), folder=tmp_path, progress=False)
    _, kept = loading.load(tmp_path / "model", torch.device("cpu"))
    made = build(check(tables(**taught)), connect(), progress=False).policy
    for name, parameter in made.named_parameters():
        assert torch.equal(kept.get_parameter(name), parameter), name
    assert "gain" not in read(tmp_path, "summary.json")


def test_the_gain_is_paired(run, tmp_path):
    """Two of eight were right before, and are still: the gain is 3/8 if three more are."""
    before = torch.tensor([1.0, 1, 0, 0, 0, 0, 0, 0])
    after = torch.tensor([1.0, 1, 1, 1, 1, 0, 0, 0])
    summarise(tmp_path, check(CONTENT), after, run[1], before=before, before_first_step=0.0)
    found = read(tmp_path, "summary.json")
    low, high = found["gain_interval_95"]
    assert found["gain"] == pytest.approx(3 / 8)
    assert 0.0 <= low < 3 / 8 < high <= 6 / 8  # never below 0: no problem was lost


def test_the_recipe_can_be_read_back(run):
    assert records.read_recipe(run[0]) == check(CONTENT)


def test_the_recipe_is_whole_defaults_included(run):
    """So that a recorded run means the same when a default has changed."""
    assert read(run[0], "recipe.json")["optimiser"]["learning_rate"] == 3e-4


def test_the_environment(run):
    found = read(run[0], "environment.json")
    text = "command commit uncommitted_changes began versions hardware processes threads"
    assert set(found) == set(text.split())
    assert set(found["versions"]) == {"python", "torch", "transformers", "nbcourse"}
    assert found["versions"]["torch"] == torch.__version__
    assert found["processes"] == 1
    assert found["threads"] == torch.get_num_threads()
    assert isinstance(found["uncommitted_changes"], bool)
    assert found["commit"] is None or len(found["commit"]) == 40
    assert found["began"].endswith("+00:00")


def test_the_environment_says_by_which_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/anywhere/program.py", "runs/x", "--seed", "3"])
    assert records.environment(1)["command"] == "nbcourse runs/x --seed 3"
    for name in ("book.studies.field", "nbcourse.__main__", "another.experiments.field"):
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name=name))
        study = name == "book.studies.field"
        program = f"python -m {name}" if study else "nbcourse"
        assert records.environment(1)["command"] == f"{program} runs/x --seed 3"


def test_the_environment_needs_no_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = records.environment(1)
    assert found["commit"] is None
    assert found["uncommitted_changes"] is False


def test_the_end(run):
    folder, history = run
    found = read(folder, "summary.json")
    assert found["steps"] == 2
    assert found["held_out_problems"] == 8
    assert found["held_out"] == history[-1]["held_out"]  # the last step is evaluated too
    low, high = found["held_out_interval_95"]
    assert 0 <= low <= found["held_out"] <= high <= 1


def test_the_model_can_be_loaded_and_trained_on(run):
    content = {**CONTENT, "steps": 1, "model": {"source": str(run[0] / "model")}}
    learner, _ = train(check(content), progress=False)
    assert learner.policy.config.hidden_size == 32
    with pytest.raises(FileNotFoundError, match=r"no model in .*nowhere: expected a folder with a"):
        train(check({**content, "model": {"source": str(run[0] / "nowhere")}}), progress=False)


def test_every_recorded_run_of_the_book_is_read_with_its_settings_resolved():
    found = 0
    for path in records.RUNS.rglob("recipe.json"):
        content = json.loads(path.read_text("utf-8"))
        if "pretraining" in content:
            assert records.read_any_recipe(path.parent).steps > 0
        elif "algorithm" in content:
            made = records.read_recipe(path.parent)
            assert {"name": made.algorithm.name, **made.settings} == {
                **made.row.all_settings,
                **content["algorithm"],
            }
            # the first runs did otherwise than today's defaults
            assert "accept_truncated" in content["reward"], path
            assert "weight_cap" in content["kl"], path
            found += 1
    assert found > 30


# ---------------------------------------------------------------- files


def test_numbers_that_are_not_finite_survive_as_nan(tmp_path):
    metrics = records.Metrics(tmp_path)
    metrics.write({"step": 1, "a": math.nan, "b": math.inf, "c": 0.1})
    metrics.close()
    text = (tmp_path / "metrics.jsonl").read_text("utf-8")
    assert text == '{"step": 1, "a": null, "b": null, "c": 0.1}\n'
    (row,) = records.read_metrics(tmp_path)
    assert math.isnan(row["a"])
    assert math.isnan(row["b"])
    assert row["c"] == 0.1


def test_a_line_is_there_when_write_returns(tmp_path):
    metrics = records.Metrics(tmp_path)
    metrics.write({"step": 1})
    assert records.read_metrics(tmp_path) == [{"step": 1}]
    metrics.close()


def test_a_line_in_the_middle_that_is_no_json_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step"\n{"step": 3}\n', "utf-8")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: not JSON"):
        records.read_metrics(tmp_path)


def test_where_there_is_no_run_it_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no run in .*: expected a file metrics\.jsonl"):
        records.read_metrics(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no run in .*: expected a file recipe\.json"):
        records.read_recipe(tmp_path)


def test_a_json_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "summary.json"
    records.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        records.write_json(path, {"a": object()})
    assert json.loads(path.read_text("utf-8")) == {"a": 1}


# ---------------------------------------------------------------- random numbers


def draw(*arguments, **options):
    return torch.rand(4, generator=generator(*arguments, **options)).tolist()


def test_the_same_purpose_draws_the_same_numbers():
    assert draw(0, "sampling", 3, 1) == draw(0, "sampling", 3, 1)
    before = torch.get_rng_state()
    draw(0, "sampling", 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_another_seed_purpose_or_counter_draws_others():
    """Also where digits could run together: 1, 12 and 11, 2."""
    names = [(seed, purpose) for seed in range(4) for purpose in ("sampling", "problems")]
    names += [(0, "sampling", i) for i in range(20)]
    names += [(0, "sampling", i, j) for i in range(13) for j in range(13)]
    drawn = [tuple(draw(*name)) for name in names]
    assert len(set(drawn)) == len(names)


def test_the_numbers_are_those_of_every_machine():
    """The seed is the first 63 bits of the SHA-256 of "7/sampling/2"."""
    import hashlib

    digest = hashlib.sha256(b"7/sampling/2").hexdigest()
    assert generator(7, "sampling", 2).initial_seed() == int(digest[:16], 16) // 2


def test_two_seeds_are_two_runs():
    histories = [
        train(check({**CONTENT, "seed": seed}), progress=False)[1][0]["grad_norm"]
        for seed in (0, 0, 1)
    ]
    assert histories[0] == histories[1] != histories[2]
