"""A reader's own rows and tasks, from an empty folder to a comparison."""

import json
from pathlib import Path

import pytest

from nbcourse.experiments import records
from nbcourse.training import own_code
from nbcourse.training.own_code import imported
from nbcourse.training.recipe import load
from tests.command import nbcourse, refused

CODE = '''
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from annotated_types import Interval
from nbcourse.tasks.task import Task
from nbcourse.training.algorithms import Algorithm, leave_one_out


def smooth_clip(
    log_probs, old_log_probs, ref_log_probs, advantages,
    *, sharpness: Annotated[float, Interval(gt=0)] = 4.0,
):
    ratio = (log_probs - old_log_probs).exp()
    return -advantages * torch.sigmoid(sharpness * (ratio - 1)) * 4 / sharpness


@dataclass(frozen=True)
class Problem:
    prompt: str
    answer: str


@dataclass(frozen=True)
class Parity(Task):
    """Is the number of ones even (e) or odd (o)?"""

    bits: Annotated[int, Interval(ge=1, le=16)] = 4
    characters: ClassVar[str | None] = "01=eo"

    def draw(self, count, *, split, generator):
        rows = torch.randint(2, (count, self.bits), generator=generator).tolist()
        return [Problem("".join(map(str, row)) + "=", "eo"[sum(row) % 2]) for row in rows]

    def read(self, response, *, strict=True):
        return response or None

    def demonstrate(self, count, *, generator):
        drawn = self.draw(count, split="train", generator=generator)
        return drawn, [problem.answer for problem in drawn]


ALGORITHMS = {"smooth": Algorithm(leave_one_out, smooth_clip, "token-mean", "a reader")}
TASKS = {"my-parity": Parity}
'''
RECIPE = """
steps = 2
code = "mine.py"
model = { layers = 1, width = 16, heads = 2 }
warm_start = { steps = 2 }
rollouts = { prompts = 4, group_size = 4, max_new_tokens = 3 }
evaluation = { problems = 8, every = 1 }
checkpoint = { every = 1 }

[algorithm]
name = "smooth"
sharpness = 2.0

[task]
name = "my-parity"
bits = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with a recipe and the file that it names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "mine.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def test_every_command_knows_the_readers_rows_and_tasks(folder):
    assert "parameters; smooth" in nbcourse("train", "mine.toml", "--dry-run")
    nbcourse("train", "mine.toml")
    run = folder / "runs" / "mine-seed0"
    assert (run / "mine.py").read_text(encoding="utf-8") == CODE
    environment = records.read_json(run / records.ENVIRONMENT)
    digest = own_code.load(folder / "mine.py").sha256
    assert environment["code"] == {"file": "mine.py", "sha256": digest}
    nbcourse("train", "mine.toml", "--set", "steps=3", "--resume")
    assert len(records.read_metrics(run)) == 3
    assert "mine" in nbcourse("compare", run)
    assert "8 problems" in nbcourse("evaluate", run, "--problems", 8)
    assert (run / "evaluation-my-parity-validation.json").is_file()


def test_what_the_file_needs_is_provided(folder):
    """The surrogate asks for the reference, and the tokenizer has the task's characters."""
    made = load("mine.toml")
    assert made.row.needs("ref_log_probs")
    assert made.settings == {"sharpness": 2.0}
    nbcourse("train", "mine.toml", "--out", "run")
    from nbcourse.lm import loading

    tokenizer = loading.tokenizer(folder / "run" / "model")
    assert {*"01=eo"} < {*tokenizer.get_vocab()}
    assert "7" not in tokenizer.get_vocab()


def test_a_run_is_read_without_its_code_but_not_gone_on_with(folder):
    nbcourse("train", "mine.toml")
    run = folder / "runs" / "mine-seed0"
    (run / "mine.py").unlink()
    made = records.read_recipe(run)
    assert made.algorithm.name == "smooth"
    assert made.algorithm.settings == {"sharpness": 2.0}
    assert "mine" in nbcourse("compare", run)
    with pytest.raises(ValueError, match=r"algorithm.name is 'smooth', expected one of"):
        made.row  # noqa: B018
    assert "there is no such file" in refused("evaluate", run)


def test_the_same_code_finds_what_lies_beside_it_wherever_it_is(folder):
    content = "from pathlib import Path\nWORD = (Path(__file__).parent / 'word').read_text()\n"
    for word in ("apples", "pears"):
        (folder / word).mkdir()
        (folder / word / "word").write_text(word, encoding="utf-8")
        (folder / word / "mine.py").write_text(content, encoding="utf-8")
    paths = [folder / word / "mine.py" for word in ("apples", "pears")]
    assert [imported(path)["WORD"] for path in paths] == ["apples", "pears"]
    assert imported(paths[0]) is imported(paths[0])


def test_code_that_changed_is_not_resumed(folder):
    nbcourse("train", "mine.toml")
    (folder / "mine.py").write_text(CODE + "\n# another thought\n", encoding="utf-8")
    said = refused("train", "mine.toml", "--set", "steps=3", "--resume")
    assert "mine.py has changed since the run" in said


def test_the_recipes_keys_follow_from_the_readers_signatures(folder):
    assert "algorithm.sharpness is 0.0, expected a number above 0" in nbcourse(
        "train", "mine.toml", "--set", "algorithm.sharpness=0", code=2
    )
    assert "task.bits is 17, expected a number from 1 to 16" in nbcourse(
        "train", "mine.toml", "--set", "task.bits=17", code=2
    )
    assert "did you mean 'sharpness'?" in nbcourse(
        "train", "mine.toml", "--set", "algorithm.sharpnes=1", code=2
    )


BROKEN = {
    "import numpyy": "line 1: ModuleNotFoundError: No module named 'numpyy'",
    "x = 1\n\nraise SystemExit(3)": "line 3: SystemExit: 3",
    "def f(:": "line 1: SyntaxError: ",
    "x = 1": "defines neither ALGORITHMS nor TASKS",
    "ALGORITHMS = [1]": "ALGORITHMS is a list, expected a dictionary",
    "ALGORITHMS = {'mine': 3}": "ALGORITHMS['mine'] is 3, expected an Algorithm",
    CODE.replace("def read(", "def answer("): "TASKS['my-parity'] has no read",
    "TASKS = {'mine': dict}": "TASKS['mine'] is <class 'dict'>, expected a subclass of Task",
    CODE.replace(
        '"smooth":', '"grpo":'
    ): "ALGORITHMS defines 'grpo', which the package has already",
    CODE.replace(
        '"my-parity":', '"gsm8k":'
    ): "TASKS defines 'gsm8k', which the package has already",
    CODE.replace("ref_log_probs, adv", "ref_logprobs, adv"): "did you mean 'ref_log_probs'?",
    CODE.replace("*, sharpness", "**more, sharpness"): "SyntaxError",
}


@pytest.mark.parametrize("content", BROKEN)
def test_a_file_that_is_wrong_gives_one_line(folder, content):
    (folder / "mine.py").write_text(content, encoding="utf-8")
    assert BROKEN[content] in refused("train", "mine.toml")


def test_a_file_that_is_not_there_gives_one_line(folder):
    assert "code is 'others.py'" in refused("train", "mine.toml", "--set", "code=others.py")


def test_code_lies_beside_the_recipe_that_names_it(folder):
    below = folder / "below"
    below.mkdir()
    (below / "child.toml").write_text('extends = "../mine.toml"\nseed = 1', encoding="utf-8")
    made = load(below / "child.toml")
    assert made.own_code.path == Path(below / ".." / "mine.py")
    assert (made.code, made.seed) == ("mine.py", 1)
    assert json.loads(made.model_dump_json())["code"] == "mine.py"
