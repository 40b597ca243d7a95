"""The course around the book: its hours add up, and the rubric is one in three places."""

import re

import nbformat

from nbcourse.builds import pieces
from nbcourse.classroom import marks, masters
from nbcourse.classroom.masters import Written
from nbcourse.publishing import chapters, twins

COURSE = chapters.SOLUTIONS / "course"
GUIDE = (chapters.BOOK / "appendix-d-instructors.md").read_text(encoding="utf-8")
PAGE = (chapters.BOOK / "appendix-f-capstone.md").read_text(encoding="utf-8")
TESTS_OF_THEIR_OWN = 90


def test_the_hours_of_the_plan_are_those_of_its_parts():
    sheets = re.findall(r"^\| (\d+) \| (\d+) \| `.*?\| (\d+) \| \d+ \|$", GUIDE, re.MULTILINE)
    reading = {int(number): int(minutes) for number, minutes, _ in sheets} | {0: 13}
    exercises = {int(number): int(minutes) for number, _, minutes in sheets}
    builds = {name: int(re.search(r"(\d+) minutes", pieces.stub(name))[1]) for name in pieces.NAMES}
    row = r"^\| (\d+) \| (.*?) ?\| .*? \| (.*?) ?\| ([\d.]+) \|$"
    plan = re.findall(row, GUIDE.partition("## How long it takes")[0], re.MULTILINE)
    capstone = {}
    for weeks, hours in re.findall(r"^\| ([\d and]+) \| .* \| (\d+) \|$", PAGE, re.MULTILINE):
        numbers = weeks.split(" and ")
        capstone |= {number: 60 * int(hours) / len(numbers) for number in numbers}
    assert [int(week) for week, *_ in plan] == list(range(1, 15))
    total = 0.0
    for week, read, hand_in, hours in plan:
        minutes = capstone.get(week, 0)
        for number, half in re.findall(r"(\d+)( \(\w+ half\))?", read):
            minutes += 2 * reading[int(number)] / (2 if half else 1)
        if found := re.search(r"exercises ([\d or]+)", hand_in):
            minutes += max(exercises[int(number)] for number in found[1].split(" or "))
        minutes += sum(builds.pop(name) for name in re.findall(r"`(\w+)`", hand_in))
        minutes += TESTS_OF_THEIR_OWN if "tests of their own" in hand_in else 0
        assert round(minutes / 30) / 2 == float(hours), week
        total += float(hours)
    assert not builds
    assert f"They come to {total:g} for the whole course" in GUIDE


def test_the_rubric_is_the_same_for_students_on_the_sheet_and_in_the_marks(tmp_path):
    rows = marks.read_marks(COURSE / "capstone-marks.csv")
    table = re.findall(r"^\| ([^|]+) \| (\d+) \| ([^|]+[a-z]) \|$", PAGE, re.MULTILINE)
    assert [(row.criterion, f"{row.points:g}", row.comment) for row in rows] == table
    sheet = tmp_path / "18-capstone.ipynb"
    nbformat.write(twins.read_text(COURSE / "18-capstone.md"), sheet)
    master = masters.load_master(sheet)
    (report,) = master.steps
    assert isinstance(report, Written)
    assert (report.grade_id, report.points) == ("report", sum(row.points for row in rows))
    marks.check(rows, master, ["STUDENT"])


def test_every_chapter_has_two_or_three_questions_to_discuss():
    asked = re.findall(r"^\*\*(\d+) · (.*?)[.?]?\*\* (.*)$", PAGE, re.MULTILINE)
    numbered = [path for path in chapters.texts() if path.stem[:2].isdigit()]
    assert [int(number) for number, _, _ in asked] == [int(path.stem[:2]) for path in numbered]
    for _, _, questions in asked:
        assert 2 <= len(questions.split(" · ")) <= 3
