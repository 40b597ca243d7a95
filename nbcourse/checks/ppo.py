"""Checks of chapter 5: which samples are clipped, what old data cost, where a penalty leads."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("5.9 One step for each batch: nothing is clipped")
def mend_the_clip_fraction(attempt: Attempt, generator: Generator) -> None:
    ratios = torch.tensor([0.5, 1.1, 1.5, 0.5, 1.1, 1.5, 0.82, 1.21, 0.81])
    advantages = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    found = attempt(ratios.log(), torch.zeros(9), advantages, 0.2)
    found = attempt.tensor(found, (9,), dtype=torch.bool)
    attempt.equal(
        found,
        _marks("..x x.. .x."),
        case="ratios [0.5, 1.1, 1.5 | 0.5, 1.1, 1.5 | 0.82, 1.21, 0.81], A = [+, +, + | −, −, − | "
        "+, +, −]",
        mistakes={
            "these are all samples outside the interval; one that has gone the *wrong* way has its "
            "whole gradient": _marks("x.x x.x .x."),
            "the signs are swapped: a good sample is clipped once it is above the interval, a bad "
            "one once it is below": _marks("x.. ..x ..."),
            "the ratio is upside down: it is new over old": _marks("x.. ..x x.."),
            "the logarithm of the ratio was compared with ε; the interval is one of ratios": (
                _marks("..x x.. ..x")
            ),
            "the lower end is missing: a bad sample can be clipped, too": _marks("..x ... .x."),
            "only the upper end is looked at, for good and bad alike": _marks("..x ..x .x."),
            "the lower end is 1 − ε, and not 1/(1 + ε) or e^−ε; only in logarithms would the two "
            "ends lie evenly": _marks("..x x.. .xx"),
            "the interval begins at 1: a bad sample has its gradient down to 1 − ε, here too": (
                _marks("..x x.. .xx")
            ),
            "these are the samples that *have* a gradient": ~_marks("..x x.. .x."),
        },
    )
    near = torch.tensor([0.85, 0.93, 1.07, 1.15])  # on either side of both ends
    attempt.equal(
        attempt(
            near.log().repeat(2),
            torch.zeros(8),
            torch.tensor([1.0, -1.0]).repeat_interleave(4),
            0.1,
        ),
        _marks("...x x..."),
        case="ratios [0.85, 0.93, 1.07, 1.15] with A = +, then with A = −, ε = 0.1",
        mistakes={
            "the interval begins at 1: a bad sample has its gradient down to 1 − ε": (
                _marks("...x xx..")
            ),
        },
    )
    log_probs, old_log_probs = torch.randn(2, 40, generator=generator, dtype=torch.float64) / 3
    advantages = torch.randint(-1, 2, (40,), generator=generator).double()
    advantages[:2] = 0.0  # above the interval and below it
    log_probs[:2] = old_log_probs[:2] + torch.tensor([0.3, -0.3])
    expected = []
    for new, old, A in zip(log_probs, old_log_probs, advantages, strict=True):
        ratio = math.exp(new - old)
        expected.append((A > 0 and ratio > 1.1) or (A < 0 and ratio < 0.9))
    found = attempt.tensor(attempt(log_probs, old_log_probs, advantages, 0.1), (40,))
    attempt.holds(
        not found[advantages == 0].any(),
        "advantages of 0",
        otherwise="Samples with the advantage 0 are counted. They have no gradient whatever their "
        "ratio, so it is not the clip that takes it away.",
    )
    attempt.equal(found, torch.tensor(expected), case="40 random samples, ε = 0.1")


def _marks(marks: str) -> Tensor:
    return torch.tensor([mark == "x" for mark in marks.replace(" ", "")])


def four_samples(generator: Generator) -> Numbers:
    """One sample for each of the four cases outside the interval, in any order."""
    sizes = (torch.randperm(5, generator=generator)[:4] + 1).tolist()
    steps = (torch.randperm(4, generator=generator) + 3).tolist()
    kinds = [(1, 1), (1, -1), (-1, 1), (-1, -1)]  # sign of A, side of the interval
    pairs = [
        (sign * float(size), round(1 + side * step / 10, 1))
        for (sign, side), size, step in zip(kinds, sizes, steps, strict=True)
    ]
    return {"pairs": [pairs[i] for i in torch.randperm(4, generator=generator).tolist()]}


@EXERCISES.add("5.6 PPO-clip: the clipped surrogate in six cases", numbers=four_samples)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    pairs = four_samples(generator)["pairs"]

    def answers(of_pair: Callable[[float, float, float], tuple[float, float]]) -> Tensor:
        return torch.tensor([of_pair(A, r, min(max(r, 0.8), 1.2)) for A, r in pairs])

    def smaller(A: float, r: float, c: float) -> tuple[float, float]:
        return (r * A, r * A) if r * A < c * A else (c * A, 0.0)

    def larger(A: float, r: float, c: float) -> tuple[float, float]:
        return (r * A, r * A) if r * A > c * A else (c * A, 0.0)

    attempt.equal(
        attempt(),
        answers(smaller),
        case=f"your pairs (A, ρ) {pairs}",
        mistakes={
            "you kept the larger of the two products; the objective is the smaller one": (
                answers(larger)
            ),
            "every ratio outside the interval was clipped; where the policy has gone the wrong "
            "way, the unclipped product is the smaller one": answers(lambda A, r, c: (c * A, 0.0)),
            "nothing was clipped": answers(lambda A, r, c: (r * A, r * A)),
            "the objectives are right, but a clipped product does not move, so its slope is 0": (
                answers(lambda A, r, c: (smaller(A, r, c)[0], r * A))
            ),
            "the objectives are right, but the slope of ρ A in log π is ρ A and not A: dρ/d log π "
            "is ρ": answers(
                lambda A, r, c: (smaller(A, r, c)[0], A if smaller(A, r, c)[1] else 0.0)
            ),
            "the smaller one for good samples and the larger one for bad ones; it is the smaller "
            "one for both": answers(lambda A, r, c: (smaller if A > 0 else larger)(A, r, c)),
            "these are losses; you are asked for the objective, of which more is better": -answers(
                smaller
            ),
        },
        tolerance=6e-3,
    )


@EXERCISES.add("5.6 PPO-clip: the clipped surrogate in six cases")
def clip_the_probability(attempt: Attempt, generator: Generator) -> None:
    old = torch.tensor([0.5, 0.01, 0.5, 0.9], dtype=torch.float64)
    new = torch.tensor([0.7, 0.05, 0.3, 0.75], dtype=torch.float64)
    A = torch.tensor([1.0, 1.0, 1.0, -2.0], dtype=torch.float64)
    ratio = new / old
    arguments = (new.log(), old.log(), A, 0.1)

    def bounded(width: Tensor | float) -> Tensor:
        return ratio.clamp(torch.as_tensor(1 - width), torch.as_tensor(1 + width))

    near = bounded(0.1 / old)
    right = -torch.min(ratio * A, near * A)
    attempt.equal(
        attempt(*arguments),
        right,
        case="π_old = [0.5, 0.01, 0.5, 0.9], π = [0.7, 0.05, 0.3, 0.75], A = [1, 1, 1, −2], "
        "room 0.1",
        mistakes={
            "the *ratio* was kept within 1 ± room; here the *probability* may move by the room, so "
            "an unlikely token may become five times as likely": (
                -torch.min(ratio * A, bounded(0.1) * A)
            ),
            "the room was multiplied with π_old; from |π − π_old| ≤ room, divide by π_old": (
                -torch.min(ratio * A, bounded(0.1 * old) * A)
            ),
            "there is no clip at all": -ratio * A,
            "only the clipped product is used; where the policy has gone the wrong way, the "
            "gradient must be whole": -near * A,
            "the larger objective was kept: code that negates first has to take the maximum": (
                -torch.max(ratio * A, near * A)
            ),
            "that is the objective; a loss is its negative": -right,
            "the ratio is upside down: it is new over old": -torch.min(A / ratio, A / near),
            "the probability was used in the objective, where the ratio belongs; only the "
            "interval is different": -torch.min(ratio * A, near * A) * old,
        },
    )
    attempt.equal(
        attempt.gradient(*arguments),
        torch.tensor([0.0, -5.0, -0.6, 0.0], dtype=torch.float64),
        case="the gradient in log π, same four tokens",
        mistakes={
            "the values are right, but tokens whose probability has moved far enough still push; "
            "nothing may flow through a clipped product": -ratio * A,
        },
    )
    _sixty_tokens(attempt, generator)


def _sixty_tokens(attempt: Attempt, generator: Generator) -> None:
    for room in (0.02, 0.3):
        old, new = torch.rand(2, 60, generator=generator, dtype=torch.float64) * 0.9 + 0.05
        A = torch.randn(60, generator=generator, dtype=torch.float64)
        losses, slopes = [], []
        for p, q, a in zip(new.tolist(), old.tolist(), A.tolist(), strict=True):
            good_enough = a > 0 and p > q + room
            bad_enough = a < 0 and p < q - room
            kept = q + room if good_enough else q - room if bad_enough else p
            losses.append(-kept / q * a)
            slopes.append(0.0 if good_enough or bad_enough else -p / q * a)
        case = f"60 random tokens, room {room}"
        arguments = (new.log(), old.log(), A, room)
        attempt.equal(attempt(*arguments), torch.tensor(losses).double(), case=case)
        attempt.equal(
            attempt.gradient(*arguments), torch.tensor(slopes).double(), case=f"{case}, gradient"
        )


@EXERCISES.add("The variance of the ratio", travels="code")
def best_sampler(attempt: Attempt, generator: Generator) -> None:
    def share(weights: Tensor) -> Tensor:
        return weights / weights.sum()

    pi, r = torch.tensor([0.6, 0.2, 0.2]), torch.tensor([1.0, 0.0, -4.0])
    attempt.equal(
        attempt(pi, r),
        torch.tensor([3 / 7, 0.0, 4 / 7]),
        case="π = [0.6, 0.2, 0.2], rewards [1, 0, −4]",
        mistakes={
            "that is π itself; sampling from the policy of interest is not the best one can do": pi,
            "the mean square of the estimate is Σ π² r² / μ. Its minimum on Σ μ = 1 has a square "
            "root in it: yours is proportional to π² r²": share((pi * r) ** 2),
            "a reward counts with its absolute value: these probabilities are negative": share(
                pi * r
            ),
            "these do not add up to 1": pi * r.abs(),
            "how likely π makes an arm has been forgotten": share(r.abs()),
            "yours is proportional to π r²; it is the square root of π² r² that counts": share(
                pi * r**2
            ),
            "only rewards above 0 are sampled; then nothing is ever heard of the arm that costs 4, "
            "and the estimate is biased": share(pi * r.clamp(min=0)),
        },
    )
    for _ in range(3):
        pi = torch.randn(6, generator=generator, dtype=torch.float64).softmax(dim=0)
        r = torch.randn(6, generator=generator, dtype=torch.float64)
        mu = attempt.tensor(attempt(pi, r), (6,))
        least = _mean_square(pi, r, share(pi * r.abs()))
        attempt.holds(
            bool((mu > 0).all()) and abs(mu.sum().item() - 1) < 1e-6,
            "probabilities",
            otherwise="Six arms, all with a reward other than 0: what you returned are not six "
            "probabilities above 0 that add up to 1.",
        )
        found = _mean_square(pi, r, mu)
        attempt.holds(
            found < least * (1 + 1e-6),
            "no sampler has less variance",
            otherwise=f"Rewards of six arms: the mean square of π r / μ is {found:.4f} with your "
            f"sampler, and {least:.4f} is possible.",
        )
    weighted = pi * r.abs() / attempt.tensor(attempt(pi, r.abs()), (6,))
    attempt.holds(
        bool((weighted.max() - weighted.min()).abs() < 1e-6),
        "with rewards above 0 a single sample gives the exact mean",
        otherwise="With rewards above 0 the best sampler has no variance at all: π r / μ is the "
        "same for every arm. Yours differs from arm to arm.",
    )


def _mean_square(pi: Tensor, rewards: Tensor, mu: Tensor) -> float:
    return (pi**2 * rewards**2 / mu).sum().item()


@EXERCISES.add("5.5 PPO-penalty")
def penalty_optimum(attempt: Attempt, generator: Generator) -> None:
    half, plus_minus = torch.tensor([0.5, 0.5]).double(), torch.tensor([1.0, -1.0]).double()
    golden = (math.sqrt(5) - 1) / 2
    attempt.equal(
        attempt(half, plus_minus, 1.0),
        torch.tensor([0.5 / golden, 1 - 0.5 / golden]).double(),
        case="π_old = [0.5, 0.5], A = [1, −1], β = 1, where 0.5/(μ − 1) + 0.5/(μ + 1) = 1 for the "
        "golden ratio μ",
        mistakes={
            "that is π_old · exp(A/β), normalised: the optimum for KL(new‖old), the other order of "
            "the two. PPO's penalty is KL(old‖new)": _tilted(half, plus_minus, 1.0),
            "everything on the best arm: that is the optimum without the penalty": torch.tensor(
                [1.0, 0.0]
            ).double(),
            "the good arm became rarer: the sign of A is the wrong way round": torch.tensor(
                [1 - 0.5 / golden, 0.5 / golden]
            ).double(),
            "the shape β π_old / (μ − A) is right, but μ is not the best advantage plus β: it is "
            "the number with which they add up to 1 without being divided by their sum": (
                torch.tensor([0.75, 0.25]).double()
            ),
            "these do not add up to 1: μ = max A + β is only the upper end of where to look": (
                torch.tensor([1 / 2, 1 / 6]).double()
            ),
        },
        tolerance=1e-5,
    )
    old, A = torch.tensor([0.8, 0.2]).double(), torch.tensor([0.0, 1.0]).double()
    attempt.equal(
        attempt(old, A, 2.0),
        _penalised(old, A, 2.0),
        case="π_old = [0.8, 0.2], A = [0, 1], β = 2",
        mistakes={
            "β works the wrong way round: a larger one must keep the policy closer": _penalised(
                old, A, 0.5
            ),
            "π_old has been forgotten": _penalised(torch.full_like(old, 0.5), A, 2.0),
            "β has been forgotten": _penalised(old, A, 1.0),
        },
        tolerance=1e-5,
    )
    for beta in (0.05, 0.7, 20.0):
        old = torch.randn(5, generator=generator, dtype=torch.float64).softmax(dim=0)
        A = torch.randn(5, generator=generator, dtype=torch.float64)
        attempt.equal(
            attempt(old, A, beta),
            _penalised(old, A, beta),
            case=f"five random arms, β = {beta}",
            tolerance=1e-5,
        )
        attempt.equal(
            attempt(old, A + 100.0, beta),
            _penalised(old, A, beta),
            case="a constant added to all advantages, which changes nothing",
            tolerance=1e-5,
        )


def _tilted(old: Tensor, advantages: Tensor, beta: float) -> Tensor:
    return (old.log() + advantages / beta).softmax(dim=0)


def _penalised(old: Tensor, advantages: Tensor, beta: float) -> Tensor:
    """β π_old / (μ − A), by bisection: the sum falls from at least 1 to at most 1."""
    low, high = (advantages + beta * old).max(), advantages.max() + beta
    for _ in range(100):
        middle = (low + high) / 2
        if (beta * old / (middle - advantages)).sum() > 1:
            low = middle
        else:
            high = middle
    return beta * old / (high - advantages)
