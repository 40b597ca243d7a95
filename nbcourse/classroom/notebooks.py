"""A notebook as the grader reads it: cells with their sources.

Submissions are untrusted files. They are read as plain JSON, below a limit of size, and anything
that is not a Python notebook is refused in words that its author understands.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nbcourse.confined.cells import writable
from nbcourse.errors import UserError

PICTURES = ("image/png", "image/jpeg")  # which run no code, as SVG may
BASE64 = re.compile(r"[A-Za-z0-9+/]+=*", re.ASCII)
LARGEST_NOTEBOOK = 20 * 2**20  # bytes; a bigger notebook holds pictures, and is not read


class Unreadable(UserError):
    """Not a notebook that can be graded. The message is written for the student."""


@dataclass(frozen=True)
class Cell:
    """One cell.

    Args:
        number: position in the notebook, from 1, all kinds of cells counted.
        kind: "code" or "markdown" (or what else stands in the file).
        source: the text of the cell.
        grade_id: nbgrader's name of the cell; empty where it has none.
        solution: whether the student writes it.
        grade: whether it carries points.
        points: how many; 0 without `grade`.
        pictures: what it shows, or has attached, as `data:` addresses of PNG or JPEG.
        cell_id: Jupyter's or Colab's name of the cell; empty where it has none.
        printed: what running it has printed, as the file has it.
    """

    number: int
    kind: str
    source: str
    grade_id: str = ""
    solution: bool = False
    grade: bool = False
    points: float = 0.0
    pictures: tuple[str, ...] = ()
    cell_id: str = ""
    printed: str = ""


def read_cells(content: bytes) -> list[Cell]:
    """The cells of a notebook file, in order.

    Raises:
        Unreadable: if the file is too big, no JSON, no notebook of format 4, or not for Python.
    """
    if len(content) > LARGEST_NOTEBOOK:
        raise Unreadable(
            f"The file has {len(content) / 2**20:.0f} MB; "
            f"at most {LARGEST_NOTEBOOK / 2**20:.0f} are read. "
            "Clear the outputs, save, and hand it in again."
        )
    try:
        notebook = json.loads(_text(content))
    except (ValueError, RecursionError):
        raise Unreadable(
            "The file is damaged: it is not valid JSON, so Jupyter cannot open it either."
        ) from None
    if not (isinstance(notebook, dict) and isinstance(notebook.get("cells"), list)):
        raise Unreadable("The file is not a Jupyter notebook of format 4: it has no list of cells.")
    language = _language(notebook.get("metadata"))
    if language not in ("", "python"):
        raise Unreadable(f"The notebook is for {language}; the answers are to be in Python.")
    return [_cell(number, cell) for number, cell in enumerate(notebook["cells"], start=1)]


def _text(content: bytes) -> str:
    """The text of a file in UTF-8, UTF-16 or UTF-32, or as old editors of Windows save it."""
    try:
        return content.decode(json.detect_encoding(content))
    except UnicodeDecodeError:
        return content.decode("cp1252")


def _language(metadata: Any) -> str:
    """The language of the notebook's kernel in lower case; empty if the file does not say."""
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        language = _object(_object(metadata).get(key)).get(name)
        if isinstance(language, str):
            return writable(language.lower()[:40])
    return ""


def _cell(number: int, cell: Any) -> Cell:
    if not isinstance(cell, dict):
        raise Unreadable(f"The file is damaged: its cell {number} is not a cell.")
    source, metadata = _joined(cell.get("source", "")), _object(cell.get("metadata"))
    if source is None:
        raise Unreadable(f"The file is damaged: its cell {number} has no text.")
    marks = _object(metadata.get("nbgrader"))
    return Cell(
        number=number,
        kind=str(cell.get("cell_type")),
        source=source,
        grade_id=_string(marks.get("grade_id")),
        solution=marks.get("solution") is True,
        grade=marks.get("grade") is True,
        points=_points(marks.get("points")),
        pictures=tuple(_pictures(cell)),
        cell_id=_string(cell.get("id", metadata.get("id"))),
        printed="".join(_joined(output.get("text", "")) or "" for output in _outputs(cell)),
    )


def _object(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def _string(value: Any) -> str:
    """A text; an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def _joined(text: Any) -> str | None:
    """A text that may stand in lines, with line ends of one kind; None if it is no text."""
    if isinstance(text, list):
        text = "".join(line for line in text if isinstance(line, str))
    return re.sub(r"\r\n?", "\n", text) if isinstance(text, str) else None


def _outputs(cell: dict[str, Any]) -> list[dict[str, Any]]:
    outputs = cell.get("outputs")
    listed = outputs if isinstance(outputs, list) else []
    return [output for output in listed if isinstance(output, dict)]


def _pictures(cell: dict[str, Any]) -> Iterator[str]:
    bundles = [output.get("data") for output in _outputs(cell)]
    bundles += _object(cell.get("attachments")).values()
    for bundle in bundles:
        for kind in PICTURES:
            text = "".join(_string(_object(bundle).get(kind)).split())
            if BASE64.fullmatch(text):
                yield f"data:{kind};base64,{text}"


def _points(points: Any) -> float:
    """A number of points that is one; 0 for anything else, such as 10**400 or NaN."""
    return float(points) if isinstance(points, int | float) and 0 <= points <= 10**6 else 0.0
