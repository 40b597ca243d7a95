"""What a notebook's cells printed or showed as a table, as lines of a log."""

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from nbcourse import notebooks
from nbcourse.diagnosis.names import translated
from nbcourse.errors import UserError
from nbcourse.experiments import log_lines

SEVERAL = 3  # rows with a reward, below which a cell has examined a model, and not trained it


def of_training(path: Path) -> tuple[str, str]:
    """The output of the cell that trained, and what to call it.

    Args:
        path: of a notebook; with `#12` behind it, its twelfth cell is meant.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is damaged, or no cell has several rows with a reward, or several have.
    """
    name, mark, asked = path.name.rpartition("#")
    if not (mark and asked.isdigit()):
        name, asked = path.name, ""
    file = path.with_name(name)
    outputs = _outputs(file)
    if asked:
        if asked not in outputs:
            there = ", ".join(outputs)
            raise UserError(f"cell {asked} of {file} has no output: cells {there} have")
        return f"{name}, cell {asked}", outputs[asked]
    examined = _with(outputs, "reward") or _with(outputs, "accuracy")
    trained = _with({cell: outputs[cell] for cell in examined}, "policy_loss") or examined
    if not trained:
        raise UserError(
            f"no cell of {file} printed a reward in several steps: expected the output of "
            "training, saved with the notebook. A table of losses alone says too little: show "
            "trainer.state.log_history, or name outputs/checkpoint-…/trainer_state.json"
        )
    if len(trained) > 1:
        several = ", ".join(f"{path}#{number}" for number in trained)
        raise UserError(f"several cells of {file} show a training: name one of {several}")
    return f"{name}, cell {trained[0]}", outputs[trained[0]]


def _outputs(file: Path) -> dict[str, str]:
    """What each cell printed and showed, by the number of the cell, from 1 on."""
    found = {
        str(number): _text(cell.get("outputs") or [])
        for number, cell in enumerate(notebooks.cells(file), start=1)
    }
    return {number: text for number, text in found.items() if text.strip()}


def _text(outputs: Sequence[Mapping[str, Any]]) -> str:
    """The tables of a cell where they have a reward, and else all that it printed and showed."""
    texts, tables = [], []
    for output in outputs:
        shown = output.get("data") or {}
        if rows := _rows(_joined(shown.get("text/html"))):
            tables.append(rows)
        said = rows or _joined(output.get("text") or shown.get("text/plain"))
        # a stream may be stored in parts, which end within a line
        texts.append(said if output.get("output_type") == "stream" else f"\n{said}\n")
    alone = "\n".join(tables)
    return alone if _with({"": alone}, "reward") else "".join(texts)


def _joined(text: Any) -> str:
    """A text of a notebook, which may be a list of lines; nothing of another kind."""
    lines = text if isinstance(text, list) else [text]
    return "".join(line for line in lines if isinstance(line, str))


def _with(outputs: Mapping[str, str], name: str) -> list[str]:
    """The cells whose output has this number in several rows."""
    rows = {cell: map(log_lines.measured, log_lines.rows(text)) for cell, text in outputs.items()}
    return [cell for cell in rows if sum(name in translated(row) for row in rows[cell]) >= SEVERAL]


def _rows(html: str) -> str:
    """The rows of a page's tables, with tabs between the cells."""
    parser = _Rows()
    parser.feed(html)
    return "\n".join("\t".join(" ".join(cell.split()) for cell in row) for row in parser.rows)


class _Rows(HTMLParser):
    """Gathers rows of tables, each a list of what stands in its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a row, or a cell of it."""
        if tag == "tr":
            self.rows.append([])
            self.within = False
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
            self.within = True

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        self.within = self.within and tag not in ("td", "th", "table")

    def handle_data(self, data: str) -> None:
        """Read on in a cell."""
        if self.within:
            self.rows[-1][-1] += data
