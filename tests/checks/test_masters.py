"""The form of the exercises, and that nothing of a solution reaches the students' notebooks."""

import re

import pytest

from nbcourse.classroom import exercises
from nbcourse.publishing import stored, twins
from nbcourse.publishing.chapters import ROOT

from . import masters

each_chapter = pytest.mark.parametrize("chapter", masters.MASTERS)
each_exercise = pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)


def statement(chapter: str, exercise: str) -> str:
    """The markdown of an exercise, from its heading to its check."""
    text = "\n\n".join(
        cell.source for cell in masters.master(chapter).cells if cell.cell_type == "markdown"
    )
    parts = re.split(r"(?m)^## ", text)
    (part,) = (part for part in parts if f"\n`{exercise}` · " in part)
    return part


def hints(chapter: str, exercise: str) -> list[str]:
    return re.findall(
        r":::\{admonition\} Hint \d\n:class: dropdown\n(.*?)\n:::",
        statement(chapter, exercise),
        re.DOTALL,
    )


@each_chapter
def test_a_sheet_has_four_to_six_exercises_and_the_notebook_the_same_ones(chapter):
    ids = masters.exercises(chapter)
    assert 4 <= len(ids) <= 6
    graded = [masters.grader(cell) for cell in masters.master(chapter).cells]
    assert [g["grade_id"] for g in graded if g.get("solution")] == ids
    assert [g["grade_id"] for g in graded if g.get("grade")] == [f"{name}-check" for name in ids]
    assert all(g["points"] > 0 for g in graded if g.get("grade"))


@each_exercise
def test_an_exercise_states_number_difficulty_and_minutes(chapter, exercise):
    number = int(chapter.partition("-")[0])
    place = masters.exercises(chapter).index(exercise) + 1
    first, _, second = statement(chapter, exercise).splitlines()[:3]
    assert first.startswith(f"Exercise {number}.{place} · ")
    found = re.fullmatch(rf"`{exercise}` · (●○○|●●○|●●●) · (\d+) minutes", second)
    assert found
    if place == 1:  # a small debugging task to begin with
        assert found.group(1) == "●○○"
        assert int(found.group(2)) <= 10
        assert exercise.startswith("mend-")


@each_exercise
def test_an_exercise_has_two_hints_and_the_first_has_no_code(chapter, exercise):
    first, _second = hints(chapter, exercise)
    assert "`" not in first


@each_exercise
def test_no_solution_imports_what_it_is_asked_for(chapter, exercise):
    (solution,) = (
        cell.source
        for cell in masters.master(chapter).cells
        if masters.grader(cell).get("grade_id") == exercise
    )
    assert "nbcourse" not in solution


@each_chapter
def test_the_generated_notebooks_are_up_to_date(chapter):
    text = ROOT / "solutions" / "text" / f"{chapter}.md"
    master = stored.tidy(twins.read_text(text))
    assert masters.master(chapter) == master, "run `make exercises`"
    assert masters.student(chapter) == exercises.student_version(master), "run `make exercises`"


@masters.needed
def test_every_text_has_its_notebooks_and_every_notebook_its_text():
    texts = {path.stem for path in (ROOT / "solutions" / "text").glob("*.md")}
    students = {path.stem for path in (ROOT / "book" / "exercises").glob("*.ipynb")}
    assert set(masters.MASTERS) == texts == students


@each_chapter
def test_no_line_of_a_solution_or_hidden_test_is_in_the_students_notebook(chapter):
    given = "\n".join(cell.source for cell in masters.student(chapter).cells)
    assert "BEGIN" not in given
    for cell in masters.master(chapter).cells:
        for line in masters.regions(cell.source):
            assert len(line) < 8 or line not in given, line
