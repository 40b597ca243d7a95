"""What students get: complete, the same bytes every time, without solutions, their own numbers."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from nbcourse.checks import Sheet
from nbcourse.classroom import leaks
from nbcourse.classroom.exercises import student_version
from nbcourse.classroom.leaks import Leak
from nbcourse.classroom.release import assignments, with_variant, write_bundles
from nbcourse.classroom.variants import variant_of
from nbcourse.publishing.chapters import ROOT
from tests.checks import masters
from tests.effort import swept

EVERY = [path.stem for path in assignments()]
pytestmark = masters.needed


@pytest.mark.parametrize("assignment", swept(EVERY, keep=EVERY[:1]))
def test_a_bundle_runs_by_itself_far_from_the_book(assignment, tmp_path):
    (bundle,) = write_bundles(assignment, tmp_path)
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
    # Its own copy of the checks is found first, since Python looks in the folder it is started in.
    script = (
        "import nbformat, nbcourse, os\n"
        "from nbcourse.checks.attempt import NotYet\n"
        "assert nbcourse.__file__.startswith(os.getcwd())\n"
        f"for cell in nbformat.read('{assignment}.ipynb', as_version=4).cells:\n"
        "    if cell.cell_type == 'code':\n"
        "        try:\n"
        "            exec(cell.source)\n"
        "        except NotYet as wrong:\n"
        "            print(wrong)\n"
        "        except NotImplementedError:  # a cell to be filled that holds no function\n"
        "            assert cell.source == 'raise NotImplementedError'\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / assignment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("Not implemented yet") == len(Sheet(assignment).exercises)


def test_a_bundle_is_the_same_bytes_every_time(tmp_path):
    (first,) = write_bundles("2", tmp_path / "a")
    (second,) = write_bundles("sequences", tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["02-sequences.zip"]


def test_personal_bundles_differ_in_the_variant_and_its_cases_and_in_nothing_else(tmp_path):
    bundles = [*write_bundles("2", tmp_path, students=["ada", "bob"])]
    assert [b.relative_to(tmp_path).as_posix() for b in bundles] == [
        "02-sequences/ada.zip",
        "02-sequences/bob.zip",
    ]
    texts = []
    for bundle, student in zip(bundles, ("ada", "bob"), strict=True):
        with zipfile.ZipFile(bundle) as archive:
            texts.append({name: archive.read(name).decode() for name in archive.namelist()})
        (variant,) = re.findall(r"variant=(\d+)", texts[-1]["02-sequences/02-sequences.ipynb"])
        assert int(variant) == variant_of(student, "02-sequences")
    assert {name for name in texts[0] if texts[0][name] != texts[1][name]} == {
        "02-sequences/02-sequences.ipynb",
        "02-sequences/nbcourse/checks/sequences.py",
    }


def test_variants_depend_on_student_and_assignment():
    variants = [variant_of(f"s{i}", a) for i in range(200) for a in ("02-x", "03-y")]
    assert len(set(variants)) > 395  # out of a million
    assert 0 not in variants


@pytest.mark.parametrize("assignment", EVERY)
def test_a_variant_changes_the_numbers(assignment):
    sheets = [Sheet(assignment, variant=variant) for variant in range(12)]
    own = [name for name, exercise in sheets[0].exercises.items() if exercise.numbers]
    assert own
    for name in own:
        assert len({str(sheet.numbers(name)) for sheet in sheets}) >= 4


def test_a_leak_stops_the_release_and_leaves_nothing(tmp_path, monkeypatch):
    line = "in front, and does it still depend on"
    monkeypatch.setattr(
        leaks, "secrets", lambda root: leaks.Secrets({"".join(line.split()): "02, x"}, {})
    )
    # the hint's text stands in for a solution
    notebook = (ROOT / "book" / "exercises" / "02-sequences.ipynb").read_text(encoding="utf-8")
    planted = notebook.replace("is the answer; the chapter", line)
    assert planted != notebook
    root = tmp_path / "root"
    (root / "book" / "exercises").mkdir(parents=True)
    (root / "book" / "exercises" / "02-sequences.ipynb").write_text(planted, encoding="utf-8")
    for name in ("LICENSE", "nbcourse", "solutions"):
        (root / name).symlink_to(ROOT / name)
    with pytest.raises(Leak, match="02, x"):
        list(write_bundles("2", tmp_path / "out", root=root))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["", "../ada", "a/b", ".ada", "a:b", "x\0"])
def test_a_name_that_is_no_file_name_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        list(write_bundles("2", tmp_path / "out", students=["ada", name]))
    assert not (tmp_path / "out").exists()


def test_an_unknown_assignment_is_said_with_those_that_exist(tmp_path):
    with pytest.raises(ValueError, match="02-sequences"):
        list(write_bundles("99", tmp_path))


def test_without_the_master_nothing_is_released(tmp_path):
    (tmp_path / "book").symlink_to(ROOT / "book")
    with pytest.raises(FileNotFoundError, match=r"solutions/02-sequences.ipynb is missing"):
        list(write_bundles("2", tmp_path / "out", root=tmp_path))


def test_a_notebook_without_its_locked_cell_cannot_be_made_personal():
    with pytest.raises(ValueError, match="0 times"):
        with_variant("sheet = Sheet('02-sequences')", 5)


@pytest.mark.parametrize(
    ("source", "graded", "complaint"),
    [
        ("def f():\n    ### BEGIN SOLUTION\n    return 1", False, "no end solution statement"),
        ("### BEGIN HIDDEN TESTS\nassert True", True, "No end hidden tests statement"),
    ],
)
def test_an_open_region_is_refused_and_never_released(source, graded, complaint):
    cell = nbformat.v4.new_code_cell(source)
    cell.metadata["nbgrader"] = {
        "schema_version": 3, "grade_id": "x", "solution": not graded, "grade": graded,
        "locked": graded, "points": 1, "task": False, "cell_type": "code",
    }  # fmt: skip
    with pytest.raises(ValueError, match=complaint):
        student_version(nbformat.v4.new_notebook(cells=[cell]))


def test_the_instructions_name_the_file_that_is_there(tmp_path):
    (bundle,) = write_bundles("2", tmp_path)
    with zipfile.ZipFile(bundle) as archive:
        readme = archive.read("02-sequences/README.md").decode()
        assert "02-sequences.ipynb" in readme
        assert readme.startswith("# Exercises for chapter 2")
        assert all(Path(name).parts[0] == "02-sequences" for name in archive.namelist())
