"""From facts to findings: what a loss does has a name, a section of the book, and a fix."""

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from nbcourse.examine.facts import Facts
from nbcourse.examine.ratio import RATIOS

MISTAKE, CHOICE, NOTE = KINDS = ("mistake", "choice", "note")
SENTENCES = "sentences.toml"  # where the columns are explained


@dataclass(frozen=True)
class Finding:
    """One thing that a loss does.

    Attributes:
        code: stable, for machines.
        kind: "mistake" (it does not do what a policy gradient has to), "choice" (published methods
            differ here, and this is what it costs) or "note" (right as long as the caller keeps
            to something).
        text: what it does, with the number that shows it.
        mend: what to write instead; empty for a choice.
        section: of the book, as it is headed.
        erratum: id of the entry of appendix B, if it is in there.
    """

    code: str
    kind: str
    text: str
    mend: str
    section: str
    erratum: str | None = None


Named = Iterator[tuple[str, dict[str, Any]]]  # a row of the sentences, and what its braces hold


def findings(facts: Facts) -> list[Finding]:
    """Everything there is to say, mistakes first."""
    named = [_finding(*named) for rule in RULES for named in rule(facts)]
    return sorted(named, key=lambda finding: KINDS.index(finding.kind))


def _finding(name: str, numbers: dict[str, Any]) -> Finding:
    row = {"mend": "", **sentences()[name]}
    return Finding(name.partition(":")[0], **row | {"text": row["text"].format(**numbers)})


@cache
def sentences() -> dict[str, dict[str, str]]:
    """The rows of the table of sentences, by their names."""
    return tomllib.loads(files("nbcourse.examine").joinpath(SENTENCES).read_text("utf-8"))


def _sign(facts: Facts) -> Named:
    factors = facts.difficulty.values()
    if all(factor < 0 for factor in factors):
        yield "sign", {"factor": min(factors)}
    elif all(factor == 0 for factor in facts.fresh.lengths):
        yield "no-signal", {}


# ---------------------------------------------------------------- what a token counts


def _learners(facts: Facts) -> Named:
    """Who learns on fresh samples."""
    if facts.advantages_mix:
        yield "broadcast", {}
    elif facts.who_learns == "alike":
        yield "alike", {}
    elif facts.influence != "own" and facts.who_learns in ("good", "bad"):
        ratios = "old_log_probs" in facts.takes
        which = "worse" if facts.who_learns == "good" else "better"
        yield "clip-when-fresh" if ratios else f"{facts.who_learns}-only", {"which": which}


def _tokens(facts: Facts) -> Named:
    """Who learns on fresh samples, and what a token counts there."""
    if not facts.order_free and facts.influence != "strided":
        return
    yield from _learners(facts)
    if facts.who_learns == "neither":
        return
    if facts.level == "own":
        yield "probability-weighted", {}
    elif facts.level == "others":
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
        yield "layout", {}
    elif facts.influence == "own":
        yield "no-baseline", {}
    elif facts.influence == "batch":
        yield "batch-baseline", {}
    elif facts.influence == "other" and facts.order_free:
        yield "groups", {}
    factors, size = facts.fresh.factors, {"group": "G", "batch": "B"}[facts.fresh.size]
    if factors and facts.influence == facts.fresh.size:
        scales = [factor * count / (count - 1) for count, factor in factors.items()]
        if max(scales) - min(scales) < 1e-4 * max(map(abs, scales)):
            times = "" if abs(scales[0] - 1) < 1e-6 else f" times {scales[0]:.3g}"
            yield "own-reward-in-baseline", {"size": size, "times": times}


def _spread(facts: Facts) -> Named:
    hard, middle, worst = facts.difficulty[0.1], facts.difficulty[0.5], facts.worst
    if not facts.spread_divided or facts.influence == "none" or not abs(middle) > 0:
        return
    numbers = {
        "times": hard / middle,
        "cosine": worst.cosine,
        "probs": _numbers(worst.probs),
        "rewards": _numbers(worst.rewards),
    }
    yield "spread-divided:downhill" if worst.cosine < -0.01 else "spread-divided", numbers


def _flat(facts: Facts) -> Named:
    if facts.flat == "nan":
        yield "flat-nan", {}
    elif facts.flat == "noise":
        yield "flat-noise", {}
    if facts.kl_estimator == "k1":  # whose weight is the same everywhere, whatever is earned
        return
    if facts.constant_term:
        yield "term-without-gradient", {}
    elif facts.flat == "something" and facts.influence in ("group", "none"):
        yield "flat-moves", {}


# ---------------------------------------------------------------- averages and padding

AVERAGES = {
    **{name: name for name in ("seq-mean-token-mean", "token-mean", "divided-twice")},
    "position": "wrong-axis",
}


def _average(facts: Facts) -> Named:
    if name := AVERAGES.get(facts.average):
        yield name, {}
    split = facts.micro_batches
    if facts.padding == "direction":
        yield "padding-in-statistics", {}
    elif facts.padding == "scale":
        yield "padding-counts", {}
    elif split.by == "neither":
        of_batch = facts.influence == "batch"
        yield "micro-batches:baseline" if of_batch else "micro-batches", {"error": split.error}
    elif split.by == "sum":
        yield "sum-of-batch", {}


def _mask(facts: Facts) -> Named:
    if not facts.padding_unread:
        yield "padding-read", {}
    elif not facts.padding_clean:
        yield "padding-nan", {}
    if not facts.padding_gradient_free:
        yield "padding-trained", {}
    if not facts.empty_harmless:
        yield "empty-response", {}
    if not facts.credit_reaches_back:
        yield "credit-stops", {}
    if facts.silent_positions == [-1]:
        yield "eos-untrained", {}
    elif facts.silent_positions and facts.who_learns != "neither":
        yield "tokens-untrained", {"positions": facts.silent_positions}


# ---------------------------------------------------------------- the ratio and its clip


def _ratio(facts: Facts) -> Named:
    positive, negative = facts.clip.positive, facts.clip.negative
    if facts.clip.of_reference:
        yield "ratio-to-reference", {}
    if "old_log_probs" not in facts.takes or facts.who_learns != "both":
        return
    at = 1.001
    weight = positive[RATIOS.index(at)]
    flat, up = abs(weight - 1) < 1e-5, abs(weight - at) < 1e-5
    if facts.clip.of_sequence:
        yield "sequence-ratio", {}
    elif abs(weight - 1 / at) < 1e-5 or abs(weight + at) < 1e-5:
        yield "ratio-inverted", {"weight": positive[RATIOS.index(1.1)]}
        return
    elif flat and all(abs(w - 1) < 1e-5 for w in positive + negative):
        if facts.kl_placement != "reward":  # there, a KL is computed from them
            yield "ratio-ignored", {}
    elif not up and not flat:
        yield "no-ratio", {"weight": weight}
    cap = positive[-1]
    if 1 < cap < RATIOS[-1] and abs(negative[-1] - cap) < 1e-5:
        yield "ratio-capped", {"cap": cap}
    if not facts.clip.of_sequence:
        yield from _interval(facts)


def _interval(facts: Facts) -> Named:
    """Where tokens lose their gradient, and on which side they should not."""
    positive, negative = facts.clip.positive, facts.clip.negative
    wrong, right = (
        [place for place, weight in places.items() if weight == 0]
        for places in (
            {"positive, below": positive[0], "negative, above": negative[-1]},
            {"positive, above": positive[-1], "negative, below": negative[0]},
        )
    )
    if not (wrong or right):
        return
    if any(0 < w < 0.9 * r for r, w in zip(RATIOS, positive, strict=True) if r > 1):
        near, far = (positive[RATIOS.index(ratio)] for ratio in (1.5, 5.0))
        yield "soft-clip", {"near": near, "far": far}
        return
    if "negative, above" in wrong and right == ["positive, above"]:
        yield "clip-maximum", {}
    elif len(wrong) == 2 and right:
        yield "clip-without-min", {}
    elif wrong == ["negative, above"]:
        yield "dual-clip", {}
    elif wrong:
        yield "clip-wrong-side", {"places": ", ".join(wrong)}
    lower, upper = facts.clip.bounds
    if right and not wrong and not math.isclose(upper - 1, 1 - lower, abs_tol=1e-3):
        yield "clip-asymmetric", {"lower": lower, "upper": upper}


# ---------------------------------------------------------------- the KL to the reference

NOT_IN_THE_REWARD = ("k2", "k3", "inverted k3", "|d|")


def _kl(facts: Facts) -> Named:
    if "ref_log_probs" not in facts.takes:
        return
    descends = facts.descent.descends
    if facts.kl_placement == descends == "none":
        if not facts.clip.of_reference:
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
        yield "k3-inverted", {}
    elif wrong_in_reward:
        yield "kl-estimator-in-reward", {"estimator": estimator, **cosine}
    elif descent.descends in ("forward", "token"):
        yield f"kl-{descent.descends}", cosine
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
        yield "kl-stale", {"cosine": facts.stale_descent.cosine}


def _hygiene(facts: Facts) -> Named:
    if facts.changed_in_place:
        yield "in-place", {"names": ", ".join(facts.changed_in_place)}
    if facts.attached:
        yield "attached", {"names": ", ".join(facts.attached)}
    if not facts.finite_long:
        yield "overflow", {}
    if facts.coarse_in_half_precision:
        yield "half-precision", {}
    if not facts.order_free and facts.influence != "strided":
        yield "order", {}


RULES: tuple[Callable[[Facts], Named], ...] = (
    _sign,
    _tokens,
    _baseline,
    _spread,
    _flat,
    _average,
    _mask,
    _ratio,
    _kl,
    _hygiene,
)


def _numbers(values: Sequence[float]) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
