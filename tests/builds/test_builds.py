"""Graded builds: the book's pieces pass, and each wrong trainer is named for what it is."""

import ast
import csv
import json
import re
import sys

import pytest
import torch
from typer.testing import CliRunner

from nbcourse.builds import (
    actor_critic,
    bench,
    check,
    credit,
    gating,
    grading,
    harness,
    learning,
    mistakes,
    oracle,
    pieces,
    planning,
    reading,
    report,
)
from nbcourse.builds.mistakes import MISTAKES
from nbcourse.builds.pieces import Folder, PieceState
from nbcourse.cli import app
from nbcourse.confined.sandbox import Limits
from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.lm import loading
from nbcourse.mistakes.catalogue import CATALOGUE, current
from nbcourse.repository import ROOT
from tests.command import invoke
from tests.effort import swept


def own(text):
    """A piece that does the same, and is no longer the book's."""
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.body.insert(1, ast.Pass())
    return ast.unparse(tree)


BOOK = {name: own(pieces.solution(name)) for name in pieces.NAMES}
QUICK = {"estimator", "gae", "clip", "verifier", "planner", "gate"}  # a few milliseconds each
KEPT = {"mask-by-value", "shifted-log-probs", "untrained-eos", "no-baseline"}
KEPT |= {name for name, mistake in MISTAKES.items() if mistake.piece in QUICK}


def judged(piece, text):
    """The laws of a piece on the book's, less the curve, which takes a quarter of a minute."""
    under = {name: pieces.solution(name) for name in pieces.NAMES}
    laws = [law for law in check.LAWS if law.piece == piece and law.name != "curve"]
    with bench.here(under | {piece: text}) as asked:
        return list(check.judge(laws, asked))


@pytest.mark.parametrize("piece", pieces.NAMES)
def test_the_book_keeps_every_law(piece):
    broken = [one.lines() for one in judged(piece, pieces.solution(piece)) if one.finding]
    assert not broken


@pytest.mark.sweep
def test_the_book_gets_all_points_curves_included():
    found = check.check(Folder("book", BOOK), tests=False)
    assert found.points == found.most, str(found)


@pytest.mark.parametrize("name", swept(MISTAKES, keep=KEPT))
def test_a_wrong_trainer_is_named_for_what_it_is_and_nothing_else(name):
    mistake = MISTAKES[name]
    found = [one for one in judged(mistake.piece, mistake.text()) if one.finding]
    assert [one.finding.id for one in found] == [mistake.id]
    assert CATALOGUE[mistake.id].sentence in found[0].lines()[0]


def test_a_sampler_that_is_too_random_is_found_as_well():
    cold = MISTAKES["cold-sampler"]
    ((old, new),) = cold.edits
    hot = mistakes.Way("reinforce", ((old, new.replace("1.5 *", "0.5 *")),)).text()
    with bench.here(
        {name: pieces.solution(name) for name in pieces.NAMES} | {"reinforce": hot}
    ) as b:
        finding = learning._draws(b)
    assert finding is not None
    assert float(finding.evidence.split()[0]) < -learning.Z


def test_a_trainer_that_learns_nothing_has_no_curve():
    """The warm model answers more of the problems than have to be gained."""
    assert oracle.accuracy(bench.WARM.single) > learning.GAIN
    finding = learning.curve("grpo", bench.Bench(lambda *_: bench.WARM.single))
    assert finding is not None
    assert "0.31 before, 0.31 after" in finding.evidence


@pytest.mark.parametrize("group", [0, 5, 11])
def test_each_group_is_read(monkeypatch, group):
    rows = [f"{i}+1=" for i in range(12) for _ in range(4)]
    rows[4 * group + 3] = "99+9="
    prompt, mask = oracle.given().encode(rows)
    batch = {"rollout": {"prompt": prompt, "prompt_mask": mask}}
    monkeypatch.setattr(learning, "batches", lambda *_: [batch, batch])
    finding = learning._groups("grpo", "scattered-groups", None)
    assert finding.id == "mixed-groups"
    assert f"rows {4 * group} to {4 * group + 3} answer" in finding.evidence


def test_what_a_law_names_is_known():
    modules = (actor_critic, credit, gating, learning, planning, reading, mistakes)
    assert all(module.__doc__ for module in modules)
    assert {mistake.piece for mistake in MISTAKES.values()} == set(pieces.NAMES)
    for law in check.LAWS:
        before = [other.name for other in check.LAWS if other.piece == law.piece]
        assert set(law.after) <= set(before[: before.index(law.name)]), law.name


def test_every_line_of_the_edits_is_read():
    rest = mistakes.ENTRY.sub("", mistakes.EDITS).split("\n")
    assert [line for line in rest if line] == [f"# {name}" for name in pieces.NAMES]
    assert sum(line.startswith("+") for line in mistakes.EDITS.split("\n")) >= len(MISTAKES)


def test_an_edit_goes_by_the_name_of_its_mistake_or_by_one_of_its_own():
    for name, wrong in MISTAKES.items():
        assert wrong.id in CATALOGUE, name
        assert name == wrong.id or name not in CATALOGUE, name
        assert current(name) == wrong.id or name == "trained-outside", name


def test_every_mistake_has_somebody_who_finds_it():
    built = {wrong.id for wrong in MISTAKES.values()}
    assert {name for name, row in CATALOGUE.items() if not row.evidence} <= built


def test_an_edit_that_no_longer_fits_says_so():
    with pytest.raises(
        ValueError, match=r"clip\.py holds 'nothing like it' 0 times, expected once"
    ):
        mistakes.Way("clip", (("nothing like it", ""),)).text()


def test_the_policy_is_the_recorded_one():
    folder = records.RUNS / "arithmetic-sft-seed0" / "model"
    assert pieces.WARM.read_bytes() == (folder / "model.safetensors").read_bytes()
    given = oracle.given()
    tokenizer, model = loading.load(folder, "cpu")
    texts = ["1+2=3", "17+25=42", "99+9="]
    tokens, mask = given.encode(texts)
    assert tokens.tolist() == tokenizer(texts, padding=True)["input_ids"]
    ids = mask.long()
    with torch.no_grad():
        positions = (ids.cumsum(1) - 1).clamp(min=0)
        theirs = model(input_ids=tokens, attention_mask=ids, position_ids=positions).logits
        ours = given.Policy(bench.WARM.single)(tokens, mask)
    torch.testing.assert_close(ours[mask], theirs[mask], rtol=0, atol=1e-5)
    assert [given.decode(row) for row in tokens] == texts


def test_problems_are_those_that_are_trained_on():
    problems = oracle.given().draw(50, torch.Generator().manual_seed(0))
    assert all(oracle.answer(prompt) == answer for prompt, answer in problems)
    held_out = oracle.TASK.draw(200, split="test", generator=torch.Generator().manual_seed(0))
    drawn = {prompt for prompt, _ in oracle.given().draw(3000, torch.Generator().manual_seed(1))}
    assert not drawn & {problem.prompt for problem in held_out}


# ---------------------------------------------------------------- folders


@pytest.mark.parametrize("name", pieces.NAMES)
def test_a_stub_holds_nothing_of_the_solution(name):
    stub, solution = pieces.stub(name), pieces.solution(name)
    assert "SOLUTION" not in stub + solution
    folder = Folder("new", {name: stub})
    state, remark = folder.state(name)
    assert (state, remark.startswith(f"{name}.py: ")) == (PieceState.UNFILLED, True)
    for taken in (solution, solution + "\n\ndef more():\n    pass\n"):
        assert Folder("book", {name: taken}).state(name)[0] == PieceState.TAKEN
    assert Folder("own", {name: own(solution)}).state(name)[0] == PieceState.OWN
    assert "raise NotImplementedError" in stub
    taught = set(map(str.strip, solution.splitlines())) - set(map(str.strip, stub.splitlines()))
    assert len(taught) >= 2


@pytest.mark.parametrize("text", ["def (", "x = \0", f"x = {'-' * 10_000}1"])
def test_what_the_parser_refuses_is_not_python(text):
    assert Folder("own", {"gae": text}).state("gae")[0] == PieceState.UNREADABLE
    assert not check._reached(text)


def test_the_appendix_lists_the_pieces_with_their_minutes():
    page = (ROOT / "book" / "appendix-e-build.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\.py` \| (\d+) \|.*\| (\d+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(pieces.NAMES)
    for name, chapter, minutes in rows:
        head = pieces.stub(name).partition("\n\nDifficulty")
        assert re.search(rf"chapters? .*\b{chapter}[:,]", head[0])
        assert f" · {minutes} minutes · " in head[2]
    assert f"{len(MISTAKES)} wrong trainers" in page


def test_from_an_empty_folder_by_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def said(*arguments):
        done = CliRunner().invoke(app, ["build", *arguments])
        return done.exit_code, done.output

    assert said("start", "mine")[0] == 0
    (tmp_path / "mine" / "estimator.py").write_text(BOOK["estimator"])
    assert "estimator.py" not in said("start", "mine")[1].replace("fill in estimator.py", "")
    code, text = said("check", "mine", "estimator", "--json", "report.json")
    assert code == 0
    assert "5/5" in text
    assert json.loads((tmp_path / "report.json").read_text())["points"] == 5
    assert "gae.py: gae still to be filled in" in said("check", "mine", "gae")[1]
    assert said("take", "mine", "gae")[0] == 0
    code, text = said("check", "mine", "gae")
    assert "taken from the book: it works but earns nothing" in text
    assert "0 of 3 points; taken from the book: gae" in text
    code, text = said("take", "mine", "estimator")
    assert code == 2
    assert "holds work of your own; --force replaces it" in text
    code, text = said("check", "mine", "gea")
    assert code == 2
    assert "did you mean 'gae'?" in text
    code, text = said("check", "nowhere")
    assert code == 2
    assert "`nbcourse build start nowhere` makes one" in text
    assert not set(pieces.NAMES) & set(sys.modules)


def test_a_folder_runs_without_this_package(tmp_path):
    pieces.start(tmp_path)
    for name in ("estimator", "reinforce"):
        pieces.take(tmp_path, name)
    sources = {path.stem: path.read_text() for path in tmp_path.glob("*.py")}
    assert not any("nbcourse" in text for text in sources.values())


def test_a_mistake_costs_once():
    wrong = MISTAKES["own-reward-in-baseline"].text()
    folder = Folder("one", BOOK | {"estimator": own(wrong), "grpo": "def (", "gae": ""})
    quick = [law for law in check.LAWS if law.name != "curve"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "LAWS", quick)
        found = check.check(folder, tests=False, only=("estimator", "reinforce", "grpo"))
    one, two, three = found.builds
    assert [j.finding.id for j in one.laws if j.finding] == ["own-reward-in-baseline"]
    (said,) = (law["finding"] for law in one.as_dict()["laws"] if law["finding"])
    assert (said["id"], said["section"]) == ("own-reward-in-baseline", "2.5 Which baseline?")
    assert two.right
    assert list(two.beneath) == ["estimator"]
    assert three.lines() == ["grpo        0/17  grpo.py is not Python, see line 1"]
    assert "run with the book's estimator" in str(found)


def test_an_error_names_the_readers_line():
    text = pieces.solution("clip").replace("A, ratio =", "A, ratio = nothing,")
    (first, *others) = judged("clip", text)
    assert first.as_dict()["finding"] == vars(first.finding)  # no row of the catalogue
    assert first.finding.evidence == "NameError: name 'nothing' is not defined (clip.py, line 18)"
    assert [one.verdict for one in others] == [report.Verdict.OPEN]
    build = report.Build("clip", PieceState.OWN, "", [first, *others])
    assert build.lines()[-1] == f"    not examined until that is fixed: {others[0].law.name}"


# ---------------------------------------------------------------- tests that a reader writes

TEST = """
import torch
from estimator import leave_one_out

def test_groups():
    found = leave_one_out(torch.tensor([1.0, 0.0, 0.0, 5.0, 5.0, 5.0]), 3)
    assert torch.allclose(found, torch.tensor([1.0, -0.5, -0.5, 0.0, 0.0, 0.0]))
"""
SOME = {name: one for name, one in MISTAKES.items() if one.piece in ("estimator", "clip")}


@pytest.fixture
def some_mistakes(monkeypatch):
    monkeypatch.setattr(check, "MISTAKES", SOME)


@pytest.mark.usefixtures("some_mistakes")
def test_tests_are_paid_for_what_they_catch():
    found = check.judged_tests(Folder("mine", {"test_mine": TEST}))
    assert found.caught == [
        "own-reward-in-baseline", "divided-by-group-size", "interleaved-groups", "batch-baseline",
        "inverted-advantages",
    ]  # fmt: skip
    assert found.points == round(20 * 5 / len(SOME), 1)


@pytest.mark.usefixtures("some_mistakes")
@pytest.mark.parametrize(
    ("test", "said"),
    [
        (TEST.replace("-0.5, -0.5", "-0.5, -0.25"), "test_mine.test_groups: AssertionError"),
        ("import nothing_like_it", "test_mine: cannot be imported: ModuleNotFoundError"),
        (TEST.replace("found =", "raise ValueError('no')\n    found ="), "ValueError: no"),
    ],
)
def test_tests_that_accuse_a_healthy_trainer_earn_nothing(test, said):
    found = check.judged_tests(Folder("mine", {"test_mine": test}))
    assert found.points == 0
    assert said in "\n".join(found.lines())


@pytest.mark.parametrize("name", swept(check.ALSO_RIGHT, keep=["estimator"]))
def test_other_sums_are_as_healthy(name):
    text = mistakes.Way(name, check.ALSO_RIGHT[name]).text()
    # z-scores with another eps are right for a reader's tests; a law can see the difference
    assert {one.finding.id for one in judged(name, text) if one.finding} <= {""}


@pytest.mark.parametrize(
    "kind", ["numpy.float64", "torch.tensor", "lambda x: torch.tensor(x).double()", "float"]
)
@pytest.mark.parametrize(
    ("piece", "function"),
    [
        ("planner", "static_bytes"),
        ("planner", "at_least"),
        ("gate", "mixed_share"),
        ("gate", "power"),
        ("gate", "agreement"),
    ],
)
def test_a_number_is_one_whoever_made_it_and_in_single_precision_too(piece, function, kind):
    made = (
        "\n\nimport numpy\nimport torch\n"
        f"_own = {function}\ndef {function}(*given):\n    return ({kind})(_own(*given))\n"
    )
    assert [one.law.name for one in judged(piece, BOOK[piece] + made) if one.finding] == []


@pytest.mark.parametrize("piece", ["reinforce", "ppo", "grpo"])
def test_an_update_without_a_step_is_one_in_which_nothing_moves(piece):
    text = BOOK[piece].replace("    optimiser.step()\n", "")
    (broken,) = [one for one in judged(piece, text) if one.finding]
    assert (broken.law.name, broken.finding.id) == ("update", "idle")


def test_a_file_that_is_not_read_is_told_where_it_is_imported():
    text = "from helpers import mean\n" + BOOK["gae"]
    broken = [one.finding.evidence for one in judged("gae", text) if one.finding]
    assert broken[0].endswith("of a folder's files only the pieces and test_….py are read")


def test_what_is_no_number_is_told_by_its_type():
    text = BOOK["gate"] + "\n\ndef mixed_share(groups):\n    return [0.5]\n"
    (broken,) = [one for one in judged("gate", text) if one.finding]
    assert broken.finding.evidence == "expected a number, got list"


def test_a_file_that_ends_python_does_not_end_the_check():
    text = BOOK["gae"] + "\nraise SystemExit(3)\n"
    broken = [one for one in judged("gae", text) if one.finding]
    assert broken
    assert "it ends Python" in broken[0].finding.evidence


# ---------------------------------------------------------------- a class

LIMITS = Limits(seconds=300, total=900)


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.usefixtures("some_mistakes", "zygote")
def test_a_class_is_graded_in_confined_processes(tmp_path):
    folder = tmp_path / "class" / "ann"
    folder.mkdir(parents=True)
    (folder / "estimator.py").write_text(BOOK["estimator"])
    (folder / "clip.py").write_text("import nbcourse.functional.surrogates\n" + BOOK["clip"])
    (folder / "test_mine.py").write_text(TEST)
    (folder / "verifier.py").write_text(BOOK["verifier"])
    (folder / "exploits.py").write_text("NICKNAME = 'A'\nEXPLOITS = [('##### 18', '18')]")
    (ann,) = grading.grade(tmp_path / "class", tmp_path / "out", limits=LIMITS, against=True)
    assert not ann.failure
    assert {build.piece: build.as_dict()["points"] for build in ann.builds if build.right} == {
        "estimator": 5,
        "verifier": 12,
    }
    assert ann.exploits.fooled == ["five-hashes", "number-anywhere"]
    assert (tmp_path / "out" / "exploits.csv").read_text().splitlines()[1] == "ann,0,0,0,0"
    assert "0 of 0" in (tmp_path / "out" / "leaderboard.txt").read_text()
    assert "six cases: It is wrong, but not by any mistake" in str(ann)
    assert "nbcourse" in str(ann)
    assert len(ann.tests.caught) == 5
    assert (tmp_path / "out" / "ann.txt").read_text().startswith("ann\n===\n")
    assert (tmp_path / "out" / "grades.csv").read_text().startswith("student,points,of,estimator")
    assert set(harness.FUNCTIONS) <= set(vars(harness))


@pytest.mark.usefixtures("zygote")
def test_what_could_not_be_graded_is_no_zero(tmp_path, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(check, "check", full)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "class" / "ann"
    folder.mkdir(parents=True)
    (folder / "clip.py").write_text(BOOK["clip"])
    done = invoke("build", "grade", "class", "--trust-submissions", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "ann: not graded: MemoryError" in done.stderr
    with (tmp_path / "out" / "grades.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row.pop("student") == "ann"
    assert row.pop("failure").startswith("not graded: MemoryError")
    assert {*row.values()} == {""}


def test_no_name_is_a_formula_to_a_spreadsheet(tmp_path):
    rows = [["=1+1", 2.5, ""], ["＝1+1", None, ""], ["ann", 3, "not graded:\n=1"]]
    grading.write_table(tmp_path / "grades.csv", ["student", "points", "failure"], rows)
    assert (tmp_path / "grades.csv").read_bytes().decode().split("\r\n") == [
        "student,points,failure", "'=1+1,2.5,", "'＝1+1,,", "ann,3,not graded: =1", "",
    ]  # fmt: skip


def test_no_report_is_written_over_another(tmp_path, zygote):
    folders = [tmp_path / "Ann Lee", tmp_path / "Ann_Lee"]
    with pytest.raises(UserError, match=r"Ann_Lee\.txt"):
        grading.written(
            pytest.fail, folders, tmp_path / "out", zygote=zygote, jobs=1, confined=False
        )


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.usefixtures("zygote")
def test_students_are_graded_side_by_side_as_one_after_the_other(tmp_path):
    """Reports come back from other processes, and say what they say in this one."""
    for student, piece in (("ann", "estimator"), ("bob", "gae")):
        folder = tmp_path / "class" / student
        folder.mkdir(parents=True)
        (folder / f"{piece}.py").write_text(BOOK[piece])
        (folder / "clip.py").write_text(BOOK["clip"].replace("1 + clip", "1 - clip"))
    alone = check.check(pieces.read(tmp_path / "class" / "ann"))
    ann, bob = grading.grade(tmp_path / "class", tmp_path / "out", limits=LIMITS, jobs=2)
    assert (ann.name, bob.name) == ("ann", "bob")
    assert not bob.failure
    assert [build.piece for build in bob.builds if build.right] == ["gae"]
    assert str(ann) == str(alone)
    assert ann.as_dict() == alone.as_dict()
    assert any(law.finding for build in ann.builds for law in build.laws)
    assert ann.points > 0


def test_a_link_to_nowhere_and_a_folder_are_no_pieces(tmp_path):
    (tmp_path / "gae.py").symlink_to("/nowhere")
    (tmp_path / "clip.py").mkdir()
    assert pieces.read(tmp_path).sources == {}


def test_a_folder_that_cannot_be_read_has_a_report(tmp_path, monkeypatch, zygote):
    def refused(folder):
        raise PermissionError("not for you")

    monkeypatch.setattr(pieces, "read", refused)
    found = grading.graded(tmp_path / "ada", zygote, limits=Limits(), confined=False)
    assert (found.name, found.failure) == ("ada", "not graded: PermissionError: not for you")


def test_reports_are_written_before_the_last_one_is_there(tmp_path, zygote):
    def work(folder, _):
        if folder.name == "bob":
            raise KeyboardInterrupt
        return report.Report(folder.name, [])

    folders = [tmp_path / "ada", tmp_path / "bob"]
    with pytest.raises(KeyboardInterrupt):
        grading.written(work, folders, tmp_path / "out", zygote=zygote, jobs=1, confined=False)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"ada.txt", "ada.json"}


def test_one_at_a_time_is_graded_without_other_processes(monkeypatch, zygote):
    def refused(*_):
        raise AssertionError("asked for other processes")

    monkeypatch.setattr(grading, "graders", refused)
    work = lambda folder, given: (folder, given is zygote)  # noqa: E731
    assert [*grading._each(work, ["a", "b"], zygote, 1)] == [("a", True), ("b", True)]
    assert [*grading._each(work, ["a"], zygote, 8)] == [("a", True)]
    with pytest.raises(AssertionError, match="asked for other processes"):
        next(grading._each(work, ["a", "b"], zygote, 2))


def test_a_verifier_that_pays_a_wrong_answer_is_told_what_it_paid():
    (said, *_) = [
        one.finding
        for one in judged("verifier", "def reward(response, answer):\n    return 1.0\n")
        if one.finding
    ]
    response = reading.PLAIN[0][0]
    assert said.evidence == f"{response!r} earns 1.0, the answer being 19"


def test_a_count_is_held_to_more_digits_than_single_precision_has():
    made = "\n\n_own = static_bytes\ndef static_bytes(*given):\n    return _own(*given) + 10\n"
    assert any(one.finding for one in judged("planner", BOOK["planner"] + made))
