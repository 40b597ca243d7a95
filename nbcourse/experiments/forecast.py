"""How long a run will take, from how long another one took on this machine.

A roofline is what no step can beat, and nothing says in advance how far a machine stays behind it,
how long the responses will be, or how many groups will teach nothing. An earlier run knows all
three; a run of two steps is one. What is predicted is kept beside a run before its first step, so
that both can be compared when it is over.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from nbcourse.budget import machines
from nbcourse.budget.machines import Machine
from nbcourse.budget.prediction import Plan, predict, prompt_tokens
from nbcourse.budget.shapes import Shape, shape_of
from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.training.clock import resident
from nbcourse.training.experience import ROUNDS
from nbcourse.training.loop import leaves_out_flat_groups
from nbcourse.training.recipe import Recipe

PHASES = {
    "sample": ("read prompts", "draw tokens", "draw greedily"),
    "consult": ("ask reference", "ask critic"),
    "learn": ("learn", "update weights"),
    "evaluate": ("evaluate",),
}
"""The phases of a step, as the loop's clock calls them, and the parts of a prediction in each."""


class Conditions(NamedTuple):
    """What decides how much a step has to do, and what no recipe says.

    Attributes:
        response_tokens: mean length of the responses.
        no_spread: share of the groups whose responses all earn the same.
        batches: that dynamic sampling draws, until one is full of other groups.
    """

    response_tokens: float
    no_spread: float
    batches: float


@dataclass(frozen=True)
class EarlierRun:
    """What a run tells about the next one on the same machine.

    Attributes:
        conditions: means over its steps.
        slowdown: measured seconds over the roofline of the same work, by phase.
    """

    conditions: Conditions
    slowdown: Mapping[str, float]


class Seconds(NamedTuple):
    """Seconds of a phase of a step.

    Attributes:
        least: the roofline, if each response is one token and no group teaches anything.
        expected: as the earlier run went.
        most: at the earlier run's speed, if all responses reach the limit and all groups teach.
    """

    least: float
    expected: float
    most: float


def earlier_run(folder: str | Path, machine: Machine) -> EarlierRun:
    """What a finished or interrupted run tells.

    Args:
        folder: of the run.
        machine: on which it was made; `check_made_here` says whether it is this one.

    Raises:
        FileNotFoundError: if there is no run in the folder, or its model's shape is not to be had.
        ValueError: if it made no step, or another engine made it.
    """
    folder = Path(folder)
    recipe, steps = records.read_recipe(folder), records.read_metrics(folder)
    if (own := folder / records.MODEL).is_dir():  # what it started from may be gone
        settings = recipe.model.model_copy(update={"source": str(own)})
        recipe = recipe.model_copy(update={"model": settings})
    if not steps:
        raise UserError(f"{folder} has no step yet: expected a run of at least one")
    told = records.read_json(folder / records.ENVIRONMENT)
    if "engine" in told or "seconds_sample" not in steps[0]:
        raise UserError(
            f"{folder} is of another engine, which has a speed of its own: expected a run of this "
            "package's own"
        )
    drawn = [batches(step["no_spread"]) for step in steps]
    if recipe.dynamic_sampling:  # then the run knows
        drawn = [step["responses"] / recipe.rollouts.responses for step in steps]
    conditions = Conditions(
        fmean(step["length"] for step in steps),
        fmean(step["no_spread"] for step in steps),
        fmean(drawn),
    )
    prompt, _ = prompt_tokens(recipe)
    whole = recipe.evaluation.model_copy(update={"every": 1})  # a step that leaves nothing out
    recipe = recipe.model_copy(update={"evaluation": whole})
    fastest = rooflines(recipe, shape_of(recipe), machine, conditions, prompt=prompt)
    measured = {phase: _seconds(steps, phase) for phase in PHASES}
    return EarlierRun(
        conditions,
        {
            phase: seconds / fastest[phase]
            for phase, seconds in measured.items()
            if seconds is not None and fastest[phase]
        },
    )


def check_made_here(folder: str | Path) -> None:
    """Require that a run was made with this machine's hardware, threads and processes.

    Raises:
        ValueError: if it was not: then its speed says nothing about a run here and now.
    """
    then = records.read_json(Path(folder) / records.ENVIRONMENT)
    now = records.environment(1)
    for key in ("hardware", "threads", "processes"):
        if then[key] != now[key]:
            raise UserError(
                f"{folder} was made with {key} = {then[key]!r}, but here it is {now[key]!r}: "
                "its speed says nothing about a run here and now"
            )


def _seconds(steps: list[dict[str, float]], phase: str) -> float | None:
    """Of a step in which the phase leaves nothing out; None if there was none.

    The median, since a first step or a busy minute is no rule; evaluations are rare, and their mean
    is taken. Not every step asks the reference: its KL is in the log of those that do.
    """
    complete = [step for step in steps if phase != "consult" or "kl_ref" in step]
    found = [step[key] for step in complete if (key := f"seconds_{phase}") in step]
    if not found:
        return None
    return fmean(found) if phase == "evaluate" else median(found)


def forecast(plan: Plan, machine: Machine, earlier: EarlierRun) -> dict[str, Seconds]:
    """Seconds of each phase of a step of a run.

    A phase that the earlier run did not have takes the slowdown of its slowest phase.

    Args:
        plan: of the run to come.
        machine: on which, the one of `earlier_run`.
        earlier: see `earlier_run`.

    Book: chapter 15, "Before you press enter".
    """
    limit = plan.recipe.rollouts.max_new_tokens
    usual = earlier.conditions
    length = min(usual.response_tokens, limit)
    least, expected, most = (
        rooflines(plan.recipe, plan.shape, machine, conditions, prompt=plan.prompt_tokens)
        for conditions in (
            Conditions(1, no_spread=1, batches=1),
            usual._replace(response_tokens=length),
            Conditions(limit, no_spread=0, batches=batches(1)),
        )
    )
    worst = max(earlier.slowdown.values())
    slowdown = {phase: earlier.slowdown.get(phase, worst) for phase in PHASES}
    return {
        phase: Seconds(
            least[phase], slowdown[phase] * expected[phase], slowdown[phase] * most[phase]
        )
        for phase in PHASES
    }


def plan_of(recipe: Recipe, shape: Shape, like: Path | None) -> dict[str, Any]:
    """What is predicted of a run on this machine, for `plan.json`.

    Args:
        recipe: of the run.
        shape: of its model.
        like: an earlier run on this machine; without one nothing says what to expect of time.

    Returns:
        The machine, and for each phase of a step the bytes that it needs if all responses reach the
        limit, beside those of the process itself, and its `Seconds`, of which without an earlier
        run only `least` is known.

    Raises:
        FileNotFoundError, ValueError: of `earlier_run` and `check_made_here`.
    """
    machine = _this_machine(recipe.model.precision)
    prompt, _ = prompt_tokens(recipe)
    found = predict(recipe, shape, machine, prompt_tokens=prompt)
    if like is None:
        shortest = Conditions(1, no_spread=1, batches=1)
        least = rooflines(recipe, shape, machine, shortest, prompt=prompt)
        seconds = {phase: {"least": least[phase]} for phase in PHASES}
    else:
        check_made_here(like)
        predicted = forecast(found.plan, machine, earlier_run(like, machine))
        seconds = {phase: predicted[phase]._asdict() for phase in PHASES}
    own = resident()
    return {
        "machine": asdict(machine),
        "like": None if like is None else str(like),
        "phases": {
            phase: {"memory": own + found.peaks[phase], "seconds": seconds[phase]}
            for phase in PHASES
        },
    }


@cache
def _this_machine(precision: str) -> Machine:
    return machines.measure(precisions=[precision])


def rooflines(
    recipe: Recipe, shape: Shape, machine: Machine, conditions: Conditions, *, prompt: int
) -> dict[str, float]:
    """Seconds that each phase of a step takes at least under these conditions.

    A group whose responses all earn the same is not learned from, where the loop leaves it out.
    With dynamic sampling, further batches of prompts are sampled until there are enough others.

    Args:
        recipe: of the run.
        shape: of its model.
        machine: on which.
        conditions: lengths and groups.
        prompt: tokens of the longest prompt.
    """
    length = max(1, round(conditions.response_tokens))
    seconds = predict(recipe, shape, machine, prompt_tokens=prompt, response_tokens=length).seconds
    factors: dict[str, float] = {}
    if recipe.dynamic_sampling:
        factors = dict.fromkeys(PHASES["sample"], conditions.batches)
    elif recipe.row.needs("group_size") and leaves_out_flat_groups(recipe, recipe.penalty):
        factors = {"learn": 1 - conditions.no_spread}
    return {
        phase: sum(factors.get(part, 1.0) * seconds.get(part, 0.0) for part in parts)
        for phase, parts in PHASES.items()
    }


def batches(no_spread: float) -> float:
    """Batches of prompts that hold a batch of groups with spread, where this share is without.

    If no group has any, the loop draws one more than it tries, and takes it as it is.
    """
    if no_spread == 1:
        return ROUNDS + 1
    return min(math.ceil(round(1 / (1 - no_spread), 6)), ROUNDS)
