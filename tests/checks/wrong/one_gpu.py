"""Wrong answers to the exercises of chapter 17."""

import math

import torch


def wrong_answers(sheet):
    questions, right_before, gained, lost = sheet.numbers("by-hand").values()
    gain, changed = (gained - lost) / questions, (gained + lost) / questions
    variance = changed - gain**2
    before, after = right_before / questions, (right_before + gained - lost) / questions

    def needed(of=variance, z=1.96):
        return z**2 * of / gain**2

    # ---------------------------------------------------------------- groups

    def share(correct, what):
        right = correct.sum(dim=1)
        return {
            "mixed": (right > 0) & (right < correct.shape[1]),
            "paid": right > 0,
            "unpaid": right < correct.shape[1],
        }[what].double()

    def luck(c, size, *, all_right=True):
        return 1 - (1 - c) ** size - (c**size if all_right else 0.0)

    def beyond(correct, c, *, what="mixed", all_right=True):
        found = share(correct, what).mean() - luck(c, correct.shape[1], all_right=all_right)
        return found.item()

    # ---------------------------------------------------------------- parts of a gain

    def gains(first, second):
        return torch.tensor(
            [
                [int(b) - int(a) for a, b in zip(first[way], second[way], strict=True)]
                for way in ("strict", "lenient", "long")
            ]
        ).double()

    def parts(first, second):
        strict, lenient, long = gains(first, second)
        return torch.stack([strict - lenient, lenient - long, long])

    def ends(values, *, less=1, z=1.96):
        radius = z * (values.var(dim=1, correction=less) / values.shape[1]).sqrt()
        mean = values.mean(dim=1)
        return 100 * torch.stack([mean, mean - radius, mean + radius], dim=1)

    def separate(first, second):
        found, each = parts(first, second), gains(first, second).var(dim=1)
        added = torch.stack([each[0] + each[1], each[1] + each[2], each[2]])
        radius = 1.96 * (added / found.shape[1]).sqrt()
        mean = found.mean(dim=1)
        return 100 * torch.stack([mean, mean - radius, mean + radius], dim=1)

    def subtracted(first, second):
        strict, lenient, long = ends(gains(first, second))
        return torch.stack([strict - lenient, lenient - long, long])

    def form_before(first, second):
        found = ends(parts(first, second))
        pairs = zip(first["lenient"], first["strict"], strict=True)
        hidden = torch.tensor([[int(a) - int(b) for a, b in pairs]]).double()
        return torch.cat([ends(hidden), found[1:]])

    # ---------------------------------------------------------------- signal and noise

    def pairs_of(g):
        count = len(g)
        signal = (g.sum(0).square().sum() - g.square().sum()) / (count * (count - 1))
        return signal, g.square().sum() / count, count

    def both(g, *, of_one=False, biased=False):
        signal, square, count = pairs_of(g)
        noise = (square - signal) / (1 if of_one else count)
        return torch.stack([signal, noise * ((count - 1) / count if biased else 1.0)])

    def of_the_mean(g, *, with_itself=False):
        signal, square, count = pairs_of(g)
        mean = g.mean(0).square().sum()
        return torch.stack([mean, (square - (mean if with_itself else signal)) / count])

    def half_of_the_pairs(g):
        signal, square, count = pairs_of(g)
        return torch.stack([signal / 2, (square - signal / 2) / count])

    def clamped(g):
        signal, noise = both(g)
        return torch.stack([signal.clamp(min=0), noise])

    # ---------------------------------------------------------------- prompts to a step

    def free(a, b, noise):
        return math.sqrt(a * noise / b)

    def two_rounds(a, b, noise, room):
        best = free(a, b, noise)
        return best if best <= room else min(2 * room, math.sqrt(2) * best)

    return {
        "mend-the-gate": {
            "groups that are paid": (
                lambda x, c: beyond(x, c, what="paid"),
                "a group that is all right has no spread",
            ),
            "columns for groups": (
                lambda x, c: (
                    float((x.any(0) & ~x.all(0)).double().mean())
                    - (1 - (1 - c) ** x.shape[1] - c ** x.shape[1])
                ),
                "a group is a row",
            ),
            "groups with a wrong answer": (
                lambda x, c: beyond(x, c, what="unpaid"),
                "a group that is all wrong has no spread",
            ),
            "half of the luck": (
                lambda x, c: beyond(x, c, all_right=False),
                "luck also makes groups that are all right",
            ),
            "as it was": (
                lambda x, c: beyond(x, c, what="paid", all_right=False),
                "the two lines of the broken version",
            ),
            "no luck": (
                lambda x, c: share(x, "mixed").mean().item(),
                "luck's share is to be subtracted",
            ),
            "the wrong way round": (lambda x, c: -beyond(x, c), "the wrong way round"),
            "the model's own accuracy": (
                lambda x, c: beyond(x, x.double().mean().item()),
                "luck was computed from this model's accuracy",
            ),
            "always eight": (
                lambda x, c: share(x, "mixed").mean().item() - luck(c, 8),
                "not always eight",
            ),
            "a number of groups": (
                lambda x, c: share(x, "mixed").sum().item() - luck(c, x.shape[1]),
                "a share is asked for",
            ),
            "of each group": (
                lambda x, c: share(x, "mixed") - luck(c, x.shape[1]),
                "Expected one number",
            ),
        },
        "by-hand": {
            "not rounded": (needed, "a whole number of questions"),
            "rounded down": (lambda: math.floor(needed()), "with so few the interval"),
            "two exams": (
                lambda: math.ceil(needed(before * (1 - before) + after * (1 - after))),
                "two models that answered different questions",
            ),
            "no square of the gain": (
                lambda: math.ceil(needed(changed)),
                "the square of the gain is missing",
            ),
            "5 % on either side": (lambda: math.ceil(needed(z=1.645)), "1.645 leaves 5 %"),
            "one standard error": (lambda: math.ceil(needed(z=1)), "as large as one standard"),
            "the root": (lambda: math.ceil(math.sqrt(needed())), "that is the root of it"),
            "1.96 not squared": (
                lambda: math.ceil(needed(z=math.sqrt(1.96))),
                "1.96 has to be squared",
            ),
            "those that change": (
                lambda: math.ceil(needed() * changed),
                "how many questions have to change sides",
            ),
            "one model": (
                lambda: math.ceil(needed(after * (1 - after))),
                "that is the interval of one accuracy",
            ),
        },
        "three-parts": {
            "shares": (lambda x, y: ends(parts(x, y)) / 100, "points of a hundred"),
            "divided by n": (lambda x, y: ends(parts(x, y), less=0), "divides by one less"),
            "one standard error": (
                lambda x, y: ends(parts(x, y), z=1.0),
                "one standard error to either side",
            ),
            "before and after": (lambda x, y: ends(parts(y, x)), "before and after are exchanged"),
            "the gains": (
                lambda x, y: ends(gains(x, y)),
                "a part is the difference of two of them",
            ),
            "variances added": (separate, "as if they came from different questions"),
            "ends subtracted": (subtracted, "the ends of two intervals were subtracted"),
            "high before low": (
                lambda x, y: ends(parts(x, y))[:, [0, 2, 1]],
                "the low end comes before",
            ),
            "a column for each": (lambda x, y: ends(parts(x, y)).T, "each part has a row"),
            "another order": (lambda x, y: ends(parts(x, y)).flip(0), "in another order"),
            "the form before": (form_before, "taken from before alone"),
            "means only": (lambda x, y: 100 * parts(x, y).mean(dim=1), "Expected shape (3, 3)"),
        },
        "signal-and-noise": {
            "the batch's own square": (of_the_mean, "which holds the noise as well"),
            "the noise of a prompt": (
                lambda g: both(g, of_one=True),
                "the noise is that of one prompt",
            ),
            "divided by P": (
                lambda g: both(g, biased=True),
                "the distances from their own mean",
            ),
            "divided by P, and the signal from it": (
                lambda g: torch.stack(
                    [
                        g.mean(0).square().sum() - g.var(0, correction=0).sum() / len(g),
                        g.var(0, correction=0).sum() / len(g),
                    ]
                ),
                "the signal is too large by what it lacks",
            ),
            "every row with itself": (
                lambda g: of_the_mean(g, with_itself=True),
                "compared with itself as well",
            ),
            "roots": (lambda g: both(g).sqrt(), "the roots were taken"),
            "the order": (lambda g: both(g).flip(0), "in the wrong order"),
            "pairs counted once": (half_of_the_pairs, "every pair was counted once"),
            "all of a prompt": (
                lambda g: torch.stack([pairs_of(g)[0], pairs_of(g)[1]]),
                "signal and noise together",
            ),
            "never negative": (clamped, "a negative estimate was replaced by 0"),
            "one number": (lambda g: both(g)[0] / both(g)[1], "Expected shape (2,), got ()"),
        },
        "best-batch": {
            "the noise scale": (lambda a, b, n, room: n, "that is the noise scale"),
            "equal seconds": (
                lambda a, b, n, room: a / b,
                "how noisy they are matters, too",
            ),
            "the usual mean": (
                lambda a, b, n, room: (a / b + n) / 2,
                "it is their geometric mean",
            ),
            "no root": (lambda a, b, n, room: min(a * n / b, 1e9), "the root is missing"),
            "the card filled": (lambda a, b, n, room: float(room), "the card was filled"),
            "exchanged": (lambda a, b, n, room: min(free(b, a, n), room), "a and b are exchanged"),
            "no prompt's cost": (
                lambda a, b, n, room: min(math.sqrt(a * n), room),
                "has to be divided by what a prompt costs",
            ),
            "no noise": (
                lambda a, b, n, room: min(math.sqrt(a / b), room),
                "the noise scale is missing under the root",
            ),
            "no limit": (lambda a, b, n, room: free(a, b, n), "do not fit into one round"),
            "two rounds": (two_rounds, "two full rounds were taken"),
            "two rounds, computed anew": (
                lambda a, b, n, room: (
                    free(a, b, n) if free(a, b, n) <= room else math.sqrt(2) * free(a, b, n)
                ),
                "the best number was computed anew",
            ),
            "in words": (lambda a, b, n, room: f"{free(a, b, n)} prompts", "got str"),
        },
    }
