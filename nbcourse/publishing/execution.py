"""Run a chapter from top to bottom in a fresh kernel, without a browser."""

import os
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from nbcourse.installation import FOR_PHONES
from nbcourse.publishing import drawings, stored

CELL_TIMEOUT = 600  # seconds: ends an endless loop, and no cell of the book comes near it


class CellFailed(Exception):
    """A cell raised, ran out of time or lost its kernel. The message says where and why."""


def execute(
    notebook: NotebookNode,
    *,
    folder: Path,
    timeout: float = CELL_TIMEOUT,
    on_cell: Callable[[int], None] = lambda prompt: None,
    for_phones: bool = False,
) -> NotebookNode:
    """An executed copy of `notebook`; its code sees `folder` as the working directory.

    `on_cell` is told the number of each code cell (1, 2, …) before the cell runs. With
    `for_phones`, figures bring a second drawing in their metadata.
    """
    executed = deepcopy(notebook)
    code_cells = stored.code_cells(executed)
    running = 0

    def on_cell_execute(cell: NotebookNode, cell_index: int) -> None:
        nonlocal running
        running += 1
        on_cell(running)

    client = NotebookClient(
        executed,
        kernel_name="python3",
        timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        on_cell_execute=on_cell_execute,
    )
    try:
        client.execute(
            transport_encryption="auto",  # else the kernel warns of plain text
            env=os.environ | ({FOR_PHONES: "1"} if for_phones else {}),
        )
    except CellExecutionError as error:
        source = code_cells[running - 1].source
        raise CellFailed(
            f"cell [{running}], {_failing_line(source, error.traceback)}\n"
            f"{error.ename}: {error.evalue}".rstrip(": ")
        ) from error
    except CellTimeoutError as error:
        raise CellFailed(f"cell [{running}] was still running after {timeout:g} seconds") from error
    except DeadKernelError as error:
        raise CellFailed(f"cell [{running}] ended its kernel (out of memory?)") from error
    if for_phones:
        for _, held in drawings.for_phones(executed):
            held.phone = drawings.smaller(held.phone)
    return executed


def _failing_line(source: str, traceback: str) -> str:
    """Where in the cell it happened: `line 3: x = 1 / 0`."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", traceback)
    # The outermost frame is the cell's own; frames of functions of earlier cells come after it.
    found = re.search(r"Cell In\[\d+\], line (\d+)", plain)
    number = int(found.group(1)) if found else 1
    return f"line {number}: {source.splitlines()[number - 1].strip()}"


def run(chapter: Path, *, write: bool = False) -> None:
    """Execute a chapter with a progress bar; with `write`, store the outputs in its file.

    A failing cell raises CellFailed and leaves the file as it was.
    """
    notebook = stored.read(chapter)
    prompts = len(stored.code_cells(notebook))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("cell {task.fields[prompt]} of {task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task(chapter.stem, total=prompts, prompt=0)
        try:
            executed = execute(
                notebook,
                folder=chapter.parent,
                on_cell=lambda n: progress.update(task, completed=n - 1, prompt=n),
                for_phones=write,
            )
        except CellFailed as error:
            raise CellFailed(f"{chapter.name}: {error}") from error
        progress.update(task, completed=prompts)
    if write:
        stored.write(executed, chapter)
