"""What is minimised, seen from its derivative, and what becomes of the weights.

The derivative of the loss by each log-prob says what a loss does whatever it is made of: for the
policy gradient it is −A, times a ratio that may be clipped, over a denominator. Each rule compares
it with that of the algorithm's own row on the very same tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from nbcourse.diagnosis.report import UNTOLD, Answer
from nbcourse.diagnosis.stated import certain, close, penalty_of, row_of
from nbcourse.diagnosis.witness import Witness
from nbcourse.functional import kl
from nbcourse.functional.surrogates import importance_weights, ppo_clip
from nbcourse.mistakes.findings import Finding
from nbcourse.training.algorithms import Algorithm, Penalty, Tokens, policy_loss

NOTHING = 1e-9  # a derivative that is none
ON_GRID = 0.99  # share of the weights that bfloat16 can hold
STILL = 0.5  # share of the weights that an update leaves as they were
PART = 0.1  # share of the weights in tensors that an update leaves as they were


@dataclass(frozen=True)
class _Update:
    """The rows of a witness that took part in one update, and what the loss did with them."""

    witness: Witness
    row: Algorithm
    rows: Tensor  # their numbers
    mask: Tensor
    log_probs: Tensor
    old_log_probs: Tensor
    derivative_of_run: Tensor
    slices: Tensor  # (r,) which backward pass each row was in
    sizes: dict[str, Any]  # rows and tokens of the whole minibatch, and its weight if not 1

    @property
    def moved(self) -> bool:
        """Whether there is a ratio other than 1."""
        return not torch.equal(self.log_probs[self.mask], self.old_log_probs[self.mask])

    def derivative(
        self, penalty: Penalty, *, surrogate: Callable[..., Tensor] | None = None
    ) -> Tensor:
        """(r, T) of the algorithm's loss with this penalty, or with another surrogate as well."""
        row = replace(self.row, surrogate=surrogate, settings={}) if surrogate else self.row
        witness, cap = self.witness, self.witness.facts["importance_cap"]
        floor = self.witness.facts.get("importance_floor", 0.0)
        leaf, old = self.log_probs.clone().requires_grad_(), self.old_log_probs
        there = witness.has("sampler_log_probs")
        sampler = witness["sampler_log_probs"][self.rows] if there else old
        tokens = Tokens(
            leaf,
            old,
            witness["ref_log_probs"][self.rows] if witness.has("ref_log_probs") else old,
            witness["advantages"][self.rows],
            self.mask,
            witness["values"][self.rows] if witness.has("values") else None,
            sampler,
        )
        loss = policy_loss(
            row,
            witness.facts["settings"],
            penalty,
            tokens,
            max_length=witness.facts["max_new_tokens"],
            sampler_weights=None
            if cap is None
            else importance_weights(old, sampler, self.mask, floor=floor, cap=cap),
            batch_mask=self.batch_mask(),
        )
        (gradient,) = torch.autograd.grad(loss, leaf)
        return gradient * self.sizes.get("weight", 1.0)

    def batch_mask(self) -> Tensor:
        """A mask of as many rows and tokens as the minibatch had: nothing else of it is read."""
        count, tokens = self.sizes["rows"], self.sizes["tokens"]
        mask = torch.zeros(count, max(1, tokens - count + 1), dtype=torch.bool)
        mask[:, 0] = True
        mask[0, : tokens - count + 1] = True
        return mask


def loss(witness: Witness) -> Answer:
    """Whether the derivative of the loss is the one that the algorithm has on these tokens."""
    if penalty_of(witness).exact or not witness.has("log_probs", "advantages", "mask"):
        return UNTOLD
    row = row_of(witness)
    if not witness["mask"].any():
        return UNTOLD if row is None else None
    skipped = (witness["minibatch"] < 0) & (witness["advantages"] != 0).any(dim=1)
    # at a KL that was too large; older witnesses tell it by a number of updates that is missing
    left_early = witness.facts.get("may_leave_early", witness.facts["updates_expected"] is None)
    if skipped.any() and witness.facts["processes"] == 1 and not left_early:
        return _dropped(witness, skipped)
    if row is None:
        return UNTOLD
    # With a ratio of 1 a loss that is upside down and a ratio that is look alike.
    updates = sorted(_updates(witness, row), key=lambda update: not update.moved)
    return next(filter(None, map(_judge, updates)), None)


def _judge(update: _Update) -> Finding | None:
    penalty, witness = penalty_of(update.witness), update.witness
    mask, run = update.mask, update.derivative_of_run
    outside = run.masked_fill(mask, 0.0)
    if outside.abs().max() > NOTHING:
        return certain("trained-padding", witness, way=":loss", outside=int((outside != 0).sum()))
    expected = update.derivative(penalty)
    if close(run, expected, mask):
        return None
    silent = (run.abs() <= NOTHING).all(dim=1) & (expected.abs() > NOTHING).any(dim=1)
    if silent.any() and not silent.all() and close(run[~silent], expected[~silent]):
        rows = torch.zeros(len(witness["tokens"]), dtype=torch.bool)
        rows[update.rows[silent]] = True
        return _dropped(witness, rows)
    for finding, other in _others(update, penalty):
        if close(run, other(), mask):
            return finding
    if by_denominator := _by_denominator(update, expected):
        return by_denominator
    off = ((run - expected)[mask].abs().max() / expected[mask].abs().max()).item()
    return certain("wrong-loss", witness, algorithm=witness.facts["algorithm"], size=off)


def _others(update: _Update, penalty: Penalty) -> Iterator[tuple[Finding, Callable[[], Tensor]]]:
    """Losses that are wrong in a known way, and their derivatives."""
    witness, estimator = update.witness, penalty.estimator
    if penalty.placement == "loss":
        plain = update.derivative(replace(penalty, placement="none"))
        charged = update.derivative(penalty)
        yield certain("kl-sign", witness, way=":loss"), lambda: 2 * plain - charged
        for kind in kl.ESTIMATORS:
            if kind != estimator:
                numbers = {"kind": kind, "estimator": estimator}
                one = ("kl-without-gradient", "") if kind == "k1" else ("wrong-kl", ":loss")
                stated = certain(one[0], witness, way=one[1], **numbers)
                yield stated, partial(update.derivative, replace(penalty, estimator=kind))
        inverted = certain("inverted-kl", witness, estimator=estimator)
        yield inverted, lambda: plain + _inverted(update, penalty)
    if update.moved and update.row.needs("old_log_probs"):
        for cause, surrogate in (
            ("inverted-ratio", inverted_ratio),
            ("inverted-clip", inverted_clip),
        ):
            wrong = partial(update.derivative, penalty, surrogate=surrogate)
            yield certain(cause, witness), wrong
    yield certain("flipped-loss", witness, way=":loss"), lambda: -update.derivative(penalty)


def _inverted(update: _Update, penalty: Penalty) -> Tensor:
    """What k(π_ref, π) adds to the derivative where k(π, π_ref) is meant."""
    leaf = update.log_probs.clone().requires_grad_()
    ref = update.witness["ref_log_probs"][update.rows]
    estimates = kl.estimate(ref, leaf, penalty.estimator)
    row = replace(update.row, surrogate=_given, settings={})
    loss = policy_loss(
        row,
        {},
        replace(penalty, placement="none"),
        Tokens(penalty.beta * estimates, ref, ref, torch.zeros_like(ref), update.mask),
        max_length=update.witness.facts["max_new_tokens"],
        batch_mask=update.batch_mask(),
    )
    return torch.autograd.grad(loss, leaf)[0]


def _given(log_probs: Tensor) -> Tensor:
    return log_probs


_like_ppo_clip = wraps(ppo_clip, assigned=["__annotations__"])  # with its settings


@_like_ppo_clip
def inverted_ratio(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, **clips: Any
) -> Tensor:
    """(B, T) PPO's clipped surrogate with the ratio π_old/π."""
    return ppo_clip(-log_probs, -old_log_probs, advantages, **clips)


@_like_ppo_clip
def inverted_clip(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, **clips: Any
) -> Tensor:
    """(B, T) PPO's clipped surrogate, but for A < 0 the larger of the two objectives."""
    return advantages.sign() * ppo_clip(log_probs, old_log_probs, advantages.abs(), **clips)


def _by_denominator(update: _Update, expected: Tensor) -> Finding | None:
    """Whether each row is right but for a factor, and which denominator that factor is of."""
    factor = _factors(update.derivative_of_run, expected)
    if factor is None:
        return None
    counted = ~factor.isnan()
    if any(close(factor[counted], each[counted]) for each in _padded_factors(update)):
        return certain(
            "padding-in-denominator",
            update.witness,
            least=factor[counted].min(),
            most=factor[counted].max(),
        )
    parts = [factor[counted & (update.slices == one)] for one in update.slices.unique()]
    parts = [part for part in parts if len(part)]
    within = all(close(part, part[:1].expand_as(part)) for part in parts)
    if not within or len(parts) < 2:
        return None
    each = ", ".join(f"{part[0]:.3f}" for part in parts[:4])
    return certain("micro-batch-means", update.witness, factors=each)


def _factors(run: Tensor, expected: Tensor) -> Tensor | None:
    """(r,) each row over what was expected, NaN where that is nothing; None if one has another."""
    factors = []
    for ours, theirs in zip(run, expected, strict=True):
        there = theirs.abs() > NOTHING
        factor = (ours[there] / theirs[there]).median().item() if there.any() else torch.nan
        if factor <= 0 or (there.any() and not close(ours, factor * theirs)):
            return None
        factors.append(factor)
    return torch.tensor(factors)


def _padded_factors(update: _Update) -> list[Tensor]:
    """(r,) factors each, if padding were counted: of row, slice or batch, or up to the limit."""
    facts, lengths = update.witness.facts, update.mask.sum(dim=1)
    longest = torch.zeros(len(lengths))  # of the slice of each row
    for one in update.slices.unique():
        rows = update.slices == one
        longest[rows] = lengths[rows].max().float()
    widths = {facts["max_new_tokens"], facts["batch"]["width"], *longest.int().tolist()}
    if update.row.aggregation == "seq-mean-token-mean":
        factors = [lengths / width for width in sorted(widths)] + [lengths.float() / longest]
    else:
        size = update.sizes["rows"]
        shares = [update.sizes["tokens"] / (size * width) for width in sorted(widths)]
        factors = [torch.full(lengths.shape, share) for share in shares]
    return [each for each in factors if not close(each, torch.ones_like(each))]


def _dropped(witness: Witness, rows: Tensor) -> Finding:
    active = int((witness["advantages"] != 0).any(dim=1).sum())
    return certain("dropped-micro-batches", witness, dropped=int(rows.sum()), active=active)


def _updates(witness: Witness, row: Algorithm) -> Iterator[_Update]:
    """The updates that the witness knows of: the first of each row, and the last."""
    for prefix in ("", "last_"):
        if not witness.has(f"{prefix}coefficients", f"{prefix}minibatch"):
            continue
        places = witness[f"{prefix}minibatch"]
        for place in places[places >= 0].unique().tolist():
            rows = (places == place).nonzero().squeeze(1)
            yield _Update(
                witness,
                row,
                rows,
                witness["mask"][rows],
                witness[f"{prefix}log_probs"][rows],
                witness[f"{prefix}old_log_probs"][rows],
                witness[f"{prefix}coefficients"][rows],
                witness[f"{prefix}slice"][rows],
                witness.facts["minibatches"][place],
            )


def optimiser(witness: Witness) -> Answer:
    """Whether the weights have moved where a gradient asked them to, and are kept as they are."""
    facts: dict[str, Any] = witness.facts
    if "weight_change" not in facts or not witness.has("coefficients"):
        return UNTOLD
    asked = witness["coefficients"].abs().max().item()
    # a schedule may begin with a learning rate of 0
    if asked <= NOTHING or facts.get("learning_rate") == 0:
        return None
    on_grid, still = facts["weights_in_bfloat16"], facts["weights_unchanged"]
    if on_grid > ON_GRID and still > STILL:
        return certain("rounded-updates", witness, on_grid=on_grid, still=still)
    if facts["weight_change"] == 0:
        return certain("idle-optimiser", witness, asked=asked)
    part = facts.get("weights_of_still_tensors", 0.0)
    if part > PART and on_grid <= ON_GRID:
        return certain("idle-parameters", witness, part=part)
    expected, counted = facts.get("updates_expected"), facts.get("updates_counted")
    if expected is None or counted is None or counted >= expected:
        return None
    return certain("lost-moments", witness, counted=counted, expected=expected)
