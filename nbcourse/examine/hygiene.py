"""Probes of how a loss is written: padding, order, precision, micro-batches, constants."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.errors import UserError
from nbcourse.examine.batches import (
    MIXED,
    TOLERANCE,
    UNEVEN,
    batch,
    finite,
    same,
    without_reference,
)
from nbcourse.examine.remembered import Watched
from nbcourse.examine.subject import OF_TOKENS, LossInputs, Subject


def require_loss(subject: Subject) -> None:
    """Raises ValueError if it is not finite, the same whatever the log-probs are, or goes by what
    earlier calls have left.
    """
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
    first, _, again = (
        subject.plain(batch(UNEVEN, rewards, group_size=3), seed=0)
        for rewards in (MIXED, [1.0] * 5 + [0.0], MIXED)
    )
    if not torch.equal(first, again):
        raise UserError(
            f"{subject.name} does something else to a batch when it has seen another one: it keeps "
            "something, such as a running mean, or draws by a generator that is not torch's; take "
            "that as an argument"
        )


def padding_changes(subject: Subject) -> str:
    """What two more columns that belong to no response change.

    "nothing", "scale" (every weight, by one factor), "part" (so does what the reference adds, or
    the rest, and not both) or "direction".
    """
    narrow, wide = (batch(UNEVEN, MIXED, group_size=3, width=width) for width in (4, 6))
    shifts = 0.05 * torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0, 0.0], dtype=torch.float64)
    stale = [
        one.with_(old_log_probs=one.log_probs - (shifts * i)[: one.mask.shape[1]] * one.mask)
        for i, one in ((0, narrow), (0, wide), (1, narrow), (1, wide))
    ]
    found = [_scaled(*(parts(subject, one) for one in pair)) for pair in (stale[:2], stale[2:])]
    return found[0] if found[0] != "nothing" else found[1]


def parts(subject: Subject, one: LossInputs) -> list[Tensor]:
    """The weights without the reference, and what it adds to them."""
    alone = subject.weights(without_reference(one))
    return [alone, subject.weights(one) - alone] if "ref_log_probs" in subject.takes else [alone]


def _scaled(narrow: list[Tensor], wide: list[Tensor]) -> str:
    """What has become of each part of the weights in a wider table."""
    whole, kinds = sum(part.norm() for part in narrow), set()
    for before, after in zip(narrow, (part[:, :4] for part in wide), strict=True):
        if before.norm() <= TOLERANCE * whole and after.norm() <= TOLERANCE * whole:
            continue
        factor = (after * before).sum() / before.square().sum()
        one = "scale" if same(after, factor * before) else "direction"
        kinds.add("nothing" if same(after, before) else one)
    if kinds == {"nothing", "scale"}:
        return "part"
    return next((one for one in ("direction", "scale") if one in kinds), "nothing")


RUBBISH = {  # what is in the padding of each argument, so that differences are rubbish, too
    "log_probs": 1.0,
    "old_log_probs": 1.3,
    "sampler_log_probs": 0.6,
    "ref_log_probs": 1.7,
    "advantages": 0.4,
    "entropy": 0.8,
    "values": 1.1,
}


def padding_is_not_read(subject: Subject, rubbish: float) -> bool:
    """Whether rubbish where the mask is False reaches no weight, on fresh samples or stale ones."""
    return all(_unread(subject, one, rubbish) for one in (_padded(), _padded(-0.05), _padded(0.05)))


def _padded(shift: float = 0.0) -> LossInputs:
    """Responses of several lengths, with advantages of both signs in each of them."""
    one = batch(UNEVEN, MIXED, group_size=3)
    signs = torch.where(torch.arange(4) % 2 == 0, 1.0, -0.6) * one.mask
    old = one.log_probs - shift * one.mask
    entropy, values = torch.full_like(old, 0.7), 0.1 * one.ref_log_probs
    return one.with_(
        old_log_probs=old,
        sampler_log_probs=old,
        advantages=torch.tensor(MIXED, dtype=torch.float64)[:, None].sub(0.4) * signs,
        entropy=entropy,
        values=values,
    )


def _unread(subject: Subject, clean: LossInputs, rubbish: float) -> bool:
    dirty = _littered(clean, rubbish)
    expected, after = subject.weights(clean), subject.weights(dirty)
    inside = torch.where(clean.mask, after, 0.0)
    unread = same(inside, torch.where(clean.mask, expected, 0.0))
    return unread and finite(subject, dirty)


def _littered(clean: LossInputs, rubbish: float) -> LossInputs:
    """Rubbish where the mask is False: other numbers for each argument, so that none cancel."""
    # what comes from elsewhere may be wrong there, and is a number
    names = RUBBISH if math.isfinite(rubbish) else OF_TOKENS
    return clean.with_(
        **{
            name: getattr(clean, name).masked_fill(~clean.mask, RUBBISH[name] * rubbish)
            for name in names
        }
    )


def padding_gets_no_gradient(subject: Subject) -> bool:
    """The weights of positions that hold no token are 0, whatever the policies are there."""
    one = _padded()
    dirty = _littered(one, -1.0)
    return all(bool((subject.weights(x)[~x.mask] == 0).all()) for x in (one, dirty))


def empty_response_is_harmless(subject: Subject) -> bool:
    """A response without any token, such as one that was masked away whole."""
    return _finite_or_refused(subject, batch([3, 0, 2], [1.0, 0.0, 0.0], group_size=3))


def empty_batch_is_harmless(subject: Subject) -> bool:
    """A batch in which every response was masked away."""
    one = batch([2, 2], [1.0, 0.0], group_size=2)
    return _finite_or_refused(subject, one.with_(mask=torch.zeros_like(one.mask)))


def _finite_or_refused(subject: Subject, one: LossInputs) -> bool:
    try:
        return finite(subject, one)
    except UserError:  # refused: that is as clear as can be
        return True


def order_of_responses_changes_nothing(subject: Subject) -> bool:
    """Responses to one prompt, in another order."""
    return _in_any_order(subject, MIXED)


def order_matters_for_ties_at_most(subject: Subject) -> bool:
    """Whether it changes nothing where all rewards differ, as if the best one is chosen."""
    return _in_any_order(subject, [0.9, 0.1, 0.4, 0.8, 0.7, 0.2])


def _in_any_order(subject: Subject, rewards: list[float]) -> bool:
    one = batch(UNEVEN, rewards, group_size=3)
    order = torch.tensor([2, 0, 1, 4, 5, 3])
    return same(subject.weights(one.rows(order)), subject.weights(one)[order])


@dataclass(frozen=True)
class Split:
    """How the gradients of two halves of a batch make that of the whole.

    Attributes:
        by: "mean", "sum", "parts" (a sum of parts that know the tokens of the batch), or "neither".
        error: of the mean of the halves, relative to the whole.
    """

    by: str
    error: float


def micro_batches(subject: Subject) -> Split:
    """Two prompts whose responses differ in length, together and one by one."""
    whole = batch([4, 4, 4, 1, 1, 1], MIXED, group_size=3)
    counted = whole.with_(batch_tokens=whole.mask.sum())
    parts = [subject.weights(counted.rows(rows)) for rows in (slice(0, 3), slice(3, 6))]
    expected, halves = subject.weights(whole), torch.cat(parts)
    by = "mean" if same(halves / 2, expected) else "sum" if same(halves, expected) else "neither"
    if by == "sum" and "batch_tokens" in subject.takes:
        return Split("parts", 0.0)
    error = ((halves / 2 - expected).norm() / expected.norm().clamp(min=1e-12)).item()
    return Split(by, error)


def detached(subject: Subject) -> list[str]:
    """Quantities that are constants and yet receive a gradient."""
    quantities = subject.quantities(batch(UNEVEN, MIXED, group_size=3))
    constants = ("old_log_probs", "sampler_log_probs", "ref_log_probs", "advantages", "rewards")
    names = [n for n in subject.takes if n in constants]
    leaves = {name: quantities[name].requires_grad_() for name in ("log_probs", *names)}
    # clones, for a loss may change what it is given in place
    loss = subject.loss({**quantities, **{name: leaf.clone() for name, leaf in leaves.items()}})
    if not names or not loss.requires_grad:
        return []
    gradients = torch.autograd.grad(loss, [leaves[n] for n in names], allow_unused=True)
    return [
        n for n, g in zip(names, gradients, strict=True) if g is not None and bool((g != 0).any())
    ]


def draws(subject: Subject) -> bool:
    """Whether what it does depends on random numbers."""
    one = batch(UNEVEN, MIXED, group_size=3)
    return not all(
        torch.equal(subject.plain(one, seed=seed), subject.plain(one, seed=0)) for seed in (1, 2, 3)
    )


def pairs_of_rows(subject: Subject) -> bool:
    """Whether on the way to the loss there is a table of every response beside every other."""
    one = batch(UNEVEN, MIXED, group_size=3)
    shapes: set[tuple[int, ...]] = set()
    with Watched(lambda made: shapes.add(tuple(made.shape))):
        subject.loss(subject.quantities(one))
    return any(shape[:2] == (len(UNEVEN), len(UNEVEN)) for shape in shapes)


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
    long = LossInputs(log_probs, old, old, mask, rewards, 2)
    return finite(subject, long)


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
    (gradient,) = torch.autograd.grad(loss, log_probs, allow_unused=True)
    expected = subject.weights(exact)
    return gradient is not None and bool(
        (gradient.double() - expected).norm() > 0.01 * expected.norm()
    )
