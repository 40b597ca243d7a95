"""Questions and answers of one's own, from files and, by a stand-in, from the hub."""

import json
import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest
import torch

from nbcourse import hub
from nbcourse.errors import NotAvailable, NotFound, UserError
from nbcourse.tasks.dataset import DataSet, Row
from nbcourse.training import recipe
from tests import small

ROWS = [{"frage": f"What is {i} + {i}?", "antwort": 2 * i, "level": i % 3} for i in range(1, 101)]
COLUMNS = {"question": "frage", "answer": "antwort"}


def write(file, rows=ROWS):
    file.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows), encoding="utf-8")
    return file


def source():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def task(tmp_path):
    return DataSet(path=str(write(tmp_path / "mine.jsonl")), **COLUMNS)


def test_a_file_is_split_by_its_questions(task):
    train, held = task.listed("train"), task.listed("validation")
    assert len(train) + len(held) == 100
    assert 2 < len(held) < 25
    assert {row.question for row in train}.isdisjoint(row.question for row in held)
    row = next(row for row in train if row.question == "What is 7 + 7?")
    assert row == Row("What is 7 + 7?", "#### 14", Decimal(14), ROWS[6])
    assert row.prompt == "What is 7 + 7?\n"
    assert row.columns["level"] == 1
    drawn = task.draw(1000, split="train", generator=source())
    assert {id(one) for one in drawn} == {id(one) for one in train}


def test_answers_are_read_as_gsm8ks_are(task):
    rows = task.listed("train")[:2]
    texts = [f"So\n#### {rows[0].answer}", "#### 0"]
    assert task.rewards(texts, rows).tolist() == [1.0, 0.0]
    assert task.preference(texts, rows)[0] == 0 > task.preference(texts, rows)[1]


@pytest.mark.parametrize("said", ["18.5", "1,000", "x = 3\n#### 18.5", 18.5])
def test_a_number_is_a_number_however_it_is_written(tmp_path, said):
    file = write(tmp_path / "a.jsonl", [{"question": f"q{i}", "answer": said} for i in range(40)])
    row = DataSet(path=str(file)).listed("train")[0]
    assert row.answer == (Decimal(1000) if said == "1,000" else Decimal("18.5"))
    assert row.solution.splitlines()[-1] == f"#### {'1,000' if said == '1,000' else '18.5'}"


def test_texts_are_the_same_but_for_case_and_spaces(tmp_path):
    rows = [{"question": f"q{i}", "answer": "New  York"} for i in range(40)]
    task = DataSet(path=str(write(tmp_path / "a.jsonl", rows)), answers="text")
    rows = task.listed("train")[:5]
    texts = ["#### new york", "It is\n#### New York ", "New York", "#### York", "####"]
    assert task.rewards(texts, rows).tolist() == [1, 1, 0, 0, 0]
    assert task.preference(texts, rows).tolist() == [1, 1, 0, 0, 0]
    assert task.read("I say\nNew York\n", strict=False) == "new york"
    assert task.read("", strict=False) is None
    assert rows[0].solution == "#### New  York"


def test_another_file_or_that_of_the_folder_examines(tmp_path, task):
    with pytest.raises(UserError, match=r"task.test is '', expected a JSONL file to examine with"):
        task.listed("test")
    other = write(tmp_path / "exam.jsonl", ROWS[:3])
    whole = DataSet(path=task.path, test=str(other), **COLUMNS)
    assert [row.columns for row in whole.listed("test")] == ROWS[:3]
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "train.jsonl"), write(folder / "test.jsonl", ROWS[:2])
    assert len(DataSet(path=str(folder), **COLUMNS).listed("test")) == 2


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        (
            {},
            ROWS,
            "task.question is 'question', which is no column of .*; its columns are '",
        ),
        ({"question": "frag", "answer": "antwort"}, ROWS, "did you mean .frage"),
        ({"question": "frage"}, ROWS, "task.answer is 'answer', which is no column of"),
        (COLUMNS, [{"frage": "q", "antwort": "Paris"}] * 9, "'Paris' under 'antwort' is no number"),
        (COLUMNS, [{"frage": "", "antwort": 1}] * 9, "'' under 'frage', expected a text"),
        (COLUMNS, [{"frage": 3, "antwort": 1}] * 9, "3 under 'frage', expected a text"),
        ({**COLUMNS, "answers": "text"}, [{"frage": "q", "antwort": " "}] * 9, "expected a text"),
        (COLUMNS, [[1]], "a JSON list, expected one object"),
        (COLUMNS, [], "whose train split has no rows"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, settings, rows, message):
    file = write(tmp_path / "a.jsonl", rows)
    task = DataSet(path=str(file), **settings)
    with pytest.raises(UserError, match=message):
        task.listed("train")


def test_bad_lines_files_and_choices_are_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "q"\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"a.jsonl:1: not JSON in UTF-8"):
        DataSet(path=str(tmp_path / "a.jsonl")).listed("train")
    with pytest.raises(NotFound, match=r"task.path is 'gone.jsonl': there is no file gone.jsonl"):
        DataSet(path="gone.jsonl").listed("train")
    with pytest.raises(ValueError, match=r"task.answers is 'word', expected one of 'number', 'te"):
        DataSet(answers="word")


def test_a_name_is_asked_of_the_hub(monkeypatch):
    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return ROWS

    monkeypatch.setattr(hub, "answers", lambda address: True)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    task = DataSet(path="nobody/sums", subset="small", **COLUMNS)
    assert len(task.listed("test")) == 100
    assert asked == [(("nobody/sums", "small"), {"split": "test"})]


def test_a_hub_that_cannot_be_reached_is_named(monkeypatch):
    monkeypatch.setattr(hub, "answers", lambda address: False)
    with pytest.raises(NotAvailable, match=r"task.path is 'nobody/none': there is no such file"):
        DataSet(path="nobody/none").listed("train")


def test_a_recipe_trains_on_a_file(tmp_path):
    """Two steps with a tokenizer that is learned from the file, and a reward of one's own."""
    from nbcourse.experiments.run import train

    (tmp_path / "mine.py").write_text(
        "def score(completions, level, **columns):\n    return [float(x) for x in level]\n"
    )
    made = recipe.check(
        small.tables(
            task={"name": "dataset", "path": str(write(tmp_path / "a.jsonl")), **COLUMNS},
            model={"vocabulary": 300},
            reward={"source": f"{tmp_path / 'mine.py'}:score"},
        )
        | {"task": {"name": "dataset", "path": str(tmp_path / "a.jsonl"), **COLUMNS}}
    )
    _, history = train(made, progress=False)
    assert [line["no_spread"] for line in history] == [1, 1]  # a group shares its level
    assert all(0 <= line["reward"] <= 2 for line in history)
