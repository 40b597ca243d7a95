"""A loss function as it was written: what it is given, and what it does to the log-probs.

A gradient with respect to log-probs is all that a loss can do to a policy. Everything in this
package is computed from these weights, ∂L/∂log π of each token of a batch.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter, signature
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor

from nbcourse.errors import UserError, did_you_mean
from nbcourse.examine.conventions import BOOK, CONVENTIONS, LAYOUTS, OFFERED, on_offer, table
from nbcourse.functional.advantages import leave_one_out
from nbcourse.functional.aggregation import aggregate

OF_TOKENS = ("log_probs", "old_log_probs", "sampler_log_probs", "ref_log_probs")  # the policies
OF_ROWS = (*OF_TOKENS, "advantages", "entropy", "values", "mask", "rewards", "truncated")
LOSSES = ("loss", "total_loss", "total")  # what is minimised, by its name in what is returned
ENTROPY = 0.7  # of every token, where a batch has no entropies


@dataclass(frozen=True)
class LossInputs:
    """Responses to one or several prompts, groups side by side, as a loss sees them.

    Attributes:
        log_probs: (B, T) of the policy that learns.
        old_log_probs: (B, T) of the learner before its first update on the batch.
        ref_log_probs: (B, T) of the reference.
        mask: (B, T) bool, True on tokens, the one that ends a response included.
        rewards: (B,) one for each response.
        group_size: responses to each prompt.
        advantages: (B, T), leave-one-out ones of the rewards unless others are given.
        sampler_log_probs: (B, T) of the policy that sampled; the old one unless it is given.
        entropy: (B, T) of the policy that learns, at each token.
        values: (B, T) of a critic, 0 unless others are given.
        truncated: (B,) bool, True where a response was cut off; none unless it is given.
        batch_tokens: (), tokens of the batch that this is a part of; its own unless it is given.
    """

    log_probs: Tensor
    old_log_probs: Tensor
    ref_log_probs: Tensor
    mask: Tensor
    rewards: Tensor
    group_size: int
    advantages: Tensor | None = None
    sampler_log_probs: Tensor | None = None
    entropy: Tensor | None = None
    values: Tensor | None = None
    truncated: Tensor | None = None
    batch_tokens: Tensor | None = None

    def offered(self, names: Collection[str]) -> dict[str, Any]:
        """The quantities of these names; tensors of its own to change."""
        given = {name: self.quantity(name) for name in names}
        return {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in given.items()
        }

    def content(self, names: Collection[str]) -> Hashable:
        """What is in the quantities of these names: equal where batches are."""
        return tuple(content(self.quantity(name)) for name in names)

    def quantity(self, name: str) -> Any:
        """Its own, or what stands for it where it has none."""
        own = getattr(self, name)
        return DEFAULTS[name](self) if own is None else own

    def _leave_one_out(self) -> Tensor:
        return leave_one_out(self.rewards, group_size=self.group_size)[:, None] * self.mask

    def with_(self, **changes: Any) -> "LossInputs":
        """A copy with some quantities changed."""
        return replace(self, **changes)

    def without_rewards(self) -> "LossInputs":
        """A copy in which no response earns anything."""
        return self.with_(rewards=torch.zeros_like(self.rewards))

    def each(self, names: Collection[str], change: Callable[[Tensor], Tensor]) -> "LossInputs":
        """A copy with these quantities changed in one way, those that are there."""
        present = {name: getattr(self, name) for name in names}
        return self.with_(**{n: change(own) for n, own in present.items() if own is not None})

    def rows(self, chosen: Any) -> "LossInputs":
        """Some of the responses, in this order."""
        return self.each(OF_ROWS, lambda own: own[chosen])


DEFAULTS: Mapping[str, Callable[[LossInputs], Tensor]] = {  # of quantities that a batch has not
    "advantages": LossInputs._leave_one_out,
    "sampler_log_probs": lambda batch: batch.old_log_probs,
    "entropy": lambda batch: torch.full_like(batch.log_probs, ENTROPY),
    "values": lambda batch: torch.zeros_like(batch.log_probs),
    "truncated": lambda batch: torch.zeros(len(batch.mask), dtype=torch.bool),
    "batch_tokens": lambda batch: batch.mask.sum(),
}


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of one shape.

    Attributes:
        each: the M of them.
    """

    each: Sequence[LossInputs]
    _stacked: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def stacked(self, name: str) -> Any:
        """A quantity of all of them, with the batch as its first axis; `group_size` as it is."""
        if name not in self._stacked:
            (own, *_) = every = [one.quantity(name) for one in self.each]
            self._stacked[name] = torch.stack(every) if isinstance(own, Tensor) else own
        return self._stacked[name]

    @classmethod
    def joined(cls, parts: Sequence["Batches"]) -> "Batches":
        """Several lists of batches of one shape as one list."""
        return cls([one for part in parts for one in part.each])

    def content(self, names: Collection[str]) -> Hashable:
        """What is in the quantities of these names: equal where all batches are."""
        return tuple(content(self.stacked(name)) for name in names)


def content(value: Any) -> Hashable:
    """A value, and of a tensor what is in it, bit by bit."""
    if not isinstance(value, Tensor):
        return value
    return value.dtype, value.shape, bytes(value.reshape(-1).view(torch.uint8).tolist())


@dataclass(frozen=True)
class Subject:
    """A loss to be examined.

    Attributes:
        name: what reports call it.
        function: takes quantities of `LossInputs` by name, → a scalar to minimise, losses of
            tokens (B, T), which are then summed over each response and averaged over responses,
            losses of responses (B,), which are averaged, or one of these first in a tuple, as
            "loss" in a dictionary, or as `.loss`.
        takes: the quantities that it takes.
        by_name: those that it takes one by one, and not in a batch of all there is, without a
            reference whose penalty has a factor of 0; None if all.

    Raises:
        ValueError: if it needs a quantity that is not offered, or no log-probs.
    """

    name: str
    function: Callable[..., Any]
    takes: tuple[str, ...]
    by_name: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        convention: str = BOOK,
        given: Mapping[str, Any] | None = None,
    ) -> "Subject":
        """Read what a function takes from its signature.

        Args:
            function: the loss, or a module whose `forward` it is.
            name: what reports call it; its own name if None.
            convention: whose names and shapes its arguments have, one of `NAMES`.
            given: values of arguments that are settings, such as `eps_clip`, by their names.
        """
        name = name or str(getattr(function, "__name__", "loss"))
        theirs, settings = [], dict(given or {})
        read = getattr(function, "forward", function)  # of a torch module
        parameters = signature(read).parameters
        known = table(convention, parameters.keys() - settings.keys())
        if missing := settings.keys() - parameters.keys():
            raise UserError(
                f"{name} takes no {', '.join(sorted(missing))}, which --given has; it takes "
                f"{', '.join(parameters)}"
            )
        for parameter in parameters.values():
            if parameter.name in settings:
                continue
            if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                continue
            if parameter.name in known:
                theirs.append(parameter.name)
            elif parameter.default is Parameter.empty:
                raise UserError(
                    f"{name} needs {parameter.name!r}, which is not offered; on offer are "
                    f"{on_offer(convention)}{_meant(parameter.name, table(convention, OFFERED))}; "
                    + _otherwise(parameter.name, parameters.values(), settings)
                )
        needs = {need for one in theirs for need in known[one].needs}
        if "log_probs" not in needs:
            offered = table(convention, OFFERED).items()
            wanted = next(key for key, one in offered if "log_probs" in one.needs)
            raise UserError(f"{name} takes no {wanted}, expected an argument of that name")

        def called(**quantities: Any) -> Any:
            made = {one: known[one].value(quantities) for one in theirs}
            return function(**made, **settings)

        alone = {need for one in theirs for need in known[one].needs if len(known[one].needs) < 3}
        if _has_no_penalty(function, {**_defaults(parameters), **settings}):
            alone.discard("ref_log_probs")
        takes, by_name = (
            tuple(one for one in OFFERED if one in chosen) for chosen in (needs, alone)
        )
        return cls(name, called, takes, by_name)

    def quantities(self, batch: LossInputs) -> dict[str, Any]:
        """What it takes of a batch, and the mask."""
        return batch.offered(self.asks)

    @cached_property
    def asks(self) -> tuple[str, ...]:
        """The names of these quantities."""
        return tuple(dict.fromkeys((*self.takes, "mask")))

    def loss(self, quantities: Mapping[str, Any], *, seed: int = 0) -> Tensor:
        """The scalar of some quantities, and of a seed if it draws random numbers.

        Raises:
            ValueError: if the function raises, or returns anything else than a loss.
        """
        chosen = {name: quantities[name] for name in self.takes}
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(
            seed
        )  # of this one alone: it is asked thousands of times
        try:
            with _backward_of() as losses:
                returned = self.function(**chosen)
        except Exception as error:
            said = str(error) or extract_tb(error.__traceback__)[-1].line
            raise UserError(f"{self.name} raises {type(error).__name__}: {said}") from error
        finally:
            torch.set_rng_state(state)
        returned, mask = sum(losses) if losses else _loss_of(returned), quantities["mask"]
        if isinstance(returned, Mapping):
            keys = ", ".join(map(str, returned))
            raise UserError(f"{self.name} returns no 'loss', but {keys}: expected one of that name")
        plain = ((), (1,), mask.shape[:1], mask.shape)
        if not isinstance(returned, Tensor) or returned.shape not in plain:
            shape = (
                tuple(returned.shape) if isinstance(returned, Tensor) else type(returned).__name__
            )
            raise UserError(
                f"{self.name} returns {shape}, expected a scalar, or losses of tokens "
                f"{tuple(mask.shape)} or of responses {tuple(mask.shape[:1])}"
            )
        if returned.dim() == 2:
            return aggregate(returned, mask, "seq-mean-token-sum")
        return returned.mean()

    def weights(self, batch: LossInputs) -> Tensor:
        """∂L/∂log π of each token: (B, T), 0 where the loss does not depend on it.

        Raises:
            ValueError: if the loss does not depend on log_probs.
        """
        return self.plain(batch, seed=0)

    def weights_of_each(self, batches: Batches) -> Tensor:
        """Those of several batches: (M, B, T)."""
        return torch.stack([self.weights(batch) for batch in batches.each])

    def look_ahead(self, lists: Iterable[Batches]) -> None:
        """Be told of which lists the weights will be asked for: nothing comes of it here."""

    def prepared(self, batches: Batches) -> tuple["Subject", dict[str, Any]]:
        """A loss that does the same to these batches in one call, and what it asks of them all."""
        return self, {name: batches.stacked(name) for name in self.asks}

    def plain(self, batch: LossInputs, *, seed: int) -> Tensor:
        """The same with other random numbers, and asked anew."""
        quantities = self.quantities(batch)
        log_probs = quantities["log_probs"].requires_grad_()
        loss = self.loss(quantities, seed=seed)
        if not loss.requires_grad:
            return torch.zeros_like(log_probs)
        (gradient,) = torch.autograd.grad(loss, log_probs, allow_unused=True)
        return torch.zeros_like(log_probs) if gradient is None else gradient


@contextmanager
def _backward_of() -> Iterator[list[Tensor]]:
    """What `backward()` is called of: a step calls it itself, and returns what it logs."""
    called: list[Tensor] = []
    backward = Tensor.backward
    Tensor.backward = lambda loss, *_, **__: called.append(loss)  # type: ignore[method-assign]
    try:
        yield called
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]


def _loss_of(returned: Any) -> Any:
    """The loss in what a function returns."""
    if isinstance(returned, tuple) and returned:
        returned = returned[0]
    if isinstance(returned, Tensor):
        return returned
    if isinstance(returned, Mapping):
        return next((returned[name] for name in LOSSES if name in returned), returned)
    return next((getattr(returned, name) for name in LOSSES if hasattr(returned, name)), returned)


def _defaults(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in parameters.items()}


def _has_no_penalty(function: Callable[..., Any], settings: Mapping[str, Any]) -> bool:
    """Whether the factor of a KL is set to 0, by its name, so that a reference has no effect."""
    owner = getattr(function, "__self__", function)
    numbers = {**getattr(owner, "__dict__", {}), **settings}.items()
    return any(
        isinstance(value, float | int) and value == 0 and re.search(r"beta|kl", name.lower())
        for name, value in numbers
    )


def _otherwise(name: str, parameters: Iterable[Parameter], settings: Collection[str]) -> str:
    """What to do about an argument that has not the name of a quantity."""
    needed = {one.name for one in parameters if one.default is Parameter.empty} - {*settings}
    for some in (CONVENTIONS, LAYOUTS):  # a library that has them all is the likelier
        if fit := [key for key in some if {name, *needed} <= table(key, needed).keys()]:
            return f"all its names are known to --as {' or '.join(fit)}"
    return f"a setting can be given: --given {name}=VALUE; else wrap it in one of these names"


def _meant(name: str, known: Collection[str]) -> str:
    """The nearest name on offer; none where it would put one policy in the place of another."""
    of_policy = re.compile(r"log_?p(rob)?s?$").search
    return did_you_mean(name, [one for one in known if not (of_policy(name) and of_policy(one))])
