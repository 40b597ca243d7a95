"""Observers of a training step, and a fingerprint by which weights are told apart."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

ENTRIES = 64  # of each parameter, evenly spaced: all of them move in a step


class Watch:
    """An observer of a training step, which changes nothing; this base class does nothing."""

    def before_updates(
        self, learner: Any, experience: Any, estimate: Any, penalty: Any, step: int
    ) -> None:
        """A batch is complete, and nothing has been learned from it yet.

        Args:
            learner: the `Learner`.
            experience: the `Experience`, with the old log-probs if there are several updates.
            estimate: its `Estimate`.
            penalty: the `Penalty` of this step.
            step: steps done before this one.
        """

    def tokens(
        self, rows: Tensor, batch_mask: Tensor, log_probs: Tensor, old_log_probs: Tensor
    ) -> None:
        """The loss of some rows is about to be made.

        Args:
            rows: (b,) their numbers in the batch.
            batch_mask: (N, T) of the minibatch that they are part of.
            log_probs: (b, t) with gradient.
            old_log_probs: (b, t).
        """

    def after_updates(self, learner: Any) -> None:
        """All updates of this step are done."""

    def after_step(self, metrics: dict[str, float]) -> None:
        """The step is done, and its numbers are kept where the run has a folder."""


class Together(Watch):
    """Several observers, each of which is shown everything, in this order."""

    def __init__(self, *watches: Watch) -> None:
        self.watches = watches

    def before_updates(
        self, learner: Any, experience: Any, estimate: Any, penalty: Any, step: int
    ) -> None:
        """Show each the batch."""
        for watch in self.watches:
            watch.before_updates(learner, experience, estimate, penalty, step)

    def tokens(
        self, rows: Tensor, batch_mask: Tensor, log_probs: Tensor, old_log_probs: Tensor
    ) -> None:
        """Show each the rows."""
        for watch in self.watches:
            watch.tokens(rows, batch_mask, log_probs, old_log_probs)

    def after_updates(self, learner: Any) -> None:
        """Tell each that the updates are done."""
        for watch in self.watches:
            watch.after_updates(learner)

    def after_step(self, metrics: dict[str, float]) -> None:
        """Tell each the numbers."""
        for watch in self.watches:
            watch.after_step(metrics)


@torch.no_grad()
def fingerprint(parameters: Iterable[Tensor]) -> str:
    """Sixteen characters that differ when the weights do: a digest of some entries of each."""
    found = [p.reshape(-1)[:: max(1, p.numel() // ENTRIES)][:ENTRIES].float() for p in parameters]
    return hashlib.sha256(torch.cat(found).cpu().numpy().tobytes()).hexdigest()[:16]
