"""What `nbcourse train --dry-run` prints: memory and time that a run needs."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nbcourse.budget import advice, machines, prediction, shapes
from nbcourse.budget.machines import Machine
from nbcourse.budget.prompts import Prompts, prompts_of
from nbcourse.budget.shapes import Shape
from nbcourse.experiments import forecast
from nbcourse.experiments.forecast import Outlook
from nbcourse.training.recipe import Pretraining, Recipe


def show(
    recipe: Recipe | Pretraining, like: Path | None, lengths: float | None, flat: float | None
) -> None:
    """Print what a run needs, on this machine and on well-known cards; no weight is loaded."""
    console, here = Console(), machines.this_machine()
    shape, prompts = shapes.shape_of(recipe), prompts_of(recipe)
    outlook_on = forecast.expected_of(
        recipe, shape, prompts, here, like, lengths=lengths, flat=flat
    )
    outlook = outlook_on(here)
    console.print(
        f"{recipe.model.source}: {shape.parameters:,} parameters; {_what_it_does(recipe)} "
        f"prompts of {prompts.longest} ({prompts.source})",
        highlight=False,
    )
    console.print(_memory(outlook))
    for line in _expectations(outlook, like):
        console.print(line, highlight=False)
    table = Table("on this machine", "times", "at least", "expected", "at most")
    for part in outlook.parts:
        table.add_row(part.name, f"{part.times:,}", *map(_duration, part.seconds))
    table.add_section()
    table.add_row("the run", "", *map(_duration, outlook.total))
    console.print(table)
    console.print(_checkpoints(recipe, outlook.checkpoint), highlight=False)
    console.print(_on_cards(outlook_on))
    for cure in [*_too_large(recipe, shape, prompts, here), *advice.slow(recipe)]:
        console.print(f"· {cure}", highlight=False)


def _on_cards(outlook_on: Callable[[Machine], Outlook]) -> Table:
    """The run on well-known cards: by the roofline, or at the speed of a recorded run."""
    table = Table("the run", "at least", "expected", "at most", "of its memory", "by")
    for machine in machines.DATASHEETS.values():
        found = outlook_on(machine)
        share = max(found.peaks.values()) / machine.memory
        by = "the roofline: no run is as fast"
        if found.slowdown:
            by = f"a recorded run: {_times(found.slowdown)} the roofline"
        table.add_row(machine.name, *map(_duration, found.total), f"{share:.0%}", by)
    return table


def _times(slowdown: Mapping[str, float]) -> str:
    """Between which factors the phases take as long as the roofline says."""
    return f"{min(slowdown.values()):.0f} to {max(slowdown.values()):.0f} times"


def _memory(outlook: Outlook) -> Table:
    """Who holds how much at each moment, and what is held in all."""
    table = Table("GB", *outlook.memory)
    for owner in dict.fromkeys(o for owners in outlook.memory.values() for o in owners):
        columns = (owners.get(owner) for owners in outlook.memory.values())
        table.add_row(owner, *("" if x is None else f"{x / 1e9:.2f}" for x in columns))
    table.add_section()
    table.add_row("all", *(f"{peak / 1e9:.2f}" for peak in outlook.peaks.values()))
    return table


def _too_large(
    recipe: Recipe | Pretraining, shape: Shape, prompts: Prompts, here: machines.Machine
) -> Iterator[str]:
    """What to lower, for each machine whose memory is too small."""
    if isinstance(recipe, Recipe):
        for machine in (here, *machines.DATASHEETS.values()):
            fit = prediction.predict(recipe, shape, machine, prompt_tokens=prompts.longest)
            if not fit.fits:
                yield f"{machine.name} {fit.verdict}"


def _what_it_does(recipe: Recipe | Pretraining) -> str:
    """In words: what is learned from."""
    if isinstance(recipe, Pretraining):
        stages = {"pretraining": recipe.pretraining, "supervised": recipe.supervised}
        steps = [
            f"{stage.steps:,} {name} steps of {stage.batch_size} texts"
            for name, stage in stages.items()
            if stage.steps
        ]
        return f"{', '.join(steps)};"
    return (
        f"{recipe.algorithm.name}, {recipe.rollouts.prompts} × {recipe.rollouts.group_size} "
        f"responses of at most {recipe.rollouts.max_new_tokens} tokens to"
    )


def _expectations(outlook: Outlook, like: Path | None) -> list[str]:
    """What the numbers rest on, in words."""
    told = []
    if outlook.conditions is None:
        told.append(
            "expected: batches as long as those looked at; at most: all as the longest text"
        )
    else:
        length, no_spread, _ = outlook.conditions
        told.append(
            "at least: one token for each response, and no group teaches; expected: responses of "
            f"{length:.3g} tokens, {no_spread:.0%} of the groups without spread; at most: all "
            "responses reach the limit, and every group teaches"
        )
    if like is None:
        told.append(
            "seconds by the roofline: a real machine takes several times as long, and --like RUN "
            "with a run of two steps made here tells how many times"
        )
    else:
        slower = ", ".join(f"{name} {times:.3g}" for name, times in outlook.slowdown.items())
        told.append(f"expected and at most: at the speed of {like}; times the roofline: {slower}")
        if over := forecast.held_over_plan(like):
            times = ", ".join(f"{phase} {share:.3g}" for phase, share in over.items())
            told.append(f"held by {like}, times what was planned with the process itself: {times}")
    if outlook.left_out:
        told.append(f"left out is {outlook.left_out}")
    return told


def _checkpoints(recipe: Recipe | Pretraining, size: int) -> str:
    """How much a run writes: no roofline knows its disk, and rarer checkpoints are the cure."""
    count = math.ceil(recipe.steps / recipe.checkpoint.every)
    return (
        f"without the time for checkpoints: {count:,} of {_bytes(size)}, "
        f"{_bytes(count * size)} in all (checkpoint.every = {recipe.checkpoint.every})"
    )


def _bytes(number: float) -> str:
    return _in_a_unit(number, GB=1e9, MB=1e6)


def _duration(seconds: float) -> str:
    return _in_a_unit(seconds, h=3600, min=60, s=1)


def _in_a_unit(number: float, **sizes: float) -> str:
    """Two digits in the largest unit of which there is one, or in the smallest, the last."""
    unit = next((unit for unit, size in sizes.items() if number >= size), [*sizes][-1])
    number /= sizes[unit]
    return f"{number:,.0f} {unit}" if number >= 10 else f"{number:.2g} {unit}"
