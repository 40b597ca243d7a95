"""A witness while its step is being made, and what goes into it, whichever trainer makes it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nbcourse.diagnosis.witness import Witness
from nbcourse.lm.lora import own_parameters
from nbcourse.tasks.task import Task
from nbcourse.training.watch import fingerprint

TEXT = 400  # characters kept of a prompt or a response
PER_TOKEN = {
    *("tokens", "mask", "sampler_log_probs", "token_rewards", "ref_log_probs"),
    *("values", "advantages", "returns"),
}


class Draft:
    """A witness while its step is being made, by whichever trainer.

    Args:
        policy: whose weights the step moves.
        tensors: of the rows that are kept, (R, …), by the names of `Witness`.
        facts: likewise; `fingerprints` among them.
    """

    def __init__(
        self, policy: nn.Module, tensors: dict[str, Tensor], facts: dict[str, Any]
    ) -> None:
        self.policy, self.tensors, self.facts = policy, tensors, facts
        self.rows, self.width = tensors["tokens"].shape
        self.before = {name: p.detach().clone() for name, p in _trained(policy)}
        self.minibatches: list[Tensor] = []
        self.slices = 0

    def slice(
        self, rows: Tensor, batch_mask: Tensor, log_probs: Tensor, old_log_probs: Tensor
    ) -> None:
        """Record a slice of the loss; some of its rows may have been in an earlier update."""
        if not self.minibatches or batch_mask is not self.minibatches[-1]:
            self.minibatches.append(batch_mask)
        numbers = {"minibatch": len(self.minibatches) - 1, "slice": self.slices}
        self.slices += 1
        inside = (rows < self.rows).nonzero().squeeze(1).cpu()
        where = rows.cpu()[inside]
        seen = self._column("slice")[where] >= 0

        def put(name: str, values: Tensor) -> None:
            values = values.detach().float().cpu()[inside, : self.width]
            for prefix, part in (("", ~seen), ("last_", seen)):
                if part.any():
                    table = self._table(prefix + name)
                    table[where[part], : values.shape[1]] = values[part]

        put("log_probs", log_probs)
        put("old_log_probs", old_log_probs)
        log_probs.register_hook(lambda gradient: put("coefficients", gradient))
        for name, number in numbers.items():
            self._column(name)[where[~seen]] = number
            if seen.any():
                self._column("last_" + name)[where[seen]] = number

    def close(self, optimiser: Any, reference: nn.Module | None) -> Witness:
        """All that is there, and how the weights have moved."""
        self.facts |= _movement(self.before, self.policy, optimiser)
        if reference is not None:
            self.facts["fingerprints"]["reference_after"] = of_reference(reference)
        self.facts["minibatches"] = [
            {"rows": int(mask.any(dim=1).sum()), "tokens": int(mask.sum())}
            for mask in self.minibatches
        ]
        return Witness(self.facts, self.tensors)

    def _table(self, name: str) -> Tensor:
        return self.tensors.setdefault(name, torch.zeros(self.rows, self.width))

    def _column(self, name: str) -> Tensor:
        return self.tensors.setdefault(name, torch.full((self.rows,), -1, dtype=torch.int32))


def of_reference(reference: nn.Module) -> str:
    """Its fingerprint, that of an adapter beside its weights left out."""
    return fingerprint(parameter for _, parameter in own_parameters(reference))


def _movement(before: dict[str, Tensor], policy: nn.Module, optimiser: Any) -> dict[str, Any]:
    """How a step has changed the policy's weights, and what the optimiser counted."""
    kept = on_grid = count = still = 0
    change, size, counted = [], [], []
    for name, parameter in _trained(policy):
        now, then = parameter.detach(), before[name]
        change.append((now - then).float().norm())
        size.append(then.float().norm())
        same = int((now == then).sum())
        kept += same
        # an adapter's A has no gradient as long as its B is 0
        still += same * (same == now.numel() and "lora_A" not in name)
        on_grid += int((now == now.bfloat16().to(now.dtype)).sum())
        count += now.numel()
        counted.append(int(optimiser.state.get(parameter, {}).get("step", 0)))
    return {
        "weight_change": torch.stack(change).norm().item(),
        "weight_norm": torch.stack(size).norm().item(),
        "weights_unchanged": kept / count,
        "weights_of_still_tensors": still / count,
        "weights_in_bfloat16": on_grid / count,
        "updates_counted": max(counted),
    }


def _trained(policy: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in policy.named_parameters() if p.requires_grad]


def is_wanted(step: int, every: int) -> bool:
    """Whether a step has a witness: the first one, and every n-th."""
    return step == 1 or step % every == 0


def lengths_of(tokens: Tensor, ends: Sequence[int]) -> Tensor:
    """(B,) tokens up to the first that ends a response, whatever a mask says."""
    ended = torch.isin(tokens, torch.tensor(ends, device=tokens.device))
    return torch.where(ended.any(dim=1), ended.int().argmax(dim=1) + 1, tokens.shape[1])


def rows_within(lengths: Tensor, *, group_size: int, tokens: int) -> int:
    """How many rows a witness keeps: whole groups of so many tokens at most, and at least one."""
    of_groups = lengths.view(-1, group_size).sum(dim=1).cumsum(dim=0)
    return group_size * max(1, int((of_groups <= tokens).sum()))


def kept(tensors: Mapping[str, Tensor | None], rows: int, width: int) -> dict[str, Tensor]:
    """Copies of those that are there, of the first rows and columns."""
    copies = {
        name: tensor.detach()[:rows].cpu().clone()
        for name, tensor in tensors.items()
        if tensor is not None
    }
    return copies | {name: copies[name][:, :width].clone() for name in PER_TOKEN & copies.keys()}


def texts(
    tokenizer: Any, tokens: Tensor, lengths: Tensor, ends: Sequence[int]
) -> list[tuple[str, list[str]]]:
    """Each response as text, without the token that ends it, and the text of each of its tokens."""
    rows = [row[:length].tolist() for row, length in zip(tokens, lengths.tolist(), strict=False)]
    return [
        (
            str(tokenizer.decode(row[:-1] if row[-1] in ends else row)),
            [str(tokenizer.decode([token])) for token in row],
        )
        for row in rows
    ]


def drawn(tokenizer: Any, rows: Sequence[Sequence[int]], ends: Sequence[int]) -> dict[str, Tensor]:
    """Tokens as they were sampled, up to the one that ends them, and those of their texts."""
    if not rows:
        return {}
    sampled, encoded = [], []
    for row in rows:
        length = next((n for n, token in enumerate(row) if token in ends), len(row))
        said, end = list(row[:length]), list(row[length : length + 1])
        again = tokenizer(tokenizer.decode(said), add_special_tokens=False)["input_ids"]
        sampled.append(torch.tensor(said + end, dtype=torch.int32))
        encoded.append(torch.tensor(list(again) + end, dtype=torch.int32))
    together = partial(pad_sequence, batch_first=True, padding_value=-1)
    return {"drawn_tokens": together(sampled), "encoded_tokens": together(encoded)}


def verified(task: Task, texts: Sequence[str], problems: Sequence[Any]) -> dict[str, Tensor]:
    """The strict reading of each response, if that is what the task's verdict should be."""
    if not problems or type(task).rewards is not Task.rewards:
        return {}
    read = zip(texts, problems, strict=True)
    return {"verified": torch.tensor([task.read(text) == asked.answer for text, asked in read])}
