"""What a person marks: all of it is shown, its table comes back, and nothing in it runs."""

import pytest

from nbcourse.classroom import marking, marks, masters
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.confined.submission_errors import Ending
from nbcourse.errors import UserError
from tests.classroom import a_class

MODEL = "### BEGIN SOLUTION\nIt halves,\nsince <two> share it.\n### END SOLUTION"
ESSAY = {"grade_id": "essay", "grade": True, "solution": True, "points": 3}
PIXEL = "iVBORw0KGgo="


@pytest.fixture
def master(tmp_path):
    path = tmp_path / "01-fake.ipynb"
    path.write_bytes(
        a_class.notebook([*a_class.solved(), a_class.cell(MODEL, "markdown", **ESSAY)])
    )
    return masters.load_master(path)


def rubric(tmp_path, rows: str) -> None:
    (tmp_path / "rubrics").mkdir(exist_ok=True)
    text = "exercise,criterion,points\n" + rows
    (tmp_path / "rubrics" / "01-fake.csv").write_text(text, encoding="utf-8")


def handed_in(tmp_path, student: str, text: str, outputs=()) -> tuple:
    cell = a_class.cell(text, "markdown", **ESSAY) | {"outputs": list(outputs)}
    submission = a_class.submission(tmp_path, a_class.notebook([cell]), student)
    open_answer = ExerciseResult("essay", None, 3.0, Ending.BY_HAND)
    return submission, SubmissionResult(
        *(student, "", "01-fake", "01-fake.ipynb", False), exercises=(open_answer,)
    )


def test_a_rubric_is_of_this_sheet_and_adds_up(tmp_path, master):
    assert marking.read_rubric(master) == {"essay": [("answer", 3)]}
    rubric(tmp_path, "essay,says half,2\nessay,says why,1\n")
    assert marking.read_rubric(master) == {"essay": [("says half", 2), ("says why", 1)]}
    rubric(tmp_path, "essay,says half,2\n")
    with pytest.raises(UserError, match="have 2 points, and the answer is worth 3"):
        marking.read_rubric(master)
    rubric(tmp_path, "double,says half,2\n")
    with pytest.raises(UserError, match="exercise is 'double', expected one graded by hand: essay"):
        marking.read_rubric(master)


def test_the_page_shows_every_answer_as_text_and_pictures_that_run_nothing(tmp_path, master):
    shown = [
        {"data": {"image/png": PIXEL}},
        {"data": {"image/png": '"><script>', "image/svg+xml": "<svg onload='x()'/>"}},
    ]
    graded = [
        handed_in(tmp_path, "ada", "Half.</pre><script>x()</script>", shown),
        handed_in(tmp_path, "=bob", "Who knows?"),
    ]
    rubric(tmp_path, "essay,says half,2\nessay,says why,1\n")
    page, table = marking.write_sheets(graded, master, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "Half.&lt;/pre&gt;&lt;script&gt;" in text
    assert "It halves,\nsince &lt;two&gt; share it." in text
    assert text.count("<img ") == 1
    assert f"data:image/png;base64,{PIXEL}" in text
    assert "<script" not in text
    assert "<svg" not in text
    assert table.read_text(encoding="utf-8").splitlines() == [
        "student,exercise,criterion,points,comment",
        "ada,essay,says half,,up to 2", "ada,essay,says why,,up to 1",
        "'=bob,essay,says half,,up to 2", "'=bob,essay,says why,,up to 1",
    ]  # fmt: skip


def test_the_table_is_taken_back_answer_by_answer(tmp_path, master):
    rubric(tmp_path, "essay,says half,2\nessay,says why,1\n")
    graded = [handed_in(tmp_path, "ada", "Half."), handed_in(tmp_path, "bob", "Who knows?")]
    _, table = marking.write_sheets(graded, master, tmp_path)
    with pytest.raises(UserError, match=r"to-mark\.csv holds no marks"):
        marks.read_marks(table)
    text = table.read_text(encoding="utf-8")
    table.write_text(text.replace("ada,essay,says half,,", "ada,essay,says half,2,"))
    with pytest.raises(UserError, match="line 3: points is empty, and another criterion of ada"):
        marks.read_marks(table)
    table.write_text(text.replace("half,,", "half,2,", 1).replace("why,,", "why,0,", 1))
    assert [mark.points for mark in marks.read_marks(table)] == [2, 0]  # bob waits


@pytest.mark.parametrize(
    ("text", "kind", "state"),
    [
        (masters.NOTHING_YET, "markdown", Ending.NOT_ATTEMPTED),
        ("  \n", "markdown", Ending.NOT_ATTEMPTED),
        (f"# my plot\n{masters.STUB}", "code", Ending.NOT_ATTEMPTED),
        (f"Since my cell still had `{masters.STUB}`, nothing ran.", "markdown", Ending.BY_HAND),
        ("I do not know.", "markdown", Ending.BY_HAND),
    ],
)
def test_only_what_was_written_waits_for_a_person(master, text, kind, state):
    from nbcourse.classroom import matching
    from nbcourse.classroom.grading import _read_by_a_person
    from nbcourse.classroom.notebooks import read_cells

    (essay,) = master.written
    cells = read_cells(a_class.notebook([a_class.cell(text, kind, **ESSAY)]))
    found = _read_by_a_person(essay, matching.written(cells, master)["essay"])
    assert (found.state, found.points) == (state, None if state is Ending.BY_HAND else 0.0)
    gone = _read_by_a_person(essay, matching.written([], master)["essay"])
    assert gone.state is Ending.NOT_ATTEMPTED


@pytest.mark.parametrize("separator", [",", ";"])
def test_what_is_filled_in_stays_when_the_table_is_written_anew(tmp_path, master, separator):
    graded = [handed_in(tmp_path, student, "It halves.") for student in ("ada", "bob")]
    marking.write_sheets(graded, master, tmp_path)
    table = tmp_path / "to-mark.csv"
    rows = "ada,essay,answer,2,well put\nbob,essay,answer,,see the other page\n"
    header = table.read_text().partition("\n")[0] + "\n"
    table.write_text((header + rows).replace(",", separator))
    marking.write_sheets(graded, master, tmp_path)
    assert table.read_text() == header + rows


def test_a_table_that_cannot_be_read_is_not_written_over(tmp_path, master):
    table = tmp_path / "to-mark.csv"
    table.write_bytes("Zoë;essay;answer;2;\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"to-mark\.csv is not text in UTF-8"):
        marking.write_sheets([handed_in(tmp_path, "ada", "It halves.")], master, tmp_path)
    assert "essay" in table.read_text("latin-1")
