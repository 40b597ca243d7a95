"""Checks of chapter 10: zero-variance groups, which tokens a clip stops, what averages climb."""

import math
from itertools import product
from typing import Any

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, NotRight, as_lists, as_tensor
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()

LOW, HIGH = 0.8, 1.2


@EXERCISES.add("10.4 Zero-variance groups", travels="results")
def mend_the_filter(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.tensor([0.9] * 6 + [1.0, 0.0, 2.0, 0.0, 2.0, 1.0] + [1.0] * 6)
    rounding = (
        "a group of equal rewards was kept: in float32 the mean of equal numbers need not be that "
        "number, so a distance from it need not be 0; compare the rewards with each other"
    )
    attempt.equal(
        attempt.tensor(attempt(rewards, 6), (18,), dtype=torch.bool),
        torch.tensor([False] * 6 + [True] * 6 + [False] * 6),
        case="groups of 6: all 0.9, then [1, 0, 2, 0, 2, 1], then all 1",
        mistakes={
            "only two of a group's rewards are compared, such as the first and the last; all of "
            "them count": torch.zeros(18, dtype=torch.bool),
            rounding: torch.tensor([True] * 12 + [False] * 6),
            "a mean strictly between 0 and 1 says that verdicts of 0 and 1 differ; other rewards "
            "can differ and have the mean 1, or agree on 0.9": torch.tensor(
                [True] * 6 + [False] * 12
            ),
            "kept and thrown away are exchanged": torch.tensor(
                [True] * 6 + [False] * 6 + [True] * 6
            ),
            "the rollouts are judged one by one; a rollout that earned as much as the first of its "
            "group belongs to it all the same": (rewards != rewards[::6].repeat_interleave(6)),
            "rewards of different groups are compared; each group has to be looked at on its own": (
                torch.ones(18, dtype=torch.bool)
            ),
        },
    )
    for size in (3, 5, 8, 12):
        for value in (0.1, 0.3, 0.6, 0.7, 0.9, 1.1):
            attempt.holds(
                not as_tensor(attempt(torch.full((2 * size,), value), size)).any(),
                "unanimous groups of many sizes",
                otherwise=f"Wrong for groups of {size} rewards that all are {value}: kept. Likely "
                f"mistake: {rounding}.",
            )
    _small_differences(attempt, generator)


def _small_differences(attempt: Attempt, generator: Generator) -> None:
    """Differences that a tolerance hides, or a variance; and random verdicts."""
    small = torch.full((8,), 0.5)
    small[5] += 1e-6
    attempt.equal(
        attempt(small, 4),
        torch.tensor([False] * 4 + [True] * 4),
        case="groups of 4: all 0.5, then three of 0.5 and one of 0.500001",
        mistakes={
            "a tolerance hides a small but honest difference; a reward model's often are small, "
            "and divided by the deviation they count in full": torch.zeros(8, dtype=torch.bool)
        },
    )
    tiny = torch.zeros(8)
    tiny[6] = 1e-30
    attempt.equal(
        attempt(tiny, 4),
        torch.tensor([False] * 4 + [True] * 4),
        case="groups of 4: all 0, then three of 0 and one of 1e-30",
        mistakes={
            "the square of a very small difference is 0 in float32, and with it the variance; "
            "compare the rewards themselves": torch.zeros(8, dtype=torch.bool)
        },
    )
    attempt.equal(
        attempt(torch.tensor([2.0, 1.0, 0.0, 0.0, 1.0, 2.0, 1.0, -1.0, -1.0, -2.0, -2.0, -1.0]), 3),
        torch.ones(12, dtype=torch.bool),
        case="groups of 3: falling, rising, falling at once, rising at last",
        mistakes={
            "rewards that fall from one rollout to the next differ as well": torch.tensor(
                [False] * 3 + [True] * 3 + [False] * 3 + [True] * 3
            ),
            "rewards that rise from one rollout to the next differ as well": torch.tensor(
                [True] * 3 + [False] * 3 + [True] * 3 + [False] * 3
            ),
        },
    )
    rewards = torch.randint(0, 2, (24,), generator=generator).float()
    expected = []
    for start in range(0, 24, 3):
        expected += [len(set(rewards[start : start + 3].tolist())) > 1] * 3
    attempt.equal(attempt(rewards, 3), torch.tensor(expected), case="8 random groups of 3 verdicts")


def group_of_verdicts(generator: Generator) -> Numbers:
    """5 to 8 verdicts, some right and some wrong, not as many of one as of the other."""
    while True:
        size = int(torch.randint(5, 9, (), generator=generator))
        verdicts = torch.randint(0, 2, (size,), generator=generator).tolist()
        if 0 < sum(verdicts) < size and 2 * sum(verdicts) != size:
            return {"verdicts": verdicts}


@EXERCISES.add("10.3 What the division does: a weight for each prompt", numbers=group_of_verdicts)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    verdicts = group_of_verdicts(generator)["verdicts"]
    size, right = len(verdicts), sum(verdicts)
    share = right / size
    away = torch.tensor([1 - share, -share])
    variance = share * (1 - share) * size / (size - 1)
    result = away / math.sqrt(variance)
    attempt.equal(
        attempt(),
        result,
        case=f"your verdicts {verdicts}",
        mistakes={
            "the variance was divided by G; the denominator here is G − 1": away
            / math.sqrt(share * (1 - share)),
            "these are the distances from the mean; GRPO divides them by the standard deviation": (
                away
            ),
            "that is divided by the variance; take its root first": away / variance,
            "the two are in the wrong order, the right answer's comes first": result.flip(0),
            "the two sizes are exchanged; the rarer verdict lies farther from the mean": -(
                result.flip(0)
            ),
            "a wrong answer lies below the mean: its advantage is negative": result.abs(),
            "each answer is compared with the others only (leave-one-out); GRPO takes the mean of "
            "the whole group": away * size / (size - 1),
        },
        tolerance=6e-3,
    )


@EXERCISES.add("10.8 One problem, one fix", travels="code")
def two_answers(attempt: Attempt, generator: Generator) -> None:
    for advantage in (1, -1):
        first, second = _two_lists_of_ratios(attempt(advantage), advantage)
        if _clipped(first, advantage) == 1 and _clipped(second, advantage) == 3:
            raise NotRight(
                "PPO clips one token of your first answer and three of your second. Hand them "
                "in the other way round: three come first."
            )
        _tokens_clipped(attempt, first, advantage, wanted=3, which="first")
        whole = _geometric_mean(first)
        attempt.holds(
            not _outside(whole, advantage),
            f"the first answer passes GSPO's clip, A = {advantage:+d}",
            otherwise=f"First answer, A = {advantage:+d}: its geometric mean is {whole:.3f}, so "
            "GSPO clips it, too. The fourth token has to weigh against the other three: one "
            "ratio far on the other side of 1 brings the mean back.",
        )
        _tokens_clipped(attempt, second, advantage, wanted=1, which="second")
        whole, multiplied, added = (
            _geometric_mean(second),
            math.prod(second),
            sum(second) / 4,
        )
        says = f"Second answer, A = {advantage:+d}: its geometric mean is {whole:.3f}, inside "
        says += "GSPO's interval, so nothing is clipped. "
        if _outside(multiplied, advantage) and not _outside(added, advantage):
            says += (
                f"The product of the four, {multiplied:.3f}, is outside, but GSPO takes its "
                "fourth root: that is why its ratios move so little."
            )
        elif _outside(added, advantage):
            says += (
                f"The arithmetic mean, {added:.3f}, is outside; GSPO takes the mean of the "
                "logarithms."
            )
        else:
            says += "The one token has to go farther out, or the other three nearer to the border."
        attempt.holds(
            _outside(whole, advantage),
            f"GSPO clips the second answer, A = {advantage:+d}",
            otherwise=says,
        )


def _two_lists_of_ratios(result: Any, advantage: int) -> tuple[list[float], list[float]]:
    lists = as_lists(result)
    if not isinstance(lists, list) or len(lists) != 2:
        raise NotRight(f"Expected two lists of four ratios, got {result!r:.80}.")
    answers = []
    for ratios in lists:
        if (
            not isinstance(ratios, list)
            or len(ratios) != 4
            or not all(isinstance(ratio, int | float) for ratio in ratios)
        ):
            raise NotRight(f"Expected a list of four ratios, got {ratios!r:.80}.")
        if not all(math.isfinite(ratio) for ratio in ratios):
            raise NotRight(f"A ratio is a finite number; for A = {advantage:+d} you gave {ratios}.")
        if min(ratios) <= 0:
            raise NotRight(
                f"A ratio of two probabilities is positive; for A = {advantage:+d} you gave "
                f"{min(ratios):.3g}. Likely mistake: these are log-ratios."
            )
        answers.append([float(ratio) for ratio in ratios])
    return answers[0], answers[1]


def _outside(ratio: float, advantage: int) -> bool:
    """Beyond the end of the interval at which the clip takes the gradient away."""
    return ratio > HIGH if advantage > 0 else ratio < LOW


def _clipped(ratios: list[float], advantage: int) -> int:
    return sum(_outside(ratio, advantage) for ratio in ratios)


def _geometric_mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _tokens_clipped(
    attempt: Attempt, ratios: list[float], advantage: int, *, wanted: int, which: str
) -> None:
    count = _clipped(ratios, advantage)
    other_side = _clipped(ratios, -advantage)
    says = (
        f"{which.capitalize()} answer, A = {advantage:+d}: PPO clips {count} of the tokens with "
        f"ratios {', '.join(f'{ratio:.3g}' for ratio in ratios)}, and {wanted} are asked for."
    )
    if other_side and wanted in (other_side, count + other_side):
        keeps = "below 0.8" if advantage > 0 else "above 1.2"
        says += (
            f" With A = {advantage:+d} a token {keeps} went the wrong way and keeps its gradient, "
            "which brings it back; only the other end clips."
        )
    attempt.holds(
        count == wanted,
        f"the tokens of the {which} answer, A = {advantage:+d}",
        otherwise=says,
    )


@EXERCISES.add("10.8 One problem, one fix")
def kept_groups(attempt: Attempt, generator: Generator) -> None:
    success = torch.tensor([0.5, 0.25, 0.25])
    kept = torch.tensor([0.5, 0.375, 0.375])
    attempt.equal(
        attempt(success, 2),
        torch.full((3,), 0.4),
        case="p = [1/2, 1/4, 1/4], G = 2, where groups are kept with the chances 1/2, 3/8, 3/8",
        mistakes={
            "that is what a *drawn* group contributes; of the draws only a part is kept, and the "
            "kept ones contribute all there is: divide by the chance that a draw is kept": (
                torch.full((3,), 1 / 6)
            ),
            "these are the contributions of a kept group, given its prompt, averaged over prompts "
            "as if each were kept equally often; easy and hard ones are kept less often": (
                1 / 6 / kept
            ),
            "that is how often each prompt is among the kept groups, times what its drawn groups "
            "contribute; its kept ones contribute more": kept / 1.25 / 2,
            "the chance of being thrown away was used in place of that of being kept": torch.full(
                (3,), 0.5 / 1.75
            ),
            "the factor (G − 1)/G is missing: the mean of the group contains each answer's own "
            "reward": torch.full((3,), 0.8),
            "the chance of a draw to be kept is the *mean* over prompts, and each prompt is drawn "
            "with probability 1/P; one of the two is missing": torch.full((3,), 1.2),
            "groups in which all are wrong are thrown away, too": torch.full((3,), 0.5 / 2.625),
            "groups in which all are right are thrown away, too": torch.full(
                (3,), 0.5 / (3 - 0.25 - 2 * 0.5625)
            ),
        },
    )
    for group_size in (3, 4):
        success = 0.1 + 0.8 * torch.rand(4, generator=generator, dtype=torch.float64)
        attempt.equal(
            attempt(success, group_size),
            _every_group_of_verdicts(success, group_size),
            case=f"4 prompts, all groups of {group_size} verdicts enumerated",
        )


def _every_group_of_verdicts(success: Tensor, group_size: int) -> Tensor:
    """Σ over kept groups of chance × Σᵢ Aᵢ d log π(verdict)/dp / G, divided by their chance."""
    contributed, some_kept = torch.zeros_like(success), 0.0
    for i, p in enumerate(success.tolist()):
        for verdicts in product((0, 1), repeat=group_size):
            if len(set(verdicts)) == 1:
                continue
            chance = math.prod(p if v else 1 - p for v in verdicts) / len(success)
            mean = sum(verdicts) / group_size
            pushes = [(v - mean) * (1 / p if v else -1 / (1 - p)) for v in verdicts]
            contributed[i] += chance * sum(pushes) / group_size
            some_kept += chance
    return contributed / some_kept


REPORTS = {
    "a": "exact",
    "b": "own length",
    "c": "padding",
    "d": "upside down",
    "e": "nothing",
}
LIKELY = {
    ("a", "nothing"): "the ratio is always 1, and its derivative is not 0: only one of the two "
    "log-probs is detached, so that d ratio / d log π is the ratio itself",
    ("b", "exact"): "each answer is divided by its own length, so a token of a long answer counts "
    "less than one of a short answer, and ∇J knows of no such weight",
    ("c", "exact"): "the mean divides by all entries of the tensor, the padded ones included",
    ("c", "own length"): "all answers are divided by the same number, and it counts padding",
    ("d", "exact"): "at π = π_old the gradient is right; look at a token whose ratio has risen "
    "to 2: what is the derivative of exp(old − new) there?",
    ("d", "nothing"): "the minus sign is missing in front, and there is another one: the "
    "derivative of exp(old − new) with respect to new is negative",
    ("e", "exact"): "a number that is detached has no gradient: of the ratio only its value is "
    "left, and nothing else in the loss depends on the policy",
    ("e", "upside down"): "the ratio is the right way up; what is left of it after .detach()?",
}


@EXERCISES.add("10.9 One table", travels="sealed")
def predict_the_report(attempt: Attempt, generator: Generator) -> None:
    for loss, word in REPORTS.items():
        said = attempt(loss)
        if said not in REPORTS.values():
            raise NotRight(
                f"For loss {loss} you return {said!r:.60}, expected one of "
                f"{', '.join(map(repr, REPORTS.values()))}."
            )
        likely = LIKELY.get((loss, said), "differentiate it with respect to one log-probability")
        attempt.holds(
            said == word,
            "what the five losses do",
            otherwise=f"Loss {loss} is not {said!r}: {likely}.",
        )


@EXERCISES.add("10.7 The mean over tokens")
def length_drift(attempt: Attempt, generator: Generator) -> None:
    probs = torch.full((4,), 0.25, dtype=torch.float64)
    lengths = torch.tensor([1.0, 2.0, 1.0, 4.0], dtype=torch.float64)
    right = torch.tensor([True, True, False, False])
    baseline = 0.5

    def of(f: Tensor) -> Tensor:
        return torch.tensor([_drift(probs, lengths, kind, f) for kind in (right, ~right)])

    def whole(kind: Tensor) -> float:
        """The same, with probabilities that do not add up to 1."""
        f = (right.double() - baseline) / lengths
        return float((kind * probs * lengths * (f - probs @ f)).sum())

    result = torch.tensor([-0.0625, 0.28125], dtype=torch.float64)
    attempt.equal(
        _pair(attempt, attempt(probs, lengths, right)),
        result,
        case="four answers of probability 1/4: two right ones of lengths 1 and 2, two wrong ones "
        "of lengths 1 and 4",
        mistakes={
            "that is the drift of the token sum, f = R − p, which treats all right answers alike "
            "and all wrong ones alike; here f is divided by the length": of(
                right.double() - baseline
            ),
            "the baseline p is missing: without it wrong answers earn 0 and are not moved against "
            "each other at all": of(right / lengths),
            "the two are in the wrong order, the right answers' drift comes first": result.flip(0),
            "both signs are the wrong way round: a right answer earns more the shorter it is": (
                -result
            ),
            "the probabilities of the right answers have to be divided by their sum, and so have "
            "those of the wrong ones: you are asked for the mean length *given* the verdict": (
                torch.tensor([whole(right), whole(~right)])
            ),
            "the mean of |y| f alone is not the drift: as the probabilities still have to add up "
            "to 1 among the answers of one kind, the product of the two means comes off": (
                torch.tensor([0.5, -0.5])
            ),
            "f is multiplied by the length instead of divided": of(
                (right.double() - baseline) * lengths
            ),
            "the factors 1 − p and p are missing: f is (1 − p)/|y| for right answers and −p/|y| "
            "for wrong ones": 2 * result,
            "the rewards are divided by their standard deviation, as GRPO's z-scores are; here f "
            "is (R − p)/|y|": 2 * result,
        },
    )
    _seven_answers(attempt, generator)


def _seven_answers(attempt: Attempt, generator: Generator) -> None:
    for _ in range(2):
        probs = torch.rand(7, generator=generator, dtype=torch.float64).softmax(0)
        lengths = torch.randint(1, 10, (7,), generator=generator).double()
        right = torch.arange(7) < 3
        f = (right.double() - probs[right].sum()) / lengths
        swapped = (right.double() - probs[~right].sum()) / lengths
        plain = torch.stack(
            [_drift(torch.ones_like(probs), lengths, k, f) for k in (right, ~right)]
        )
        attempt.equal(
            _pair(attempt, attempt(probs, lengths, right)),
            torch.stack([_drift(probs, lengths, kind, f) for kind in (right, ~right)]),
            case="seven answers of different probabilities, differentiated by the machine",
            mistakes={
                "1 − p and p are exchanged": torch.stack(
                    [_drift(probs, lengths, kind, swapped) for kind in (right, ~right)]
                ),
                "the answers are averaged as if they all had the same probability": plain,
            },
        )
    same = _pair(attempt, attempt(probs, torch.full_like(lengths, 6.0), right))
    attempt.equal(
        same, torch.zeros(2), case="answers that all have the same length, where nothing can drift"
    )


def _pair(attempt: Attempt, result: Any) -> Tensor:
    pair = attempt.numbers(result, 2, "two numbers, of right and of wrong answers")
    return torch.tensor(pair, dtype=torch.float64)


def _drift(probs: Tensor, lengths: Tensor, kind: Tensor, f: Tensor) -> Tensor:
    """d/dη of the mean length among one kind of answers, where log π moves by η f."""
    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    moved = probs[kind] * (step * f[kind]).exp()
    return torch.autograd.grad(moved @ lengths[kind] / moved.sum(), step)[0]
