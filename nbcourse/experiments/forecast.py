"""How long a run will take, from how long another one took on this machine.

A roofline is what no step can beat, and nothing says in advance how far a machine stays behind it,
how long the responses will be, or how many groups will teach nothing. An earlier run knows all
three; a run of two steps is one. Without one, an `Outlook` says what the rooflines are for lengths
that are given or assumed. What is predicted is kept beside a run before its first step, so that
both can be compared when it is over.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from nbcourse.budget import machines, supervised
from nbcourse.budget.machines import Machine, roofline
from nbcourse.budget.memory import checkpoint_bytes
from nbcourse.budget.plan import Plan
from nbcourse.budget.prediction import Prediction, predict
from nbcourse.budget.prompts import Prompts, prompts_of
from nbcourse.budget.shapes import Shape, shape_of
from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.training.clock import resident
from nbcourse.training.experience import ROUNDS
from nbcourse.training.held_out import AT_ONCE
from nbcourse.training.recipe import Pretraining, Recipe
from nbcourse.training.update import leaves_out_flat_groups

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


SHORTEST = Conditions(1, no_spread=1, batches=1)
"""The least that a step can have to do."""


@dataclass(frozen=True)
class EarlierRun:
    """What a run tells about the next one on the same machine.

    Attributes:
        conditions: means over its steps.
        slowdown: measured seconds over the roofline of the same work, by phase.
    """

    conditions: Conditions
    slowdown: Mapping[str, float]


class Recorded(NamedTuple):
    """How fast a recorded run was on a card of the datasheets that it had to itself.

    Attributes:
        run: its folder in `book/runs`, from which `earlier_run` gives the rest.
        engine, precision: of the recipe.
        prompt: tokens of its longest prompt.
        slowdown: measured seconds over the datasheet's roofline, by phase.
    """

    run: str
    engine: str
    precision: str
    prompt: int
    slowdown: Mapping[str, float]


RECORDED = {
    "H200": Recorded(
        "gsm8k-qwen2.5-coder-0.5b-h200",
        "static-graphs",
        "bfloat16",
        206,
        {"sample": 15.2, "consult": 9.21, "learn": 7.89, "evaluate": 14.6},
    )
}
"""Of no other card of the datasheets is there a run that had it to itself."""


class Seconds(NamedTuple):
    """Seconds of a phase of a step, or of another part of a run.

    Attributes:
        least: the roofline, if each response is one token, each prompt as short as the shortest,
            and no group teaches anything.
        expected: as the earlier run went.
        most: at the earlier run's speed, if all responses reach the limit and all groups teach.
    """

    least: float
    expected: float
    most: float


class Part(NamedTuple):
    """A part of a run: what it is called, how often it comes, and what it takes each time."""

    name: str
    times: int
    seconds: Seconds


@dataclass(frozen=True)
class Outlook:
    """What is known of a run before it.

    Attributes:
        conditions: what it is assumed to meet; None for a base model, whose texts are there.
        slowdown: measured seconds over the roofline, by phase; empty without an earlier run, and
            then all seconds are rooflines.
        memory: bytes by phase and owner, at most.
        parts: what it consists of.
        checkpoint: bytes of each.
        left_out: what cannot be planned, and why, in words; empty if nothing is left out.
    """

    conditions: Conditions | None
    slowdown: Mapping[str, float]
    memory: Mapping[str, Mapping[str, int]]
    parts: Sequence[Part]
    checkpoint: int
    left_out: str = ""

    @property
    def peaks(self) -> dict[str, int]:
        """Bytes needed by each phase."""
        return {phase: sum(owners.values()) for phase, owners in self.memory.items()}

    @property
    def total(self) -> Seconds:
        """Seconds of the whole run."""
        columns = ([part.times * x for x in part.seconds] for part in self.parts)
        return Seconds(*map(sum, zip(*columns, strict=True)))


def earlier_run(
    folder: str | Path,
    machine: Machine,
    *,
    shape: Shape | None = None,
    prompt: int | None = None,
) -> EarlierRun:
    """What a finished or interrupted run tells.

    Args:
        folder: of the run.
        machine: on which it was made; `check_made_here` says whether it is this one.
        shape: of its model; asked of the model if not given.
        prompt: tokens of its longest prompt; asked of tokenizer and task if not given.

    Raises:
        FileNotFoundError: if there is no run in the folder, or its model's shape is not to be had.
        ValueError: if it made no step, or another engine made it.
    """
    folder = Path(folder)
    recipe, steps = records.read_any_recipe(folder), records.read_metrics(folder)
    if not isinstance(recipe, Recipe):
        raise UserError(
            f"{folder} made a base model: expected a run of reinforcement learning, whose lengths "
            "and groups can be expected again"
        )
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
    prompt, shape = prompt or prompts_of(recipe).longest, shape or shape_of(recipe)
    whole = recipe.evaluation.model_copy(update={"every": 1})  # a step that leaves nothing out
    recipe = recipe.model_copy(update={"evaluation": whole})
    fastest = rooflines(recipe, shape, machine, conditions, prompt=prompt)
    measured = {phase: _seconds(steps, phase) for phase in PHASES}
    return EarlierRun(
        conditions,
        {
            phase: seconds / fastest[phase]
            for phase, seconds in measured.items()
            if seconds is not None and fastest[phase]
        },
    )


def held_over_plan(folder: str | Path) -> dict[str, float]:
    """Bytes that a run held over those planned for it, by phase; empty if it kept no plan.

    On a CPU a process holds more than its tensors: the C library keeps freed blocks that lie
    between others.

    Args:
        folder: of the run.
    """
    folder = Path(folder)
    if not (folder / records.PLAN).is_file():
        return {}
    plan, steps = records.read_json(folder / records.PLAN)["phases"], records.read_metrics(folder)
    held = {phase: max(step.get(f"memory_{phase}", 0) for step in steps) for phase in plan}
    return {phase: held[phase] / plan[phase]["memory"] for phase in plan if held[phase]}


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


def forecast(
    plan: Plan, machine: Machine, earlier: EarlierRun, *, shortest_prompt: int = 1
) -> dict[str, Seconds]:
    """Seconds of each phase of a step of a run.

    A phase that the earlier run did not have takes the slowdown of its slowest phase.

    Args:
        plan: of the run to come.
        machine: on which, the one of `earlier_run`.
        earlier: see `earlier_run`.
        shortest_prompt: tokens, for what it takes at least.

    Book: appendix L, "Predicted and measured".
    """
    limit = plan.recipe.rollouts.max_new_tokens
    usual = earlier.conditions
    length = min(usual.response_tokens, limit)
    longest = plan.prompt_tokens
    fastest = [
        rooflines(plan.recipe, plan.shape, machine, conditions, prompt=prompt)
        for prompt, conditions in (
            (shortest_prompt, SHORTEST),
            (longest, usual._replace(response_tokens=length)),
            (longest, Conditions(limit, no_spread=0, batches=batches(1))),
        )
    ]
    return {
        phase: _as_before(earlier.slowdown, phase, [seconds[phase] for seconds in fastest])
        for phase in PHASES
    }


def _as_before(slowdown: Mapping[str, float], phase: str, fastest: Iterable[float]) -> Seconds:
    """Of rooflines of the least, the usual and the most work: the last two at an earlier speed.

    A phase takes as many rooflines as it took then, or as the slowest phase; 1 if none is known.
    """
    least, usual, most = fastest
    times = slowdown.get(phase, max(slowdown.values(), default=1.0))
    return Seconds(least, times * usual, times * most)


def outlook(
    recipe: Recipe,
    shape: Shape,
    machine: Machine,
    earlier: EarlierRun,
    prompts: Prompts,
    warm_start: Sequence[supervised.Stage] | None,
) -> Outlook:
    """What is known of a run of reinforcement learning before it, its warm start included.

    Args:
        recipe: of the run.
        shape: of its model.
        machine: on which.
        earlier: what to expect; without slowdowns all seconds are rooflines.
        prompts: lengths of its prompts.
        warm_start: its stages; None where its texts are not to be had, and it is left out.
    """
    found = predict(recipe, shape, machine, prompt_tokens=prompts.longest)
    phases = forecast(found.plan, machine, earlier, shortest_prompt=prompts.shortest)
    stages, left_out = warm_start or [], ""
    if warm_start is None:
        left_out = "the warm start: the tokenizer was not downloaded yet"
    once, asked = recipe.steps / evaluations(recipe), evaluations(recipe) + 2
    evaluate = Seconds(*(once * x for x in phases.pop("evaluate")))
    return Outlook(
        earlier.conditions,
        earlier.slowdown,
        {stage.name: stage.memory(shape, card=machine.card) for stage in stages}
        | dict(found.memory),
        [
            *(_part(stage, shape, machine, earlier.slowdown) for stage in stages),
            *(Part(phase, recipe.steps, seconds) for phase, seconds in phases.items()),
            Part("evaluate", asked, evaluate),  # before the first step and after the last, too
        ],
        checkpoint_bytes(found.plan),
        left_out,
    )


def earlier_base_run(folder: str | Path, machine: Machine) -> dict[str, float]:
    """Measured seconds over the roofline, by part, of the making of another base model.

    Raises:
        FileNotFoundError: if there is no run in the folder, or its model's shape is not to be had.
        ValueError: if it made no step, or no base model, or another machine than this one made it.
        OSError: if its tokenizer or its texts are not to be had.
    """
    check_made_here(folder)
    recipe, steps = records.read_any_recipe(folder), records.read_metrics(folder)
    if not isinstance(recipe, Pretraining):
        raise UserError(f"{folder} made no base model: expected a run that made one")
    if not steps:
        raise UserError(f"{folder} has no step yet: expected a run of at least one")
    shape, prompts, stages = shape_of(recipe), prompts_of(recipe), supervised.stages_of(recipe)
    parts = outlook_of_base(recipe, shape, machine, prompts, stages, {}).parts
    expected = {part.name: part.seconds.expected for part in parts}
    taken = {
        name: [step["seconds_learn"] for step in steps if step["stage"] == number]
        for number, name in enumerate(("pretraining", "supervised"))
    }
    taken["evaluate"] = [step["seconds_evaluate"] for step in steps if "seconds_evaluate" in step]
    return {name: median(found) / expected[name] for name, found in taken.items() if found}


def outlook_of_base(
    recipe: Pretraining,
    shape: Shape,
    machine: Machine,
    prompts: Prompts,
    stages: Sequence[supervised.Stage],
    slowdown: Mapping[str, float],
) -> Outlook:
    """What is known of the making of a base model before it.

    Nothing is assumed about lengths but that answers to held-out problems will be as long as the
    solutions are, where the model learned from solutions.

    Args:
        recipe: of the run.
        shape: of its model.
        machine: on which.
        prompts: lengths of its prompts.
        stages: of the run.
        slowdown: of `earlier_base_run`; empty, and all seconds are rooflines.
    """
    limit, last = recipe.evaluation.max_new_tokens, stages[-1]
    usual = limit if last.name == "pretraining" else min(limit, last.texts.usual.response)
    stand_in = supervised.stand_in_for(
        recipe.model,
        recipe.steps,
        rollouts={"prompts": AT_ONCE, "group_size": 1, "max_new_tokens": limit},
        evaluation=recipe.evaluation.model_dump(exclude={"max_new_tokens"}),
    )
    once = recipe.steps / evaluations(recipe)

    def asking(prompt: int, length: int) -> Prediction:
        return predict(stand_in, shape, machine, prompt_tokens=prompt, response_tokens=length)

    asked = ((prompts.shortest, 1), (prompts.longest, usual), (prompts.longest, limit))
    fastest = [once * asking(*lengths).seconds["evaluate"] for lengths in asked]
    owners = dict(asking(prompts.longest, limit).memory["evaluate"])
    owners.pop("reference", None)
    return Outlook(
        None,
        slowdown,
        {stage.name: stage.memory(shape, card=machine.card) for stage in stages}
        | {"evaluate": owners},
        [
            *(_part(stage, shape, machine, slowdown) for stage in stages),
            Part(
                "evaluate",
                evaluations(recipe) + 2,  # before the first step and after the last, too
                _as_before(slowdown, "evaluate", fastest),
            ),
        ],
        checkpoint_bytes(Plan(stand_in, shape, prompts.longest)),
    )


def evaluations(recipe: Recipe | Pretraining) -> int:
    """How often the held-out problems are asked on the way."""
    return math.ceil(max(1, recipe.steps) / recipe.evaluation.every)


def _part(
    stage: supervised.Stage, shape: Shape, machine: Machine, slowdown: Mapping[str, float]
) -> Part:
    precision, texts = stage.model.precision, stage.texts
    fastest = [
        sum(roofline(*work, machine, precision) for work in stage.work(shape, lengths).values())
        for lengths in (texts.shortest, texts.usual, texts.longest)
    ]
    same = stage.name if stage.name in slowdown else "learn"  # which a warm start resembles most
    return Part(stage.name, stage.steps, _as_before(slowdown, same, fastest))


def expected_of(
    recipe: Recipe | Pretraining,
    shape: Shape,
    prompts: Prompts,
    machine: Machine,
    like: Path | None = None,
    *,
    lengths: float | None = None,
    flat: float | None = None,
) -> Callable[[Machine], Outlook]:
    """For any machine, what is known of a run on it before it begins.

    Args:
        recipe: of the run.
        shape: of its model.
        prompts: lengths of its prompts.
        machine: this one, on which the earlier run was made.
        like: an earlier run on this machine, whose lengths, groups and speed are expected again.
        lengths: tokens of a response, the mean, in place of the earlier run's; without either,
            half the limit.
        flat: share of the groups without spread, in place of the earlier run's; without either,
            none.

    Returns:
        A function of the machine. The earlier run's speed counts on this one, and on a card of the
        datasheets that of a recorded run; elsewhere all seconds are rooflines.

    Raises:
        ValueError: if a number is out of range, or does not concern a base model.
        FileNotFoundError, ValueError: of `earlier_run` and `check_made_here`.
        OSError: of `supervised.stages_of`.
    """
    if isinstance(recipe, Pretraining):
        if lengths is not None or flat is not None:
            raise UserError(
                "--lengths and --flat are for reinforcement learning: the texts that a base model "
                "learns from are there, and their lengths are counted"
            )
        slowdown = {} if like is None else earlier_base_run(like, machine)
        stages = supervised.stages_of(recipe)
        return lambda other: outlook_of_base(
            recipe, shape, other, prompts, stages, slowdown if other is machine else {}
        )
    here = _expected(recipe, machine, like, lengths, flat)
    try:
        warm_start = supervised.warm_start_of(recipe)
    except OSError:
        warm_start = None

    def elsewhere(other: Machine) -> EarlierRun:
        there = recorded_speed(other, recipe)
        return EarlierRun(here.conditions, {} if there is None else there.slowdown)

    return lambda other: outlook(
        recipe, shape, other, here if other is machine else elsewhere(other), prompts, warm_start
    )


def recorded_speed(machine: Machine, recipe: Recipe) -> Recorded | None:
    """The recorded run that tells how fast this recipe's engine is on a card of the datasheets."""
    found = RECORDED.get(machine.name)
    settings = recipe.rollouts.engine, recipe.model.precision
    return found if found is not None and settings == (found.engine, found.precision) else None


def _expected(
    recipe: Recipe,
    machine: Machine,
    like: Path | None,
    lengths: float | None = None,
    flat: float | None = None,
) -> EarlierRun:
    """An earlier run, or what stands for it, with the lengths and groups that are told."""
    limit = recipe.rollouts.max_new_tokens
    if lengths is not None and not 1 <= lengths <= limit:
        raise UserError(
            f"--lengths is {lengths:g}, expected 1 to rollouts.max_new_tokens = {limit}"
        )
    if flat is not None and not 0 <= flat <= 1:
        raise UserError(f"--flat is {flat:g}, expected a share from 0 to 1")
    earlier = EarlierRun(Conditions((limit + 1) / 2, no_spread=0.0, batches=1), {})
    if like is not None:
        check_made_here(like)
        earlier = earlier_run(like, machine)
    conditions = earlier.conditions
    if lengths is not None:
        conditions = conditions._replace(response_tokens=lengths)
    if flat is not None:
        conditions = conditions._replace(no_spread=flat, batches=batches(flat))
    return EarlierRun(conditions, earlier.slowdown)


def plan_of(recipe: Recipe | Pretraining, like: Path | None) -> dict[str, Any]:
    """What is predicted of a run on this machine, for `plan.json`.

    Args:
        recipe: of the run.
        like: an earlier run of its kind on this machine; without one nothing says what to expect of
            time.

    Returns:
        The machine, and for each phase of a step (of a base model, for each stage and for its
        evaluations) the bytes that it needs if all responses reach the limit, beside those of the
        process itself, and its `Seconds`, of which without an earlier run only `least` is known.
        Like an earlier run that kept a plan, also the bytes that the process is expected to hold:
        as many times those needed as it held then.

    Raises:
        FileNotFoundError, ValueError: of `earlier_run`, `check_made_here` and `shape_of`.
        OSError: of `shape_of` and `supervised.stages_of`.
    """
    machine, shape, prompts = machines.this_machine(), shape_of(recipe), prompts_of(recipe)
    over: Mapping[str, float] = {}
    if isinstance(recipe, Pretraining):
        whole = expected_of(recipe, shape, prompts, machine, like)(machine)
        peaks, seconds = whole.peaks, {part.name: part.seconds for part in whole.parts}
    else:
        earlier = _expected(recipe, machine, like)
        found = predict(recipe, shape, machine, prompt_tokens=prompts.longest)
        peaks = found.peaks
        seconds = forecast(found.plan, machine, earlier, shortest_prompt=prompts.shortest)
        over = {} if like is None else held_over_plan(like)
    own = resident()
    phases: dict[str, dict[str, Any]] = {
        phase: {
            "memory": own + peaks[phase],
            "seconds": {"least": each.least} if like is None else each._asdict(),
        }
        for phase, each in seconds.items()
    }
    for phase in over.keys() & phases.keys():
        phases[phase]["held"] = round(over[phase] * phases[phase]["memory"])
    return {
        "machine": asdict(machine),
        "like": None if like is None else str(like),
        "phases": phases,
    }


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
