"""A reward that is a plain function of the reader's own, called as TRL calls one."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from nbcourse.errors import UserError
from nbcourse.experiments import records, run
from nbcourse.tasks.arithmetic import Problem
from nbcourse.training import experience, loop, recipe, reward_functions
from nbcourse.training.recipe_sections import Example, PromptSection
from tests import small

PROBLEMS = [Problem("1+1=", "2"), Problem("2+3=", "5")]
IDS = [[5, 6], [7]]
PLAIN = PromptSection()


def write(folder, body, name="mine.py"):
    file = folder / name
    file.write_text(body, encoding="utf-8")
    return f"{file}:score"


def pay(folder, body, settings=PLAIN, problems=PROBLEMS):
    return reward_functions.pay(write(folder, body), settings, ["2", "no"], problems, IDS)


def test_it_is_given_texts_and_the_columns_that_it_names(tmp_path):
    body = (
        "def score(completions, answer, prompts, completion_ids, weight=2.0):\n"
        "    assert prompts == ['1+1=', '2+3=']\n"
        "    return [weight * (c == a) + len(i) for c, a, i in "
        "zip(completions, answer, completion_ids)]\n"
    )
    assert pay(tmp_path, body) == [4.0, 1.0]


def test_it_is_given_everything_if_it_takes_everything(tmp_path):
    body = (
        "def score(prompts, completions, **columns):\n"
        "    return [len(columns) + (name in columns) for name in ('answer', 'none')]\n"
    )
    assert pay(tmp_path, body) == [4.0, 3.0]  # prompt, answer and completion_ids


def test_a_row_of_a_data_set_brings_its_columns(tmp_path):
    rows = [
        SimpleNamespace(prompt="?", columns={"level": 3, "topic": "a"}),
        SimpleNamespace(prompt="?", columns={"level": 4}),
    ]
    assert pay(tmp_path, "def score(level):\n    return level\n", problems=rows) == [3.0, 4.0]
    with pytest.raises(UserError, match="it asks for 'topic', which is not there; on offer are"):
        pay(tmp_path, "def score(topic):\n    return topic\n", problems=rows)


def test_a_chat_is_handed_over_in_messages(tmp_path):
    chat = PromptSection(
        style="chat",
        instruction="Briefly.",
        system="Add.",
        examples=(Example(question="0+1=", answer="1"),),
    )
    body = (
        "def score(prompts, completions):\n"
        "    roles = [message['role'] for message in prompts[1]]\n"
        "    assert roles == ['system', 'user', 'assistant', 'user'], roles\n"
        "    assert prompts[1][-1]['content'] == '2+3= Briefly.'\n"
        "    return [len(completion[0]['content']) for completion in completions]\n"
    )
    assert pay(tmp_path, body, chat) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "def score(answr):\n    return [0, 0]\n",
            "it asks for 'answr', which .*answer",
        ),
        ("def score(prompts):\n    return 1.0\n", "it returns 1.0, expected a list of 2 numbers"),
        ("def score(prompts):\n    return [1.0]\n", "it returns 1 of them, expected a list of 2"),
        ("def score(prompts):\n    return [1, None]\n", "pays None for response 2 of 2, expected"),
        ("def score(prompts):\n    return [float('nan'), 1]\n", "pays nan for response 1 of 2"),
        ("def score(prompts):\n    return [1, 'a']\n", "pays 'a' for response 2 of 2"),
        ("def score(prompts):\n    return [1 / 0]\n", "it raises ZeroDivisionError"),
        ("def other():\n    return []\n", "has no function 'score'; it has other"),
        ("score = 3\n", "has no function 'score'; it has none"),
        ("def score(:\n", "cannot be imported: line 1: SyntaxError"),
    ],
)
def test_what_cannot_pay_is_refused_in_one_line(tmp_path, body, message):
    with pytest.raises(UserError, match=message) as caught:
        pay(tmp_path, body)
    assert len(str(caught.value).splitlines()) == 1


def test_a_tensor_and_whole_numbers_are_numbers(tmp_path):
    body = "import torch\ndef score(prompts):\n    return torch.tensor([1, 2])\n"
    assert pay(tmp_path, body) == [1.0, 2.0]


# ---------------------------------------------------------------- in a recipe

LENGTHS = "def score(completion_ids, **columns):\n    return list(map(len, completion_ids))\n"


def recipe_file(folder, reward='reward = "mine.py:score"', name="mine.toml"):
    small.write_toml(folder / name, {k: v for k, v in small.TABLES.items() if k != "steps"})
    file = folder / name
    file.write_text(f"steps = 2\n{reward}\n\n{file.read_text('utf-8')}", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "said", ['reward = "mine.py:score"', '[reward]\nsource = "mine.py:score"\nshuffled = false']
)
def test_a_recipe_names_a_file_beside_it(tmp_path, said):
    write(tmp_path, LENGTHS)
    made = recipe.load(recipe_file(tmp_path, said))
    assert made.reward.function == f"{tmp_path / 'mine.py'}:score"
    found = loop.one_step(small.learner(made), loop.begin(made), small.ALONE)
    assert found["reward"] == pytest.approx(found["length"])
    assert found["accuracy"] <= 1


def test_set_names_one_too(tmp_path, monkeypatch):
    write(tmp_path, LENGTHS)
    monkeypatch.chdir(tmp_path)
    made = recipe.load("arithmetic-grpo", ["reward=mine.py:score"])
    assert made.reward.function == "mine.py:score"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mine.py", "reward.source is 'mine.py', expected 'verifier', 'reward_model' or a f"),
        ("verifer", "reward.source is 'verifer', expected 'verifier'"),
        ("gone.py:score", "gone.py:score': there is no file gone.py in "),
    ],
)
def test_a_source_that_is_none_is_refused_when_the_recipe_is_read(tmp_path, source, message):
    with pytest.raises(UserError, match=message):
        recipe.load(recipe_file(tmp_path, f'[reward]\nsource = "{source}"'))


def test_a_run_keeps_the_file_and_goes_on_with_it_alone(tmp_path):
    write(tmp_path, LENGTHS)
    file, folder = recipe_file(tmp_path), tmp_path / "run"
    run.train(recipe.load(file), folder=folder, progress=False)
    assert (folder / "mine.py").read_text("utf-8") == LENGTHS
    assert json.loads((folder / "environment.json").read_text())["reward"]["file"] == "mine.py"
    more = recipe.load(file, ["steps=3"])
    assert len(run.train(more, folder=folder, resume=True, progress=False)[1]) == 3
    write(tmp_path, f"# changed\n{LENGTHS}")
    with pytest.raises(UserError, match=r"mine.py has changed since the run in .* began"):
        run.train(recipe.load(file, ["steps=4"]), folder=folder, resume=True, progress=False)
    (tmp_path / "mine.py").unlink()  # what a run was is read without it
    assert records.read_any_recipe(folder).reward.function


# ---------------------------------------------------------------- any form


@pytest.mark.parametrize(
    ("reward", "paid"),
    [
        ({}, [1, 0, 0, 0]),
        ({"lenient": True}, [1, 1, 0, 0]),
        ({"lenient": True, "accept_truncated": True}, [1, 1, 1, 0]),
    ],
)
def test_a_lenient_reward_pays_any_form_and_verdicts_stay_strict(reward, paid):
    """The third answer was cut off, and the fourth is wrong."""
    made = recipe.check(
        {**small.tables(reward=reward, model={"vocabulary": 300}), "task": {"name": "gsm8k"}}
    )
    texts = ["So\n#### 18", "The answer is 18.", "It is 18", "It is 17"]
    rollout = SimpleNamespace(
        texts=lambda tokenizer: texts,
        truncated=torch.tensor([False, False, True, False]),
        mask=torch.ones(4, 3, dtype=torch.bool),
    )
    problems = [SimpleNamespace(answer=18)] * 4
    learner = SimpleNamespace(
        recipe=made, tokenizer=None, reward_model=None, device=torch.device("cpu")
    )
    scores, correct = experience.score(learner, rollout, problems)
    assert scores.tolist() == paid
    assert correct.tolist() == [1, 0, 0, 0]


def test_only_a_verifier_has_a_form_to_be_lenient_about(tmp_path):
    said = f'[reward]\nsource = "{write(tmp_path, LENGTHS)}"\nlenient = true'
    with pytest.raises(UserError, match=r"reward.lenient is not used: reward.source is '"):
        recipe.load(recipe_file(tmp_path, said))


# ---------------------------------------------------------------- a control


def test_shuffled_scores_are_those_of_the_group_and_say_nothing():
    scores = torch.arange(4000.0)
    source = torch.Generator().manual_seed(0)
    found = experience.dealt_out(scores, 4, source).view(-1, 4)
    assert torch.equal(found.sort(dim=1).values, scores.view(-1, 4))
    places = (found - scores.view(-1, 4)[:, :1]).long()  # which of the four each one got
    counts = torch.stack([(places == i).sum(dim=0) for i in range(4)]).float()
    assert ((counts - 250).abs() < 5 * math.sqrt(1000 * 3 / 16)).all()  # five standard errors


def test_a_run_with_shuffled_rewards_logs_the_same_verdicts():
    plain, control = (
        loop.one_step(
            small.learner(made := small.recipe(warm_start={"steps": 30}, reward=reward)),
            loop.begin(made),
            small.ALONE,
        )
        for reward in ({}, {"shuffled": True})
    )
    for name in ("accuracy", "reward", "no_spread", "length"):
        assert plain[name] == control[name]
    assert plain["no_spread"] < 1
    assert plain["grad_norm"] != control["grad_norm"]
