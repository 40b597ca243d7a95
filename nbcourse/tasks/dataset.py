"""Questions and answers of one's own: a JSONL file, a folder of two, or a data set of the hub.

Which columns hold question and answer is said in the recipe. Other columns are kept for a reward
function, which may ask for them by name. Numbers are read and paid as in chapter 13.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

from torch import Tensor

from nbcourse import hub
from nbcourse.errors import NotAvailable, NotFound, UserError, did_you_mean
from nbcourse.tasks.answers import extract, number_of
from nbcourse.tasks.gsm8k import VALIDATION
from nbcourse.tasks.questions import Listed
from nbcourse.tasks.task import Task

GSM8K = "openai/gsm8k"
MARKER = "####"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Row:
    """A question, its answer, and all that its row says."""

    question: str
    solution: str
    answer: Decimal | str
    columns: Mapping[str, Any] = field(hash=False)

    @property
    def prompt(self) -> str:
        """What the model is given: the question, on a line that is complete."""
        return f"{self.question}\n"


@dataclass(frozen=True)
class DataSet(Listed):
    """A data set with columns for question and answer; a tenth of its rows is held out.

    Attributes:
        path: a JSONL file; a folder with train.jsonl, and test.jsonl if it is to be examined with;
            or a name on the hub, `owner/name`. GSM8K's may lie where NBCOURSE_GSM8K says.
        test: another JSONL file to examine with, for a path that is a file.
        subset: of a data set of the hub.
        question: the column of the question.
        answer: that of the answer: a number, a solution that ends in `#### number`, or a text.
        answers: "number", read as GSM8K's are, or "text", which is right if what a response says
            behind its last `####` is the same but for case and spaces.
    """

    path: str = GSM8K
    test: str = ""
    subset: str = "main"
    question: str = "question"
    answer: str = "answer"
    answers: Literal["number", "text"] = "number"

    def __post_init__(self) -> None:
        if self.answers not in ("number", "text"):
            raise ValueError(f"task.answers is {self.answers!r}, expected one of 'number', 'text'")

    def listed(self, split: str) -> list[Row]:
        """All rows of a split, in the file's order.

        Raises:
            ValueError: if the split is unknown, or empty.
        """
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, expected 'train', 'validation' or 'test'")
        carried = os.environ.get("NBCOURSE_GSM8K") if self.path == GSM8K else None
        return _read_once(self, split, carried)

    def read(self, response: str, *, strict: bool = True) -> Any:
        """The number or the text that a response gives as its answer, if it gives one.

        A text stands behind the last `####`; leniently, without one, it is the last line.
        """
        if self.answers == "number":
            return extract(response, strict=strict)
        _, marker, said = response.rpartition(MARKER)
        if not marker:
            lines = [line for line in response.splitlines() if line.strip()]
            said = "" if strict or not lines else lines[-1]
        return _plain(said) or None

    def preference(self, responses: Sequence[str], problems: Sequence[Any]) -> Tensor:
        """Of numbers, minus the distance to the right one; of texts, whether it is right: (B,)."""
        how = Listed.preference if self.answers == "number" else Task.preference
        return how(self, responses, problems)


def _plain(text: str) -> str:
    """A text without what does not matter in an answer: case, and how many spaces."""
    return " ".join(text.split()).casefold()


@cache
def _read_once(task: DataSet, split: str, folder: str | None) -> list[Row]:
    there = _rows(task, Path(folder or task.path), "test" if split == "test" else "train")
    rows = [_row(task, row, where) for where, row in there]
    if split != "test":  # which tenth is a property of the question, whatever the file's order
        share, held_out = VALIDATION * 2**32, split == "validation"
        rows = [row for row in rows if (crc32(row.question.encode()) < share) == held_out]
    if not rows:
        raise UserError(f"task.path is {task.path!r}, whose {split} split has no rows")
    return rows


def _rows(task: DataSet, place: Path, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of "train" or "test", each with where it stands."""
    if place.is_dir():
        file = place / f"{part}.jsonl"
    elif place.suffix == ".jsonl" or place.is_file():
        file = place if part == "train" else Path(task.test)
        if part == "test" and not task.test:
            raise UserError(
                f"task.test is '', expected a JSONL file to examine with: task.path is "
                f"{task.path!r}, one file, all of which is for training and validation"
            )
    else:
        yield from _from_hub(task, part)
        return
    if not file.is_file():
        raise NotFound(f"task.path is {task.path!r}: there is no file {file}")
    for number, line in enumerate(file.read_bytes().splitlines(), start=1):
        if line.strip():
            yield f"{file}:{number}", _parsed(line, f"{file}:{number}")


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON in UTF-8 ({error}); expected one object") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON {type(row).__name__}, expected one object")
    return row


def _from_hub(task: DataSet, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import datasets  # here, because it costs seconds and a file needs none of it

        with hub.within_seconds():
            rows = datasets.load_dataset(task.path, task.subset, split=part)
    except Exception as error:  # the hub's clients fail in many ways
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotAvailable(
            f"task.path is {task.path!r}: there is no such file or folder here, and the Hugging "
            f"Face hub does not give it with task.subset = {task.subset!r} ({reason})"
        ) from error
    for number, row in enumerate(rows, start=1):
        yield f"{task.path} {part}, row {number}", dict(row)


def _row(task: DataSet, row: dict[str, Any], where: str) -> Row:
    for key in ("question", "answer"):
        name = getattr(task, key)
        if name not in row:
            raise UserError(
                f"task.{key} is {name!r}, which is no column of {where}; its columns are "
                f"{', '.join(map(repr, row))}{did_you_mean(name, row)}"
            )
    question, said = row[task.question], row[task.answer]
    if not isinstance(question, str) or not question.strip():
        raise UserError(f"{where}: {question!r:.60} under {task.question!r}, expected a text")
    if task.answers == "text":
        answer: Decimal | str = _plain(str(said).rpartition(MARKER)[2])
        if not answer:
            raise UserError(f"{where}: {said!r:.60} under {task.answer!r}, expected a text")
    else:
        try:
            answer = number_of(said)
        except ValueError as error:
            raise UserError(
                f"{where}: {said!r:.60} under {task.answer!r} is no number, nor a solution that "
                "ends in '#### number'; for other answers say task.answers = 'text'"
            ) from error
    solution = said if isinstance(said, str) and MARKER in said else f"{MARKER} {said}"
    return Row(question, solution, answer, row)


TASKS = {"dataset": DataSet}
