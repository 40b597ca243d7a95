"""Every agent is a row of one table: how credit is given, which surrogate is minimised, and how
often it learns from how many steps.

A row holds functions, and their signatures say what they need and what may be set, as with the
language model's algorithms (`nbcourse.rows`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from torch import Tensor

from nbcourse.functional import returns, surrogates
from nbcourse.functional.arguments import Share
from nbcourse.rows import Row

# ---------------------------------------------------------------- how credit is given
# → advantages and targets of the critic, both (T, N), arbitrary where the mask is False.


def reward_to_go(rewards: Tensor, mask: Tensor, *, gamma: Share = 0.99) -> tuple[Tensor, Tensor]:
    """The return of the rest of the episode, of one in each column. Book: (eq-return-to-go)."""
    to_go = returns.discounted_returns(rewards.T, mask.T, gamma=gamma).T
    return to_go, to_go


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: Share = 0.99,
    lam: Share = 1.0,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation. Book: (eq-env-gae).

    λ = 0 is the TD residual; λ = 1 sums all rewards up to the cut and bootstraps there. A row that
    only resets sits behind the end of an episode, so nothing of it reaches back.
    """
    return returns.env_gae(
        rewards, values, next_values, terminated, truncated, gamma=gamma, lam=lam
    )


# ---------------------------------------------------------------- what is minimised


def importance_weighted(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """−ρ A: PPO's surrogate without a clip, whose interval from 0 to ∞ holds every ratio."""
    return surrogates.ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=1.0, clip_high=math.inf
    )


# ---------------------------------------------------------------- a row, and the table


@dataclass(frozen=True)
class Agent(Row):
    """One row; change a setting with `with_settings`, a field with `dataclasses.replace`.

    Attributes:
        advantage: → advantages and targets of the critic. It may ask for `rewards`, `terminated`,
            `truncated` and `mask`, and for `values` and `next_values` of a critic, all (T, N).
        surrogate: a function of `functional.surrogates`, or one like it: → loss of each step. It
            may ask for `log_probs` with gradient, `old_log_probs` and `advantages`, all (B,).
        source: the paper.
        settings: of the two functions, such as γ, λ or a clip, where they are not the defaults.
        steps: T of each environment between updates; None plays whole episodes.
        epochs: passes over the steps of an update.
        minibatches: parts of each pass, one optimiser step for each.
        critic_steps: further optimiser steps of the critic alone, on all steps of the update.
        whiten: whether advantages become standard scores within the minibatch.
        value_clip: how far a prediction of the critic may move; None: as far as it likes.
        value_coefficient: weight of the critic's loss.
        entropy_coefficient: weight of the entropy bonus.
        kl_coefficient: β, the first weight of KL(π_old‖π) in the loss.
        kl_target: doubles or halves β so that the KL comes near it; None keeps β.
        kl_stop: no further pass once KL(π_old‖π) is above this; None never stops.
        learning_rate: of Adam.
        anneal: whether the learning rate goes down to 0 in a straight line.
        max_grad_norm: gradients are scaled down to this.

    Raises:
        ValueError: if a function needs what is not offered; a setting is none of the functions' or
            out of its bounds; there are no steps, passes or parts; there are steps
            of a critic that is not there; samples are used more than once without
            `old_log_probs`; or an episode is cut without `next_values`.
    """

    advantage: Callable[..., tuple[Tensor, Tensor]]
    surrogate: Callable[..., Tensor]
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    epochs: int = 1
    minibatches: int = 1
    critic_steps: int = 0
    whiten: bool = False
    value_clip: float | None = None
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.0
    kl_coefficient: float = 0.0
    kl_target: float | None = None
    kl_stop: float | None = None
    learning_rate: float = 1e-3
    anneal: bool = False
    max_grad_norm: float = math.inf

    offers = MappingProxyType(
        {
            "advantage": (
                "rewards",
                "values",
                "next_values",
                "terminated",
                "truncated",
                "mask",
            ),
            "surrogate": ("log_probs", "old_log_probs", "advantages"),
        }
    )

    def __post_init__(self) -> None:
        self.check_functions()
        for name in ("steps", "epochs", "minibatches"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}, expected at least 1")
        if self.critic_steps < 0 or (self.critic_steps and not self.critic):
            raise ValueError(
                f"critic_steps is {self.critic_steps}, expected at least 0, and 0 without a critic"
            )
        if self.epochs * self.minibatches > 1 and not self.needs("old_log_probs"):
            raise ValueError(
                f"epochs={self.epochs} and minibatches={self.minibatches} use samples of a policy "
                "that has changed since, expected a surrogate that needs 'old_log_probs'"
            )
        if self.steps is not None and not self.needs("next_values"):
            raise ValueError(
                f"steps is {self.steps}, expected None with an advantage that does not need "
                "'next_values': nothing replaces the rewards after the cut"
            )

    @property
    def critic(self) -> bool:
        """Whether there is a critic to train: one of the functions asks for its values."""
        return self.needs("values") or self.needs("next_values")


# Each row is another one with one field changed, PPO's two with three: no comparison is between
# learning rates. The shared one was chosen on seeds 100 to 102, which no chapter reports.
_VANILLA = Agent(
    advantage=reward_to_go,
    surrogate=surrogates.policy_gradient,
    source="Williams 1992",
    learning_rate=3e-3,
    anneal=True,
    max_grad_norm=0.5,
)
_BASELINE = replace(_VANILLA, advantage=gae, source="Williams 1992, section 4")
_N_STEP = replace(_BASELINE, steps=16, source="Mnih et al. 2016")
_GAE = replace(_N_STEP.with_settings(lam=0.95), source="Schulman et al. 2016")
_A2C = replace(_N_STEP.with_settings(lam=0.0), source="Degris et al. 2012")
# cleanrl/ppo.py whitens and clips the gradient at 0.5 too
_PPO = replace(
    _GAE,
    whiten=True,
    surrogate=surrogates.ppo_clip,
    epochs=10,
    source="Schulman et al. 2017",
)
_PPO_PENALTY = replace(
    _PPO,
    surrogate=importance_weighted,
    kl_coefficient=1.0,
    kl_target=0.01,
    source="Schulman et al. 2017, section 4",
)

AGENTS: dict[str, Agent] = {
    "vanilla": _VANILLA,
    "baseline": _BASELINE,
    "a2c": _A2C,
    "n-step": _N_STEP,
    "gae": _GAE,
    "ppo": _PPO,
    "ppo-penalty": _PPO_PENALTY,
}
