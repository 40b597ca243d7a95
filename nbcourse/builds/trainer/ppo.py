"""Build 5, after chapter 8: PPO with a critic: token rewards, GAE, whitening, and the clip.

Difficulty ●●● · 75 minutes · a class and four functions, about 40 lines · given: `given.py`
Run it: `python ppo.py` trains for a minute and prints the share of right answers.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from clip import ppo_clip
from gae import gae
from given import Policy, warm
from reinforce import Rollout, collect, response_log_probs


class Critic(nn.Module):
    """`critic(rollout)` → (B, T): V of the state in which each token of a response was chosen.

    trunk   a `Policy` of its own that starts with the policy's weights
    head    (64,) a parameter in the policy's precision, all zeros at the start: a value is the
            product of the trunk's hidden state and the head
    See section 8.3.
    """

    def __init__(self, policy: Policy):
        super().__init__()
        ### BEGIN SOLUTION
        self.trunk = Policy(policy.weights())
        self.head = nn.Parameter(torch.zeros_like(self.trunk["model.norm.weight"]))
        ### END SOLUTION

    def forward(self, rollout: Rollout) -> Tensor:
        """(B, T) values, with gradients; outside the mask there may be anything finite."""
        ### BEGIN SOLUTION
        tokens = torch.cat([rollout["prompt"], rollout["tokens"]], dim=1)
        mask = torch.cat([rollout["prompt_mask"], rollout["mask"]], dim=1)
        T = rollout["tokens"].shape[1]
        return self.trunk.hidden(tokens, mask)[:, -T - 1 : -1] @ self.head
        ### END SOLUTION


def token_rewards(
    scores: Tensor, log_probs: Tensor, ref_log_probs: Tensor, mask: Tensor, beta: float
) -> Tensor:
    """(B, T) rewards: −β (log π − log π_ref) at each token, and the score at the last one.

    scores (B,), the rest (B, T); 0 where mask is False, whatever is there. See section 8.4.
    """
    ### BEGIN SOLUTION
    rewards = torch.where(mask, -beta * (log_probs - ref_log_probs), 0.0)
    last = torch.arange(mask.shape[1]) == mask.sum(dim=1, keepdim=True) - 1
    return rewards + torch.where(last, scores[:, None], 0.0)
    ### END SOLUTION


def whiten(advantages: Tensor, mask: Tensor) -> Tensor:
    """(A − mean) / √(variance + 1e-8) over all tokens of the batch, 0 where mask is False.

    The variance is the unbiased one. See section 8.6.
    """
    ### BEGIN SOLUTION
    kept = advantages[mask]
    white = (advantages - kept.mean()) / (kept.var() + 1e-8).sqrt()
    return torch.where(mask, white, 0.0)
    ### END SOLUTION


def update(
    model: Policy,
    critic: Critic,
    optimiser: torch.optim.Optimizer,
    rollout: Rollout,
    old_log_probs: Tensor,
    advantages: Tensor,
    returns: Tensor,
    micro_batch: int,
) -> None:
    """One step of the optimiser, which holds policy and critic, `micro_batch` rows at a time.

    The loss is the mean over all tokens of the *whole* batch of PPO's token loss, with a clip of
    0.2, plus ½ (V − return)². old_log_probs, advantages, returns (B, T). The gradient is the same
    whatever `micro_batch` is. See sections 8.7 and 8.9.
    """
    ### BEGIN SOLUTION
    count = rollout["mask"].sum()
    optimiser.zero_grad()
    for rows in torch.arange(len(advantages)).split(micro_batch):
        part = {name: value[rows] for name, value in rollout.items()}
        log_probs = response_log_probs(model, part)
        losses = ppo_clip(log_probs, old_log_probs[rows], advantages[rows])
        losses = losses + 0.5 * (critic(part) - returns[rows]).square()
        (torch.where(part["mask"], losses, 0.0).sum() / count).backward()
    optimiser.step()
    ### END SOLUTION


def train(
    model: Policy,
    critic: Critic,
    optimiser: torch.optim.Optimizer,
    steps: int,
    generator: torch.Generator,
    prompts: int = 256,
    epochs: int = 2,
    beta: float = 0.01,
    lam: float = 0.95,
) -> Iterator[dict]:
    """PPO: one response to each prompt, and `epochs` updates for each batch.

    The reference is the policy that training begins with, and γ is 1. Old log-probs and values are
    taken before the first update of a step, without gradients. After each step, yield a dict with
    rollout, answers, scores (B,), and old_log_probs, rewards, values, advantages (whitened) and
    returns, (B, T) each, as used.
    """
    ### BEGIN SOLUTION
    reference = Policy(model.weights())
    for _ in range(steps):
        rollout, answers, scores = collect(model, prompts, 1, generator)
        mask = rollout["mask"]
        with torch.no_grad():
            old_log_probs = response_log_probs(model, rollout)
            ref_log_probs = response_log_probs(reference, rollout)
            values = critic(rollout)
        rewards = token_rewards(scores, old_log_probs, ref_log_probs, mask, beta)
        advantages, returns = gae(rewards, values, mask, 1.0, lam)
        advantages = whiten(advantages, mask)
        batch = old_log_probs, advantages, returns
        for _ in range(epochs):
            update(model, critic, optimiser, rollout, *batch, micro_batch=len(scores))
        yield {
            "rollout": rollout, "answers": answers, "scores": scores,
            "old_log_probs": old_log_probs, "rewards": rewards, "values": values,
            "advantages": advantages, "returns": returns,
        }  # fmt: skip
    ### END SOLUTION


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy = warm()
    critic = Critic(policy)
    adam = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3)
    source = torch.Generator().manual_seed(0)
    for step, batch in enumerate(train(policy, critic, adam, 40, source), 1):
        if step % 5 == 0:
            print(f"step {step:3d}   right {batch['scores'].mean():.2f}", flush=True)
