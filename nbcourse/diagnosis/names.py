"""What trainers call the numbers that a diagnosis looks at, in our names and in their own."""

import re
from collections.abc import Iterable, Mapping

PART = "rewards/"  # how TRL begins the name of a part of the reward
# of those by which people call parts themselves: others with "reward" in them may be statistics
_PARTS = (
    "format|accuracy|correct(?:ness)?|xml(?:count)?|int|style|reason\\w*|answer|tags?|think\\w*"
)
OF_A_PART = re.compile(rf"(?:reward_(?:\w+_)?(?:{_PARTS})|(?:\w+_)?(?:{_PARTS})_reward)(?:_func)?")
ASIDE = re.compile("eval|test|val|dev|held|final")  # no part, but the reward of something else

# Sections of a log that say nothing of a number: before it, other trainers' names may stand.
SECTION = re.compile(r"(?:train|losses|charts|learners/\w+|info/learner/\w+/learner_stats)/")
# A name of these words is the reward, where no other name is.
EARNED = {"reward", "rewards", "rew", "return", "returns", "ret", "score", "scores"}
OF_MEANS = {"mean", "avg", "average", "total", "sum", "raw"}
OF_EPISODES = {"ep", "eps", "episode", "episodes", "episodic"}
OF_PLACES = {"train", "rollout", "env", "all", "runners"}
OF_GYM = {"length", "truncated"}  # of an episode
OWN = {"kl_ref", "kl_sampler", "no_spread"}  # one of which our own logs have, and no others
MONITOR = {"r", "l", "t"}  # the columns of Gym's monitor: reward, length and time of an episode
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# What may be the number of its row, where no other one is.
WEAK = {"r_mean", "mean_r", "loss", "training_loss"}
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
    "ppo/mean_scores": "reward",  # of its predecessor, as are the next six
    "ppo/loss/policy": "policy_loss",
    "ppo/loss/value": "value_loss",
    "ppo/policy/entropy": "entropy",
    "ppo/policy/approxkl": "kl_old",
    "ppo/policy/clipfrac": "clip_high",
    "ppo/val/var_explained": "explained_variance",
    "policy_gradient_loss": "policy_loss",  # of Stable-Baselines3, as are the next two
    "approx_kl": "kl_old",
    "clip_fraction": "clip_high",
    "vf_explained_var": "explained_variance",  # of RLlib, as are the next two
    "cur_lr": "learning_rate",
    "grad_gnorm": "grad_norm",
    "losspi": "policy_loss",  # of Spinning Up, as are the next two
    "lossv": "value_loss",
    "clipfrac": "clip_high",
    "lr": "learning_rate",
    "loss": "policy_loss",
    "training_loss": "policy_loss",  # of transformers' table in a notebook
    "reward_mean": "reward",  # of scripts, as are those behind it
    "r_mean": "reward",
    "mean_r": "reward",
    "eprewmean": "reward",  # of OpenAI's Baselines
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
    "gen_kl_error": "kl_sampler_in_any_precision",  # of NeMo-RL, as are the next two
    "kl_error": "kl_sampler_in_any_precision",
    "generation_length": "length",
    "mismatch_kl/mean": "kl_sampler_in_any_precision",  # of prime-rl
    "mismatch_kl": "kl_sampler_in_any_precision",
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
    return {_ours(bare(name)): value for name, value in row.items()}


def bare(name: str) -> str:
    """A name without the section of the log that it stands in."""
    return SECTION.sub("", name, count=1) if SECTION.match(name) else name


def in_company(columns: Iterable[str]) -> dict[str, str]:
    """New names of columns whose own mean one thing here and another there.

    What is called a reward beside a reward is a part of it. Where a log counts episodes, `R` is the
    return of one, and a length or a truncation is that of an episode, which may well last to its
    limit. Where it has the reward of episodes, an agent learns without a reference, and a KL is to
    the old policy. A gap is one of sampler and learner in our own logs alone.
    """
    names = list(columns)
    paid = [name for name in names if "reward" in translated({name: 0.0})]
    alone = [name for name in names if name.lower() == "r" and not paid]
    earns_by_episode = any(map(is_of_episodes, paid))
    counts = any(name.lower() in OF_EPISODES for name in names) or {*names} >= MONITOR
    told = {name: PART + name for name in names if paid and _is_part(name)}
    if counts:
        told |= dict.fromkeys(alone, "return")
    if counts or earns_by_episode:
        told |= {name: f"episode_{name}" for name in names if _plain(name) in OF_GYM}
    if not OWN & {*names}:
        told |= {name: f"other_{name}" for name in names if _plain(name) == "gap"}
    if earns_by_episode:
        told |= {name: "kl_old" for name in names if _plain(bare(name)) == "kl"}
    return told


def _is_part(name: str) -> bool:
    return bool(OF_A_PART.fullmatch(name)) and not ASIDE.search(name) and _ours(name) == name


def rivals(columns: Mapping[str, int]) -> set[str]:
    """The columns that mean the same as another one, which has a better claim to the name.

    Its own name comes first, then what a trainer calls it, then names that may mean something else,
    and those that are only made of its words; of two alike the one in more rows.

    Args:
        columns: their names, and in how many rows each is.
    """

    def claim(name: str) -> tuple[bool, bool, int]:
        plain = _plain(bare(name))
        listed = (KNOWN | NAMES.keys()) & {plain, bare(name)} and plain not in WEAK
        return not listed, plain not in KNOWN, -columns[name]

    by_name: dict[str, list[str]] = {}
    for name in columns:
        by_name.setdefault(next(iter(translated({name: 0.0}))), []).append(name)
    return {other for names in by_name.values() for other in sorted(names, key=claim)[1:]}


def is_known(name: str) -> bool:
    """Whether a question looks at a number, by the name that `translated` gives it."""
    return name in KNOWN or (name.startswith(PART) and not name.endswith("/std"))


def _ours(name: str) -> str:
    """Our name of a number, whatever the case of its letters; its own if there is none."""
    if name.startswith(PART) and name not in NAMES and not _is_earned(name):
        return name.removesuffix("/mean")
    plain = _plain(name)
    known = NAMES.get(name) or NAMES.get(plain) or (plain if plain in KNOWN else "")
    return known or ("reward" if _is_earned(name) else name)


def _plain(name: str) -> str:
    return name.lower().replace(".", "").replace(" ", "_")


def _words(name: str) -> list[str]:
    return [word.lower() for word in WORD.findall(name)]


def is_of_episodes(name: str) -> bool:
    """Whether a number is of the episodes that ended, of which there may be none."""
    return bool(OF_EPISODES & {*_words(name)}) or _plain(name) == "eprewmean"


def _is_earned(name: str) -> bool:
    """Whether a name says that it is the reward, by its words: `rollout/ep_rew_mean`, `EpRet`."""
    words = _words(name)
    others = [word for word in words if word not in EARNED]
    return len(words) == len(others) + 1 and {*others} <= OF_MEANS | OF_EPISODES | OF_PLACES
