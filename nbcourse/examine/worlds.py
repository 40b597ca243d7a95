"""Worlds in which every batch can be listed, so that a loss has an exact expected gradient."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, combinations_with_replacement, product

import torch
from torch import Tensor

from nbcourse.examine.subject import Batches, LossInputs, Subject
from nbcourse.functional import kl
from nbcourse.toys.sequences import SequenceSpace, exact_gradient, gradient_estimates


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt whose responses can be listed, and the policies that meet there.

    Attributes:
        space: the responses.
        logits: (S, V) of the policy that learns.
        rewards: (N,) one for each response.
        old_logits: (S, V) of the policy before the first update; None for fresh samples.
        ref_logits: (S, V) of the reference; None for one that is the policy that learns.
        sampler_logits: (S, V) of the policy that sampled; None for the old one.
    """

    space: SequenceSpace
    logits: Tensor
    rewards: Tensor
    old_logits: Tensor | None = None
    ref_logits: Tensor | None = None
    sampler_logits: Tensor | None = None

    def gradient(self) -> Tensor:
        """∇J of the policy that learns, (S, V)."""
        return self._gradient

    @cached_property
    def _gradient(self) -> Tensor:
        return exact_gradient(self.space, self.logits, self.rewards)

    def tables(self) -> tuple[Tensor, ...]:
        """Log-probs of all responses, each (N, T): of the learner, the old policy, the reference
        and the sampler; then the learner's entropy at each token.
        """
        old = self.logits if self.old_logits is None else self.old_logits
        ref = self.logits if self.ref_logits is None else self.ref_logits
        sampler = old if self.sampler_logits is None else self.sampler_logits
        entropies = -(self.logits.softmax(dim=1) * self.logits.log_softmax(dim=1)).sum(dim=1)
        return (
            *map(self.space.log_probs, (self.logits, old, ref, sampler)),
            entropies[self.space.states].masked_fill(~self.space.mask, 0.0),
        )

    def kl_gradients(self) -> dict[str, Tensor]:
        """What a KL penalty may descend, each (S, V).

        reverse: ∇KL(π‖π_ref) of whole responses; token: the part of it that leaves out how a token
        changes the states that follow; forward: ∇KL(π_ref‖π) in the states that π visits.
        """
        assert self.ref_logits is not None
        logits, space = self.logits.detach().requires_grad_(), self.space
        chosen = space.mask
        probs = space.probs(logits).detach()[:, None].expand(chosen.shape)[chosen]
        visits = probs.new_zeros(len(space.prefixes)).index_add_(0, space.states[chosen], probs)
        own, ref = (space.log_probs(table).sum(dim=1) for table in (logits, self.ref_logits))
        divergences = {
            "reverse": kl.exact(own, ref),
            "token": visits @ kl.exact(logits, self.ref_logits),
            "forward": visits @ kl.exact(self.ref_logits, logits),
            "forward of responses": kl.exact(ref, own),
        }
        return {
            name: torch.autograd.grad(value, logits, retain_graph=True)[0]
            for name, value in divergences.items()
        }


@dataclass(frozen=True, eq=False)
class World:
    """One batch's worth of prompts, with so many responses to each.

    Its batches are listed once, however many losses are examined in it.
    """

    prompts: Sequence[Prompt]
    group_size: int

    def expected(self, subject: Subject, *, ordered: bool = True) -> list[Tensor]:
        """E[∇L] over every batch that the sampler could have drawn: (S, V) for each prompt.

        Args:
            subject: the loss.
            ordered: whether the order within a group may matter to it; if not, one order of each
                group stands for all.
        """
        return self.mean(subject.weights_of_each, ordered=ordered)

    def mean(self, weigh: Callable[[Batches], Tensor], *, ordered: bool = False) -> list[Tensor]:
        """The same of losses that weigh the tokens of each batch so, (M, B, T)."""
        listed = self._in_order if ordered else self._as_sets
        weights = weigh(listed.batches).double()
        parts = (listed.chances[:, None, None] * weights).split(self.group_size, dim=1)
        expected = []
        for prompt, rows, part in zip(self.prompts, listed.rows.unbind(1), parts, strict=True):
            total = torch.zeros(prompt.space.tokens.shape, dtype=torch.float64)
            total.index_add_(0, rows.flatten(), part.flatten(0, 1))
            expected.append(gradient_estimates(prompt.space, prompt.logits, total).sum(dim=0))
        return expected

    def listed(self, *, ordered: bool = False) -> Batches:
        """Every batch; one order of each group for all unless they are `ordered`."""
        return (self._in_order if ordered else self._as_sets).batches

    def batches(
        self, subject: Subject, *, ordered: bool = True
    ) -> Iterator[tuple[float, Tensor, Tensor]]:
        """Every batch: its probability, the responses to each prompt, and ∂L/∂log π (B, T)."""
        listed = self._in_order if ordered else self._as_sets
        weights = subject.weights_of_each(listed.batches).double()
        yield from zip(listed.chances.tolist(), listed.rows, weights, strict=True)

    @cached_property
    def _in_order(self) -> "_Listed":
        return self._listed(ordered=True)

    @cached_property
    def _as_sets(self) -> "_Listed":
        return self._listed(ordered=False)

    def _listed(self, *, ordered: bool) -> "_Listed":
        tables = [prompt.tables() for prompt in self.prompts]
        choices = [
            list(_groups(sampler.sum(dim=1).exp(), self.group_size, ordered))
            for *_, sampler, _ in tables
        ]
        chosen = list(product(*choices))
        chances = [math.prod(chance for _, chance in one) for one in chosen]
        rows = torch.tensor([[members for members, _ in one] for one in chosen])
        before = [0, *accumulate(len(prompt.rewards) for prompt in self.prompts[:-1])]
        every = (rows + torch.tensor(before)[:, None]).flatten()
        parts = [
            [*policies, one.space.mask, one.rewards]
            for policies, one in zip(tables, self.prompts, strict=True)
        ]
        size = len(self.prompts) * self.group_size
        cut = (torch.cat(part)[every].split(size) for part in zip(*parts, strict=True))
        batches = [
            LossInputs(
                *(learner, old, ref, mask, rewards, self.group_size),
                sampler_log_probs=sampler,
                entropy=entropy,
            )
            for learner, old, ref, sampler, entropy, mask, rewards in zip(*cut, strict=True)
        ]
        return _Listed(torch.tensor(chances, dtype=torch.float64), rows, Batches(batches))


@dataclass(frozen=True, eq=False)
class _Listed:
    """Every batch of a world.

    Attributes:
        chances: (M,) their probabilities.
        rows: (M, P, G) which responses to each prompt are in them.
        batches: the M of them.
    """

    chances: Tensor
    rows: Tensor
    batches: Batches


def _groups(
    probs: Tensor, group_size: int, ordered: bool
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every group with its probability; if order does not matter, one for each set of members."""
    chances, indices = probs.tolist(), range(len(probs))
    if ordered:
        for members in product(indices, repeat=group_size):
            yield members, math.prod(chances[i] for i in members)
        return
    for members in combinations_with_replacement(indices, group_size):
        orders = math.factorial(group_size)
        for count in Counter(members).values():
            orders //= math.factorial(count)
        yield members, orders * math.prod(chances[i] for i in members)


# ---------------------------------------------------------------- the worlds

BRANCHING = SequenceSpace(3, 2, eos=0)  # 7 responses of one or two tokens
STAIRS = SequenceSpace(2, 3, eos=0)  # 4 responses of one to three tokens
EVEN = SequenceSpace(2, 2)  # 4 responses of two tokens
CHOICE = SequenceSpace(3, 1)  # one token of three
COIN = SequenceSpace(2, 1)  # right or wrong
DIFFICULTIES = (0.1, 0.3, 0.5, 0.7, 0.9)


def prompt(space: SequenceSpace, seed: int) -> Prompt:
    """Normal logits, and about half of the responses right, never all or none."""
    source = torch.Generator().manual_seed(seed)
    logits = space.random_logits(source, spread=0.7)
    count = len(space.tokens)
    rewards = torch.zeros(count, dtype=torch.float64)
    rewards[torch.randperm(count, generator=source)[: count // 2]] = 1.0
    return Prompt(space, logits, rewards)


def coin(chance: float) -> Prompt:
    """One token, right with this probability."""
    logits = torch.tensor([[math.log(1 - chance), math.log(chance)]], dtype=torch.float64)
    return Prompt(COIN, logits, torch.tensor([0.0, 1.0], dtype=torch.float64))


def away(one: Prompt, distance: float, seed: int) -> Tensor:
    """Logits of another policy, at most as far as this in each entry."""
    source = torch.Generator().manual_seed(seed)
    noise = torch.rand(one.logits.shape, generator=source, dtype=torch.float64)
    return one.logits + distance * (2 * noise - 1)


@cache
def fresh() -> tuple[World, ...]:
    """Worlds of fresh samples: answers of several lengths, forks, groups of two to four."""
    return (
        World([prompt(BRANCHING, 0)], 2),
        World([prompt(BRANCHING, 1)], 3),
        World([prompt(STAIRS, 2)], 2),
        World([prompt(STAIRS, 3)], 3),
        World([prompt(STAIRS, 4)], 4),
        *(World([coin(chance)], size) for chance in DIFFICULTIES for size in (2, 3, 4)),
        World([coin(0.2), coin(0.8)], 2),
        World([coin(0.2), coin(0.8)], 3),
    )


@cache
def stale(
    *, distance: float = 0.08, reference_is_the_sampler: bool, three: bool = False
) -> tuple[World, ...]:
    """The same worlds, but the policy has moved since it sampled: by ratios of 1.2 at most.

    Args:
        distance: in logits.
        three: whether the policy that sampled was not quite the old one either.
        reference_is_the_sampler: whether the reference is the policy that sampled, and not the one
            that learns, so that a KL in the reward is gone.
    """

    def moved(one: Prompt) -> Prompt:
        old = away(one, distance, 9)
        return replace(
            one,
            old_logits=old,
            ref_logits=old if reference_is_the_sampler else one.logits,
            sampler_logits=old + away(one, distance, 10) - one.logits if three else None,
        )

    return tuple(replace(world, prompts=[*map(moved, world.prompts)]) for world in fresh())


def far(*, reference_is_the_sampler: bool, three: bool = False) -> tuple[World, ...]:
    """Two of them, from a policy so far off that every clip notices."""
    return stale(distance=0.6, reference_is_the_sampler=reference_is_the_sampler, three=three)[2:4]
