"""The same recipe, trained by TRL: accelerate, DeepSpeed and vLLM are theirs, the rewards ours.

What a recipe says is translated by the tables of `trl_options`; what TRL cannot do is refused.
Model, warm start, problems, rewards, learning rate and evaluation are those of `run.train`; the
gradient of a batch is the same too, which `tests/experiments/test_trl.py` checks row by row, with
and without an adapter. What stays different:

- Samples come from the global random state, so a seed gives another run than it gives here, and as
  many processes as there are give as many runs.
- Minibatches are cut from shuffled responses, not from whole groups, and a token mean divides by
  the tokens of an average minibatch.
- TRL samples by itself, or has vLLM sample; this package's engines (`rollouts.engine`) answer
  evaluations alone.
- Nothing is kept to resume from; only the model before the first step, for `nbcourse evaluate`.
- `kl_ref`, `kl_old` and `loss_scale` are not among the numbers of a step, and `gap` is only where
  vLLM samples and its rounding is corrected. `entropy` is that of the whole distribution, and not
  of the tokens that were drawn; `grad_norm` is that of the last update of a step, and not a mean.

Several processes: `accelerate launch --num_processes 8 -m nbcourse train RECIPE --engine trl`. Two
on a CPU, which take `--multi_gpu` even so, are tested. DeepSpeed, up to ZeRO-2, comes through
`--config_file`, vLLM through `rollouts.engine = "vllm"`, and several machines through
`--num_machines`: these are untried. What keeps only a share of the weights in each process, ZeRO-3
and FSDP, is refused, as the model that is evaluated and kept is a whole one.

`keep_witnesses` adds witness batches to a GRPOTrainer of a reader's own, without a recipe.
"""

import importlib.util
import math
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

from transformers import TrainerCallback

from nbcourse.errors import UserError
from nbcourse.experiments import records, run
from nbcourse.experiments.trl_options import options
from nbcourse.experiments.trl_trainer import LENGTH_OF_RIGHT, make_trainer
from nbcourse.experiments.trl_witness import keep_ours
from nbcourse.experiments.trl_witness import keep_witnesses as keep_witnesses  # for readers
from nbcourse.lm import lora
from nbcourse.progress import track
from nbcourse.training.clock import Clock
from nbcourse.training.held_out import held_out_accuracy
from nbcourse.training.learner import Learner
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes, connect
from nbcourse.training.recipe import Recipe
from nbcourse.training.recipe_sections import VLLM

# Our name for what TRL logs. Accuracy and no_spread it is told by our reward function: the spread
# of its RLOOTrainer has the KL in it. Its `kl` is a mean over tokens and not our `kl_ref`.
METRICS: Mapping[str, str] = {
    "reward": "reward",
    "accuracy": "accuracy",
    "no_spread": "no_spread",
    "completions/clipped_ratio": "truncated",
    "completions/mean_length": "length",
    "entropy": "entropy",
    "clip_ratio/low_mean": "clip_low",
    "clip_ratio/high_mean": "clip_high",
    "cispo_clip_ratio": "clip_high",
    "grad_norm": "grad_norm",
    "loss": "policy_loss",
    "sampling/sampling_logp_difference/max": "gap",
}


def train_with_trl(
    recipe: Recipe, *, folder: str | Path, progress: bool = True, log: str | None = None
) -> list[dict[str, float]]:
    """Train by a recipe with TRL's trainer.

    Args:
        recipe: what to do.
        folder: where records and the trained model go.
        progress: draw a progress bar.
        log: a tracker that is told the numbers as well, one of `trackers.NAMES`.

    Returns:
        One dictionary of numbers for each step, under the names of `diagnostics`; also in the
        folder, beside the recipe, the environment, the summary and the model. Time and memory are
        those of the first process, everything else is of the whole batch.

    Raises:
        ValueError: if TRL is not installed or cannot follow the recipe or the way in which the
            processes were started, or the folder holds a run.
        FloatingPointError: if a loss or a gradient is not finite. TRL has updated the weights by
            then.

    Book: chapter 8, "One loop".
    """
    # Whatever is to be refused is refused before anything is written.
    _check_launch(recipe)
    processes, folder = connect(), Path(folder)
    options(recipe, processes)
    with run.prepared(folder, recipe, resume=False, processes=processes):
        if processes.rank == 0:
            environment = records.read_json(folder / records.ENVIRONMENT)
            records.write_json(folder / records.ENVIRONMENT, {**environment, "engine": "trl"})
        return _in(folder, recipe, processes, progress=progress, log=log)


def _check_launch(recipe: Recipe) -> None:
    """Refuse what is not installed, and what `accelerate launch` asks for and no run can have."""
    if recipe.rollouts.engine == VLLM and importlib.util.find_spec("vllm") is None:
        raise UserError(
            f"rollouts.engine is {VLLM!r}, which needs a package: pip install 'trl[vllm]==1.16.0'"
        )
    rounded = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if recipe.model.precision == "float32" and rounded != "no":
        raise UserError(
            f"model.precision is 'float32', but accelerate launch has mixed_precision = "
            f"{rounded!r}: say model.precision = 'bfloat16' or 'float16', or --mixed_precision no"
        )
    if _asked_for("CPU") and "MASTER_ADDR" in os.environ and "WORLD_SIZE" not in os.environ:
        raise UserError(
            "accelerate launch --cpu starts one process, whatever --num_processes says: for "
            "several on a machine without a GPU, say --multi_gpu in its place"
        )
    if sharded := _sharded():
        raise UserError(
            f"accelerate launch asks for {sharded}, which leaves each process a share of the "
            "weights; --engine trl evaluates and keeps a whole model: take DeepSpeed with "
            "zero_stage 0, 1 or 2, or processes without it"
        )


def _asked_for(what: str) -> bool:
    """Whether `accelerate launch` has been told to use a CPU, FSDP or DeepSpeed."""
    return os.environ.get(f"ACCELERATE_USE_{what}", "false").lower() in ("true", "1")


def _sharded() -> str | None:
    """What `accelerate launch` has been told to shard the weights with, if it has."""
    if _asked_for("FSDP"):
        return "FSDP"
    if _asked_for("DEEPSPEED"):
        from accelerate import DeepSpeedPlugin

        if DeepSpeedPlugin().zero_stage == 3:
            return "DeepSpeed's ZeRO-3"
    return None


def _in(
    folder: Path, recipe: Recipe, processes: Processes, *, progress: bool, log: str | None
) -> list[dict[str, float]]:
    """The run in a folder that is prepared."""
    writing = processes.rank == 0
    start = perf_counter()
    learner = build(recipe, processes, progress=progress)
    if writing:
        run.keep_start(folder, learner)
    metrics = run.keep_metrics(folder, recipe, log=log) if writing else None
    trainer = make_trainer(learner, folder, processes)
    recorder = Recorder(learner, trainer, metrics, progress and writing)
    trainer.add_callback(recorder)
    if recipe.witness.every:
        keep_ours(trainer, learner, folder)
    built = perf_counter() - start
    trainer.train()
    learner.policy = lora.inside(trainer.accelerator.unwrap_model(trainer.model)).eval()
    if writing:
        run.finish(folder, learner, recorder.history, before_first_step=built)
    processes.wait()
    return recorder.history


class Recorder(TrainerCallback):
    """Turns what TRL logs after each step into a line of our metrics.

    Args:
        learner: whose policy TRL's trainer trains.
        trainer: of `make_trainer`.
        metrics: the file to write to, if this process writes.
        visible: draw a progress bar.
    """

    def __init__(
        self, learner: Learner, trainer: Any, metrics: records.Metrics | None, visible: bool
    ) -> None:
        self.learner, self.trainer, self.metrics = learner, trainer, metrics
        self.history: list[dict[str, float]] = []
        recipe = learner.recipe
        self.bar: Any = track((), recipe.algorithm.name, visible=visible, total=recipe.steps)
        self.update = ExitStack()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An update begins."""
        self.update.enter_context(self.trainer.our_clock("learn"))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """And ends."""
        self.update.close()

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """TRL has logged a step, after all its updates."""
        logs, learner, recipe = more["logs"], self.learner, self.learner.recipe
        if "reward" not in logs:  # the summary that the Trainer writes at the end
            return
        clock, self.trainer.our_clock = self.trainer.our_clock, Clock()
        step = len(self.history) + 1
        row = _translated(logs, recipe, step, clock)
        if recipe.evaluates(step):
            with clock("evaluate"):
                learner.policy.eval()  # layers that compute activations twice take no cache
                row["held_out"] = held_out_accuracy(learner)
                learner.policy.train()
        row |= clock.report()
        self.history.append(row)
        if self.metrics is not None:
            self.metrics.write(row)
        watched = {key: f"{row[key]:.2f}" for key in ("reward", "held_out") if key in row}
        self.bar.set_postfix(watched, refresh=False)
        self.bar.update()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last step is done."""
        self.bar.close()
        if self.metrics is not None:
            self.metrics.close()


def _translated(
    logs: Mapping[str, Any], recipe: Recipe, step: int, clock: Clock
) -> dict[str, float]:
    """A line of our metrics from what TRL logged.

    Raises:
        FloatingPointError: if the loss or the gradient is not finite.
    """
    row = {ours: logs[theirs] for theirs, ours in METRICS.items() if logs.get(theirs) is not None}
    for name in ("policy_loss", "grad_norm"):
        if not math.isfinite(row.get(name, 0.0)):
            raise FloatingPointError(f"step {step}: the {name} is {row[name]}")
    responses = recipe.rollouts.responses
    tokens = round(row["length"] * responses)
    accuracy, of_right = row["accuracy"], logs[LENGTH_OF_RIGHT]
    return {
        "step": step,
        **row,
        "length_right": of_right / accuracy if accuracy > 0 else math.nan,
        "length_wrong": (row["length"] - of_right) / (1 - accuracy) if accuracy < 1 else math.nan,
        "updates": recipe.optimiser.updates,
        "responses": responses,
        "tokens": tokens,
        "tokens_per_second": tokens / sum(clock.seconds.values()),
    }
