"""Changes that change nothing: why a check is right to accept an answer that looks wrong.

Two kinds. Some exercises have many right answers; a judge of its own, which shares nothing with the
check, says whether this is one. And some changes of a solution are no mistakes, for the reason that
stands here with a pattern of the change.
"""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.checks.bench import Desk

# ---------------------------------------------------------------- many right answers


def harmful(result: Any) -> bool:
    """Ten times the variance, by listing what the two pulls bring."""
    (p, q), (r, s) = (part.double().tolist() for part in result)
    mean, squared = p * r + q * s, (2 * q * q, 2 * p * p)  # ‖e_a − π‖² of either arm

    def variance(b: float) -> float:
        push = p * q * (r - s)  # of both logits, but for the sign
        second = p * (r - b) ** 2 * squared[0] + q * (s - b) ** 2 * squared[1]
        return second - 2 * push**2

    inside = min(p, q) >= 0.05 - 1e-6 and min(r, s) >= 0 and max(r, s) <= 1
    return inside and abs(p + q - 1) < 1e-6 and variance(mean) >= 9.999 * variance(0.0)


def fooled(result: dict[str, Any]) -> bool:
    def explained(values: Tensor, returns: Tensor) -> float:
        return 1 - float((returns - values).double().var() / returns.double().var())

    high, low = result["flattered"], result["slandered"]
    within = all(x.min() >= 0 and x.max() <= 1 and len(x) >= 4 for _, x in (high, low))
    far = (high[0] - high[1]).abs().min() >= 99.99 and explained(*high) >= 0.99
    return bool(within and far and (low[0] - low[1]).abs().max() < 0.0101 and explained(*low) < -1)


def clipped_differently(result: Any, advantage: int) -> bool:
    """Three tokens against none of the whole answer; one token against the whole answer."""

    def stopped(ratio: float) -> bool:
        return ratio > 1.2 if advantage > 0 else ratio < 0.8

    counts = [(sum(map(stopped, row)), stopped(math.prod(row) ** (1 / 4))) for row in result]
    return counts == [(3, False), (1, True)] and all(len(row) == 4 for row in result)


def pushed_both_ways(result: Any, q: float) -> bool:
    def push(p: float) -> float:
        odds = math.log(p / (1 - p)) - math.log(q / (1 - q))
        return p * (1 - p) * odds - (p - q)  # ∂KL − ∂(forward KL), by the logit

    far = all(p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)) >= 0.0999 for p in result)
    away, back = (-push(p) * (p - q) for p in result)
    return far and away > 0 > back


def split(other: Tensor, scores: Tensor) -> bool:
    above = other.double() > other.double().mean()
    wanted = (torch.arange(len(scores)) % 2 == 0)[:, None].expand_as(above)
    kept = torch.allclose(other.diff(dim=1), scores.diff(dim=1), atol=1e-2)
    return kept and bool((above == wanted).all())


def always_paid(responses: Any) -> bool:
    listed = responses[0]
    behind = [text.split("####")[-1].strip() for text in responses]

    def strict(text: str, gold: int) -> bool:
        found = re.fullmatch(r"\s*#### *(\d+)\s*", text)
        return found is not None and int(found[1]) == gold

    return all(len(text) <= 400 for text in responses) and all(
        str(gold) in re.findall(r"\d+", listed)
        and not abs(float(behind[1]) - gold) > 0.001
        and abs(float(behind[2]) - gold) <= 0.01 * max(abs(float(behind[2])), gold)
        and behind[3].isdigit()
        and str(gold) in behind[3]
        and not any(strict(text, gold) for text in responses)
        for gold in range(100)
    )


def catches_five(result: Any) -> bool:
    """The five broken estimators and the right one, each in plain Python."""
    rewards, size, expected = result[0].float().tolist(), int(result[1]), result[2].tolist()
    count = len(rewards)
    prompts = count // size

    def spread(group: list[float]) -> float:
        mean = sum(group) / len(group)
        return math.sqrt(sum((r - mean) ** 2 for r in group) / (len(group) - 1))

    def scores(group: list[float], power: int = 1) -> list[float]:
        mean, deviation = sum(group) / len(group), spread(group)
        flat = max(group) == min(group)
        return [0.0 if flat else (r - mean) / deviation**power for r in group]

    groups = [rewards[i : i + size] for i in range(0, count, size)]
    right = list(itertools.chain(*map(scores, groups)))
    mixed = [scores(rewards[i::prompts]) for i in range(prompts)]
    of_all = sum(rewards) / count
    whole = [(r - of_all) / (spread(g) + 1e-4) for g in groups for r in g]
    broken = [
        [mixed[i % prompts][i // prompts] for i in range(count)],
        whole,
        [-x for x in right],
        list(itertools.chain(*(scores(group, 2) for group in groups))),
    ]
    tensor = torch.tensor(rewards).view(-1, size)
    rounding = (tensor - tensor.mean(dim=1, keepdim=True)).abs().amax(dim=1)
    flat = tensor.amax(dim=1) == tensor.amin(dim=1)

    def same(found: list[float]) -> bool:
        return all(abs(x - y) <= 1e-2 for x, y in zip(found, expected, strict=True))

    return same(right) and not any(map(same, broken)) and bool((flat & (rounding > 0)).any())


JUDGES: dict[tuple[str, str], Callable[..., bool]] = {
    ("01-bandit", "harmful-baseline"): harmful,
    ("04-agent", "fool-the-monitor"): fooled,
    ("09-reward-models", "fool-the-batch-mean"): split,
    ("10-grpo", "two-answers"): clipped_differently,
    ("11-kl", "which-way"): pushed_both_ways,
    ("13-gsm8k", "four-exploits"): always_paid,
    ("16-silent-failures", "catch-five"): catches_five,
}

# ---------------------------------------------------------------- no mistakes

SEARCH = "a bisection from a little farther out, or by a step more, ends at the same place"
SIZES = "both tensors have the same shape"
ENDS = "with two axes, or one, it is the same axis"
EVEN = "an absolute value follows, or a square"
NEAREST = "the nearest of five candidates is still the same one"
GAP = "numbers lie below 1e-9 or above 1e-5 (statement); any border in between will do"
ONE = "a result as it is, without `int`, is one number as well"

REASONS: dict[tuple[str, str], dict[str, str]] = {
    ("01-bandit", "mend-the-loss"): {
        r"arms → (logits|rewards)": SIZES + ", and only `len` is asked"
    },
    ("01-bandit", "kl-budget"): {
        r"code (0\.001|1000\.0|60) →|spent > budget → spent >= budget": SEARCH,
        r"code 0 → -1": ENDS,
    },
    ("01-bandit", "best-of-two"): {r"code 0 → -1": ENDS},
    ("02-sequences", "unequal-groups"): {
        r"clamp\(min=1\) → others|code 1 → 0": "what is divided by 0 is not chosen afterwards",
    },
    ("02-sequences", "discounted-weights"): {
        r"0\.0\) → to_go": "padding is on the right, and the sums behind it are 0 already",
        r"rewards → mask": SIZES,
    },
    ("02-sequences", "length-bias"): {r"-theta → theta": "σ′ is even, and nothing else is used"},
    ("04-agent", "forgotten-discount"): {r"True → False": "`strict` of two lists of one length"},
    ("05-ppo", "penalty-optimum"): {
        r"code 60 →|total > 1 →|advantages [+-] beta \* old_probs → advantages": SEARCH,
    },
    ("06-ppo-in-practice", "mend-the-epochs"): {
        r"logits\.detach\(\) → logits": "the result is detached in any case",
        r"code 0 → -1": ENDS,
    },
    ("06-ppo-in-practice", "watchdog"): {
        r"1e-06": GAP,
        r"abs\(first|abs\(last|1 - last": EVEN + ", or the mean of k3 and of 1/ρ cannot be less",
    },
    ("06-ppo-in-practice", "how-much-too-large"): {r"torch\.eye": EVEN},
    ("07-language-model", "explain-the-gap"): {
        r"logits\[:-1\] → logits": "there are as many tokens as rows are used",
        r"-1 → 1|1 → [02]|0 → -1": ENDS,
        r"3 → 4|0\.6 → 0\.66|\.float\(\)": NEAREST,
        r" - log_probs → log_probs - ": EVEN,
    },
    ("07-language-model", "what-the-ratio-mends"): {r"code 0 → -1": ENDS},
    ("07-language-model", "which-temperature"): {
        r"code (50|20|0\.05|1) →|expected < drawn": SEARCH,
        r"-1 → 1": ENDS,
        r"\.double\(\) → logits": "float32 is enough for two decimals",
    },
    ("08-rlhf", "mend-the-step-scores"): {
        r"& \(steps >= 0\) → steps != following": "padding is on the right, and -1 follows on -1",
        r"1 → 2": "any number that no step has will do",
        r"code 0 → -1": "of padding, nothing is chosen",
    },
    ("08-rlhf", "own-share"): {r"tokens \+ 1 → tokens|1 → 0": "the last token's weight is 0"},
    ("08-rlhf", "segment-credit"): {
        r"rewards → values": SIZES,
        r"int\(numbers\.max\(\)\) →": "`range` takes a tensor without axes",
    },
    ("09-reward-models", "mend-the-last-score"): {
        r"mask → numbers": SIZES,
        r"code 1 → [02]": "any number below the first place will do",
        r"code 0 → -1": ENDS,
    },
    ("11-kl", "endless-answers"): {r"policy → reference": SIZES + " and dtype"},
    ("11-kl", "entropy-bonus"): {
        r"result .*(more|less|order|wrong|few|fraction|cumulated)": (
            "a constant has no gradient, and of this loss the gradient is all that is asked for"
        ),
    },
    ("12-kl-in-training", "where-to-measure"): {r"code 0 → -1": ENDS},
    ("12-kl-in-training", "letting-go"): {
        r"code (0\.0001|10000\.0|100) →|>= v → .* > v": SEARCH,
    },
    ("13-gsm8k", "the-race"): {r"code (500\.0|50\.0|100) →|< value → .* <= value": SEARCH},
    ("14-measuring", "sign-test"): {
        r"True → False": "`strict` of two texts of one length",
        r"code 1 → 2": "of m tosses m + 1 cannot succeed, and `comb` is 0",
        r"\* x - m → m - 2|gained - m → m - 2": EVEN,
    },
    ("14-measuring", "weights-for-pass-at-k"): {r"int\(.*\) →": "`comb` takes a tensor's number"},
    ("15-gpu-runs", "micro-batches-that-add-up"): {
        r"half precision": "the losses come in powers of two, and only gradients are compared",
    },
    ("16-silent-failures", "mend-the-law"): {r"code int\(": ONE},
    ("16-silent-failures", "name-the-fault"): {
        r"0\.001|0\.0001": "rounding is below 1e-4 and faults are above 0.1, so says the statement",
        r"'scored' → 'sampler'": "if these two differ, another word is returned before",
        r"\.abs\(\) →|witness.* - witness|z\.flatten\(\) - |- z\.flatten": (
            "differences cancel in the mean, so there are some of either sign"
        ),
    },
    ("16-silent-failures", "the-hunt"): {
        r"0\.001|0\.0001|> tolerance": (
            "rounding is below 1e-4, of derivatives below 1e-6; faults are above 0.1 and 1e-3"
        ),
        r"\.abs\(\) →|first - second": (
            "differences cancel in the mean, so there are some of either sign"
        ),
    },
    ("16-silent-failures", "tokens-needed"): {
        r"\.double\(\) → log_probs": "the table comes in double precision",
        r"code int\(": ONE,
        r"code 0 → -1": ENDS,
    },
    ("17-one-gpu", "three-parts"): {r"True → False": "`strict` of two texts of one length"},
}


def reason(desk: Desk, change: str, answer: Callable[..., Any] | str) -> str:
    """Why a changed answer is still right; empty if it is not known to be."""
    place = desk.chapter, desk.exercise
    if (judge := JUDGES.get(place)) is not None:
        function = desk.written(answer)[desk.name] if isinstance(answer, str) else answer
        right = all(judge(function(*call.arguments), *call.arguments) for call in desk.calls)
        return "one of many right answers" if right else ""
    known = REASONS.get(place, {})
    return next((why for pattern, why in known.items() if re.search(pattern, change)), "")
