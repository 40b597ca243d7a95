"""From facts to findings: what a loss does has a name, a section of the book, and a fix."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from nbcourse.examine import attribution, families, size
from nbcourse.examine.facts import Facts
from nbcourse.examine.ratio import RATIOS
from nbcourse.mistakes.catalogue import CATALOGUE
from nbcourse.mistakes.findings import CHOICE, KINDS, MISTAKE, NOTE, Finding, seen

BY_LOT = (
    *("padding-in-statistics", "padding-in-denominator", "padded-whitening"),
    *("mixed-groups:other", "misaligned", "position-weighted"),
)
MIXED = ("strided", "crossed")  # ways to compare with other prompts, where order may matter
# a row of the catalogue, and behind a colon a way of seeing it; what its braces hold
Named = Iterator[tuple[str, dict[str, Any]]]


def findings(facts: Facts) -> list[Finding]:
    """Everything there is to say, mistakes first."""
    named = [one for rule in RULES for one in rule(facts)]
    if facts.draws:  # other rows and columns have other lots, and that is all that was seen
        named = [(name, numbers) for name, numbers in named if name not in BY_LOT]
    found = [*dict.fromkeys(_finding(*one) for one in named)]  # two rules may see the same
    if any(finding.kind == MISTAKE for finding in found):  # which may well be what turns the step
        found = [finding for finding in found if finding.id != "unexplained"]
    return sorted(found, key=lambda finding: KINDS.index(finding.kind))


def _finding(name: str, numbers: dict[str, Any]) -> Finding:
    """In the words of its row, which says whether a loss that does so makes a mistake."""
    row, _, way = name.partition(":")
    ways = (f"{kind}:{way}".rstrip(":") for kind in (MISTAKE, CHOICE, NOTE))
    return seen(row, next(how for how in ways if how in CATALOGUE[row].evidence), **numbers)


def _flipped(facts: Facts) -> bool:
    return all(factor < 0 for factor in facts.difficulty.values())


def _sign(facts: Facts) -> Named:
    if _flipped(facts):
        yield "flipped-loss", {"factor": min(facts.difficulty.values())}
    elif all(factor == 0 for factor in facts.fresh.lengths):
        yield "broadcast" if facts.pairs_of_rows else "rewards-ignored", {}


# ---------------------------------------------------------------- what a token counts


def _learners(facts: Facts) -> Named:
    """Who learns on fresh samples."""
    if facts.advantages_mix:
        yield "broadcast", {}
    elif facts.who_learns == "alike":
        yield "broadcast" if facts.pairs_of_rows else "alike", {}
    elif facts.influence != "own" and facts.who_learns in ("good", "bad"):
        which = "worse" if facts.who_learns == "good" else "better"
        asleep = (-1 if which == "worse" else 1) in facts.clip.asleep
        ratios = "old_log_probs" in facts.takes and not asleep
        yield "clip-when-fresh" if ratios else f"{facts.who_learns}-only", {"which": which}


def _tokens(facts: Facts) -> Named:
    """Who learns on fresh samples, and what a token counts there."""
    if not facts.order_free and facts.influence not in MIXED:
        return
    if facts.level == "own":  # and so are weights by position, and signs
        yield "probability-weighted", {}
        return
    yield from _learners(facts)
    if facts.who_learns == "neither":
        return
    if facts.level == "others":
        yield "misaligned", {}
    steps = [b - a for a, b in pairwise(facts.positions)]
    if facts.silent_positions or all(abs(step) < 1e-6 for step in steps):
        return
    times = facts.positions[0]
    if abs(steps[0] - steps[1]) + abs(steps[1] - steps[2]) < 1e-6:
        yield "score-on-every-token", {"times": times}
    elif abs(steps[0] * steps[2] - steps[1] ** 2) < 1e-6 * steps[1] ** 2:
        yield "discounted", {"times": times, "fade": steps[0] / steps[1]}
    else:
        yield "position-weighted", {"weights": _numbers(facts.positions)}


# ---------------------------------------------------------------- whom a response is compared with


def _baseline(facts: Facts) -> Named:
    if facts.influence == "strided":
        yield "mixed-groups", {}
    elif facts.influence == "own" and not facts.critic.is_baseline and not _fixed(facts):
        biased = ":biased" * (facts.fresh.verdict == "biased")
        yield f"missing-baseline{biased}", {}
    elif facts.influence == "batch":
        yield "batch-baseline", {}
    elif facts.influence == "crossed" or (facts.influence == "other" and facts.order_free):
        yield "mixed-groups:other", {}
    if facts.nobody_left_out:
        yield "nobody-left-out", {}
    factors, size = facts.fresh.factors, {"group": "G", "batch": "B"}[facts.fresh.size]
    if factors and facts.influence == facts.fresh.size:
        scales = [factor * count / (count - 1) for count, factor in factors.items()]
        if max(scales) - min(scales) < 1e-4 * max(map(abs, scales)):
            times = "" if abs(scales[0] - 1) < 1e-6 else f" times {scales[0]:.3g}"
            yield "own-reward-in-baseline", {"size": size, "times": times}


def _fixed(facts: Facts) -> bool:
    """Whether every token has a weight of its own besides rewards, of a loss that reads those.

    A baseline that is a constant makes it, and so do terms that only look like an entropy.
    """
    return facts.constant_term and "rewards" in facts.takes and not facts.constant_kl


WHERE = {"late": "behind", "early": "before"}


def _critic(facts: Facts) -> Named:
    """The values of a critic: whether they are subtracted, and at which place."""
    critic = facts.critic
    if critic.at == "nowhere":
        yield "no-critic", {}
    elif critic.at == "added":
        yield "critic-added", {}
    elif critic.at in ("late", "early"):
        yield "values-one-place-late", {"where": WHERE[critic.at]}
    elif critic.at == "end":
        yield "value-behind-the-end", {}
    elif critic.no_bootstrap:
        yield "no-bootstrap", {}


def _spread(facts: Facts) -> Named:
    worst, times = facts.worst, facts.hard_beside_middle
    turned = worst.of_rewards < 0.999 and not _flipped(facts)  # whose worst cosine is −1 anyway
    if facts.who_learns == "both" and abs(facts.bad_beside_good - 1) > 1e-4:
        yield "signs-weigh", {"times": facts.bad_beside_good}
    elif not facts.spread_divided and facts.who_learns == "both" and turned:
        place = {"probs": _numbers(worst.probs), "rewards": _numbers(worst.rewards)}
        yield "rewards-rescaled", {"cosine": worst.of_rewards, **place}
    if not facts.spread_divided or facts.influence == "none" or not math.isfinite(times):
        return
    numbers = {
        "times": times,
        "cosine": worst.cosine,
        "probs": _numbers(worst.probs),
        "rewards": _numbers(worst.rewards),
    }
    of_batch = "" if facts.influence in ("own", "group") else "batch"
    downhill = "downhill" if worst.cosine < -0.01 else ""
    variant = ":".join(filter(None, ["spread-divided", of_batch, downhill]))
    yield variant, numbers


def _flat(facts: Facts) -> Named:
    if facts.flat == "nan":
        yield "flat-nan", {}
    elif facts.flat == "noise":
        yield "amplified-flat-groups", {}
    if facts.constant_kl:
        return
    if _fixed(facts):
        yield "fixed-baseline", {}
    elif facts.constant_term:
        yield "term-without-gradient", {}
    elif facts.flat == "something" and facts.influence in ("group", "none"):
        yield "flat-moves", {}


# ---------------------------------------------------------------- averages and padding

AVERAGES = {
    **{name: name for name in ("seq-mean-token-mean", "token-mean", "divided-twice")},
    "position": "wrong-axis",
    "times-the-length": "weight-by-length",
    "longest": "longest-in-batch",
}


def _average(facts: Facts) -> Named:
    if name := AVERAGES.get(facts.average):
        yield name, {}
    split = facts.micro_batches
    if facts.level == "others":  # padding is among the tokens that are compared
        pass
    elif facts.padding == "direction":
        of_batch = facts.influence == "batch"
        yield "padded-whitening" if of_batch else "padding-in-statistics", {}
    elif facts.padding in ("scale", "part"):
        yield "padding-in-denominator" + ":part" * (facts.padding == "part"), {}
    elif split.by == "neither" and facts.influence not in MIXED:
        of_batch = facts.influence == "batch"
        name = "baseline-of-micro-batches" if of_batch else "micro-batch-means"
        yield name, {"error": split.error}
    elif split.by == "sum":
        yield "sum-of-batch", {}


def _mask(facts: Facts) -> Named:
    read_anyway = facts.advantages_mix or facts.padding == "direction"
    if read_anyway or facts.level == "others":  # and so padding is read, too
        pass
    elif not facts.padding_unread:
        yield "padding-read", {}
    elif not facts.padding_clean:
        yield "padding-nan", {}
    if not facts.padding_gradient_free:
        yield "trained-padding", {}
    if not facts.empty_harmless:
        yield "empty-response", {}
    if not facts.credit_reaches_back:
        yield "credit-stops", {}
    if facts.silent_positions == [-1]:
        yield "masked-eos", {}
    elif (
        facts.silent_positions
        and facts.who_learns != "neither"
        and not facts.critic.is_baseline  # which trains them by its values, where λ is 0
        and facts.average != "times-the-length"
    ):
        yield "tokens-untrained", {"positions": facts.silent_positions}


def _size(facts: Facts) -> Named:
    """Weights that are out of all proportion."""
    scaled = facts.who_learns != "neither" and facts.flat != "nan" and not facts.advantages_mix
    for name, most in (
        ("weight-explodes", facts.largest),
        ("rounding-explodes", facts.noisy),
    ):
        if most.times > size.MANY and scaled:
            times = "infinitely more than" if math.isinf(most.times) else f"{most.times:,.0f} times"
            yield name, {"times": times, "rewards": _numbers(most.rewards)}
            break
    if facts.too_far:
        yield "unbounded", {"cases": size.told(facts.too_far)}
    if not facts.empty_batch_harmless:
        yield "empty-batch", {}


def _flags(facts: Facts) -> Named:
    """Responses that were cut off, and entropy."""
    if facts.truncated in ("counted", "dropped", "only"):
        yield f"truncated-{facts.truncated}", {}
    if facts.entropy_slope > 0:
        yield "entropy-penalty", {}
    elif facts.entropy_constant:
        yield "entropy-without-gradient", {}


def _unexplained(facts: Facts) -> Named:
    """What no finding explains of a step that is not along ∇J."""
    wrong_way = facts.lengths_weigh and facts.padding == "nothing" and facts.order_free
    if facts.entropy_weighs != "nothing":
        yield "entropy-weighs" + ":chosen" * (facts.entropy_weighs == "chosen"), {}
    elif wrong_way and facts.average != "times-the-length":
        yield "lengths-in-advantages", {}
    elif facts.shares.unexplained > attribution.ENOUGH:
        numbers = {"share": facts.shares.unexplained, "smallest": facts.shares.smallest}
        yield "unexplained", numbers


# ---------------------------------------------------------------- the ratio and its clip


def _ratios_told(facts: Facts) -> bool:
    """Whether a weight can be told from a fresh one: nothing else multiplies it there."""
    plain = facts.who_learns == "both" and facts.level != "own"
    return plain and facts.average != "times-the-length"


def _ratio(facts: Facts) -> Named:
    if facts.clip.of_reference:
        yield "ratio-to-reference", {}
    asked = {"old_log_probs", "sampler_log_probs"} & {*facts.takes}
    if not asked or not _ratios_told(facts):
        return
    positive, slopes = facts.clip.positive, facts.clip.slopes
    at = 1.001
    weight = positive[RATIOS.index(at)]
    kept = all(side.kind == "kept" for side in facts.clip.sides.values())
    if facts.clip.of_sequence:
        yield f"sequence-ratio:{facts.clip.level}", {}
    elif slopes[1] == slopes[-1] == -1 or abs(weight + at) < 1e-5:
        yield "inverted-ratio", {"weight": positive[RATIOS.index(1.1)]}
        return
    elif slopes[1] == -1 and slopes[-1] == 1:
        yield "inverted-ratio-if-better", {}
    elif kept and slopes[1] == slopes[-1] == 0:
        # where a KL is in the reward, it is computed from them
        in_a_kl = facts.kl_placement == "reward" or facts.held.name != "none"
        if asked & {*facts.by_name} and not in_a_kl:
            yield "ratio-ignored", {}
    elif not facts.clip.pulled and (share := _without_a_ratio(positive)):
        yield "likelihood-beside", {"share": share}
        return
    elif slopes[1] not in (0, 1) and not math.isnan(slopes[1]) and not facts.clip.pulled:
        yield "no-ratio", {"weight": weight}
    if facts.clip.free and asked & {*facts.by_name}:
        yield "no-clip", {}
    yield from families.names(facts.clip)


def _without_a_ratio(positive: Sequence[float]) -> float:
    """How much of the weight of a good token goes by no ratio, if the rest is its ratio; else 0."""
    near = [0.9, 0.999, 1.001, 1.1]
    by_ratio = [(positive[RATIOS.index(ratio)] - 1) / (ratio - 1) for ratio in near]
    share = 1 - by_ratio[0]
    same = all(math.isclose(one, by_ratio[0], rel_tol=1e-4) for one in by_ratio)
    return share if same and 1e-4 < share < 1 - 1e-4 else 0.0


def _sampler(facts: Facts) -> Named:
    """The weight by which the loss of a token is corrected for the policy that sampled it."""
    weights = facts.correction
    if weights is None or not _ratios_told(facts):
        return
    powers = [slope for slope in weights.slopes.values() if abs(slope) > 1.5]
    kept = all(side.kind == "kept" for side in weights.sides.values())
    if set(weights.slopes.values()) == {-1}:
        yield "sampler-inverted", {}
    elif powers:
        yield "sampler-power", {"power": powers[0]}
    elif kept and not weights.whole and set(weights.slopes.values()) == {0}:
        if "sampler_log_probs" in facts.by_name:
            yield "sampler-ignored", {}
    else:
        yield "sampler-weight", {"clip": families.said(weights, families.OF_SAMPLER)}
        yield from (one for one in families.names(weights) if one[0] in families.OF_WEIGHTS)


def _old(facts: Facts) -> Named:
    """A penalty on the way from the policy that sampled, as PPO-penalty has one."""
    name, scale = facts.held.name, facts.held.scale
    if name == "other":
        yield "penalty-to-old:other", {}
    elif name != "none":
        numbers = {"penalty": f"{scale:.3g} · {name}".replace("-", "−")}
        yield "penalty-to-old" if scale > 0 else "penalty-from-old", numbers


# ---------------------------------------------------------------- the KL to the reference

DESCENTS = {  # of the KL part, with its factor beside that of the reward
    "reverse": "{beta:.3g} KL(π‖π_ref), where the reward counts 1",
    "token": "{beta:.3g} times the KL of each state on its own, where the reward counts 1",
    "forward": "{beta:.3g} times the forward KL of each state, where the reward counts 1",
    "forward of responses": "{beta:.3g} KL(π_ref‖π) of responses, where the reward counts 1",
    "other": "none of the divergences",
}
NOT_IN_THE_REWARD = ("k2", "k3", "inverted k3", "|d|")


def _kl(facts: Facts) -> Named:
    descends = facts.descent.descends
    if facts.kl_placement == descends == "none":
        if "ref_log_probs" in facts.by_name and not facts.reference_read:
            yield "reference-ignored", {}
    elif descends == "none":
        numbers = {"estimator": facts.kl_estimator, "placement": facts.kl_placement}
        yield "kl-without-gradient", numbers
    else:
        yield from _penalty(facts)
        yield from _penalty_notes(facts)


def _penalty(facts: Facts) -> Named:
    """What a penalty descends, and where it should not be."""
    estimator, descent, placement = facts.kl_estimator, facts.descent, facts.kl_placement
    wrong_in_reward = placement == "reward" and estimator in NOT_IN_THE_REWARD
    scale = facts.kl_scale if wrong_in_reward else descent.beta
    cosine = {"cosine": descent.cosine}
    if scale < 0:
        yield "kl-sign", {"beta": scale}
    if placement == "loss" and estimator == "inverted k3":
        yield "inverted-kl", {}
    elif wrong_in_reward:
        yield "kl-estimator-in-reward", {"estimator": estimator, **cosine}
    elif code := {
        "forward": "kl-forward",
        "forward of responses": "kl-forward:responses",
        "token": "kl-token",
    }.get(descent.descends):
        yield code, cosine
    elif placement == "reward" and facts.spread_divided:
        yield "kl-divided-by-spread", {}
    elif descent.descends == "other" and descent.beta > 0:
        yield "kl-other", cosine


def _penalty_notes(facts: Facts) -> Named:
    """Where a penalty that is right in itself is not."""
    if math.isclose(facts.kl_length, 2, rel_tol=1e-4):
        yield "kl-divided-by-length", {}
    if facts.kl_clamped and facts.kl_placement == "loss":
        yield "kl-clamped", {}
    if facts.kl_drowns:
        yield "kl-rounding", {}
    if not facts.kl_stale_exact and facts.descent.beta > 0:
        what = DESCENTS[facts.descent.descends].format(beta=facts.descent.beta)
        yield "kl-stale", {"what": what, "cosine": facts.stale_descent.cosine}


def _hygiene(facts: Facts) -> Named:
    if facts.changed_in_place:
        yield "in-place", {"names": ", ".join(facts.changed_in_place)}
    if not facts.finite_long:
        yield "overflow", {}
    if facts.coarse_in_half_precision:
        yield "half-precision", {}
    if facts.draws:
        yield "random", {}
    elif not facts.order_free and facts.influence not in MIXED:
        yield "order" + ":ties" * facts.order_of_ties, {}


RULES: tuple[Callable[[Facts], Named], ...] = (
    _sign,
    _tokens,
    _baseline,
    _critic,
    _spread,
    _flat,
    _average,
    _mask,
    _size,
    _flags,
    _ratio,
    _sampler,
    _old,
    _kl,
    _hygiene,
    _unexplained,
)


def _numbers(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
