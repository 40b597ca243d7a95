"""A reward model: learn from comparisons which of two responses is better."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from nbcourse.functional.arguments import B, checked
from nbcourse.lm.actor_critic import ScalarModel
from nbcourse.lm.descent import descend
from nbcourse.lm.rollouts import Rollout, model_inputs, select


@checked
def bradley_terry_loss(chosen: B, rejected: B) -> Tensor:
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
    return -logsigmoid(chosen - rejected).mean()


class RewardModel(ScalarModel):
    """One score for a whole response, read off its last token."""

    def forward(self, rollout: Rollout) -> Tensor:
        """Scores, (B,) in float32: the head at the last response token, EOS if there is one."""
        output = self.backbone.base_model(**model_inputs(rollout), use_cache=False)
        response = output.last_hidden_state[:, -rollout.tokens.shape[1] :]
        last = rollout.mask.sum(dim=1) - 1
        return self.head(response[torch.arange(len(last), device=last.device), last])


def fit(
    reward_model: RewardModel,
    preferred: Rollout,
    others: Rollout,
    *,
    steps: int,
    generator: torch.Generator,
    batch_size: int = 128,
    learning_rate: float = 3e-4,
    progress: bool = True,
) -> list[float]:
    """Train a reward model on comparisons.

    Args:
        reward_model: trained in place, backbone and head, with AdamW.
        preferred: the responses that were preferred.
        others: the responses that they were compared with, row by row, to the same prompts.
        steps: number of updates.
        generator: source of the order; the comparisons are gone through as often as steps need.
        batch_size: comparisons in each update.
        learning_rate: constant.
        progress: draw a progress bar.

    Returns:
        The loss of each step, which starts at log 2.

    Raises:
        ValueError: if there are not as many others as preferred, or a number is out of range.
        FloatingPointError: if a loss or a gradient is not finite, naming the step.

    Book: section "A reward model from comparisons".
    """
    count = len(preferred.mask)
    if len(others.mask) != count:
        raise ValueError(f"others has {len(others.mask)} rows, expected {count} as preferred has")
    order = torch.empty(0, dtype=torch.long)

    def loss_of_batch() -> Tensor:
        nonlocal order
        while len(order) < batch_size:
            order = torch.cat([order, torch.randperm(count, generator=generator)])
        rows, order = order[:batch_size].to(preferred.mask.device), order[batch_size:]
        return bradley_terry_loss(*(reward_model(select(x, rows)) for x in (preferred, others)))

    return descend(
        reward_model,
        loss_of_batch,
        label="reward model",
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        progress=progress,
    )
