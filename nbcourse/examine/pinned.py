"""The expected gradient of a loss, kept in a file: a test of what a loss does, not of its value.

A refactoring that moves a mask, a divisor or a sign changes where a loss sends the policy, and few
tests of values notice. The expected gradient over every batch of the small worlds does not depend
on a seed, so it can be compared with that of yesterday, number by number.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nbcourse.examine import direction, facts, hygiene
from nbcourse.examine.remembered import Remembered
from nbcourse.examine.subject import Subject

CLOSE = 1e-5  # of the gradient's length: a loss may compute in float32


def expected(loss: Callable[..., Any] | Subject) -> dict[str, Tensor]:
    """E[∇L] on fresh, stale and far-off samples, each as one vector over all small worlds.

    Args:
        loss: as for `examine.examine`, but no name of a row.

    Raises:
        ValueError: as `examine.examine` does.

    Book: appendix B, "Examine a loss of your own".
    """
    subject = Remembered.by(loss if isinstance(loss, Subject) else Subject.of(loss))
    hygiene.require_loss(subject)
    ordered = not hygiene.order_of_responses_changes_nothing(subject)
    seen = facts.directions(subject, ordered=ordered)
    return {kind: one.gradients for kind, one in seen.items()}


def assert_gradient(loss: Callable[..., Any] | Subject, file: Path | str) -> None:
    """For tests: the expected gradient of a loss is the one that a file holds.

    Where there is no file it is written, and the test fails once, so that a person looks at it.

    Args:
        loss: as for `expected`.
        file: JSON, to be committed beside the test.

    Raises:
        AssertionError: saying on which samples the gradient differs, by how much and in what
            direction; or that the file is new.

    Book: appendix B, "Examine a loss of your own".
    """
    file, now = Path(file), expected(loss)
    if not file.exists():
        kept = {kind: vector.tolist() for kind, vector in now.items()}
        file.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        raise AssertionError(f"{file} is new: look at `nbcourse examine`, then commit it")
    before = json.loads(file.read_text(encoding="utf-8"))
    changes = [
        f"{kind} samples: {change}"
        for kind, vector in now.items()
        if (change := _change(torch.tensor(before[kind], dtype=torch.float64), vector))
    ]
    assert not changes, (
        f"the expected gradient is no longer that of {file}\n"
        + "\n".join(changes)
        + f"\nif that was meant, delete {file.name} and run the test again"
    )


def _change(before: Tensor, now: Tensor) -> str:
    """What has become of a gradient, in words; nothing if nothing has."""
    if before.shape != now.shape:
        return "the small worlds are others than when it was pinned"
    moved = ((now - before).norm() / before.norm().clamp(min=1e-12)).item()
    if moved <= CLOSE:
        return ""
    cosine, factor = direction.beside(now, before)
    if cosine > 1 - CLOSE:
        return f"the same direction, {factor:.4g} times as long"
    return f"cosine {cosine:.4f} with what was pinned, moved by {moved:.1%} of its length"
