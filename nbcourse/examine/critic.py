"""Probes of a critic that is not zero: where the advantage of a token subtracts its values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.examine.batches import batch, without_reference
from nbcourse.examine.subject import LossInputs, Subject

MOVED = 0.1  # a value, or a reward
CLOSE = 0.02


@dataclass(frozen=True)
class Critic:
    """What becomes of the values of a critic.

    Attributes:
        at: where an advantage subtracts a value: at its own "place", one place "late" or "early",
            "nowhere" (the values change nothing), "added" (its own is added), at its place but at
            the "end" of a response, "other", or "none" if the loss takes no values, or is handed
            its advantages.
        no_bootstrap: whether it subtracts those of later places, too.
    """

    at: str
    no_bootstrap: bool = False

    @property
    def is_baseline(self) -> bool:
        """Whether there is a critic that is subtracted."""
        return self.at not in ("none", "nowhere")


def critic(subject: Subject) -> Critic:
    """Read it off from what a value changes, beside what as much of a reward does.

    An advantage that is whitened goes by all values and rewards of the batch: the tokens of other
    responses tell how, and that is undone.
    """
    if "values" not in subject.takes or "advantages" in subject.takes:
        return Critic("none")
    one = without_reference(batch([3, 3, 3], [1.0, 0.2, 0.5], group_size=3))
    values = 0.3 * one.mask + 0.1 * (one.log_probs + 1)
    plain = one.with_(values=values)
    paid = one.with_(values=values, rewards=one.rewards + MOVED * torch.eye(3)[0])
    unit = _moved(subject, plain, paid)[-1]
    if not bool(unit.abs() > 0):
        return Critic("other")
    rows = []
    for place in range(3):
        other = values.clone()
        other[0, place] += MOVED
        rows.append(_moved(subject, plain, one.with_(values=other)) / unit)
    by_value = torch.stack(rows, dim=1)  # (token, place of the value)
    if bool((by_value.abs() < CLOSE).all()):
        return Critic("nowhere")
    own, after = (by_value.diagonal(k) for k in (0, 1))
    for at, diagonal, sign in (
        ("place", own, -1),
        ("added", own, 1),
        ("late", after, -1),
        ("early", by_value.diagonal(-1), -1),
    ):
        if bool(((diagonal - sign).abs() < CLOSE).all()):
            return Critic(at, no_bootstrap=at == "place" and bool((after < -CLOSE).any()))
    return Critic("end" if bool(((own[:-1] + 1).abs() < CLOSE).all()) else "other")


def _moved(subject: Subject, before: LossInputs, after: LossInputs) -> Tensor:
    """By how much the weights of the first response have moved, a whitening undone."""
    old, new = subject.weights(before), subject.weights(after)
    x, y = old[1:].flatten(), new[1:].flatten()
    spread = (x - x.mean()).square().sum()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / spread if spread > 0 else torch.ones(())
    return (new[0] - y.mean()) / slope + x.mean() - old[0]
