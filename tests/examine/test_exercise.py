"""The exercise that asks for a prediction: `examine` says what its key says."""

import pytest
import torch

from nbcourse.checks import grpo
from nbcourse.examine import examine
from tests.checks import masters

WORDS = {  # what of a report stands behind each word
    "exact": lambda said, codes: said.fresh.verdict == "exact" and "inverted-ratio" not in codes,
    "own length": lambda said, codes: said.average == "seq-mean-token-mean",
    "padding": lambda said, codes: "padding-in-denominator" in codes,
    "upside down": lambda said, codes: "inverted-ratio" in codes,
    "nothing": lambda said, codes: "rewards-ignored" in codes,
}


def losses():
    (cell,) = (c for c in masters.master("10-grpo").cells if c.source.startswith("def a("))
    namespace = {"torch": torch}
    exec(cell.source, namespace)
    return {name: namespace[name] for name in grpo.REPORTS}


@masters.needed
@pytest.mark.parametrize("name", grpo.REPORTS)
def test_each_word_is_what_the_examination_says(name):
    report = examine(losses()[name])
    codes = {finding.id for finding in report.findings}
    true = [word for word, holds in WORDS.items() if holds(report.facts, codes)]
    assert true == [grpo.REPORTS[name]]
