"""What TRL calls what a recipe says, and what of a recipe it cannot do.

A recipe is translated by the tables below, by the functions of the algorithm's row and not by its
name, so that a row of a reader's own is understood too; what TRL cannot do is refused.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from nbcourse.errors import UserError
from nbcourse.functional import surrogates
from nbcourse.training import algorithms
from nbcourse.training.algorithms import ALGORITHMS, Algorithm
from nbcourse.training.processes import Processes
from nbcourse.training.recipe import Recipe
from nbcourse.training.recipe_sections import VLLM

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
        average: the one way in which the trainer averages it, if its `loss_type` says that too.
    """

    trainer: str = "GRPO"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    chosen: Options = field(default_factory=dict)
    settings: Mapping[str, Limit] = field(default_factory=dict)
    average: str | None = None

    def averages(self, aggregation: str) -> bool:
        """Whether the trainer can average this function in this way."""
        return self.average in (None, aggregation)


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
        average="token-mean",
    ),
    surrogates.sapo: Part(
        fixed={"loss_type": "sapo"},
        chosen={
            "sapo_temperature_pos": lambda r: r.settings["tau_positive"],
            "sapo_temperature_neg": lambda r: r.settings["tau_negative"],
        },
        settings={"tau_positive": Limit(), "tau_negative": Limit()},
        average="seq-mean-token-mean",
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
    "adam_beta1": lambda r: r.optimiser.betas[0],
    "adam_beta2": lambda r: r.optimiser.betas[1],
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
        "vllm_importance_sampling_clip_min": lambda r: (
            r.optimiser.truncated_importance_floor or None
        ),
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
    "model.forward": Limit(
        lambda r: r.model.forward != "transformers", "TRL learns through the layers of transformers"
    ),
    "rollouts.group_size": Limit(lambda r: r.rollouts.group_size < 2, "TRL expects at least 2"),
    "kl.placement": Limit(
        lambda r: r.penalty.placement not in ("none", KL[trainer_of(r)]),
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
            and (r.rollouts.engine != VLLM or trainer_of(r) != "GRPO" or r.penalty.beta > 0)
        ),
        "TRL corrects for a sampler that rounds otherwise only where vLLM samples, in its "
        "GRPOTrainer, and leaves the KL as it is (kl.beta = 0 does, too)",
    ),
    "reward.shuffled": Limit(
        lambda r: r.reward.shuffled, "this control is of the package's own trainer"
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
        lambda r: r.witness.every > 0 and trainer_of(r) != "GRPO",
        "witness batches need TRL's GRPOTrainer",
    ),
}
# Where the value in effect may be the algorithm's and not the key's own.
IN_EFFECT: Options = {
    "rollouts.dynamic_sampling": lambda r: r.dynamic_sampling,
    "kl.placement": lambda r: r.penalty.placement,
    "kl.estimator": lambda r: r.penalty.estimator,
}


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
    if not surrogate.averages(row.aggregation):
        raise UserError(
            f"TRL averages its surrogate by {surrogate.average!r}, and its aggregation is "
            f"{row.aggregation!r}"
        )
    return advantage, surrogate, average


def followed() -> list[str]:
    """The rows of the package that TRL can follow, with their own settings."""

    def follows(row: Algorithm) -> bool:
        try:
            advantage, surrogate, _ = parts(row)
        except UserError:
            return False
        limits = {**advantage.settings, **surrogate.settings}.values()
        usual: Any = SimpleNamespace(settings=row.all_settings)
        return not any(limit.refused(usual) for limit in limits)

    return [name for name, row in ALGORITHMS.items() if follows(row)]


def options(recipe: Recipe, processes: Processes) -> dict[str, Any]:
    """The recipe as keyword arguments of `trl.GRPOConfig` or `trl.RLOOConfig`.

    Raises:
        ValueError: naming each key that TRL cannot follow.
    """
    try:
        advantage, surrogate, average = parts(recipe.row)
    except UserError as error:
        raise UserError(
            f"algorithm.name is {recipe.algorithm.name!r}, which --engine trl cannot follow: "
            f"{error}; it can follow {', '.join(map(repr, followed()))}"
        ) from error
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
        chosen |= {**SAMPLED_BY_VLLM["both"], **SAMPLED_BY_VLLM[trainer_of(recipe)]}
    on_cpu = processes.device.type == "cpu"
    return {
        **FIXED["both"],
        **FIXED[trainer_of(recipe)],
        **advantage.fixed,
        **average.fixed,
        **surrogate.fixed,
        **{name: value(recipe) for name, value in chosen.items()},
        **_batches(recipe, processes.count),
        "use_cpu": on_cpu,
        "dataloader_pin_memory": not on_cpu,
    }


def trainer_of(recipe: Recipe) -> str:
    """Which of TRL's trainers follows a recipe: GRPO or RLOO."""
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
