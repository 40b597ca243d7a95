"""Build 9, after chapter 17: is a run worth its price, before it is started?

Difficulty ●○○ · 25 minutes · six functions, about 20 lines · given: nothing

A verdict is 1 for a right answer and 0 for a wrong one. An examination is a list of verdicts, one
for each question; a group is a list of verdicts on the answers to one question.
"""

from math import erf, sqrt


def mixed_share(groups: list[list[int]]) -> float:
    """The share of groups in which some answers are right and some are wrong. See section 17.4."""
    ### BEGIN SOLUTION
    mixed = [0 < sum(group) < len(group) for group in groups]
    return sum(mixed) / len(groups)
    ### END SOLUTION


def mixed_by_luck(chance: float, size: int) -> float:
    """The share of groups of `size` that are mixed if each answer is right with this chance.

    See section 17.4.
    """
    ### BEGIN SOLUTION
    return 1 - (1 - chance) ** size - chance**size
    ### END SOLUTION


def paired_gain(before: list[int], after: list[int]) -> dict[str, float]:
    """{"gain": …, "low": …, "high": …}: a gain as a share, and the ends of its 95 % interval.

    The same questions were asked before and after. The variance of a question's difference divides
    by their number minus one. See section 17.1.
    """
    ### BEGIN SOLUTION
    change = [b - a for a, b in zip(before, after, strict=True)]
    n = len(change)
    gain = sum(change) / n
    variance = sum((c - gain) ** 2 for c in change) / (n - 1)
    radius = 1.96 * sqrt(variance / n)
    return {"gain": gain, "low": gain - radius, "high": gain + radius}
    ### END SOLUTION


def power(gain: float, changed: float, questions: int) -> float:
    """How often such an interval lies above zero, if this is the true gain.

    `changed` is the share of questions whose verdict changes; the measured gain is taken to be
    normal. See section 17.1.
    """
    ### BEGIN SOLUTION
    error = sqrt((changed - gain**2) / questions)
    return (1 + erf((gain / error - 1.96) / sqrt(2))) / 2
    ### END SOLUTION


def agreement(first: list[float], second: list[float]) -> float:
    """The cosine of the gradients of two halves of a batch; 0 if one of them is 0 throughout.

    See section 17.4.
    """
    ### BEGIN SOLUTION
    product = sum(a * b for a, b in zip(first, second, strict=True))
    lengths = sqrt(sum(a * a for a in first) * sum(b * b for b in second))
    return product / lengths if lengths else 0.0
    ### END SOLUTION


def verdict(measured: dict[str, float]) -> str:
    """What to do first, from the shares that a few hundred answers of the untrained model give.

    cut       answers that ended at the limit of their length
    chance    questions that the best constant answer gets right
    lenient   answers with the right number in any clear form
    strict    answers with the right number in the form that is asked for
    mixed     groups that are mixed
    luck      groups that luck would mix
    The first of these that is so: "raise the limit" if more than a quarter was cut off; "teach by
    examples" if lenient is at most twice the chance; "mend the form" if strict is less than half
    of lenient; "do not train" if luck mixes as many groups; and else "train". See section 17.4.
    """
    ### BEGIN SOLUTION
    if measured["cut"] > 0.25:
        return "raise the limit"
    if measured["lenient"] <= 2 * measured["chance"]:
        return "teach by examples"
    if measured["strict"] < measured["lenient"] / 2:
        return "mend the form"
    return "do not train" if measured["mixed"] <= measured["luck"] else "train"
    ### END SOLUTION


if __name__ == "__main__":
    print(f"mixed by luck, at 3 % and eight answers: {mixed_by_luck(0.03, 8):.0%}")
    for questions in (128, 1319):
        seen = power(0.05, 0.25, questions)
        print(f"a gain of 5 points on {questions:>5,} questions is seen in {seen:.0%}")
    answers = {"cut": 0.1, "chance": 0.03, "lenient": 0.23, "strict": 0.006}
    print(verdict(answers | {"mixed": 0.05, "luck": mixed_by_luck(0.03, 8)}))
