"""Checks of chapter 3: what follows a step, TD errors, GAE, n-step targets."""

import math

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


def _ends(probability: float, steps: int, generator: Generator) -> Tensor:
    """(steps, 3) flags; the first of the three environments never ends."""
    ended = torch.rand(steps, 3, generator=generator) < probability
    return ended & torch.tensor([False, True, True])


@EXERCISES.add("3.10 Vectorised environments and auto-reset")
def mend_the_reset(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.tensor([[1.0, 2.0], [1.0, 0.0], [1.0, 0.0]])
    values = torch.tensor([[4.0, 3.0], [8.0, 4.0], [2.0, 6.0], [6.0, 8.0]])
    final_values = torch.tensor([[0.0, 12.0], [10.0, 0.0], [0.0, 0.0]])
    terminated = torch.tensor([[False, True], [False, False], [False, False]])
    truncated = torch.tensor([[False, False], [True, False], [False, False]])

    def targets(cut: float, ended: float) -> Tensor:
        """With the targets of the step that was cut and of the one that terminated."""
        return torch.tensor([[5.0, ended], [cut, 3.0], [4.0, 4.0]])

    attempt.equal(
        attempt(rewards, values, final_values, terminated, truncated, 0.5),
        targets(6.0, 2.0),
        case="two environments, the first cut at t = 1 (reward 1, final value 10), the second "
        "terminated at t = 0 (reward 2), γ = 0.5",
        mistakes={
            "at the cut the target holds the value of the *next* episode's first state; the state "
            "that followed is in final_values": targets(2.0, 2.0),
            "the cut is taken for the end: where the clock stopped, the future is still worth "
            "something": targets(1.0, 2.0),
            "after a terminated step nothing follows, and the first state of the next episode "
            "least of all": targets(6.0, 4.0),
            "after a terminated step nothing follows; what the critic says of a terminal state "
            "means nothing": targets(6.0, 8.0),
            "terminated and truncated are exchanged": targets(1.0, 8.0),
            "these contain V(sₜ), the value of the state the step started in; the target needs "
            "that of the state it led to": torch.tensor([[3.0, 2.0], [6.0, 2.0], [2.0, 3.0]]),
            "the critic's value is not discounted": torch.tensor(
                [[9.0, 2.0], [11.0, 6.0], [7.0, 8.0]]
            ),
        },
    )
    _six_random_steps(attempt, generator)


def _six_random_steps(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    values = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    finals = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    finals[4, 2] = -1.5  # used, whatever the draws are
    terminated, truncated = _ends(0.2, 6, generator), _ends(0.2, 6, generator)
    terminated[4, 2], truncated[4, 2] = False, True
    terminated[2, 1] = truncated[2, 1] = True  # over, just as the clock stopped
    expected, clock_first = torch.empty_like(rewards), torch.empty_like(rewards)
    for t in range(6):
        for i in range(3):
            followed = finals[t, i] if truncated[t, i] else values[t + 1, i]
            over = bool(terminated[t, i])
            expected[t, i] = rewards[t, i] + 0.9 * (0.0 if over else followed)
            unless_cut = over and not truncated[t, i]
            clock_first[t, i] = rewards[t, i] + 0.9 * (0.0 if unless_cut else followed)
    attempt.equal(
        attempt(rewards, values, finals, terminated, truncated, 0.9),
        expected,
        case="six steps of three environments",
        mistakes={
            "in one of the steps the episode is over just as the clock stops it; over is over, and "
            "nothing follows": clock_first
        },
    )
    poisoned = torch.where(terminated | truncated, finals, torch.nan)
    attempt.equal(
        attempt(rewards, values, poisoned, terminated, truncated, 0.9),
        expected,
        case="the same six steps, with NaN in final_values where no episode ended",
        mistakes={
            "a multiplication with the flags, and NaN times 0 is NaN; choose, as torch.where or an "
            "if does": math.nan
        },
    )


def _gae(
    rewards: list[float],
    values: list[float],
    next_values: list[float],
    *,
    cut: list[bool],
    gamma: float,
    decay: float,
) -> Tensor:
    """Advantages by a plain loop from the back; where `cut`, nothing is carried back."""
    found, later = [], 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * next_values[t] - values[t]
        later = delta + (0.0 if cut[t] else decay * later)
        found.append(later)
    return torch.tensor(found[::-1], dtype=torch.float64)


def _whole_numbers(low: int, high: int, count: int, generator: Generator) -> list[float]:
    return torch.randint(low, high + 1, (count,), generator=generator).double().tolist()


def three_steps(generator: Generator) -> Numbers:
    """Even values, all different, and rewards that leave no TD error at zero."""
    rewards = [x + 0.5 for x in _whole_numbers(0, 4, 3, generator)]
    *values, after = (2.0 * x + 2.0 for x in torch.randperm(4, generator=generator).tolist())
    ends = ("terminated", "truncated")
    return {
        "rewards": rewards,
        "values": values,
        "value_after": after,
        "last_step": ends[int(torch.randint(0, 2, (1,), generator=generator))],
    }


@EXERCISES.add("3.9 Terminated or truncated: what follows the last step", numbers=three_steps)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    given = three_steps(generator)
    rewards, values, last = given["rewards"], given["values"], given["last_step"]
    value = {"terminated": 0.0, "truncated": given["value_after"]}
    other = "truncated" if last == "terminated" else "terminated"

    def gae(end: str = last, *, gamma: float = 0.5, decay: float = 0.4) -> Tensor:
        followed = [*values[1:], value[end]]
        return _gae(rewards, values, followed, cut=[False, False, True], gamma=gamma, decay=decay)

    right, deltas = gae(), gae(decay=0.0)
    forward = [float(deltas[0])]
    for delta in deltas[1:].tolist():
        forward.append(delta + 0.4 * forward[-1])
    kept = {
        "terminated": "the last step terminated, and after that nothing follows: what the critic "
        "says of that state does not count",
        "truncated": "the last step was truncated: the critic's value of the state after it "
        "belongs in its TD error",
    }
    attempt.equal(
        attempt(),
        right,
        case=f"your three steps {given}",
        mistakes={
            kept[last]: gae(other),
            "these are the TD errors, λ = 0; add what is carried back from later steps": deltas,
            "λ was left out of the recursion: carried back is γλ, here 0.4": gae(decay=0.5),
            "γ was left out of the recursion: carried back is γλ, here 0.4": gae(decay=0.8),
            "the value of the next state was not discounted": gae(gamma=1.0),
            "the recursion ran from the front: a step was credited with what came *before* it": (
                torch.tensor(forward)
            ),
            "these are the critic's targets, advantage plus value": right
            + torch.tensor(values, dtype=torch.float64),
            "the TD errors contain V(sₜ) twice; the next value is of the state that followed": (
                _gae(rewards, values, values, cut=[False, False, True], gamma=0.5, decay=0.4)
            ),
            "the sign is the wrong way round: a TD error is what came minus what was "
            "expected": -right,
        },
        tolerance=6e-3,
    )


DOING = ("right", "done", "reset", "leak", "seamless")


def _programs(generator: Generator) -> tuple[Numbers, dict[str, str]]:
    """Four programs' advantages for the same five steps, and what each program does."""
    rewards = _whole_numbers(0, 4, 5, generator)
    values = _whole_numbers(1, 4, 5, generator)
    really, at_the_end = _whole_numbers(6, 9, 2, generator)
    never, cut = [False] * 5, [False, False, True, False, False]
    next_values = [values[1], values[2], really, values[4], at_the_end]

    def gae(value: float, stops: list[bool]) -> Tensor:
        followed = [*next_values[:2], value, *next_values[3:]]
        return _gae(rewards, values, followed, cut=stops, gamma=0.9, decay=0.72)

    advantages = {
        "right": gae(really, cut),
        "done": gae(0.0, cut),
        "reset": gae(values[3], cut),
        "leak": gae(really, never),
        "seamless": gae(values[3], never),
    }
    doing = [DOING[i] for i in torch.randperm(5, generator=generator)[:4].tolist()]
    truth = dict(zip("ABCD", doing, strict=True))
    return {
        "rewards": rewards,
        "values": values,
        "next_values": next_values,
        "truncated": cut,
        "programs": {
            name: [round(x, 3) for x in advantages[does].tolist()] for name, does in truth.items()
        },
    }, truth


def five_steps(generator: Generator) -> Numbers:
    return _programs(generator)[0]


@EXERCISES.add("3.9 Terminated or truncated: what follows the last step", numbers=five_steps)
def whose_advantages(attempt: Attempt, generator: Generator) -> None:
    _, truth = _programs(generator)
    signs = {
        "right": "the row of the cut would be its reward, plus 0.9 times what the critic says of "
        "the state that really followed, minus its value",
        "done": "the row of the cut would be its reward minus its value, and nothing else",
        "reset": "the row of the cut would contain 0.9 times the value of the row after it, and "
        "stay the same whatever the last two rows earn",
        "leak": "the row of the cut would be what it should be, plus 0.72 times the advantage of "
        "the row after it",
        "seamless": "the row of the cut would be a row like any other, with 0.9 times the next "
        "row's value and 0.72 times the next row's advantage",
    }
    among = {
        name: {word: f"in program {name} {signs[word]}." for word in DOING if word != does}
        for name, does in truth.items()
    }
    attempt.choices(attempt(), truth, among)


@EXERCISES.add("3.6 GAE: all of them at once", travels="code")
def how_much_lambda(attempt: Attempt, generator: Generator) -> None:
    attempt.equal(
        attempt(0.25, 0.8, 0.5),
        5 / 6,
        case="a quarter of the bias, q = 0.8, γ = 0.5, so that γq = 0.4",
        mistakes={
            "the bias does not fall in proportion to 1 − λ: with weight λ the critic is used "
            "later, and used all the same": 0.75,
            "γ is missing: the critic's later values are discounted too": 0.75 / 0.8,
            "q is missing: the critic is only used again if the game has gone on": 0.75 / 0.875,
            "that leaves the share 1 − s; s is the share that is left": 0.25 / 0.7,
            "that is the share of e, of what the critic is wrong by; you are asked for the share "
            "of the bias that λ = 0 has, γqe": 0.5,
            "that is s, or that is how much bias is left, not the λ that does it": 0.25,
        },
    )
    for share, go_on, gamma in ((0.7, 0.95, 1.0), (0.3, 0.5, 0.9), (0.05, 0.99, 0.99)):
        lam = attempt.number(attempt(share, go_on, gamma))
        attempt.holds(
            0 <= lam <= 1,
            "a λ between 0 and 1",
            otherwise=f"λ must lie between 0 and 1; for s = {share}, q = {go_on} and γ = {gamma} "
            f"you found {lam:.4g}.",
        )
        again = gamma * go_on
        left = sum((1 - lam) * (lam * again) ** k for k in range(5_000))
        attempt.equal(
            left,
            share,
            case=f"the bias that your λ leaves, summed term by term, for s = {share}, q = {go_on} "
            f"and γ = {gamma}",
            tolerance=1e-5,
        )


@EXERCISES.add("3.9 Terminated or truncated: what follows the last step")
def n_steps_to_the_edge(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[:, None].repeat(1, 2)
    end = torch.arange(6)[:, None] == 2
    truncated, terminated = end & torch.tensor([True, False]), end & torch.tensor([False, True])
    right = torch.tensor([[1.4, 1.4], [2.6, 2.3], [6.0, 3.0], [5.0, 5.0], [6.2, 6.2], [12.0, 12.0]])

    def with_rows(**rows: list[float]) -> Tensor:
        """The right targets but for some rows, given as t0=[…] and so on."""
        found = right.clone()
        for row, content in rows.items():
            found[int(row.removeprefix("t"))] = torch.tensor(content)
        return found

    attempt.equal(
        attempt(rewards, 10 * rewards, terminated, truncated, 2, 0.1),
        right,
        case="two environments with rewards 1 to 6 and next values 10 to 60, n = 2, γ = 0.1, the "
        "first cut at t = 2, the second terminated there",
        mistakes={
            "a cut is taken for the end: what followed it is still worth something": with_rows(
                t1=[2.3, 2.3], t2=[3.0, 3.0]
            ),
            "rewards of the next episode are counted across the cut": with_rows(t2=[3.8, 3.0]),
            "rewards of the next episode are counted across both ends": with_rows(
                t1=[2.6, 2.6], t2=[3.8, 3.8]
            ),
            "after a terminated step the critic's value is added; nothing follows there": with_rows(
                t1=[2.6, 2.6], t2=[6.0, 6.0]
            ),
            "terminated and truncated are exchanged": with_rows(t1=[2.3, 2.6], t2=[3.0, 6.0]),
            "at the end of the table nothing is bootstrapped, as if all episodes were over": (
                with_rows(t4=[5.6, 5.6], t5=[6.0, 6.0])
            ),
            "the critic's value is discounted by γⁿ even where there are fewer than n rewards": (
                with_rows(t2=[3.3, 3.0], t5=[6.6, 6.6])
            ),
            "these take n + 1 rewards": torch.tensor(
                [[1.26, 1.23], [2.6, 2.3], [6.0, 3.0], [4.62, 4.62], [6.2, 6.2], [12.0, 12.0]]
            ),
            "these take one reward only, whatever n is": torch.tensor(
                [[2.0, 2.0], [4.0, 4.0], [6.0, 3.0], [8.0, 8.0], [10.0, 10.0], [12.0, 12.0]]
            ),
        },
    )
    _nine_random_steps(attempt, generator)


def _nine_random_steps(attempt: Attempt, generator: Generator) -> None:
    rewards = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    next_values = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    terminated, truncated = _ends(0.15, 9, generator), _ends(0.15, 9, generator)
    terminated[3, 1] = True  # whatever the draws are

    def targets(n: int) -> Tensor:
        expected = torch.zeros_like(rewards)
        for i in range(3):
            for start in range(9):
                for t in range(start, 9):
                    discount = 0.9 ** (t - start)
                    expected[start, i] += discount * rewards[t, i]
                    taken = t - start + 1
                    if terminated[t, i]:
                        break
                    if truncated[t, i] or taken == n or t == 8:
                        expected[start, i] += discount * 0.9 * next_values[t, i]
                        break
        return expected

    for n in (1, 2, 4, 30):
        attempt.equal(
            attempt(rewards, next_values, terminated, truncated, n, 0.9),
            targets(n),
            case=f"nine steps of three environments with ends here and there, n = {n}",
        )
    unknown = next_values.masked_fill(terminated, math.nan)
    attempt.equal(
        attempt(rewards, unknown, terminated, truncated, 4, 0.9),
        targets(4),
        case="the same nine steps, n = 4, with NaN as the next value of terminal states",
        mistakes={
            "what the critic says of a terminal state means nothing and may be NaN; with a "
            "multiplication by the flags your targets are NaN as well, since NaN times 0 is NaN. "
            "Choose, as torch.where or an if does": math.nan
        },
    )
