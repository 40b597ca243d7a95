"""Tables as spreadsheets save them: one reader, and one writer.

Spreadsheets separate cells by comma, semicolon or tab, as the language of the computer has it, and
some say which in a first line, `sep=;`. A separator inside quotes is none. Numbers may have a
decimal comma.

No cell that is written begins a formula, in whatever way a spreadsheet splits the line: names come
from students, and it would run `=HYPERLINK(…)`.
"""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from nbcourse.errors import UserError

SEPARATORS = ",;\t"
LONGEST_CELL = 2**20  # characters: Python's own limit of 131,072 is below what comments may hold
BEGINS_FORMULA = "=+-@＝＋－＠"  # to a spreadsheet, also in the wide forms
INSIDE = re.compile(rf"""([;|]["\s]*+)(?=[{re.escape(BEGINS_FORMULA)}])""")


@dataclass(frozen=True)
class Table:
    """What a file holds.

    Args:
        columns: in the first row.
        rows: the others that are not empty, each as long as the columns; what lacks is None.
        lines: the line in the file of each row, from 1.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    lines: tuple[int, ...]

    def by_column(self) -> list[dict[str, str]]:
        """The rows by their columns, without what they lack."""
        return [
            {c: cell for c, cell in zip(self.columns, row, strict=True) if cell is not None}
            for row in self.rows
        ]


def read(path: Path) -> Table:
    """Read a CSV, however a spreadsheet has written it.

    Raises:
        UserError: if it is not text in UTF-8 or UTF-16, or no table.
        OSError: if it cannot be read.
    """
    content = path.read_bytes()
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))  # what Excel calls Unicode text
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path.name} is not text in UTF-8; save it as 'CSV UTF-8'") from None
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        return _table(text)
    except csv.Error as error:
        raise UserError(f"{path.name} is not a CSV: {error}") from None
    finally:
        csv.field_size_limit(before)


def _table(text: str) -> Table:
    told = re.match(r"\s*\"?sep=(.)\"?\r?\n", text, re.IGNORECASE)
    body = text[told.end() if told else 0 :].lstrip(" \r\n")
    skipped = text[: len(text) - len(body)].count("\n")
    reader = csv.reader(StringIO(body, newline=""), delimiter=told[1] if told else _separator(body))
    columns = tuple(cell.strip() for cell in next(reader, []))
    rows, lines, line = [], [], reader.line_num + 1
    for row in reader:
        cells = [cell.strip() for cell in row[: len(columns)]]
        if any(cells):
            rows.append((*cells, *[None] * (len(columns) - len(cells))))
            lines.append(skipped + line)
        line = reader.line_num + 1
    return Table(columns, tuple(rows), tuple(lines))


def _separator(text: str) -> str:
    """The separator that stands most often in the first row, outside quotes."""
    first = re.match(r"""(?:"(?:[^"]|"")*+"|[^"\n])*+""", text)
    outside = re.sub(r'"(?:[^"]|"")*+"', "", first[0] if first else "")
    return max(SEPARATORS, key=outside.count)


def number(text: str) -> float | None:
    """A number with a decimal point or comma; None for anything else, such as Moodle's scales."""
    try:
        found = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def written(points: float) -> str:
    """Points with two decimal places at most, which is what the platforms keep."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def as_csv(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a CSV in which no cell begins a formula."""
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows([[inert(c) for c in row] for row in rows])
    return text.getvalue()


def inert(cell: str) -> str:
    """A cell as one line of text, with an apostrophe where a formula would begin in it."""
    line = re.sub(r"[\x00-\x1f]+", " ", cell)
    line = f"'{line}" if line.lstrip().startswith(tuple(BEGINS_FORMULA)) else line
    return INSIDE.sub(r"\1'", line)
