"""A loss without the consequences of a mistake that is known, so that later probes see the rest.

Where the last token of a response gets no gradient, every response is given one more; where a flat
group gives NaN, it is left out; where padding is trained, that is. What was looked at so is said.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from nbcourse.examine.remembered import Remembered
from nbcourse.examine.subject import OF_TOKENS, Batches, LossInputs, Subject

NEUTRAL = {**dict.fromkeys(OF_TOKENS, -1.0), "entropy": 0.7, "values": 0.0, "mask": True}


@dataclass(frozen=True, eq=False, kw_only=True)
class Spared(Subject):
    """A loss whose flat groups and padding are left out.

    Attributes:
        whole: the same with them.
        flat: whether groups are whose rewards are all alike, and give NaN.
        padding: whether the weights of padding are.
    """

    whole: Remembered
    flat: bool
    padding: bool

    def weights(self, batch: LossInputs) -> Tensor:
        """As of the loss, but for what is left out.

        A flat group gets the mean of what it would get with some spread, and with the opposite one,
        on fresh samples: advantages cancel, and what does not come from rewards stays.
        """
        return self._cleaned(batch, self.whole.weights(batch))

    def weights_of_each(self, batches: Batches) -> Tensor:
        """The same of each: (M, B, T)."""
        every = zip(batches.each, self.whole.weights_of_each(batches), strict=True)
        return torch.stack([self._cleaned(*one) for one in every])

    def look_ahead(self, lists: Iterable[Batches]) -> None:
        """Ask for those of the whole."""
        self.whole.look_ahead(lists)

    def _cleaned(self, batch: LossInputs, weights: Tensor) -> Tensor:
        if self.flat and not bool(weights.isfinite().all()):
            groups = batch.rewards.view(-1, batch.group_size)
            alike = (groups == groups[:, :1]).all(dim=1, keepdim=True)
            pattern = torch.linspace(0.5, -0.5, batch.group_size, dtype=groups.dtype)
            spread = torch.where(alike, pattern, 0.0).view(-1)
            spreads = [batch.with_(rewards=batch.rewards + k * spread) for k in (1, -1)]
            fresh = {"old_log_probs": batch.log_probs, "sampler_log_probs": None}
            one, other = (self.whole.weights(x.with_(**fresh)) for x in spreads)
            flat = alike.expand(groups.shape).reshape(-1, 1)
            weights = torch.where(flat, (one + other) / 2, self.whole.weights(spreads[0]))
        return weights.masked_fill(~batch.mask, 0.0) if self.padding else weights


def spared(
    subject: Subject, *, silent: list[int], flat: str, padding_free: bool
) -> tuple[Subject, list[str]]:
    """The loss for later probes, and what they do about it, in words.

    Args:
        subject: the loss.
        silent: positions from the end that get no gradient, of responses of four tokens.
        flat: what becomes of flat groups, of `credit.flat_groups`.
        padding_free: whether padding gets no gradient.
    """
    function, done = subject.function, []
    if "mask" in subject.takes and silent in ([-1], [-4]):
        behind = silent == [-1]
        function = _with_a_token(function, behind=behind)
        done.append(f"one more token {'behind' if behind else 'before'} every response")
    if flat == "nan":
        done.append("some spread in the rewards of every group")
    if not padding_free:
        done.append("no weights of padding")
    if not done:
        return subject, []
    given = (subject.name, function, subject.takes, subject.by_name)
    whole = Remembered.by(Subject(*given))
    return Spared(*given, whole=whole, flat=flat == "nan", padding=not padding_free), done


TURNED = "the flags of responses that were cut off turned round"


def with_flags_turned(subject: Subject) -> Remembered:
    """The loss of the responses that were not cut off."""

    def turned(*, truncated: Tensor, **given: Any) -> Any:
        return subject.function(truncated=~truncated, **given)

    return Remembered.by(Subject(subject.name, turned, subject.takes, subject.by_name))


def _with_a_token(function: Callable[..., Any], *, behind: bool) -> Callable[..., Any]:
    """The function of responses that are one token longer, at whose end or beginning it is."""

    def longer(**given: Any) -> Any:
        mask = given["mask"]
        columns = torch.arange(mask.shape[1] + 1)
        end = torch.where(mask, columns[1:], 0).amax(dim=1, keepdim=True)
        new = columns == (end if behind else 0)

        def put(name: str, value: Any) -> Any:
            if not isinstance(value, Tensor) or value.shape != mask.shape:
                return value
            wide = pad(value, (0, 1) if behind else (1, 0))
            return torch.where(new, _there(name, value, wide, end), wide)

        returned = function(**{name: put(name, value) for name, value in given.items()})
        if isinstance(returned, Tensor) and returned.dim() == 2:
            return returned[:, :-1] if behind else returned[:, 1:]
        return returned

    return longer


def _there(name: str, value: Tensor, wide: Tensor, end: Tensor) -> Tensor:
    """What the new token has: neutral log-probs, and the advantage of its neighbour."""
    if name in NEUTRAL:
        return torch.full_like(wide, NEUTRAL[name])
    return value.gather(1, (end - 1).clamp(min=0)).expand_as(wide)
