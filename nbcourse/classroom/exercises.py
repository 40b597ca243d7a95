"""From a master with solutions to the notebook that students get.

A master is written as text, `solutions/text/NAME.md`. From it come the master as a notebook,
`solutions/NAME.ipynb`, which nbgrader's tools accept, and `book/exercises/NAME.ipynb`, from which
solutions and hidden tests have been cut.
"""

from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

from nbcourse.errors import UserError
from nbcourse.publishing import stored, twins
from nbcourse.repository import ROOT

STUB = "raise NotImplementedError"


def generate(root: Path = ROOT) -> Iterator[Path]:
    """Write every master and student notebook from its text; yields each path once written.

    The same text makes the same bytes. A notebook whose text is gone is removed.
    """
    texts = sorted((root / "solutions" / "text").glob("*.md"))
    (root / "book" / "exercises").mkdir(exist_ok=True)
    for folder in (root / "solutions", root / "book" / "exercises"):
        for notebook in folder.glob("*.ipynb"):
            if notebook.stem not in {text.stem for text in texts}:
                notebook.unlink()
    for text in texts:
        master = stored.tidy(twins.read_text(text))
        versions = {
            root / "solutions" / f"{text.stem}.ipynb": master,
            root / "book" / "exercises" / f"{text.stem}.ipynb": student_version(master),
        }
        for target, version in versions.items():
            stored.write(version, target)
            yield target


def student_version(master: NotebookNode) -> NotebookNode:
    """A copy of a master without solutions, hidden tests and outputs, made by nbgrader's own steps.

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
        ClearSolutions(code_stub={"python": STUB}),
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
