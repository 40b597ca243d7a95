"""Probes of the value of a KL: which estimate it is, and with which factor."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.examine.batches import batch, same, without_reference
from nbcourse.examine.subject import LossInputs, Subject

KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: d,
    "k2": lambda d: d.square() / 2,
    "k3": lambda d: torch.expm1(-d) + d,
    "inverted k3": lambda d: torch.expm1(d) - d,
    "|d|": lambda d: d.abs(),
}
DISTANCES = [-1.5, -0.7, -0.2, 0.2, 0.7, 1.5]  # d, at which a kernel is read off


@dataclass(frozen=True)
class Kernel:
    """What the loss adds for a token whose log-prob lies d above that of another policy.

    Attributes:
        name: of `KERNELS`, "none" if nothing depends on that policy, or "other".
        scale: factor in front, for one token a response; β if the average is a mean.
    """

    name: str
    scale: float


def _kernel_of(values: list[float]) -> Kernel:
    """The kernel that has these values at `DISTANCES`."""
    read, d = (torch.tensor(x, dtype=torch.float64) for x in (values, DISTANCES))
    if bool((read.abs() < 1e-9).all()):
        return Kernel("none", 0.0)
    for name, form in KERNELS.items():
        expected = form(d)
        scale = ((read @ expected) / (expected @ expected)).item()
        if same(read, scale * expected):
            return Kernel(name, scale)
    return Kernel("other", math.nan)


def kernel(subject: Subject) -> Kernel:
    """The value of the KL in the loss, read off from responses of one token without advantage."""
    return _added(subject, "ref_log_probs", [slice(None)])


def kernel_of_old(subject: Subject) -> Kernel:
    """The same of a penalty on the way from the policy that sampled.

    The old policy is moved for one response after the other: a loss may look at differences.
    """
    return _added(subject, "old_log_probs", [0, 1])


def _added(subject: Subject, policy: str, moved: Sequence[int | slice]) -> Kernel:
    """What another policy adds to the loss where no response has an advantage."""
    if policy not in subject.takes:
        return Kernel("none", 0.0)
    plain = without_reference(batch([1, 1], [0.0, 0.0], group_size=2))

    def value(rows: int | slice, shift: float) -> float:
        quantities = subject.quantities(plain)
        quantities[policy][rows] -= shift
        return subject.loss(quantities).item()

    def values(shift: float) -> float:
        return sum(value(rows, shift) for rows in moved)

    zero = values(0.0)
    return _kernel_of([values(shift) - zero for shift in DISTANCES])


def reference_is_read(subject: Subject) -> bool:
    """Whether another reference moves a weight, as in DPO, which adds no KL."""
    one = batch([1, 1], [1.0, 0.0], group_size=2)
    return not same(subject.weights(one), subject.weights(without_reference(one)))


def kernel_in_reward(subject: Subject) -> Kernel:
    """The same for a KL that changes what a response earns: read off from its token's weight.

    The weight of a token without advantage is the KL that its response pays, less the other's,
    which pays none; a KL in the loss has the derivative of its kernel there.
    """
    if "ref_log_probs" not in subject.takes:
        return Kernel("none", 0.0)
    plain = without_reference(batch([1, 1], [0.0, 0.0], group_size=2))

    def weight(shift: float) -> float:
        ref = plain.ref_log_probs.clone()
        ref[0, 0] -= shift
        return subject.weights(plain.with_(ref_log_probs=ref))[0, 0].item()

    zero = weight(0.0)
    read = _kernel_of([weight(shift) - zero for shift in DISTANCES])
    return Kernel(read.name, 2 * read.scale)


def kernel_is_clamped(subject: Subject) -> bool:
    """Whether the KL of a token far from the reference has no gradient."""
    plain = without_reference(batch([1, 1], [0.0, 0.0], group_size=2))
    far, near = (
        subject.weights(plain.with_(ref_log_probs=plain.log_probs + distance))[0, 0].item()
        for distance in (12.0, 0.5)
    )
    return near != 0 and far == 0


def kernel_drowns(subject: Subject) -> bool:
    """Whether in float32 the KL of a token close to the reference is rounding noise."""
    log_probs = torch.full((2, 1), -1.0)
    mask, rewards = torch.ones(2, 1, dtype=torch.bool), torch.zeros(2)

    def value(dtype: torch.dtype, shift: float) -> float:
        own = log_probs.to(dtype)
        one = LossInputs(own, own, own - shift, mask, rewards.to(dtype), 2)
        return subject.loss(subject.quantities(one)).item()

    shift = 2.0**-13  # exact in float32
    exact, rounded = (
        value(dtype, shift) - value(dtype, 0.0) for dtype in (torch.float64, torch.float32)
    )
    return exact != 0 and abs(rounded - exact) > 0.2 * abs(exact)
