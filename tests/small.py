"""The smallest recipe that trains, and what several tests do with it."""

import json
from pathlib import Path

import torch

from nbcourse.training import preparation
from nbcourse.training.learner import Learner
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Pretraining, Recipe, check, validate

ALONE = Processes(0, 1, torch.device("cpu"))

TABLES = {
    "steps": 2,
    "algorithm": {"name": "grpo"},
    "task": {"digits": 1},
    "model": {"layers": 1, "width": 32, "heads": 4},
    "rollouts": {"prompts": 6, "group_size": 4, "max_new_tokens": 4},
    "evaluation": {"problems": 8},
}


def tables(**changes):
    """The smallest recipe; what is given for a section is merged into it."""
    merged = {
        key: dict(table) if isinstance(table, dict) else table for key, table in TABLES.items()
    }
    for key, value in changes.items():
        there = merged.get(key, {})
        both = isinstance(value, dict) and isinstance(there, dict)
        merged[key] = {**there, **value} if both else value
    return merged


BASE = {
    "pretraining": {"steps": 3, "batch_size": 6, "at_once": 4, "learning_rate": 1e-3},
    "supervised": {"steps": 4, "batch_size": 5, "at_once": 2, "learning_rate": 1e-3},
    "task": {"name": "word-problems", "max_steps": 2, "distractors": 0.0},
    "model": {"layers": 1, "width": 32, "heads": 4, "vocabulary": 300},
    "evaluation": {"every": 2, "problems": 3, "max_new_tokens": 4},
    "checkpoint": {"every": 2},
}


def base_tables(**changes):
    """The smallest recipe of a base model, with changes merged into it; None takes a key out."""
    merged = {key: {**BASE.get(key, {}), **changes.get(key, {})} for key in BASE}
    sections = {
        section: {key: value for key, value in table.items() if value is not None}
        for section, table in merged.items()
    }
    return {**sections, **{key: value for key, value in changes.items() if key not in BASE}}


def write_toml(path: Path, tables: dict[str, dict[str, object]]) -> None:
    """A recipe's file, of sections alone."""
    text = "\n".join(
        f"[{section}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items())
        for section, table in tables.items()
    )
    path.write_text(text, encoding="utf-8")


def base_recipe(**changes) -> Pretraining:
    return validate(Pretraining, base_tables(**changes), name="recipe")


def recipe(name: str = "grpo", **changes) -> Recipe:
    return check(tables(algorithm={"name": name, **changes.pop("algorithm", {})}, **changes))


def learner(recipe: Recipe) -> Learner:
    """Made as a run makes it."""
    return preparation.build(recipe, ALONE)


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.trained()}


def without_costs(rows):
    """The numbers of some steps that two runs share: all but time and memory."""
    costs = ("seconds_", "memory_", "tokens_per_second")
    return [{k: v for k, v in row.items() if not k.startswith(costs)} for row in rows]
