"""Laws of the piece that trains a policy and its critic: PPO."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from nbcourse.builds import learning, oracle
from nbcourse.builds.bench import (
    WARM,
    Bench,
    Law,
    blamed,
    calling,
    compared,
    laws,
    named,
    with_each_mistake,
)
from nbcourse.builds.learning import MICRO_BATCH, ratio_derivative
from nbcourse.builds.oracle import drawn
from nbcourse.functional import kl, masking, returns
from nbcourse.mistakes.findings import Finding

HEAD = torch.linspace(-1.0, 1.0, 64, dtype=torch.float64) / 8
LAM = 0.95  # the default of `train`


def _critic(bench: Bench) -> Finding | None:
    rollout, weights = oracle.example(), oracle.with_critic(WARM.double, HEAD)
    mask = rollout["mask"]
    found = bench("values", weights, rollout)
    for name in ("start", "values"):
        if not isinstance(found[name], Tensor) or found[name].shape != mask.shape:
            return named(found[name], oracle.values(weights, rollout), what="values")
    start = torch.where(mask, found["start"], 0.0)
    if start.abs().max() > 0.0:
        return blamed(
            "critic-starts-anywhere", f"a value of {start.abs().max():.3g} before any step"
        )
    return compared(
        bench,
        "ppo",
        lambda asked: torch.where(mask, asked("values", weights, rollout)["values"], 0.0),
        torch.where(mask, oracle.values(weights, rollout), 0.0),
        what="values of six responses",
    )


def _token_rewards(bench: Bench) -> Finding | None:
    mask, beta = oracle.example()["mask"], 0.3
    scores = torch.tensor([1.0, 0.0, -0.5, 2.0, 0.25, 1.5], dtype=torch.float64)
    log_probs, ref_log_probs = drawn(6, 5, seed=1) - 1.5, drawn(6, 5, seed=2) - 1.5
    right = kl.rewards_with_kl(scores, log_probs, ref_log_probs, mask, beta=beta)
    what = "rewards of six responses"
    given = [scores, log_probs, ref_log_probs, mask, beta]
    answer = calling("call", "ppo", "token_rewards", given)
    if finding := compared(bench, "ppo", answer, right, what=what):
        return finding
    given[1] = log_probs.masked_fill(~mask, float("nan"))
    if finding := named(bench("call", "ppo", "token_rewards", given), right, what=what):
        return blamed("penalty-on-padding", f"{finding.evidence}, with NaN outside the mask")
    return None


def _whiten(bench: Bench) -> Finding | None:
    mask, A = oracle.example()["mask"], drawn(6, 5, seed=3) + 0.5
    return compared(
        bench,
        "ppo",
        calling("call", "ppo", "whiten", [A, mask]),
        masking.masked_whiten(A, mask),
        what="whitened advantages of six responses",
    )


def _update(bench: Bench) -> Finding | None:
    rollout, weights = oracle.example(), oracle.with_critic(WARM.double, HEAD)
    log_ratio, A, targets = drawn(6, 5, seed=4) / 2, drawn(6, 5, seed=5), drawn(6, 5, seed=6)
    table = oracle.distributions(weights, rollout)[:, :-1]
    old = oracle.chosen(table, rollout) - log_ratio
    used = {"rollout": rollout, "old_log_probs": old, "advantages": A, "returns": targets}

    def direction(rows: Tensor) -> Tensor:
        return oracle.flat(_gradient(used, weights, rows))

    def answer(asked: Bench) -> Tensor:
        given = [rollout, old, A, targets, MICRO_BATCH]
        return oracle.flat(asked("gradient", "ppo", weights, given))

    right, last = direction(torch.ones(6, 1)), (torch.arange(6) >= MICRO_BATCH)[:, None]
    known = [("last-micro-batch-only", direction(last)), ("idle", torch.zeros_like(right))]
    return named(
        answer(bench),
        right,
        chain(with_each_mistake("ppo", answer), known),
        what=f"gradient of policy and critic, six responses, {MICRO_BATCH} at a time",
    )


# ---------------------------------------------------------------- what a loop learned from

Batch = Mapping[str, Any]


def _each(
    right: Callable[[Batch], Tensor],
    key: str,
    mistakes: Callable[[Batch], Mapping[str, Tensor]],
    bench: Bench,
) -> Finding | None:
    """Whether what a step used under a key is right, where the mask is True."""
    for batch in learning.batches(bench, "ppo"):
        mask = batch["rollout"]["mask"]
        found, expected, *wrong = (
            torch.where(mask, each.double(), 0.0)
            for each in (batch[key], right(batch), *mistakes(batch).values())
        )
        known = zip(mistakes(batch), wrong, strict=True)
        if finding := named(found, expected, known, what=f"{key} of a step"):
            return finding
    return None


def _rewards(batch: Batch) -> Tensor:
    rollout = batch["rollout"]
    return kl.rewards_with_kl(
        batch["scores"].double(),
        oracle.log_probs(batch["begun"], rollout),
        oracle.log_probs(WARM.double, rollout),
        rollout["mask"],
        beta=learning.SIZES["ppo"]["beta"],
    )


def _gae(batch: Batch, lam: float = LAM) -> tuple[Tensor, Tensor]:
    rewards, values = batch["rewards"].double(), batch["values"].double()
    return returns.token_gae(rewards, values, batch["rollout"]["mask"], lam=lam)


def _white(batch: Batch) -> Tensor:
    return masking.masked_whiten(_gae(batch)[0], batch["rollout"]["mask"])


def _wrong_rewards(batch: Batch) -> Mapping[str, Tensor]:
    mask = batch["rollout"]["mask"]
    zeros = torch.zeros(mask.shape, dtype=torch.float64)
    alone = kl.rewards_with_kl(batch["scores"].double(), zeros, zeros, mask, beta=0.0)
    return {"moving-reference": alone}


def _gradient(batch: Batch, weights: oracle.Weights, rows: Tensor | bool = True) -> oracle.Weights:
    """Of what a step used, or the share that some rows have in it."""
    rollout = batch["rollout"]
    mask = rollout["mask"]
    old, A, targets = (
        torch.where(mask, batch[key].double(), 0.0)
        for key in ("old_log_probs", "advantages", "returns")
    )
    c = ratio_derivative(oracle.log_probs(weights, rollout) - old, A) * mask * rows / mask.sum()
    error = (oracle.values(weights, rollout) - targets) * mask * rows / mask.sum()
    return oracle.gradient(weights, rollout, c) | oracle.value_gradient(weights, rollout, error)


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
    ("whitening", "over the tokens of the batch", "8.6 Whitening", (), _whiten),
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
        partial(learning.right_rewards, "ppo"),
    ),
    learning.fresh("ppo", ()),
    learning.old_ones("ppo", ("fresh",), 1),
    (
        "reference",
        "the reference is the policy that training began with",
        "8.4 The KL penalty",
        ("token rewards", "scores", "old log-probs"),
        partial(_each, _rewards, "rewards", _wrong_rewards),
        2,
    ),
    (
        "values",
        "values are the critic's before its first update",
        "8.7 What the critic learns",
        ("critic", "fresh"),
        partial(
            _each,
            lambda batch: oracle.values(batch["begun"], batch["rollout"]),
            "values",
            lambda batch: {"no-critic": torch.zeros_like(batch["values"])},
        ),
    ),
    (
        "targets",
        "the critic's targets are the returns, before whitening",
        "8.6 Whitening",
        ("whitening", "reference", "values"),
        partial(
            _each,
            lambda batch: _gae(batch)[1],
            "returns",
            lambda batch: {
                "targets-after-whitening": _white(batch) + batch["values"],
                "rewards-as-targets": batch["rewards"],
                "whole-returns": _gae(batch, 1.0)[1],
            },
        ),
    ),
    (
        "advantages",
        "advantages are those of your `gae`, whitened",
        "8.5 Credit for each token",
        ("targets",),
        partial(_each, _white, "advantages", lambda batch: {"never-whitened": _gae(batch)[0]}),
    ),
    (
        "moves",
        "the weights of both move by two updates on the batch",
        "8.9 The training loop",
        ("update", "advantages"),
        partial(learning.moves, "ppo", _gradient, learning.TWO_GRADIENTS, "one-pass"),
        2,
    ),
    learning.gains("ppo", "8.10 PPO with a verifier", ("moves",)),
)
