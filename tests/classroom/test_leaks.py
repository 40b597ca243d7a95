"""The scan finds a secret wherever it may hide, and nothing else."""

import zipfile
from html import escape

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from nbcourse.classroom import leaks
from tests.checks import masters

MASTER = """\
def mean_of_others(rewards):
    ### BEGIN SOLUTION
    everything = rewards.sum() + 0 * offset_for_later
    return (everything - rewards) / (len(rewards) - 1)
    ### END SOLUTION"""
TEST = """\
sheet.check("mean-of-others", mean_of_others)
### BEGIN HIDDEN TESTS
assert mean_of_others(torch.tensor([2.0, 8.0])).tolist() == [8.0, 2.0]
### END HIDDEN TESTS"""
LINE = "return (everything - rewards) / (len(rewards) - 1)"
HIDDEN_TEST = "assert mean_of_others(torch.tensor([2.0, 8.0])).tolist() == [8.0, 2.0]"


@pytest.fixture
def hidden(tmp_path):
    root = tmp_path / "root"
    for folder in ("book/text", "nbcourse", "solutions"):
        (root / folder).mkdir(parents=True)
    (root / "book" / "text" / "02-x.md").write_text("we add everything up")
    cells = [new_code_cell(MASTER), new_code_cell(TEST)]
    for cell, name in zip(cells, ("mean-of-others", "mean-of-others-check"), strict=True):
        cell.metadata["nbgrader"] = {"grade_id": name}
    nbformat.write(new_notebook(cells=cells), root / "solutions" / "02-x.ipynb")
    return leaks.secrets(root)


def test_secret_is_what_stands_in_the_regions_and_nowhere_else(hidden):
    assert set(hidden.lines.values()) == {"02-x, mean-of-others", "02-x, mean-of-others-check"}
    assert set(hidden.lines) == {
        "everything=rewards.sum()+0*offset_for_later",
        "".join(LINE.split()),
        "".join(HIDDEN_TEST.split()),
    }
    assert set(hidden.words) == {"offset_for_later", "tensor", "tolist"}  # "everything" is public


def as_notebook(line: str) -> bytes:
    return nbformat.writes(new_notebook(cells=[new_code_cell(f"x = 1\n{line}\n")])).encode()


def as_page(line: str) -> bytes:
    spans = "".join(f"<span>{escape(word)}</span> " for word in line.split())
    return f"<html><pre>{spans}</pre></html>".encode()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("notes.txt", str.encode),
        ("indented.py", lambda line: f"if True:\n        {line}  # so\n".encode()),
        ("sheet.ipynb", as_notebook),
        ("page.html", as_page),
        (
            "searchindex.js",
            lambda line: b'Search.setIndex({terms:{"offset_for_later":[1],"tolist":2}})',
        ),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_secret_is_found(tmp_path, hidden, name, write, zipped):
    for line in (LINE, HIDDEN_TEST):
        content = write(line)
        if zipped:
            with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
                archive.writestr(f"folder/{name}", content)
            with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
                archive.write(tmp_path / "inner.zip", "inner.zip")
            place = tmp_path / "outer.zip"
        else:
            place = tmp_path / name
            place.write_bytes(content)
        found = leaks.scan([place], hidden)
        assert found
        assert all(str(place) in leak and name in leak and "02-x" in leak for leak in found)


def test_a_whole_folder_is_searched(tmp_path, hidden):
    (tmp_path / "site" / "deep").mkdir(parents=True)
    (tmp_path / "site" / "deep" / "page.html").write_bytes(as_page(LINE))
    (tmp_path / "site" / "fine.html").write_bytes(as_page("def mean_of_others(rewards):"))
    (found,) = leaks.scan([tmp_path / "site"], hidden)
    assert found.endswith("deep/page.html: a line of 02-x, mean-of-others")


def test_pictures_and_other_bytes_do_no_harm(tmp_path, hidden):
    (tmp_path / "picture.png").write_bytes(bytes(range(256)) * 10)
    assert leaks.scan([tmp_path / "picture.png"], hidden) == []


@masters.needed
def test_the_masters_of_the_book_are_full_of_secrets_and_its_public_texts_hold_none():
    hidden = leaks.secrets()
    assert len(hidden.lines) > 30
    folder = leaks.ROOT / "book"
    assert leaks.scan([folder], hidden) == []
    assert leaks.scan([leaks.ROOT / "solutions"], hidden)
