"""Wrong answers to the exercises of chapter 1."""

import math

import torch


def wrong_answers(sheet):
    given = sheet.numbers("by-hand")
    probs, rewards = (torch.tensor(given[key], dtype=torch.float64) for key in given)
    mean = probs @ rewards

    def taken(logits, arms, *, dim=1):
        return logits.log_softmax(dim=dim)[torch.arange(len(arms)), arms]

    def centred(r):
        return r - r.mean()

    def others(r):
        return r - (r.sum() - r) / (len(r) - 1)

    def bisected(ref, r, budget, spent, *, policy=None, low=1e-3, high=1e3, wrong_half=False):
        policy = policy or (lambda ref, r, beta: (ref + r / beta).log_softmax(0))
        for _ in range(60):
            beta = math.sqrt(low * high)
            too_much = spent(policy(ref, r, beta), ref) > budget
            low, high = (beta, high) if too_much != wrong_half else (low, beta)
        return beta

    def kl(log_p, log_q):
        return log_p.exp() @ (log_p - log_q)

    def overflowing(ref, r, beta):
        weights = ref.exp() * (r / beta).exp()
        return (weights / weights.sum()).log()

    def with_other(p, r):
        return torch.maximum(r[:, None], r) @ p

    def best_of_two(theta, r):
        p = theta.softmax(0)
        return 2 * p * (with_other(p, r) - p @ with_other(p, r))

    def winner_only(theta, r):
        p = theta.softmax(0)
        pairs = p[:, None] * p
        result = torch.zeros_like(p)
        for i in range(len(p)):
            for j in range(len(p)):
                score = torch.eye(len(p), dtype=p.dtype)[i if r[i] >= r[j] else j] - p
                result += pairs[i, j] * torch.maximum(r[i], r[j]) * score
        return result

    def never_the_same(theta, r):
        p = theta.softmax(0)
        worth = torch.maximum(r[:, None], r).fill_diagonal_(0.0) @ p
        return 2 * p * (worth - p @ worth)

    def unnormalised(theta, r):
        p = theta.exp()
        return 2 * p * (with_other(p, r) - p @ with_other(p, r))

    def bandit(p, r):
        return lambda: (torch.tensor(p), torch.tensor(r))

    return {
        "mend-the-loss": {
            "all pairs": (
                lambda x, a, r: -(centred(r) * x.log_softmax(1).gather(1, a[:, None])).mean(),
                "every log-probability was multiplied with every advantage",
            ),
            "the sign": (lambda x, a, r: (centred(r) * taken(x, a)).mean(), "paid well rarer"),
            "the sum": (
                lambda x, a, r: -(centred(r) * taken(x, a)).sum(),
                "that is the sum over the pulls",
            ),
            "no baseline": (lambda x, a, r: -(r * taken(x, a)).mean(), "there is no baseline"),
            "a mean over the zeros": (
                lambda x, a, r: (
                    -(centred(r)[:, None] * torch.eye(x.shape[1])[a] * x.log_softmax(1)).mean()
                ),
                "the mean was taken over all entries of a table",
            ),
            "probabilities": (
                lambda x, a, r: -(centred(r) * taken(x, a).exp()).mean(),
                "the probability is weighted instead of its logarithm",
            ),
            "softmax over the machines": (
                lambda x, a, r: -(centred(r) * taken(x, a, dim=0)).mean(),
                "the softmax runs over the machines",
            ),
            "standard scores": (
                lambda x, a, r: -(centred(r) / r.std() * taken(x, a)).mean(),
                "divided by their standard deviation",
            ),
            "standard scores of a whole population": (
                lambda x, a, r: -(centred(r) / r.std(correction=0) * taken(x, a)).mean(),
                "which is not asked for, with the denominator N",
            ),
            "mean of the others": (
                lambda x, a, r: -(others(r) * taken(x, a)).mean(),
                "compared with the mean of the *others*",
            ),
            "no gradient": (
                lambda x, a, r: -(centred(r) * taken(x, a).detach()).mean(),
                "No gradient flows through the result",
            ),
            "one loss for each pull": (
                lambda x, a, r: -(centred(r) * taken(x, a)),
                "Expected one number, got a tensor of shape (3,)",
            ),
            "three machines, always": (
                lambda x, a, r: -(centred(r) * taken(x, a)).sum() / 3,
                "Wrong for the gradient, five machines",
            ),
        },
        "by-hand": {
            "no baseline": (lambda: probs * rewards, "J is not subtracted"),
            "the plain mean": (
                lambda: probs * (rewards - rewards.mean()),
                "with the plain mean of the three rewards",
            ),
            "the advantages": (lambda: rewards - mean, "these are the advantages"),
            "the sign": (lambda: probs * (mean - rewards), "an arm above the average must rise"),
            "only its own probability": (
                lambda: probs * (1 - probs) * rewards,
                "only the arm's own probability was differentiated",
            ),
            "of the probabilities": (lambda: rewards, "with respect to the probabilities"),
            "squared probabilities": (
                lambda: probs.square() * (rewards - mean),
                "the probability was counted twice",
            ),
            "one number": (lambda: mean, "Expected shape (3,), got ()"),
        },
        "harmful-baseline": {
            "the favourite pays less": (
                bandit([0.9, 0.1], [0.0, 1.0]),
                "Your favourite pays less than the other arm",
            ),
            "a favourite that is not one": (
                bandit([0.6, 0.4], [1.0, 0.0]),
                "0 is still no better a baseline than J",
            ),
            "not certain enough": (bandit([0.8, 0.2], [1.0, 0.0]), "but only 9.0 times"),
            "the same pay": (bandit([0.9, 0.1], [1.0, 1.0]), "Both arms pay the same"),
            "a fair coin": (bandit([0.5, 0.5], [1.0, 0.0]), "Both scores are equally long"),
            "odds": (bandit([9.0, 1.0], [1.0, 0.0]), "The first tensor adds up to 10"),
            "too rare": (bandit([0.99, 0.01], [1.0, 0.0]), "One arm is rarer than 0.05"),
            "a large offset": (bandit([0.9, 0.1], [31.0, 30.0]), "must lie between 0 and 1"),
            "the probabilities only": (
                lambda: torch.tensor([0.9, 0.1]),
                "Expected two tensors",
            ),
            "three arms": (
                bandit([0.8, 0.1, 0.1], [1.0, 0.0, 0.0]),
                "Expected shape (2,), got (3,)",
            ),
        },
        "kl-budget": {
            "the inverse": (
                lambda ref, r, k: 1 / bisected(ref, r, k, kl),
                "that is 1/β",
            ),
            "the divergence the other way round": (
                lambda ref, r, k: bisected(ref, r, k, lambda p, q: kl(q, p)),
                "the divergence is the wrong way round",
            ),
            "no reference in the policy": (
                lambda ref, r, k: bisected(
                    ref, r, k, kl, policy=lambda ref, r, beta: (r / beta).log_softmax(0)
                ),
                "the reference is missing from the policy",
            ),
            "the entropy instead": (
                lambda ref, r, k: bisected(ref, r, k, lambda p, q: math.log(len(p)) + p.exp() @ p),
                "measured from the uniform policy",
            ),
            "bits": (
                lambda ref, r, k: bisected(ref, r, k, lambda p, q: kl(p, q) / math.log(2)),
                "the divergence is in bits",
            ),
            "the wrong half": (
                lambda ref, r, k: bisected(ref, r, k, kl, wrong_half=True),
                "coefficient that spends too much is too low",
            ),
            "a plain sum of logarithms": (
                lambda ref, r, k: bisected(ref, r, k, lambda p, q: (p - q).sum()),
                "Is each logarithm weighted",
            ),
            "an overflow": (
                lambda ref, r, k: bisected(ref, r, k, kl, policy=overflowing),
                "infinity over infinity is NaN",
            ),
            "the first two arms": (
                lambda ref, r, k: bisected(ref[:2].log_softmax(0), r[:2], k, kl),
                "Wrong for five arms with a random reference",
            ),
            "a coarse grid": (
                lambda ref, r, k: min(
                    (0.01 * i for i in range(1, 500)),
                    key=lambda beta: abs(kl((ref + r / beta).log_softmax(0), ref) - k),
                ),
                "Wrong for reference (1/4, 3/4)",
            ),
        },
        "best-of-two": {
            "one pull": (
                lambda x, r: x.softmax(0) * (r - x.softmax(0) @ r),
                "that is the gradient of J, for one pull",
            ),
            "half of it": (lambda x, r: best_of_two(x, r) / 2, "a factor 2 is missing"),
            "the baseline of one pull": (
                lambda x, r: 2 * x.softmax(0) * (with_other(x.softmax(0), r) - x.softmax(0) @ r),
                "the average that is subtracted is J",
            ),
            "no baseline": (
                lambda x, r: 2 * x.softmax(0) * with_other(x.softmax(0), r),
                "no average is subtracted",
            ),
            "the sign": (lambda x, r: -best_of_two(x, r), "the sign is the wrong way round"),
            "the better pull only": (winner_only, "only the score of the better pull"),
            "two different arms": (never_the_same, "not allowed to hit the same arm"),
            "no softmax": (unnormalised, "the logits were taken for log-probabilities"),
            "a row": (lambda x, r: best_of_two(x, r)[None], "Expected shape (3,), got (1, 3)"),
        },
    }
