"""Do two halves of a batch pull the same way? The cosine of their gradients, which every log has.

Small cosines are the rule: with the cosine c one update has a squared signal over squared noise of
2c / (1 − c). A copy of a large model's gradient would cost as much memory as the model, so that
large models are asked at every k-th weight.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nbcourse.training.processes import Processes

MOST = 2**20
"""Weights that are looked at: with gradients in float32 that is 12 MB."""


class Halves:
    """The sums of the gradients of even and of odd slices.

    Args:
        gradients: one for each parameter, zeros now; the slices add to them in place.
    """

    def __init__(self, gradients: Sequence[Tensor]) -> None:
        self.gradients = gradients
        self.every = -(-sum(g.numel() for g in gradients) // MOST)
        self.before = self._sample()
        self.sums = [torch.zeros_like(self.before) for _ in range(2)]

    def _sample(self) -> Tensor:
        return torch.cat([g.detach().flatten()[:: self.every].float() for g in self.gradients])

    def add(self, piece: int) -> None:
        """The gradients have the slice of this number too."""
        now = self._sample()
        self.sums[piece % 2] += now - self.before
        self.before = now

    def cosine(self, processes: Processes) -> float | None:
        """Of the two sums over all processes; None if one of them is zero or not finite."""
        processes.add(self.sums)
        even, odd = self.sums
        product = even.norm() * odd.norm()
        return float(even @ odd / product) if product > 0 and product.isfinite() else None
