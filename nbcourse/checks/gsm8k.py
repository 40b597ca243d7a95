"""Checks of chapter 13: what a reader pays for, and what a policy makes of it."""

import math
import re
from collections.abc import Callable

import torch
from torch import Generator

from nbcourse.checks.attempt import Attempt, NotRight
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()
WITH_PATTERNS = "It needs Python's module re, which this page lacks."

RIGHT_ANSWERS = range(100)
LONGEST = 400


# response, the letter in it, and why another one was read
READINGS: tuple[tuple[str, str | None, str], ...] = (
    ("So it is 6.\nAnswer: B", "B", "a clean claim in the last line was not read"),
    (
        "Answer: C\nDid you know? A Bee has six legs.",
        "C",
        "letters outside the claims were counted; after a claim a response may go on",
    ),
    (
        "A cow has four legs.\nAnswer: D",
        "D",
        "letters before the claim were counted; only lines that begin with “Answer:” are claims",
    ),
    (
        "Cows have four legs. Are they birds?",
        None,
        "there is no claim in it, and a reader that guesses one pays for prose",
    ),
    (
        "I doubt that it is the right Answer: B",
        None,
        "a claim was found in the middle of a line; only lines that *begin* with “Answer:” are "
        "claims",
    ),
    (
        "Answer: A or B",
        None,
        "the claim begins well and goes on; a reader of beginnings pays two letters at once",
    ),
    (
        "Answer: Because of its legs",
        None,
        "the capital letter of a word was read as an answer; the letter has to stand alone",
    ),
    (
        "Answer: not C",
        None,
        "a letter was looked for in the claim; here it is the one that is ruled out",
    ),
    (
        "Answer: A\nAnswer: B",
        None,
        "the two claims contradict each other and one of them was taken; two answers are none",
    ),
    ("Answer: A\nWait.\nAnswer: A", "A", "the two claims agree, so the response names one letter"),
    (
        "Answer: see above\nAnswer: A",
        None,
        "a claim that is not good was ignored; if a hedge in one line can be rescued by "
        "another line, it is paid by the back door",
    ),
    *(
        (
            f"Answer:{written}",
            "B",
            "brackets, spaces and a full stop are allowed; a good claim was refused",
        )
        for written in ("(B)", "B.", "(B).", "  B ", "B")
    ),
    ("Answer: b", None, "small letters were not offered"),
    (
        "Answer: ..(B",
        None,
        "brackets and full stops were taken away wherever they stood, as `strip` does; only "
        "a pair of brackets around the letter and one full stop after it are allowed",
    ),
    (
        "Answer:\nA",
        None,
        r"a claim ends with its line; \s matches the end of a line, too, and the next was read",
    ),
    ("Answer: (B", None, "a bracket without its partner was accepted"),
    ("Answer: B..", None, "one full stop is allowed"),
)


@EXERCISES.add("13.4 The verifier is the reward", travels="results", elsewhere=WITH_PATTERNS)
def mend_the_reader(attempt: Attempt, generator: Generator) -> None:
    for response, letter, why in READINGS:
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


def policy(generator: Generator) -> Numbers:
    """Chances that no two mistakes turn into the same number."""
    return {
        "right": (0.12, 0.22, 0.42)[int(torch.randint(3, (), generator=generator))],
        "marker": (0.55, 0.65)[int(torch.randint(2, (), generator=generator))],
        "sentence": (0.1, 0.15)[int(torch.randint(2, (), generator=generator))],
    }


@EXERCISES.add("13.5 How this fails silently: a verifier that pays too much", numbers=policy)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    right, marker, sentence = policy(generator).values()
    listed = 1 - marker - sentence
    paid, accuracy, failed = attempt.numbers(attempt(), 3, "a list of 3 numbers")
    attempt.equal(
        paid,
        listed + (1 - listed) * right,
        case="what `found_anywhere` pays",
        mistakes={
            "a list is paid whatever the policy thinks the answer is; you paid it only if the "
            "policy knew": right,
            "a list that is written by a policy that knows was paid twice; of the other forms, "
            "1 − listed, the share `right` is paid": listed + right,
            "a sentence with the right number in it is paid as well": listed + marker * right,
            "that is the share of lists alone; the other two forms are paid where the number is "
            "right": listed,
        },
        tolerance=6e-4,
    )
    attempt.equal(
        accuracy,
        marker * right,
        case="the strict accuracy",
        mistakes={
            "a sentence was counted, and strict reading wants the marker": (marker + sentence)
            * right,
            "every right number was counted, whatever its form": right,
            "that is the share of responses with a marker; their number has to be right, too": (
                marker
            ),
            "that is what `found_anywhere` pays": listed + (1 - listed) * right,
        },
        tolerance=6e-4,
    )
    attempt.equal(
        failed,
        1 - marker,
        case="the extraction-failure rate",
        mistakes={
            "wrong answers were counted; a wrong number after a marker is read without trouble": 1
            - marker * right,
            "no answer can be read strictly from a sentence, either": listed,
            "no answer can be read strictly from a list, either": sentence,
            "that is the share that can be read": marker,
        },
        tolerance=6e-4,
    )


@EXERCISES.add("13.4 The verifier is the reward", travels="code", elsewhere=WITH_PATTERNS)
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
                f"The response for `{name}` has {len(response)} characters; {LONGEST} are allowed."
            )
        for gold in RIGHT_ANSWERS:
            try:
                paid = verifier(response, gold)
            except ValueError:
                raise NotRight(
                    f"`{name}` crashes on your response: float() cannot read what comes after the "
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
                "response, too. Then it is an answer and not an exploit.",
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
        "It takes digits only, one number, and looks for the right answer inside it: let one long "
        "number hold all of them, 11 and 99 included.",
    ),
}


@EXERCISES.add("13.5 How this fails silently: a verifier that pays too much")
def the_race(attempt: Attempt, generator: Generator) -> None:
    p, q, q_end = 0.05, 0.1, 0.9
    attempt.equal(
        attempt(p, q, q_end),
        _skill(p, q, q_end),
        case="skill 0.05, exploit 0.1, until the exploit has 0.9",
        mistakes={
            "the two logits were moved at the same speed; the gradient of J is not the same for "
            "both": _sigmoid(_logit(p) + _logit(q_end) - _logit(q)),
            "p and q were moved along dJ/dp and dJ/dq; it is the *logits* that follow the "
            "gradient": 1 - math.sqrt((1 - p) ** 2 - (1 - q) ** 2 + (1 - q_end) ** 2),
            "p/q is the ratio of the logits' speeds; a probability moves by p(1 − p) times its "
            "logit": p * q_end / q,
            "a sign: p grows with q; what you keep constant is a difference, G(p) − G(q)": (
                _solve(_invariant(p) - _invariant(q_end) + _invariant(q))
            ),
            "p was left where it was; its gradient vanishes only as q comes near 1": p,
            "that is the exploit at the end; you are asked for the skill": q_end,
            "−1/x is missing on one side: G(x) = ln(x/(1 − x)) − 1/x for p and for q": (
                _sigmoid(_invariant(p) + _invariant(q_end) - _invariant(q))
            ),
        },
        tolerance=1e-4,
    )
    for start in (0.02, 0.3):
        attempt.equal(
            attempt(start, start, 0.97),
            0.97,
            case="skill and exploit that begin equal",
            tolerance=1e-4,
        )
    for _ in range(5):
        p, q, further = (0.02 + 0.6 * torch.rand(3, generator=generator)).tolist()
        q_end = q + (0.99 - q) * further
        attempt.equal(
            attempt(p, q, q_end),
            _skill(p, q, q_end),
            case=f"skill {p:.3f}, exploit {q:.3f}, until the exploit has {q_end:.3f}",
            tolerance=1e-4,
        )


def _logit(x: float) -> float:
    return math.log(x / (1 - x))


def _sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a)) if a > 0 else math.exp(a) / (1 + math.exp(a))


def _invariant(x: float) -> float:
    """What p and q have in common: its derivative is 1/(x²(1 − x))."""
    return _logit(x) - 1 / x


def _solve(value: float) -> float:
    """The x at which the invariant has this value, by bisection of its logit."""
    low, high = -30.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        too_low = middle - 1 - math.exp(-middle) < value
        low, high = (middle, high) if too_low else (low, middle)
    return _sigmoid(low)


def _skill(p: float, q: float, q_end: float) -> float:
    return _solve(_invariant(p) + _invariant(q_end) - _invariant(q))
