"""Every row of the table gets the verdict that the book derives, and names that the book has."""

from math import comb, sqrt

import pytest

from nbcourse.training.algorithms import ALGORITHMS
from tests.effort import swept
from tests.examine.parts import codes, mistakes, report_of

# choices by row, as chapters 2, 5, 10 and 11 derive them
CHOICES = {
    "reinforce": {"batch-baseline", "own-reward-in-baseline"},
    "reinforce-ema": {"missing-baseline"},  # the running mean is 0 here
    "remax": {"missing-baseline"},  # and so is the greedy score
    "rloo": set(),
    # a batch that is whitened hides how its tokens are averaged
    "ppo": {
        "batch-baseline",
        "spread-divided",
        "discounted",
        "kl-divided-by-spread",
        "lengths-in-advantages",
    },
    "grpo": {"spread-divided", "seq-mean-token-mean", "kl-forward"},
    "grpo-process": {"spread-divided", "seq-mean-token-mean", "kl-forward"},
    "dr-grpo": {"own-reward-in-baseline"},
    "dapo": {"spread-divided", "token-mean", "clip-asymmetric"},
    "gspo": {"spread-divided", "seq-mean-token-mean", "sequence-ratio"},
    "cispo": {"spread-divided", "token-mean", "ratio-capped"},
    "cispo-two-sided": {"spread-divided", "token-mean", "ratio-bounded"},
    "gmpo": {"spread-divided", "seq-mean-token-mean", "sequence-ratio"},
    "sapo": {"spread-divided", "seq-mean-token-mean", "soft-clip"},
    "dppo": {"spread-divided", "token-mean", "probability-mask"},
    "ipo": {"token-mean", "probability-mask"},
    "icepop": {
        "spread-divided",
        "seq-mean-token-mean",
        "kl-forward",
        "sampler-weight",
        "ratio-mask",
    },
    "grpo-sequence-mask": {
        "spread-divided",
        "seq-mean-token-mean",
        "kl-forward",
        "sampler-weight",
        "sequence-mask",
    },
    "reinforce++": {
        "batch-baseline",
        "spread-divided",
        "kl-divided-by-spread",
        "lengths-in-advantages",
    },
}
VERDICTS = {
    "reinforce": ("proportional", {2: 1 / 2, 3: 2 / 3, 4: 3 / 4, 6: 5 / 6}),
    "reinforce-ema": ("exact", {2: 1, 3: 1, 4: 1}),
    "remax": ("exact", {2: 1, 3: 1, 4: 1}),
    "rloo": ("exact", {2: 1, 3: 1, 4: 1}),
    "dr-grpo": ("proportional", {2: 1 / 8000, 3: 1 / 6000, 4: 3 / 16000}),
}
KL = {
    "reverse": {"reinforce", "reinforce-ema", "remax", "rloo"},
    "forward": {"grpo", "grpo-process", "icepop", "grpo-sequence-mask"},
    "other": {"ppo", "reinforce++"},
    "none": {
        *("dr-grpo", "dapo", "gspo", "cispo", "cispo-two-sided", "gmpo", "sapo", "dppo", "ipo")
    },
}


# What does the same to these batches; what is read off as another row is, from a loss that
# test_families has as well: a bound on both sides, a mean of log-ratios, a distance, a mask; and
# what test_right has by hand: leave-one-out, a mean over tokens, a cap. Returns are whitened as
# advantages are.
TWINS = {"grpo-process": "grpo", "reinforce-ema": "remax", "rloo": "remax", "reinforce++": "ppo"}
TWINS |= {"dapo": "token_level", "cispo": "capped"}
TWINS |= {"cispo-two-sided": "cispo", "gmpo": "gspo", "dppo": "ipo", "icepop": "grpo-sequence-mask"}


@pytest.mark.parametrize("name", swept(ALGORITHMS, keep=ALGORITHMS.keys() - TWINS))
def test_a_row_is_what_the_book_says(name):
    report = report_of(name)
    assert not mistakes(report), str(report)
    assert codes(report, "choice") == CHOICES[name]
    fresh = report.facts.fresh
    verdict, factors = VERDICTS.get(name, ("biased", {}))
    assert (fresh.verdict, fresh.factors) == (verdict, pytest.approx(factors))
    assert name in KL[report.facts.descent.descends]
    assert report.nearest.same
    assert report.facts.difficulty[0.1] == pytest.approx(report.facts.difficulty[0.9])


CLIPS = {
    "cispo-two-sided": "cut at 1.2 whatever the sign of A; raised to 0.8 whatever the sign of A",
    "gmpo": "no gradient above 1.4918 with A > 0; no gradient below 0.67032 with A < 0",
    "sapo": "a sigmoid gate of temperature 1 with A > 0; a sigmoid gate of temperature 1.05",
    "dppo": "risen by more than 0.2 with A > 0; cut at 20 with A < 0; no gradient where its",
    "ipo": "its probability has fallen by more than 0.1 whatever the sign of A",
    "icepop": "π_old/π_sampler: no gradient above 5 whatever the sign of A; no gradient below 0.5",
    "grpo-sequence-mask": "the product of the ratios π_old/π_sampler over the response: no "
    "gradient above 3 whatever the sign of A",
}


@pytest.mark.parametrize("name", swept(CLIPS, keep=CLIPS.keys() - TWINS))
def test_a_clip_is_said_with_the_numbers_of_its_paper(name):
    report = report_of(name)
    assert CLIPS[name] in str(report)
    assert report.nearest.row == name
    assert report.nearest.gap < 1e-9


def test_groups_of_four_weigh_prompts_as_chapter_7_says():
    """E of the group's spread over the success rate: exactly the sum over its binomial."""

    def weight(p: float, size: int = 4) -> float:
        total = 0.0
        for k in range(1, size):
            mean = k / size
            spread = sqrt(size * mean * (1 - mean) / (size - 1))
            total += (
                comb(size, k) * p**k * (1 - p) ** (size - k) * mean * (1 - mean) / (spread + 1e-4)
            )
        return total / (p * (1 - p))

    found = report_of("grpo").facts.difficulty
    assert found == pytest.approx({p: weight(p) for p in found})
