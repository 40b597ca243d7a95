"""A training run from beginning to end, in a folder of its own, or without one in a notebook."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nbcourse import durable
from nbcourse.diagnosis.recorder import Recorder
from nbcourse.diagnosis.witness import Witness
from nbcourse.errors import UserError
from nbcourse.experiments import checkpoint, forecast, records, stopping, trackers
from nbcourse.experiments.records import ADAPTER, CHECKPOINTS, MODEL, WITNESS
from nbcourse.functional.accuracy import bootstrap_interval, wilson_interval
from nbcourse.lm import lora, places
from nbcourse.lm.loading import disk
from nbcourse.lm.sampling import ENGINES
from nbcourse.progress import track
from nbcourse.seeds import generator
from nbcourse.training.clock import peak_memory
from nbcourse.training.held_out import verdicts
from nbcourse.training.learner import Learner
from nbcourse.training.loop import State, begin, steps
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes, connect
from nbcourse.training.recipe import Pretraining, Recipe
from nbcourse.training.recipe_sections import VLLM
from nbcourse.training.watch import Together, Watch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def train(
    recipe: Recipe,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    log: str | None = None,
    like: Path | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = stopping.never,
) -> tuple[Learner, list[dict[str, float]]]:
    """Train by a recipe.

    Args:
        recipe: what to do.
        folder: where records and checkpoints go; None keeps nothing, for short runs in a notebook.
        resume: go on from the last checkpoint in the folder, if there is one.
        progress: draw a progress bar.
        log: a tracker that is told the numbers as well, one of `trackers.NAMES`.
        like: a run that was made on this machine, whose lengths, groups and speed are expected of
            this one; see `forecast`.
        watch: is shown what every step does, and told its numbers.
        stop: is asked at the end of each step whether the run is to stop there; after the last one
            it changes nothing.

    Returns:
        The learner with its trained policy, and one dictionary of numbers for each step;
        `diagnostics` says what they are.

    Raises:
        ValueError: if the folder holds a run already and `resume` is False, or a run of another
            recipe, or a damaged checkpoint; or if the recipe asks for vLLM.
        FloatingPointError: if a loss, a gradient or a reward is not finite. The last checkpoint is
            that of an earlier step.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, or if `stop` says so; with a folder, once the
            step at work is done and kept.

    Book: chapter 8, "One loop".
    """
    if recipe.rollouts.engine == VLLM:
        raise UserError(
            f"rollouts.engine is {VLLM!r}, which --engine trl alone has; this package's own are "
            f"{', '.join(map(repr, ENGINES))}"
        )
    processes, watch = connect(), watch or Watch()
    if folder is None:
        return _in_memory(recipe, processes, watch, stop, progress=progress)
    folder = Path(folder)
    with prepared(folder, recipe, resume=resume, processes=processes):
        if processes.count == 1 and not (folder / CHECKPOINTS).exists():
            keep_plan(folder, recipe, like)
        return _in(folder, recipe, processes, watch, stop, progress=progress, log=log)


def _in_memory(
    recipe: Recipe,
    processes: Processes,
    watch: Watch,
    stop: Callable[[], bool],
    *,
    progress: bool,
) -> tuple[Learner, list[dict[str, float]]]:
    """The run of which nothing is kept."""
    learner = build(recipe, processes, progress=progress)
    learner.watch = watch
    rows, state = [], begin(recipe)
    for row in _shown(learner, state, processes, progress):
        rows.append(row)
        ends = _ends(stop, state, recipe, processes)
        watch.after_step(row)
        if ends:
            raise KeyboardInterrupt
    return learner, rows


def _in(
    folder: Path,
    recipe: Recipe,
    processes: Processes,
    watch: Watch,
    stop: Callable[[], bool],
    *,
    progress: bool,
    log: str | None,
) -> tuple[Learner, list[dict[str, float]]]:
    """The run in a folder that is prepared."""
    writing = processes.rank == 0
    start = perf_counter()
    learner, state = _start_or_load(folder, recipe, processes, progress=progress)
    built = perf_counter() - start
    learner.watch = watch
    if writing and recipe.witness.every:
        recorder = Recorder(
            recipe.witness.every,
            recipe.witness.tokens,
            keeper(folder),
            processes=processes.count,
        )
        learner.watch = Together(watch, recorder)
    history = records.read_history(folder, done=state.step)
    processes.wait()  # all have read the file before the first one rewrites it
    metrics = keep_metrics(folder, recipe, kept=history, log=log) if writing else None
    with stopping.after_this_step(stop) as asked:
        for row in _shown(learner, state, processes, progress and writing):
            history.append(row)
            ends = _ends(asked, state, recipe, processes)
            if metrics is not None:
                metrics.write(row)
                if ends or state.step % recipe.checkpoint.every == 0 or state.step == recipe.steps:
                    metrics.sync()
                    checkpoint.save(folder / CHECKPOINTS, learner, state)
            watch.after_step(row)
            if ends:
                processes.wait()  # a process that ends takes the others with it
                raise KeyboardInterrupt
    if metrics is not None:
        metrics.close()
        if records.summarised_steps(folder) != recipe.steps:
            finish(folder, learner, history, before_first_step=built)
    processes.wait()
    return learner, history


def _ends(stop: Callable[[], bool], state: State, recipe: Recipe, processes: Processes) -> bool:
    """Whether any process is asked to stop, with steps left to do."""
    return any(processes.gather([stop()])) and state.step < recipe.steps


def keeper(folder: Path) -> Callable[[Witness], None]:
    """What writes each witness batch into the folder `witness` of a run, as a whole or not at all.

    A run that is resumed writes those since its checkpoint again, with the same content.
    """

    def keep(witness: Witness) -> None:
        (folder / WITNESS).mkdir(exist_ok=True)
        durable.write(folder / WITNESS / witness.file, witness.to_bytes())

    return keep


def _shown(
    learner: Learner, state: State, processes: Processes, visible: bool
) -> Iterator[dict[str, float]]:
    """The steps, behind a bar with the numbers that one watches."""
    recipe = learner.recipe
    bar = track(
        steps(learner, state, processes),
        recipe.algorithm.name,
        visible=visible,
        total=recipe.steps,
        done=state.step,
    )
    watched = {"reward": "?", "held_out": "?", "kl_ref": "?"}
    for row in bar:
        watched |= {name: f"{row[name]:.2f}" for name in watched if name in row}
        bar.set_postfix(watched, refresh=False)
        yield row


@contextmanager
def prepared(
    folder: Path, recipe: Recipe | Pretraining, *, resume: bool, processes: Processes
) -> Iterator[None]:
    """Create or check the folder of a run, and lock it for these processes.

    Raises:
        ValueError: if it holds a run and `resume` is False, or a run of another recipe or of other
            code of the reader's own; or if another process is at work in it.
    """
    if processes.rank > 0:
        processes.wait()  # the first one prepares it and holds it
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with durable.locked(folder):
        _prepare(folder, recipe, resume=resume, processes=processes)
        processes.wait()
        yield


def _prepare(
    folder: Path, recipe: Recipe | Pretraining, *, resume: bool, processes: Processes
) -> None:
    begun = any((folder / name).exists() for name in (CHECKPOINTS, records.METRICS))
    there = begun and (folder / records.RECIPE).is_file()  # a start that failed is no run
    if there and not resume:
        raise UserError(
            f"{folder} holds a run already: --resume goes on with it, --out names another"
        )
    last = checkpoint.last_step(folder / CHECKPOINTS)
    done = max(records.summarised_steps(folder) or 0, last or 0)
    if recipe.steps < done:
        raise UserError(f"steps is {recipe.steps}, but the run in {folder} has done {done}")
    if there:
        require_same(folder, recipe)
        if last is None and isinstance(recipe, Recipe):  # a base model has none before its first
            _without_numbers(folder)
    code = recipe.own_code
    if not there:
        environment = records.environment(processes.count, code)
        if known := places.facts(recipe.model.source):  # a quantized copy is not the model itself
            environment["model"] = known
        if paying := _reward_file(recipe):
            environment["reward"] = {"file": paying.name, "sha256": durable.sha256(paying)}
        records.write_json(folder / records.ENVIRONMENT, environment)
        for file in (code.path, paying):
            if file is not None:
                durable.write(folder / file.name, file.read_bytes())
    records.write_json(folder / records.RECIPE, recipe.model_dump(mode="json"))


def require_same(folder: Path, recipe: Recipe | Pretraining) -> None:
    """See that the run in a folder is one of this recipe, with more steps or fewer.

    Raises:
        ValueError: if it is one of another recipe or of other code of the reader's own.
    """
    before = records.read_any_recipe(folder).model_dump()
    differences = _differences(before, recipe.model_dump())
    harmless = ("steps ", "witness.")  # neither changes a step
    differences = [line for line in differences if not line.startswith(harmless)]
    if differences:
        raise UserError(f"{folder} holds a run of another recipe: {'; '.join(differences)}")
    _same_code(folder, recipe)


def _without_numbers(folder: Path) -> None:
    """Refuse to start anew where that would overwrite metrics: there is no checkpoint of them."""
    if (folder / records.METRICS).is_file() and (rows := records.read_metrics(folder)):
        raise UserError(
            f"{folder} holds the numbers of {len(rows)} steps and no checkpoint to go on from "
            "(--engine trl keeps none): --out names another folder"
        )


def _same_code(folder: Path, recipe: Recipe | Pretraining) -> None:
    """See that the reader's own code is what it was when the run began."""
    before = records.read_json(folder / records.ENVIRONMENT)
    for key, file in (("code", recipe.own_code.path), ("reward", _reward_file(recipe))):
        if file is not None and durable.sha256(file) != before.get(key, {}).get("sha256"):
            raise UserError(
                f"{file} has changed since the run in {folder} began: a copy of what it was is "
                f"{folder / file.name}; --out names another folder"
            )


def _reward_file(recipe: Recipe | Pretraining) -> Path | None:
    """The file of a reward function of the reader's own."""
    function = recipe.reward.function if isinstance(recipe, Recipe) else None
    return Path(function.rpartition(":")[0]) if function else None


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in new.items():
        there = old.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            found += _differences(there, value, f"{prefix}{key}.")
        elif there != value:
            found.append(f"{prefix}{key} was {there!r} and is {value!r}")
    return found


def _start_or_load(
    folder: Path, recipe: Recipe, processes: Processes, *, progress: bool
) -> tuple[Learner, State]:
    found = checkpoint.load(folder / CHECKPOINTS, recipe, processes.device)
    if found is not None:
        return found
    learner, state = build(recipe, processes, progress=progress), begin(recipe)
    if processes.rank == 0:
        keep_start(folder, learner)
        checkpoint.save(folder / CHECKPOINTS, learner, state)
    return learner, state


def keep_metrics(
    folder: Path,
    recipe: Recipe | Pretraining,
    *,
    kept: Sequence[dict[str, float]] = (),
    log: str | None,
) -> records.Metrics:
    """The file of a run's metrics, which go to a tracker as well if one is named."""
    tracker = None if log is None else trackers.start(log, folder, recipe)
    return records.Metrics(folder, kept=kept, tracker=tracker)


def keep_plan(folder: Path, recipe: Recipe | Pretraining, like: Path | None) -> None:
    """Write `plan.json`, what is predicted of a run; nothing where that is impossible."""
    try:
        plan = forecast.plan_of(recipe, like)
    except (UserError, OSError):
        if like is not None:
            raise
        return
    records.write_json(folder / records.PLAN, plan)


def keep_start(folder: Path, learner: Learner) -> None:
    """Keep what a run starts from: the weights, and the verdicts on the held-out problems."""
    right = verdicts(learner, learner.recipe.evaluation.problems)
    records.write_start(folder, right)
    checkpoint.save_start(folder / CHECKPOINTS, learner)


def finish(
    folder: Path, learner: Learner, history: list[dict[str, float]], *, before_first_step: float
) -> None:
    """Keep the model, and say in `summary.json` how the run ended."""
    keep_model(folder, learner.tokenizer, learner.policy, kind=learner.recipe.model.saved_as)
    right = verdicts(learner, learner.recipe.evaluation.problems)
    summarise(
        folder,
        learner.recipe,
        right,
        history,
        before=records.read_start(folder) if history else None,
        before_first_step=before_first_step,
        warm_start_found=learner.warm_start_found,
    )


def keep_model(
    folder: Path,
    tokenizer: "PreTrainedTokenizerBase",
    model: "PreTrainedModel",
    *,
    kind: str = "float32",
) -> None:
    """Write a model as the hub keeps them into the folder `model` of a run.

    An adapter is merged there, and lies by itself in the folder `adapter`, as peft keeps them.

    Args:
        folder: of the run.
        tokenizer: of the model.
        model: it stays as it is.
        kind: "float32", or "bfloat16" for half the room.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    with disk(folder / MODEL):
        whole = lora.merged(model)
        if kind == "bfloat16":
            whole = copy.deepcopy(whole).to(torch.bfloat16)  # type: ignore[arg-type]
        whole.save_pretrained(folder / MODEL)
        tokenizer.save_pretrained(folder / MODEL)
        if lora.is_on(model):
            lora.as_peft(model).save_pretrained(str(folder / ADAPTER))
    for name in (MODEL, *([ADAPTER] if lora.is_on(model) else [])):
        durable.sync_folder(folder / name)


def summarise(
    folder: Path,
    recipe: Recipe | Pretraining,
    right: Tensor,
    history: list[dict[str, float]],
    *,
    before_first_step: float,
    before: Tensor | None = None,
    warm_start_found: bool = False,
) -> None:
    """Say in `summary.json` how a run ended, from the verdicts (count,) on held-out problems.

    The gain is paired with the verdicts before the first step, on the same problems, if there are.
    The seconds before the first step and the memory are those of the process that ended the run: of
    one that went on from a checkpoint, what loading took, and no warm start; nor is there one in
    them where an earlier run had made it, which the summary then says.
    """
    low, high = wilson_interval(int(right.sum()), len(right))
    records.write_json(
        folder / records.SUMMARY,
        {
            "held_out": right.mean().item(),
            "held_out_interval_95": [low, high],
            "held_out_problems": len(right),
            **({} if before is None else _gain(right - before, recipe.seed)),
            "steps": recipe.steps,
            "seconds_before_first_step": before_first_step,
            **({"warm_start_found": True} if warm_start_found else {}),
            "seconds_of_steps": sum(map(records.seconds, history)),
            "peak_memory_bytes": peak_memory(),
        },
    )


def _gain(differences: Tensor, seed: int) -> dict[str, Any]:
    source = generator(seed, "bootstrap")
    return {
        "gain": differences.mean().item(),
        "gain_interval_95": bootstrap_interval(differences, generator=source),
    }
