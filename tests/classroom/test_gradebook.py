"""Class lists are read as Canvas and Moodle write them, gradebooks written as they read them."""

import csv
from io import StringIO

import pytest

from nbcourse.classroom import gradebook

CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Homework 1 (815)\r\n"
    "    Points Possible,,,,,10.00\r\n"
    '"Lovelace, Ada",101,u1,ada,"Section 1",9\r\n'
    '"Hopper, Grace",102,u2,grace,"Section 1",\r\n'
)
MOODLE = (
    "First name;Last name;ID number;Email address\n"
    "Ada;Lovelace;;ada@uni.org\n"
    "Grace;Hopper;;grace@uni.org\n"
)


@pytest.fixture
def listed(tmp_path):
    def read(text: str) -> gradebook.ClassList:
        path = tmp_path / "class.csv"
        path.write_text(text, encoding="utf-8")
        return gradebook.read_class_list(path)

    return read


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(StringIO(text)))


def test_a_canvas_export_is_read_without_its_row_of_points(listed):
    found = listed(CANVAS)
    assert found.key == "SIS Login ID"
    assert found.students == ["ada", "grace"]


def test_a_moodle_export_is_read_whatever_separates_its_columns(listed):
    for separator in ";,\t":
        found = listed(MOODLE.replace(";", separator))
        assert found.key == "Email address"  # ID number is there and empty
        assert found.students == ["ada@uni.org", "grace@uni.org"]


def test_a_plain_list_is_enough(listed):
    assert listed("student\nada\ngrace\n").students == ["ada", "grace"]


def test_a_student_is_found_by_any_of_the_platform_s_names(listed):
    found = listed(CANVAS)
    assert [found.student(name) for name in ("102", "u2", "GRACE", "eve")] == [
        "grace", "grace", "grace", "eve",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name\nada\n", "has the columns name; expected one of SIS Login ID"),
        ("student\nada\nada\n", "student 'ada' stands in more than one row"),
    ],
)
def test_a_list_that_tells_no_students_apart_is_refused(listed, text, complaint):
    with pytest.raises(ValueError, match=complaint):
        listed(text)


def test_canvas_gets_its_own_columns_back(listed):
    text = gradebook.canvas("02-sequences", {"ada": 9.5}, 11, listed(CANVAS))
    assert rows(text) == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "02-sequences"],
        ["    Points Possible", "", "", "", "", "11"],
        ["Lovelace, Ada", "101", "u1", "ada", "Section 1", "9.5"],
        ["Hopper, Grace", "102", "u2", "grace", "Section 1", ""],  # handed in nothing: no grade
    ]


def test_who_is_not_on_the_list_is_not_lost(listed):
    text = gradebook.canvas("02-sequences", {"zoe": 0.0}, 11, listed(CANVAS))
    assert rows(text)[-1] == ["zoe", "", "", "zoe", "", "0"]


def test_moodle_gets_the_column_by_which_it_finds_people(listed):
    text = gradebook.moodle(
        "02-sequences", {"ada@uni.org": 7}, {"ada@uni.org": "3 of 5"}, listed(MOODLE)
    )
    assert rows(text) == [
        ["Email address", "02-sequences", "02-sequences feedback"],
        ["ada@uni.org", "7", "3 of 5"],
        ["grace@uni.org", "-", ""],
    ]


def test_without_a_list_the_names_of_the_submissions_have_to_do():
    points = {"bob": 1.25, "ada": 2.0}
    assert rows(gradebook.moodle("x", points, {}))[1:] == [["ada", "2", ""], ["bob", "1.25", ""]]
    assert [row[3] for row in rows(gradebook.canvas("x", points, 2))[2:]] == ["ada", "bob"]
