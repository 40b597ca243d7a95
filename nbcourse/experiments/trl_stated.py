"""What the loss of a run by TRL should be, from the trainer's arguments: in a witness's words.

Chapter 16 shows what becomes of such a witness.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from nbcourse.experiments.trl_options import ADVANTAGES, AVERAGES, SURROGATES, Limit
from nbcourse.training.algorithms import Penalty

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
        averaged = chosen[1].averages(aggregation)
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
        "tau_positive": args.sapo_temperature_pos,
        "tau_negative": args.sapo_temperature_neg,
    }
    return {name: values[name] for name in known}
