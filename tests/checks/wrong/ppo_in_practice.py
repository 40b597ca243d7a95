"""Wrong answers to the exercises of chapter 6."""

import math

import torch


def wrong_answers(sheet):
    risen, fallen = sheet.numbers("by-hand").values()

    def epochs_of(logits, actions, A, epochs, rate, *, loss=None, old="sampled", mean=torch.mean):
        loss = loss or (lambda ratio, A: -torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A))
        then = logits.log_softmax(0)[actions]
        for _ in range(epochs):
            leaf = logits.clone().requires_grad_()
            now = leaf.log_softmax(0)[actions]
            if old == "now":
                then = now.detach()
            if old == "itself":
                then = now
            (slope,) = torch.autograd.grad(mean(loss((now - then).exp(), A)), leaf)
            if old == "before":
                then = now.detach()
            logits = logits - rate * slope
        return logits

    def never_emptied(logits, actions, A, epochs, rate):
        leaf = logits.clone().requires_grad_()
        then = logits.log_softmax(0)[actions]
        for _ in range(epochs):
            ratio = (leaf.log_softmax(0)[actions] - then).exp()
            (-torch.min(ratio * A, ratio.clamp(0.8, 1.2) * A).mean()).backward()
            with torch.no_grad():
                leaf -= rate * leaf.grad
        return leaf

    def four(of_exact, of_k1, of_k3, of_ratio, *, log=math.log, join=lambda x: sum(x) / 2):
        def answer():
            states = [[p, *[(1 - p) / 3] * 3] for p in (risen, fallen)]
            ratios = [p / 0.25 for p in (risen, fallen)]
            return torch.tensor(
                [
                    join([of_exact(state, log) for state in states]),
                    *(join([of(r, log) for r in ratios]) for of in (of_k1, of_k3, of_ratio)),
                ]
            )

        return answer

    def old_to_new(state, log):
        return sum(0.25 * log(0.25 / p) for p in state)

    def new_to_old(state, log):
        return sum(p * log(p / 0.25) for p in state)

    def k1(r, log):
        return -log(r)

    def k3(r, log):
        return r - 1 - log(r)

    def ratio(r, log):
        return r

    RIGHT = (old_to_new, k1, k3, ratio)

    def steep(log):
        return log[-1]["kl"] > 1e-6

    def follows(log):
        return abs(log[-1]["approx_kl"]) > 1e-6

    def right_way_up(log):
        return abs(log[-1]["mean_ratio"] - 1) < 1e-6

    def starts_at_zero(log):
        return abs(log[0]["approx_kl"]) < 1e-6

    def dog(log, *, still=True, stale=True, recomputed=True, upside=True):
        if still and not steep(log):
            return "standing still"
        if stale and not starts_at_zero(log):
            return "stale"
        if recomputed and not follows(log):
            return "recomputed"
        if upside and not right_way_up(log):
            return "upside down"
        return "healthy"

    def moments(probs):
        scores = torch.eye(len(probs), dtype=probs.dtype) - probs
        inner = scores @ scores.T
        own = inner.diagonal()
        return probs @ own**2, probs @ inner**2 @ probs, probs @ own

    def factor(of):
        def answer(probs, samples):
            own, others, mean = moments(probs)
            return float(of(own / others, samples, mean**2 / others, len(probs)))

        return answer

    return {
        "mend-the-epochs": {
            "recomputed": (
                lambda *a: epochs_of(*a, old="now"),
                "the old log-probs are computed anew in every epoch",
            ),
            "one epoch behind": (
                lambda *a: epochs_of(*a, old="before"),
                "those of the epoch before",
            ),
            "gradients that add up": (never_emptied, "the gradients of all epochs add up"),
            "a tensor over itself": (
                lambda *a: epochs_of(*a, old="itself"),
                "the logits did not move",
            ),
            "one step": (
                lambda logits, actions, A, epochs, rate: epochs_of(logits, actions, A, 1, rate),
                "only one step was made",
            ),
            "the sum": (lambda *a: epochs_of(*a, mean=torch.sum), "the samples are summed"),
            "uphill": (
                lambda *a: epochs_of(*a[:4], -a[4]),
                "the gradient of a loss is subtracted",
            ),
            "no clip": (
                lambda *a: epochs_of(*a, loss=lambda ratio, A: -ratio * A),
                "there is no clip",
            ),
            "max of objectives": (
                lambda *a: epochs_of(
                    *a, loss=lambda r, A: -torch.max(r * A, r.clamp(0.8, 1.2) * A)
                ),
                "the larger of the two products",
            ),
            "only the clipped product": (
                lambda *a: epochs_of(*a, loss=lambda r, A: -r.clamp(0.8, 1.2) * A),
                "only the clipped product is used",
            ),
            "probabilities": (
                lambda *a: epochs_of(*a).softmax(0),
                "Wrong for two equally likely arms",
            ),
        },
        "by-hand": {
            "new to old": (four(new_to_old, *RIGHT[1:]), "the first number is KL(new‖old)"),
            "the sampled action only": (
                four(lambda state, log: 0.25 * log(0.25 / state[0]), *RIGHT[1:]),
                "holds only the sampled action",
            ),
            "the sign of k1": (
                four(old_to_new, lambda r, log: log(r), k3, ratio),
                "the second number has the wrong sign",
            ),
            "k3 upside down": (
                four(old_to_new, k1, lambda r, log: k3(1 / r, log), ratio),
                "in k3 the ratio is upside down",
            ),
            "k3 without the 1": (
                four(old_to_new, k1, lambda r, log: r - log(r), ratio),
                "the 1 is missing",
            ),
            "the ratio upside down": (
                four(old_to_new, k1, k3, lambda r, log: 1 / r),
                "the mean ratio is upside down",
            ),
            "a mean ratio of 1": (
                four(old_to_new, k1, k3, lambda r, log: 1.0),
                "the mean ratio is 1 under the old policy",
            ),
            "sums": (four(*RIGHT, join=sum), "these are sums"),
            "base 10": (four(*RIGHT, log=math.log10), "to the base 10"),
            "only one state": (
                four(*RIGHT, join=lambda x: x[0]),
                "Wrong for your probabilities",
            ),
        },
        "watchdog": {
            "clip fraction 0 is a symptom": (
                lambda log: "recomputed" if log[-1]["clip_fraction"] == 0 else dog(log),
                "that alone is no symptom",
            ),
            "nothing is ever wrong": (lambda log: "healthy", "approx_kl is 0 in every row"),
            "blind to what is stale": (
                lambda log: dog(log, stale=False),
                "there kl is 0. The program's",
            ),
            "blind to the mean ratio": (
                lambda log: dog(log, upside=False),
                "mean_ratio starts at 1 and climbs",
            ),
            "asleep": (lambda log: dog(log, still=False), "kl is 0 from beginning to end"),
            "distrusts the clip": (
                lambda log: "stale" if log[-1]["clip_fraction"] > 0 else dog(log),
                "That is all one can ask",
            ),
            "another word": (lambda log: "fine", "Expected one of 'healthy'"),
            "no rows": (lambda log: dog([]), "stopped with IndexError"),
        },
        "how-much-too-large": {
            "one sample": (factor(lambda c, n, m, K: c), "that is the factor for one sample"),
            "K − 1": (
                factor(lambda c, n, m, K: 1 + (K - 2) / n),
                "K − 1 is for equally likely actions\n",
            ),
            "K − 1 whatever n": (
                factor(lambda c, n, m, K: K - 1),
                "equally likely actions, and for one sample",
            ),
            "the others forgotten": (
                factor(lambda c, n, m, K: c / n),
                "to the n − 1 others has been forgotten",
            ),
            "n others": (factor(lambda c, n, m, K: 1 + c / n), "a sample has n − 1 others"),
            "the inverse": (
                factor(lambda c, n, m, K: 1 / (1 + (c - 1) / n)),
                "that is the inverse",
            ),
            "not squared": (
                factor(lambda c, n, m, K: math.sqrt(1 + (c - 1) / n)),
                "yours are not squared",
            ),
            "the square of a mean": (
                factor(lambda c, n, m, K: 1 + (m - 1) / n),
                "the square of a mean",
            ),
            "unbiased": (lambda probs, samples: 1.0, "Wrong for π_old = [½, ¼, ¼], two samples"),
            "a tensor of both": (
                lambda probs, samples: torch.stack(moments(probs)),
                "Expected one number",
            ),
        },
    }
