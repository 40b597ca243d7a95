"""Recipes: what is refused, in which words, and what the package's recipes say."""

import json
import math
import re
import tomllib
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import pytest

from nbcourse.training.algorithms import ALGORITHMS, Penalty
from nbcourse.training.recipe import (
    TASKS,
    Pretraining,
    Recipe,
    Section,
    check,
    kind_of,
    load,
    load_any,
    validate,
)
from nbcourse.training.recipe_files import FOLDER, read
from tests.small import base_tables, recipe, tables

RECIPES = sorted(FOLDER.glob("*.toml"))
TABLE = {
    "steps": {"good": [1, 10**9], "bad": [0, -3]},
    "seed": {"good": [0, 7], "bad": [-1]},
    "algorithm.clip_low": {"good": [1e-9, 1.0], "bad": [0.0, -0.1, 1.001]},
    "algorithm.clip_high": {"good": [1e-9, 50.0], "bad": [0.0, -0.1]},
    "algorithm.dual_clip": {"good": [1.001, 9.0], "bad": [1.0, 0.5, -2.0]},
    "algorithm.eps": {"good": [0.0, 5.0], "bad": [-1e-9]},
    "algorithm.decay": {"good": [0.0, 1.0], "bad": [-0.1, 1.1]},
    "algorithm.gamma": {"good": [0.0, 1.0], "bad": [-0.1, 1.1]},
    "algorithm.lam": {"good": [0.0, 1.0], "bad": [-0.1, 1.1]},
    "task.digits": {"good": [1, 9], "bad": [0, 10]},
    "task.min_steps": {"good": [1, 5], "bad": [0, 6]},
    "task.max_steps": {"good": [1, 5], "bad": [0, 6]},
    "task.distractors": {"good": [0.0, 1.0], "bad": [-0.1, 1.1]},
    "task.stories": {"good": [1e-9, 1.0], "bad": [0.0, -0.1, 1.1]},
    "model.layers": {"good": [1], "bad": [0]},
    "model.width": {"good": [8], "bad": [7, 0]},
    "model.heads": {"good": [1], "bad": [0]},
    "model.vocabulary": {"good": [257], "bad": [256, 0]},
    "warm_start.steps": {"good": [0], "bad": [-1]},
    "warm_start.batch_size": {"good": [1], "bad": [0]},
    "warm_start.learning_rate": {"good": [1e-9], "bad": [0.0, -1.0]},
    "warm_start.careless_steps": {"good": [0], "bad": [-1]},
    "warm_start.careless_share": {"good": [0.0, 1.0], "bad": [-0.1, 1.1]},
    "rollouts.prompts": {"good": [1], "bad": [0]},
    "rollouts.group_size": {"good": [1], "bad": [0]},
    "rollouts.max_new_tokens": {"good": [1], "bad": [0]},
    "rollouts.temperature": {"good": [1e-9, 9.0], "bad": [0.0, -1.0]},
    "rollouts.prompts_at_once": {"good": [1], "bad": [0]},
    "reward.truncation_penalty": {"good": [0.0], "bad": [-0.1]},
    "reward.overlong_buffer": {"good": [0], "bad": [-1]},
    "reward_model.comparisons": {"good": [1], "bad": [0]},
    "reward_model.steps": {"good": [1], "bad": [0]},
    "reward_model.batch_size": {"good": [1], "bad": [0]},
    "reward_model.learning_rate": {"good": [1e-9], "bad": [0.0, -1.0]},
    "kl.beta": {"good": [0.0], "bad": [-0.1]},
    "kl.target": {"good": [1e-9], "bad": [0.0]},
    "kl.horizon": {"good": [1e-9], "bad": [0.0]},
    "critic.coefficient": {"good": [0.0], "bad": [-0.1]},
    "critic.clip": {"good": [1e-9], "bad": [0.0, -1.0]},
    "critic.learning_rate": {"good": [1e-9], "bad": [0.0, -1.0]},
    "optimiser.learning_rate": {"good": [1e-9], "bad": [0.0, -1.0]},
    "optimiser.warm_up": {"good": [0], "bad": [-1]},
    "optimiser.weight_decay": {"good": [0.0], "bad": [-0.1]},
    "optimiser.max_grad_norm": {"good": [1e-9], "bad": [0.0, -1.0]},
    "optimiser.epochs": {"good": [1], "bad": [0]},
    "optimiser.minibatches": {"good": [1], "bad": [0]},
    "optimiser.target_kl": {"good": [1e-9], "bad": [0.0, -1.0]},
    "optimiser.prompts_at_once": {"good": [1], "bad": [0]},
    "evaluation.every": {"good": [1], "bad": [0]},
    "evaluation.problems": {"good": [1], "bad": [0]},
    "checkpoint.every": {"good": [1], "bad": [0]},
}


def plain(kind):
    """The types that an annotation allows, without None and without the limits."""
    if get_origin(kind) is Annotated:
        return plain(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return {t for part in get_args(kind) for t in plain(part)} - {type(None)}
    return {kind}


def fields(section=Recipe, prefix=""):
    """Every field of the recipe that holds a value, with its type: algorithm.lam → {float}."""
    found = {}
    for name, field in section.model_fields.items():
        kinds = plain(field.annotation)
        sections = [k for k in kinds if isinstance(k, type) and issubclass(k, Section)]
        for part in sections:
            found |= fields(part, f"{prefix}{name}.")
        if not sections:
            found[prefix + name] = kinds
    return found


FIELDS = fields()
NUMBERS = {name for name, kinds in FIELDS.items() if kinds & {int, float}}


def section_of(place):
    """The class of the section that a key is in, and a table with what else it needs there."""
    *path, key = place.split(".")
    if path == ["task"]:
        (kind,) = [kind for kind in TASKS.values() if key in kind.model_fields]
        return kind, {"name": kind.model_fields["name"].annotation.__args__[0]}
    if not path:
        return Recipe, {"steps": 1, "algorithm": {"name": "grpo"}}
    return Recipe.model_fields[path[0]].annotation, {"name": "grpo"} if path == [
        "algorithm"
    ] else {}


def with_value(place, value, **changes):
    *section, key = place.split(".")
    if section == ["task"] and key != "name":
        _, needed = section_of(place)
        model = {} if needed["name"] == "arithmetic" else {"model": {"vocabulary": 300}}
        content = tables(**model, **changes)
        return {**content, "task": {**needed, key: value}}
    return tables(**({section[0]: {key: value}} if section else {key: value}), **changes)


def refusal(content) -> str:
    with pytest.raises(ValueError, match=r"^recipe:\n") as error:
        check(content)
    _, *lines = str(error.value).split("\n")
    assert all(line.startswith("  ") for line in lines)
    return "\n".join(line[2:] for line in lines)


# ---------------------------------------------------------------- one key at a time


def test_the_table_above_knows_every_number():
    assert set(TABLE) == NUMBERS


@pytest.mark.parametrize("place", TABLE)
def test_numbers_have_limits(place):
    section, others = section_of(place)
    key = place.rpartition(".")[2]
    for value in TABLE[place]["good"]:
        assert getattr(section.model_validate({**others, key: value}), key) == value
    for value in TABLE[place]["bad"]:
        (line,) = refusal(with_value(place, value)).split("\n")
        start = re.escape(f"{place} is {value!r}: expected ")
        assert re.fullmatch(rf"{start}(greater|less) than( or equal to)? [\d.e+-]+", line), line


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("place", sorted(NUMBERS))
def test_no_number_is_infinite_or_none_at_all(place, value):
    (line,) = refusal(with_value(place, value)).split("\n")
    assert line.startswith(f"{place} is {value!r}: expected ")


@pytest.mark.parametrize("place", sorted(FIELDS))
def test_nothing_is_converted_silently(place):
    """Text for numbers, numbers for text and for switches, 3.0 for 3, tables for values."""
    kinds = FIELDS[place]
    wrong = [[1], {"a": 1}]
    if kinds & {int, float}:
        wrong += ["1", True]
    if int in kinds:
        wrong += [3.0]
    if bool in kinds:
        wrong += [1, "true"]
    if str in kinds:
        wrong += [1]
    for value in wrong:
        line = refusal(with_value(place, value)).split("\n")[0]
        assert line.startswith(f"{place} is {value!r}: "), line


@pytest.mark.parametrize("value", [3, "gsm8k", [1], True, None], ids=repr)
def test_a_task_is_a_table(value):
    assert refusal({**tables(), "task": value}) == f"task is {value!r}: expected a table"


def test_a_whole_number_may_stand_for_a_real_one():
    assert recipe("ppo", algorithm={"gamma": 1}).settings["gamma"] == 1.0


@pytest.mark.parametrize(
    ("place", "value", "valid"),
    [
        ("algorithm.name", "gppo", ALGORITHMS),
        ("task.name", "algebra", ["arithmetic", "word-problems", "gsm8k"]),
        ("prompt.style", "shout", ["plain", "chat"]),
        ("model.precision", "float16", ["float32", "bfloat16"]),
        ("reward.source", "taste", ["verifier", "reward_model"]),
        ("kl.placement", "none", ["reward", "loss", "surrogate"]),
        ("kl.estimator", "k4", ["k1", "k2", "k3", "abs"]),
        ("kl.weight", "batch", ["prefix", "sequence", "token"]),
        ("kl.controller", "moving", ["fixed", "adaptive"]),
    ],
)
def test_words_are_out_of_a_list_that_is_shown(place, value, valid):
    (line,) = refusal(with_value(place, value)).split("\n")
    assert line.startswith(f"{place} is {value!r}")
    assert all(repr(word) in line for word in valid)


@pytest.mark.parametrize("value", ["", "/", "+ -", "plus", "+\n"])
def test_operations_are_signs(value):
    (line,) = refusal(with_value("task.operations", value)).split("\n")
    assert line.startswith(f"task.operations is {value!r}: ")
    assert "[+*-]" in line


def test_unknown_keys_are_named_with_the_known_ones():
    (line,) = refusal(tables(stpes=3)).split("\n")
    assert line.startswith("stpes is unknown; expected one of steps, algorithm, seed, task, ")
    (line,) = refusal(tables(rollouts={"groups": 3})).split("\n")
    known = "prompts, group_size, max_new_tokens, temperature, dynamic_sampling, prompts_at_once"
    assert line == f"rollouts.groups is unknown; expected one of {known}"
    assert refusal(tables(optimizer={"lr": 1})).startswith("optimizer is unknown; expected one of")


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_keys_of_its_own(name):
    """And a mistake is placed by the names in the file, whatever it is called."""
    known = {
        "arithmetic": "name, digits, operations",
        "word-problems": "name, min_steps, max_steps, distractors, stories",
        "gsm8k": "name, path",
    }
    model = {} if name == "arithmetic" else {"vocabulary": 300}
    for key in ("number", *TASKS):
        line = refusal({**tables(model=model), "task": {"name": name, key: 3}})
        assert line == f"task.{key} is unknown; expected one of {known[name]}"
    assert refusal(tables(**{name: {"path": "x"}})).startswith(f"{name} is unknown; expected one")


def test_what_must_be_there_is_asked_for():
    assert refusal({}).split("\n") == ["steps is missing", "algorithm is missing"]
    assert refusal({"steps": 3, "algorithm": {}}) == "algorithm.name is missing"


def test_all_mistakes_are_told_at_once():
    lines = refusal(tables(steps=0, rollouts={"prompts": "many"}, seeds=1)).split("\n")
    assert [line.split()[0] for line in lines] == ["steps", "rollouts.prompts", "seeds"]
    lines = refusal(
        tables(
            algorithm={"name": "rloo", "lam": 0.9}, critic={"clip": 1.0}, kl={"placement": "loss"}
        )
    ).split("\n")
    assert [line.split()[0] for line in lines] == ["algorithm.lam", "critic", "kl.placement"]


def test_a_recipe_does_not_change_afterwards():
    made = recipe()
    for thing, name in ((made, "steps"), (made.rollouts, "prompts")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(thing, name, 3)


# ---------------------------------------------------------------- keys that nobody would look at


def with_task(changes):
    """The smallest recipe with some changes; a task with a name replaces the one that is there."""
    content = tables(**changes)
    return {**content, "task": changes["task"]} if "task" in changes else content


SETTINGS = {
    "clip_low": 0.1,
    "clip_high": 0.3,
    "dual_clip": 3.0,
    "eps": 0.01,
    "decay": 0.5,
    "gamma": 0.9,
    "lam": 0.9,
    "whiten": False,
    "whiten_rewards": True,
}
USED = {
    "reinforce": "",
    "reinforce-ema": "decay",
    "remax": "",
    "rloo": "",
    "ppo": "clip_low clip_high dual_clip gamma lam whiten whiten_rewards",
    "grpo": "clip_low clip_high dual_clip eps",
    "dr-grpo": "clip_low clip_high dual_clip",
    "dapo": "clip_low clip_high dual_clip eps",
    "gspo": "clip_low clip_high eps",
    "cispo": "clip_low clip_high eps",
    "reinforce++": "clip_low clip_high dual_clip gamma",
}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_is_taken_by_those_algorithms_that_use_it(name, setting):
    value = SETTINGS[setting]
    if setting in USED[name].split():
        assert recipe(name, algorithm={setting: value}).settings[setting] == value
        return
    line = refusal(tables(algorithm={"name": name, setting: value}))
    known = line.partition("its settings: ")[2]
    assert line.startswith(f"algorithm.{setting} is not used: {name} does not use it; its set")
    assert set(known.split(", ")) == set(USED[name].split() or ["none"])


def test_every_setting_is_tried():
    assert {f"algorithm.{name}" for name in SETTINGS} == {
        name for name in FIELDS if name.startswith("algorithm.") and name != "algorithm.name"
    }


UNUSED = {
    "a critic": ({"critic": {"clip": 0.2}}, "critic is not used: grpo has no critic"),
    "a reward model": (
        {"reward_model": {"steps": 3}},
        "reward_model is not used: reward.source is 'verifier'",
    ),
    "a KL estimator": (
        {"kl": {"estimator": "k1"}},
        "kl.estimator is not used: kl.beta is 0, so there is no KL penalty",
    ),
    "a KL placement": (
        {"kl": {"beta": 0.0, "placement": "loss"}},
        "kl.placement is not used: kl.beta is 0, so there is no KL penalty",
    ),
    "a KL controller": (
        {"kl": {"controller": "adaptive"}},
        "kl.controller is not used: kl.beta is 0, so there is no KL penalty",
    ),
    "a target": (
        {"kl": {"beta": 0.1, "target": 3.0}},
        "kl.target is not used: kl.controller is 'fixed'",
    ),
    "a horizon": (
        {"kl": {"beta": 0.1, "horizon": 900.0}},
        "kl.horizon is not used: kl.controller is 'fixed'",
    ),
    "an estimator in the reward": (
        {"kl": {"beta": 0.1, "placement": "reward", "estimator": "k3"}},
        "kl.estimator is not used: with the KL in the reward the estimator is fixed "
        "(k1 in the reward, k3 under the weight of the surrogate)",
    ),
    "an estimator in the surrogate": (
        {"kl": {"beta": 0.1, "placement": "surrogate", "estimator": "k1"}},
        "kl.estimator is not used: with the KL in the surrogate the estimator is fixed "
        "(k1 in the reward, k3 under the weight of the surrogate)",
    ),
    "a weight without a KL": (
        {"kl": {"weight": "token"}},
        "kl.weight is not used: kl.beta is 0, so there is no KL penalty",
    ),
    "a weight in the reward": (
        {"kl": {"beta": 0.1, "placement": "reward", "weight": "prefix"}},
        "kl.weight is not used: with the KL in the reward nothing is weighted",
    ),
    "a weight in the loss": (
        {"kl": {"beta": 0.1, "weight": "token"}},
        "kl.weight is not used: with the KL in the loss nothing is weighted",
    ),
    "a warm start of no steps": (
        {"warm_start": {"careless_steps": 5}},
        "warm_start.careless_steps is not used: warm_start.steps is 0",
    ),
    "the size of a model that is there": (
        {"model": {"source": "./somewhere"}},
        "\n".join(
            f"model.{key} is not used: the model comes from './somewhere' as it is"
            for key in ("heads", "layers", "width")
        ),
    ),
    "a teacher who forgets to carry in a story": (
        {
            "task": {"name": "word-problems"},
            "model": {"vocabulary": 300},
            "warm_start": {"steps": 3, "careless_steps": 5},
        },
        "warm_start.careless_steps is not used: the task is word-problems, and only arithmetic has "
        "a teacher who forgets",
    ),
}


@pytest.mark.parametrize("case", UNUSED)
def test_a_key_that_this_run_would_not_look_at_is_refused(case):
    changes, message = UNUSED[case]
    assert refusal(with_task(changes)) == message


@pytest.mark.parametrize(
    "changes",
    [
        {"warm_start": {"steps": 3, "careless_share": 0.5}},
        {"algorithm": {"name": "rloo"}, "optimiser": {"target_kl": 0.1}},
        {"algorithm": {"name": "grpo"}, "optimiser": {"target_kl": 0.1}},
    ],
    ids=["careless_share without careless_steps", "target_kl, no ratio", "target_kl, one update"],
)
def test_more_keys_that_a_run_would_not_look_at(changes):
    """With one update for each batch the KL to the sampler is 0 whenever it is looked at."""
    assert "is not used" in refusal(tables(**changes))


# ---------------------------------------------------------------- values that do not go together

IMPOSSIBLE = {
    "epochs without a ratio": (
        {"algorithm": {"name": "rloo"}, "optimiser": {"epochs": 2, "minibatches": 3}},
        "optimiser.epochs is 2, expected 1: rloo has no importance ratio, so a batch is good for "
        "one step\noptimiser.minibatches is 3, expected 1: rloo has no importance ratio, so a "
        "batch is good for one step",
    ),
    "a group of one": (
        {"rollouts": {"group_size": 1}},
        "rollouts.group_size is 1, expected at least 2: grpo compares responses to the same prompt",
    ),
    "spread of one": (
        {"algorithm": {"name": "ppo"}, "rollouts": {"group_size": 1, "dynamic_sampling": True}},
        "rollouts.group_size is 1, expected at least 2: ppo compares responses to the same prompt",
    ),
    "more minibatches than prompts": (
        {"optimiser": {"minibatches": 7}},
        "optimiser.minibatches is 7, expected at most rollouts.prompts = 6",
    ),
    "a KL without a place": (
        {"algorithm": {"name": "dr-grpo"}, "kl": {"beta": 0.25}},
        "kl.beta is 0.25, but dr-grpo was published without a KL penalty: say kl.placement = "
        "'reward', 'loss' or 'surrogate'",
    ),
    "a horizon too near": (
        {"kl": {"beta": 0.1, "controller": "adaptive", "horizon": 4.8}},
        "kl.horizon is 4.8, expected more than a fifth of the 24 responses of a step",
    ),
    "a buffer as long as the response": (
        {"reward": {"overlong_buffer": 4}},
        "reward.overlong_buffer is 4, expected less than rollouts.max_new_tokens = 4",
    ),
    "a width that heads do not divide": (
        {"model": {"width": 36}},
        "model.width is 36, expected a multiple of 2 * model.heads = 8",
    ),
    "stories read character by character": (
        {"task": {"name": "word-problems"}},
        "model.vocabulary is None: arithmetic is read character by character, every other task "
        "needs a vocabulary, and the task is word-problems",
    ),
    "sums with a vocabulary": (
        {"model": {"vocabulary": 300}},
        "model.vocabulary is 300: arithmetic is read character by character, every other task "
        "needs a vocabulary, and the task is arithmetic",
    ),
    "more steps at least than at most": (
        {
            "task": {"name": "word-problems", "min_steps": 4, "max_steps": 3},
            "model": {"vocabulary": 300},
        },
        "task.min_steps is 4, expected at most task.max_steps = 3",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_values_that_do_not_go_together_are_refused(case):
    changes, message = IMPOSSIBLE[case]
    assert refusal(with_task(changes)) == message


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ppo", {"rollouts": {"group_size": 1}}),
        ("remax", {"rollouts": {"group_size": 1}}),
        ("dapo", {"optimiser": {"epochs": 4, "minibatches": 6}}),
        ("grpo", {"kl": {"beta": 0.1, "controller": "adaptive", "horizon": 4.9}}),
        ("grpo", {"reward": {"overlong_buffer": 3}}),
        ("dr-grpo", {"kl": {"beta": 0.1, "placement": "surrogate"}}),
        ("cispo", {"kl": {"beta": 0.1, "placement": "loss", "estimator": "abs"}}),
    ],
)
def test_values_on_the_edge_go_together(name, changes):
    recipe(name, **changes)


# ---------------------------------------------------------------- what a recipe says of itself


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_penalty_goes_where_the_paper_has_it_unless_the_recipe_says_otherwise(name):
    assert recipe(name).penalty.placement == "none"
    place = ALGORITHMS[name].kl
    if place != "none":
        assert recipe(name, kl={"beta": 0.2}).penalty == Penalty(place, "k3", 0.2)
    own = recipe(name, kl={"beta": 0.2, "placement": "loss", "estimator": "k2"})
    assert own.penalty == Penalty("loss", "k2", 0.2)
    own = recipe(name, kl={"beta": 0.2, "placement": "surrogate"})
    assert own.penalty == Penalty("surrogate", "k3", 0.2, "prefix")
    own = recipe(name, kl={"beta": 0.2, "placement": "surrogate", "weight": "token"})
    assert own.penalty == Penalty("surrogate", "k3", 0.2, "token")


def test_dynamic_sampling_is_the_algorithms_choice_unless_the_recipe_says_otherwise():
    assert recipe("dapo").dynamic_sampling
    assert not recipe("dapo", rollouts={"dynamic_sampling": False}).dynamic_sampling
    assert recipe("ppo", rollouts={"dynamic_sampling": True}).dynamic_sampling
    assert not recipe("ppo").dynamic_sampling


def test_a_setting_of_the_recipe_wins_over_the_rows_and_that_over_the_functions():
    assert recipe("dapo").settings["clip_high"] == 0.28
    assert recipe("dapo", algorithm={"clip_high": 0.5}).settings["clip_high"] == 0.5
    assert recipe("ppo", algorithm={"whiten": False}).settings["whiten"] is False


# ---------------------------------------------------------------- files and overrides


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_in_the_folder_loads(path):
    """And says what it is about in a comment on its first line."""
    made = load_any(path)
    assert isinstance(made, Pretraining if path.stem.endswith("-base") else Recipe)
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'steps = 3\n[algorithm]\nname = "ppo"\n[rollouts]\nprompts = 4\n', encoding="utf-8"
    )
    return path


def changed(file, *overrides):
    return load(file, overrides).model_dump(exclude_unset=True)


def test_overrides_are_toml_or_else_text(file):
    found = changed(
        file,
        "steps=7",
        "rollouts.prompts = 5 ",
        "rollouts.temperature=0.5",
        "optimiser.learning_rate=1e-4",
        "algorithm.whiten=false",
        "task.operations=+-",
        'algorithm.name="ppo"',
        "kl={beta = 0.1, placement = 'loss'}",
        "kl.estimator=k2",
        "steps=8",
    )
    assert found == {
        "steps": 8,
        "algorithm": {"name": "ppo", "whiten": False},
        "rollouts": {"prompts": 5, "temperature": 0.5},
        "optimiser": {"learning_rate": 1e-4},
        "task": {"operations": "+-"},
        "kl": {"beta": 0.1, "placement": "loss", "estimator": "k2"},
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps", "--set steps: expected key=value, such as rollouts.group_size=4"),
        ("=3", "--set =3: expected key=value"),
        (" =3", "--set  =3: expected key=value"),
        ("", "--set : expected key=value"),
        ("steps.more=3", "--set steps.more=3: steps is a value, not a table"),
        ("steps=", "mine.toml:\n  steps is '': expected a valid integer"),
        ("steps=many", "mine.toml:\n  steps is 'many': expected a valid integer"),
        ("rollouts=3", "mine.toml:\n  rollouts is 3: expected"),
        ("stpes=3", "mine.toml:\n  stpes is unknown; expected one of steps"),
        ("rollouts.group=3", "mine.toml:\n  rollouts.group is unknown; expected one of prompts"),
        ("rollouts.prompts.x=3", "--set rollouts.prompts.x=3: prompts is a value, not a table"),
        ("optimiser..epochs=3", "mine.toml:\n  optimiser. is unknown; expected one of learning"),
        ("algorithm.eps=0.1", "mine.toml:\n  algorithm.eps is not used: ppo does not use it; its"),
    ],
)
def test_malformed_overrides_are_refused(file, override, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011  compared below, in full
        load(file, [override])
    assert str(error.value).startswith(message)


def test_a_missing_file_lists_what_is_there(file):
    (file.parent / "another.toml").write_text("", encoding="utf-8")
    with pytest.raises(FileNotFoundError) as error:
        load(file.with_name("nothing.toml"))
    assert str(error.value).startswith(f"no recipe '{file.with_name('nothing.toml')}': ")
    assert f"in {file.parent} there are another.toml, mine.toml" in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"no recipe .*nowhere/mine\.toml': `nbcourse rec"):
        load(file.parent / "nowhere" / "mine.toml")
    with pytest.raises(FileNotFoundError, match="no recipe"):
        load(file.parent)


def test_a_recipe_of_the_package_is_found_by_its_name_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load("arithmetic-grpo") == load(FOLDER / "arithmetic-grpo.toml")
    assert load("gsm8k-qwen2.5-0.5b-grpo").steps  # a name with dots
    with pytest.raises(FileNotFoundError, match="did you mean arithmetic-grpo"):
        load("aritmetic-grpo")


def test_a_file_comes_before_a_name_and_may_extend_one_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arithmetic-grpo.toml").write_text("steps = 3\nextends = 'arithmetic-rloo'\n")
    made = load("arithmetic-grpo.toml")
    assert (made.steps, made.algorithm.name) == (3, "rloo")
    assert load("arithmetic-grpo").algorithm.name == "grpo"


@pytest.mark.parametrize("content", [b"steps = ", b"steps = 3\nsteps = 4", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(file, content):
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.toml is not TOML: "):
        load(file)


def test_every_mistake_in_a_file_comes_under_its_name(file):
    file.write_text('steps = 0\n[algorithm]\nname = "ppo"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"^mine\.toml:\n  steps is 0: expected greater than"):
        load(file)


def test_a_recipe_survives_being_written_down(file):
    """As `records` does it: what was given, as JSON values."""
    made = load(file, ["kl.beta=0.1", "algorithm.lam=1", "algorithm.whiten=false"])
    assert check(made.model_dump(mode="json", exclude_unset=True)) == made
    assert check(json.loads(made.model_dump_json()), complete=True) == made
    assert tomllib.loads(file.read_text(encoding="utf-8"))["steps"] == made.steps


# ---------------------------------------------------------------- a file over another


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(files))}.toml"


PARENT = """
steps = 9
seed = 4
[algorithm]
name = "ppo"
clip_low = 0.1
[rollouts]
prompts = 4
temperature = 0.5
"""


def test_a_file_holds_what_differs_from_the_one_it_extends(tmp_path):
    path = write(
        tmp_path,
        child="""
extends = "parent.toml"
steps = 3
[algorithm]
clip_high = 0.3
[rollouts]
prompts = 5
[critic]
clip = 0.2
""",
        parent=PARENT,
    )
    assert read(path) == {
        "steps": 3,
        "seed": 4,
        "algorithm": {"name": "ppo", "clip_low": 0.1, "clip_high": 0.3},
        "rollouts": {"prompts": 5, "temperature": 0.5},
        "critic": {"clip": 0.2},
    }
    assert load(path, ["rollouts.prompts=6"]).rollouts.prompts == 6
    assert read(tmp_path / "parent.toml") == tomllib.loads(PARENT)  # which nobody has changed


def test_files_extend_one_another_from_folder_to_folder(tmp_path):
    """Each is named beside the one that names it, wherever the command is given."""
    (tmp_path / "below").mkdir()
    path = write(
        tmp_path,
        a='extends = "below/b.toml"\nsteps = 1',
        d='steps = 4\nseed = 4\n[algorithm]\nname = "grpo"',
    )
    write(
        tmp_path / "below", b='extends = "c.toml"\nseed = 2', c='extends = "../d.toml"\nsteps = 3'
    )
    made = load(path)
    assert (made.steps, made.seed, made.algorithm.name) == (1, 2, "grpo")


def test_a_value_takes_the_place_of_a_table_and_a_table_that_of_a_value(tmp_path):
    path = write(tmp_path, a='extends = "b.toml"\nx = 1\n[y]\nz = 2', b="y = 3\n[x]\nz = 4")
    assert read(path) == {"x": 1, "y": {"z": 2}}


@pytest.mark.parametrize(
    "files", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}]
)
def test_a_file_that_extends_itself_is_refused(tmp_path, files):
    path = write(tmp_path, **{name: f'extends = "./{to}.toml"' for name, to in files.items()})
    with pytest.raises(ValueError, match=r"\.toml extends itself$"):
        read(path)


def test_a_parent_that_is_missing_or_broken_is_named(tmp_path):
    path = write(tmp_path, a='extends = "b.toml"')
    with pytest.raises(FileNotFoundError, match=r"no recipe 'b\.toml': in .* there are a\.toml"):
        read(path)
    write(tmp_path, b="steps = ")
    with pytest.raises(ValueError, match=r"b\.toml is not TOML: "):
        read(path)


def test_a_mistake_in_the_parent_is_told_of_the_file_that_was_asked_for(tmp_path):
    path = write(tmp_path, child='extends = "parent.toml"\nsteps = 0', parent=PARENT)
    with pytest.raises(ValueError, match=r"^child\.toml:\n  steps is 0: expected greater"):
        load(path)


# ---------------------------------------------------------------- base models


def base_refusal(**changes) -> str:
    with pytest.raises(ValueError, match=r"^recipe:\n") as error:
        validate(Pretraining, base_tables(**changes), name="recipe")
    return "\n".join(line[2:] for line in str(error.value).split("\n")[1:])


def test_a_table_of_pretraining_makes_it_the_recipe_of_a_base_model(tmp_path):
    assert kind_of(base_tables()) is Pretraining
    assert kind_of(tables()) is Recipe
    path = write(
        tmp_path,
        base="""
[task]
name = "gsm8k"
[model]
vocabulary = 300
[pretraining]
steps = 3
[supervised]
""",
        rl='steps = 1\n[algorithm]\nname = "rloo"',
    )
    base = load_any(path, ["supervised.steps=4"])
    assert isinstance(base, Pretraining)
    assert (base.steps, base.task.name) == (7, "gsm8k")
    assert isinstance(load_any(tmp_path / "rl.toml"), Recipe)
    with pytest.raises(
        ValueError, match=r"^base\.toml:\n  steps is missing\n  algorithm is missing"
    ):
        load(path)


def test_a_base_models_recipe_survives_being_written_down():
    made = validate(Pretraining, base_tables(), name="recipe")
    content = json.loads(made.model_dump_json())
    assert kind_of(content) is Pretraining
    assert validate(Pretraining, content, name="recipe", complete=True) == made


def test_what_a_base_model_needs_is_asked_for():
    with pytest.raises(ValueError) as error:  # noqa: PT011  compared below, in full
        validate(Pretraining, {}, name="recipe")
    missing = [f"  {key} is missing" for key in ("pretraining", "supervised", "task")]
    assert str(error.value).split("\n") == ["recipe:", *missing]


BASE_NUMBERS = {
    "gsm8k_share": {"good": [0.0, 1.0], "bad": [-0.1, 1.1]},
    "evaluation.max_new_tokens": {"good": [1], "bad": [0]},
    **{
        f"{stage}.{key}": limits
        for stage in ("pretraining", "supervised")
        for key, limits in {
            "steps": {"good": [0], "bad": [-1]},
            "batch_size": {"good": [1], "bad": [0]},
            "at_once": {"good": [1], "bad": [0]},
            "learning_rate": {"good": [1e-9], "bad": [0.0, -1.0, math.inf]},
        }.items()
    },
}


def test_the_table_above_knows_every_number_that_only_base_models_have():
    found = {name for name, kinds in fields(Pretraining).items() if kinds & {int, float}}
    assert found - NUMBERS == set(BASE_NUMBERS)


@pytest.mark.parametrize("place", BASE_NUMBERS)
def test_numbers_of_base_models_have_limits(place):
    *section, key = place.split(".")

    def changed(value):
        return {section[0]: {key: value}} if section else {key: value}

    for value in BASE_NUMBERS[place]["good"]:
        if (key, value) != ("steps", 0):
            validate(Pretraining, base_tables(**changed(value)), name="recipe")
    for value in BASE_NUMBERS[place]["bad"]:
        assert base_refusal(**changed(value)).startswith(f"{place} is {value!r}: expected ")


BASE_REFUSED = {
    "arithmetic": (
        {"task": {"name": "arithmetic"}, "model": {"vocabulary": None}},
        "task.name is 'arithmetic': expected 'word-problems' or 'gsm8k'",
    ),
    "nothing to do": (
        {"pretraining": {"steps": 0}, "supervised": {"steps": 0}},
        "pretraining.steps and supervised.steps are both 0",
    ),
    "a width that heads do not divide": (
        {"model": {"width": 36}},
        "model.width is 36, expected a multiple of 2 * model.heads = 8",
    ),
    "no vocabulary": (
        {"model": {"vocabulary": None}},
        "model.vocabulary is None: arithmetic is read character by character, every other task "
        "needs a vocabulary, and the task is word-problems",
    ),
    "more steps at least than at most": (
        {"task": {"min_steps": 3, "max_steps": 2}},
        "task.min_steps is 3, expected at most task.max_steps = 2",
    ),
    "the size of a model that is there": (
        {"model": {"source": "./somewhere"}},
        "\n".join(
            f"model.{key} is not used: the model comes from './somewhere' as it is"
            for key in ("heads", "layers", "vocabulary", "width")
        ),
    ),
    "a share of the same": (
        {"task": {"name": "gsm8k"}, "gsm8k_share": 0.5},
        "gsm8k_share is not used: the task is gsm8k as it is",
    ),
    "a stage of no steps": (
        {"pretraining": {"steps": 0, "learning_rate": 0.1}},
        "pretraining.learning_rate is not used: pretraining.steps is 0",
    ),
    "an unknown key": (
        {"supervised": {"epochs": 1}},
        "supervised.epochs is unknown; expected one of steps, batch_size, at_once, learning_rate",
    ),
}


@pytest.mark.parametrize("case", BASE_REFUSED)
def test_recipes_of_base_models_are_refused(case):
    changes, message = BASE_REFUSED[case]
    task = changes.get("task", {}).get("name")
    if task is not None:  # what the smallest recipe says of its own task is no key of this one
        changes = {**changes, "task": {"name": task, "max_steps": None, "distractors": None}}
    stages = [k for k in ("pretraining", "supervised") if changes.get(k, {}).get("steps") == 0]
    for stage in stages:
        changes = {**changes, stage: {"batch_size": None, "at_once": None, **changes[stage]}}
        if "learning_rate" not in changes[stage]:
            changes[stage]["learning_rate"] = None
    assert base_refusal(**changes) == message
