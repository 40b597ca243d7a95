"""Checks of chapter 4: what a loss moves, one update by hand, what a monitor sees, weights γᵗ."""

from typing import Any

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, as_lists, as_tensor
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("4.1 One agent, line by line")
def mend_the_gradient(attempt: Attempt, generator: Generator) -> None:
    log_probs, rewards = torch.tensor([-1.0, -2.0]), torch.tensor([2.0, 0.0])
    values = torch.tensor([2.0, 4.0, 2.0])
    case = "log π [-1, -2], values [2, 4, 2], rewards [2, 0], γ = 0.5"
    attempt.equal(
        attempt(log_probs, values, rewards, 0.5),
        -0.375,
        case=case,
        mistakes={
            "the policy's loss has the wrong sign: it is −Â log π": 3.625,
            "the critic's loss, itself half a mean square, counts only half": 1.25,
            "the critic's loss is half a mean square, and half of that counts": 4.5,
            "the critic's loss is missing": -2.0,
            "a sum was taken instead of a mean": -0.75,
            "γ is missing in the TD errors": 2.5,
        },
    )
    attempt.equal(
        attempt.gradient(log_probs, values, rewards, 0.5),
        torch.tensor([-1.0, 1.5]),
        case=f"the gradient of the log-probabilities, {case}",
    )

    def moved(*, baseline: bool = False, following: bool = False, target: bool = False) -> Tensor:
        """The gradient of the values, where these may move besides the predictions."""
        right = torch.tensor([-0.5, 0.75, 0.0])
        by_baseline = torch.tensor([-0.5, -1.0, 0.0])
        by_following = torch.tensor([0.0, 0.25, 0.5])
        by_target = torch.tensor([0.0, 0.25, -0.375])
        return right + baseline * by_baseline + following * by_following + target * by_target

    attempt.equal(
        attempt.gradient(log_probs, values, rewards, 0.5, wrt=1),
        moved(),
        case=f"the gradient of the values, {case}",
        mistakes={
            "nothing is detached, as in the broken loss": moved(
                baseline=True, following=True, target=True
            ),
            "the policy's loss moves the critic: its advantages are not detached": moved(
                baseline=True, following=True
            ),
            "the policy's loss still moves the critic, through the value that is subtracted; the "
            "whole advantage is a number": moved(baseline=True),
            "the policy's loss is right, but the target is not detached: the critic moves the "
            "value that it learns from": moved(target=True),
            "only the value of the present state is detached in the advantage, and nothing in the "
            "target": moved(following=True, target=True),
            "the critic learns in the wrong direction": -moved(),
        },
    )
    _five_random_steps(attempt, generator)


def _five_random_steps(attempt: Attempt, generator: Generator) -> None:
    """The same for random numbers, of either sign."""
    log_probs = -torch.rand(5, generator=generator, dtype=torch.float64)
    values = torch.randn(6, generator=generator, dtype=torch.float64)
    rewards = torch.randn(5, generator=generator, dtype=torch.float64)
    rewards[1], rewards[3] = -rewards[1].abs() - 0.5, rewards[3].abs() + 0.5  # of either sign
    td_error = rewards + 0.9 * values[1:] - values[:-1]
    attempt.equal(
        attempt(log_probs, values, rewards, 0.9),
        float(0.25 * td_error.square().mean() - (td_error * log_probs).mean()),
        case="the value for five random steps",
    )
    found = attempt.gradient(log_probs, values, rewards, 0.9, wrt=1)
    expected = torch.cat([-td_error / 10, torch.zeros(1, dtype=torch.float64)])
    attempt.equal(found, expected, case="the gradient of the values for five random steps")


SQUARES = ((2, 6, 9), (2, 3, 6), (1, 4, 8), (4, 4, 7))  # with a whole number as their norm


def three_states(generator: Generator) -> Numbers:
    """A step to the right and one to the left at least; a gradient longer than ½ in any case."""

    def draw(count: int) -> int:
        return int(torch.randint(0, count, (1,), generator=generator))

    sizes, order = SQUARES[draw(4)], torch.randperm(3, generator=generator).tolist()
    third = ("left", "right")[draw(2)]
    actions = [("left", "right", third)[i] for i in torch.randperm(3, generator=generator).tolist()]
    right = [(0.2, 0.5, 0.8)[i] for i in torch.randperm(3, generator=generator).tolist()]
    signs = [(-1, 1)[draw(2)] for _ in range(3)]
    advantages = [
        round(sign * sizes[i] / (1 - p if action == "right" else p), 2)
        for sign, i, action, p in zip(signs, order, actions, right, strict=True)
    ]
    return {"right": right, "actions": actions, "advantages": advantages}


@EXERCISES.add("4.1 One agent, line by line", numbers=three_states)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    given = three_states(generator)
    went = torch.tensor([float(a == "right") for a in given["actions"]], dtype=torch.float64)
    p = torch.tensor(given["right"], dtype=torch.float64)
    advantages = torch.tensor(given["advantages"], dtype=torch.float64)

    def limited(step: Tensor) -> Tensor:
        return step * min(1.0, 0.5 / float(step.norm()))

    step = advantages * (went - p) / 3
    attempt.equal(
        attempt(),
        limited(step),
        case=f"your three states {given}",
        mistakes={
            "the gradient was not limited: if its norm is above ½, it is scaled down to ½": step,
            "the gradient was neither limited nor divided by 3, the number of steps": 3 * step,
            "each of the three was limited by itself; the norm is that of the three together": (
                step.clamp(-0.5, 0.5)
            ),
            "that is the gradient of the loss; descent goes the other way": limited(-step),
            "the norm was brought down to 1, and the limit is ½": 2 * limited(step),
            "the derivative of log π(left) with respect to θ is −p: to make left likelier, θ must "
            "fall": limited(advantages * torch.where(went > 0, 1 - p, p)),
            "p and 1 − p are exchanged: after right the derivative is 1 − p": limited(
                advantages * torch.where(went > 0, p, p - 1)
            ),
            "the derivative of log π is not just plus or minus one: it is smaller, the likelier "
            "the action was": limited(advantages * (2 * went - 1)),
        },
        tolerance=6e-3,
    )


def _explained(values: Tensor, returns: Tensor) -> float:
    mean_error = (returns - values).mean()
    unexplained = (returns - values - mean_error).square().mean()
    return 1 - float(unexplained / (returns - returns.mean()).square().mean())


@EXERCISES.add("4.3 How this fails silently", travels="code")
def fool_the_monitor(attempt: Attempt, generator: Generator) -> None:
    result = attempt()
    attempt.holds(
        isinstance(result, dict) and set(result) == {"flattered", "slandered"},
        "two batches",
        otherwise='Expected a dict with the two entries "flattered" and "slandered".',
    )
    result = {
        name: [as_tensor(x) for x in batch] if isinstance(batch, list) else batch
        for name, batch in zip(result, as_lists(list(result.values())), strict=True)
    }
    for name, batch in result.items():
        attempt.holds(
            isinstance(batch, list)
            and len(batch) == 2
            and all(isinstance(x, Tensor) and x.dim() == 1 and len(x) >= 4 for x in batch),
            "values and returns",
            otherwise=f"{name!r} must hold two tensors, the values and the returns, of four "
            "numbers or more.",
        )
        attempt.tensor(batch[0], tuple(batch[1].shape))
        returns = batch[1].double()
        attempt.holds(
            float(returns.min()) >= 0 and float(returns.max()) <= 1,
            "returns between 0 and 1",
            otherwise=f"{name!r}: the returns must lie between 0 and 1.",
        )
        attempt.holds(
            float(returns.max() - returns.min()) > 1e-6,
            "something to explain",
            otherwise=f"{name!r}: all returns are the same, so there is no variance to divide by, "
            "and the explained variance is not a number. Let them differ a little.",
        )
    _verdicts_on(attempt, result)


def _verdicts_on(attempt: Attempt, result: dict[str, Any]) -> None:
    """What the monitor says of the two batches."""
    values, returns = (x.double() for x in result["flattered"])
    explained, least = _explained(values, returns), float((values - returns).abs().min())
    attempt.holds(
        least >= 99.99,
        "a critic that is off by 100 everywhere",
        otherwise=f"'flattered': one of the values is wrong by {least:.4g} only; be bold.",
    )
    attempt.holds(
        explained >= 0.99,
        "and is told that it explains everything",
        otherwise=f"'flattered': the explained variance is {explained:.4g}. Every value is far "
        "off, but not by the *same* amount; a variance is blind to an offset that all share.",
    )
    values, returns = (x.double() for x in result["slandered"])
    explained, most = _explained(values, returns), float((values - returns).abs().max())
    attempt.holds(
        most <= 0.01 + 1e-6,
        "a critic that is nowhere off by more than 0.01",
        otherwise=f"'slandered': one of the values is wrong by {most:.4g}. Do not make the "
        "numerator large; make the denominator small.",
    )
    attempt.holds(
        explained <= 1e-9,
        "and explains nothing",
        otherwise=f"'slandered': the explained variance is {explained:.4g}: beside the spread of "
        "your returns the errors are small. Let the returns hardly differ.",
    )
    attempt.holds(
        explained < -1,
        "worse than nothing, says the monitor",
        otherwise=f"'slandered': the explained variance is {explained:.4g}. A critic that always "
        "predicts the same has 0. To fall below −1, it must vary more than the returns do, or "
        "against them.",
    )


def _both(attempt: Attempt, result: Any) -> tuple[Tensor, Tensor]:
    result = as_lists(result)
    attempt.holds(
        isinstance(result, list) and len(result) == 2,
        "weights and ages",
        otherwise="Expected two tensors, the weights and the ages for the next table.",
    )
    return as_tensor(result[0]), as_tensor(result[1])


@EXERCISES.add("4.1 One agent, line by line")
def forgotten_discount(attempt: Attempt, generator: Generator) -> None:
    ages, yes = torch.tensor([1, 0]), torch.ones(5, 2, dtype=torch.bool)
    end = torch.arange(5)[:, None] == 1
    terminated, truncated = end & torch.tensor([True, False]), end & torch.tensor([False, True])
    mask = yes & ~((torch.arange(5)[:, None] == 2) & torch.tensor([False, True]))
    case = (
        "two environments and five rows, γ = 0.5: the first has made 1 step before and terminates "
        "at t = 1; the second is new, is truncated at t = 1, and t = 2 only resets it"
    )

    def columns(first: list[float], second: list[float]) -> Tensor:
        return torch.tensor([first, second]).T

    one, two = [0.5, 0.25, 1.0, 0.5, 0.25], [1.0, 0.5, 0.0, 1.0, 0.5]
    weights, older = _both(attempt, attempt(ages, terminated, truncated, mask, 0.5))
    attempt.equal(
        weights,
        columns(one, two),
        case=case,
        mistakes={
            "a new episode does not begin anew: after an end the age is 0": columns(
                [0.5, 0.25, 0.125, 0.0625, 0.03125], [1.0, 0.5, 0.0, 0.25, 0.125]
            ),
            "only a termination begins a new episode; after a truncation comes one as well": (
                columns(one, [1.0, 0.5, 0.0, 0.25, 0.125])
            ),
            "only a truncation begins a new episode; after a termination comes one as well": (
                columns([0.5, 0.25, 0.125, 0.0625, 0.03125], two)
            ),
            "the row that only resets made the episode older; it is not a step": columns(
                one, [1.0, 0.5, 0.0, 0.5, 0.25]
            ),
            "the row that only resets has a weight; it is not a step": columns(
                one, [1.0, 0.5, 1.0, 1.0, 0.5]
            ),
            "the last step of an episode is counted as the first of the next one": columns(
                [0.5, 1.0, 0.5, 0.25, 0.125], [1.0, 1.0, 0.0, 0.5, 0.25]
            ),
            "the table begins with age 0, but the first environment's episode has begun before": (
                columns([1.0, 0.5, 1.0, 0.5, 0.25], two)
            ),
            "the first step of an episode has the weight γ; it counts from t = 0": columns(
                [x / 2 for x in one], [x / 2 for x in two]
            ),
        },
    )
    attempt.equal(
        older,
        torch.tensor([3.0, 2.0]),
        case=f"the ages for the next table, {case}",
        mistakes={
            "these are the ages in the last row; the next table begins one step later": (
                torch.tensor([2.0, 1.0])
            ),
            "these are the ages at the beginning of this table": torch.tensor([1.0, 0.0]),
        },
    )
    _twelve_rows(attempt, generator)


def _twelve_rows(attempt: Attempt, generator: Generator) -> None:
    ages = torch.randint(0, 9, (3,), generator=generator)
    terminated, truncated = (torch.rand(12, 3, generator=generator) < 0.15 for _ in range(2))
    mask = torch.rand(12, 3, generator=generator) > 0.1
    terminated[5, 1] = terminated[11, 2] = truncated[11, 1] = mask[11, 0] = True
    terminated[11, 0] = truncated[11, 0] = False
    expected, count = torch.zeros(12, 3, dtype=torch.float64), ages.double()
    for t in range(12):
        grown = count + mask[t]
        for i in range(3):
            if mask[t, i]:
                expected[t, i] = 0.9 ** float(count[i])
            count[i] = 0.0 if terminated[t, i] or truncated[t, i] else grown[i]
    weights, older = _both(attempt, attempt(ages, terminated, truncated, mask, 0.9))
    attempt.equal(weights, expected, case="twelve rows of three environments")
    attempt.equal(
        older,
        count,
        case="the ages after twelve rows",
        mistakes={
            "an episode that ends in the last row leaves a new one, of age 0, to the next table": (
                grown
            )
        },
    )
    parts, then = [], ages
    for rows in (slice(0, 5), slice(5, 6), slice(6, 12)):
        table = (x[rows] for x in (terminated, truncated, mask))
        part, then = _both(attempt, attempt(then, *table, 0.9))
        parts.append(part)
    attempt.equal(
        torch.cat(parts).double(),
        expected,
        case="the same rows as three tables, each with the ages that the one before gave back",
    )
