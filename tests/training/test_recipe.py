"""Recipes: what is refused, in which words, and what the files in recipes/ say."""

import math
import re
import tomllib
from pathlib import Path
from types import UnionType
from typing import Annotated, Union, get_args, get_origin

import pytest

from nbcourse.training.algorithms import ALGORITHMS, Penalty
from nbcourse.training.recipe import Recipe, Section, check, load

from .small import recipe, tables

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.toml"))
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
    "model.layers": {"good": [1], "bad": [0]},
    "model.width": {"good": [8], "bad": [7, 0]},
    "model.heads": {"good": [1], "bad": [0]},
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
        (first,) = kinds if len(kinds) == 1 else (None,)
        if isinstance(first, type) and issubclass(first, Section):
            found |= fields(first, f"{prefix}{name}.")
        else:
            found[prefix + name] = kinds
    return found


FIELDS = fields()
NUMBERS = {name for name, kinds in FIELDS.items() if kinds & {int, float}}


def with_value(place, value, **changes):
    *section, key = place.split(".")
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
    section = Recipe
    *path, key = place.split(".")
    for name in path:
        section = section.model_fields[name].annotation
    others = {"steps": 1, "algorithm": {"name": "grpo"}} if section is Recipe else {}
    if path == ["algorithm"]:
        others = {"name": "grpo"}
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


def test_a_whole_number_may_stand_for_a_real_one():
    assert recipe("ppo", algorithm={"gamma": 1}).settings["gamma"] == 1.0


@pytest.mark.parametrize(
    ("place", "value", "valid"),
    [
        ("algorithm.name", "gppo", ALGORITHMS),
        ("task.name", "algebra", ["arithmetic"]),
        ("model.precision", "float16", ["float32", "bfloat16"]),
        ("reward.source", "taste", ["verifier", "reward_model"]),
        ("kl.placement", "none", ["reward", "loss", "surrogate"]),
        ("kl.estimator", "k4", ["k1", "k2", "k3", "abs"]),
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
}


@pytest.mark.parametrize("case", UNUSED)
def test_a_key_that_this_run_would_not_look_at_is_refused(case):
    changes, message = UNUSED[case]
    assert refusal(tables(**changes)) == message


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
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_values_that_do_not_go_together_are_refused(case):
    changes, message = IMPOSSIBLE[case]
    assert refusal(tables(**changes)) == message


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
    assert load(path).algorithm.name in ALGORITHMS
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
    expected = f"no recipe at {file.with_name('nothing.toml')}; there are another.toml, mine.toml"
    assert str(error.value) == expected
    with pytest.raises(FileNotFoundError, match=r"no recipe at .*nowhere/mine\.toml$"):
        load(file.parent / "nowhere" / "mine.toml")
    with pytest.raises(FileNotFoundError, match="no recipe at"):
        load(file.parent)


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
    assert tomllib.loads(file.read_text(encoding="utf-8"))["steps"] == made.steps
