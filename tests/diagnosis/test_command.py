"""`nbcourse diagnose` as a user meets it: runs, logs of others, wrong files, CI."""

import json
import struct

import pytest

from book.studies import silent_failures
from nbcourse.diagnosis.curves import notes
from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.diagnosis.names import translated
from nbcourse.diagnosis.suspects import CAUSES
from nbcourse.experiments import event_files, evidence
from nbcourse.mistakes.findings import CONFIDENCES, LIKELY, POSSIBLE
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
    assert CAUSES["mixed-groups"].fix in said
    assert "see 10.2 The group baseline" in said
    content = json.loads(report.read_text())
    assert content["basis"] == "witness"
    (finding,) = content["findings"]
    assert {"id", "kind", "evidence", "section"} <= set(finding)
    assert finding["kind"] in CONFIDENCES


def test_the_curves_of_the_benchmark_are_whole():
    """Readers guess by the KL to the reference, and other tools judge by it."""
    assert all("kl_ref" in row for row in sound("grpo").history)


@pytest.mark.parametrize("every", [1, 10])
def test_weights_that_stand_still_show_in_a_kl_that_is_measured_now_and_then(every):
    """Twenty steps with a gradient: the first KL is 0 in any run, and says nothing."""

    def history(kl, last=20):
        rows = [{"step": step, "grad_norm": 0.5} for step in range(1, 21)]
        for row in rows[:last]:
            if row["step"] == 1 or row["step"] % every == 0:
                row["kl_ref"] = kl * (row["step"] - 1)
        return rows

    def found(rows):
        return diagnose(Evidence("run", (), rows)).findings

    (finding,) = found(history(0.0))
    assert finding.id == "idle-optimiser"
    assert "after 20 steps with a gradient" in finding.evidence
    assert not found(history(1e-3))
    assert not found(history(0.0, last=4))


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
    assert finding.kind == POSSIBLE


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('{"step": 1, "reward": 0}\n{"step": 2, "reward": 0}\n', 2),
        ('{"step": 1, "reward": 0}\n\n{"step": 2, "reward": 0}', 2),  # as other programs write it
        ('{"step": 1, "reward": 0}\n{"ste', 1),  # a kill
    ],
)
def test_every_whole_line_is_read(tmp_path, content, rows):
    path = tmp_path / "history.jsonl"
    path.write_text(content)
    assert [row["step"] for row in evidence.read(path).history] == [1, 2][:rows]


@pytest.mark.parametrize(
    ("name", "gap", "suspected"),
    [
        ("gap", 0.4, True),
        ("sampling/sampling_logp_difference/max", 0.4, False),  # usual for vLLM in bfloat16
        ("sampling/sampling_logp_difference/max", 5.1, False),  # of a recorded sound run
        ("sampling/sampling_logp_difference/max", 12.0, True),
    ],
)
def test_a_gap_is_judged_by_the_precision_that_it_may_have(name, gap, suspected):
    history = [translated({"step": step, "reward": 0.5, name: gap}) for step in range(6)]
    assert (causes(Evidence("x", (), history)) == ["sampler-mismatch"]) == suspected


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


# ---------------------------------------------------------------- what other tools leave

FLAT = {"train/reward": 0.0, "train/frac_reward_zero_std": 1.0, "train/loss": 0.001}

# Written by `EventFileWriter` of tensorboard 2.21.0: the version, then steps 1 to 3 with
# train/reward = step / 4 and train/loss = −1/2.
REAL = (
    b"H\x00\x00\x00\x00\x00\x00\x00\xfe\x92H\x9d\tx\xb4w\x8e\xef\xc0\xdaA\x1a\rbrain.Event:2R."
    b"\n,tensorboard.summary.writer.event_file_writer\xad\n\xebI5\x00\x00\x00\x00\x00\x00\x00"
    b"\xd6\xc5]\xe6\t\x00\x00@\xc0\x0bZ\xd6A\x10\x01*(\n\x13\n\x0ctrain/reward\x15\x00\x00\x80>"
    b"\n\x11\n\ntrain/loss\x15\x00\x00\x00\xbf\x9e\x05\xe0\xde5\x00\x00\x00\x00\x00\x00\x00"
    b"\xd6\xc5]\xe6\t\x00\x00\x80\xc0\x0bZ\xd6A\x10\x02*(\n\x13\n\x0ctrain/reward\x15\x00\x00\x00?"
    b"\n\x11\n\ntrain/loss\x15\x00\x00\x00\xbf\x1dl\x9fs5\x00\x00\x00\x00\x00\x00\x00"
    b"\xd6\xc5]\xe6\t\x00\x00\xc0\xc0\x0bZ\xd6A\x10\x03*(\n\x13\n\x0ctrain/reward\x15\x00\x00@?"
    b"\n\x11\n\ntrain/loss\x15\x00\x00\x00\xbfcE\xeb\x11"
)


def event_file(rows):
    """The format by hand: (step, {tag: value}) each an event; the checksums are not looked at."""

    def field(number, content):  # of kind 2: its key, its length, itself
        return bytes([number << 3 | 2, len(content)]) + content

    def record(step, values):
        parts = [
            field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)  # 2 << 3 | 5: a float
            for tag, value in values.items()
        ]
        steps = bytes([0x10, step & 127 | 128, step >> 7])  # a varint of two bytes
        event = steps + bytes([5 << 3 | 2]) + varint(b"".join(field(1, part) for part in parts))
        return struct.pack("<Q", len(event)) + b"crc-" + event + b"crc-"

    def varint(content):
        return bytes([len(content) & 127 | 128, len(content) >> 7]) + content

    return b"".join(record(step, values) for step, values in rows)


def test_a_real_event_file_is_read(tmp_path):
    path = tmp_path / "events.out.tfevents.1795407417.vm.20111.0"
    path.write_bytes(REAL)
    tags = {"train/reward": 0.25, "train/loss": -0.5}
    assert event_files.scalars(REAL, name="x")[:2] == [(1, *pair) for pair in tags.items()]
    rows = [{"step": n, "reward": n / 4, "policy_loss": -0.5} for n in (1, 2, 3)]
    assert list(evidence.read(path).history) == rows
    path.write_bytes(REAL[:-5])  # still being written
    assert list(evidence.read(path).history) == rows[:2]


def test_tensorboards_folder_is_read_by_step_and_the_later_file_counts(tmp_path):
    folder = tmp_path / "runs" / "Nov23"
    folder.mkdir(parents=True)
    for number, steps in enumerate([range(1, 300), range(200, 401)]):  # a run that was resumed
        content = event_file([(step, {**FLAT, "train/kl": number}) for step in steps])
        (folder / f"events.out.tfevents.{number}.host").write_bytes(content)
    found = evidence.read(tmp_path)
    assert [row["step"] for row in found.history] == list(range(1, 401))
    assert [found.history[n]["kl"] for n in (0, 198, 199, 399)] == [0, 0, 1, 1]
    assert causes(found) == ["no-signal"]
    said = " ".join(nbcourse("diagnose", tmp_path).split())
    assert "1 cause seen in 400 points of its curves. There is no witness batch" in said
    other = tmp_path / "runs" / "Nov24"
    other.mkdir()
    (other / "events.out.tfevents.9.host").write_bytes(REAL)
    assert "event files of several runs, name one" in refused("diagnose", tmp_path)
    assert len(evidence.read(other).history) == 3


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "holds no scalars"),
        (REAL[:88], "holds no scalars"),  # nothing but the version
        (b"\x01" * 40, "is no event file of TensorBoard"),
        (struct.pack("<Q", 4) + b"\xff" * 12, "is no event file of TensorBoard"),
    ],
)
def test_what_is_no_event_file_is_refused_in_one_line(tmp_path, content, line):
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(content)
    assert line in refused("diagnose", path)


def test_an_export_of_wandb_is_read(tmp_path):
    """A chart of one run, the table of `run.history()`, the rows of `run.scan_history()`."""
    chart = tmp_path / "chart.csv"
    names = [f"mine - {name}{end}" for name in FLAT for end in ("", "__MIN", "__MAX")]
    lines = [f'"{n}",' + ",".join(f'"{v}"' for v in FLAT.values() for _ in "123") for n in range(6)]
    chart.write_text("\n".join([",".join(f'"{name}"' for name in ("Step", *names)), *lines]))
    history = tmp_path / "history.csv"
    lines = [f"{n},{n},{3.5 * n}," + ",".join(map(str, FLAT.values())) for n in range(6)]
    history.write_text("\n".join([",_step,_runtime," + ",".join(FLAT), *lines]))
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps([{**FLAT, "_step": n} for n in range(6)]))
    for path in (chart, history, rows):
        found = evidence.read(path)
        assert len(found.history) == 6, path
        assert found.history[5]["no_spread"] == 1.0
        assert found.history[5]["policy_loss"] == 0.001
        assert causes(found) == ["no-signal"]


def test_what_wandb_keeps_to_itself_is_refused_with_a_way_out(tmp_path):
    (tmp_path / "run-abc.wandb").write_bytes(b":W&B\xe1\xbe\x00")
    for path in (tmp_path, tmp_path / "run-abc.wandb"):
        assert "`wandb sync` it, and export the run's history" in refused("diagnose", path)
    (tmp_path / "chart.csv").write_text("Step,a - train/reward,b - train/reward\n1,0.5,0.5\n")
    assert "several columns 'train/reward': export one run" in refused(
        "diagnose", tmp_path / "chart.csv"
    )


def test_dials_that_look_broken_are_explained_and_not_accused():
    healthy = [{"clip_low": 0.0, "clip_high": 0.0, "policy_loss": 1e-4, "updates": 1}] * 6
    assert len(list(notes(healthy))) == 2
    assert diagnose(Evidence("x", (), healthy)).healthy


def test_a_clip_fraction_of_zero_is_excused_only_where_there_is_one_update():
    untold = {"clip_low": 0.0, "clip_high": 0.0}
    assert list(notes([untold])) == list(notes([untold | {"updates": 4}])) == []
    assert len(list(notes([untold | {"updates": 1}]))) == 1


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (
            "run.doc",
            "",
            "is of an unknown kind: expected a folder, TensorBoard's event file",
        ),
        ("run.zip", "no zip", "run.zip is damaged"),
        ("run.jsonl", "nonsense\n", "line 1 is damaged: it is not JSON"),
        ("run.jsonl", "[1]\n", "line 1: expected an object"),
        ("run.json", "{}", "has no log_history"),
        ("run.csv", "a,b\nx,y\n", "holds no numbers"),
        ("run.log", "", "holds no numbers: expected lines such as step:1"),
        ("run.log", "nothing\nbut text\n", "holds no numbers: expected lines such as step:1"),
        ("run.jsonl", "", "was recognised: found no numbers; expected some such as reward, loss"),
        ("run.jsonl", '{"step": 1, "a": 2}', "was recognised: found columns a; expected some such"),
        ("run.csv", "step,weather\n1,2\n", "was recognised: found columns weather; expected some"),
        ("run.jsonl", '{"reward": 1}\n{"rew\n{"reward": 1}\n', "line 2 is damaged"),
        ("run.json", '{"a": [1], "b": 1}', "has no log_history"),
        ("run.jsonl", '{"step": 1, "rewards/chosen": 0.1}', "of a preference optimisation"),
        ("run.log", "step: 1 dpo_loss: 0.1\nstep: 2 dpo_loss: 0.2\n", "samples no answers"),
        ("old.ipynb", '{"worksheets": [{"cells": []}]}', "nbformat 3: open it in JupyterLab"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, name, content, line):
    path = tmp_path / name
    path.write_text(content)
    assert line in refused("diagnose", path)


def test_wrong_arguments_are_refused_in_one_line(tmp_path):
    assert "there is no" in refused("diagnose", tmp_path / "nowhere")
    assert "no run in" in refused("diagnose", tmp_path)
    assert "RUN is missing" in refused("diagnose")
    assert "did you mean 'healthy'" in refused("diagnose", tmp_path, "--require", "helthy")


def test_the_tests_of_samples_are_fair():
    """A healthy run passes them; a test is only `likely`, whatever its probability."""
    for name in ("sampler-top-p-unreported", "same-seed"):
        finding, *_ = diagnose(broken(name)).findings
        assert finding.kind == LIKELY


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
