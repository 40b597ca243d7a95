"""A class list is read as what it is, and a mistake in it is named before anything is graded."""

import pytest

from nbcourse.classroom.class_list import ClassList, Kind, Platform, read_class_list
from nbcourse.errors import UserError
from tests.classroom import platforms
from tests.classroom.platforms import User

ADA = User(101, "ada", "u1", "Lovelace, Ada", "ada@uni.org", 7)
GRACE = User(102, "grace", "u2", "Hopper, Grace", "grace@uni.org", 8)
BOTH = [ADA, GRACE]


@pytest.fixture
def listed(tmp_path):
    def read(text: str) -> ClassList:
        path = tmp_path / "class.csv"
        path.write_text(text, encoding="utf-8", newline="")
        return read_class_list(path)

    return read


@pytest.mark.parametrize(
    ("text", "kind", "key", "students"),
    [
        (
            platforms.canvas_gradebook(BOTH), Kind.CANVAS, "SIS Login ID",
            [("ada", "Lovelace, Ada", "101"), ("grace", "Hopper, Grace", "102")],
        ),
        (
            "LastName,FirstName,ID,Section\n    Points Possible,,,\nLovelace,Ada,101,A\n",
            Kind.CANVAS, "ID", [("101", "Ada Lovelace", "101")],
        ),
        (
            platforms.moodle_worksheet(BOTH), Kind.WORKSHEET, "Email address",
            [("ada@uni.org", "Ada Lovelace", "7"), ("grace@uni.org", "Grace Hopper", "8")],
        ),
        (  # marked blindly: no names
            "Identifier,Status,Grade,Last modified (grade)\nParticipant 7,Submitted,-,-\n",
            Kind.WORKSHEET, "Identifier", [("Participant 7", "", "7")],
        ),
        (
            platforms.moodle_gradebook(BOTH), Kind.MOODLE, "Email address",
            [("ada@uni.org", "Ada Lovelace", ""), ("grace@uni.org", "Grace Hopper", "")],
        ),
        (
            "First name,Surname,Username,Email address\nAda,Lovelace,ada,\n", Kind.MOODLE,
            "Username", [("ada", "Ada Lovelace", "")],
        ),
        ("student,name\nada,Ada\n,\n", Kind.OWN, "student", [("ada", "Ada", "")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_each_export_is_read_as_what_it_is(listed, text, kind, key, students, separator):
    rows = platforms.read_csv(text)
    quoted = (separator.join(f'"{cell}"' for cell in row) for row in rows)
    found = listed("\ufeff" + "\r\n".join(quoted))
    assert (found.kind, found.key) == (kind, key)
    assert [(s.key, s.name, s.number) for s in found.students] == students


def test_canvas_s_test_student_has_no_login(listed):
    found = listed(platforms.canvas_gradebook([ADA]) + "Student: Test,900,,,A,\r\n")
    assert [(s.key, s.number) for s in found.students] == [("ada", "101"), ("900", "900")]


@pytest.mark.parametrize(
    ("text", "maximum"),
    [("11.00", 11), ("11,5", 11.5), ("Satisfactory", None), ("", None)],
)
def test_what_an_assignment_is_worth_is_read_from_the_worksheet(listed, text, maximum):
    worksheet = platforms.moodle_worksheet(BOTH).replace("11.00", f'"{text}"') + "\n"
    assert listed(worksheet).maximum == maximum
    assert listed(platforms.canvas_gradebook(BOTH)).maximum is None


def test_late_is_read_from_the_worksheet(listed):
    found = listed(platforms.moodle_worksheet(BOTH, late=[GRACE]))
    assert [s.late for s in found.students] == [False, True]


def test_a_number_is_looked_up_among_the_platform_s_numbers_and_a_folder_among_the_keys(listed):
    found = listed(platforms.canvas_gradebook(BOTH))

    def keys(platform: Platform, *names: str) -> list[str | None]:
        students = [found.find(platform, name) for name in names]
        return [student and student.key for student in students]

    assert keys(Platform.CANVAS, "102", "u2", "grace", "") == ["grace", None, None, None]
    assert keys(Platform.OWN, "GRACE", "102", "u2", "Hopper, Grace") == ["grace", None, None, None]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name\nada\n", "has the columns name; expected those of Canvas's gradebook"),
        ("Student,ID\nada,1\n", "expected those of Canvas's gradebook"),
        ("student,Student,ID,Section\nada,Ada,1,A\n", "expected those of"),
        ("student\nada\nada\n", "student 'ada' is in more than one row"),
        ("student\nJürgen\nju\u0308rgen\n", "is in more than one row"),
        ("Student,ID,SIS Login ID,Section\nA,1,2,A\nB,2,,A\n", "SIS Login ID '2' is in more"),
        ("Student,ID,SIS Login ID,Section\nA,1,a,A\nB,1,b,A\n", "ID '1' is in more than one"),
        ("Student,ID,Section\nAda,1.2E+10,A\n", r"the ID of 'Ada' is '1.2E\+10', expected a whole"),
        ("Student,ID,Section\nAda,,A\n", "the ID of 'Ada' is '', expected a whole"),
        ("Student,ID,Section\nPoints Possible,5,A\n", "Canvas takes for its row of points"),
        ("First name,Last name,Email address\nA,B,\n", "no column that tells all students apart"),
        ("Identifier,Grade,Last modified (grade)\nAda,,\n", "'Ada' is not a Moodle Identifier"),
        ("student\n", "names no students"),
        ("Student,ID,Section\n    Points Possible,,\n", "names no students"),
    ],
)
def test_a_list_that_tells_no_students_apart_is_refused(listed, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        listed(text)


def test_a_column_of_addresses_with_a_gap_is_refused(listed):
    """By another column, every student would have other numbers than at the release."""
    header = "Identifier,Full name,Email address,Username,Grade,Last modified (grade)\n"
    with pytest.raises(UserError, match="Email address is empty in some rows"):
        listed(header + "Participant 1,Ada,ada@x.y,ada,,-\nParticipant 2,Cy,,cy,,-\n")
    full = listed(header + "Participant 1,Ada,ada@x.y,ada,,-\nParticipant 2,Cy,cy@x.y,,,-\n")
    assert full.key == "Email address"  # the gap is in a column that is not needed
    hidden = listed(header + "Participant 1,Ada,,,,-\nParticipant 2,Cy,,,,-\n")
    assert hidden.key == "Identifier"  # addresses are hidden from who downloads


def test_only_a_worksheet_that_says_one_number_says_what_an_assignment_is_worth(listed):
    assert listed("student,Maximum Grade\nada,9\n").maximum is None
    header = "Identifier,Grade,Maximum Grade,Last modified (grade)\n"
    assert listed(header + "Participant 1,-,9,-\nParticipant 2,-,9,-\n").maximum == 9
    assert listed(header + "Participant 1,-,9,-\nParticipant 2,-,8,-\n").maximum is None


@pytest.mark.parametrize(("second", "key"), [("u2", "ID number"), ("", "Identifier")])
def test_the_key_is_filled_in_for_every_student(listed, second, key):
    header = "Identifier,ID number,Grade,Last modified (grade)\n"
    assert listed(header + f"Participant 1,u1,-,-\nParticipant 2,{second},-,-\n").key == key
