"""Supervised training: the loop that warm start, pre-training and reward model share."""

import math
from collections.abc import Callable, Iterable, Iterator

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
        FloatingPointError: if a loss or a gradient is not finite, naming the step.
    """
    if steps < 1 or batch_size < 1 or not learning_rate > 0:
        raise ValueError(
            f"steps={steps}, batch_size={batch_size}, learning_rate={learning_rate}: "
            "expected positive numbers"
        )
    losses = updates(
        optimiser_of(module),
        lambda step: [loss_of_batch()],
        label=label,
        steps=range(steps),
        learning_rate=lambda step: learning_rate * share(step),
    )
    return list(track(losses, label, visible=progress, total=steps))


def optimiser_of(module: nn.Module) -> torch.optim.AdamW:
    """AdamW over all that is trained, without weight decay; `updates` sets the learning rate."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, weight_decay=0.0)


def updates(
    optimiser: torch.optim.Optimizer,
    losses_of_batch: Callable[[int], Iterable[Tensor]],
    *,
    label: str,
    steps: range,
    learning_rate: Callable[[int], float],
    scaler: torch.amp.GradScaler | None = None,
) -> Iterator[float]:
    """Make the steps one by one; after each, yield its loss.

    Args:
        optimiser: over the parameters to train, whose gradients are clipped to norm 1.
        losses_of_batch: the loss on the batch of a step, in parts that add up.
        label: what error messages call it.
        steps: which steps; one that goes on from a checkpoint does not begin with 0.
        learning_rate: of each step.
        scaler: of the loss, where products are taken in float16; it leaves out an update whose
            gradient overflows.

    Raises:
        FloatingPointError: if a loss or a gradient is not finite, naming the step.
    """
    scaler = scaler or torch.amp.GradScaler(enabled=False)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for step in steps:
        optimiser.zero_grad()
        total = 0.0
        for loss in losses_of_batch(step):
            scaler.scale(loss).backward()
            total += loss.item()
        if not math.isfinite(total):
            raise FloatingPointError(f"{label}: the loss of step {step + 1} is {total}")
        scaler.unscale_(optimiser)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        overflowed = scaler.is_enabled() and scaler.get_scale() > 1  # the update is left out
        if not (norm.isfinite() or overflowed):
            raise FloatingPointError(f"{label}: the gradient of step {step + 1} is not finite")
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step)
        scaler.step(optimiser)
        scaler.update()
        yield total


def up_and_down(step: int, steps: int) -> float:
    """The learning rate's factor: linear warm-up over a tenth of the steps, cosine decay to 0."""
    rising = (step + 1) / max(1, steps // 10)
    return min(rising, (1 + math.cos(math.pi * step / steps)) / 2)
