"""What help says of a recipe's keys: their defaults, and the values that are really taken."""

import json
import re

import pytest
from pydantic import ValidationError

from nbcourse.training import recipe_keys
from nbcourse.training.recipe import Recipe, check

TABLES = recipe_keys.tables()
USUAL = check({"steps": 1, "algorithm": {"name": "grpo"}}).model_dump(mode="json")


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("[rollouts]", "`group_size` = 8 (a whole number of at least 1): responses to each prompt"),
        ("[rollouts]", "`temperature` = 1.0 (a number above 0)"),
        (
            "[critic]",
            "`clip` = not given (a number above 0): of a value's change; no clip if not given",
        ),
        ("[warm_start]", "`careless_share` = 0.9 (a number from 0 to 1): of the demonstrations"),
        ("[prompt]", '`style` = "plain" (one of "plain", "chat"): the question alone'),
        ("[prompt]", '`instruction` = "" (text): before a plain question'),
        ("[critic]", "`shared` = true (true or false): one backbone"),
        ("[supervised], base models", "`steps` = 0 (a whole number of at least 0)"),
        ("[evaluation], base models", "`max_new_tokens` = 256 (a whole number of at least 1)"),
    ],
)
def test_a_key_is_described(header, line):
    assert any(found.startswith(line) for found in TABLES[header].keys)


def test_settings_stand_by_the_name_of_their_algorithm_or_task():
    lines = recipe_keys.listing().splitlines()
    (grpo,) = (line for line in lines if line.startswith("- `grpo`: "))
    (reinforce,) = (line for line in lines if line.startswith("- `reinforce`: "))
    assert "clip_high" in grpo
    assert "; " in grpo
    assert "clip_high" not in reinforce
    assert sum(line.endswith(": none") for line in lines) < 5


def test_the_tables_are_those_of_a_recipe():
    fixed = {f"[{name}]" for name, table in USUAL.items() if isinstance(table, dict)}
    assert {name for name in TABLES if "," not in name} == fixed - {"[algorithm]", "[task]"}


@pytest.mark.parametrize("header", [name for name in TABLES if "," not in name])
def test_the_defaults_are_those_of_a_recipe(header):
    values = USUAL[header.strip("[]")]
    given = {key: "not given" if one is None else json.dumps(one) for key, one in values.items()}
    found = dict(re.match(r"`(\w+)` = (.+?) \(", line).groups() for line in TABLES[header].keys)
    assert found == given


LEAST = [
    (
        header.strip("[]"),
        *re.match(r"`(\w+)` = .*? \(a whole number of at least (\d+)", line).groups(),
    )
    for header in TABLES
    if "," not in header
    for line in TABLES[header].keys
    if "a whole number of at least" in line
]


@pytest.mark.parametrize(("table", "key", "least"), LEAST)
def test_the_least_is_taken_and_less_is_not(table, key, least):
    section = Recipe.model_fields[table].annotation
    section.model_validate({key: int(least)})
    with pytest.raises(ValidationError):
        section.model_validate({key: int(least) - 1})
