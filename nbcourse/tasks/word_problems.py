"""Grade-school word problems of our own, without end: a question, worked steps, one whole number.

A **story** is data, in word_problems.txt beside this file: up to five stages, each with one line of
arithmetic, the numbers it draws, what the question tells (`fact`), what it may ask (`ask`), and
what the solution says. Telling a story up to its k-th stage and asking there makes a problem of k
steps. The steps are written as in GSM8K, with calculator notes such as ``<<9*2=18>>`` and a last
line ``#### 18``; `verify_solution` does their sums again.

**Nothing held out leaks into training**, whatever the seed:

- *Wordings.* Each story is told in three wordings, one per split, and no sentence of a question,
  distractors included, stands in two of them. The splits share the arithmetic of the stories, the
  names and things they are about, and sentences of the solutions, which are no part of a prompt.
- *Numbers.* The numerals of a question, sorted, are hashed, and the hash says which split they
  belong to. A question with a distractor belongs there both with and without the number that does
  not matter. Numbers that are spelled ("half", "twice") are part of the wording.

To add a story, write it below the others, at the end of that file; the tests will find it. It opens
with its name and slots. A stage is a line of arithmetic with the numbers that are new, `>` what the
solution says, and a wording for each split: a fact, ``||``, what to ask, and perhaps another ``||``
and what the solution says instead. Last, `aside` has the sentences that are beside the point.

==================  ==========================================================================
``trays 2..9``      from 2 to 9; ``10..50/5`` in steps of 5
``given <total``    a part of `total`;  ``price >saved`` more than `saved`
``goal *pay``       2 to 9 times `pay`
``size |left``      a divisor of `left` from 2 to 12; ``size |left:6-60`` from 6 to 60
``part %seats``     a percentage that makes a whole number; ``part %seats:30`` at most 30
``part /trees``     a fraction, spelled;  ``factor times`` how many times as much, spelled
==================  ==========================================================================

In the texts:

==================  ==========================================================================
``{trays}``         a number of the story, drawn or computed
``{trays:tray}``    with its noun, which may be a slot of the story: 1 tray, 2 trays
``{part:fraction}`` ``half``, ``a third``, …      ``{factor:times}``  ``twice``, ``three times``, …
``{name}``          who it is about; ``{he}``, ``{him}``, ``{his}`` follow; ``{other}`` is another
``{item}``          a slot, a word chosen for the whole problem; ``{items}`` is its plural
``{=:tray}``        in `says`: the sum and its result with the noun; ``{=$}`` in dollars;
                    ``{are}`` is or are, as the result has it
``[bakes|makes]``   one of these
==================  ==========================================================================
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple
from zlib import crc32

import torch
from annotated_types import Interval

from nbcourse.functional.arguments import Share, checked
from nbcourse.tasks.answers import extract
from nbcourse.tasks.questions import Problem, Verified

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}  # of all sets of numbers
MAX_STEPS = 5
LARGEST = 9_999  # no number is larger, so that none is written with a comma

Steps = Annotated[int, Interval(ge=1, le=MAX_STEPS)]
ShareOfStories = Annotated[float, Interval(gt=0, le=1)]

FRACTIONS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
PERCENTS = (10, 20, 25, 30, 40, 50, 60, 75, 80, 90)
IRREGULAR = {"person": "people", "child": "children", "loaf": "loaves", "shelf": "shelves"}

HE = (
    "Adam Ahmed Ali Andre Ben Carlos Daniel Diego Eric Felix George Hassan Henry Hiro Ivan Jack "
    "James Jamal Kofi Leo Liam Lucas Marco Mateo Noah Omar Oscar Pedro Raj Sam Thomas Tom"
)
SHE = (
    "Aisha Alice Amina Anna Bella Carmen Chloe Clara Diana Elena Emma Fatima Grace Hannah Ines "
    "Jane Julia Kate Laila Lena Lily Maria Maya Mei Mia Nina Nora Olivia Priya Rosa Sara Zoe"
)
_HE, _SHE = HE.split(), SHE.split()


@dataclass(frozen=True)
class WordProblem(Problem):
    """A problem with the fields of GSM8K's, and where it came from.

    Attributes:
        steps: sums in the solution, 1 to 5.
        template: story and split, such as "muffins/train".
    """

    steps: int
    template: str


# --- what a story is made of ----------------------------------------------------------------------


class Draw(NamedTuple):
    """How a number is drawn, given the story's numbers so far; None if none of them fits."""

    pick: Callable[[Mapping[str, int], Random], int | None]
    spelled: bool = False


def between(low: int, high: int, step: int = 1) -> Draw:
    """A number from low to high, both included, in steps."""
    return Draw(lambda _, rng: rng.randrange(low, high + 1, step))


def below(whole: str) -> Draw:
    """A part of `whole`: neither next to nothing nor nearly all."""

    def pick(numbers: Mapping[str, int], rng: Random) -> int | None:
        margin = max(2, numbers[whole] // 10)
        low, high = margin, numbers[whole] - margin
        return rng.randint(low, high) if low <= high else None

    return Draw(pick)


def above(part: str) -> Draw:
    """More than `part`, by a tenth of it to as much again."""

    def pick(numbers: Mapping[str, int], rng: Random) -> int:
        extra = rng.randint(max(2, numbers[part] // 10), numbers[part] + 5)
        return numbers[part] + extra

    return Draw(pick)


def times_over(part: str) -> Draw:
    """Two to nine times `part`."""
    return Draw(lambda numbers, rng: rng.randint(2, 9) * numbers[part])


def divisor(whole: str, low: int = 2, high: int = 12) -> Draw:
    """A number from low to high that divides `whole` and is less."""
    sizes = range(low, high + 1)
    return _fitting(lambda n: [d for d in sizes if n % d == 0 and n > d], whole)


def percent(whole: str, most: int = 90) -> Draw:
    """A percentage of `whole` that makes a whole number."""
    return _fitting(lambda n: [p for p in PERCENTS if p <= most and n * p % 100 == 0], whole)


def fraction(whole: str) -> Draw:
    """The denominator of a fraction of `whole` that is a whole number: spelled."""
    return _fitting(lambda n: [d for d in FRACTIONS if n % d == 0 and n > d], whole, spelled=True)


def multiple() -> Draw:
    """How many times as much: spelled."""
    return Draw(lambda _, rng: rng.choice((2, 2, 3, 4, 5)), spelled=True)


def _fitting(choices: Callable[[int], list[int]], whole: str, *, spelled: bool = False) -> Draw:
    def pick(numbers: Mapping[str, int], rng: Random) -> int | None:
        found = choices(numbers[whole])
        return rng.choice(found) if found else None

    return Draw(pick, spelled)


@dataclass(frozen=True)
class Stage:
    """One step of a story.

    Attributes:
        work: result = operand op operand …, either of + and − or of * and /, from left to right.
        draws: the numbers that are new here; the facts of every split tell each of them once.
        wordings: (fact, ask, says) of each split; `says` is what the solution writes.
    """

    work: str
    draws: dict[str, Draw]
    wordings: dict[str, tuple[str, str, str]]


@dataclass(frozen=True)
class Story:
    """Stages that follow one another, and a sentence that is beside the point.

    Attributes:
        name: as in a problem's `template`.
        slots: the words to choose from.
        stages: one to five.
        aside: the distractor of each split.
        extra: its number, which is not needed.
    """

    name: str
    slots: dict[str, list[str]]
    stages: tuple[Stage, ...]
    aside: dict[str, str]
    extra: Draw


# --- reading the stories --------------------------------------------------------------------------


def _read(text: str) -> tuple[Story, ...]:
    joined = text.strip().replace("\n    ", " ")
    return tuple(_story(block.split("\n")) for block in joined.split("\n\n"))


def _story(lines: list[str]) -> Story:
    name, *slots = lines[0].split(" | ")
    *stages, aside = [line.strip() for line in lines[1:]]
    _, extra = _draw(aside.removeprefix("aside: ").split(" || ")[0])
    return Story(
        name=name,
        slots={slot: words.split(", ") for slot, words in (s.split(": ") for s in slots)},
        stages=tuple(_stage(stages[i : i + 5]) for i in range(0, len(stages), 5)),
        aside=dict(zip(SHARES, aside.split(" || ")[1:], strict=True)),
        extra=extra,
    )


def _stage(lines: list[str]) -> Stage:
    work, *draws = lines[0].removeprefix("= ").split(" ; ")
    says = lines[1].removeprefix("> ")
    wordings = {}
    for split, line in zip(SHARES, lines[2:], strict=True):
        fact, ask, *own = line.removeprefix(f"{split}: ").split(" || ")
        wordings[split] = (fact, ask, own[0] if own else says)
    return Stage(work, dict(map(_draw, draws)), wordings)


def _draw(line: str) -> tuple[str, Draw]:
    name, how = line.split(" ")
    if how == "times":
        return name, multiple()
    if found := re.fullmatch(r"(\d+)\.\.(\d+)(?:/(\d+))?", how):
        return name, between(*(int(number) for number in found.groups(default="1")))
    of, _, limits = how[1:].partition(":")
    kind = {"<": below, ">": above, "*": times_over, "|": divisor, "%": percent, "/": fraction}
    return name, kind[how[0]](of, *map(int, limits.split("-") if limits else []))


# --- telling a story ------------------------------------------------------------------------------


@checked
def problems(
    count: int,
    *,
    split: str,
    generator: torch.Generator,
    numbers: str | None = None,
    min_steps: Steps = 1,
    max_steps: Steps = MAX_STEPS,
    distractors: Share = 0.2,
    stories: ShareOfStories = 1.0,
) -> list[WordProblem]:
    """Draw problems, repetitions allowed.

    Args:
        count: how many.
        split: "train", "validation" or "test"; no wording and no set of numbers is in two of them.
        numbers: a split to take the sets of numbers from, if not from that of the wordings: to find
            out which of the two a model has not learned.
        generator: source of the draws; one number of it goes into each problem.
        min_steps: the fewest steps of a solution, 1 to 5.
        max_steps: the most; numbers of steps are equally frequent, and so are the stories for each.
        distractors: share of the questions that tell a number which is not needed.
        stories: share of the stories that are told, the first ones of the file; for a teacher who
            does not show everything.

    Returns:
        `count` problems.

    Raises:
        ValueError: if an argument is out of range.
    """
    numbers = split if numbers is None else numbers
    for name, value in (("split", split), ("numbers", numbers)):
        if value not in SHARES:
            raise ValueError(f"{name} is {value!r}, expected 'train', 'validation' or 'test'")
    if count < 0:
        raise ValueError(f"count is {count}, expected 0 or more")
    _check_order(min_steps, max_steps)
    told = math.ceil(stories * len(STORIES))
    drawn = []
    for seed in torch.randint(2**62, (count,), generator=generator).tolist():
        rng = Random(seed)
        steps = rng.randint(min_steps, max_steps)
        story = rng.choice(_long_enough(steps, told))
        distracted = rng.random() < distractors
        drawn.append(
            tell(story, steps, split=split, numbers=numbers, rng=rng, distracted=distracted)
        )
    return drawn


def _check_order(min_steps: int, max_steps: int) -> None:
    if min_steps > max_steps:
        raise ValueError(f"min_steps is {min_steps}, expected at most max_steps = {max_steps}")


def tell(
    story: Story, steps: int, *, split: str, numbers: str, rng: Random, distracted: bool
) -> WordProblem:
    """Draw numbers and words for one story up to its stage `steps`, and write it down.

    The wording is that of one split; the numbers belong to another, or to the same.
    """
    values, irrelevant = _numbers(story, steps, numbers, rng, distracted)
    words = _words(story, rng)
    told = story.stages[:steps]
    facts, asks, says = zip(*(stage.wordings[split] for stage in told), strict=True)
    question = [_write(fact, values, words, rng) for fact in facts]
    if irrelevant is not None:
        aside = _write(story.aside[split], {"extra": irrelevant}, words, rng)
        places = [i for i in range(1, steps) if not _REFERRING.match(question[i])]
        question.insert(rng.choice([*places, steps]), aside)
    question.append(_write(asks[-1], values, words, rng))
    steps_said = [
        _write(said, values, words, rng, stage.work) for said, stage in zip(says, told, strict=True)
    ]
    answer = values[_parse(told[-1].work)[0]]
    return WordProblem(
        question=" ".join(question),
        solution="\n".join([*steps_said, f"#### {answer}"]),
        answer=Decimal(answer),
        steps=steps,
        template=f"{story.name}/{split}",
    )


# A sentence that begins like this must follow the one it refers to.
_REFERRING = re.compile(
    r"(?:It|Of|They|These|Those|Then?|There it|That|What|The (?:rest|others?|remainder)|All the"
    r"|Out of|With the|In that|From the|Everything|Everybody|Each of|Among|On top|For what)\b"
)


def split_of(numerals: list[int]) -> str:
    """The split that questions with these numerals, in whatever order, belong to."""
    place = crc32(" ".join(map(str, sorted(numerals))).encode()) / 2**32
    if place < SHARES["test"]:
        return "test"
    return "validation" if place < SHARES["test"] + SHARES["validation"] else "train"


@cache
def _long_enough(steps: int, told: int) -> tuple[Story, ...]:
    return tuple(story for story in STORIES[:told] if len(story.stages) >= steps)


def _numbers(
    story: Story, steps: int, split: str, rng: Random, distracted: bool
) -> tuple[dict[str, int], int | None]:
    """Numbers that work out and belong to the split, and the distractor's if there shall be one."""
    told = story.stages[:steps]
    visible = [name for stage in told for name, draw in stage.draws.items() if not draw.spelled]
    for _ in range(10_000):
        numbers = _attempt(told, rng)
        if numbers is None:
            continue
        numerals = [numbers[name] for name in visible]
        if split_of(numerals) != split:
            continue
        if not distracted:
            return numbers, None
        operands = {o for stage in told for o in _parse(stage.work)[1] if isinstance(o, int)}
        taken = operands | set(numbers.values())
        for _ in range(30):
            irrelevant = story.extra.pick(numbers, rng)
            if irrelevant is None or irrelevant in taken:
                continue
            if split_of([*numerals, irrelevant]) == split:
                return numbers, irrelevant
    raise RuntimeError(f"story {story.name!r} finds no numbers for {steps} steps in {split}")


def _attempt(told: tuple[Stage, ...], rng: Random) -> dict[str, int] | None:
    numbers: dict[str, int] = {}
    for stage in told:
        for name, draw in stage.draws.items():
            number = draw.pick(numbers, rng)
            if number is None or number > LARGEST:
                return None
            numbers[name] = number
        result, operands, operations = _parse(stage.work)
        value = _calculate([_operand(o, numbers) for o in operands], operations)
        if value is None:
            return None
        numbers[result] = value
    return numbers


@cache
def _parse(work: str) -> tuple[str, tuple[str | int, ...], tuple[str, ...]]:
    """`total = trays * each`, taken apart: total, (trays, each), (*,)."""
    result, right = work.split(" = ")
    parts = right.split()
    operands = tuple(int(part) if part.isdecimal() else part for part in parts[::2])
    return result, operands, tuple(parts[1::2])


def _operand(operand: str | int, numbers: Mapping[str, int]) -> int:
    return operand if isinstance(operand, int) else numbers[operand]


def _calculate(operands: list[int], operations: tuple[str, ...]) -> int | None:
    """The sum from left to right, or None if a result is no whole number from 1 to LARGEST."""
    value = operands[0]
    for operation, operand in zip(operations, operands[1:], strict=True):
        if operation == "+":
            value += operand
        elif operation == "-":
            value -= operand
        elif operation == "*":
            value *= operand
        else:
            value, rest = divmod(value, operand)
            if rest:
                return None
        if value < 1:
            return None
    return value if value <= LARGEST else None


def _words(story: Story, rng: Random) -> dict[str, str]:
    he = rng.random() < 0.5
    name = rng.choice(_HE if he else _SHE)
    other = rng.choice(_SHE if he else _HE)  # so that a pronoun can only mean one of them
    words = {"name": name, "other": other}
    if he:
        words |= {"he": "he", "him": "him", "his": "his", "other_he": "she", "other_his": "her"}
    else:
        words |= {"he": "she", "him": "her", "his": "her", "other_he": "he", "other_his": "his"}
    for slot, choices in story.slots.items():
        words[slot] = rng.choice(choices)
        words[slot + "s"] = plural(words[slot])
    return words


@cache
def plural(noun: str) -> str:
    """The plural of a noun, whose last word is the one that changes."""
    *before, last = noun.split(" ")
    if last in IRREGULAR:
        last = IRREGULAR[last]
    elif last.endswith("y") and last[-2] not in "aeiou":
        last = last[:-1] + "ies"
    elif last.endswith(("s", "x", "ch", "sh")):
        last += "es"
    else:
        last += "s"
    return " ".join([*before, last])


@cache
def variants(text: str) -> tuple[str, ...]:
    """All texts that `[this|that]` stands for."""
    parts = re.split(r"\[([^\]]*)\]", text)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return tuple("".join(choice) for choice in product(*choices))


@cache
def _pieces(text: str) -> tuple[tuple[str, str, str], ...]:
    """(text before, key, unit) for each `{key:unit}`, and last the text that is left."""
    parts = re.split(r"\{([^{}]*)\}", text)
    keys = [*parts[1::2], ""]
    return tuple(
        (before, *(key if ":" in key else key + ":").split(":"))  # type: ignore[misc]
        for before, key in zip(parts[::2], keys, strict=True)
    )


def _write(
    text: str, numbers: Mapping[str, int], words: Mapping[str, str], rng: Random, work: str = ""
) -> str:
    """Fill in a text, after choosing among its variants."""
    choices = variants(text)
    chosen = choices[0] if len(choices) == 1 else rng.choice(choices)
    written: list[str] = []
    for before, key, unit in _pieces(chosen):
        written.append(before)
        if key in words:
            written.append(words[key])
        elif key == "are":
            written.append("is" if numbers[_parse(work)[0]] == 1 else "are")
        elif key in ("=", "=$"):
            written.append(_sum(work, numbers, words.get(unit, unit), money=key == "=$"))
        elif key:
            written.append(_number(numbers[key], words.get(unit, unit)))
    sentence = "".join(written)
    return sentence[0].upper() + sentence[1:]


def _number(value: int, unit: str) -> str:
    if unit == "fraction":
        return FRACTIONS[value]
    if unit == "times":
        return TIMES[value]
    return f"{value} {unit if value == 1 else plural(unit)}" if unit else str(value)


def _sum(work: str, numbers: Mapping[str, int], unit: str, *, money: bool) -> str:
    result, operands, operations = _parse(work)
    values = [str(_operand(operand, numbers)) for operand in operands]
    symbols = [*operations, ""]
    shown = " ".join(f"{v} {o}" for v, o in zip(values, symbols, strict=True)).strip()
    note = f"<<{shown.replace(' ', '')}={numbers[result]}>>"
    return f"{shown} = {'$' if money else ''}{note}{_number(numbers[result], unit)}"


# --- doing the sums again -------------------------------------------------------------------------

_NOTE = re.compile(r"<<([^<>]*)>>")
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[-+*/()]")
_MAX_NOTE = 100  # characters; a longer note is no step, and brackets must not nest without end


def verify_solution(solution: str) -> bool:
    """Say whether every calculator note is right, and the answer is the result of the last one.

    Notes are computed in exact fractions: + − * / with brackets and the usual precedence. A
    solution without notes, or without one strict answer, is not verified.
    """
    answer = extract(solution, strict=True)
    value = None
    for note in _NOTE.findall(solution):
        left, _, right = note.rpartition("=")
        value = _evaluate(right)
        if value is None or _evaluate(left) != value:
            return False
    return value is not None and answer is not None and Fraction(answer) == value


def _evaluate(expression: str) -> Fraction | None:
    """The value of an expression, or None if it is none, or divides by zero."""
    if not expression or len(expression) > _MAX_NOTE or _TOKEN.sub("", expression).strip():
        return None
    tokens = [*_TOKEN.findall(expression), ""]
    try:
        value, end = _added(tokens, 0)
    except (ValueError, ZeroDivisionError):
        return None
    return value if tokens[end] == "" else None


def _added(tokens: list[str], at: int) -> tuple[Fraction, int]:
    value, at = _multiplied(tokens, at)
    while tokens[at] in ("+", "-"):
        right, end = _multiplied(tokens, at + 1)
        value = value + right if tokens[at] == "+" else value - right
        at = end
    return value, at


def _multiplied(tokens: list[str], at: int) -> tuple[Fraction, int]:
    value, at = _single(tokens, at)
    while tokens[at] in ("*", "/"):
        right, end = _single(tokens, at + 1)
        value = value * right if tokens[at] == "*" else value / right
        at = end
    return value, at


def _single(tokens: list[str], at: int) -> tuple[Fraction, int]:
    if tokens[at] == "-":
        value, at = _single(tokens, at + 1)
        return -value, at
    if tokens[at] == "(":
        value, at = _added(tokens, at + 1)
        if tokens[at] != ")":
            raise ValueError("a bracket that is not closed")
        return value, at + 1
    return Fraction(tokens[at]), at + 1  # ValueError if this is no number


STORIES = _read(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))


# --- the task -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordProblems(Verified):
    """Word problems as a training run sees them: without end, and harder on request.

    Attributes:
        min_steps: the fewest steps of a solution.
        max_steps: the most.
        distractors: share of the questions that tell a number which is not needed.
        stories: share of the stories that are told.
    """

    min_steps: Steps = 1
    max_steps: Steps = MAX_STEPS
    distractors: Share = 0.2
    stories: ShareOfStories = 1.0

    def __post_init__(self) -> None:
        _check_order(self.min_steps, self.max_steps)

    def draw(self, count: int, *, split: str, generator: torch.Generator) -> list[WordProblem]:
        """Draw problems, repetitions allowed; see `problems`."""
        return problems(count, split=split, generator=generator, **self.told())

    def told(self) -> dict[str, Any]:
        """What `problems` is told: the attributes of this class, and none of a subclass's own."""
        return {field.name: getattr(self, field.name) for field in fields(WordProblems)}


TASKS = {"word-problems": WordProblems}
