"""Every response of a language model small enough to list, so that an expectation is a sum.

The policy is a table: one row of three logits for each prefix. It is position-dependent by
construction, so an off-by-one cannot hide, and nothing here is shared with the code under test.
"""

from itertools import product

import torch
from torch import Tensor

VOCABULARY = 3
LENGTH = 3


class Responses:
    """All responses of up to three tokens: 27 of them, or 15 if token `eos` ends a response.

    tokens: the responses, as tuples.     mask: (N, 3) bool, True on the tokens of a response.
    prefixes: the states, as tuples.      state, action: (N, 3) indices into the table.
    """

    def __init__(self, eos: int | None = None):
        def up_to_eos(tokens: tuple[int, ...]) -> tuple[int, ...]:
            return tokens[: tokens.index(eos) + 1] if eos in tokens else tokens

        everything = product(range(VOCABULARY), repeat=LENGTH)
        self.tokens = sorted({up_to_eos(tokens) for tokens in everything})
        self.prefixes = sorted({y[:t] for y in self.tokens for t in range(len(y))})
        row = {prefix: i for i, prefix in enumerate(self.prefixes)}
        self.mask = torch.zeros(len(self.tokens), LENGTH, dtype=torch.bool)
        self.state = torch.zeros(len(self.tokens), LENGTH, dtype=torch.long)
        self.action = torch.zeros(len(self.tokens), LENGTH, dtype=torch.long)
        for i, y in enumerate(self.tokens):
            for t, token in enumerate(y):
                self.mask[i, t] = True
                self.state[i, t] = row[y[:t]]
                self.action[i, t] = token

    def logits(self, seed: int) -> Tensor:
        """A random policy: (states, 3) in float64, with gradient."""
        generator = torch.Generator().manual_seed(seed)
        shape = (len(self.prefixes), VOCABULARY)
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    def log_probs(self, logits: Tensor) -> Tensor:
        """(N, 3) log-probability of each token, 0 after the end."""
        table = logits.log_softmax(dim=-1)
        return torch.where(self.mask, table[self.state, self.action], 0.0)

    def probs(self, logits: Tensor) -> Tensor:
        """(N,) probability of each response; they sum to 1."""
        return self.log_probs(logits).sum(dim=1).exp()

    def visits(self, logits: Tensor) -> Tensor:
        """(states,) probability that a token is chosen in that state."""
        reached = torch.zeros(len(self.prefixes), dtype=torch.float64)
        probs = self.probs(logits)
        for i, y in enumerate(self.tokens):
            for t in range(len(y)):
                reached[self.state[i, t]] += probs[i].item()
        return reached

    def expected_gradient(self, loss_of, sampler: Tensor, logits: Tensor) -> Tensor:
        """Σ_y p(y) ∇ loss(y): what autograd returns on average, if `sampler` samples responses.

        `loss_of(i)` is the loss of response i, a function of `logits`, as a slice keeps the batch
        axis: `loss_of(slice(i, i + 1))`.
        """
        probs = self.probs(sampler).detach()
        rows = [slice(i, i + 1) for i in range(len(self.tokens))]
        loss = sum(p * loss_of(row) for p, row in zip(probs, rows, strict=True))
        return gradient(loss, logits)


def gradient(scalar: Tensor, parameters: Tensor) -> Tensor:
    """∇ of a scalar, 0 where it does not depend on the parameters at all."""
    if not scalar.requires_grad:
        return torch.zeros_like(parameters)
    return torch.autograd.grad(scalar, parameters, retain_graph=True)[0]


def relative_error(estimate: Tensor, truth: Tensor) -> float:
    return ((estimate - truth).norm() / truth.norm()).item()
