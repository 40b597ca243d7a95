"""JupyterLab as a book: its pages look like one, and reading leaves no trace.

A chapter that was only run is kept as the book has it.

An editor that runs a chapter saves it with its own prompts and metadata, and everything that prints
a time with another one: `git status` would show every chapter that was read, and `git pull` would
refuse its next edition. Nothing is lost by not saving that: what the cells print is what the book
has stored. Notebooks in another form than `stored` writes are saved as they are, and so is what git
does not track.

Jupyter's servers load this module as an extension where their environment says so, and `python -m
nbcourse.publishing.reading` makes it say so; a server that cannot import it notes that and starts
without. Editors that save by themselves, such as VS Code, cannot be told: `nbcourse put-back` puts
back afterwards what was only run.

JupyterLab saves by itself every few seconds, so that it has no question to ask when a chapter is
closed, and takes the looks of `lab/custom.css`. A reader's own style sheet and settings come first.
So that it has none to ask while it saves either, files are replaced, and not written in place.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from nbcourse import durable, repository
from nbcourse.installation import SAVING
from nbcourse.publishing import stored

LOOKS = Path(__file__).parent / "lab"
SETTINGS = Path("etc", "jupyter", "labconfig", "default_setting_overrides.d", "nbcourse.json")
SECONDS = 3  # between a change and its saving


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(server: Any) -> None:
    for lab in server.extension_manager.extension_apps.get("jupyterlab", ()):
        lab.custom_css = True


def _load_jupyter_server_extension(server: Any) -> None:
    server.contents_manager.register_pre_save_hook(keep_what_was_only_run)
    replace_files(server.contents_manager)
    server.static_custom_path.append(str(LOOKS))  # JupyterLab looks for custom.css along this path


def keep_what_was_only_run(*, model: dict[str, Any], path: str, contents_manager: Any) -> None:
    """Save the file on the disk again, if git tracks it and it was only run; a hook for Jupyter.

    Args:
        model: what JupyterLab is about to save, changed in place.
        path: where, below the folder that is served.
        contents_manager: JupyterLab's, which knows that folder.
    """
    if model["type"] != "notebook":
        return
    file = Path(contents_manager.root_dir) / path
    if repository.is_tracked(file):
        here = json.loads(file.read_text(encoding="utf-8"))
        if was_only_run(model["content"], kept=here):
            model["content"] = here


def replace_files(contents_manager: Any) -> None:
    """Make Jupyter write a file beside the old one, and put it into its place when it is whole.

    Jupyter empties a file and then writes into it. Whatever reads the file meanwhile finds another
    one than it saved: JupyterLab, where a reader saves just as it saves by itself, asks whether to
    overwrite "changes on disk", and Jupyter brings its copy back, so that what is being written is
    lost.
    """
    in_place = getattr(contents_manager, "atomic_writing", None)
    if in_place is None:  # it keeps no files
        return

    @contextmanager
    def writing(path: str, text: bool = True, encoding: str = "utf-8") -> Iterator[IO[Any]]:
        stream: Any = StringIO() if text else BytesIO()
        yield stream
        content = stream.getvalue().encode(encoding) if text else stream.getvalue()
        if not _replaced(Path(path).resolve(), content):  # a link stays one
            with in_place(path, text=False) as file:
                file.write(content)

    contents_manager.atomic_writing = writing


def _replaced(old: Path, content: bytes) -> bool:
    """Whether a file could be replaced: its folder, or who else reads it, may not allow that."""
    if old.exists() and not os.access(old, os.W_OK):
        return False
    new = old.with_name(f".{uuid4().hex}-{old.name}")
    try:
        with new.open("wb") as stream:
            stream.write(content)
            durable.sync(stream)
        if old.exists():
            shutil.copymode(old, new)
        new.replace(old)
    except OSError:
        return False
    finally:
        new.unlink(missing_ok=True)
    return True


def put_back(root: Path = repository.ROOT) -> list[str]:
    """Write the notebooks that were only run, and saved by some other editor, as git has them.

    What is in stored form was written by `make chapters`, whose outputs are the new ones to keep.

    Returns:
        Their paths.
    """
    done = []
    for name, index in repository.changed("*.ipynb", root).items():
        try:
            here = json.loads((root / name).read_text(encoding="utf-8"))
            only_run = not _is_stored(here) and was_only_run(here, kept=json.loads(index))
        except (ValueError, KeyError, TypeError):  # no notebook
            continue
        if only_run:
            repository.restore(name, root)
            done.append(name)
    return done


def was_only_run(notebook: dict[str, Any], *, kept: dict[str, Any]) -> bool:
    """Whether a notebook has the cells of one that is kept in stored form."""
    return _is_stored(kept) and _cells(notebook) == _cells(kept)


def _is_stored(notebook: dict[str, Any]) -> bool:
    """Editors note the kernel's version, which the stored form does not have, and invent ids."""
    ids = [cell.get("id") for cell in notebook["cells"]]
    numbered = [stored.cell_id(position) for position in range(1, len(ids) + 1)]
    return notebook["metadata"] == stored.METADATA and ids == numbered


def _cells(notebook: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """What a reader could have changed: kinds, sources and tags."""
    return [
        (cell["cell_type"], "".join(cell["source"]), cell["metadata"].get("tags"))
        for cell in notebook["cells"]
    ]


def enable(environment: Path) -> Path:
    """Write the configuration that makes the Jupyter of an environment load this module.

    Returns:
        The file that names the module; one with JupyterLab's settings stands beside it.
    """
    extension = {"ServerApp": {"jpserver_extensions": {"nbcourse.publishing.reading": True}}}
    saving = {"@jupyterlab/docmanager-extension:plugin": {"autosaveInterval": SECONDS}}
    for name, config in ((SAVING, extension), (SETTINGS, saving)):
        file = environment / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return environment / SAVING


if __name__ == "__main__":
    print(f"Jupyter keeps chapters that were only run, by {enable(Path(sys.prefix))}")
