"""Probes: small batches that make one property of a loss visible, whatever its formula is.

A probe changes one thing about a batch and looks at what becomes of the weights ∂L/∂log π, or of
the value. It compares a loss with itself and not with a reference, so a formula that is written
differently and does the same passes, and what a probe finds has a name.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.examine.subject import Batch, Subject

TOLERANCE = 1e-6  # relative; losses may well compute in float32


def batch(
    lengths: list[int],
    rewards: list[float],
    *,
    group_size: int,
    width: int | None = None,
) -> Batch:
    """Fresh samples: one policy sampled and learns, the reference is another one."""
    source = torch.Generator().manual_seed(0)
    width = width or max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    shape = (len(lengths), max(width, 8))  # the same numbers whatever the width
    log_probs = -0.5 - torch.rand(shape, generator=source, dtype=torch.float64)[:, :width]
    shift = 0.4 * torch.randn(shape, generator=source, dtype=torch.float64)[:, :width]
    log_probs, ref = log_probs.masked_fill(~mask, 0.0), (log_probs + shift).masked_fill(~mask, 0.0)
    scores = torch.tensor(rewards, dtype=torch.float64)
    return Batch(log_probs, log_probs, ref, mask, scores, group_size)


def same(first: Tensor, second: Tensor) -> bool:
    """Equal but for rounding."""
    scale = max(first.abs().max().item(), second.abs().max().item(), 1e-12)
    return bool(((first - second).abs() <= TOLERANCE * scale).all())


MIXED = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
UNEVEN = [4, 2, 3, 1, 4, 3]


@lru_cache(maxsize=1)
def reference_is_the_sampler(subject: Subject) -> bool:
    """Whether a KL to the reference is gone where the reference is the policy that *sampled*.

    A KL in the loss is gone where the reference is the policy that learns. One in the reward, as
    PPO has it, was computed when the batch was sampled. On fresh samples there is no difference.
    """
    fresh = batch([2, 2], [0.0, 0.0], group_size=2)
    shift = torch.tensor([[0.05, 0.02], [0.0, 0.0]], dtype=torch.float64)
    one = fresh.with_(old_log_probs=fresh.old_log_probs - shift)

    def moves(reference: Tensor) -> float:
        return subject.weights(one.with_(ref_log_probs=reference)).abs().max().item()

    return moves(one.old_log_probs) < moves(one.log_probs)


def without_reference(one: Batch, *, sampler: bool = False) -> Batch:
    """The same batch with the reference equal to the policy: a KL to it is gone."""
    return one.with_(ref_log_probs=one.old_log_probs if sampler else one.log_probs)


def of_rewards(subject: Subject, one: Batch) -> Tensor:
    """The weights that rewards make: less those of the same batch without any reward."""
    nothing = subject.weights(one.with_(rewards=torch.zeros_like(one.rewards)))
    # a flat group may give NaN, which `flat_groups` tells
    return subject.weights(one) - nothing.nan_to_num(nan=0.0)


def require_loss(subject: Subject) -> None:
    """Raises ValueError if it is not finite, or the same whatever the log-probs are."""
    one = batch(UNEVEN, MIXED, group_size=3)
    if "advantages" in subject.takes:  # those of a group add up to 0, and so might the loss
        one = one.with_(advantages=(one.ref_log_probs + 1) * one.mask)
    other = one.with_(log_probs=one.log_probs - 0.1 * one.mask)
    values = [subject.loss(subject.quantities(x)).item() for x in (one, other)]
    weights = subject.weights(one)
    if not all(map(math.isfinite, values)) or not bool(weights.isfinite().all()):
        raise UserError(
            f"{subject.name} returns {values[0]:g} for an ordinary batch, or its gradient is not "
            "finite; expected finite numbers"
        )
    if values[0] == values[1] and not bool((weights != 0).any()):
        raise UserError(f"{subject.name} does not depend on log_probs, expected a loss that does")


# ---------------------------------------------------------------- hygiene


def padding_changes(subject: Subject) -> str:
    """What two more columns that belong to no response change.

    "nothing", "scale" (every weight, by one factor) or "direction".
    """
    narrow = batch(UNEVEN, MIXED, group_size=3)
    wide = batch(UNEVEN, MIXED, group_size=3, width=6)
    before, after = subject.weights(narrow), subject.weights(wide)[:, :4]
    if same(after, before):
        return "nothing"
    factor = (after * before).sum() / before.square().sum()
    return "scale" if same(after, factor * before) else "direction"


def padding_is_not_read(subject: Subject, rubbish: float) -> bool:
    """Whether rubbish where the mask is False reaches no weight."""
    clean = batch(UNEVEN, MIXED, group_size=3)
    names = {"log_probs": 1.0, "old_log_probs": 1.3, "ref_log_probs": 1.7}
    dirty = clean.with_(
        **{n: getattr(clean, n).masked_fill(~clean.mask, k * rubbish) for n, k in names.items()}
    )
    expected, found = subject.weights(clean), subject.weights(dirty)
    inside = torch.where(clean.mask, found, 0.0)
    unread = same(inside, torch.where(clean.mask, expected, 0.0))
    return unread and _finite(subject, dirty)


def _finite(subject: Subject, one: Batch) -> bool:
    """Whether the loss and all weights are finite numbers."""
    loss = subject.loss(subject.quantities(one))
    return bool(loss.isfinite()) and bool(subject.weights(one).isfinite().all())


def padding_gets_no_gradient(subject: Subject) -> bool:
    """The weights of positions that hold no token are 0."""
    one = batch(UNEVEN, MIXED, group_size=3)
    return bool((subject.weights(one)[~one.mask] == 0).all())


def every_token_counts(subject: Subject) -> list[int]:
    """Positions, counted from the end of each response, whose tokens get no weight."""
    one = without_reference(batch([4, 4, 4, 4], [1.0, 0.0, 0.0, 0.0], group_size=4))
    silent = (of_rewards(subject, one) == 0).all(dim=0)
    return [int(i) - 4 for i in silent.nonzero().flatten()]


def order_of_responses_changes_nothing(subject: Subject) -> bool:
    """Responses to one prompt, in another order."""
    one = batch(UNEVEN, MIXED, group_size=3)
    order = torch.tensor([2, 0, 1, 4, 5, 3])
    names = ("log_probs", "old_log_probs", "ref_log_probs", "mask", "rewards")
    other = one.with_(**{name: getattr(one, name)[order] for name in names})
    return same(subject.weights(other), subject.weights(one)[order])


def influence(subject: Subject) -> str:
    """Whose rewards move what a response counts, in two prompts of three responses.

    "own" (there is no baseline), "group", "batch", "strided" (every other response, as if groups
    were not side by side) or "other"; "none" if the loss does not look at rewards.
    """
    one = without_reference(batch([2] * 6, [1.0, 0.2, 0.5, 0.9, 0.4, 0.0], group_size=3))
    before = subject.weights(one)
    moved = torch.zeros(6, 6, dtype=torch.bool)
    for j in range(6):
        rewards = one.rewards.clone()
        rewards[j] += 0.37
        after = subject.weights(one.with_(rewards=rewards))
        moved[:, j] = ((after - before).abs() > TOLERANCE * before.abs().max()).any(dim=1)
    i = torch.arange(6)
    group, strided = i[:, None] // 3 == i // 3, i[:, None] % 2 == i % 2
    found = moved | torch.eye(6, dtype=torch.bool)
    if not bool(moved.any()):
        return "none"
    if not bool((found & ~group).any()):  # an answer that is left out is moved by none
        return "own" if torch.equal(found, torch.eye(6, dtype=torch.bool)) else "group"
    if torch.equal(found, strided):
        return "strided"
    return "batch" if bool(found.all()) else "other"


def spread_is_divided_out(subject: Subject) -> bool:
    """Ten times the rewards, or a tenth, and the weights (all but) the same."""
    one = without_reference(batch([2] * 6, MIXED, group_size=3))
    plain = of_rewards(subject, one)
    scaled = [of_rewards(subject, one.with_(rewards=k * one.rewards)) for k in (10, 0.1)]
    return all(bool((other - plain).norm() < 0.1 * plain.norm()) for other in scaled)


def computes_in_half_precision(subject: Subject) -> bool:
    """Log-probs in bfloat16, and old ones that are not: is the ratio still read within a hundredth?

    The log-probs are such numbers in themselves, so that any difference is the loss's own.
    """
    one = without_reference(batch([2, 2], [1.0, 0.0], group_size=2))
    low = (10 * one.log_probs).bfloat16()
    exact = one.with_(log_probs=low.double(), old_log_probs=low.double() - 0.02)
    quantities = {
        **subject.quantities(exact),
        "log_probs": low,
        "old_log_probs": exact.old_log_probs.float(),
    }
    log_probs = quantities["log_probs"].requires_grad_()
    try:
        loss = subject.loss(quantities)
    except UserError:  # it refuses to mix the two: nothing is rounded
        return False
    if not loss.requires_grad:
        return False
    (found,) = torch.autograd.grad(loss, log_probs, allow_unused=True)
    expected = subject.weights(exact)
    return found is not None and bool((found.double() - expected).norm() > 0.01 * expected.norm())


@dataclass(frozen=True)
class Split:
    """How the gradients of two halves of a batch make that of the whole.

    Attributes:
        by: "mean", "sum", or "neither".
        error: of the mean of the halves, relative to the whole.
    """

    by: str
    error: float


def micro_batches(subject: Subject) -> Split:
    """Two prompts whose responses differ in length, together and one by one."""
    whole = batch([4, 4, 4, 1, 1, 1], MIXED, group_size=3)
    names = ("log_probs", "old_log_probs", "ref_log_probs", "mask", "rewards")
    parts = [
        subject.weights(whole.with_(**{name: getattr(whole, name)[rows] for name in names}))
        for rows in (slice(0, 3), slice(3, 6))
    ]
    expected, found = subject.weights(whole), torch.cat(parts)
    by = "mean" if same(found / 2, expected) else "sum" if same(found, expected) else "neither"
    error = ((found / 2 - expected).norm() / expected.norm().clamp(min=1e-12)).item()
    return Split(by, error)


def detached(subject: Subject) -> list[str]:
    """Quantities that are constants and yet receive a gradient."""
    quantities = subject.quantities(batch(UNEVEN, MIXED, group_size=3))
    names = [n for n in subject.takes if n not in ("log_probs", "mask", "group_size", "values")]
    leaves = {name: quantities[name].requires_grad_() for name in ("log_probs", *names)}
    # clones, for a loss may change what it is given in place
    loss = subject.loss({**quantities, **{name: leaf.clone() for name, leaf in leaves.items()}})
    if not names or not loss.requires_grad:
        return []
    found = torch.autograd.grad(loss, [leaves[n] for n in names], allow_unused=True)
    return [n for n, g in zip(names, found, strict=True) if g is not None and bool((g != 0).any())]


def leaves_arguments_alone(subject: Subject) -> list[str]:
    """Tensors of the caller that are changed in place."""
    one = batch(UNEVEN, MIXED, group_size=3)
    quantities, before = subject.quantities(one), subject.quantities(one)
    subject.loss(quantities)
    tensors = [n for n in subject.takes if isinstance(before[n], Tensor)]
    return [n for n in tensors if not torch.equal(quantities[n], before[n])]


def survives_long_answers(subject: Subject) -> bool:
    """Float32, 4,000 tokens, each .05 nats from the old policy and from the reference."""
    log_probs = torch.full((2, 4000), -1.0)
    old = log_probs - 0.05
    rewards, mask = torch.tensor([1.0, 0.0]), torch.ones_like(log_probs, dtype=torch.bool)
    long = Batch(log_probs, old, old, mask, rewards, 2)
    return _finite(subject, long)


def flat_groups(subject: Subject) -> str:
    """What becomes of a group whose rewards are all alike.

    "nothing", "something" (whatever the reward), "noise" (rounding, where a reward is no dyadic
    number), or "nan".
    """
    found = []
    for reward in (0.0, 1.0):
        one = without_reference(batch([3, 2, 3], [reward] * 3, group_size=3))
        found.append(subject.weights(one))
    if not all(bool(weights.isfinite().all()) for weights in found):
        return "nan"
    if not all(bool((w.abs() <= 1e-9).all()) for w in found):
        return "something"
    spread = _in_float32(subject, [1.0, 0.0] * 4).abs().max()
    noise = max(_in_float32(subject, [k / 100] * 8).abs().max() for k in range(1, 100, 2))
    return "noise" if noise > 0.05 * spread else "nothing"


def _in_float32(subject: Subject, rewards: list[float]) -> Tensor:
    one = without_reference(batch([1] * len(rewards), rewards, group_size=len(rewards)))
    names = ("log_probs", "old_log_probs", "ref_log_probs", "rewards")
    return subject.weights(one.with_(**{name: getattr(one, name).float() for name in names}))


def constant_term(subject: Subject) -> bool:
    """Whether every token has the same weight, and not 0, where no response earns anything."""
    one = without_reference(batch([2, 2, 2], [0.0, 0.0, 0.0], group_size=3))
    weights = subject.weights(one)
    return weights[0, 0].abs().item() > 1e-9 and same(weights, weights[0, 0].expand_as(weights))


def empty_response_is_harmless(subject: Subject) -> bool:
    """A response without any token, such as one that was masked away whole."""
    one = batch([3, 0, 2], [1.0, 0.0, 0.0], group_size=3)
    try:
        return _finite(subject, one)
    except UserError:  # refused: that is as clear as can be
        return True


def credit_reaches_back(subject: Subject) -> bool:
    """Whether tokens before a gap in the mask, such as a tool's answer, are given credit."""
    one = without_reference(batch([4, 4], [1.0, 0.0], group_size=2))
    mask = one.mask.clone()
    mask[:, 2] = False
    gap = of_rewards(subject, one.with_(mask=mask))
    whole = of_rewards(subject, one)
    return bool((gap[:, :2] != 0).all()) or not bool((whole[:, :2] != 0).all())


# ---------------------------------------------------------------- what a token counts


def who_learns(subject: Subject) -> str:
    """Which answers move the policy on fresh samples.

    "both" (good ones up, bad ones down, or the reverse), "good" or "bad" only, "alike" (all the
    same way), or "neither".
    """
    one = without_reference(batch([2, 2, 2, 2], [1.0, 0.0, 0.0, 0.0], group_size=4))
    weights = of_rewards(subject, one)
    good, bad = weights[0].sum().item(), weights[1].sum().item()
    if good == 0 or bad == 0:
        return "good" if good else "bad" if bad else "neither"
    return "alike" if good * bad > 0 else "both"


def level(subject: Subject) -> str:
    """What changes where a token is less likely to all policies, so that every ratio stays.

    "none", "own" (the token's weight, or all of them) or "others" (those of some other tokens).
    """
    one = batch([4, 4], [1.0, 0.0], group_size=2)
    names = ("log_probs", "old_log_probs", "ref_log_probs")
    shift = torch.zeros_like(one.log_probs)
    shift[0, 1] = -0.3
    other = one.with_(**{name: getattr(one, name) + shift for name in names})
    before, after = subject.weights(one), subject.weights(other)
    moved = (after - before).abs() > TOLERANCE * before.abs().max()
    if not bool(moved.any()):
        return "none"
    others = torch.arange(4) != 1
    return "others" if moved[0, others].any() and not moved[0, others].all() else "own"


def positions(subject: Subject) -> list[float]:
    """What the tokens of a response of four count, equally likely ones, beside the last."""
    log_probs = torch.full((4, 4), -1.0, dtype=torch.float64)
    mask = torch.ones(4, 4, dtype=torch.bool)
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    weights = of_rewards(subject, Batch(log_probs, log_probs, log_probs, mask, rewards, 4))
    moved = weights[weights.abs().sum(dim=1).argmax()]  # some methods leave answers out
    return (moved / moved[-1]).tolist()


def advantages_mix(subject: Subject) -> bool:
    """Whether the advantage of another response counts as much as a response's own."""
    if "advantages" not in subject.takes:
        return False
    one = without_reference(batch([2, 2, 2], [1.0, 0.0, 0.0], group_size=3))
    source = torch.Generator().manual_seed(1)
    given = torch.randn(3, 2, generator=source, dtype=torch.float64)
    plain = subject.weights(one.with_(advantages=given))[0]

    def effect(row: int) -> Tensor:
        more = given.clone()
        more[row] += 0.5
        return subject.weights(one.with_(advantages=more))[0] - plain

    own, other = effect(0), effect(1)
    return bool((own != 0).any()) and same(own, other)


# ---------------------------------------------------------------- the ratio and its clip


def ratio_weights(subject: Subject, advantage_sign: int, ratios: list[float]) -> list[float]:
    """Weight of a token with this ratio π/π_old, relative to that of a fresh one.

    Of one response to two; the other one's tokens are fresh. 1 everywhere means that the loss does
    not look at the ratio.
    """
    rewards = [1.0, 0.0] if advantage_sign > 0 else [0.0, 1.0]
    fresh = batch([1, 1], rewards, group_size=2)
    unit, *found = (_moved(subject, fresh, ratio)[0, 0].item() for ratio in (1.0, *ratios))
    return [w / unit if unit else math.nan for w in found]


def ratio_is_to_the_reference(subject: Subject) -> bool:
    """Whether a token counts its ratio π/π_ref, where it should count π/π_old."""
    plain = without_reference(batch([1, 1], [1.0, 0.0], group_size=2))
    ref = plain.ref_log_probs.clone()
    ref[0, 0] -= math.log(1.01)
    unit, moved = (
        of_rewards(subject, one)[0, 0].item() for one in (plain, plain.with_(ref_log_probs=ref))
    )
    return unit != 0 and math.isclose(moved / unit, 1.01, rel_tol=1e-5)


def ratio_of_the_sequence(subject: Subject) -> bool:
    """Whether the ratio of one token changes the weight of another token of the response."""
    fresh = batch([2, 2], [1.0, 0.0], group_size=2)
    still, moved = (_moved(subject, fresh, ratio) for ratio in (1.0, 1.05))
    return not same(moved[0, 1:], still[0, 1:])


def _moved(subject: Subject, fresh: Batch, ratio: float) -> Tensor:
    """Weights where the first token of the first response has this ratio."""
    old = fresh.old_log_probs.clone()
    old[0, 0] -= math.log(ratio)
    one = fresh.with_(old_log_probs=old)
    return of_rewards(subject, without_reference(one, sampler=reference_is_the_sampler(subject)))


# ---------------------------------------------------------------- what is averaged


def average(subject: Subject) -> str:
    """How tokens are averaged, by what a token counts in responses of several lengths.

    One of the names of `functional.aggregation.MODES`, "divided-twice" (by the length of the
    response, squared), "position" (a mean over responses at each position), or "other".
    """
    lengths = [4, 2, 3, 1]
    rewards = [1.0, 0.0, 0.0, 0.0]

    def of(lengths: list[int]) -> tuple[Tensor, Tensor]:
        one = without_reference(batch(lengths, rewards, group_size=4, width=6))
        return of_rewards(subject, one).double(), one.mask

    (equal, _), (uneven, mask) = of([4, 4, 4, 4]), of(lengths)
    if not bool((equal[mask] != 0).all()):
        return "other"
    L = torch.tensor(lengths, dtype=torch.float64)[:, None]
    expected: dict[str, Tensor] = {
        "seq-mean-token-mean": 4 / L,
        "token-mean": 16 / L.sum(),
        "seq-mean-token-sum": torch.ones(()),
        "divided-twice": (4 / L) ** 2,
        "position": 4 / mask.sum(dim=0).clamp(min=1),
    }
    for name, factor in expected.items():
        if same(uneven[mask], (factor * equal)[mask]):
            return name
    return "other"


# ---------------------------------------------------------------- the KL to the reference

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
    """What the loss adds for a token whose log-prob lies d above the reference's.

    Attributes:
        name: of `KERNELS`, "none" if nothing depends on the reference, or "other".
        scale: factor in front, for one token a response; β if the average is a mean.
    """

    name: str
    scale: float


def _kernel_of(values: list[float]) -> Kernel:
    """The kernel that has these values at `DISTANCES`."""
    found, d = (torch.tensor(x, dtype=torch.float64) for x in (values, DISTANCES))
    if bool((found.abs() < 1e-9).all()):
        return Kernel("none", 0.0)
    for name, form in KERNELS.items():
        expected = form(d)
        scale = ((found @ expected) / (expected @ expected)).item()
        if same(found, scale * expected):
            return Kernel(name, scale)
    return Kernel("other", math.nan)


def kernel(subject: Subject) -> Kernel:
    """The value of the KL in the loss, read off from responses of one token without advantage."""
    plain = without_reference(batch([1, 1], [0.0, 0.0], group_size=2))

    def value(shift: float) -> float:
        quantities = subject.quantities(plain)
        quantities["ref_log_probs"] = quantities["ref_log_probs"] - shift
        return subject.loss(quantities).item()

    if "ref_log_probs" not in subject.takes:
        return Kernel("none", 0.0)
    zero = value(0.0)
    return _kernel_of([value(shift) - zero for shift in DISTANCES])


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
        one = Batch(own, own, own - shift, mask, rewards.to(dtype), 2)
        return subject.loss(subject.quantities(one)).item()

    shift = 2.0**-13  # exact in float32
    exact, rounded = (
        value(dtype, shift) - value(dtype, 0.0) for dtype in (torch.float64, torch.float32)
    )
    return exact != 0 and abs(rounded - exact) > 0.2 * abs(exact)


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
    found = _kernel_of([weight(shift) - zero for shift in DISTANCES])
    return Kernel(found.name, 2 * found.scale)
