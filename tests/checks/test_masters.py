"""The form of the exercises, and that nothing of a solution reaches the students' notebooks."""

import html
import re

import pytest
import torch

from nbcourse.classroom import exercises, leaks, marking
from nbcourse.classroom.masters import NOTHING_YET, STUB, load_master
from nbcourse.errors import NotFound
from nbcourse.publishing import chapters, stored, twins
from nbcourse.publishing.chapters import ROOT

from . import masters

each_chapter = pytest.mark.parametrize("chapter", masters.MASTERS)
each_exercise = pytest.mark.parametrize(("chapter", "exercise"), masters.EVERY_EXERCISE)


def hints(chapter: str, exercise: str) -> list[str]:
    return re.findall(
        r":::\{admonition\} Hint \d\n:class: dropdown\n(.*?)\n:::",
        masters.statement(chapter, exercise),
        re.DOTALL,
    )


@each_chapter
def test_a_sheet_has_four_to_six_exercises_and_the_notebook_the_same_ones(chapter):
    ids = masters.exercises(chapter)
    assert 4 <= len(ids) <= 6
    marks = [masters.grader(cell) for cell in masters.master(chapter).cells]
    graded = [mark for mark in marks if not (mark.get("grade") and mark.get("solution"))]
    assert [g["grade_id"] for g in graded if g.get("solution")] == ids
    assert [g["grade_id"] for g in graded if g.get("grade")] == [f"{name}-check" for name in ids]
    assert all(g["points"] > 0 for g in graded if g.get("grade"))


@pytest.mark.parametrize("chapter", masters.MASTERS[1:])
def test_the_last_exercise_of_a_sheet_is_marked_by_hand_by_its_rubric(chapter):
    master = load_master(chapters.SOLUTIONS / f"{chapter}.ipynb")
    (written,) = master.written
    assert master.exercises[-1] is written
    assert len(written.model) > 200
    criteria = marking.read_rubric(master)[written.grade_id]  # which add up to its points
    assert len(criteria) >= 2
    number, place = int(chapter.partition("-")[0]), len(masters.exercises(chapter)) + 1
    told = masters.statement(chapter, written.grade_id)
    assert told.startswith(f"Exercise {number}.{place} · ")
    assert f"*Marked by hand, {written.points:g} points: " in told
    last = masters.student(chapter).cells[-1]
    assert masters.grader(last)["grade_id"] == written.grade_id
    assert last.source in (NOTHING_YET, STUB)


@pytest.mark.parametrize("chapter", masters.MASTERS[1:])
def test_no_sentence_of_a_model_answer_or_rubric_can_leave_unseen(chapter):
    master = load_master(chapters.SOLUTIONS / f"{chapter}.ipynb")
    (written,) = master.written
    criteria = [text for text, _ in marking.read_rubric(master)[written.grade_id]]
    for line in [*written.model.splitlines()[::2], *criteria]:
        if len(line) > 40:
            page = f"<p>Well: {html.escape(line)} Indeed.</p>".encode()
            assert leaks.scan_bytes("site/page.html", page, masters.secrets()), line


@masters.needed
def test_a_plot_s_model_answer_draws_one(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn = 0
    for chapter in masters.MASTERS[1:]:
        (written,) = load_master(chapters.SOLUTIONS / f"{chapter}.ipynb").written
        if "plt." in written.model:
            with pyplot.ioff():
                exec(written.model, {"torch": torch})
            (axes,) = pyplot.gcf().axes
            assert axes.get_xlabel()
            assert axes.get_ylabel()
            assert axes.get_legend()
            drawn += 1
            pyplot.close("all")
    assert drawn >= 3


@each_exercise
def test_an_exercise_states_number_difficulty_and_minutes(chapter, exercise):
    number = int(chapter.partition("-")[0])
    place = masters.exercises(chapter).index(exercise) + 1
    first, _, second = masters.statement(chapter, exercise).splitlines()[:3]
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
def test_a_student_s_notebook_is_what_its_master_makes(chapter):
    """That a master is what its text says is tested of all twins."""
    expected = exercises.student_version(masters.master(chapter))
    assert masters.student(chapter) == expected, "run `make exercises`"


@each_chapter
def test_a_master_is_stored_as_it_is_made(chapter):
    text = chapters.text_of(chapters.SOLUTIONS / f"{chapter}.ipynb")
    made = stored.tidy(twins.read_text(text))  # without outputs, for one
    assert masters.master(chapter) == made, "run `make exercises`"


@masters.needed
def test_every_student_s_notebook_has_a_master():
    students = [path.stem for path in chapters.notebooks(chapters.BOOK / "exercises")]
    assert students == masters.MASTERS


@pytest.fixture
def book(tmp_path):
    """A book with one exercise sheet, of which there is nothing but the text, and an old one."""
    for folder in ("book/exercises", "solutions/text"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("book/exercises", "solutions"):
        (tmp_path / folder / "99-old.ipynb").write_text("{}")
    source = chapters.text_of(chapters.SOLUTIONS / f"{masters.MASTERS[0]}.ipynb")
    (tmp_path / "solutions" / "text" / source.name).write_bytes(source.read_bytes())
    return tmp_path


@masters.needed
def test_both_notebooks_are_made_and_old_ones_removed(book):
    name = f"{masters.MASTERS[0]}.ipynb"
    made = [path.relative_to(book).as_posix() for path in exercises.generate(book)]
    assert made == [f"solutions/{name}", f"book/exercises/{name}"]
    assert sorted(path.relative_to(book).as_posix() for path in book.rglob("*.ipynb")) == made[::-1]
    for path in made:
        assert (book / path).read_bytes() == (ROOT / path).read_bytes()


@masters.needed
def test_without_any_text_nothing_is_made_or_removed(book):
    next((book / "solutions" / "text").iterdir()).unlink()
    with pytest.raises(NotFound, match=r"solutions/text/ holds no exercises"):
        list(exercises.generate(book))
    assert len([*book.rglob("99-old.ipynb")]) == 2


@each_chapter
def test_no_line_of_a_solution_or_hidden_test_is_in_the_students_notebook(chapter):
    given = "\n".join(cell.source for cell in masters.student(chapter).cells)
    assert "BEGIN" not in given
    for cell in masters.master(chapter).cells:
        for line in masters.regions(cell.source):
            assert len(line) < 8 or line not in given, line
