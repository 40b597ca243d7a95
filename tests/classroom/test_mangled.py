"""A notebook that passes its own checks earns its points, however people have left it.

`mangled.WAYS` are the ways; each keeps what Jupyter shows to be right. Where the grader cannot
follow, its page says so, and a person is asked.
"""

import contextlib
import functools
import io
import itertools
import tarfile

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from nbcourse.checks import Sheet
from nbcourse.classroom import archives, feedback, matching, notebooks
from nbcourse.classroom import masters as classroom_masters
from nbcourse.classroom.grading import grade_submission
from nbcourse.classroom.masters import Test
from nbcourse.classroom.results import Terms
from nbcourse.classroom.submissions import find_submissions
from nbcourse.confined.cells import plain_python
from nbcourse.confined.submission_errors import Ending
from tests.checks import masters
from tests.classroom import a_class, mangled
from tests.classroom.a_class import zipped
from tests.classroom.conftest import LIMITS
from tests.effort import examples, swept

pytestmark = masters.needed
SHEETS = ("02-sequences", "07-language-model")
GRADED = swept(
    [(chapter, way) for chapter in SHEETS for way in mangled.WAYS],
    keep=[
        *((SHEETS[0], way) for way in ("metadata_and_ids_lost", "all_code_joined")),
        *((SHEETS[1], way) for way in ("functions_renamed", "helpers_of_one_name")),
    ],
)
# Each way in one sheet, and in every sheet the two that leave nothing but what is defined.
FOUND = swept(
    [(chapter, way) for chapter in masters.MASTERS for way in mangled.WAYS],
    keep=[
        *zip(itertools.cycle(masters.MASTERS), mangled.WAYS),
        *itertools.product(masters.MASTERS, ["metadata_lost", "all_code_joined"]),
    ],
)


@functools.cache
def of_book(chapter):
    return classroom_masters.load_master(classroom_masters.find_master(chapter))


def checked(master) -> set[str]:
    """The exercises of a sheet that have a check."""
    return {step.grade_id for step in master.steps if isinstance(step, Test)}


def passed_in_jupyter(cells) -> set[str]:
    """The exercises that check themselves right when the cells are run from top to bottom."""
    names, printed = {"__name__": "__main__", "get_ipython": lambda: _Ignored(names)}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                with contextlib.suppress(Exception, SystemExit):
                    source = "".join(cell["source"])
                    exec(plain_python(source.replace("%%time\n", "")), names)
    return {
        f"{name}-check"
        for name in Sheet(names["sheet"].chapter).exercises
        if f"{name}: right." in printed.getvalue()
    }


class _Ignored:
    def __init__(self, names):
        self.names = names

    def __getattr__(self, name):
        return lambda *given, **more: None


@pytest.mark.parametrize(("chapter", "way"), GRADED)
def test_what_passes_its_own_checks_earns_its_points(server, tmp_path, chapter, way):
    cells, master = mangled.WAYS[way](mangled.solved(chapter), chapter), of_book(chapter)
    submitted = a_class.submission(tmp_path, mangled.as_file(cells))
    result = grade_submission(submitted, Terms(master, LIMITS), server)
    states = {exercise.exercise: exercise.state for exercise in result.exercises}
    assert {name for name, state in states.items() if state == Ending.PASSED} == checked(master), [
        (e.exercise, e.state, e.feedback) for e in result.exercises if e.state != Ending.PASSED
    ]
    for step in master.written:
        assert states[step.grade_id] == Ending.BY_HAND
    # the ways do not only look harmless
    if way not in ("checks_deleted", "checks_above"):
        assert passed_in_jupyter(cells) == checked(master)


def found(read, master):
    """Exercise → for each function, the source of the cell that counts, and its name there."""
    answers = matching.match(read, master)
    return {
        solution: {
            name: (place.cell.source, place.name)
            for name, place in answers.places[solution].items()
        }
        for solution in master.solutions
    }, answers.notes


@pytest.mark.parametrize(("chapter", "way"), FOUND)
def test_every_answer_is_found_in_every_sheet(chapter, way):
    master = of_book(chapter)
    cells = mangled.WAYS[way](mangled.solved(chapter), chapter)
    read = notebooks.read_cells(mangled.as_file(cells))
    places, notes = found(read, master)
    stubs = mangled.stubs(chapter)
    for solution, names in places.items():
        for source, name in names.values():
            assert f"def {name}(" in source or f"\n{name} = " in source, (solution, name)
            assert source.strip() != stubs[solution].strip()
            assert "return 0.0" not in source
    lost = way in (
        "metadata_lost",
        "stubs_deleted",
        "all_code_joined",
        "by_colab",
        "functions_renamed",
    )
    assert any("in cell" in note for note in notes) or not lost
    assert all(matching.written(read, master).values())


@given(st.sampled_from(masters.MASTERS), st.lists(st.sampled_from([*mangled.WAYS]), max_size=3))
@examples(60)
def test_answers_are_found_or_missed_after_several_ways_one_after_the_other(chapter, ways):
    cells, master = mangled.solved(chapter), of_book(chapter)
    known = {"drafts_above", "sources_in_lines"}
    known |= {"functions_renamed", "functions_renamed_and_metadata_lost"}
    for way in dict.fromkeys(ways):
        if way in known and way != ways[0]:
            continue  # these read what they mangle, and need it whole
        if "sources_in_lines" in ways[:1]:
            cells = [cell | {"source": "".join(cell["source"])} for cell in cells]
        try:
            cells = mangled.WAYS[way](cells, chapter)
        except (StopIteration, IndexError):  # what it mangles is gone
            reject()
    answers = matching.match(notebooks.read_cells(mangled.as_file(cells)), master)
    for solution in master.solutions:
        lost = any(f"called `{solution}` is missing" in note for note in answers.notes)
        assert lost != (solution in answers.places), (solution, ways)
        for place in answers.places.get(solution, {}).values():
            name, source = place.name, place.cell.source
            assert f"def {name}(" in source or f"\n{name} = " in source, (solution, name, ways)


@pytest.mark.parametrize("kind", mangled.FILES)
def test_a_notebook_is_read_in_every_encoding(kind):
    cells = mangled.solved("02-sequences")
    read = notebooks.read_cells(mangled.FILES[kind](cells))
    assert [cell.kind for cell in read] == [cell["cell_type"] for cell in cells]
    if kind != "Windows-1252":
        assert [cell.source for cell in read] == [cell["source"] for cell in cells]


# ---------------------------------------------------------------- answers in words


WORDS = [
    ("in its own cell", "own"),
    ("below its own cell", "below"),
    ("above its own cell", "above"),
    ("in three cells", "three"),
    ("in place of its own cell", "instead"),
    ("in the cell of the question", "question"),
]


@pytest.mark.parametrize("lost", [False, True], ids=["named", "metadata lost"])
@pytest.mark.parametrize("where", [where for _, where in WORDS], ids=[words for words, _ in WORDS])
@pytest.mark.parametrize("chapter", SHEETS)
def test_words_in_an_unnamed_cell_go_to_the_marker(chapter, where, lost):
    master, cells = of_book(chapter), mangled.handed_out(chapter)
    (step,) = master.written
    i = next(i for i, cell in enumerate(cells) if mangled.name_of(cell) == step.grade_id)
    words = mangled.new("Since *the mean* moves.", "markdown")
    match where:
        case "own":
            cells[i]["source"] = words["source"]
        case "below":
            cells.insert(i + 1, words)
        case "above":
            cells.insert(i, words)
        case "three":
            cells[i + 1 : i + 1] = [
                mangled.new("First.", "markdown"),
                mangled.new("", "markdown"),
                words,
            ]
        case "instead":
            cells[i] = words
        case "question":
            cells[i - 1]["source"] += "\n\nSince *the mean* moves."
    cells = mangled.metadata_and_ids_lost(cells, chapter) if lost else cells
    read = notebooks.read_cells(mangled.as_file(cells))
    shown = matching.written(read, master)[step.grade_id]
    assert any("Since *the mean* moves." in cell.source for cell in shown)


@pytest.mark.parametrize("lost", [False, True], ids=["named", "metadata lost"])
@pytest.mark.parametrize("chapter", masters.MASTERS)
def test_a_notebook_as_it_was_handed_out_holds_no_words(tmp_path, chapter, lost):
    master, cells = of_book(chapter), mangled.handed_out(chapter)
    cells = mangled.metadata_and_ids_lost(cells, chapter) if lost else cells
    read = notebooks.read_cells(mangled.as_file(cells))
    assert not any(matching.written(read, master).values())
    if not lost:
        assert not matching.match(read, master).notes
    submitted = a_class.submission(tmp_path, mangled.as_file(cells))
    assert matching.worth(submitted.notebook, master) == 1
    submitted = a_class.submission(tmp_path, mangled.as_file(mangled.solved(chapter)))
    assert matching.worth(submitted.notebook, master) == 2


# ---------------------------------------------------------------- files


def tarred(mode: str, **members: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


SHEET = "02-sequences"
ANSWER = mangled.as_file(mangled.solved(SHEET)) if masters.MASTERS else b""
OUT = mangled.as_file(mangled.handed_out(SHEET)) if masters.MASTERS else b""
BOOK = f"{SHEET}.ipynb"
HANDED_IN = {
    "Safari": {f"{BOOK}.json": ANSWER},
    "Notepad": {f"{BOOK}.txt": ANSWER},
    "Notepad, UTF-16": {f"{BOOK}.txt": ANSWER.decode().encode("utf-16")},
    "a text": {"my answers.txt": ANSWER},
    "JSON": {f"{SHEET}.json": ANSWER},
    "a second download": {f"{SHEET} (1).ipynb": ANSWER, BOOK: OUT},
    "Colab's copy": {f"Copy of {BOOK}": ANSWER, BOOK: OUT},
    "Colab's copy in German": {f"Kopie von {BOOK}": ANSWER, BOOK: OUT},
    "Jupyter's copy": {f"{SHEET}-Copy1.ipynb": ANSWER, BOOK: OUT},
    "copy on Windows": {f"{SHEET} - Copy.ipynb": ANSWER, BOOK: OUT},
    "copy on a Mac": {f"{SHEET} copy.ipynb": ANSWER, BOOK: OUT},
    "an untouched copy": {f"{SHEET}-Copy1.ipynb": OUT, BOOK: ANSWER},
    "the same twice": {f"Copy of {BOOK}": ANSWER, BOOK: ANSWER},
    "an empty file beside it": {f"{SHEET}-1.ipynb": b"", BOOK: ANSWER},
    "a name of one's own": {"homework Ada.ipynb": ANSWER, "notes.txt": b"read chapter 2"},
    "the name of one's own beside the original": {"homework.ipynb": ANSWER, "other.ipynb": OUT},
    "zip": {"work.zip": zipped(**{BOOK: ANSWER})},
    "zip of a folder": {"work.zip": zipped(**{f"02/a/{BOOK}": ANSWER, f"__MACOSX/._{BOOK}": b""})},
    "zip in a zip": {"work.zip": zipped(**{"inner.zip": zipped(**{BOOK: ANSWER})})},
    "the bundle, zipped": {"work.zip": zipped(**{BOOK: ANSWER, "README.md": b"1. Unpack"})},
    "tar": {"work.tar": tarred("w", **{BOOK: ANSWER})},
    "tar.gz": {"work.tar.gz": tarred("w:gz", **{"a/readme": b"hi", f"a/{BOOK}": ANSWER})},
    "tgz": {"work.tgz": tarred("w:gz", **{f"{BOOK}.json": ANSWER})},
    "tar.xz in a zip": {"work.zip": zipped(**{"x.tar.xz": tarred("w:xz", **{BOOK: ANSWER})})},
    "checkpoints": {".ipynb_checkpoints/x-checkpoint.ipynb": OUT, BOOK: ANSWER},
}


def worth_of(notebook):
    return matching.worth(notebook, of_book(SHEET))


def put(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("files", HANDED_IN.values(), ids=HANDED_IN.keys())
def test_the_notebook_with_the_answers_is_found(tmp_path, files):
    put(tmp_path / "ada", files)
    (submission,) = find_submissions(tmp_path, SHEET, worth_of)
    assert not submission.problem
    assert notebooks.read_cells(submission.read_bytes()) == notebooks.read_cells(ANSWER)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"answers.docx": b"PK", "photo.jpg": b""}, "answers.docx, photo.jpg"),
        ({"notes.txt": b"{}", "02-sequences.py": b"# %%"}, "02-sequences.py, notes.txt"),
        ({"work.rar": b"Rar!"}, "work.rar"),
        ({"work.zip": zipped(**{"a.docx": b"PK"})}, "a.docx"),
        ({"work.tar.gz": b"\x1f\x8b"}, "work.tar.gz is damaged"),
        ({BOOK: ANSWER, f"Copy of {BOOK}": ANSWER.replace(b"groups", b"sets")}, "not clear"),
        ({}, "No notebook was handed in."),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_was_found_instead_of_a_notebook_is_listed(tmp_path, files, says):
    (tmp_path / "ada").mkdir()
    put(tmp_path / "ada", files)
    (submission,) = find_submissions(tmp_path, SHEET, worth_of)
    assert submission.notebook is None
    assert says in submission.problem


def test_of_an_archive_no_more_is_read_than_it_may_hold(tmp_path):
    bombs = {
        "a/x.tar.gz": tarred("w:gz", **{"zeros": bytes(10**8), BOOK: ANSWER}),
        "b/x.zip": zipped(**{"x.zip": zipped(**{"y.zip": zipped(**{BOOK: bytes(10**8)})})}),
    }
    put(tmp_path, bombs)
    with pytest.raises(archives.Damaged, match=r"x\.tar\.gz is damaged"):
        archives.members(tmp_path / "a" / "x.tar.gz")
    assert archives.members(tmp_path / "b" / "x.zip") == [("x.zip", "y.zip", BOOK)]
    bomb, other = find_submissions(tmp_path, SHEET)
    assert "x.tar.gz is damaged" in bomb.problem
    assert len(other.read_bytes()) == notebooks.LARGEST_NOTEBOOK + 1


# ---------------------------------------------------------------- what a person is asked


def test_where_the_notebook_says_right_and_the_grader_does_not_a_person_is_asked(server, tmp_path):
    """The answer rests on a file that only the student has."""
    cells, master = mangled.solved(SHEET), of_book(SHEET)
    cells[5]["source"] = "import my_helpers\n" + cells[5]["source"]
    cells[7]["outputs"] = [
        {
            "output_type": "stream",
            "name": "stdout",
            "text": ["mend-the-groups: right. Checked: x.\n"],
        }
    ]
    submitted = a_class.submission(tmp_path, mangled.as_file(cells))
    result = grade_submission(submitted, Terms(master, LIMITS), server)
    (doubt,) = result.doubts
    assert doubt.startswith("mend-the-groups: ")
    page = feedback.class_page([(submitted, result)])
    assert "To be looked at by a person" in page
    assert "the check was passed" in page
