"""From facts to findings: what a loss does has a name, a section of the book, and a mend."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nbcourse.examine.facts import RATIOS, Facts

MISTAKE, CHOICE, NOTE = "mistake", "choice", "note"


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
        section: of the book.
        erratum: entry of appendix B, if it is in there.
    """

    code: str
    kind: str
    text: str
    mend: str
    section: str
    erratum: str | None = None


def findings(facts: Facts) -> list[Finding]:
    """Everything there is to say, mistakes first."""
    found = [finding for rule in RULES for finding in rule(facts)]
    return sorted(found, key=lambda finding: (MISTAKE, CHOICE, NOTE).index(finding.kind))


Rule = Callable[[Facts], Iterator[Finding]]


def _sign(facts: Facts) -> Iterator[Finding]:
    factors = facts.difficulty.values()
    if all(factor < 0 for factor in factors):
        yield Finding(
            "sign",
            MISTAKE,
            "It makes wrong answers likelier: the expected step points down the reward in every "
            f"world (factor {min(factors):.3g}).",
            "minimise −A · log π: put the minus sign back",
            "1, The policy gradient",
        )
    elif all(factor == 0 for factor in factors):
        yield Finding(
            "no-signal",
            MISTAKE,
            "It learns nothing from rewards: the expected gradient of every world is 0.",
            "see that the advantages reach a term with log_probs in it",
            "1, The policy gradient",
        )


def _baseline(facts: Facts) -> Iterator[Finding]:
    if facts.influence == "strided":
        yield Finding(
            "layout",
            MISTAKE,
            "Responses of different prompts are compared with each other: what a response counts "
            "moves with the rewards of every other row, not with those of its own group.",
            "rewards.view(-1, group_size): groups lie side by side, prompt after prompt",
            "2, Groups",
            "B.4",
        )
    elif facts.influence == "own":
        yield Finding(
            "no-baseline",
            CHOICE,
            "No baseline: what a response counts does not depend on the others. Nothing is biased; "
            "the variance is larger.",
            "",
            "1, Baselines",
        )
    elif facts.influence == "batch":
        yield Finding(
            "batch-baseline",
            CHOICE,
            "Rewards of other prompts move what a response counts: a baseline or a scale of the "
            "whole batch.",
            "",
            "7, One table",
        )
    factors = facts.fresh.factors
    if factors and facts.influence == "group":
        scales = [factor * size / (size - 1) for size, factor in factors.items()]
        if max(scales) - min(scales) < 1e-4 * max(map(abs, scales)):
            yield Finding(
                "own-reward-in-baseline",
                CHOICE,
                "The baseline holds the response's own reward: the expected step is (G − 1)/G of "
                "the gradient, which a learning rate makes up for as long as G stays the same.",
                "",
                "2, Leave-one-out",
                "B.1",
            )


def _spread(facts: Facts) -> Iterator[Finding]:
    if not facts.spread_divided or facts.influence == "none":
        return
    hard, middle = facts.difficulty[0.1], facts.difficulty[0.5]
    downhill = (
        f" It can point downhill: cosine {facts.worst.cosine:.2f} with ∇J at one token, "
        f"p = {_numbers(facts.worst.probs)}, r = {_numbers(facts.worst.rewards)}."
        if facts.worst.cosine < -0.01
        else ""
    )
    yield Finding(
        "spread-divided",
        CHOICE,
        "Advantages are divided by the spread of the rewards. A prompt that is solved one time in "
        f"ten counts {hard / middle:.2f} times as much as one that is solved every second time."
        + downhill,
        "",
        "7, Dividing by the standard deviation",
    )


def _flat(facts: Facts) -> Iterator[Finding]:
    if facts.flat == "nan":
        yield Finding(
            "flat-nan",
            MISTAKE,
            "A group whose answers are all right, or all wrong, gives NaN.",
            "give such a group advantage 0 by an explicit test, or add eps to the spread",
            "7, Zero-variance groups",
            "B.28",
        )
    elif (
        facts.flat == "something"
        and facts.influence in ("group", "none")
        and facts.kl_estimator != "k1"  # whose weight is the same everywhere
    ):
        yield Finding(
            "flat-moves",
            NOTE,
            "A group whose rewards are all alike still moves the policy, with the reference equal "
            "to it: there is a term that needs no reward, such as an entropy bonus.",
            "",
            "7, Zero-variance groups",
        )


AVERAGES = {
    "seq-mean-token-mean": "Each response counts the same, so a token of a long one counts less: "
    "the loss divides by the response's own length, which favours short right answers and "
    "long wrong ones.",
    "token-mean": "Each token counts the same, so a long response counts more; the denominator is "
    "the number of tokens in the batch.",
}


def _average(facts: Facts) -> Iterator[Finding]:
    if text := AVERAGES.get(facts.average):
        erratum = "B.10" if facts.average == "seq-mean-token-mean" else None
        yield Finding(facts.average, CHOICE, text, "", "7, Three averages", erratum)
    if not facts.padding_invariant:
        yield Finding(
            "padding-counts",
            MISTAKE,
            "Padding counts in the average: two more empty columns change every gradient.",
            "divide by mask.sum(), not by the size of the tensor",
            "5, Masks",
            "B.8",
        )
    elif facts.micro_batches.by == "neither":
        yield Finding(
            "micro-batches",
            NOTE,
            "The mean of the gradients of two micro-batches is not that of the batch: off by "
            f"{facts.micro_batches.error:.0%} for responses of four tokens and of one.",
            "hand in the number of tokens of the whole batch as the denominator",
            "7, Three averages",
        )
    elif facts.micro_batches.by == "sum":
        yield Finding(
            "sum-of-batch",
            NOTE,
            "The loss is a sum over the batch: its gradient grows with the number of responses.",
            "divide by the number of responses, or choose the learning rate with the batch",
            "7, Three averages",
        )


def _mask(facts: Facts) -> Iterator[Finding]:
    if not facts.padding_unread:
        yield Finding(
            "padding-read",
            MISTAKE,
            "What stands under the mask reaches the gradients of real tokens.",
            "set masked entries aside before any sum, mean or maximum",
            "5, Masks",
            "B.9",
        )
    elif not facts.padding_clean:
        yield Finding(
            "padding-nan",
            NOTE,
            "NaN or −∞ under the mask spreads: 0 · NaN is NaN.",
            "use masked_fill or torch.where before the arithmetic, not a product with the mask",
            "5, Masks",
        )
    if not facts.padding_gradient_free:
        yield Finding(
            "padding-trained",
            MISTAKE,
            "Positions that hold no token receive a gradient.",
            "multiply by the mask, or aggregate under it",
            "5, Masks",
        )
    if facts.silent_positions == [-1]:
        yield Finding(
            "eos-untrained",
            MISTAKE,
            "The last token of a response gets no gradient: the model never learns to stop.",
            "count EOS in the mask, by position and not by value",
            "5, EOS is trained",
            "B.11",
        )
    elif facts.silent_positions:
        yield Finding(
            "tokens-untrained",
            MISTAKE,
            f"Tokens get no gradient at positions {facts.silent_positions}, from the end.",
            "shift log-probs and mask by the same one position",
            "5, The shift by one",
        )


def _clip(facts: Facts) -> Iterator[Finding]:
    positive, negative = facts.clip.positive, facts.clip.negative
    if "old_log_probs" not in facts.takes:
        return
    near = RATIOS.index(1.001)
    at = RATIOS[near]
    flat = abs(positive[near] - 1) < 1e-5
    up = abs(positive[near] - at) < 1e-5
    if facts.clip.of_sequence:
        yield Finding(
            "sequence-ratio",
            CHOICE,
            "The ratio is one of the whole response: a token's gradient depends on the ratios of "
            "the others.",
            "",
            "7, GSPO",
        )
    elif abs(positive[near] - 1 / at) < 1e-5 or abs(positive[near] + at) < 1e-5:
        yield Finding(
            "ratio-inverted",
            MISTAKE,
            "The ratio is upside down: a token that has become likelier counts less "
            f"({positive[RATIOS.index(1.1)]:.3f} at a ratio of 1.1).",
            "exp(log_probs − old_log_probs): new over old",
            "4, Importance sampling",
        )
    elif flat and all(abs(w - 1) < 1e-5 for w in positive + negative):
        if facts.kl_placement != "reward":  # there, a KL is computed from them
            yield Finding(
                "ratio-ignored",
                NOTE,
                "It takes old_log_probs, and their values do not matter: every sample counts as "
                "fresh.",
                "",
                "4, Importance sampling",
            )
    elif not up and not flat:
        yield Finding(
            "no-ratio",
            MISTAKE,
            f"What a token counts is not its ratio: {positive[near]:.4f} where the ratio is 1.001.",
            "exp(log_probs − old_log_probs), of log-probabilities",
            "4, Importance sampling",
            "B.23",
        )
    yield from _bounds(facts)


def _bounds(facts: Facts) -> Iterator[Finding]:
    positive, negative = facts.clip.positive, facts.clip.negative
    low, high = 0, len(RATIOS) - 1
    silent_for = {
        "positive, below": positive[low] == 0,
        "positive, above": positive[high] == 0,
        "negative, below": negative[low] == 0,
        "negative, above": negative[high] == 0,
    }
    wrong = [place for place in ("positive, below", "negative, above") if silent_for[place]]
    right = [place for place in ("positive, above", "negative, below") if silent_for[place]]
    if facts.clip.of_sequence or not (wrong or right):
        return
    if (
        "negative, above" in wrong
        and "positive, above" in right
        and not silent_for["negative, below"]
    ):
        yield Finding(
            "clip-maximum",
            MISTAKE,
            "Bad answers are clipped on the wrong side: with A < 0 a token that has become "
            "likelier loses its gradient, the one that has to be pushed back most.",
            "min(ρA, clip(ρ)A) whatever the sign of A, that is the max of the two losses",
            "4, The six cases",
            "B.5",
        )
    elif len(wrong) == 2 and right:
        yield Finding(
            "clip-without-min",
            MISTAKE,
            "The ratio is clipped without the minimum: a token that went the wrong way and left "
            "the interval loses its gradient and cannot come back.",
            "min(ρA, clip(ρ)A): keep the unclipped branch where it is worse",
            "4, The six cases",
            "B.5",
        )
    elif wrong == ["negative, above"]:
        yield Finding(
            "dual-clip",
            CHOICE,
            "A dual clip: with A < 0, tokens that have become much likelier lose their gradient.",
            "",
            "4, Dual clip",
        )
    elif wrong:
        yield Finding(
            "clip-wrong-side",
            MISTAKE,
            f"Tokens lose their gradient on the wrong side of the interval ({', '.join(wrong)}).",
            "min(ρA, clip(ρ)A)",
            "4, The six cases",
            "B.5",
        )
    lower, upper = facts.clip.bounds
    if right and not wrong and not math.isclose(upper - 1, 1 - lower, abs_tol=1e-3):
        yield Finding(
            "clip-asymmetric",
            CHOICE,
            f"The interval is not symmetric: from {lower:.3g} to {upper:.3g}.",
            "",
            "7, Clip-higher",
        )


def _kl(facts: Facts) -> Iterator[Finding]:
    if "ref_log_probs" not in facts.takes:
        return
    estimator, descent = facts.kl_estimator, facts.descent
    if facts.kl_placement == descent.descends == "none":
        yield Finding(
            "reference-ignored",
            MISTAKE,
            "It takes ref_log_probs, and they change nothing.",
            "add the penalty to what is returned",
            "8, The decision card",
        )
        return
    if descent.descends == "none":
        yield Finding(
            "kl-without-gradient",
            MISTAKE,
            f"The KL penalty ({estimator} in the {facts.kl_placement}) has no gradient in "
            "expectation: it is printed, and nothing keeps the policy near the reference.",
            "put k1 into the reward, or k2 or an exact surrogate into the loss",
            "8, The gradients of k1, k2 and k3",
            "B.19",
        )
        return
    if descent.beta < 0:
        yield Finding(
            "kl-sign",
            MISTAKE,
            "The KL penalty has the wrong sign: it drives the policy away from the reference "
            f"(β = {descent.beta:.3g}).",
            "add β · KL to the loss, or subtract it from the reward",
            "8, The decision card",
            "B.24",
        )
    if facts.kl_placement == "loss" and estimator == "inverted k3":
        yield Finding(
            "k3-inverted",
            MISTAKE,
            "k3 is upside down: e^d − 1 − d with d = log π − log π_ref estimates another "
            "divergence, and explodes where the policy has become likelier than the reference.",
            "expm1(−d) + d",
            "8, k1, k2 and k3",
            "B.18",
        )
    elif facts.kl_placement == "reward" and estimator in ("k2", "k3", "inverted k3", "|d|"):
        yield Finding(
            "kl-estimator-in-reward",
            MISTAKE,
            f"{estimator} is paid in the reward: its value is right on average, "
            f"its gradient is not (cosine {descent.cosine:.2f} with that of the KL).",
            "k1 in the reward: its score-function gradient is the KL's",
            "8, In the reward or in the loss",
            "B.20",
        )
    elif descent.descends == "forward":
        yield Finding(
            "kl-forward",
            CHOICE,
            "The penalty descends the forward KL(π_ref‖π) of each state, as GRPO's k3 in the loss "
            f"does, while its value estimates the reverse one (cosine {descent.cosine:.2f}).",
            "",
            "8, The gradients of k1, k2 and k3",
        )
    elif descent.descends == "token":
        yield Finding(
            "kl-token",
            CHOICE,
            "The penalty descends the KL of each state on its own, and leaves out how a token "
            f"changes the states that follow (cosine {descent.cosine:.2f} with ∇KL).",
            "",
            "8, The part that is missing",
            "B.21",
        )
    elif descent.descends == "other" and descent.beta > 0:
        yield Finding(
            "kl-other",
            NOTE,
            "The part that depends on the reference descends none of the divergences in the book "
            f"(cosine {descent.cosine:.2f} with ∇KL(π‖π_ref)).",
            "",
            "8, The decision card",
        )
    stale = facts.stale_descent.descends == descent.descends and math.isclose(
        facts.stale_descent.beta, descent.beta, rel_tol=1e-4
    )
    if not stale and descent.beta > 0:
        yield Finding(
            "kl-stale",
            NOTE,
            "That is so for fresh samples. Once the policy has moved since it sampled, the KL part "
            "descends something else: it carries no importance weight.",
            "weight it, recompute it at each update, or take one update for each batch",
            "8, Off-policy",
            "B.21",
        )


def _hygiene(facts: Facts) -> Iterator[Finding]:
    if facts.changed_in_place:
        yield Finding(
            "in-place",
            MISTAKE,
            f"It changes its arguments in place: {', '.join(facts.changed_in_place)}.",
            "write x = x.masked_fill(…) for x.masked_fill_(…), and x = x + y for x += y",
            "5, Masks",
        )
    if facts.attached:
        yield Finding(
            "attached",
            NOTE,
            f"A gradient flows into {', '.join(facts.attached)}: right only if the caller "
            "detaches.",
            "call .detach() where the mathematics says constant",
            "1, Score functions",
        )
    if not facts.finite_long:
        yield Finding(
            "overflow",
            MISTAKE,
            "In float32 it is not finite for 4,000 tokens that are .05 nats from the old policy.",
            "average log-ratios before the exponential, or cap the weights",
            "8, Capped weights",
        )
    if facts.coarse_in_half_precision:
        yield Finding(
            "half-precision",
            NOTE,
            "With log-probs in bfloat16 it computes in bfloat16: ratios near 1 are rounded away.",
            "log_probs.float() before the subtraction",
            "5, Log-probs in float32",
            "B.27",
        )
    if not facts.order_free:
        yield Finding(
            "order",
            MISTAKE,
            "The order of the responses to a prompt changes what each of them counts.",
            "compare a response with its group as a set",
            "2, Groups",
        )


RULES: tuple[Rule, ...] = (
    _sign,
    _baseline,
    _spread,
    _flat,
    _average,
    _mask,
    _clip,
    _kl,
    _hygiene,
)


def _numbers(values: list[float]) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
