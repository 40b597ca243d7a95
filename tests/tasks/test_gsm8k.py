"""GSM8K: small files made here, a stand-in for the hub, and the real data where present."""

import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import FrozenInstanceError
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
import torch

from nbcourse import hub
from nbcourse.errors import NotAvailable, UserError
from nbcourse.tasks import gsm8k
from nbcourse.tasks.answers import extract, is_correct
from nbcourse.tasks.gsm8k import GSM8K, load, three_way_split
from nbcourse.tasks.questions import Problem

SPLITS = ("train", "validation", "test")

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
    assert isinstance(caught.value, UserError)  # the command line shows the line, and no trace
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
    with pytest.raises(ValueError, match=r"^split is ") as caught:
        load(split, path=tmp_path)
    assert str(caught.value) == f"split is {split!r}, expected 'train' or 'test'"


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
    monkeypatch.setattr(hub, "answers", lambda address: True)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))


def test_a_hub_that_cannot_be_reached_is_given_up_within_seconds(monkeypatch):
    """The client of data sets alone took 26 seconds."""
    monkeypatch.delenv("NBCOURSE_GSM8K", raising=False)
    monkeypatch.setattr(gsm8k, "_HUB_NAME", "nobody/knows-this")
    monkeypatch.setattr(hub, "answers", lambda address: False)
    start = time.perf_counter()
    assert "cannot fetch nobody/knows-this" in refused(NotAvailable, "train")
    assert time.perf_counter() - start < 10


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
    message = refused(NotAvailable, "test")
    assert shown in message
    assert "pass path=FOLDER, or set NBCOURSE_GSM8K, to a folder with train.jsonl and" in message
    assert "test.jsonl from https://" in message


def test_without_the_datasets_package_the_way_out_is_named(monkeypatch):
    monkeypatch.delenv("NBCOURSE_GSM8K", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)  # makes the import fail
    assert "pass path=FOLDER" in refused(NotAvailable, "test")


def test_a_bad_row_from_the_hub_is_named(monkeypatch):
    stand_in_for_the_hub(monkeypatch, lambda *a, **k: [ROWS[0], {"question": "?", "answer": "?"}])
    message = refused(ValueError, "test")
    assert message.startswith("openai/gsm8k test, row 2: the solution gives no answer")


@pytest.mark.sweep  # tests/house/test_contracts.py asks it of all that is imported before
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


# --- the task -------------------------------------------------------------------------------------


def write_many(folder, *, train=200, test=30, order=1):
    """A data set of questions with nothing in common but their form."""
    folder.mkdir(exist_ok=True)
    for split, count in (("train", train), ("test", test)):
        rows = [
            {"question": f"{split} {n}: how many?", "answer": f"It is {n}.\n#### {n}"}
            for n in range(count)
        ][::order]
        write(folder, *map(json.dumps, rows), split=split)
    return str(folder)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def small(tmp_path):
    return write_many(tmp_path / "data")


def test_the_splits_share_nothing_and_leave_nothing_out(small):
    train, validation, test = (three_way_split(split, small) for split in SPLITS)
    names = [{p.question for p in part} for part in (train, validation, test)]
    assert len(train) + len(validation) == 200
    assert names[0] | names[1] == {p.question for p in load("train", path=small)}
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & names[2]
    assert test == load("test", path=small)
    assert 8 <= len(validation) <= 35  # a tenth of 200; four standard deviations are 17


def test_a_question_stays_in_its_split_wherever_it_stands(tmp_path, small):
    """In the order of the file, and among fewer questions."""
    backwards = write_many(tmp_path / "backwards", order=-1)
    fewer = write_many(tmp_path / "fewer", train=90)
    for split in ("train", "validation"):
        ours = three_way_split(split, small)
        assert three_way_split(split, backwards) == ours[::-1]
        assert three_way_split(split, fewer) == [p for p in ours if int(p.answer) < 90]


def test_the_split_is_the_hash_of_the_question(small):
    for split in ("train", "validation"):
        for problem in three_way_split(split, small):
            low = crc32(problem.question.encode("utf-8")) / 2**32 < 0.1
            assert low == (split == "validation")


@pytest.mark.parametrize("split", ["dev", "Test", ""])
def test_the_task_refuses_an_unknown_split(small, split):
    expected = rf"split is '{split}', expected 'train', 'validation' or 'test'"
    with pytest.raises(ValueError, match=expected):
        GSM8K(small).draw(1, split=split, generator=source())


@pytest.mark.parametrize("split", SPLITS)
def test_draws_are_distinct_and_come_from_the_generator(small, split):
    task, whole = GSM8K(small), three_way_split(split, small)
    some = task.draw(8, split=split, generator=source())
    assert len({p.question for p in some}) == 8
    assert set(some) <= set(whole)
    assert task.draw(8, split=split, generator=source()) == some
    assert task.draw(8, split=split, generator=source(1)) != some
    everything = task.draw(10_000, split=split, generator=source())
    assert everything[:8] == some
    assert sorted(p.question for p in everything) == sorted(p.question for p in whole)
    assert task.draw(0, split=split, generator=source()) == []


def test_every_problem_is_drawn_alike(small):
    """3,000 draws of one of the test's 30: five standard deviations around 100 each."""
    generator, task = source(), GSM8K(small)
    counts = dict.fromkeys(range(30), 0)
    for _ in range(3_000):
        (problem,) = task.draw(1, split="test", generator=generator)
        counts[int(problem.answer)] += 1
    assert all(abs(count - 100) < 5 * math.sqrt(100 * 29 / 30) for count in counts.values())


def test_the_task_looks_where_the_environment_says(tmp_path, small, monkeypatch):
    """Even if it has read problems elsewhere before."""
    for folder in (small, write_many(tmp_path / "others", test=20)):
        monkeypatch.setenv("NBCOURSE_GSM8K", folder)
        drawn = GSM8K().draw(100, split="test", generator=source())
        assert drawn == GSM8K(folder).draw(100, split="test", generator=source())
    assert len(drawn) == 20


def test_the_files_are_read_once(small, monkeypatch):
    calls = []
    whole = gsm8k.load
    monkeypatch.setattr(gsm8k, "load", lambda *a, **k: calls.append(a) or whole(*a, **k))
    for _ in range(3):
        GSM8K(small).draw(2, split="train", generator=source())
    assert len(calls) == 1


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


def test_the_real_data_in_three_parts(folder):
    parts = [three_way_split(split, str(folder)) for split in SPLITS]
    assert [len(part) for part in parts] == [6707, 766, 1319]
    asked = [{p.question for p in part} for part in parts]
    assert not asked[0] & asked[1]
    assert not (asked[0] | asked[1]) & asked[2]
    for part in parts:
        task = GSM8K(str(folder))
        solutions = [p.solution for p in part]
        assert task.rewards(solutions, part).tolist() == [1.0] * len(part)
