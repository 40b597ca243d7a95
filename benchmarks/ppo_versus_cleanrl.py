"""Wall clock of PPO on CartPole: the package's agents against the way CleanRL's ppo.py does it.

    python benchmarks/ppo_versus_cleanrl.py [--steps 20480] [--pairs 5]

The peer is written after `cleanrl/ppo.py` (vwxyzjn/cleanrl, commit 020cf0e) and keeps what costs
time there: tensors filled step by step, torch.distributions, a loop in time for GAE, the statistics
of each minibatch. Command line, video and logging are left out, and gym has become Gymnasium. Both
train networks of the same size with ppo.py's own settings, on one thread, in turn; what counts is
the ratio of a pair. They draw different random numbers, so what they learn is printed, not
compared.
"""

import argparse
from dataclasses import replace

import gymnasium
import numpy as np
import torch
from _pairs import in_turn
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions.categorical import Categorical

from nbcourse.agents import AGENTS, train

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 128, 4, 4
RATE, GAMMA, LAM, CLIP, ENTROPY, VALUE, NORM = 2.5e-4, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5

OURS = replace(
    AGENTS["ppo"].with_settings(gamma=GAMMA, lam=LAM, clip_low=CLIP),
    steps=STEPS,
    epochs=EPOCHS,
    minibatches=MINIBATCHES,
    learning_rate=RATE,
    value_clip=CLIP,
    entropy_coefficient=ENTROPY,
    value_coefficient=VALUE,
    max_grad_norm=NORM,
)


def cartpoles(*, statistics: bool) -> SyncVectorEnv:
    def make() -> gymnasium.Env:
        env = gymnasium.make("CartPole-v1")
        return gymnasium.wrappers.RecordEpisodeStatistics(env) if statistics else env

    return SyncVectorEnv([make] * ENVS, autoreset_mode=AutoresetMode.SAME_STEP)


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.constant_(linear.bias, 0.0)
    return linear


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, 0.01)
        )

    def act(self, observations, actions=None):
        choice = Categorical(logits=self.actor(observations))
        actions = choice.sample() if actions is None else actions
        value = self.critic(observations)
        return actions, choice.log_prob(actions), choice.entropy(), value


def theirs(total: int) -> list[float]:
    """Returns of the episodes, in order."""
    envs, network, found = cartpoles(statistics=True), Network(), []
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE, eps=1e-5)
    observations = torch.zeros(STEPS, ENVS, 4)
    actions, log_probs, rewards, dones, values = torch.zeros(5, STEPS, ENVS).unbind()
    observation, done = torch.Tensor(envs.reset(seed=0)[0]), torch.zeros(ENVS)
    batches = total // (STEPS * ENVS)
    for batch in range(batches):
        optimiser.param_groups[0]["lr"] = RATE * (1 - batch / batches)
        for t in range(STEPS):
            observations[t], dones[t] = observation, done
            with torch.no_grad():
                action, log_probs[t], _, value = network.act(observation)
            values[t], actions[t] = value.flatten(), action
            after, reward, terminated, truncated, info = envs.step(action.numpy())
            rewards[t] = torch.tensor(reward).view(-1)
            observation, done = torch.Tensor(after), torch.Tensor(terminated | truncated)
            if "final_info" in info:
                episodes = info["final_info"]["episode"]
                found += episodes["r"][info["_final_info"]].tolist()
        with torch.no_grad():
            advantages, running = torch.zeros_like(rewards), 0.0
            next_value, alive = network.critic(observation).reshape(1, -1), 1 - done
            for t in reversed(range(STEPS)):
                delta = rewards[t] + GAMMA * next_value * alive - values[t]
                advantages[t] = running = delta + GAMMA * LAM * alive * running
                next_value, alive = values[t], 1 - dones[t]
            returns = advantages + values
        flat = [
            x.reshape(-1, *x.shape[2:])
            for x in (observations, actions.long(), log_probs, advantages, returns, values)
        ]
        learn(network, optimiser, *flat)
    return found


def learn(network, optimiser, observations, actions, log_probs, advantages, returns, values):
    order, size, clipped = np.arange(len(actions)), len(actions) // MINIBATCHES, []
    for _ in range(EPOCHS):
        np.random.default_rng().shuffle(order)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            _, now, entropy, value = network.act(observations[rows], actions[rows])
            log_ratio = now - log_probs[rows]
            ratio, value = log_ratio.exp(), value.view(-1)
            with torch.no_grad():
                (-log_ratio).mean(), ((ratio - 1) - log_ratio).mean()  # ppo.py's two KLs
                clipped.append(((ratio - 1.0).abs() > CLIP).float().mean().item())
            chosen = advantages[rows]
            chosen = (chosen - chosen.mean()) / (chosen.std() + 1e-8)
            bounded = ratio.clamp(1 - CLIP, 1 + CLIP)
            policy_loss = torch.max(-chosen * ratio, -chosen * bounded).mean()
            near = values[rows] + (value - values[rows]).clamp(-CLIP, CLIP)
            errors = torch.max((value - returns[rows]) ** 2, (near - returns[rows]) ** 2)
            loss = policy_loss - ENTROPY * entropy.mean() + VALUE * 0.5 * errors.mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), NORM)
            optimiser.step()


def ours(total: int) -> list[float]:
    return train(OURS, cartpoles(statistics=False), steps=total, seed=0, progress=False).returns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_480)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    pairs = in_turn(theirs, ours, chosen.steps, pairs=chosen.pairs)
    their_ms, our_ms = pairs.milliseconds()
    print(f"torch {torch.__version__}, 1 thread, {chosen.pairs} pairs, {chosen.steps:,} steps each")
    print(f"CleanRL's way {their_ms:.0f} ms, agents {our_ms:.0f} ms; ratio {pairs.ratio}")
    for name, contender in (("CleanRL's way", theirs), ("agents", ours)):
        last = contender(chosen.steps)[-20:]
        print(f"{name}: mean return of the last {len(last)} episodes {sum(last) / len(last):.0f}")


if __name__ == "__main__":
    main()
