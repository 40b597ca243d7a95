"""Names and shapes in which a loss may take its arguments: this book's, and those of libraries.

A loss that was copied out of a library, or written for it, takes what that library hands to its
losses. Looked up in

- TRL 1.10.0.dev0, commit f2cd577, `trl/trainer/grpo_trainer.py`, `_compute_loss`, and the same
  function of release 1.16.0: advantages (B,), masks of integers;
- verl 0.10.0.dev, commit 1dda039, `verl/trainer/ppo/core_algos.py`,
  `compute_policy_loss_vanilla`, `kl_penalty` and the functions for advantages: advantages
  (B, T), masks of integers, the reward at the last token, prompts by an index of objects;
- OpenRLHF 0.11.0, commit 3c3be62, `openrlhf/models/loss.py`, `PolicyLoss.forward`, and
  `openrlhf/trainer/ppo_utils/experience.py`: advantages (B, T), boolean masks;
- AReaL, commit 4aef98d of 2026-05-21, `areal/utils/functional/functional.py`,
  `ppo_actor_loss_fn`: `old_logprobs` are the sampler's, `proximal_logprobs` the learner's own;
- SkyRL, commit a956457 of 2026-08-21, `skyrl/backends/skyrl_train/utils/ppo_utils.py`,
  `ppo_policy_loss` and its neighbours;
- slime, commit 624b824 of 2026-08-21, `slime/utils/ppo_utils.py`, `compute_policy_loss`, which is
  handed log π_old − log π as `ppo_kl`, and `slime/backends/megatron_utils/loss.py`;
- NeMo-RL, commit 7ea279a of 2026-08-22, `nemo_rl/algorithms/loss/loss_functions.py`,
  `ClippedPGLossFn`: a dictionary `data` whose rows begin with a column that holds no token;
- prime-rl, commit 559b447 of 2026-08-21, `src/prime_rl/trainer/rl/loss.py`: `inference_logprobs`
  of the policy that sampled, and no other old one; `inputs`, which holds rows laid end to end;
- open-instruct, commit e6c3044 of 2026-08-20, `open_instruct/grpo_utils.py`,
  `compute_grpo_loss`, which is handed the ratio;
- ms-swift, commit 3602360 of 2026-08-22, `swift/rlhf_trainers/grpo_trainer.py`,
  `_compute_loss_and_metrics`: as TRL, but advantages (B, T), boolean masks, and a flag for answers
  that were cut off.

What people's own programs call them is read by `script_names`, in five layouts with masks of
integers: "scripts" has advantages (B,), as TRL, and "scripts-by-token" (B, T); "scripts-by-sum" and
"scripts-by-mean" have log-probs of whole responses (B,), and "scripts-by-group" has an axis for
prompts, (P, G, T) and (P, G).

"packed" is no library's: the responses of a batch in one row (1, N) without padding, under the
names of this book, and where they end, as `cu_seqlens`, `position_ids` or `segment_ids`.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.examine.script_names import LAYOUTS, OFFERED, Quantities, Quantity
from nbcourse.examine.script_names import table as read

__all__ = ["BOOK", "CONVENTIONS", "LAYOUTS", "NAMES", "OFFERED", "on_offer", "table"]


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


def _prompts(given: Quantities) -> Any:
    """verl's, an array of NumPy: who examines a loss of verl has NumPy, the core does not."""
    import numpy as np

    size = given["group_size"]
    return np.array([f"prompt {i // size}" for i in range(len(given["mask"]))], dtype=object)


def _ratio_of(above: str, below: str) -> Quantity:
    return Quantity((above, below), lambda given: (given[above] - given[below]).exp())


def _whole_responses(given: Quantities) -> Tensor:
    return given["mask"].any(dim=1)


def _together(needs: Mapping[str, str], **others: Callable[[Quantities], Any]) -> Quantity:
    """Several quantities in one argument, by their names there, one row after the other."""

    def made(given: Quantities) -> SimpleNamespace:
        flat = {theirs: given[ours].reshape(-1) for theirs, ours in needs.items()}
        return SimpleNamespace(**flat, **{name: value(given) for name, value in others.items()})

    return Quantity(tuple(needs.values()), made)


def _behind_a_column(needs: Mapping[str, str]) -> Quantity:
    """The same in a dictionary, with a column before the first token."""

    def made(given: Quantities) -> dict[str, Any]:
        rows = {theirs: pad(given[ours], (1, 0)) for theirs, ours in needs.items()}
        return {**rows, "sample_mask": _whole_responses(given)}

    return Quantity(tuple(needs.values()), made)


def _held(mask: Tensor) -> Tensor:
    """Places up to the last token of each response."""
    return mask.flip(1).cumsum(dim=1).flip(1) > 0


def _end_to_end(made: Callable[[Tensor], Tensor]) -> Quantity:
    """One row of what is (B, T) where it is made of the mask."""
    return Quantity(("mask",), lambda given: made(given["mask"])[_held(given["mask"])][None])


def _packed(name: str) -> Quantity:
    needs = tuple(dict.fromkeys((name, "mask")))
    return Quantity(needs, lambda given: given[name][_held(given["mask"])][None])


def _boundaries(given: Quantities) -> Tensor:
    return pad(_held(given["mask"]).sum(dim=1).cumsum(dim=0), (1, 0))


def _numbered(mask: Tensor, dim: int) -> Tensor:
    return torch.ones_like(mask, dtype=torch.long).cumsum(dim=dim)


BOOK = "book"
_TRL = {
    "per_token_logps": _same("log_probs"),
    "old_per_token_logps": _same("old_log_probs"),
    "ref_per_token_logps": _same("ref_log_probs"),
    "rewards": _same("rewards"),
    "entropies": _same("entropy"),
    "num_generations": _same("group_size"),
    "num_items_in_batch": _same("batch_tokens"),
}
_NEMO = {
    "prev_logprobs": "old_log_probs",
    "generation_logprobs": "sampler_log_probs",
    "reference_policy_logprobs": "ref_log_probs",
    "advantages": "advantages",
    "token_mask": "mask",
}
_PRIME = {
    "trainer_logprobs": "log_probs",
    "inference_logprobs": "old_log_probs",
    "ref_logprobs": "ref_log_probs",
    "advantages": "advantages",
    "loss_mask": "mask",
}
_GROUPS = {"index": Quantity(("group_size", "mask"), _prompts)}
CONVENTIONS: Mapping[str, Mapping[str, Quantity]] = MappingProxyType(
    {
        BOOK: {name: _same(name) for name in OFFERED},
        "trl": {
            **_TRL,
            "sampling_per_token_logps": _same("sampler_log_probs"),
            "completion_mask": Quantity(("mask",), _integers),
            "mask": Quantity(("mask",), _integers),
            "advantages": Quantity(("advantages",), _of_response),
        },
        "verl": {
            "log_prob": _same("log_probs"),
            "old_log_prob": _same("old_log_probs"),
            "ref_log_prob": _same("ref_log_probs"),
            "rollout_log_prob": _same("sampler_log_probs"),
            "rollout_log_probs": _same("sampler_log_probs"),
            "rollout_is_weights": _ratio_of("old_log_probs", "sampler_log_probs"),
            "response_mask": Quantity(("mask",), _integers),
            "advantages": _same("advantages"),
            "token_level_rewards": Quantity(("rewards", "mask"), _at_the_last_token),
            "values": _same("values"),
            "entropy": _same("entropy"),
            **_GROUPS,
        },
        "openrlhf": {
            "log_probs": _same("log_probs"),
            "old_log_probs": _same("old_log_probs"),
            "rollout_log_probs": _same("sampler_log_probs"),
            "base_action_log_probs": _same("ref_log_probs"),
            "action_mask": _same("mask"),
            "advantages": _same("advantages"),
            "rewards": _same("rewards"),
            "values": _same("values"),
        },
        "areal": {
            "logprobs": _same("log_probs"),
            "proximal_logprobs": _same("old_log_probs"),
            "old_logprobs": _same("sampler_log_probs"),
            "ref_logp": _same("ref_log_probs"),
            "advantages": _same("advantages"),
            "loss_mask": _same("mask"),
            "entropy": _same("entropy"),
            "rewards": _same("rewards"),
        },
        "skyrl": {
            "log_probs": _same("log_probs"),
            "old_log_probs": _same("old_log_probs"),
            "rollout_logprobs": _same("sampler_log_probs"),
            "base_log_probs": _same("ref_log_probs"),
            "advantages": _same("advantages"),
            "loss_mask": Quantity(("mask",), _integers),
            "response_mask": Quantity(("mask",), _integers),
            "token_level_rewards": Quantity(("rewards", "mask"), _at_the_last_token),
            **_GROUPS,
        },
        "slime": {
            "log_probs": _same("log_probs"),
            "old_log_probs": _same("old_log_probs"),
            "train_log_probs": _same("old_log_probs"),
            "rollout_log_probs": _same("sampler_log_probs"),
            "ref_log_probs": _same("ref_log_probs"),
            "ppo_kl": Quantity(
                ("log_probs", "old_log_probs"),
                lambda given: given["old_log_probs"] - given["log_probs"],
            ),
            "advantages": _same("advantages"),
            "loss_masks": Quantity(("mask",), _integers),
            "loss_mask": Quantity(("mask",), _integers),
            "rewards": _same("rewards"),
        },
        "nemo-rl": {
            "curr_logprobs": _same("log_probs"),
            "next_token_logprobs": _same("log_probs"),
            **{theirs: _same(ours) for theirs, ours in _NEMO.items()},
            "mask": _same("mask"),
            "sample_mask": Quantity(("mask",), _whole_responses),
            "data": _behind_a_column(_NEMO),
            "global_valid_toks": _same("batch_tokens"),
            "global_valid_seqs": Quantity(("mask",), lambda given: _whole_responses(given).sum()),
        },
        "prime-rl": {
            **{theirs: _same(ours) for theirs, ours in _PRIME.items()},
            "inputs": _together(_PRIME, loss_weights=lambda _: None),
            "loss_scale": _same("batch_tokens"),
        },
        "open-instruct": {
            "new_logprobs": _same("log_probs"),
            "old_logprobs": _same("old_log_probs"),
            "vllm_logprobs": _same("sampler_log_probs"),
            "ref_logprobs": _same("ref_log_probs"),
            "ratio": _ratio_of("log_probs", "old_log_probs"),
            "rho_weights": _ratio_of("old_log_probs", "sampler_log_probs"),
            "advantages": _same("advantages"),
            "response_masks": _same("mask"),
            "response_mask": _same("mask"),
        },
        "packed": {
            **{name: _packed(name) for name in OFFERED[:5]},
            **{name: _packed(name) for name in ("mask", "values", "entropy")},
            **{name: _same(name) for name in ("rewards", "truncated", "batch_tokens")},
            "group_size": _same("group_size"),
            "cu_seqlens": Quantity(("mask",), _boundaries),
            "position_ids": _end_to_end(lambda mask: _numbered(mask, 1) - 1),
            "segment_ids": _end_to_end(lambda mask: _numbered(mask, 0)),
        },
        "ms-swift": {
            **_TRL,
            "rollout_per_token_logps": _same("sampler_log_probs"),
            "completion_mask": _same("mask"),
            "truncated_mask": _same("truncated"),
            "advantages": _same("advantages"),
        },
    }
)
NAMES = (*CONVENTIONS, *LAYOUTS)


def table(convention: str, names: Collection[str]) -> Mapping[str, Quantity]:
    """What a convention, of `NAMES`, has for a loss with arguments of these names."""
    return CONVENTIONS[convention] if convention in CONVENTIONS else read(convention, names)


def on_offer(convention: str) -> str:
    """What a loss may take, in words."""
    if convention in CONVENTIONS:
        return ", ".join(CONVENTIONS[convention])
    return f"{', '.join(OFFERED)} and a batch of them, under names that are usual"
