"""How a chapter ends on the site: with its first exercise, and a button to the others.

The exercise stands below the chapter's own words on its exercises, taken from the sheet when the
site is built. Where a page can check answers, `classroom.page_python` puts its editor in; elsewhere
a line says where the check is.
"""

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ENDS = re.compile(r"^## Exercises$.*?(?=^## |\Z)", re.M | re.S)
EXERCISE = re.compile(r"^## Exercise [\d.]+ · (?P<title>.+)\n\n`(?P<name>[\w-]+)`.*\n\n")
CHECK = re.compile(r"^sheet\.check\(", re.M)
STUB = "raise NotImplementedError"
HERE = "nb-answer-here"  # where an answer can be typed
PLACE = (
    f'<div class="{HERE}" data-exercise="{{name}}"><p>Answer it in the notebook of '
    '<a href="exercises/{sheet}.html">the sheet</a>, whose check says what is right, or which '
    "mistake is likely.</p></div>"
)
BUTTON = '<a class="nb-button" href="exercises/{sheet}.html">All {number} exercises</a>'
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def add(book: Path) -> None:
    """Give each chapter of a book that has a sheet its ending; the book is a copy to build from."""
    for path in sorted((book / "exercises").glob("*.ipynb")):
        chapter = book / path.name
        if chapter.exists():
            notebook = nbformat.read(chapter, as_version=4)
            if add_to(notebook, nbformat.read(path, as_version=4), path.stem):
                nbformat.write(notebook, chapter)


def add_to(chapter: NotebookNode, sheet: NotebookNode, name: str) -> bool:
    """Put the first exercise of a sheet below the heading of a chapter's exercises.

    Returns:
        Whether the chapter has that heading, and the sheet an exercise with a check.
    """
    places = [i for i, cell in enumerate(chapter.cells) if ENDS.search(cell.source)]
    starts = [i for i, cell in enumerate(sheet.cells) if EXERCISE.match(cell.source)]
    if not places or not starts:
        return False
    first = sheet.cells[starts[0] : starts[1] if len(starts) > 1 else None]
    if not any(CHECK.search(cell.source) for cell in first):
        return False
    text, cell = ending(first, name, len(starts)), chapter.cells[places[0]]
    cell.source = ENDS.sub(lambda said: f"{said[0].rstrip()}\n\n{text}\n\n", cell.source)
    return True


def ending(exercise: list[NotebookNode], sheet: str, number: int) -> str:
    """The text of an exercise, its code as text, and the button to all `number` of its sheet."""
    head = EXERCISE.match(exercise[0].source)
    assert head is not None
    title = head["title"][0].lower() + head["title"][1:]
    parts = [f"### Check yourself: {title}", exercise[0].source[head.end() :]]
    for cell in exercise[1:]:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif STUB in cell.source:
            parts.append(PLACE.format(name=head["name"], sheet=sheet))
        elif not CHECK.search(cell.source):
            parts.append(f"```python\n{cell.source}\n```")
    many = NUMBERS[number] if number < len(NUMBERS) else str(number)
    return "\n\n".join([*parts, BUTTON.format(sheet=sheet, number=many)])
