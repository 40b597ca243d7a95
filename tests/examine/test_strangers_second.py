"""The second and third batch of strangers' losses and logs: today, and at the first run."""

from dataclasses import fields

import pytest

from book.studies import strangers_second, strangers_third
from book.studies.strangers import Verdict, judged
from nbcourse.experiments import records
from nbcourse.mistakes.catalogue import CATALOGUE
from tests.effort import swept

BATCHES = {"strangers": strangers_second.CASES, "strangers-third": strangers_third.CASES}
CASES = [case for batch in BATCHES.values() for case in batch]
OPEN: dict[str, str] = {}  # what is still not said as the verdict has it
QUICK = (
    *("bingreeky/MemGen #33", "Chi-Shan0707/TinyLoRA-GRPO-Coder #4", "huggingface/trl #6140"),
    *("Gen-Verse/OpenClaw-RL #69", "NovaSky-AI/SkyRL #1340"),
)
KEPT = [
    pytest.param(case, marks=pytest.mark.xfail(strict=True, reason=OPEN[case.source]))
    if case.source in OPEN
    else case
    for case in CASES
]


@pytest.mark.parametrize(
    "case",
    swept(KEPT, keep=[one for one, case in zip(KEPT, CASES, strict=True) if case.source in QUICK]),
    ids=lambda case: case.source,
)
def test_a_reported_fault_and_its_mended_twin_are_judged_rightly(case):
    result = judged(case)
    assert result["right"], (result["fault"], result["mended"])


@pytest.mark.parametrize("name", BATCHES)
def test_the_record_is_of_these_cases_and_verdicts(name):
    kept, cases = records.read_results(records.RUNS / name), BATCHES[name]
    assert [(one["source"], one["date"]) for one in kept] == [(c.source, c.date) for c in cases]
    for one, case in zip(kept, cases, strict=True):
        assert one["fault"]["expected"] == str(case.expected)
        assert one["mended"]["expected"] == str(case.twin)
        assert one["right"] == (not one["fault"]["wrong"] and not one["mended"]["wrong"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source)
def test_a_verdict_names_what_the_catalogue_has(case):
    """But for a name that an author made up for what the catalogue did not have."""
    for verdict in (case.expected, case.twin):
        named = {
            id for one in fields(verdict) if one.name != "said" for id in getattr(verdict, one.name)
        }
        assert named <= {*CATALOGUE, "entropy-ignored"}


@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        (Verdict(mistakes={"a"}), []),
        (Verdict(), ["a is false"]),
        (Verdict(also={"a"}, named={"c"}), ["c is not said"]),
        (Verdict(also={"a"}, never={"b"}), ["b is said"]),
        (Verdict(also={"a"}, one_of={"c", "d"}), ["none of c, d"]),
        (Verdict(also={"a"}, said=("in words",)), []),
        (Verdict(also={"a"}, said=("others",)), ["nothing like 'others'"]),
    ],
)
def test_a_verdict_says_what_is_missing_or_false(verdict, wrong):
    assert verdict.wrong_in({"a"}, {"a", "b"}, "a and b, in words") == wrong
