"""The recorded benchmark: small, from a clean commit, and the score is what the logs give today."""

import json
from itertools import pairwise

import pytest

from book.studies import silent_failures
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.experiments import evidence, records, small_lab
from nbcourse.mistakes.catalogue import current
from tests.effort import swept

FOLDER = records.RUNS / "silent-failures"
ANSWERS = json.loads((FOLDER / small_lab.ANSWERS).read_text("utf-8"))
RESULTS = {result["run"]: result for result in records.read_results(FOLDER)}


def test_it_holds_every_fault_three_times_and_thirty_healthy_runs():
    """Those that are younger than the record say so themselves."""
    planted = [answer["what"] for answer in ANSWERS.values() if answer["cause"]]
    older = [name for name, fault in FAULTS.items() if fault.recorded]
    assert {name: planted.count(name) for name in planted} == dict.fromkeys(older, 3)
    assert len(ANSWERS) - len(planted) == 30
    logs = list((FOLDER / small_lab.LOGS).iterdir())
    assert {path.stem for path in logs} == set(ANSWERS)
    assert sum(path.stat().st_size for path in logs) < 3_000_000


def test_the_order_says_nothing():
    """Neighbours are of the same kind no more often than by chance, which is about 2 of 155."""
    kinds = [answer["what"] for _, answer in sorted(ANSWERS.items())]
    assert sum(a == b for a, b in pairwise(kinds)) <= 8


def test_it_was_recorded_from_a_commit():
    environment = records.read_json(FOLDER / records.ENVIRONMENT)
    assert environment["uncommitted_changes"] is False
    assert environment["commit"]


def test_the_score_is_that_of_the_results():
    found = silent_failures.score(list(RESULTS.values()))
    assert found == records.read_json(FOLDER / small_lab.SCORE)
    assert found["witness"]["named"]["count"] >= 0.9 * found["witness"]["named"]["of"]
    assert found["witness"]["accused"]["count"] == 0


@pytest.mark.parametrize("run", swept(ANSWERS, keep=[f"{n:03d}" for n in range(1, 157, 12)]))
def test_the_diagnosis_still_says_what_it_said(run):
    left = evidence.read(FOLDER / small_lab.LOGS / f"{run}.zip")
    said = [finding.id for finding in silent_failures.diagnose(left).findings]
    assert said == [current(name) for name in RESULTS[run]["witness"]]
