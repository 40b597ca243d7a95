"""Checks of chapter 13: what a reader pays for, what verdicts prove, and what pass@k asks for."""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import comb

import torch
from torch import Generator

from nbcourse.checks.attempt import Attempt, NotRight
from nbcourse.checks.sheet import Exercise, Numbers

RIGHT_ANSWERS = range(100)
LONGEST = 400


def mend_the_reader(attempt: Attempt, generator: Generator) -> None:
    def reads(response: str, letter: str | None, why: str) -> None:
        result = attempt(response)
        if result is not None and not isinstance(result, str):
            raise NotRight(
                f"Expected a letter or None, got {type(result).__name__} {result!r:.80}."
            )
        attempt.holds(
            result == letter,
            f"{response!r}",
            otherwise=f"Wrong for {response!r}: expected {letter!r}, got {result!r}.\n"
            f"Likely mistake: {why}.",
        )

    reads("So it is 6.\nAnswer: B", "B", "a clean claim in the last line was not read")
    reads(
        "Answer: C\nDid you know? A Bee has six legs.",
        "C",
        "letters outside the claims were counted; after a claim a response may go on",
    )
    reads(
        "A cow has four legs.\nAnswer: D",
        "D",
        "letters before the claim were counted; only lines that begin with “Answer:” are claims",
    )
    reads(
        "Cows have four legs. Are they birds?",
        None,
        "there is no claim in it, and a reader that guesses one pays for prose",
    )
    reads(
        "Answer: A or B",
        None,
        "the claim begins well and goes on; whoever names two letters is paid for both of them",
    )
    reads(
        "Answer: Because of its legs",
        None,
        "the capital letter of a word was read as an answer; the letter has to stand alone",
    )
    reads(
        "Answer: not C",
        None,
        "a letter was looked for in the claim; here it is the one that is ruled out",
    )
    reads(
        "Answer: A\nAnswer: B",
        None,
        "the two claims contradict each other and one of them was taken; two answers are none",
    )
    reads(
        "Answer: A\nWait.\nAnswer: A",
        "A",
        "the two claims agree, so the response names one letter",
    )
    reads(
        "Answer: see above\nAnswer: A",
        None,
        "a claim that is not good was passed over; if a hedge in one line can be rescued by "
        "another line, it is paid by the back door",
    )
    for written in ("(B)", "B.", "(B).", "  B ", "B"):
        reads(
            f"Answer:{written}",
            "B",
            "brackets, spaces and a full stop are allowed; a good claim was refused",
        )
    reads("Answer: b", None, "small letters were not offered")
    reads(
        "Answer: ..(B",
        None,
        "brackets and full stops were taken away wherever they stood, as `strip` does; allowed are "
        "a pair of brackets around the letter and one full stop behind",
    )
    reads(
        "Answer:\nA",
        None,
        r"a claim ends with its line; \s matches the end of a line, too, and the next was read",
    )
    reads("Answer: (B", None, "a bracket without its partner was accepted")
    reads("Answer: B..", None, "one full stop is allowed")


def samples(generator: Generator) -> Numbers:
    """7 to 10 samples, 3 or 4 of them right: no two mistakes lead to the same number."""
    n = int(torch.randint(7, 11, (), generator=generator))
    right = 3 if n == 8 else int(torch.randint(3, 5, (), generator=generator))
    return {"samples": n, "right": right}


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


def four_exploits(attempt: Attempt, generator: Generator) -> None:
    responses = attempt()
    if (
        not isinstance(responses, list | tuple)
        or len(responses) != len(VERIFIERS)
        or not all(isinstance(response, str) for response in responses)
    ):
        raise NotRight(f"Expected a list of four texts, got {responses!r:.80}.")
    for response, (name, (verifier, way)) in zip(responses, VERIFIERS.items(), strict=True):
        if len(response) > LONGEST:
            raise NotRight(
                f"The response for `{name}` has {len(response)} characters, {LONGEST} are allowed."
            )
        for gold in RIGHT_ANSWERS:
            try:
                paid = verifier(response, gold)
            except ValueError:
                raise NotRight(
                    f"`{name}` crashes on your response: float() cannot read what stands after the "
                    "last ####. It has to look like a number, and need not be one."
                ) from None
            attempt.holds(
                paid,
                f"`{name}` pays",
                otherwise=f"`{name}` does not pay your response if the right answer is {gold}. "
                f"{way}",
            )
            attempt.holds(
                not _strict(response, gold),
                f"a strict reader refuses what `{name}` pays",
                otherwise=f"For `{name}`: if the right answer is {gold}, a strict reader pays your "
                "response, too. Then it is an answer and no exploit.",
            )


def _after_marker(response: str) -> float:
    return float(response.split("####")[-1])


def _anywhere(response: str, gold: int) -> bool:
    return str(gold) in re.findall(r"\d+", response)


def _near(response: str, gold: int) -> bool:
    return not abs(_after_marker(response) - gold) > 0.001


def _relative(response: str, gold: int) -> bool:
    answer = _after_marker(response)
    return abs(answer - gold) <= 0.01 * max(abs(answer), gold)


def _contains(response: str, gold: int) -> bool:
    answer = response.split("####")[-1].strip()
    return answer.isdigit() and str(gold) in answer


def _strict(response: str, gold: int) -> bool:
    claims = re.findall(r"####(.*)", response)
    return bool(claims) and all(re.fullmatch(rf"\s*0*{gold}(\.0*)?\s*", c) for c in claims)


VERIFIERS: dict[str, tuple[Callable[[str, int], bool], str]] = {
    "anywhere": (_anywhere, "It looks for one number among all: leave none of them out."),
    "near": (
        _near,
        "It asks whether the answer is *not too far*. Which value is never found to be far from "
        "anything, because no comparison with it is true?",
    ),
    "relative": (
        _relative,
        "The error it allows grows with the answer. How large does an answer have to be, for one "
        "per cent of it to be no less than its distance from anything?",
    ),
    "contains": (
        _contains,
        "It wants digits only, one number, and looks for the right answer inside it: let one long "
        "number hold all of them, 11 and 99 included.",
    ),
}


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
            "that is more than 1, so no probability: the two sides meet in the middle, and the "
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


EXERCISES = {
    "mend-the-reader": Exercise("13.4 The verifier is the reward", mend_the_reader),
    "by-hand": Exercise("14.3 pass@k, and what a gain is made of", by_hand, samples),
    "four-exploits": Exercise("13.4 The verifier is the reward", four_exploits),
    "sign-test": Exercise("14.2 Two models", sign_test),
    "weights-for-pass-at-k": Exercise(
        "14.3 pass@k, and what a gain is made of", weights_for_pass_at_k
    ),
}
