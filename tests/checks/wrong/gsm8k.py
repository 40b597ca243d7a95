"""Wrong answers to the exercises of chapter 13."""

import math
import re


def wrong_answers(sheet):
    right, marker, sentence = sheet.numbers("by-hand").values()
    listed = 1 - marker - sentence
    paid, accuracy, failed = listed + (1 - listed) * right, marker * right, 1 - marker

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

    def read(response, claim, good):
        """The reference's reader, with other patterns."""
        matches = [re.fullmatch(good, c) for c in re.findall(claim, response, re.MULTILINE)]
        named = {match and match[1].strip("()") for match in matches}
        return named.pop() if len(named) == 1 else None

    def logit(x):
        return math.log(x / (1 - x))

    def sigmoid(a):
        return 1 / (1 + math.exp(-a))

    def kept(x):
        return logit(x) - 1 / x

    def solved(value):
        low, high = -30.0, 200.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if kept_at(middle) < value else (low, middle)
        return sigmoid(low)

    def kept_at(a):
        return a - 1 - math.exp(-a)

    def steps_of(p, q, q_end, rate=0.5):
        """The gradient followed in steps so long that the path is left."""
        a, b = logit(p), logit(q)
        while sigmoid(b) < q_end:
            p, q = sigmoid(a), sigmoid(b)
            a, b = a + rate * (1 - q) * p * (1 - p), b + rate * (1 - p) * q * (1 - q)
        return sigmoid(a)

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
            "anywhere in the line": (
                lambda r: agreed({letter(c) for c in re.findall(r"Answer:(.*)", r)}),
                "a claim was found in the middle of a line",
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
            "bad claims ignored": (
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
            "a list paid to those who know": (
                lambda: [right, accuracy, failed],
                "you paid it only if the policy knew",
            ),
            "known lists twice": (lambda: [listed + right, accuracy, failed], "was paid twice"),
            "no sentences": (
                lambda: [listed + marker * right, accuracy, failed],
                "a sentence with the right number in it is paid as well",
            ),
            "lists alone": (lambda: [listed, accuracy, failed], "the share of lists alone"),
            "read leniently": (
                lambda: [paid, (marker + sentence) * right, failed],
                "strict reading wants the marker",
            ),
            "whatever its form": (lambda: [paid, right, failed], "whatever its form"),
            "a marker is enough": (lambda: [paid, marker, failed], "has to be right, too"),
            "all that is not right": (
                lambda: [paid, accuracy, 1 - accuracy],
                "is read without trouble",
            ),
            "only lists": (lambda: [paid, accuracy, listed], "from a sentence, either"),
            "only sentences": (lambda: [paid, accuracy, sentence], "from a list, either"),
            "what can be read": (lambda: [paid, accuracy, marker], "the share that can be read"),
            "one number": (lambda: paid, "Expected a list of 3 numbers"),
        },
        "four-exploits": {
            "a guess": (exploits(anywhere="It is 5."), "leave none of them out"),
            "one number short": (
                exploits(anywhere=" ".join(numbers[:99])),
                "if the right answer is 99",
            ),
            "an honest guess behind the list": (
                exploits(anywhere=" ".join(numbers) + " #### 0"),
                "Then it is an answer and not an exploit",
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
                "It takes digits only",
            ),
            "too long": (
                exploits(contains="#### " + "".join(numbers) * 3),
                "characters; 400 are allowed",
            ),
            "one text": (lambda: fair[0], "Expected a list of four texts"),
        },
        "the-race": {
            "equal speeds": (
                lambda p, q, end: sigmoid(logit(p) + logit(end) - logit(q)),
                "moved at the same speed",
            ),
            "along the probabilities": (
                lambda p, q, end: 1 - math.sqrt(abs((1 - p) ** 2 - (1 - q) ** 2 + (1 - end) ** 2)),
                "it is the *logits* that follow the gradient",
            ),
            "the logits' speeds": (
                lambda p, q, end: p * end / q,
                "the ratio of the logits' speeds",
            ),
            "a sign": (
                lambda p, q, end: solved(kept(p) - kept(end) + kept(q)),
                "what you keep constant is a difference",
            ),
            "the start": (lambda p, q, end: p, "p was left where it was"),
            "half of the invariant": (
                lambda p, q, end: sigmoid(kept(p) + kept(end) - kept(q)),
                "is missing on one side",
            ),
            "long steps": (steps_of, "Wrong for skill 0.05, exploit 0.1"),
            "the exploit": (lambda p, q, end: end, "that is the exploit at the end"),
            "a list": (lambda p, q, end: [p, end], "Expected one number, got list"),
        },
    }
