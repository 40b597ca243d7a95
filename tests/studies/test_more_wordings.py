"""Base models that have met a story in one wording or in two, and are asked in a third."""

import re

import pytest
import torch

from book.studies import more_wordings
from nbcourse.experiments import controlled, records
from nbcourse.tasks.word_problems import WordProblems, split_of
from nbcourse.training.recipe import Pretraining, validate
from tests.small import base_tables

TOLD = {"max_steps": 2, "distractors": 0.0}


def drawn(wordings, split, count=200):
    task = more_wordings.Reworded(**TOLD, wordings=wordings)
    return task.draw(count, split=split, generator=torch.Generator().manual_seed(0))


def wordings_of(problems):
    return [problem.template.rpartition("/")[2] for problem in problems]


def test_with_one_wording_the_training_questions_are_those_of_word_problems():
    source = torch.Generator().manual_seed(0)
    assert drawn(1, "train") == WordProblems(**TOLD).draw(200, split="train", generator=source)


@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_with_two_each_is_told_equally_often_and_all_numbers_are_of_training(count):
    problems = drawn(2, "train", count)
    told = wordings_of(problems)
    assert (told.count("train"), told.count("validation")) == (-(-count // 2), count // 2)
    numerals = [[int(n) for n in re.findall(r"\d+", p.question)] for p in problems]
    assert {split_of(numbers) for numbers in numerals} <= {"train"}


@pytest.mark.parametrize("wordings", [1, 2])
def test_the_third_wording_is_in_no_training_question(wordings):
    assert set(wordings_of(drawn(wordings, "test"))) == {"test"}
    assert "test" not in wordings_of(drawn(wordings, "train"))


def test_the_recipes_differ_in_the_number_of_wordings():
    recipes = {
        n: validate(Pretraining, more_wordings.recipe_of(n, 0), name="recipe") for n in (1, 2)
    }
    assert controlled.differ(recipes).field == "task.wordings"
    assert recipes[1].seed == recipes[2].seed  # which the comparison above leaves out
    assert recipes[1].evaluation.every == recipes[1].steps  # once, in the end


def test_a_run_is_made_asked_in_every_wording_and_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr("nbcourse.training.models.TEXTS", 60)
    monkeypatch.setattr(more_wordings.recipe_files, "read", lambda name: base_tables())
    for _ in range(2):
        more_wordings.main(["--out", str(tmp_path), "--seeds", "3", "--count", "4"])
    for wordings in (1, 2):
        run = tmp_path / f"wordings-{wordings}-seed3"
        assert records.read_any_recipe(run, with_code=True).task.build().wordings == wordings
        asked = [(row["wording"], row["numbers"]) for row in records.read_results(run)]
        assert asked == [(split, "test") for split in ("train", "validation", "test")]
        assert {len(row["verdicts"]) for row in records.read_results(run)} == {4}
