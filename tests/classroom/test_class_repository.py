"""The repository of a class has the book and no answers, or it is not made at all."""

import subprocess
import sys
from pathlib import Path

import pytest

from nbcourse import repository
from nbcourse.classroom import class_repository, leaks
from nbcourse.classroom.leaks import Leak
from nbcourse.errors import UserError
from nbcourse.repository import ROOT
from tests.checks import masters
from tests.command import nbcourse, refused
from tests.effort import swept

SHEET = "nbcourse/checks/sequences.py"
pytestmark = masters.needed


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small book: one sheet, one chapter, and what is not for a class."""
    root = tmp_path / "root"
    copied = ("solutions/02-sequences.ipynb", "book/exercises/02-sequences.ipynb", "LICENSE")
    for name in (*copied, SHEET, "nbcourse/checks/attempt.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    (root / "tests").mkdir()
    (root / "tests" / "test_x.py").write_text("assert True")
    (root / ".env").write_text("PASSWORD=1")
    monkeypatch.setattr(repository, "tracked", lambda root: sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()
    ))  # fmt: skip
    return root


def test_everything_but_the_answers_is_published(root, tmp_path):
    done = class_repository.publish(tmp_path / "class", root)
    written = {p.relative_to(tmp_path / "class").as_posix()
               for p in (tmp_path / "class").rglob("*") if p.is_file()}  # fmt: skip
    assert written == {
        "LICENSE", "book/exercises/02-sequences.ipynb", SHEET, "nbcourse/checks/attempt.py"
    }  # fmt: skip
    assert done.files == len(written)
    assert done.left_out == (".env", "solutions/", "tests/")
    assert done.rewritten == (SHEET,)
    cases = (tmp_path / "class" / SHEET).read_text()
    assert "by_cases(" in cases
    assert "Case(" in cases
    assert leaks.scan([tmp_path / "class"], leaks.secrets(root)) == []


def test_a_solution_under_other_names_stops_it_before_anything_is_written(root, tmp_path):
    (root / "book" / "exercises" / "my-notes.md").write_text(
        "For the exam:\n\n```\ndef f(r, p):\n    eq = p[:, None] == p[None, :]\n"
        "    n = eq.sum(dim=1) - 1\n    t = torch.where(eq, r[None, :], 0).sum(dim=1)\n"
        "    return torch.where(n > 0, r - (t - r) / n.clamp(min=1), 0)\n```\n"
    )
    with pytest.raises(Leak, match=r"my-notes\.md: the code of 02-sequences, unequal-groups"):
        class_repository.publish(tmp_path / "class", root)
    assert not (tmp_path / "class").exists()


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    assert "is not empty" in refused("publish-class", tmp_path)


def test_without_git_nothing_says_what_to_publish(tmp_path):
    with pytest.raises(UserError, match="git tracks no files in"):
        class_repository.publish(tmp_path / "class", tmp_path)


def test_only_files_that_git_knows_are_tracked(tmp_path):
    for name in ("known.md", "über.md", "gone.md", "private.md"):
        (tmp_path / name).write_text("x")
    for command in (["init", "-q"], ["add", "known.md", "über.md", "gone.md"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "gone.md").unlink()
    assert sorted(repository.tracked(tmp_path)) == ["known.md", "über.md"]


@pytest.mark.parametrize("whole", swept([False, True], keep=[False]))
def test_the_book_s_own_repository_is_published_without_an_answer(whole, tmp_path):
    """The real one takes half a minute, so `make test` only asks what would be in it."""
    names = repository.tracked()
    tops = {Path(name).parts[0] for name in names}
    assert {*class_repository.PUBLISHED} <= tops
    assert {"solutions", "tests"} <= tops - {*class_repository.PUBLISHED}
    if not whole:
        return
    folder = tmp_path / "class"
    told = nbcourse("publish-class", folder)
    assert "left out: " in told
    assert "solutions/" in told
    assert not {"solutions", "tests", ".git"} & {path.name for path in folder.iterdir()}
    text = "\n".join(
        path.read_text("utf-8") for path in (folder / "nbcourse" / "checks").glob("*.py")
    )
    assert "### BEGIN" not in text
    script = (
        "from nbcourse.checks import Sheet; import nbcourse, os; "
        "assert nbcourse.__file__.startswith(os.getcwd()); "
        "Sheet('02-sequences').check('mend-the-groups', "
        "lambda r, g: r.view(-1, g).mean(1).repeat_interleave(g))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mend-the-groups: right" in done.stdout
