"""Laws of the pieces that are pure functions: the estimator, GAE and the clip."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from nbcourse.builds.bench import (
    Bench,
    Law,
    blamed,
    calling,
    close,
    compared,
    named,
    with_each_mistake,
)
from nbcourse.builds.oracle import drawn
from nbcourse.functional import advantages as book
from nbcourse.functional import returns, surrogates
from nbcourse.mistakes.findings import Finding
from nbcourse.toys import bandit, enumeration

LENGTHS = torch.tensor([4, 1, 3, 2, 4, 3])
MASK = torch.arange(4) < LENGTHS[:, None]
A = torch.tensor([1.0, -0.5, 2.0, 0.25, -1.5, 0.75], dtype=torch.float64)


def _derivative(bench: Bench, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The loss, and its derivative by each log-prob."""
    leaf = log_probs.clone().requires_grad_()
    loss = bench("call", "estimator", "policy_gradient", [leaf, A, MASK])
    if not isinstance(loss, Tensor) or loss.shape != () or not loss.requires_grad:
        raise ValueError("policy_gradient has to return a scalar tensor that depends on log_probs")
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def _direction(bench: Bench) -> Finding | None:
    return compared(
        bench,
        "estimator",
        lambda asked: _derivative(asked, drawn(6, 4) - 1.5)[1],
        -A[:, None] * MASK / len(A),
        what="derivative of the loss with respect to each log-prob",
    )


def _poison(bench: Bench) -> Finding | None:
    log_probs = (drawn(6, 4) - 1.5).masked_fill(~MASK, float("nan"))
    loss, found = _derivative(bench, log_probs)
    if loss.isfinite() and close(found, -A[:, None] * MASK / len(A), 1e-6):
        return None
    return blamed("poisoned", f"with NaN after the end of responses the loss is {loss:.3g}")


def _constants(bench: Bench) -> Finding | None:
    advantages = A.clone().requires_grad_()
    loss = bench(
        "call", "estimator", "policy_gradient", [drawn(6, 4).requires_grad_(), advantages, MASK]
    )
    return _leak(loss, advantages, "the advantages", "trained-advantages")


def _leak(loss: Tensor, constant: Tensor, what: str, mistake: str) -> Finding | None:
    """None if no gradient flows into what should be constant."""
    (flowed,) = torch.autograd.grad(loss, [constant], allow_unused=True)
    if flowed is None or not flowed.any():
        return None
    return blamed(mistake, f"{what} get a gradient of up to {flowed.abs().max():.3g}")


def _leave_one_out(bench: Bench) -> Finding | None:
    for seed in range(3):
        rewards = drawn(12, seed=seed)
        finding = compared(
            bench,
            "estimator",
            calling("call", "estimator", "leave_one_out", [rewards, 4]),
            book.leave_one_out(rewards, group_size=4),
            what="advantages of three groups of four",
        )
        if finding:
            return finding
    return None


def _unbiased(bench: Bench) -> Finding | None:
    """The mean over all 27 groups of three pulls is the gradient of J."""
    logits = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
    pays = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    probs = logits.softmax(0)
    mean = torch.zeros(3, dtype=torch.float64)
    for group in enumeration.groups(3, 3):
        leaf = logits.clone().requires_grad_()
        pulled = leaf.log_softmax(0)[group][:, None]
        credit = bench("call", "estimator", "leave_one_out", [pays[group], 3])
        mask = torch.ones(3, 1, dtype=torch.bool)
        loss = bench("call", "estimator", "policy_gradient", [pulled, credit, mask])
        mean -= probs[group].prod() * torch.autograd.grad(loss, leaf)[0]
    return named(mean, bandit.gradient(logits, pays), what="mean gradient of all groups")


def _gae(outside: float, bench: Bench) -> Finding | None:
    cases = ((1.0, 1.0), (1.0, 0.9), (0.9, 0.5), (0.8, 0.0))
    findings = (_gae_of(bench, outside, gamma, lam) for gamma, lam in cases)
    return next(filter(None, findings), None)


def _gae_of(bench: Bench, outside: float, gamma: float, lam: float) -> Finding | None:
    rewards, values = (drawn(6, 4, seed=s).masked_fill(~MASK, 0.0) for s in (1, 2))
    A, R = returns.token_gae(rewards, values, MASK, gamma=gamma, lam=lam)
    given = [x.masked_fill(~MASK, outside) for x in (rewards, values)]
    answer = calling("call", "gae", "gae", [*given, MASK, gamma, lam])
    found = answer(bench)
    if not isinstance(found, tuple | list) or len(found) != 2:
        return blamed("", "expected two tensors, advantages and returns")
    what = f"γ = {gamma}, λ = {lam}"
    wrong = with_each_mistake("gae", lambda asked: answer(asked)[0])
    finding = named(found[0], A, wrong, what=f"advantages for {what}")
    wrong = with_each_mistake("gae", lambda asked: answer(asked)[1])
    finding = finding or named(found[1], R, wrong, what=f"returns for {what}")
    if finding and outside:
        return blamed("value-behind-the-end", finding.evidence)
    return finding


def _clip(bench: Bench) -> Finding | None:
    """The six cases of one clip: the sign of A, times the ratio below, inside and above."""
    for width in (0.2, 0.4):
        right = _six_cases(partial(surrogates.ppo_clip, clip_low=width))
        found = _six_cases(_asked(bench, width))
        if found is None or right is None:
            return blamed("", "expected losses of the shape (2, 6)")
        wrong = with_each_mistake("clip", partial(_six_cases_of, width=width))
        what = f"losses and derivatives of the six cases, clip = {width}"
        if finding := named(found, right, wrong, what=what):
            return finding
    return None


def _six_cases_of(bench: Bench, width: float) -> Tensor | None:
    return _six_cases(_asked(bench, width))


def _six_cases(function: Callable[..., Tensor]) -> Tensor | None:
    """(4, 6) losses above their derivatives by the log-probs; None for another shape."""
    ratios = torch.tensor([0.5, 0.95, 1.6, 0.7, 1.1, 1.3], dtype=torch.float64)
    A = torch.tensor([[2.0], [-1.0]], dtype=torch.float64).expand(2, 6)
    old = drawn(2, 6) - 2.0
    leaf = (old + ratios.log()).requires_grad_()
    losses = function(leaf, old, A)
    if not isinstance(losses, Tensor) or losses.shape != A.shape:
        return None
    return torch.cat([losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]])


def _asked(bench: Bench, width: float) -> Callable[..., Tensor]:
    def asked(log_probs: Tensor, old: Tensor, A: Tensor) -> Tensor:
        return bench("call", "clip", "ppo_clip", [log_probs, old, A, width])

    return asked


def _old_is_constant(bench: Bench) -> Finding | None:
    old = (drawn(2, 3) - 2.0).requires_grad_()
    losses = _asked(bench, 0.2)(
        (drawn(2, 3) - 2.0).requires_grad_(), old, torch.ones(2, 3).double()
    )
    return _leak(losses.sum(), old, "old_log_probs", "trained-old-log-probs")


LAWS: Sequence[Law] = (
    Law(
        "estimator",
        "loss",
        "the loss has the policy gradient, token by token",
        "2.8 Padding, masks and loss aggregation",
        (),
        _direction,
    ),
    Law(
        "estimator",
        "poison",
        "values outside the mask do not matter, not even NaN",
        "2.8 Padding, masks and loss aggregation",
        ("loss",),
        _poison,
    ),
    Law(
        "estimator",
        "constants",
        "advantages are constants",
        "1.4 The loss means nothing",
        ("loss",),
        _constants,
    ),
    Law(
        "estimator",
        "leave-one-out",
        "advantages compare a response with the others of its group",
        "2.5 Which baseline?",
        (),
        _leave_one_out,
    ),
    Law(
        "estimator",
        "unbiased",
        "the mean over all groups is the exact gradient",
        "2.5 Which baseline?",
        ("loss", "leave-one-out"),
        _unbiased,
    ),
    Law(
        "gae",
        "gae",
        "advantages and returns",
        "3.6 GAE: all of them at once",
        (),
        partial(_gae, 0.0),
        2,
    ),
    Law(
        "gae",
        "the end",
        "the value after the last token is 0",
        "3.9 Terminated or truncated: what follows the last step",
        ("gae",),
        partial(_gae, 7.0),
    ),
    Law(
        "clip",
        "six cases",
        "losses and derivatives",
        "5.6 PPO-clip: the clipped surrogate in six cases",
        (),
        _clip,
        2,
    ),
    Law(
        "clip",
        "constants",
        "old log-probs are constants",
        "5.6 PPO-clip: the clipped surrogate in six cases",
        ("six cases",),
        _old_is_constant,
    ),
)  # fmt: skip
