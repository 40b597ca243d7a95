"""From a master with solutions to the notebook that students get.

A master is written as text, `solutions/text/NAME.md`. From it come the master as a notebook,
`solutions/NAME.ipynb`, which nbgrader's tools accept, and `book/exercises/NAME.ipynb`, from which
solutions and hidden tests have been cut.
"""

from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from nbcourse.classroom.masters import NOTHING_YET, STUB
from nbcourse.errors import NotFound, UserError
from nbcourse.publishing import chapters, stored, twins
from nbcourse.repository import ROOT


def generate(root: Path = ROOT) -> Iterator[Path]:
    """Write every master and student notebook from its text; yields each path once written.

    The same text makes the same bytes. A notebook whose text is gone is removed.

    Raises:
        NotFound: if there are no texts at all; nothing is removed then.
    """
    texts = chapters.texts(root / "solutions")
    if not texts:
        raise NotFound("solutions/text/ holds no exercises: are they in another repository?")
    students = root / "book" / "exercises"
    students.mkdir(exist_ok=True)
    names = {text.stem for text in texts}
    for notebook in [*chapters.notebooks(root / "solutions"), *chapters.notebooks(students)]:
        if notebook.stem not in names:
            notebook.unlink()
    for text in texts:
        master, path = twins.read_text(text), chapters.notebook_of(text)
        stored.write(master, path)
        yield path
        stored.write(student_version(master), students / path.name)
        yield students / path.name


def student_version(master: NotebookNode) -> NotebookNode:
    """A copy of a master without solutions, hidden tests and outputs, made by nbgrader itself.

    Raises:
        UserError: if a region is not closed, or a cell's nbgrader metadata contradict each other.
    """
    from nbgrader.preprocessors import (
        CheckCellMetadata,
        ClearHiddenTests,
        ClearOutput,
        ClearSolutions,
        ComputeChecksums,
        LockCells,
    )

    notebook = stored.tidy(master)
    steps = (
        LockCells(),
        ClearSolutions(code_stub={"python": STUB}, text_stub=NOTHING_YET),
        ClearHiddenTests(),
        ClearOutput(),
        CheckCellMetadata(),
        ComputeChecksums(),
    )
    for step in steps:
        try:
            notebook, _ = step.preprocess(notebook, {})
        except RuntimeError as error:
            raise UserError(f"{type(step).__name__} refuses the master: {error}") from error
    return notebook
