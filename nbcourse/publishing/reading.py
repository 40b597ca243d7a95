"""Reading leaves no trace: a chapter that was only run is saved as the book has it.

An editor that runs a chapter saves it with its own prompts and metadata, and everything that prints
a time with another one: `git status` would show every chapter that was read, and `git pull` would
refuse its next edition. `make lab` therefore gives JupyterLab `keep_what_was_only_run` as the hook
that it calls before it saves. Nothing is lost: what the cells print is what the book has stored.
"""

import json
from pathlib import Path
from typing import Any


def keep_what_was_only_run(*, model: dict[str, Any], path: str, contents_manager: Any) -> None:
    """Save the file on the disk again, if it is in stored form and no cell of it was edited.

    Args:
        model: what JupyterLab is about to save, changed in place.
        path: where, below the folder that is served.
        contents_manager: JupyterLab's, which knows that folder.
    """
    if model["type"] != "notebook":
        return
    file = Path(contents_manager.root_dir) / path
    here = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    if here is not None and _is_stored(here) and _cells(here) == _cells(model["content"]):
        model["content"] = here


def _is_stored(notebook: dict[str, Any]) -> bool:
    """Editors note the kernel's version, which the stored form does not have; see `stored`."""
    return "version" not in notebook["metadata"].get("language_info", {})


def _cells(notebook: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """What a reader could have changed: kinds, sources and tags."""
    return [
        (cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("tags"))
        for cell in notebook["cells"]
    ]
