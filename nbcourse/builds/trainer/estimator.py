"""Build 1, after chapters 1 and 2: the policy-gradient estimator and leave-one-out.

Difficulty ●○○ · 20 minutes · two functions, three lines each · given: nothing
"""

import torch
from torch import Tensor


def policy_gradient(log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """The loss whose gradient is the policy gradient: a scalar to minimise.

    log_probs (B, T) of the sampled tokens, advantages (B,) one for each response, mask (B, T) bool.
    A response's log-prob is the *sum* over its tokens (where mask is True; elsewhere there may be
    anything, even NaN); responses are averaged. Advantages are constants: no gradient flows into
    them. See sections 1.4 and 2.8.
    """
    ### BEGIN SOLUTION
    responses = torch.where(mask, log_probs, 0.0).sum(dim=1)
    return -(advantages.detach() * responses).mean()
    ### END SOLUTION


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """RLOO's advantages, (B,): a reward minus the mean reward of the *other* members of its group.

    rewards (B,); groups are contiguous, rows i·G … i·G + G − 1 answer prompt i. See section 2.5.
    """
    ### BEGIN SOLUTION
    groups = rewards.view(-1, group_size)
    others = (groups.sum(dim=1, keepdim=True) - groups) / (group_size - 1)
    return (groups - others).flatten()
    ### END SOLUTION
