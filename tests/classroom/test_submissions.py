"""The folders that learning platforms make, and zip files that mean no good."""

import io
import os
import subprocess
import zipfile

import pytest

from nbcourse.classroom import feedback, notebooks
from nbcourse.classroom.class_list import read_class_list
from nbcourse.classroom.notebooks import Unreadable
from nbcourse.classroom.results import SubmissionResult
from nbcourse.classroom.submissions import canvas_names, find_submissions, with_owners
from tests.classroom.a_class import zipped

NAME = "02-sequences"


def put(folder, *paths, content=b"{}"):
    for path in paths:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def found(folder):
    return {
        s.student: (s.user_id, s.late, s.notebook and s.notebook.path.name)
        for s in find_submissions(folder, NAME)
    }


def test_a_folder_for_each_student(tmp_path):
    put(tmp_path, "ada/02-sequences.ipynb", "bob/02-sequences.ipynb", "readme.txt")
    assert found(tmp_path) == {
        "ada": ("", False, "02-sequences.ipynb"),
        "bob": ("", False, "02-sequences.ipynb"),
    }


def test_nbgraders_folders(tmp_path):
    put(tmp_path, "ada/02-sequences/02-sequences.ipynb", "ada/01-bandit/01-bandit.ipynb")
    put(tmp_path, "ada/02-sequences/.ipynb_checkpoints/02-sequences-checkpoint.ipynb")
    assert found(tmp_path) == {"ada": ("", False, "02-sequences.ipynb")}


def test_canvass_flat_download(tmp_path):
    put(
        tmp_path,
        "doejane_12345_67890_02-sequences.ipynb",
        "roejohn_LATE_222_67891_02-sequences-1.ipynb",
        "poesam_333_67892_02-sequences.ipynb",
        "poesam_333_67893_02-sequences-2.ipynb",
        "poesam_333_67894_02-sequences-1.ipynb",
        "coxann_444_67895_my_own_name.ipynb",
        "doejane_555_67896_02-sequences.ipynb",
    )
    submissions = find_submissions(tmp_path, NAME)
    assert [(s.student, s.user_id, s.late, s.name) for s in submissions] == [
        ("coxann", "444", False, "coxann_444_67895_my_own_name.ipynb"),
        ("doejane_12345", "12345", False, "doejane_12345_67890_02-sequences.ipynb"),
        ("doejane_555", "555", False, "doejane_555_67896_02-sequences.ipynb"),
        ("poesam", "333", False, "poesam_333_67893_02-sequences-2.ipynb"),
        ("roejohn", "222", True, "roejohn_LATE_222_67891_02-sequences-1.ipynb"),
    ]
    assert len({s.key for s in submissions}) == 5


def test_moodles_folders(tmp_path):
    put(
        tmp_path,
        "Zoë Ó Brien_98765_assignsubmission_file_/02-sequences.ipynb",
        "Anna Maria Li_98766_assignsubmission_file_/02-sequences.ipynb",
        "Anna Maria Li_98767_assignsubmission_file/02-sequences.ipynb",
        "Anna_Maria Li_98768_assignsubmission_file/02-sequences.ipynb",  # no name from Moodle
    )
    submissions = find_submissions(tmp_path, NAME)
    assert [(s.student, s.user_id) for s in submissions] == [
        ("Anna Maria Li_98766", "98766"),  # two of one name are told apart
        ("Anna Maria Li_98767", "98767"),
        ("Anna_Maria Li_98768_assignsubmission_file", ""),
        ("Zoë Ó Brien", "98765"),
    ]
    assert submissions[3].key == "Zoë Ó Brien_98765"


@pytest.mark.parametrize(
    ("file", "readings"),
    [
        ("doejane_1_2_x.ipynb", [("doejane", False, "1", "2", "x.ipynb")]),
        ("doejane_LATE_1_2_my_x.ipynb", [("doejane", True, "1", "2", "my_x.ipynb")]),
        ("_1_2_x.ipynb", [("", False, "1", "2", "x.ipynb")]),
        ("LATE_1_2_x.ipynb", [("LATE", False, "1", "2", "x.ipynb")]),
        ("doejane_1_2_02_x.ipynb", [("doejane", False, "1", "2", "02_x.ipynb")]),  # no number
        (
            "eve_7_1_2_x.ipynb",
            [("eve", False, "7", "1", "2_x.ipynb"), ("eve_7", False, "1", "2", "x.ipynb")],
        ),
        ("anon_aB3x9_2_x.ipynb", []),
        ("02-sequences.ipynb", []),
    ],
)
def test_how_canvas_s_names_can_be_read(file, readings):
    assert canvas_names(file) == readings


def test_a_class_list_says_whose_a_submission_is_or_why_it_cannot(tmp_path):
    put(
        tmp_path / "in",
        "doejane_12345_67890_02-sequences.ipynb",
        "bob/02-sequences.ipynb",
        "roe_7_8_9_2_final.ipynb",
        "poesam_333_67892_02-sequences.ipynb",
        "ROE/02-sequences.ipynb",
        "roe/02-sequences.ipynb",
        "homework.ipynb",
    )
    (tmp_path / "class.csv").write_text(
        "Student,ID,SIS User ID,SIS Login ID,Section\n"
        "Doe Jane,12345,u1,jdoe,A\nRoe,7,u2,roe,A\nLi,333333,333,li,A\n"
    )
    submissions = with_owners(
        find_submissions(tmp_path / "in", NAME), read_class_list(tmp_path / "class.csv")
    )
    twice = "several are by one student: ROE, roe; keep only the one that counts"
    assert {s.key: (s.owner and s.owner.key, s.student, s.unmatched) for s in submissions} == {
        "doejane_12345": ("jdoe", "jdoe", ""),
        "bob": (None, "bob", "the class list has no 'bob'"),
        "roe_7_8_9_2_final.ipynb": (
            None,
            "roe_7_8_9_2_final.ipynb",
            "the name roe_7_8_9_2_final.ipynb can be read in two ways; rename the file",
        ),
        "poesam_333": (
            None,
            "poesam_333",
            "the class list has no student with Canvas's number 333",
        ),
        "ROE": (None, "ROE", twice),
        "roe": (None, "roe", twice),
        "homework.ipynb": (None, "homework.ipynb", "the class list has no 'homework.ipynb'"),
    }


def test_a_folder_and_a_file_of_one_name_do_not_share_a_result(tmp_path):
    put(tmp_path, "ada_1/02-sequences.ipynb", "ada_1_2_02-sequences.ipynb")
    submissions = find_submissions(tmp_path, NAME)
    assert len({s.key for s in submissions}) == len({s.student for s in submissions}) == 2
    assert [s.user_id for s in submissions] == ["1", ""]


def test_without_a_notebook_the_student_is_there_and_reads_why(tmp_path):
    put(tmp_path, "ada/notes.txt", "bob/broken.zip", "cid/a.ipynb", "cid/b.ipynb")
    problems = {s.student: s.problem for s in find_submissions(tmp_path, NAME)}
    assert problems["ada"] == "No notebook was handed in. What was: notes.txt."
    assert "broken.zip is damaged" in problems["bob"]
    assert "a.ipynb, b.ipynb" in problems["cid"]
    with pytest.raises(Unreadable, match="No notebook"):
        find_submissions(tmp_path, NAME)[0].read_bytes()


def test_a_download_that_is_still_packed_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "submissions.zip", "w") as archive:
        archive.writestr("ada/02-sequences.ipynb", b"{}")
    with pytest.raises(ValueError, match=r"submissions\.zip is a zip file: unpack it"):
        find_submissions(tmp_path / "submissions.zip", NAME)
    with pytest.raises(ValueError, match="unpacked"):
        find_submissions(tmp_path, NAME)


def test_a_folder_without_submissions_is_an_error_that_names_what_was_expected(tmp_path):
    put(tmp_path, "02-sequences.ipynb")
    with pytest.raises(ValueError, match=r"expected STUDENT/02-sequences\.ipynb"):
        find_submissions(tmp_path, NAME)


def test_a_notebook_in_a_zip_is_read_where_it_is(tmp_path):
    content = zipped(
        **{"homework/02-sequences.ipynb": b"one", "__MACOSX/._02-sequences.ipynb": b""}
    )
    put(tmp_path, "ada/handed-in.zip", "doejane_1_2_work.zip", content=content)
    before = sorted(tmp_path.rglob("*"))
    submissions = find_submissions(tmp_path, NAME)
    assert [(s.student, s.name, s.read_bytes()) for s in submissions] == [
        ("ada", "02-sequences.ipynb", b"one"),
        ("doejane", "02-sequences.ipynb", b"one"),
    ]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "member", ["../../02-sequences.ipynb", "/etc/02-sequences.ipynb", "C:\\02-sequences.ipynb"]
)
def test_a_path_that_leads_out_of_a_zip_leads_nowhere(tmp_path, member):
    put(tmp_path / "in", "ada/x.zip", content=zipped(**{member: b"one"}))
    (submission,) = find_submissions(tmp_path / "in", NAME)
    assert submission.read_bytes() == b"one"
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "ada", "x.zip"]


def test_of_a_zip_bomb_no_more_is_read_than_a_notebook_may_have(tmp_path):
    bomb = zipped(**{"02-sequences.ipynb": bytes(3 * notebooks.LARGEST_NOTEBOOK)})
    assert len(bomb) < 10**5
    put(tmp_path, "ada/x.zip", content=bomb)
    (submission,) = find_submissions(tmp_path, NAME)
    content = submission.read_bytes()
    assert len(content) == notebooks.LARGEST_NOTEBOOK + 1
    with pytest.raises(Unreadable, match="at most 20"):
        notebooks.read_cells(content)


def test_a_zip_of_very_many_files_is_looked_at_in_part(tmp_path):
    members = {f"{n}.ipynb": b"" for n in range(1500)}
    put(tmp_path, "ada/x.zip", content=zipped(**members))
    (submission,) = find_submissions(tmp_path, NAME)
    assert submission.notebook is None


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_zip_says_so_however_it_was_packed(tmp_path, packing):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        archive.writestr("02-sequences.ipynb", bytes(range(256)) * 8)
    content = bytearray(file.getvalue())
    content[60:90] = bytes(30)  # beyond the member's header
    put(tmp_path, "ada/x.zip", content=content)
    (submission,) = find_submissions(tmp_path, NAME)
    with pytest.raises(Unreadable, match=r"x\.zip is damaged"):
        submission.read_bytes()


def test_folders_in_folders_are_looked_at_in_part(tmp_path):
    put(tmp_path, "bob/02-sequences.ipynb")
    deep = tmp_path / "ada"
    try:
        for _ in range(1100):
            deep.mkdir()
            deep /= "d"
        assert [s.student for s in find_submissions(tmp_path, NAME) if s.notebook] == ["bob"]
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "ada"], check=True)  # too deep for shutil


@pytest.mark.parametrize(
    "names",
    [
        ("a?", "a*", "a", "a."),
        ("Rene\u0301", "Rene\u0300"),
        ("राम", "रीम"),
        ("a\udcff", "a\udcfe"),  # bytes that are no UTF-8
        ("a" * 250 + "b", "a" * 250 + "c"),
        ("é" * 124 + "b", "é" * 124 + "c"),
        ("results", "a\nb", "  "),
    ],
    ids=lambda names: ascii(names)[:30],
)
def test_students_of_any_name_have_files_of_their_own(tmp_path, names):
    for name in names:
        put(tmp_path / "in", f"{name}/02-sequences.ipynb")
    submissions = find_submissions(tmp_path / "in", NAME)
    assert len(submissions) == len({s.key for s in submissions}) == len(names)
    for submission in submissions:
        assert submission.notebook is not None
        submission.student.encode("utf-8")
        put(tmp_path / "out", f"{submission.key}.unfinished")


def test_what_is_said_of_files_of_any_name_can_be_written(tmp_path):
    put(tmp_path, "ada/\udcff.ipynb", "ada/\udcfe.ipynb", "bob/\udcff.zip", "cid/\udcff.ipynb")
    put(tmp_path, *(f"eve/{'x' * 200}{number}.ipynb" for number in range(50)))
    for submission in find_submissions(tmp_path, NAME):
        (submission.name + submission.problem).encode("utf-8")
        assert len(submission.problem) < 1000


@pytest.mark.parametrize("place", ["ada/02-sequences.ipynb", "ada", "ada/deep/02-sequences.ipynb"])
def test_links_are_not_followed(tmp_path, place):
    put(tmp_path / "elsewhere", "02-sequences.ipynb", content=b"secret")
    put(tmp_path / "in", "bob/02-sequences.ipynb")
    link = tmp_path / "in" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    target = tmp_path / "elsewhere"
    os.symlink(target if place == "ada" else target / "02-sequences.ipynb", link)
    for submission in find_submissions(tmp_path / "in", NAME):
        assert submission.student == "bob" or submission.notebook is None


def test_two_folders_of_one_student_are_not_nothing(tmp_path):
    put(tmp_path, f"in/ada/{NAME}.ipynb", f"in/Ada /{NAME}.ipynb")
    put(tmp_path, "class.csv", content=b"student\nada\nbob\n")
    listed = read_class_list(tmp_path / "class.csv")
    graded = [
        (submission, SubmissionResult(submission.student, "", NAME, "", False, ()))
        for submission in with_owners(find_submissions(tmp_path / "in", NAME), listed)
    ]
    assert [student.key for student in feedback.absent(graded, listed)] == ["bob"]
