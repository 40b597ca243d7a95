"""Sampler, learner and reference: are their log-probs those of the weights they should have?"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nbcourse.diagnosis.report import CERTAIN, LIKELY, Finding
from nbcourse.diagnosis.witness import Witness

# Largest difference that two ways of computing the same log-probs make, by precision, in nats.
ROUNDING = {"float32": 1e-3, "float16": 0.2, "bfloat16": 1.5}
FALSE_ALARM = 1e-6  # of each statistical test
Z = 5.0  # a sum of surprisals this many standard deviations off: one-sided 3e-7
NUCLEI = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
ENOUGH = 4  # tokens with a difference, before one number is called their explanation
WITHIN = 0.05  # what an explanation has to leave, as a share of what there is to explain


def tokens(witness: Witness) -> Iterator[Finding]:
    """Whether the learner's tokens are those that were sampled."""
    if not witness.has("drawn_tokens", "encoded_tokens", "tokens", "mask"):
        return
    learned, drawn, encoded = (
        [row[row >= 0].tolist() for row in table]
        for table in (
            witness["tokens"].masked_fill(~_up_to_mask(witness), -1),
            witness["drawn_tokens"],
            witness["encoded_tokens"],
        )
    )
    # a mask that goes on behind the end is not the tokens' fault
    other = [
        row
        for row, (there, said) in enumerate(zip(learned, drawn, strict=True))
        if there[: len(said)] != said[: len(there)]
    ]
    if not other:
        return
    again = [row for row in other if learned[row] == encoded[row][: len(learned[row])]]
    example = (again or other)[0]
    yield Finding(
        "re-tokenised",
        CERTAIN if len(again) == len(other) else LIKELY,
        f"at step {witness.step} the learner's tokens of {len(other)} of {len(learned)} responses "
        f"are not the sampler's, and in {len(again)} they are those of the decoded text: "
        f"{learned[example][:8]} for {drawn[example][:8]}",
    )


def sampler(witness: Witness) -> Iterator[Finding]:
    """Whether the sampler has the learner's weights, and draws from their whole distribution."""
    prints = witness.facts.get("fingerprints", {})
    ours, theirs = prints.get("learner"), prints.get("sampler")
    reported = witness.has("sampler_log_probs", "plain_log_probs", "mask")
    if reported:
        mask, said = _sampled(witness), witness["sampler_log_probs"]
        plain = witness["plain_log_probs"]
        gap = _largest(said - plain, mask)
    if _stale(witness):
        apart = f"; log-probs of the same token differ by up to {gap:.3g} nats" if reported else ""
        yield Finding(
            "stale-sampler",
            CERTAIN,
            f"at step {witness.step} the weights that sampled have fingerprint {theirs}, those "
            f"that learn {ours}{apart}",
        )
        return
    if not reported:
        return  # as below: the tokens are all there is
    if gap <= _rounding(witness):
        return  # then `draws` looks at the tokens themselves
    off = int(((said - plain).abs() > _rounding(witness))[mask].sum())
    temperature = temperature_of(witness, said, mask) if off >= ENOUGH else None
    if temperature is not None:
        yield Finding(
            "sampler-temperature",
            CERTAIN,
            f"at step {witness.step} the sampler's log-probs are those of temperature "
            f"{temperature:.3g}, but the run states {witness.facts['temperature']:g}",
        )
        return
    mass = _nucleus_of(witness, said, mask) if off >= ENOUGH else None
    if mass is not None:
        yield Finding(
            "sampler-truncation",
            CERTAIN,
            f"at step {witness.step} each of the sampler's log-probs is that of a distribution cut "
            f"off after some token and renormalised; at least {mass:.1%} of the mass is left",
        )
        return
    spread = (said - plain)[mask].square().mean().sqrt().item()
    if ours and off >= ENOUGH and spread < 0.3:
        yield Finding(
            "sampler-rounding",
            LIKELY,
            f"at step {witness.step} sampler and learner have the same weights, but their "
            f"log-probs differ by {spread:.2g} nats (root mean square), {gap:.2g} at most, which "
            "no temperature and no top-p explains",
        )
        return
    yield Finding(
        "sampler-mismatch",
        LIKELY,
        f"at step {witness.step} the log-probs of sampler and learner differ by up to {gap:.3g} "
        "nats, which no temperature and no top-p explains",
    )


def learner(witness: Witness) -> Iterator[Finding]:
    """Whether the learner's log-probs, before its first update, are those of a plain pass."""
    if not witness.has("scored_log_probs", "plain_log_probs"):
        return
    mask = _scored(witness)
    said, plain = witness["scored_log_probs"], witness["plain_log_probs"]
    gap, step = _largest(said - plain, mask), witness.step
    if gap <= _rounding(witness):
        return
    shifted = _largest(said - witness["unshifted_log_probs"], mask)
    if shifted <= _rounding(witness):
        yield Finding(
            "shifted-log-probs",
            CERTAIN,
            f"at step {step} the learner's log-probs are off by up to {gap:.3g} nats, and agree to "
            f"{shifted:.1g} with those that the logits after each token give it",
        )
        return
    temperature = temperature_of(witness, said, mask)
    if temperature is not None:
        yield Finding(
            "learner-temperature",
            CERTAIN,
            f"at step {step} the learner's log-probs are those of temperature {temperature:.3g}, "
            f"but the sampler draws at {witness.facts['temperature']:g}",
        )
        return
    padded = witness["padded"][:, None]
    inside, beside = (_largest(said - plain, mask & rows) for rows in (padded, ~padded))
    if (mask & ~padded).any() and beside <= _rounding(witness) < inside:
        yield Finding(
            "left-padding",
            CERTAIN,
            f"at step {step} log-probs after prompts with padding are off by up to {inside:.3g} "
            f"nats, after prompts without any by {beside:.1g}",
        )
        return
    yield Finding(
        "learner-mismatch",
        CERTAIN,
        f"at step {step} the learner's log-probs differ by up to {gap:.3g} nats from those of the "
        "same response without padding",
    )


def old(witness: Witness) -> Iterator[Finding]:
    """Whether the old log-probs are those of the policy before its first update on the batch."""
    if not witness.has("log_probs", "old_log_probs", "scored_log_probs", "minibatch"):
        return
    scored, step = witness["scored_log_probs"], witness.step
    taken = _scored(witness) & (witness["minibatch"] >= 0)[:, None]
    pairs = [(witness["log_probs"], witness["old_log_probs"], taken)]
    if witness.has("last_log_probs"):
        again = taken & (witness["last_slice"] >= 0)[:, None]
        pairs.append((witness["last_log_probs"], witness["last_old_log_probs"], again))
    travelled = max(_largest(now - scored, rows) for now, _, rows in pairs)
    ratio = max(_largest(now - before, rows) for now, before, rows in pairs)
    if travelled > 2 * _rounding(witness) and ratio == 0:
        yield Finding(
            "following-old-log-probs",
            CERTAIN,
            f"at step {step} the policy has moved by up to {travelled:.2g} nats within the batch, "
            "but every importance ratio is exactly 1",
        )
        return
    before = witness["old_log_probs"]
    off = _largest(before - scored, taken)
    if off <= _rounding(witness):
        return
    whose = ""
    plain_ref = witness.tensors.get("plain_ref_log_probs")
    if plain_ref is not None and _largest(before - plain_ref, taken) <= _rounding(witness):
        whose = "; they are the reference's"
    yield Finding(
        "stale-old-log-probs",
        CERTAIN,
        f"at step {step} the ratio on the first update is not 1: old log-probs differ by up to "
        f"{off:.3g} nats from those of the policy that is about to learn{whose}",
    )


def reference(witness: Witness) -> Iterator[Finding]:
    """Whether the reference stands still, says the same twice, and what a plain pass says."""
    prints, step = witness.facts.get("fingerprints", {}), witness.step
    before, after = prints.get("reference"), prints.get("reference_after")
    if before and after and before != after:
        yield Finding(
            "reference-moves",
            CERTAIN,
            f"within step {step} the fingerprint of the reference changes from {before} to {after}",
        )
        return
    if not witness.has("ref_log_probs", "plain_ref_log_probs"):
        return
    noise = witness.facts.get("reference_noise") or 0.0
    if noise > _rounding(witness):
        yield Finding(
            "reference-noise",
            CERTAIN,
            f"at step {step} the reference was asked twice about the same tokens, and its "
            f"log-probs differ by up to {noise:.3g} nats",
        )
        return
    gap = _largest(witness["ref_log_probs"] - witness["plain_ref_log_probs"], _scored(witness))
    if gap > _rounding(witness):
        yield Finding(
            "reference-mismatch",
            CERTAIN,
            f"at step {step} the reference's log-probs differ by up to {gap:.3g} nats from those "
            "of the same response without padding",
        )


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
    if error(scale) > max(WITHIN * error(1.0), 1e-4) or error(scale) > _rounding(witness):
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


def draws(witnesses: Sequence[Witness]) -> Iterator[Finding]:
    """Whether tokens were drawn from another distribution than the one that the run states.

    All witnesses count together. Not those whose responses were chosen by their reward (dynamic
    sampling), which are no fair draw, nor those whose log-probs or weights are wrong themselves.

    Two tests, each of which a fair sampler fails less than once in a million times. If the sampler
    keeps to a nucleus, no token lies outside of it: a fair draw does that with the probability
    Π mass(nucleus), and that of six nuclei is multiplied by six. If it is colder, the surprisal
    −log π of the tokens is below its mean, the entropy, by more than 5 standard deviations of the
    sum; −log π is bounded on that side, so the normal tail is an upper bound in practice.
    """
    fair = [
        witness
        for witness in witnesses
        if not witness.facts.get("selected")
        and witness.has("likeliest", "entropy", "plain_log_probs")
        and not _stale(witness)
        and not _reports_others(witness)
    ]
    if not fair:
        return

    def of_tokens(name: str) -> Tensor:
        return torch.cat([witness[name][_sampled(witness)] for witness in fair])

    known, plain = of_tokens("likeliest").exp(), of_tokens("plain_log_probs")
    steps = ", ".join(str(witness.step) for witness in fair)
    for nucleus in NUCLEI:
        inside = known.cumsum(dim=1) - known < nucleus  # by the mass of all that is likelier
        mass = (known * inside).sum(dim=1).clamp(max=1.0)
        least = known.masked_fill(~inside, 2.0).amin(dim=1)
        outside = plain.exp() < least * (1 - 1e-4)
        chance = len(NUCLEI) * mass.log().sum().exp().item()
        if not outside.any() and chance < FALSE_ALARM:
            yield Finding(
                "sampler-truncation",
                LIKELY,
                f"at step {steps} none of {len(plain)} tokens lies outside the nucleus of "
                f"{nucleus:g}; of a fair draw that would happen with probability {chance:.1g}",
            )
            return
    surprise = (-plain - of_tokens("entropy")).sum().item()
    deviation = of_tokens("surprisal_variance").clamp(min=0).sum().sqrt().item()
    if deviation > 0 and surprise / deviation < -Z:
        yield Finding(
            "sampler-temperature",
            LIKELY,
            f"at step {steps} the {len(plain)} tokens are {-surprise:.3g} nats likelier in total "
            f"than the entropy implies, {-surprise / deviation:.1f} standard deviations: they were "
            "drawn at a lower temperature than the run states",
        )


def _up_to_mask(witness: Witness) -> Tensor:
    """(R, T) up to the last token that the learner looks at."""
    columns = torch.arange(witness["mask"].shape[1])
    return columns <= (witness["mask"] * columns).amax(dim=1, keepdim=True)


def _stale(witness: Witness) -> bool:
    """Whether other weights sampled than learn, as far as both are known."""
    prints = witness.facts.get("fingerprints", {})
    ours, theirs = prints.get("learner"), prints.get("sampler")
    return bool(ours and theirs and ours != theirs)


def _reports_others(witness: Witness) -> bool:
    """Whether the sampler reports log-probs, and they are not those of the policy."""
    if not witness.has("sampler_log_probs"):
        return False
    gap = witness["sampler_log_probs"] - witness["plain_log_probs"]
    return _largest(gap, _sampled(witness)) > _rounding(witness)


def _sampled(witness: Witness) -> Tensor:
    """(R, T) tokens that were sampled, whatever the run's mask says of them."""
    lengths = witness["lengths"][:, None]
    return torch.arange(witness["tokens"].shape[1]) < lengths


def _scored(witness: Witness) -> Tensor:
    """(R, T) those of them that the run looks at."""
    return _sampled(witness) & witness["mask"]


def _rounding(witness: Witness) -> float:
    return ROUNDING[witness.facts.get("precision", "float32")]


def _largest(difference: Tensor, mask: Tensor) -> float:
    return difference[mask].abs().max().item() if mask.any() else 0.0
