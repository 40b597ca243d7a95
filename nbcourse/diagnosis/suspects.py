"""From a symptom to the causes that may be behind it: a tree whose leaves are all of `CAUSES`."""

from collections.abc import Mapping
from dataclasses import dataclass

from nbcourse.mistakes.catalogue import CATALOGUE, Mistake


@dataclass(frozen=True)
class Check:
    """A question to a witness batch, and whom to suspect where the answer is yes.

    Attributes:
        question: in the form "is it so that …".
        look: the numbers of a witness, or the metric of a log, that answer it.
        causes: of the catalogue, those that a yes points to.
    """

    question: str
    look: str
    causes: tuple[str, ...]


# In the order of a step: a fault early in a step spoils what comes later.
CHECKS: Mapping[str, Check] = {
    "tokens": Check(
        "sampler and learner differ in tokens",
        "drawn_tokens against tokens",
        ("re-tokenised",),
    ),
    "sampler": Check(
        "sampler and plain log-probs differ, or tokens are likelier than they should be",
        "sampler_log_probs against plain_log_probs; surprisal against entropy; kl_sampler",
        (
            "stale-sampler",
            "sampler-temperature",
            "sampler-truncation",
            "sampler-rounding",
            "sampler-mismatch",
            "unlikely-tokens",
        ),
    ),
    "samples": Check(
        "responses repeat each other",
        "the tokens of one group, and those of two processes",
        ("same-samples", "same-seed"),
    ),
    "mask": Check(
        "the mask does not end where the response does",
        "mask against lengths; the shortest and the longest response of a step",
        ("empty-mask", "masked-eos", "trained-padding", "finished-by-last-column"),
    ),
    "verdicts": Check(
        "verdict and strict reader differ, or score and verdict",
        "verdicts against verified and truncated; scores against verdicts",
        (
            "lenient-verifier",
            "silent-verifier",
            "paid-truncation",
            "shifted-rewards",
            "wrong-scores",
        ),
    ),
    "reference": Check(
        "the reference moves, gives two different answers, or is another model",
        "ref_log_probs against plain_ref_log_probs; the metric kl_ref, which begins at 0",
        ("distant-reference", "reference-moves", "reference-noise", "reference-mismatch"),
    ),
    "penalty": Check(
        "the charge for the KL is not β times the stated estimate",
        "token_rewards or coefficients, with β and without it",
        ("kl-sign", "inverted-kl", "kl-without-gradient", "wrong-kl"),
    ),
    "token rewards": Check(
        "the score is not on the last token",
        "token_rewards against scores and mask",
        ("misplaced-reward",),
    ),
    "advantages": Check(
        "advantages do not follow from rewards",
        "advantages against scores and group, or against values and token_rewards",
        (
            "mixed-groups",
            "missing-baseline",
            "amplified-flat-groups",
            "padded-whitening",
            "wrong-advantages",
        ),
    ),
    "targets": Check(
        "the critic's targets are not A + V",
        "returns against advantages and values",
        ("value-target-rewards", "wrong-value-targets"),
    ),
    "learner": Check(
        "learner and plain log-probs differ",
        "scored_log_probs against plain_log_probs",
        ("shifted-log-probs", "learner-temperature", "left-padding", "learner-mismatch"),
    ),
    "ratio": Check(
        "the first ratio is not 1, or every ratio is",
        "old_log_probs against scored_log_probs; log_probs of the last update; clip fractions",
        ("stale-old-log-probs", "following-old-log-probs"),
    ),
    "loss": Check(
        "the derivative is not that of the loss",
        "coefficients against the derivative on paper",
        (
            "inverted-ratio",
            "inverted-clip",
            "flipped-loss",
            "micro-batch-means",
            "padding-in-denominator",
            "dropped-micro-batches",
            "wrong-loss",
        ),
    ),
    "weights": Check(
        "weights stay as they were, are rounded, or moments are lost",
        "weight_change and fingerprints of the witness; updates that the optimiser has counted",
        ("idle-optimiser", "idle-parameters", "lost-moments", "rounded-updates", "detached-loss"),
    ),
    "signal": Check(
        "none of these, and still nothing is learned",
        "the metrics no_spread, truncated and accuracy",
        ("no-signal", "all-truncated", "often-truncated"),
    ),
    "parts": Check(
        "a part of the reward goes while the whole rises, or never moves",
        "the parts of the reward, each as a curve",
        ("silent-part", "traded-reward"),
    ),
    "numbers": Check(
        "a number is nan or infinite, or the critic explains less than nothing",
        "the first row of the log with such a number; the metric explained_variance",
        ("not-finite", "blind-critic"),
    ),
    "trend": Check(
        "reward or entropy is far below what it was",
        "the metrics accuracy and entropy, the best fifth of the run against the last",
        ("reward-collapse", "entropy-collapse"),
    ),
}

# All that a diagnosis can name, in the order of a step.
CAUSES: Mapping[str, Mistake] = {
    name: CATALOGUE[name] for check in CHECKS.values() for name in check.causes
}

# What a curve shows → the checks to begin with, the likeliest first.
SYMPTOMS: Mapping[str, tuple[str, ...]] = {
    "reward flat from the first step": ("weights", "signal", "learner", "loss"),
    "reward rises, held-out accuracy does not (see also chapter 14)": ("verdicts", "parts"),
    "sampled answers better than greedy ones would be": ("sampler",),
    "learns, more slowly than it should": ("advantages", "ratio", "loss", "reference"),
    "rises, then falls apart": (
        *("tokens", "ratio", "penalty", "loss", "targets", "numbers", "trend"),
    ),
    "lengths run into the limit": ("mask", "verdicts"),
    "gradient norm or loss jumps with the batch size": ("loss",),
    "after a restart the run is a different one": ("weights",),
}
