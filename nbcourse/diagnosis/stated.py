"""What a run states about itself in a witness, and when two tables are the same."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from nbcourse.diagnosis.witness import Witness
from nbcourse.functional import kl
from nbcourse.mistakes.findings import CERTAIN, Finding, seen
from nbcourse.training.algorithms import ALGORITHMS, Algorithm, Penalty

SAME = 1e-4  # of the largest number in a table: float32, summed in another order
# Largest difference that two ways of computing the same log-probs make, by precision, in nats.
ROUNDING = {"float32": 1e-3, "float16": 0.2, "bfloat16": 1.5}
# And their mean k3, in nats a token. Of recorded sound runs it is at most 2e-8 in float32 (where no
# token is off by more than 2e-4) and 6e-4 in bfloat16; one token among millions is off by 5 there.
# A sampler at 0.7 of its temperature makes .06, one that cuts off a fifth of the mass .008.
DRIFT = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 5e-3}

FALSE_ALARM = 1e-6  # of each statistical test
LARGEST_VOCABULARY = 2**18  # of the open models of 2026


def certain(cause: str, witness: Witness, /, *, way: str = "", **numbers: Any) -> Finding:
    """What a recomputation of a step shows, and the cause with which it agrees."""
    return seen(cause, CERTAIN + way, step=witness.step, **numbers)


def row_of(witness: Witness) -> Algorithm | None:
    """The row of the table of algorithms; None if it is not made of the package's functions."""
    parts = witness.facts.get("parts")
    if witness.facts.get("not_followed"):
        return None
    if parts is None:
        return ALGORITHMS.get(witness.facts.get("algorithm", ""))
    functions: dict[str, Callable[..., Any]] = {
        function.__name__: function
        for row in ALGORITHMS.values()
        for function in (row.advantage, row.surrogate)
    }
    if not {parts["advantage"], parts["surrogate"]} <= functions.keys():
        return None
    return Algorithm(
        advantage=functions[parts["advantage"]],
        surrogate=functions[parts["surrogate"]],
        aggregation=parts["aggregation"],
        source=witness.facts["algorithm"],
    )


def token_rewards_of(witness: Witness) -> Tensor:
    """(R, T) as the run had them; of a run that has none, the score on the last token."""
    if witness.has("token_rewards"):
        return witness["token_rewards"]
    last = witness["mask"].sum(dim=1, keepdim=True) - 1
    return witness["scores"][:, None] * (torch.arange(witness["mask"].shape[1]) == last)


def penalty_of(witness: Witness) -> Penalty:
    """The KL penalty as the run states it."""
    return Penalty(**witness.facts["penalty"])


def rounding(witness: Witness) -> float:
    """By how many nats two passes of the same weights may differ, in the run's precision."""
    return ROUNDING[witness.facts.get("precision", "float32")]


def vocabulary_of(stated: Mapping[str, Any]) -> int:
    """How many tokens are possible: as it is stated, or more than any open model has."""
    number = stated.get("vocabulary")
    return number if isinstance(number, int) else LARGEST_VOCABULARY


def apart(witness: Witness, drew: Tensor, scored: Tensor, mask: Tensor) -> bool:
    """Whether two passes over the same tokens differ by more than rounding makes.

    In float32 one token shows it. In a coarse precision one token among many may be far off, so the
    mean k3 decides.
    """
    precision = witness.facts.get("precision", "float32")
    if precision == "float32" or not mask.any():
        return largest(drew - scored, mask) > rounding(witness)
    return kl.estimate(drew, scored, "k3")[mask].mean().item() > DRIFT[precision]


def whole(witness: Witness) -> bool:
    """Whether the witness holds all responses of its step."""
    return witness.facts["batch"]["rows"] == len(witness["tokens"])


def sampled(witness: Witness) -> Tensor:
    """(R, T) tokens that were sampled, whatever the run's mask says of them."""
    return torch.arange(witness["tokens"].shape[1]) < witness["lengths"][:, None]


def close(one: Tensor, expected: Tensor, mask: Tensor | None = None) -> bool:
    """Whether two tables are the same but for rounding."""
    if mask is not None:
        one, expected = one[mask], expected[mask]
    if not one.numel():
        return True
    scale = max(expected.abs().max().item(), 1e-6)
    return (one - expected).abs().max().item() <= SAME * scale


def largest(difference: Tensor, mask: Tensor) -> float:
    """The largest distance from 0 under a mask; 0 if the mask is empty."""
    return difference[mask].abs().max().item() if mask.any() else 0.0
