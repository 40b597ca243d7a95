"""A notebook and its text twin: `book/NAME.ipynb` has outputs, `book/text/NAME.md` is for writing.

A chapter has both, and so has the master of an exercise sheet, in `solutions/`.

The twin is MyST Markdown. Conversion is explicit and goes in one direction at a time: which of the
two is newer is for the author to say, since modification times do not survive a git checkout.

The text has labels where the notebook has numbers: see `numbering`.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

from nbcourse.errors import UserError
from nbcourse.publishing import chapters, numbering, stored
from nbcourse.publishing.chapters import notebook_of, text_of

FORMAT = "md:myst"
HEADER = (
    "kernelspec,jupytext.text_representation.extension,jupytext.text_representation.format_name"
)
# The metadata of a cell of an exercise, as jupytext writes it.
NBGRADER = re.compile(r"^---\nnbgrader:\n((?:  .+\n)+)((?:\w.*\n)*)---\n", re.MULTILINE)


def notebooks(folder: Path) -> list[Path]:
    """Every notebook that a folder has, or has the text of, in reading order."""
    return sorted({*chapters.notebooks(folder), *map(notebook_of, chapters.texts(folder))})


def to_text(notebook: Path) -> Path:
    """Write the twin of a notebook and return its path."""
    text = text_of(notebook)
    text.parent.mkdir(exist_ok=True)
    text.write_text(as_text(stored.read(notebook)), encoding="utf-8")
    return text


def to_notebook(text: Path) -> Path:
    """Write the notebook of a twin and return its path.

    The outputs of the notebook in place are kept as long as no code cell has changed: then they
    are still what the code prints. Otherwise they are dropped, and a run brings them back.
    """
    notebook = notebook_of(text)
    fresh = read_text(text)
    if notebook.exists():
        fresh = _with_outputs(fresh, stored.read(notebook))
    stored.write(fresh, notebook)
    return notebook


def carry(chapter: str | None, *, towards_text: bool) -> Iterator[Path]:
    """Write the twin of a chapter, or of every chapter, and yield the path of each."""
    sources, convert = (
        (chapters.notebooks, to_text) if towards_text else (chapters.texts, to_notebook)
    )
    yield from map(convert, _chosen(chapter, sources(_folder(chapter))))


def differences(chapter: str | None) -> list[str]:
    """Where a chapter, or any chapter or master, differs from its twin: also if that is missing."""
    folders = [_folder(chapter)] if chapter else [chapters.BOOK, chapters.SOLUTIONS]
    pairs = _chosen(chapter, [one for folder in folders for one in notebooks(folder)])
    return [found for one in pairs if (found := difference(one))]


def _folder(chapter: str | None) -> Path:
    """Masters are named with their folder."""
    return chapters.SOLUTIONS if "solutions" in Path(chapter or "").parts else chapters.BOOK


def _chosen(chapter: str | None, sources: list[Path]) -> list[Path]:
    return sources if chapter is None else [chapters.find(chapter, sources)]


def difference(notebook: Path) -> str:
    """How a notebook differs from its text twin, as a diff; empty when the two agree.

    Only what an author writes is compared, and the numbers: cells, their kinds and their tags, not
    outputs.
    """
    text = text_of(notebook)
    for side in (notebook, text):
        if not side.exists():
            return f"{side.parent.name}/{side.name} is missing"
    lines = difflib.unified_diff(
        _written(read_text(text)).splitlines(),
        _written(stored.read(notebook)).splitlines(),
        fromfile=f"{text.parent.name}/{text.name}",
        tofile=f"{notebook.parent.name}/{notebook.name}",
        lineterm="",
        n=1,
    )
    return "\n".join(lines)


def read_text(text: Path) -> NotebookNode:
    """The notebook that a text stands for, numbered, without outputs.

    Raises:
        UserError: if a reference leads nowhere.
    """
    notebook = jupytext.reads(text.read_text(encoding="utf-8"), fmt=FORMAT)
    return numbering.numbered(notebook, text)


def as_text(notebook: NotebookNode) -> str:
    """The text that a notebook stands for, as MyST Markdown, with labels in place of numbers."""
    return _written(numbering.plain(stored.tidy(notebook)))


def _written(notebook: NotebookNode) -> str:
    """A notebook as MyST Markdown. Its header names no version, so that no update changes it.

    Raises:
        UserError: if a picture is pasted into a cell.
    """
    tidied = stored.tidy(notebook)
    for cell in tidied.cells:
        for follows_from_the_tags in ("jupyter", stored.COLLAPSED):
            cell.metadata.pop(follows_from_the_tags, None)
        if cell.get("attachments"):
            raise UserError(
                f"a cell holds a pasted picture ({', '.join(cell.attachments)}), which the text "
                "cannot hold: save it as a file beside the notebook, and show that"
            )
    tidied.metadata["jupytext"] = {"notebook_metadata_filter": HEADER}
    return NBGRADER.sub(_in_one_line, jupytext.writes(tidied, fmt=FORMAT))


def _in_one_line(metadata: re.Match[str]) -> str:
    """:nbgrader: {grade: true, points: 1}, where jupytext has a line for each entry."""
    entries, others = (lines.splitlines() for lines in metadata.groups())
    lines = [f"nbgrader: {{{', '.join(sorted(map(str.strip, entries)))}}}", *others]
    return "".join(f":{line}\n" for line in lines) + "\n"


def _with_outputs(fresh: NotebookNode, old: NotebookNode) -> NotebookNode:
    """`fresh` with the outputs of `old`, if the two have the same code."""
    cells, old_cells = stored.code_cells(fresh), stored.code_cells(old)
    if [cell.source for cell in cells] == [cell.source for cell in old_cells]:
        for cell, old_cell in zip(cells, old_cells, strict=True):
            cell.outputs = nbformat.from_dict(old_cell.outputs)
            cell.execution_count = old_cell.execution_count
    return fresh
