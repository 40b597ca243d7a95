"""A batch of many groups of responses, from what a loss makes of each group alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from nbcourse.examine import credit
from nbcourse.examine.subject import Subject
from nbcourse.examine.worlds import Prompt, World
from nbcourse.toys import enumeration
from nbcourse.toys.sequences import gradient_estimates


@dataclass(frozen=True, eq=False)
class Groups:
    """Every group of responses to one prompt, one order of each standing for all.

    The update of a batch is the mean of its groups' updates, each with its weight.

    Attributes:
        probs: (M,) of the groups.
        updates: (M, S, V) −∇L on a batch of that group alone.
        weights: (M,) whole numbers: the tokens of the group, where the loss is a mean over the
            tokens of a batch, otherwise 1.
    """

    probs: Tensor
    updates: Tensor
    weights: Tensor

    @classmethod
    def of(cls, subject: Subject, prompt: Prompt, group_size: int) -> "Groups":
        """Take the batches of a loss apart.

        Args:
            subject: the loss; the order within a group must not matter to it.
            prompt: with fresh samples or stale ones.
            group_size: responses of a group.

        Raises:
            ValueError: if a response is compared with those of other groups: then the update of a
                batch is not made of its groups' updates.
        """
        influence = credit.influence(subject)
        if influence not in ("none", "own", "group"):
            raise ValueError(
                f"{subject.name} compares a response with {influence!r}, expected its own group"
            )
        by_token = credit.average(subject) == "token-mean"
        chances, updates, weights = [], [], []
        for chance, (members,), slopes in World([prompt], group_size).batches(
            subject, ordered=False
        ):
            of_response = slopes.new_zeros(prompt.space.mask.shape).index_add(0, members, slopes)
            gradients = gradient_estimates(prompt.space, prompt.logits, of_response)
            chances.append(chance)
            updates.append(-gradients.sum(dim=0))
            weights.append(int(prompt.space.mask[members].sum()) if by_token else 1)
        probs = torch.tensor(chances, dtype=torch.float64)
        return cls(probs, torch.stack(updates), torch.tensor(weights))

    def moments(self, count: int) -> tuple[Tensor, Tensor]:
        """Exact mean and variance of the update of a batch of so many groups, (S, V) each."""
        return enumeration.weighted_mean(self.probs, self.updates, self.weights, draws=count)
