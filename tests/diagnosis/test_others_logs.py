"""What stands in other people's logs besides a row for each step, and what is read of it."""

import json
import math

import pytest

from nbcourse.diagnosis import curves
from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.experiments import evidence, records
from nbcourse.mistakes.findings import LIKELY
from tests.command import refused
from tests.diagnosis.test_logs import VERL, causes, read, rows
from tests.tasks.growth import assert_linear

SAMPLES = 'sample 2: reward=0.0\nHe wrote: step: 1, then {"x": 10} and loss: none\n'


def rewards(found):
    return [row["reward"] for row in found.history]


# ---------------------------------------------------------------- between the rows


def test_what_is_printed_of_samples_is_none_of_the_log(tmp_path):
    line = "[Step {n}/9] loss=0.1 reward_avg={r}\n"
    found = read(tmp_path, "".join(line.format(n=n, r=n / 10) + SAMPLES for n in range(1, 10)))
    assert [(row["step"], row["reward"]) for row in found.history] == [
        (n, n / 10) for n in range(1, 10)
    ]


def test_braces_that_a_model_wrote_hide_no_numbers(tmp_path):
    line = "mean reward: {r}, loss: 0.1\n{{'x': 10, 'y': 20}}\n"
    found = read(tmp_path, "".join(line.format(r=n / 10) for n in range(1, 6)))
    assert rewards(found) == [0.1, 0.2, 0.3, 0.4, 0.5]
    (tmp_path / "run.log").write_text("{'x': 10, 'y': 20}\n")
    assert "found columns x, y" in refused("diagnose", tmp_path / "run.log")


def test_numbers_without_a_digit_before_the_point(tmp_path):
    found = read(tmp_path, "step: 1 reward: -.040\nstep: 2 reward: .5\nstep: 3 reward: +.25\n")
    assert rewards(found) == [-0.04, 0.5, 0.25]


def test_blocks_whose_counter_stands_alone_stay_whole(tmp_path):
    found = read(tmp_path, "".join(f"step {n}\nreward: 0.{n}\nkl: 0.1\n" for n in range(1, 6)))
    assert [(row["step"], row["reward"], row["kl"]) for row in found.history] == [
        (n, n / 10, 0.1) for n in range(1, 6)
    ]


@pytest.mark.parametrize(
    "mark",
    [
        *({"split": "test_greedy"}, {"phase": "Eval"}, {"is_eval": True}, {"kind": "validation"}),
        *({"split": "dev"}, {"data set": "held-out"}, {"eval": 1}, {"train_runtime": 60.0}),
    ],
)
def test_rows_of_an_evaluation_and_a_summary_are_no_training(tmp_path, mark):
    lines = [{"step": n, "reward": 0.5, "kl": 0.1, "is_eval": False} for n in range(9)]
    lines.insert(5, {"step": 4, "reward": 0.9, **mark})
    assert rewards(read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")) == [0.5] * 9


@pytest.mark.parametrize(
    "beside",
    [
        *({"run": "grpo-test-3"}, {"status": "valid"}, {"is_valid": True}, {"answer": "a test"}),
        *({"do_eval": True}, {"val/acc": 1.0}, {"eval_reward": 1}),
        {"stage": "before the test of the model"},
    ],
)
def test_words_that_say_nothing_of_the_row_leave_it_in(tmp_path, beside):
    lines = [{"step": n, "reward": 0.5, **(beside if n == 3 else {})} for n in range(9)]
    assert len(read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl").history) == 9


def test_null_is_no_number_in_the_log_of_others_and_one_in_ours(tmp_path):
    lines = [{"step": n, "reward": 0.5, "loss": None if n < 2 else 0.1} for n in range(9)]
    text = "\n".join(map(json.dumps, lines))
    assert "not-finite" not in [
        one.id for one in diagnose(read(tmp_path, text, "x.jsonl")).findings
    ]
    ours = read(tmp_path, text.replace("loss", "policy_loss"), records.METRICS)
    assert math.isnan(ours.history[0]["policy_loss"])
    assert diagnose(ours).findings[0].id == "not-finite"


@pytest.mark.parametrize(
    "text",
    [
        "{{'loss': 0.1,\n 'reward': {r},\n 'kl': 0.2}}\n",  # as pprint prints it
        '{{\n  "loss": 0.1,\n  "reward": {r},\n  "kl": 0.2\n}}\n',
        "'loss': '0.1'\nkl': '0.2'\n'reward': '{r}'\n",
        "loss=[0.1] reward=[{r}] kl = [ 0.2 ]\n",
    ],
)
def test_numbers_in_quotes_and_brackets_are_read_by_their_names(tmp_path, text):
    found = read(tmp_path, "".join(text.format(r=n / 10) for n in range(1, 6)))
    assert [*found.history] == [
        {"policy_loss": 0.1, "kl": 0.2, "reward": n / 10} for n in range(1, 6)
    ]


@pytest.mark.parametrize(
    "other",
    [
        *("Best mean reward: -inf -", "(highest avg reward 9.0)", "max mean reward=9.0;"),
        *("target average reward: 195 |", "kl 0.1 | val mean reward: 0.9,", "best_mean_reward 9"),
    ],
)
def test_the_best_so_far_is_another_number(tmp_path, other):
    text = "".join(f"step: {n} {other} Last mean reward: 0.{n} reward\n" for n in range(1, 6))
    assert rewards(read(tmp_path, text)) == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_the_first_of_a_list_is_not_its_mean(tmp_path):
    text = "".join(f"step={n} rewards=[0.0, 1.0] mean_reward=0.{n}\n" for n in range(1, 6))
    assert rewards(read(tmp_path, text)) == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_lines_of_one_counter_are_read_together(tmp_path):
    line = "Step {n} | Reward: 0.{n}\nStep {n} | Loss: 0.5 | KL: 0.2\nloss 7 of a sample\n"
    found = read(tmp_path, "".join(line.format(n=n) for n in range(1, 6)))
    assert [*found.history] == [
        {"step": n, "reward": n / 10, "policy_loss": 0.5, "kl": 0.2} for n in range(1, 6)
    ]


@pytest.mark.parametrize("evaluated", ["test_acc: 0.9, reward: 0.9", "Eval steps=3, reward=0.9"])
def test_a_line_whose_first_name_is_of_an_evaluation_is_left_out(tmp_path, evaluated):
    line = "reward=0.{n} kl=0.1\n{evaluated}\n"
    text = "".join(line.format(n=n, evaluated=evaluated) for n in range(1, 6))
    assert rewards(read(tmp_path, text)) == [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize("width", [70, 97, 150])
def test_lines_that_a_terminal_has_wrapped_are_whole(tmp_path, width):
    long = VERL.format(n="{n}", r=0.25, g=1.0) + " - response_length/clip_ratio:0.75 - x/y:1.0"
    lines = [long.format(n=n) for n in range(10, 15)]
    cut = [line[k : k + width] for line in lines for k in range(0, len(line), width)]
    for row in read(tmp_path, "\n".join(cut)).history:
        assert (row["reward"], row["grad_norm"], row["truncated"]) == (0.25, 1.0, 0.75)


def test_what_stands_behind_a_line_is_no_part_of_it(tmp_path):
    line = VERL.format(n="{n}", r=0.25, g=1.0)
    text = "".join(f"{line.format(n=n)}\n10/10 - 3s - loss: 0.3\nINFO - done\n" for n in (1, 2))
    assert read(tmp_path, text).history[0]["perf/mfu"] == 0.41
    text = "".join(f"step {n} kl 0.1 reward 0.{n}\nname - x:3\n" for n in (1, 2, 3))
    assert rewards(read(tmp_path, text)) == [0.1, 0.2, 0.3]


def test_settings_that_are_printed_twice_are_no_log(tmp_path):
    settings = '{\n  "learning_rate": 1e-06,\n  "epochs": 3\n}\n' * 2
    (tmp_path / "run.log").write_text(settings)
    assert "found columns learning_rate, epochs;" in refused("diagnose", tmp_path / "run.log")
    found = read(tmp_path, settings + "".join(f"loss 0.{n}\n" for n in range(1, 6)))
    assert [row["policy_loss"] for row in found.history if "policy_loss" in row][-1] == 0.5


def test_what_is_no_name_in_braces_is_no_column(tmp_path):
    (tmp_path / "run.log").write_text("{-x: 1}\n{1: 2}\n")
    assert "found columns 1;" in refused("diagnose", tmp_path / "run.log")


# ---------------------------------------------------------------- the order of rows


def numbered(steps):
    return "\n".join(VERL.format(n=n, r=r, g=1.0) for r, n in enumerate(steps))


def told(found):
    return [(row["step"], row["reward"]) for row in found.history]


def test_steps_that_begin_again_and_again_are_counted_through(tmp_path):
    found = read(tmp_path, numbered([1, 2, 3] * 3))
    assert told(found) == [(n + 1, n) for n in range(9)]
    assert found.left_out == 0


def once_again(**of):
    """The same steps twice, with the numbers of a count that goes on."""
    count = range(40)
    return [{"step": n % 20, "reward": 0.5, **{k: v(n) for k, v in of.items()}} for n in count]


@pytest.mark.parametrize(
    ("numbers", "goes_on"),
    [
        *(({"kl": lambda n: n / 100}, True), ({"kl": lambda n: n % 20 / 100}, False)),
        *(({"lr": lambda n: 1 - n / 40}, True), ({"lr": lambda n: 1 - n % 20 / 40}, False)),
        *(({"lr": lambda n: 0.1}, False), ({"kl": lambda n: 0.3 + n * 6 % 11 / 100}, False)),
        *(({}, False), ({"lr": lambda n: 0.1, "kl": lambda n: n / 100}, True)),
    ],
)
def test_steps_that_begin_again_once_are_a_restart_unless_the_policy_goes_on(
    tmp_path, numbers, goes_on
):
    found = read(tmp_path, "\n".join(map(json.dumps, once_again(**numbers))), "run.jsonl")
    assert (len(found.history), found.left_out) == ((40, 0) if goes_on else (20, 20))


def epochs(*values):
    return "\n".join(f"{{'reward': 0.{n}, 'epoch': {e}}}" for n, e in enumerate(values, start=1))


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ((0.1, 0.2, 0.3, 0.1, 0.2), [0.4, 0.5]),  # begun anew
        ((0.1, 0.2, 0.3, 0.2, 0.3), [0.1, 0.4, 0.5]),  # resumed
        ((0.1, 0.1, 0.2, 0.2), [0.1, 0.2, 0.3, 0.4]),
        ((0.1, 0.3, 0.2, 0.4, 0.3), [0.1, 0.2, 0.3, 0.4, 0.5]),  # of several ranks
    ],
)
def test_rows_without_a_step_begin_again_where_their_epochs_do(tmp_path, values, kept):
    found = read(tmp_path, epochs(*values))
    assert (rewards(found), found.left_out) == (kept, len(values) - len(kept))


@pytest.mark.parametrize(
    ("counts", "step"),
    [
        *(({"iter": lambda n: 10 * n}, 100), ({"Episode": lambda n: n + 1}, 11)),
        *(({"iter": lambda n: n % 8}, 11), ({"epoch": lambda n: n / 10}, 11)),
        *(({"iter": lambda n: n % 8, "update": lambda n: 5 * n}, 50), ({}, 11)),
        ({"step": lambda n: 2 * n, "iter": lambda n: 10 * n}, 20),
    ],
)
def test_a_row_without_a_step_is_named_as_it_counts_itself(tmp_path, counts, step):
    rows = [{name: count(n) for name, count in counts.items()} for n in range(20)]
    lines = [{**row, "loss": 1.0 if n != 10 else math.nan} for n, row in enumerate(rows)]
    found = read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")
    (finding,) = diagnose(found).findings
    assert f"the loss is nan at step {step}, " in finding.evidence


def test_rows_before_a_restart_are_left_out_and_counted(tmp_path):
    found = read(tmp_path, numbered([1, 2, 3, 4, 4, 2, 3, 4, 5]))
    assert told(found) == [(1, 0), (2, 5), (3, 6), (4, 7), (5, 8)]
    report = diagnose(found)
    assert "Left out 4 rows of the log: behind them its steps begin again." in str(report)
    assert report.details()["left_out"] == 4
    assert "Left out" not in str(diagnose(read(tmp_path, numbered([1, 2, 3]))))


def test_a_log_whose_newest_row_is_the_first_is_turned_round(tmp_path):
    assert told(read(tmp_path, numbered([9, 7, 5, 3]))) == [(3, 3), (5, 2), (7, 1), (9, 0)]


def test_a_log_of_an_evaluation_alone_is_read(tmp_path):
    lines = [{"step": n, "reward": 0.5, "phase": "test"} for n in range(9)]
    assert len(read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl").history) == 9


def test_a_step_that_never_moves_is_counted_through(tmp_path):
    assert told(read(tmp_path, numbered([0] * 9))) == [(n + 1, n) for n in range(9)]


def test_workers_that_are_a_step_apart_begin_nothing_again(tmp_path):
    found = read(tmp_path, numbered([1, 1, 2, 1, 2, 1, 2, 3]))
    assert [row["step"] for row in found.history] == [1, 2, 3]


def test_several_rows_of_a_step_are_their_mean(tmp_path):
    lines = [{"step": 1, "reward": r, **({"kl": 0.3} if r else {})} for r in (0.0, 1.0, 0.5, 0.5)]
    lines.append({"step": 2, "reward": 1.0})
    row, _ = read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl").history
    assert row == {"step": 1, "reward": 0.5, "kl": pytest.approx(0.3)}
    assert isinstance(row["step"], int)


# ---------------------------------------------------------------- kinds of files


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.csv", "\ufeffstep,reward\n1,0.5\n2,0.25".encode()),
        ("run.csv", "step,reward\n1,0.5\n2,0.25".encode("utf-16")),
        ("run.csv", b"step;reward;note\n1;0.5;a, b\n2;0.25;c"),
        ("run.tsv", b"step\treward\n1\t0.5\n2\t0.25"),
        ("run.json", b'{"step": [1, 2], "reward": [0.5, 0.25]}'),
        ("run.json", b'{"step": [1, 2], "reward": [0.5, 0.25], "tags": []}'),
        ("run.json", b'{"step": 1, "reward": 0.5}\n{"step": 2, "reward": 0.25}\n'),
        ("run.csv", b"step;reward\n1;0,5\n2;0,25"),
        ("run.txt", b"step,reward\n1,0.5\n2,0.25"),
        ("run.log", b"step;reward\n1;0.5\n2;0.25"),
        ("run.txt", b"    step  mean reward\n0      1         0.50\n1      2         0.25"),
        ("run.txt", b"  step    reward\n------  --------\n     1      0.50\n     2      0.25"),
        ("run.md", b"| Step | **Reward** |\n|---|---|\n| `1` | **0.5** |\n| 2 | 0.25 |"),
        ("run.md", "| Step | Reward |\n|---|---|\n| 1 | 0.5 ± 0.1 |\n| 2 | 0.25 +/- 1 |".encode()),
        ("run.json", b'{"history": [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.25}]}'),
        ("run.jsonl", b'{"step": 1, "metrics": {"reward": 0.5}}\n{"step": 2, "reward": 0.25}'),
        ("run.jsonl", b'{"step": 1, "reward": {"mean": 0.5}}\n{"step": 2, "reward/mean": 0.25}'),
        (
            "run.jsonl",
            b'{"step": 1, "train": {"reward": 0.5}, "eval": {"reward": 9}}\n'
            b'{"step": 2, "my_metrics": "{\'reward\': 0.25}"}',
        ),
        (
            "run.json",
            b'{"config": {"betas": [0.9], "name": "a"}, "lr": 0.1, "train": '
            b'{"step": [1, 2], "reward": [0.5, 0.25], "dev": {"1": 9}, "val": [3, 4, 5]}}',
        ),
        (
            "run.json",
            b'{"betas": [1, 2, 3], "tags": [], "rows": [{"step": 1, "reward": 0.5}, '
            b'{"step": 2, "reward": 0.25}]}',
        ),
    ],
)
def test_a_table_is_read_however_it_is_written(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert told(evidence.read(tmp_path / name)) == [(1, 0.5), (2, 0.25)]


def test_what_is_no_row_of_a_table_is_left_out_of_it(tmp_path):
    text = "step  reward  kl\n1  0.5  0.1\nwords  and  more\n3  0.25  0.2\n4  5\n"
    assert told(read(tmp_path, text)) == [(1, 0.5)]  # behind words it is another table


def test_a_log_without_any_reward_is_asked_what_it_is():
    report = diagnose(Evidence("x", (), rows(policy_loss=0.5, grad_norm=1.0)))
    assert "could be judged (is this a log of reinforcement learning?)" in report.verdict()
    assert "(is this" not in diagnose(Evidence("x", (), rows(9, reward=0.5))).verdict()


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        *("score", "mean_score", "scores/mean", "return", "episode_reward", "total_reward"),
        *("reward/mean", "rewards/mean", "mean_R", "train/reward", "env/all/reward/total"),
        *("rollout/rewards/mean", "Total Reward"),
    ],
)
def test_a_reward_by_another_name(tmp_path, name):
    lines = [{"step": n, name: 0.5} for n in range(3)]
    assert rewards(read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")) == [0.5] * 3


@pytest.mark.parametrize(
    ("better", "other"),
    [
        *(("reward", "score"), ("reward", "return"), ("reward", "mean_reward")),
        *(("critic/score/mean", "total_reward"), ("reward_mean", "return"), ("Reward", "rewards")),
    ],
)
def test_of_two_rewards_the_one_with_the_better_claim_counts(tmp_path, better, other):
    for names in ((better, other), (other, better)):
        lines = [{"step": n, names[0]: 1.0, names[1]: 2.0} for n in range(3)]
        found = read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")
        assert rewards(found) == [1.0 if names[0] == better else 2.0] * 3
        assert found.unknown == [other]


def test_of_two_that_differ_in_their_letters_alone_the_one_in_more_rows_counts(tmp_path):
    text = "".join("gen reward=7.0\n" * (n < 3) + f"Epoch: {n} Reward: 0.{n}\n" for n in range(9))
    assert rewards(read(tmp_path, text)) == [n / 10 for n in range(9)]


@pytest.mark.parametrize(
    "name",
    [
        *("min_reward", "frac_zero_reward", "reward_variance", "reward_errors", "reward_baseline"),
        *("reward_clip_frac", "step_reward", "length_reward", "final_eval_accuracy_reward"),
        "rewards/len/mean",
    ],
)
def test_a_number_of_rewards_is_no_part_of_one(tmp_path, name):
    lines = [{"step": n, "reward": n % 7 / 10, name: 0.0} for n in range(40)]
    found = read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")
    assert not causes(found.history)


def test_lines_that_say_that_they_are_of_an_evaluation_are_left_out(tmp_path):
    line = "step {n}: reward={r} kl=0.1\n[eval] step {n}: reward=0.9\nvalidation reward=0.9\n"
    text = "".join(line.format(n=n, r=n / 10) for n in range(9))
    assert rewards(read(tmp_path, text)) == [n / 10 for n in range(9)]


def test_a_log_whose_every_line_begins_so_is_read(tmp_path):
    text = "".join(f"test run, step {n}: reward=0.{n} kl=0.1\n" for n in range(9))
    assert rewards(read(tmp_path, text)) == [n / 10 for n in range(9)]


def test_what_is_called_a_reward_beside_one_is_a_part_of_it(tmp_path):
    parts = {"format_reward": 0.0, "reward_accuracy": 1.0, "style_reward_func": 2.0}
    others = {"reward_std": 0.1, "eval_reward": 0.2, "reward": 0.5}
    (row,) = read(tmp_path, json.dumps({"step": 1, **parts, **others}), "run.jsonl").history
    assert {name for name in row if name.startswith("rewards/")} == {
        f"rewards/{name}" for name in parts
    }
    (alone,) = read(tmp_path, json.dumps({"kl": 1.0, "my_reward": 0.1}), "run.jsonl").history
    assert alone == {"kl": 1.0, "my_reward": 0.1}


def test_parts_without_their_prefix_are_judged_as_those_with_it(tmp_path):
    lines = [{"step": n, "reward": n % 7 / 10, "format_reward": 0.0} for n in range(40)]
    found = read(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")
    assert "silent-part" in causes(found.history)


# ---------------------------------------------------------------- what curves show


@pytest.mark.parametrize(("full", "named"), [(20, True), (18, True), (17, False)])
def test_lengths_at_a_limit_in_nearly_all_of_the_last_half(full, named):
    history = rows(length=lambda n: 256.0 if n <= 20 + full else 225.0, reward=0.5)
    assert ("all-truncated" in causes(history)) == named
    if named:
        (finding,) = diagnose(Evidence("x", (), history)).findings
        assert f"in {full} of the last 20 steps the mean length is 256:" in finding.evidence


def ends(score=0.0, **more):
    """Advantages that are the rewards less a baseline."""

    def of(least, most):
        return lambda n: (most if n % 2 else least) + n / 100

    high, low = of(0.4, 0.6), of(-0.2, 0.1)
    return rows(
        advantage_max=lambda n: (high(n) - score) / 1.000001,
        advantage_min=lambda n: (low(n) - score) / 1.000001,
        **({"reward_max": high, "reward_min": low} | more),
    )


def test_advantages_that_are_the_rewards_have_no_baseline():
    (finding,) = diagnose(Evidence("x", (), ends())).findings
    assert (finding.id, finding.kind) == ("missing-baseline", LIKELY)
    assert "in all 40 steps with rewards that differ" in finding.evidence
    assert not causes(ends(score=0.1))
    assert curves.baseline(curves.Curves(ends()[:5])) is not None
    assert "no 3 steps" in curves.baseline(curves.Curves(ends()[:2]))
    alike = ends(reward_min=lambda n: 0.5, reward_max=lambda n: 0.5)
    assert "no 3 steps" in curves.baseline(curves.Curves(alike))


def test_ends_that_a_group_of_two_has_anyway_are_no_sign():
    """Rewards of 1 and −1, of which the mean is 0."""
    both = {"advantage_max": 1.0, "reward_max": 1.0, "advantage_min": -1.0, "reward_min": -1.0}
    assert not causes(rows(**both))


RISING = {"reward": lambda n: n / 40 + n % 3 / 100, "reward_std": 0.5}


def test_a_gradient_norm_of_0_or_a_rate_of_0_is_no_sign_where_the_reward_rises():
    flat = RISING | {"reward": lambda n: n % 3 / 100}
    for numbers, named in (({"grad_norm": 0.0}, "detached-loss"), ({"learning_rate": 0.0}, "idle")):
        assert not causes(rows(**RISING, **numbers))
        assert any(one.startswith(named) for one in causes(rows(**flat, **numbers)))


def test_an_entropy_below_0_is_none_of_tokens():
    history = rows(entropy=lambda n: -0.5 - n / 100, reward=0.5)
    assert "below 0" in diagnose(Evidence("x", (), history)).answers["trend of the entropy"]


def test_a_collapse_is_told_of_the_column_that_fell():
    fallen = {"accuracy": lambda n: 0.8 if n < 50 else 0.1, "reward": 0.5}
    (finding,) = diagnose(Evidence("x", (), rows(100, **fallen))).findings
    assert finding.evidence.startswith("the mean accuracy of 20 points fell from 0.8")
    (finding,) = diagnose(Evidence("x", (), rows(100, reward=fallen["accuracy"]))).findings
    assert finding.evidence.startswith("the mean reward of 20 points fell from 0.8")


def test_one_end_that_is_the_same_is_no_sign():
    assert not causes(ends(reward_min=lambda n: -1.0))
    assert not causes(ends(reward_max=lambda n: 2.0))


def test_a_kl_that_runs_away_in_the_first_steps():
    far = rows(93, kl=lambda n: 0.002 * 4**n if n < 6 else 2.5 + n % 3 / 10, reward=0.5)
    assert (
        "The KL is 2.5 in the last step, and was 0.128 in the first 5: the policy is leaving its "
        "reference." in [*curves.notes(far)]
    )
    assert not any("The KL" in note for note in curves.notes(rows(93, kl=0.9, reward=0.5)))


def test_a_kl_of_any_name_that_moves_shows_that_weights_do():
    assert diagnose(Evidence("x", (), rows(kl=0.1, grad_norm=1.0))).answers["weights"] is None


def test_a_coarse_precision_is_said_to_be_the_reason():
    recipe = {"model": {"precision": "bfloat16"}}
    found = Evidence("x", (), rows(kl_ref=0.1), recipe)
    assert "coarse precision the KL of the first step" in diagnose(found).answers["reference"]


def test_long_logs_take_no_longer_for_each_row():
    def asked(text):
        history = [{"step": n, "reward": n * 37 % 101 / 101} for n in range(len(text))]
        return [curves.reward(curves.Curves(history)), *curves.notes(history)]

    assert_linear(asked, lambda size: "x" * (size // 8), largest=8_000)


def falling(best, last, first=-1200.0):
    """From the first reward to the best, and then to the last."""

    def reward(n):
        rise = first + (best - first) * min(1, n / 100)
        fall = best + (last - best) * min(1, (n - 200) / 50)
        return (rise if n < 200 else fall) + n * 37 % 101 / 10

    return rows(300, reward=reward)


@pytest.mark.parametrize(
    ("history", "named"),
    [
        *((falling(-150.0, -200.0), False), (falling(-150.0, -900.0), True)),
        *((falling(-100.0, -200.0, first=-100.0), True), (falling(-50.0, -90.0), False)),
    ],
)
def test_a_fall_of_rewards_below_0_is_measured_by_what_had_been_learned(history, named):
    assert causes(history) == ["reward-collapse"] * named


@pytest.mark.parametrize(("slope", "named"), [(0.3, False), (0.0, True)])
def test_an_entropy_that_goes_while_a_reward_far_from_0_rises_is_no_collapse(slope, named):
    history = rows(
        100,
        reward=lambda n: -1000 + slope * n + n % 7 / 10,
        entropy=lambda n: math.exp(-n / 10),
    )
    assert causes(history) == ["entropy-collapse"] * named
