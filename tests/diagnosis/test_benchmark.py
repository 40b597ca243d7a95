"""The recorded benchmark: small, from a clean commit, and the score is what the logs give today."""

from itertools import pairwise

import pytest

from book.studies import silent_failures
from nbcourse.diagnosis.faults import FAULTS
from nbcourse.experiments import evidence, records, small_lab
from nbcourse.mistakes.catalogue import current
from tests.effort import swept

FIRST, FRESH = records.RUNS / "silent-failures", records.RUNS / "silent-failures-fresh"
RECORDS = {FIRST: 30, FRESH: 43}  # with so many healthy runs
RESULTS = {
    folder: {result["run"]: result for result in records.read_results(folder)} for folder in RECORDS
}
of_each = pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)


@of_each
def test_it_holds_every_fault_three_times_and_healthy_runs(folder):
    """Those that are younger than the first record say so themselves."""
    answers = records.read_json(folder / small_lab.ANSWERS)
    planted = [answer["what"] for answer in answers.values() if answer["cause"]]
    there = [name for name, fault in FAULTS.items() if fault.recorded or folder == FRESH]
    assert {name: planted.count(name) for name in planted} == dict.fromkeys(there, 3)
    assert len(answers) - len(planted) == RECORDS[folder]
    logs = list((folder / small_lab.LOGS).iterdir())
    assert {path.stem for path in logs} == set(answers) == set(RESULTS[folder])
    assert sum(path.stat().st_size for path in logs) < 3_000_000


@of_each
def test_the_order_says_nothing(folder):
    """Neighbours are of the same kind no more often than by chance, which is about 2 of 155."""
    answers = records.read_json(folder / small_lab.ANSWERS)
    kinds = [answer["what"] for _, answer in sorted(answers.items())]
    assert sum(a == b for a, b in pairwise(kinds)) <= 8


@of_each
def test_it_was_recorded_from_a_commit(folder):
    environment = records.read_json(folder / records.ENVIRONMENT)
    assert environment["uncommitted_changes"] is False
    assert environment["commit"]


def test_the_fresh_seeds_are_none_of_the_first():
    seeds = [{one["seed"] for one in RESULTS[folder].values()} for folder in RECORDS]
    assert seeds == [{1000, 1001, 1002}, {2000, 2001, 2002}]


@of_each
def test_the_score_is_that_of_the_results(folder):
    found = silent_failures.score(list(RESULTS[folder].values()))
    assert found == records.read_json(folder / small_lab.SCORE)
    assert found["witness"]["named"]["count"] >= 0.9 * found["witness"]["named"]["of"]
    assert found["witness"]["accused"]["count"] == 0


RUNS = [(folder, run) for folder, results in RESULTS.items() for run in results]


@pytest.mark.parametrize(
    ("folder", "run"), swept(RUNS, keep=RUNS[::14]), ids=lambda part: getattr(part, "name", part)
)
def test_the_diagnosis_still_says_what_it_said(folder, run):
    left = evidence.read(folder / small_lab.LOGS / f"{run}.zip")
    said = [finding.id for finding in silent_failures.diagnose(left).findings]
    recorded = [current(name) for name in RESULTS[folder][run]["witness"]]
    younger = ["often-truncated"] * ("no-signal" in recorded)  # the records could not name it
    assert said in (recorded, recorded + younger)
