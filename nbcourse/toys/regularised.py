"""Reward against KL on sequences that can be listed: the optimum is known, so is every error.

For J_β(π) = E[R] − β KL(π‖π_ref) the best policy is π*(y) ∝ π_ref(y) exp(R(y)/β), and what any
other one misses is J_β(π*) − J_β(π) = β KL(π‖π*). Training takes several steps on each batch. The
part that earns rewards is the same for all and has no bias, so whatever keeps a policy away from π*
comes from the form in which the KL was written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from nbcourse.functional import kl
from nbcourse.functional.aggregation import aggregate
from nbcourse.functional.arguments import Positive, checked, one_of
from nbcourse.toys import bandit
from nbcourse.toys.sequences import SequenceSpace, expected_return


def optimum(space: SequenceSpace, ref_logits: Tensor, rewards: Tensor, *, beta: float) -> Tensor:
    """The policy that maximises J_β: π*(y) ∝ π_ref(y) exp(R(y)/β), as a table like any other.

        log π*(a|s) = log Σ_{y through s, a} π*(y) − log Σ_{y through s} π*(y)

    Args:
        space: the sequences.
        ref_logits: (S, V) logits of the reference.
        rewards: (N,) one for each sequence.
        beta: β > 0.

    Returns:
        (S, V) logits, which are log-probabilities: `space.probs` of them is π*.

    Raises:
        ValueError: if a shape does not fit, or beta is not positive, or so small that some prefix
            has no probability left in the arithmetic of the rewards.

    Book: equation (eq-kl-optimum).
    """
    probs = bandit.kl_optimum(_of_sequences(space, ref_logits), rewards, beta=beta)
    table = torch.zeros_like(ref_logits)
    table.index_put_(
        (space.states[space.mask], space.tokens[space.mask]),
        probs[:, None].expand(space.mask.shape)[space.mask],
        accumulate=True,
    )
    if not (table.sum(dim=1) > 0).all():
        raise ValueError(f"beta is {beta}, expected a larger number: some prefixes underflow")
    return table.log().log_softmax(dim=1)


def objective(
    space: SequenceSpace, logits: Tensor, ref_logits: Tensor, rewards: Tensor, *, beta: float
) -> Tensor:
    """J_β = E[R] − β KL(π‖π_ref), a differentiable scalar.

    Book: equation (eq-kl-objective).
    """
    return expected_return(space, logits, rewards) - beta * divergence(space, logits, ref_logits)


def divergence(space: SequenceSpace, logits: Tensor, ref_logits: Tensor) -> Tensor:
    """KL(π‖π_ref) over whole sequences, a differentiable scalar in nats."""
    return kl.exact(_of_sequences(space, logits), _of_sequences(space, ref_logits))


def _of_sequences(space: SequenceSpace, logits: Tensor) -> Tensor:
    return space.log_probs(logits).sum(dim=1)


# ---------------------------------------------------------------- ways to write the KL down


@dataclass(frozen=True)
class Batch:
    """All sequences, as the policy that sampled and the one that learns see them.

    Attributes:
        space: the sequences.
        logits: (S, V) of the policy that learns.
        ref_logits: (S, V).
        log_probs: (N, T) of the policy that learns, with gradient.
        old_log_probs: (N, T) of the policy that sampled.
        ref_log_probs: (N, T).
        mask: (N, T) bool.
    """

    space: SequenceSpace
    logits: Tensor
    ref_logits: Tensor
    log_probs: Tensor
    old_log_probs: Tensor
    ref_log_probs: Tensor
    mask: Tensor

    @classmethod
    def of(
        cls, space: SequenceSpace, logits: Tensor, old_logits: Tensor, ref_logits: Tensor
    ) -> "Batch":
        """From the tables of the three policies, (S, V) each; gradients flow to the first."""
        own, old, ref = map(space.log_probs, (logits, old_logits, ref_logits))
        return cls(space, logits, ref_logits, own, old, ref, space.mask)

    @cached_property
    def conditional_kl(self) -> Tensor:
        """(N, T) KL(π‖π_ref) over the vocabulary in the state of each token, with gradient.

        It is 0 behind the end.
        """
        per_state = kl.exact(self.logits, self.ref_logits)
        return per_state[self.space.states].masked_fill(~self.mask, 0.0)

    def weighted(self, returns: Tensor) -> Tensor:
        """Mean of π(y)/π_old(y) · return, less the mean return of the policy that sampled.

        With the weight of the whole sequence the gradient of E[return] has no bias, however far
        the policy has moved.
        """
        baseline = self.old_log_probs.sum(dim=1).exp() @ returns
        ratio = (self.log_probs - self.old_log_probs).sum(dim=1).exp()
        return (ratio * (returns - baseline)).mean()


Form = Callable[[Batch], Tensor]
"""What is added to the loss, times β: a mean over responses, each with a term of its own."""


def _nothing(batch: Batch) -> Tensor:
    return 0.0 * batch.log_probs.sum()


def _in_reward(kind: str, *, recomputed: bool = False) -> Form:
    def form(batch: Batch) -> Tensor:
        priced = batch.log_probs.detach() if recomputed else batch.old_log_probs
        return batch.weighted(kl.estimate(priced, batch.ref_log_probs, kind).sum(dim=1))

    return form


def _in_loss(kind: str) -> Form:
    def form(batch: Batch) -> Tensor:
        estimate = kl.estimate(batch.log_probs, batch.ref_log_probs, kind)
        return aggregate(estimate, batch.mask, "seq-mean-token-sum")

    return form


def _square_of_the_sequence(batch: Batch) -> Tensor:
    of_sequences = (batch.log_probs.sum(dim=1), batch.ref_log_probs.sum(dim=1))
    return kl.estimate(*of_sequences, "k2").mean()


def _under_weight(weight: str) -> Form:
    def form(batch: Batch) -> Tensor:
        return kl.gradient_surrogate(
            batch.log_probs,
            batch.ref_log_probs,
            batch.mask,
            old_log_probs=batch.old_log_probs,
            weight=weight,
        )

    return form


def _exact_under_weight(batch: Batch) -> Tensor:
    return kl.exact_surrogate(
        batch.log_probs, batch.conditional_kl, batch.mask, old_log_probs=batch.old_log_probs
    )


FORMS: dict[str, Form] = {
    "none": _nothing,
    "k1 in reward": _in_reward("k1"),
    "k1 in reward, recomputed": _in_reward("k1", recomputed=True),
    "k3 in reward": _in_reward("k3"),
    "k1 in loss": _in_loss("k1"),
    "k2 in loss": _in_loss("k2"),
    "k3 in loss": _in_loss("k3"),
    "k2 of the sequence in loss": _square_of_the_sequence,
    "k3, token weight": _under_weight("token"),
    "k3, prefix weight": _under_weight("prefix"),
    "exact, prefix weight": _exact_under_weight,
}
"""In the reward: as PPO does it, with the KL of the policy that sampled; recomputed: with that of
the policy that learns, at each step. In the loss: token sums without a weight; k3 is GRPO's. Token
weight: DeepSeek-V3.2, TRL's `use_bias_correction_kl`."""


# ---------------------------------------------------------------- training


def gradient(
    space: SequenceSpace,
    logits: Tensor,
    old_logits: Tensor,
    ref_logits: Tensor,
    rewards: Tensor,
    shares: Tensor,
    *,
    form: str,
    beta: float,
) -> Tensor:
    """Which way a batch pulls the policy: the gradient of −loss, so that a step adds it.

        loss = Σ_y share(y) [−ρ(y) (R(y) − b) + β · KL term of y],      ρ = π/π_old,  b = E_old[R]

    Args:
        space: the sequences.
        logits: (S, V) of the policy that learns.
        old_logits: (S, V) of the policy that sampled.
        ref_logits: (S, V).
        rewards: (N,).
        shares: (N,) the share that each sequence has in the batch. With the probabilities π_old
            the result is exact: the mean over all batches, of which an endless one is an example.
        form: one of `FORMS`.
        beta: β ≥ 0.

    Returns:
        (S, V).

    Raises:
        ValueError: if the form is unknown or a shape does not fit.
    """
    one_of(form, tuple(FORMS), name="form")
    logits = logits.detach().requires_grad_()
    batch = Batch.of(space, logits, old_logits, ref_logits)
    # The loss is a mean, in which each sequence has the share 1/N, and not that of the batch.
    scale = len(shares) * shares[:, None]
    loss = beta * FORMS[form](batch) - batch.weighted(rewards)
    for name in {"log_probs", "conditional_kl"} & vars(batch).keys():  # few forms ask for the KL
        getattr(batch, name).register_hook(lambda slope: scale * slope)
    return -torch.autograd.grad(loss, logits)[0]


@checked
def optimise(  # noqa: PLR0913 - a problem, a form, and the settings of the ascent
    space: SequenceSpace,
    ref_logits: Tensor,
    rewards: Tensor,
    *,
    form: str,
    beta: float,
    learning_rate: Positive,
    iterations: Annotated[int, Ge(1)],
    inner_steps: Annotated[int, Ge(1)],
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Start at the reference and ascend J_β, with several steps on each batch.

    The step size falls on a line from `learning_rate` to 0, so that at the end what is left of the
    noise averages out and what is systematic stays.

    Args:
        space: the sequences.
        ref_logits: (S, V), reference and first policy.
        rewards: (N,).
        form: one of `FORMS`.
        beta: β ≥ 0.
        learning_rate: of the first step, > 0.
        iterations: batches, ≥ 1.
        inner_steps: steps on each batch, ≥ 1.
        batch_size: responses in a batch; None for the limit of endless batches, without noise.
        generator: of the samples; not with batch_size = None.

    Returns:
        (iterations + 1, S, V): the logits before the first batch and after each.

    Raises:
        ValueError: if the form is unknown, a number is out of range, or generator and batch_size
            do not go together.
    """
    if (batch_size is None) != (generator is None):
        raise ValueError(
            f"batch_size is {batch_size} and generator is {generator}: expected both or neither"
        )
    logits = ref_logits
    path = [logits]
    for iteration in range(iterations):
        old_logits = logits
        shares = space.probs(old_logits)
        if batch_size is not None and generator is not None:
            rows = space.sample(old_logits, batch_size, generator)
            shares = torch.bincount(rows, minlength=len(shares)).double() / batch_size
        step = learning_rate * (1 - iteration / iterations)
        for _ in range(inner_steps):
            logits = logits + step * gradient(
                space, logits, old_logits, ref_logits, rewards, shares, form=form, beta=beta
            )
        path.append(logits)
    return torch.stack(path)
