"""A loss that is asked once for the weights of equal batches, and for those of many in one call.

Listed worlds have batches by the hundred, of one shape, and most of the time that a loss needs for
a batch of six numbers is Python's. `torch.vmap` computes on all of them while the function sees
one. It refuses what it cannot follow: a number that is read out of a tensor, rows that are chosen
by a mask, random numbers. A loss that does such a thing is asked for one batch after the other, and
so is one that keeps something of a call, which vmap does not notice, or does not do the same.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import TensorWeakRef

from nbcourse.errors import UserError
from nbcourse.examine.subject import Batches, LossInputs, Subject

ROUNDING = 1e-9  # relative: another order of a sum in float64


@dataclass(frozen=True, eq=False, kw_only=True)
class Remembered(Subject):
    """A subject that is asked once for the weights of equal batches.

    Probes share batches, and to a loss that takes no `old_log_probs` stale samples are fresh ones.
    """

    original: Subject
    _known: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False)
    _follows: dict[Hashable, bool] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def by(cls, subject: Subject) -> "Remembered":
        """The same loss, with nothing known yet."""
        return cls(subject.name, subject.function, subject.takes, subject.by_name, original=subject)

    def weights(self, batch: LossInputs) -> Tensor:
        """As of the loss."""
        asked = batch.content(self.asks)
        if asked not in self._known:
            self._known[asked] = super().weights(batch)
        return self._known[asked]

    def weights_of_each(self, batches: Batches) -> Tensor:
        """The same of each, in one call if the loss does not notice: (M, B, T)."""
        asked = batches.content(self.asks)
        if asked not in self._known:
            found = self._at_once(batches)
            self._known[asked] = (
                torch.stack([self.weights(one) for one in batches.each]) if found is None else found
            )
        return self._known[asked]

    def look_ahead(self, lists: Iterable[Batches]) -> None:
        """Ask for those that are not known, in one call for all of one shape."""
        alike: dict[Hashable, dict[Hashable, Batches]] = {}
        for batches in lists:
            asked, (one, *_) = batches.content(self.asks), batches.each
            if asked not in self._known:
                alike.setdefault((one.mask.shape, one.group_size), {})[asked] = batches
        for new in alike.values():
            found = self._at_once(Batches.joined([*new.values()]))
            if found is not None:
                parts = found.split([len(batches.each) for batches in new.values()])
                self._known.update(zip(new, parts, strict=True))

    def _at_once(self, batches: Batches) -> Tensor | None:
        """None if that is not what it does to one batch after the other."""
        one, shape = len(batches.each) // 2, batches.each[0].mask.shape
        if not all(self._follows.values()):
            return None
        if shape in self._follows:
            return weights_at_once(*self.original.prepared(batches))
        alone = self.weights(batches.each[one])
        forgets = keeps_nothing(self, batches.each[one])
        found = weights_at_once(*self.original.prepared(batches)) if forgets else None
        self._follows[shape] = found is not None and torch.allclose(
            found[one], alone, rtol=ROUNDING, atol=1e-15, equal_nan=True
        )
        return found if self._follows[shape] else None


def weights_at_once(subject: Subject, given: Mapping[str, Any]) -> Tensor | None:
    """∂L/∂log π of each token of each batch: (M, B, T), of one call; None if vmap refuses it.

    Args:
        subject: the loss.
        given: what it asks for, of M batches.
    """
    tensors = {name: own.clone() for name, own in given.items() if isinstance(own, Tensor)}
    log_probs = tensors["log_probs"].requires_grad_()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that one of its functions is slow
            losses = torch.vmap(lambda one: subject.loss({**given, **one}))(tensors)
        if not losses.requires_grad:
            return torch.zeros_like(log_probs)
        (gradient,) = torch.autograd.grad(losses.sum(), log_probs, allow_unused=True)
    except (UserError, RuntimeError):
        return None
    return torch.zeros_like(log_probs) if gradient is None else gradient


def keeps_nothing(subject: Subject, one: LossInputs) -> bool:
    """Whether a call leaves no tensor behind, and the next one does the same."""
    made: list[TensorWeakRef] = []
    with Watched(lambda tensor: made.append(TensorWeakRef(tensor))):
        first = subject.plain(one, seed=0).tolist()
    if any(tensor() is not None for tensor in made):
        return False
    return repr(first) == repr(subject.plain(one, seed=1).tolist())  # where NaN is NaN


class Watched(TorchDispatchMode):
    """Shows every tensor that is made.

    Args:
        look: is given each of them.
    """

    def __init__(self, look: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.look = look

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No, for to tell the compiler so torch imports it, which takes over a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, Tensor):
                self.look(one)
        return made
