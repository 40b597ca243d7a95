"""Two processes do what one does: the same samples, the same gradient, the same numbers."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from nbcourse.training.processes import Processes, connect, moved
from tests import script
from tests.experiments.test_own_code import CODE, RECIPE
from tests.small import tables, without_costs

SCRIPT = Path(__file__).with_name("parallel.py")
# Slow enough that the rounding of two sums for one does not send the samples another way.
CALM = {
    "steps": 2,
    "warm_start": {"steps": 15, "batch_size": 32},
    "evaluation": {"every": 2, "problems": 8},
    "checkpoint": {"every": 2},
}
ROUNDING = 1e-6  # of a gradient that is 0: no group had a spread
CHUNKS = {"prompts": 6, "prompts_at_once": 3}
RECIPES = {
    "grpo": tables(algorithm={"name": "grpo"}, rollouts=CHUNKS, kl={"beta": 0.1}, **CALM),
    "ppo": tables(
        algorithm={"name": "ppo"},
        rollouts=CHUNKS,
        critic={"shared": False},
        optimiser={"epochs": 2, "minibatches": 2, "prompts_at_once": 1},
        kl={"beta": 0.1, "controller": "adaptive", "target": 0.01, "horizon": 100.0},
        reward={"source": "reward_model"},
        reward_model={"comparisons": 16, "steps": 3, "batch_size": 8},
        **CALM,
    ),
    "dapo, uneven": tables(
        algorithm={"name": "dapo"}, rollouts={"prompts": 5, "prompts_at_once": 2}, **CALM
    ),
    "remax, no chunks": tables(algorithm={"name": "remax"}, **CALM),
    "a reader's own row and task": "mine.toml",
}


def prepared(folder, processes):
    """A run of the script in a folder with the recipes."""
    recipes = folder / "recipes.json"
    recipes.write_text(json.dumps(RECIPES), encoding="utf-8")
    longer = RECIPE.replace("warm_start = { steps = 2 }", "warm_start = { steps = 40 }")
    (folder / "mine.toml").write_text(longer, encoding="utf-8")
    (folder / "mine.py").write_text(CODE, encoding="utf-8")
    launcher = ["torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    if processes == 1:
        launcher = []
    return script.Run(SCRIPT, [folder / "out.json", recipes, folder], folder, launcher)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folders of one process and of two, and what each process reported."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    runs = [prepared(folder, count) for count, folder in enumerate(folders, 1)]
    for printed in script.run_each(runs, imports=["nbcourse.cli", "torch.distributed.run"]):
        assert printed.count("held-out accuracy") == 1  # told once, by the one recipe in a file
    told = [
        [folder / f"out-{rank}.json" for rank in range(count)]
        for count, folder in enumerate(folders, 1)
    ]
    reports = [[json.loads(path.read_text("utf-8")) for path in paths] for paths in told]
    return list(zip(folders, reports, strict=True))


@pytest.fixture(scope="module")
def one(both):
    return both[0]


@pytest.fixture(scope="module")
def two(both):
    return both[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_train_as_one_does(one, two, name):
    alone = without_costs(one[1][0]["runs"][name]["history"])
    assert [row["step"] for row in alone] == [1, 2]
    assert any(row["grad_norm"] > 0 for row in alone)
    for report in two[1]:
        together = without_costs(report["runs"][name]["history"])
        assert len(together) == len(alone)
        for ours, theirs in zip(together, alone, strict=True):
            # two share a slice out that one takes whole, and what is whole has no halves
            assert ours.keys() - {"half_cosine"} == theirs.keys() - {"half_cosine"}
            for key in theirs:
                assert ours[key] == pytest.approx(theirs[key], rel=1e-4, abs=2e-6, nan_ok=True), key
            if theirs["grad_norm"] < ROUNDING:  # which Adam makes a step as long as any other
                break


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_both_processes_end_with_the_same_weights(one, two, name):
    first, second = (report["runs"][name]["weights"] for report in two[1])
    assert first == second
    alone = one[1][0]["runs"][name]["weights"]
    assert first == pytest.approx(alone, rel=1e-3, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_one_of_them_writes(two, name):
    """Each line once, and what a single process leaves behind."""
    folder = two[0] / name
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert json.loads((folder / "environment.json").read_text("utf-8"))["processes"] == 2
    assert json.loads((folder / "summary.json").read_text("utf-8"))["steps"] == 2
    assert (folder / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_both_stop_after_the_step_in_which_one_is_asked_to(two):
    """The run of `grpo` goes on from there, and is compared with the others above."""
    assert [report["stopped"] for report in two[1]] == [["start", "step-000001"]] * 2


@pytest.mark.slow
def test_shares_come_back_in_the_order_of_the_work(two):
    seen = [report["behaviour"] for report in two[1]]
    assert [report["rank"] for report in seen] == [0, 1]
    assert [report["count"] for report in seen] == [2, 2]
    assert seen[0]["mine"] == ["piece 0", "piece 2", "piece 4"]
    assert seen[1]["mine"] == ["piece 1", "piece 3"]
    for report in seen:
        assert report["gathered"] == [f"PIECE {i}" for i in range(5)]
        assert report["nothing"] == []
        assert report["tensors"] == [[7, i % 2] for i in range(5)]
        assert report["sum"] == [3.0, 3.0]
        assert report["agreed"] == [1.0, 1.0]


def test_alone_everything_is_mine(monkeypatch):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    processes = connect()
    assert (processes.rank, processes.count) == (0, 1)
    assert processes.share([1, 2, 3]) == [1, 2, 3]
    assert processes.gather([1, 2, 3]) == [1, 2, 3]
    tensor = torch.ones(2)
    processes.add([tensor])
    processes.agree([tensor])
    processes.wait()
    assert tensor.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("pieces", [0, 1, 2, 5, 8])
def test_shares_leave_nothing_out_and_nothing_twice(count, pieces):
    shares = [
        Processes(rank, count, torch.device("cpu")).share(range(pieces)) for rank in range(count)
    ]
    assert sorted(piece for share in shares for piece in share) == list(range(pieces))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@dataclass(frozen=True)
class Pair:
    tensor: torch.Tensor
    inner: "Pair | None" = None
    number: int = 3


def test_tensors_are_moved_wherever_they_are():
    """To the "meta" device, which every machine has."""
    value = [Pair(torch.ones(2), Pair(torch.ones(3))), (torch.ones(1), None, "text", math.pi)]
    first, (tensor, nothing, text, number) = moved(value, "meta")
    found = (first.tensor, first.inner.tensor, tensor)
    assert [x.device.type for x in found] == ["meta"] * 3
    assert (nothing, text, number, first.number) == (None, "text", math.pi, 3)
    assert value[0].tensor.device.type == "cpu"


class Named(NamedTuple):
    prompt: str
    tensor: torch.Tensor


def test_named_tuples_stay_what_they_are():
    """A task's problems may be any objects."""
    (found,) = moved([Named("1+1=", torch.ones(2))], "meta")
    assert type(found) is Named
    assert (found.prompt, found.tensor.device.type) == ("1+1=", "meta")
