"""The third batch of strangers' reports: seven losses and three logs, judged once.

    python -m book.studies.strangers_third book/runs/strangers-third

Found by their symptoms, in repositories of which neither batch before had a thread. What a verdict
says of a gradient is shown by `tests/examine/test_strangers_third.py`, without `examine`.
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

# ------------------------------------------------------------------ verl #4105


def a_weight_with_a_gradient(log_prob, old_log_prob, advantages, response_mask):
    """The weight π/π_rollout multiplies A log π, and is differentiated with it."""
    weight = (log_prob - old_log_prob).clamp(-20.0, 20.0).exp().clamp(max=2.0)
    return masked_mean(-weight * advantages * log_prob, response_mask)


def a_weight_that_is_a_constant(log_prob, old_log_prob, advantages, response_mask):
    weight = (log_prob - old_log_prob).clamp(-20.0, 20.0).exp().clamp(max=2.0).detach()
    return masked_mean(-weight * advantages * log_prob, response_mask)


# ------------------------------------------------------------- torchforge #571


def _with_k3(ratio, advantages, log_probs, ref_log_probs, mask):
    losses = -(ratio * advantages - 0.04 * k3(log_probs, ref_log_probs))
    return mean_of_rows(losses, mask)


def a_policy_over_itself(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    """The ratio is that of the policy to itself, so it is 1, and its gradient is ∇log π."""
    ratio = (log_probs - log_probs.detach()).exp()
    return _with_k3(ratio, advantages, log_probs, ref_log_probs, mask)


def a_policy_over_the_sampler(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    ratio = (log_probs - old_log_probs).exp()
    return _with_k3(ratio, advantages, log_probs, ref_log_probs, mask)


# ---------------------------------------------------------- open-instruct #1269


def a_cap_on_the_surrogate(log_probs, old_log_probs, advantages, mask):
    """CISPO's cap without CISPO's log π: beyond it a token has no gradient, whatever its sign."""
    ratio = (log_probs - old_log_probs).exp()
    return masked_mean(-advantages * ratio.clamp(max=1.28), mask)


def a_cap_on_the_weight(log_probs, old_log_probs, advantages, mask):
    weight = (log_probs - old_log_probs).exp().clamp(max=1.28).detach()
    return masked_mean(-advantages * weight * log_probs, mask)


# ----------------------------------------------------------------- SkyRL #1340


@torch.no_grad()
def _kl_for_a_reward(log_probs, ref_log_probs):
    return k3(log_probs, ref_log_probs)


def _with_a_kl(log_probs, old_log_probs, advantages, mask, kl):
    losses = clipped((log_probs - old_log_probs).exp(), advantages)
    return masked_mean(losses, mask) + 0.05 * mean_of_rows(kl, mask)


def a_kl_for_the_reward_in_the_loss(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    """One function estimates the KL of rewards and of the loss, and never keeps a graph."""
    kl = _kl_for_a_reward(log_probs, ref_log_probs)
    return _with_a_kl(log_probs, old_log_probs, advantages, mask, kl)


def a_kl_for_the_loss(log_probs, old_log_probs, ref_log_probs, advantages, mask):
    return _with_a_kl(log_probs, old_log_probs, advantages, mask, k3(log_probs, ref_log_probs))


# ----------------------------------------------------------------- miles #1383


def _of_returns_to_go(log_probs, old_log_probs, charged, rewards, mask):
    """Each token earns less its KL, and the last one earns the reward; γ is 1."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = (columns * mask).argmax(dim=1, keepdim=True)
    earned = (-0.1 * charged).scatter_add(1, last, rewards[:, None])
    returns = earned.flip(1).cumsum(1).flip(1).detach()
    return masked_mean(clipped((log_probs - old_log_probs).exp(), returns), mask)


def every_place_is_charged(log_probs, old_log_probs, ref_log_probs, rewards, mask):
    """The KL of what a tool wrote, and of padding, is in the returns of the tokens before it."""
    kl = old_log_probs - ref_log_probs
    return _of_returns_to_go(log_probs, old_log_probs, kl, rewards, mask)


def tokens_under_the_mask_are_charged(log_probs, old_log_probs, ref_log_probs, rewards, mask):
    kl = (old_log_probs - ref_log_probs).masked_fill(~mask.bool(), 0.0)
    return _of_returns_to_go(log_probs, old_log_probs, kl, rewards, mask)


# ------------------------------------------------------- hands-on-modern-rl #75


def answers_as_one_token(
    per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
):
    """Log-probs are added up first: ratio, clip and KL are those of the whole answer."""
    now, old, ref = (
        (logps * completion_mask).sum(-1)
        for logps in (per_token_logps, old_per_token_logps, ref_per_token_logps)
    )
    return (clipped((now - old).exp(), advantages) + 0.04 * k3(now, ref)).mean()


def a_ratio_for_each_token(
    per_token_logps, old_per_token_logps, ref_per_token_logps, advantages, completion_mask
):
    ratio = (per_token_logps - old_per_token_logps).exp()
    losses = clipped(ratio, advantages[:, None]) + 0.04 * k3(per_token_logps, ref_per_token_logps)
    return mean_of_rows(losses, completion_mask)


# ---------------------------------------------------------------- xtuner #2095


def _of_a_pack(log_probs, old_log_probs, rewards, mask, group_size, extra):
    """Answers lie end to end in one row, and a list of advantages, `extra` too long, beside it.

    In the thread a prompt stands before each answer, and its first tokens take the shift.
    """
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(1, keepdim=True)
    advantages = (centred / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    mask = mask.bool()
    packed = advantages.repeat_interleave(mask.sum(1) + extra)
    ratio = (log_probs[mask] - old_log_probs[mask]).exp()
    return clipped(ratio, packed[: len(ratio)]).mean()


def one_advantage_too_many(log_probs, old_log_probs, rewards, mask, group_size):
    """Each answer has an advantage more than tokens, so those after it come too late."""
    return _of_a_pack(log_probs, old_log_probs, rewards, mask, group_size, extra=1)


def an_advantage_for_each_token(log_probs, old_log_probs, rewards, mask, group_size):
    return _of_a_pack(log_probs, old_log_probs, rewards, mask, group_size, extra=0)


# ------------------------------------------------------------------------ logs
# Names and numbers are those of the threads where they post some; the rest is made up from what
# they say. `NOISE` shakes what is made up.

NOISE = (0.31, -0.62, 0.05, 0.88, -0.17, -0.94, 0.53, 0.12, -0.41, 0.76, -0.28, 0.09)


def shaken(step, size, turn=0):
    return size * NOISE[(step + turn) % len(NOISE)]


def verl_line(step, score, entropy, kl, norm, length, cut):
    return (
        f"(TaskRunner pid=40117) step:{step} - actor/entropy:{entropy:.4f} "
        f"- actor/kl_loss:{kl:.5f} - actor/kl_coef:0.001 - actor/pg_loss:{shaken(step, 0.01):.5f} "
        f"- actor/pg_clipfrac:0.0008 - actor/ppo_kl:0.0001 - actor/grad_norm:{norm:.4f} "
        f"- actor/lr:1e-06 - critic/score/mean:{score:.4f} "
        f"- critic/score/max:{2.0 if score else 0.0} "
        f"- critic/score/min:0.0 - critic/rewards/mean:{score:.4f} "
        f"- response_length/mean:{length:.1f} - response_length/max:512.0 "
        f"- response_length/min:61.0 - response_length/clip_ratio:{cut:.3f}"
    )


def a_run_of_verl(collapses):
    """A score from .7 to 1.3 in 250 steps; with the collapse it is 0 from step 300 on."""
    lines = []
    for step in range(5, 361, 5):
        gone = min(max((step - 265) / 35, 0.0), 1.0) if collapses else 0.0
        score = (0.7 + 0.6 * min(step / 250, 1.0) + shaken(step // 5, 0.05)) * (1 - gone)
        lines.append(
            verl_line(
                step,
                score,
                entropy=0.42 + shaken(step // 5, 0.03, 3) + 5.1 * gone,
                kl=0.02 + 0.0004 * step + 2.4 * gone,
                norm=0.35 + shaken(step // 5, 0.06, 5) + 7.5 * gone,
                length=214 + shaken(step // 5, 9.0, 7) + 130 * gone,
                cut=0.004 + 0.3 * gone,
            )
        )
    return "\n".join(lines) + "\n"


def a_table_of_slime(gaps):
    """What W&B exports of slime's numbers."""
    head = (
        "_step,train/loss,train/pg_loss,train/entropy_loss,train/pg_clipfrac,train/ppo_kl,"
        "train/train_rollout_logprob_abs_diff,train/grad_norm,train/lr-pg_0,"
        "rollout/raw_reward,rollout/response_len/mean,rollout/truncated_ratio"
    )
    rows = [
        f"{step},{shaken(step, 0.02):.5f},{shaken(step, 0.02):.5f},"
        f"{0.33 + shaken(step, 0.02, 4):.4f},0.0,0.0,{gap},{0.9 + shaken(step, 0.2, 2):.4f},1e-05,"
        f"{0.55 + shaken(step, 0.08, 6):.4f},{612 + shaken(step, 40.0, 8):.1f},0.03"
        for step, gap in enumerate(gaps)
    ]
    return "\n".join([head, *rows]) + "\n"


def trl_line(step, norm, mean, terminated, cut, reward, std, flat):
    return (
        f"{{'loss': {0.0 if flat == 1.0 else shaken(step, 0.03):.4f}, 'grad_norm': {norm}, "
        f"'learning_rate': {1e-05 - 2e-07 * step:.2e}, 'completions/mean_length': {mean}, "
        f"'completions/clipped_ratio': {cut}, "
        f"'completions/mean_terminated_length': {terminated}, 'reward': {reward}, "
        f"'reward_std': {std}, 'frac_reward_zero_std': {flat}, 'epoch': {0.02 * (step + 1):.2f}}}"
    )


CUT_AT_256 = "".join(trl_line(n, 0.0, 256.0, 0.0, 1.0, 0.0, 0.0, 1.0) + "\n" for n in range(12))
LEARNT = (  # gradient norm, mean length, share that was cut off, reward, its spread, flat groups
    (0.412, 291.5, 0.0625, 0.3125, 0.3536, 0.25), (0.377, 304.25, 0.125, 0.375, 0.433, 0.0),
    (0.455, 279.0, 0.0, 0.4375, 0.3953, 0.25), (0.29, 310.75, 0.125, 0.25, 0.2795, 0.5),
    (0.501, 288.0, 0.0625, 0.5, 0.4677, 0.0), (0.433, 296.5, 0.0625, 0.375, 0.3953, 0.25),
    (0.364, 283.25, 0.0, 0.5625, 0.4146, 0.25), (0.298, 301.0, 0.125, 0.4375, 0.3062, 0.5),
    (0.476, 275.5, 0.0, 0.5625, 0.4677, 0.0), (0.402, 290.0, 0.0625, 0.5, 0.3536, 0.25),
    (0.387, 281.75, 0.0625, 0.625, 0.3953, 0.25), (0.421, 286.25, 0.0, 0.5625, 0.433, 0.0),
)  # fmt: skip
ROOM_FOR_512 = "".join(
    trl_line(n, norm, mean, mean - 14.0, cut, reward, std, flat) + "\n"
    for n, (norm, mean, cut, reward, std, flat) in enumerate(LEARNT)
)
FAR_FROM_THE_SAMPLER = (0.27, 0.31, 0.24, 0.38, 0.29, 0.22, 0.35, 0.33, 0.26, 0.3, 0.4, 0.28)
NEAR_THE_SAMPLER = (
    0.011, 0.012, 0.01, 0.013, 0.011, 0.012, 0.014, 0.012, 0.011, 0.013, 0.012, 0.012,
)  # fmt: skip

WRONG_SIDE = {"clip-without-min", "inverted-clip", "clip-wrong-side"}
FORWARD = {"kl-forward", "kl-other"}  # k3 in a loss that divides by lengths: nearly the forward KL
NEIGHBOURS = {"order", "position-weighted", "broadcast", "mixed-groups"}

CASES = [
    Case(
        "verl-project/verl #4105",
        "2025-11-12",
        "the weight for the policy that sampled is not detached, and multiplies A log π",
        a_weight_with_a_gradient,
        a_weight_that_is_a_constant,
        # The derivative of w log π is w (1 + log π): below π = 1/e a good token becomes rarer.
        Verdict(mistakes={"probability-weighted"}, also={"no-ratio", "flipped-loss"}),
        Verdict(
            named={"ratio-capped", "token-mean"},
            never={"probability-weighted", "no-ratio", "flipped-loss"},
        ),
        "verl",
    ),
    Case(
        "meta-pytorch/torchforge #571",
        "2025-11-14",
        "a flat reward is put down to a ratio that is always 1",
        a_policy_over_itself,
        a_policy_over_the_sampler,
        # With one update for each batch the gradient is the right one: no mistake.
        Verdict(
            named={"ratio-ignored"},
            one_of=FORWARD,
            never={"rewards-ignored", "no-ratio", "probability-weighted", "kl-without-gradient"},
        ),
        Verdict(
            named={"seq-mean-token-mean"},
            one_of=FORWARD,
            never={"ratio-ignored", "no-ratio"},
            said=(
                r"(?i)no clip|clip\b[^.\n]*\bnone|(nothing|not|un) ?(is )?clipped|without a clip",
            ),
        ),
    ),
    Case(
        "allenai/open-instruct #1269",
        "2025-12-10",
        "a CISPO that caps the surrogate and not the weight of log π",
        a_cap_on_the_surrogate,
        a_cap_on_the_weight,
        # With A < 0 nothing pushes back what has become too likely. A mask by the ratio, and a
        # dual clip at the same place, are as true.
        Verdict(
            also=WRONG_SIDE,
            one_of=WRONG_SIDE | {"ratio-mask", "dual-clip"},
            never={"ratio-capped"},
        ),
        Verdict(
            named={"ratio-capped", "token-mean"},
            never=WRONG_SIDE | {"ratio-mask", "dual-clip"},
        ),
    ),
    Case(
        "NovaSky-AI/SkyRL #1340",
        "2026-03-18",
        "the KL in the loss was computed under `no_grad`, as for a reward",
        a_kl_for_the_reward_in_the_loss,
        a_kl_for_the_loss,
        Verdict(
            also={"reference-ignored", "kl-without-gradient"},
            one_of={"reference-ignored", "kl-without-gradient"},
            never={"kl-sign", "kl-forward"},
        ),
        Verdict(
            named={"token-mean"},
            one_of=FORWARD,
            never={"reference-ignored", "kl-without-gradient", "kl-sign"},
        ),
    ),
    Case(
        "radixark/miles #1383",
        "2026-06-22",
        "REINFORCE++ charges the KL of masked tokens to the tokens before them",
        every_place_is_charged,
        tokens_under_the_mask_are_charged,
        # Padding has no gradient of its own. That of real tokens depends on what is in it.
        Verdict(
            mistakes={"padding-read"},
            also={"padding-in-statistics", "position-weighted"},
            named={"missing-baseline"},
            never={"trained-padding", "kl-sign"},
        ),
        Verdict(
            named={"missing-baseline", "token-mean"},
            never={"padding-read", "padding-in-statistics", "reference-ignored", "kl-sign"},
        ),
    ),
    Case(
        "walkinglabs/hands-on-modern-rl #75",
        "2026-08-28",
        "GRPO's ratio, clip and KL are taken of summed log-probs",
        answers_as_one_token,
        a_ratio_for_each_token,
        # Another method and no mistake: a product of ratios, and the forward KL of whole answers.
        # That such a product overflows for a long answer is true.
        Verdict(named={"sequence-ratio", "kl-forward"}, also={"overflow"}, said=("product",)),
        Verdict(named={"seq-mean-token-mean"}, one_of=FORWARD, never={"sequence-ratio"}),
        "trl",
    ),
    Case(
        "InternLM/xtuner #2095",
        "2026-09-17",
        "a list of advantages is one longer than the answer, for each answer in a pack",
        one_advantage_too_many,
        an_advantage_for_each_token,
        # The first tokens of an answer have the advantage of the answer before it.
        Verdict(
            also=NEIGHBOURS,
            one_of=NEIGHBOURS,
            never={"padding-read", "trained-padding", "masked-eos"},
        ),
        Verdict(named={"token-mean", "spread-divided"}, never=NEIGHBOURS),
    ),
    Case(
        "BeastyZ/ConvSearch-R1 #6",
        "2026-03-05",
        "verl: the score falls from 1.3 to 0 about step 270, and the text is gibberish",
        a_run_of_verl(collapses=True),
        a_run_of_verl(collapses=False),
        # At the end every group is all wrong, which leaves no signal.
        Verdict(
            mistakes={"reward-collapse"},
            also={"no-signal"},
            never={"entropy-collapse", "not-finite", "detached-loss"},
        ),
    ),
    Case(
        "Gen-Verse/OpenClaw-RL #69",
        "2026-04-09",
        "slime: log-probs of sampler and learner are .2 to .4 nats apart, on average",
        a_table_of_slime(FAR_FROM_THE_SAMPLER),
        a_table_of_slime(NEAR_THE_SAMPLER),
        # A mean of the differences cannot tell stale weights from another temperature.
        Verdict(
            mistakes={"sampler-mismatch"},
            also={"stale-sampler", "sampler-temperature", "sampler-truncation"},
        ),
        suffix=".csv",
    ),
    Case(
        "greyhaven-ai/autocontext #1067",
        "2026-06-11",
        "TRL: every answer is cut off at 256 tokens before it gives its number, and earns 0",
        CUT_AT_256,
        ROOM_FOR_512,
        # The gradient is 0 because no group has a spread; the loss is as it should be.
        Verdict(
            mistakes={"all-truncated"},
            also={"no-signal"},
            never={"detached-loss", "idle-optimiser", "empty-mask"},
        ),
    ),
]

if __name__ == "__main__":
    record(CASES, __doc__)
