"""A base model, before any reinforcement: whole texts first, then answers to questions."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.experiments import checkpoint, records, run, stopping
from nbcourse.lm.descent import optimiser_of, up_and_down, updates
from nbcourse.lm.rollouts import from_texts
from nbcourse.lm.warm_start import imitation_loss
from nbcourse.progress import track
from nbcourse.seeds import generator
from nbcourse.training import held_out
from nbcourse.training.clock import Clock
from nbcourse.training.models import load_model, loss_scaler, precision, rendered
from nbcourse.training.preparation import texts_of
from nbcourse.training.processes import Processes, connect
from nbcourse.training.recipe import Pretraining
from nbcourse.training.recipe_sections import StageSection

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def pretrain(
    recipe: Pretraining,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    log: str | None = None,
    like: Path | None = None,
    stop: Callable[[], bool] = stopping.never,
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel", list[dict[str, float]]]:
    """Make a base model by a recipe.

    Args:
        recipe: what to do.
        folder: where records, checkpoints and the model go, and the verdicts on the held-out
            problems before the first step; None keeps nothing.
        resume: go on from the last checkpoint in the folder, if there is one.
        progress: draw a progress bar.
        log: a tracker that is told the numbers as well, one of `trackers.NAMES`.
        like: folder of another base model's making on this machine, from which to predict what this
            one will take; the prediction is kept in the folder.
        stop: is asked at the end of each step whether to stop there; after the last one it changes
            nothing.

    Returns:
        The tokenizer, the model, and one dictionary of numbers for each step.

    Raises:
        ValueError: if the folder holds a run already and `resume` is False, or a run of another
            recipe, or a damaged checkpoint.
        FloatingPointError: if a loss or a gradient is not finite.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, or if `stop` says so, when the step at work is
            done, and kept in a folder.

    Book: appendix J, "The base model".
    """
    processes = connect()
    if processes.count > 1:
        raise UserError(f"a base model is made by one process, but there are {processes.count}")
    if folder is None:
        return _make(recipe, None, processes, stop, progress=progress, log=None)
    folder = Path(folder)
    with run.prepared(folder, recipe, resume=resume, processes=processes):
        if not (folder / records.CHECKPOINTS).exists():
            run.keep_plan(folder, recipe, like)
        return _make(recipe, folder, processes, stop, progress=progress, log=log)


def _make(
    recipe: Pretraining,
    folder: Path | None,
    processes: Processes,
    wanted: Callable[[], bool],
    *,
    progress: bool,
    log: str | None,
) -> tuple["PreTrainedTokenizerBase", "PreTrainedModel", list[dict[str, float]]]:
    """The model, in a folder that is prepared, or in none."""
    start = perf_counter()
    tokenizer, model = load_model(recipe, processes.device)
    optimiser, done = optimiser_of(model), 0
    scaler = loss_scaler(recipe.model, processes.device)
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    history: list[dict[str, float]] = []
    if folder is not None:
        kept = folder / records.CHECKPOINTS
        done = checkpoint.load_step(kept, trained, optimiser, scaler).get("step", 0)
        history = records.read_history(folder, done=done)
    ask = partial(_held_out, recipe, tokenizer, model)
    if folder is not None and not done:
        records.write_start(folder, ask())
    built = perf_counter() - start
    metrics = None
    if folder is not None:
        metrics = run.keep_metrics(folder, recipe, kept=history, log=log)
    rows = _steps(recipe, tokenizer, model, optimiser, scaler, done)
    bar = track(rows, "base model", visible=progress, total=recipe.steps, done=done)
    with stopping.after_this_step(wanted) as asked:
        for row in bar:
            step, last = int(row["step"]), row["step"] == recipe.steps
            if step % recipe.evaluation.every == 0 or last:
                clock = Clock()
                with clock("evaluate"):
                    row["held_out"] = ask().mean().item()
                row |= clock.report()
            bar.set_postfix({k: f"{row[k]:.2f}" for k in ("loss", "held_out") if k in row})
            history.append(row)
            ends = asked() and not last
            if folder is not None and metrics is not None:
                metrics.write(row)
                if ends or step % recipe.checkpoint.every == 0 or last:
                    metrics.sync()
                    checkpoint.save_step(kept, step, trained, optimiser, scaler, {})
            if ends:
                raise KeyboardInterrupt
    if folder is not None and metrics is not None:
        metrics.close()
        if records.summarised_steps(folder) != recipe.steps:
            run.keep_model(folder, tokenizer, model, kind=recipe.model.saved_as)
            run.summarise(
                folder,
                recipe,
                ask(),
                history,
                before=records.read_start(folder),
                before_first_step=built,
            )
    return tokenizer, model, history


def _steps(
    recipe: Pretraining,
    tokenizer: "PreTrainedTokenizerBase",
    model: "PreTrainedModel",
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    done: int,
) -> Iterator[dict[str, float]]:
    """The remaining updates of both stages; after each, its numbers."""
    before = 0
    for number, name in enumerate(("pretraining", "supervised")):
        stage: StageSection = getattr(recipe, name)
        losses = updates(
            optimiser,
            partial(_losses, recipe, tokenizer, model, name),
            label=name,
            steps=range(max(0, done - before), stage.steps),
            learning_rate=partial(_rate, stage),
            scaler=scaler,
        )
        before += stage.steps
        for step in range(max(before - stage.steps, done) + 1, before + 1):
            clock = Clock()
            with clock("learn"):
                loss = next(losses)
            yield {"step": step, "stage": number, "loss": loss, **clock.report()}


def _rate(stage: StageSection, step: int) -> float:
    return stage.learning_rate * up_and_down(step, stage.steps)


def _losses(
    recipe: Pretraining,
    tokenizer: "PreTrainedTokenizerBase",
    model: "PreTrainedModel",
    name: str,
    step: int,
) -> Iterator[Tensor]:
    """The loss of one batch, in parts; it depends on seed, stage and step alone."""
    stage: StageSection = getattr(recipe, name)
    prompts, responses = zip(*texts_of(recipe, tokenizer, name, step), strict=True)
    batch = from_texts(tokenizer, prompts, responses, device=model.device)
    # Texts of similar length go together, so that little padding is computed.
    model.train()  # only so do transformers' layers compute their activations twice, if told to
    for rows in batch.mask.sum(dim=1).argsort(stable=True).split(stage.at_once):
        with precision(recipe.model, model.device):
            loss = imitation_loss(model, batch, rows)
        yield loss
    model.eval()


def _held_out(
    recipe: Pretraining, tokenizer: "PreTrainedTokenizerBase", model: "PreTrainedModel"
) -> Tensor:
    """The verdicts on the greedy answers to the held-out problems: (count,) of 0 and 1."""
    task, settings = recipe.task.build(), recipe.evaluation
    source = generator(recipe.seed, "evaluation")
    problems = task.draw(settings.problems, split=task.held_out, generator=source)
    answers = held_out.ask(
        model,
        tokenizer,
        rendered(recipe.prompt, tokenizer, problems),
        max_new_tokens=settings.max_new_tokens,
        precision=precision(recipe.model, model.device),
    )
    return task.rewards(answers.texts, problems).masked_fill(answers.truncated, 0.0)
