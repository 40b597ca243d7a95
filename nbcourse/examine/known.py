"""Losses that have a name: the rows of the table, and which of them another is nearest to."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError, did_you_mean
from nbcourse.examine import probes
from nbcourse.examine.probes import MIXED, batch, without_reference
from nbcourse.examine.subject import OFFERED, Subject
from nbcourse.functional.kl import rewards_with_kl
from nbcourse.training.algorithms import ALGORITHMS, Penalty, policy_loss

BETA = 0.1  # of a row that was published with a KL
LONGEST = 4000  # of a row that divides by the longest possible response


def row(name: str, *, beta: float = BETA) -> Subject:
    """A row of the table as one loss of the rewards; a critic's values are 0 in every state.

    Raises:
        ValueError: if there is no such row.
    """
    if name not in ALGORITHMS:
        raise UserError(
            f"the row is {name!r}, expected one of {', '.join(ALGORITHMS)}"
            f"{did_you_mean(name, ALGORITHMS)}"
        )
    algorithm = ALGORITHMS[name]
    settings = algorithm.all_settings
    placement = algorithm.kl if beta > 0 else "none"
    penalty = Penalty(placement, algorithm.kl_estimator, beta)

    def loss(
        log_probs: Tensor,
        rewards: Tensor,
        mask: Tensor,
        group_size: int,
        *,
        old_log_probs: Tensor | None = None,
        ref_log_probs: Tensor | None = None,
        values: Tensor | None = None,
    ) -> Tensor:
        old_log_probs = (log_probs if old_log_probs is None else old_log_probs).detach()
        ref_log_probs = (log_probs if ref_log_probs is None else ref_log_probs).detach()
        per_token = rewards_with_kl(
            rewards,
            old_log_probs,
            ref_log_probs,
            mask,
            beta=beta if placement == "reward" else 0.0,
        )
        estimate = algorithm.estimate(
            settings,
            rewards=per_token,
            mask=mask,
            group_size=group_size,
            values=values,
            greedy_scores=torch.zeros_like(rewards),
            average=0.0,
            step_rewards=rewards[:, None],  # the answer is the only step
            step_ends=mask.sum(dim=1, keepdim=True) - 1,
        )
        return policy_loss(
            algorithm,
            settings,
            penalty,
            log_probs=log_probs,
            old_log_probs=old_log_probs,
            ref_log_probs=ref_log_probs,
            advantages=estimate.advantages,
            mask=mask,
            max_length=LONGEST,
            values=values,
        )

    reads = {"log_probs", "rewards", "mask", "group_size"}
    reads |= {name for name in ("old_log_probs", "values") if algorithm.needs(name)}
    reads |= {"ref_log_probs"} if placement != "none" or algorithm.needs("ref_log_probs") else set()
    reads |= {"old_log_probs"} if placement in ("reward", "surrogate") else set()
    return Subject(name, loss, tuple(name for name in OFFERED if name in reads))


def nearest(subject: Subject) -> str:
    """The row that does most of what this loss does, as far as small batches can tell."""
    found = features(subject)
    return max(ALGORITHMS, key=lambda name: _likeness(found, _features_of_row(name)))


def features(subject: Subject) -> dict[str, Any]:
    """What tells rows apart, most telling first."""
    ratios = [0.01, 0.5, 0.9, 1.1, 1.5, 100.0]
    one = without_reference(batch([2] * 6, MIXED, group_size=3))
    found: dict[str, Any] = {
        "average": probes.average(subject),
        "positive": _rounded(probes.ratio_weights(subject, 1, ratios)),
        "negative": _rounded(probes.ratio_weights(subject, -1, ratios)),
        "sequence": probes.ratio_of_the_sequence(subject),
    }
    if "rewards" in subject.takes:
        found |= {
            "influence": probes.influence(subject),
            "spread": probes.spread_is_divided_out(subject),
            "scale": _rounded([subject.weights(one)[0, 0].item()]),
        }
    return found


@cache
def _features_of_row(name: str) -> Mapping[str, Any]:
    return features(row(name, beta=0.0))


def _likeness(found: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How many features agree, the scale of the whole least."""
    return sum(
        (0.5 if key == "scale" else 1.0) * (other.get(key) == value) for key, value in found.items()
    )


def _rounded(values: list[float]) -> tuple[float, ...]:
    return tuple(round(value, 3) + 0.0 for value in values)
