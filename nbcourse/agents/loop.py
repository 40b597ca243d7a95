"""The loop of every agent: act → advantages → (epochs × minibatches) loss → step, and again."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from nbcourse import rows
from nbcourse.agents.networks import MLPActorCritic
from nbcourse.agents.table import Agent
from nbcourse.agents.trajectories import Simulation, Trajectory, collect, sample
from nbcourse.functional import kl
from nbcourse.functional.masking import masked_whiten
from nbcourse.functional.surrogates import clip_fraction
from nbcourse.functional.values import explained_variance, value_loss
from nbcourse.progress import track

RECENT = 100  # episodes, for the mean that says whether CartPole is solved


@dataclass(frozen=True)
class Trained:
    """What is left of a run.

    Attributes:
        network: the actor and the critic.
        curve: the numbers of each update, as `updates` yields them.
        returns: undiscounted return of each episode, in the order in which they ended.
    """

    network: MLPActorCritic
    curve: list[dict[str, float]]
    returns: list[float]


@dataclass(frozen=True)
class Batch:
    """The steps of a trajectory that count, in one row each.

    Attributes:
        observations: (B, O).
        actions: (B,).
        old_logits: (B, K) of the policy that acted.
        old_log_probs: (B,).
        old_values: (B,).
        advantages: (B,).
        targets: (B,), of the critic.
        weights: (B,), of each step in the mean policy loss. 1, or, if whole episodes were played,
            the steps per episode: that makes the mean over steps a sum over each episode, whose
            length the policy must not be able to divide by.
    """

    observations: Tensor
    actions: Tensor
    old_logits: Tensor
    old_log_probs: Tensor
    old_values: Tensor
    advantages: Tensor
    targets: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, part: Tensor) -> "Batch":
        return Batch(*(getattr(self, name)[part] for name in self.__dataclass_fields__))

    @property
    def mask(self) -> Tensor:
        """(B,) bool, every step: for functions that ask which ones count."""
        return torch.ones_like(self.actions, dtype=torch.bool)


def train(
    agent: Agent,
    envs: VectorEnv,
    *,
    steps: int,
    seed: int,
    hidden: int = 64,
    until: float | None = None,
    label: str = "train",
    progress: bool = True,
) -> Trained:
    """Train a new network.

    Args:
        agent: a row of `AGENTS`, or one like them.
        envs: a vector environment with discrete actions that resets itself, in either mode.
        steps: environment steps; the update that reaches them is the last.
        seed: of the weights, the actions, the minibatches and the environment.
        hidden: width of the two hidden layers.
        until: stop as soon as the last 100 episodes return this much on average.
        label: in front of the progress bar.
        progress: whether to draw it.

    Raises:
        ValueError: if steps is below 1, or the environment is of another kind.

    Book: chapter 4.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected at least 1")
    generator = torch.Generator().manual_seed(seed)
    simulation = Simulation(envs)
    simulation.restart(seed)
    network = MLPActorCritic(
        simulation.observation.shape[1],
        int(envs.single_action_space.n),  # type: ignore[attr-defined]  # Simulation has checked
        hidden=hidden,
        generator=generator,
    )
    curve: list[dict[str, float]] = []
    with track((), label, total=steps, visible=progress) as bar:
        for numbers in updates(agent, network, simulation, steps=steps, generator=generator):
            curve.append(numbers)
            bar.update(simulation.steps - bar.n)
            if (
                until is not None
                and len(simulation.returns) >= RECENT
                and numbers["recent"] >= until
            ):
                break
    return Trained(network, curve, simulation.returns)


def updates(
    agent: Agent,
    network: MLPActorCritic,
    simulation: Simulation,
    *,
    steps: int,
    generator: torch.Generator,
) -> Iterator[dict[str, float]]:
    """Update after update, until the steps are used up; after each, its numbers:

    step                steps of the environment so far
    episodes            episodes finished so far
    recent              mean undiscounted return of the last 100 of them, NaN before the first
    policy_loss, value_loss, entropy, clip_fraction    means over the update's minibatches;
                        without a clip, the fraction that one of ±0.2 would clip
    approx_kl           the same of KL(π_old‖π) estimated from the ratios (k3)
    kl                  KL(π_old‖π) after the update, exact, in the mean over its steps
    kl_coefficient      β while it lasted
    explained_variance  1 − Var(target − V̂) / Var(target), NaN without a critic or spread
    """
    # cleanrl/ppo.py, "Agent setup": Adam with eps=1e-5
    optimiser = torch.optim.Adam(network.parameters(), lr=agent.learning_rate, eps=1e-5)
    beta = agent.kl_coefficient
    while simulation.steps < steps:
        if agent.anneal:
            optimiser.param_groups[0]["lr"] = agent.learning_rate * (1 - simulation.steps / steps)
        trajectory = collect(network, simulation, steps=agent.steps, generator=generator)
        batch = estimate(agent, network, trajectory)
        numbers = update(agent, network, optimiser, batch, beta=beta, generator=generator)
        recent = simulation.returns[-RECENT:]
        yield {
            "step": simulation.steps,
            "episodes": len(simulation.returns),
            "recent": sum(recent) / len(recent) if recent else math.nan,
            **numbers,
            "kl_coefficient": beta,
            "explained_variance": explained_variance(batch.old_values, batch.targets, batch.mask)
            if agent.critic
            else math.nan,
        }
        if agent.kl_target is not None:
            beta = next_coefficient(beta, numbers["kl"], target=agent.kl_target)


@torch.no_grad()
def estimate(agent: Agent, network: MLPActorCritic, trajectory: Trajectory) -> Batch:
    """Advantages and targets, of the steps that count."""
    values = next_values = torch.zeros_like(trajectory.rewards)
    if agent.critic:
        values = network.values(trajectory.observations)
        next_values = network.values(trajectory.next_observations)
    offered = {**vars(trajectory), "values": values, "next_values": next_values}
    advantages, targets = rows.call(agent.advantage, agent.settings, offered)
    kept = trajectory.mask
    weight = kept.sum() / kept.shape[1] if agent.steps is None else torch.tensor(1.0)
    return Batch(
        observations=trajectory.observations[kept],
        actions=trajectory.actions[kept],
        old_logits=trajectory.logits[kept],
        old_log_probs=log_prob(trajectory.logits[kept], trajectory.actions[kept]),
        old_values=values[kept],
        advantages=advantages[kept],
        targets=targets[kept],
        weights=weight.expand_as(trajectory.rewards)[kept],
    )


def update(
    agent: Agent,
    network: MLPActorCritic,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    *,
    beta: float,
    generator: torch.Generator,
) -> dict[str, float]:
    """Several passes over the batch, in minibatches of steps drawn without replacement."""
    sums: dict[str, float] = defaultdict(float)
    for _ in range(agent.epochs):
        order = torch.randperm(len(batch), generator=generator)
        for part in order.tensor_split(min(agent.minibatches, len(batch))):
            loss, numbers = minibatch_loss(agent, network, batch[part], beta=beta)
            step(agent, network, optimiser, loss)
            for name, number in {**numbers, "minibatches": 1.0}.items():
                sums[name] += number
        with torch.no_grad():
            moved = kl.exact(batch.old_logits, network.logits(batch.observations)).mean().item()
        if agent.kl_stop is not None and moved > agent.kl_stop:
            break
    for _ in range(agent.critic_steps):
        step(agent, network, optimiser, critic_loss(agent, network, batch))
    count = sums["minibatches"]
    means = {name: total / count for name, total in sums.items()}
    return {**means, "minibatches": count, "kl": moved}


def step(
    agent: Agent, network: MLPActorCritic, optimiser: torch.optim.Optimizer, loss: Tensor
) -> None:
    """One step of the optimiser; parameters that the loss does not reach stay as they are."""
    optimiser.zero_grad()
    loss.backward()
    clip_grad_norm_(network.parameters(), agent.max_grad_norm)
    optimiser.step()


def critic_loss(agent: Agent, network: MLPActorCritic, batch: Batch) -> Tensor:
    """Half the mean squared distance of the critic from its targets."""
    values = network.values(batch.observations)
    columns = (x[None] for x in (values, batch.old_values, batch.targets, batch.mask))
    return value_loss(*columns, clip=agent.value_clip)


def minibatch_loss(
    agent: Agent, network: MLPActorCritic, batch: Batch, *, beta: float
) -> tuple[Tensor, dict[str, float]]:
    """Surrogate − entropy bonus + β KL(π_old‖π) + critic, and the parts as numbers."""
    advantages = batch.advantages
    if agent.whiten:
        advantages = masked_whiten(advantages, batch.mask)
    logits = network.logits(batch.observations)
    now, old = log_prob(logits, batch.actions), batch.old_log_probs
    offered = {"log_probs": now, "old_log_probs": old, "advantages": advantages}
    per_step = rows.call(agent.surrogate, agent.settings, offered)
    policy_loss = (batch.weights * per_step).mean()
    entropy = -(logits.softmax(dim=-1) * logits.log_softmax(dim=-1)).sum(dim=-1).mean()
    loss = policy_loss - agent.entropy_coefficient * entropy
    if beta:
        loss = loss + beta * kl.exact(batch.old_logits, logits).mean()
    clipped = rows.call(clip_fraction, agent.all_settings, offered)
    numbers = {
        "policy_loss": policy_loss.item(),
        "entropy": entropy.item(),
        "clip_fraction": clipped.item(),
        "approx_kl": kl.estimate(old, now.detach(), "k3").mean().item(),
    }
    if agent.critic:
        of_critic = critic_loss(agent, network, batch)
        loss = loss + agent.value_coefficient * of_critic
        numbers["value_loss"] = of_critic.item()
    return loss, numbers


def next_coefficient(beta: float, divergence: float, *, target: float) -> float:
    """Halve β where the policy moved too little, double it where it moved too far.

    Source: Schulman et al. 2017, section 4.
    """
    if divergence < target / 1.5:
        return beta / 2
    return beta * 2 if divergence > target * 1.5 else beta


def log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    """(..., K) and (...) → (...): log π(a|s)."""
    return logits.log_softmax(dim=-1).gather(-1, actions[..., None]).squeeze(-1)


def evaluate(
    network: MLPActorCritic,
    envs: VectorEnv,
    *,
    episodes: int,
    seed: int,
    greedy: bool = False,
) -> list[float]:
    """Undiscounted returns of whole episodes, as many from each environment.

    Args:
        network: the actor.
        envs: as in `train`.
        episodes: how many; rounded up to a multiple of the environments, since to take those that
            end first would favour short ones.
        seed: of the actions and the environment.
        greedy: whether to take the likeliest action instead of drawing one.
    """
    generator = torch.Generator().manual_seed(seed)
    simulation = Simulation(envs)
    found: list[float] = []
    simulation.restart(seed)
    while len(found) < episodes:
        playing = torch.ones_like(simulation.resetting)
        total = torch.zeros(len(playing), dtype=torch.float64)
        while playing.any():
            with torch.no_grad():
                logits = network.logits(simulation.observation)
            row = simulation.step(logits.argmax(dim=-1) if greedy else sample(logits, generator))
            total += torch.where(playing, row["rewards"], 0.0)
            playing = playing & ~(row["terminated"] | row["truncated"])
        found += total.tolist()
        simulation.restart()
    return found
