"""What is wrong with a loss function or a run: examine, diagnose."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nbcourse.cli.application import app
from nbcourse.cli.options import Json, write_json
from nbcourse.errors import UserError, did_you_mean


@app.command()
def examine(
    loss: Annotated[
        str,
        typer.Argument(
            help="`FILE.py:FUNCTION` or `FILE.py:CLASS.METHOD`, the same of a notebook (no cell is "
            "run), or a row of the table of algorithms, such as `grpo`."
        ),
    ],
    json_file: Json = None,
    require: Annotated[
        str | None,
        typer.Option(
            help="Requirements, such as `unbiased,mask-safe`: exit code 1 if one is not met."
        ),
    ] = None,
    convention: Annotated[
        str,
        typer.Option(
            "--as",
            help="Whose argument names and shapes: `book`, `trl`, `verl`, `openrlhf`, `areal`, "
            "`skyrl`, `slime`, `nemo-rl`, `prime-rl`, `open-instruct`, `ms-swift`, or those of "
            "people's own: `scripts` with advantages (B,), `scripts-by-token` with (B, T), "
            "`scripts-by-sum` or `scripts-by-mean` with log-probs of whole responses (B,), "
            "`scripts-by-group` with an axis for prompts, (P, G, T).",
        ),
    ] = "book",
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting that the function needs, such as `eps_clip=0.2` or "
            "`config.clip_ratio=0.2`; as often as there are some."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with pictures into this file.")
    ] = None,
    limit: Annotated[
        float, typer.Option(help="Seconds after which a loss that is still running is stopped.")
    ] = 300.0,
) -> None:
    """Find out exactly what a loss function does: its direction, its averages, its clip, its KL.

    The function takes what it needs by name, of log_probs, old_log_probs, sampler_log_probs,
    ref_log_probs, advantages, values, entropy (B, T), rewards, truncated (B,), mask, group_size and
    batch_tokens.
    It returns a scalar to minimise, losses of tokens (B, T) or of responses (B,), or one of these
    first in a tuple or as "loss" in a dictionary. Every batch of several small worlds is listed, so
    the verdicts are exact; then one thing about a batch is changed at a time, so a mistake is
    recognised by its effect.

    **Examples**

    - `nbcourse examine my_loss.py:grpo_loss`
    - `nbcourse examine my_loss.py:grpo_loss --require unbiased,mask-safe,eos-trained`
    - `nbcourse examine my_trainer.py:policy_loss --as trl --html report.html`
    - `nbcourse examine my_actor.py:ppo_actor_loss_fn --as areal --given eps_clip=0.2`
    """
    from nbcourse.examine import REQUIREMENTS, source
    from nbcourse.examine import examine as examine_loss
    from nbcourse.examine.patience import at_most

    requirements = _named(require, REQUIREMENTS)
    with at_most(limit, f"{loss} was still running after {limit:g} seconds (--limit)"):
        report = examine_loss(source.load(loss, convention=convention, given=given or ()))
    typer.echo(str(report))
    if html is not None:
        from nbcourse.display.examination import page

        html.write_text(page(report), encoding="utf-8")
        typer.echo(f"\n{html} written")
    _conclude(report, requirements, json_file)


def _named(require: str | None, known: Mapping[str, Any]) -> list[str]:
    """The requirements of `--require`, each of which has to be known."""
    names = [name.strip() for name in (require or "").split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UserError(
                f"--require has {name!r}, expected some of {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
    return names


def _conclude(report: Any, requirements: Sequence[str], json_file: Path | None) -> None:
    """Write a report for programs, if asked for, and end with exit code 1 if it does not do."""
    write_json(report, json_file)
    if missing := report.missing(requirements):
        typer.echo(f"\nnot met: {', '.join(missing)}", err=True)
        raise typer.Exit(1)


@app.command()
def diagnose(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="A run's folder, or its log: `trainer_state.json` of TRL, TensorBoard's event "
            "files, the history of a run of W&B as `.csv`, `.json` or `.jsonl`, or what TRL, verl, "
            "OpenRLHF, ms-swift or a script of yours printed, as `.log`, `.txt`, `.md` or the "
            "notebook `.ipynb` that it ran in."
        ),
    ] = None,
    json_file: Json = None,
    require: Annotated[
        str | None,
        typer.Option(
            help="Requirements, of `healthy`, `witness` and `complete` (every question was looked "
            "at), separated by commas: exit code 1 if one is not met."
        ),
    ] = None,
    causes: Annotated[
        bool, typer.Option("--causes", help="List the causes that can be named, and stop.")
    ] = False,
) -> None:
    """Say what is wrong with a run: the causes that are seen, the evidence, and the fix.

    Curves do not show the usual mistakes. A run that keeps witness batches (`witness.every` in its
    recipe) can be recomputed: masks from tokens, advantages from rewards, the derivative of the
    loss from advantages, log-probs from a plain forward pass. A trainer of TRL's keeps them with
    `nbcourse.experiments.trl.keep_witnesses`; what it does not report is listed as not looked at.
    From curves alone the answer is more cautious, and says so.

    **Examples**

    - `nbcourse train arithmetic-grpo --set witness.every=20 --out runs/mine`
    - `nbcourse diagnose runs/mine`
    - `nbcourse diagnose runs/mine --require healthy --json report.json`
    - `nbcourse diagnose outputs/checkpoint-100/trainer_state.json`
    - `nbcourse diagnose outputs/runs/Nov23_10-00-00`
    """
    from nbcourse.diagnosis.diagnose import diagnose as look
    from nbcourse.diagnosis.report import Report
    from nbcourse.diagnosis.suspects import CAUSES
    from nbcourse.experiments import evidence

    if causes:
        for name, cause in CAUSES.items():
            typer.echo(f"{name}\n    {cause.sentence}\n    see {cause.section}")
        return
    if run is None:
        raise UserError("RUN is missing: a run's folder, or a log (`nbcourse diagnose --help`)")
    requirements = _named(require, Report.REQUIREMENTS)
    report = look(evidence.read(run))
    typer.echo(str(report))
    _conclude(report, requirements, json_file)
