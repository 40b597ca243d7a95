"""The form in which a notebook is stored: nothing in it depends on when or where it ran.

Two authors who run the same chapter write the same file, so a diff shows what was changed.
"""

import re
from copy import deepcopy
from pathlib import Path

import nbformat
from nbformat import NotebookNode

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What a Python 3 kernel says of itself, less the version, which differs between machines.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "pygments_lexer": "ipython3"},
}
# What the site folds by a tag, JupyterLab folds by these.
FOLDED = {"hide-input": "source_hidden", "hide-output": "outputs_hidden"}
# The cell with the heading and gist of a section that goes deeper; JupyterLab folds what follows.
DEEPER, COLLAPSED = "deeper", "jp-MarkdownHeadingCollapsed"


def tidy(notebook: NotebookNode) -> NotebookNode:
    """A copy in stored form: numbered ids and prompts, no times, no versions, no widget state."""
    tidied = deepcopy(notebook)
    tidied.nbformat, tidied.nbformat_minor = 4, 5
    tidied.metadata = nbformat.from_dict(METADATA)
    prompt = 0
    for position, cell in enumerate(tidied.cells, start=1):
        cell.id = cell_id(position)
        cell.metadata.pop("execution", None)  # when it ran
        cell.metadata.pop("jupyter", None)
        cell.metadata.pop(COLLAPSED, None)
        tags = cell.metadata.get("tags", [])
        if DEEPER in tags:
            cell.metadata[COLLAPSED] = True
        if folded := {key: True for tag, key in FOLDED.items() if tag in tags}:
            cell.metadata["jupyter"] = folded
        if cell.cell_type == "code" and cell.execution_count is not None:
            prompt += 1
            cell.execution_count = prompt
            outputs = [_tidy_output(output, prompt) for output in cell.outputs]
            cell.outputs = [
                output
                for output in outputs
                if output.get("text") != ""
                and not output.get("data", {}).get("text/html", "").startswith("<progress")
            ]
    return tidied


def cell_id(position: int) -> str:
    """The id of a cell in stored form, by its position from 1."""
    return f"cell-{position:02}"


def _tidy_output(output: NotebookNode, prompt: int) -> NotebookNode:
    if output.output_type == "stream":  # a progress bar overwrites its own line
        below = r"\n[^\n]*\x1b\[A"  # a bar within another one, which then moves up again
        output.text = re.sub(r"[^\n]*\r", "", re.sub(below, "", output.text))
    if output.output_type == "execute_result":
        output.execution_count = prompt
    if "text/html" in output.get("data", {}):
        # A widget needs a kernel, and a stored page has none: there the HTML beside it takes over.
        output.data.pop(WIDGET_VIEW, None)
    return output


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells of a notebook that can be run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def read(path: Path) -> NotebookNode:
    """The notebook in a file."""
    return nbformat.read(path, as_version=4)


def write(notebook: NotebookNode, path: Path) -> None:
    """Write the stored form; the old file stays whole until the new one is complete."""
    tidied = tidy(notebook)
    nbformat.validate(tidied)
    unfinished = path.with_suffix(".unfinished")
    nbformat.write(tidied, unfinished)
    unfinished.replace(path)
