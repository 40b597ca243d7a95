"""What every row of the table of algorithms makes of one witness batch, token by token."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nbcourse.diagnosis.witness import Witness
from nbcourse.rows import needs_of
from nbcourse.training.algorithms import ALGORITHMS, Algorithm, Penalty, Tokens, policy_loss

OF_THE_RUN = ("mask", "values", "sampler_log_probs", "greedy_scores", "step_rewards", "step_ends")


@dataclass(frozen=True)
class Inspection:
    """What a row makes of R responses of at most T tokens. All (R, T), and 0 outside the mask.

    Attributes:
        advantages: what it credits each token with.
        pushes: −∂L/∂log π, its part of the gradient: Σ pushes · ∇log π is the step's direction.
        cut: bool, where there is an advantage and no push: the clip has taken it.
    """

    advantages: Tensor
    pushes: Tensor
    cut: Tensor


def first_groups(witness: Witness, count: int) -> Witness:
    """The first groups of a witness, as a witness of their own.

    Raises:
        ValueError: if it has fewer, or none are asked for.
    """
    size = witness.facts["group_size"]
    there = len(witness["tokens"]) // size
    if not 1 <= count <= there:
        raise ValueError(f"groups is {count}, expected 1 to {there}, the groups of the witness")
    rows = count * size
    facts = witness.facts | {name: witness.facts[name][:rows] for name in ("responses", "pieces")}
    facts |= {name: witness.facts[name][:count] for name in ("prompts", "answers")}
    return Witness(facts, {name: tensor[:rows] for name, tensor in witness.tensors.items()})


def rows_for(witness: Witness) -> dict[str, Algorithm]:
    """The rows all of whose needs the witness meets."""
    there = {"rewards", "group_size", *_offered(witness)}
    return {
        name: row for name, row in ALGORITHMS.items() if there.issuperset(needs_of(row.advantage))
    }


def ratios(witness: Witness) -> Tensor:
    """(R, T) ρ = π/π_old at the last update that the witness has; 1 outside the mask."""
    log_probs, old_log_probs = policies(witness)
    return (log_probs - old_log_probs).masked_fill(~witness["mask"], 0.0).exp()


def inspect(row: Algorithm, witness: Witness) -> Inspection:
    """The row on the responses of the witness, as if they were the whole batch, without a KL.

    It is the package's own loss of that row at the log-probs of the last recorded update, and its
    derivative.

    Args:
        row: one of `rows_for(witness)`, with its default settings.
        witness: any.
    """
    mask, settings = witness["mask"], row.all_settings
    estimate = row.estimate(
        settings,
        rewards=_rewards(witness),
        group_size=witness.facts["group_size"],
        **_offered(witness),
    )
    advantages = estimate.advantages.masked_fill(~mask, 0.0)
    log_probs, old_log_probs = policies(witness)
    log_probs.requires_grad_()
    loss = policy_loss(
        row,
        settings,
        Penalty(),
        Tokens(
            log_probs,
            old_log_probs,
            ref_log_probs=old_log_probs,
            advantages=advantages,
            mask=mask,
            values=_offered(witness).get("values"),
            sampler_log_probs=_offered(witness).get("sampler_log_probs"),
        ),
        max_length=witness.facts["max_new_tokens"],
    )
    (slopes,) = torch.autograd.grad(loss, log_probs)
    pushes = -slopes
    return Inspection(advantages, pushes, (advantages != 0) & (pushes == 0))


def policies(witness: Witness) -> tuple[Tensor, Tensor]:
    """(R, T) each: log-probs at a row's last update, and before the first, in double precision.

    Of a row that took part in no update both are the learner's before the first.
    """
    tables = []
    for name in ("log_probs", "old_log_probs"):
        table = witness["scored_log_probs"].double().clone()
        for prefix in ("", "last_"):
            if witness.has(prefix + name):
                rows = witness[f"{prefix}minibatch"] >= 0
                table[rows] = witness[prefix + name].double()[rows]
        tables.append(table)
    return tables[0], tables[1]


def _rewards(witness: Witness) -> Tensor:
    """(R, T) the score of each response, on its last token."""
    mask = witness["mask"]
    ends = torch.arange(mask.shape[1]) == mask.sum(dim=1, keepdim=True) - 1
    return witness["scores"].double()[:, None] * ends


def _offered(witness: Witness) -> dict[str, Any]:
    there = {name: witness[name] for name in OF_THE_RUN if witness.has(name)}
    return {name: t.double() if t.is_floating_point() else t for name, t in there.items()}
