"""What the README of the recorded run on GSM8K says, from the files beside it."""

import math
import re

import pytest
import torch

from nbcourse.experiments import records

FOLDER = records.RUNS / "gsm8k-qwen2.5-coder-0.5b-h200"
README = (FOLDER / "README.md").read_text("utf-8")
EXAM = records.read_json(FOLDER / "evaluation-gsm8k-test.json")
LONG = records.read_json(FOLDER / "test-768-tokens.json")


def verdicts(when: str) -> torch.Tensor:
    return torch.tensor([int(digit) for digit in LONG[when]["lenient"]], dtype=torch.float64)


def paired(after: torch.Tensor, before: torch.Tensor) -> str:
    """Mean and 95 % interval of the difference question by question, in points."""
    gained = 100 * (after - before)
    mean, radius = gained.mean().item(), 1.96 * gained.std().item() / math.sqrt(len(gained))
    return f"+{mean:.1f} ({mean - radius:.1f} to {mean + radius:.1f})"


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_shares_at_320_tokens(when):
    for reading in ("strict", "lenient"):
        assert f"{EXAM[when][reading]['count'] / 1319:.1%}".replace("%", " %") in README


def test_form_and_content_at_320_tokens():
    for part, words in (("total", ""), ("form", "form "), ("content", "content ")):
        assert f"{words}+{100 * EXAM['gain'][part]['mean']:.1f}" in README


@pytest.mark.parametrize("base", ["before", "before, instruction A"])
def test_the_gain_at_768_tokens(base):
    before, after = verdicts(base), verdicts("after")
    shares = [f"{100 * x.mean().item():.1f} %" for x in (before, after)]
    row = next(r for r in README.splitlines() if shares[0] in r and "| leniently |" in r)
    assert shares[1] in row
    assert paired(after, before) in row


def test_the_questions_gained_and_lost():
    before, after = verdicts("before"), verdicts("after")
    gained, lost = ((a * (1 - b)).sum().int().item() for a, b in ((after, before), (before, after)))
    assert f"{gained} questions gained, {lost} lost" in README


def test_the_clock():
    rows = records.read_metrics(FOLDER)
    assert len(rows) == int(re.search(r"for (\d+) steps", README)[1])
