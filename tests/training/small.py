"""The smallest recipe that trains, and what several tests do with it."""

import torch

from nbcourse.training.engines.processes import Processes
from nbcourse.training.learner import Learner, build
from nbcourse.training.recipe import Recipe, check

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


def recipe(name: str = "grpo", **changes) -> Recipe:
    return check(tables(algorithm={"name": name, **changes.pop("algorithm", {})}, **changes))


def learner(recipe: Recipe) -> Learner:
    return build(recipe, ALONE)


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.trained()}
