"""The thief goes home with nothing: a program that steals earns no point in any exercise.

What it tries is in `thief.py`. It is given the bundle of its sheet, as students are, and runs where
their code runs. That it is able to steal is tested too: by a bundle that holds answers.
"""

import functools
import inspect
import re
import zipfile

import nbformat
import pytest

from nbcourse.checks import worked
from nbcourse.classroom import masters as classroom_masters
from nbcourse.classroom.grading import grade_submission
from nbcourse.classroom.release import write_bundles
from nbcourse.classroom.results import Terms
from nbcourse.classroom.variants import variant_of
from nbcourse.confined.submission_errors import Ending
from nbcourse.publishing.chapters import ROOT
from tests.checks import masters
from tests.classroom import a_class, thief
from tests.classroom.conftest import LIMITS
from tests.effort import swept

pytestmark = masters.needed
OTHERS = [way for way in thief.WAYS if way != "copies"]
LOOKED_UP = swept(
    [(chapter, way) for chapter in masters.MASTERS for way in ("copies", "tables")],
    keep=[*((c, "tables") for c in masters.MASTERS[11:12]), (masters.MASTERS[6], "copies")],
)
NAME = "ada"  # whose numbers the thief has

ATTEMPTS = swept(
    [(chapter, way) for chapter in masters.MASTERS for way in thief.WAYS],
    keep=[
        *((chapter, "copies") for chapter in masters.MASTERS),
        *zip(masters.MASTERS, OTHERS, strict=False),
    ],
)


@pytest.fixture(scope="session")
def bundle_of(tmp_path_factory):
    """The files of a sheet's bundle, by their names in it.

    One round of hashing seals a value in it, so that a guess costs the thief less than a student.
    """

    @functools.cache
    def files(chapter: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("bundles")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worked, "ROUNDS", 1)
            (path,) = write_bundles(chapter, folder, students=[NAME])
        with zipfile.ZipFile(path) as archive:
            found = {
                name.partition("/")[2]: archive.read(name).decode() for name in archive.namelist()
            }
        code = "nbcourse/checks/worked.py"
        found[code], count = re.subn(r"(?m)^ROUNDS = \S+", "ROUNDS = 1", found[code])
        assert count == 1
        return found

    return files


@pytest.fixture
def steal(server, tmp_path):
    """What the thief gets for a sheet, if it has this bundle and goes this way."""

    def graded(chapter: str, bundle: dict[str, str], way: str, *, shares: bool = False):
        master = classroom_masters.load_master(classroom_masters.find_master(chapter))
        variant = variant_of(NAME, chapter)
        code = {name: text for name, text in bundle.items() if name.endswith(".py")}
        tools = (
            f"{inspect.getsource(thief)}\nTHIEF = Thief({chapter!r}, {variant}, {code}, {way!r})"
        )
        notebook = nbformat.reads(bundle[f"{chapter}.ipynb"], as_version=4)
        for cell in notebook.cells:
            name = masters.grader(cell).get("grade_id")
            if name in master.solutions:
                cell.source = "\n".join(
                    f"{function} = THIEF.answer({name!r}, {function!r})"
                    for function in master.solutions[name].functions
                )
        notebook.cells.insert(0, nbformat.v4.new_code_cell(tools))
        submitted = a_class.submission(tmp_path, nbformat.writes(notebook).encode(), NAME)
        partial = frozenset(step.grade_id for step in master.exercises if shares)
        terms = Terms(master, LIMITS, personal=True, partial=partial)
        return grade_submission(a_class.listed(submitted), terms, server)

    return graded


@pytest.mark.parametrize(("chapter", "way"), ATTEMPTS)
def test_stealing_earns_nothing(steal, bundle_of, chapter, way):
    result = steal(chapter, bundle_of(chapter), way)
    assert not result.notes
    assert result.points == 0, [e.exercise for e in result.exercises if e.points]
    by_hand = {
        answer.grade_id
        for answer in classroom_masters.load_master(classroom_masters.find_master(chapter)).written
    }
    failed = {e.state for e in result.exercises if e.exercise not in by_hand}
    # it ran, and gave answers: nothing stopped it but that they are wrong
    assert failed <= {Ending.FAILED, Ending.RAISED, Ending.NOT_PLAIN, Ending.MALFORMED}


@pytest.mark.parametrize(("chapter", "way"), LOOKED_UP)
def test_where_points_are_shared_looking_up_earns_nothing(steal, bundle_of, chapter, way):
    result = steal(chapter, bundle_of(chapter), way, shares=True)
    assert result.points == 0, [
        (e.name, e.points, e.feedback) for e in result.exercises if e.points
    ]


def test_a_thief_who_finds_answers_is_paid(steal, bundle_of):
    """With the book's own checks in the bundle, as a reader of the whole book has them."""
    room = (ROOT / "nbcourse" / "checks" / "ppo.py").read_text(encoding="utf-8")
    bundle = bundle_of("05-ppo") | {"nbcourse/checks/ppo.py": room}
    paid = {e.exercise for e in steal("05-ppo", bundle, "copies").exercises if e.points}
    assert paid == {"by-hand-check", "penalty-optimum-check"}


def test_the_book_itself_cannot_be_imported_or_read(server, tmp_path):
    """Nor can the libraries that solve exercises; torch can, and the numbers of the sheet."""
    rooms = [f"nbcourse.checks.{path.stem}" for path in (ROOT / "nbcourse" / "checks").glob("*.py")]
    places = [*rooms, "nbcourse.functional", "nbcourse.functional.advantages", "nbcourse.toys"]
    places += ["nbcourse.classroom.grading", "tests.checks.wrong", "trl", "polgrad", "torchrl"]
    source = f"""
import importlib, os, sys

def double(x):
    found = []
    for name in {places!r}:
        try:
            importlib.import_module(name)
            found.append(name)
        except (ImportError, OSError):
            pass
    for name in {places!r}:
        path = os.path.join({str(ROOT)!r}, *name.split(".")) + ".py"
        try:
            open(path).close()
            found.append(path)
        except OSError:
            pass
    found += [name for name in sys.modules if name.startswith("nbcourse.checks.")]
    import numpy, torch.nn
    assert found == [], found
    return 2 * x
"""
    master = a_class.master(tmp_path)
    content = a_class.notebook(a_class.solved(double=source))
    submitted = a_class.submission(tmp_path, content)
    result = grade_submission(submitted, Terms(master, LIMITS), server)
    assert result.points == 6, result.exercises[0].feedback
