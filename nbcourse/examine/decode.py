"""From facts to findings: what a loss does has a name, a section of the book, and a fix."""

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
        section: of the book, as it is headed.
        erratum: id of the entry of appendix B, if it is in there.
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
            "It makes wrong answers likelier: the expected step lowers the reward in every "
            f"world (factor {min(factors):.3g}).",
            "minimise −A · log π: put the minus sign back",
            "1.3 The log-derivative trick",
        )
    elif all(factor == 0 for factor in facts.fresh.lengths):
        yield Finding(
            "no-signal",
            MISTAKE,
            "It learns nothing from rewards: the expected gradient of every world is 0.",
            "see that the advantages reach a term with log_probs in it",
            "1.3 The log-derivative trick",
        )


def _tokens(facts: Facts) -> Iterator[Finding]:
    """Who learns on fresh samples, and what a token counts there."""
    if not facts.order_free and facts.influence != "strided":
        return
    if facts.advantages_mix:
        yield Finding(
            "broadcast",
            MISTAKE,
            "The advantage of every response meets the tokens of every other: two shapes have been "
            "broadcast against each other.",
            "see that advantages and log_probs are both (B, T)",
            "7.4 Masks by position",
            "one-axis-too-many",
        )
    elif facts.who_learns == "alike":
        yield Finding(
            "alike",
            MISTAKE,
            "Good and bad answers are moved the same way.",
            "give the advantage its sign",
            "1.4 The loss means nothing",
        )
    elif facts.influence != "own" and facts.who_learns in ("good", "bad"):
        missing = "worse" if facts.who_learns == "good" else "better"
        ratios = "old_log_probs" in facts.takes
        yield Finding(
            "clip-when-fresh" if ratios else f"{facts.who_learns}-only",
            MISTAKE if ratios or facts.who_learns == "bad" else CHOICE,
            f"On fresh samples the answers that are {missing} than their baseline get no gradient.",
            "clip the ratio itself, and around 1" if ratios else "",
            "5.6 PPO-clip: the clipped surrogate in six cases",
            "signs-of-a-loss" if ratios else None,
        )
    if facts.who_learns == "neither":
        return
    if facts.level == "own":
        yield Finding(
            "probability-weighted",
            MISTAKE,
            "How much a token counts depends on how likely it is, with every ratio the same: "
            "something other than log π is differentiated, or a constant is not detached.",
            "differentiate log π or the ratio π/π_old, and detach what multiplies it",
            "1.4 The loss means nothing",
        )
    elif facts.level == "others":
        yield Finding(
            "misaligned",
            MISTAKE,
            "How likely one token is changes how much another counts, with every ratio the same: "
            "the log-probs of different tokens are compared.",
            "shift log-probs, old ones and mask by the same one position",
            "7.3 The log-probability of a token",
        )
    steps = [b - a for a, b in zip(facts.positions, facts.positions[1:], strict=False)]
    if facts.silent_positions or all(abs(step) < 1e-6 for step in steps):
        return
    if abs(steps[0] - steps[1]) + abs(steps[1] - steps[2]) < 1e-6:
        yield Finding(
            "score-on-every-token",
            MISTAKE,
            f"The first of four tokens counts {facts.positions[0]:.3g} times as much as the last: "
            "the score is paid at every token, and then added up.",
            "pay the score once, at the last token",
            "2.4 Rewards, returns, and why the past drops out",
        )
    elif abs(steps[0] * steps[2] - steps[1] ** 2) < 1e-6 * steps[1] ** 2:
        yield Finding(
            "discounted",
            CHOICE,
            f"The first of four tokens counts {facts.positions[0]:.3g} times as much as the last: "
            f"credit fades by {steps[0] / steps[1]:.3g} a token, as with γ or λ below 1.",
            "",
            "3.6 GAE: all of them at once",
        )
    else:
        yield Finding(
            "position-weighted",
            MISTAKE,
            "Tokens of one response count differently by their position: "
            f"{_numbers(facts.positions)}, relative to the last.",
            "give every token of a response the same advantage",
            "2.7 One decision or many? Two views of the same gradient",
        )


def _baseline(facts: Facts) -> Iterator[Finding]:
    if facts.influence == "strided":
        yield Finding(
            "layout",
            MISTAKE,
            "Responses to different prompts are compared with each other: how much a response "
            "counts depends on the rewards of every other row, not on those of its own group.",
            "rewards.view(-1, group_size): groups lie side by side, prompt after prompt",
            "10.2 The group baseline",
            "two-layouts",
        )
    elif facts.influence == "own":
        yield Finding(
            "no-baseline",
            CHOICE,
            "No baseline: how much a response counts does not depend on the others. Nothing is "
            "biased; the variance is larger.",
            "",
            "1.6 Baselines",
        )
    elif facts.influence == "batch":
        yield Finding(
            "batch-baseline",
            CHOICE,
            "How much a response counts depends on rewards of other prompts: the baseline or the "
            "scale is that of the whole batch.",
            "",
            "10.9 One table",
        )
    elif facts.influence == "other" and facts.order_free:
        yield Finding(
            "groups",
            MISTAKE,
            "How much a response counts depends on rewards of other prompts, and not on all of "
            "its own group.",
            "rewards.view(-1, group_size): groups lie side by side, prompt after prompt",
            "10.2 The group baseline",
        )
    factors, size = facts.fresh.factors, {"group": "G", "batch": "B"}[facts.fresh.size]
    if factors and facts.influence == facts.fresh.size:
        scales = [factor * count / (count - 1) for count, factor in factors.items()]
        if max(scales) - min(scales) < 1e-4 * max(map(abs, scales)):
            times = "" if abs(scales[0] - 1) < 1e-6 else f" times {scales[0]:.3g}"
            yield Finding(
                "own-reward-in-baseline",
                CHOICE,
                "The baseline holds the response's own reward: the expected step is "
                f"({size} − 1)/{size} of the gradient{times}, which a learning rate makes up for "
                f"as long as {size} stays the same.",
                "",
                "2.5 Which baseline?",
                "own-mean",
            )


def _spread(facts: Facts) -> Iterator[Finding]:
    hard, middle = facts.difficulty[0.1], facts.difficulty[0.5]
    if not facts.spread_divided or facts.influence == "none" or not abs(middle) > 0:
        return
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
        f"ten counts {hard / middle:.2f} times as much as one that is solved every second time, "
        "in groups of four." + downhill,
        "",
        "10.3 What the division does: a weight for each prompt",
    )


def _flat(facts: Facts) -> Iterator[Finding]:
    if facts.flat == "nan":
        yield Finding(
            "flat-nan",
            MISTAKE,
            "A group whose answers are all right, or all wrong, gives NaN.",
            "give such a group advantage 0 by an explicit test, or add eps to the spread",
            "10.4 Zero-variance groups",
        )
    elif facts.flat == "noise":
        yield Finding(
            "flat-noise",
            NOTE,
            "In float32, a group whose rewards are all alike can still move the policy: its "
            "spread is rounding noise, and is divided by itself.",
            "give such a group advantage 0 by an explicit test, or add a larger eps, such as 1e-4",
            "10.4 Zero-variance groups",
            "signal-out-of-nothing",
        )
    if facts.kl_estimator == "k1":  # whose weight is the same everywhere, whatever is earned
        return
    if facts.constant_term:
        yield Finding(
            "term-without-gradient",
            MISTAKE,
            "Every token has the same weight in addition to what it earns, as with an entropy "
            "bonus of −log π of the sampled token: its expected gradient is 0.",
            "compute the entropy from the whole distribution",
            "1.8 Entropy",
        )
    elif facts.flat == "something" and facts.influence in ("group", "none"):
        yield Finding(
            "flat-moves",
            NOTE,
            "A group whose rewards are all alike still moves the policy, with the reference equal "
            "to it: there is a term that needs no reward.",
            "",
            "10.4 Zero-variance groups",
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
        erratum = "own-length" if facts.average == "seq-mean-token-mean" else None
        yield Finding(facts.average, CHOICE, text, "", "10.7 The mean over tokens", erratum)
    elif facts.average == "divided-twice":
        yield Finding(
            "divided-twice",
            MISTAKE,
            "The loss of a response is divided by its length twice.",
            "divide once",
            "10.7 The mean over tokens",
            "divided-twice",
        )
    elif facts.average == "position":
        yield Finding(
            "wrong-axis",
            MISTAKE,
            "Tokens are averaged position by position, over the responses that are long enough: "
            "late tokens of long responses count most.",
            "sum and divide along dim=1",
            "10.7 The mean over tokens",
        )
    if facts.padding == "direction":
        yield Finding(
            "padding-in-statistics",
            MISTAKE,
            "Padding enters a mean, a spread or a ratio: two more empty columns change how "
            "much the tokens count relative to each other.",
            "masked moments: sum over the mask, divided by mask.sum()",
            "2.8 Padding, masks and loss aggregation",
            "whitening-padding",
        )
    elif facts.padding == "scale":
        yield Finding(
            "padding-counts",
            MISTAKE,
            "Padding counts in the average: two more empty columns change every gradient.",
            "divide by mask.sum(), not by the size of the tensor",
            "7.4 Masks by position",
        )
    elif facts.micro_batches.by == "neither" and facts.influence == "batch":
        yield Finding(
            "micro-batches",
            NOTE,
            "The mean of the gradients of two micro-batches is not that of the batch: its "
            "baseline or spread is computed over the rows that it gets "
            f"(off by {facts.micro_batches.error:.0%}).",
            "compute the advantages before the batch is split",
            "10.7 The mean over tokens",
        )
    elif facts.micro_batches.by == "neither":
        yield Finding(
            "micro-batches",
            NOTE,
            "The mean of the gradients of two micro-batches is not that of the batch: off by "
            f"{facts.micro_batches.error:.0%} for responses of four tokens and of one.",
            "pass in the number of tokens of the whole batch as the denominator",
            "10.7 The mean over tokens",
        )
    elif facts.micro_batches.by == "sum":
        yield Finding(
            "sum-of-batch",
            NOTE,
            "The loss is a sum over the batch: its gradient grows with the number of responses.",
            "divide by the number of responses, or choose the learning rate with the batch",
            "10.7 The mean over tokens",
        )


def _mask(facts: Facts) -> Iterator[Finding]:
    if not facts.padding_unread:
        yield Finding(
            "padding-read",
            MISTAKE,
            "What is in the padding reaches the gradients of real tokens.",
            "set masked entries aside before any sum, mean or maximum",
            "7.4 Masks by position",
        )
    elif not facts.padding_clean:
        yield Finding(
            "padding-nan",
            NOTE,
            "NaN or −∞ in the padding spreads: 0 · NaN is NaN.",
            "use masked_fill or torch.where before the arithmetic, not a product with the mask",
            "7.4 Masks by position",
        )
    if not facts.padding_gradient_free:
        yield Finding(
            "padding-trained",
            MISTAKE,
            "Positions that hold no token receive a gradient.",
            "multiply by the mask, or aggregate under it",
            "7.4 Masks by position",
        )
    if not facts.empty_harmless:
        yield Finding(
            "empty-response",
            NOTE,
            "A response without any token gives NaN.",
            "mask.sum(dim=1).clamp(min=1)",
            "10.7 The mean over tokens",
        )
    if not facts.credit_reaches_back:
        yield Finding(
            "credit-stops",
            MISTAKE,
            "Tokens before a gap in the mask, such as a tool's answer, get no credit.",
            "carry the return across the gap: skip masked positions, do not end there",
            "3.9 Terminated or truncated: what follows the last step",
            "credit-stops-at-a-tool",
        )
    if facts.silent_positions == [-1]:
        yield Finding(
            "eos-untrained",
            MISTAKE,
            "The last token of a response gets no gradient: the model never learns to stop.",
            "count EOS in the mask, by position and not by value",
            "7.4 Masks by position",
            "untrained-end",
        )
    elif facts.silent_positions and facts.who_learns != "neither":
        yield Finding(
            "tokens-untrained",
            MISTAKE,
            f"Tokens at positions {facts.silent_positions}, from the end, get no gradient.",
            "shift log-probs and mask by the same one position",
            "7.3 The log-probability of a token",
        )


def _clip(facts: Facts) -> Iterator[Finding]:
    positive, negative = facts.clip.positive, facts.clip.negative
    if facts.clip.of_reference:
        yield Finding(
            "ratio-to-reference",
            MISTAKE,
            "The ratio is taken to the reference; it should be to the policy that sampled.",
            "exp(log_probs − old_log_probs)",
            "5.2 Importance sampling, the right way up",
            "signs-of-a-loss",
        )
    if "old_log_probs" not in facts.takes or facts.who_learns != "both":
        return
    near = RATIOS.index(1.001)
    at = RATIOS[near]
    flat = abs(positive[near] - 1) < 1e-5
    up = abs(positive[near] - at) < 1e-5
    if facts.clip.of_sequence:
        yield Finding(
            "sequence-ratio",
            CHOICE,
            "The ratio is that of the whole response: a token's gradient depends on the ratios of "
            "the others.",
            "",
            "10.8 One problem, one fix",
        )
    elif abs(positive[near] - 1 / at) < 1e-5 or abs(positive[near] + at) < 1e-5:
        yield Finding(
            "ratio-inverted",
            MISTAKE,
            "The ratio is upside down: a token that has become likelier counts less "
            f"({positive[RATIOS.index(1.1)]:.3f} at a ratio of 1.1).",
            "exp(log_probs − old_log_probs): new over old",
            "5.2 Importance sampling, the right way up",
        )
        return
    elif flat and all(abs(w - 1) < 1e-5 for w in positive + negative):
        if facts.kl_placement != "reward":  # there, a KL is computed from them
            yield Finding(
                "ratio-ignored",
                NOTE,
                "It takes old_log_probs, but their values do not matter: every sample counts as "
                "fresh.",
                "",
                "5.2 Importance sampling, the right way up",
            )
    elif not up and not flat:
        yield Finding(
            "no-ratio",
            MISTAKE,
            f"The weight of a token is not its ratio: {positive[near]:.4f} where the ratio is "
            "1.001.",
            "exp(log_probs − old_log_probs), of log-probabilities",
            "5.2 Importance sampling, the right way up",
        )
    cap = positive[-1]
    if 1 < cap < RATIOS[-1] and abs(negative[-1] - cap) < 1e-5:
        yield Finding(
            "ratio-capped",
            CHOICE,
            f"The ratio is capped at {cap:.3g}, and no token loses its gradient.",
            "",
            "10.8 One problem, one fix",
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
    if any(0 < w < 0.9 * r for r, w in zip(RATIOS, positive, strict=True) if r > 1):
        yield Finding(
            "soft-clip",
            CHOICE,
            "The ratio has no interval: the further it is above 1, the less a token counts "
            f"({positive[RATIOS.index(1.5)]:.2f} at a ratio of 1.5, "
            f"{positive[RATIOS.index(5.0)]:.2f} at 5), without limit.",
            "",
            "10.8 One problem, one fix",
        )
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
            "5.6 PPO-clip: the clipped surrogate in six cases",
            "maximum-for-bad-actions",
        )
    elif len(wrong) == 2 and right:
        yield Finding(
            "clip-without-min",
            MISTAKE,
            "The ratio is clipped without the minimum: a token that went the wrong way and left "
            "the interval loses its gradient and cannot come back.",
            "min(ρA, clip(ρ)A): keep the unclipped branch where it is worse",
            "5.6 PPO-clip: the clipped surrogate in six cases",
            "maximum-for-bad-actions",
        )
    elif wrong == ["negative, above"]:
        yield Finding(
            "dual-clip",
            CHOICE,
            "A dual clip: with A < 0, tokens that have become much likelier lose their gradient.",
            "",
            "5.8 Clip-higher and dual clip",
        )
    elif wrong:
        yield Finding(
            "clip-wrong-side",
            MISTAKE,
            f"Tokens lose their gradient on the wrong side of the interval ({', '.join(wrong)}).",
            "min(ρA, clip(ρ)A)",
            "5.6 PPO-clip: the clipped surrogate in six cases",
            "maximum-for-bad-actions",
        )
    lower, upper = facts.clip.bounds
    if right and not wrong and not math.isclose(upper - 1, 1 - lower, abs_tol=1e-3):
        yield Finding(
            "clip-asymmetric",
            CHOICE,
            f"The interval is not symmetric: from {lower:.3g} to {upper:.3g}.",
            "",
            "5.8 Clip-higher and dual clip",
        )


NOT_IN_THE_REWARD = ("k2", "k3", "inverted k3", "|d|")


def _kl(facts: Facts) -> Iterator[Finding]:
    if "ref_log_probs" not in facts.takes:
        return
    estimator, descent = facts.kl_estimator, facts.descent
    if facts.kl_placement == descent.descends == "none":
        if facts.clip.of_reference:
            return
        yield Finding(
            "reference-ignored",
            MISTAKE,
            "It takes ref_log_probs, but they change nothing.",
            "add the penalty to what is returned",
            "The decision card",
        )
        return
    if descent.descends == "none":
        yield Finding(
            "kl-without-gradient",
            MISTAKE,
            f"The KL penalty ({estimator} in the {facts.kl_placement}) has no gradient in "
            "expectation: it is printed, and nothing keeps the policy near the reference.",
            "put k1 into the reward, or k2 or an exact surrogate into the loss",
            "11.4 What automatic differentiation makes of an estimate",
            "no-gradient",
        )
        return
    wrong_in_reward = facts.kl_placement == "reward" and estimator in NOT_IN_THE_REWARD
    scale = facts.kl_scale if wrong_in_reward else descent.beta
    if scale < 0:
        yield Finding(
            "kl-sign",
            MISTAKE,
            "The KL penalty has the wrong sign: it drives the policy away from the reference "
            f"(β = {scale:.3g}).",
            "add β · KL to the loss, or subtract it from the reward",
            "The decision card",
            "penalty-paid-out",
        )
    if facts.kl_placement == "loss" and estimator == "inverted k3":
        yield Finding(
            "k3-inverted",
            MISTAKE,
            "k3 is upside down: e^d − 1 − d with d = log π − log π_ref estimates another "
            "divergence, and explodes where the policy has become likelier than the reference.",
            "expm1(−d) + d",
            "11.2 Estimating the KL: k1, k2 and k3",
            "upside-down",
        )
    elif wrong_in_reward:
        yield Finding(
            "kl-estimator-in-reward",
            MISTAKE,
            f"{estimator} is paid in the reward: its value is right on average, "
            f"its gradient is not (cosine {descent.cosine:.2f} with that of the KL).",
            "k1 in the reward: its score-function gradient is the KL's",
            "11.6 May another estimate be used in the reward?",
            "k3-in-the-reward",
        )
    elif descent.descends == "forward":
        yield Finding(
            "kl-forward",
            CHOICE,
            "The penalty descends the forward KL(π_ref‖π) of each state, as GRPO's k3 in the loss "
            f"does, while its value estimates the reverse one (cosine {descent.cosine:.2f}).",
            "",
            "11.4 What automatic differentiation makes of an estimate",
        )
    elif descent.descends == "token":
        yield Finding(
            "kl-token",
            CHOICE,
            "The penalty descends the KL of each state on its own, and leaves out how a token "
            f"changes the states that follow (cosine {descent.cosine:.2f} with ∇KL).",
            "",
            "11.5 KL losses summed over tokens",
            "weight-for-each-token",
        )
    elif facts.kl_placement == "reward" and facts.spread_divided:
        yield Finding(
            "kl-divided-by-spread",
            CHOICE,
            "The KL is in the reward, and the reward is divided by its spread: β is multiplied by "
            "another number in every batch, and where no response earns anything only the KL "
            "is left.",
            "",
            "11.7 KL terms divided by length or standard deviation",
        )
    elif descent.descends == "other" and descent.beta > 0:
        yield Finding(
            "kl-other",
            NOTE,
            "The part that depends on the reference descends none of the divergences in the book "
            f"(cosine {descent.cosine:.2f} with ∇KL(π‖π_ref)).",
            "",
            "The decision card",
        )
    if math.isclose(facts.kl_length, 2, rel_tol=1e-4):
        yield Finding(
            "kl-divided-by-length",
            NOTE,
            "The KL is divided by the length of a response and the reward is not: β is smaller for "
            "long responses.",
            "sum the KL over the tokens",
            "11.7 KL terms divided by length or standard deviation",
        )
    if facts.kl_clamped and facts.kl_placement == "loss":
        yield Finding(
            "kl-clamped",
            NOTE,
            "The KL is clamped: it has no gradient for a token that is far from the reference, "
            "where it is needed most.",
            "leave it as it is, or use k1 or k2, whose terms do not explode",
            "11.2 Estimating the KL: k1, k2 and k3",
            "the-clamp",
        )
    if facts.kl_drowns:
        yield Finding(
            "kl-rounding",
            NOTE,
            "In float32 its value is rounding noise where the policy is close to the reference.",
            "expm1(−d) + d for exp(−d) − 1 + d",
            "11.2 Estimating the KL: k1, k2 and k3",
            "below-zero",
        )
    if not facts.kl_stale_exact and descent.beta > 0:
        yield Finding(
            "kl-stale",
            NOTE,
            "That is so for fresh samples. Once the policy has moved since it sampled, the KL part "
            f"descends something else (cosine {facts.stale_descent.cosine:.3f} with ∇KL).",
            "weight it and recompute it at each update, or take one update for each batch",
            "11.8 Stale samples",
        )


def _hygiene(facts: Facts) -> Iterator[Finding]:
    if facts.changed_in_place:
        yield Finding(
            "in-place",
            MISTAKE,
            f"It changes its arguments in place: {', '.join(facts.changed_in_place)}.",
            "write x = x.masked_fill(…) for x.masked_fill_(…), and x = x + y for x += y",
            "7.4 Masks by position",
        )
    if facts.attached:
        yield Finding(
            "attached",
            NOTE,
            f"A gradient flows into {', '.join(facts.attached)}: right only if the caller "
            "detaches.",
            "call .detach() where the mathematics says constant",
            "1.4 The loss means nothing",
        )
    if not facts.finite_long:
        yield Finding(
            "overflow",
            MISTAKE,
            "In float32 it is not finite for 4,000 tokens that are .05 nats from the old policy.",
            "average log-ratios before the exponential, or cap the weights",
            "12.1 The variance of exact KL gradients",
        )
    if facts.coarse_in_half_precision:
        yield Finding(
            "half-precision",
            NOTE,
            "With log-probs in bfloat16 it computes in bfloat16: ratios near 1 are rounded away.",
            "log_probs.float() before the subtraction",
            "7.3 The log-probability of a token",
        )
    if not facts.order_free and facts.influence != "strided":
        yield Finding(
            "order",
            MISTAKE,
            "The order of the responses to a prompt changes how much each of them counts.",
            "compare a response with its group as a set",
            "10.2 The group baseline",
        )


RULES: tuple[Rule, ...] = (
    _sign,
    _tokens,
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
