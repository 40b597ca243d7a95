"""Wrong answers to the exercises of chapter 9."""

import math

import torch
from torch.nn.functional import logsigmoid


def wrong_answers(sheet):
    a, b, c = sheet.numbers("by-hand")["a, b, c"]
    first, second = a / (a + b), c / (c + a)

    def at(numbers, places):
        return numbers.gather(1, places.clamp(0, numbers.shape[1] - 1)[:, None])[:, 0]

    def counted(mask):
        return mask.sum(1)

    def first_hole(mask):
        return mask.int().cumprod(1).sum(1) - 1

    def weighted(numbers, mask):
        later = mask.flip(1).cumsum(1).flip(1)
        return (numbers * (mask & (later == 1))).sum(1)

    def answer(first, second, *, share=0.5, sign=1):
        up, down = share * (1 - first), share * (1 - second)
        return torch.tensor([first, second, sign * (up - down), -sign * up, sign * down])

    def logistic(u):
        return 1 / (1 + math.exp(-u))

    def alternating(scores, height, sign=1):
        signs = torch.ones(len(scores), 1)
        signs[1::2] = -1
        return scores + sign * height * signs

    def davidson(u, outcomes, *, tie):
        logits = torch.stack([-u, torch.full_like(u, tie), u], dim=1)
        return -logits.log_softmax(1).gather(1, outcomes[:, None] + 1).mean()

    def good(s, t, outcomes, nu):
        return davidson((s - t) / 2, outcomes, tie=math.log(nu))

    def without_ties(s, t, outcomes, nu):
        decided = outcomes != 0
        return -logsigmoid((outcomes * (s - t))[decided]).mean()

    def half_and_half(s, t, outcomes, nu):
        u = s - t
        won, lost = logsigmoid(u), logsigmoid(-u)
        chosen = torch.where(outcomes > 0, won, torch.where(outcomes < 0, lost, (won + lost) / 2))
        return -chosen.mean()

    def overflowing(s, t, outcomes, nu):
        u = (s - t) / 2
        weights = torch.stack([(-u).exp(), torch.full_like(u, nu), u.exp()], dim=1)
        share = weights.gather(1, outcomes[:, None] + 1)[:, 0] / weights.sum(1)
        return -share.log().mean()

    def solve(features, targets):
        return torch.linalg.lstsq(features, targets[:, None]).solution.flatten().tolist()

    def fitted(kls, gains, *, of=torch.sqrt, weighted=True, peak=-1.0, power=2):
        distance = of(kls)
        columns = torch.stack([torch.ones_like(kls), -distance.log()], dim=1)
        scale = distance if weighted else torch.ones_like(kls)
        a, b = solve(columns * scale[:, None], gains * scale / distance)
        return math.exp(a / b + peak) ** power

    def parabola(kls, gains):
        distance = kls.sqrt()
        a, b = solve(torch.stack([distance, -(distance**2)], dim=1), gains)
        return (a / (2 * b)) ** 2

    return {
        "mend-the-last-score": {
            "the last column": (lambda n, m: n[:, -1], "the last column was read"),
            "the first token": (lambda n, m: n[:, 0], "that is the first token"),
            "one too late": (lambda n, m: at(n, counted(m)), "one position too late"),
            "one too early": (lambda n, m: at(n, counted(m) - 2), "one position too early"),
            "the mean": (
                lambda n, m: n.masked_fill(~m, 0).sum(1) / counted(m),
                "the numbers of an answer were averaged",
            ),
            "the sum": (
                lambda n, m: n.masked_fill(~m, 0).sum(1),
                "then long answers score more",
            ),
            "tokens counted": (lambda n, m: at(n, counted(m) - 1), "the tokens were counted"),
            "up to the first hole": (
                lambda n, m: torch.where(m[:, 0], at(n, first_hole(m)), n[:, -1]),
                "the search stopped at the first hole",
            ),
            "multiplied": (weighted, "select, do not multiply"),
            "one number each position": (
                lambda n, m: n.masked_fill(~m, 0),
                "Expected shape (2,), got (2, 4)",
            ),
        },
        "by-hand": {
            "the opposite": (
                lambda: answer(1 - first, 1 - second),
                "those of the opposite choices",
            ),
            "the second choice turned round": (
                lambda: torch.tensor(
                    [first, 1 - second, (1 - first + second) / 2, (first - 1) / 2, -second / 2]
                ),
                "it was C that was preferred",
            ),
            "numbers as scores": (
                lambda: answer(logistic(a - b), logistic(c - a)),
                "the scores are their logarithms",
            ),
            "the sum": (
                lambda: answer(first, second, share=1.0),
                "twice those of the mean",
            ),
            "the sign": (lambda: answer(first, second, sign=-1), "the pushes have the wrong sign"),
            "P as a push": (
                lambda: (
                    answer(first, second) * torch.tensor([1, 1, 0, 0, 0])
                    + torch.tensor([0, 0, (first - second) / 2, -first / 2, second / 2])
                ),
                "what the model had *not* expected",
            ),
            "A pushed once": (
                lambda: torch.tensor(
                    [first, second, (1 - first) / 2, (first - 1) / 2, (1 - second) / 2]
                ),
                "the second pushes it down",
            ),
            "the probabilities only": (
                lambda: torch.tensor([first, second]),
                "Expected shape (5,), got (2,)",
            ),
        },
        "fool-the-batch-mean": {
            "nothing changed": (lambda s: s, "With 2 prompts of 4 answers"),
            "scaled": (
                lambda s: alternating(2 * s, 100.0),
                "Within a prompt, the differences",
            ),
            "the odd ones": (
                lambda s: alternating(s, 100.0, sign=-1),
                "That is the wrong way round",
            ),
            "infinite": (lambda s: alternating(s, math.inf), "NaN or infinite"),
            "advantages": (
                lambda s: alternating(s, 100.0).flatten(),
                "Expected shape (2, 4), got (8,)",
            ),
            "two prompts only": (
                lambda s: s + torch.tensor([100.0, -100.0])[:, None] if len(s) == 2 else s,
                "With 3 prompts of 4 answers",
            ),
            "a fixed offset": (lambda s: alternating(s, 100.0), "With 6 prompts of 4 answers"),
            "in place": (
                lambda s: s.add_(torch.tensor([[100.0], [-100.0]]).repeat(9, 1)[: len(s)]),
                "changed its argument number 1 in place",
            ),
        },
        "ties": {
            "ties dropped": (without_ties, "ties were dropped"),
            "half a win": (half_and_half, "half a win and half a defeat"),
            "the whole difference": (
                lambda s, t, o, nu: davidson(s - t, o, tie=math.log(nu)),
                "the difference counts twice",
            ),
            "nu as a logit": (
                lambda s, t, o, nu: davidson((s - t) / 2, o, tie=nu),
                "as a logit it is log ν",
            ),
            "the sum": (lambda s, *a: len(s) * good(s, *a), "the sum over comparisons"),
            "the outcomes turned round": (
                lambda s, t, o, nu: good(s, t, -o, nu),
                "the outcomes are read the wrong way round",
            ),
            "the likelihood": (lambda *a: -good(*a), "that is the mean log-likelihood"),
            "one loss each": (
                lambda *a: good(*a).expand(3),
                "Expected one number, got a tensor of shape (3,)",
            ),
            "a detached loss": (lambda *a: good(*a).detach(), "to argument number 1"),
            "the second scores detached": (
                lambda s, t, *a: good(s, t.detach(), *a),
                "to argument number 2",
            ),
            "exponentials": (overflowing, "use log_softmax, or logsumexp"),
        },
        "how-far-to-go": {
            "the distance": (lambda k, g: fitted(k, g, power=1), "that is the distance d"),
            "the zero": (lambda k, g: fitted(k, g, peak=0.0), "where the gain is 0 again"),
            "the KL as distance": (
                lambda k, g: fitted(k, g, of=torch.clone, power=1),
                "the square root of the KL, and not the KL",
            ),
            "the KL as distance, squared": (
                lambda k, g: fitted(k, g, of=torch.clone),
                "you have squared it",
            ),
            "the best so far": (
                lambda k, g: k[g.argmax()],
                "the best of the measured ones",
            ),
            "best of n": (parabola, "a parabola"),
            "the derivative of the logarithm": (
                lambda k, g: fitted(k, g, peak=1.0),
                "you have taken log d − 1",
            ),
            "a line through gain over distance": (
                lambda k, g: fitted(k, g, weighted=False),
                "gain / d was fitted as a straight line",
            ),
            "two measurements": (
                lambda k, g: fitted(k[[0, -1]], g[[0, -1]]),
                "only two of the twelve",
            ),
        },
    }
