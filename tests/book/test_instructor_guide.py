"""Appendix D says what is so: the exercises and their minutes, the commands, the pictures."""

import re

import pytest
from typer.testing import CliRunner

from nbcourse.cli import app
from nbcourse.experiments import records
from nbcourse.publishing.chapters import ROOT
from tests import guide_tables
from tests.checks import masters

GUIDE = (ROOT / "book" / "appendix-d-instructors.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^nbcourse ((?:hunt )?\w+) (.*)$", GUIDE, re.MULTILINE)
STATED = re.compile(r"^`([\w-]+)` · \S+ · (\d+) minutes$", re.MULTILINE)


@pytest.mark.parametrize("chapter", masters.MASTERS)
def test_the_table_has_every_exercise_with_its_minutes_and_the_sheet_s_points(chapter):
    cells = masters.master(chapter).cells
    exercises = [
        e for cell in cells if cell.cell_type == "markdown" for e in STATED.findall(cell.source)
    ]
    minutes = sum(int(number) for _, number in exercises)
    points = sum(masters.grader(cell).get("points", 0) for cell in cells)
    listed = ", ".join(f"`{name}` {number}" for name, number in exercises)
    number = int(chapter.partition("-")[0])
    row = rf"^\| {number} \| (\d+) \| {re.escape(listed)} \| {minutes} \| {points} \|$"
    found = re.search(row, GUIDE, re.MULTILINE)
    assert found, f"| {number} | … | {listed} | {minutes} | {points} |"
    text = (ROOT / "book" / "text" / f"{chapter}.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)  # nor the alternative texts
    assert abs(int(found.group(1)) - len(prose.split()) / 150) < 5  # words a minute


@pytest.mark.parametrize(("command", "rest"), COMMANDS, ids=lambda part: part.split(" ")[0])
def test_every_option_of_a_command_exists(command, rest):
    shown = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=200).output
    for option in re.findall(r"--[a-z-]+", rest):
        assert option in shown


def test_its_tables_are_what_the_records_say():
    assert guide_tables.with_tables(GUIDE) == GUIDE, "run `python -m tests.guide_tables`"
    assert set(guide_tables.PLACE.findall(GUIDE)) == set(guide_tables.TABLES)
    lines = records.read_results(records.RUNS / "class-rehearsal")
    assert all(line["deserved"] == line["imported"] and line["page"] for line in lines)
    for line in records.read_results(records.RUNS / "exercise-verdicts"):
        assert line["wrong"] == line["wrong refused"], line
        assert not line["right refused"], line


def test_every_target_of_make_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", GUIDE):
        assert f"\n{target}:" in makefile


def test_every_picture_is_there_and_told_in_words():
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", GUIDE)
    assert len(pictures) == 3
    for words, path in pictures:
        assert len(words) > 60
        assert (ROOT / "book" / path).exists()
