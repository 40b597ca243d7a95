"""Policies small enough to be listed: expected steps of losses, found without `examine`.

A prompt is a tree of logits with a reward at each of its answers, which have unequal lengths. Every
batch that a sampler can draw is made, and the sum of p(batch) · loss(batch) is differentiated.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

RUBBISH = {  # what may stand in the padding, and must not matter
    "log_probs": 1.0,
    "old_log_probs": -1.5,
    "sampler_log_probs": -0.5,
    "ref_log_probs": -3.0,
    "values": 2.0,
}
NOTHING = dict.fromkeys(RUBBISH, 0.0)


@dataclass(frozen=True)
class Prompt:
    """Answers as paths through a tree, and what each earns.

    Attributes:
        logits: (S,) of all states, one after the other.
        states: how many tokens each state has to choose from.
        answers: for each answer the states that it passes, with the token chosen there.
        rewards: (A,).
    """

    logits: Tensor
    states: tuple[int, ...]
    answers: tuple[tuple[tuple[int, int], ...], ...]
    rewards: Tensor

    def log_probs(self, logits: Tensor) -> Tensor:
        """(A, T) of the tokens of each answer, 0 in the padding."""
        known = [part.log_softmax(0) for part in logits.split(self.states)]
        none = logits.sum() * 0
        width = max(map(len, self.answers))
        return torch.stack(
            [
                torch.stack([known[s][t] for s, t in answer] + [none] * (width - len(answer)))
                for answer in self.answers
            ]
        )

    @property
    def mask(self) -> Tensor:
        lengths = torch.tensor([[len(answer)] for answer in self.answers])
        return torch.arange(max(map(len, self.answers))) < lengths


def _tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


EASY = Prompt(  # one token of three, then one of two; the third ends it at once
    _tensor(-0.2, 0.4, -0.9, 0.3, -0.5, -1.0, 0.2),
    (3, 2, 2),
    (((0, 2),), ((0, 0), (1, 0)), ((0, 0), (1, 1)), ((0, 1), (2, 0)), ((0, 1), (2, 1))),
    _tensor(0.0, 1.0, 0.2, 0.6, 0.0),
)
HARD = Prompt(  # one answer of three is right, and it is the longest
    _tensor(0.8, -0.6, 0.1, 0.5),
    (2, 2),
    (((0, 0),), ((0, 1), (1, 0)), ((0, 1), (1, 1))),
    _tensor(0.0, 0.0, 1.0),
)


def away(prompt: Prompt, distance: float, turn: int) -> Tensor:
    """Logits at a distance from the prompt's own, in another direction for each turn."""
    places = torch.arange(len(prompt.logits), dtype=torch.float64)
    return prompt.logits + distance * torch.cos(1.7 * places + 2.3 * turn)


@dataclass(frozen=True)
class Listing:
    """What every batch of some prompts is picked from.

    Attributes:
        prompts: one, or two.
        group_size: answers to each in a batch.
        moved: how far the learner is from its old policy.
        reference: how far the reference is from that.
        sampler: and how far the policy that sampled.
        beyond: what stands in the padding.
    """

    prompts: Sequence[Prompt]
    group_size: int = 2
    moved: float = 0.0
    reference: float = 0.4
    sampler: float = 0.0
    beyond: Mapping[str, float] = field(default_factory=lambda: NOTHING)

    def of(self, prompt: Prompt, learner: Tensor) -> dict[str, Tensor]:
        """What a batch may hold of each answer to a prompt, (A, W) or (A,)."""
        width = max(one.mask.shape[1] for one in self.prompts)
        policies = {
            "log_probs": learner,
            "old_log_probs": prompt.logits,
            "ref_log_probs": away(prompt, self.reference, 2),
            "sampler_log_probs": away(prompt, self.sampler, 3),
        }
        found = {name: prompt.log_probs(logits) for name, logits in policies.items()}
        chance = found["sampler_log_probs"].sum(1).exp()
        worth = chance @ prompt.rewards  # of the prompt, which a critic knows and a baseline is
        centred = (prompt.rewards - worth)[:, None]
        found["values"] = worth + 0.3 * torch.arange(prompt.mask.shape[1]).expand(prompt.mask.shape)
        padding = (0, width - prompt.mask.shape[1])
        mask = pad(prompt.mask, padding)
        return {
            **{
                name: pad(part, padding).masked_fill(~mask, self.beyond[name])
                for name, part in found.items()
            },
            "mask": mask,
            "rewards": prompt.rewards,
            "advantages": centred.expand(mask.shape),
            "chance": chance,
        }

    def batches(self, learners: Sequence[Tensor]) -> Iterator[tuple[Tensor, dict[str, Any]]]:
        """Each batch that can be drawn, with its probability."""
        tables = [self.of(*one) for one in zip(self.prompts, learners, strict=True)]
        answers = [range(len(one.rewards)) for one in self.prompts for _ in range(self.group_size)]
        for rows in itertools.product(*answers):
            groups = torch.tensor(rows).view(len(tables), self.group_size)
            batch: dict[str, Any] = {
                name: torch.cat([t[name][own] for t, own in zip(tables, groups, strict=True)])
                for name in tables[0]
            }
            yield batch.pop("chance").prod(), {**batch, "group_size": self.group_size}

    def expected_step(self, loss: Callable[..., Tensor]) -> Tensor:
        """−E[∇L] in the learner's logits, over every batch.

        Args:
            loss: takes some of what a batch holds, by name.
        """
        takes = signature(loss).parameters
        learners = [away(one, self.moved, 1).requires_grad_() for one in self.prompts]
        total = torch.zeros((), dtype=torch.float64)
        for chance, batch in self.batches(learners):
            total = total + chance * loss(**{name: batch[name] for name in takes})
        if not total.requires_grad:
            return torch.zeros(sum(map(len, learners)), dtype=torch.float64)
        steps = torch.autograd.grad(total, learners, allow_unused=True)
        return -torch.cat(
            [
                torch.zeros_like(logits) if step is None else step
                for step, logits in zip(steps, learners, strict=True)
            ]
        )


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two steps; 0 if one of them is 0."""
    return float(cosine_similarity(one, other, dim=0))
