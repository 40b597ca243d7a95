"""Recipes: what is refused, in which words, and what the package's recipes say."""

import inspect
import json
import math
import tomllib
from dataclasses import fields, replace
from typing import Annotated, get_args

import pytest
from annotated_types import Interval

from nbcourse.errors import UserError
from nbcourse.tasks.table import TASKS
from nbcourse.training import recipe_kl
from nbcourse.training.algorithms import ALGORITHMS, ROW, Penalty, group_relative
from nbcourse.training.named_sections import AlgorithmSection
from nbcourse.training.recipe import (
    Pretraining,
    Recipe,
    check,
    kind_of,
    load,
    load_any,
    validate,
)
from nbcourse.training.recipe_files import FOLDER, read, summary
from nbcourse.training.recipe_sections import Section
from tests.small import base_tables, recipe, tables

RECIPES = sorted(FOLDER.glob("*.toml"))


def refusal(content, *, kind=Recipe) -> str:
    """What is said about a recipe that is refused: a mistake behind its name, several below it."""
    with pytest.raises(UserError, match=r"^recipe:") as error:
        validate(kind, content, name="recipe")
    first, *lines = str(error.value).split("\n")
    if not lines:
        return first.removeprefix("recipe: ")
    assert first == "recipe:"
    assert all(line.startswith("  ") for line in lines)
    return "\n".join(line[2:] for line in lines)


def with_value(place, value):
    """The smallest recipe with one value changed: ("rollouts.prompts", 0)."""
    *section, key = place.split(".")
    return tables(**({section[0]: {key: value}} if section else {key: value}))


def parts(annotation):
    """An annotation and everything that it is made of."""
    return [annotation, *(part for inner in get_args(annotation) for part in parts(inner))]


def numbers(kind):
    """The places of all numbers in the fixed tables of a recipe, such as "rollouts.prompts"."""
    found = []
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            found += [f"{name}.{key}" for key in numbers(field.annotation)]
        elif any(part in (int, float) for part in parts(field.annotation)):
            found.append(name)
    return found


# ---------------------------------------------------------------- one key at a time

PPO_SETTINGS = "gamma, lam, whiten, whiten_rewards, clip_low, clip_high, dual_clip"
REFUSED = {
    "a number": ("rollouts.prompts", 0, "expected greater than or equal to 1"),
    "a rate of 0": ("optimiser.learning_rate", 0.0, "expected greater than 0"),
    "a share above 1": ("warm_start.careless_share", 1.1, "expected less than or equal to 1"),
    "a vocabulary of bytes": ("model.vocabulary", 256, "expected greater than 256"),
    "text for a number": ("steps", "1", "expected a valid integer"),
    "a switch for a number": ("seed", True, "expected a valid integer"),
    "a real number for a count": ("rollouts.prompts", 3.0, "expected a valid integer"),
    "text for a real number": ("kl.beta", "0.1", "expected a valid number"),
    "a number for a switch": ("critic.shared", 1, "expected a valid boolean"),
    "a number for text": ("model.source", 3, "expected a valid string"),
    "a list for a number": ("evaluation.every", [1], "expected a valid integer"),
    "a value for a table": ("rollouts", 3, "expected"),
    "no task": ("task", None, "expected a table"),
    "a word": ("prompt.style", "shout", "expected 'plain' or 'chat'"),
    "a precision": ("model.precision", "float8", "expected 'float32', 'bfloat16' or 'float16'"),
    "a placement": ("kl.placement", "none", "expected 'reward', 'advantage', 'loss' or"),
    "an estimator": ("kl.estimator", "k4", "expected 'k1', 'k2', 'k3', 'abs' or 'exact'"),
    "a cap below 1": ("kl.weight_cap", 0.5, "expected greater than or equal to 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_value_is_named_with_what_would_be_right(case):
    place, value, expected = REFUSED[case]
    assert refusal(with_value(place, value)).startswith(f"{place} is {value!r}: {expected}")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1], ids=str)
@pytest.mark.parametrize("kind", [Recipe, Pretraining])
def test_no_number_is_infinite_or_negative(kind, value):
    content = base_tables() if kind is Pretraining else tables()
    places = numbers(kind)
    assert {"seed", "evaluation.every", "model.vocabulary"} < set(places)
    for place in places:
        *section, key = place.split(".")
        table = (
            {section[0]: {**content.get(section[0], {}), key: value}} if section else {key: value}
        )
        line = refusal({**content, **table}, kind=kind).split("\n")[0]
        assert line.startswith(f"{place} is {value!r}: expected "), line


NEVER_ZERO = """
model.layers model.width model.heads warm_start.batch_size warm_start.learning_rate
rollouts.prompts rollouts.group_size rollouts.max_new_tokens rollouts.temperature
rollouts.prompts_at_once reward_model.comparisons reward_model.steps reward_model.batch_size
reward_model.learning_rate kl.weight_cap kl.target kl.horizon critic.clip critic.learning_rate
optimiser.learning_rate optimiser.max_grad_norm optimiser.epochs optimiser.minibatches
optimiser.target_kl optimiser.truncated_importance_sampling optimiser.prompts_at_once
model.lora_rank evaluation.every evaluation.problems checkpoint.every
"""


def test_what_a_run_would_divide_by_or_never_end_with_is_not_zero():
    for place in NEVER_ZERO.split():
        line = refusal(with_value(place, 0)).split("\n")[0]
        assert line.startswith(f"{place} is 0: expected greater than "), line


def test_numbers_at_the_end_of_their_range_are_taken():
    made = recipe(
        steps=1,
        kl={"beta": 0.0},
        warm_start={"steps": 1, "careless_steps": 1, "careless_share": 1.0},
        optimiser={"weight_decay": 0.0, "warm_up": 0},
        algorithm={"clip_low": 1.0},
    )
    assert made.warm_start.careless_share == 1.0


def test_unknown_keys_are_named_with_the_known_ones():
    line = refusal(tables(stpes=3))
    assert line.startswith("stpes is unknown; expected one of steps, algorithm, seed, code, task, ")
    assert line.endswith("; did you mean 'steps'?")
    known = "prompts, group_size, max_new_tokens, temperature, dynamic_sampling, prompts_at_once"
    line = refusal(tables(rollouts={"n": 3}))
    assert line == f"rollouts.n is unknown; expected one of {known}, engine"
    line = refusal(tables(optimizer={"lr": 1}))
    assert line.startswith("optimizer is unknown; expected one of steps, ")
    assert line.endswith("; did you mean 'optimiser'?")


def test_what_must_be_there_is_asked_for():
    assert refusal({}).split("\n") == ["steps is missing", "algorithm is missing"]
    assert refusal({"steps": 3, "algorithm": {}}) == "algorithm.name is missing"


def test_all_mistakes_are_told_at_once():
    lines = refusal(
        tables(
            steps=-1,
            algorithm={"name": "ppo", "lam": 1.5, "gamma": -1.0},
            task={"digits": 0},
            rollouts={"prompts": "many"},
            seeds=1,
        )
    ).split("\n")
    assert [line.split()[0] for line in lines] == [
        "steps",
        "algorithm.gamma",
        "algorithm.lam",
        "task.digits",
        "rollouts.prompts",
        "seeds",
    ]
    lines = refusal(
        tables(algorithm={"name": "rloo"}, critic={"clip": 1.0}, kl={"placement": "loss"})
    ).split("\n")
    assert [line.split()[0] for line in lines] == ["critic", "kl.placement"]


def test_a_recipe_does_not_change_afterwards():
    made = recipe()
    for thing, name in (
        (made, "steps"),
        (made.rollouts, "prompts"),
        (made.algorithm, "eps"),
        (made.task, "digits"),
    ):
        with pytest.raises(ValueError, match="frozen"):
            setattr(thing, name, 3)


# ---------------------------------------------------------------- settings of the algorithm

REFUSED_SETTINGS = {
    "of another row": (
        {"name": "rloo", "lam": 0.9},
        "algorithm.lam is not used: rloo has no such setting; its settings: none",
    ),
    "a typo": (
        {"name": "ppo", "gama": 0.9},
        f"algorithm.gama is not used: ppo has no such setting; its settings: {PPO_SETTINGS}; "
        "did you mean 'gamma'?",
    ),
    "two typos": (
        {"name": "ppo", "gama": 0.9, "lamb": 0.9},
        f"algorithm.gama is not used: ppo has no such setting; its settings: {PPO_SETTINGS}; "
        "did you mean 'gamma'?\n"
        f"algorithm.lamb is not used: ppo has no such setting; its settings: {PPO_SETTINGS}; "
        "did you mean 'lam'?",
    ),
    "what the loop offers": (
        {"name": "remax", "group_size": 4},
        "algorithm.group_size is not used: remax has no such setting; its settings: none",
    ),
    "out of range": (
        {"name": "grpo", "clip_low": 7.0},
        "algorithm.clip_low is 7.0, expected a number from 0 to 1",
    ),
    "at an end that is out of range": (
        {"name": "grpo", "dual_clip": 1.0},
        "algorithm.dual_clip is 1.0, expected a number above 1",
    ),
    "infinite": (
        {"name": "grpo", "clip_high": math.inf},
        "algorithm.clip_high is inf, expected a finite number",
    ),
    "no number": (
        {"name": "grpo", "eps": math.nan},
        "algorithm.eps is nan, expected a finite number",
    ),
    "text": ({"name": "grpo", "eps": "0.1"}, "algorithm.eps is '0.1': expected a valid number"),
    "a switch": ({"name": "ppo", "lam": True}, "algorithm.lam is True: expected a valid number"),
    "a number for a switch": (
        {"name": "ppo", "whiten": 1},
        "algorithm.whiten is 1: expected a valid boolean",
    ),
    "a name that is a number": ({"name": 3}, "algorithm.name is 3: expected text"),
    "a name that is close to one": (
        {"name": "drgrpo"},
        f"algorithm.name is 'drgrpo', expected one of {', '.join(map(repr, ALGORITHMS))}; "
        "did you mean 'dr-grpo'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED_SETTINGS)
def test_a_setting_that_the_row_does_not_take_is_refused(case):
    table, message = REFUSED_SETTINGS[case]
    assert refusal(tables(algorithm=table)) == message


def settings_in_signatures(row):
    """A keyword with a default is a setting."""
    return {
        parameter.name
        for function in (row.advantage, row.surrogate)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is not parameter.empty
    }


EVERY_SETTING = set().union(*map(settings_in_signatures, ALGORITHMS.values()))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_keys_of_a_row_are_those_of_its_functions(name):
    made, own = recipe(name), settings_in_signatures(ALGORITHMS[name])
    assert set(made.settings) == own
    given = {key: value for key, value in made.settings.items() if value is not None}
    assert recipe(name, algorithm=given).settings == made.settings
    for key in EVERY_SETTING - own:
        line = refusal(tables(algorithm={"name": name, key: 0.5}))
        assert line.startswith(f"algorithm.{key} is not used: {name} has no such setting; ")


def test_a_whole_number_may_stand_for_a_real_one():
    assert recipe("ppo", algorithm={"gamma": 1}).settings["gamma"] == 1.0


def test_a_setting_of_the_recipe_wins_over_the_rows_and_that_over_the_functions():
    assert recipe("grpo").settings["clip_high"] is None
    assert recipe("dapo").settings["clip_high"] == 0.28
    assert recipe("dapo", algorithm={"clip_high": 0.5}).settings["clip_high"] == 0.5
    assert recipe("ppo", algorithm={"whiten": False}).settings["whiten"] is False


def test_a_row_of_ones_own_brings_its_settings_and_their_bounds(monkeypatch):
    def power(
        rewards,
        mask,
        *,
        group_size: int,
        exponent: Annotated[float, Interval(gt=0, le=4)] = 2.0,
        signed: bool = False,
    ):
        return group_relative(rewards.pow(exponent), mask, group_size=group_size)

    row = replace(ALGORITHMS["dapo"], advantage=power, settings={"exponent": 3.0})
    monkeypatch.setitem(ALGORITHMS, "power", row)
    made = recipe("power")
    assert made.row is row
    assert made.settings == {
        "exponent": 3.0,
        "signed": False,
        "clip_low": 0.2,
        "clip_high": None,
        "dual_clip": None,
    }
    assert recipe("power", algorithm={"exponent": 4, "signed": True}).settings["exponent"] == 4.0
    for value in (0.0, 4.5):
        line = refusal(tables(algorithm={"name": "power", "exponent": value}))
        assert line == f"algorithm.exponent is {value}, expected a number above 0 and at most 4"
    line = refusal(tables(algorithm={"name": "power", "signed": "yes"}))
    assert line == "algorithm.signed is 'yes': expected a valid boolean"
    line = refusal(tables(algorithm={"name": "power", "exponents": 1.0}))
    assert line.endswith("; did you mean 'exponent'?")
    line = refusal(tables(algorithm={"name": "power", "eps": 1.0}))
    assert line.startswith("algorithm.eps is not used: power has no such setting; its settings: ")
    content = json.loads(made.model_dump_json())
    assert check(content, complete=True) == made


# ---------------------------------------------------------------- settings of the task


REFUSED_TASKS = {
    "a value": (3, "task is 3: expected a table"),
    "a list": ([1], "task is [1]: expected a table"),
    "a name": (
        {"name": "word-problem"},
        f"task.name is 'word-problem', expected one of {', '.join(map(repr, TASKS))}; "
        "did you mean 'word-problems'?",
    ),
    "a number out of range": ({"digits": 10}, "task.digits is 10, expected a number from 1 to 9"),
    "a real number for a count": ({"digits": 2.0}, "task.digits is 2.0: expected a valid integer"),
    "an operation": (
        {"operations": "plus"},
        "task.operations is 'plus', expected characters out of '+-*'",
    ),
    "a setting of another task": (
        {"name": "gsm8k", "digits": 2},
        "task.digits is not used: gsm8k has no such setting; its settings: path",
    ),
    "a typo": (
        {"name": "arithmetic", "digit": 2},
        "task.digit is not used: arithmetic has no such setting; its settings: digits, operations; "
        "did you mean 'digits'?",
    ),
    "more steps at least than at most": (
        {"name": "word-problems", "min_steps": 3, "max_steps": 2},
        "task.min_steps is 3, expected at most max_steps = 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED_TASKS)
def test_a_setting_that_the_task_does_not_take_is_refused(case):
    table, message = REFUSED_TASKS[case]
    assert refusal({**tables(model={"vocabulary": 300}), "task": table}) == message


@pytest.mark.parametrize("name", TASKS)
def test_the_keys_of_a_task_are_the_fields_of_its_class(name):
    vocabulary = None if TASKS[name].characters else 300
    content = {**tables(model={"vocabulary": vocabulary}), "task": {"name": name}}
    made = check(content)
    assert set(made.task.settings) == {field.name for field in fields(TASKS[name])}
    assert type(made.task.build()) is TASKS[name]


# ---------------------------------------------------------------- what a recorded run says


def test_a_record_holds_tables_that_the_run_did_not_look_at():
    content = recipe("grpo").model_dump(mode="json")
    assert content["critic"]
    assert check(content, complete=True) == recipe("grpo")
    assert "critic is not used" in refusal(content)


def test_a_record_of_what_is_impossible_is_refused():
    content = recipe("grpo").model_dump(mode="json")
    content["rollouts"]["group_size"] = 1
    with pytest.raises(ValueError, match="group_size is 1, expected at least 2"):
        check(content, complete=True)


def test_the_record_of_a_run_whose_row_is_gone_can_be_read():
    made = check(tables(algorithm={"name": "mine", "level": 0.5}), complete=True)
    assert (made.algorithm.name, made.settings) == ("mine", {"level": 0.5})
    assert type(made.algorithm) is AlgorithmSection  # and not one made of a row's signature
    assert check(json.loads(made.model_dump_json()), complete=True) == made
    with pytest.raises(
        ValueError, match=r"^algorithm\.name is 'mine', expected one of 'reinforce'"
    ):
        _ = made.row


@pytest.mark.parametrize("kind", [Recipe, Pretraining])
def test_the_record_of_a_run_whose_task_is_gone_can_be_read(kind):
    content = base_tables() if kind is Pretraining else tables()
    content["task"] = {"name": "mine", "level": 3}
    made = validate(kind, content, name="recipe", complete=True)
    assert made.task.settings == {"level": 3}
    assert validate(kind, json.loads(made.model_dump_json()), name="", complete=True) == made
    with pytest.raises(ValueError, match=r"^task\.name is 'mine', which is not known here$"):
        made.task.build()


# ---------------------------------------------------------------- keys that nothing would look at


def with_task(changes):
    """The smallest recipe with some changes; a task with a name replaces the one that is there."""
    content = tables(**changes)
    return {**content, "task": changes["task"]} if "task" in changes else content


TWO = {"optimiser": {"epochs": 2}}
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
        "kl.estimator is not used: in the reward only k1 has the right gradient",
    ),
    "an estimator in the advantage": (
        {"kl": {"beta": 0.1, "placement": "advantage", "estimator": "k3"}},
        "kl.estimator is not used: in the advantage only k1 has the right gradient",
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
    "a cap in the reward": (
        {"kl": {"beta": 0.1, "placement": "reward", "weight_cap": 3.0}},
        "kl.weight_cap is not used: with the KL in the reward nothing is weighted",
    ),
    "a cap on the ratio of a token": (
        {"kl": {"beta": 0.1, "placement": "surrogate", "weight": "token", "weight_cap": 3.0}},
        "kl.weight_cap is not used: kl.weight is 'token', which is not a product of ratios",
    ),
    "a cap on the ratio of the row": (
        {"kl": {"beta": 0.1, "placement": "advantage", "weight_cap": 3.0}},
        "kl.weight_cap is not used: kl.weight is 'row', which is not a product of ratios",
    ),
    "the KL of the surrogate made anew": (
        {"kl": {"beta": 0.1, "placement": "surrogate", "recomputed": True}, **TWO},
        "kl.recomputed is not used: with the KL in the surrogate it is that of the policy that "
        "learns in any case",
    ),
    "the KL of the loss made anew": (
        {"kl": {"beta": 0.1, "placement": "loss", "recomputed": True}, **TWO},
        "kl.recomputed is not used: with the KL in the loss it is that of the policy that "
        "learns in any case",
    ),
    "the KL of a single update made anew": (
        {"kl": {"beta": 0.1, "placement": "advantage", "recomputed": True}},
        "kl.recomputed is not used: with one update for each batch the policy that learns is the "
        "one that sampled",
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
    "an adapter that is taught before it learns": (
        {"model": {"lora_rank": 2}, "warm_start": {"steps": 5}},
        "warm_start.steps is 5, expected 0: with model.lora_rank the reference is the model "
        "without its adapter, as it was before the warm start",
    ),
    "an adapter and an engine of plain matrices": (
        {"model": {"lora_rank": 2}, "rollouts": {"engine": "packed"}},
        "rollouts.engine is 'packed', expected eager or static with model.lora_rank: a packed "
        "engine takes no adapter",
    ),
    "an adapter, or what is computed twice, and packed layers": (
        {"model": {"lora_rank": 2, "gradient_checkpointing": True, "forward": "packed"}},
        "model.forward is 'packed', expected 'transformers' with model.lora_rank: packed layers "
        "take no adapter\n"
        "model.forward is 'packed', expected 'transformers' with model.gradient_checkpointing: "
        "packed layers keep what they compute",
    ),
    "a critic and packed layers": (
        {"algorithm": {"name": "ppo"}, "model": {"forward": "packed-compiled"}},
        "model.forward is 'packed-compiled', expected 'transformers' with ppo: its critic asks the "
        "layers of transformers",
    ),
    "an adapter and a reward model": (
        {"model": {"lora_rank": 2}, "reward": {"source": "reward_model"}},
        "reward.source is 'reward_model', expected 'verifier': with model.lora_rank there is no "
        "copy of the model that could learn to judge",
    ),
    "a teacher who forgets to carry in a story": (
        {
            "task": {"name": "word-problems"},
            "model": {"vocabulary": 300},
            "warm_start": {"steps": 3, "careless_steps": 5},
        },
        "warm_start.careless_steps is not used: the task is word-problems, whose teacher makes no "
        "mistakes",
    ),
}


@pytest.mark.parametrize("placement", recipe_kl.PLACES)
def test_a_key_of_the_kl_has_a_meaning_or_a_reason_why_it_has_none(placement):
    """So that no table is refused, or read past, in silence."""
    place = recipe_kl.PLACES[placement]
    steering = {"controller", "target", "horizon"}
    known = set(place.model_fields) | steering
    assert known.isdisjoint(place.unused)
    if placement != "none":
        assert known | set(place.unused) == set(recipe_kl.KLSection.model_fields)


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
        {"optimiser": {"truncated_importance_floor": 0.5}},
    ],
    ids=[
        "careless_share without careless_steps",
        "target_kl, no ratio",
        "target_kl, one update",
        "floor without cap",
    ],
)
def test_more_keys_that_a_run_would_not_look_at(changes):
    """With one update for each batch the KL to the sampler is 0 whenever it is looked at."""
    assert "is not used" in refusal(tables(**changes))


def test_examples_and_a_system_message_are_read_checked_and_kept(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'extends = "gsm8k-qwen2.5-0.5b-grpo"\n[prompt]\nsystem = "You add."\n'
        '[[prompt.examples]]\nquestion = "1+1?"\nanswer = "#### 2"\n',
        encoding="utf-8",
    )
    made = load(file)
    assert made.prompt.said()["examples"] == [("1+1?", "#### 2")]
    kept = check(made.model_dump(mode="json"), complete=True)
    assert kept.prompt == made.prompt
    assert hash(kept) == hash(made)
    file.write_text('extends = "gsm8k-qwen2.5-0.5b-grpo"\n[[prompt.examples]]\nquestion = "?"\n')
    with pytest.raises(UserError, match=r"prompt.examples.0.answer is missing"):
        load(file)
    file.write_text(
        'extends = "gsm8k-qwen2.5-0.5b-grpo"\n[[prompt.examples]]\nquestion = "?"\nanswr = "2"\n'
    )
    with pytest.raises(UserError, match=r"answr is unknown; expected one of question, answer"):
        load(file)
    assert "prompt.system is not used: prompt.style is 'plain'" in refusal(
        tables(prompt={"system": "You add."})
    )


def test_rows_that_know_the_sampler_take_their_settings_and_several_updates():
    made = recipe("icepop", algorithm={"floor": 0.4, "outside": "truncate", "level": "sequence"})
    assert (made.settings["floor"], made.settings["cap"]) == (0.4, 5.0)
    assert recipe("dppo", optimiser={"epochs": 3}).optimiser.updates == 3
    assert "algorithm.level is 'word'" in refusal(
        tables(algorithm={"name": "icepop", "level": "word"})
    )


# ---------------------------------------------------------------- values that do not go together

IMPOSSIBLE = {
    "a weight beside a row's own": (
        {"algorithm": {"name": "icepop"}, "optimiser": {"truncated_importance_sampling": 2.0}},
        "optimiser.truncated_importance_sampling is 2.0, expected none: icepop compares with the "
        "policy that sampled itself, and a token would be weighed twice",
    ),
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
    "a witness of a scaled loss": (
        {"model": {"precision": "float16"}, "witness": {"every": 2}},
        "witness.every is 2, expected 0: with model.precision = 'float16' the loss is scaled and "
        "updates may be skipped, which a witness does not record",
    ),
    "a KL without a place": (
        {"algorithm": {"name": "dr-grpo"}, "kl": {"beta": 0.25}},
        "kl.beta is 0.25, but dr-grpo was published without a KL penalty: say kl.placement = "
        "'reward', 'advantage', 'loss' or 'surrogate'",
    ),
    "a KL in rewards that the row does not see": (
        {"algorithm": {"name": "grpo-process"}, "kl": {"beta": 0.1, "placement": "reward"}},
        "kl.placement is 'reward', but the advantages of grpo-process are made of the rewards of "
        "steps: say kl.placement = 'advantage', 'loss' or 'surrogate'",
    ),
    "a KL made anew in a reward that is not": (
        {"kl": {"beta": 0.1, "placement": "reward", "recomputed": True}, **TWO},
        "kl.recomputed is True, but a KL in the reward is in the advantages before the first "
        "update: say kl.placement = 'advantage'",
    ),
    "divergences that are differentiated alone": (
        {"kl": {"beta": 0.1, "placement": "loss", "estimator": "exact"}},
        "kl.estimator is 'exact', whose own derivative is a partial gradient: say kl.placement = "
        "'surrogate'",
    ),
    "the surrogate of a biased estimate": (
        {"kl": {"beta": 0.1, "placement": "surrogate", "estimator": "k2"}},
        "kl.estimator is 'k2', expected one of 'k1', 'k3', 'exact': the surrogate of a biased "
        "estimate is biased",
    ),
    "the ratio of the row in the surrogate": (
        {"kl": {"beta": 0.1, "placement": "surrogate", "weight": "row"}},
        "kl.weight is 'row', expected one of 'prefix', 'sequence', 'token': the surrogate of the "
        "KL does not pass through that of grpo",
    ),
    "divergences under another weight": (
        {
            "kl": {
                "beta": 0.1,
                "placement": "surrogate",
                "estimator": "exact",
                "weight": "sequence",
            }
        },
        "kl.weight is 'sequence', expected 'prefix': the divergence of a state is weighted by the "
        "tokens before it",
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
        "model.vocabulary is missing: a vocabulary for word-problems has to be learned",
    ),
    "sums with a vocabulary": (
        {"model": {"vocabulary": 300}},
        "model.vocabulary is 300, but arithmetic is read by characters",
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
        ("rloo", {"kl": {"beta": 0.1, "placement": "advantage", "weight": "sequence"}}),
        ("grpo", {"kl": {"beta": 0.1, "placement": "surrogate", "estimator": "exact"}}),
        ("grpo", {"kl": {"beta": 0.1, "placement": "surrogate", "weight_cap": 1.0}}),
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
    assert own.penalty == Penalty("surrogate", "k3", 0.2, "prefix", weight_cap=2.0)
    own = recipe(name, kl={"beta": 0.2, "placement": "surrogate", "weight": "token"})
    assert own.penalty == Penalty("surrogate", "k3", 0.2, "token")


def test_weights_that_are_products_have_a_cap_unless_the_recipe_says_otherwise():
    def cap(**kl):
        return recipe("grpo", kl={"beta": 0.2, **kl}).penalty.weight_cap

    for placement in ("advantage", "surrogate"):
        for weight in ("prefix", "sequence"):
            assert cap(placement=placement, weight=weight) == 2.0
            assert cap(placement=placement, weight=weight, weight_cap=5.0) == 5.0
        assert cap(placement=placement, weight="token") is None
    assert cap(placement="surrogate", estimator="exact") == 2.0
    assert cap(placement="advantage") is None


def test_the_penalty_in_the_advantage_is_frozen_and_the_rows_unless_the_recipe_says_otherwise():
    usual = recipe("grpo", kl={"beta": 0.2, "placement": "advantage"}).penalty
    assert (usual.weight, usual.recomputed) == (ROW, False)
    own = {"placement": "advantage", "weight": "prefix", "recomputed": True}
    made = recipe("grpo", kl={"beta": 0.2, **own}, optimiser={"epochs": 2}).penalty
    assert (made.weight, made.recomputed) == ("prefix", True)


def test_dynamic_sampling_is_the_algorithms_choice_unless_the_recipe_says_otherwise():
    assert recipe("dapo").dynamic_sampling
    assert not recipe("dapo", rollouts={"dynamic_sampling": False}).dynamic_sampling
    assert recipe("ppo", rollouts={"dynamic_sampling": True}).dynamic_sampling
    assert not recipe("ppo").dynamic_sampling


# ---------------------------------------------------------------- files and overrides


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_list_of_recipes_describes_each_in_whole_sentences(path):
    assert summary(path.stem).endswith(".")


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
        "task": {"name": "arithmetic", "operations": "+-"},
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
        ("steps=", "mine.toml: steps is '': expected a valid integer"),
        ("steps=many", "mine.toml: steps is 'many': expected a valid integer"),
        ("rollouts=3", "mine.toml: rollouts is 3: expected"),
        ("stpes=3", "mine.toml: stpes is unknown; expected one of steps"),
        ("rollouts.group=3", "mine.toml: rollouts.group is unknown; expected one of prompts"),
        ("rollouts.prompts.x=3", "--set rollouts.prompts.x=3: prompts is a value, not a table"),
        ("optimiser..epochs=3", "mine.toml: optimiser. is unknown; expected one of learning"),
        ("algorithm.eps=0.1", "mine.toml: algorithm.eps is not used: ppo has no such setting"),
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
    file.write_text('steps = -1\n[algorithm]\nname = "ppo"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"^mine\.toml: steps is -1: expected greater than"):
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


def test_settings_are_left_with_the_row_task_or_reward_that_they_belong_to(tmp_path):
    (tmp_path / "mine.py").write_text("def score(prompts):\n    return [0] * len(prompts)\n")
    (tmp_path / "lower.toml").write_text(
        'steps = 2\n[algorithm]\nname = "grpo"\nclip_high = 0.3\n[task]\ndigits = 1\n'
        "[reward]\nlenient = true\n[optimiser]\nwarm_up = 3\n"
    )
    (tmp_path / "upper.toml").write_text(
        'extends = "lower.toml"\nreward = "mine.py:score"\n[algorithm]\nname = "rloo"\n'
        '[task]\nname = "walk"\n'
    )
    made = load(tmp_path / "upper.toml")
    assert (made.settings, made.optimiser.warm_up) == ({}, 3)
    assert not made.reward.lenient
    (tmp_path / "same.toml").write_text(
        'extends = "lower.toml"\n[algorithm]\nname = "grpo"\nclip_low = 0.1\n[task]\n'
        'name = "arithmetic"\n[reward]\nsource = "verifier"\n'
    )
    same = load(tmp_path / "same.toml")
    assert (same.settings["clip_low"], same.settings["clip_high"]) == (0.1, 0.3)
    assert same.task.settings["digits"] == 1
    assert same.reward.lenient


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
    path = write(tmp_path, child='extends = "parent.toml"\nsteps = -1', parent=PARENT)
    with pytest.raises(ValueError, match=r"^child\.toml: steps is -1: expected greater"):
        load(path)


# ---------------------------------------------------------------- base models


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
    assert str(error.value) == "recipe: task is missing"


BASE_REFUSED = {
    "arithmetic": (
        {"task": {"name": "arithmetic"}, "model": {"vocabulary": None}},
        "task.name is 'arithmetic', which has no worked solutions to learn from",
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
        "model.vocabulary is missing: a vocabulary for word-problems has to be learned",
    ),
    "more steps at least than at most": (
        {"task": {"min_steps": 3, "max_steps": 2}},
        "task.min_steps is 3, expected at most max_steps = 2",
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
    "a share above 1": (
        {"gsm8k_share": 1.1},
        "gsm8k_share is 1.1: expected less than or equal to 1",
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
    assert refusal(base_tables(**changes), kind=Pretraining) == message
