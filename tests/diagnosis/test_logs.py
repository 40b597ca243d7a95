"""Logs of other trainers: what is read of them, what is said of them, and what is not looked at."""

import json
import math
import random
from pathlib import Path
from statistics import mean

import pytest

from nbcourse.diagnosis import curves, names
from nbcourse.diagnosis.diagnose import Evidence, diagnose
from nbcourse.diagnosis.report import Report, state
from nbcourse.experiments import evidence, log_lines, records, small_lab
from nbcourse.mistakes.findings import LIKELY, Finding
from tests.command import refused

VERL = "(TaskRunner pid=7) step:{n} - critic/score/mean:{r} - actor/grad_norm:{g} - perf/mfu:0.41"
TRL = "{{'loss': {l}, 'grad_norm': {g}, 'learning_rate': 1e-06, 'reward': {r}, 'epoch': 0.1}}"


def read(folder, content, name="run.log"):
    path = folder / name
    path.write_bytes(content.encode())
    return evidence.read(path)


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("run.log", VERL.format(n=3, r=0.25, g=1.5)),
        ("run.log", "\x1b[36m(T pid=7)\x1b[0m step:3 - critic/score/mean:np.float64(0.25)"),
        ("run.txt", "Epoch 1: 40%| 3/9 [00:1<?]\r{'reward': '0.25', 'step': 3, 'loss': '4e-08'}"),
        ("run.out", "INFO Global step 3: {'policy_loss': -0.1, 'reward': 0.25, 'actor_lr': 1e-6}"),
        ("run.jsonl", '{"reward": 0.25, "global_step/max_steps": "3/9", "percentage": "33.3%"}'),
        ("run.jsonl", '{"step": 3, "data": {"critic/score/mean": 0.25, "perf/mfu": 0.4}}'),
        ("run.csv", "Step,mine - train/reward,mine - train/reward__MIN\n3,0.25,0.1"),
        ("run.csv", "step,reward,kl\n3,0.25,"),
        ("run.json", '{"log_history": [{"step": 3, "reward": 0.25}, {"step": 3, "eval_x": 1}]}'),
        ("run.md", "| Step | Training Loss | reward |\n|---|:-:|--:|\n| 3 | No log | 0.250000 |"),
        ("run.txt", "Step | Training Loss | reward\n-- | -- | --\n3 | -0.000000 | 0.250000"),
        ("run.txt", "Step\tTraining Loss\treward\n3\t0.000000\t0.250000"),
        ("run.txt", "Step\tTraining Loss\treward\tkl\n3\t\t0.250000\t"),
        ("run.log", "Epoch 1: 40%| 3/9 | x\n│ step │ reward │\n├──┼──┤\n│ 3 │ 0.25 │\n1 | 2 | 3"),
    ],
)
def test_a_point_is_read_of_each_kind(tmp_path, name, line, end):
    (row,) = read(tmp_path, line.replace("\n", end) + end, name).history
    assert (row["step"], row["reward"]) == (3, 0.25)
    assert "kl" not in row  # an empty cell is no number


@pytest.mark.parametrize("signs", [3_000, 100_000], ids=["to walk through", "to parse"])
@pytest.mark.parametrize("form", ["[{{'a': {}1}}]", "{{'a': {}1}}"], ids=["list", "line"])
def test_what_is_nested_too_deep_is_no_row(form, signs):
    assert log_lines.rows(form.format("-" * signs)) == []


def test_steps_that_begin_again_with_each_epoch_are_counted_through(tmp_path):
    line = "epoch {e} step {n} | loss 0.1 | reward 0.5\n"
    text = "".join(line.format(e=e, n=n) for e in (1, 2, 3) for n in range(1, 5))
    assert [row["step"] for row in read(tmp_path, text).history] == [*range(1, 13)]
    again = "".join(line.format(e=1, n=n) for n in (1, 2, 3, 2, 3, 4))  # after a restart
    assert [row["step"] for row in read(tmp_path, again).history] == [1, 2, 3, 4]


def test_rows_of_an_evaluation_are_no_training(tmp_path):
    rows = [{"step": n, "reward": 0.1, "phase": "train"} for n in range(9)]
    rows[4:4] = [{"step": 3, "reward": 0.9, "phase": "eval"}]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)), "run.jsonl").history
    assert [row["reward"] for row in found] == [0.1] * 9


def test_the_numbers_of_trls_ppo_trainer_are_read_and_asked_about(tmp_path):
    theirs = {
        **{"objective/scores": 1.8, "objective/kl": 7.0, "policy/entropy_avg": 1.07},
        **{"policy/approxkl_avg": 0.002, "policy/clipfrac_avg": 0.005, "lr": 9e-6},
        **{"loss/policy_avg": 0.001, "loss/value_avg": 0.3, "val/ratio": 0.97},
    }
    ours = {
        **{"reward": 1.8, "kl": 7.0, "entropy": 1.07, "kl_old": 0.002, "clip_high": 0.005},
        **{"learning_rate": 9e-6, "policy_loss": 0.001, "value_loss": 0.3, "val/ratio": 0.97},
    }
    found = read(tmp_path, f"{theirs}\n" * 8)
    assert list(found.history) == [ours] * 8
    assert not diagnose(found).findings
    broken = read(tmp_path, f"{theirs | {'loss/value_avg': 'nan'}}\n" * 8)
    assert "critic's loss" in diagnose(broken).findings[0].evidence


@pytest.mark.parametrize(
    "text",
    [
        "[12:30:05] INFO - step={n} loss=-1.0E-05, mean_reward=0.25 seconds=3.1s\n",
        "SUCCESS Step {n} | Time: 5.2s | Loss: -1.0e-05 | Avg Reward: 25% | Grad. Norm: 1,024.0\n",
        "Results of step {n}:\n  • Loss: -0.00001\n  • Mean Reward: 0.25\n  • Pairs: 12:30\n",
        "Step {n}/90: loss -0.00001 reward 0.25 +- 0.1; reward 0.3\n",
        "Step {n} | loss -1e-05 | reward_avg 0.25\n",
        "'step': {n}, 'loss': -1e-05, 'reward': 0.25}}\n",  # without its first letter
    ],
)
def test_what_scripts_print_is_read_by_its_names(tmp_path, text):
    lines = "lr: 0.5, seed: 3\n" + "".join(map(text.format_map, [{"n": 3}, {"n": 4}]))
    found = read(tmp_path, lines).history
    assert [(row["reward"], row["policy_loss"]) for row in found] == [(0.25, -1e-5)] * 2
    told = {"step", "reward", "policy_loss", "Results of step", "of step"}
    assert all(row.keys() <= told for row in found)


def test_a_name_is_known_whatever_the_case_of_its_letters():
    theirs = {"train/Grad. Norm": 1.0, "Mean Reward": 2.0, "KL": 3.0, "Mine": 4.0}
    ours = {"grad_norm": 1.0, "reward": 2.0, "kl": 3.0, "Mine": 4.0}
    assert names.translated(theirs) == ours


def test_a_part_of_the_reward_has_one_name(tmp_path):
    table = "Step | reward | rewards / right / mean | rewards / right / std\n3 | 0.2 | 0.1 | 0.3"
    for content in (table, "{'reward': 0.2, 'rewards/right': 0.1, 'rewards/right/std': 0.3}"):
        found = read(tmp_path, content)
        assert found.history[0]["rewards/right"] == 0.1
        assert (len(found.recognised), found.unknown) == (2, ["rewards/right/std"])


def test_a_zero_of_six_decimals_in_a_table_is_not_taken_for_one(tmp_path):
    line = "{n} | 0.100000 | 0.300000 | 0.000000 |"
    lines = [line.format(n=n) for n in range(8)]
    found = read(tmp_path, "\n".join(["Step | loss | reward | learning_rate |", *lines]))
    assert (found.rounded, len(found.history)) == (5e-7, 8)
    assert not diagnose(found).findings  # a rate of 1e-7 is written so


def test_lines_between_others_are_read_and_what_is_not_recognised_is_named(tmp_path):
    lines = [
        "Loading: 50%|###",
        VERL.format(n=1, r=0.5, g=1.0),
        "{broken",
        "{}",
        "{'a': f(x for x)}",
    ]
    found = read(tmp_path, "\n".join([*lines, VERL.format(n=2, r=0.5, g=1.0)]))
    assert [row["step"] for row in found.history] == [1, 2]
    said = str(diagnose(found))
    assert "Recognised 2 of 3 columns of the log; not, for example, perf/mfu." in said
    assert "in which no trend of the reward could be judged" in said


def test_steps_that_begin_again_are_those_of_a_restart(tmp_path):
    steps = [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.5), (3, 0.6)]
    found = read(tmp_path, "\n".join(VERL.format(n=n, r=r, g=1.0) for n, r in steps))
    assert [(row["step"], row["reward"]) for row in found.history] == [(1, 0.1), (2, 0.5), (3, 0.6)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("-0.5", -0.5), ("12%", 0.12), ("3/100", 3.0), ("nan", math.nan), ("-inf", -math.inf)),
        *(("0.5 ± 0.1", 0.5), ("45% ± 2%", 0.45), ("45 +/- 2%", 0.45), ("1e-5 +- 1", 1e-5)),
    ],
)
def test_numbers_that_are_written_as_text(text, number):
    assert log_lines.number_of(text) == pytest.approx(number, nan_ok=True)
    assert log_lines.number_of("5m 18s") is log_lines.number_of("± 0.1") is None


def test_a_folder_with_the_curves_of_something_else_is_an_error(tmp_path):
    (tmp_path / records.METRICS).write_text('{"step": 1, "weather": 2}')
    assert "was recognised: found columns weather" in refused("diagnose", tmp_path)


# ---------------------------------------------------------------- judging


def rows(count=40, **numbers):
    """Constant numbers, or for a function of the step its values."""
    return [
        {"step": n, **{k: v(n) if callable(v) else v for k, v in numbers.items()}}
        for n in range(1, count + 1)
    ]


def causes(history, **more):
    return [one.id for one in diagnose(Evidence("x", (), history, **more)).findings]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_the_first_number_that_is_not_finite_is_named_with_its_step(tmp_path, value):
    lines = [TRL.format(l=0.1 if n < 3 else value, g=1.0, r=0.5) for n in range(1, 6)]
    (finding,) = diagnose(read(tmp_path, "\n".join(lines))).findings
    assert (finding.id, finding.kind) == ("not-finite", LIKELY)
    assert finding.evidence == (f"the loss is {value} at step 3, and in 2 of the 2 points after it")


def test_a_gradient_that_overflows_once_is_what_a_loss_scaler_is_for():
    assert not causes(rows(grad_norm=lambda n: math.inf if n == 2 else 1.0, reward=0.5))
    assert causes(rows(grad_norm=lambda n: math.inf if n > 20 else 1.0)) == ["not-finite"]


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"grad_norm": 0.0, "no_spread": 0.5}, True),
        ({"grad_norm": 0.0, "reward_std": 0.2}, True),
        ({"grad_norm": 0.0, "advantage_max": 0.2}, True),
        ({"grad_norm": lambda n: 1.0 if n < 9 else 0.0, "no_spread": 0.5}, True),
        ({"grad_norm": lambda n: 0.0 if n < 9 else 1.0, "no_spread": 0.5}, False),
        ({"grad_norm": lambda n: 0.0 if n > 37 else 1.0, "no_spread": 0.5}, False),
        ({"grad_norm": 0.0, "no_spread": 1.0}, False),  # nothing to learn from
        ({"grad_norm": 0.0, "no_spread": 0.5, "truncated": 1.0}, False),  # masked whole
        ({"grad_norm": 0.0}, False),
    ],
)
def test_a_gradient_of_0_is_a_fault_where_groups_have_a_spread(numbers, named):
    assert ("detached-loss" in causes(rows(**numbers))) == named
    history = rows(**{"policy_loss": 0.0, "updates": 1, "clip_low": 0.0, **numbers})
    assert not list(curves.notes(history))  # no excuse while it is 0


def test_a_zero_of_three_decimals_is_not_taken_for_one(tmp_path):
    line = (
        "step:{n} - actor/grad_norm:0.000 - critic/advantages/max:1.500 - critic/score/mean:0.300"
    )
    report = diagnose(read(tmp_path, "\n".join(line.format(n=n) for n in range(1, 5))))
    assert report.healthy
    assert "[not looked at] gradient: numbers below 0.0005 are written as 0" in str(report)


@pytest.mark.parametrize(
    ("reward", "named"),
    [
        (lambda n: 0.9 if n < 20 else 0.6, ["reward-collapse"]),
        (lambda n: min(n / 20, 2 - n / 20), ["reward-collapse"]),  # up, and down to 0
        (lambda n: -1.0 if n < 20 else -9.0, ["reward-collapse"]),
        (lambda n: 0.9 if n < 20 else 0.8, []),  # less than a fifth
        (lambda n: 0.5 + 0.4 * (-1) ** n * (n < 20), []),  # calm after noise
        (lambda n: 0.6 if n < 20 else 0.9, []),
    ],
)
def test_a_reward_that_falls_and_stays_down(reward, named):
    assert causes(rows(reward=reward)) == named
    assert not causes(rows(29, reward=reward))  # too few points


@pytest.mark.parametrize(
    ("entropy", "reward", "named"),
    [
        (lambda n: 0.5 if n < 20 else 0.01, 0.3, True),
        (lambda n: 0.5 if n < 20 else 0.01, lambda n: n / 50, False),  # it has learned something
        (lambda n: 0.5 if n < 20 else 0.1, 0.3, False),
        (0.004, 0.9, False),  # it began like that
    ],
)
def test_an_entropy_that_goes_for_nothing(entropy, reward, named):
    report = diagnose(Evidence("x", (), rows(entropy=entropy, reward=reward)))
    assert [one.id for one in report.findings] == ["entropy-collapse"] * named
    if named:
        assert "below a tenth from step 20 on" in report.findings[0].evidence


FLAT = [
    ({"no_spread": 1.0}, {"no_spread": 0.97}),
    ({"reward_std": 0.0}, {"reward_std": lambda n: 0.1 * (n % 19 == 0)}),
    (
        {"advantage_max": 0.0, "advantage_min": 0.0},
        {"advantage_max": 0.0, "advantage_min": lambda n: -0.1 * (n % 19 == 0)},
    ),
]


@pytest.mark.parametrize(("flat", "nearly"), FLAT)
@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"reward": 0.0}, True),
        ({"reward": -1.0}, True),
        ({"reward": lambda n: 3 + n % 3}, True),  # of groups that differ from each other
        ({"reward": 0.9, "reward_max": 1.0}, True),
        ({"reward": lambda n: -9 + n % 3}, True),
        ({"reward": 1.0, "reward_max": 1.0}, False),  # solved from the first step
        ({"reward": lambda n: min(n / 9, 1)}, False),  # and by training
        ({"reward": lambda n: min(n / 9 - 1, 0)}, False),  # of penalties
        ({"reward": lambda n: -1.0 if n < 9 else -0.01 * (n % 2)}, False),
        ({"reward": lambda n: 0.97 + 0.01 * (n % 4)}, False),  # solved from the start, nearly
        ({"accuracy": lambda n: min(n / 9, 0.98), "reward": lambda n: n % 2}, False),
    ],
)
def test_groups_without_a_spread_teach_nothing_unless_all_is_solved(flat, nearly, numbers, named):
    assert causes(rows(**flat, **numbers)) == ["no-signal"] * named
    assert not causes(rows(**nearly, reward=lambda n: 5 - 2 * (n % 5 == 0)))  # nearly solved
    assert not causes(rows(**nearly, reward=lambda n: 0.97 + 0.01 * (n == 9)))
    assert causes(rows(**nearly, reward=lambda n: 3 + 2 * (n % 5 == 0))) == ["no-signal"]


def test_one_reward_for_all_is_the_best_or_a_constant():
    report = diagnose(Evidence("x", (), rows(no_spread=1.0, reward=0.7)))
    assert "the best there is, or a constant reward" in report.answers["signal"]


@pytest.mark.parametrize(
    ("part", "reward", "named"),
    [
        (lambda n: max(0.3 - n / 40, 0), lambda n: n / 40, True),
        (lambda n: 0.3 - n / 400, lambda n: n / 40, False),  # most of it is there
        (lambda n: max(0.3 - n / 40, 0), 0.5, False),  # the whole did not rise
        (lambda n: 0.3 * (n in (2, 4)), lambda n: n / 40, False),  # two lucky steps
        (lambda n: min(n / 40 - 0.8, 0), lambda n: n / 40, False),  # a penalty that went
        (lambda n: max(0.1 - n / 40, -0.9), lambda n: n / 40, False),  # a penalty that grew
    ],
)
def test_a_part_of_the_reward_that_goes_while_the_whole_rises(part, reward, named):
    numbers = {"rewards/steady": 0.2, "rewards/right": part, "rewards/right/std": part}
    assert causes(rows(reward=reward, **numbers)) == ["traded-reward"] * named
    assert not causes(rows(29, reward=reward, **numbers))


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"rewards/form": 0.0}, True),
        ({"rewards/form": -0.5}, True),
        ({"rewards/form": 0.5}, False),  # always earned
        ({"rewards/form": lambda n: 0.1 * (n == 7)}, False),
        ({"rewards/form": 0.0, "rewards/form/std": 0.1}, False),
        ({"rewards/length_penalty": 0.0}, False),  # which nobody had to pay
        ({"rewards/soft_overlong_punishment_reward": 0.0}, False),
        ({"rewards/turn_cost": -0.1}, False),  # by design
    ],
)
def test_a_part_of_the_reward_that_nobody_earns(numbers, named):
    moving = {"reward": lambda n: n / 40, "rewards/right": lambda n: n / 40}
    assert causes(rows(**moving, **numbers)) == ["silent-part"] * named
    assert not causes(rows(29, **moving, **numbers))
    assert not causes(rows(**moving | {"reward": 1.0}, **numbers))  # no part has moved


def test_parts_that_nobody_earns_are_named_with_what_they_were():
    numbers = {"reward": lambda n: n, "rewards/form": 0.0, "rewards/digits": -2.0}
    (found,) = diagnose(Evidence("x", (), rows(**numbers))).findings
    assert found.evidence.startswith("form was 0, digits was -2 in all 40 points")


@pytest.mark.parametrize(
    ("kl", "named"),
    [
        (0.15, True),
        (lambda n: 0.6 if n < 20 else 0.7, True),
        (lambda n: 0.04 * n, False),  # it grows from where both are one
        (lambda n: 0.45 if n == 1 else 1.6, True),  # and grows besides
        (lambda n: 0.3 * (-1) ** (n + 1), False),  # k1, whose single values say little
        (0.005, False),  # two precisions
        (lambda n: float(n > 1), False),
    ],
)
def test_a_policy_that_does_not_begin_at_its_reference(kl, named):
    assert causes(rows(kl=kl, reward=0.5)) == ["distant-reference"] * named
    assert not causes(rows(4, kl=kl, reward=0.5))
    assert not causes(rows(kl=kl, reward=0.5)[1:])  # the first step is not there
    for several in ({"updates": 16}, {"clip_low": 0.0, "clip_high": 0.02}):
        assert not causes(rows(kl=kl, reward=0.5, **several))


def test_all_that_is_possible_is_said_but_what_another_cause_explains():
    numbers = {"kl": 0.6, "truncated": 0.65, "reward": 0.0, "no_spread": 1.0}
    assert causes(rows(**numbers)) == ["no-signal", "often-truncated", "distant-reference"]
    assert causes(rows(**numbers | {"truncated": 1.0})) == ["all-truncated", "distant-reference"]
    assert causes(rows(**numbers, mean_gap=0.3)) == [
        *("no-signal", "sampler-mismatch", "often-truncated")
    ]


@pytest.mark.parametrize(
    ("cut", "named"),
    [(0.65, ["often-truncated"]), (0.95, ["all-truncated"]), (0.45, [])],
)
def test_a_limit_that_cuts_off_most_responses(cut, named):
    assert causes(rows(truncated=cut, reward=0.5)) == named


def test_the_reward_is_what_the_log_has_more_of():
    history = rows(reward=lambda n: 0.9 if n < 20 else 0.5)
    history[0]["accuracy"] = history[39]["accuracy"] = 0.2  # asked before and after
    assert causes(history) == ["reward-collapse"]


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (lambda n: n + n % 2, "was 5 in the first fifth and is 37 in the last: +32 with a"),
        (lambda n: n % 2, "+0 with a standard error of 0.35, no more than chance may do."),
        (0.5, "+0 with a standard error of 0, no more than chance may do."),
    ],
)
def test_how_far_the_reward_went_is_said_with_its_error(reward, said):
    (note,) = curves.notes(rows(reward=reward, grad_norm=0.0))
    assert said in note
    assert not [*curves.notes(rows(29, reward=reward))]
    (note,) = curves.notes(rows(accuracy=reward))
    assert note.startswith("The accuracy was")
    (note,) = curves.notes(rows(accuracy=0.5, reward=reward))
    assert note.startswith("The reward was")


def test_a_running_mean_is_not_judged_by_its_scatter():
    """Of coins: the mean of the last fifty wanders, and its neighbours are nearly the same."""
    draws = random.Random(1)
    coins = [draws.random() < 0.5 for _ in range(400)]
    smooth = rows(350, reward=lambda n: mean(coins[n : n + 50]))
    assert "of a running mean" in diagnose(Evidence("x", (), smooth)).answers["trend of the reward"]
    assert not [*curves.notes(smooth)]
    assert len([*curves.notes(rows(350, reward=lambda n: float(coins[n])))]) == 1


@pytest.mark.parametrize(
    ("kl", "said"),
    [
        (lambda n: 30.0 if n == 9 else 0.2, True),
        (lambda n: 1.9 if n == 9 else 0.2, False),  # nine times
        (lambda n: 0.9 if n == 9 else 0.002, False),  # little all the same
        (7.0, False),
    ],
)
def test_a_step_whose_kl_a_few_tokens_decide(kl, said):
    told = [note for note in curves.notes(rows(kl=kl)) if "The KL was" in note]
    assert len(told) == said
    if said:
        assert told[0].startswith("The KL was 30 in one step, and 0.2 in most: a token that only")


def test_a_kl_of_0_does_not_say_whether_weights_move():
    report = diagnose(Evidence("x", (), rows(kl=0.0, grad_norm=1.0)))
    assert "in all 40 steps: β is 0, or the weights do not move" in report.answers["weights"]
    moving = diagnose(Evidence("x", (), rows(kl=lambda n: float(n == 9), grad_norm=1.0)))
    assert moving.answers["weights"] is None


def test_a_kl_that_runs_away_is_no_single_step():
    (note,) = curves.notes(rows(kl=lambda n: 0.05 if n < 32 else n - 30.0))
    assert note == (
        "The KL is 10 in the last step, and was 0.05 in most: the policy is leaving its reference."
    )


@pytest.mark.parametrize(
    ("kl", "named"),
    [
        (lambda n: -n / 2, True),
        (lambda n: -0.3 + 5 * (-1) ** n, False),  # so little with such a scatter
        (-1e-5, False),
    ],
)
def test_a_mean_kl_below_0_is_not_that_of_the_policy_that_sampled(kl, named):
    assert causes(rows(kl=kl, reward=0.5)) == ["sampler-mismatch"] * named
    assert not [*curves.notes(rows(kl=kl))]


@pytest.mark.parametrize("counted", [3, lambda n: 95 + n % 2])
def test_a_count_of_what_was_cut_off_is_no_share(counted):
    report = diagnose(Evidence("x", (), rows(truncated=counted, reward=0.5)))
    assert report.healthy
    assert "a count, or percents" in report.answers["truncation"]


def test_answers_of_many_lengths_were_not_cut_off_at_a_limit():
    history = rows(truncated=1.0, length_min=60, length_max=lambda n: 300 + n, reward=0.5)
    (found,) = diagnose(Evidence("x", (), history)).findings
    assert "no response has an end-of-sequence token" in found.evidence


def test_one_response_a_step_teaches_by_its_critic():
    history = rows(reward_std=0.0, reward=lambda n: n % 3, value_loss=0.1)
    assert "with a critic" in diagnose(Evidence("x", (), history)).answers["signal"]
    assert causes(rows(advantage_max=0.0, advantage_min=0.0, reward=0.0, value_loss=0.1)) == [
        "no-signal"
    ]


@pytest.mark.parametrize(("ends", "named"), [(0, True), (lambda n: n % 2, False)])
def test_no_response_ends_where_none_has_an_end_of_sequence_token(ends, named):
    assert causes(rows(ends=ends, reward=0.5)) == ["all-truncated"] * named
    assert not causes(rows(2, ends=ends, reward=0.5))


@pytest.mark.parametrize(
    ("length", "named"), [(32, True), (31, False), (lambda n: 32 + (n == 30) / 9, False)]
)
def test_no_response_ends_where_all_have_one_length(length, named):
    assert causes(rows(length=length, reward=0.5)) == ["all-truncated"] * named
    assert not causes(rows(length=length, reward=0.5, truncated=0.0))
    assert not causes(rows(length=length, reward=0.5, ends=4))
    assert not causes(rows(length=500, reward=500))  # of an episode that pays for each step


def test_answers_that_are_all_cut_off_and_earn_nothing():
    report = diagnose(Evidence("x", (), rows(truncated=1.0, reward=0.0)))
    assert [one.id for one in report.findings] == ["all-truncated"]
    assert report.findings[0].evidence.endswith("cut off, and the mean reward is 0.000")


@pytest.mark.parametrize(
    "column",
    [
        "train/train_rollout_logprob_abs_diff",  # slime, miles
        "sampling/sampling_logp_difference/mean",  # TRL
        "policy/rollout_train_logprobs_abs_diff_mean",  # SkyRL
        "debug/vllm_vs_local_logprob_diff_mean",  # open-instruct
        "training/rollout_probs_diff_mean",  # verl: of probabilities
        "train/gen_kl_error",  # NeMo-RL: k3
        "mismatch_kl/mean",  # prime-rl: k3
    ],
)
@pytest.mark.parametrize(
    ("values", "named"), [((0.3, 0.2, 0.4), True), ((0.01, 0.02, 0.02), False)]
)
def test_a_mean_of_the_mismatch_is_read_by_whatever_name(tmp_path, column, values, named):
    lines = [json.dumps({"step": n, column: value}) for n, value in enumerate(values)]
    report = diagnose(read(tmp_path, "\n".join(lines), "run.jsonl"))
    assert [one.id for one in report.findings] == ["sampler-mismatch"] * named
    assert report.answers["gap of the sampler"] is None or named


@pytest.mark.parametrize(
    ("rates", "more", "named"),
    [
        ([0.0, 0.0, 0.0, 0.0], {}, True),
        ([0.0, 1e-7, 2e-7, 3e-7], {}, False),  # a schedule that begins with 0
        ([0.0, 0.0], {}, False),
        ([0.0, 0.0, 0.0, 0.0], {"rounded": 5e-4}, False),
    ],
)
def test_a_learning_rate_of_0_moves_nothing(rates, more, named):
    history = [{"learning_rate": rate, "grad_norm": 1.0} for rate in rates]
    assert causes(history, **more) == ["idle-optimiser"] * named


def test_one_step_whose_mean_differs_is_no_mismatch_of_the_run():
    assert not causes(rows(mean_gap=lambda n: 0.5 if n == 30 else 0.01))
    assert causes(rows(mean_gap=lambda n: 0.01 if n < 20 else 0.3)) == ["sampler-mismatch"]


VARIED = {"length_min": lambda n: 90 + n % 7, "length_max": lambda n: 300 + n % 5}
ONE_LENGTH = {"length_min": lambda n: 200 + n % 7, "length_max": lambda n: 200 + n % 7}
AT_A_LIMIT = {"length_min": lambda n: 90 + n % 7, "length_max": 1024}


@pytest.mark.parametrize(
    ("numbers", "count", "named"),
    [
        ({**VARIED, "reward_std": 0.3, "truncated": 0.0}, 12, None),
        ({**ONE_LENGTH, "reward_std": 0.3, "truncated": 0.0}, 3, "trained-padding"),
        ({**ONE_LENGTH, "no_spread": 0.5}, 12, "trained-padding"),
        ({**ONE_LENGTH, "advantage_max": 0.5, "truncated": 0.2}, 12, "trained-padding"),
        ({**ONE_LENGTH, "reward_std": 0.3}, 2, None),  # too few
        ({**ONE_LENGTH}, 12, None),  # of one response, as far as is known
        ({**ONE_LENGTH, "reward_std": 0.3, "truncated": 1.0}, 12, "all-truncated"),
        ({"length_min": 5, "length_max": 5, "reward_std": 0.3}, 12, None),  # answers of one form
        (  # of steps in which all were cut off nothing is learned about where responses end
            {
                **ONE_LENGTH,
                "length_min": lambda n: 90 if n < 4 else 200 + n % 7,
                "truncated": lambda n: float(n < 4),
                "reward_std": 0.3,
            },
            12,
            "trained-padding",
        ),
        ({**AT_A_LIMIT, "reward_std": 0.3, "truncated": 0.0}, 12, "finished-by-last-column"),
        ({**AT_A_LIMIT, "reward_std": 0.3, "truncated": 0.1}, 12, None),
        ({**AT_A_LIMIT, "reward_std": 0.3, "truncated": 0.0}, 5, None),
        ({**AT_A_LIMIT, "length_max": 8, "reward_std": 0.3, "truncated": 0.0}, 12, None),
        ({**AT_A_LIMIT, "reward_std": 0.3}, 12, None),  # nobody says what was cut off
    ],
)
def test_the_shortest_and_the_longest_response_tell_where_responses_end(numbers, count, named):
    found = causes(rows(count, reward=0.5, **numbers))
    assert found == ([named] if named else [])


@pytest.mark.parametrize(
    "line",
    [
        "step:{n} - response_length/min:{low} - response_length/max:{high} "
        "- critic/advantages/max:1.5 - critic/score/mean:0.5",
        "{{'reward': 0.5, 'reward_std': 0.4, 'completions/min_length': {low}, "
        "'completions/max_length': {high}}}",
    ],
)
def test_lengths_are_read_of_what_trainers_print(tmp_path, line):
    for gap, found in ((0, ["trained-padding"]), (40, [])):
        lines = [line.format(n=n, low=100.0 + n, high=100.0 + n + gap) for n in range(1, 6)]
        report = diagnose(read(tmp_path, "\n".join(lines)))
        assert [one.id for one in report.findings] == found


@pytest.mark.parametrize("numbers", [{"no_spread": 1.0}, {"truncated": 1.0}])
def test_two_steps_are_too_few_for_a_verdict_on_the_last_half(numbers):
    history = rows(40, reward=0.0, **numbers)
    assert causes(history)
    report = diagnose(Evidence("x", (), history[:2]))
    assert report.healthy
    assert "the last half of the log has 1 of at least 3 steps" in str(report)


def test_a_critic_that_explains_less_than_nothing():
    assert causes(rows(explained_variance=-4.0, reward=0.5)) == ["blind-critic"]
    assert not causes(rows(explained_variance=lambda n: -4.0 if n < 38 else 0.1, reward=0.5))
    early = diagnose(Evidence("x", (), rows(3, explained_variance=-4.0, critic_grad_norm=554.1)))
    assert early.healthy
    assert "explained variance -4, its gradient norm was up to 554" in str(early)


# ---------------------------------------------------------------- found, fine, not looked at


def test_every_question_is_answered_in_one_of_three_ways():
    report = diagnose(Evidence("x", (), rows(grad_norm=0.0, no_spread=0.5, reward=0.5)))
    states = report.as_dict()["questions"]
    assert states["gradient"] == "found"
    assert states["numbers"] == states["signal"] == "fine"
    assert states["loss"] == states["truncation"] == "not looked at"
    looked = sum(one != "not looked at" for one in states.values())
    assert f"Looked at {looked} of {len(states)} questions." in str(report)
    assert report.missing(["complete"]) == ["complete"]


def test_complete_is_a_report_in_which_nothing_is_open():
    def of(**answers):
        return Report("x", [1], 1, [], answers=answers)

    found = Finding("no-signal", LIKELY, "")
    assert of(a=None, b=found).missing(["complete"]) == []
    assert of(a=None, b="why").missing(["complete"]) == of().missing(["complete"]) == ["complete"]
    assert [state(answer) for answer in (found, None, "why")] == ["found", "fine", "not looked at"]


def test_a_loss_that_is_not_the_packages_is_not_looked_at():
    """Whatever else is sound, such a report is not complete."""
    (left,) = evidence.read(records.RUNS / "smollm2-word-problems-batch").witnesses[:1]
    assert diagnose(Evidence("x", [left])).as_dict()["questions"]["loss"] == "fine"
    left.facts["algorithm"] = "mine"
    left.facts.pop("parts", None)
    states = diagnose(Evidence("x", [left])).as_dict()["questions"]
    assert states["loss"] == states["advantages"] == "not looked at"
    assert states["padding"] == "fine"


# ---------------------------------------------------------------- the recorded runs

RECORDED = sorted(
    path.parent for path in records.RUNS.rglob(records.METRICS) if path.stat().st_size
)
COLLAPSED = "word-problems-small-h100-fast-grpo"
NEW = ("numbers", "gradient", "trend of the reward", "trend of the entropy", "critic")
LOGS = records.RUNS / "silent-failures"
SOUND = [
    LOGS / small_lab.LOGS / f"{run}.zip"
    for run, answer in json.loads((LOGS / small_lab.ANSWERS).read_text("utf-8")).items()
    if answer["cause"] is None
]


@pytest.mark.parametrize("path", [*RECORDED, *SOUND], ids=lambda path: path.name)
def test_no_sound_recorded_run_is_accused(path: Path):
    run = curves.Curves(evidence.read(path).history)
    answers = [curves.QUESTIONS[name](run) for name in NEW]
    found = [answer.id for answer in answers if isinstance(answer, Finding)]
    assert found == ["reward-collapse"] * path.name.startswith(COLLAPSED)
