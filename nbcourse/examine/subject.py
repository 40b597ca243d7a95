"""A loss function as it was written: what it is given, and what it does to the log-probs.

A gradient with respect to log-probs is all that a loss can do to a policy. Everything in this
package is computed from these weights, ∂L/∂log π of each token of a batch.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError, did_you_mean
from nbcourse.examine.conventions import BOOK, CONVENTIONS, OFFERED
from nbcourse.functional.advantages import leave_one_out
from nbcourse.functional.aggregation import aggregate


@dataclass(frozen=True)
class LossInputs:
    """Responses to one or several prompts, groups side by side, as a loss sees them.

    Attributes:
        log_probs: (B, T) of the policy that learns.
        old_log_probs: (B, T) of the policy that sampled.
        ref_log_probs: (B, T) of the reference.
        mask: (B, T) bool, True on tokens, the one that ends a response included.
        rewards: (B,) one for each response.
        group_size: responses to each prompt.
        advantages: (B, T), leave-one-out ones of the rewards unless others are given.
    """

    log_probs: Tensor
    old_log_probs: Tensor
    ref_log_probs: Tensor
    mask: Tensor
    rewards: Tensor
    group_size: int
    advantages: Tensor | None = None

    def offered(self, names: Collection[str]) -> dict[str, Any]:
        """The quantities of these names; tensors of its own to change."""
        given: dict[str, Any] = {}
        for name in names:
            if name == "values":
                given[name] = torch.zeros_like(self.log_probs)
            elif name == "advantages" and self.advantages is None:
                given[name] = self._leave_one_out
            else:
                given[name] = getattr(self, name)
        return {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in given.items()
        }

    @cached_property
    def _leave_one_out(self) -> Tensor:
        per_response = leave_one_out(self.rewards, group_size=self.group_size)
        return per_response[:, None].expand(self.mask.shape) * self.mask

    def with_(self, **changes: Any) -> "LossInputs":
        """A copy with some quantities changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Subject:
    """A loss to be examined.

    Attributes:
        name: what reports call it.
        function: takes quantities of `LossInputs` by name, → a scalar to minimise, losses of
            tokens (B, T), which are then summed over each response and averaged over responses,
            or a tuple that begins with one of these.
        takes: the quantities that it takes.

    Raises:
        ValueError: if it needs a quantity that is not offered, or no log-probs.
    """

    name: str
    function: Callable[..., Any]
    takes: tuple[str, ...]

    @classmethod
    def of(
        cls, function: Callable[..., Any], *, name: str | None = None, convention: str = BOOK
    ) -> "Subject":
        """Read what a function takes from its signature.

        Args:
            function: the loss, or a module whose `forward` it is.
            name: what reports call it; its own name if None.
            convention: whose names and shapes its arguments have, one of `CONVENTIONS`.
        """
        name = name or str(getattr(function, "__name__", "loss"))
        known, theirs = CONVENTIONS[convention], []
        read = getattr(function, "forward", function)  # of a torch module
        for parameter in signature(read).parameters.values():
            if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                continue
            if parameter.name in known:
                theirs.append(parameter.name)
            elif parameter.default is Parameter.empty:
                raise UserError(
                    f"{name} needs {parameter.name!r}, which is not offered; on offer are "
                    f"{', '.join(known)}{did_you_mean(parameter.name, known)}"
                )
        needs = {need for one in theirs for need in known[one].needs}
        if "log_probs" not in needs:
            wanted = next(key for key, one in known.items() if one.needs == ("log_probs",))
            raise UserError(f"{name} takes no {wanted}, expected an argument of that name")

        def called(**given: Any) -> Any:
            return function(**{one: known[one].value(given) for one in theirs})

        return cls(name, called, tuple(one for one in OFFERED if one in needs))

    def quantities(self, batch: LossInputs) -> dict[str, Any]:
        """What it takes of a batch, and the mask."""
        return batch.offered(dict.fromkeys((*self.takes, "mask")))

    def loss(self, quantities: Mapping[str, Any]) -> Tensor:
        """The scalar of some quantities.

        Raises:
            ValueError: if the function raises, or returns anything else than a loss.
        """
        chosen = {name: quantities[name] for name in self.takes}
        try:
            returned = self.function(**chosen)
        except Exception as error:
            raise UserError(f"{self.name} raises {type(error).__name__}: {error}") from error
        if isinstance(returned, tuple) and returned:
            returned = returned[0]
        mask = quantities["mask"]
        if not isinstance(returned, Tensor) or returned.shape not in ((), (1,), mask.shape):
            shape = (
                tuple(returned.shape) if isinstance(returned, Tensor) else type(returned).__name__
            )
            raise UserError(
                f"{self.name} returns {shape}, expected a scalar, or losses of tokens "
                f"{tuple(mask.shape)}"
            )
        if returned.shape == mask.shape and returned.dim() == 2:
            return aggregate(returned, mask, "seq-mean-token-sum")
        return returned.sum()

    def weights(self, batch: LossInputs) -> Tensor:
        """∂L/∂log π of each token: (B, T), 0 where the loss does not depend on it.

        Raises:
            ValueError: if the loss does not depend on log_probs.
        """
        return self._weights(self.quantities(batch))

    def _weights(self, quantities: Mapping[str, Any]) -> Tensor:
        log_probs = quantities["log_probs"].requires_grad_()
        loss = self.loss(quantities)
        if not loss.requires_grad:
            return torch.zeros_like(log_probs)
        (gradient,) = torch.autograd.grad(loss, log_probs, allow_unused=True)
        return torch.zeros_like(log_probs) if gradient is None else gradient


@dataclass(frozen=True, eq=False)
class Remembered(Subject):
    """A subject that is asked once for the weights of equal batches.

    Probes share batches, and to a loss that takes no `old_log_probs` stale samples are fresh ones.
    """

    _known: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def by(cls, subject: Subject) -> "Remembered":
        """The same loss, with nothing known yet."""
        return cls(subject.name, subject.function, subject.takes)

    def _weights(self, quantities: Mapping[str, Any]) -> Tensor:
        key = tuple(
            (value.dtype, value.shape, value.numpy().tobytes())
            if isinstance(value, Tensor)
            else value
            for value in quantities.values()
        )
        if key not in self._known:
            self._known[key] = super()._weights(quantities)
        return self._known[key]
