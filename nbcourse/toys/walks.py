"""Walks for a policy that is a table: answers of a hundred tokens, exactly or in milliseconds.

The walks are those of `nbcourse.tasks.walk`. At each crossing, for a walker who is right so far and
for one who has gone wrong, the table has two logits: of going round once more, and of the right
turn. Every other token follows from those before it and has probability 1. So lengths and verdicts
have exact distributions, and sampled walks have log-probabilities of shape (B, T), as a language
model's responses have.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.functional.arguments import Share, checked


@dataclass(frozen=True)
class Walks:
    """B sampled walks of at most T tokens, of which D decided something.

    Attributes:
        mask: (B, T) bool, True on tokens, the end-of-sequence token included.
        right: (B,) float, 1 for a walk that ended and whose turns are all right, 0 for every other.
        truncated: (B,) bool, True where the limit came before the end.
        states: (B, T) where the walker was when the token was chosen: twice the number of crossings
            passed, plus 1 if one of the turns was wrong.
        positions: (B, D) of the tokens that decided, T for none.
        logits: (B, D) which of the table's logits each of them was drawn from, 0 for none.
        chosen: (B, D) bool, whether it was what the logit stands for: once more, the right turn.
    """

    mask: Tensor
    right: Tensor
    truncated: Tensor
    states: Tensor
    positions: Tensor
    logits: Tensor
    chosen: Tensor

    @property
    def lengths(self) -> Tensor:
        """(B,) tokens."""
        return self.mask.sum(dim=1)

    def log_probs(self, table: Tensor) -> Tensor:
        """log π of every token, 0 where there was nothing to choose and behind the end: (B, T).

        Args:
            table: (K, 2, 2) logits; the result is differentiable.
        """
        count, length = self.mask.shape
        logits = table.flatten()[self.logits]
        decided = torch.nn.functional.logsigmoid(torch.where(self.chosen, logits, -logits))
        blank = table.new_zeros(count, length + 1)  # one more for what decided nothing
        return blank.scatter_add(1, self.positions, decided)[:, :length]


@checked
def table(crossings: int = 5, *, again: Share = 0.5, right: Share = 0.7) -> Tensor:
    """The logits of a walker who goes round, and turns, with these probabilities: (K, 2, 2).

    The axes: crossing; right so far, gone wrong; going round once more, the right turn.
    """
    logits = torch.tensor([again, right], dtype=torch.float64).logit()
    return logits.expand(crossings, 2, 2).clone()


def outcomes(table: Tensor, *, rounds: int = 60) -> tuple[Tensor, Tensor]:
    """The chances of walks of 0, 1, … `rounds` rounds that are right, and of those that are wrong.

    Args:
        table: (K, 2, 2) logits; the result is differentiable.
        rounds: the most that are counted. A walk has 2·blocks·rounds + 2K + 1 tokens.

    Returns:
        Two times (rounds + 1,). They sum to 1, but for walks of more rounds.
    """
    once_more, right_turn = table.sigmoid().unbind(-1)
    stay = once_more[..., None, None]
    further = torch.arange(rounds + 1.0)[None, :] - torch.arange(rounds + 1.0)[:, None]
    legs = torch.where(further > 0, (1 - stay) * stay ** (further - 1).clamp(min=0), 0.0)
    right = torch.zeros(rounds + 1, dtype=table.dtype)
    right[0], wrong = 1.0, torch.zeros_like(right)
    for i in range(len(table)):
        there = right @ legs[i, 0]
        wrong = there * (1 - right_turn[i, 0]) + wrong @ legs[i, 1]
        right = there * right_turn[i, 0]
    return right, wrong


@torch.no_grad()
def sample(
    table: Tensor, count: int, *, generator: torch.Generator, blocks: int = 5, max_length: int = 160
) -> Walks:
    """Draw walks.

    Args:
        table: (K, 2, 2) logits.
        count: B.
        generator: source of the draws.
        blocks: from one crossing to the next; a round takes two tokens for each.
        max_length: T, where a walk is cut off.
    """
    crossings, round_tokens = len(table), 2 * blocks
    probs = table.sigmoid().flatten()
    crossing, wrong = (torch.zeros(count, dtype=torch.long) for _ in range(2))
    position = torch.full((count,), round_tokens)
    states = torch.zeros(count, max_length + 1, dtype=torch.long)
    found: list[tuple[Tensor, Tensor, Tensor]] = []

    def decide(which: Tensor, where: Tensor, asked: Tensor) -> Tensor:
        """Draw from the logit that belongs to each walker, where one is asked."""
        logit = ((2 * crossing + wrong) * 2 + which).clamp(max=len(probs) - 1)
        drawn = torch.rand(count, generator=generator, dtype=probs.dtype) < probs[logit]
        asked = asked & (where < max_length)
        found.append((where.where(asked, max_length), logit.where(asked, 0), drawn))
        return drawn

    zero, one = torch.zeros_like(crossing), torch.ones_like(crossing)
    while (walking := (crossing < crossings) & (position < max_length)).any():
        again = decide(zero, position, walking)
        turns = walking & ~again
        right_turn = decide(one, position + 1, turns)
        wrong = torch.where(turns & ~right_turn, 1, wrong)
        crossing = crossing + turns.long()
        after = (position + 2).where(turns, max_length).clamp(max=max_length)
        states.scatter_(1, after[:, None], (2 * crossing + wrong)[:, None])
        position = torch.where(walking, position + round_tokens + 2 * turns.long(), position)
    lengths = torch.where(crossing == crossings, position - round_tokens + 1, max_length + 1)
    truncated = lengths > max_length
    positions, logits, chosen = (torch.stack(column, dim=1) for column in zip(*found, strict=True))
    return Walks(
        mask=torch.arange(max_length) < lengths[:, None],
        right=((wrong == 0) & ~truncated).to(table.dtype),
        truncated=truncated,
        states=states[:, :max_length].cummax(dim=1).values,
        positions=positions,
        logits=logits,
        chosen=chosen,
    )
