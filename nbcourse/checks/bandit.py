"""Checks of chapter 1: what the score multiplies, what a baseline costs, what a KL penalty buys."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt, as_lists, digits
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()


@EXERCISES.add("1.4 The loss means nothing")
def mend_the_loss(attempt: Attempt, generator: Generator) -> None:
    logits, arms = torch.zeros(3, 2), torch.tensor([0, 1, 0])
    rewards = torch.tensor([4.0, 1.0, 1.0])
    attempt.number(attempt(logits, arms, rewards))
    right = torch.tensor([[-2.0, 2.0], [-1.0, 1.0], [1.0, -1.0]]) / 6
    attempt.equal(
        attempt.gradient(logits, arms, rewards),
        right,
        case="the gradient, three machines of two arms, arms [0, 1, 0] pulled, rewards [4, 1, 1]",
        mistakes={
            "every log-probability was multiplied with every advantage, (N,) with (N, 1); the "
            "advantages add up to zero, and so does the gradient": torch.zeros(3, 2),
            "the sign is the wrong way round: gradient descent on this loss makes the arms that "
            "paid well rarer": -right,
            "that is the sum over the pulls; you are asked for the mean": 3 * right,
            "there is no baseline: arms that paid less than the average are pushed up too": (
                torch.tensor([[-4.0, 4.0], [1.0, -1.0], [-1.0, 1.0]]) / 6
            ),
            "the probability is weighted instead of its logarithm; an arm that is pulled often "
            "counts twice then": right / 2,
            "the mean was taken over all entries of a table with a row for each pull, its zeros "
            "included; you are asked for the mean over the pulls": 3 * right / 6,
            "the softmax runs over the machines instead of the arms of one machine": (
                torch.tensor([[-5.0, -1.0], [1.0, 2.0], [4.0, -1.0]]) / 9
            ),
            "the advantages were divided by their standard deviation, which is not asked for": (
                right / math.sqrt(3)
            ),
            "the advantages were divided by their standard deviation, which is not asked for, with "
            "the denominator N": right / math.sqrt(2),
            "each reward is compared with the mean of the *others*; here the baseline is the mean "
            "of the whole batch": 1.5 * right,
        },
    )
    logits = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    rewards = torch.randn(5, generator=generator, dtype=torch.float64)
    arms = torch.randint(0, 3, (5,), generator=generator)
    expected = torch.empty_like(logits)
    for i in range(5):
        advantage = float(rewards[i]) - sum(rewards.tolist()) / 5
        total = sum(math.exp(x) for x in logits[i].tolist())
        for c in range(3):
            score = float(c == arms[i]) - math.exp(logits[i, c]) / total
            expected[i, c] = -advantage * score / 5
    attempt.equal(
        attempt.gradient(logits, arms, rewards),
        expected,
        case="the gradient, five machines of three arms, random rewards",
    )


def a_bandit(generator: Generator) -> Numbers:
    """Three arms; the likelier one is, the less it pays, so J is never the plain mean.

    One logit gets a larger push than the others.
    """
    sets = ((0.5, 0.3, 0.2), (0.6, 0.3, 0.1), (0.7, 0.2, 0.1))
    while True:
        chosen = sets[int(torch.randint(0, 3, (1,), generator=generator))]
        pays = sorted((torch.randperm(9, generator=generator)[:3] + 1).tolist())
        order = torch.randperm(3, generator=generator).tolist()
        mean = sum(p * r for p, r in zip(chosen, pays, strict=True))
        pushes = sorted(abs(p * (r - mean)) for p, r in zip(chosen, pays, strict=True))
        if pushes[2] - pushes[1] > 0.01:
            return {"probs": [chosen[i] for i in order], "rewards": [float(pays[i]) for i in order]}


@EXERCISES.add("1.3 The log-derivative trick", numbers=a_bandit)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    given = a_bandit(generator)
    probs, rewards = (torch.tensor(given[key], dtype=torch.float64) for key in given)
    mean = probs @ rewards
    right = probs * (rewards - mean)
    attempt.equal(
        attempt(),
        right,
        case=f"your bandit {given}",
        mistakes={
            "the average reward J is not subtracted; raising one logit takes probability from all "
            "the others": probs * rewards,
            "each arm is compared with the plain mean of the three rewards; the policy's average "
            "counts each as often as its arm is pulled": probs * (rewards - rewards.mean()),
            "these are the advantages r − J; an arm's logit is pushed in proportion to how often "
            "it is pulled": rewards - mean,
            "the sign is the wrong way round: an arm above the average must rise": -right,
            "only the arm's own probability was differentiated, π(1 − π) r; the other arms' "
            "probabilities depend on this logit too": probs * (1 - probs) * rewards,
            "that is the gradient with respect to the probabilities; you are asked for the one "
            "with respect to the logits": rewards,
            "the probability was counted twice, π² (r − J)": probs * right,
        },
        tolerance=6e-3,
    )


def _variance(probs: Tensor, rewards: Tensor, baseline: float) -> float:
    """Of the estimate from one pull, (r − b) ∇log π, summed over the logits, by plain loops."""
    arms = range(len(probs))
    estimates = [
        [float((rewards[a] - baseline) * (float(a == c) - probs[c])) for c in arms] for a in arms
    ]
    means = [sum(float(probs[a]) * estimates[a][c] for a in arms) for c in arms]
    return sum(float(probs[a]) * (estimates[a][c] - means[c]) ** 2 for a in arms for c in arms)


@EXERCISES.add("The optimal constant baseline", travels="code")
def harmful_baseline(attempt: Attempt, generator: Generator) -> None:
    result = as_lists(attempt())
    attempt.holds(
        isinstance(result, list) and [type(x) for x in result] == [list, list],
        "two tensors",
        otherwise="Expected two tensors, the probabilities and the rewards.",
    )
    probs, rewards = (attempt.tensor(x, (2,)).double() for x in result)
    attempt.holds(
        abs(float(probs.sum()) - 1) < 1e-6,
        "a probability distribution",
        otherwise=f"The first tensor adds up to {float(probs.sum()):.4g}. Likely mistake: logits "
        "or odds; you are asked for probabilities, which add up to 1.",
    )
    attempt.holds(
        float(probs.min()) >= 0.05 - 1e-6,
        "no arm rarer than 0.05",
        otherwise="One arm is rarer than 0.05. You do not need to go that far.",
    )
    attempt.holds(
        float(rewards.min()) >= 0 and float(rewards.max()) <= 1,
        "rewards from 0 to 1",
        otherwise=f"The rewards must lie between 0 and 1; yours are {rewards.tolist()}.",
    )
    mean = float(probs @ rewards)
    none, with_mean = _variance(probs, rewards, 0.0), _variance(probs, rewards, mean)
    found = f"Without a baseline the variance is {none:.4g}, with b = J it is {with_mean:.4g}. "
    favourite = int(probs.argmax())
    attempt.holds(
        abs(float(rewards[0] - rewards[1])) > 1e-9,
        "two different rewards",
        otherwise=found + "Both arms pay the same, so r − J is always 0: the baseline removes all "
        "the variance there is.",
    )
    attempt.holds(
        abs(float(probs[0]) - 0.5) > 1e-9,
        "a favourite",
        otherwise=found + "Both scores are equally long, and then the mean reward is just the "
        "best baseline. Make one arm the favourite.",
    )
    attempt.holds(
        float(rewards[favourite]) > float(rewards[1 - favourite]),
        "the favourite pays more",
        otherwise=found + "Your favourite pays less than the other arm. Its score is short and the "
        "rare arm's is long, so b* is near the *rare* arm's reward: here that is the larger one, "
        "and b = 0 is even further away from it than J.",
    )
    attempt.holds(
        with_mean > none,
        "the mean reward does harm",
        otherwise=found + "The favourite pays more, that is the right idea, but 0 is still no "
        "better a baseline than J. Move the best one towards 0: what should the rare arm pay?",
    )
    attempt.holds(
        with_mean >= 9.999 * none,
        f"{with_mean / none:.0f} times the variance",
        otherwise=found + f"That is harm, but only {with_mean / none:.1f} times. Make the "
        "favourite more certain, or the rare arm poorer.",
    )


def _tilted(ref: Tensor, rewards: Tensor, beta: float) -> Tensor:
    return (ref.log() + rewards / beta).softmax(dim=0)


def _divergence(p: Tensor, q: Tensor) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True) if a > 0)


def _coefficient(spent: Callable[[float], float], budget: float) -> float:
    """β at which `spent`, which falls with β, equals the budget."""
    low, high = 1e-3, 1e3
    for _ in range(80):
        beta = math.sqrt(low * high)
        low, high = (beta, high) if spent(beta) > budget else (low, beta)
    return beta


@EXERCISES.add("1.9 The KL-regularised bandit has a closed-form solution")
def kl_budget(attempt: Attempt, generator: Generator) -> None:
    ref = torch.tensor([0.25, 0.75], dtype=torch.float64)
    rewards = torch.tensor([1.0, 0.0], dtype=torch.float64)
    budget = 2 / 3 * math.log(8 / 3) + 1 / 3 * math.log(4 / 9)  # spent by π = (2/3, 1/3)
    uniform = torch.full_like(ref, 0.5)
    right = 1 / math.log(6)  # odds 1/3 → 2: e^(1/β) = 6

    def with_budget(spent: Callable[[Tensor], float]) -> float:
        return _coefficient(lambda beta: spent(_tilted(ref, rewards, beta)), budget)

    attempt.equal(
        attempt(ref.log(), rewards, budget),
        right,
        case="reference (1/4, 3/4), rewards (1, 0), and the budget that (2/3, 1/3) spends: the "
        "odds rise from 1/3 to 2, so e^(1/β) = 6",
        mistakes={
            "that is 1/β: the rewards are multiplied by your number instead of divided": 1 / right,
            "the divergence is the wrong way round, KL(ref‖π); the policy that acts comes first": (
                with_budget(lambda pi: _divergence(ref, pi))
            ),
            "the reference is missing from the policy: the softmax of r/β starts from a uniform "
            "one": _coefficient(lambda b: _divergence(_tilted(uniform, rewards, b), ref), budget),
            "the divergence is measured from the uniform policy instead of the reference": (
                with_budget(lambda pi: _divergence(pi, uniform))
            ),
            "the divergence is in bits, with logarithms to the base 2; the budget is in nats": (
                with_budget(lambda pi: _divergence(pi, ref) / math.log(2))
            ),
            "that is the upper end of the interval: the half without the answer is kept. A "
            "coefficient that spends too much is too low": 1e3,
            "that is the lower end of the interval: your divergence never reaches the budget. Is "
            "each logarithm weighted with the policy's probability?": 1e-3,
        },
        tolerance=digits(right, 4),
    )
    for _ in range(3):
        ref = torch.randn(5, generator=generator, dtype=torch.float64).softmax(dim=0)
        rewards = torch.randn(5, generator=generator, dtype=torch.float64)
        beta = math.exp(2 * float(torch.rand(1, generator=generator)) - 1)
        attempt.equal(
            attempt(ref.log(), rewards, _divergence(_tilted(ref, rewards, beta), ref)),
            beta,
            case="five arms with a random reference",
            tolerance=digits(beta, 4),
        )
    rewards = torch.tensor([1000.0, 0.0, 500.0], dtype=torch.float64)
    ref = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    attempt.equal(
        attempt(ref.log(), rewards, _divergence(_tilted(ref, rewards, 300.0), ref)),
        300.0,
        case="rewards of a thousand: 1000, 0 and 500",
        mistakes={
            "a NaN on the way, which is never larger than the budget, so that the search ends at "
            "the lower end. At a low β, e^(r/β) overflows, and infinity over infinity is NaN; or "
            "a probability is so small that it is 0, and 0 · log 0 is NaN: take log-probabilities "
            "from log_softmax": 1e-3
        },
        tolerance=digits(300.0, 4),
    )


@EXERCISES.add("1.3 The log-derivative trick")
def best_of_two(attempt: Attempt, generator: Generator) -> None:
    probs = torch.tensor([0.5, 0.4, 0.1], dtype=torch.float64)
    rewards = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)
    worth, mean, best = torch.tensor([0.9, 1.4, 5.0], dtype=torch.float64), 0.9, 1.51
    right = torch.tensor([-0.61, -0.088, 0.698], dtype=torch.float64)
    unequal = torch.tensor([[0.0, 1.0, 5.0], [1.0, 0.0, 5.0], [5.0, 5.0, 0.0]]).double()
    alone = unequal @ probs
    attempt.equal(
        attempt(probs.log(), rewards),
        right,
        case="π = (0.5, 0.4, 0.1), r = (0, 1, 5), where E_b max(r_a, r_b) is 0.9, 1.4 and 5",
        mistakes={
            "that is the gradient of J, for one pull": probs * (rewards - mean),
            "a factor 2 is missing: both pulls depend on the logits": right / 2,
            "the average that is subtracted is J, that of one pull; the components must add up to "
            "zero": 2 * probs * (worth - mean),
            "no average is subtracted; the score of arm a is e_a − π, not e_a": 2 * probs * worth,
            "the sign is the wrong way round: along this direction the objective falls": -right,
            "only the score of the better pull was counted. Both pulls were drawn from the policy, "
            "so both scores belong to the pair": (
                torch.tensor([0.0, 0.56, 0.95]).double() - best * probs
            ),
            "the second pull was not allowed to hit the same arm; the pulls are independent": (
                2 * probs * (alone - probs @ alone)
            ),
        },
    )
    for arms in (2, 4):
        logits = torch.randn(arms, generator=generator, dtype=torch.float64)
        pays = torch.zeros(arms, dtype=torch.float64)
        while pays.min() == pays.max():  # of which every gradient is 0; some may be equal
            pays = torch.randint(-2, 3, (arms,), generator=generator).double()
        p = [math.exp(x) for x in logits.tolist()]
        p = [x / sum(p) for x in p]
        expected = torch.zeros(arms, dtype=torch.float64)
        for a in range(arms):
            for b in range(arms):
                for c in range(arms):
                    score = float(a == c) + float(b == c) - 2 * p[c]
                    expected[c] += p[a] * p[b] * float(max(pays[a], pays[b])) * score
        raw = logits.exp()
        worth = torch.maximum(pays[:, None], pays) @ raw
        attempt.equal(
            attempt(logits, pays),
            expected,
            case=f"{arms} arms, random logits, ties allowed",
            mistakes={
                "the logits were taken for log-probabilities; only a softmax makes them so": (
                    2 * raw * (worth - raw @ worth)
                )
            },
        )
