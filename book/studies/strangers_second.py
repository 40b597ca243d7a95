"""The second batch of strangers' reports: eight losses and two logs, judged once.

    python -m book.studies.strangers_second book/runs/strangers

Their first run was recorded when this was `book.studies.strangers`.
"""

import torch
from book.studies.strangers import (
    Case,
    Verdict,
    clipped,
    k3,
    masked_mean,
    mean_of_rows,
    record,
)


def in_groups(rewards, index):
    """Distances from the mean of a group in its deviations; an answer alone keeps its reward."""
    advantages = rewards.clone()
    for one in index.unique():
        group = index == one
        if group.sum() > 1:
            advantages[group] = (rewards[group] - rewards[group].mean()) / (
                rewards[group].std() + 1e-6
            )
    return advantages


# ------------------------------------------------- flash-linear-attention #1073


def negated_twice(log_probs, old_log_probs, ref_log_probs, rewards, mask):
    """The loss of each token is negated, and their mean once more; one mean for all rewards."""
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-4))[:, None]
    losses = clipped((log_probs - old_log_probs).exp(), advantages)
    return -masked_mean(losses + 0.1 * k3(log_probs, ref_log_probs), mask)


def negated_once(log_probs, old_log_probs, ref_log_probs, rewards, mask, group_size):
    groups = rewards.view(-1, group_size)
    advantages = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)
    losses = clipped((log_probs - old_log_probs).exp(), advantages.view(-1, 1))
    return masked_mean(losses + 0.1 * k3(log_probs, ref_log_probs), mask)


# ------------------------------------------------------------------- Soup #723


def centred_by_column(per_token_logps, old_per_token_logps, advantages, completion_mask):
    """Log-ratios less the mean of their column, padding included; the mask comes last."""
    log_ratio = per_token_logps - old_per_token_logps
    ratio = (log_ratio - log_ratio.mean(dim=0, keepdim=True)).exp()
    return masked_mean(-ratio * advantages[:, None], completion_mask)


def ratio_of_the_answer(per_token_logps, old_per_token_logps, advantages, completion_mask):
    mask = completion_mask.bool()
    log_ratio = (per_token_logps - old_per_token_logps).masked_fill(~mask, 0.0)
    ratio = (log_ratio.sum(-1) / mask.sum(-1).clamp(min=1)).exp()
    return clipped(ratio, advantages).mean()


# ----------------------------------------------------------------- UniRL #448


def mean_of_the_whole_table(log_probs, old_log_probs, advantages, mask):
    """Masked tokens are set to 0, and counted in the mean."""
    losses = clipped((log_probs - old_log_probs).exp(), advantages)
    return losses.masked_fill(~mask, 0.0).mean()


def mean_of_the_tokens(log_probs, old_log_probs, advantages, mask):
    losses = clipped((log_probs - old_log_probs).exp(), advantages)
    return losses.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


# ------------------------------------------------------------------ TRL #6637


def one_name_for_two_ratios(
    per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
):
    """The KL's log-ratio takes the name of the policy's, of which a weight is made below it.

    The thread's weight is VESPO's; this one has a cap, as CISPO's.
    """
    log_ratio = per_token_logps - old_per_token_logps
    log_ratio = (ref_per_token_logps - per_token_logps).clamp(-20.0, 20.0)
    kl = log_ratio.exp() - log_ratio - 1
    weight = log_ratio.exp().clamp(max=2.0).detach()
    losses = -weight * advantages[:, None] * per_token_logps + 0.04 * kl
    return mean_of_rows(losses, completion_mask)


def a_name_for_each_ratio(
    per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
):
    log_ratio = per_token_logps - old_per_token_logps
    to_reference = (ref_per_token_logps - per_token_logps).clamp(-20.0, 20.0)
    kl = to_reference.exp() - to_reference - 1
    weight = log_ratio.exp().clamp(max=2.0).detach()
    losses = -weight * advantages[:, None] * per_token_logps + 0.04 * kl
    return mean_of_rows(losses, completion_mask)


# ------------------------------------------------------------------ TRL #6654


def _of_answers(per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, mask):
    log_ratio = ((per_token_logps - old_per_token_logps) * mask).sum(-1, keepdim=True)
    ratio = (log_ratio / mask.sum(-1, keepdim=True).clamp(min=1)).exp()
    losses = clipped(ratio, advantages[:, None])  # (B, 1)
    return losses + 0.04 * k3(per_token_logps, ref_per_token_logps)  # (B, T)


def times_the_length(
    per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
):
    """A loss for each answer is multiplied by its length; with the KL it is one for each place."""
    losses = _of_answers(
        per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
    )
    return (losses * completion_mask.sum(1, keepdim=True)).mean()


def summed_over_the_tokens(
    per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
):
    losses = _of_answers(
        per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
    )
    return (losses * completion_mask).sum(-1).mean()


# ------------------------------------------------------------------ rllm #605


def each_answer_alone(log_probs, old_log_probs, rewards, mask):
    """The index of a group is that of the trajectory, so no answer is compared with any other."""
    advantages = in_groups(rewards, torch.arange(len(rewards)))
    return masked_mean(clipped((log_probs - old_log_probs).exp(), advantages[:, None]), mask)


def answers_to_one_prompt(log_probs, old_log_probs, rewards, mask, group_size):
    advantages = in_groups(rewards, torch.arange(len(rewards)) // group_size)
    return masked_mean(clipped((log_probs - old_log_probs).exp(), advantages[:, None]), mask)


# ----------------------------------------------------------------- slime #1247


def _of_returns(log_probs, old_log_probs, returns, mask):
    losses = clipped((log_probs - old_log_probs).exp(), returns)
    return losses.masked_fill(~mask, 0.0).sum(-1).mean()


def a_kl_that_nothing_takes(log_probs, old_log_probs, ref_log_probs, rewards, mask, group_size):
    """The KL has a coefficient and a place in the call, and the returns are the rewards alone."""
    kl = old_log_probs - ref_log_probs
    groups = rewards.view(-1, group_size)
    centred = (groups - groups.mean(1, keepdim=True)).view(-1, 1)
    return _of_returns(log_probs, old_log_probs, torch.ones_like(kl) * centred, mask)


def a_kl_that_is_charged(log_probs, old_log_probs, ref_log_probs, rewards, mask, group_size):
    kl = old_log_probs - ref_log_probs
    groups = rewards.view(-1, group_size)
    centred = (groups - groups.mean(1, keepdim=True)).view(-1, 1)
    return _of_returns(log_probs, old_log_probs, centred - 0.1 * kl.detach(), mask)


# ------------------------------------------------------------------ TRL #6140


def a_bonus_without_a_graph(log_probs, old_log_probs, advantages, entropy, mask):
    """The entropy was computed under `no_grad`: the loss is another number, with the same slope."""
    losses = clipped((log_probs - old_log_probs).exp(), advantages)
    return masked_mean(losses, mask) - 0.01 * masked_mean(entropy.detach(), mask)


def a_bonus_with_one(log_probs, old_log_probs, advantages, entropy, mask):
    losses = clipped((log_probs - old_log_probs).exp(), advantages)
    return masked_mean(losses, mask) - 0.01 * masked_mean(entropy, mask)


# ------------------------------------------------------------------------ logs
# Lines as TRL prints them; those of MemGen's fault are made up from what the thread says of it.

LINE = (
    "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': {rate}, "
    "'completions/mean_length': {mean}, 'completions/min_length': {low}, "
    "'completions/max_length': {high}, 'completions/clipped_ratio': 0.0, 'reward': {reward}, "
    "'reward_std': {std}, 'frac_reward_zero_std': {flat}, 'clip_ratio/region_mean': {clip}, "
    "'epoch': {epoch}}}"
)
KEYS = ("loss", "norm", "rate", "mean", "low", "high", "reward", "std", "flat", "clip", "epoch")


def printed(*rows):
    return "\n".join(LINE.format(**dict(zip(KEYS, row, strict=True))) for row in rows) + "\n"


ENDS_COUNTED_AS_TOKENS = printed(
    *(
        (-0.0 if n % 2 else 0.0, norm, 1.9e-06, longest, longest, longest, reward, std, 0.0, 0.0,
         round(0.001 * n, 3))
        for n, (norm, longest, reward, std) in enumerate(
            [
                (1.84, 412.0, 0.375, 0.518), (2.11, 298.0, 0.625, 0.518), (1.6, 505.0, 0.25, 0.463),
                (2.43, 266.0, 0.5, 0.535), (1.97, 377.0, 0.75, 0.463), (1.55, 431.0, 0.125, 0.354),
                (2.08, 319.0, 0.5, 0.535), (1.71, 458.0, 0.625, 0.518), (2.26, 287.0, 0.375, 0.518),
                (1.89, 394.0, 0.875, 0.354), (2.02, 342.0, 0.5, 0.535), (1.77, 420.0, 0.25, 0.463),
            ]
        )
    )
)  # fmt: skip
ENDS_LEFT_OUT = printed(
    (-0.2874, 6.2305, 1.947e-06, 163.0, 78.0, 246.0, 0.375, 0.5175, 0.0, 0.0, 0.02),
    (0.0, 0.0, 1.961e-06, 396.375, 209.0, 592.0, 0.0, 0.0, 1.0, 0.0, 0.02),
)
ONE_UPDATE = printed(
    (-0.0982, 0.1235, 1e-05, 506.75, 214.0, 738.0, 0.5, 0.3251, 0.0, 0.0, 0.03),
    (0.0793, 0.1206, 9.69e-06, 449.25, 158.0, 871.0, 0.45, 0.3012, 0.0, 0.0, 0.06),
)
FOUR_UPDATES = printed(
    (0.1185, 0.1367, 5.89e-06, 401.5, 140.0, 702.0, 0.55, 0.3874, 0.0, 0.0051, 0.43),
    (0.0632, 0.1855, 5.71e-06, 379.75, 126.0, 796.0, 0.5875, 0.4051, 0.0, 0.0, 0.45),
    (0.063, 0.1553, 5.54e-06, 379.75, 126.0, 796.0, 0.5875, 0.4051, 0.0, 0.0089, 0.47),
)

CASES = [
    Case(
        "fla-org/flash-linear-attention #1073",
        "2026-07-29",
        "a loss that is negated twice, with one mean of rewards for the whole batch",
        negated_twice,
        negated_once,
        Verdict(
            mistakes={"flipped-loss", "kl-sign"},
            also={"clip-wrong-side", "inverted-clip", "mixed-groups", "batch-baseline"},
            one_of={"mixed-groups", "batch-baseline"},
        ),
        Verdict(
            named={"token-mean", "spread-divided"},
            never={"flipped-loss", "kl-sign", "mixed-groups", "batch-baseline"},
        ),
    ),
    Case(
        "MakazhanAlpamys/Soup #723",
        "2026-09-06",
        "a GSPO that centres log-ratios by column, with padding among them",
        centred_by_column,
        ratio_of_the_answer,
        Verdict(
            mistakes={"trained-padding"},
            also={
                "padding-read",
                "padding-in-statistics",
                "no-ratio",
                "position-weighted",
                "lengths-in-advantages",
                "batch-baseline",
            },
            named={"padding-read", "no-clip"},
        ),
        Verdict(
            named={"sequence-ratio"},
            never={"trained-padding", "padding-read", "no-clip", "position-weighted"},
            said=("geometric",),
        ),
        "trl",
    ),
    Case(
        "Tencent-Hunyuan/UniRL #448",
        "2026-09-13",
        "masked tokens are set to 0 and counted in the mean",
        mean_of_the_whole_table,
        mean_of_the_tokens,
        Verdict(
            also={"padding-in-denominator"},
            named={"padding-in-denominator"},
            never={"trained-padding", "token-mean"},
        ),
        Verdict(named={"token-mean"}, never={"padding-in-denominator"}),
    ),
    Case(
        "huggingface/trl #6637",
        "2026-08-03",
        "the KL's log-ratio overwrites the one of which a weight is made",
        one_name_for_two_ratios,
        a_name_for_each_ratio,
        Verdict(
            also={
                "ratio-to-reference",
                "ratio-ignored",
                "no-ratio",
                "inverted-ratio",
                "probability-weighted",
                "kl-other",
            },
            one_of={"ratio-to-reference", "ratio-ignored"},
        ),
        Verdict(
            named={"ratio-capped", "seq-mean-token-mean"},
            never={"ratio-to-reference", "ratio-ignored", "inverted-ratio"},
        ),
        "trl",
    ),
    Case(
        "huggingface/trl #6654",
        "2026-08-06",
        "LUSPO multiplies by the length what has a value for each place by then",
        times_the_length,
        summed_over_the_tokens,
        Verdict(
            mistakes={"trained-padding"},
            also={"padding-in-denominator"},
            named={"sequence-ratio"},
            never={"kl-divided-by-length"},
        ),
        Verdict(named={"sequence-ratio"}, never={"trained-padding", "padding-in-denominator"}),
        "trl",
    ),
    Case(
        "rllm-org/rllm #605",
        "2026-06-02",
        "GRPO groups by trajectory, so every answer is a group of its own",
        each_answer_alone,
        answers_to_one_prompt,
        Verdict(also={"missing-baseline"}, named={"missing-baseline"}),
        Verdict(named={"spread-divided"}, never={"missing-baseline", "mixed-groups"}),
    ),
    Case(
        "THUDM/slime #1247",
        "2025-12-28",
        "GRPO computes a KL for the reward, and pays the reward without it",
        a_kl_that_nothing_takes,
        a_kl_that_is_charged,
        Verdict(mistakes={"reference-ignored"}),
        Verdict(named={"kl-token"}, never={"reference-ignored", "kl-sign"}),
    ),
    Case(
        "huggingface/trl #6140",
        "2026-07-04",
        "an entropy bonus whose entropy was computed without a graph",
        a_bonus_without_a_graph,
        a_bonus_with_one,
        Verdict(
            said=(
                r"(?i)entropy[^.\n]*(no gradient|nothing|ignored|not matter|no effect|no slope)"
                r"|entropy-[a-z]*(ignored|gradient)",
            ),
            also={"entropy-ignored", "entropy-without-gradient"},
            never={"entropy-penalty"},
        ),
        Verdict(never={"entropy-penalty", "entropy-ignored", "entropy-without-gradient"}),
    ),
    Case(
        "bingreeky/MemGen #33",
        "2026-07-05",
        "padding counts as tokens: all answers are as long as the longest one, and the loss is 0",
        ENDS_COUNTED_AS_TOKENS,
        ENDS_LEFT_OUT,
        Verdict(
            also={"trained-padding", "finished-by-last-column"},
            said=(
                r"(?i)trained-padding|finished-by-last-column|(same|equal|one) length|as long as",
            ),
            never={"detached-loss"},
        ),
        Verdict(never={"detached-loss"}),
    ),
    Case(
        "Chi-Shan0707/TinyLoRA-GRPO-Coder #4",
        "2026-03-06",
        "nothing is clipped, which is right with one update; with four, a little is",
        ONE_UPDATE,
        FOUR_UPDATES,
        Verdict(never={"following-old-log-probs", "detached-loss", "no-signal"}),
        Verdict(never={"following-old-log-probs", "detached-loss", "no-signal"}),
    ),
]

if __name__ == "__main__":
    record(CASES, __doc__)
