"""Build 3, after chapter 5: PPO's clip.

Difficulty ●○○ · 15 minutes · one function, four lines · given: nothing
"""

import torch
from torch import Tensor


def ppo_clip(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float = 0.2
) -> Tensor:
    """Losses of tokens (B, T), to be minimised: PPO's, with the interval 1 − clip … 1 + clip.

    log_probs, old_log_probs, advantages (B, T). No gradient flows into old_log_probs or advantages.
    See section 5.6.
    """
    ### BEGIN SOLUTION
    A, ratio = advantages.detach(), (log_probs - old_log_probs.detach()).exp()
    return -torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A)
    ### END SOLUTION
