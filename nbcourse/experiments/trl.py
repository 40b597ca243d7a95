"""The same recipe, trained by TRL: accelerate, DeepSpeed and vLLM are theirs, the rewards ours.

What a recipe says is translated by the tables below, by the functions of the algorithm's row and
not by its name, so that a row of a reader's own is understood too; what TRL cannot do is refused.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from nbcourse.diagnosis.witness import verified
from nbcourse.errors import UserError
from nbcourse.experiments import records, run
from nbcourse.functional import surrogates
from nbcourse.lm import lora
from nbcourse.lm.importing import without_collection
from nbcourse.lm.rollouts import Rollout, encode, padded
from nbcourse.lm.sampling import end_tokens
from nbcourse.progress import track
from nbcourse.training import algorithms
from nbcourse.training.algorithms import ALGORITHMS, Algorithm, Penalty
from nbcourse.training.clock import Clock
from nbcourse.training.experience import Draws, score, with_spread
from nbcourse.training.held_out import held_out_accuracy
from nbcourse.training.learner import Learner
from nbcourse.training.preparation import build
from nbcourse.training.processes import Processes, connect
from nbcourse.training.recipe import VLLM, Recipe

Options = Mapping[str, Callable[[Recipe], Any]]


@dataclass(frozen=True)
class Limit:
    """Which values of a setting TRL cannot have, and why; without a reason it has them all."""

    refused: Callable[[Recipe], bool] = lambda recipe: False
    reason: str = ""


@dataclass(frozen=True)
class Part:
    """What TRL calls a function of ours, or a way to average.

    Attributes:
        trainer: whose options these are: `trl.{trainer}Trainer`, configured by
            `trl.{trainer}Config`.
        fixed: options that make the trainer compute this function.
        chosen: options that follow from the recipe.
        settings: every setting of the function, with what TRL cannot follow of it.
    """

    trainer: str = "GRPO"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    chosen: Options = field(default_factory=dict)
    settings: Mapping[str, Limit] = field(default_factory=dict)


# ---------------------------------------------------------------- the tables

_CLIP: Options = {
    "epsilon": lambda r: r.settings["clip_low"],
    "epsilon_high": lambda r: r.settings["clip_high"],
}
_DUAL = Limit(
    lambda r: (r.settings["dual_clip"] or math.inf) < 1 + _clip_high(r),
    "TRL's delta caps the ratio of every token, so it has to be at least 1 + clip_high",
)
_NO_LOW = Limit(
    lambda r: r.settings["clip_low"] < 1,
    "TRL's CISPO has no lower bound, which is clip_low = 1.0",
)
_TRL_EPS = Limit(lambda r: r.settings["eps"] != 1e-4, "TRL has 0.0001")

ADVANTAGES: Mapping[Any, Part] = {
    algorithms.group_relative: Part(settings={"eps": _TRL_EPS}),
    algorithms.group_centred: Part(fixed={"scale_rewards": "none"}),
    algorithms.leave_one_out: Part("RLOO", {"normalize_advantages": False}),
}
SURROGATES: Mapping[Any, Part] = {
    surrogates.ppo_clip: Part(
        chosen={**_CLIP, "delta": lambda r: r.settings["dual_clip"]},
        settings={"clip_low": Limit(), "clip_high": Limit(), "dual_clip": _DUAL},
    ),
    surrogates.gspo: Part(
        fixed={"importance_sampling_level": "sequence"},
        chosen=_CLIP,
        settings={"clip_low": Limit(), "clip_high": Limit()},
    ),
    # TRL caps the ratio itself where the papers, and we, give its distance from 1.
    surrogates.cispo: Part(
        fixed={"loss_type": "cispo"},
        chosen={"epsilon_high": lambda r: 1 + _clip_high(r)},
        settings={"clip_low": _NO_LOW, "clip_high": Limit()},
    ),
    # TRL's RLOO has a ratio, which is 1 in the one update that this surrogate allows.
    surrogates.policy_gradient: Part("RLOO"),
}
AVERAGES: Mapping[Any, Part] = {
    "seq-mean-token-mean": Part(fixed={"loss_type": "grpo"}),
    "token-mean": Part(fixed={"loss_type": "dapo"}),
    "seq-mean-token-sum-norm": Part(fixed={"loss_type": "dr_grpo"}),
    "seq-mean-token-sum": Part("RLOO"),
}
KL = {"GRPO": "loss", "RLOO": "reward"}  # the one place where a trainer puts it

# What a trainer would otherwise do on its own account.
FIXED: Mapping[str, Mapping[str, Any]] = {
    "GRPO": {"use_bias_correction_kl": False},  # their default is close to kl = "surrogate"
    "RLOO": {},
    "both": {
        "shuffle_dataset": False,  # the problems are in the order in which a run draws them
        "disable_dropout": True,
        "activation_checkpointing": False,
        "ddp_find_unused_parameters": False,
        "logging_nan_inf_filter": False,  # it would hide a loss that is not finite
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    },
}

CHOSEN: Options = {
    "seed": lambda r: r.seed,
    "num_generations": lambda r: r.rollouts.group_size,
    "max_completion_length": lambda r: r.rollouts.max_new_tokens,
    "temperature": lambda r: r.rollouts.temperature,
    "beta": lambda r: r.penalty.beta,
    "gradient_checkpointing": lambda r: r.model.gradient_checkpointing,
    "bf16": lambda r: r.model.precision == "bfloat16",
    "fp16": lambda r: r.model.precision == "float16",
    "learning_rate": lambda r: r.optimiser.learning_rate,
    "weight_decay": lambda r: r.optimiser.weight_decay,
    "max_grad_norm": lambda r: r.optimiser.max_grad_norm,
    "num_iterations": lambda r: r.optimiser.epochs,
    "max_steps": lambda r: r.steps * r.optimiser.updates,
    "logging_steps": lambda r: r.optimiser.updates,
}

# Where vLLM samples. Without the correction, TRL takes what vLLM drew for the learner's own.
SAMPLED_BY_VLLM: Mapping[str, Options] = {
    "GRPO": {
        "vllm_importance_sampling_correction": lambda r: _cap(r) is not None,
        "vllm_importance_sampling_mode": lambda r: "token_truncate",
        "vllm_importance_sampling_clip_max": lambda r: _cap(r),
    },
    "RLOO": {},
    "both": {
        "use_vllm": lambda r: True,
        "vllm_mode": lambda r: "colocate",  # on the cards that train
    },
}

# Keys whose values TRL cannot all have.
REFUSED: Mapping[str, Limit] = {
    "rollouts.dynamic_sampling": Limit(
        lambda r: r.dynamic_sampling,
        "TRL does not replace prompts without spread; say rollouts.dynamic_sampling = false",
    ),
    "rollouts.prompts_at_once": Limit(
        lambda r: r.rollouts.prompts_at_once is not None,
        "TRL samples the responses of a step together",
    ),
    "rollouts.group_size": Limit(lambda r: r.rollouts.group_size < 2, "TRL expects at least 2"),
    "kl.placement": Limit(
        lambda r: r.penalty.placement not in ("none", KL[_trainer(r)]),
        "TRL's GRPOTrainer has the KL in the loss, its RLOOTrainer in the reward",
    ),
    "kl.estimator": Limit(
        lambda r: r.penalty.placement == "loss" and r.penalty.estimator != "k3",
        "TRL has 'k3' only",
    ),
    "kl.controller": Limit(
        lambda r: r.kl.controller != "fixed", "TRL's coefficient stays where it is"
    ),
    "optimiser.truncated_importance_sampling": Limit(
        lambda r: (
            _cap(r) is not None
            and (r.rollouts.engine != VLLM or _trainer(r) != "GRPO" or r.penalty.beta > 0)
        ),
        "TRL corrects for a sampler that rounds otherwise only where vLLM samples, in its "
        "GRPOTrainer, and leaves the KL as it is (kl.beta = 0 does, too)",
    ),
    "optimiser.target_kl": Limit(
        lambda r: r.optimiser.target_kl is not None, "TRL does not leave a batch early"
    ),
    "steps": Limit(lambda r: r.steps == 0, "TRL would take it for no limit"),
    "checkpoint.every": Limit(
        lambda r: "every" in r.checkpoint.model_fields_set,
        "this engine keeps nothing to resume from",
    ),
    "witness.every": Limit(
        lambda r: r.witness.every > 0 and _trainer(r) != "GRPO",
        "witness batches need TRL's GRPOTrainer",
    ),
}
# Where the value in effect may be the algorithm's and not the key's own.
IN_EFFECT: Options = {
    "rollouts.dynamic_sampling": lambda r: r.dynamic_sampling,
    "kl.placement": lambda r: r.penalty.placement,
    "kl.estimator": lambda r: r.penalty.estimator,
}

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
# What our reward function tells it, too: length times verdict, of which two means can be made.
LENGTH_OF_RIGHT = "length_of_right"


def _cap(recipe: Recipe) -> float | None:
    return recipe.optimiser.truncated_importance_sampling


def _clip_high(recipe: Recipe) -> float:
    settings = recipe.settings
    high = settings.get("clip_high")
    return settings.get("clip_low", 0.0) if high is None else high


# ---------------------------------------------------------------- from recipe to trainer


def parts(row: Algorithm) -> tuple[Part, Part, Part]:
    """What TRL calls the advantage, the surrogate and the average of a row, in this order.

    Raises:
        ValueError: naming what TRL has no counterpart of.
    """
    found: list[Part] = []
    for what, entry, table in (
        ("advantage function", row.advantage, ADVANTAGES),
        ("surrogate", row.surrogate, SURROGATES),
        ("aggregation", row.aggregation, AVERAGES),
    ):
        part = table.get(entry)
        if part is None or (found and part.trainer != found[0].trainer):
            owner = f"TRL's {found[0].trainer}Trainer" if found else "TRL"
            name = getattr(entry, "__name__", entry)
            raise UserError(f"{owner} has no counterpart of its {what} {name!r}")
        found.append(part)
    advantage, surrogate, average = found
    if "loss_type" in surrogate.fixed and row.aggregation != "token-mean":
        raise UserError(
            f"TRL averages its surrogate by 'token-mean', and its aggregation is "
            f"{row.aggregation!r}"
        )
    return advantage, surrogate, average


def followed() -> list[str]:
    """The rows of the package that TRL can follow."""
    return [name for name, row in ALGORITHMS.items() if _obstacle(row) is None]


def options(recipe: Recipe, processes: Processes) -> dict[str, Any]:
    """The recipe as keyword arguments of `trl.GRPOConfig` or `trl.RLOOConfig`.

    Raises:
        ValueError: naming each key that TRL cannot follow.
    """
    if obstacle := _obstacle(recipe.row):
        raise UserError(
            f"algorithm.name is {recipe.algorithm.name!r}, which --engine trl cannot follow: "
            f"{obstacle}; it can follow {', '.join(map(repr, followed()))}"
        )
    advantage, surrogate, average = parts(recipe.row)
    refused = [
        (key, IN_EFFECT.get(key, attrgetter(key))(recipe), limit.reason)
        for key, limit in REFUSED.items()
        if limit.refused(recipe)
    ]
    refused += [
        (f"algorithm.{name}", recipe.settings[name], limit.reason)
        for name, limit in {**advantage.settings, **surrogate.settings}.items()
        if limit.refused(recipe)
    ]
    if refused:
        raise UserError(
            "\n".join(
                f"{key} is {value!r}, which --engine trl cannot follow: {reason}"
                for key, value, reason in refused
            )
        )
    chosen = {**CHOSEN, **advantage.chosen, **surrogate.chosen}
    if recipe.rollouts.engine == VLLM:
        chosen |= {**SAMPLED_BY_VLLM["both"], **SAMPLED_BY_VLLM[_trainer(recipe)]}
    on_cpu = processes.device.type == "cpu"
    return {
        **FIXED["both"],
        **FIXED[_trainer(recipe)],
        **advantage.fixed,
        **average.fixed,
        **surrogate.fixed,
        **{name: value(recipe) for name, value in chosen.items()},
        **_batches(recipe, processes.count),
        "use_cpu": on_cpu,
        "dataloader_pin_memory": not on_cpu,
    }


def _obstacle(row: Algorithm) -> str | None:
    """Why TRL cannot follow a row; None if it can."""
    try:
        parts(row)
    except ValueError as error:
        return str(error)
    return None


def _trainer(recipe: Recipe) -> str:
    return parts(recipe.row)[0].trainer


def _batches(recipe: Recipe, processes: int) -> dict[str, int]:
    """How a step's responses are dealt out to minibatches, processes and backward passes."""
    settings, prompts = recipe.optimiser, recipe.rollouts.prompts
    share, rest = divmod(prompts, settings.minibatches * processes)
    at_once = min(settings.prompts_at_once or share, share)
    if rest or share % max(at_once, 1):
        raise UserError(
            f"rollouts.prompts is {prompts}, expected a multiple of optimiser.minibatches × "
            f"processes × optimiser.prompts_at_once = {settings.minibatches} × {processes} × "
            f"{at_once}: TRL's batches are all of one size"
        )
    accumulated = share // at_once
    return {
        "per_device_train_batch_size": at_once * recipe.rollouts.group_size,
        "gradient_accumulation_steps": accumulated,
        "steps_per_generation": accumulated * settings.minibatches,
    }


@without_collection()  # TRL is imported here
def make_trainer(
    learner: Learner, folder: Path, processes: Processes, callbacks: Sequence[Any] = ()
) -> Any:
    """TRL's trainer, ready to `train()`, around the learner's policy.

    Args:
        learner: a policy that has had its warm start.
        folder: of the run; it receives the reference, where TRL loads one or vLLM loads a model.
        processes: those that train.
        callbacks: of transformers' `Trainer`.

    Raises:
        ValueError: if TRL is not installed, or cannot follow the recipe.
    """
    recipe, policy = learner.recipe, learner.policy
    chosen = options(recipe, processes)
    try:
        import trl
    except ImportError as error:
        raise UserError("--engine trl needs a package: pip install trl==1.16.0") from error
    from transformers import PrinterCallback
    from transformers.utils import logging

    logging.disable_progress_bar()  # ours have labels
    adapter = lora.is_on(policy)
    if recipe.rollouts.engine == VLLM or (recipe.penalty.beta > 0 and not adapter):
        reference = (folder / "reference").absolute()
        if processes.rank == 0:
            lora.merged(learner.reference).save_pretrained(reference)
            learner.tokenizer.save_pretrained(reference)
        processes.wait()
        policy.config._name_or_path = str(reference)  # where TRL looks for its reference
        policy.name_or_path = str(reference)  # and vLLM for a model
    name, problems = _trainer(recipe), _problems(learner)
    trainer = _with_ours(getattr(trl, f"{name}Trainer"))(
        model=lora.as_peft(policy) if adapter else policy,
        args=getattr(trl, f"{name}Config")(output_dir=str(folder), **chosen),
        reward_funcs=_reward_function(learner, problems),
        train_dataset=_prompts(learner, problems),
        processing_class=learner.tokenizer,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.our_recipe, trainer.our_clock = recipe, Clock()
    if adapter and "ref" in trainer.model.peft_config:  # a copy of the adapter as it is at first
        trainer.model.delete_adapter("ref")  # without it, TRL switches the adapter off
    return trainer


def _with_ours(trainer: Any) -> Any:
    """The trainer, with our clock, and the learning rate and the weight decay of `loop.learn`.

    Transformers' warm-up begins with a step of rate 0, and it spares norms and biases the decay.
    """

    class Trainer(trainer):
        lr_scheduler: Any

        def _generate(self, *arguments: Any, **options: Any) -> Any:
            with self.our_clock("sample"):
                return super()._generate(*arguments, **options)

        def _calculate_rewards(self, *arguments: Any, **options: Any) -> Any:
            with self.our_clock("sample"):
                return super()._calculate_rewards(*arguments, **options)

        def _generate_and_score_completions(self, *arguments: Any, **options: Any) -> Any:
            with self.our_clock("consult"):  # what is left once sampling is counted
                return super()._generate_and_score_completions(*arguments, **options)

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            if self.lr_scheduler is None:
                settings = self.our_recipe.optimiser
                updates, rise = settings.updates, settings.warm_up + 1
                self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                    optimizer or self.optimizer,
                    lambda update: min(1.0, (update // updates + 1) / rise),
                )
            return self.lr_scheduler

        def get_decay_parameter_names(self, model: torch.nn.Module) -> list[str]:
            return [name for name, _ in model.named_parameters()]

    return Trainer


def _problems(learner: Learner) -> list[Any]:
    """The training problems of the whole run, in the order in which `run.train` draws them."""
    draws = Draws(learner.recipe)
    return [problem for _ in range(learner.recipe.steps) for problem in draws.next()[1]]


def _prompts(learner: Learner, problems: Sequence[Any]) -> Any:
    """What TRL samples responses to, each with the number of its problem."""
    from datasets import Dataset

    prompts = learner.prompts(problems)
    ids = learner.tokenizer(prompts[0])["input_ids"]
    if ids != learner.tokenizer(prompts[0], add_special_tokens=False)["input_ids"]:
        raise UserError(
            "the tokenizer puts special tokens around a prompt: TRL would send them, nbcourse not"
        )
    return Dataset.from_list([{"prompt": p, "number": i} for i, p in enumerate(prompts)])


def _reward_function(learner: Learner, problems: Sequence[Any]) -> Callable[..., list[float]]:
    """What `experience.score` says, in the form in which TRL asks for it."""

    def reward(
        prompts: list[str],
        completion_ids: list[list[int]],
        number: list[int],
        log_metric: Callable[[str, float], None],
        log_extra: Callable[[str, list[Any]], None],
        **_: Any,
    ) -> list[float]:
        rollout = _as_rollout(learner, prompts, completion_ids)
        with learner.precision():
            scores, correct = score(learner, rollout, [problems[i] for i in number])
        lengths = rollout.mask.sum(dim=1).float()
        spread = with_spread(scores, learner.recipe.rollouts.group_size)
        log_metric("accuracy", correct.mean().item())
        log_metric("no_spread", (~spread).float().mean().item())
        log_metric(LENGTH_OF_RIGHT, (lengths * correct).mean().item())
        log_extra("verdict", correct.tolist())
        return scores.tolist()

    return reward


def _as_rollout(
    learner: Learner, prompts: Sequence[str], completions: Sequence[Sequence[int]]
) -> Rollout:
    """Responses that TRL sampled, in our form, without log-probs."""
    ends = end_tokens(learner.policy, learner.tokenizer)  # TRL stops at any of them, too
    prompt_ids, prompt_mask = encode(learner.tokenizer, prompts, device=learner.device)
    tokens, mask = padded(completions, padding=ends[0])
    return Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        tokens=tokens.to(learner.device),
        mask=mask.to(learner.device),
        log_probs=torch.zeros(mask.shape, device=learner.device),
        truncated=torch.tensor([ids[-1] not in ends for ids in completions], device=learner.device),
    )


# ---------------------------------------------------------------- a run


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
    recorder = _recorder(learner, trainer, metrics, progress and writing)
    trainer.add_callback(recorder)
    if recipe.witness.every:
        _keep_ours(trainer, learner, folder)
    built = perf_counter() - start
    trainer.train()
    learner.policy = lora.inside(trainer.accelerator.unwrap_model(trainer.model)).eval()
    if writing:
        run.finish(folder, learner, recorder.history, before_first_step=built)
    processes.wait()
    return recorder.history


def _recorder(
    learner: Learner, trainer: Any, metrics: records.Metrics | None, visible: bool
) -> Any:
    """A callback that turns what TRL logs after each step into a line of our metrics."""
    from transformers import TrainerCallback

    recipe = learner.recipe

    class Recorder(TrainerCallback):
        def __init__(self) -> None:
            self.history: list[dict[str, float]] = []
            self.bar: Any = track((), recipe.algorithm.name, visible=visible, total=recipe.steps)
            self.update = ExitStack()

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.update.enter_context(trainer.our_clock("learn"))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.update.close()

        def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            logs = more["logs"]
            if "reward" not in logs:  # the summary that the Trainer writes at the end
                return
            clock, trainer.our_clock = trainer.our_clock, Clock()
            row = _translated(logs, recipe, len(self.history) + 1, clock)
            if row["step"] % recipe.evaluation.every == 0 or row["step"] == recipe.steps:
                with clock("evaluate"):
                    learner.policy.eval()  # layers that compute activations twice take no cache
                    row["held_out"] = held_out_accuracy(learner)
                    learner.policy.train()
            row |= clock.report()
            self.history.append(row)
            if metrics is not None:
                metrics.write(row)
            watched = {key: f"{row[key]:.2f}" for key in ("reward", "held_out") if key in row}
            self.bar.set_postfix(watched, refresh=False)
            self.bar.update()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.bar.close()
            if metrics is not None:
                metrics.close()

    return Recorder()


# ---------------------------------------------------------------- witness batches

# What a trainer may have been told to do that none of our functions does, unless it has this value.
PLAIN: Mapping[str, Any] = {
    "mask_truncated_completions": False,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "off_policy_mask_threshold": None,
    "multi_objective_aggregation": "sum_then_normalize",
    "use_bias_correction_kl": False,
    "use_liger_kernel": False,
}


def keep_witnesses(
    trainer: Any, folder: str | Path, *, every: int = 20, tokens: int = 1024
) -> None:
    """Add witness batches to a `trl.GRPOTrainer`, for `nbcourse diagnose FOLDER`.

        trainer = GRPOTrainer(model, reward_funcs, args, train_dataset)
        keep_witnesses(trainer, "outputs/mine", every=20)
        trainer.train()

    What the loss should be is taken from the trainer's arguments.

    Args:
        trainer: not yet training.
        folder: the witnesses go to the folder `witness` in it.
        every: batches of responses from one to the next, the first one's included.
        tokens: of responses in each at most, whole groups of them, but one group always.

    Raises:
        ValueError: naming what a witness cannot hold: several processes, fp16, images, tools, or a
            trainer of another kind.

    Book: section 16.9.
    """
    from nbcourse.experiments.trl_witness import Witnesses, check

    check(trainer)
    Witnesses(
        trainer, run.keeper(Path(folder)), every=every, tokens=tokens, stated=stated(trainer.args)
    )


def stated(args: Any) -> dict[str, Any]:
    """What the loss of a `trl.GRPOConfig` should be, in the words of a witness."""
    charged = "loss" if args.beta else "none"
    found: dict[str, Any] = {
        "algorithm": f"TRL's {args.loss_type}",
        "settings": {},
        "penalty": vars(Penalty(charged, "k3", args.beta)),
    }
    odd = {name: getattr(args, name, plain) for name, plain in PLAIN.items()}
    odd = {name: value for name, value in odd.items() if value != PLAIN[name]}
    if not args.beta:
        odd.pop("use_bias_correction_kl", None)
    if args.delta is not None and args.loss_type != "cispo":  # our cap is that of bad tokens alone
        high = args.epsilon if args.epsilon_high is None else args.epsilon_high
        if args.importance_sampling_level != "token" or args.delta < 1 + high:
            odd["delta"] = args.delta
    if args.use_vllm and args.vllm_importance_sampling_correction:
        odd["vllm_importance_sampling_correction"] = True
    defaults = {"scale_rewards": "group", "importance_sampling_level": "token"}
    told = {name: getattr(args, name) for name in (*defaults, "loss_type")}
    for advantage, surrogate, aggregation in product(ADVANTAGES, SURROGATES, AVERAGES):
        chosen = ADVANTAGES[advantage], SURROGATES[surrogate], AVERAGES[aggregation]
        fixed = defaults | dict(chosen[2].fixed) | dict(chosen[0].fixed) | dict(chosen[1].fixed)
        averaged = chosen[1].fixed.get("loss_type") is None or aggregation == "token-mean"
        if odd or fixed != told or not averaged or any(part.trainer != "GRPO" for part in chosen):
            continue
        found["parts"] = {
            "advantage": advantage.__name__,
            "surrogate": surrogate.__name__,
            "aggregation": aggregation,
        }
        found["settings"] = _settings(args, {**chosen[0].settings, **chosen[1].settings})
        return found
    reason = ", ".join(f"{name} = {value!r}" for name, value in (odd or told).items())
    return found | {"not_followed": f"no function of the package does what TRL does with {reason}"}


def _settings(args: Any, known: Mapping[str, Limit]) -> dict[str, Any]:
    """The settings that a `trl.GRPOConfig` gives our functions."""
    cispo = args.loss_type == "cispo"  # whose cap is that of the ratio itself
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    values = {
        "eps": 1e-4,
        "clip_low": 1.0 if cispo else args.epsilon,
        "clip_high": high - 1 if cispo else high,
        "dual_clip": args.delta,
    }
    return {name: values[name] for name in known}


def _keep_ours(trainer: Any, learner: Learner, folder: Path) -> None:
    """Witnesses of a recipe's run: what it states is the recipe's, and verdicts are read again."""
    from nbcourse.experiments.trl_witness import Witnesses

    recipe, problems = learner.recipe, _problems(learner)
    task = recipe.task.build()

    def read(
        asked: Sequence[Mapping[str, Any]], texts: Sequence[str]
    ) -> tuple[dict[str, torch.Tensor], list[str]]:
        those = [problems[row["number"]] for row in asked]
        return verified(task, texts, those), [str(problem.answer) for problem in those]

    Witnesses(
        trainer,
        run.keeper(folder),
        every=recipe.witness.every,
        tokens=recipe.witness.tokens,
        stated={
            "algorithm": recipe.algorithm.name,
            "settings": {**recipe.row.all_settings, **recipe.settings},
            "penalty": vars(recipe.penalty),
            "reward": recipe.reward.model_dump(),
        },
        read=read,
    )


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
