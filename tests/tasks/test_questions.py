"""Word problems and GSM8K as a training run sees them: splits, verdicts, preferences."""

import json
import math
import os
from decimal import Decimal
from pathlib import Path
from zlib import crc32

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbcourse.tasks import arithmetic, gsm8k, questions
from nbcourse.tasks.questions import GSM8K, WordProblems, split_of_gsm8k

SPLITS = ("train", "validation", "test")


def write(folder, *, train=200, test=30, order=1):
    """A data set of questions with nothing in common but their form."""
    folder.mkdir(exist_ok=True)
    for split, count in (("train", train), ("test", test)):
        rows = [
            {"question": f"{split} {n}: how many?", "answer": f"It is {n}.\n#### {n}"}
            for n in range(count)
        ][::order]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return str(folder)


def source(seed=0):
    return torch.Generator().manual_seed(seed)


def asked(*answers):
    return [gsm8k.Problem("How many?", f"#### {a}", Decimal(a)) for a in answers]


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "data")


# ---------------------------------------------------------------- GSM8K's splits


def test_the_splits_share_nothing_and_leave_nothing_out(small):
    train, validation, test = (split_of_gsm8k(split, small) for split in SPLITS)
    names = [{p.question for p in part} for part in (train, validation, test)]
    assert len(train) + len(validation) == 200
    assert names[0] | names[1] == {p.question for p in gsm8k.load("train", path=small)}
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & names[2]
    assert test == gsm8k.load("test", path=small)
    assert 8 <= len(validation) <= 35  # a tenth of 200; four standard deviations are 17


def test_a_question_stays_in_its_split_wherever_it_stands(tmp_path, small):
    """In the order of the file, and among fewer questions."""
    backwards = write(tmp_path / "backwards", order=-1)
    fewer = write(tmp_path / "fewer", train=90)
    for split in ("train", "validation"):
        ours = split_of_gsm8k(split, small)
        assert split_of_gsm8k(split, backwards) == ours[::-1]
        assert split_of_gsm8k(split, fewer) == [p for p in ours if int(p.answer) < 90]


def test_the_split_is_the_hash_of_the_question(small):
    for split in ("train", "validation"):
        for problem in split_of_gsm8k(split, small):
            low = crc32(problem.question.encode("utf-8")) / 2**32 < 0.1
            assert low == (split == "validation")


@pytest.mark.parametrize("split", ["dev", "Test", ""])
def test_an_unknown_split_is_refused(small, split):
    expected = rf"split is '{split}', expected 'train', 'validation' or 'test'"
    with pytest.raises(ValueError, match=expected):
        GSM8K(small).draw(1, split=split, generator=source())


@pytest.mark.parametrize("split", SPLITS)
def test_draws_are_distinct_and_come_from_the_generator(small, split):
    task, whole = GSM8K(small), split_of_gsm8k(split, small)
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


def test_the_environment_names_the_folder(small, monkeypatch):
    monkeypatch.setenv("NBCOURSE_GSM8K", small)
    split_of_gsm8k.cache_clear()
    assert GSM8K().draw(5, split="test", generator=source()) == GSM8K(small).draw(
        5, split="test", generator=source()
    )
    split_of_gsm8k.cache_clear()


def test_the_files_are_read_once(small, monkeypatch):
    calls = []
    whole = gsm8k.load
    monkeypatch.setattr(gsm8k, "load", lambda *a, **k: calls.append(a) or whole(*a, **k))
    for _ in range(3):
        GSM8K(small).draw(2, split="train", generator=source())
    assert len(calls) == 1


def test_the_real_data_in_three_parts():
    beside = Path(__file__).parents[2].parent / "shared" / "data" / "gsm8k"
    path = os.environ.get("NBCOURSE_GSM8K", str(beside))
    if not (Path(path) / "test.jsonl").is_file():
        pytest.skip("GSM8K not found: set NBCOURSE_GSM8K to a folder with train.jsonl, test.jsonl")
    parts = [split_of_gsm8k(split, path) for split in SPLITS]
    assert [len(part) for part in parts] == [6707, 766, 1319]
    asked = [{p.question for p in part} for part in parts]
    assert not asked[0] & asked[1]
    assert not (asked[0] | asked[1]) & asked[2]
    for part in parts:
        task = GSM8K(path)
        solutions = [p.solution for p in part]
        assert task.rewards(solutions, part).tolist() == [1.0] * len(part)


# ---------------------------------------------------------------- word problems


@pytest.mark.parametrize("split", SPLITS)
def test_word_problems_are_drawn_as_the_section_says(split):
    task = WordProblems(min_steps=2, max_steps=3, distractors=0.0)
    drawn = task.draw(200, split=split, generator=source())
    assert {p.steps for p in drawn} == {2, 3}
    assert all(p.template.endswith(f"/{split}") for p in drawn)
    assert task.draw(200, split=split, generator=source()) == drawn
    other = WordProblems(min_steps=2, max_steps=3, distractors=1.0)
    longer = other.draw(200, split=split, generator=source())
    assert sum(len(p.question) for p in longer) > 1.1 * sum(len(p.question) for p in drawn)


@pytest.mark.parametrize("task", [WordProblems(max_steps=2), "gsm8k"], ids=str)
def test_the_teacher_shows_training_problems_and_their_solutions(task, small):
    task = GSM8K(small) if task == "gsm8k" else task
    drawn, responses = task.demonstrate(20, generator=source())
    assert drawn == task.draw(20, split="train", generator=source())
    assert responses == [p.solution for p in drawn]
    assert task.rewards(responses, drawn).tolist() == [1.0] * 20


def test_what_is_asked_while_training_is_neither_trained_on_nor_the_test():
    assert WordProblems.held_out == GSM8K.held_out == "validation"
    assert arithmetic.Arithmetic.held_out == "test"


# ---------------------------------------------------------------- verdicts

RESPONSES = {
    "3 + 4 = 7\n#### 7": (1.0, Decimal(7), Decimal(7)),
    "#### 7.0": (1.0, Decimal(7), Decimal(7)),
    "#### 8": (0.0, Decimal(8), Decimal(8)),
    "The answer is 7.": (0.0, None, Decimal(7)),
    "7": (0.0, None, Decimal(7)),
    "#### 7 apples": (0.0, None, Decimal(7)),
    "#### 7\n#### 8": (0.0, None, None),
    "#### 7<|endoftext|>": (0.0, None, Decimal(7)),
    "seven": (0.0, None, None),
    "": (0.0, None, None),
}


@pytest.mark.parametrize("response", RESPONSES)
def test_only_the_marker_line_earns_and_leniently_more_is_read(response):
    reward, strict, lenient = RESPONSES[response]
    task = WordProblems()
    found = task.rewards([response], asked(7))
    assert found.tolist() == [reward]
    assert found.dtype == torch.float32
    assert task.read(response) == strict
    assert task.read(response, strict=False) == lenient


PIECES = st.sampled_from(
    ["#### ", "7", "8", ".", ",", "-", "\n", " ", "answer is ", "\\boxed{", "}"]
)


@given(response=st.lists(PIECES, max_size=12).map("".join))
def test_what_is_right_strictly_is_right_leniently(response):
    """As `gain_split` has it; and the reward is the strict verdict."""
    (problem,) = asked(7)
    for task in (WordProblems(), GSM8K("nowhere")):
        strict = task.read(response)
        if strict is not None:
            assert task.read(response, strict=False) == strict
        assert task.rewards([response], [problem]).item() == (strict == 7)


@given(response=st.text(st.sampled_from("0123456789+-*= "), max_size=8))
def test_so_it_is_for_sums(response):
    task = arithmetic.Arithmetic()
    strict = task.read(response)
    for answer in ("7", "-5", "0", "12"):
        problem = arithmetic.Problem("3+4=", answer)
        right = task.rewards([response], [problem]).item()
        assert right == (strict == answer)
        assert not right or task.read(response, strict=False) == answer


def test_as_many_responses_as_problems():
    for judge in (WordProblems().rewards, WordProblems().preference):
        with pytest.raises(ValueError, match="zip"):
            judge(["#### 7"], asked(7, 8))


def test_the_nearer_answer_is_preferred_and_none_at_all_is_last():
    """A number in the wrong form is no answer."""
    responses = ["#### 7", "#### 9", "#### -3", "#### 7.5", "7", ""]
    liking = WordProblems().preference(responses, asked(*[7] * 6))
    assert liking.tolist() == [0.0, -2.0, -10.0, -0.5, -math.inf, -math.inf]


def test_a_right_answer_needs_no_memory_of_questions():
    """Rewards are for pairs: the same response to another problem earns something else."""
    assert questions.WordProblems().rewards(["#### 7"] * 3, asked(7, 8, 7)).tolist() == [1, 0, 1]
