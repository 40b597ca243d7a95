"""Grade-school word problems of our own, without end: a question, worked steps, one whole number.

A **story** is data: up to five stages, each with one line of arithmetic, the numbers it draws, what
the question tells (`fact`), what it may ask (`ask`), and what the solution says. Telling a story up
to its k-th stage and asking there makes a problem of k steps. The steps are written as in GSM8K,
with calculator notes such as ``<<9*2=18>>`` and a last line ``#### 18``; `verify_solution` does
their sums again.

**Nothing held out leaks into training**, whatever the seed:

- *Wordings.* Each story is told in three wordings, one per split, and no sentence of a question,
  distractors included, stands in two of them. The splits share the arithmetic of the stories, the
  names and things they are about, and sentences of the solutions, which are no part of a prompt.
- *Numbers.* The numerals of a question, sorted, are hashed, and the hash says which split they
  belong to. A question with a distractor belongs there both with and without the number that does
  not matter. Numbers that are spelled ("half", "twice") are part of the wording.

To add a story, write it below the others, at the end of this file; the tests will find it. It opens
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
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from random import Random
from typing import NamedTuple
from zlib import crc32

import torch

from nbcourse.tasks import gsm8k
from nbcourse.tasks.answers import extract

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}  # of all sets of numbers
MAX_STEPS = 5
LARGEST = 9_999  # no number is larger, so that none is written with a comma

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
class WordProblem(gsm8k.Problem):
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
    remembered = cache(choices)

    def pick(numbers: Mapping[str, int], rng: Random) -> int | None:
        found = remembered(numbers[whole])
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
        extra: its number, which nobody needs.
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


def problems(
    count: int,
    *,
    split: str,
    generator: torch.Generator,
    min_steps: int = 1,
    max_steps: int = MAX_STEPS,
    distractors: float = 0.2,
    stories: float = 1.0,
) -> list[WordProblem]:
    """Draw problems, repetitions allowed.

    Args:
        count: how many.
        split: "train", "validation" or "test"; no wording and no set of numbers is in two of them.
        generator: source of the draws; one number of it goes into each problem.
        min_steps: the fewest steps, 1 to 5.
        max_steps: the most; numbers of steps are equally frequent, and so are the stories for each.
        distractors: share of the questions that tell a number nobody needs.
        stories: share of the stories that are told, the first ones of the file; for a teacher who
            does not show everything.

    Returns:
        `count` problems.

    Raises:
        ValueError: if an argument is out of range.
    """
    if split not in SHARES:
        raise ValueError(f"split is {split!r}, expected 'train', 'validation' or 'test'")
    if count < 0:
        raise ValueError(f"count is {count}, expected 0 or more")
    if not 1 <= min_steps <= MAX_STEPS:
        raise ValueError(f"min_steps is {min_steps}, expected a number from 1 to {MAX_STEPS}")
    if not min_steps <= max_steps <= MAX_STEPS:
        raise ValueError(
            f"max_steps is {max_steps}, expected a number from min_steps = {min_steps} "
            f"to {MAX_STEPS}"
        )
    if not 0 <= distractors <= 1:
        raise ValueError(f"distractors is {distractors}, expected a share from 0 to 1")
    told = math.ceil(stories * len(STORIES))
    if not (0 < stories <= 1 and all(_long_enough(n, told) for n in range(1, max_steps + 1))):
        raise ValueError(
            f"stories is {stories}, expected a share above 0 and up to 1, with stories of "
            f"{max_steps} steps among them"
        )
    drawn = []
    for seed in torch.randint(2**62, (count,), generator=generator).tolist():
        rng = Random(seed)
        steps = rng.randint(min_steps, max_steps)
        story = rng.choice(_long_enough(steps, told))
        drawn.append(
            tell(story, steps, split=split, rng=rng, distracted=rng.random() < distractors)
        )
    return drawn


def tell(story: Story, steps: int, *, split: str, rng: Random, distracted: bool) -> WordProblem:
    """Draw numbers and words for one story up to its stage `steps`, and write it down."""
    numbers, irrelevant = _numbers(story, steps, split, rng, distracted)
    words = _words(story, rng)
    told = story.stages[:steps]
    facts, asks, says = zip(*(stage.wordings[split] for stage in told), strict=True)
    question = [_write(fact, numbers, words, rng) for fact in facts]
    if irrelevant is not None:
        aside = _write(story.aside[split], {"extra": irrelevant}, words, rng)
        places = [i for i in range(1, steps) if not _REFERRING.match(question[i])]
        question.insert(rng.choice([*places, steps]), aside)
    question.append(_write(asks[-1], numbers, words, rng))
    steps_said = [
        _write(said, numbers, words, rng, stage.work)
        for said, stage in zip(says, told, strict=True)
    ]
    answer = numbers[_parse(told[-1].work)[0]]
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
    words |= {"he": "he", "him": "him", "his": "his"} if he else _FEMININE
    words |= {"other_he": "she" if he else "he", "other_his": "her" if he else "his"}
    for slot, choices in story.slots.items():
        words[slot] = rng.choice(choices)
        words[slot + "s"] = plural(words[slot])
    return words


_FEMININE = {"he": "she", "him": "her", "his": "her"}


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


# --- the stories ----------------------------------------------------------------------------------

_TEXT = """
baking | item: muffin, roll, cookie, cupcake, scone, bun, brownie
  = total = trays * each ; trays 2..9 ; each 4..24
  > {name} bakes {=:item}.
  train: {name} [bakes|makes] {trays} trays of {items} with {each} {items} on each tray. || How
    many {items} does {name} [bake|make] [in total|altogether]?
  validation: On Sunday {name} fills {trays} trays with {items}, {each} on every tray. || How
    many {items} are on the trays?
  test: There are {trays} trays in {name}'s oven, and each of them holds {each} {items}. || How
    many {items} are in the oven?
  = left = total - given ; given <total
  > After that {he} has {=:item} left.
  train: {he} gives {given} {items} to [the neighbors|{his} friends]. || How many {items} does
    {name} [have left|still have]?
  validation: {his} family eats {given} of the {items}. || How many {items} remain for {name}?
  test: As soon as the {items} are ready, {he} hands out {given} of them at school. || How many
    {items} has {name} got after that?
  = boxes = left / size ; size |left
  > The {items} that are left fill {=:box}.
  train: {he} packs [the rest|the other {items}] into boxes of {size}. || How many boxes does
    {he} [need|fill]?
  validation: The remaining {items} go into boxes that hold {size} each. || How many boxes can
    {name} fill?
  test: All the {items} that are left are put into boxes, {size} to a box. || How many boxes of
    {items} does that make?
  = income = boxes * price ; price 3..15
  > {he} earns {=$} from the boxes.
  train: {he} [sells each box|then sells every box] for ${price}. || How much money [does {name}
    earn|does {name} get for the boxes]?
  validation: A box is sold for ${price}. || How many dollars do the boxes bring in?
  test: People at the market buy all the boxes and pay ${price} for each. || How many dollars do
    people at the market pay {him}?
  = profit = income - cost ; cost <income
  > After paying for the ingredients, {he} has a profit of {=$}.
  train: The ingredients cost {him} ${cost} [in total|altogether]. || How much profit does
    {name} make?
  validation: {name} had paid ${cost} for flour, sugar and butter. || How many dollars of profit
    are there?
  test: Flour, eggs and milk had cost {name} ${cost}. || What is {name}'s profit in dollars?
  aside: extra 2..60 || [The oven is {extra} years old.|The baking takes {extra} minutes.] ||
    The kitchen has been in use for {extra} years. || It takes {extra} minutes to heat up the
    oven.

reading | item: book, novel, story book
  = read = days * pages ; days 3..9 ; pages 8..40
  > {name} has read {=:page}.
  train: {name} [reads|has been reading] {pages} pages of a {item} every day for {days} days. ||
    How many pages [has {name} read|did {name} read in that time]?
  validation: For {days} days {name} has spent each evening with a {item}, reading {pages} pages
    at a time. || How many pages has {name} finished so far?
  test: {name} got a {item} for {his} birthday, and in the {days} days since then {he} read
    {pages} pages a day. || How many pages is that up to now?
  = left = total - read ; total >read
  > There {are} {=:page} left.
  train: The {item} has {total} pages. || How many pages [are left|does {he} still have to
    read]?
  validation: The {item} has {total} pages altogether. || How many pages has {name} not read
    yet?
  test: The last page of the {item} is number {total}. || How many pages lie between {name} and
    the end?
  = nights = left / faster ; faster |left:6-60
  > {he} needs {=:more day}.
  train: From now on {he} reads {faster} pages a day. || How many more days [does {he} need|will
    it take {him}] to finish the {item}?
  validation: {he} will read the rest at {faster} pages per evening. || After how many more
    evenings will {he} be done?
  test: For the remaining part {name} plans exactly {faster} pages a day. || In how many more
    days is {he} through?
  = all = days + nights
  > In all, the {item} takes {name} {=:day}.
  train: {he} [does not skip a day|reads every single day]. || How many days does {name} need
    for the whole {item}?
  validation: No evening passes without reading. || How many evenings does {name} spend on the
    {item} from first page to last?
  test: {he} never takes a day off. || From the birthday to the last page, how many days of
    reading does {name} need?
  aside: extra 8..70 || [There are {extra} pictures in the {item}.|The {item} cost ${extra}.] ||
    A bookmark with {extra} stars on it shows {him} where to go on. || {his} grandmother paid
    ${extra} for the {item}.

savings | item: bicycle, guitar, skateboard, camera, tent, drum
  = saved = weeks * each ; weeks 4..12 ; each 3..25
  > {name} saves {=$}.
  train: {name} [saves|puts aside] ${each} a week for {weeks} weeks because {he} wants to buy a
    {item}. || How much money [does {name} save|has {name} saved by then]?
  validation: Every week for {weeks} weeks, {name} drops ${each} into a jar to pay for a {item}.
    || How many dollars are in the jar in the end?
  test: A {item} is what {name} dreams of, so {he} keeps ${each} of {his} weekly allowance,
    which {he} has done for {weeks} weeks. || How many dollars has {he} kept?
  = more = saved + gift ; gift 5..60
  > Together with the gift, {he} has {=$}.
  train: For {his} birthday {he} gets another ${gift} from {his} [aunt|uncle|grandparents]. ||
    How much money does {name} have now?
  validation: {his} grandfather adds ${gift} to the jar. || How many dollars does the jar hold
    with that?
  test: An uncle who likes the idea gives {him} ${gift} more. || With the uncle's help, how many
    dollars has {name} got?
  = missing = price - more ; price >more
  > {he} still needs {=$}.
  train: The {item} costs ${price}. || How much more money does {name} need?
  validation: In the shop window the {item} has a price tag of ${price}. || How many dollars are
    still missing?
  test: A good {item} can be had for ${price}. || How many dollars short of the {item} is
    {name}?
  = jobs = missing / pay ; pay |missing:3-12
  > To earn the rest {he} has to work {=:time}.
  train: A neighbor pays {him} ${pay} each time {he} [mows the lawn|washes the car|walks the
    dog]. || How many times does {he} have to [work|do this] to get the rest?
  validation: {name} can earn ${pay} whenever {he} babysits. || How often must {he} babysit
    before {he} can buy the {item}? || {name} must babysit {=:time}.
  test: {his} mother offers ${pay} for every window that {he} cleans. || How many windows will
    pay for what is missing? || The rest is earned with {=:window}.
  aside: extra 9..16 || {name} is {extra} years old. || {his} sister, who does not save, is
    {extra} years old. || At school there are {extra} others who would like to have one too.

road trip | town: the coast, the mountains, the lake, the capital
  = driven = hours * speed ; hours 2..9 ; speed 30..70/5
  > {name} drives {=:mile}.
  train: {name} [drives|is driving] to {town}, at {speed} miles per hour for {hours} hours. ||
    How many miles does {name} [drive|cover]?
  validation: On the way to {town}, {name} spends {hours} hours behind the wheel, covering
    {speed} miles in each. || How many miles has {name} covered?
  test: Going {speed} miles every hour, {name}'s van has been on the road to {town} for {hours}
    hours. || What distance, in miles, has the van gone?
  = left = distance - driven ; distance >driven
  > {he} has {=:mile} left.
  train: [The whole trip is|From start to end the way is] {distance} miles long. || How many
    miles are left?
  validation: The whole journey is {distance} miles long. || How many miles still lie ahead?
  test: A sign at the start said {distance} miles. || How many miles does the van still have to
    go?
  = gallons = left / economy ; economy |left:8-40
  > For the rest of the way {he} needs {=:gallon} of gas.
  train: The car [goes|gets] {economy} miles on a gallon of gas. || How many gallons of gas does
    {he} need for the rest of the way?
  validation: For every {economy} miles {name} uses a gallon of gas. || How many gallons will
    the rest of the journey take?
  test: One gallon of gas takes the van {economy} miles. || How many gallons of gas will bring
    it to the end of the road?
  = cost = gallons * price ; price 2..9
  > The gas costs {=$}.
  train: A gallon [costs|of gas costs] ${price}. || How much does {he} pay for the gas for the
    rest of the way?
  validation: Gas sells at ${price} a gallon. || How many dollars will the gas for the rest of
    the journey cost?
  test: The gas station asks ${price} per gallon. || How many dollars does {name} need for the
    gas that is still to be bought?
  = rest = wallet - cost ; wallet >cost
  > After that {he} has {=$} left.
  train: {name} has ${wallet} in {his} [wallet|pocket]. || How much money does {he} have left
    after paying for the gas?
  validation: {he} set out with ${wallet} in cash, and gas is the only thing {he} buys. || How
    many dollars are left when {he} arrives?
  test: There is ${wallet} in the glove box for it. || How many dollars stay in the glove box
    when the gas is paid?
  aside: extra 2..40 || [The car is {extra} years old.|{he} listens to {extra} songs on the
    radio.] || {name} counts {extra} trucks along the way. || The van was built {extra} years
    ago.

marbles | item: marble, sticker, stamp, coin, shell, postcard
  = theirs = own * factor ; own 4..150 ; factor times
  > {other} has {=:item}.
  train: {name} has {own} {items}, and {other} has {factor:times} as many. || How many {items}
    does {other} have?
  validation: In {name}'s box there are {own} {items}; {other}'s box holds {factor:times} as
    many. || How many {items} are in {other}'s box?
  test: {name} collects {items} and owns {own} of them, but {other}, with {factor:times} that
    number, is far ahead. || How large is {other}'s collection of {items}?
  = both = own + theirs
  > Together they have {=:item}.
  train: They put their {items} together. || How many {items} do they have
    [together|altogether|in total]?
  validation: The two of them empty both boxes onto a table. || How many {items} lie on the
    table?
  test: They decide to make one big collection. || How many {items} are in the big collection?
  = left = both - lost ; lost <both
  > After the loss they have {=:item}.
  train: Then they [lose|give away] {lost} of the {items}. || How many {items} do they have
    left?
  validation: The wind and a curious cat make {lost} {items} disappear. || How many {items} can
    the two still find?
  test: They sell {lost} {items} that they like less. || How many {items} do they keep?
  = each = left / people ; people |left
  > Each of them gets {=:item}.
  train: They share the rest equally among {people} [children|friends|cousins]. || How many
    {items} does each [of them|one] get?
  validation: What they still have is dealt out fairly to {people} classmates. || How many
    {items} does a classmate get?
  test: The {items} they keep are arranged in {people} equal rows. || How many {items} are in a
    row? || Each row has {=:item}.
  aside: extra 2..15 || [{other} is {extra} years old.|{name} and {other} have been friends for
    {extra} years.] || The box was bought for ${extra} long ago. || It is {extra} years since
    the two of them met.

ages
  = now = young + gap ; young 3..16 ; gap 2..15
  > {other} is {=:year} old.
  train: {name} is {young} years old. {other} is {gap} years older. || How old is {other}?
  validation: When {name} was born, {other} was {gap} years old; today {name} has turned
    {young}. || What is {other}'s age today?
  test: Today {name} turns {young}, and {other}, who is {gap} years older, comes as a guest. ||
    How many years old is {other} on {name}'s birthday?
  = elder = now + more ; more 12..40
  > Their aunt is {=:year} old.
  train: Their aunt is {more} years older than {other}. || How old is their aunt?
  validation: An aunt of theirs had already lived {more} years when {other} was born. || What is
    the aunt's age?
  test: The aunt who brings the cake is {more} years older than this guest. || How many years
    old is the aunt?
  = future = elder + years ; years 2..25
  > Then the aunt will be {=:year} old.
  train: {other} wonders about the time {years} years from now. || How old will their aunt be
    then?
  validation: They bury a time capsule that is to be opened after {years} years. || What will be
    the aunt's age when the capsule is opened?
  test: They promise to meet at the same place again in {years} years. || How many years old
    will the aunt be at that meeting?
  aside: extra 2..9 || [{name} lives in a house with {extra} rooms.|{other} has {extra}
    cousins.] || The family has lived on the same street for {extra} years. || The cake is cut
    into {extra} pieces.

shopping | item: notebook, folder, paint set, calendar, ruler | thing: lamp, backpack, globe, clock
  = first = count * price ; count 2..9 ; price 2..15
  > The {items} cost {=$}.
  train: {name} buys {count} {items} [for|at] ${price} each. || How much do the {items} cost?
  validation: {count} {items} are in {name}'s cart, and the price of each is ${price}. || How
    many dollars do all the {items} in the cart cost?
  test: In a shop where a {item} costs ${price}, {name} takes {count} of them. || What is the
    price of these {items} in dollars?
  = total = first + extra_price ; extra_price 5..60
  > With the {thing}, the bill is {=$}.
  train: {he} also buys a {thing} [for|that costs] ${extra_price}. || How much does {he} spend
    in total?
  validation: {name} also picks a {thing} at ${extra_price}. || What is the value of the cart in
    dollars?
  test: Besides, {he} chooses a {thing} with a price of ${extra_price}. || How many dollars does
    {name} have to pay for everything?
  = paid = total - coupon ; coupon <total
  > The coupon brings this down to {=$}.
  train: A coupon takes ${coupon} off the bill. || How much does {he} have to pay?
  validation: Because {he} is a regular customer, the bill is reduced by ${coupon}. || How many
    dollars does {name} pay as a regular customer? || The discount brings this down to {=$}.
  test: {he} also has a gift card of ${coupon}, which {he} uses up. || How many dollars remain
    to be paid after the gift card? || With the gift card {he} pays {=$}.
  = change = note - paid ; note >paid
  > {he} gets {=$} in change.
  train: {he} [gives the cashier|hands over] ${note}. || How much change does {he} get?
  validation: At the register {name} puts down ${note}. || How many dollars come back as change?
  test: The rest {name} pays out of an envelope with ${note} in it. || How many dollars are then
    left in the envelope? || There {are} {=$} left in the envelope.
  aside: extra 2..30 || [The shop has {extra} shelves.|{he} waits in line for {extra} minutes.]
    || There are {extra} other customers in the shop. || The shop is {extra} minutes from {his}
    home.

eggs | place: farm, ranch
  = daily = hens * each ; hens 5..40 ; each 2..4
  > The hens lay {=:egg} a day.
  train: {name} has {hens} [hens|chickens], and each of them lays {each} eggs a day. || How many
    eggs does {name} get [a day|each day]?
  validation: At {name}'s {place}, {hens} hens lay {each} eggs apiece every day. || How many
    eggs are collected there in one day?
  test: Each hen at the {place} of {name} lays {each} eggs daily; the number of hens is {hens}.
    || What is the number of eggs per day?
  = kept = daily - used ; used <daily
  > That leaves {=:egg} a day.
  train: Every day {his} family eats {used} eggs. || How many eggs are left each day?
  validation: Of the eggs of a day, {used} go to the kitchen. || How many eggs of a day do not
    go to the kitchen?
  test: Day after day, {used} eggs are given to relatives. || How many eggs does {name} keep per
    day?
  = weekly = kept * 7
  > In a week that makes {=:egg}.
  train: {he} keeps all the other eggs. || How many eggs are left [in a week|after a week]?
  validation: The others are stored until the end of the week. || How many eggs does {name}
    store in one week?
  test: Whatever is kept from Monday to Sunday is taken to the market. || How many eggs are
    taken to the market after a whole week?
  = cartons = weekly / size ; size |weekly:6-12
  > These fill {=:carton}.
  train: {he} puts the eggs into cartons of {size}. || How many cartons [does {he} need for a
    week|can {he} fill in a week]?
  validation: A carton has room for {size} eggs. || How many cartons are used in a week?
  test: For the market, {size} eggs go into each carton. || How many cartons stand on the market
    table?
  = income = cartons * price ; price 2..9
  > The week's eggs bring {=$}.
  train: {he} sells each carton for ${price}. || How much money does {he} earn in a week?
  validation: A neighbor buys every carton at ${price}. || How many dollars a week does the
    neighbor pay?
  test: Customers pay ${price} a carton until all are sold. || How many dollars does the market
    day bring in?
  aside: extra 2..30 || [There are also {extra} cows on the {place}.|{he} gets up at {extra}
    minutes past five.] || The barn is {extra} feet high. || It takes {extra} minutes to feed
    all the animals.

orchard | fruit: apple, pear, plum, orange, lemon
  = trees = rows * each ; rows 3..12 ; each 4..20
  > There {are} {=:tree} in the orchard.
  train: There are {rows} rows of {fruit} trees in {name}'s orchard, with {each} trees in each
    row. || How many {fruit} trees [are in the orchard|does {name} have]?
  validation: {name} planted {fruit} trees long ago: {rows} rows, and {each} trees to a row. ||
    How many {fruit} trees did {name} plant?
  test: An orchard of {rows} rows, each with {each} {fruit} trees, belongs to {name}. || What is
    the number of {fruit} trees that belong to {name}?
  = old = trees / part ; part /trees
  > The number of trees with no fruit is {=}.
  train: This year {part:fraction} of the trees bear no fruit. || How many trees bear no fruit?
  validation: Late frost has left {part:fraction} of the trees without fruit. || How many trees
    has the frost left without fruit?
  test: Because of the dry summer, nothing grows on {part:fraction} of the trees. || On how many
    trees does nothing grow?
  = good = trees - old
  > Fruit grows on {=:tree}.
  train: All the other trees bear {fruits}. || How many trees bear {fruits}?
  validation: The rest of the trees came through the frost well. || How many trees came through
    the frost well?
  test: The summer did no harm to the remaining trees. || How many trees were not harmed by the
    summer?
  = baskets = good * yield ; yield 2..9
  > The harvest is {=:basket}.
  train: Each of them gives {yield} baskets of {fruits}. || How many baskets of {fruits} does
    {name} harvest?
  validation: From every healthy tree {name} picks {yield} baskets. || How many baskets does
    {name} pick?
  test: There are {yield} full baskets under each tree that bears fruit. || How many full
    baskets are there in all?
  = left = baskets - sold ; sold <baskets
  > After the sale {name} has {=:basket}.
  train: {he} sells {sold} baskets [at the market|to a grocery store]. || How many baskets [are
    left|does {he} have left]?
  validation: A juice factory takes {sold} of the baskets. || How many baskets does the factory
    not take?
  test: A truck drives away with {sold} baskets. || How many baskets stay behind when the truck
    is gone?
  aside: extra 2..12 || [{name} has {extra} ladders.|{extra} people help {him} in the orchard.]
    || A fence {extra} feet high keeps the deer away. || {name} bought the land {extra} years
    ago.

bus | thing: bus, train, ferry
  = second = start + on ; start 8..60 ; on 2..30
  > After the first stop there {are} {=:passenger} on the {thing}.
  train: A {thing} [leaves|sets off] with {start} passengers, and {on} more get on at the first
    stop. || How many passengers are on the {thing} [after the first stop|then]?
  validation: With {start} passengers on board the {thing} reaches its first stop, where {on}
    people join them. || How many passengers does the {thing} carry after that stop?
  test: At its first stop a {thing} takes on {on} people, who find {start} passengers already
    sitting there. || How many people sit in the {thing} now?
  = third = second - off ; off <second
  > After the second stop there {are} {=:passenger}.
  train: At the second stop {off} passengers get off. || How many passengers are on the {thing}
    after the second stop?
  validation: At the following stop, {off} people say goodbye to the driver. || How many
    passengers ride on from there?
  test: Then {off} of them step out at the museum. || How many people go on beyond the museum?
    || After the museum there {are} {=:passenger}.
  = fares = third * fare ; fare 2..9
  > The passengers pay {=$}.
  train: Each of the passengers who are still on the {thing} pays ${fare}. || How much do they
    pay [in total|altogether]?
  validation: Those who ride on buy a ticket for ${fare} each. || How many dollars do these
    tickets cost together?
  test: From the people who go on, a conductor collects ${fare} each. || How many dollars does
    the conductor collect?
  aside: extra 2..40 || [The driver has worked for {extra} years.|The ride takes {extra}
    minutes.] || The {thing} is {extra} minutes late. || A clock at the station is {extra}
    minutes fast.

library | item: book, magazine, comic, map
  = total = shelves * each ; shelves 3..12 ; each 10..60/2
  > The library has {=:item}.
  train: A [small|school] library has {shelves} shelves with {each} {items} on each shelf. ||
    How many {items} does the library have?
  validation: On {shelves} shelves of a library stand {items}, {each} to a shelf. || How many
    {items} stand on the shelves?
  test: Every shelf in the village library carries {each} {items}, and there are {shelves}
    shelves. || How many {items} does the village own?
  = lent = total / part ; part /total
  > The number of {items} borrowed is {=}.
  train: Students have borrowed {part:fraction} of the {items}. || How many {items} have [been
    borrowed|the students borrowed]?
  validation: At the moment {part:fraction} of the {items} are at readers' homes. || How many
    {items} are at readers' homes?
  test: For the holidays, people took home {part:fraction} of all {items}. || How many {items}
    did people take home?
  = there = total - lent
  > The library still holds {=:item}.
  train: Nobody borrows any more. || How many {items} are still in the library?
  validation: The others have stayed where they were. || How many {items} have stayed in the
    library?
  test: During the holidays no more are lent out. || How many {items} can be found on the
    shelves in the holidays?
  = after = there + fresh ; fresh 5..90
  > With the new ones there {are} {=:item}.
  train: Then the library gets {fresh} new {items}. || How many {items} are in the library now?
  validation: A gift of {fresh} {items} arrives by mail. || How many {items} can readers choose
    from now?
  test: The mayor brings {fresh} {items} that nobody has read yet. || How many {items} are on
    the shelves when the mayor has left?
  aside: extra 2..30 || [The library is open for {extra} hours a week.|{extra} people work
    there.] || The building was finished {extra} years ago. || A library card costs ${extra} a
    year.

concert | show: concert, play, musical, puppet show
  = seats = rows * each ; rows 5..20 ; each 8..30/2
  > The hall has {=:seat}.
  train: A hall for a {show} has {rows} rows of {each} seats. || How many seats [are there|does
    the hall have]?
  validation: For a {show}, chairs are set up in {rows} rows, {each} chairs long. || How many
    chairs are set up? || There {are} {=:chair}.
  test: In the theater where the {show} is given, {each} people can sit in a row, and there are
    {rows} rows. || How many people can watch the {show}? || The theater has {=:seat}.
  = sold = seats * part / 100 ; part %seats
  > The number of seats sold is {=}.
  train: [So far {part}% of the seats have been sold.|{part}% of the seats are sold.] || How
    many seats [have been|are] sold?
  validation: When the doors open, {part}% of the chairs are taken. || How many chairs are
    taken? || The number of chairs taken is {=}.
  test: On opening night {part}% of the places are filled. || How many people watch on opening
    night? || The number of people who watch is {=}.
  = income = sold * price ; price 2..9
  > The tickets bring in {=$}.
  train: Each ticket costs ${price}. || How much money do the tickets bring in?
  validation: Everybody who has a chair paid ${price}. || How many dollars did the people on the
    chairs pay?
  test: Nobody gets in without paying ${price}. || How many dollars were paid on opening night?
  = profit = income - rent ; rent <income
  > After the rent there {are} {=$} left.
  train: The rent for the hall is ${rent}. || How much money is left after paying the rent?
  validation: Out of this, ${rent} goes to the musicians. || How many dollars are left for
    everything else? || After paying the musicians there {are} {=$} left.
  test: Costumes and lights had cost ${rent}. || By how many dollars is the income higher than
    this cost? || The income is higher by {=$}.
  aside: extra 2..20 || [The hall was painted {extra} years ago.|{extra} of the lamps in the
    hall are new.] || There is a break of {extra} minutes in the middle. || The stage is {extra}
    feet wide.

swimming | lap: lap, length
  = daily = morning + evening ; morning 4..30 ; evening 4..30
  > {name} swims {=:lap} a day.
  train: {name} swims {morning} {laps} every morning and {evening} {laps} every evening. || How
    many {laps} does {name} swim [a day|each day]?
  validation: Before school {name} swims {morning} {laps}, after school {evening} more, and that
    every day. || How many {laps} does {name} swim per day?
  test: In the pool, {name}'s daily training is {morning} {laps} before lunch plus {evening}
    {laps} after it. || How many {laps} make up a day's training?
  = total = daily * days ; days 3..9
  > In {days} days that makes {=:lap}.
  train: {he} does this [on|for] {days} days. || How many {laps} does {he} swim in that time?
  validation: A training camp lasts {days} such days. || How many {laps} does {name} swim at the
    camp?
  test: The coach keeps this up for {days} days. || How many {laps} does {name} do for the
    coach?
  = meters = total * length ; length 20..50/5
  > This is {=:meter}.
  train: One {lap} is {length} meters long. || How many meters does {he} swim in that time?
  validation: With every {lap} {he} covers {length} meters. || How many meters does {name} cover
    at the camp?
  test: For a single {lap}, {name} has to swim {length} meters. || What is the length of the
    whole training in meters?
  = left = goal - meters ; goal >meters
  > {he} has {=:meter} to go.
  train: {his} goal is to swim {goal} meters. || How many meters are left [to reach the
    goal|until {he} reaches {his} goal]?
  validation: A badge is given to those who swim {goal} meters. || How many meters short of the
    badge is {name}?
  test: The team has asked {him} for {goal} meters. || How many meters does {name} still owe the
    team?
  aside: extra 7..16 || [{name} is {extra} years old.|{name} has been in the club for {extra}
    years.] || The water is {extra} feet deep. || {his} locker has the number {extra}.

job | place: bakery, garage, bookstore, garden center, café
  = daily = hours * wage ; hours 2..9 ; wage 8..25
  > {name} earns {=$} a day.
  train: {name} works in a {place} for {hours} hours a day and [earns|is paid] ${wage} an hour.
    || How much does {name} earn [a day|per day]?
  validation: For each of the {hours} hours that {name} spends in a {place} every day, {he} gets
    ${wage}. || How many dollars does {name} make in one day?
  test: A {place} pays {name} ${wage} per hour, and {his} working day has {hours} hours. || What
    is {name}'s daily pay in dollars?
  = weekly = daily * days ; days 2..6
  > In a week {he} earns {=$}.
  train: {he} works {days} days a week. || How much does {he} earn in a week?
  validation: There are {days} working days in {his} week. || How many dollars does {name} make
    in one week?
  test: Each week {he} is there on {days} days. || What is {name}'s weekly pay in dollars?
  = tax = weekly * rate / 100 ; rate %weekly
  > {he} puts aside {=$} a week.
  train: {he} puts aside {rate}% of what {he} earns. || How much does {he} put aside each week?
  validation: Of this income, {rate}% goes straight into {his} savings account. || How many
    dollars a week go into the savings account?
  test: {he} pays {rate}% of this income for rent. || How many dollars a week does the rent cost
    {him}? || The rent costs {him} {=$} a week.
  = spare = weekly - tax
  > {he} keeps {=$} a week.
  train: {he} spends the rest of the money. || How much money does {he} spend each week?
  validation: The remaining money is for food and clothes. || How many dollars a week are for
    food and clothes?
  test: Everything else is {his} to keep. || How many dollars a week does {name} keep?
  aside: extra 2..25 || [It takes {him} {extra} minutes to get to work.|{extra} other people
    work there.] || The {place} opened {extra} years ago. || A bus ride of {extra} minutes
    brings {him} there.

garden | flower: tulip, rose, daisy, sunflower, lily
  = total = rows * each ; rows 3..12 ; each 5..25/5
  > {name} plants {=:flower}.
  train: {name} plants {rows} rows of {flowers} with {each} {flowers} in each row. || How many
    {flowers} does {name} plant?
  validation: In {name}'s garden, {flowers} grow in {rows} rows, and a row has {each} of them.
    || How many {flowers} grow in the garden?
  test: {each} {flowers} fit into a row of {name}'s garden, which has room for {rows} rows. ||
    How many {flowers} fit into the garden? || The garden has room for {=:flower}.
  = red = total * part / 100 ; part %total
  > The number of red ones is {=}.
  train: {part}% of the {flowers} are red. || How many red {flowers} [are there|does {name}
    have]?
  validation: Among them, {part}% turn out to be red. || How many of them turn out to be red?
  test: Red is the color of {part}% of these {flowers}. || How many {flowers} are red?
  = other_color = total - red
  > The number of yellow ones is {=}.
  train: [The rest are|All the others are] yellow. || How many yellow {flowers} are there?
  validation: Those that are not red are yellow. || How many of them turn out to be yellow?
  test: Yellow is the color of the others. || How many {flowers} are yellow?
  = bunches = other_color / size ; size |other_color
  > They make {=:bunch}.
  train: {he} ties the yellow {flowers} into bunches of {size}. || How many bunches [does {he}
    make|are there]?
  validation: Yellow ones are cut and sold in bunches of {size}. || How many bunches of yellow
    {flowers} are sold?
  test: {name} picks all the yellow {flowers} and puts {size} into every vase. || How many vases
    does {name} fill? || They fill {=:vase}.
  aside: extra 2..30 || [The garden is {extra} feet wide.|{name} waters the garden for {extra}
    minutes a day.] || There are {extra} bees on the leaves. || A bag of soil weighs {extra}
    pounds.

tank | thing: tank, pool, barrel, pond
  = filled = minutes * rate ; minutes 5..40 ; rate 3..20
  > The {thing} gets {=:gallon}.
  train: A pump fills {rate} gallons of water a minute into a {thing} and runs for {minutes}
    minutes. || How many gallons of water does it pump [into the {thing}|in that time]?
  validation: For {minutes} minutes water flows into an empty {thing}, at {rate} gallons per
    minute. || How many gallons are in the {thing} when the water is turned off?
  test: {name} lets water into an empty {thing}; {rate} gallons come out of the hose each
    minute, and after {minutes} minutes {he} shuts it. || How many gallons has the {thing}
    received?
  = leaked = filled - lost ; lost <filled
  > There {are} {=:gallon} left.
  train: The {thing} was empty before, and {lost} gallons [leak out|are used for the garden]. ||
    How many gallons are left in the {thing}?
  validation: Through a crack, {lost} gallons get lost overnight. || How many gallons are still
    there in the morning?
  test: Then {lost} gallons are taken out to wash a truck. || How many gallons does the {thing}
    hold after the wash?
  = buckets = leaked / size ; size |leaked
  > This fills {=:bucket}.
  train: The rest is carried away in buckets that hold {size} gallons. || How many buckets can
    be filled?
  validation: With a can of {size} gallons, {name} empties the {thing}. || How many cans does it
    take to empty the {thing}? || This takes {=:can}.
  test: The cows drink up what remains, {size} gallons each. || For how many cows does the water
    last? || The water lasts for {=:cow}.
  aside: extra 2..30 || [The {thing} is {extra} years old.|The pump was bought {extra} months
    ago.] || A ladder with {extra} steps leans against the wall. || The hose is {extra} feet
    long.

puzzle | scene: castle, forest, harbor, rocket
  = first = total * part / 100 ; total 100..900/20 ; part %total
  > {name} places {=:piece} on the first day.
  train: {name} has a puzzle of a {scene} with {total} pieces. On the first day {he} places
    {part}% of them. || How many pieces does {he} place on the first day?
  validation: Of the {total} pieces in a {scene} puzzle, {name} puts {part}% in place on Monday.
    || How many pieces are in place on Monday night? || On Monday {name} places {=:piece}.
  test: A {scene} made of {total} puzzle pieces is {name}'s project, and after one evening
    {part}% of it is done. || How many pieces has {name} used after one evening? || After one
    evening {name} has used {=:piece}.
  = left = total - first
  > There {are} {=:piece} left.
  train: {he} wants to finish the puzzle [tomorrow|soon]. || How many pieces [are left|does {he}
    still have to place]?
  validation: On Tuesday {name} looks at the pieces that are still in the box. || How many
    pieces are in the box on Tuesday?
  test: The rest of the pieces are waiting. || How many pieces are waiting?
  = each = left / helpers ; helpers |left
  > Each of them places {=:piece}.
  train: The remaining pieces are shared equally among {helpers} [friends|helpers]. || How many
    pieces does each of them place?
  validation: There are {helpers} children who take equal numbers of them. || How many pieces
    does each child take? || Each child takes {=:piece}.
  test: {name} sorts the waiting pieces into {helpers} equal heaps. || How many pieces are in a
    heap? || Each heap has {=:piece}.
  = minutes = each * pace ; pace 2..9
  > Each of them needs {=:minute}.
  train: It takes {pace} minutes to place a piece. || How many minutes does each of them need?
  validation: A child needs {pace} minutes for a piece. || For how many minutes is each child
    busy?
  test: Finding the right place takes {pace} minutes per piece. || How many minutes go into one
    heap? || One heap takes {=:minute}.
  aside: extra 2..20 || [The puzzle cost ${extra}.|There are {extra} birds in the picture.] ||
    The table is {extra} feet long. || {name} got the puzzle {extra} months ago.

lemonade | drink: lemonade, iced tea, orange juice, cocoa
  = cups = pitchers * each ; pitchers 2..9 ; each 5..16
  > {name} has {=:cup} of {drink}.
  train: {name} makes {pitchers} pitchers of {drink}. Each pitcher fills {each} cups. || How
    many cups [of {drink}] does {name} have?
  validation: At {his} stand {name} has {pitchers} pitchers, each with enough {drink} for {each}
    cups. || How many cups of {drink} can be poured at the stand?
  test: To sell {drink} at the fair, {name} prepares {pitchers} pitchers that hold {each} cups
    apiece. || For how many cups is there {drink} at the fair?
  = sold = cups - spilled ; spilled <cups
  > {he} sells {=:cup}.
  train: {he} [spills|drinks|gives away] {spilled} cups and sells the rest. || How many cups
    does {he} sell?
  validation: Friends drink {spilled} cups for free; customers buy the others. || How many cups
    do customers buy?
  test: In the evening, {spilled} cups are left over, and all the others have been sold. || How
    many cups have been sold by the evening?
  = income = sold * price ; price 2..5
  > {he} takes in {=$}.
  train: {he} sells each cup for ${price}. || How much money does {he} [take in|get for the
    cups]?
  validation: Customers pay ${price} for a cup. || How many dollars do the customers pay?
  test: One cup has been sold at ${price}, like any other. || How many dollars are in the cash
    box by the evening?
  = profit = income - cost ; cost <income
  > {his} profit is {=$}.
  train: {name} spent ${cost} on [supplies|sugar, cups and ice]. || How much profit does {he}
    make?
  validation: Making the {drink} cost {him} ${cost}. || How many dollars has {name} gained?
  test: From the money, {name} pays back ${cost} to {his} father. || How many dollars of it does
    {name} keep?
  = days = goal / profit ; goal *profit
  > To reach the goal {he} needs {=:day}.
  train: {he} wants to earn ${goal}, with the same profit every day. || How many days does {he}
    need?
  validation: A trip costs ${goal}, and every day goes like this one. || After how many such
    days can {name} pay for the trip?
  test: The same amount is put by each day until there is ${goal}. || How many days does that
    take?
  aside: extra 2..14 || [{name} is {extra} years old.|The stand is open for {extra} hours a
    day.] || There are {extra} stands on the street. || It is {extra} blocks from {his} house to
    the fair.

basketball | team: Tigers, Eagles, Sharks, Bears
  = second = first * factor ; first 6..40 ; factor times
  > In the second half they score {=:point}.
  train: The {team} score {first} points in the first half and {factor:times} as many in the
    second half. || How many points do the {team} score in the second half?
  validation: After {first} points in the first half, the {team} get {factor:times} as many in
    the second. || How many points do the {team} get after the break?
  test: The {team} begin a game with a first half of {first} points; their second half is worth
    {factor:times} as many. || How many points is the second half of the {team} worth?
  = total = first + second
  > In the whole game they score {=:point}.
  train: The game [ends|is over] after two halves. || How many points do the {team} score in the
    [whole game|game]?
  validation: There is no extra time. || How many points do the {team} get in both halves
    together?
  test: Both halves count. || What is the final score of the {team}?
  = lead = total - theirs ; theirs <total
  > They win by {=:point}.
  train: The other team scores {theirs} points. || By how many points do the {team} win?
  validation: Their opponents end up with {theirs} points. || How many points ahead of their
    opponents are the {team} in the end?
  test: The guests leave with {theirs} points. || How many more points than the guests do the
    {team} have?
  aside: extra 2..40 || [{extra} of the players are new in the team.|There are {extra}
    photographers at the game.] || The hall was built {extra} years ago. || The coach has
    trained them for {extra} years.

pizza | food: pizza, pie, cake, quiche
  = slices = count * each ; count 2..9 ; each 6..12
  > There {are} {=:slice}.
  train: {name} orders {count} {foods} for a party. Each of them is cut into {each} slices. ||
    How many slices are there?
  validation: For {his} guests {name} gets {count} {foods}, every one in {each} slices. || How
    many slices does {name} have for {his} guests?
  test: At {name}'s party there are {count} {foods}, and a {food} makes {each} slices. || How
    many slices are on the table at first?
  = eaten = guests * share ; guests 2..9 ; share 2..4
  > The guests eat {=:slice}.
  train: {guests} [guests|friends] eat {share} slices each. || How many slices do the [guests
    eat|people eat]?
  validation: The number of guests is {guests}, and each of them has {share} slices. || How many
    slices do the guests have?
  test: Everyone takes {share} slices, and there are {guests} people at the table. || How many
    slices are taken?
  = left = slices - eaten
  > There {are} {=:slice} left over.
  train: Nobody else eats anything. || How many slices are left [over|at the end of the party]?
  validation: No one else is hungry. || How many slices remain when the guests are full?
  test: That is all they take. || How many slices are still on the table in the end?
  = each_left = left / boxes ; boxes |left
  > Each container holds {=:slice}.
  train: {name} [puts|packs] the leftovers into {boxes} containers, the same number in each. ||
    How many slices are in each container?
  validation: What remains is wrapped for {boxes} neighbors in equal parts. || How many slices
    does a neighbor get? || Each neighbor gets {=:slice}.
  test: On {boxes} plates, all alike, the rest goes into the fridge. || How many slices lie on a
    plate in the fridge? || Each plate holds {=:slice}.
  aside: extra 2..40 || [The party lasts {extra} hours.|{name} pays ${extra} for drinks.] ||
    There are {extra} balloons in the room. || It takes {extra} minutes until the food comes.

fence | thing: fence, wall, bridge, shed
  = boards = sections * each ; sections 3..12 ; each 5..20
  > There {are} {=:board} to paint.
  train: A {thing} has {sections} sections with {each} boards each, and {name} is going to paint
    it. || How many boards does {name} have to paint?
  validation: {name} paints a {thing}. It is made of {sections} sections, and a section of
    {each} boards. || How many boards is the {thing} made of?
  test: There are {each} boards in each of the {sections} sections of the {thing} that {name}
    has to paint. || How many boards wait for {name}'s brush?
  = left = boards - done ; done <boards
  > {name} has {=:board} left.
  train: [Yesterday|Last week] {he} painted {done} of the boards. || How many boards are left to
    paint?
  validation: {done} of the boards are already finished. || How many boards are not finished?
  test: Before lunch {he} gets through {done} boards. || How many boards remain for the
    afternoon?
  = minutes = left * pace ; pace 2..9
  > {he} needs {=:minute}.
  train: {he} needs {pace} minutes for each board. || How many minutes does {he} need for the
    rest?
  validation: Painting one board takes {pace} minutes. || How many more minutes will the
    painting take?
  test: A board keeps {him} busy for {pace} minutes. || For how many minutes is {name} busy in
    the afternoon?
  = share = minutes / helpers ; helpers |minutes
  > With the work shared, each of them paints for {=:minute}.
  train: {he} shares this work equally with others, so that {helpers} people paint at the same
    speed. || For how many minutes does each of them paint?
  validation: Luckily {helpers} painters, {name} among them, divide the time equally. || How
    many minutes does each painter work?
  test: In the end a team of {helpers} equally fast people does it. || How many minutes does the
    team need?
  aside: extra 2..40 || [The paint costs ${extra} a can.|The {thing} is {extra} years old.] ||
    The ladder has {extra} steps. || {his} radio plays {extra} songs before lunch.

ribbon | item: ribbon, rope, wire, string
  = used = pieces * each ; pieces 3..12 ; each 2..15
  > {name} cuts off {=:inch}.
  train: {name} cuts {pieces} pieces from a roll of {item}. Each piece is {each} inches long. ||
    How many inches of {item} does {name} cut off?
  validation: From a roll of {item} come {pieces} pieces that {name} makes {each} inches long.
    || How many inches long are these pieces together?
  test: {name} needs {pieces} pieces of {item}, each of {each} inches, and cuts them from a
    roll. || How many inches of the roll does {name} use?
  = left = roll - used ; roll >used
  > There {are} {=:inch} left.
  train: At first there were {roll} inches on the roll. || How many inches are left [on the
    roll|over]?
  validation: The full roll was {roll} inches long. || How many inches has the roll now?
  test: When it was bought, the roll measured {roll} inches. || How many inches does {name} not
    use?
  = small = left / short ; short |left
  > The rest gives {=:short piece}.
  train: {he} cuts the rest into short pieces of {short} inches. || How many short pieces does
    {he} get?
  validation: The remainder is made into bows that take {short} inches each. || How many bows
    can {name} make? || The rest makes {=:bow}.
  test: Out of that, {name} makes loops of {short} inches. || How many loops does {name} make?
    || The rest makes {=:loop}.
  = all = pieces + small
  > In all there {are} {=:piece}.
  train: {he} counts the long pieces and the short pieces. || How many pieces does {he} have in
    total?
  validation: Bows and pieces go into one drawer. || How many things are put into the drawer? ||
    In all there {are} {=:thing}.
  test: Loops and long pieces hang on the same hook. || How many hang there altogether?
  aside: extra 2..40 || [The roll cost ${extra}.|{name} works for {extra} minutes.] || {name}'s
    scissors are {extra} years old. || The workshop has {extra} windows.

school trip | place: zoo, museum, castle, farm
  = students = classes * each ; classes 2..8 ; each 15..30
  > {=:student} go on the trip.
  train: {classes} classes of {each} students each go on a trip to the {place}. || How many
    students go on the trip?
  validation: On the day of the trip to the {place}, {classes} classes meet at the gate, every
    one with {each} students. || How many students meet at the gate?
  test: The {place} is visited by {classes} classes, and a class is {each} students strong. ||
    How many students visit the {place}?
  = people = students + teachers ; teachers 2..20
  > With the teachers there {are} {=:person}.
  train: {teachers} teachers go with them. || How many people go [on the trip|to the {place}]?
  validation: They are joined by {teachers} teachers. || How many people are at the gate then?
  test: {teachers} parents come along to help. || How many visitors is that with the parents? ||
    With the parents there {are} {=:person}.
  = buses = people / seats ; seats |people:6-12
  > They need {=:van}.
  train: They travel in vans with {seats} seats, and every seat is taken. || How many vans do
    they need?
  validation: Each van takes {seats} of them and is full. || How many vans leave from the gate?
  test: Guides show them around in full groups of {seats}. || How many groups do the guides show
    around? || There {are} {=:group}.
  = cost = buses * price ; price 20..90/5
  > The cost is {=$}.
  train: Each van costs ${price}. || How much do the vans cost?
  validation: For a van the school pays ${price}. || How many dollars does the school pay for
    the vans?
  test: A guide asks ${price} for a group. || How many dollars do the guides receive?
  = rest = money - cost ; money >cost
  > There {are} {=$} left.
  train: The school has ${money} for the trip. || How much money is left for other things?
  validation: ${money} had been collected for this. || How many dollars of the collection are
    left?
  test: The parents had put together ${money} for the guides. || How many dollars does this
    leave for ice cream?
  aside: extra 2..60 || [The way to the {place} is {extra} miles long.|The trip takes {extra}
    hours.] || The gate is {extra} feet wide. || A map shows {extra} paths around the {place}.

machine | item: bottle, toy car, candle, button, cap
  = hourly = machines * output ; machines 2..12 ; output 5..60/5
  > The machines make {=:item} an hour.
  train: There are {machines} machines [in a factory|in a hall], and each [makes|produces]
    {output} {items} an hour. || How many {items} do the machines make [in an hour|per hour]?
  validation: In a factory, {output} {items} come off each of the {machines} lines every hour.
    || How many {items} come off all the lines in one hour?
  test: A machine finishes {output} {items} in an hour, and a company owns {machines} such
    machines. || How many {items} can the company make within an hour?
  = daily = hourly * hours ; hours 2..12
  > In a day they make {=:item}.
  train: The machines run {hours} hours a day. || How many {items} do they make [in a day|each
    day]?
  validation: Work goes on for {hours} hours every day. || How many {items} does the factory
    turn out in a day?
  test: The company keeps them running for {hours} hours daily. || How many {items} does the
    company make in a day?
  = bad = daily * part / 100 ; part %daily:30
  > The number of broken {items} is {=}.
  train: {part}% of the {items} are broken. || How many {items} [made in a day|of a day] are
    broken?
  validation: A camera finds faults in {part}% of the {items}. || In how many {items} of a day
    does the camera find faults?
  test: Of the {items}, {part}% fail the final test. || How many {items} a day fail the test? ||
    The number of {items} that fail is {=}.
  = good = daily - bad
  > The number of good {items} is {=}.
  train: The other {items} [are good|can be sold]. || How many good {items} do the machines make
    in a day?
  validation: All the rest leave the factory. || How many {items} leave the factory in a day?
  test: The rest pass. || How many {items} a day pass the test? || The number of {items} that
    pass is {=}.
  = boxes = good / size ; size |good
  > They fill {=:box}.
  train: The good {items} are packed into boxes of {size}. || How many boxes are filled in a
    day?
  validation: They are shipped in boxes with {size} in each. || How many boxes are shipped a
    day?
  test: Those go into crates, {size} to a crate. || How many crates a day does that make? ||
    They fill {=:crate}.
  aside: extra 2..30 || [One machine weighs {extra} tons.|{extra} people watch over the
    machines.] || The factory stands {extra} miles from the town. || The oldest machine was
    bought {extra} years ago.

necklaces | item: necklace, bracelet, keychain
  = beads = count * each ; count 4..15 ; each 8..40
  > {name} needs {=:bead}.
  train: {name} makes {count} {items} and uses {each} beads for each of them. || How many beads
    does {name} need?
  validation: For one {item} {name} needs {each} beads, and {he} wants to make {count}. || How
    many beads are needed?
  test: It takes {each} beads to make a {item}; {name} is asked for {count} {items}. || How many
    beads go into all of them?
  = bags = beads / size ; size |beads
  > {he} has to buy {=:bag}.
  train: Beads are sold in bags of {size}. || How many bags does {he} have to buy?
  validation: A bag contains {size} beads. || How many bags will be used up?
  test: The shop sells beads by the bag, {size} beads in each. || How many bags must {name} get
    at the shop?
  = cost = bags * price ; price 2..9
  > The beads cost {=$}.
  train: Each bag costs ${price}. || How much do the beads cost?
  validation: {name} pays ${price} a bag. || How many dollars does {name} pay for the beads?
  test: The price of a bag is ${price}. || How many dollars does {name} leave at the shop?
  = income = count * value ; value 10..30
  > {he} sells the {items} for {=$}.
  train: {he} sells every {item} for ${value}. || How much money does {he} [get|receive] for the
    {items}?
  validation: Each {item} is sold at ${value}. || How many dollars does {name} get from the
    buyers?
  test: Those who asked for them pay ${value} for each {item}. || How many dollars do they pay
    {him}?
  = profit = income - cost
  > {his} profit is {=$}.
  train: {he} has no other costs. || How much profit does {he} make?
  validation: Nothing else had to be bought. || How many dollars does {name} earn after paying
    for the beads?
  test: Apart from the beads, everything was free. || By how many dollars is {name} richer after
    all this?
  aside: extra 2..25 || [{he} works on them for {extra} evenings.|{name} has {extra} colors to
    choose from.] || There are {extra} chairs around {his} table. || {his} sister has been
    making jewelry for {extra} years.

recycling | item: can, bottle, jar, newspaper
  = second = first + gap ; first 20..120 ; gap 4..60
  > {other} collects {=:item}.
  train: {name} collects {first} {items} for recycling. {other} collects {gap} more {items} than
    {name}. || How many {items} does {other} collect?
  validation: Cleaning up the park, {name} finds {first} {items}, while {other} finds {gap} more
    than that. || How many {items} does {other} find?
  test: {name} takes {first} {items} to the recycling center, which is {gap} fewer than {other}
    takes there. || How many {items} does {other} take to the center?
  = both = first + second
  > Together they collect {=:item}.
  train: They work as a team. || How many {items} do they collect [together|in total]?
  validation: All of that goes into one container. || How many {items} are in the container?
  test: The center weighs both loads at once. || How many {items} are weighed?
  = bags = both / size ; size |both
  > They fill {=:bag}.
  train: They put {size} {items} into each bag. || How many bags do they fill?
  validation: A sack holds {size} of them, and every sack is filled. || How many sacks can be
    carried away? || They fill {=:sack}.
  test: In that place, {size} {items} make a bundle. || How many bundles are made? || They make
    {=:bundle}.
  = money = bags * price ; price 2..9
  > They receive {=$}.
  train: They get ${price} for each bag. || How much money do they get?
  validation: Every sack earns them ${price}. || How many dollars do they earn in the park?
  test: The center pays ${price} a bundle. || How many dollars does the center pay?
  = each = money / people ; people |money:3-12
  > Each person gets {=$}.
  train: They share the money equally with some friends, so that {people} people get the same.
    || How much does each person get?
  validation: With others who helped, {people} people in all, they split it evenly. || How many
    dollars does every one of these people get?
  test: It is divided equally between {people} school clubs. || How many dollars does a club
    receive? || Each club gets {=$}.
  aside: extra 2..20 || [They work for {extra} hours.|There are {extra} benches in the park.] ||
    A map of the park shows {extra} paths. || The center is open {extra} hours a week.

dogs | animal: dog, horse, goat, donkey
  = daily = count * each ; count 3..15 ; each 3..12
  > The {animals} eat {=:pound} a day.
  train: {name} looks after {count} {animals}. Each of them eats {each} pounds of food a day. ||
    How many pounds of food do the {animals} eat [a day|each day]?
  validation: In a shelter {count} {animals} get {each} pounds of food apiece every day. || How
    many pounds does the shelter use per day?
  test: A {animal} on {name}'s farm is fed {each} pounds a day, and {he} has {count} of them. ||
    How many pounds of food does {name} give out daily?
  = total = daily * days ; days 3..14
  > In {days} days they eat {=:pound}.
  train: {he} needs food for {days} days. || How many pounds of food does {he} need?
  validation: The manager plans for {days} days. || How many pounds has the manager to plan for?
  test: A cold spell of {days} days is coming. || How many pounds will be given out during the
    cold spell?
  = missing = total - stock ; stock <total
  > {name} still needs {=:pound}.
  train: {he} already has {stock} pounds. || How many [more pounds|pounds more] does {he} need
    to buy?
  validation: In the cellar there are still {stock} pounds. || How many pounds must be ordered?
    || The shelter still needs {=:pound}.
  test: The barn has a supply of {stock} pounds. || How many pounds are lacking in the barn?
  = bags = missing / size ; size |missing:5-50
  > This is {=:bag}.
  train: A bag of food weighs {size} pounds. || How many bags does {he} have to buy?
  validation: The food comes in sacks of {size} pounds. || How many sacks must be ordered? ||
    This is {=:sack}.
  test: The mill delivers the food in barrels of {size} pounds. || How many barrels must the
    mill deliver? || This is {=:barrel}.
  = cost = bags * price ; price 5..30
  > The food costs {=$}.
  train: Each bag costs ${price}. || How much does {he} pay for the food {he} buys?
  validation: One sack is ${price}. || How many dollars will the order cost?
  test: For a barrel the mill wants ${price}. || How many dollars does {name} owe the mill?
  aside: extra 2..15 || [The youngest {animal} is {extra} years old.|{he} walks {extra} miles a
    day.] || The shelter has {extra} rooms. || The farm has been in the family for {extra}
    years.

school survey | sport: soccer, tennis, hockey, chess
  = girls = students - boys ; students 40..400/20 ; boys <students
  > There {are} {=:girl}.
  train: A school has {students} students, and {boys} of them are boys. || How many girls [are
    there|does the school have]?
  validation: Of {students} students in a school, {boys} are boys. || How many are girls?
  test: {students} children answer a survey, {boys} boys and the rest girls. || How many girls
    answer the survey?
  = players = girls / part ; part /girls
  > The number of girls who play is {=}.
  train: {part:fraction} of the girls play {sport}. || How many girls play {sport}?
  validation: Asked about {sport}, {part:fraction} of the girls say that they play. || How many
    girls say that they play {sport}?
  test: For {sport}, hands go up among {part:fraction} of the girls. || How many girls put up
    their hands?
  = all = players + boy_players ; boy_players <boys
  > With the boys there {are} {=:player}.
  train: {boy_players} of the boys play {sport} too. || How many students play {sport}?
  validation: Of the boys, {boy_players} say that they do. || How many students say that they
    play {sport}?
  test: Among the boys, {boy_players} hands go up. || How many hands go up for {sport} in total?
  = teams = all / size ; size |all
  > They form {=:group}.
  train: They [form groups|meet in groups] of {size}. || How many groups are there?
  validation: The school puts {size} of them on a team. || How many teams does the school have?
    || There are enough for {=:team}.
  test: Their names are written on lists of {size}. || How many lists are written? || They fill
    {=:list}.
  aside: extra 2..30 || [The school has {extra} teachers.|There are {extra} classrooms.] || The
    school yard has {extra} trees. || The survey has {extra} pages.

hike | way: trail, river, coast path
  = second = first + more ; first 4..15 ; more 2..9
  > On the second day {name} walks {=:mile}.
  train: {name} hikes {first} miles along a {way} on the first day and {more} miles more than
    that on the second day. || How many miles does {name} hike on the second day?
  validation: On Friday {name} walks {first} miles of a {way}; on Saturday {he} does {more}
    miles more than on Friday. || How many miles does {name} walk on Saturday? || On Saturday
    {name} walks {=:mile}.
  test: {name} follows a {way}, {first} miles on day one, and on day two {he} goes even further,
    by {more} miles. || How many miles does {name} follow the {way} on day two?
  = two = first + second
  > In two days {he} walks {=:mile}.
  train: {he} [rests at night|sleeps in a tent]. || How many miles does {he} hike on both days
    together?
  validation: Night falls, and {he} is tired. || How many miles has {name} walked on Friday and
    Saturday?
  test: Two days are over now. || How many miles of the {way} are behind {name}?
  = total = two * factor ; factor times
  > The whole {way} is {=:mile} long.
  train: The whole {way} is {factor:times} as long as what {he} has hiked so far. || How many
    miles long is the {way}?
  validation: From end to end the {way} measures {factor:times} the distance of these two days.
    || What is the distance from end to end in miles?
  test: According to {his} map, this {way} is {factor:times} as long as the part behind {him}.
    || How many miles does the map give for the {way}?
  = left = total - two
  > There {are} {=:mile} left.
  train: {he} wants to hike to the end. || How many miles are left?
  validation: {name} means to walk all of it. || How many miles are still to be walked?
  test: {he} is not going to give up. || How many miles are ahead of {name}?
  = days = left / daily ; daily |left:3-12
  > This takes {=:more day}.
  train: From the third day on {he} hikes {daily} miles a day. || How many more days does {he}
    need?
  validation: As of Sunday {name} manages {daily} miles a day. || How many days does {name} walk
    from Sunday on?
  test: For what is ahead, {he} sets {him}self a pace of {daily} miles a day. || In how many
    more days does {name} get to the end?
  aside: extra 2..30 || [{his} backpack weighs {extra} pounds.|{he} takes {extra} photos.] ||
    {name} meets {extra} cyclists. || There are {extra} huts on the map.

cards | item: card, sticker, photo, badge
  = bought = packs * each ; packs 2..12 ; each 4..15
  > {name} buys {=:item}.
  train: {name} buys {packs} packs of {items}. There are {each} {items} in each pack. || How
    many {items} does {name} buy?
  validation: In the kiosk {name} picks up {packs} packs, and in every pack are {each} {items}.
    || How many {items} does {name} carry home?
  test: {name} opens {packs} packs of {items} and finds {each} in each. || How many {items} has
    {name} found?
  = have = bought + owned ; owned 5..90
  > Now {he} has {=:item}.
  train: {he} had {owned} {items} before. || How many {items} does {he} have now?
  validation: At home, {owned} {items} are already in the album. || How many {items} does that
    make with those at home?
  test: {owned} others were {his} already. || How many {items} belong to {name} now?
  = left = have - doubles ; doubles <have
  > Without the ones {he} gives away, {he} has {=:item}.
  train: {he} gives {doubles} {items} to {other}. || How many {items} does {name} have left?
  validation: {name} gives {doubles} {items} to {other} as a present. || How many {items} does
    {name} keep after the present?
  test: {name} loses {doubles} {items} in a bet with {other}. || How many {items} does the bet
    leave {him}? || Without the lost ones, {he} has {=:item}.
  = pages = left / size ; size |left
  > They fill {=:page}.
  train: {he} puts {size} {items} on each page of an album. || How many pages does {he} fill?
  validation: A page of the album has space for {size}. || How many pages of the album get full?
  test: On the wall {he} hangs them in rows of {size}. || How many rows hang on the wall? ||
    They make {=:row}.
  aside: extra 7..14 || [{name} is {extra} years old.|{other} is {extra} years old.] || The
    kiosk is {extra} minutes away. || It rains for {extra} hours that day.

flour | stuff: flour, rice, sugar, sand
  = weight = bags * each ; bags 3..15 ; each 5..50/5
  > The bags weigh {=:pound}.
  train: A truck carries {bags} bags of {stuff}. Each bag weighs {each} pounds. || How many
    pounds of {stuff} does the truck carry?
  validation: {bags} bags of {stuff}, {each} pounds apiece, are loaded onto a truck. || How many
    pounds of {stuff} are loaded?
  test: With {each} pounds of {stuff} in a bag, {name} has to move {bags} bags. || How many
    pounds of {stuff} does {name} have to move?
  = half = weight * part / 100 ; part %weight
  > The first customer gets {=:pound}.
  train: The first customer gets {part}% of the {stuff}. || How many pounds does the first
    customer get?
  validation: At the first stop {part}% of it is unloaded. || How many pounds are unloaded at
    the first stop? || The first stop gets {=:pound}.
  test: By noon {he} has moved {part}% of that weight. || How many pounds has {name} moved by
    noon? || By noon {he} has moved {=:pound}.
  = rest = weight - half
  > There {are} {=:pound} left.
  train: The second customer gets the rest. || How many pounds does the second customer get?
  validation: Everything else stays on until the second stop. || How many pounds are on the
    truck between the stops?
  test: In the afternoon {he} moves what is left. || How many pounds does {name} move in the
    afternoon?
  = parts = rest / size ; size |rest
  > This makes {=:sack}.
  train: The second customer fills it into small sacks of {size} pounds. || How many small sacks
    does that make?
  validation: There it is poured into buckets, {size} pounds in each. || How many buckets are
    filled at the second stop? || This fills {=:bucket}.
  test: For this {he} uses a cart that takes {size} pounds. || How often does {name} load the
    cart in the afternoon? || {name} loads the cart {=:time}.
  aside: extra 2..30 || [The truck has {extra} lights.|The driver started work {extra} years
    ago.] || The truck goes {extra} miles to the first stop. || Rain is expected in {extra}
    hours.

chairs | item: chair, table, stool, bench
  = monday = people * each ; people 2..12 ; each 3..15
  > They make {=:item} a day.
  train: {people} carpenters make {each} {items} each a day. || How many {items} do they make [a
    day|each day]?
  validation: In a workshop with {people} carpenters, everyone finishes {each} {items} a day. ||
    How many {items} does the workshop finish a day?
  test: A carpenter can build {each} {items} a day, and the company employs {people} carpenters.
    || How many {items} can the company build a day?
  = week = monday * days ; days 2..7
  > In {days} days they make {=:item}.
  train: They work for {days} days. || How many {items} do they make in that time?
  validation: It has been like this for {days} days. || How many {items} have been finished?
  test: {days} days remain before a big delivery. || How many {items} can be built before the
    delivery?
  = left = week - sold ; sold <week
  > After the sale there {are} {=:item}.
  train: They sell {sold} of the {items}. || How many {items} [are left|do they still have]?
  validation: Of the finished {items}, {sold} have found a buyer. || How many {items} are
    without a buyer?
  test: The delivery is {sold} {items}. || How many {items} will the company have left over?
  = each_room = left / rooms ; rooms |left
  > Each room gets {=:item}.
  train: They give the rest to a school with {rooms} rooms, the same number to each room. || How
    many {items} does each room get?
  validation: The {items} without a buyer are spread evenly over {rooms} stores. || How many
    {items} does a store get? || Each store gets {=:item}.
  test: What is left over goes to {rooms} hospitals in equal parts. || How many {items} does a
    hospital receive? || Each hospital gets {=:item}.
  aside: extra 2..30 || [The workshop is {extra} years old.|A carpenter needs {extra} tools.] ||
    On the wall hang {extra} saws. || The company has {extra} trucks.

allowance
  = spent = toys * price ; toys 2..6 ; price 2..12
  > {name} spends {=$} on comics.
  train: {name} buys {toys} comics for ${price} each. || How much does {name} spend on comics?
  validation: One comic is ${price}, and {name} buys {toys}. || How many dollars do the comics
    cost {name}?
  test: For {toys} comics, {name} pays ${price} apiece. || How many dollars does {name} pay for
    comics?
  = snack = spent / part ; part /spent
  > {he} spends {=$} on snacks.
  train: {he} spends {part:fraction} of that amount on snacks. || How much does {he} spend on
    snacks?
  validation: Snacks cost {him} {part:fraction} of what the comics cost. || How many dollars do
    the snacks cost?
  test: A bag of snacks takes {part:fraction} as much money as the comics. || What do the snacks
    cost in dollars?
  = both = spent + snack
  > In total {he} spends {=$}.
  train: That is all {he} buys. || How much does {he} spend in total?
  validation: Then {he} goes home. || How many dollars has {name} spent when {he} goes home?
  test: {he} needs nothing else. || What does {name} pay for everything in dollars?
  = rest = money - both ; money >both
  > {he} has {=$} left.
  train: {name} had ${money} at first. || How much money does {he} have left?
  validation: ${money} was in {his} purse that morning. || How many dollars are in the purse in
    the evening?
  test: {he} pays out of the ${money} that {he} got for {his} birthday. || How many dollars of
    the birthday money remain?
  aside: extra 7..16 || [{name} is {extra} years old.|{name} takes {extra} minutes to choose.]
    || The shop sells {extra} kinds of comics. || {his} brother is {extra} years old.

homework | subject: math, science, history, spelling
  = first = problems * minutes ; problems 4..15 ; minutes 2..8
  > {name} spends {=:minute} on homework.
  train: {name} has {problems} {subject} exercises to do, and each takes {him} {minutes}
    minutes. || How many minutes does {he} [need|spend on the exercises]?
  validation: At {minutes} minutes per exercise, {name} does {problems} exercises in {subject}.
    || How many minutes do all the exercises take {name}?
  test: The {subject} homework is {problems} exercises, for which {name} takes {minutes} minutes
    each. || How many minutes does {name} sit over the exercises?
  = both = first + reading ; reading 10..60/5
  > With the reading that makes {=:minute}.
  train: After that {he} reads for {reading} minutes. || How many minutes does {he} spend on
    both?
  validation: Then comes a text that takes {reading} minutes to read. || After how many minutes
    is {name} done with exercises and text?
  test: An essay keeps {him} at {his} desk for {reading} minutes more. || How many minutes does
    {name} work at {his} desk? || With the essay that makes {=:minute}.
  = weekly = both * days ; days 2..6
  > In a week {he} needs {=:minute}.
  train: {he} does the same on {days} days a week. || How many minutes a week does {he} spend on
    homework?
  validation: There are {days} afternoons like this in a week. || How many minutes are that in a
    week?
  test: {days} times a week it is like that. || How many minutes of homework does {name} have in
    a week?
  = left = limit - weekly ; limit >weekly
  > {he} has {=:minute} left.
  train: {he} has {limit} minutes of free time a week. || How many minutes of {his} free time
    are left after the homework?
  validation: Out of a week's {limit} free minutes this must be taken. || How many free minutes
    does the week have left?
  test: A week gives {him} {limit} minutes between school and dinner. || How many of these
    minutes are not used for homework?
  aside: extra 8..60 || [{name} has {extra} pencils on {his} desk.|There are {extra} students in
    {his} class.] || {his} school bus takes {extra} minutes. || The book has {extra} chapters.

charity run | round: round, lap
  = run = hours_run * per ; hours_run 2..6 ; per 3..12
  > {name} runs {=:round}.
  train: At a charity run {name} runs {per} {rounds} an hour for {hours_run} hours. || How many
    {rounds} does {name} run?
  validation: {name} takes part in a charity run: {hours_run} hours, with {per} {rounds} in
    every hour. || How many {rounds} does {name} complete?
  test: For a good cause, {name} runs for {hours_run} hours and gets through {per} {rounds} an
    hour. || How many {rounds} does {name} get through?
  = own = run * gift ; gift 2..15
  > {name} raises {=$}.
  train: {his} sponsor gives ${gift} for each {round}. || How much money does {name} raise?
  validation: Every {round} is worth ${gift} to {his} sponsor. || How many dollars does {name}'s
    sponsor give?
  test: An aunt has promised ${gift} per {round}. || How many dollars does the aunt owe?
  = others = own * factor ; factor times
  > {other} raises {=$}.
  train: {other} raises {factor:times} as much as {name}. || How much money does {other} raise?
  validation: {other}, who runs too, brings in {factor:times} that amount. || How many dollars
    does {other} bring in?
  test: In the same run {other} earns {factor:times} as much. || How many dollars does {other}
    earn for the good cause?
  = both = own + others
  > Together they raise {=$}.
  train: Both give all the money to an animal shelter. || How much money does the shelter get
    from them?
  validation: They hand everything to a hospital. || How many dollars does the hospital get from
    the two of them?
  test: The two of them put it into one envelope. || How many dollars are in the envelope in the
    end?
  = each = both / parts ; parts |both
  > Each part is {=$}.
  train: The shelter divides the money equally among {parts} [animals|rooms]. || How much is
    that for each?
  validation: There it is split equally between {parts} projects. || How many dollars does one
    project get?
  test: {parts} families share what is in it equally. || How many dollars does each family get?
  aside: extra 2..30 || [{extra} people watch the run.|{name} has trained for {extra} weeks.] ||
    The start is {extra} minutes late. || The number on {name}'s shirt is {extra}.
"""

STORIES = _read(_TEXT)
