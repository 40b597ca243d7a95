"""A small policy and a small critic that share nothing."""

from itertools import pairwise

import torch
from torch import Tensor, nn


class MLPActorCritic(nn.Module):
    """Two perceptrons with tanh: logits of the actions, and the value of the state.

    Args:
        observation_size: O.
        actions: K.
        hidden: width of both hidden layers.
        generator: of the initial weights.
    """

    def __init__(
        self, observation_size: int, actions: int, *, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        widths = [observation_size, hidden, hidden]
        # cleanrl/ppo.py, `Agent.__init__`: the small last gain starts near the uniform policy
        self.actor = _perceptron([*widths, actions], last_gain=0.01, generator=generator)
        self.critic = _perceptron([*widths, 1], last_gain=1.0, generator=generator)

    def logits(self, observations: Tensor) -> Tensor:
        """(..., O) → (..., K)."""
        return self.actor(observations)

    def values(self, observations: Tensor) -> Tensor:
        """(..., O) → (...): no trailing axis of one that would broadcast against returns."""
        return self.critic(observations).squeeze(-1)


def _perceptron(
    widths: list[int], *, last_gain: float, generator: torch.Generator
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=2):
        linear = nn.Linear(inputs, outputs)
        gain = last_gain if number == len(widths) else 2**0.5
        # cleanrl/ppo.py, `layer_init`: orthogonal weights of gain √2, no bias
        nn.init.orthogonal_(linear.weight, gain, generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])
