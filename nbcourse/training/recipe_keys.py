"""What a recipe may say: its tables and their keys, read from what checks them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from annotated_types import Interval

from nbcourse.functional.arguments import in_words
from nbcourse.rows import settings_of
from nbcourse.tasks.table import TASKS
from nbcourse.training.algorithms import ALGORITHMS
from nbcourse.training.named_sections import NamedSection
from nbcourse.training.recipe import Pretraining, Recipe, RunSection
from nbcourse.training.recipe_sections import Section

FIRST = (
    "**Keys before all tables**: `steps`, which every recipe but a base model's has to give; "
    "`seed` = 0; `code`, a Python file with rows and tasks of your own; `extends`, the recipe that "
    'this one changes; `reward = "mine.py:score"`, short for `reward.source`; for base models, '
    "`gsm8k_share` = 0.0, the share of GSM8K's training "
    "problems among the examples."
)


class Table(NamedTuple):
    """A table whose keys are always the same.

    Attributes:
        about: what it is about, a sentence.
        keys: a line for each: its default, the values that it takes, what it means.
    """

    about: str
    keys: tuple[str, ...]


def listing() -> str:
    """Everything that a recipe may say, in Markdown, with the settings of all rows and tasks."""
    algorithms = {name: row.known_settings for name, row in ALGORITHMS.items()}
    tasks = {name: settings_of(task) for name, task in TASKS.items()}
    parts = [FIRST]
    for key, table in (("algorithm", algorithms), ("task", tasks)):
        rows = [f"`{name}`: {_listed(settings)}" for name, settings in table.items()]
        parts.append(_list(f"**Settings of `[{key}]`**, by its `name`:", rows))
    for header, found in tables().items():
        parts.append(_list(f"**Keys of `{header}`**: {found.about}", found.keys))
    return "\n\n".join(parts)


def _list(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, "", *(f"- {line}" for line in lines)])


def _listed(settings: Mapping[str, object]) -> str:
    return "; ".join(map(str, settings.values())) or "none"


def tables() -> dict[str, Table]:
    """Header → table: those of recipes, then those that only the recipe of a base model has."""
    usual, base = _tables_of(Recipe), _tables_of(Pretraining)
    headers = {f"[{name}]": table for name, table in usual.items()}
    for name, table in base.items():
        if table != usual.get(name):
            headers[f"[{name}], base models"] = table
    return headers


def _tables_of(recipe: type[RunSection]) -> dict[str, Table]:
    found = {}
    for name, field in recipe.model_fields.items():
        kind = field.annotation
        named = isinstance(kind, type) and issubclass(kind, NamedSection)
        if isinstance(kind, type) and issubclass(kind, Section) and not named:
            schema = kind.model_json_schema()
            keys = tuple(_line(key, one) for key, one in schema["properties"].items())
            found[name] = Table(schema["description"], keys)
    return found


def _line(key: str, schema: Mapping[str, Any]) -> str:
    kind = next((one for one in schema.get("anyOf", ()) if one["type"] != "null"), schema)
    default = schema["default"]
    given = "not given" if default is None else json.dumps(default)
    line = f"`{key}` = {given} ({_values(kind)})"
    return f"{line}: {schema['description']}" if "description" in schema else line


def _values(kind: Mapping[str, Any]) -> str:
    """The values that a key takes, in words."""
    if "enum" in kind:
        return "one of " + ", ".join(map(json.dumps, kind["enum"]))
    words = {"boolean": "true or false", "string": "text", "array": "tables"}
    if kind["type"] in words:
        return words[kind["type"]]
    bounds = Interval(
        gt=kind.get("exclusiveMinimum"), ge=kind.get("minimum"), le=kind.get("maximum")
    )
    number = in_words(bounds)
    return number.replace("a number", "a whole number") if kind["type"] == "integer" else number
