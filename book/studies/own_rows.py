"""Rows as a reader might bring them, for healthy runs of the benchmark of silent failures."""

import torch
from torch import Tensor

from nbcourse.training.algorithms import Algorithm, leave_one_out, per_response


@per_response
def batch_scaled(rewards: Tensor, *, group_size: int) -> Tensor:
    """The distance from the group's mean, divided by the spread of the batch (Lite PPO)."""
    centred = rewards.view(-1, group_size) - rewards.view(-1, group_size).mean(1, keepdim=True)
    return centred.flatten() / (rewards.std() + 1e-4)


def weighted_log_probs(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """−sg(min(π/π_old, 2)) A log π."""
    return -(log_probs.detach() - old_log_probs).exp().clamp(max=2.0) * advantages * log_probs


def smooth_clip(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor) -> Tensor:
    """−4 σ(4 (ρ − 1)) A / 4: the slope of −ρ A at ρ = 1, and less beside it."""
    ratio = (log_probs - old_log_probs).exp()
    return -advantages * torch.sigmoid(4 * (ratio - 1))


ALGORITHMS = {
    "batch-scaled": Algorithm(batch_scaled, weighted_log_probs, "token-mean", "a reader"),
    "smooth": Algorithm(leave_one_out, smooth_clip, "seq-mean-token-mean", "a reader"),
}
