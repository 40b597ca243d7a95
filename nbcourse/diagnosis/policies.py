"""Sampler, learner and reference: are their log-probs those of the weights they should have?"""

import math

import torch
from torch import Tensor

from nbcourse.diagnosis.draws import other_weights
from nbcourse.diagnosis.report import UNTOLD, Answer
from nbcourse.diagnosis.stated import apart, certain, largest, penalty_of, rounding, sampled
from nbcourse.diagnosis.witness import Witness
from nbcourse.mistakes.findings import LIKELY, Finding, seen

ENOUGH = 4  # tokens with a difference, before one number is called their explanation
WITHIN = 0.05  # what an explanation has to leave, as a share of what there is to explain


def sampler(witness: Witness) -> Answer:
    """Whether the sampler has the learner's weights, and reports log-probs of theirs."""
    prints = witness.facts.get("fingerprints", {})
    reported = witness.has("sampler_log_probs", "plain_log_probs", "mask")
    gap = (
        largest(witness["sampler_log_probs"] - witness["plain_log_probs"], sampled(witness))
        if reported
        else 0.0
    )
    if other_weights(witness):
        told = f"; log-probs of the same token differ by up to {gap:.3g} nats" if reported else ""
        return certain(
            "stale-sampler", witness, theirs=prints["sampler"], ours=prints["learner"], apart=told
        )
    # where log-probs agree, or none are reported, `draws` looks at the tokens themselves
    if not reported:
        return UNTOLD
    pair = witness["sampler_log_probs"], witness["plain_log_probs"]
    return _reported(witness, gap) if apart(witness, *pair, sampled(witness)) else None


def _reported(witness: Witness, gap: float) -> Finding:
    """What explains that the sampler's log-probs are not those of a plain pass."""
    mask, said = sampled(witness), witness["sampler_log_probs"]
    stated = witness.facts["temperature"]
    difference = (said - witness["plain_log_probs"])[mask]
    enough = int((difference.abs() > rounding(witness)).sum()) >= ENOUGH
    if enough and (temperature := temperature_of(witness, said, mask)) is not None:
        return certain("sampler-temperature", witness, temperature=temperature, stated=stated)
    if enough and (mass := _nucleus_of(witness, said, mask)) is not None:
        return certain("sampler-truncation", witness, mass=mass)
    spread = difference.square().mean().sqrt().item()
    if enough and witness.facts.get("fingerprints", {}).get("learner") and spread < 0.3:
        return seen("sampler-rounding", LIKELY, step=witness.step, spread=spread, gap=gap)
    return seen("sampler-mismatch", LIKELY, step=witness.step, gap=gap)


def learner(witness: Witness) -> Answer:
    """Whether the learner's log-probs, before its first update, are those of a plain pass."""
    if not witness.has("scored_log_probs", "plain_log_probs"):
        return UNTOLD
    mask, exact = _scored(witness), rounding(witness)
    said, plain = witness["scored_log_probs"], witness["plain_log_probs"]
    if not apart(witness, plain, said, mask):
        return None
    gap = largest(said - plain, mask)
    shifted = largest(said - witness["unshifted_log_probs"], mask)
    if shifted <= exact:
        return certain("shifted-log-probs", witness, gap=gap, shifted=shifted)
    temperature, stated = temperature_of(witness, said, mask), witness.facts["temperature"]
    if temperature is not None:
        return certain("learner-temperature", witness, temperature=temperature, stated=stated)
    padded = witness["padded"][:, None]
    inside, beside = (largest(said - plain, mask & rows) for rows in (padded, ~padded))
    if (mask & ~padded).any() and beside <= exact < inside:
        return certain("left-padding", witness, inside=inside, beside=beside)
    return certain("learner-mismatch", witness, gap=gap)


def old(witness: Witness) -> Answer:
    """Whether the old log-probs are those of the policy before its first update on the batch."""
    if not witness.has("log_probs", "old_log_probs", "scored_log_probs", "minibatch"):
        return UNTOLD
    scored, exact = witness["scored_log_probs"], rounding(witness)
    taken = _scored(witness) & (witness["minibatch"] >= 0)[:, None]
    pairs = [(witness["log_probs"], witness["old_log_probs"], taken)]
    if witness.has("last_log_probs"):
        again = taken & (witness["last_slice"] >= 0)[:, None]
        pairs.append((witness["last_log_probs"], witness["last_old_log_probs"], again))
    travelled = max(largest(now - scored, rows) for now, _, rows in pairs)
    ratio = max(largest(now - before, rows) for now, before, rows in pairs)
    if travelled > 2 * exact and ratio == 0:
        return certain("following-old-log-probs", witness, travelled=travelled)
    before = witness["old_log_probs"]
    if not apart(witness, before, scored, taken):
        return None
    off = largest(before - scored, taken)
    plain_ref = witness.tensors.get("plain_ref_log_probs")
    theirs = plain_ref is not None and largest(before - plain_ref, taken) <= exact
    return certain(
        "stale-old-log-probs", witness, off=off, whose="; they are the reference's" * theirs
    )


def reference(witness: Witness) -> Answer:
    """Whether the reference stands still, says the same twice, and what a plain pass says."""
    prints = witness.facts.get("fingerprints", {})
    before, after = prints.get("reference"), prints.get("reference_after")
    if before and after and before != after:
        return certain("reference-moves", witness, before=before, after=after)
    if not witness.has("ref_log_probs", "plain_ref_log_probs"):
        return UNTOLD if reference_is_unknown(witness) else None
    noise = witness.facts.get("reference_noise") or 0.0
    if noise > rounding(witness):
        return certain("reference-noise", witness, noise=noise)
    pair = witness["plain_ref_log_probs"], witness["ref_log_probs"]
    if not apart(witness, *pair, _scored(witness)):
        return None
    gap = largest(pair[1] - pair[0], _scored(witness))
    return certain("reference-mismatch", witness, gap=gap)


def reference_is_unknown(witness: Witness) -> bool:
    """Whether a KL is charged, and the witness does not tell what the reference says."""
    charged = penalty_of(witness).placement != "none"
    return charged and not witness.has("ref_log_probs", "plain_ref_log_probs")


def temperature_of(witness: Witness, log_probs: Tensor, mask: Tensor) -> float | None:
    """The temperature that these log-probs belong to; None if it is none, or the stated one.

    Where only the likeliest tokens of a large vocabulary are known, the others count as one.
    """
    known = witness["likeliest"][mask]
    plain, said = witness["plain_log_probs"][mask], log_probs[mask]
    rest = torch.log1p(-known.exp().sum(dim=1).clamp(max=1 - 1e-7))[:, None]
    known = torch.cat([known, rest], dim=1) if rest.exp().max() > 1e-4 else known

    def error(scale: float) -> float:
        again = scale * plain - (scale * known).logsumexp(dim=1)
        return (again - said).square().mean().sqrt().item()

    low, high = math.log(0.1), math.log(10.0)
    grid = torch.linspace(low, high, 201).exp().tolist()
    best = min(grid, key=error)
    low, high = best / 1.03, best * 1.03
    for _ in range(60):  # a golden section would save a third of this
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if error(a) < error(b) else (a, high)
    scale = (low + high) / 2
    if error(scale) > max(WITHIN * error(1.0), 1e-4) or error(scale) > rounding(witness):
        return None
    return None if abs(scale - 1) < 1e-3 else witness.facts["temperature"] / scale


def _nucleus_of(witness: Witness, log_probs: Tensor, mask: Tensor) -> float | None:
    """The least mass that is left, if every log-prob is one of a distribution cut off somewhere."""
    known = witness["likeliest"][mask].exp().cumsum(dim=1)
    left = (witness["plain_log_probs"] - log_probs)[mask].exp()
    distance = (known - left[:, None]).abs().amin(dim=1)
    if left.max() > 1 + 1e-3 or left.min() > 1 - 1e-3 or distance.max() > 1e-3:
        return None
    return left.min().item()


def _scored(witness: Witness) -> Tensor:
    """(R, T) those of the sampled tokens that the run looks at."""
    return sampled(witness) & witness["mask"]
