"""Prompts and responses as tensors: the one form in which sampler, learner and critic meet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Rollout:
    """Responses to a batch of prompts, in the action frame: column t is response token t.

    Attributes:
        prompt_ids: (B, P) prompts, padded on the left; each stands `group_size` times.
        prompt_mask: (B, P) bool, True on the prompt's own tokens.
        tokens: (B, T) responses, the token that ended them included; any token as padding.
        mask: (B, T) bool, True on response tokens, EOS included; built from lengths, not from
            token values.
        log_probs: (B, T) float32 log π(token) as it was sampled; 0 on padding.
        truncated: (B,) bool, True where the response reached the limit without ending itself.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    tokens: Tensor
    mask: Tensor
    log_probs: Tensor
    truncated: Tensor

    def texts(self, tokenizer: "PreTrainedTokenizerBase") -> list[str]:
        """The responses as text, without the token that ends them."""
        lengths = self.mask.sum(dim=1) - (~self.truncated).long()
        rows = [
            tuple(row[:length])
            for row, length in zip(self.tokens.tolist(), lengths.tolist(), strict=True)
        ]
        # Short answers repeat each other, those of a group most of all.
        decoded = {ids: str(tokenizer.decode(list(ids))) for ids in dict.fromkeys(rows)}
        return [decoded[ids] for ids in rows]


def from_texts(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    responses: Sequence[str],
    *,
    device: torch.device | str = "cpu",
) -> Rollout:
    """Responses from elsewhere, each ended by the end-of-sequence token.

    They have the form of sampled ones, so that supervised learning, reward models and
    evaluation use the same code as reinforcement learning. Their `log_probs` are 0: no policy
    sampled them.

    Raises:
        ValueError: if there are not as many responses as prompts, or a text holds something the
            tokenizer does not know.
    """
    if len(prompts) != len(responses):
        raise ValueError(f"responses has {len(responses)} entries, expected {len(prompts)}")
    prompt_ids, prompt_mask = encode(tokenizer, prompts, device=device)
    # the EOS is part of the response, and in its mask
    rows = [[*ids, tokenizer.eos_token_id] for ids in _ids(tokenizer, responses)]
    tokens, mask = padded(rows, padding=tokenizer.eos_token_id)
    return Rollout(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        tokens=tokens.to(device),
        mask=mask.to(device),
        log_probs=torch.zeros(mask.shape, device=device),
        truncated=torch.zeros(len(rows), dtype=torch.bool, device=device),
    )


def select(rollout: Rollout, rows: Tensor) -> Rollout:
    """Some of the rows, without the columns that are padding in all of them.

    Args:
        rollout: B rows.
        rows: integer indices of the rows to keep, in the order wanted; at least one.
    """
    prompt_mask, mask = rollout.prompt_mask[rows], rollout.mask[rows]
    start = prompt_mask.shape[1] - int(prompt_mask.sum(dim=1).max())
    end = int(mask.sum(dim=1).max())
    return Rollout(
        prompt_ids=rollout.prompt_ids[rows, start:],
        prompt_mask=prompt_mask[:, start:],
        tokens=rollout.tokens[rows, :end],
        mask=mask[:, :end],
        log_probs=rollout.log_probs[rows, :end],
        truncated=rollout.truncated[rows],
    )


def group_rows(groups: Tensor, group_size: int) -> Tensor:
    """The row numbers of some groups, whose members stand side by side."""
    return (groups[:, None] * group_size + torch.arange(group_size, device=groups.device)).flatten()


def concatenate(rollouts: Sequence[Rollout]) -> Rollout:
    """All rows below each other, padded to the longest prompt and response (with token 0)."""
    prompts = max(rollout.prompt_ids.shape[1] for rollout in rollouts)
    width = max(rollout.tokens.shape[1] for rollout in rollouts)

    def joined(name: str, columns: int, *, left: bool = False) -> Tensor:
        parts = [getattr(rollout, name) for rollout in rollouts]
        missing = [columns - part.shape[1] for part in parts]
        return torch.cat(
            [pad(part, (n, 0) if left else (0, n)) for part, n in zip(parts, missing, strict=True)]
        )

    return Rollout(
        prompt_ids=joined("prompt_ids", prompts, left=True),
        prompt_mask=joined("prompt_mask", prompts, left=True),
        tokens=joined("tokens", width),
        mask=joined("mask", width),
        log_probs=joined("log_probs", width),
        truncated=torch.cat([rollout.truncated for rollout in rollouts]),
    )


def model_inputs(rollout: Rollout) -> dict[str, Tensor]:
    """Prompt and response side by side, with mask and positions, as a model wants them."""
    mask = torch.cat([rollout.prompt_mask, rollout.mask], dim=1)
    return {
        "input_ids": torch.cat([rollout.prompt_ids, rollout.tokens], dim=1),
        "attention_mask": mask.long(),
        "position_ids": positions(mask),
    }


def encode(
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    *,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor]:
    """Token ids `(B, P)`, padded on the left, and the mask of the prompts' own tokens.

    Raises:
        ValueError: if there is no prompt, or one is empty or holds an unknown character.
    """
    if not prompts:
        raise ValueError("prompts is empty, expected at least one")
    ids = _ids(tokenizer, prompts)
    if not all(ids):
        raise ValueError(f"prompts[{[bool(row) for row in ids].index(False)}] has no token")
    tokens, mask = padded(ids, padding=tokenizer.eos_token_id, left=True)
    return tokens.to(device), mask.to(device)


def padded(
    rows: Sequence[Sequence[int]], *, padding: int, left: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows of token ids as one tensor, (B, T), and the mask of what is not padding.

    Args:
        rows: B of them, of any lengths, not all empty.
        padding: the token in the rest.
        left: whether that stands in front of a row, and not behind it.
    """
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    columns = torch.arange(width)
    mask = columns >= width - lengths[:, None] if left else columns < lengths[:, None]
    tokens = torch.full(mask.shape, padding)
    tokens[mask] = torch.tensor([token for row in rows for token in row])
    return tokens, mask


def positions(mask: Tensor) -> Tensor:
    """Position of each token in its own sequence, counted from 0, whatever the padding."""
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)


def with_room(columns: int, multiple: int = 8) -> int:
    """Columns that a cache allocates to hold this many: the next multiple."""
    return -(-columns // multiple) * multiple


def _ids(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    rows = tokenizer(list(texts), add_special_tokens=False).input_ids
    unknown = tokenizer.unk_token_id  # asked once: transformers looks through all its names for it
    if unknown is not None:
        for text, row in zip(texts, rows, strict=True):
            if unknown in row:
                raise ValueError(f"{text!r} holds characters that the tokenizer does not know")
    return rows
