"""Laws of the piece that trains a policy and its critic: PPO."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nbcourse.builds import harness, learning, oracle
from nbcourse.builds.bench import WARM, Bench, Finding, Law, laws, named
from nbcourse.builds.learning import MICRO_BATCH, RATE, ratio_derivative
from nbcourse.functional import kl, masking, returns

HEAD = torch.linspace(-1.0, 1.0, 64, dtype=torch.float64) / 8
LAM = 0.95  # the default of `train`


def _begun(head: Tensor) -> oracle.Weights:
    """The warm policy, and a critic with this head on a copy of it."""
    critic = {**WARM.double, "head": head}
    return {**WARM.double, **{harness.CRITIC + name: weight for name, weight in critic.items()}}


def _drawn(seed: int) -> Tensor:
    """(6, 5) numbers between −1 and 1."""
    source = torch.Generator().manual_seed(seed)
    return torch.rand(6, 5, dtype=torch.float64, generator=source) * 2 - 1


def _critic(bench: Bench) -> Finding | None:
    rollout, weights = oracle.example(), _begun(HEAD)
    mask = rollout["mask"]
    found = bench("values", weights, rollout)
    for name in ("start", "values"):
        if not isinstance(found[name], Tensor) or found[name].shape != mask.shape:
            return named(found[name], oracle.values(weights, rollout), {}, what="values")
    start = torch.where(mask, found["start"], 0.0)
    if start.abs().max() > 0.0:
        return Finding(
            "critic-starts-anywhere", f"a value of {start.abs().max():.3g} before any step"
        )
    late = oracle.hidden(WARM.double, rollout)[:, 1:] @ HEAD
    padded = oracle.hidden(WARM.double, rollout, everywhere=True)[:, :-1] @ HEAD
    moved = {name: weight + 1.0 for name, weight in WARM.double.items()}
    mistakes = {
        "values-one-place-late": late,
        "critic-sees-padding": padded,
        "one-trunk": oracle.hidden(moved, rollout)[:, :-1] @ HEAD,
    }
    return named(
        torch.where(mask, found["values"], 0.0),
        torch.where(mask, oracle.values(weights, rollout), 0.0),
        {name: torch.where(mask, wrong, 0.0) for name, wrong in mistakes.items()},
        what="values of six responses",
    )


def _token_rewards(bench: Bench) -> Finding | None:
    mask, beta = oracle.example()["mask"], 0.3
    scores = torch.tensor([1.0, 0.0, -0.5, 2.0, 0.25, 1.5], dtype=torch.float64)
    log_probs, ref_log_probs = _drawn(1) - 1.5, _drawn(2) - 1.5
    right = kl.rewards_with_kl(scores, log_probs, ref_log_probs, mask, beta=beta)
    penalty = -beta * (log_probs - ref_log_probs)
    inside = torch.where(mask, penalty, 0.0)
    last = torch.arange(5) == mask.sum(dim=1, keepdim=True) - 1
    paid = torch.where(last, scores[:, None], 0.0)
    column = torch.zeros_like(inside)
    column[:, -1] = scores
    d = ref_log_probs - log_probs
    mistakes = {
        "score-in-the-last-column": inside + column,
        "score-on-every-token": inside + torch.where(mask, scores[:, None], 0.0),
        "drift-rewarded": paid - inside,
        "penalty-on-padding": penalty + paid,
        "penalty-at-the-end": paid + torch.where(last, inside.sum(dim=1, keepdim=True), 0.0),
        "k3-in-the-reward": paid - beta * torch.where(mask, d.exp() - 1 - d, 0.0),
    }
    what = "rewards of six responses"
    asked = [scores, log_probs, ref_log_probs, mask, beta]
    if finding := named(bench("call", "ppo", "token_rewards", asked), right, mistakes, what=what):
        return finding
    asked[1] = log_probs.masked_fill(~mask, float("nan"))
    if finding := named(bench("call", "ppo", "token_rewards", asked), right, {}, what=what):
        return Finding("penalty-on-padding", f"{finding.evidence}, with NaN outside the mask")
    return None


def _whiten(bench: Bench) -> Finding | None:
    mask, A = oracle.example()["mask"], _drawn(3) + 0.5
    rows = [masking.masked_whiten(a, m) for a, m in zip(A, mask, strict=True)]
    zeros = A.masked_fill(~mask, 0.0)
    padded = masking.masked_whiten(zeros, torch.ones_like(mask))
    everything = masking.masked_whiten(A, torch.ones_like(mask))
    kept = A[mask]
    return named(
        bench("call", "ppo", "whiten", [A, mask]),
        masking.masked_whiten(A, mask),
        {
            "whitened-with-padding": torch.where(mask, padded, 0.0),
            "padding-in-the-mean": torch.where(mask, everything, 0.0),
            "whitened-by-response": torch.stack(rows),
            "scaled-only": zeros / (kept.var() + 1e-8).sqrt(),
            "centred-only": (A - kept.mean()).masked_fill(~mask, 0.0),
        },
        what="whitened advantages of six responses",
    )


def _update(bench: Bench) -> Finding | None:
    rollout, weights = oracle.example(), _begun(HEAD)
    mask, count = rollout["mask"], rollout["mask"].sum()
    log_ratio, A, targets = _drawn(4) / 2, _drawn(5), _drawn(6)
    table = oracle.distributions(weights, rollout)[:, :-1]
    old = oracle.chosen(table, rollout) - log_ratio
    V = oracle.values(weights, rollout)
    first = (torch.arange(6) < MICRO_BATCH)[:, None]
    parts = torch.where(first, mask[:MICRO_BATCH].sum(), mask[MICRO_BATCH:].sum())

    def direction(policy: Tensor, critic: Tensor) -> Tensor:
        return oracle.flat(
            oracle.gradient(weights, rollout, policy)
            | oracle.value_gradient(weights, rollout, critic)
        )

    by_log_prob, by_value = ratio_derivative(log_ratio, A), V - targets
    each = mask / count
    right = direction(by_log_prob * each, by_value * each)
    mistakes = {
        "token-means-of-micro-batches": (by_log_prob * mask / parts, by_value * mask / parts),
        "untrained-critic": (by_log_prob * each, 0 * by_value),
        "critic-learns-advantages": (by_log_prob * each, (V - A) * each),
        "error-not-squared": (by_log_prob * each, by_value.sign() * each),
        "ratio-of-one": (-A * each, by_value * each),
        "padding-in-the-loss": (by_log_prob / count, by_value / count),
        "last-micro-batch-only": (by_log_prob * each * ~first, by_value * each * ~first),
    }
    found = bench("gradient", "ppo", weights, [rollout, old, A, targets, MICRO_BATCH])
    return named(
        oracle.flat(found),
        right,
        {"gradient-of-before": right + 1.0}
        | {name: direction(*coefficients) for name, coefficients in mistakes.items()},
        what=f"gradient of policy and critic, six responses, {MICRO_BATCH} at a time",
    )


# ---------------------------------------------------------------- what a loop learned from

Step = tuple[Mapping[str, Any], oracle.Weights]


def _steps(bench: Bench) -> list[Step]:
    """Two steps: what each learned from, and the weights that it began with."""
    steps = learning.batches(bench, "ppo")
    begun = [_begun(torch.zeros_like(HEAD)), *(batch["weights"] for batch in steps[:-1])]
    return list(zip(steps, begun, strict=True))


def _each(
    right: Callable[[Mapping[str, Any], oracle.Weights], Tensor],
    key: str,
    mistakes: Callable[[Mapping[str, Any]], Mapping[str, Tensor]] = lambda _: {},
) -> Callable[[Bench], Finding | None]:
    """Whether what a step used under a key is right, where the mask is True."""

    def look(bench: Bench) -> Finding | None:
        for batch, weights in _steps(bench):
            mask = batch["rollout"]["mask"]
            found, expected, *wrong = (
                torch.where(mask, each.double(), 0.0)
                for each in (batch[key], right(batch, weights), *mistakes(batch).values())
            )
            known = dict(zip(mistakes(batch), wrong, strict=True))
            if finding := named(found, expected, known, what=f"{key} of a step"):
                return finding
        return None

    return look


def _rewards(batch: Mapping[str, Any], weights: oracle.Weights) -> Tensor:
    rollout = batch["rollout"]
    return kl.rewards_with_kl(
        batch["scores"].double(),
        oracle.log_probs(weights, rollout),
        oracle.log_probs(WARM.double, rollout),
        rollout["mask"],
        beta=learning.SIZES["ppo"]["beta"],
    )


def _gae(batch: Mapping[str, Any], lam: float = LAM) -> tuple[Tensor, Tensor]:
    rewards, values = batch["rewards"].double(), batch["values"].double()
    return returns.token_gae(rewards, values, batch["rollout"]["mask"], lam=lam)


def _white(batch: Mapping[str, Any], lam: float = LAM) -> Tensor:
    return masking.masked_whiten(_gae(batch, lam)[0], batch["rollout"]["mask"])


def _wrong_rewards(batch: Mapping[str, Any]) -> Mapping[str, Tensor]:
    mask = batch["rollout"]["mask"]
    zeros = torch.zeros(mask.shape, dtype=torch.float64)
    alone = kl.rewards_with_kl(batch["scores"].double(), zeros, zeros, mask, beta=0.0)
    return {"moving-reference": alone}


def _moved(bench: Bench) -> Finding | None:
    """Two updates, recomputed from what the step says it used."""
    for batch, weights in _steps(bench):
        rollout, right = batch["rollout"], dict(weights)
        mask = rollout["mask"]
        old, A, targets = (
            torch.where(mask, batch[key].double(), 0.0)
            for key in ("old_log_probs", "advantages", "returns")
        )
        for _ in range(2):
            c = ratio_derivative(oracle.log_probs(right, rollout) - old, A) * mask / mask.sum()
            error = (oracle.values(right, rollout) - targets) * mask / mask.sum()
            gradient = oracle.gradient(right, rollout, c)
            gradient |= oracle.value_gradient(right, rollout, error)
            right = {name: right[name] - RATE * gradient[name] for name in right}
        moved, expected = (
            (oracle.flat(weights) - oracle.flat(after)) / RATE
            for after in (batch["weights"], right)
        )
        if finding := named(moved, expected, {}, what="sum of two gradients, from the weights"):
            return Finding("one-pass", finding.evidence)
    return None


LAWS: Sequence[Law] = laws(
    "ppo",
    (
        "critic",
        "a value is that of the state before its token; a new critic's is 0",
        "8.3 Actor and critic",
        (),
        _critic,
        3,
    ),
    (
        "token rewards",
        "each token pays for its log-ratio, and the last one gets the score",
        "8.4 The KL penalty",
        (),
        _token_rewards,
        2,
    ),
    ("whitening", "over the tokens of the batch", "8.6 Whitening", (), _whiten, 1),
    (
        "update",
        "the gradient of both networks, the same for every micro-batch",
        "8.7 What the critic learns",
        ("critic",),
        _update,
        3,
    ),
    (
        "scores",
        "scores are those of the responses",
        "16.4 Masks and rewards: what counts, and what it earns",
        (),
        learning.right_rewards("ppo"),
        1,
    ),
    (
        "fresh",
        "each step is sampled by the weights that it changes",
        "7.8 When the sampler is not the learner",
        (),
        learning.sampled_now("ppo"),
        1,
    ),
    (
        "old log-probs",
        "old log-probs are the learner's before its first update",
        "10.6 PPO's clip, without a critic",
        ("fresh",),
        learning.old_log_probs("ppo"),
        1,
    ),
    (
        "reference",
        "the reference is the policy that training began with",
        "8.4 The KL penalty",
        ("token rewards", "scores", "old log-probs"),
        _each(_rewards, "rewards", _wrong_rewards),
        2,
    ),
    (
        "values",
        "values are the critic's before its first update",
        "8.7 What the critic learns",
        ("critic", "fresh"),
        _each(
            lambda batch, weights: oracle.values(weights, batch["rollout"]),
            "values",
            lambda batch: {"no-critic": torch.zeros_like(batch["values"])},
        ),
        1,
    ),
    (
        "targets",
        "the critic's targets are the returns, before whitening",
        "8.6 Whitening",
        ("whitening", "reference", "values"),
        _each(
            lambda batch, _: _gae(batch)[1],
            "returns",
            lambda batch: {
                "targets-after-whitening": _white(batch) + batch["values"],
                "rewards-as-targets": batch["rewards"],
                "whole-returns": _gae(batch, 1.0)[1],
            },
        ),
        1,
    ),
    (
        "advantages",
        "advantages are those of your `gae`, whitened",
        "8.5 Credit for each token",
        ("targets",),
        _each(
            lambda batch, _: _white(batch),
            "advantages",
            lambda batch: {"never-whitened": _gae(batch)[0]},
        ),
        1,
    ),
    (
        "moves",
        "the weights of both move by two updates on the batch",
        "8.9 The training loop",
        ("update", "advantages"),
        _moved,
        2,
    ),
    (
        "curve",
        f"{learning.STEPS} steps of Adam gain {learning.GAIN:.0%} of held-out problems",
        "8.10 PPO with a verifier",
        ("moves",),
        learning.curve("ppo"),
        2,
    ),
)
