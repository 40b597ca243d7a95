"""New words and new numbers, asked apart: a student that knows one of them is found out."""

import re

import pytest
import torch

from book.studies import wordings
from nbcourse.errors import UserError
from nbcourse.experiments import records
from nbcourse.experiments.pretraining import pretrain
from nbcourse.tasks.word_problems import split_of
from nbcourse.training.held_out import Answers
from tests.small import base_recipe

CELLS = [(wording, numbers) for wording in wordings.SPLITS for numbers in wordings.SPLITS]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A base model, of which nothing counts but that it is there, and what it was asked."""
    monkeypatch.setattr("nbcourse.training.models.TEXTS", 60)
    pretrain(base_recipe(), folder=tmp_path / "run", progress=False)
    return tmp_path / "run"


def examined(made, monkeypatch, knows):
    """The results of a student who is right where `knows` says so, and cut off once."""
    asked = []

    def ask(model, tokenizer, prompts, **options):
        asked.append(prompts)
        cut = torch.arange(len(prompts)) == 0
        return Answers(list(prompts), cut, torch.ones(len(prompts)))

    def rewards(self, responses, problems):
        return torch.tensor([float(knows(problem)) for problem in problems])

    monkeypatch.setattr(wordings, "ask", ask)
    monkeypatch.setattr("nbcourse.tasks.questions.Verified.rewards", rewards)
    results = wordings.ask_apart(made, 40, progress=False)
    return results, asked


def test_who_knows_the_words_fails_with_other_words_and_no_other_numbers(made, monkeypatch):
    results, _ = examined(made, monkeypatch, lambda p: p.template.endswith("/train"))
    assert [(r["wording"], r["numbers"]) for r in results] == CELLS
    assert [r["verdicts"][1:] for r in results] == ["1" * 39] * 2 + ["0" * 39] * 2
    assert all(r["verdicts"][0] == "0" for r in results)  # what is cut off is not right


def test_who_knows_the_numbers_fails_with_other_numbers_and_no_other_words(made, monkeypatch):
    def knows(problem):
        return split_of([int(n) for n in re.findall(r"\d+", problem.question)]) == "train"

    results, _ = examined(made, monkeypatch, knows)
    assert [r["verdicts"][1:] for r in results] == ["1" * 39, "0" * 39] * 2


def test_the_four_sets_tell_the_same_stories(made, monkeypatch):
    results, asked = examined(made, monkeypatch, lambda p: True)
    assert len({r["steps"] for r in results}) == 1
    assert {len(prompts) for prompts in asked} == {40}
    assert len({tuple(prompts) for prompts in asked}) == 4


def test_a_run_that_made_no_base_model_is_refused():
    run = records.RUNS / "word-problems-tiny-grpo-seed0"
    with pytest.raises(UserError, match="did not make a base model for word problems"):
        wordings.ask_apart(run, 4)
