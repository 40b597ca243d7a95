"""Whether a recipe is worth its run: gate."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nbcourse.cli.application import Changes, RecipeName, app
from nbcourse.cli.tables import show
from nbcourse.errors import UserError

if TYPE_CHECKING:
    from nbcourse.experiments.gate import Measurements
    from nbcourse.training.recipe import Recipe

CLOSED = 3  # exit status: the answer is no, and nothing went wrong


@app.command()
def gate(
    recipe: RecipeName,
    change: Changes = None,
    questions: Annotated[int, typer.Option(min=2, help="Training problems that are asked.")] = 256,
    instruction: Annotated[
        list[str] | None,
        typer.Option(help="Another instruction than the recipe's, to be tried; may be repeated."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write it into this file, as JSON.")
    ] = None,
) -> None:
    """Ask a model its training problems before it is trained, and say whether that is worth while.

    Of 256 problems with the recipe's number of answers each, at its temperature: how often the form
    is kept, what is right and what would be by chance, how much a run could reward, how much of
    that is luck, what the limit cuts off, whether sampler and learner agree, and whether two halves
    of a batch want the same. The verdict is the first thing to do: train; change the prompt; pay
    for form leniently first; supervise first; raise the limit; do not train. Its thresholds are
    derived in `nbcourse/experiments/gate.py`.

    Exit status: 0 for *train*, 3 for every other verdict.

    **Examples**

    - `nbcourse gate arithmetic-grpo --questions 64`
    - `nbcourse gate gsm8k-qwen2.5-0.5b-grpo --instruction "End with #### and the number."`
    - `nbcourse train arithmetic-grpo --gate`
    """
    from nbcourse.training.recipe import Recipe, load_any

    checked = load_any(recipe, change or [])
    if not isinstance(checked, Recipe):
        raise UserError(f"{recipe} makes a base model: there is no reward to look at yet")
    if not opened(checked, questions, instruction or [], json_file):
        raise typer.Exit(CLOSED)


def opened(
    recipe: "Recipe",
    questions: int = 256,
    instructions: Sequence[str] = (),
    json_file: Path | None = None,
) -> bool:
    """Print the measurements of a recipe and the verdict; whether it is to train."""
    import json
    from dataclasses import asdict

    from nbcourse.experiments.gate import verdict
    from nbcourse.experiments.gauging import gauge

    found = gauge(recipe, questions=questions, instructions=instructions)
    said = verdict(found)
    show("", "measured", rows=rows(found))
    typer.echo(f"{said.action}: {said.reason}")
    for line in said.further:
        typer.echo(f"then {line}")
    if json_file is not None:
        content = {"measurements": asdict(found), "verdict": said._asdict()}
        json_file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return said.action == "train"


def _error(width: float) -> str:
    return f" ± {width:.3f}" if width else ", of one batch: its error is not known"


def rows(found: "Measurements") -> list[tuple[str, str]]:
    """The measurements in words; what was not measured is left out."""
    from nbcourse.experiments.gate import SURE, aim

    def share(value: float | tuple[float, float] | None) -> str:
        if isinstance(value, tuple):
            return f"{value[0]:.1%} ± {SURE * value[1]:.1%}"
        return "" if value is None else f"{value:.1%}"

    cosine = found.cosine
    lines = [
        ("in the form asked for", share(found.form)),
        ("right, as it is paid", share(found.paid)),
        ("right, in whatever form", share(found.lenient)),
        ("right, greedily", share(found.greedy)),
        ("right by a constant answer", share(found.constant)),
        ("right by answers to other questions", share(found.luck)),
        ("a right one in the group", share(found.best_of)),
        ("groups that are mixed, as they are paid", share(found.mixed)),
        ("groups that are mixed, in whatever form", share(found.mixed_leniently)),
        ("of these, explained by luck", share(found.lucky)),
        ("mixed groups a step without luck", f"{found.informative:.1f}"),
        ("cut off by the limit", share(found.truncated)),
        (
            "sampler to learner, nats an answer",
            "" if found.mismatch is None else f"{found.mismatch:.2g}",
        ),
        (
            "cosine of half-batch gradients",
            "" if cosine is None else f"{cosine.mean:.3f}{_error(SURE * cosine.error)}",
        ),
        (
            f"signal over noise of {found.steps} steps",
            "" if cosine is None else f"{aim(found.steps, cosine.mean):.1f}",
        ),
    ]
    lines += [
        (f"paid more often by {tried.instruction!r}", share(tried.gain)) for tried in found.tried
    ]
    return [(name, value) for name, value in lines if value]
