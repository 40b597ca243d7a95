"""Checks of chapter 2: whom a response is compared with, which rewards count, what a mean does."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("2.5 Which baseline?")
def mend_the_groups(attempt: Attempt, generator: Generator) -> None:
    layout = (
        "the rows are read as if all first rollouts came before all second ones; the rollouts to "
        "one prompt lie side by side"
    )
    attempt.equal(
        attempt(torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]), 3),
        torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
        case="rewards [1, 1, 1, 0, 0, 0], groups of 3",
        mistakes={
            layout: torch.tensor([2, 2, 2, 1, 1, 1]) / 3,
            f"{layout}; and so do the results": torch.tensor([2, 1, 2, 1, 2, 1]) / 3,
            "the means are right but their order is not: `repeat` repeats the whole row of means, "
            "each mean should be repeated on its own": torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]),
            "that is the mean of the whole batch, over both prompts": torch.full((6,), 0.5),
            "that is the sum of each group": torch.tensor([3.0, 3.0, 3.0, 0.0, 0.0, 0.0]),
        },
    )
    rewards = torch.randn(12, generator=generator)
    for group_size in (2, 4, 12):
        expected = torch.empty(12)
        for start in range(0, 12, group_size):
            expected[start : start + group_size] = (
                sum(rewards[start : start + group_size]) / group_size
            )
        attempt.equal(
            attempt(rewards, group_size),
            expected,
            case=f"12 rewards, groups of {group_size}",
            mistakes={
                "each one's own reward is left out; that is the leave-one-out baseline, and the "
                "mean of the whole group is asked for": (group_size * expected - rewards)
                / (group_size - 1)
            },
        )


def four_rewards(generator: Generator) -> Numbers:
    """Four different small rewards, so that no two advantages agree."""
    return {"rewards": (torch.randperm(9, generator=generator)[:4] + 1).tolist()}


@EXERCISES.add("2.1 Four rollouts, by hand", numbers=four_rewards)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    rewards = four_rewards(generator)["rewards"]
    total, best = sum(rewards), max(rewards)
    spread = math.sqrt(sum((r - total / 4) ** 2 for r in rewards) / 3)
    attempt.equal(
        attempt(),
        torch.tensor([r - (total - r) / 3 for r in rewards]),
        case=f"your rewards {rewards}",
        mistakes={
            "each reward is compared with the mean of all four, its own among them; compare it "
            "with the mean of the other three": torch.tensor([r - total / 4 for r in rewards]),
            "that is the other three's mean minus the reward: the sign is the wrong way round, and "
            "good rollouts would be made rarer": torch.tensor(
                [(total - r) / 3 - r for r in rewards]
            ),
            "the sum of the other three was divided by 4": torch.tensor(
                [r - (total - r) / 4 for r in rewards]
            ),
            "these are standard scores, distances from the mean in standard deviations; nothing "
            "is divided by a deviation here": torch.tensor(
                [(r - total / 4) / spread for r in rewards]
            ),
            "each reward is compared with the best one": torch.tensor(
                [float(r - best) for r in rewards]
            ),
            "these are the baselines; the advantage is the reward minus the baseline": torch.tensor(
                [(total - r) / 3 for r in rewards]
            ),
        },
        tolerance=6e-3,
    )


@EXERCISES.add("2.5 Which baseline?")
def unequal_groups(attempt: Attempt, generator: Generator) -> None:
    attempt.equal(
        attempt(torch.tensor([1.0, 0.0, 4.0, 1.0, 2.0]), torch.tensor([0, 0, 1, 1, 1])),
        torch.tensor([1.0, -1.0, 2.5, -2.0, -0.5]),
        case="rewards [1, 0 | 4, 1, 2] of two prompts",
        mistakes={
            "the baseline contains the response's own reward; divide the sum of the *others* by "
            "their number": torch.tensor([0.5, -0.5, 5 / 3, -4 / 3, -1 / 3]),
            "the others' rewards are added up and divided by the size of the whole group; they are "
            "one fewer": torch.tensor([1.0, -0.5, 3.0, -1.0, 1 / 3]),
            "the others of the whole batch are compared, also those that answered another prompt": (
                torch.tensor([-0.75, -2.0, 3.0, -0.75, 0.5])
            ),
            "the sign is the wrong way round: a reward above the others' mean is a positive "
            "advantage": torch.tensor([-1.0, 1.0, -2.5, 2.0, 0.5]),
        },
    )
    attempt.equal(
        attempt(torch.tensor([3.0, 1.0, 5.0]), torch.tensor([0, 1, 0])),
        torch.tensor([-2.0, 0.0, 2.0]),
        case="rewards [3, 1, 5] of the prompts [0, 1, 0]",
        mistakes={
            "prompt 1 has one response only, and its advantage came out as NaN: there are no "
            "others to divide by. Nothing to compare, nothing to learn: make it 0": math.nan,
            "a response without others has nothing to be compared with: its advantage is 0": (
                torch.tensor([-2.0, 1.0, 2.0])
            ),
            "the prompts are read in the order of the rows; here the two responses to prompt 0 do "
            "not lie side by side": torch.zeros(3),
        },
    )
    prompts = torch.randint(0, 4, (17,), generator=generator)
    rewards = torch.randn(17, generator=generator)
    expected = torch.zeros_like(rewards)
    for i in range(17):
        others = [rewards[j] for j in range(17) if j != i and prompts[j] == prompts[i]]
        if others:
            expected[i] = rewards[i] - sum(others) / len(others)
    attempt.equal(
        attempt(rewards, prompts),
        expected,
        case="17 responses to 4 prompts in any order",
        tolerance=1e-5,
    )


@EXERCISES.add("2.4 Rewards, returns, and why the past drops out")
def discounted_weights(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.tensor([[1.0, 2.0, 4.0], [8.0, 2.0, 99.0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    attempt.equal(
        attempt(rewards, mask, 0.5),
        torch.tensor([[3.0, 2.0, 1.0], [9.0, 1.0, 0.0]]),
        case="rewards [[1, 2, 4], [8, 2, pad]], γ = 0.5",
        mistakes={
            "the factor γᵗ in front is missing: in general these weights follow no objective": (
                torch.tensor([[3.0, 4.0, 4.0], [9.0, 2.0, 0.0]])
            ),
            "the token's own reward is missing: the sum begins at s = t": torch.tensor(
                [[2.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
            ),
            "each token got its own reward only; what comes later counts, too": torch.tensor(
                [[1.0, 1.0, 1.0], [8.0, 1.0, 0.0]]
            ),
            "the reward in the padding was counted": torch.tensor(
                [[3.0, 2.0, 1.0], [33.75, 25.75, 24.75]]
            ),
            "the reward in the padding was counted: it is cleared after the sum, and not before": (
                torch.tensor([[3.0, 2.0, 1.0], [33.75, 25.75, 0.0]])
            ),
            "every token got the whole discounted return, past rewards included": torch.tensor(
                [[3.0, 3.0, 3.0], [9.0, 9.0, 0.0]]
            ),
            "these sums run from the first token to this one; a token is to be credited with what "
            "comes *after* it": torch.tensor([[1.0, 2.0, 3.0], [8.0, 9.0, 0.0]]),
            "the first token is at t = 0, so its factor is γ⁰ = 1": torch.tensor(
                [[1.5, 1.0, 0.5], [4.5, 0.5, 0.0]]
            ),
        },
    )
    rewards = torch.randn(3, 5, generator=generator)
    lengths = (5, 1, 3)
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]

    def weights(gamma: float) -> Tensor:
        found = torch.zeros(3, 5)
        for b, length in enumerate(lengths):
            for t in range(length):
                found[b, t] = sum(gamma**s * float(rewards[b, s]) for s in range(t, length))
        return found

    attempt.equal(
        attempt(rewards, mask, 1.0),
        weights(1.0),
        case="γ = 1, where the weights are plain rewards to go",
        tolerance=1e-5,
    )
    attempt.equal(
        attempt(rewards.masked_fill(~mask, math.nan), mask, 0.9),
        weights(0.9),
        case="γ = 0.9 and NaN in the padding",
        mistakes={
            "the mask is multiplied in, and NaN times 0 is NaN; choose, as "
            "torch.where(mask, rewards, 0.0) does": math.nan
        },
        tolerance=1e-5,
    )


@EXERCISES.add("2.9 How this fails silently")
def length_bias(attempt: Attempt, generator: Generator) -> None:
    attempt.equal(
        attempt(math.log(3), 2.0, 1.0),
        0.28125,
        case="σ(θ) = 3/4, rewards 2 and 1: 3/4 · 2 · 1/4 − 1/4 · 1/2 · 3/4",
        mistakes={
            "that is the gradient of the expected reward; the estimator divides each response's "
            "sum by its length, and a token that was certain adds nothing to the sum": 0.1875,
            "the sign is that of the loss; you are asked for the direction in which θ is pushed": (
                -0.28125
            ),
            "that is the short response's share; the long one's first token pushes, too": 0.375,
            "the probabilities of the two responses are missing": 0.125,
            "that is E[R/|y|] itself; you are asked for the way in which θ changes it": 1.625,
            "the long response's share has the wrong sign: going on has the score −σ(θ)": 0.46875,
            "the short response was divided by 2 and the long one by 1": 0.0,
            "both were divided by 2; the short response has one token": 0.09375,
        },
    )
    for _ in range(3):
        theta, short, long = torch.randn(3, generator=generator, dtype=torch.float64).tolist()
        stop = 1 / (1 + math.exp(-theta))
        attempt.equal(
            attempt(theta, short, long),
            stop * (1 - stop) * (short - long / 2),
            case=f"θ = {theta:.2f}, rewards {short:.2f} and {long:.2f}",
        )
