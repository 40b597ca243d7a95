"""Names and shapes in which a loss may take its arguments: this book's, and those of libraries.

A loss that was copied out of a library, or written for it, takes what that library hands to its
losses. Looked up in

- TRL 1.10.0.dev0, commit f2cd577, `trl/trainer/grpo_trainer.py`, `_compute_loss`, and the same
  function of release 1.16.0: advantages (B,), masks of integers;
- verl 0.10.0.dev, commit 1dda039, `verl/trainer/ppo/core_algos.py`,
  `compute_policy_loss_vanilla`, `kl_penalty` and the functions for advantages: advantages
  (B, T), masks of integers, the reward at the last token, prompts by an index of objects;
- OpenRLHF 0.11.0, commit 3c3be62, `openrlhf/models/loss.py`, `PolicyLoss.forward`, and
  `openrlhf/trainer/ppo_utils/experience.py`: advantages (B, T), boolean masks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

Quantities = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """One argument of a loss.

    Attributes:
        needs: the quantities of `LossInputs` that it is made of.
        value: makes it of them.
    """

    needs: tuple[str, ...]
    value: Callable[[Quantities], Any]


def _same(name: str) -> Quantity:
    return Quantity((name,), lambda given: given[name])


def _integers(given: Quantities) -> Tensor:
    mask: Tensor = given["mask"]
    return mask.long()


def _of_response(given: Quantities) -> Tensor:
    advantages: Tensor = given["advantages"]
    return advantages[:, 0]


def _at_the_last_token(given: Quantities) -> Tensor:
    mask: Tensor = given["mask"]
    columns = torch.arange(mask.shape[1])
    last = torch.where(mask, columns, -1).amax(dim=1, keepdim=True)
    return torch.where(columns == last, given["rewards"][:, None], 0.0)


def _prompts(given: Quantities) -> np.ndarray[Any, Any]:
    size = given["group_size"]
    return np.array([f"prompt {i // size}" for i in range(len(given["mask"]))], dtype=object)


OFFERED = (
    "log_probs",
    "old_log_probs",
    "ref_log_probs",
    "advantages",
    "rewards",
    "mask",
    "values",
    "group_size",
)
BOOK = "book"
CONVENTIONS: Mapping[str, Mapping[str, Quantity]] = MappingProxyType(
    {
        BOOK: {name: _same(name) for name in OFFERED},
        "trl": {
            "per_token_logps": _same("log_probs"),
            "old_per_token_logps": _same("old_log_probs"),
            "ref_per_token_logps": _same("ref_log_probs"),
            "completion_mask": Quantity(("mask",), _integers),
            "mask": Quantity(("mask",), _integers),
            "advantages": Quantity(("advantages",), _of_response),
            "rewards": _same("rewards"),
            "num_generations": _same("group_size"),
            "num_items_in_batch": Quantity(("mask",), lambda given: given["mask"].sum()),
        },
        "verl": {
            "log_prob": _same("log_probs"),
            "old_log_prob": _same("old_log_probs"),
            "ref_log_prob": _same("ref_log_probs"),
            "response_mask": Quantity(("mask",), _integers),
            "advantages": _same("advantages"),
            "token_level_rewards": Quantity(("rewards", "mask"), _at_the_last_token),
            "index": Quantity(("group_size", "mask"), _prompts),
        },
        "openrlhf": {
            "log_probs": _same("log_probs"),
            "old_log_probs": _same("old_log_probs"),
            "base_action_log_probs": _same("ref_log_probs"),
            "action_mask": _same("mask"),
            "advantages": _same("advantages"),
            "rewards": _same("rewards"),
            "values": _same("values"),
        },
    }
)
