"""Published results on GSM8K: each says where it stands, and how its figures were read."""

import json
from datetime import date

import pytest

from nbcourse.experiments import records

FOUND = json.loads((records.RUNS / "published" / "gsm8k.json").read_text(encoding="utf-8"))
each_run = pytest.mark.parametrize("run", FOUND["runs"], ids=lambda run: run["name"])


@each_run
def test_a_run_says_what_was_read_where_and_on_what(run):
    assert run["source"].startswith("https://")
    for key in ("model", "algorithm", "hardware", "remark"):
        assert run[key]
    assert run["minutes"] is None or run["minutes"] > 0
    assert date(2024, 1, 1) <= date.fromisoformat((run["date"] + "-01-01")[:10]) <= date.today()


@each_run
def test_four_decimals_are_a_whole_number_of_right_answers_or_it_is_said(run):
    """Three decimals are one in any case: 1,319 questions have a share in every thousandth."""
    questions = run.get("questions", FOUND["test_questions"])
    for share in (run["before"], run["after"]):
        decimals = len(str(share).partition(".")[2])
        if share is not None and questions is not None and decimals >= 4:
            whole = round(round(share * questions) / questions, decimals) == share
            assert whole == ("no whole number" not in run["remark"])


@each_run
def test_what_is_published_is_one_of_the_evaluations(run):
    along = dict(run.get("evaluations", [[0, run["after"]]]))
    assert run["after"] in along.values()
    assert list(along) == sorted(along)
