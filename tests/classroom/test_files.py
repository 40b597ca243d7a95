"""Files are written whole or not at all, and an error names the path."""

import os
import resource
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from io import BytesIO

import pytest

from nbcourse.classroom import files
from nbcourse.errors import UserError


@contextmanager
def full_disk():
    """No file can get longer than ten bytes, as on a disk that is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        yield
    finally:  # before pytest writes again, perhaps into a file
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_replaced_as_a_whole(tmp_path):
    for content in ("first", b"second"):
        files.write_file(tmp_path / "a.json", content)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "second")]


def test_on_a_full_disk_the_old_file_stays_and_nothing_is_left_over(tmp_path):
    path = tmp_path / "a.json"
    files.write_file(path, "old")
    with pytest.raises(UserError, match=rf"^cannot write {path}: File too large$"), full_disk():
        files.write_file(path, "new " * 10)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "old")]


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "out").write_text("")
    for folder in ("out", "out/results", "out/a/b"):
        with pytest.raises(UserError, match=rf"^{tmp_path}/out is a file, expected a folder"):
            files.make_folder(tmp_path / folder)


def test_a_read_only_folder_is_named_before_work_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may do all
    with pytest.raises(UserError, match=rf"^the folder {tmp_path} is read-only"):
        files.make_folder(tmp_path)


def test_two_processes_that_write_a_file_leave_it_whole(tmp_path):
    program = (
        "import pathlib, sys; from nbcourse.classroom import files\n"
        "for _ in range(200): files.write_file(pathlib.Path(sys.argv[1]), sys.argv[2] * 100_000)"
    )
    path = tmp_path / "x"
    command = [sys.executable, "-c", program, str(path)]
    both = [subprocess.Popen([*command, letter]) for letter in "ab"]
    while any(one.poll() is None for one in both):
        if path.exists():
            text = path.read_text()
            assert (len(text), len(set(text))) == (100_000, 1)
    assert [one.returncode for one in both] == [0, 0]


def test_in_a_zip_programs_can_be_run_and_other_files_cannot():
    data = files.zipped({"run": "#!/bin/sh", "notes.txt": "a"}, programs=["run"])
    with zipfile.ZipFile(BytesIO(data)) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        assert archive.read("notes.txt") == b"a"
    assert modes == {"run": 0o755, "notes.txt": 0o644}
