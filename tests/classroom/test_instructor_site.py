"""The instructors' pages: the book as it is, with the masters in place of the students' sheets."""

import pytest

from nbcourse.classroom import instructor_site
from nbcourse.publishing import site


@pytest.fixture
def book(tmp_path):
    """A book of one chapter and one sheet."""
    files = {
        "book/01-bandit.ipynb": "the chapter",
        "book/exercises/01-bandit.ipynb": "the sheet",
        "book/.ipynb_checkpoints/01-bandit.ipynb": "an editor's copy",
        "solutions/01-bandit.ipynb": "the master",
        "solutions/course/exam.md": "the exam",
        "_toc.yml": "the order",
        "_config.yml": "# a comment\ntitle: The book\nauthor: somebody\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_the_pages_are_built_from_the_book_and_the_masters(book, monkeypatch):
    """And beside `_build`, so that publishing that folder publishes no solution."""
    seen = {}

    def build(folder, *, root):
        paths = [path for path in root.rglob("*") if path.is_file()]
        seen.update({str(path.relative_to(root)): path.read_text("utf-8") for path in paths})
        return folder

    monkeypatch.setattr(site, "build", build)
    assert instructor_site.build(book) == book / "_instructor"
    assert seen == {
        "book/01-bandit.ipynb": "the chapter",
        "book/appendix-exam.md": "the exam",
        "book/exercises/01-bandit.ipynb": "the master",
        "_toc.yml": "the order",
        "_config.yml": "# a comment\ntitle: The book (instructors' edition)\nauthor: somebody\n",
    }
    sheet = book / "book" / "exercises" / "01-bandit.ipynb"
    assert sheet.read_text("utf-8") == "the sheet"  # the students' own is untouched


def test_where_there_are_no_masters_it_is_said(book):
    (book / "solutions" / "01-bandit.ipynb").unlink()
    with pytest.raises(FileNotFoundError, match="solutions/ holds no masters"):
        instructor_site.build(book)
