"""Laws of the gate: groups that teach, gains with their intervals, and what to do first."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import erf, sqrt
from statistics import fmean, stdev
from typing import Any

from nbcourse.builds import bench
from nbcourse.builds.bench import Bench, Law, blamed, laws, with_each_mistake
from nbcourse.mistakes.findings import Finding

PAY, QUESTIONS = "17.4 Before you pay", "17.1 How many questions?"
Group = list[int]


def _mixed(groups: list[Group]) -> float:
    return fmean(len(set(group)) == 2 for group in groups)


def _by_luck(chance: float, size: int) -> float:
    """By all outcomes of a group."""
    outcomes = [sum(outcome) for outcome in product((0, 1), repeat=size)]
    return sum(chance**k * (1 - chance) ** (size - k) for k in outcomes if 0 < k < size)


def _gain(before: Group, after: Group) -> tuple[float, float, float]:
    change = [b - a for a, b in zip(before, after, strict=True)]
    gain, radius = fmean(change), 1.96 * stdev(change) / sqrt(len(change))
    return gain, gain - radius, gain + radius


def _power(gain: float, changed: float, questions: int) -> float:
    error = sqrt((changed - gain**2) / questions)
    return 0.5 + 0.5 * erf((gain / error - 1.96) / sqrt(2))


def _agreement(first: list[float], second: list[float]) -> float:
    def length(x: list[float]) -> float:
        return sqrt(sum(entry**2 for entry in x))

    dot = sum(a * b for a, b in zip(first, second, strict=True))
    return dot / (length(first) * length(second)) if any(first) and any(second) else 0.0


GROUPS: list[tuple[list[Group]]] = [
    ([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 1], [0, 0, 0]],),
    ([[1, 1], [1, 1]],),
    ([[0, 0, 0, 0]],),
    ([[0, 1], [1, 1], [1, 0]],),
]
LUCK = list(product((0.0, 0.03, 0.5, 0.9), (2, 5, 8)))
EXAMINATIONS = [
    ([0, 0, 1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 1, 1, 0]),
    ([1, 1, 1, 0, 0], [0, 1, 0, 1, 0]),
    ([0] * 30 + [1] * 10, [1] * 12 + [0] * 20 + [1] * 8),
]
EXPECTED = list(product((0.02, 0.05, 0.1), (0.25, 0.4), (128, 1319)))
HALVES = [
    ([1.0, 2.0, 0.0], [2.0, 1.0, 1.0]),
    ([3.0, -1.0], [-3.0, 1.0]),
    ([0.0, 0.0], [1.0, 2.0]),
    ([0.5, 0.5], [0.0, 0.0]),
]
MEASURED = ("cut", "chance", "lenient", "strict", "mixed", "luck")
FIRST: Sequence[tuple[tuple[float, ...], str]] = (
    ((0.4, 0.03, 0.3, 0.3, 0.5, 0.22), "raise the limit"),
    ((0.1, 0.03, 0.05, 0.05, 0.2, 0.22), "teach by examples"),
    ((0.1, 0.03, 0.05, 0.05, 0.5, 0.22), "teach by examples"),
    ((0.1, 0.03, 0.23, 0.006, 0.05, 0.22), "mend the form"),
    ((0.0, 0.03, 0.3, 0.3, 0.2, 0.22), "do not train"),
    ((0.0, 0.03, 0.3, 0.2, 0.5, 0.22), "train"),
    ((0.2, 0.03, 0.07, 0.07, 0.3, 0.22), "train"),
)


def _verdicts(bench: Bench) -> Finding | None:
    def answer(asked: Bench) -> list[Any]:
        cases = [dict(zip(MEASURED, shares, strict=True)) for shares, _ in FIRST]
        return [asked("call", "gate", "verdict", [case]) for case in cases]

    found, right = answer(bench), [word for _, word in FIRST]
    if found == right:
        return None
    off = next(i for i, word in enumerate(found) if word != right[i])
    shares = ", ".join(f"{name} {x:g}" for name, x in zip(MEASURED, FIRST[off][0], strict=True))
    evidence = f"verdict: {found[off]!r:.60}, expected {right[off]!r}, for {shares}"
    known = with_each_mistake("gate", answer)
    named = (name for name, wrong in known if wrong == found)
    return blamed(next(named, ""), evidence)


_law = partial(bench.numbers, "gate")

LAWS: Sequence[Law] = laws(
    "gate",
    ("mixed", "which groups teach", PAY, (), _law("mixed_share", GROUPS, _mixed)),
    ("luck", "what luck mixes", PAY, (), _law("mixed_by_luck", LUCK, _by_luck)),
    (
        "gain",
        "a gain question by question, with its interval",
        QUESTIONS,
        (),
        _law("paired_gain", EXAMINATIONS, _gain, parts=("gain", "low", "high")),
        2,
    ),
    ("power", "how often a gain is seen", QUESTIONS, (), _law("power", EXPECTED, _power)),
    ("agreement", "the cosine of two halves", PAY, (), _law("agreement", HALVES, _agreement)),
    ("verdict", "what to do first", PAY, (), _verdicts, 2),
)
