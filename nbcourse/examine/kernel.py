"""Probes of the value of a KL: which estimate it is, and with which factor."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nbcourse.examine.batches import (
    batch,
    reference_is_the_sampler,
    same,
    without_reference,
)
from nbcourse.examine.subject import LossInputs, Subject

KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: d,
    "k2": lambda d: d.square() / 2,
    "k3": lambda d: torch.expm1(-d) + d,
    "inverted k3": lambda d: torch.expm1(d) - d,
    "|d|": lambda d: d.abs(),
}
DISTANCES = [-1.5, -0.7, -0.2, 0.2, 0.7, 1.5]  # d, at which a kernel is read off
# Penalties on the way from the policy that sampled, by their derivatives; d is log ρ.
PULLS: dict[str, Callable[[Tensor], Tensor]] = {
    "½ log² ρ": lambda d: d,
    "(ρ − 1 − log ρ)": torch.expm1,
    "(1/ρ − 1 + log ρ)": lambda d: -torch.expm1(-d),
    "|log ρ|": torch.sign,
    "ρ log ρ": lambda d: d.exp() * (1 + d),
    "(ρ log ρ − ρ + 1)": lambda d: d.exp() * d,
    "½ (ρ − 1)²": lambda d: d.exp() * torch.expm1(d),
}
CONSTANT = ("(−log ρ)", "ρ log ρ")  # on fresh samples


@dataclass(frozen=True)
class Kernel:
    """What the loss adds for a token whose log-prob lies d above that of another policy.

    Attributes:
        name: of `KERNELS`, "none" if nothing depends on that policy, or "other".
        scale: factor in front, for one token a response; β if the average is a mean.
    """

    name: str
    scale: float


def _kernel_of(
    values: list[float], forms: Mapping[str, Callable[[Tensor], Tensor]] = KERNELS
) -> Kernel:
    """Which of some forms has these values at `DISTANCES`."""
    read, d = (torch.tensor(x, dtype=torch.float64) for x in (values, DISTANCES))
    if bool((read.abs() < 1e-9).all()):
        return Kernel("none", 0.0)
    for name, form in forms.items():
        expected = form(d)
        scale = ((read @ expected) / (expected @ expected)).item()
        if same(read, scale * expected):
            return Kernel(name, scale)
    return Kernel("other", math.nan)


def kernel(subject: Subject) -> Kernel:
    """The value of the KL in the loss, read off from responses of one token without advantage."""
    if "ref_log_probs" not in subject.takes:
        return Kernel("none", 0.0)
    plain = without_reference(batch([1, 1], [0.0, 0.0], group_size=2))

    def value(shift: float) -> float:
        quantities = subject.quantities(plain)
        quantities["ref_log_probs"] -= shift
        return subject.loss(quantities).item()

    zero = value(0.0)
    return _kernel_of([value(shift) - zero for shift in DISTANCES])


@lru_cache(maxsize=4)
def kernel_of_old(subject: Subject) -> Kernel:
    """A penalty on the way from the policy that sampled, where no response has an advantage.

    Returns:
        A name of `PULLS`, "(−log ρ)", "other" for what pulls back in another way, or "none". With
        a scale below 0 it drives the policy away.
    """
    if "old_log_probs" not in subject.takes:
        return Kernel("none", 0.0)
    plain = batch([1, 1], [0.0, 0.0], group_size=2)
    of_the_sampler = reference_is_the_sampler(subject)  # a KL in the reward, which is gone there

    def moved(shift: float) -> LossInputs:  # one response alone: a loss may look at differences
        old = plain.log_probs.clone()
        old[0, 0] -= shift
        return without_reference(plain.with_(old_log_probs=old), sampler=of_the_sampler)

    fresh = subject.weights(moved(0.0))[0, 0].item()
    read = [subject.weights(moved(shift))[0, 0].item() for shift in DISTANCES]
    found = _kernel_of(read, PULLS)
    if found.name != "other":
        return Kernel(found.name, 2 * found.scale)
    if all(same(torch.tensor(weight), torch.tensor(fresh)) for weight in read):
        values = [subject.loss(subject.quantities(moved(shift))).item() for shift in (0.0, 1.0)]
        falls = math.isclose(values[1] - values[0], fresh, rel_tol=1e-6)
        return Kernel("(−log ρ)", -2 * fresh) if falls and fresh < 0 else Kernel("none", 0.0)
    back = all(weight * d >= 0 for weight, d in zip(read, DISTANCES, strict=True))
    return found if back else Kernel("none", 0.0)


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
