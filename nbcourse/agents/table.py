"""Every agent is a row of one table, and each row is the one before it with one thing changed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nbcourse.functional import returns, surrogates

# ---------------------------------------------------------------- how credit is given
# (rewards, values, next_values, terminated, truncated, mask), all (T, N), and γ, λ
# → advantages and targets of the critic, both (T, N), arbitrary where the mask is False.


def reward_to_go(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """The return of the rest of the episode, no critic asked: one episode in each column."""
    to_go = returns.discounted_returns(rewards.T, mask.T, gamma=gamma).T
    return to_go, to_go


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """λ = 0 is the TD residual, λ = 1 all rewards of the segment, then the critic's word.

    A row that only resets sits behind the end of an episode, so nothing of it reaches back.
    """
    return returns.env_gae(
        rewards, values, next_values, terminated, truncated, gamma=gamma, lam=lam
    )


# ---------------------------------------------------------------- what is minimised
# (log_probs, old_log_probs, advantages), all (B,), and the clip → loss of each step, (B,).


def vanilla(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip: float) -> Tensor:
    """−A log π. Book: (eq-pg-loss)."""
    return surrogates.policy_gradient(log_probs, advantages)


def clipped(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip: float) -> Tensor:
    """PPO's. Book: (eq-ppo-clip)."""
    return surrogates.ppo_clip(log_probs, old_log_probs, advantages, clip_low=clip)


def weighted(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, *, clip: float
) -> Tensor:
    """−ρ A: the interval from 0 to ∞ never clips."""
    return surrogates.ppo_clip(
        log_probs, old_log_probs, advantages, clip_low=1.0, clip_high=math.inf
    )


# ---------------------------------------------------------------- a row, and the table


@dataclass(frozen=True)
class Agent:
    """One row; change a field with `dataclasses.replace`.

    Attributes:
        advantage: `reward_to_go`, `gae`, or one like them.
        surrogate: `vanilla`, `clipped`, `weighted`, or one like them.
        source: the paper.
        steps: T of each environment between updates; None plays whole episodes.
        critic: whether there is one to train.
        gamma: γ.
        lam: λ of GAE.
        epochs: passes over the steps of an update.
        minibatches: parts of each pass, one optimiser step for each.
        whiten: whether advantages become standard scores within the minibatch.
        clip: half width of the ratio's interval.
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
        ValueError: if there are no steps, no passes, no parts, or reuse without a ratio.
    """

    advantage: Callable[..., tuple[Tensor, Tensor]]
    surrogate: Callable[..., Tensor]
    source: str
    steps: int | None = None
    critic: bool = True
    gamma: float = 0.99
    lam: float = 1.0
    epochs: int = 1
    minibatches: int = 1
    whiten: bool = False
    clip: float = 0.2
    value_clip: float | None = None
    value_coefficient: float = 0.5
    entropy_coefficient: float = 0.0
    kl_coefficient: float = 0.0
    kl_target: float | None = None
    kl_stop: float | None = None
    learning_rate: float = 1e-3
    anneal: bool = False
    max_grad_norm: float = math.inf

    def __post_init__(self) -> None:
        for name in ("steps", "epochs", "minibatches"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} is {number}, expected at least 1")
        if self.surrogate is vanilla and self.epochs * self.minibatches > 1:
            raise ValueError(
                f"epochs={self.epochs} and minibatches={self.minibatches} use samples of a policy "
                "that has changed since, expected a surrogate with a ratio"
            )
        if self.advantage is reward_to_go and self.steps is not None:
            raise ValueError(
                f"steps is {self.steps}, expected None: without a critic nothing stands in for "
                "the rewards behind the cut"
            )


# without the clip of the gradient, one large error of a young critic undoes many small updates
_STEPWISE: dict[str, Any] = {"anneal": True, "max_grad_norm": 0.5}

_PPO: dict[str, Any] = {
    "steps": 32,
    "gamma": 0.98,
    "lam": 0.8,
    "epochs": 20,
    "whiten": True,
    "learning_rate": 1e-3,
    "anneal": True,
    "max_grad_norm": 0.5,
}

AGENTS: dict[str, Agent] = {
    "vanilla": Agent(
        reward_to_go, vanilla, "Williams 1992", critic=False, learning_rate=1e-2, anneal=True
    ),
    "baseline": Agent(
        gae,
        vanilla,
        "Williams 1992, section 4",
        learning_rate=1e-2,
        anneal=True,
        value_coefficient=1.0,
    ),
    "a2c": Agent(
        gae, vanilla, "Degris et al. 2012", steps=1, lam=0.0, learning_rate=1e-3, **_STEPWISE
    ),
    "n-step": Agent(gae, vanilla, "Mnih et al. 2016", steps=16, learning_rate=3e-3, **_STEPWISE),
    "gae": Agent(
        gae,
        vanilla,
        "Schulman et al. 2016",
        steps=16,
        lam=0.95,
        learning_rate=3e-3,
        **_STEPWISE,
    ),
    # rl-baselines3-zoo, hyperparams/ppo.yml, CartPole-v1 (8 environments); cleanrl/ppo.py clips the
    # gradient at 0.5 too. The zoo also lets the clip go down to 0; here it stays.
    "ppo": Agent(gae, clipped, "Schulman et al. 2017", **_PPO),
    "ppo-penalty": Agent(
        gae,
        weighted,
        "Schulman et al. 2017, section 4",
        kl_coefficient=1.0,
        kl_target=0.01,
        **_PPO,
    ),
}
