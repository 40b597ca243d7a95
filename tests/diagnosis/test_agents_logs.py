"""Logs of libraries for agents in environments: what their names mean, and what is no fault."""

import json
import math

import pytest

from nbcourse.diagnosis.diagnose import diagnose
from nbcourse.diagnosis.names import in_company, rivals, translated
from tests.diagnosis.test_logs import read

BLOCK = """
-----------------------------------
| rollout/           |            |
|    ep_rew_mean     | {reward:<10} |
| time/              |            |
|    total_timesteps | {steps:<10} |
| train/             |            |
|    approx_kl       | 0.01       |
|    loss            | 549        |
|    policy_gradient_loss | -0.002 |
-----------------------------------
"""


def ours(name):
    return next(iter(translated({name: 0.0})))


def found(folder, content, name="run.csv"):
    return [one.id for one in diagnose(read(folder, content, name)).findings]


def table(header, row, count=100):
    """A CSV, each row of which is made from its number."""
    return "\n".join([header, *(row(n) for n in range(count))])


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        *("rollout/ep_rew_mean", "charts/episodic_return", "env_runners/episode_return_mean"),
        *("episode_reward_mean", "AverageEpRet", "eprewmean", "mean 100 episode reward", "rew"),
        *("train/avg_return", "rewards_avg", "reward_mean_raw", "Average Score", "env/reward_mean"),
        *("ppo/mean_scores", "Episode Return", "total_score"),
    ],
)
def test_a_reward_is_known_by_the_words_of_its_name(name):
    assert ours(name) == "reward"


@pytest.mark.parametrize(
    "name",
    [
        *("MaxEpRet", "StdEpRet", "episode_reward_max", "best_reward", "eval/mean_reward", "R"),
        *("test_reward", "step_reward", "reward_mean_norm", "f1 score", "critic/returns/mean"),
        *("reward signal mean", "return_rate", "rewards/score/mean", "rollout/ep_len_mean"),
    ],
)
def test_other_words_make_another_number_of_it(name):
    assert ours(name) != "reward"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *(("losses/approx_kl", "kl_old"), ("charts/learning_rate", "learning_rate")),
        ("info/learner/default_policy/learner_stats/vf_explained_var", "explained_variance"),
        ("learners/default_policy/entropy", "entropy"),
        *(("LossPi", "policy_loss"), ("ClipFrac", "clip_high"), ("ppo/loss/value", "value_loss")),
        *(("Mismatch KL", "kl_sampler_in_any_precision"), ("Generation Length", "length")),
    ],
)
def test_a_number_is_known_in_the_section_of_another_library(name, known):
    assert ours(name) == known


@pytest.mark.parametrize("better", ["policy_gradient_loss", "policy loss", "LossPi"])
def test_a_loss_of_the_policy_is_preferred_to_the_sum_of_all(better):
    assert rivals({"loss": 9, better: 9}) == {"loss"}


# ---------------------------------------------------------------- what the columns tell each other


def test_where_episodes_are_counted_r_is_their_return(tmp_path):
    text = table("ep,R", lambda n: f"{n},{n}.5")
    assert [row["reward"] for row in read(tmp_path, text, "a.csv").history][:2] == [0.5, 1.5]
    assert in_company(["epoch", "P", "R", "F1"]) == {}  # precision and recall
    assert in_company(["ep", "R", "reward"]) == {}


def test_the_file_of_gyms_monitor_is_read_below_its_comment(tmp_path):
    text = '#{"t_start": 1.5, "env_id": "CartPole-v1"}\n' + table("r,l,t", lambda n: f"{n},{n},0.1")
    assert [row["reward"] for row in read(tmp_path, text, "a.csv").history][:2] == [0.0, 1.0]
    hashed = table("# step,reward", lambda n: f"{n},{n}.5")
    assert read(tmp_path, hashed, "b.csv").history[1] == {"step": 1, "reward": 1.5}


def test_an_episode_that_lasts_to_its_limit_is_no_response_that_was_cut_off(tmp_path):
    def row(n):
        return f"{n},{-1200 + 10 * n + n % 7},200,1"

    assert not found(tmp_path, table("episode,reward,length,truncated", row))
    assert "all-truncated" in found(tmp_path, table("step,reward,length,other", row))


def test_a_kl_beside_the_reward_of_episodes_is_to_the_old_policy(tmp_path):
    text = table("step,episode_reward,KL", lambda n: f"{n},{n % 7},{0.5 if n == 0 else 0.01}")
    assert not found(tmp_path, text)
    assert "distant-reference" in found(tmp_path, text.replace("episode_reward", "reward"))


def test_a_gap_is_one_of_the_sampler_in_our_own_logs_alone(tmp_path):
    text = table("step,reward,gap,kl_ref", lambda n: f"{n},{n % 7},3.5,0.01")
    assert "sampler-mismatch" in found(tmp_path, text)
    assert not found(tmp_path, text.replace("kl_ref", "other"))


def test_a_reward_of_episodes_is_nan_where_none_has_ended(tmp_path):
    text = table("step,episode_reward_mean", lambda n: f"{n},{'nan' if n < 3 or n == 30 else n}")
    assert not found(tmp_path, text)
    assert "not-finite" in found(tmp_path, text.replace("episode_reward_mean", "reward"))


# ---------------------------------------------------------------- tables with one name a line


def blocks(count, first=0):
    return "".join(BLOCK.format(reward=n % 7, steps=2048 * n) for n in range(first, first + count))


def test_tables_with_one_name_a_line_are_a_row_each(tmp_path):
    history = read(tmp_path, blocks(5)).history
    assert [row["reward"] for row in history] == [0, 1, 2, 3, 4]
    assert {row["kl_old"] for row in history} == {0.01}
    assert {row["policy_loss"] for row in history} == {-0.002}


def test_an_evaluation_between_such_tables_is_none_of_them(tmp_path):
    between = (
        "Eval num_timesteps=10000, episode_reward=115.83 +/- 0.00\n"
        "| eval/         |     |\n|    mean_reward | 116 |\n"
    )
    history = read(tmp_path, (blocks(3) + between) * 3).history
    assert {row["reward"] for row in history if "reward" in row} == {0, 1, 2}


def test_a_section_ends_with_its_table(tmp_path):
    plain = "-----\n| mean reward | {n} |\n| kl | 0.5 |\n-----\n"
    text = "| eval/ |  |\n" + "".join(plain.format(n=n) for n in range(3))
    assert [row["reward"] for row in read(tmp_path, text).history] == [0, 1, 2]


def test_a_table_of_settings_is_no_curve(tmp_path):
    settings = "| Setting | Value |\n|---|---|\n| reward | 0.5 |\n| seed | 3 |\n"
    history = read(tmp_path, settings + "step 1 kl 0.2\nstep 2 kl 0.3\n").history
    assert [*history] == [{"step": 1, "kl": 0.2}, {"step": 2, "kl": 0.3}]


# ---------------------------------------------------------------- steps of an environment

STEP = "[STEP] step={n} action={{'a': 1}} reward=0.{n} done={done}\n"


def steps(episodes, length=9):
    for _ in range(episodes):
        yield from ((n, n == length - 1) for n in range(length))


def test_what_an_episode_pays_on_its_way_is_no_curve_of_training(tmp_path):
    printed = "".join(STEP.format(n=n, done=str(done).lower()) for n, done in steps(6))
    assert [row.get("reward") for row in read(tmp_path, printed, "a.log").history] == [0.8] * 6
    rows = [{"step": n, "reward": n / 10, "done": done} for n, done in steps(6)]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)), "a.jsonl")
    assert {row["reward"] for row in found.history if "reward" in row} == {0.8}


def test_a_trial_that_is_not_done_has_the_rewards_of_its_episodes(tmp_path):
    rows = [{"training_iteration": n, "episode_reward_mean": n, "done": False} for n in range(9)]
    history = read(tmp_path, "\n".join(map(json.dumps, rows)), "result.json").history
    assert [row["reward"] for row in history] == [*range(9)]


# ---------------------------------------------------------------- NaN that stands for nothing


def rows_of_two_kinds():
    nan = math.nan
    for n in range(60):
        yield {"step": n, "reward": n % 7, "loss": nan, "eval_reward": nan}
        yield {"step": n, "reward": nan, "loss": 0.1, "eval_reward": nan}


def test_nan_in_a_table_whose_rows_are_of_several_kinds_is_no_number(tmp_path):
    rows = list(rows_of_two_kinds())
    assert not found(tmp_path, json.dumps(rows), "a.json")
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    assert not found(tmp_path, "\n".join(lines))


def test_a_nan_after_whole_rows_is_one(tmp_path):
    rows = [{"step": n, "reward": n % 7, "loss": 0.1 if n < 40 else math.nan} for n in range(60)]
    parts = [{"rewards/a": math.nan, "rewards/b": 0.5}, {"rewards/a": 0.5, "rewards/b": math.nan}]
    for some in (rows, [row | parts[n % 2] for n, row in enumerate(rows)]):
        assert found(tmp_path, json.dumps(some), "a.json") == ["not-finite"]
