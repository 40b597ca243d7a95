"""`nbcourse diagnose` as a user meets it: runs, logs of others, wrong files, CI."""

import json

import pytest

from nbcourse.diagnosis.causes import CAUSES
from nbcourse.diagnosis.curves import notes
from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.diagnosis.report import CONFIDENCES, LIKELY, POSSIBLE
from nbcourse.experiments import evidence, silent_failures
from tests.command import nbcourse, refused
from tests.diagnosis.runs import broken, causes, sound


@pytest.fixture
def packed(tmp_path):
    def write(found):
        path = tmp_path / f"{found.name.replace(' ', '-')}.zip"
        path.write_bytes(evidence.pack(found))
        return path

    return write


def test_it_names_the_cause_the_evidence_the_mend_and_the_section(packed, tmp_path):
    report = tmp_path / "report.json"
    said = nbcourse("diagnose", packed(broken("mixed-groups")), "--json", report)
    assert "[certain] mixed-groups: " in said
    assert CAUSES["mixed-groups"].mend in said
    assert "see 10.2 The group baseline" in said
    content = json.loads(report.read_text())
    assert content["basis"] == "witness"
    (finding,) = content["findings"]
    assert {"cause", "confidence", "evidence", "section"} <= set(finding)
    assert finding["confidence"] in CONFIDENCES


def test_require_healthy_is_for_ci(packed):
    nbcourse("diagnose", packed(sound("grpo")), "--require", "healthy,witness")
    said = nbcourse("diagnose", packed(broken("mixed-groups")), "--require", "healthy", code=1)
    assert "not met: healthy" in said


def test_the_causes_are_listed():
    names = [line for line in nbcourse("diagnose", "--causes").splitlines() if line[0] != " "]
    assert names == list(CAUSES)


def test_of_curves_alone_it_says_that_they_are_all_it_has(tmp_path):
    run = broken("stale-sampler")
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row, allow_nan=True) + "\n" for row in run.history))
    said = " ".join(nbcourse("diagnose", path).split())
    assert "There is no witness batch" in said
    assert "[possible] sampler-mismatch" in said
    (finding,) = diagnose(Evidence("x", (), run.history)).findings
    assert finding.confidence == POSSIBLE


def test_trl_and_dashboards_are_read(tmp_path):
    log = [
        {"step": n, "loss": 0.001, "reward": 0.0, "frac_reward_zero_std": 1.0, "grad_norm": 0.0}
        for n in range(1, 9)
    ]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": [*log, {"train_runtime": 3.0, "step": 8}]}))
    table = tmp_path / "export.csv"
    lines = [",".join(log[0]), *(",".join(map(str, row.values())) for row in log)]
    table.write_text("\n".join(lines) + "\n")
    for path in (state, table, tmp_path):
        found = evidence.read(path)
        assert len(found.history) == 8
        assert causes(found) == ["no-signal"]


def test_dials_that_look_broken_are_explained_and_not_accused():
    healthy = [{"clip_low": 0.0, "clip_high": 0.0, "policy_loss": 1e-4, "updates": 1}] * 6
    assert len(list(notes(healthy))) == 2
    assert diagnose(Evidence("x", (), healthy)).healthy


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("run.txt", "", "is of a kind that is not known: expected a folder, or a file .zip"),
        ("run.zip", "no zip", "run.zip is damaged"),
        ("run.jsonl", "nonsense\n", "line 1 is damaged: it is not JSON"),
        ("run.jsonl", "[1]\n", "line 1: expected an object"),
        ("run.json", "{}", "has no log_history"),
        ("run.csv", "a,b\nx,y\n", "holds no numbers"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, name, content, line):
    path = tmp_path / name
    path.write_text(content)
    assert line in refused("diagnose", path)


def test_wrong_arguments_are_refused_in_one_line(tmp_path):
    assert "is not there" in refused("diagnose", tmp_path / "nowhere")
    assert "no run in" in refused("diagnose", tmp_path)
    assert "RUN is missing" in refused("diagnose")
    assert "did you mean 'healthy'" in refused("diagnose", tmp_path, "--require", "helthy")


def test_the_tests_of_samples_are_fair():
    """A healthy run passes them; a test is only `likely`, whatever its probability."""
    for name in ("sampler-top-p-unreported", "same-seed"):
        finding, *_ = diagnose(broken(name)).findings
        assert finding.confidence == LIKELY


def test_the_score_counts_what_is_named_first():
    found = silent_failures.score(
        [
            {"cause": "a", "witness": ["a", "b"], "curves": []},
            {"cause": "b", "witness": ["a", "b"], "curves": ["b"]},
            {"cause": None, "witness": [], "curves": ["a"]},
        ]
    )
    assert found["witness"]["named"]["count"] == 1
    assert found["witness"]["named"]["of"] == 2
    assert found["witness"]["another_named"] == 1
    assert found["curves"]["nothing_named"] == 1
    assert (found["witness"]["accused"]["count"], found["curves"]["accused"]["count"]) == (0, 1)
