"""The numbers in what trainers print, line by line, between whatever else stands there.

verl       `step:12 - critic/score/mean:0.3 - actor/grad_norm:1.0`, and its file logger's
           `{"step": 12, "data": {…}}`
TRL        the dictionaries that transformers prints: `{'loss': 0.0, 'grad_norm': nan}`
ms-swift   the same as JSON, with strings: `"global_step/max_steps": "3/100", "percentage": "3%"`
OpenRLHF   `Global step 12: {'policy_loss': 0.1, …}`
tables     with bars or tabs between the cells, as notebooks show them and threads quote them;
           Stable-Baselines3's have a name in each line, `|    ep_rew_mean     | 21.5     |`
scripts    `step 12 | loss=0.1, mean reward: 0.5`, where a log has none of the above
"""

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from nbcourse.diagnosis.names import PART, is_known, is_of_episodes, translated

STEPS = ("step", "global_step", "global_step/max_steps", "_step", "Step", "training/global_step")
# What orders a log and is none of its measurements.
BOOKKEEPING = {*STEPS, "epoch", "percentage", "_runtime", "_timestamp", "training/epoch"}
COUNTERS = {*STEPS, "epoch", "iter", "iteration", "update", "episode", "batch"}  # of scripts
# What counts the rows of a log without a step, the most telling first.
ROWS = (
    *("current_steps", "iteration", "iterations", "iter", "training_iteration", "time/iterations"),
    *("update", "episode", "ep", "epoch"),
)
SEVERAL = 3  # lines
FAR = 20  # characters, beyond which a word says nothing of a name
MOVED = 0.2  # of a number: it is not what it was
EVALUATIONS = {"eval", "evaluation", "val", "valid", "validation", "test", "dev", "held", "heldout"}
# Words of a mapping that holds numbers.
HOLDS = {"data", "metric", "metrics", "stats", "scalars", "values", "log", "logs"}
# Words that make another number of the one that they stand before: the best mean reward so far.
OTHERS = EVALUATIONS | {"best", "max", "maximum", "min", "minimum", "highest", "lowest", "target"}
# Columns that say of which data a row is.
WHICH = {
    *("split", "phase", "mode", "stage", "kind", "type", "set", "subset", "part", "tag"),
}
CONSOLE = re.compile(r"(?:^|\s)step:(\d+) - (\S.*)")
GLOBAL_STEP = re.compile(r"global[ _]step[ :=]*(\d+)", re.IGNORECASE)
# What follows a line of verl's console that a terminal has wrapped, also within a name.
WRAPPED = re.compile(r"\S* - (?:[\w./@-]+:\S+ - )*[\w./@-]+:?\S*")
DECIMALS = re.compile(r"-?\d+\.(\d{3}|\d{6})")  # of verl's console, of transformers' tables
BARS = {*"|│\t"}
BETWEEN_CELLS = re.compile(r" *[|│\t] *| {2,}")
SPREAD = re.compile(r"\s*(?:±|\+/?-)")  # what stands behind it is how far a number is off
# `mean reward: 0.5`, `loss=0.1`, `step 3`; not `12:30:05`, nor the level that stands before a name.
# Also in quotes, `'reward': '0.5'`, and alone in brackets, `return=[21.]`.
PAIR = re.compile(
    r"(?<![\w/])(?!(?:DEBUG|INFO|SUCCESS|WARNING)\b)([A-Za-z_][\w/]*\.?(?: [A-Za-z]\w*)?)"
    r"(?:['\"]?[ \t]*[=:][ \t]*['\"]?| )(?:\[(?= *[^\s,\[\]]+ *\]) *)?"
    r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)%?)"
    r"(?![\w.]|[:,]\d)"
)
UNDONE = re.compile(r"\bdone['\"]?\s*[=:]\s*false\b", re.IGNORECASE)  # said of an episode
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def rows(text: str) -> list[dict[str, Any]]:
    """A mapping for each line, or part of one behind a progress bar, that holds numbers.

    Of known names where there are some: other braces and pairs are what a model wrote, say.
    """
    if listed := _printed(text) if text.lstrip().startswith("[{") else None:
        return [row for row in listed if isinstance(row, dict)]  # as a cell shows log_history
    marked = [row for line, cells in _lines(text) if (row := cells or _row(line))]
    if known := [row for row in marked if _known(row)]:
        return known
    pairs = _of_pairs(text)
    return [row for row in pairs if _known(row)] or marked or pairs


def _known(row: Mapping[str, Any]) -> bool:
    return any(map(is_known, translated(measured(row))))


def rounded(text: str) -> float:
    """Half a unit of the last decimal where all numbers are written with as many; else 0."""
    written: list[str] = []
    for line, cells in _lines(text):
        if match := CONSOLE.search(line):
            written += [part.rpartition(":")[2].strip() for part in match[2].split(" - ")]
        written += [cell for cell in cells.values() if "." in cell]
    decimals = {len(match[1]) if (match := DECIMALS.fullmatch(one)) else 0 for one in written}
    return 0.5 * 10.0 ** -decimals.pop() if len(decimals) == 1 and 0 not in decimals else 0.0


def measured(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row, with its `step`; a cell that is empty, or a text, is left out."""
    row = _flat(row)
    if str(row.get("done")).lower() == "false":  # a step of an environment, and none of training
        row = {f"step_{name}" if str(name).lower() == "reward" else name: row[name] for name in row}
    bare = {str(name).removeprefix("train/"): value for name, value in row.items()}
    made = {
        name: number
        for name, value in bare.items()
        if name not in STEPS and (number := number_of(value)) is not None
    }
    stated = (number_of(bare.get(name)) for name in STEPS)
    step = next((one for one in stated if one is not None and math.isfinite(one)), None)
    return made if step is None else {"step": int(step), **made}


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose mappings, also those that were written as texts, have become numbers beside it.

    The name of a mapping stands before those inside, `{"reward": {"mean": 0.5}}`, unless it says
    only that it holds numbers, as "data" of verl's file logger.
    """
    made: dict[str, Any] = {}
    for name, value in row.items():
        written = isinstance(value, str) and value.startswith("{")
        inner = _dictionary(value) if written else value
        if isinstance(inner, Mapping):
            section = "" if HOLDS & _words(str(name)) else f"{name}/"
            made |= {f"{section}{key}": number for key, number in _flat(inner).items()}
        else:
            made[name] = value
    return made


def without_gaps(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Rows without their NaN, where NaN stands for what a row does not have.

    So agents' rewards are written where no episode has ended, and tables of pandas that hold rows
    of several kinds, as of training and evaluation: none has a number in each column. Parts of a
    reward say nothing here: TRL writes NaN for a part that does not apply to a step.
    """
    rows = [
        {name: n for name, n in row.items() if not (math.isnan(n) and is_of_episodes(name))}
        for row in rows
    ]
    columns = {name for row in rows for name in row if not name.startswith(PART)}
    finite = {name for name in columns for row in rows if not math.isnan(row.get(name, math.nan))}
    if not rows or not all(any(math.isnan(row.get(name, 0.0)) for name in finite) for row in rows):
        return rows
    return [{name: n for name, n in row.items() if not math.isnan(n)} for row in rows]


def number_of(value: Any) -> float | None:
    """A number, also as `"0.3 ± 0.1"`, `"3%"`, `"3/100"` (three, of a hundred) and `"nan"`."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return None
    text, share = value.strip(), 1.0
    if text.endswith("%"):
        text, share = text[:-1], 0.01
    elif re.fullmatch(r"\d+/\d+", text):
        text = text.partition("/")[0]
    try:
        return float(text) * share
    except ValueError:
        number, *spread = SPREAD.split(text, maxsplit=1)
        return number_of(number.rstrip("%") + "%" * (share < 1)) if spread else None


def is_aside(row: Mapping[str, Any]) -> bool:
    """Whether a row is of an evaluation, or the summary of transformers at the end."""
    said = [_words(str(value)) for name, value in row.items() if WHICH & _words(str(name))]
    flags = [_words(str(name)) for name, value in row.items() if value in (True, 1, "True", "true")]
    told = any(words & EVALUATIONS and len(words) < SEVERAL for words in said)
    flagged = any(words - {"is"} and words - {"is"} <= EVALUATIONS - {"valid"} for words in flags)
    return told or flagged or "train_runtime" in row


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[\W_]+", text.lower()) if word}


def in_order(made: Iterable[dict[str, float]]) -> tuple[list[dict[str, float]], int]:
    """Rows of one step as one, their means where several have a number; and how many are left out.

    Where steps begin again, after a restart, the later rows count. Where they begin again with each
    epoch, or at the first one more than once, or never pass it, or once while the policy goes on,
    rows are counted through; where the newest row is the first, they are turned round. Rows without
    a step begin again where their epochs do.
    """
    rows = list(made)
    steps = [row["step"] for row in rows if "step" in row]
    if not steps:
        kept_rows, left_out = _of_last_run(rows)
        return _numbered(kept_rows), left_out
    turns = [before - after for before, after in pairwise(steps) if after <= steps[0]]
    if len(steps) >= SEVERAL and all(after < before for before, after in pairwise(steps)):
        rows.reverse()
    elif (
        sum(back >= 2 for back in turns) > 1  # of one step only: several workers
        or len(turns) == len(steps) - 1 >= SEVERAL
        or any(_next_epoch(before, after) for before, after in pairwise(rows))
        or (len(turns) == 1 and len(steps) == len(rows) and _goes_on(rows))
    ):
        return [{**row, "step": number} for number, row in enumerate(rows, start=1)], 0
    kept: list[list[dict[str, float]]] = []
    left_out = 0
    for row in rows:
        step = row.get("step", math.inf)
        again = kept and kept[-1][0].get("step", -math.inf) > step
        while again and kept and kept[-1][0].get("step", -math.inf) >= step:
            left_out += len(kept.pop())
        if kept and kept[-1][0].get("step") == step:
            kept[-1].append(row)
        else:
            kept.append([row])
    return [_mean(of_step) for of_step in kept], left_out


def _of_last_run(rows: list[dict[str, float]]) -> tuple[list[dict[str, float]], int]:
    """Rows without those that stand before a single fall of their epochs, and are as late."""
    epochs = [row.get("epoch", math.nan) for row in rows]
    falls = [n for n, (before, after) in enumerate(pairwise(epochs), start=1) if after < before]
    if len(falls) != 1:
        return rows, 0
    (begin,) = falls
    earlier = [row for row in rows[:begin] if row.get("epoch", 0) < epochs[begin]]
    return earlier + rows[begin:], begin - len(earlier)


def _numbered(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Rows with a `number`, as they count themselves, where a count of theirs only rises."""
    names = {name.lower(): name for name in (rows[0] if rows else {})}
    for name in (names[one] for one in ROWS if one in names):
        counts = [row.get(name, math.nan) for row in rows]
        whole = all(float(count).is_integer() for count in counts)
        if whole and all(before < after for before, after in pairwise(counts)):
            return [{**row, "number": count} for row, count in zip(rows, counts, strict=True)]
    return rows


def _goes_on(rows: Sequence[dict[str, float]]) -> bool:
    """Whether the policy of the first row after a turn is that of the last one before it.

    A run that was begun anew is at its reference again, and at the start of its learning rate.
    """
    turn = next(n for n, row in enumerate(rows) if n and row["step"] <= rows[0]["step"])
    for name in ("kl_ref", "kl", "learning_rate"):
        told = [translated(row).get(name, math.nan) for row in rows]
        places = (0, max(0, turn - SEVERAL), turn)
        begun, ended, now = (fmean(told[n : n + SEVERAL]) for n in places)
        if abs(ended - begun) > MOVED * max(abs(begun), abs(ended)):
            return abs(now - ended) < abs(now - begun)
    return False


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of each number that one of them has."""
    if len(rows) == 1:
        return rows[0]
    names = dict.fromkeys(name for row in rows for name in row)
    means = {name: fmean(row[name] for row in rows if name in row) for name in names}
    return {**means, "step": rows[0]["step"]}


def _next_epoch(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether the steps begin again with the next epoch."""
    names = [name for name in before if name.lower() == "epoch" and name in after]
    later = any(after[name] > before[name] for name in names)
    return later and after.get("step", math.inf) < before.get("step", -math.inf)


def _lines(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Lines, and parts behind a progress bar, with their cells where they are rows of a table."""
    header: list[str] = []
    for line in _unwrapped(re.split(r"[\r\n]+", COLOURS.sub("", text))):
        cells = _cells(line)
        if line.strip() and not any(map(str.isalnum, line)):
            yield line, {}  # the rule below a header
        elif len(cells) > 1 and number_of(cells[0]) is not None:
            if len(cells) == len(header) + 1 and not BARS & {*line}:
                del cells[0]  # the number of the row, which pandas writes under no name
            yield line, dict(zip(header, cells, strict=True)) if len(header) == len(cells) else {}
        else:
            header = [re.sub(r"\s*/\s*", "/", one) if "/" in one else one for one in cells]
            yield line, {}


def _unwrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines, those of verl's console whole."""
    whole = ""
    for line in lines:
        if WRAPPED.fullmatch(line) and not CONSOLE.search(line) and CONSOLE.search(whole):
            whole += line
        else:
            yield whole
            whole = line
    yield whole


def _cells(line: str) -> list[str]:
    cells = BETWEEN_CELLS.split(line.strip(" ").strip("|│").strip(" "))
    return [cell.strip("*`") for cell in cells]  # of Markdown


def _of_pairs(text: str) -> list[dict[str, Any]]:
    """Names with a number each: a row ends before a line that has one of its names again.

    What only one line names is no curve, and of what a line names twice the first is taken. Where
    lines have a counter and a reward, others that do not count the same are none of the log.
    """
    said = list(_named(text))
    every, lines = [pairs for _, pairs in said], [pairs for line, pairs in said if _trains(line)]
    if not any(map(_known, lines)):
        lines = every
    whole = [pairs for pairs in lines if _counters(pairs) and "reward" in translated(pairs)]
    if len(whole) >= SEVERAL:
        counted = set[str]().union(*map(_counters, whole))
        lines = [pairs for pairs in lines if counted & pairs.keys() and _known(pairs)]
    count = Counter(name for pairs in lines for name in pairs)
    made: list[dict[str, Any]] = [{}]
    for pairs in lines:
        several = {name: number for name, number in pairs.items() if count[name] > 1}
        if several.keys() & made[-1].keys():
            made.append({})
        made[-1] |= several
    return [row for row in made if row]


def _named(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines and what they name; tables of Stable-Baselines3 have one name a line, in sections."""
    section = ""
    for line, _ in _lines(text):
        name, *values = _cells(line)
        standing = line.strip()[:1] in ("|", "│") and len(values) == 1
        if not any(map(str.isalnum, line)) or (standing and not values[0]):
            section = name if name.endswith("/") else ""
        if standing and number_of(values[0]) is not None:
            yield line, {section + name: values[0]}
        else:
            told = [one for one in PAIR.finditer(line) if _word_before(one) not in OTHERS]
            undone = {"done": "false"} if UNDONE.search(line) else {}
            yield line, {one[1]: one[2] for one in reversed(told)} | undone


def _word_before(name: re.Match[str]) -> str:
    before = name.string[max(0, name.start() - FAR) : name.start()]
    return next(reversed(re.findall("[a-z]+", before.lower())), "")


def _trains(line: str) -> bool:
    """Whether nothing up to the first name says that a line is of an evaluation."""
    return EVALUATIONS.isdisjoint(_words(" ".join(PAIR.split(line)[:2])))


def _counters(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.lower() in COUNTERS}


def _row(line: str) -> dict[str, Any]:
    if match := CONSOLE.search(line):
        parts = (part.rpartition(":") for part in match[2].split(" - "))
        numbers = {name.strip(): _printed(text) for name, _, text in parts if name}
        return {"step": int(match[1]), **numbers}
    begin, end = line.find("{"), line.rfind("}")
    if begin < 0 and line.count("':") > 1:  # copied without its first letters
        line = "{" + line[line.find("'") :]
        begin, end = 0, line.rfind("}")
    if not 0 <= begin < end:
        return {}
    row = _dictionary(line[begin : end + 1])
    if (
        row
        and not any(name in row for name in STEPS)
        and (said := GLOBAL_STEP.search(line[:begin]))
    ):
        row = {"step": int(said[1]), **row}
    return row


def _dictionary(text: str) -> dict[str, Any]:
    """JSON, or as Python prints it; empty if it is neither."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = _printed(text)
    return found if isinstance(found, dict) else {}


def _printed(text: str) -> Any:
    """What Python printed as `text`; None if it is not of numbers, texts and dictionaries."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deep
        return None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):  # nan, inf
            return name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = number_of(_value(operand))
            return None if number is None else -number
        case ast.Call(args=[first, *_]):  # np.float64(0.3), tensor(0.3)
            return _value(first)
        case ast.List(elts=values):
            return [_value(value) for value in values]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            named = {_value(key): _value(value) for key, value in pairs if key is not None}
            return {name: value for name, value in named.items() if name is not None}
    return None
