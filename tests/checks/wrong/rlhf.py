"""Wrong answers to the exercises of chapter 8."""

import math

import torch
from torch.nn.functional import logsigmoid


def wrong_answers(sheet):
    numbers = sheet.numbers("by-hand")
    d, V = (torch.tensor(numbers[name]) for name in ("log_ratios", "values"))
    at_the_end = torch.tensor([0.0, 0.0, 1.0])

    def each_token(scores, steps):
        return scores.gather(1, steps.clamp(min=0))

    def inside(scores, steps):
        return torch.where(steps >= 0, each_token(scores, steps), 0.0)

    def once(scores, steps, *, first=False, shift=0, outside=-1):
        edge = torch.full_like(steps[:, :1], outside)
        neighbour = torch.cat([edge, steps[:, :-1]] if first else [steps[:, 1:], edge], dim=1)
        paid = torch.where(steps != neighbour, inside(scores, steps), 0.0)
        return torch.nn.functional.pad(paid, (shift, 0))[:, : steps.shape[1]]

    def no_last_column(scores, steps):
        paid = once(scores, steps)
        paid[:, -1] = 0
        return paid

    def spread(scores, steps):
        lengths = (steps[:, :, None] == steps[:, None, :]).sum(2)
        return inside(scores, steps) / lengths

    def all_at_the_end(scores, steps):
        paid = once(scores, steps)
        last = (steps >= 0).sum(1) - 1
        return torch.zeros_like(paid).scatter(1, last[:, None], paid.sum(1, keepdim=True))

    def gae(r, values, lam=0.5, after=0.0):
        result, following = torch.zeros_like(r), 0.0
        following_values = torch.cat([values[1:], torch.tensor([after], dtype=values.dtype)])
        for t in range(len(r) - 1, -1, -1):
            following = r[t] + following_values[t] - values[t] + lam * following
            result[t] = following
        return result

    def credit(r, **options):
        return torch.stack([r, gae(r, V, **options)])

    right = credit(at_the_end - d / 2)

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

    def segments_by(rewards, values, segments, lam, *, reward=torch.sum, value=None, **options):
        after, spread_over = options.get("after"), options.get("spread_over", "all")
        result = torch.zeros_like(rewards)
        for row in range(len(rewards)):
            parts = [segments[row] == k for k in range(int(segments[row].max()) + 1)]
            R = torch.stack([reward(rewards[row, part]) for part in parts])
            own = torch.stack([(value or (lambda v: v[0]))(values[row, part]) for part in parts])
            padding = values[row, segments[row] < 0]
            beyond = padding[0].item() if after and len(padding) else 0.0
            for part, A in zip(parts, gae(R, own, lam, beyond), strict=True):
                places = part.nonzero()[:, 0]
                result[row, places if spread_over == "all" else places[-1:]] = A
        return result

    def token_by_token(rewards, values, segments, lam):
        result = torch.zeros_like(rewards)
        for row in range(len(rewards)):
            kept = segments[row] >= 0
            result[row, kept] = gae(rewards[row, kept], values[row, kept], lam)
        return result

    def multiplied(rewards, values, segments, lam):
        result = segments_by(rewards, values, segments, lam)
        return result + 0 * (rewards * (segments >= 0)).sum(1, keepdim=True)

    return {
        "mend-the-step-scores": {
            "every token": (each_token, "every token of a step earns its score, and so does"),
            "every real token": (inside, "the padding is gone, but"),
            "at the first token": (
                lambda s, k: once(s, k, first=True),
                "paid at the first token of its step",
            ),
            "one too late": (lambda s, k: once(s, k, shift=1), "one token too late"),
            "spread": (spread, "spread over its step in equal parts"),
            "at the end": (all_at_the_end, "everything is paid at the end"),
            "the last column forgotten": (
                no_last_column,
                "a row without padding the last step ends in the last column",
            ),
            "the first token as the last one's neighbour": (
                lambda s, k: torch.where(
                    (k.roll(-1, 1) != k) & (k >= 0), s.gather(1, k.clamp(min=0)), 0.0
                ),
                "as `roll` does",
            ),
            "scores only": (lambda s, k: s, "Expected shape (2, 6), got (2, 2)"),
            "padding as an index": (
                lambda s, k: s.gather(1, k),
                "Your function stopped with RuntimeError",
            ),
        },
        "by-hand": {
            "the penalty as a gift": (
                lambda: credit(at_the_end + d / 2),
                "leaving the reference is rewarded",
            ),
            "the factor forgotten": (
                lambda: credit(at_the_end - d),
                "the factor β = 1/2 is missing",
            ),
            "the score everywhere": (lambda: credit(1 - d / 2), "every token earns the score"),
            "no score": (lambda: credit(-d / 2), "the score is missing"),
            "lambda 1": (lambda: credit(at_the_end - d / 2, lam=1.0), "those for λ = 1"),
            "lambda 0": (
                lambda: credit(at_the_end - d / 2, lam=0.0),
                "the second row holds the TD errors",
            ),
            "targets": (
                lambda: torch.stack([right[0], right[1] + V]),
                "holds the critic's targets",
            ),
            "a value after the end": (
                lambda: credit(at_the_end - d / 2, after=V[2].item()),
                "after the last token comes nothing",
            ),
            "the sign of the TD error": (
                lambda: torch.stack([right[0], -right[1]]),
                "the TD errors have the wrong sign",
            ),
            "advantages only": (lambda: right[1], "Expected shape (2, 3), got (3,)"),
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
            "a detached loss": (lambda *a: good(*a).detach(), "No gradient flows"),
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
        "segment-credit": {
            "token by token": (token_by_token, "that is GAE token by token"),
            "lambda forgotten": (
                lambda r, v, s, lam: segments_by(r, v, s, 1.0),
                "λ has been forgotten",
            ),
            "TD errors": (
                lambda r, v, s, lam: segments_by(r, v, s, 0.0),
                "the TD errors δ of the segments",
            ),
            "the last value": (
                lambda *a: segments_by(*a, value=lambda v: v[-1]),
                "the values are those of a segment's last token",
            ),
            "the mean value": (
                lambda *a: segments_by(*a, value=torch.mean),
                "the values inside a segment were averaged",
            ),
            "a value from the padding": (
                lambda *a: segments_by(*a, after=True),
                "a value from the padding was counted",
            ),
            "the mean reward": (
                lambda *a: segments_by(*a, reward=torch.mean),
                "the rewards of a segment were averaged",
            ),
            "the last token only": (
                lambda *a: segments_by(*a, spread_over="last"),
                "belongs to every token of the segment",
            ),
            "NaN times 0": (multiplied, "since NaN times 0 is NaN"),
            "two segments at most": (
                lambda r, v, s, lam: segments_by(r, v, s.clamp(max=1), lam),
                "Wrong for three answers",
            ),
        },
    }
