"""Loading GSM8K: small files made here, a stand-in for the hub, and the real data where present."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import FrozenInstanceError
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from nbcourse.tasks import gsm8k
from nbcourse.tasks.answers import extract, is_correct
from nbcourse.tasks.gsm8k import Problem, load

ROWS = [
    {"question": "Six times seven?", "answer": "6*7=<<6*7=42>>42\n#### 42"},
    {"question": "A line\u2028break, é?", "answer": "Many.\n#### -1,000"},
]
PROBLEMS = [
    Problem("Six times seven?", "6*7=<<6*7=42>>42\n#### 42", Decimal(42)),
    Problem("A line\u2028break, é?", "Many.\n#### -1,000", Decimal(-1000)),
]


def write(folder, *lines, split="test", ends="\n"):
    file = folder / f"{split}.jsonl"
    file.write_bytes("".join(line + ends for line in lines).encode())
    return file


def refused(kind, *args, **kwargs):
    """Call load, which must fail with one readable line, and return that line."""
    with pytest.raises(kind) as caught:
        load(*args, **kwargs)
    message = str(caught.value)
    assert type(caught.value) is kind
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\n\n"], ids=repr)
def test_reads_a_folder(tmp_path, ends, ascii_only):
    write(tmp_path, *(json.dumps(row, ensure_ascii=ascii_only) for row in ROWS), ends=ends)
    assert load("test", path=tmp_path) == PROBLEMS
    assert load("test", path=str(tmp_path)) == PROBLEMS


def test_splits_are_different_files(tmp_path):
    write(tmp_path, json.dumps(ROWS[0]), split="train")
    write(tmp_path, json.dumps(ROWS[1]), split="test")
    assert load("train", path=tmp_path) == PROBLEMS[:1]
    assert load("test", path=tmp_path) == PROBLEMS[1:]


def test_problems_are_frozen_and_have_decimal_answers(tmp_path):
    write(tmp_path, json.dumps(ROWS[0]))
    (problem,) = load("test", path=tmp_path)
    assert type(problem.answer) is Decimal
    with pytest.raises(FrozenInstanceError):
        problem.answer = Decimal(43)


@pytest.mark.parametrize("split", ["validation", "Test", "", None, 0, ["test"]], ids=repr)
def test_unknown_split(split, tmp_path):
    message = refused(ValueError, split, path=tmp_path)
    assert message == f"split must be 'train' or 'test', got {split!r}"


def test_missing_folder_and_missing_file_say_how_to_get_the_data(tmp_path):
    file = write(tmp_path, json.dumps(ROWS[0]))
    for path, start in [
        (tmp_path / "nowhere", f"no folder {tmp_path / 'nowhere'}: "),
        (file, f"no folder {file}: "),
        (tmp_path, f"no file train.jsonl in {tmp_path}: "),
    ]:
        message = refused(FileNotFoundError, "train", path=path)
        assert message.startswith(start)
        assert "train.jsonl and test.jsonl from https://" in message
        assert "without path and NBCOURSE_GSM8K the data come from the" in message


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"question": "Six?", "answer": ', "not JSON"),
        ("#### 42", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "a JSON list; expected one JSON object"),
        ("null", "a JSON NoneType; expected one JSON object"),
        ('{"answer": "#### 42"}', "no string under 'question'; expected"),
        ('{"question": "Six?"}', "no string under 'answer'; expected"),
        ('{"question": "Six?", "answer": 42}', "no string under 'answer'; expected"),
        ('{"question": "Six?", "answer": "It is 42."}', "the solution gives no answer; expected"),
        ('{"question": "Six?", "answer": "#### 4\\n#### 2"}', "the solution gives no answer"),
    ],
    ids=lambda value: value[:30],
)
def test_malformed_line_is_named(tmp_path, line, wrong):
    file = write(tmp_path, json.dumps(ROWS[0]), line)
    message = refused(ValueError, "test", path=tmp_path)
    assert message.startswith(f"{file}:2: {wrong}")
    assert "expected" in message
    assert len(message) < len(str(file)) + 250


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    file = tmp_path / "test.jsonl"
    file.write_bytes(b'{"question": "caf\xe9", "answer": "#### 1"}\n')
    assert refused(ValueError, "test", path=tmp_path).startswith(f"{file}:1: not JSON in UTF-8")


def test_empty_file(tmp_path):
    write(tmp_path)
    assert "test split" in refused(ValueError, "test", path=tmp_path)


def stand_in_for_the_hub(monkeypatch, load_dataset):
    monkeypatch.delenv("NBCOURSE_GSM8K", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))


def test_without_a_path_the_hub_is_asked_by_name(monkeypatch):
    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return ROWS

    stand_in_for_the_hub(monkeypatch, load_dataset)
    for split in ("train", "test"):
        assert load(split) == PROBLEMS
        assert asked.pop() == (("openai/gsm8k", "main"), {"split": split})


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (ConnectionError("no route\nto host"), "(no route)"),
        (FileNotFoundError("no such data set"), "(no such data set)"),
        (RuntimeError(), "(RuntimeError)"),
    ],
    ids=repr,
)
def test_without_a_network_the_way_out_is_named(monkeypatch, failure, shown):
    def load_dataset(*args, **kwargs):
        raise failure

    stand_in_for_the_hub(monkeypatch, load_dataset)
    message = refused(ConnectionError, "test")
    assert shown in message
    assert "pass path=FOLDER, or set NBCOURSE_GSM8K, to a folder with train.jsonl and" in message
    assert "test.jsonl from https://" in message


def test_without_the_datasets_package_the_way_out_is_named(monkeypatch):
    monkeypatch.delenv("NBCOURSE_GSM8K", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)  # makes the import fail
    assert "pass path=FOLDER" in refused(ConnectionError, "test")


def test_a_bad_row_from_the_hub_is_named(monkeypatch):
    stand_in_for_the_hub(monkeypatch, lambda *a, **k: [ROWS[0], {"question": "?", "answer": "?"}])
    message = refused(ValueError, "test")
    assert message.startswith("openai/gsm8k test, row 2: the solution gives no answer")


def test_datasets_is_imported_only_when_asked():
    code = "import sys, nbcourse.tasks.gsm8k; sys.exit('datasets' in sys.modules)"
    root = Path(gsm8k.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_the_environment_names_the_folder_where_no_path_does(tmp_path, monkeypatch):
    for name, row in zip(("named", "given"), ROWS, strict=True):
        (tmp_path / name).mkdir()
        write(tmp_path / name, json.dumps(row))
    monkeypatch.setenv("NBCOURSE_GSM8K", str(tmp_path / "named"))
    assert load("test") == PROBLEMS[:1]
    assert load("test", path=tmp_path / "given") == PROBLEMS[1:]
    monkeypatch.setenv("NBCOURSE_GSM8K", str(tmp_path / "nowhere"))
    assert refused(FileNotFoundError, "test").startswith(f"no folder {tmp_path / 'nowhere'}: ")
    stand_in_for_the_hub(monkeypatch, lambda *a, **k: ROWS)
    monkeypatch.setenv("NBCOURSE_GSM8K", "")
    assert load("test") == PROBLEMS


# --- the real data --------------------------------------------------------------------------------

# (problems, answers written with a comma, negative answers)
FACTS = {"train": (7473, 79, 3), "test": (1319, 14, 2)}


@pytest.fixture(scope="module")
def folder():
    beside = Path(__file__).parents[2].parent / "shared" / "data" / "gsm8k"
    path = Path(os.environ.get("NBCOURSE_GSM8K", beside))
    if not (path / "test.jsonl").is_file():
        pytest.skip("GSM8K not found: set NBCOURSE_GSM8K to a folder with train.jsonl, test.jsonl")
    return path


@pytest.mark.parametrize("split", FACTS)
def test_every_gold_solution_parses(folder, split):
    problems = load(split, path=folder)
    last_lines = [problem.solution.split("\n")[-1] for problem in problems]
    commas = sum("," in line for line in last_lines)
    assert (len(problems), commas, sum(p.answer < 0 for p in problems)) == FACTS[split]
    for problem, line in zip(problems, last_lines, strict=True):
        # Python's own int is the oracle here: the gold answers are all integers.
        assert problem.answer == int(line.removeprefix("#### ").replace(",", ""))
        for strict in (True, False):
            assert extract(problem.solution, strict=strict) == problem.answer
            assert is_correct(problem.solution, problem.solution, strict=strict)


def test_lenient_reads_solutions_whose_marker_line_was_cut_off(folder):
    """The steps end in the answer nearly always, so the last number should nearly always be it."""
    problems = load("test", path=folder)
    right = Counter(
        is_correct(p.solution.rpartition("\n")[0], p.answer, strict=False) for p in problems
    )
    assert right[True] / len(problems) > 0.9


def test_best_constant_answer_is_right_on_three_percent(folder):
    """The floor under every evaluation: what a model that ignores the question can reach."""
    (answer, count), *_ = Counter(p.answer for p in load("test", path=folder)).most_common(1)
    assert answer == 5
    assert 0.025 < count / 1319 < 0.035
