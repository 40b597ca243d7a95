"""Wrong answers to the exercises of chapter 10."""

import math

import torch


def wrong_answers(sheet):
    verdicts = torch.tensor(sheet.numbers("by-hand")["verdicts"], dtype=torch.float64)
    away = torch.tensor([1.0, 0.0]) - verdicts.mean()
    scores = away / verdicts.std()

    def filtered(keep):
        return lambda r, g: keep(r.view(-1, g)).repeat_interleave(g)

    def from_mean(groups):
        return ((groups - groups.mean(1, keepdim=True)) != 0).any(1)

    def mirrored(first, second):
        return lambda advantage: ([x**advantage for x in first], [x**advantage for x in second])

    def kept(p, g):
        return 1 - p**g - (1 - p) ** g

    def weights(p, g, chance):
        return torch.full_like(p, (g - 1) / g / len(p)) / chance.mean()

    def drift(probs, lengths, right, *, f=None, uniform=False):
        if f is None:
            f = (right.double() - probs[right].sum()) / lengths
        results = []
        for kind in (right, ~right):
            share = torch.ones_like(probs[kind]) if uniform else probs[kind]
            share = share / share.sum()
            both = share @ (lengths[kind] * f[kind])
            results.append((both - (share @ lengths[kind]) * (share @ f[kind])).item())
        return tuple(results)

    def unconditional(probs, lengths, right):
        f = (right.double() - probs[right].sum()) / lengths
        moved = probs * (f - probs @ f) * lengths
        return moved[right].sum().item(), moved[~right].sum().item()

    def without_normalising(probs, lengths, right):
        f = (right.double() - probs[right].sum()) / lengths
        return tuple(
            (probs[k] @ (lengths[k] * f[k]) / probs[k].sum()).item() for k in (right, ~right)
        )

    def without_factors(probs, lengths, right):
        of_right, of_wrong = drift(probs, lengths, right)
        p = probs[right].sum().item()
        return of_right / (1 - p), of_wrong / p

    def but(**changed):
        right = {"a": "exact", "b": "own length", "c": "padding", "d": "upside down"}
        return lambda loss: {**right, "e": "nothing", **changed}[loss]

    return {
        "mend-the-filter": {
            "distances from the mean": (filtered(from_mean), "in float32 the mean of equal"),
            "rising rewards only": (
                filtered(lambda x: (x.diff(dim=1) > 0).any(1)),
                "rewards that fall from one rollout to the next differ as well",
            ),
            "DAPO's rule for verdicts": (
                filtered(lambda x: (x.mean(1) > 0) & (x.mean(1) < 1)),
                "a mean strictly between 0 and 1",
            ),
            "the zero-variance groups": (
                filtered(lambda x: x.amax(1) == x.amin(1)),
                "kept and thrown away are exchanged",
            ),
            "one by one": (
                lambda r, g: (r.view(-1, g) != r.view(-1, g)[:, :1]).view(-1),
                "the rollouts are judged one by one",
            ),
            "the whole batch": (
                lambda r, g: (r.max() > r.min()).expand(len(r)),
                "rewards of different groups are compared",
            ),
            "the first and the last": (
                filtered(lambda x: x[:, 0] != x[:, -1]),
                "only two of a group's rewards are compared",
            ),
            "a tolerance": (
                filtered(lambda x: x.amax(1) - x.amin(1) > 1e-4),
                "a tolerance hides a small but honest difference",
            ),
            "the variance": (
                filtered(lambda x: x.var(1) > 0),
                "the square of a very small difference",
            ),
            "one word for each group": (
                lambda r, g: r.view(-1, g).amax(1) > r.view(-1, g).amin(1),
                "Expected shape (18,), got (3,)",
            ),
            "numbers for truth values": (
                filtered(lambda x: (x.amax(1) > x.amin(1)).float()),
                "Expected dtype torch.bool",
            ),
            "the groups of the other layout": (
                lambda r, g: (r.view(g, -1).amax(0) > r.view(g, -1).amin(0)).repeat(g),
                "Wrong for groups of 6",
            ),
        },
        "by-hand": {
            "the other denominator": (
                lambda: away / verdicts.std(correction=0),
                "the denominator here is G − 1",
            ),
            "not divided": (lambda: away, "these are the distances from the mean"),
            "divided by the variance": (lambda: away / verdicts.var(), "take its root first"),
            "the order": (lambda: scores.flip(0), "the right answer's comes first"),
            "the sizes exchanged": (lambda: -scores.flip(0), "the two sizes are exchanged"),
            "no sign": (lambda: scores.abs(), "a wrong answer lies below the mean"),
            "leave-one-out": (
                lambda: away * len(verdicts) / (len(verdicts) - 1),
                "with the others only (leave-one-out)",
            ),
            "one for each answer": (
                lambda: (verdicts - verdicts.mean()) / verdicts.std(),
                "Expected shape (2,)",
            ),
        },
        "two-answers": {
            "no number": (
                lambda advantage: ([1.4, 1.4, 1.4, math.nan], [1.15, 1.15, 1.15, 10.0]),
                "A ratio is a finite number",
            ),
            "both ends clip": (
                mirrored([0.5, 0.5, 0.5, 8.0], [1.1, 1.1, 1.1, 9.0]),
                "went the wrong way and keeps its gradient",
            ),
            "one answer for both signs": (
                lambda advantage: ([1.4, 1.4, 1.4, 0.1], [1.15, 1.15, 1.15, 10.0]),
                "a token above 1.2",
            ),
            "the fourth does not outweigh": (
                mirrored([1.4, 1.4, 1.4, 1.1], [1.15, 1.15, 1.15, 10.0]),
                "The fourth token has to weigh against the other three",
            ),
            "the product": (
                mirrored([1.4, 1.4, 1.4, 0.1], [1.0, 1.0, 1.0, 1.5]),
                "GSPO takes its fourth root",
            ),
            "the arithmetic mean": (
                mirrored([1.4, 1.4, 1.4, 0.1], [0.5, 0.5, 1.0, 3.0]),
                "GSPO takes the mean of the logarithms",
            ),
            "not far enough": (
                mirrored([1.4, 1.4, 1.4, 0.1], [0.9, 0.9, 0.9, 1.3]),
                "The one token has to go farther out",
            ),
            "the order": (
                mirrored([1.15, 1.15, 1.15, 10.0], [1.4, 1.4, 1.4, 0.1]),
                "Hand them in the other way round",
            ),
            "log-ratios": (
                lambda advantage: ([0.3, 0.3, 0.3, -2.0], [0.1, 0.1, 0.1, 2.0]),
                "these are log-ratios",
            ),
            "four tokens clipped": (
                mirrored([1.4, 1.4, 1.4, 1.4], [1.15, 1.15, 1.15, 10.0]),
                "PPO clips 4 of the tokens",
            ),
            "one list": (lambda advantage: [1.4, 1.4, 1.4, 0.1], "Expected two lists"),
        },
        "kept-groups": {
            "no group thrown away": (
                lambda p, g: weights(p, g, torch.ones_like(p)),
                "that is what a *drawn* group contributes",
            ),
            "all prompts kept equally often": (
                lambda p, g: (g - 1) / g / len(p) / kept(p, g),
                "as if each were kept equally often",
            ),
            "the frequency alone": (
                lambda p, g: (g - 1) / g * kept(p, g) / kept(p, g).sum(),
                "its kept ones contribute more",
            ),
            "the chance of the others": (
                lambda p, g: weights(p, g, 1 - kept(p, g)),
                "the chance of being thrown away was used",
            ),
            "no factor (G − 1)/G": (
                lambda p, g: weights(p, g, kept(p, g)) * g / (g - 1),
                "the factor (G − 1)/G is missing",
            ),
            "no 1/P": (
                lambda p, g: weights(p, g, kept(p, g)) * len(p),
                "each prompt is drawn with probability 1/P",
            ),
            "all wrong is kept": (
                lambda p, g: weights(p, g, 1 - p**g),
                "groups in which all are wrong are thrown away, too",
            ),
            "all right is kept": (
                lambda p, g: weights(p, g, 1 - (1 - p) ** g),
                "groups in which all are right are thrown away, too",
            ),
            "right for pairs only": (
                lambda p, g: weights(p, g, 2 * p * (1 - p)),
                "all groups of 3 verdicts enumerated",
            ),
            "one number": (
                lambda p, g: weights(p, g, kept(p, g))[0],
                "Expected shape (3,), got ()",
            ),
        },
        "predict-the-report": {
            "by its value": (but(a="nothing"), "only one of the two log-probs is detached"),
            "an average is an average": (but(b="exact"), "divided by its own length"),
            "a mean is a mean": (but(c="exact"), "the padded ones included"),
            "every mean is the same": (but(c="own length"), "and it counts padding"),
            "fresh samples only": (but(d="exact"), "whose ratio has risen to 2"),
            "a sign too few": (but(d="nothing"), "the derivative of exp(old − new)"),
            "a ratio is a ratio": (but(e="exact"), "a number that is detached"),
            "the wrong one is upside down": (but(e="upside down"), "the right way up"),
            "no idea": (but(b="padding"), "differentiate it with respect to one"),
            "other words": (but(a="unbiased"), "expected one of 'exact', 'own length'"),
            "a number": (lambda loss: 1, "For loss a you return 1"),
        },
        "length-drift": {
            "the token sum": (
                lambda p, n, r: drift(p, n, r, f=r.double() - p[r].sum()),
                "that is the drift of the token sum",
            ),
            "no baseline": (
                lambda p, n, r: drift(p, n, r, f=r / n),
                "the baseline p is missing",
            ),
            "the order": (
                lambda p, n, r: drift(p, n, r)[::-1],
                "the right answers' drift comes first",
            ),
            "the sign": (
                lambda p, n, r: tuple(-x for x in drift(p, n, r)),
                "both signs are the wrong way round",
            ),
            "not given the verdict": (unconditional, "you are asked for the mean length *given*"),
            "no covariance": (without_normalising, "the product of the two means comes off"),
            "multiplied by the length": (
                lambda p, n, r: drift(p, n, r, f=(r.double() - p[r].sum()) * n),
                "f is multiplied by the length",
            ),
            "no factors p and 1 − p": (without_factors, "the factors 1 − p and p are missing"),
            "z-scores": (
                lambda p, n, r: drift(
                    p, n, r, f=(r.double() - p[r].sum()) / (p[r].sum() * p[~r].sum()).sqrt() / n
                ),
                "divided by their standard deviation",
            ),
            "p and 1 − p exchanged": (
                lambda p, n, r: drift(p, n, r, f=(r.double() - p[~r].sum()) / n),
                "1 − p and p are exchanged",
            ),
            "every answer equally likely": (
                lambda p, n, r: drift(p, n, r, f=(r.double() - p[r].sum()) / n, uniform=True),
                "as if they all had the same probability",
            ),
            "their sum": (lambda p, n, r: sum(drift(p, n, r)), "Expected two numbers"),
        },
    }
