"""Build 6, after chapter 10: the group advantage, the clipped loss, three averages, and GRPO.

Difficulty ●●○ · 60 minutes · four functions, about 32 lines · given: `given.py`
Run it: `python grpo.py` trains for a minute and prints the share of right answers.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from clip import ppo_clip
from given import Policy, warm
from reinforce import Rollout, collect, response_log_probs


def group_advantages(rewards: Tensor, group_size: int, eps: float = 1e-4) -> Tensor:
    """(B,) z-scores of the rewards within each group: (r − mean) / (std + eps).

    The standard deviation has the denominator G − 1, and a group whose rewards are all equal has
    advantages of exactly 0. See section 10.2.
    """
    ### BEGIN SOLUTION
    groups = rewards.view(-1, group_size)
    spread = (groups != groups[:, :1]).any(dim=1, keepdim=True)
    centred = groups - groups.mean(dim=1, keepdim=True)
    z = centred / (groups.std(dim=1, keepdim=True) + eps)
    return torch.where(spread, z, 0.0).flatten()
    ### END SOLUTION


def weights(mask: Tensor, mode: str, longest: int) -> Tensor:
    """(B, T) the weight of each token in the average of a whole batch; 0 where mask is False.

    mode "sequence": the mean over responses of the mean over a response's tokens (GRPO);
    "token": the mean over all tokens of the batch (DAPO); "length": a response's sum of tokens,
    divided by `longest`, and the mean of these over responses (Dr. GRPO). See section 10.7.
    """
    ### BEGIN SOLUTION
    tokens = mask.sum(dim=1, keepdim=True)
    denominators = {
        "sequence": len(mask) * tokens,
        "token": mask.sum(),
        "length": len(mask) * longest,
    }
    return torch.where(mask, 1.0 / denominators[mode], 0.0)
    ### END SOLUTION


def update(
    model: Policy,
    optimiser: torch.optim.Optimizer,
    rollout: Rollout,
    old_log_probs: Tensor,
    advantages: Tensor,
    micro_batch: int,
    mode: str = "sequence",
) -> None:
    """One step of the optimiser on GRPO's loss of the whole batch, `micro_batch` rows at a time.

    old_log_probs (B, T), advantages (B,), the clip is 0.2. `longest` of the weights is the number
    of columns of the rollout. The weights are those of the *whole* batch: the gradient is the same
    whatever `micro_batch` is.
    """
    ### BEGIN SOLUTION
    every = weights(rollout["mask"], mode, rollout["mask"].shape[1])
    optimiser.zero_grad()
    for rows in torch.arange(len(advantages)).split(micro_batch):
        part = {name: value[rows] for name, value in rollout.items()}
        log_probs = response_log_probs(model, part)
        A = advantages[rows, None].expand(log_probs.shape)
        losses = ppo_clip(log_probs, old_log_probs[rows], A)
        torch.where(part["mask"], losses * every[rows], 0.0).sum().backward()
    optimiser.step()
    ### END SOLUTION


def train(
    model: Policy,
    optimiser: torch.optim.Optimizer,
    steps: int,
    generator: torch.Generator,
    prompts: int = 32,
    group_size: int = 8,
    epochs: int = 2,
) -> Iterator[dict]:
    """GRPO: a step is `collect`, group advantages, and `epochs` updates on the batch.

    The old log-probs are the learner's own before its first update, without gradients. After each
    step, yield a dict with rollout, answers, rewards, advantages and old_log_probs, as used.
    """
    ### BEGIN SOLUTION
    for _ in range(steps):
        rollout, answers, rewards = collect(model, prompts, group_size, generator)
        advantages = group_advantages(rewards, group_size)
        with torch.no_grad():
            old_log_probs = response_log_probs(model, rollout)
        for _ in range(epochs):
            update(model, optimiser, rollout, old_log_probs, advantages, micro_batch=len(rewards))
        yield {
            "rollout": rollout, "answers": answers, "rewards": rewards,
            "advantages": advantages, "old_log_probs": old_log_probs,
        }  # fmt: skip
    ### END SOLUTION


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy = warm()
    adam = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for step, batch in enumerate(train(policy, adam, 40, torch.Generator().manual_seed(0)), 1):
        if step % 5 == 0:
            print(f"step {step:3d}   right {batch['rewards'].mean():.2f}", flush=True)
