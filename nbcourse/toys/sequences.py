"""A language model small enough to list: every sequence over a few tokens, with its probability.

The policy is a table of logits, one row for each prefix, so nothing is shared between states and
every quantity of chapters 2 and 11 has an exact value. With three tokens and length three there are
27 sequences and 13 states.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class SequenceSpace:
    """All sequences of `length` tokens from a vocabulary, shorter ones included if there is an EOS.

    Args:
        vocab_size: V, number of tokens.
        length: T, the longest sequence.
        eos: the token that ends a sequence, or None if all have length T.

    Attributes:
        tokens: (N, T) every sequence; 0 behind its end.
        mask: (N, T) bool, True on tokens, EOS included.
        states: (N, T) index of the prefix in which each token was chosen; 0 behind the end.
        prefixes: the S prefixes themselves; state 0 is the empty one.

    Raises:
        ValueError: if a size is below 1, eos is no token, or there are over 100,000 sequences.
    """

    vocab_size: int
    length: int
    eos: int | None = None
    tokens: Tensor = field(init=False, repr=False, compare=False)
    mask: Tensor = field(init=False, repr=False, compare=False)
    states: Tensor = field(init=False, repr=False, compare=False)
    prefixes: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.vocab_size < 1 or self.length < 1:
            raise ValueError(
                f"vocab_size={self.vocab_size} and length={self.length}: expected at least 1 each"
            )
        if self.eos is not None and self.eos not in range(self.vocab_size):
            raise ValueError(f"eos is {self.eos}, expected a token below {self.vocab_size} or None")
        if self._count() > 100_000:
            raise ValueError(
                f"vocab_size={self.vocab_size} and length={self.length} make "
                f"{self._count():,} sequences, expected at most 100,000"
            )
        sequences = list(self._from(()))
        prefixes = dict.fromkeys(s[:t] for t in range(self.length) for s in sequences if len(s) > t)
        index = {prefix: state for state, prefix in enumerate(prefixes)}
        padding = [0] * self.length
        rows = {
            "tokens": [[*s, *padding][: self.length] for s in sequences],
            "mask": [[t < len(s) for t in range(self.length)] for s in sequences],
            "states": [
                [index[s[:t]] if t < len(s) else 0 for t in range(self.length)] for s in sequences
            ],
        }
        for name, values in rows.items():
            object.__setattr__(self, name, torch.tensor(values))
        object.__setattr__(self, "prefixes", tuple(prefixes))

    def _count(self) -> int:
        """How many there are: those that an EOS ends at each length, and those of full length."""
        if self.eos is None:
            return self.vocab_size**self.length
        going_on = self.vocab_size - 1
        ended = sum(going_on**t for t in range(self.length - 1))
        return int(ended + going_on ** (self.length - 1) * self.vocab_size)

    def _from(self, prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """All sequences that begin with a prefix, in the order of the alphabet."""
        if len(prefix) == self.length or (prefix and prefix[-1] == self.eos):
            yield prefix
            return
        for token in range(self.vocab_size):
            yield from self._from((*prefix, token))

    def random_logits(self, generator: torch.Generator, *, spread: float = 1.0) -> Tensor:
        """A policy to start from: (S, V) normal logits in float64."""
        shape = (len(self.prefixes), self.vocab_size)
        return spread * torch.randn(shape, generator=generator, dtype=torch.float64)

    def log_probs(self, logits: Tensor) -> Tensor:
        """log π(aₜ|sₜ) of every token of every sequence.

        Args:
            logits: (S, V), one row for each prefix.

        Returns:
            (N, T), 0 behind the end of a sequence; differentiable.
        """
        expected = (len(self.prefixes), self.vocab_size)
        if logits.shape != expected:
            raise ValueError(f"logits has shape {tuple(logits.shape)}, expected {expected}")
        table = logits.log_softmax(dim=1)
        return table[self.states, self.tokens].masked_fill(~self.mask, 0.0)

    def probs(self, logits: Tensor) -> Tensor:
        """π(y) of every sequence: (N,), differentiable, sums to 1."""
        return self.log_probs(logits).sum(dim=1).exp()

    def sample(self, logits: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draw sequences from the policy: (count,) row numbers of `tokens`."""
        return torch.multinomial(
            self.probs(logits).detach(), count, replacement=True, generator=generator
        )


def expected_return(space: SequenceSpace, logits: Tensor, rewards: Tensor) -> Tensor:
    """J(θ) = Σ_y π(y) R(y), differentiable, so that autograd gives the exact policy gradient.

    Args:
        space: the sequences.
        logits: (S, V).
        rewards: (N,) one reward for each sequence, or (N, T) one for each token.

    Returns:
        A scalar.

    Book: equation (eq-sequence-objective).
    """
    totals = rewards if rewards.dim() == 1 else torch.where(space.mask, rewards, 0.0).sum(dim=1)
    return space.probs(logits) @ totals


def exact_gradient(space: SequenceSpace, logits: Tensor, rewards: Tensor) -> Tensor:
    """∇J(θ), by differentiating the sum over all sequences.

    Args:
        space: the sequences.
        logits: (S, V).
        rewards: (N,) or (N, T).

    Returns:
        (S, V).
    """
    logits = logits.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(expected_return(space, logits, rewards), logits)
    return gradient


def gradient_estimates(space: SequenceSpace, logits: Tensor, weights: Tensor) -> Tensor:
    """What one sampled sequence estimates the gradient to be, for every sequence.

        ĝ(y) = Σₜ wₜ(y) ∇_θ log π(aₜ|sₜ),      ∇_{θ[s]} log π(a|s) = eₐ − π(·|s)

    Args:
        space: the sequences.
        logits: (S, V).
        weights: (N, T), Ψₜ of each token, such as the return to go minus a baseline.

    Returns:
        (N, S, V): row y is the estimate made from sequence y.

    Book: equation (eq-reinforce).
    """
    weights = torch.where(space.mask, weights, 0.0)
    token_scores = torch.eye(space.vocab_size, dtype=logits.dtype)[space.tokens]
    token_scores = (token_scores - logits.softmax(dim=1)[space.states]) * weights[..., None]
    estimates = logits.new_zeros(len(space.tokens), *logits.shape)
    rows = torch.arange(len(space.tokens))[:, None].expand_as(space.states)
    return estimates.index_put_((rows, space.states), token_scores, accumulate=True)


def group_estimates(estimates: Tensor, advantages: Tensor, members: Tensor) -> Tensor:
    """What a group of sequences estimates the gradient to be, for every group.

        ĝ(y₁ … y_G) = (1/G) Σᵢ Aᵢ ∇_θ log π(yᵢ)

    Args:
        estimates: (N, ...) ∇ log π of each sequence: `gradient_estimates` with all weights 1.
        advantages: (M, G) advantage of each member of each group.
        members: (M, G) row numbers, as `enumeration.groups` returns them.

    Returns:
        (M, ...).
    """
    total = torch.einsum("mg,mg...->m...", advantages, estimates[members])
    return total / members.shape[1]


def state_values(space: SequenceSpace, logits: Tensor, rewards: Tensor) -> Tensor:
    """V(s): expected reward still to come from each prefix on.

    Args:
        space: the sequences.
        logits: (S, V).
        rewards: (N, T) one reward for each token.

    Returns:
        (S,) exact values, as the mean return to go over all sequences through s.

    Book: equation (eq-state-value).
    """
    probs = space.probs(logits)[:, None].expand_as(rewards)[space.mask]
    to_go = torch.where(space.mask, rewards, 0.0).flip(1).cumsum(1).flip(1)[space.mask]
    states = space.states[space.mask]
    zeros = logits.new_zeros(len(space.prefixes))
    reach = zeros.index_add(0, states, probs)
    return zeros.index_add(0, states, probs * to_go) / reach
