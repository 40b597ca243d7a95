"""Chapter 10's five answers, and what the trainer's loss of a row makes of a batch of them."""

import torch
from torch import Tensor

from nbcourse.toys.sequences import SequenceSpace
from nbcourse.training.algorithms import ALGORITHMS, Penalty, Tokens, policy_loss

SPACE = SequenceSpace(2, 4, eos=0)
LOGITS = torch.zeros(4, 2, dtype=torch.float64)
RIGHT = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
GROUP = 3


def update(name: str, members: Tensor) -> Tensor:
    """Minus the gradient of a row's loss on one batch, (4, 2).

    Args:
        name: of a row without a critic; a running mean of rewards is 0.3, greedy answers earn 0.
        members: (B,) answers, groups of three side by side.
    """
    row, leaf = ALGORITHMS[name], LOGITS.clone().requires_grad_()
    log_probs, mask, rewards = SPACE.log_probs(leaf)[members], SPACE.mask[members], RIGHT[members]
    last = mask.sum(dim=1, keepdim=True) - 1
    estimate = row.estimate(
        row.all_settings,
        rewards=torch.zeros_like(log_probs).detach().scatter(1, last, rewards[:, None]),
        mask=mask,
        group_size=GROUP,
        average=0.3,
        greedy_scores=torch.zeros_like(rewards),
        step_rewards=rewards[:, None],
        step_ends=last,
    )
    loss = policy_loss(
        row,
        row.all_settings,
        Penalty(),
        Tokens(log_probs, log_probs.detach(), log_probs.detach(), estimate.advantages, mask),
        max_length=4,
    )
    return -torch.autograd.grad(loss, leaf)[0]
