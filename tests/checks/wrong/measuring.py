"""Wrong answers to the exercises of chapter 14."""

import math
from math import comb


def wrong_answers(sheet):
    samples, right = sheet.numbers("by-hand").values()
    wrong = samples - right

    def around(mean, half):
        return [float(mean - half), float(mean + half)]

    def of_gains(before, after, z=1.96, correction=0, size=1.0):
        gains = (after.double() - before.double()).mean(dim=1)
        half = z * (gains.var(correction=correction) / len(gains) ** size).sqrt()
        return around(gains.mean(), half)

    def two_exams(before, after):
        """What is handed in are the verdicts, or their means for each question."""
        before, after = before.double(), after.double()
        spread = before.var(correction=0) + after.var(correction=0)
        half = 1.96 * (spread / before.numel()).sqrt()
        return around(after.mean() - before.mean(), half)

    def means(verdicts):
        return verdicts.double().mean(dim=1)

    def over_verdicts(before, after):
        gains = (after.double() - before.double()).flatten()
        return around(gains.mean(), 1.96 * (gains.var(correction=0) / len(gains)).sqrt())

    def counts(first, second):
        pairs = list(zip(first, second, strict=True))
        return pairs.count(("0", "1")), pairs.count(("1", "0"))

    def chance(m, keep):
        return sum(comb(m, x) for x in range(m + 1) if keep(x)) / 2**m

    def as_far(gained, m):
        return chance(m, lambda x: abs(2 * x - m) >= abs(2 * gained - m))

    def one_side(first, second):
        gained, lost = counts(first, second)
        m = gained + lost
        return chance(m, lambda x: x >= max(gained, lost))

    def just_this(first, second, *, mirrored=False):
        gained, lost = counts(first, second)
        return chance(gained + lost, lambda x: x == gained or (mirrored and x == lost))

    def farther(first, second):
        gained, lost = counts(first, second)
        m = gained + lost
        return chance(m, lambda x: abs(2 * x - m) > abs(2 * gained - m))

    def normal(first, second):
        gained, lost = counts(first, second)
        return math.erfc(abs(gained - lost) / math.sqrt(gained + lost) / math.sqrt(2))

    def in_floats(first, second):
        gained, lost = counts(first, second)
        m = gained + lost
        tosses = [x for x in range(m + 1) if abs(2 * x - m) >= abs(2 * gained - m)]
        return sum(comb(m, x) * 0.5**m for x in tosses)

    def none_right(correct, k, *, own=0, size=1):
        """Chance that k − 1 of the others are wrong; or of more of them, itself among them."""
        n, bad = len(correct), int((~correct).sum())
        return comb(bad - own, k - size) / comb(n - size, k - size)

    def weights(correct, k, factor):
        return correct * factor

    return {
        "mend-the-interval": {
            "every sample a question": (over_verdicts, "counted as eight questions"),
            "two exams": (
                lambda b, a: two_exams(means(b), means(a)),
                "treated as two different exams",
            ),
            "two exams of samples": (two_exams, "every sample a question of its own"),
            "P − 1": (
                lambda b, a: of_gains(b, a, correction=1),
                "the variance was divided by P − 1",
            ),
            "means over the questions": (
                lambda b, a: of_gains(b.T, a.T),
                "the mean was taken over the questions",
            ),
            "the spread of questions": (
                lambda b, a: of_gains(b, a, size=0.0),
                "that is the spread of the questions",
            ),
            "90 per cent": (lambda b, a: of_gains(b, a, z=1.645), "1.645 leaves 5 %"),
            "one standard error": (lambda b, a: of_gains(b, a, z=1.0), "one standard error"),
            "exchanged": (lambda b, a: of_gains(a, b), "before and after are exchanged"),
            "in points": (
                lambda b, a: [100 * end for end in of_gains(b, a)],
                "return shares",
            ),
            "the first sample": (
                lambda b, a: of_gains(b[:, :1], a[:, :1]) if b.shape[1] > 4 else of_gains(b, a),
                "20 random questions, 8 samples each",
            ),
            "one number": (
                lambda b, a: of_gains(b, a)[1],
                "Expected two numbers, the ends of the interval",
            ),
        },
        "by-hand": {
            "the plug-in": (lambda: 1 - (wrong / samples) ** 3, "that is the plug-in"),
            "the chance of failing": (
                lambda: comb(wrong, 3) / comb(samples, 3),
                "the chance that all three are wrong",
            ),
            "all three right": (
                lambda: comb(right, 3) / comb(samples, 3),
                "the chance that all three are right",
            ),
            "pass@1": (lambda: right / samples, "that is pass@1"),
            "exactly one": (
                lambda: right * comb(wrong, 2) / comb(samples, 3),
                "exactly one right answer among three",
            ),
            "three times one": (lambda: 3 * right / samples, "three times pass@1"),
            "a text": (lambda: "0.5", "Expected one number, got str"),
        },
        "sign-test": {
            "one side": (one_side, "that is one side only"),
            "just this count": (just_this, "that is the chance of just this count"),
            "the count and its mirror image": (
                lambda a, b: just_this(a, b, mirrored=True),
                "only this count and its mirror image",
            ),
            "only what is farther": (farther, "exactly as far from the middle as yours"),
            "agreements tossed for": (
                lambda a, b: as_far(counts(a, b)[0], len(a)),
                "on which the models agree were tossed for",
            ),
            "right answers counted": (
                lambda a, b: as_far(b.count("1"), len(b)),
                "all right answers of the second model",
            ),
            "the normal approximation": (normal, "that is the normal approximation"),
            "the share": (
                lambda a, b: counts(a, b)[0] / sum(counts(a, b)),
                "the share of disagreements",
            ),
            "one side, doubled": (
                lambda a, b: 2 * one_side(a, b),
                "the middle was counted twice",
            ),
            "floating-point numbers too early": (in_floats, "stopped with OverflowError"),
        },
        "weights-for-pass-at-k": {
            "wrong ones too": (
                lambda c, k: weights(c | True, k, k / len(c) * none_right(c, k)),
                "wrong answers got the weight of right ones",
            ),
            "REINFORCE": (
                lambda c, k: weights(c, k, 1 / len(c)),
                "which is the gradient of pass@1",
            ),
            "itself among the wrong ones": (
                lambda c, k: weights(c, k, k / len(c) * none_right(c, k, own=1)),
                "counted among the wrong ones",
            ),
            "no k/n": (lambda c, k: weights(c, k, none_right(c, k)), "the factor k/n is missing"),
            "no k": (
                lambda c, k: weights(c, k, none_right(c, k) / len(c)),
                "the factor k is missing",
            ),
            "the plug-in": (
                lambda c, k: weights(c, k, k / len(c) * (~c).double().mean() ** (k - 1)),
                "and that is biased; count sets",
            ),
            "sets from all n": (
                lambda c, k: weights(
                    c, k, k / len(c) * comb(int((~c).sum()), k - 1) / comb(len(c), k - 1)
                ),
                "to be drawn from the *other* n − 1 answers",
            ),
            "the whole estimate": (
                lambda c, k: weights(c, k, 1 - none_right(c, k, size=0)),
                "so the derivative was never taken",
            ),
            "sets of k": (
                lambda c, k: weights(
                    c, k, k / len(c) * comb(int((~c).sum()), k) / comb(len(c) - 1, k)
                ),
                "sets of k wrong answers were counted",
            ),
            "the lone one only": (
                lambda c, k: c * float(c.sum() == 1),
                "that is the weight for k = n",
            ),
            "the same for all": (
                lambda c, k: (
                    weights(c, k, k / len(c) * none_right(c, k))
                    if c.sum() > 0 and k in (1, 3) and len(c) == 7
                    else weights(c, k, k / len(c) * none_right(c, k)) - 0.1
                ),
                "A baseline is not asked for here",
            ),
            "one number": (
                lambda c, k: c.double().mean() * k * none_right(c, k),
                "Expected shape (7,), got ()",
            ),
        },
    }
