"""Checks of chapter 14: what verdicts prove, and what pass@k asks for."""

import math
from fractions import Fraction
from itertools import product
from math import comb
from typing import Any

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("14.6 How this fails silently")
def mend_the_interval(attempt: Attempt, generator: Generator) -> None:
    before = torch.tensor([[0, 0], [1, 1], [0, 0], [0, 1]]).bool()
    after = torch.tensor([[1, 1], [1, 1], [1, 1], [0, 1]]).bool()
    attempt.equal(
        _ends(attempt, attempt(before, after)),
        torch.tensor([0.01, 0.99], dtype=torch.float64),
        case="four questions, two samples each: gains of 1, 0, 1 and 0",
        mistakes={
            meaning: torch.tensor([0.5 - half, 0.5 + half], dtype=torch.float64)
            for meaning, half in {
                "eight verdicts were counted as eight questions, as in the broken version": (
                    1.96 * math.sqrt(0.25 / 8)
                ),
                "the two evaluations were treated as two different exams; take the difference for "
                "each question first": 1.96 * math.sqrt((0.171875 + 0.046875) / 4),
                "different exams, and every sample a question of its own": (
                    1.96 * math.sqrt((0.375 * 0.625 + 0.875 * 0.125) / 8)
                ),
                "the variance was divided by P − 1; the chapter divides by P": (
                    1.96 * math.sqrt(1 / 3 / 4)
                ),
                "that is the spread of the questions; the mean of P of them has 1/√P of it": 0.98,
                "z is 1.96 for 95 %; 1.645 leaves 5 % on either side": 1.645 * 0.25,
                "that is one standard error; 95 % takes 1.96 of them": 0.25,
                "the mean was taken over the questions; each question has a gain of its own, the "
                "mean over its samples": 0.0,
            }.items()
        }
        | {
            "before and after are exchanged": torch.tensor([-0.99, -0.01], dtype=torch.float64),
            "the interval is in points of a hundred; return shares": torch.tensor(
                [1.0, 99.0], dtype=torch.float64
            ),
        },
        tolerance=1e-4,
    )
    before, after = (torch.rand((2, 30, 1), generator=generator) < 0.5).unbind()
    once = _ends(attempt, attempt(before, after))
    again = _ends(attempt, attempt(before.expand(30, 4), after.expand(30, 4)))
    attempt.equal(
        again,
        once,
        case="every sample copied three times, which is no new evidence",
        tolerance=1e-4,
    )
    for problems, samples in ((50, 1), (20, 8)):
        both = torch.rand((2, problems, samples), generator=generator)
        before, after = both[0] < 0.4, both[1] < 0.6
        attempt.equal(
            _ends(attempt, attempt(before, after)),
            _interval_over_questions(before, after),
            case=f"{problems} random questions, {samples} samples each",
            tolerance=1e-4,
        )


def _ends(attempt: Attempt, result: Any) -> Tensor:
    ends = attempt.numbers(result, 2, "two numbers, the ends of the interval")
    return torch.tensor(ends, dtype=torch.float64)


def _interval_over_questions(before: Tensor, after: Tensor) -> Tensor:
    gains = (after.double() - before.double()).mean(dim=1)
    half = 1.96 * (gains.var(correction=0) / len(gains)).sqrt()
    return torch.stack([gains.mean() - half, gains.mean() + half])


def samples(generator: Generator) -> Numbers:
    """7 to 10 samples, 3 or 4 of them right: no two mistakes lead to the same number."""
    n = int(torch.randint(7, 11, (), generator=generator))
    right = 3 if n == 8 else int(torch.randint(3, 5, (), generator=generator))
    return {"samples": n, "right": right}


@EXERCISES.add("14.3 pass@k, and what a gain is made of", numbers=samples)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    n, right = samples(generator).values()
    wrong = n - right
    attempt.equal(
        attempt(),
        1 - comb(wrong, 3) / comb(n, 3),
        case=f"your {right} right answers of {n}",
        mistakes={
            "that is the plug-in, 1 − (1 − c/n)³: it puts each card back before the next is drawn, "
            "and on average it is too low": 1 - (wrong / n) ** 3,
            "that is the chance that all three are wrong; pass@3 is what is left": comb(wrong, 3)
            / comb(n, 3),
            "that is the chance that all three are right; one is enough": comb(right, 3)
            / comb(n, 3),
            "that is pass@1, the share of right answers": right / n,
            "that is the chance of exactly one right answer among three; more are as good": (
                right * comb(wrong, 2) / comb(n, 3)
            ),
            "three times pass@1 counts draws with several right answers several times": 3
            * right
            / n,
        },
        tolerance=6e-4,
    )


@EXERCISES.add("14.2 Comparing two models on the same questions")
def sign_test(attempt: Attempt, generator: Generator) -> None:
    p_value = _chance_as_far(4, 1)
    attempt.equal(
        attempt("110000001", "110011110"),
        0.375,
        case="nine questions; four that only the second model got right, one that only the first "
        "did: (5 + 1 + 1 + 5) of 32 sequences of tosses",
        mistakes={
            "that is one side only; before the test either model might have been the better one": (
                p_value / 2
            ),
            "that is the chance of just this count; count everything at least as extreme": 5 / 32,
            "only this count and its mirror image were counted; results that are more extreme "
            "belong in, too": 10 / 32,
            "results exactly as far from the middle as yours were left out": 2 / 32,
            "questions on which the models agree were tossed for as well; they say nothing": (
                _chance_as_far(4, 5)
            ),
            "all right answers of the second model were counted, and all questions tossed for; "
            "only questions on which the models differ count": _chance_as_far(6, 3),
            "that is the normal approximation; with five tosses the sum is as easy, and exact": (
                math.erfc(3 / math.sqrt(5) / math.sqrt(2))
            ),
            "that is the share of disagreements that the second model won": 0.8,
        },
    )
    attempt.equal(
        attempt("0011", "1100"),
        1.0,
        case="two against two",
        mistakes={
            "that is more than 1, so not a probability: the two sides meet in the middle, and the "
            "middle was counted twice": 22 / 16,
        },
    )
    attempt.equal(attempt("0101", "0101"), 1.0, case="two models that agree on everything")
    digits = torch.randint(0, 2, (2, 40), generator=generator).tolist()
    first, second = ("".join(map(str, row)) for row in digits)
    gained = sum(a < b for a, b in zip(first, second, strict=True))
    lost = sum(a > b for a, b in zip(first, second, strict=True))
    attempt.equal(
        attempt(first, second),
        _chance_as_far(gained, lost),
        case=f"40 random questions, {gained} gained and {lost} lost",
    )
    attempt.equal(
        attempt("0" * 640 + "1" * 560 + "1" * 119, "1" * 640 + "0" * 560 + "1" * 119),
        _chance_as_far(640, 560),
        case="1,319 questions, 640 gained and 560 lost",
    )


def _chance_as_far(gained: int, lost: int) -> float:
    m = gained + lost
    chance = Fraction(0)
    for heads in range(m + 1):
        if abs(Fraction(heads) - Fraction(m, 2)) >= abs(Fraction(gained) - Fraction(m, 2)):
            chance += Fraction(comb(m, heads), 2**m)
    return float(chance)


@EXERCISES.add("14.3 pass@k, and what a gain is made of", travels="code")
def weights_for_pass_at_k(attempt: Attempt, generator: Generator) -> None:
    correct = torch.tensor([True, False, False, True, False, False, False])
    attempt.equal(
        attempt(correct, 3),
        2 / 7 * correct,
        case="2 of 7 answers right, k = 3: of the 15 pairs of others, 10 hold no right answer",
        mistakes={
            "wrong answers got the weight of right ones; theirs is 0": torch.full((7,), 2 / 7),
            "each right answer got 1/n, which is the gradient of pass@1": correct / 7,
            "the right answer was counted among the wrong ones: of the others n − c are wrong": (
                3 / 7 * 6 / 15 * correct
            ),
            "the factor k/n is missing": 2 / 3 * correct,
            "the factor k is missing: it comes from differentiating (1 − p)ᵏ": 2 / 21 * correct,
            "(1 − p)ᵏ⁻¹ was replaced by a power of the measured share of wrong answers, and that "
            "is biased; count sets of k − 1 answers": 3 / 7 * (5 / 7) ** 2 * correct,
            "the sets of k − 1 are to be drawn from the *other* n − 1 answers; with its own "
            "among them the answer is not independent of its weight": 3 / 7 * 10 / 21 * correct,
            "each right answer was paid the whole estimate of pass@k, so the derivative was never "
            "taken": 5 / 7 * correct,
            "sets of k wrong answers were counted; next to the right one there are k − 1 others": (
                3 / 7 * 10 / 20 * correct
            ),
            "only an answer that is the only right one of all n was paid; that is the weight for "
            "k = n": torch.zeros(7),
        },
    )
    attempt.equal(attempt(correct, 1), correct / 7, case="k = 1, where it is REINFORCE")
    for n, k in ((4, 2), (5, 3), (5, 5)):
        for p in (0.3, 0.8):
            mean = 0.0
            for verdicts in product((False, True), repeat=n):
                chance = math.prod(p if v else 1 - p for v in verdicts)
                weights = attempt.tensor(attempt(torch.tensor(verdicts), k), (n,)).double()
                scores = torch.tensor([1 / p if v else -1 / (1 - p) for v in verdicts])
                attempt.holds(
                    bool((weights[~torch.tensor(verdicts)] == 0).all()),
                    "wrong answers weigh nothing",
                    otherwise=f"A wrong answer of {list(map(int, verdicts))} has a weight other "
                    "than 0. A baseline is not asked for here.",
                )
                mean += chance * float(weights @ scores.double())
            attempt.equal(
                mean,
                k * (1 - p) ** (k - 1),
                case=f"the mean of the estimate over all {2**n} verdicts, n = {n}, k = {k}, "
                f"p = {p}, against d pass@k/dp",
                tolerance=1e-5,
            )
