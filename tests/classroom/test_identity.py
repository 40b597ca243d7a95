"""No grade ever moves: under whatever name work is handed in, its author gets the grade, or no one.

Courses are generated in which ids of different kinds collide, people have the same name, or one
that is made to look like another one's file, files are renamed, late and handed in again, and some
who hand in are not on the list. What `write_reports` writes is read as Canvas and Moodle do.
"""

import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.classroom import class_list, feedback
from nbcourse.classroom.ledger import LedgerEntry
from nbcourse.classroom.notebooks import Unreadable
from nbcourse.classroom.results import ExerciseResult, SubmissionResult
from nbcourse.classroom.submissions import Submission, canvas_names, find_submissions, with_owners
from nbcourse.confined.submission_errors import Ending
from tests.classroom import platforms
from tests.classroom.platforms import User
from tests.effort import examples

NAME = "02-sequences"
IDS = st.integers(1, 12)  # few, so that they collide with ids of other kinds
NAMES = st.one_of(
    st.sampled_from(
        [
            "Lovelace, Ada",
            "Müller, Zoë",
            unicodedata.normalize("NFD", "Müller, Zoë"),
            "Lee, Ann-Marie",
            "Lee, Marie",
            "Doe, Jane_Mary",
            "=cmd|'/C calc'!A0, Eve",
            "@SUM(A1), Mallory",
            "<b>Bold</b>, [red]Rich[/red]",
        ]
    ),
    IDS.map("Eve_{}".format),
    st.tuples(IDS, IDS).map(lambda ids: "Eve_{}-{}".format(*ids)),
    st.tuples(IDS, IDS).map(lambda ids: "Lovelace, Ada_{}_{}_x".format(*ids)),
)
OWN_NAMES = st.one_of(
    st.sampled_from(
        [
            f"{NAME}.ipynb",
            f"{NAME}-1.ipynb",
            f"{NAME} (2).ipynb",
            "02_sequences.ipynb",
            "my homework.ipynb",
            "link.ipynb",
            "notes.pdf",
        ]
    ),
    st.tuples(IDS, IDS).map("{0[0]}_{0[1]}_final.ipynb".format),
    IDS.map("{}_final.ipynb".format),
)


@st.composite
def courses(draw) -> list[User]:
    """Two to six people; ids of one kind are different, and collide with those of other kinds."""
    count = draw(st.integers(2, 6))

    def different(ids):
        return draw(st.lists(ids, min_size=count, max_size=count, unique=True))

    texts = IDS.map(str)
    columns = (
        different(IDS), different(texts), different(texts),
        draw(st.lists(NAMES, min_size=count, max_size=count)), different(texts), different(IDS),
    )  # fmt: skip
    return [User(*ids) for ids in zip(*columns, strict=True)]


@st.composite
def classes(draw) -> tuple[list[User], list[User], list[User]]:
    """A course, those of it who are on the list, and those who hand in; at least one of each."""
    course = draw(courses())
    some = st.lists(st.sampled_from(course), min_size=1, unique=True)
    return course, draw(some), draw(some)


def points_of(user: User) -> int:
    return 10 + user.id


def marked(submission: Submission) -> SubmissionResult:
    """As graded: each notebook holds the points that are its author's alone."""
    try:
        points, state = float(submission.read_bytes()), Ending.PASSED
    except Unreadable:
        points, state = 0.0, Ending.UNREADABLE
    return SubmissionResult(
        submission.student, submission.user_id, NAME, submission.name, submission.late,
        (ExerciseResult("x-check", (LedgerEntry("", points),), 30.0, state),),
    )  # fmt: skip


def reports(folder: Path, given_list: str) -> dict[str, bytes]:
    """What is written for a class whose submissions are in `folder`/in."""
    (folder / "list.csv").write_text(given_list, encoding="utf-8", newline="")
    listed = class_list.read_class_list(folder / "list.csv")
    found = with_owners(find_submissions(folder / "in", NAME), listed)
    assert len({submission.key for submission in found}) == len(found)
    written = feedback.write_reports([(s, marked(s)) for s in found], folder / "out", listed=listed)
    for path in written:
        if path.suffix == ".csv":
            assert_no_formulas(path.read_text(encoding="utf-8"))
    return {path.name: path.read_bytes() for path in written}


def assert_no_formulas(text: str) -> None:
    for row in platforms.read_csv(text):
        assert not any(cell.strip().startswith(("=", "+", "-", "@")) for cell in row), row


def put(path: Path, user: User) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(points_of(user)), encoding="utf-8")


def assert_own_page(page: str, user: User) -> None:
    assert f"<strong>{points_of(user)} of 30 points" in page or "<strong>0 of 30 points" in page


@given(st.data())
@examples(60)
def test_no_grade_moves_in_canvas(data):
    course, listed, by = data.draw(classes())
    clear: dict[User, list[str]] = {}  # whose files can be read in one way, and their own names
    handed_in = {}  # number of a file → whose
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for user in by:
            late = data.draw(st.booleans())
            for own in data.draw(st.lists(OWN_NAMES, min_size=1, max_size=2, unique=True)):
                number = str(len(handed_in) + 3)  # numbers of files are like those of people
                handed_in[number] = user
                file = platforms.canvas_file(user, int(number), own, late=late)
                put(folder / "in" / file, user)
                if len(canvas_names(file)) == 1:
                    clear.setdefault(user, []).append(own)
        written = reports(folder, platforms.canvas_gradebook(listed))
    grades = platforms.canvas_imports(written["canvas.csv"].decode(), course)
    assert None not in grades
    for user, grade in grades.items():
        assert user in listed
        assert grade in (str(points_of(user)), "0")
    for user, names in clear.items():
        if user in listed:
            assert user in grades
            if sum(own.endswith(".ipynb") for own in names) == 1:
                assert grades[user] == str(points_of(user))
    for user, page in platforms.canvas_takes_back(
        written["canvas-feedback.zip"], handed_in
    ).items():
        assert_own_page(page, user)


@given(st.data())
@examples(60)
def test_no_grade_moves_in_moodle(data):
    course, listed, by = data.draw(classes())
    late = data.draw(st.lists(st.sampled_from(course), unique=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for user in by:
            group = data.draw(st.sampled_from(["", "Ann", "Group A", "7", "A_7_b"]))
            ending = data.draw(st.sampled_from(["", "_"]))
            own = data.draw(st.sampled_from([f"{NAME}.ipynb", "1_2_x.ipynb"]))
            put(folder / "in" / platforms.moodle_folder(user, group, ending) / own, user)
        written = reports(folder, platforms.moodle_worksheet(listed, late))
    taken = platforms.moodle_takes_worksheet(written["moodle-worksheet.csv"].decode(), course)
    assert {user: grade for user, (grade, _) in taken.items()} == {
        user: str(points_of(user)) for user in by if user in listed
    }
    for user, (_, comment) in taken.items():
        assert comment.startswith("handed in late") == (user in late)
    pages = platforms.moodle_takes_feedback(written["moodle-feedback.zip"], course)
    assert set(pages) == set(taken)
    for user, page in pages.items():
        assert_own_page(page, user)


@given(st.data())
@examples(60)
def test_no_grade_moves_in_folders_of_one_s_own(data):
    """By what names the bundles, from any list: here Moodle's gradebook and its emails."""
    course, listed, by = data.draw(classes())
    twice = data.draw(st.sampled_from([None, *by]))

    def mail(user: User) -> str:
        return f"zoë{user.email}@uni.org"

    course_by_mail = [User(**{**vars(user), "email": mail(user)}) for user in course]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for user in by:
            change = data.draw(st.sampled_from([str, str.upper, lambda n: _decomposed(n)]))
            put(folder / "in" / change(mail(user)) / "02-sequences.ipynb", user)
        if twice is not None:  # as two people had unpacked it
            put(folder / "in" / mail(twice).title() / "02-sequences.ipynb", twice)
        rows = [user for user in course_by_mail if user.id in {u.id for u in listed}]
        written = reports(folder, platforms.moodle_gradebook(rows))
    grades = platforms.moodle_imports(written["moodle.csv"].decode(), course_by_mail)
    assert {user.id: grade for user, grade in grades.items()} == {
        user.id: str(points_of(user)) for user in by if user in listed and user != twice
    }


def _decomposed(name: str) -> str:
    return unicodedata.normalize("NFD", name)


def test_the_collision_that_was_seen(tmp_path):
    """Bob's Canvas number is Ann's SIS number, and her login."""
    ann, bob = (
        User(1001, "2002", "2002", "Lee, Ann", "a", 1), User(2002, "bob", "u2", "Ray, Bob", "b", 2),
    )  # fmt: skip
    for user, number in ((ann, 7), (bob, 8)):
        put(tmp_path / "in" / platforms.canvas_file(user, number, f"{NAME}.ipynb"), user)
    written = reports(tmp_path, platforms.canvas_gradebook([ann, bob]))
    grades = platforms.canvas_imports(written["canvas.csv"].decode(), [ann, bob])
    assert grades == {ann: "1011", bob: "2012"}


def test_a_name_that_looks_like_another_s_file_is_nobody_s(tmp_path):
    ada = User(101, "ada", "u1", "Lovelace, Ada", "a", 1)
    eve = User(2001, "eve", "u2", "Lovelace, Ada_101", "e", 2)
    put(tmp_path / "in" / platforms.canvas_file(eve, 555, f"{NAME}.ipynb"), eve)
    written = reports(tmp_path, platforms.canvas_gradebook([ada, eve]))
    assert platforms.canvas_imports(written["canvas.csv"].decode(), [ada, eve]) == {}
    page = written["class.html"].decode()
    assert "lovelaceada_101_2001_555_02-sequences.ipynb can be read in two ways" in page
    assert "<li>ada (Lovelace, Ada)" in page  # who handed in nothing


@pytest.mark.parametrize(
    ("given", "file", "needed"),
    [
        ("canvas", "Ada_1_assignsubmission_file_/02-sequences.ipynb", "Moodle's grading worksheet"),
        ("moodle", "Ada_1_assignsubmission_file_/02-sequences.ipynb", "Moodle's grading worksheet"),
        ("own", "Ada_1_assignsubmission_file_/02-sequences.ipynb", "Moodle's grading worksheet"),
        ("worksheet", "ada_1_7_02-sequences.ipynb", "Canvas's gradebook"),
        ("own", "ada_1_7_02-sequences.ipynb", "Canvas's gradebook"),
    ],
)
def test_a_list_without_the_platform_s_numbers_is_refused(tmp_path, given, file, needed):
    ada = User(1, "ada", "u1", "Lovelace, Ada", "a@b", 1)
    lists = {
        "canvas": platforms.canvas_gradebook([ada]),
        "moodle": platforms.moodle_gradebook([ada]),
        "worksheet": platforms.moodle_worksheet([ada]),
        "own": "student\nada\n",
    }
    put(tmp_path / "in" / file, ada)
    with pytest.raises(ValueError, match=rf"only {needed} says whose it is; list\.csv is"):
        reports(tmp_path, lists[given])
