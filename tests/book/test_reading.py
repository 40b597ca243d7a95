"""A chapter that was only run is saved as it was; an edited one as it is."""

from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from nbcourse.publishing import reading, stored


def chapter(prose: str = "One."):
    shown = [new_output("stream", text="1")]
    cells = [new_markdown_cell(prose), new_code_cell("x", execution_count=1, outputs=shown)]
    return stored.tidy(new_notebook(cells=cells))


def ran_in_jupyterlab(notebook):
    """Other outputs, prompts and times, and a kernel with a version."""
    notebook.metadata["language_info"]["version"] = "3.11.7"
    notebook.cells[1].execution_count = 17
    notebook.cells[1].outputs = []
    notebook.cells[1].metadata["execution"] = {"iopub.status.busy": "today"}
    return notebook


def saved(notebook, folder, kind: str = "notebook"):
    """What is saved of `notebook` over one.ipynb of `folder`."""
    model = {"type": kind, "content": notebook}
    manager = SimpleNamespace(root_dir=str(folder))
    reading.keep_what_was_only_run(model=model, path="one.ipynb", contents_manager=manager)
    return model["content"]


def test_what_was_only_run_is_saved_as_it_was(tmp_path):
    stored.write(chapter(), tmp_path / "one.ipynb")
    before = (tmp_path / "one.ipynb").read_text("utf-8")
    kept = saved(ran_in_jupyterlab(chapter()), tmp_path)
    assert stored.nbformat.writes(stored.nbformat.from_dict(kept)) + "\n" == before


@pytest.mark.parametrize(
    "here",
    [chapter("Another."), ran_in_jupyterlab(chapter()), None],
    ids=["edited now", "edited before", "new"],
)
def test_what_was_edited_is_saved_as_it_is(tmp_path, here):
    if here is not None:
        stored.nbformat.write(here, tmp_path / "one.ipynb")
    mine = ran_in_jupyterlab(chapter())
    assert saved(mine, tmp_path) is mine


def test_a_text_is_saved_as_it_is(tmp_path):
    assert saved("x", tmp_path, kind="file") == "x"
