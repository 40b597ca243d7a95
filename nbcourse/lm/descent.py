"""Supervised training of a module: the loop that the warm start and the reward model share."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nbcourse.progress import track


def descend(
    module: nn.Module,
    loss_of_batch: Callable[[], Tensor],
    *,
    label: str,
    steps: int,
    batch_size: int,
    learning_rate: float,
    share: Callable[[int], float] = lambda step: 1.0,
    progress: bool = True,
) -> list[float]:
    """AdamW on one fresh batch after another, with gradients clipped to norm 1.

    Args:
        module: trained in place.
        loss_of_batch: draws the next batch and gives its loss.
        label: what the progress bar and error messages call it.
        steps: number of updates.
        batch_size: of the batches, checked here.
        learning_rate: at its highest.
        share: of the learning rate, at each step.
        progress: draw a progress bar.

    Returns:
        The loss of each step.

    Raises:
        ValueError: if a number is out of range.
        FloatingPointError: if the loss is not finite, naming the step.
    """
    if steps < 1 or batch_size < 1 or not learning_rate > 0:
        raise ValueError(
            f"steps={steps}, batch_size={batch_size}, learning_rate={learning_rate}: "
            "expected positive numbers"
        )
    optimiser = torch.optim.AdamW(module.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    losses: list[float] = []
    for step in track(range(steps), label, visible=progress):
        loss = loss_of_batch()
        if not loss.isfinite():
            raise FloatingPointError(f"{label}: the loss of step {step} is {loss.item()}")
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return losses
