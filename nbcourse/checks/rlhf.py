"""Checks of chapter 8: where a score is paid, what comparisons tell, how far to believe them."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercise, Numbers


def mend_the_step_scores(attempt: Attempt, generator: Generator) -> None:
    scores = torch.tensor([[1.0, 10.0], [6.0, 3.0]])
    steps = torch.tensor([[0, 0, 1, 1, 1, -1], [0, 1, 1, -1, -1, -1]])
    attempt.equal(
        attempt(scores, steps),
        torch.tensor([[0.0, 1.0, 0.0, 0.0, 10.0, 0.0], [6.0, 0.0, 3.0, 0.0, 0.0, 0.0]]),
        case="scores [[1, 10], [6, 3]], steps [[0, 0, 1, 1, 1, pad], [0, 1, 1, pad, pad, pad]]",
        mistakes={
            "every token of a step earns its score, and so does the padding: in all, the longer a "
            "step the more it is paid": (
                torch.tensor([[1.0, 1.0, 10.0, 10.0, 10.0, 1.0], [6.0, 3.0, 3.0, 6.0, 6.0, 6.0]])
            ),
            "the padding is gone, but every token of a step still earns its score; it is to be "
            "paid once": (
                torch.tensor([[1.0, 1.0, 10.0, 10.0, 10.0, 0.0], [6.0, 3.0, 3.0, 0.0, 0.0, 0.0]])
            ),
            "the score is paid at the first token of its step; then the tokens after it get no "
            "credit for the step": (
                torch.tensor([[1.0, 0.0, 10.0, 0.0, 0.0, 0.0], [6.0, 3.0, 0.0, 0.0, 0.0, 0.0]])
            ),
            "the score is paid one token too late, in the next step or in the padding": (
                torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 10.0], [0.0, 6.0, 0.0, 3.0, 0.0, 0.0]])
            ),
            "the score is spread over its step in equal parts; the sum is right, but nobody knows "
            "it before the step is complete": (
                torch.tensor(
                    [[0.5, 0.5, 10 / 3, 10 / 3, 10 / 3, 0.0], [6.0, 1.5, 1.5, 0.0, 0.0, 0.0]]
                )
            ),
            "everything is paid at the end of the answer": (
                torch.tensor([[0.0, 0.0, 0.0, 0.0, 11.0, 0.0], [0.0, 0.0, 9.0, 0.0, 0.0, 0.0]])
            ),
        },
    )
    scores = torch.randn(4, 3, generator=generator)
    rows, expected = [], torch.zeros(4, 9)
    for row, end in enumerate((9, 7, 8, 9)):
        first = int(torch.randint(1, 4, (), generator=generator))
        second = int(torch.randint(first + 1, end - 1, (), generator=generator))
        rows.append([0] * first + [1] * (second - first) + [2] * (end - second) + [-1] * (9 - end))
        for step, last in enumerate((first, second, end)):
            expected[row, last - 1] = scores[row, step]
    found = attempt(scores, torch.tensor(rows))
    attempt.tensor(found, (4, 9))
    attempt.holds(
        bool((found[[0, 3], 8] == scores[[0, 3], 2]).all()),
        "a step that ends in the last column",
        otherwise="In a row without padding the last step ends in the last column, and its score "
        "has not been paid there. Nothing follows that could differ from it.",
    )
    attempt.equal(found, expected, case="four random answers of three steps")
    attempt.equal(
        attempt(torch.tensor([[5.0]]), torch.zeros(1, 3, dtype=torch.long)),
        torch.tensor([[0.0, 0.0, 5.0]]),
        case="a single step that fills its row, score 5",
        mistakes={
            "the last token was compared with the first one, as `roll` does; it has no neighbour "
            "on the right, so its step ends there": torch.zeros(1, 3),
        },
    )


def three_tokens(generator: Generator) -> Numbers:
    """An answer of three tokens: its log-ratios to the reference, and the critic's values.

    The values are such that the last TD error is not 0, and none is half of the next one.
    """
    tenths = torch.tensor([-4, -3, -2, 2, 3, 4])
    log_ratios = tenths[torch.randperm(6, generator=generator)[:3]].tolist()
    values = (torch.randperm(6, generator=generator)[:3] + 2).tolist()
    return {"log_ratios": [d / 10 for d in log_ratios], "values": [v / 10 for v in values]}


def by_hand(attempt: Attempt, generator: Generator) -> None:
    numbers = three_tokens(generator)
    d, V = (torch.tensor(numbers[name]).double() for name in ("log_ratios", "values"))
    paid = torch.tensor([0.0, 0.0, 1.0]).double()

    def answer(rewards: Tensor, *, lam: float = 0.5, after: float = 0.0) -> Tensor:
        return torch.stack([rewards, _advantages(rewards, V, lam, after)])

    right = answer(paid - 0.5 * d)
    attempt.equal(
        attempt(),
        right,
        case=f"your log-ratios {numbers['log_ratios']} and values {numbers['values']}",
        mistakes={
            "leaving the reference is rewarded: the penalty is minus β times the log-ratio": answer(
                paid + 0.5 * d
            ),
            "the factor β = 1/2 is missing; the log-ratio itself was subtracted": answer(paid - d),
            "every token earns the score; it is paid once, at the last": answer(1.0 - 0.5 * d),
            "the score is missing": answer(-0.5 * d),
            "the rewards are right, the advantages are those for λ = 1": answer(
                paid - 0.5 * d, lam=1.0
            ),
            "the rewards are right; the second row holds the TD errors δ, without what follows": (
                answer(paid - 0.5 * d, lam=0.0)
            ),
            "the rewards are right; the second row holds the critic's targets A + V": torch.stack(
                [right[0], right[1] + V]
            ),
            "after the last token comes nothing, so its next value is 0 and not the value of the "
            "last state": answer(paid - 0.5 * d, after=V[2].item()),
            "the rewards are right; the TD errors have the wrong sign: what came, minus what was "
            "expected": torch.stack([right[0], -right[1]]),
        },
        tolerance=6e-3,
    )


def _advantages(rewards: Tensor, values: Tensor, lam: float, after: float = 0.0) -> Tensor:
    """GAE of one answer with γ = 1; `after` stands in for the value after its end."""
    found, following, next_value = [], 0.0, after
    for reward, value in zip(rewards.tolist()[::-1], values.tolist()[::-1], strict=True):
        following = reward + next_value - value + lam * following
        next_value = value
        found.append(following)
    return torch.tensor(found[::-1], dtype=torch.float64)


def fool_the_batch_mean(attempt: Attempt, generator: Generator) -> None:
    for prompts, apart in ((2, 0.0), (3, 0.0), (6, 50.0)):
        scores = 3 * torch.randn(prompts, 4, generator=generator)
        scores += apart * torch.arange(prompts)[:, None]
        other = attempt(scores)
        attempt.tensor(other, (prompts, 4))
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
    attempt.equal(
        attempt.gradient(*arguments),
        _tie_gradient([math.log(4), 0.0, -math.log(16)], [1, 0, 1], 2.0),
        case="the gradient in the first scores",
    )
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


def segment_credit(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0, 4.0, 7.0]], dtype=torch.float64)
    values = torch.tensor([[2.0, 8.0, 3.0, 8.0, 8.0, 5.0]], dtype=torch.float64)
    segments = torch.tensor([[0, 0, 1, 1, 1, -1]])

    def spread(first: float, second: float) -> Tensor:
        return torch.tensor([[first, first, second, second, second, 0.0]], dtype=torch.float64)

    token_by_token = _advantages(rewards[0, :5], values[0, :5], 0.5).tolist()
    attempt.equal(
        attempt(rewards, values, segments, 0.5),
        spread(2.5, 1.0),
        case="rewards [1, 0 | 0, 0, 4 | pad], values [2, 8 | 3, 8, 8 | pad], λ = ½",
        mistakes={
            "that is GAE token by token; here a whole segment is one action, with one advantage": (
                torch.tensor([[*token_by_token, 0.0]], dtype=torch.float64)
            ),
            "λ has been forgotten": spread(3.0, 1.0),
            "these are the TD errors δ of the segments, without what follows": spread(2.0, 1.0),
            "the values are those of a segment's last token; the state in which the segment was "
            "begun is that of its first": spread(-1.0, -4.0),
            "the values inside a segment were averaged; only the state at its beginning is one in "
            "which something is decided": spread(1 + 19 / 3 - 5 + 0.5 * (4 - 19 / 3), 4 - 19 / 3),
            "after the last segment comes nothing; a value from the padding was counted": spread(
                5.0, 6.0
            ),
            "the rewards of a segment were averaged; they add up": spread(
                0.5 + 3 - 2 + 0.5 * (4 / 3 - 3), 4 / 3 - 3
            ),
            "the advantage belongs to every token of the segment": torch.tensor(
                [[0.0, 2.5, 0.0, 0.0, 1.0, 0.0]], dtype=torch.float64
            ),
        },
    )
    rewards, values = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)
    segments = torch.tensor(
        [[0, 0, 0, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 2, 3, -1], [0, 0, 0, 0, 0, -1, -1, -1]]
    )
    expected = torch.zeros(3, 8, dtype=torch.float64)
    for b, row in enumerate(segments.tolist()):
        parts = [[t for t in range(8) if row[t] == k] for k in range(max(row) + 1)]
        R = torch.stack([rewards[b, part].sum() for part in parts])
        V = torch.stack([values[b, part[0]] for part in parts])
        for part, A in zip(parts, _advantages(R, V, 0.8).tolist(), strict=True):
            expected[b, part] = A
    attempt.equal(attempt(rewards, values, segments, 0.8), expected, case="three answers, λ = 0.8")
    padding = segments < 0
    poisoned = [x.masked_fill(padding, math.nan) for x in (rewards, values)]
    attempt.holds(
        bool(
            torch.equal(attempt(*poisoned, segments, 0.8), attempt(rewards, values, segments, 0.8))
        ),
        "NaN in the padding",
        otherwise="With NaN in the padding the advantages change. Padded positions belong to no "
        "segment: select, do not multiply, since NaN times 0 is NaN.",
    )
    single = torch.zeros(3, 8, dtype=torch.long)
    attempt.equal(
        attempt(rewards, values, single, 0.3),
        (rewards.sum(dim=1) - values[:, 0])[:, None].expand(3, 8),
        case="one segment: the sum of the rewards minus V of the first state",
    )


EXERCISES = {
    "mend-the-step-scores": Exercise("8.4 The KL penalty", mend_the_step_scores),
    "by-hand": Exercise("8.1 One answer, by hand", by_hand, three_tokens),
    "fool-the-batch-mean": Exercise("Only differences are identified", fool_the_batch_mean),
    "ties": Exercise("9.1 A reward model from comparisons", ties),
    "how-far-to-go": Exercise("9.2 Reward hacking", how_far_to_go),
    "segment-credit": Exercise("8.5 Credit for each token", segment_credit),
}
