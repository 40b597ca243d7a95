"""A chapter that was only run is kept as it was, in Jupyter and by git; an edited one as it is."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen

import nbformat
import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from tornado.web import HTTPError

from nbcourse import installation
from nbcourse.publishing import chapters, reading, stored
from tests.browser import jupyterlab
from tests.command import nbcourse


def chapter(prose: str = "One."):
    shown = [new_output("stream", text="1")]
    cells = [new_markdown_cell(prose), new_code_cell("x", execution_count=1, outputs=shown)]
    return stored.tidy(new_notebook(cells=cells))


def ran(notebook):
    """As an editor saves it: other outputs, prompts and times, and a kernel with a version."""
    notebook.metadata["language_info"]["version"] = "3.11.7"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 17
            cell.outputs = [new_output("stream", text="2")]
            cell.metadata["execution"] = {"iopub.status.busy": "today"}
    return notebook


def from_colab(notebook):
    """Without a version, but not in stored form."""
    notebook.metadata = nbformat.from_dict({"language_info": {"name": "python"}})
    return notebook


def text(notebook) -> str:
    return nbformat.writes(notebook) + "\n"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path):
    """clone(one=…, two=…) → a repository with these notebooks in its only commit."""
    folder = tmp_path / "clone"

    def commit(**notebooks) -> Path:
        folder.mkdir()
        git(folder, "init", "--quiet")
        for name, notebook in notebooks.items():
            (folder / f"{name}.ipynb").write_text(text(notebook), encoding="utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message=Begin", "--allow-empty")
        return folder

    return commit


def saved(notebook, folder, kind: str = "notebook"):
    """What is saved of `notebook` over one.ipynb of `folder`."""
    model = {"type": kind, "content": notebook}
    manager = SimpleNamespace(root_dir=str(folder))
    reading.keep_what_was_only_run(model=model, path="one.ipynb", contents_manager=manager)
    return model["content"]


def test_what_was_only_run_is_saved_as_it_was(clone):
    assert text(nbformat.from_dict(saved(ran(chapter()), clone(one=chapter())))) == text(chapter())


OTHERS = {
    "edited now": chapter("Another."),
    "edited before": ran(chapter()),
    "not in stored form": from_colab(chapter()),
}


@pytest.mark.parametrize("here", OTHERS.values(), ids=OTHERS)
def test_what_was_edited_is_saved_as_it_is(clone, here):
    mine = ran(chapter())
    assert saved(mine, clone(one=here)) is mine


def test_what_git_does_not_track_is_saved_as_it_is(clone, tmp_path):
    mine = ran(chapter())
    folder = clone()
    assert saved(mine, folder) is mine
    for outside in (folder, tmp_path):
        (outside / "one.ipynb").write_text(text(chapter()), encoding="utf-8")
        assert saved(mine, outside) is mine


def test_a_text_is_saved_as_it_is(tmp_path):
    assert saved("x", tmp_path, kind="file") == "x"


@pytest.fixture
def replacing(tmp_path) -> AsyncLargeFileManager:
    """Jupyter's own manager of files, told to replace them."""
    manager = AsyncLargeFileManager(root_dir=str(tmp_path))
    reading.replace_files(manager)
    return manager


def test_who_reads_a_file_that_is_being_saved_finds_the_old_one(replacing, tmp_path):
    file, link = tmp_path / "one.ipynb", tmp_path / "link.ipynb"
    file.write_text("old", encoding="utf-8")
    file.chmod(0o640)
    link.symlink_to(file)
    with replacing.atomic_writing(str(link), encoding="utf-8") as stream:
        stream.write("new")
        stream.flush()
        assert link.read_text(encoding="utf-8") == "old"
    assert file.read_text(encoding="utf-8") == "new"
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_save_that_fails_leaves_the_old_file(replacing, tmp_path):
    file = tmp_path / "one.ipynb"
    file.write_text("old", encoding="utf-8")
    with pytest.raises(ValueError, match="no notebook"), replacing.atomic_writing(str(file)):
        raise ValueError("no notebook")
    assert file.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_is_written(replacing, tmp_path):
    with replacing.atomic_writing(str(tmp_path / "new"), text=False) as stream:
        stream.write(b"\0")
    assert (tmp_path / "new").read_bytes() == b"\0"


def test_a_file_that_cannot_be_replaced_is_written_in_place(replacing, tmp_path, monkeypatch):
    """As Windows keeps one that another program reads, and some folders all of theirs."""

    def refuse(*_: object) -> None:
        raise PermissionError

    file = tmp_path / "one.ipynb"
    file.write_text("old", encoding="utf-8")
    number = file.stat().st_ino
    monkeypatch.setattr(Path, "replace", refuse)
    with replacing.atomic_writing(str(file)) as stream:
        stream.write("nèw")
    assert file.read_text(encoding="utf-8") == "nèw"
    assert file.stat().st_ino == number
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_may_not_be_written_is_not_replaced(replacing, tmp_path, monkeypatch):
    file = tmp_path / "one.ipynb"
    file.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) == tmp_path)
    with (
        pytest.raises(HTTPError, match="Permission denied"),
        replacing.atomic_writing(str(file)) as stream,
    ):
        stream.write("new")
    assert file.read_text(encoding="utf-8") == "old"


def test_a_manager_that_keeps_no_files_is_left_alone():
    manager = SimpleNamespace()
    reading.replace_files(manager)
    assert manager == SimpleNamespace()


@pytest.mark.slow
def test_a_jupyter_of_the_environment_keeps_git_clean(clone, tmp_path):
    """Started without options; through Jupytext's contents manager, which it loads as well."""
    read = chapters.find("00-start-here")
    folder = clone(read=stored.read(read), written=chapter(), colab=from_colab(chapter()))
    shutil.copy(read, folder)
    assert (
        git(folder, "hash-object", read.name, "read.ipynb").split()[0]
        == git(folder, "rev-parse", ":read.ipynb").strip()
    )
    private = tmp_path / "private"
    private.mkdir()

    with jupyterlab.serve(folder, private) as address:

        def run_and_save(name: str, prose: str = "") -> None:
            url = f"{address}/api/contents/{name}.ipynb?token={jupyterlab.TOKEN}"
            notebook = ran(nbformat.from_dict(json.load(urlopen(url))["content"]))
            notebook.cells[0].source += prose
            body = json.dumps({"type": "notebook", "format": "json", "content": notebook})
            urlopen(Request(url, body.encode(), method="PUT")).close()

        number = (folder / "read.ipynb").stat().st_ino
        run_and_save("read")
        assert (folder / "read.ipynb").stat().st_ino != number  # replaced, not written in place
        assert git(folder, "status", "--porcelain", "--", "read.ipynb") == ""
        run_and_save("written", prose=" Mine.")
        run_and_save("colab")
    changed = git(folder, "diff", "--name-only").split()
    assert changed == ["colab.ipynb", "written.ipynb"]


def test_a_jupyter_without_the_package_starts_all_the_same(tmp_path, monkeypatch):
    reading.enable(tmp_path)
    file = tmp_path / installation.SAVING
    config = file.read_text(encoding="utf-8").replace("nbcourse.publishing.reading", "gone.reading")
    file.write_text(config, encoding="utf-8")
    monkeypatch.setattr(reading, "enable", lambda environment: None)
    private = tmp_path / "private"
    private.mkdir()
    shutil.copytree(tmp_path / "etc", private / "environment" / "etc")
    with jupyterlab.serve(tmp_path, private):
        pass
    assert "gone" in (private / "log").read_text(encoding="utf-8")


def test_the_environment_is_told_by_a_command(tmp_path, monkeypatch, capsys):
    """By `make` (tests/book/test_make.py), on Binder, and by readers without make."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delitem(sys.modules, reading.__name__)
    runpy.run_module("nbcourse.publishing.reading", run_name="__main__")
    file = tmp_path / installation.SAVING
    assert file.read_text(encoding="utf-8") == reading.enable(tmp_path / "b").read_text("utf-8")
    settings = json.loads((tmp_path / reading.SETTINGS).read_text("utf-8"))
    assert settings["@jupyterlab/docmanager-extension:plugin"]["autosaveInterval"] <= 5
    assert str(file) in capsys.readouterr().out
    for told in (".binder/postBuild", "README.md"):
        assert "python -m nbcourse.publishing.reading\n" in re.sub(
            r" +# .*", "", (chapters.ROOT / told).read_text(encoding="utf-8")
        )


# ---------------------------------------------------------------- other editors


def test_what_another_editor_only_ran_is_put_back(clone):
    folder = clone(one=chapter())
    (folder / "one.ipynb").write_text(text(ran(chapter())), encoding="utf-8")
    assert reading.put_back(folder) == ["one.ipynb"]
    assert git(folder, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "mine",
    [text(ran(chapter("Another."))), text(stored.tidy(ran(chapter()))), "no notebook", "[]"],
    ids=["edited", "stored by make chapters", "no JSON", "no notebook"],
)
def test_what_was_edited_or_stored_is_not_put_back(clone, mine):
    folder = clone(one=chapter())
    (folder / "one.ipynb").write_text(mine, encoding="utf-8")
    assert reading.put_back(folder) == []
    assert (folder / "one.ipynb").read_text(encoding="utf-8") == mine


def test_nothing_is_put_back_without_git(tmp_path):
    (tmp_path / "one.ipynb").write_text(text(ran(chapter())), encoding="utf-8")
    assert reading.put_back(tmp_path) == []


def test_put_back_says_what_it_did(monkeypatch):
    monkeypatch.setattr(reading, "put_back", lambda: ["book/one.ipynb"])
    assert nbcourse("put-back") == "book/one.ipynb\n"
    monkeypatch.setattr(reading, "put_back", lambda: [])
    assert nbcourse("put-back") == "No notebook was only run.\n"
