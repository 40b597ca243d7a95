"""Wrong answers to the exercises of chapter 12."""

import math

import torch


def wrong_answers(sheet):
    n, eta, beta, eigenvalue = sheet.numbers("by-hand").values()
    x = eta * beta * eigenvalue
    frozen, recomputed, most = 1 - n * x, (1 - x) ** n, math.ceil(2 / x) - 1

    def three(*values):
        return lambda: torch.tensor(values, dtype=torch.float64)

    def weights(value):
        """Weights from the log-ratios of the tokens, 0 at padding; sums are of the logarithms."""

        def answer(log_probs, old_log_probs, mask, cap):
            log_ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0)
            return value(log_ratio, math.log(cap)).masked_fill(~mask, 0.0)

        return answer

    def right(log_ratio, limit):
        total = log_ratio.cumsum(dim=1)
        return (total.detach().clamp(-limit, limit) + total - total.detach()).exp()

    def times_the_mask(log_probs, old_log_probs, mask, cap):
        return right((log_probs - old_log_probs) * mask, math.log(cap)) * mask

    def through_the_ratio(log_ratio, limit):
        ratio = log_ratio.cumsum(dim=1).exp()
        fixed = ratio.detach()
        return ratio * (fixed.clamp(math.exp(-limit), math.exp(limit)) / fixed)

    def straight_through(log_ratio, limit):
        ratio = log_ratio.cumsum(dim=1).exp()
        capped = ratio.clamp(math.exp(-limit), math.exp(limit))
        return ratio + (capped - ratio).detach()

    def to_own_token_only(log_ratio, limit):
        total = log_ratio.detach().cumsum(dim=1)
        return (total.clamp(-limit, limit) + log_ratio - log_ratio.detach()).exp()

    def split(shares):
        """Grades in these shares: a function of π*, π_ref and σ."""

        def answer(ref, rewards, stds, beta, budget):
            best = (ref.log() + rewards / beta).softmax(dim=0)
            found = shares(best, ref, stds)
            return budget * found / found.sum()

        return answer

    def root(probs):
        return (probs * (1 - probs)).sqrt()

    def with_temperature(exponent):
        def answer(ref, rewards, stds, beta, budget):
            best = (ref.log() + exponent(rewards, beta)).softmax(dim=0)
            found = root(best) * stds
            return budget * found / found.sum()

        return answer

    def overflows(ref, rewards, stds, beta, budget):
        best = ref * (rewards / beta).exp()
        best = best / best.sum()
        found = root(best) * stds
        return budget * found / found.sum()

    def bisected(held):
        def answer(q):
            v, low, high = math.log(q / (1 - q)), 1e-4, 1e4
            for _ in range(100):
                b = math.sqrt(low * high)
                low, high = (low, b) if held(b, v) else (b, high)
            return high

        return answer

    def edge(b):
        return 2 * math.asinh(b) - 2 * math.sqrt(1 + b**2) / b

    def of_the_variance(b, v):
        # β (u − v) against 1/p(1 − p) = 2 + 2 cosh u, which touch at 2 sinh u = β
        u = math.asinh(b / 2)
        return b * (u - v) >= 2 + 2 * math.cosh(u)

    def half_the_place(b, v):
        u = math.asinh(b)
        return b * (u - v) >= 2 * math.cosh(u / 2)

    def logit(q):
        return math.log(q / (1 - q))

    solved = bisected(lambda b, v: edge(b) >= v)

    return {
        "mend-the-cap": {
            "a clamp": (
                weights(
                    lambda d, limit: d.cumsum(dim=1).exp().clamp(math.exp(-limit), math.exp(limit))
                ),
                "a clamp has derivative 0 there",
            ),
            "straight through": (
                weights(straight_through),
                "the number is capped and its gradient is not",
            ),
            "its own token only": (
                weights(to_own_token_only),
                "the gradient of each weight reaches its own token only",
            ),
            "detached": (
                weights(lambda d, limit: right(d, limit).detach()),
                "No gradient flows",
            ),
            "the token's ratio": (
                weights(lambda d, limit: d.clamp(-limit, limit).exp()),
                "that is the ratio of the single token",
            ),
            "capped before the product": (
                weights(lambda d, limit: d.clamp(-limit, limit).cumsum(dim=1).exp()),
                "each token's ratio is capped before the product",
            ),
            "no cap": (weights(lambda d, limit: d.cumsum(dim=1).exp()), "no cap is left"),
            "above only": (
                weights(lambda d, limit: d.cumsum(dim=1).clamp(max=limit).exp()),
                "the cap holds above only",
            ),
            "upside down": (
                weights(lambda d, limit: (-d).cumsum(dim=1).clamp(-limit, limit).exp()),
                "the ratio is upside down",
            ),
            "the tokens before": (
                weights(lambda d, limit: (d.cumsum(dim=1) - d).clamp(-limit, limit).exp()),
                "the ratio of the tokens before this one",
            ),
            "no mask": (
                lambda now, then, mask, cap: right(
                    (now - then).masked_fill(~mask, 0.0), math.log(cap)
                ).where(mask, (now - then).cumsum(dim=1).exp()),
                "the weight of padding is not 0",
            ),
            "times the mask": (times_the_mask, "put zeros at padding before you add up"),
            "through the ratio itself": (
                weights(through_the_ratio),
                "a product was formed",
            ),
        },
        "by-hand": {
            "the sign": (three(-frozen, recomputed, most), "on the other side of the optimum"),
            "exchanged": (three(recomputed, frozen, most), "the first two are exchanged"),
            "one update": (three(1 - x, 1 - x, most), "one update only"),
            "one frozen update": (three(1 - x, recomputed, most), "the first is for one update"),
            "one recomputed update": (three(frozen, 1 - x, most), "the second is for one update"),
            "an exponential": (
                three(frozen, math.exp(-n * x), most),
                "holds for small steps only",
            ),
            "no β": (
                three(
                    1 - n * eta * eigenvalue,
                    (1 - eta * eigenvalue) ** n,
                    math.ceil(2 / (eta * eigenvalue)) - 1,
                ),
                "β is left out",
            ),
            "not whole": (three(frozen, recomputed, 2 / x), "has to be a whole number"),
            "one too many": (three(frozen, recomputed, most + 1), "one too many"),
            "no overshooting at all": (
                three(frozen, recomputed, math.ceil(1 / x) - 1),
                "below which nothing overshoots",
            ),
            "two of them": (three(frozen, recomputed), "Expected shape (3,), got (2,)"),
        },
        "where-to-measure": {
            "all alike": (split(lambda best, ref, s: torch.ones_like(s)), "all answers alike"),
            "no σ": (split(lambda best, ref, s: root(best)), "σ is left out"),
            "no root": (
                split(lambda best, ref, s: best * (1 - best) * s**2),
                "n goes with the root",
            ),
            "the root of π*": (
                split(lambda best, ref, s: best.sqrt() * s),
                "the root is taken of π* alone",
            ),
            "as sampled": (split(lambda best, ref, s: best), "as often as answers are sampled\n"),
            "as sampled, times σ": (
                split(lambda best, ref, s: best * s),
                "as often as answers are sampled, times σ",
            ),
            "the reference": (
                split(lambda best, ref, s: root(ref) * s),
                "errors are weighed by the reference",
            ),
            "no β": (with_temperature(lambda r, b: r), "β is left out of π*"),
            "times β": (with_temperature(lambda r, b: r * b), "the reward is multiplied by β"),
            "the tilt's sign": (
                with_temperature(lambda r, b: -r / b),
                "Wrong for π_ref = [0.4, 0.2, 0.2, 0.2]",
            ),
            "shares": (
                lambda *x: split(lambda best, ref, s: root(best) * s)(*x) / x[-1],
                "which add up to the budget",
            ),
            "overflow": (overflows, "overflows; take a softmax"),
            "one number": (lambda *x: torch.tensor(x[-1]), "Expected shape (4,), got ()"),
        },
        "letting-go": {
            "at one half": (lambda q: -2 / logit(q), "at p = ½, where σ is largest"),
            "the variance": (bisected(of_the_variance), "and not the variance"),
            "the other answer": (lambda q: solved(1 - q), "has the wrong sign"),
            "log q": (lambda q: solved(q / (1 + q)), "log q was used in place of the logit"),
            "half the place": (bisected(half_the_place), "so their slopes agree too"),
            "β twice": (lambda q: math.sqrt(solved(q)), "β counts twice"),
            "a little too much": (lambda q: 1.0005 * solved(q), "Wrong for q = 0.12"),
            "right for one reference": (
                lambda q: solved(q) if q > 0.1 else 0.75,
                "should be so that it does not hold",
            ),
            "no penalty at all": (
                lambda q: solved(q) if q > 0.1 else 0.0,
                "expected a positive number",
            ),
            "a pair": (lambda q: (solved(q), 1.0), "Expected one number, got tuple"),
        },
    }
