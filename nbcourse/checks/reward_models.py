"""Checks of chapter 9: where a score is read, what comparisons tell, how far to trust them."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("9.2 A reward model from comparisons")
def mend_the_last_score(attempt: Attempt, generator: Generator) -> None:
    numbers = torch.tensor([[1.0, 2.0, 3.0, 4.0], [50.0, 60.0, 80.0, -7.0]])
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    attempt.equal(
        attempt(numbers, mask),
        torch.tensor([4.0, 60.0]),
        case="numbers [[1, 2, 3, 4], [50, 60, pad, pad]]",
        mistakes={
            "the last column was read, which is padding for every answer but the longest": (
                torch.tensor([4.0, -7.0])
            ),
            "that is the first token, which has seen nothing of the answer": (
                torch.tensor([1.0, 50.0])
            ),
            "that is one position too late: n tokens occupy the columns 0 to n − 1": (
                torch.tensor([4.0, 80.0])
            ),
            "that is one position too early; the last token has been forgotten": (
                torch.tensor([3.0, 50.0])
            ),
            "the numbers of an answer were averaged; only the last has seen the whole answer": (
                torch.tensor([2.5, 55.0])
            ),
            "the numbers of an answer were added up; then long answers score more": (
                torch.tensor([10.0, 110.0])
            ),
        },
    )
    holes = torch.tensor([[True, False, True, False], [False, True, True, True]])
    attempt.equal(
        attempt(numbers, holes),
        torch.tensor([3.0, -7.0]),
        case="two answers with holes in their masks",
        mistakes={
            "the tokens were counted, and the count taken for a place; with a hole in the mask the "
            "last token is further right": torch.tensor([2.0, 80.0]),
            "the search stopped at the first hole": torch.tensor([1.0, -7.0]),
        },
    )
    numbers = torch.randn(6, 9, generator=generator)
    mask = torch.rand(6, 9, generator=generator) < 0.5
    mask[:, 1] = True
    expected = torch.stack([row[kept][-1] for row, kept in zip(numbers, mask, strict=True)])
    attempt.equal(attempt(numbers, mask), expected, case="six random answers")
    attempt.equal(
        attempt(numbers.masked_fill(~mask, math.nan), mask),
        expected,
        case="NaN where the mask is False",
        mistakes={
            "NaN times 0 is NaN, and so is a sum that contains it: select, do not multiply": (
                math.nan
            ),
        },
    )


def three_answers(generator: Generator) -> Numbers:
    """Exponentials of three scores: all different, and no fraction equal to another one's rest."""
    weights = torch.tensor([1, 2, 3, 5, 8, 12])[torch.randperm(6, generator=generator)[:3]]
    return {"a, b, c": weights.tolist()}


@EXERCISES.add("9.1 Three comparisons, by hand", numbers=three_answers)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    a, b, c = three_answers(generator)["a, b, c"]

    def answer(first: float, second: float, *, share: float = 0.5, sign: int = 1) -> Tensor:
        up, down = share * (1 - first), share * (1 - second)
        push = sign * torch.tensor([up - down, -up, down], dtype=torch.float64)
        return torch.cat([torch.tensor([first, second], dtype=torch.float64), push])

    def logistic(u: float) -> float:
        return 1 / (1 + math.exp(-u))

    first, second = a / (a + b), c / (c + a)
    right = answer(first, second)
    with_p = torch.tensor([first, second, (first - second) / 2, -first / 2, second / 2])
    one_sided = right.clone()
    one_sided[2] = (1 - first) / 2
    attempt.equal(
        attempt(),
        right,
        case=f"your numbers a, b, c = {a}, {b}, {c}",
        mistakes={
            "the probabilities are those of the opposite choices": answer(1 - first, 1 - second),
            "in the second comparison it was C that was preferred to A": torch.tensor(
                [first, 1 - second, (1 - first + second) / 2, -(1 - first) / 2, -second / 2]
            ).double(),
            "a, b and c themselves were taken for the scores; the scores are their logarithms": (
                answer(logistic(a - b), logistic(c - a))
            ),
            "the probabilities are right; the pushes are those of the sum of the losses, twice "
            "those of the mean": answer(first, second, share=1.0),
            "the probabilities are right; the pushes have the wrong sign: they are minus the "
            "derivative, upwards for the answer that was preferred": answer(first, second, sign=-1),
            "the probabilities are right; a push is what the model had *not* expected, 1 − P and "
            "not P": with_p.double(),
            "nearly: A was in both comparisons, and the second pushes it down": one_sided,
        },
        tolerance=6e-4,
    )


@EXERCISES.add("9.3 Only differences are identified", travels="code")
def fool_the_batch_mean(attempt: Attempt, generator: Generator) -> None:
    for prompts, apart in ((2, 0.0), (3, 0.0), (6, 50.0)):
        scores = 3 * torch.randn(prompts, 4, generator=generator)
        scores[:, :2] = torch.tensor([-6.0, 6.0])  # so no row is of one sign as it comes
        scores += apart * torch.arange(prompts)[:, None]
        other = attempt.tensor(attempt(scores), (prompts, 4))
        attempt.holds(
            bool(torch.isfinite(other).all()),
            "finite scores",
            otherwise="Some of the scores are NaN or infinite. A finite offset is enough.",
        )
        before, after = (s - s[:, :1] for s in (scores, other))
        attempt.holds(
            bool((before - after).abs().max() < 1e-2),
            "the same preferences",
            otherwise="Within a prompt, the differences between scores are not what they were, so "
            "this reward model predicts other choices. Likely mistake: scores were scaled, moved "
            "one by one, or moved so far that float32 has rounded the differences away.",
        )
        advantages = other - other.mean()
        fooled = bool((advantages[0::2] > 0).all() and (advantages[1::2] < 0).all())
        the_other_way = bool((advantages[0::2] < 0).all() and (advantages[1::2] > 0).all())
        attempt.holds(
            not the_other_way,
            "the right prompts",
            otherwise="That is the wrong way round: prompts number 0, 2, 4, … are the ones whose "
            "answers should all look good.",
        )
        attempt.holds(
            fooled,
            f"{prompts} prompts: the batch mean is fooled",
            otherwise=f"With {prompts} prompts of 4 answers, minus the mean of the batch, the "
            f"signs are {_signs(advantages)}. The rows should be +, −, +, −, … throughout: move "
            "each prompt by an offset of its own, at least twice what the scores differ by.",
        )


def _signs(advantages: Tensor) -> str:
    return " ".join("".join("+" if a > 0 else "−" for a in row) for row in advantages.tolist())


@EXERCISES.add("9.2 A reward model from comparisons")
def ties(attempt: Attempt, generator: Generator) -> None:
    first = torch.tensor([math.log(4), 0.0, 0.0], dtype=torch.float64)
    second = torch.tensor([0.0, 0.0, math.log(16)], dtype=torch.float64)
    outcomes = torch.tensor([1, 0, 1])
    arguments = (first, second, outcomes, 2.0)
    attempt.equal(
        attempt(*arguments),
        (math.log(9 / 4) + math.log(2) + math.log(25)) / 3,
        case="differences log 4, 0, −log 16, outcomes 1, tie, 1, ν = 2, where the probabilities "
        "are 4/9, 1/2, 1/25",
        mistakes={
            "ties were dropped; that two answers are equally good is news, too": (
                _tie_loss([math.log(4), -math.log(16)], [1, 1], 0.0)
            ),
            "a tie was counted as half a win and half a defeat; that is another model, in which "
            "ties have no probability of their own": -(
                math.log(0.8) + math.log(0.5) + math.log(1 / 17)
            )
            / 3,
            "the difference counts twice: u/2 and −u/2 are the logits of winning and losing, so "
            "that they are u apart": _tie_loss(
                [2 * math.log(4), 0.0, -2 * math.log(16)], [1, 0, 1], 2
            ),
            "ν is a weight beside exponentials; as a logit it is log ν": _tie_loss(
                [math.log(4), 0.0, -math.log(16)], [1, 0, 1], math.exp(2)
            ),
            "that is the sum over comparisons, not the mean": (
                math.log(9 / 4) + math.log(2) + math.log(25)
            ),
            "the outcomes are read the wrong way round: 1 means that the first was preferred": (
                _tie_loss([math.log(4), 0.0, -math.log(16)], [-1, 0, -1], 2)
            ),
            "that is the mean log-likelihood; the loss is its negative": -(
                math.log(9 / 4) + math.log(2) + math.log(25)
            )
            / 3,
        },
    )
    slopes = _tie_gradient([math.log(4), 0.0, -math.log(16)], [1, 0, 1], 2.0)
    for wrt, expected in enumerate((slopes, -slopes)):
        attempt.equal(
            attempt.gradient(*arguments, wrt=wrt),
            expected,
            case=f"the gradient in the {('first', 'second')[wrt]} scores",
        )
    _thirty_comparisons(attempt, generator)


def _thirty_comparisons(attempt: Attempt, generator: Generator) -> None:
    first, second = torch.randn(2, 30, generator=generator, dtype=torch.float64)
    outcomes = torch.randint(-1, 2, (30,), generator=generator)
    expected = _tie_loss((first - second).tolist(), outcomes.tolist(), 0.7)
    attempt.equal(attempt(first, second, outcomes, 0.7), expected, case="30 random comparisons")
    offset = torch.randn(30, generator=generator, dtype=torch.float64)
    attempt.equal(
        attempt(first + offset, second + offset, outcomes, 0.7),
        expected,
        case="an offset for each prompt, which changes nothing",
    )
    attempt.equal(
        attempt(torch.tensor([2000.0]), torch.tensor([0.0]), torch.tensor([-1]), 1.0),
        2000.0,
        case="a difference of 2,000, and the choice was the other one",
        mistakes={
            "an exponential has overflowed, since e¹⁰⁰⁰ is infinite in floating point; use "
            "log_softmax, or logsumexp": math.inf,
        },
    )


def _tie_loss(differences: list[float], outcomes: list[int], nu: float) -> float:
    total = 0.0
    for u, outcome in zip(differences, outcomes, strict=True):
        weights = {1: math.exp(u / 2), 0: nu, -1: math.exp(-u / 2)}
        total -= math.log(weights[outcome] / sum(weights.values()))
    return total / len(outcomes)


def _tie_gradient(differences: list[float], outcomes: list[int], nu: float) -> Tensor:
    """Of the loss in each difference: half of what was expected of it minus what came."""
    slopes = []
    for u, outcome in zip(differences, outcomes, strict=True):
        win, lose = math.exp(u / 2), math.exp(-u / 2)
        slopes.append(((win - lose) / (win + nu + lose) - outcome) / 2 / len(outcomes))
    return torch.tensor(slopes, dtype=torch.float64)


@EXERCISES.add("9.6 Choosing β")
def how_far_to_go(attempt: Attempt, generator: Generator) -> None:
    log2 = math.log(2)
    of_kl = (2 - 2 * (2 - log2) / 4) / math.log(4)  # β of the curve through both with d = KL
    attempt.equal(
        attempt(torch.tensor([1.0, 4.0]).double(), torch.tensor([2.0, 2 * (2 - log2)]).double()),
        math.exp(2),
        case="gains of 2 at 1 nat and 2 (2 − log 2) at 4 nats, where a = 2 and b = 1",
        mistakes={
            "that is the distance d at the peak; its KL is d²": math.e,
            "that is where the gain is 0 again; at the peak it is the derivative that is 0": (
                math.exp(4)
            ),
            "the distance is the square root of the KL, and not the KL": math.exp(2 / of_kl - 1),
            "the distance is the square root of the KL, and not the KL; and you have squared it "
            "afterwards": math.exp(2 / of_kl - 1) ** 2,
            "that is the best of the measured ones; the curve says where the peak will be": 4.0,
            "a parabola d (a − b d) was fitted; that is the curve for best-of-n": (
                ((2 + log2) / (2 * log2)) ** 2
            ),
            "the derivative of d log d is log d + 1; you have taken log d − 1": math.exp(6),
        },
        tolerance=1e-4,
    )
    for _ in range(2):
        d = torch.linspace(0.4, 2.2, 12, dtype=torch.float64)
        noise = 0.02 * torch.randn(12, generator=generator, dtype=torch.float64)
        gains = d * (1.2 - 0.6 * d.log()) + noise
        attempt.equal(
            attempt(d**2, gains),
            _peak(d, gains, d),
            case="twelve noisy measurements",
            mistakes={
                "gain / d was fitted as a straight line in log d, which weighs the first "
                "measurements most; the squares of the errors of the *gains* should be least": (
                    _peak(d, gains, torch.ones_like(d))
                ),
                "only two of the twelve measurements were used": _peak(
                    d[[0, -1]], gains[[0, -1]], d[[0, -1]]
                ),
            },
            tolerance=1e-4,
        )
        attempt.equal(
            attempt(d**2, 7 * gains),
            _peak(d, gains, d),
            case="the same gains in another unit, which moves no peak",
            tolerance=1e-4,
        )


def _peak(d: Tensor, gains: Tensor, weight: Tensor) -> float:
    """KL at the peak of d (a − b log d); weight² times the squared error of gain / d is least."""
    x, y = weight * -d.log(), weight * gains / d
    ww, wx, xx = (weight @ weight).item(), (weight @ x).item(), (x @ x).item()
    wy, xy = (weight @ y).item(), (x @ y).item()
    a, b = (wy * xx - xy * wx), (xy * ww - wy * wx)  # both times the same determinant
    return math.exp(2 * (a / b - 1))
