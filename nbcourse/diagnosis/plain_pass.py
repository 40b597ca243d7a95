"""Log-probs computed once more, in a plain way: each response alone, without padding or cache."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

LIKELIEST = 32  # log-probs kept of each distribution: all of them where a vocabulary is small
TOGETHER = 512  # tokens that are read at once: each has log-probs of the whole vocabulary


Answers = Callable[[Tensor, int], Tensor]  # (n, L) ids, how many are the prompt's → (n, t + 1, V)


@torch.no_grad()
def plainly(
    prompts: Sequence[Tensor],
    responses: Sequence[Tensor],
    width: int,
    policy: Answers,
    reference: Answers | None,
) -> dict[str, Tensor]:
    """Log-probs of each response without padding, and of what else could have been said.

    Rows that are equally long are read together, which moves no number by more than rounding.

    Args:
        prompts: the ids of each, without padding.
        responses: likewise.
        width: T.
        policy: answers as `distributions` does.
        reference: likewise, if there is one.
    """
    tables: dict[str, Tensor] = {}
    texts = [torch.cat(both) for both in zip(prompts, responses, strict=True)]
    known: dict[tuple[int, ...], int] = {}
    first = [
        known.setdefault((len(prompt), *ids.tolist()), row)
        for row, (prompt, ids) in enumerate(zip(prompts, texts, strict=True))
    ]
    for rows in _equally_long(known.values(), prompts, responses):
        ids, prompt = torch.stack([texts[row] for row in rows]), len(prompts[rows[0]])
        every, chosen = policy(ids, prompt), ids[:, prompt:, None]
        now, later = every[:, :-1], every[:, 1:]
        probs = now.exp()
        entropy = -(probs * now).nan_to_num(0.0).sum(dim=2)
        columns = {
            "plain_log_probs": now.gather(2, chosen)[..., 0],
            "unshifted_log_probs": later.gather(2, chosen)[..., 0],
            "entropy": entropy,
            "surprisal_variance": (probs * now.square()).nan_to_num(0.0).sum(dim=2)
            - entropy.square(),
            "likeliest": now.topk(min(LIKELIEST, now.shape[2]), dim=2).values,
        }
        if reference is not None:
            of_ref = reference(ids, prompt)[:, :-1]
            columns["plain_ref_log_probs"] = of_ref.gather(2, chosen)[..., 0]
        for name, values in columns.items():
            shape = (len(prompts), width, *values.shape[2:])
            tables.setdefault(name, torch.zeros(shape))[rows, : values.shape[1]] = values.cpu()
    return {name: table[first] for name, table in tables.items()}


def _equally_long(
    rows: Iterable[int], prompts: Sequence[Tensor], responses: Sequence[Tensor]
) -> Iterator[list[int]]:
    """The rows in pieces of equal lengths, each of at most `TOGETHER` tokens or of one row."""
    alike: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        alike.setdefault((len(prompts[row]), len(responses[row])), []).append(row)
    for lengths, those in alike.items():
        size = max(1, TOGETHER // sum(lengths))
        yield from (those[i : i + size] for i in range(0, len(those), size))


def distributions(model: nn.Module, ids: Tensor, prompt: int, temperature: float) -> Tensor:
    """(n, t + 1, V) log-probs of what may follow the prompt, and each token of the response."""
    logits = model(input_ids=ids, use_cache=False).logits[:, prompt - 1 :]
    return (logits.float() / temperature).log_softmax(dim=-1)
