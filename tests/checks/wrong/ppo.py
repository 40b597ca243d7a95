"""Wrong answers to the exercises of chapter 5."""

import torch


def wrong_answers(sheet):
    pairs = sheet.numbers("by-hand")["pairs"]

    def clipped_samples(new, old, A, e, *, low=True, high=True, sign=1.0, log=False):
        ratio = new - old + 1 if log else (new - old).exp()
        above = (ratio > 1 + e) & high
        below = (ratio < 1 - e) & low
        return ((sign * A > 0) & above) | ((sign * A < 0) & below)

    def cases(of):
        def answer():
            return torch.tensor([of(A, r, min(max(r, 0.8), 1.2)) for A, r in pairs])

        return answer

    def best(choose):
        return lambda A, r, c: (r * A, r * A) if choose(r * A, c * A) == r * A else (c * A, 0.0)

    def by_sign(x, y):
        return min(x, y) if x > 0 else max(x, y)

    def clipped(new, old, A, width, *, keep=torch.min, sign=-1.0):
        ratio = (new - old).exp()
        width = torch.as_tensor(width)
        return sign * keep(ratio * A, ratio.clamp(1 - width, 1 + width) * A)

    def straight_through(new, old, A, room):
        ratio = (new - old).exp()
        value = -clipped(new, old, A, room / old.exp())
        return -(ratio * A + (value - ratio * A).detach())

    def share(weights):
        return weights / weights.sum()

    def uniform_where_it_pays(p, r):
        return share((r != 0).to(p.dtype) * p)

    def fixed_point(old, A, beta, *, normalise=False):
        def policy(multiplier):
            return beta * old / (multiplier - A)

        if normalise:
            return share(policy(A.max() + beta))
        low, high = (A + beta * old).max(), A.max() + beta
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if policy(middle).sum() > 1 else (low, middle)
        return policy(high)

    return {
        "mend-the-clip-fraction": {
            "all that is outside": (
                lambda new, old, A, e: ((new - old).exp() - 1).abs() > e,
                "these are all samples outside the interval",
            ),
            "no room below": (
                lambda new, old, A, e: torch.where(
                    A > 0, (new - old).exp() > 1 + e, ((new - old).exp() < 1) & (A < 0)
                ),
                "the interval begins at 1",
            ),
            "one over 1 + ε": (
                lambda new, old, A, e: torch.where(
                    A > 0, (new - old).exp() > 1 + e, ((new - old).exp() < 1 / (1 + e)) & (A < 0)
                ),
                "and not 1/(1 + ε) or e^−ε",
            ),
            "the signs swapped": (
                lambda *a: clipped_samples(*a, sign=-1.0),
                "the signs are swapped",
            ),
            "upside down": (
                lambda new, old, A, e: clipped_samples(old, new, A, e),
                "the ratio is upside down",
            ),
            "log-ratio": (
                lambda *a: clipped_samples(*a, log=True),
                "the interval is one of ratios",
            ),
            "good samples only": (
                lambda *a: clipped_samples(*a, low=False),
                "the lower end is missing",
            ),
            "the upper end only": (
                lambda new, old, A, e: (new - old).exp() > 1 + e,
                "only the upper end is looked at",
            ),
            "those with a gradient": (lambda *a: ~clipped_samples(*a), "that *have* a gradient"),
            "zeros are bad": (
                lambda new, old, A, e: clipped_samples(new, old, torch.where(A > 0, 1.0, -1.0), e),
                "Samples with the advantage 0 are counted",
            ),
            "zeros and ones": (
                lambda *a: clipped_samples(*a).float(),
                "Expected dtype torch.bool",
            ),
        },
        "by-hand": {
            "the larger product": (cases(best(max)), "you kept the larger of the two"),
            "always clipped": (
                cases(lambda A, r, c: (c * A, 0.0)),
                "every ratio outside the interval was clipped",
            ),
            "never clipped": (cases(lambda A, r, c: (r * A, r * A)), "nothing was clipped"),
            "slopes everywhere": (
                cases(lambda A, r, c: (min(r * A, c * A), r * A)),
                "a clipped product does not move",
            ),
            "slope A": (
                cases(lambda A, r, c: (min(r * A, c * A), A * (r * A < c * A))),
                "is ρ A and not A",
            ),
            "by the sign of A": (cases(best(by_sign)), "and the larger one for bad ones"),
            "losses": (lambda: -cases(best(min))(), "these are losses"),
            "objectives only": (
                lambda: cases(best(min))()[:, 0],
                "Expected shape (4, 2), got (4,)",
            ),
            "another order": (lambda: cases(best(min))().flip(0), "Wrong for your pairs"),
        },
        "clip-the-probability": {
            "PPO as usual": (
                lambda new, old, A, room: clipped(new, old, A, room),
                "the *ratio* was kept within",
            ),
            "the room multiplied": (
                lambda new, old, A, room: clipped(new, old, A, room * old.exp()),
                "the room was multiplied with π_old",
            ),
            "no clip": (
                lambda new, old, A, room: -(new - old).exp() * A,
                "there is no clip at all",
            ),
            "only the clipped product": (
                lambda new, old, A, room: clipped(
                    new, old, A, room / old.exp(), keep=lambda x, y: y
                ),
                "only the clipped product is used",
            ),
            "max of objectives": (
                lambda new, old, A, room: clipped(new, old, A, room / old.exp(), keep=torch.max),
                "has to take the maximum",
            ),
            "the objective": (
                lambda new, old, A, room: clipped(new, old, A, room / old.exp(), sign=1.0),
                "that is the objective",
            ),
            "straight through": (
                straight_through,
                "tokens whose probability has moved far enough still push",
            ),
            "the probability in the objective": (
                lambda new, old, A, room: clipped(new, old, A, room / old.exp()) * old.exp(),
                "the probability was used in the objective",
            ),
            "a detached ratio": (
                lambda new, old, A, room: clipped(new.detach(), old, A, room / old.exp()),
                "No gradient flows",
            ),
            "the mean": (
                lambda new, old, A, room: clipped(new, old, A, room / old.exp()).mean(),
                "Expected shape (4,), got ()",
            ),
        },
        "best-sampler": {
            "on policy": (lambda p, r: p, "not the best one can do"),
            "no square root": (lambda p, r: share((p * r) ** 2), "has a square root in it"),
            "with signs": (lambda p, r: share(p * r), "these probabilities are negative"),
            "not normalised": (lambda p, r: p * r.abs(), "do not add up to 1"),
            "rewards only": (lambda p, r: share(r.abs()), "has been forgotten"),
            "half a square root": (lambda p, r: share(p * r**2), "proportional to π r²;"),
            "good arms only": (
                lambda p, r: share(p * r.clamp(min=0)),
                "only rewards above 0 are sampled",
            ),
            "on policy, without the idle arms": (
                uniform_where_it_pays,
                "Wrong for π = [0.6, 0.2, 0.2]",
            ),
        },
        "penalty-optimum": {
            "the other KL": (
                lambda old, A, beta: (old.log() + A / beta).softmax(0),
                "the optimum for KL(new‖old)",
            ),
            "greedy": (
                lambda old, A, beta: torch.eye(len(A)).double()[A.argmax()],
                "everything on the best arm",
            ),
            "the sign": (
                lambda old, A, beta: fixed_point(old, -A, beta),
                "the good arm became rarer",
            ),
            "normalised afterwards": (
                lambda old, A, beta: fixed_point(old, A, beta, normalise=True),
                "the shape β π_old / (μ − A) is right",
            ),
            "the upper end": (
                lambda old, A, beta: beta * old / (A.max() + beta - A),
                "only the upper end of where to look",
            ),
            "beta inverted": (
                lambda old, A, beta: fixed_point(old, A, 1 / beta),
                "β works the wrong way round",
            ),
            "beta forgotten": (
                lambda old, A, beta: fixed_point(old, A, 1.0),
                "β has been forgotten",
            ),
            "a uniform old policy": (
                lambda old, A, beta: fixed_point(torch.full_like(old, 1 / len(old)), A, beta),
                "π_old has been forgotten",
            ),
            "not quite there": (
                lambda old, A, beta: fixed_point(old, A, beta) if len(old) == 2 else old + 0 * A,
                "Wrong for five random arms",
            ),
        },
    }
