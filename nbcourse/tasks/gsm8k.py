"""GSM8K: 8,792 grade-school word problems, each with a worked solution and its answer.

A solution is written for readers: a sentence per step, calculator notes such as ``<<9*2=18>>``, and
the answer on a last line of its own, ``#### 18``. `load` reads the data set from a folder or from
the Hugging Face hub, and takes the answer out of every solution with the same strict parser that
will judge the model's responses. `GSM8K` is the task; it has a validation split of our own, which
`three_way_split` takes from the training problems.
"""

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from zlib import crc32

from nbcourse import hub
from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.tasks.answers import extract
from nbcourse.tasks.questions import Listed, Problem

VALIDATION = 0.1  # share of the training problems that are kept for choosing between runs

_HUB_NAME = "openai/gsm8k"
_SOURCE = "https://github.com/openai/grade-school-math (folder grade_school_math/data)"
_EXPECTED = "one JSON object with the strings 'question' and 'answer'"


def load(split: str, *, path: str | Path | None = None) -> list[Problem]:
    """The problems of a split as it was published, in the file's order.

    Args:
        split: "train" (7,473 problems) or "test" (1,319).
        path: a folder that holds train.jsonl and test.jsonl; None for the folder that the
            environment variable NBCOURSE_GSM8K names or, without it, for the Hugging Face hub,
            which needs a network the first time.

    Raises:
        ValueError: if the split is unknown, or a line of the files is malformed.
        FileNotFoundError: if the folder or the file is not there.
        OSError: if the hub cannot be reached.

    Source: Cobbe et al. 2021, "Training Verifiers to Solve Math Word Problems".
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}, expected 'train' or 'test'")
    folder = path or os.environ.get("NBCOURSE_GSM8K")
    problems = _from_file(Path(folder), split) if folder else _from_hub(split)
    if not problems:
        raise UserError(f"no problems in GSM8K's {split} split: {folder or _HUB_NAME} is empty")
    return problems


def _from_file(folder: Path, split: str) -> list[Problem]:
    file = folder / f"{split}.jsonl"
    if not file.is_file():
        missing = f"no file {file.name} in {folder}" if folder.is_dir() else f"no folder {folder}"
        raise NotFound(
            f"{missing}: path must be a folder with train.jsonl and test.jsonl from {_SOURCE}; "
            "without path and NBCOURSE_GSM8K the data come from the Hugging Face hub"
        )
    # Bytes, because text mode would also break lines where a question holds a bare carriage return.
    with file.open("rb") as lines:
        return [
            _problem(_parse(line, f"{file}:{number}"), f"{file}:{number}")
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]


def _parse(line: bytes, where: str) -> object:
    try:
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON in UTF-8 ({error}); expected {_EXPECTED}") from error


def _from_hub(split: str) -> list[Problem]:
    try:
        import datasets  # here, because it costs seconds and a folder of files needs none of it

        with hub.within_seconds():
            rows = datasets.load_dataset(_HUB_NAME, "main", split=split)
    except Exception as error:  # the hub's clients fail in many ways, and one remedy fits them all
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotAvailable(
            f"cannot fetch {_HUB_NAME} from the Hugging Face hub ({reason}); without a network, "
            "pass path=FOLDER, or set NBCOURSE_GSM8K, to a folder with train.jsonl and test.jsonl "
            f"from {_SOURCE}"
        ) from error
    return [_problem(row, f"{_HUB_NAME} {split}, row {i}") for i, row in enumerate(rows, start=1)]


def _problem(row: object, where: str) -> Problem:
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON {type(row).__name__}; expected {_EXPECTED}")
    for field in ("question", "answer"):
        if not isinstance(row.get(field), str):
            raise UserError(f"{where}: no string under {field!r}; expected {_EXPECTED}")
    answer = extract(row["answer"], strict=True)
    if answer is None:
        raise UserError(
            f"{where}: the solution gives no answer; expected it to end in a line like '#### 18'"
        )
    return Problem(row["question"], row["answer"], answer)


def three_way_split(split: str, path: str | None = None) -> list[Problem]:
    """GSM8K in three parts: its training problems without a tenth, that tenth, and its test.

    Which tenth is a property of the question, by a hash: it stays the same whatever the order of
    the file and the seed of the run.

    Args:
        split: "train" (6,707 problems), "validation" (766) or "test" (1,319).
        path: as for `load`.

    Raises:
        ValueError: if the split is unknown.
    """
    if split == "test":
        return load("test", path=path)
    if split not in ("train", "validation"):
        raise ValueError(f"split is {split!r}, expected 'train', 'validation' or 'test'")
    return [
        problem
        for problem in load("train", path=path)
        if (crc32(problem.question.encode()) < VALIDATION * 2**32) == (split == "validation")
    ]


_read_once = cache(three_way_split)  # for a task, which draws from the same files again and again


@dataclass(frozen=True)
class GSM8K(Listed):
    """The data set as a training run sees it: finite, so that no problem is drawn twice at once.

    Attributes:
        path: as for `load`.
    """

    path: str | None = None

    def listed(self, split: str) -> list[Problem]:
        """All problems of a split, in the file's order.

        Raises:
            ValueError: if the split is unknown.
        """
        return _read_once(split, self.path or os.environ.get("NBCOURSE_GSM8K"))


TASKS = {"gsm8k": GSM8K}
