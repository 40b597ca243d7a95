"""Checks of chapter 8: where a score is paid, and how it becomes credit for tokens."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("8.4 The KL penalty")
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
            "the score is spread over its step in equal parts; the sum is right, but it is not "
            "known before the step is complete": (
                torch.tensor(
                    [[0.5, 0.5, 10 / 3, 10 / 3, 10 / 3, 0.0], [6.0, 1.5, 1.5, 0.0, 0.0, 0.0]]
                )
            ),
            "score k is paid at token k; it belongs to the last token of step k": (
                torch.tensor([[1.0, 10.0, 0.0, 0.0, 0.0, 0.0], [6.0, 3.0, 0.0, 0.0, 0.0, 0.0]])
            ),
            "everything is paid at the end of the answer": (
                torch.tensor([[0.0, 0.0, 0.0, 0.0, 11.0, 0.0], [0.0, 0.0, 9.0, 0.0, 0.0, 0.0]])
            ),
        },
    )
    _random_scores(attempt, generator)


def _random_scores(attempt: Attempt, generator: Generator) -> None:
    scores = torch.randn(4, 3, generator=generator)
    rows, expected = [], torch.zeros(4, 9)
    for row, end in enumerate((9, 7, 8, 9)):
        first = int(torch.randint(1, 4, (), generator=generator))
        second = int(torch.randint(first + 1, end - 1, (), generator=generator))
        rows.append([0] * first + [1] * (second - first) + [2] * (end - second) + [-1] * (9 - end))
        for step, last in enumerate((first, second, end)):
            expected[row, last - 1] = scores[row, step]
    found = attempt.tensor(attempt(scores, torch.tensor(rows)), (4, 9))
    attempt.holds(
        bool((found[[0, 3], 8] == scores[[0, 3], 2]).all()),
        "a step that ends in the last column",
        otherwise="In a row without padding the last step ends in the last column, and its score "
        "has not been paid there. Nothing follows that could differ from it.",
    )
    attempt.equal(found, expected, case="four random answers of three steps")
    attempt.equal(
        attempt(torch.tensor([[5.0, 7.0]]), torch.tensor([[0, 0, 1]])),
        torch.tensor([[0.0, 5.0, 7.0]]),
        case="two steps that fill their row, scores 5 and 7",
    )
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


@EXERCISES.add("8.1 One answer, by hand", numbers=three_tokens)
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


@EXERCISES.add("Is the critic any good?")
def own_share(attempt: Attempt, generator: Generator) -> None:
    of_values = (7 / 8, 3 / 4, 1 / 2, 0.0)
    mean = sum(of_values) / 4
    attempt.equal(
        attempt(0.5, 4),
        mean,
        case="λ = ½, T = 4, where the weights are 7/8, 3/4, 1/2 and 0",
        mistakes={
            "that is the weight in the first token's target; the mean over the tokens was asked": (
                of_values[0]
            ),
            "that is the share of the rewards; the critic has the rest": 1 - mean,
            "after the last token comes nothing, so its target holds no value": (
                (15 / 16 + sum(of_values)) / 4
            ),
            "that is the sum over the tokens, not the mean": 4 * mean,
            "the mean was taken over the T − 1 targets that hold a value; the last one counts, "
            "with 0": 4 * mean / 3,
            "the mean of powers is not the power of the mean": 1 - 0.5**1.5,
            "that is 1 − λ, the weight of the next value alone; later ones are in the target, "
            "too": 3 / 4 * 1 / 2,
            "that is 1 − λ itself: the weight of the next value, as if every target had one and "
            "no later value": 1 / 2,
        },
    )
    attempt.equal(attempt(1.0, 30), 0.0, case="λ = 1, rewards alone", tolerance=1e-9)
    for _ in range(3):
        lam = 0.5 + torch.rand((), generator=generator).item() / 2
        tokens = int(torch.randint(2, 200, (), generator=generator))
        weights = [0.0]
        for _ in range(tokens - 1):
            weights.append(1 - lam + lam * weights[-1])
        attempt.equal(
            attempt(lam, tokens), sum(weights) / tokens, case=f"λ = {lam:.3f}, T = {tokens}"
        )


@EXERCISES.add("8.5 Credit for each token")
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
    _random_segments(attempt, generator)


def _random_segments(attempt: Attempt, generator: Generator) -> None:
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
    attempt.equal(
        attempt(*poisoned, segments, 0.8),
        expected,
        case="the same answers, with NaN in the padding",
        mistakes={
            "padded positions belong to no segment: select, do not multiply, since NaN times 0 is "
            "NaN": math.nan
        },
    )
    single = torch.zeros(3, 8, dtype=torch.long)
    attempt.equal(
        attempt(rewards, values, single, 0.3),
        (rewards.sum(dim=1) - values[:, 0])[:, None].expand(3, 8),
        case="one segment: the sum of the rewards minus V of the first state",
    )
