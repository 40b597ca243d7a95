"""Runs that were made: evaluate, compare."""

from pathlib import Path
from typing import Annotated

import typer

from nbcourse.cli.application import app
from nbcourse.cli.tables import show, show_whole


@app.command()
def evaluate(
    run: Annotated[
        Path,
        typer.Argument(help="The folder of a run; or of a model, or its name, with `--task`."),
    ],
    task: Annotated[
        str | None,
        typer.Option(help="A task other than the run's, by its name in a recipe: `gsm8k`."),
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Use the test split: once, when all is decided.")
    ] = False,
    problems: Annotated[
        int | None, typer.Option(min=1, help="How many; if not given, 2,000, or all if fewer.")
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Sampled responses to each problem, for pass@k.")
    ] = 0,
    temperature: Annotated[float, typer.Option(help="Temperature of the samples.")] = 1.0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="TOKENS", help="Of an answer; if not given, the recipe's."),
    ] = None,
    instruction: Annotated[
        str | None, typer.Option(help="How to answer; if not given, the recipe's.")
    ] = None,
    base_instruction: Annotated[
        str | None,
        typer.Option(
            help="How the model is to answer that the run began with, if that is where it is "
            "better; if not given, as the trained one."
        ),
    ] = None,
) -> None:
    """Ask a run's model, and the model it was made from, problems they were not trained on.

    Counts what is right strictly (the form asked for) and leniently (the right number in any form),
    splits the gain into form and content, and writes everything with its intervals, the recipe and
    the environment into `evaluation-TASK-SPLIT.json` in the folder of the run.

    Without `--final` the problems are the held-out ones of training (GSM8K: a tenth of its training
    problems), which is what runs may be chosen by. The test split is for the one run that was
    chosen: the file says how often it was asked.

    A model that no run has left, such as one that `nbcourse model` fetched, is asked alone, in its
    chat format if it has one, with answers of up to 768 tokens.

    **Examples**

    - `nbcourse evaluate runs/word-problems-tiny-grpo-seed0 --samples 8`
    - `nbcourse evaluate runs/gsm8k-tiny-grpo-seed0 --final`
    - `nbcourse evaluate qwen2.5-coder-0.5b --task gsm8k --problems 256`
    """
    from rich.console import Console

    from nbcourse.experiments import evaluation
    from nbcourse.lm import places

    result = evaluation.evaluate(
        run,
        task=task,
        final=final,
        problems=problems,
        samples=samples,
        temperature=temperature,
        asking=evaluation.Asking(limit, instruction, base_instruction),
    )
    models = [name for name in ("before", "after") if name in result]
    show("", *models, rows=evaluation.rows(result))
    repeated = result["different"] < result["problems"]
    different = f" ({result['different']:,} different ones)" if repeated else ""
    times = "once" if result["times_asked"] == 1 else f"{result['times_asked']} times"
    Console().print(
        f"{result['problems']:,} problems{different}, split {result['split']!r}, asked {times} so "
        "far; all numbers are in "
        f"{(run if run.is_dir() else places.cached(str(run))) / result['file']}",
        highlight=False,
    )


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    figure: Annotated[
        Path | None, typer.Option(help="Draw the learning curves into this file (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Put runs side by side: their last evaluations, what they cost, and their learning curves.

    Runs that differ in nothing but the seed are one line, with the mean over seeds and an interval.
    """
    if figure is not None:
        from nbcourse.display.figures import check_file

        check_file(figure)
    from nbcourse.experiments import comparison

    groups = comparison.groups(runs)
    show_whole(*comparison.HEADER, rows=comparison.rows(groups))
    if planned := comparison.plan_rows(groups):
        show_whole(*comparison.PLAN_HEADER, rows=planned)
    if found := comparison.confounded(groups):
        typer.echo(
            f"\nThey differ in {len(found)} fields, and nothing here says which one mattered:"
        )
        for difference in found:
            typer.echo(f"  {difference}")
    if figure is not None:
        from nbcourse.display import curves, figures

        figures.save(curves.learning_curves(groups), figure)
        typer.echo(f"{figure} written")
