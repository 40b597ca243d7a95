"""GSM8K: 8,792 grade-school word problems, each with a worked solution and its answer.

A solution is written for readers: a sentence per step, calculator notes such as ``<<9*2=18>>``, and
the answer on a last line of its own, ``#### 18``. `load` reads the data set from a folder or from
the Hugging Face hub, and takes the answer out of every solution with the same strict parser that
will judge the model's responses.
"""

import json
import os
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from nbcourse.tasks.answers import extract

_HUB_NAME = "openai/gsm8k"
_SOURCE = "https://github.com/openai/grade-school-math (folder grade_school_math/data)"
_EXPECTED = "one JSON object with the strings 'question' and 'answer'"


@dataclass(frozen=True)
class Problem:
    """One question, the worked solution, and the number at the solution's end."""

    question: str
    solution: str
    answer: Decimal

    @property
    def prompt(self) -> str:
        """What the model is given: the question, on a line that is complete."""
        return f"{self.question}\n"


def load(split: str, *, path: str | Path | None = None) -> list[Problem]:
    """Return the problems of `split`, "train" (7,473) or "test" (1,319), in the file's order.

    `path` is a folder that holds train.jsonl and test.jsonl; without it, the folder that the
    environment variable NBCOURSE_GSM8K names; without that, the data come from the Hugging Face
    hub, which needs a network the first time.
    """
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    folder = path or os.environ.get("NBCOURSE_GSM8K")
    problems = _from_file(Path(folder), split) if folder else _from_hub(split)
    if not problems:
        raise ValueError(f"no problems in GSM8K's {split} split: {folder or _HUB_NAME} is empty")
    return problems


def _from_file(folder: Path, split: str) -> list[Problem]:
    file = folder / f"{split}.jsonl"
    if not file.is_file():
        missing = f"no file {file.name} in {folder}" if folder.is_dir() else f"no folder {folder}"
        raise FileNotFoundError(
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
        raise ValueError(f"{where}: not JSON in UTF-8 ({error}); expected {_EXPECTED}") from error


def _from_hub(split: str) -> list[Problem]:
    try:
        import datasets  # here, because it costs seconds and a folder of files needs none of it

        rows = datasets.load_dataset(_HUB_NAME, "main", split=split)
    except Exception as error:  # the hub's clients fail in many ways, and one remedy fits them all
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(
            f"cannot fetch {_HUB_NAME} from the Hugging Face hub ({reason}); without a network, "
            "pass path=FOLDER, or set NBCOURSE_GSM8K, to a folder with train.jsonl and test.jsonl "
            f"from {_SOURCE}"
        ) from error
    return [_problem(row, f"{_HUB_NAME} {split}, row {i}") for i, row in enumerate(rows, start=1)]


def _problem(row: object, where: str) -> Problem:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a JSON {type(row).__name__}; expected {_EXPECTED}")
    for field in ("question", "answer"):
        if not isinstance(row.get(field), str):
            raise ValueError(f"{where}: no string under {field!r}; expected {_EXPECTED}")
    answer = extract(row["answer"], strict=True)
    if answer is None:
        raise ValueError(
            f"{where}: the solution gives no answer; expected it to end in a line like '#### 18'"
        )
    return Problem(row["question"], row["answer"], answer)
