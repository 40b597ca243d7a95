"""Wrong answers to the exercises of chapter 13."""

import math
import re
from math import comb


def wrong_answers(sheet):
    samples, right = sheet.numbers("by-hand").values()
    wrong = samples - right

    def claims(response):
        return re.findall(r"^Answer:(.*)$", response, re.MULTILINE)

    def letter(claim, pattern=r"[ (]*([ABCD])[ ).]*"):
        match = re.fullmatch(pattern, claim)
        return match[1] if match else None

    def found(pattern, response):
        match = re.search(pattern, response, re.MULTILINE)
        return match[1] if match else None

    def agreed(letters):
        return letters.pop() if len(letters) == 1 else None

    numbers = [str(n) for n in range(100)]
    fair = [" ".join(numbers), "#### nan", "#### inf", "#### " + "".join(numbers)]

    def exploits(**changes):
        names = ("anywhere", "near", "relative", "contains")
        return lambda: [changes.get(name, text) for name, text in zip(names, fair, strict=True)]

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

    def read(response, claim, good):
        """The reference's reader, with other patterns."""
        matches = [re.fullmatch(good, c) for c in re.findall(claim, response, re.MULTILINE)]
        named = {match and match[1].strip("()") for match in matches}
        return named.pop() if len(named) == 1 else None

    return {
        "mend-the-reader": {
            "the last letter": (
                lambda r: (re.findall(r"[ABCD]", r) or [None])[-1],
                "letters outside the claims were counted",
            ),
            "the first letter": (
                lambda r: (re.findall(r"\b[ABCD]\b", r) or [None])[0],
                "letters before the claim were counted",
            ),
            "prose where there is no claim": (
                lambda r: (
                    agreed({letter(c) for c in claims(r)}) if claims(r) else found(r"([ABCD])", r)
                ),
                "a reader that guesses one pays for prose",
            ),
            "the beginning of the claim": (
                lambda r: found(r"^Answer:[ (]*([ABCD])\b", r),
                "the claim begins well and goes on",
            ),
            "the first letter of a word": (
                lambda r: None if " or " in r else found(r"^Answer:[ (]*([ABCD])", r),
                "the capital letter of a word was read",
            ),
            "the next line": (
                lambda r: read(r, r"^Answer:\s*(.*)$", r" *([ABCD]|\([ABCD]\))\.? *"),
                "a claim ends with its line",
            ),
            "half a bracket": (
                lambda r: read(r, r"^Answer:(.*)$", r" *\(?([ABCD])\)?\.? *"),
                "a bracket without its partner",
            ),
            "any number of full stops": (
                lambda r: read(r, r"^Answer:(.*)$", r" *([ABCD]|\([ABCD]\))\.* *"),
                "one full stop is allowed",
            ),
            "a single letter somewhere in it": (
                lambda r: agreed(set(re.findall(r"\b[ABCD]\b", "".join(claims(r))))),
                "it is the one that is ruled out",
            ),
            "the last claim": (
                lambda r: letter((claims(r) or [""])[-1]),
                "two answers are none",
            ),
            "one claim only": (
                lambda r: letter(claims(r)[0]) if len(claims(r)) == 1 else None,
                "the two claims agree",
            ),
            "bad claims passed over": (
                lambda r: agreed({letter(c) for c in claims(r)} - {None}),
                "it is paid by the back door",
            ),
            "no brackets": (
                lambda r: agreed({letter(c, r" *([ABCD]) *") for c in claims(r)}),
                "a good claim was refused",
            ),
            "small letters": (
                lambda r: agreed({letter(c.upper()) for c in claims(r)}),
                "small letters were not offered",
            ),
            "stripped": (
                lambda r: agreed({letter(c.strip(" ().")) for c in claims(r)}),
                "as `strip` does",
            ),
            "a list": (lambda r: claims(r), "Expected a letter or None, got list"),
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
        "four-exploits": {
            "a guess": (exploits(anywhere="It is 5."), "leave none of them out"),
            "one number short": (
                exploits(anywhere=" ".join(numbers[:99])),
                "if the right answer is 99",
            ),
            "an honest guess behind the list": (
                exploits(anywhere=" ".join(numbers) + " #### 0"),
                "Then it is an answer and no exploit",
            ),
            "infinitely far": (exploits(near="#### inf"), "is never found to be far from"),
            "a list where a number should be": (
                exploits(near="#### " + " ".join(numbers)),
                "`near` crashes on your response",
            ),
            "not a number, relatively": (
                exploits(relative="#### nan"),
                "How large does an answer have to be",
            ),
            "very large": (
                exploits(relative="#### 1e300"),
                "`relative` does not pay your response if the right answer is 0",
            ),
            "ten digits": (exploits(contains="#### 9876543210"), "11 and 99 included"),
            "a list of numbers": (
                exploits(contains="#### " + " ".join(numbers)),
                "It wants digits only",
            ),
            "too long": (
                exploits(contains="#### " + "".join(numbers) * 3),
                "characters, 400 are allowed",
            ),
            "one text": (lambda: fair[0], "Expected a list of four texts"),
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
