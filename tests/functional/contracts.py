"""One sample call of every function, for the promises that all of them make.

A new function joins by one more `Call` in the table at the end; `test_arguments` then poisons its
masked entries, feeds it wrong shapes and dtypes, and watches that it leaves its inputs alone. A
public function that has no call, and no reason in `WITHOUT_CALL`, fails a test.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor

from nbcourse import functional
from nbcourse.functional import (
    accuracy,
    advantages,
    aggregation,
    arguments,
    kl,
    masking,
    returns,
    rewards,
    surrogates,
    values,
)

GARBAGE = [float("nan"), float("inf"), float("-inf"), 1e30, -1e30]

# Rows: all tokens; a hole (a tool's output) then padding; a late start; one token; none at all.
# 5 × 6, so that a transposed tensor cannot pass for a straight one.
MASK = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 0, 0, 1, 0],
        [0, 1, 1, 1, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ],
    dtype=torch.bool,
)


@dataclass(frozen=True)
class Call:
    """A function with arguments that it accepts, and what it promises about them."""

    function: Callable
    tensors: dict[str, Tensor]  # float64; the first is the one others are measured against
    flags: dict[str, Tensor] = field(default_factory=dict)  # boolean and integer tensors
    options: dict[str, Any] = field(default_factory=dict)
    smooth: tuple[str, ...] = ()  # arguments that receive a gradient
    hidden: tuple[str, ...] = ()  # arguments that do not matter where the mask is False
    mask: Tensor | None = None  # that mask, if it is applied later rather than passed in
    honest: bool = True  # autograd's gradient is the derivative: there is no stop-gradient inside
    loud: bool = True  # a NaN that is not masked comes out
    any_rank: bool = False  # entry by entry: an axis more in all arguments is taken

    def __call__(self, **changes: Any) -> list[Tensor]:
        """The tensors that come out, with some arguments changed."""
        out = self.function(**{**self.tensors, **self.flags, **self.options, **changes})
        out = out if isinstance(out, tuple) else (out,)
        return [x for x in out if torch.is_tensor(x)]

    @property
    def counted(self) -> Tensor | None:
        """The mask, given as an argument or applied later; None if there is none."""
        return self.flags.get("mask", self.mask)

    def visible(self, **changes: Any) -> list[Tensor]:
        """What comes out, with 0 for the tokens that a later mask would drop."""
        mask = self.counted
        if mask is None:
            return self(**changes)
        return [torch.where(mask, x, 0.0) if x.shape == mask.shape else x for x in self(**changes)]


def _normal(*shape: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64) + shift


def _table() -> dict[str, Call]:
    shape = tuple(MASK.shape)
    x = _normal(*shape, seed=1)
    log_probs = _normal(*shape, seed=2, scale=0.4, shift=-2.0)
    old_log_probs = log_probs + _normal(*shape, seed=3, scale=0.3)
    ref_log_probs = log_probs + _normal(*shape, seed=4, scale=0.5)
    weights = _normal(*shape, seed=5)
    masked = {"flags": {"mask": MASK}}
    later = {"mask": MASK}
    policy = {"log_probs": log_probs, "old_log_probs": old_log_probs, "advantages": weights}
    pair = {"log_probs": log_probs, "ref_log_probs": ref_log_probs}
    sampled = {"log_probs": log_probs, "sampler_log_probs": old_log_probs}
    learned = {"smooth": ("log_probs",)}
    x_only = {"tensors": {"x": x}, "smooth": ("x",), "hidden": ("x",), "any_rank": True}
    clips = {"clip_low": 0.1, "clip_high": 0.2}
    group = {"tensors": {"rewards": _normal(6, seed=6)}}
    critic = {"rewards": x, "values": weights}
    trained = {"values": x, "old_values": x + 0.4 * weights, "returns": _normal(*shape, seed=7)}
    terminated, truncated = torch.zeros(2, 6, 4, dtype=torch.bool)
    terminated[1, 0] = terminated[4, 2] = terminated[3, 3] = True
    truncated[2, 1] = truncated[5, 2] = truncated[3, 3] = True
    step_ends = torch.tensor([[0, 2, 4], [1, 3, -1], [2, 5, -1], [0, 1, 3]])

    calls = {
        "masked_mean": Call(masking.masked_mean, **x_only, **masked),
        "masked_mean by row": Call(masking.masked_mean, **x_only, **masked, options={"dim": 1}),
        "masked_whiten": Call(masking.masked_whiten, **x_only, **masked),
        "masked_whiten, mean kept": Call(
            masking.masked_whiten, **x_only, **masked, options={"shift_mean": False}
        ),
        "discounted_returns": Call(
            returns.discounted_returns,
            {"rewards": x},
            **masked,
            options={"gamma": 0.9},
            hidden=("rewards",),
        ),
        "n_step_returns": Call(
            returns.n_step_returns,
            {"rewards": x, "values": _normal(5, 7, seed=8)},
            options={"n": 3, "gamma": 0.9},
        ),
        "token_gae": Call(
            returns.token_gae,
            critic,
            **masked,
            options={"gamma": 0.9, "lam": 0.8},
            hidden=tuple(critic),
        ),
        "env_gae": Call(
            returns.env_gae,
            {
                "rewards": _normal(6, 4, seed=9),
                "values": _normal(6, 4, seed=10),
                "next_values": _normal(6, 4, seed=11),
            },
            flags={"terminated": terminated, "truncated": truncated},
            options={"gamma": 0.9, "lam": 0.8},
        ),
        "mean_baseline": Call(advantages.mean_baseline, **group, options={"group_size": 3}),
        "leave_one_out": Call(advantages.leave_one_out, **group, options={"group_size": 3}),
        "group_relative": Call(advantages.group_relative, **group, options={"group_size": 3}),
        "group_relative, unscaled": Call(
            advantages.group_relative, **group, options={"group_size": 3, "scale": False}
        ),
        "process_supervision": Call(
            advantages.process_supervision,
            {"step_rewards": _normal(4, 3, seed=12)},
            flags={"step_ends": step_ends, "lengths": torch.tensor([5, 4, 6, 5])},
            options={"group_size": 2},
            hidden=("step_rewards",),
            mask=step_ends >= 0,
        ),
        "moving_average_baseline": Call(
            advantages.moving_average_baseline, **group, options={"average": 0.3}
        ),
        "variance_optimal_baseline": Call(
            advantages.variance_optimal_baseline,
            {
                "probs": torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64),
                "rewards": _normal(4, seed=14),
            },
        ),
        "policy_gradient": Call(
            surrogates.policy_gradient,
            {"log_probs": log_probs, "advantages": weights},
            **learned,
            **later,
            hidden=("log_probs", "advantages"),
            any_rank=True,
        ),
        "ppo_clip": Call(
            surrogates.ppo_clip, policy, **learned, **later, hidden=tuple(policy), any_rank=True
        ),
        "ppo_clip, higher and dual": Call(
            surrogates.ppo_clip,
            policy,
            **learned,
            **later,
            options={"clip_high": 0.28, "dual_clip": 1.4},
            hidden=tuple(policy),
            any_rank=True,
        ),
        "gspo": Call(
            surrogates.gspo,
            {**policy, "advantages": weights[:, :1].repeat(1, 6)},
            **learned,
            **masked,
            options=clips,
            hidden=tuple(policy),
            honest=False,
        ),
        "cispo": Call(
            surrogates.cispo,
            policy,
            **learned,
            **later,
            hidden=tuple(policy),
            honest=False,
            any_rank=True,
        ),
        "gmpo": Call(
            surrogates.gmpo,
            {**policy, "advantages": weights[:, :1].repeat(1, 6)},
            **learned,
            **masked,
            hidden=tuple(policy),
            honest=False,
        ),
        "sapo": Call(
            surrogates.sapo, policy, **learned, **later, hidden=tuple(policy), any_rank=True
        ),
        **{
            name: Call(
                surrogates.dppo,
                {**sampled, "advantages": weights},
                **learned,
                **later,
                options={"two_sided": two_sided, "mask_high": 0.1},
                hidden=(*sampled, "advantages"),
                honest=False,
                any_rank=True,
            )
            for name, two_sided in (("dppo", False), ("dppo, two-sided", True))
        },
        **{
            f"importance_weights, {level}, {outside}": Call(
                surrogates.importance_weights,
                sampled,
                **masked,
                options={"floor": 0.9, "cap": 1.2, "level": level, "outside": outside},
                hidden=tuple(sampled),
                any_rank=True,
            )
            for level in ("token", "sequence")
            for outside in ("truncate", "mask")
        },
        "clip_fraction": Call(
            surrogates.clip_fraction,
            policy,
            **masked,
            hidden=tuple(policy),
            loud=False,
            any_rank=True,
        ),
        "rewards_with_kl": Call(
            kl.rewards_with_kl,
            {name: x[:4] for name, x in pair.items()} | {"scores": _normal(4, seed=13)},
            flags={"mask": MASK[:4]},
            options={"beta": 0.1},
            hidden=tuple(pair),
        ),
        "exact": Call(
            kl.exact,
            {"logits": x, "ref_logits": weights},
            smooth=("logits", "ref_logits"),
            any_rank=True,
        ),
    }
    for mode in aggregation.MODES:
        calls[f"aggregate {mode}"] = Call(
            aggregation.aggregate,
            {"per_token": x},
            **masked,
            options={"mode": mode} | ({"max_length": 9} if mode.endswith("-norm") else {}),
            smooth=("per_token",),
            hidden=("per_token",),
        )
    for clip in (None, 0.2):
        calls[f"value_loss, clip {clip}"] = Call(
            values.value_loss,
            trained,
            **masked,
            options={"clip": clip},
            smooth=("values",),
            hidden=tuple(trained),
            loud=clip is not None,  # the old values are not read without a clip
        )
    for kind in kl.ESTIMATORS:
        calls[f"estimate {kind}"] = Call(
            kl.estimate,
            pair,
            **learned,
            **later,
            options={"kind": kind},
            hidden=tuple(pair),
            any_rank=True,
        )
    stale = pair | {"old_log_probs": old_log_probs}
    for weight in kl.WEIGHTS:
        for kind in ("k1", "k3"):
            calls[f"gradient_surrogate {weight} {kind}"] = Call(
                kl.gradient_surrogate,
                stale,
                **learned,
                **masked,
                options={"weight": weight, "kind": kind},
                hidden=tuple(stale),
            )
    for weight in (None, *kl.WEIGHTS):
        for frozen in (False, True):
            calls[f"penalty_to_go {weight}{', frozen' * frozen}"] = Call(
                kl.penalty_to_go,
                stale,
                **masked,
                options={"weight": weight, "frozen": frozen},
                hidden=tuple(stale),
                loud=weight is not None,  # without one, one of two policies is not looked at
            )
    with_divergences = {
        "log_probs": log_probs,
        "conditional_kl": x.square(),
        "old_log_probs": old_log_probs,
    }
    for cap in (None, 1.1):
        calls[f"exact_surrogate, cap {cap}"] = Call(
            kl.exact_surrogate,
            with_divergences,
            **masked,
            options={"weight_cap": cap},
            smooth=("log_probs", "conditional_kl"),
            hidden=tuple(with_divergences),
            honest=cap is None,
        )
    return calls


CALLS = _table()

WITHOUT_CALL: dict[str, tuple[Callable, ...]] = {
    "it is what checks the arguments of the others": (
        arguments.bounds_of,
        arguments.in_words,
        arguments.within,
        arguments.checked,
        arguments.check_fields,
        arguments.one_of,
    ),
    "it cleans what the others compute on, and is told where": (masking.set_aside,),
    "it gives a number, which has no dtype, shape or gradient": (values.explained_variance,),
    "it counts tokens: integers come in": (rewards.overlong_penalty,),
    "it counts verdicts on problems: there are no tokens and no mask": (
        accuracy.wilson_interval,
        accuracy.pass_at_k,
        accuracy.bootstrap_interval,
        accuracy.gain_split,
    ),
}
"""The public functions that no call stands for, by the reason."""


def public_functions() -> set[Callable]:
    """Every function without an underscore that a module of `nbcourse.functional` defines."""
    modules = [
        import_module(f"{functional.__name__}.{m.name}") for m in iter_modules(functional.__path__)
    ]
    return {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and function.__module__ == module.__name__
    }


def every(*kinds: str) -> list[tuple[str, str]]:
    """(call, argument) for every argument of the kinds "tensors", "flags", "smooth", "hidden"."""
    return [
        (name, argument)
        for name, call in CALLS.items()
        for kind in kinds
        for argument in getattr(call, kind)
    ]


def once(*kinds: str) -> list[tuple[str, str]]:
    """The same, but each function once, whatever its options."""
    first = {(CALLS[name].function, argument): (name, argument) for name, argument in every(*kinds)}
    return list(first.values())
