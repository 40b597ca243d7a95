"""Checks of chapter 6: epochs on one batch, a KL that is in-sample, the log of an update."""

import math
from collections.abc import Callable
from itertools import product

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()

Weight = Callable[[float, float], float]


@EXERCISES.add("6.1 Many steps for each batch")
def mend_the_epochs(attempt: Attempt, generator: Generator) -> None:
    logits = torch.zeros(2, dtype=torch.float64)
    actions = torch.tensor([0, 0, 0, 1])
    A = torch.tensor([2.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    given = (logits, actions, A, 10, 0.5)
    attempt.equal(
        attempt(*given),
        _updated(*given),
        case="two equally likely arms, actions [0, 0, 0, 1], A = [2, −1, 1, −1], 10 epochs, "
        "rate 0.5",
        mistakes={
            "the old log-probs are computed anew in every epoch: then every ratio is 1, and "
            "nothing is ever clipped": _updated(*given, weight=lambda ratio, A: A, old="now"),
            "the old log-probs are those of the epoch before; they belong to the policy that "
            "drew the samples, and stay": _updated(*given, old="before"),
            "the logits did not move. The ratio of a tensor to itself is 1 with gradient 0: the "
            "old log-probs are constants of another policy": logits,
            "only one step was made: there is one in each epoch": _updated(*given[:3], 1, 0.5),
            "the samples are summed; the loss is their mean": _updated(*given[:4], 2.0),
            "the gradients of all epochs add up: backward() adds to .grad, which has to be emptied "
            "before it": _updated(*given, added_up=True),
            "the good arm became rarer: the gradient of a loss is subtracted": _updated(
                *given[:4], -0.5
            ),
            "the ratio is right, but there is no clip": _updated(
                *given, weight=lambda ratio, A: ratio * A
            ),
            "the larger of the two products was kept": _updated(*given, weight=_larger),
            "only the clipped product is used; where the policy has gone the wrong way, the "
            "gradient must be whole": _updated(*given, weight=_inside_only),
        },
    )
    logits = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    actions = torch.tensor([2, 2, 0])
    A = torch.tensor([-1.0, -1.0, 3.0], dtype=torch.float64)
    given = (logits, actions, A, 4, 1.0)
    attempt.equal(
        attempt(*given),
        _updated(*given),
        case="logits [0, 0, 1], actions [2, 2, 0], A = [−1, −1, 3], 4 epochs, rate 1",
    )
    for _ in range(3):
        logits = torch.randn(5, generator=generator, dtype=torch.float64)
        actions = torch.randint(5, (12,), generator=generator)
        A = torch.randn(12, generator=generator, dtype=torch.float64)
        attempt.equal(
            attempt(logits, actions, A, 8, 1.5),
            _updated(logits, actions, A, 8, 1.5),
            case="twelve random samples of five arms, 8 epochs",
        )


def _clipped(ratio: float, A: float) -> float:
    """The derivative of the objective in log π."""
    return 0.0 if (A > 0 and ratio > 1.2) or (A < 0 and ratio < 0.8) else ratio * A


def _larger(ratio: float, A: float) -> float:
    return 0.0 if (A > 0 and ratio < 0.8) or (A < 0 and ratio > 1.2) else ratio * A


def _inside_only(ratio: float, A: float) -> float:
    return ratio * A if 0.8 <= ratio <= 1.2 else 0.0


def _updated(
    logits: Tensor,
    actions: Tensor,
    advantages: Tensor,
    epochs: int,
    rate: float,
    *,
    weight: Weight = _clipped,
    old: str = "sampled",
    added_up: bool = False,
) -> Tensor:
    """The logits after the epochs, from the gradient Σ weight · (eₐ − π) / B, without autograd."""
    reference, step = logits.softmax(dim=0), torch.zeros_like(logits)
    for _ in range(epochs):
        pi = logits.softmax(dim=0)
        if old == "now":
            reference = pi
        step = step.clone() if added_up else torch.zeros_like(logits)
        for a, A in zip(actions.tolist(), advantages.tolist(), strict=True):
            score = -pi
            score[a] += 1.0
            step += weight((pi[a] / reference[a]).item(), A) * score
        if old == "before":
            reference = pi
        logits = logits + rate * step / len(actions)
    return logits


def two_states(generator: Generator) -> Numbers:
    """The probability of the sampled action, in a state where it rose and in one where it fell."""
    up, down = torch.randint(6, (2,), generator=generator).tolist()  # the two KLs differ for all
    return {"risen": round(0.52 + 0.03 * up, 2), "fallen": round(0.01 + 0.01 * down, 2)}


@EXERCISES.add("6.2 Your KL is in-sample", numbers=two_states)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    states = two_states(generator)
    new = [[p, *[(1 - p) / 3] * 3] for p in states.values()]

    def mean(of_state: Callable[[list[float]], float]) -> float:
        return sum(map(of_state, new)) / 2

    exact = mean(lambda now: sum(0.25 * math.log(0.25 / p) for p in now))
    k1 = mean(lambda now: -math.log(now[0] / 0.25))
    ratio = mean(lambda now: now[0] / 0.25)
    right = torch.tensor([exact, k1, ratio - 1 + k1, ratio])

    def but(place: int, value: float) -> Tensor:
        changed = right.clone()
        changed[place] = value
        return changed

    upside_down = mean(lambda now: 0.25 / now[0])
    attempt.equal(
        attempt(),
        right,
        case=f"your probabilities {states}",
        mistakes={
            "the first number is KL(new‖old); it should be KL(old‖new), weighted with ¼ each": (
                but(0, mean(lambda now: sum(p * math.log(p / 0.25) for p in now)))
            ),
            "the first number holds only the sampled action; the exact KL sums over all four": (
                but(0, 0.25 * k1)
            ),
            "the second number has the wrong sign: k1 is log π_old − log π": but(1, -k1),
            "in k3 the ratio is upside down: it is new over old": but(2, upside_down - 1 - k1),
            "k3 is ρ − 1 − log ρ: the 1 is missing": but(2, ratio + k1),
            "the mean ratio is upside down: it is new over old": but(3, upside_down),
            "the mean ratio is 1 under the old policy; you are asked for the mean over the two "
            "sampled actions": but(3, 1.0),
            "these are sums over the two states; you are asked for means": 2 * right,
            "these logarithms are to the base 10": torch.tensor(
                [exact / math.log(10), k1 / math.log(10), ratio - 1 + k1 / math.log(10), ratio]
            ),
        },
        tolerance=6e-3,
    )


EVIDENCE = {
    "recomputed": "The policy moves, since kl grows. The program's own ratios say that it does "
    "not: approx_kl is 0 in every row. Its old log-probs are made anew before each step.",
    "stale": "The first row is measured before the first step, and there kl is 0. The program's "
    "approx_kl is not: its old log-probs belong to a policy that had gone before this batch.",
    "upside down": "Under the sampler, new over old has mean 1, however far the policy has moved. "
    "Here mean_ratio starts at 1 and climbs.",
    "standing still": "In this log kl is 0 from beginning to end: no step was taken, and nothing "
    "can be said about the ratios.",
    "healthy": "Here approx_kl starts at 0 and follows kl, and mean_ratio stays at 1. That is all "
    "one can ask.",
}
TIMID = (
    "Here approx_kl starts at 0 and follows kl, and mean_ratio stays at 1. The clip fraction is 0 "
    "because the steps are short; that alone is no symptom."
)


@EXERCISES.add("6.6 How this fails silently")
def watchdog(attempt: Attempt, generator: Generator) -> None:
    for kind, rate, evidence in (
        ("healthy", 0.15, EVIDENCE["healthy"]),
        ("healthy", 0.006, TIMID),
        ("recomputed", 0.15, EVIDENCE["recomputed"]),
        ("stale", 0.15, EVIDENCE["stale"]),
        ("upside down", 0.15, EVIDENCE["upside down"]),
        ("standing still", 0.0, EVIDENCE["standing still"]),
    ):
        among = {word: evidence for word in EVIDENCE if word != kind}
        for _ in range(3):
            attempt.choice(attempt(_log(kind, rate, generator)), kind, among)


def _log(kind: str, rate: float, generator: Generator) -> list[dict[str, float]]:
    """Eight steps on one batch, by a program with this mistake; all means are exact."""
    start, elsewhere = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    advantages = torch.tensor([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], dtype=torch.float64)
    sampled = start.log_softmax(dim=0)
    probs, rows = sampled.exp(), []
    for step in range(8):
        now = (start + rate * step * advantages).log_softmax(dim=0)
        log_ratio = {
            "recomputed": torch.zeros_like(now),
            "stale": now - (start + 0.3 * elsewhere).log_softmax(dim=0),
            "upside down": sampled - now,
        }.get(kind, now - sampled)
        ratio = log_ratio.exp()
        clipped = torch.where(advantages > 0, ratio > 1.2, ratio < 0.8)
        rows.append(
            {
                "kl": (probs @ (sampled - now)).item(),
                "approx_kl": (probs @ (ratio - 1 - log_ratio)).item(),
                "mean_ratio": (probs @ ratio).item(),
                "clip_fraction": probs[clipped].sum().item(),
            }
        )
    return rows


@EXERCISES.add("6.2 Your KL is in-sample")
def how_much_too_large(attempt: Attempt, generator: Generator) -> None:
    pi = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    trained, any_two = 0.453125, 0.203125  # mean of g(a, a)², and of g(a, b)²
    one = trained / any_two
    attempt.equal(
        attempt(pi, 2),
        1 + (one - 1) / 2,
        case="π_old = [½, ¼, ¼], two samples",
        mistakes={
            "that is the factor for one sample: of n samples each moves the others, too": one,
            "K − 1 is for equally likely actions": 1 + (len(pi) - 2) / 2,
            "K − 1 is for equally likely actions, and for one sample": len(pi) - 1,
            "what a trained sample owes to the n − 1 others has been forgotten: they move it as "
            "much as any other action": one / 2,
            "a sample has n − 1 others, not n": 1 + one / 2,
            "that is the inverse: how many times *smaller* the exact KL is": 2 / (1 + one),
            "k3 and the KL go with the square of the change, and yours are not squared": math.sqrt(
                1 + (one - 1) / 2
            ),
            "the square of a mean was used in place of the mean of a square: g(a, a) differs from "
            "action to action": 1 + (0.625**2 / any_two - 1) / 2,
        },
    )
    for K in (2, 10):
        attempt.equal(
            attempt(torch.full((K,), 1 / K, dtype=torch.float64), 1),
            K - 1,
            case=f"{K} equally likely actions and one sample, as in the chapter",
        )
    for samples in (1, 2, 3):
        pi = torch.randn(3, generator=generator, dtype=torch.float64).softmax(dim=0)
        attempt.equal(
            attempt(pi, samples),
            _by_listing(pi, samples),
            case=f"three random probabilities, {samples} samples: all draws and coins listed",
        )


def _by_listing(pi: Tensor, samples: int) -> float:
    """Mean k3 of trained actions over mean KL, to leading order, by listing draws and coins."""
    scores = torch.eye(len(pi), dtype=torch.float64) - pi
    k3 = divergence = 0.0
    for actions in product(range(len(pi)), repeat=samples):
        chance = pi[list(actions)].prod().item()
        for coins in product((1.0, -1.0), repeat=samples):
            step = torch.tensor(coins, dtype=torch.float64) @ scores[list(actions)]
            squares = (scores @ step).square()  # of each action's change in log π
            k3 += chance * squares[list(actions)].mean().item()
            divergence += chance * (pi @ squares).item()
    return k3 / divergence
