"""A critic for a language model: one number for each state, from one backbone or from two."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nbcourse.lm.log_probs import rollout_states, state_log_probs
from nbcourse.lm.rollouts import Rollout

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ValueHead(nn.Module):
    """Hidden state → one number; the weights start at zero, and training starts without a critic.

    A head with random weights would hand the policy random advantages in its first steps.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., H) → (...) in float32, under autocast too: values get subtracted."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.linear(hidden.to(self.linear.weight.dtype)).squeeze(-1).float()


class ActorCritic(nn.Module):
    """Policy and critic on one backbone: half the memory, and the two losses pull at one trunk.

    Args:
        model: a causal language model of transformers.

    Book: section "Actor and critic".
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        super().__init__()
        self.policy = model
        self.head = ValueHead(model.config.hidden_size)

    def forward(
        self, rollout: Rollout, *, temperature: float = 1.0, group_size: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and values of every response token, from one pass through the backbone.

        Returns:
            Two (B, T) tensors in float32: log π(token t), and V of the state that chose it.
        """
        hidden = rollout_states(self.policy, rollout, group_size=group_size)
        weight = self.policy.get_output_embeddings().weight
        log_probs = state_log_probs(hidden, weight, rollout, temperature=temperature)
        return log_probs, self.head(hidden)

    def values(self, rollout: Rollout, *, group_size: int = 1) -> Tensor:
        """The values alone, without a product with the output matrix: (B, T) in float32."""
        return self.head(rollout_states(self.policy, rollout, group_size=group_size))


class ScalarModel(nn.Module):
    """A backbone with one number on top instead of a vocabulary.

    Args:
        model: a causal language model of transformers; its output matrix is not used.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        super().__init__()
        self.backbone = model
        self.head = ValueHead(model.config.hidden_size)


class Critic(ScalarModel):
    """A critic with a backbone of its own, usually a copy of the policy's."""

    def forward(self, rollout: Rollout, *, group_size: int = 1) -> Tensor:
        """V of the state that chose each response token: (B, T) in float32."""
        return self.head(rollout_states(self.backbone, rollout, group_size=group_size))
