"""A reward model: learn from comparisons which of two responses is better."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from nbcourse.functional.arguments import dimensions, same_shape
from nbcourse.lm.actor_critic import ScalarModel
from nbcourse.lm.rollouts import Rollout, model_inputs


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Negative log-likelihood of the comparisons under the Bradley–Terry model.

        P(chosen ≻ rejected) = σ(s_chosen − s_rejected),      L = −mean log σ(s_chosen − s_rejected)

    Only differences count: adding a number to all scores changes nothing, so a reward model has no
    zero of its own.

    Args:
        chosen: (B,) scores of the responses that were preferred.
        rejected: (B,) scores of the others, in the same order.

    Returns:
        A scalar; log 2 when the scores say nothing.

    Raises:
        ValueError: if shapes differ.

    Book: equation (eq-bradley-terry). Source: Bradley & Terry 1952; Ouyang et al. 2022, equation 1.
    """
    chosen, rejected = same_shape(chosen=chosen, rejected=rejected)
    dimensions(chosen, "B", name="chosen")
    return -logsigmoid(chosen - rejected).mean()


class RewardModel(ScalarModel):
    """One score for a whole response, read off its last token."""

    def forward(self, rollout: Rollout) -> Tensor:
        """Scores, (B,) in float32: the head at the last response token, EOS if there is one."""
        output = self.backbone.base_model(**model_inputs(rollout), use_cache=False)
        response = output.last_hidden_state[:, -rollout.tokens.shape[1] :]
        last = rollout.mask.sum(dim=1) - 1
        return self.head(response[torch.arange(len(last), device=last.device), last])
