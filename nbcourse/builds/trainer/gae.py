"""Build 2, after chapter 3: generalised advantage estimation over the tokens of a response.

Difficulty ●●○ · 25 minutes · one function, about ten lines · given: nothing
"""

import torch
from torch import Tensor


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and returns, both (B, T), with 0 where mask is False.

    rewards, values (B, T), mask (B, T) bool, True on a response's tokens, which come first. The
    value after the last token of a response is 0, whatever `values` holds there. Returns are the
    targets of the critic: advantages + values. See section 3.6.
    """
    ### BEGIN SOLUTION
    rewards, values = (torch.where(mask, x, 0.0) for x in (rewards, values))
    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    errors = rewards + gamma * after - values
    advantages, running = [], torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        running = errors[:, t] + gamma * lam * running
        advantages.append(running)
    A = torch.where(mask, torch.stack(advantages[::-1], dim=1), 0.0)
    return A, A + values
    ### END SOLUTION
