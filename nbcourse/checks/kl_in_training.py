"""Checks of chapter 12: a cap with a slope, batches that overshoot, grades, and letting go."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, NotRight
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("A cap that keeps its gradient")
def mend_the_cap(attempt: Attempt, generator: Generator) -> None:
    ratios = torch.tensor([[2.0, 3.0, 1 / 12, 1.0], [0.5, 0.25, 16.0, 0.5]], dtype=torch.float64)
    old = torch.tensor([[0.05, 0.02, 0.4, 0.1], [0.3, 0.2, 0.01, 0.5]]).double().log()
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    now, prefix = old + ratios.log(), ratios.cumprod(dim=1)
    case = "ratios of the tokens 2, 3, 1/12 and padding, 1/2, 1/4, 16, 1/2; cap 4"

    def masked(weights: Tensor) -> Tensor:
        return weights.masked_fill(~mask, 0.0)

    limited = masked(prefix.clamp(0.25, 4))
    attempt.equal(
        attempt(now, old, mask, 4.0),
        limited,
        case=case,
        mistakes={
            "that is the ratio of the single token; you are asked for the product up to it": masked(
                ratios.clamp(0.25, 4)
            ),
            "each token's ratio is capped before the product, which may then grow as it likes": (
                masked(ratios.clamp(0.25, 4).cumprod(dim=1))
            ),
            "no cap is left": masked(prefix),
            "the cap holds above only; below 1/c the weight is 1/c": masked(prefix.clamp(max=4)),
            "the ratio is upside down: the policy that learns is the numerator": masked(
                (1 / prefix).clamp(0.25, 4)
            ),
            "that is the ratio of the tokens before this one; the token itself belongs to it": (
                masked((prefix / ratios).clamp(0.25, 4))
            ),
            "the weight of padding is not 0": prefix.clamp(0.25, 4),
        },
    )
    inside = (prefix > 0.25) & (prefix < 4)
    attempt.equal(
        attempt.gradient(now, old, mask, 4.0),
        _to_go(limited),
        case="the gradient of the sum of these weights by log π",
        mistakes={
            "beyond the cap nothing flows: a clamp has derivative 0 there. The number is to be "
            "limited, and not the derivative of its logarithm": _to_go(limited * inside),
            "the number is capped and its gradient is not: beyond the cap you have ρ ∇log ρ "
            "instead of c ∇log ρ": _to_go(masked(prefix)),
            "the gradient of each weight reaches its own token only; all tokens up to it are in "
            "the product": limited,
        },
    )
    garbage = now.masked_fill(~mask, math.nan)
    attempt.equal(
        attempt(garbage, old, mask, 4.0),
        limited,
        case="the same tokens, with log-probabilities of NaN at padding",
        mistakes={
            "put zeros at padding before you add up anything, and choose instead of multiplying by "
            "the mask, since 0 · NaN is NaN": math.nan
        },
    )
    _far_ratios(attempt, generator)


def _far_ratios(attempt: Attempt, generator: Generator) -> None:
    log_ratio = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    far = 40 * log_ratio  # products of e^(±40 …), which overflow if they are formed
    full = torch.ones(3, 6, dtype=torch.bool)
    formed = {
        "a product was formed, which is infinite or 0, and infinity by infinity is NaN, as is 0 "
        "times infinity: limit the logarithm, and take the exponential last": math.nan
    }
    for name, d in (("random log-ratios", log_ratio), ("products too large to form", 20 * far)):
        weights = attempt(d, torch.zeros_like(d), full, 2.0)
        wanted = d.cumsum(dim=1).clamp(-math.log(2), math.log(2)).exp()
        attempt.equal(weights, wanted, case=name, mistakes=formed)
        slopes = attempt.gradient(d, torch.zeros_like(d), full, 2.0)
        attempt.equal(slopes, _to_go(wanted), case=f"the gradient with {name}", mistakes=formed)


def _to_go(costs: Tensor) -> Tensor:
    return costs.flip(1).cumsum(1).flip(1)


def updates_and_step(generator: Generator) -> Numbers:
    """n, η, β, λ, with a frozen penalty that overshoots, and answers that two decimals tell."""
    choices = ((4, 5, 6, 7, 8), (0.5, 1.0, 2.0), (0.1, 0.2, 0.3, 0.5), (0.4, 0.6, 0.7, 0.9))
    while True:
        picked = [
            row[int(torch.randint(len(row), (), generator=generator).item())] for row in choices
        ]
        n, step, beta, eigenvalue = picked
        x = step * beta * eigenvalue
        edge = 2 / x
        clear = min(edge % 1, 1 - edge % 1) > 0.05
        if 0.12 <= x <= 0.6 and 1.3 < n * x < 3 and abs(n * x - 2) > 0.1 and clear:
            return {"n": n, "eta": step, "beta": beta, "lambda": eigenvalue}


@EXERCISES.add("Frozen penalties", numbers=updates_and_step)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    given = updates_and_step(generator)
    n, x = given["n"], given["eta"] * given["beta"] * given["lambda"]
    frozen, recomputed, most = 1 - n * x, (1 - x) ** n, math.ceil(2 / x) - 1.0

    def three(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    attempt.equal(
        attempt(),
        three(frozen, recomputed, most),
        case=f"n = {n}, η = {given['eta']}, β = {given['beta']}, λ = {given['lambda']}",
        tolerance=6e-3,
        mistakes={
            "the sign of the first: the policy ends on the other side of the optimum, and this is "
            "how an oscillation begins": three(-frozen, recomputed, most),
            "the first two are exchanged: frozen, the same push is added n times; recomputed, "
            "what is left is multiplied n times": three(recomputed, frozen, most),
            "one update only: there are n of them on a batch": three(1 - x, 1 - x, most),
            "the first is for one update; a frozen penalty pushes n times the same way": three(
                1 - x, recomputed, most
            ),
            "the second is for one update; what it leaves is multiplied n times": three(
                frozen, 1 - x, most
            ),
            "the second takes e^(−nηβλ) for (1 − ηβλ)ⁿ, which holds for small steps only": three(
                frozen, math.exp(-n * x), most
            ),
            "β is left out": three(
                1 - n * x / given["beta"],
                (1 - x / given["beta"]) ** n,
                math.ceil(2 * given["beta"] / x) - 1.0,
            ),
            "the third has to be a whole number, the last one below 2/(ηβλ)": three(
                frozen, recomputed, 2 / x
            ),
            "the third is one too many: beyond 2/(ηβλ) each batch overshoots farther than the "
            "last": three(frozen, recomputed, most + 1),
            "the third is the bound below which nothing overshoots; an oscillation may still die "
            "out, as long as |1 − nηβλ| < 1": three(frozen, recomputed, math.ceil(1 / x) - 1.0),
            "the third is for single updates; a batch of them counts once in the formula": three(
                frozen, recomputed, n * most
            ),
        },
    )


@EXERCISES.add("12.2 What the KL penalty buys")
def where_to_measure(attempt: Attempt, generator: Generator) -> None:
    ref = torch.tensor([0.4, 0.2, 0.2, 0.2], dtype=torch.float64)
    rewards = torch.tensor([0.0, math.log(2), math.log(2), math.log(3)], dtype=torch.float64) / 2
    stds = torch.tensor([1.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    beta, budget = 0.5, 90.0
    best = _tilted(ref, rewards, beta)

    def split(shares: Tensor) -> Tensor:
        return budget * shares / shares.sum()

    noise = (best * (1 - best)).sqrt()
    attempt.equal(
        attempt(ref, rewards, stds, beta, budget),
        split(noise * stds),
        case="π_ref = [0.4, 0.2, 0.2, 0.2], R = [0, ln 2, ln 2, ln 3]/2, β = 1/2, so that "
        "π* = [2, 2, 2, 3]/9; σ = [1, 2, 1, 1], 90 grades",
        mistakes={
            "all answers alike; what is wrong about a likely answer, or one hard to grade, costs "
            "more": split(torch.ones_like(ref)),
            "σ is left out: an answer that is hard to grade needs more grades": split(noise),
            "those are shares of what an error costs, π*(1 − π*)σ². With n grades the cost is "
            "divided by n, and where Σ cost/n is smallest, n goes with the root": split(
                (noise * stds) ** 2
            ),
            "the root is taken of π* alone. A mean error, the same for all answers, changes no "
            "policy: what counts is a variance, and of it an answer has the share π*(1 − π*)": (
                split(best.sqrt() * stds)
            ),
            "you graded as often as answers are sampled": split(best),
            "you graded as often as answers are sampled, times σ; the minimum has a square root": (
                split(best * stds)
            ),
            "errors are weighed by the reference; eq-regret-variance has the variance under π*": (
                split((ref * (1 - ref)).sqrt() * stds)
            ),
            "β is left out of π*": split(_spread(_tilted(ref, rewards, 1.0)) * stds),
            "the reward is multiplied by β; it is R/β in the exponent": split(
                _spread(_tilted(ref, rewards, 1 / beta)) * stds
            ),
            "those are shares; you are asked for numbers of grades, which add up to the budget": (
                split(noise * stds) / budget
            ),
        },
    )
    _other_budgets(attempt, generator)


def _other_budgets(attempt: Attempt, generator: Generator) -> None:
    two = torch.tensor([0.99, 0.01], dtype=torch.float64)
    attempt.equal(
        attempt(two, torch.zeros(2, dtype=torch.float64), torch.ones(2).double(), 0.1, 10.0),
        torch.tensor([5.0, 5.0], dtype=torch.float64),
        case="two answers, one of them rare, graded alike: only the difference of their rewards "
        "matters",
    )
    ref = torch.softmax(torch.randn(6, generator=generator, dtype=torch.float64), dim=0)
    stds = 0.5 + torch.rand(6, generator=generator, dtype=torch.float64)
    for name, offset, beta in (("six random answers", 0.0, 0.7), ("rewards near 5", 5.0, 0.001)):
        rewards = offset + beta * torch.randn(6, generator=generator, dtype=torch.float64)
        found = attempt.tensor(attempt(ref, rewards, stds, beta, 1000.0), (6,))
        if not bool(found.isfinite().all()):
            raise NotRight(
                f"For {name} and β = {beta} you get {found.tolist()}. Likely mistake: e^(R/β) "
                "overflows; take a softmax of log π_ref + R/β."
            )
        shares = _spread(_tilted(ref, rewards, beta)) * stds
        attempt.equal(found, 1000 * shares / shares.sum(), case=name, tolerance=1e-5)


def _tilted(ref: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return (ref.log() + rewards / beta).softmax(dim=0)


def _spread(probs: Tensor) -> Tensor:
    return (probs * (1 - probs)).sqrt()


@EXERCISES.add("12.3 Does it matter? Training to a known optimum", travels="code")
def letting_go(attempt: Attempt, generator: Generator) -> None:
    odds = 4 * math.exp(-10 / 3)  # where β is 3/4, since asinh(3/4) = ln 2
    q = odds / (1 + odds)
    v = math.log(odds)
    attempt.equal(
        attempt(q),
        0.75,
        case=f"q = {q:.6f}, whose logit is 2 ln 2 − 10/3",
        tolerance=2e-4,
        mistakes={
            "you ask for a fixed point at p = ½, where σ is largest; the penalty may hold the "
            "policy farther out": -2 / v,
            "σ is the standard deviation, √(p(1 − p)), and not the variance": _smallest(
                v, lambda u: 2 + 2 * math.cosh(u)
            ),
            "the reference's logit has the wrong sign": _smallest(-v, _over_sigma),
            "log q was used in place of the logit of q": _smallest(math.log(q), _over_sigma),
            "at the edge both sides touch, so their slopes agree too: the slope of 2 cosh(u/2) is "
            "sinh(u/2)": _touching(v, math.asinh),
            "β counts twice: the penalty's gradient is β p(1 − p)(logit p − logit q)": math.sqrt(
                0.75
            ),
        },
    )
    for logit in (-10.0, *(4 * torch.rand(4, generator=generator) - 3.5).tolist()):
        q = 1 / (1 + math.exp(-logit))
        beta = attempt.number(attempt(q))
        if not (math.isfinite(beta) and beta > 0):
            raise NotRight(f"With q = {q:.4g} you get β = {beta!r}, expected a positive number.")
        for factor, held in ((1.001, True), (0.999, False)):
            found = _holds(factor * beta, logit, _over_sigma)
            word, other = ("holds", "does not hold") if found else ("does not hold", "holds")
            attempt.holds(
                found == held,
                "the penalty holds just above this β and lets go just below it",
                otherwise=f"With q = {q:.4g} your β is {beta:.5g}. At {factor} times that the "
                f"penalty {word} the policy, and it should be so that it {other}.",
            )


def _over_sigma(u: float) -> float:
    """1/√(p(1 − p)) for p = σ(u)."""
    return 2 * math.cosh(u / 2)


def _holds(beta: float, v: float, pull: Callable[[float], float]) -> bool:
    """Whether β (u − v) reaches the pull somewhere above v; the pull is convex."""
    low, high = v, v + 60.0
    for _ in range(100):  # (2/3)^100 of 60 is less than numbers can tell apart
        third = (high - low) / 3
        one, other = low + third, high - third
        better = beta * one - pull(one) < beta * other - pull(other)
        low, high = (one, high) if better else (low, other)
    return beta * (low - v) - pull(low) >= 0


def _smallest(v: float, pull: Callable[[float], float]) -> float:
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _holds(middle, v, pull) else (middle, high)
    return high


def _touching(v: float, place: Callable[[float], float]) -> float:
    """The β at which both sides are equal in u = place(β), where they need not touch."""
    low, high = 1e-3, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        u = place(middle)
        low, high = (low, middle) if middle * (u - v) >= _over_sigma(u) else (middle, high)
    return high
