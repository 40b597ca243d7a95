"""The hunt: trainers with faults that only their results betray, and marks for what is run."""

import ast
import importlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tokenize
from collections import Counter
from functools import cache

import pytest
from typer.testing import CliRunner

from nbcourse.builds import bench, check, hunt, planted
from nbcourse.builds.hunt import Deal
from nbcourse.builds.planted import CONTENTS, FORMS, PLANTS
from nbcourse.cli import app
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.errors import UserError
from nbcourse.experiments import evidence
from nbcourse.experiments.combinations import OF_A_TRAINER, together
from tests.effort import swept

EVERY = tuple(range(len(FORMS)))
CASES = [
    (algorithm, fault, number)
    for algorithm in CONTENTS
    for fault, ways in hunt._possible(algorithm).items()
    for number in range(len(ways))
]
KEPT = [  # others are in the trainers that are mended below
    ("grpo", "idle-optimiser", 0),
    ("ppo", "misplaced-reward", 0),
]
QUICK = {
    "loss",
    "constants",
    "leave-one-out",
    "log-probs",
    "reward",
    "update",
    "six cases",
    "averages",
}


@pytest.fixture
def quick(monkeypatch):
    """Laws that ask single functions, in a few milliseconds each."""
    laws = [law for law in check.LAWS if law.name in QUICK]
    monkeypatch.setattr(check, "LAWS", laws)


def dealt(algorithm="rloo", forms=EVERY, **ways):
    """A deal of these faults, by the place of the way to plant each."""
    names = {name.replace("_", "-"): place for name, place in ways.items()}
    chosen = {name: planted.ways_of(name, algorithm)[place] for name, place in names.items()}
    return Deal("ann", algorithm, chosen, forms, seed=0)


def broken(text, algorithm):
    return list(hunt._broken(text, algorithm=algorithm, runs=bench.here).values())


# ---------------------------------------------------------------- trainers


@pytest.mark.parametrize(
    ("algorithm", "forms"),
    swept([(name, forms) for name in CONTENTS for forms in ((), EVERY)], keep=[("grpo", EVERY)]),
)
def test_a_healthy_trainer_keeps_every_law(algorithm, forms):
    assert not broken(planted.trainer(algorithm, (), forms), algorithm)


@pytest.mark.parametrize(("algorithm", "fault", "number"), swept(CASES, keep=KEPT))
def test_each_fault_alone_breaks_a_law(algorithm, fault, number):
    way = planted.ways_of(fault, algorithm)[number]
    found = broken(planted.trainer(algorithm, [way], EVERY), algorithm)
    assert found
    assert found[0].finding.evidence


def test_every_fault_that_can_be_shown_by_two_steps_is_planted():
    """The others need a KL in the loss, moments, two processes, or more than two steps."""
    assert set(PLANTS) == set(OF_A_TRAINER) - {
        "reference-moves",
        "reference-dropout",
        "same-samples",
        "same-seed",
        "kl-sign-in-loss",
        "inverted-kl",
        "wrong-kl-estimator",
        "lost-moments",
    }
    for name, ways in PLANTS.items():
        assert len(ways) > 1, name
        assert any(name in hunt._possible(algorithm) for algorithm in CONTENTS), name


@cache
def looked_at(part):
    """The definitions in a part of a text by their names, its comments, and its docstrings."""
    tree, tokens = ast.parse(part), tokenize.generate_tokens(io.StringIO(part).readline)
    nodes = (ast.Module, ast.FunctionDef, ast.ClassDef)
    return (
        {getattr(node, "name", i): ast.dump(node) for i, node in enumerate(tree.body)},
        [token.string for token in tokens if token.type == tokenize.COMMENT],
        [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, nodes)],
    )


@pytest.mark.parametrize("forms", [(), EVERY], ids=["book", "other forms"])
def test_nothing_in_a_text_betrays_a_fault_but_what_it_computes(forms, tmp_path):
    """Not comments, docstrings, layout, unused or undefined names, nor another function."""
    healthy = {name: planted.trainer(name, (), forms) for name in CONTENTS}
    for algorithm, fault, number in CASES:
        way = planted.ways_of(fault, algorithm)[number]
        wrong = planted.trainer(algorithm, [way], forms)
        changed = set()
        both = (text.split("\n\n\n") for text in (healthy[algorithm], wrong))
        for text, other in zip(*both, strict=True):
            (before, *said), (after, *told) = looked_at(text), looked_at(other)
            assert before.keys() == after.keys()
            assert told == said, fault
            changed |= {name for name in before if before[name] != after[name]}
        assert changed == set(planted.functions(way)), fault
        (tmp_path / f"{algorithm}_{fault}_{number}.py".replace("-", "_")).write_text(wrong)
    for command in (["check", "--select", "E,F,B,PLE"], ["format", "--check"]):
        call = [sys.executable, "-m", "ruff", *command, "--isolated", "--line-length", "100"]
        done = subprocess.run([*call, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@cache
def names(text):
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def test_names_that_a_fault_brings_say_nothing_of_it():
    telling = {"stale", "wrong", "broken", "fault", "bug", "mistake", "biased", "cold", "noisy"}
    for algorithm, fault, number in CASES:
        text = planted.trainer(algorithm, [planted.ways_of(fault, algorithm)[number]])
        brought = names(text) - names(planted.trainer(algorithm)) - {"sampler"}
        assert not brought & (telling | set(fault.split("-"))), fault


def test_forms_differ_from_the_book_and_do_not_touch_each_other():
    """Each is there by itself, in some trainer, so that a student may have any of them."""
    for place in EVERY:
        texts = [planted.trainer(name, (), [place]) != planted.trainer(name) for name in CONTENTS]
        assert any(texts), FORMS[place]


# ---------------------------------------------------------------- who gets what


def test_students_are_dealt_one_to_three_faults_that_go_together():
    deals = [hunt.deal(f"student{number}", "key") for number in range(300)]
    for one in deals:
        assert together(*one.faults, algorithm=one.algorithm)["algorithm"]["name"] == one.algorithm
        places = [function for way in one.ways.values() for function in planted.functions(way)]
        assert len(places) == len(set(places))
        healthy = planted.trainer(one.algorithm, (), one.forms)
        assert all(one.trainer(name) != healthy for name in one.faults)
    # Each size, and each algorithm, with probability 1/3: 100 ± 8.2; five standard errors are 41.
    for counts in (
        Counter(len(one.faults) for one in deals),
        Counter(one.algorithm for one in deals),
    ):
        assert len(counts) == 3
        assert min(counts.values()) >= 100 - 41
    assert {name for one in deals for name in one.faults} == set(PLANTS)
    assert len({one.trainer(*one.faults) for one in deals}) > 290


def test_a_student_gets_the_same_again_and_with_another_key_something_else():
    students = [f"student{number}" for number in range(20)]
    one, again, other = (
        [hunt.deal(name, key) for name in students] for key in ("key", "key", "other")
    )
    assert one == again
    assert sum(a.faults == b.faults for a, b in zip(one, other, strict=True)) <= 3


@pytest.mark.parametrize(
    "name", ["a/b", "../ann", "", ".", "..", ".ann", "-x", "a b", "a\\b", "a\n"]
)
def test_a_name_that_no_folder_can_have_is_refused(name, tmp_path):
    with pytest.raises(UserError, match=r"letters, digits and \. _ @ \+ -") as told:
        hunt.deal(name, "key")
    assert "\n" not in str(told.value)
    if not name.startswith("-"):
        done = CliRunner().invoke(
            app, ["hunt", "new", "ben", name, "--key", "K", "--out", str(tmp_path / "hunts")]
        )
        assert done.exit_code == 2
        assert not (tmp_path / "hunts").exists()


def test_a_student_gets_a_trainer_and_a_run_and_not_the_answer(tmp_path):
    said = CliRunner().invoke(
        app, ["hunt", "new", "ada", "--key", "K", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert said.exit_code == 0
    one = hunt.deal("ada", "K")
    folder = tmp_path / "ada"
    left = evidence.read(folder / "run.zip")
    assert len(left.history) == 20
    assert {witness.facts["algorithm"] for witness in left.witnesses} == {one.algorithm}
    assert (folder / "trainer.py").read_text() == one.trainer(*one.faults)
    for path in folder.iterdir():
        if path.name != "accusations.txt":  # whose example names some cause or other
            assert not any(name.encode() in path.read_bytes() for name in one.faults), path
    reader = multiprocessing.get_context("fork").Process(target=warm, args=(folder,))
    reader.start()
    reader.join()
    assert reader.exitcode == 0


def warm(folder):
    """What a reader does first, in a process that has imported torch and ends with it."""
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    importlib.import_module("test_trainer")
    importlib.import_module("trainer").warm()


# ---------------------------------------------------------------- names

TWO = dealt(missing_baseline=1, lenient_verifier=0)


@pytest.mark.parametrize(
    ("text", "share", "words"),
    [
        ("missing-baseline: every advantage is a reward\nlenient-verifier", 1.0, "found 2 of 2"),
        ("missing-baseline", 0.5, "missed: lenient-verifier: Responses are paid"),
        ("missing-baseline\nkl-sign", 0.0, "found 1 of 2, falsely accused: kl-sign"),
        ("# missing-baseline\n\n", 0.0, "found 0 of 2"),
        ("missing-baseline\nmissing-baseline", 0.5, "found 1 of 2"),
        ("missing-base", 0.0, "there is no cause 'missing-base'; did you mean 'missing-baseline'?"),
        (hunt.NAMES, 0.0, "found 0 of 2"),
    ],
)
def test_names_are_paid_for_what_they_find_less_what_they_accuse(text, share, words):
    found = hunt.named(TWO, text)
    assert found.share == share
    assert words in "\n".join(found.lines())


# ---------------------------------------------------------------- mended trainers


def mended(one, text):
    return hunt.mended(one, text, runs=bench.here)


@pytest.mark.usefixtures("quick")
def test_each_fault_that_is_gone_is_paid():
    none, first, both = (
        mended(TWO, TWO.trainer(*left)) for left in (TWO.faults, ["lenient-verifier"], [])
    )
    assert (none.share, first.share, both.share) == (0.0, 0.5, 1.0)
    assert list(first.gone) == ["missing-baseline"]
    text = "\n".join(first.lines())
    assert "still there: lenient-verifier: Responses are paid that do not give the answer" in text
    assert "rewards of six responses, one of them cut off: off by up to 1" in text
    assert not none.broken


@pytest.mark.usefixtures("quick")
def test_a_fault_upstream_does_not_hide_that_another_is_gone():
    """Wrong log-probs spoil the gradient of an update that is right."""
    one = dealt("grpo", shifted_log_probs=0, masked_eos=2, inverted_clip=0)
    found = mended(one, one.trainer("shifted-log-probs"))
    assert list(found.gone) == ["masked-eos", "inverted-clip"]
    assert list(found.left) == ["shifted-log-probs"]


@pytest.mark.usefixtures("quick")
def test_what_is_newly_broken_takes_off_what_a_mend_earns():
    harm = ("losses * every[rows]", "losses * every[rows] * 2")
    one = dealt("grpo", (), shifted_log_probs=0, inverted_clip=0)
    text = one.trainer()
    assert text.count(harm[0]) == 1
    found = mended(one, text.replace(*harm))
    assert list(found.gone) == list(one.faults)
    assert found.share == 0.5
    assert "newly broken: the gradient of the clipped loss" in "\n".join(found.lines())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "text",
    [
        "def (",
        "",
        "import nothing_like_it\n",
        "def leave_one_out(rewards, group_size): return rewards\n",
    ],
)
def test_a_trainer_that_does_not_run_earns_nothing(text):
    found = mended(TWO, text)
    assert found.share == 0.0
    assert len(found.lines()) < 20


@pytest.mark.usefixtures("quick")
def test_a_mend_may_look_as_it_likes():
    one = dealt(missing_baseline=1)
    text = one.trainer("missing-baseline").replace(
        "    return groups.flatten()",
        "    found = [[(g.mean() - r) for r in g] for g in groups]\n"
        "    share = (group_size - 1) / group_size\n"
        "    return -torch.tensor(found, dtype=rewards.dtype).flatten() / share",
    )
    assert "found = " in text
    assert mended(one, text).share == 1.0


@pytest.mark.usefixtures("quick")
def test_a_mend_that_breaks_its_function_is_none():
    one = dealt("grpo", (), flipped_loss=0)
    text = one.trainer().replace("old_log_probs.detach()", "old_log_probs")
    found = mended(one, text)
    assert list(found.left) == ["flipped-loss"]
    assert (found.share, list(found.broken)) == (0.0, [])


@pytest.mark.usefixtures("quick")
def test_a_fault_is_not_gone_because_what_would_show_it_does_not_run():
    one = dealt("rloo", (), flipped_loss=1)
    line = '    T = rollout["tokens"].shape[1]\n'
    text = one.trainer(*one.faults)
    assert text.count(line) == 1
    found = mended(one, text.replace(line, line + "    raise KeyError\n"))
    assert list(found.left) == ["flipped-loss"]
    assert "another law is broken: log-probs" in "\n".join(found.lines())


# ---------------------------------------------------------------- tests

SEES_THE_BASELINE = """
import torch
import trainer

def test_groups():
    found = trainer.leave_one_out(torch.tensor([1.0, 0.0, 0.0, 5.0, 5.0, 5.0]), 3)
    assert torch.allclose(found, torch.tensor([1.0, -0.5, -0.5, 0.0, 0.0, 0.0]))
"""
SEES_THE_SCORE = """
def test_score():
    said = torch.tensor([[2 + 4, 2 + 2, 0], [2 + 4, 2 + 2, 2 + 7]])  # 42 and its end, and 427
    rollout = {"tokens": said, "mask": torch.ones(2, 3).bool(), "finished": torch.ones(2).bool()}
    assert trainer.score(rollout, ["42", "42"]).tolist() == [1.0, 0.0]
"""


def tried(text, one):
    return hunt.tested(one, text, runs=bench.here)


def test_a_test_is_paid_for_each_fault_that_it_catches():
    one, both = (tried(SEES_THE_BASELINE + more, TWO) for more in ("", SEES_THE_SCORE))
    assert (one.share, both.share) == (0.5, 1.0)
    assert one.lines() == ["caught 1 of 2", "    not caught: lenient-verifier"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def test_all():\n    raise ValueError('no')\n", "test_trainer.test_all: ValueError: no"),
        ("import nothing_like_it\n", "cannot be imported: ModuleNotFoundError"),
        *(
            (
                "def test_spelling():\n"
                f"    assert {name!r} in trainer.leave_one_out.__code__.co_names\n",
                "test_trainer.test_spelling: AssertionError",
            )
            for name in ("flatten", "reshape")
        ),
    ],
)
def test_a_test_that_accuses_a_healthy_trainer_earns_nothing(text, said):
    found = tried(SEES_THE_BASELINE + text, TWO)
    assert found.share == 0.0
    assert "a healthy trainer is accused" in found.lines()[0]
    assert said in "\n".join(found.lines())


@pytest.mark.parametrize("text", ["", hunt.TESTS, "def test_nothing():\n    pass\n"])
def test_a_test_that_sees_nothing_earns_nothing_and_accuses_nothing(text):
    found = tried(text, TWO)
    assert (found.share, found.accused) == (0.0, {})


def test_a_test_may_ask_the_warm_model():
    text = """
import torch
import given, trainer

def test_gap():
    model = given.warm()
    prompt, mask = given.encode(["1+2=", "17+25=", "9+99="])
    rollout = trainer.sample(model, prompt, mask, torch.Generator().manual_seed(0))
    gap = rollout["log_probs"] - trainer.response_log_probs(model, rollout)
    assert gap[rollout["mask"]].abs().max() < 1e-3
"""
    one = dealt("ppo", left_padding=1, sampler_rounding=0, flipped_loss=0)
    found = tried(text, one)
    assert (list(found.caught), found.accused) == (["left-padding", "sampler-rounding"], {})


# ---------------------------------------------------------------- a class


def test_a_report_has_its_points_in_words_and_numbers():
    report = hunt.judged(TWO, {"named": "missing-baseline", "mended": None, "test": None})
    assert (report.points, report.most) == (5.0, 30)
    text = str(report)
    assert text.startswith("ann\n===\n\nnamed      5/10  found 1 of 2\n")
    assert "mended     0/10  there is no trainer.py" in text
    assert "test       0/10  there is no test_trainer.py" in text
    assert text.endswith("\n5 of 30 points")
    assert json.loads(json.dumps(report.as_dict()))["named"]["points"] == 5.0


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.usefixtures("quick", "zygote")
def test_a_class_is_marked_by_what_runs_confined(tmp_path, monkeypatch):
    monkeypatch.setattr(hunt, "deal", lambda student, key: TWO)
    folder = tmp_path / "class" / "ann"
    folder.mkdir(parents=True)
    (tmp_path / "class" / "notes").mkdir()  # none of a student's
    (folder / "accusations.txt").write_text("missing-baseline\n")
    (folder / "test_trainer.py").write_text(SEES_THE_BASELINE)
    spy = "import pathlib\nassert not pathlib.Path('/etc/passwd').exists()\n"
    (folder / "trainer.py").write_text(spy + TWO.trainer("lenient-verifier"))
    call = ["hunt", "mark", "class", "--key", "K", "--out", "marked"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, call, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "15 of 30" in done.output
    rows = (tmp_path / "marked" / "grades.csv").read_text().splitlines()
    assert rows == ["student,points,of,named,mended,test,failure", "ann,15.0,30,5.0,5.0,5.0,"]
    assert "still there: lenient-verifier" in (tmp_path / "marked" / "ann.txt").read_text()
    assert json.loads((tmp_path / "marked" / "ann.json").read_text())["points"] == 15.0


@pytest.mark.usefixtures("zygote")
def test_what_could_not_be_marked_is_no_zero(tmp_path, monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(hunt, "deal", lambda student, key: TWO)
    monkeypatch.setattr(hunt, "judged", full)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "class" / "ann"
    folder.mkdir(parents=True)
    (folder / "accusations.txt").write_text("missing-baseline\n")
    call = ["hunt", "mark", "class", "--key", "K", "--out", "marked", "--trust-submissions"]
    done = CliRunner().invoke(app, call, catch_exceptions=False)
    assert f"{TWO.student}: not marked: MemoryError" in done.stderr
    assert (tmp_path / "marked" / "grades.csv").read_text().splitlines()[1] == (
        f"{TWO.student},,,,,,not marked: MemoryError: "
    )


def test_a_folder_with_nothing_to_mark_is_refused(tmp_path, monkeypatch):
    (tmp_path / "class" / "ann b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def said():
        done = CliRunner().invoke(app, ["hunt", "mark", "class", "--key", "K"])
        return done.exit_code, done.output

    code, text = said()
    assert code == 2
    assert "class holds no folders with accusations.txt or trainer.py or test_trainer.py" in text
    (tmp_path / "class" / "ann b" / "trainer.py").write_text("")
    code, text = said()
    assert code == 2
    assert "a student's name is 'ann b'" in text


def test_faults_have_the_causes_that_are_accused():
    assert {FAULTS[name].cause for name in PLANTS} <= set(hunt.CAUSES)


def test_a_hunt_that_has_begun_is_not_replaced(tmp_path):
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "accusations.txt").write_text("masked-eos\n")
    with pytest.raises(UserError, match="ada is not empty"):
        hunt.new(hunt.deal("ada", "KEY"), tmp_path)
    assert (tmp_path / "ada" / "accusations.txt").read_text() == "masked-eos\n"
