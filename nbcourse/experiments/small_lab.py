"""The small lab: runs of a second in which a fault shows, or several, or none.

The benchmark of silent failures is made of them, the experiments of chapter 16, and the recorded
run that a student of the hunt gets.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.faults import planted
from nbcourse.diagnosis.recorder import Recorder
from nbcourse.diagnosis.witness import Witness
from nbcourse.training import loop
from nbcourse.training.learner import Learner, assemble
from nbcourse.training.models import reference_of
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe, check

ALONE = Processes(0, 1, torch.device("cpu"))
LOGS, ANSWERS, SCORE = "logs", "answers.json", "score.json"  # in the benchmark's folder
Tables = Mapping[str, Any]

# A model that adds single digits and half of the time forgets to carry: it learns not to, within
# twenty steps and a second of one core.
BASE: dict[str, Any] = {
    "steps": 20,
    "algorithm": {"name": "grpo"},
    "task": {"digits": 1},
    "model": {"layers": 1, "width": 32, "heads": 4},
    "warm_start": {"steps": 120, "careless_steps": 25, "batch_size": 64},
    "rollouts": {"prompts": 8, "group_size": 4, "max_new_tokens": 5},
    "optimiser": {"learning_rate": 1e-3},
    "evaluation": {"every": 1, "problems": 16},  # so that every line has the KL to the reference
    "witness": {"every": 20},
}


def recipe_of(changes: Tables, seed: int) -> Recipe:
    """The small recipe with some tables changed."""
    tables: dict[str, Any] = copy.deepcopy(BASE)
    for section, table in changes.items():
        if isinstance(table, Mapping):
            table = {**({} if "name" in table else tables.get(section, {})), **table}
        tables[section] = table
    if tables["warm_start"]["steps"] == 0:
        tables["warm_start"] = {"steps": 0}
    return check({**tables, "seed": seed})


def learner_of(recipe: Recipe) -> Learner:
    """A learner as the recipe starts it; the warm start is made once for all that share it."""
    key = (recipe.seed, *(str(part) for part in (recipe.task, recipe.model, recipe.warm_start)))
    if key not in _STARTS:
        _STARTS[key] = build(recipe, ALONE)
    start = _STARTS[key]
    policy = copy.deepcopy(start.policy)
    return assemble(recipe, start.tokenizer, policy, reference_of(policy))


_STARTS: dict[tuple[Any, ...], Learner] = {}


def train(recipe: Recipe, name: str, *, faults: Sequence[str] = ()) -> Evidence:
    """The curves and witnesses of a run, with faults or without."""
    torch.manual_seed(recipe.seed)  # for a fault that draws without a generator
    learner = learner_of(recipe)
    witnesses: list[Witness] = []
    learner.watch = Recorder(recipe.witness.every, recipe.witness.tokens, witnesses.append)
    with planted(*faults):
        history = list(loop.steps(learner, loop.begin(recipe), ALONE))
    kept = [{key: value for key, value in row.items() if "second" not in key} for row in history]
    return Evidence(name, witnesses, kept)
