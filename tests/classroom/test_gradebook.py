"""What is written is what Canvas and Moodle read, row by row, and nothing that a spreadsheet runs.

Round trips of whole classes are in `test_identity`.
"""

import pytest

from nbcourse.classroom import files, gradebook, tables
from nbcourse.classroom.class_list import ClassList, read_class_list
from nbcourse.classroom.gradebook import Grade
from tests.classroom import platforms
from tests.classroom.test_class_list import ADA, BOTH


@pytest.fixture
def upload(tmp_path):
    """Name and rows of the one file for the platform of a class list."""

    def written(text: str, grades: dict[str, Grade]) -> tuple[str, list[list[str]]]:
        path = tmp_path / "class.csv"
        path.write_text(text, encoding="utf-8", newline="")
        listed: ClassList = read_class_list(path)
        ((name, content),) = gradebook.uploads("02-sequences", 11, listed, grades).items()
        return name, platforms.read_csv(content)

    return written


def test_canvas_gets_its_own_columns_back(upload):
    name, rows = upload(platforms.canvas_gradebook(BOTH), {"ada": Grade(9.5, "not for Canvas")})
    assert name == "canvas.csv"
    assert rows == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "02-sequences"],
        ["    Points Possible", "", "", "", "", "11"],
        ["Lovelace, Ada", "101", "u1", "ada", "A", "9.5"],
    ]  # no row of Grace, who handed in nothing: an empty cell would take a grade away


def test_canvas_s_further_ids_stay_where_they_were(upload):
    header = "LastName,FirstName,ID,SIS User ID,SIS Login ID,Integration ID,Root Account,Section,X"
    text = f"{header}\nLovelace,Ada,101,u1,ada,i1,uni.org,A,3\n"
    _, rows = upload(text, {"ada": Grade(1)})
    assert rows[0] == [*header.split(",")[:-1], "02-sequences"]
    assert rows[2] == ["Lovelace", "Ada", "101", "u1", "ada", "i1", "uni.org", "A", "1"]


def test_the_worksheet_comes_back_with_grades_and_comments(upload):
    text = platforms.moodle_worksheet(BOTH)
    name, rows = upload(text, {"ada@uni.org": Grade(7, "3 of 5")})
    assert name == "moodle-worksheet.csv"
    header, ada, _ = platforms.read_csv(text)
    assert rows[0] == header
    given = dict(zip(header, ada, strict=True))
    changed = {"Grade": "7", "Feedback comments": "3 of 5", "Last modified (grade)": "'-"}
    assert dict(zip(header, rows[1], strict=True)) == given | changed
    assert len(rows) == 2


def test_moodle_s_gradebook_gets_the_column_by_which_it_finds_people(upload):
    name, rows = upload(platforms.moodle_gradebook(BOTH), {"ada@uni.org": Grade(7, "3 of 5")})
    assert name == "moodle.csv"
    assert rows == [
        ["Email address", "02-sequences", "02-sequences feedback"],
        ["ada@uni.org", "7", "3 of 5"],
    ]


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("  +1", "'  +1"),
        ("-", "'-"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "' =1"),
        ("x\r\n=1", "x =1"),  # or the formula begins a row
        ("＝1", "'＝1"),
        ("", ""),
        ("    Points Possible", "    Points Possible"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_begins_a_formula(cell, written):
    assert tables.inert(cell) == written
    assert platforms.read_csv(tables.as_csv([[cell, "x"]])) == [[written, "x"]]


def test_a_zip_of_pages_is_the_same_bytes_each_time():
    pages = {"ada_1_assignsubmission_file_x.html": "Ada", "bob_2_assignsubmission_file_x.html": "B"}
    assert files.zipped(pages) == files.zipped(pages)
    users = [ADA, platforms.User(2, "bob", "", "Bob", "b", 2)]
    named = {f"x_{user.participant}_assignsubmission_file_x.html": user.name for user in users}
    taken = platforms.moodle_takes_feedback(files.zipped(named), users)
    assert taken == {user: user.name for user in users}
