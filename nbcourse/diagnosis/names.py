"""What trainers call the numbers that a diagnosis looks at, in our names and in their own."""

import re
from collections.abc import Mapping

PART = "rewards/"  # how TRL begins the name of a part of the reward
# of those by which people call parts themselves: others with "reward" in them may be statistics
_PARTS = (
    "format|accuracy|correct(?:ness)?|xml(?:count)?|int|style|reason\\w*|answer|tags?|think\\w*"
)
OF_A_PART = re.compile(rf"(?:reward_(?:\w+_)?(?:{_PARTS})|(?:\w+_)?(?:{_PARTS})_reward)(?:_func)?")
ASIDE = re.compile("eval|test|val|dev|held|final")  # no part, but the reward of something else

# What may be the reward, where nothing else is.
WEAK = (
    *("score", "mean_score", "scores/mean", "return", "mean_return", "episode_reward"),
    *("total_reward", "reward_total", "rewards_mean", "reward/mean", "rewards/mean"),
    *("r_mean", "mean_r", "train_reward", "env/reward", "env/all/reward/total", "rewards"),
    *("rollout/reward", "rollout/rewards/mean"),
)
# What other trainers call these numbers.
NAMES: Mapping[str, str] = {
    "frac_reward_zero_std": "no_spread",
    "completions/clipped_ratio": "truncated",
    "completions/mean_length": "length",
    "completions/min_length": "length_min",
    "completions/max_length": "length_max",
    "sampling/sampling_logp_difference/max": "gap_in_any_precision",
    "sampling/sampling_logp_difference/mean": "mean_gap",
    "clip_ratio/low_mean": "clip_low",
    "clip_ratio/high_mean": "clip_high",
    "cispo_clip_ratio": "clip_high",
    "completion_length": "length",  # of earlier TRL
    "objective/scores": "reward",  # of TRL's PPOTrainer, as are the next six
    "objective/kl": "kl",  # of a response, and not of a token
    "policy/entropy_avg": "entropy",
    "policy/approxkl_avg": "kl_old",
    "policy/clipfrac_avg": "clip_high",
    "loss/policy_avg": "policy_loss",
    "loss/value_avg": "value_loss",
    "val/num_eos_tokens": "ends",
    "lr": "learning_rate",
    "loss": "policy_loss",
    "training_loss": "policy_loss",  # of transformers' table in a notebook
    "reward_mean": "reward",  # of scripts, as are those behind it
    **dict.fromkeys(WEAK, "reward"),
    "reward_avg": "reward",
    "std_reward": "reward_std",
    "kl_divergence": "kl",
    "kl_div": "kl",
    "avg_resp_len": "length",
    "mean_reward": "reward",
    "avg_reward": "reward",
    "average_reward": "reward",
    "acc": "accuracy",
    "critic/score/mean": "reward",
    "critic/score/max": "reward_max",
    "critic/score/min": "reward_min",
    "critic/kl": "kl",
    "critic/vf_loss": "value_loss",
    "vf_loss": "value_loss",
    "v_loss": "value_loss",
    "critic/grad_norm": "critic_grad_norm",
    "critic/vf_explained_var": "explained_variance",
    "critic/advantages/max": "advantage_max",
    "critic/advantages/min": "advantage_min",
    "response_length/mean": "length",
    "response_length/min": "length_min",
    "response_length/max": "length_max",
    "response_length/clip_ratio": "truncated",
    "response_clip_ratio": "truncated",  # of OpenRLHF
    "actor/entropy": "entropy",
    "actor/entropy_loss": "entropy",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "learning_rate",
    "actor/kl_loss": "kl",
    "actor/pg_loss": "policy_loss",
    "actor/pg_clipfrac": "clip_high",
    "actor/pg_clipfrac_lower": "clip_low",
    "actor/ppo_kl": "kl_old",
    "training/rollout_probs_diff_max": "probability_gap",
    "training/rollout_probs_diff_mean": "mean_gap",  # of probabilities, and less than that of logs
    "rollout_corr/k3_kl": "kl_sampler_in_any_precision",
    "mismatch/mismatch_k3_kl": "kl_sampler_in_any_precision",
    "train_rollout_logprob_abs_diff": "mean_gap",  # of slime, and miles
    "rollout/raw_reward": "reward",
    "rollout/response_len/mean": "length",
    "rollout/truncated_ratio": "truncated",
    "pg_clipfrac": "clip_high",
    "policy/rollout_train_logprobs_abs_diff_mean": "mean_gap",  # of SkyRL
    "policy/rollout_train_logprobs_abs_diff_max": "gap_in_any_precision",
    "debug/vllm_vs_local_logprob_diff_mean": "mean_gap",  # of open-instruct
    "debug/vllm_vs_local_logprob_diff_max": "gap_in_any_precision",
    "gen_kl_error": "kl_sampler_in_any_precision",  # of NeMo-RL
    "mismatch_kl/mean": "kl_sampler_in_any_precision",  # of prime-rl
    "entropy/mean": "entropy",
    "optim/grad_norm": "grad_norm",
    "response_length": "length",
    "ppo_clip_ratio": "clip_high",
    "ppo_kl": "kl_old",
    "entropy_loss": "entropy",
    "critic_loss": "value_loss",
    "actor_grad_norm": "grad_norm",
    "critic_grad_norm": "critic_grad_norm",
}
# Numbers that are defined in every step of a sound run, and what they are called in a sentence.
ALWAYS: Mapping[str, str] = {
    "policy_loss": "the loss",
    "grad_norm": "the gradient norm",
    "kl": "the KL",
    "kl_ref": "the KL to the reference",
    "kl_old": "the KL to the old policy",
    "kl_sampler": "the KL from the sampler",
    "entropy": "the entropy",
    "value_loss": "the critic's loss",
    "critic_grad_norm": "the critic's gradient norm",
    "reward": "the reward",
    "accuracy": "the accuracy",
}
OTHERS = {
    *("advantage_max", "advantage_min", "reward_std", "reward_max", "reward_min", "no_spread"),
    *("truncated", "ends", "length"),
    *(
        "length_min",
        "length_max",
        "length_right",
        "length_wrong",
        "held_out",
        "responses",
        "tokens",
        "updates",
    ),
    *("clip_low", "clip_high", "explained_variance", "monte_carlo_explained_variance"),
    *("gap", "gap_in_any_precision", "mean_gap", "probability_gap", "learning_rate"),
    "kl_sampler_in_any_precision",
}
KNOWN = {*ALWAYS, *OTHERS}


def translated(row: Mapping[str, float]) -> dict[str, float]:
    """A line of another trainer's log under our names."""
    return {_ours(name.removeprefix("train/")): value for name, value in row.items()}


def parts_named(row: Mapping[str, float]) -> dict[str, float]:
    """A row that has a reward, in which what is called a reward besides is a part of it."""
    if "reward" not in translated(row):
        return dict(row)
    return {
        PART + name
        if OF_A_PART.fullmatch(name) and not ASIDE.search(name) and _ours(name) == name
        else name: value
        for name, value in row.items()
    }


def rivals(columns: Mapping[str, int]) -> set[str]:
    """The columns that mean the same as another one, which has a better claim to the name.

    Its own name comes first, then what a trainer calls it, then names that may mean something else;
    of two alike the one in more rows.

    Args:
        columns: their names, and in how many rows each is.
    """

    def claim(name: str) -> tuple[bool, bool, int]:
        plain = name.removeprefix("train/").lower()
        return plain in WEAK, plain != _ours(plain), -columns[name]

    by_name: dict[str, list[str]] = {}
    for name in columns:
        by_name.setdefault(next(iter(translated({name: 0.0}))), []).append(name)
    return {other for names in by_name.values() for other in sorted(names, key=claim)[1:]}


def is_known(name: str) -> bool:
    """Whether a question looks at a number, by the name that `translated` gives it."""
    return name in KNOWN or (name.startswith(PART) and not name.endswith("/std"))


def _ours(name: str) -> str:
    """Our name of a number, whatever the case of its letters; its own if there is none."""
    if name.startswith(PART) and name not in NAMES:
        return name.removesuffix("/mean")
    plain = name.lower().replace(".", "").replace(" ", "_")
    return NAMES.get(name) or NAMES.get(plain) or (plain if plain in KNOWN else name)
