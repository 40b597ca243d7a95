"""What a run left behind for a diagnosis, whichever trainer wrote it.

a folder       metrics.jsonl, recipe.json and witness/ of `nbcourse train`, or of `keep_witnesses`,
               trainer_state.json of transformers, or TensorBoard's event files, somewhere below
*.zip          the first of these, packed: the recorded runs of the silent-failure benchmark
*tfevents*     one event file of TensorBoard
*.jsonl, *.log, *.txt, *.out, *.md
               what trainers print or write, line by line or as a table (`log_lines`), and the
               history of W&B
*.json         the state of transformers' trainers, TRL's among them: log_history; or the rows of a
               history, as W&B's `run.scan_history()` gives them, its columns, or a row a line
*.ipynb        what the cell that trained printed, or showed as a table (`notebook_outputs`)
*.csv, *.tsv   what a dashboard exports: a column for each number. Of W&B the chart of one run
               ("mine - train/reward"), or `run.history()`; its offline files are its own, `wandb
               sync` them first. Also progress.csv and the monitor's file of libraries for agents

Names are translated by `names.NAMES`, without the "train/" that transformers puts before them.
A log of which no column is known there is refused: nothing could be said of it.
"""

import codecs
import contextlib
import csv
import io
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbcourse.diagnosis.diagnose import Evidence
from nbcourse.diagnosis.names import in_company, is_known, rivals, translated
from nbcourse.diagnosis.witness import Witness
from nbcourse.errors import NotFound, UserError
from nbcourse.experiments import event_files, log_lines, notebook_outputs, records
from nbcourse.experiments.records import WITNESS

STATE = "trainer_state.json"
EVENTS = "events.out.tfevents."
KINDS = (
    "a folder, TensorBoard's event file, or a file .zip, .jsonl, .json, .csv, .tsv, .ipynb, .log, "
    ".txt or .md"
)
SYNC = "W&B's own file: `wandb sync` it, and export the run's history as .csv or .json"
PREFERENCES = ("rewards/chosen", "rewards/rejected", "rewards/margins", "dpo_loss")
JSON_LINES = re.compile(r"\s*\{[^\n]*\}\s*\n\s*\{")  # as RLlib's result.json holds
DECIMAL_COMMA = re.compile(r"(-?\d+),(\d+)")  # of tables with semicolons between the cells
SETTING = "learning_rate"  # which a program may print with its settings, and measures nothing
BOUNDS = ("__MIN", "__MAX")  # of W&B's smoothed charts, beside the number itself


def read(path: str | Path) -> Evidence:
    """Curves and witness batches, as far as they are there.

    Raises:
        FileNotFoundError: if there is neither.
        ValueError: if a file is damaged, or of another kind than these.
    """
    path = Path(path)
    if path.is_dir():
        return _of_files(path.name, {p.relative_to(path).as_posix(): p for p in _inside(path)})
    if path.suffix.startswith(".ipynb"):
        name, output = notebook_outputs.of_training(path)
        return _of_others(name, _printed(output.encode(), name), rounded=log_lines.rounded(output))
    if not path.is_file():
        raise NotFound(f"there is no {path}: expected {KINDS}")
    if path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if not name.endswith("/")]
                content = {name: archive.read(name) for name in names}
        except zipfile.BadZipFile as error:
            raise UserError(f"{path} is damaged: {error}") from error
        return _of_files(path.stem, content)
    readers: dict[str, Callable[[bytes, str], list[dict[str, Any]]]] = {
        ".json": _state,
        **dict.fromkeys((".csv", ".tsv"), _table),
        ".jsonl": _rows_of_lines,
        **dict.fromkeys((".log", ".txt", ".out", ".md"), _printed),
    }
    if path.name.startswith(EVENTS):
        if not (rows := _events([path])):
            raise UserError(f"{path} holds no scalars")
        return _of_others(path.name, rows)
    if path.suffix == ".wandb":
        raise UserError(f"{path} is {SYNC}")
    if path.suffix not in readers:
        raise UserError(f"{path} is of an unknown kind: expected {KINDS}")
    written = path.read_bytes()
    if path.name == records.METRICS:
        own = _lines(written, str(path), null=math.nan)
        return Evidence(path.name, (), tuple(map(translated, own)))
    rows = readers[path.suffix](written, str(path))
    return _of_others(path.name, rows, rounded=log_lines.rounded(_text(written)))


def _of_others(name: str, rows: Iterable[Mapping[str, Any]], *, rounded: float = 0.0) -> Evidence:
    """The curves of another program, under our names, with the columns that are known.

    Raises:
        ValueError: if none is.
    """
    every = list(rows)
    trained = [row for row in every if not log_lines.is_aside(row)] or every
    rows_told = [row for row in map(log_lines.measured, trained) if row.keys() - {"step"}]
    measured = log_lines.without_gaps(rows_told)
    count = Counter(name for row in measured for name in row)
    beside = rivals(count)
    told = in_company([name for name in count if name not in beside])
    measured = [
        {told.get(name, name): value for name, value in row.items() if name not in beside}
        for row in measured
    ]
    ordered, left_out = log_lines.in_order(measured)
    history = tuple(map(translated, ordered))
    names = dict.fromkeys(name for row in measured for name in row)
    columns = [one for one in names if one not in log_lines.BOOKKEEPING]
    if preferences := [one for one in columns if one.startswith(PREFERENCES)]:
        raise UserError(
            f"{name} is the log of a preference optimisation such as DPO, with {preferences[0]}: "
            "it samples no answers, and nothing here is asked about it"
        )
    ours = {one: next(iter(translated({one: 0.0}))) for one in columns}
    known = [one for one in columns if is_known(ours[one])]
    if {*map(ours.get, known)} <= {SETTING}:
        raise _unrecognised(name, columns)
    unknown = [one for one in columns if one not in known] + sorted(beside)
    made = Evidence(name, (), history, recognised=known, unknown=unknown, rounded=rounded)
    return replace(made, left_out=left_out)


def _unrecognised(name: str, columns: Iterable[str]) -> UserError:
    there = ", ".join(list(columns)[:5])
    return UserError(
        f"nothing in {name} was recognised: found {f'columns {there}' if there else 'no numbers'}; "
        "expected some such as reward, loss, grad_norm, critic/score/mean (of TRL, verl, OpenRLHF, "
        "ms-swift, W&B or our own runs)"
    )


def pack(evidence: Evidence) -> bytes:
    """As a zip file that `read` takes, the same for the same evidence."""
    buffer = io.BytesIO()
    files = {records.METRICS: "".join(map(records.line, evidence.history)).encode()}
    files |= {f"{WITNESS}/{one.file}": one.to_bytes() for one in evidence.witnesses}
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # with the date of 1980, whenever it is packed
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def _inside(folder: Path) -> Iterable[Path]:
    yield from (
        p for name in (records.METRICS, records.RECIPE, STATE) if (p := folder / name).is_file()
    )
    yield from sorted((folder / WITNESS).glob("step-*.safetensors"))
    yield from sorted(folder.rglob(f"{EVENTS}*"))
    yield from sorted(folder.glob("*.wandb"))


def _of_files(name: str, files: Mapping[str, Path | bytes]) -> Evidence:
    def content(file: str) -> bytes:
        found = files[file]
        return found if isinstance(found, bytes) else found.read_bytes()

    witnesses = [
        Witness.from_bytes(content(file), name=file)
        for file in sorted(files)
        if file.startswith(f"{WITNESS}/")
    ]
    rows: list[dict[str, Any]] = []
    if records.METRICS in files:
        rows = _lines(content(records.METRICS), records.METRICS, null=math.nan)
    elif STATE in files and not witnesses:
        return _of_others(name, _state(content(STATE), STATE))
    elif STATE in files:
        rows = _state(content(STATE), STATE)
    if not rows and not witnesses:
        paths = [file for file in files.values() if isinstance(file, Path)]
        if rows := _events([path for path in paths if path.name.startswith(EVENTS)]):
            return _of_others(name, rows)
        if any(file.endswith(".wandb") for file in files):
            raise UserError(f"{name} holds {SYNC}")
        raise NotFound(
            f"no run in {name}: expected {records.METRICS}, {STATE}, a folder {WITNESS} or "
            "TensorBoard's event files"
        )
    known = {}
    if records.RECIPE in files:
        known = records.parsed(_text(content(records.RECIPE)), records.RECIPE)
    recipe = known if isinstance(known, dict) else {}  # another program's
    history = tuple(map(translated, rows))
    if not witnesses and not any(is_known(name) for row in history for name in row):
        raise _unrecognised(
            name, dict.fromkeys(one for row in rows for one in row if one != "step")
        )
    return Evidence(name, witnesses, history, recipe)


def _text(content: bytes) -> str:
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8-sig", "replace")


def _printed(content: bytes, name: str) -> list[dict[str, Any]]:
    rows = log_lines.rows(_text(content))
    with contextlib.suppress(UserError, csv.Error):
        rows = rows or _table(content, name)
    if not rows:
        raise UserError(
            f"{name} holds no numbers: expected lines such as step:1 - actor/grad_norm:0.5 (verl) "
            "or {'loss': 0.1, 'reward': 0.5} (TRL, ms-swift, OpenRLHF), or a table with bars"
        )
    return rows


def _rows_of_lines(content: bytes, name: str) -> list[dict[str, Any]]:
    """Objects, or what a trainer printed; a damaged object among objects is refused."""
    try:
        return _lines(content, name)
    except UserError:
        mixed = any(line.lstrip()[:1] not in ("", "{") for line in _text(content).splitlines())
        if mixed and (rows := log_lines.rows(_text(content))):
            return rows
        raise


def _lines(content: bytes, name: str, *, null: float | None = None) -> list[dict[str, Any]]:
    """Objects, one a line; a null is left out, or a number that our own runs write so."""
    rows = []
    lines = _text(content).split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = records.parsed(line, f"{name}, line {number}")
        except UserError:
            if number == len(lines):  # a kill has cut it short
                break
            raise
        if not isinstance(row, dict):
            raise UserError(f"{name}, line {number}: expected an object, found {line[:40]!r}")
        told = {key: null if value is None else value for key, value in row.items()}
        rows.append({key: value for key, value in told.items() if value is not None})
    return rows


def _state(content: bytes, name: str) -> list[dict[str, Any]]:
    if JSON_LINES.match(text := _text(content)):
        return _rows_of_lines(content, name)
    state = records.parsed(text, name)
    log = _log_in(state) if isinstance(state, dict) else state
    if not isinstance(log, list) or not all(isinstance(row, dict) for row in log):
        raise UserError(
            f"{name} has no log_history: expected the state of a transformers trainer, a list of "
            "rows, or lists of numbers that are equally long"
        )
    return log


def _log_in(state: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The longest list of rows in it; where there is none, the most rows of columns."""
    inner = [state, *state.values()]
    lists = [value for value in inner if isinstance(value, list)]
    rows = [value for value in lists if value and all(isinstance(row, dict) for row in value)]
    columns = [_columns(value) for value in inner if isinstance(value, dict)]
    return max(rows or columns, key=len) or state.get("log_history")


def _columns(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of columns of numbers, of those that are as long as most are; none of others.

    What is measured less often cannot be matched.
    """
    numbers = {name: value for name, value in state.items() if _of_numbers(value)}
    (length, _), *_ = Counter(map(len, numbers.values())).most_common(1) or [(0, 0)]
    columns = {name: value for name, value in numbers.items() if len(value) == length}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _of_numbers(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) > 1
        and any(log_lines.number_of(value) is not None for value in values)
    )


def _table(content: bytes, name: str) -> list[dict[str, Any]]:
    text = _below_comments(_text(content))
    header, _, _ = text.partition("\n")
    if (between := max(",;\t", key=header.count)) != ",":
        text = DECIMAL_COMMA.sub(r"\1.\2", text)
    lines = csv.reader(io.StringIO(text), delimiter=between)
    columns = {
        number: column.rpartition(" - ")[2]  # before it, W&B has the name of the run
        for number, column in enumerate(next(lines, []))
        if column and not column.endswith(BOUNDS)
    }
    if twice := [column for column, count in Counter(columns.values()).items() if count > 1]:
        raise UserError(f"{name} has several columns {twice[0]!r}: export one run")
    rows = [
        {columns[number]: value for number, value in enumerate(row) if number in columns}
        for row in lines
    ]
    numbers = (log_lines.number_of(value) for row in rows for value in row.values())
    if not any(number is not None and math.isfinite(number) for number in numbers):
        raise UserError(f"{name} holds no numbers: expected a header and a row for each step")
    return rows


def _below_comments(text: str) -> str:
    """A table without the lines above its header that begin with a hash, as Gym's monitor's do."""
    while text.startswith("#"):
        _, _, below = text.partition("\n")
        if not below[:1].isalpha() and not below.startswith("#"):
            return text.lstrip("# ")  # the hash stands before the header itself
        text = below
    return text


def _events(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The scalars of a run's event files, by step; of a step that was made twice, the later ones.

    Raises:
        ValueError: if they are those of several runs.
    """
    by_folder: dict[Path, dict[int, dict[str, Any]]] = {}
    for file in files:
        for step, tag, value in event_files.scalars(file.read_bytes(), name=str(file)):
            rows = by_folder.setdefault(file.parent, {})
            rows.setdefault(step, {"step": step})[tag] = value
    if len(by_folder) > 1:
        names = ", ".join(str(folder) for folder in by_folder)
        raise UserError(f"there are event files of several runs, name one: {names}")
    return [row for rows in by_folder.values() for _, row in sorted(rows.items())]
