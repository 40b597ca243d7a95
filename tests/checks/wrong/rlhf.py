"""Wrong answers to the exercises of chapter 8."""

import torch


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

    def weights(lam, tokens):
        return [1 - lam ** (tokens - t) for t in range(1, tokens + 1)]

    def closed_form(lam, tokens):
        return 1 - (1 - lam**tokens) / (tokens * (1 - lam))

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
            "at the token of that number": (
                lambda s, k: torch.nn.functional.pad(s, (0, k.shape[1] - s.shape[1])),
                "score k is paid at token k",
            ),
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
        "own-share": {
            "the first token": (lambda lam, n: weights(lam, n)[0], "in the first token's target"),
            "the rewards": (
                lambda lam, n: 1 - sum(weights(lam, n)) / n,
                "that is the share of the rewards",
            ),
            "a value after the end": (
                lambda lam, n: sum(weights(lam, n + 1)[:-1]) / n,
                "so its target holds no value",
            ),
            "the sum": (lambda lam, n: sum(weights(lam, n)), "that is the sum over the tokens"),
            "without the last": (
                lambda lam, n: sum(weights(lam, n)) / (n - 1),
                "with 0",
            ),
            "power of the mean": (
                lambda lam, n: 1 - lam ** ((n - 1) / 2),
                "not the power of the mean",
            ),
            "one minus lambda": (lambda lam, n: 1 - lam, "that is 1 − λ itself"),
            "the next value alone": (
                lambda lam, n: (1 - lam) * (n - 1) / n,
                "the weight of the next value alone",
            ),
            "nothing at 1": (closed_form, "Your function stopped with ZeroDivisionError"),
            "one weight each": (
                lambda lam, n: torch.tensor(weights(lam, n)),
                "Expected one number, got a tensor of shape (4,)",
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
