"""Checks of chapter 17: what luck explains, what a gain is made of, what a second buys."""

import math
from itertools import combinations
from typing import Any

import torch
from torch import Generator, Tensor

from nbcourse.checks.attempt import Attempt
from nbcourse.checks.sheet import Exercises, Numbers

EXERCISES = Exercises()
MANY_NUMBERS = "The check draws more than 10,000 numbers, too many for this page to carry."


@EXERCISES.add("17.4 Before you pay")
def mend_the_gate(attempt: Attempt, generator: Generator) -> None:
    correct = torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 0], [0, 1, 1], [0, 0, 0]]).bool()
    attempt.equal(
        attempt(correct, 0.5),
        0.4 - 0.75,
        case="five groups of three, two of them mixed, at a chance level of 0.5: luck would mix "
        "1 − ⅛ − ⅛ of them",
        mistakes={
            "groups with a right answer were counted; a group that is all right has no spread, "
            "either": 0.6 - 0.75,
            "groups with a wrong answer were counted; a group that is all wrong has no spread, "
            "either": 0.8 - 0.75,
            "luck also makes groups that are all right, with chance c to the power of G: they are "
            "not mixed": 0.4 - 0.875,
            "the two lines of the broken version are as they were": 0.6 - 0.875,
            "that is the share of mixed groups; luck's share is to be subtracted": 0.4,
            "the difference is the wrong way round": 0.75 - 0.4,
            "luck was computed from this model's accuracy; it is the constant answer's chance that "
            "needs no knowledge": 0.4 - (1 - 0.6**3 - 0.4**3),
            "the groups have as many answers as `correct` has columns, not always eight": (
                0.4 - (1 - 2 * 0.5**8)
            ),
            "the number of groups was returned; a share is asked for": 2 - 0.75,
            "columns were looked at; a group is a row": 1 - 0.75,
        },
    )
    for groups, size in ((30, 4), (7, 8), (64, 2)):
        constant = float(0.05 + 0.4 * torch.rand((), generator=generator, dtype=torch.float64))
        correct = torch.rand((groups, size), generator=generator) < 0.6
        mixed = sum(len(set(row)) == 2 for row in correct.tolist())
        attempt.equal(
            attempt(correct, constant),
            mixed / groups - (1 - (1 - constant) ** size - constant**size),
            case=f"{groups} random groups of {size}, chance level {constant:.3f}",
        )


def small_examination(generator: Generator) -> Numbers:
    """An examination of one or two hundred questions whose interval contains zero."""

    def between(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    while True:
        lost = between(8, 20)
        found = {
            "questions": (96, 128, 144, 160)[between(0, 3)],
            "right before": between(24, 40),
            "gained": lost + between(4, 7),
            "lost": lost,
        }
        needed, mistakes = _needed(found)
        values = [round(value, 2) for value in (needed, *mistakes.values())]
        clear = 0.1 < needed % 1 < 0.9 and abs(mistakes[MEAN_SQUARE] % 1 - 0.5) < 0.4
        if needed > found["questions"] + 10 and clear and len(set(values)) == len(values):
            return found


MEAN_SQUARE = (
    "the square of the gain is missing: the variance of a difference is its mean square, the share "
    "that changes, minus the square of its mean"
)


def _needed(found: Numbers) -> tuple[float, dict[str, float]]:
    """Questions that are needed, and what mistakes lead to, both before rounding."""
    questions, right, gained, lost = found.values()
    gain, changed = (gained - lost) / questions, (gained + lost) / questions
    before, after = right / questions, (right + gained - lost) / questions
    needed = 1.96**2 * (changed - gain**2) / gain**2
    return needed, {
        "that is for two models that answered different questions; here each question is compared "
        "with itself, and where the model started does not matter": (
            1.96**2 * (before * (1 - before) + after * (1 - after)) / gain**2
        ),
        MEAN_SQUARE: 1.96**2 * changed / gain**2,
        "1.645 leaves 5 % on either side; an interval of 95 % takes 1.96 standard errors": (
            1.645**2 * (changed - gain**2) / gain**2
        ),
        "that many questions make the gain as large as one standard error; it takes 1.96": (
            (changed - gain**2) / gain**2
        ),
        "that is the root of it: the standard error falls with the root of the number of "
        "questions": math.sqrt(needed),
        "1.96 has to be squared, as everything else has": 1.96 * (changed - gain**2) / gain**2,
        "that is how many questions have to change sides; most of those that are asked do not": (
            needed * changed
        ),
        "that is the interval of one accuracy; the gain is a difference, and has a variance of its "
        "own": 1.96**2 * after * (1 - after) / gain**2,
    }


@EXERCISES.add("17.1 How many questions?", numbers=small_examination)
def by_hand(attempt: Attempt, generator: Generator) -> None:
    needed, wrong = _needed(small_examination(generator))
    attempt.equal(
        attempt(),
        math.ceil(needed),
        case="your examination",
        mistakes={
            "a whole number of questions is asked: round up": needed,
            "the number was rounded down; with so few the interval still contains zero": math.floor(
                needed
            ),
            **{why: math.ceil(value) for why, value in wrong.items()},
        },
        tolerance=1e-9,
    )


READINGS = ("strict", "lenient", "long")
Verdicts = dict[str, str]


def _gains(before: Verdicts, after: Verdicts) -> Tensor:
    """(3, n) the gain of each question by each reading."""
    digits = [[list(map(int, when[reading])) for reading in READINGS] for when in (before, after)]
    first, second = torch.tensor(digits, dtype=torch.float64)
    return second - first


def _with_ends(values: Tensor, *, less: int = 1, z: float = 1.96) -> Tensor:
    """(3, n) → (3, 3): mean, low and high in points."""
    mean, count = values.mean(dim=1), values.shape[1]
    spread = (values - mean[:, None]).square().sum(dim=1) / (count - less)
    radius = z * (spread / count).sqrt()
    return 100 * torch.stack([mean, mean - radius, mean + radius], dim=1)


def _parts(gains: Tensor) -> Tensor:
    strict, lenient, long = gains
    return torch.stack([strict - lenient, lenient - long, long])


def _of_separate_gains(gains: Tensor) -> Tensor:
    """Variances of the gains are added, as if each reading had questions of its own."""
    mean = _parts(gains).mean(dim=1)
    strict, lenient, long = gains.var(dim=1) / gains.shape[1]
    radius = 1.96 * torch.stack([strict + lenient, lenient + long, long]).sqrt()
    return 100 * torch.stack([mean, mean - radius, mean + radius], dim=1)


def _of_subtracted_ends(gains: Tensor) -> Tensor:
    strict, lenient, long = _with_ends(gains)
    return torch.stack([strict - lenient, lenient - long, long])


@EXERCISES.add("17.3 What the gain is made of", elsewhere=MANY_NUMBERS)
def three_parts(attempt: Attempt, generator: Generator) -> None:
    before = {"strict": "00000000", "lenient": "11000000", "long": "11010000"}
    after = {"strict": "10001100", "lenient": "11001100", "long": "11011110"}
    gains = _gains(before, after)
    right = _with_ends(_parts(gains))
    form_before = torch.tensor([[1.0, 1, 0, 0, 0, 0, 0, 0]], dtype=torch.float64)
    attempt.equal(
        attempt(before, after),
        right,
        case="eight questions: the first is now written as asked for, two were learned, and one "
        "comes right beyond 320 tokens only",
        mistakes={
            "the numbers are shares; points of a hundred are asked for": right / 100,
            "the variance was divided by the number of questions; the chapter's `gain` divides by "
            "one less": _with_ends(_parts(gains), less=0),
            "that is one standard error to either side; 95 % takes 1.96 of them": _with_ends(
                _parts(gains), z=1.0
            ),
            "before and after are exchanged": -right[:, [0, 2, 1]],
            "those are the gains by the three readings; a part is the difference of two of them": (
                _with_ends(gains)
            ),
            "the variances of two gains were added, as if they came from different questions; take "
            "the difference for each question first": _of_separate_gains(gains),
            "the ends of two intervals were subtracted; an interval of the difference needs the "
            "difference of each question": _of_subtracted_ends(gains),
            "the low end comes before the high one": right[:, [0, 2, 1]],
            "rows and columns are exchanged: each part has a row": right.T,
            "the parts are in another order: form, cut, content": right.flip(0),
            "the form was taken from before alone; what was right in another form afterwards "
            "counts against it": torch.cat([_with_ends(form_before), right[1:]]),
        },
        tolerance=1e-4,
    )
    for questions in (40, 1319):
        before, after = (_verdicts(questions, share, generator) for share in (0.2, 0.45))
        attempt.equal(
            attempt(before, after),
            _with_ends(_parts(_gains(before, after))),
            case=f"{questions:,} random questions",
            tolerance=1e-4,
        )


def _verdicts(questions: int, share: float, generator: Generator) -> Verdicts:
    """What is right strictly is right leniently, and most of that with more tokens, too."""
    draws = torch.rand((4, questions), generator=generator)
    strict = draws[0] < share
    lenient = strict | (draws[1] < 0.2)
    long = (lenient & (draws[2] < 0.95)) | (draws[3] < 0.1)
    return {
        name: "".join(map(str, row.int().tolist()))
        for name, row in zip(READINGS, (strict, lenient, long), strict=True)
    }


@EXERCISES.add("17.4 Before you pay")
def signal_and_noise(attempt: Attempt, generator: Generator) -> None:
    gradients = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
    right = [4 / 3, 2 / 3]
    attempt.equal(
        attempt(gradients),
        torch.tensor(right),
        case="gradients (2, 0), (0, 1) and (1, 2): the products of different ones are 0, 2 and 2",
        mistakes={
            "that is the square of the batch's gradient, which holds the noise as well": (
                torch.tensor([2.0, 2 / 3])
            ),
            "the noise is that of one prompt; the average of P prompts has the Pth part of it": (
                torch.tensor([4 / 3, 2.0])
            ),
            "the noise was divided by P where P − 1 is right: the distances from their own mean "
            "are too small": torch.tensor([4 / 3, 4 / 9]),
            "the noise was divided by P where P − 1 is right, and the signal is too large by what "
            "it lacks": torch.tensor([14 / 9, 4 / 9]),
            "each row was compared with itself as well; only pairs of different prompts are free "
            "of noise": torch.tensor([2.0, 4 / 9]),
            "the roots were taken; the squares are asked for": torch.tensor(right).sqrt(),
            "the two are in the wrong order": torch.tensor(right[::-1]),
            "every pair was counted once, and the sum divided by all ordered pairs: it is half of "
            "what it should be": torch.tensor([2 / 3, 8 / 9]),
            "that is the mean square of one prompt's gradient, signal and noise together": (
                torch.tensor([4 / 3, 10 / 3])
            ),
            "the noise was taken from the signal again, or the products with themselves are in "
            "the sum and not in the count": torch.tensor([3.0, 1 / 9]),
        },
        tolerance=1e-5,
    )
    attempt.equal(
        attempt(torch.tensor([[2.0, 1.0], [-1.0, 0.0]])),
        torch.tensor([-2.0, 2.5]),
        case="two prompts that contradict each other, (2, 1) and (−1, 0)",
        mistakes={
            "a negative estimate was replaced by 0, and its mean is then too large": torch.tensor(
                [0.0, 2.5]
            ),
            "a negative estimate was replaced by 0, and the noise is too small for it": (
                torch.tensor([0.0, 1.5])
            ),
            "the sign of a negative estimate was taken away": torch.tensor([2.0, 2.5]),
        },
        tolerance=1e-5,
    )
    for prompts, dims in ((2, 3), (5, 4), (12, 2)):
        drawn = torch.randn((prompts, dims), generator=generator, dtype=torch.float64)
        gradients = drawn + torch.linspace(-0.2, 0.4, dims, dtype=torch.float64)
        attempt.equal(
            attempt(gradients),
            _by_pairs(gradients),
            case=f"{prompts} random gradients, pair by pair",
            tolerance=1e-5,
        )


def _by_pairs(gradients: Tensor) -> Tensor:
    pairs = [float(a @ b) for a, b in combinations(gradients, 2)]
    distances = [float((a - b).square().sum()) for a, b in combinations(gradients, 2)]
    noise_of_one = sum(distances) / len(distances) / 2
    return torch.tensor(
        [sum(pairs) / len(pairs), noise_of_one / len(gradients)], dtype=torch.float64
    )


@EXERCISES.add("17.5 The clock")
def best_batch(attempt: Attempt, generator: Generator) -> None:
    attempt.equal(
        attempt(20.0, 0.2, 64.0, 300),
        80.0,
        case="20 s a round, 0.2 s a prompt, a noise scale of 64, room for 300",
        mistakes={
            "that is the noise scale, where half of the progress is made, whatever it costs": 64.0,
            "there a round and its prompts take equally long; how noisy they are matters, too": (
                100.0
            ),
            "the mean was taken of the noise scale and of the number at which a round and its "
            "prompts take equally long; it is their geometric mean": 82.0,
            "the root is missing: bB = aN/B, so B² = aN/b": 6400.0,
            "the card was filled; the last prompts cost more than they bring": 300.0,
            "a and b are exchanged: prompts that cost nothing would make the batch large": (
                math.sqrt(0.2 * 64 / 20)
            ),
            "that is the number at which b is saved; what a round costs has to be divided by what "
            "a prompt costs": math.sqrt(20 * 64),
            "the noise scale is missing under the root": 10.0,
        },
        tolerance=1e-4,
    )
    attempt.equal(
        attempt(20.0, 0.2, 64.0, 50),
        50.0,
        case="the same with room for 50",
        mistakes={
            "that many prompts do not fit into one round, and a second round takes as long as the "
            "first": 80.0,
            "two full rounds were taken; two steps with one round each take as long, and make more "
            "progress": 100.0,
            "with two rounds the fixed part doubles, and so the best number was computed anew; but "
            "two steps with one round each are better still": math.sqrt(2) * 80,
        },
        tolerance=1e-4,
    )
    for _ in range(4):
        a, b, noise = _costs(generator)
        room = int(torch.randint(20, 400, (), generator=generator))
        found = attempt.number(attempt(a, b, noise, room))
        attempt.holds(
            0 < found <= room,
            "a number that fits into one round",
            otherwise=f"With {a:.3g} s a round, {b:.3g} s a prompt and room for {room} you take "
            f"{found:.6g} prompts. Likely mistake: a second round, which costs as much as a step "
            "of its own and makes less progress.",
        )
        others = [room * k / 200 for k in range(1, 201)]
        best = max(others, key=lambda prompts: _progress_per_second(prompts, a, b, noise, room))
        attempt.equal(
            found,
            _refined(best, room / 200, a, b, noise, room),
            case="the most progress per second among all numbers of prompts, by trial",
            tolerance=2e-4,
        )


def _costs(generator: Generator) -> tuple[float, float, float]:
    draws = torch.rand(3, generator=generator, dtype=torch.float64)
    a, b, noise = (draws * torch.tensor([2.0, 2.0, 2.0])).exp() * torch.tensor([3.0, 0.05, 20.0])
    return float(a), float(b), float(noise)


def _progress_per_second(
    prompts: float, per_round: float, per_prompt: float, noise_scale: float, room: int
) -> float:
    rounds = math.ceil(prompts / room)
    return prompts / (prompts + noise_scale) / (per_round * rounds + per_prompt * prompts)


def _refined(around: float, step: float, *costs: Any) -> float:
    """The best number of prompts near one, in ever finer steps, up to the room."""
    room = costs[-1]
    for _ in range(40):
        near = [around + step * k / 4 for k in range(-4, 5)]
        inside = [prompts for prompts in near if 0 < prompts <= room]
        around = max(inside, key=lambda prompts: _progress_per_second(prompts, *costs))
        step /= 2
    return around
