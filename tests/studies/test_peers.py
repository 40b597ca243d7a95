"""Published doctors on the benchmark: their words, the rule they are scored by, and the record."""

import importlib.util

import pytest

from book.studies import peers
from nbcourse.diagnosis.suspects import CAUSES
from nbcourse.experiments import evidence, records, small_lab

BENCHMARK = records.RUNS / "silent-failures"
RECORDED = records.RUNS / "silent-failures-peers"


@pytest.mark.parametrize("name", peers.PEERS)
def test_each_word_is_taken_for_causes_that_there_are(name):
    for word, causes in peers.PEERS[name].words.items():
        assert causes <= set(CAUSES), word


def test_the_first_word_counts_and_a_word_may_mean_any_of_its_causes():
    """DEGENERATE_GROUPS may mean no-signal, KL_BLOWUP kl-sign; neither mixed-groups."""
    said = [
        ("no-signal", ["DEGENERATE_GROUPS"]),  # named
        ("kl-sign", ["DEGENERATE_GROUPS", "KL_BLOWUP"]),  # second
        ("kl-sign", ["CLIP_SATURATION"]),  # another
        ("mixed-groups", []),  # nothing, and no word for it
        (None, ["KL_BLOWUP"]),  # accused
        (None, []),
    ]
    results = [{"run": "", "cause": cause, "said": {"rlprobe": words}} for cause, words in said]
    found = peers.score(results)["rlprobe"]
    counts = {key: (found[key]["count"], found[key]["of"]) for key in found if key != "nameable"}
    assert counts == {"named": (1, 4), "named_anywhere": (2, 4), "accused": (1, 2)}
    assert found["nameable"] == 3


def test_the_record_is_of_the_benchmark_as_it_is_and_its_score_is_that_of_its_results():
    results = records.read_results(RECORDED)
    answers = records.read_json(BENCHMARK / small_lab.ANSWERS)
    assert {one["run"]: one["cause"] for one in results} == {
        name: answer["cause"] for name, answer in answers.items()
    }
    recorded = records.read_json(RECORDED / peers.SCORE)
    assert {name: one.pop("version") for name, one in recorded.items()} == {
        "rlprobe": "0.1.0",
        "rlprobe, floor of 20 steps": "0.1.0",
        "rl-doctor": "0.2.0",
    }
    assert recorded == peers.score(results)
    assert records.read_json(RECORDED / records.ENVIRONMENT)["uncommitted_changes"] is False


def test_a_peer_that_is_not_installed_is_left_out_with_a_line(monkeypatch, tmp_path, capsys):
    def missing(_):
        raise peers.metadata.PackageNotFoundError

    monkeypatch.setattr(peers.metadata, "version", missing)
    peers.main([str(BENCHMARK), str(tmp_path / "out")])
    assert "rl-doctor is left out: rldoctor is not installed" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("run", ["001", "010", "052", "104"])
def test_peers_still_say_what_they_said(run):
    for module in ("rlprobe", "rl_doctor"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    said = {one["run"]: one["said"] for one in records.read_results(RECORDED)}
    left = evidence.read(BENCHMARK / small_lab.LOGS / f"{run}.zip")
    assert {name: peer.asked(left) for name, peer in peers.PEERS.items()} == said[run]


def test_the_logs_reach_rl_doctor_under_names_that_it_knows():
    rl_doctor = pytest.importorskip("rl_doctor")
    left = evidence.read(BENCHMARK / small_lab.LOGS / "003.zip")
    rows = [
        {theirs: row.get(ours) for ours, theirs in peers.TRL_NAMES.items()} for row in left.history
    ]
    assert rl_doctor.run_from_records(rows).unmapped_keys == []
