"""What people call the arguments of a loss in programs of their own, and how they lay them out.

No table could list the names: `logprobs_new`, `current_logps` and `policy_token_log_probs` are one
quantity. So a name is read word by word, and one with a word that is not known here is not guessed
at, such as a teacher's log-probs, those of a chosen answer, or a `padding_mask`, which is 1 where
some mean a token and others mean none.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

Quantities = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """One argument of a loss.

    Attributes:
        needs: the quantities of `LossInputs` that it is made of.
        value: makes it of them.
    """

    needs: tuple[str, ...]
    value: Callable[[Quantities], Any]


OFFERED = (
    "log_probs",
    "old_log_probs",
    "sampler_log_probs",
    "ref_log_probs",
    "advantages",
    "rewards",
    "mask",
    "values",
    "entropy",
    "truncated",
    "batch_tokens",
    "group_size",
)
OF_LOG_PROBS = OFFERED[:4]

# ---------------------------------------------------------------- names


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOG_PROBS = re.compile(r"(?<![a-z])(log_?(prob(abilitie)?s?|probability|pi|p)s?|lps?)(?![a-z])")
_WHOSE = {
    **dict.fromkeys(_words("new cur curr current now"), "new"),
    **dict.fromkeys(_words("old prev previous"), "old_log_probs"),
    **dict.fromkeys(_words("ref reference base sft"), "ref_log_probs"),
    **dict.fromkeys(
        _words("rollout inference sampling sampler vllm generation behavior behaviour"),
        "sampler_log_probs",
    ),
}
_OF_ANY = _words(
    "per token tokens action actions seq sequence response responses completion completions batch "
    "selected policy pi theta model actor learner trainer train training"
)
_OF_A_MASK = _words(
    "loss completion response resp action token tokens attention attn valid answer output "
    "generation label labels"
)
_REST = {
    "advantages": "(batch_)?(advantages?|advs?)",
    "rewards": "(raw_|batch_)?rewards?|(reward_)?scores?",
    "returns": "returns",
    "mask": f"(({'|'.join(sorted(_OF_A_MASK))})_)*masks?",
    "values": "(old_)?values?",
    "entropy": "((per_)?token_)?(entropy|entropies)",
    "truncated": "(is_)?truncated(_mask)?",
    "batch_tokens": "num_items_in_batch|(num|n|total)_tokens",
    "group_size": "group_size|(num|n)_(generations|samples|responses|rollouts|completions)"
    "|(n_|num_)?(generations|samples|responses|rollouts|completions)_per_(prompt|group|question)",
    "groups": "group_(id|ids|idx|index|indices)|uids?",
    "lengths": "((seq|sequence|response|completion)_)?(lengths?|lens)",
    "batch": "(mini|micro|rollout_)?_?batch|data|inputs|experience|exp|rollouts?|samples?",
}
_READ = {ours: re.compile(pattern) for ours, pattern in _REST.items()}


def meant(name: str) -> str:
    """Which quantity a name is, "new" for log-probs that are said to be the new ones; or ""."""
    name = name.lower()
    words = {*_LOG_PROBS.sub("@", name).split("_")} - {""}
    if "@" in words:
        whose = {_WHOSE.get(word, word) for word in words - {"@"} - _OF_ANY}
        if whose <= {"new", *OF_LOG_PROBS} and len(whose) < 2:
            return next(iter(whose), "log_probs")
        return ""
    return next((ours for ours, pattern in _READ.items() if pattern.fullmatch(name)), "")


def all_meant(names: Collection[str]) -> dict[str, str]:
    """The quantities that arguments of these names are, side by side; without those not known.

    Beside new log-probs plain ones are the old ones, and the sampler's are where no others are. Two
    names for the log-probs of one policy are not guessed at.
    """
    found = {name: meant(name) for name in names}
    for newer, plain, ours in (
        ("new", "log_probs", "old_log_probs"),
        ("log_probs", "sampler_log_probs", "old_log_probs"),
        ("new", "sampler_log_probs", "old_log_probs"),
    ):
        if newer in found.values() and ours not in found.values():
            found = {name: ours if one == plain else one for name, one in found.items()}
    found = {name: "log_probs" if one == "new" else one for name, one in found.items()}
    several = [one for one in OF_LOG_PROBS if [*found.values()].count(one) > 1]
    return {name: one for name, one in found.items() if one and one not in several}


# ---------------------------------------------------------------- shapes

Layout = Callable[[str, Quantities], Any]


def _by_token(ours: str, given: Quantities) -> Any:
    if ours == "returns":
        return given["rewards"][:, None] * given["mask"]
    if ours == "lengths":
        return given["mask"].sum(dim=1)
    if ours == "groups":
        return torch.arange(len(given["mask"])) // given["group_size"]
    return given[ours].long() if ours == "mask" else given[ours]


def _by_row(ours: str, given: Quantities) -> Any:
    if ours == "returns":
        return given["rewards"]
    value = _by_token(ours, given)
    return value[:, 0] if ours == "advantages" else value


def _by_sum(ours: str, given: Quantities) -> Any:
    value = _by_row(ours, given)
    if ours in (*OF_LOG_PROBS, "entropy"):
        return value.masked_fill(~given["mask"], 0.0).sum(dim=1)
    return value


def _by_mean(ours: str, given: Quantities) -> Any:
    value = _by_sum(ours, given)
    if ours in (*OF_LOG_PROBS, "entropy"):
        return value / given["mask"].sum(dim=1).clamp(min=1)
    return value


def _by_group(ours: str, given: Quantities) -> Any:
    value = _by_row(ours, given)
    if isinstance(value, Tensor) and value.dim():
        return value.reshape(-1, given["group_size"], *value.shape[1:])
    return value


LAYOUTS: Mapping[str, tuple[Layout, tuple[str, ...]]] = MappingProxyType(
    {
        "scripts": (_by_row, ()),
        "scripts-by-token": (_by_token, ()),
        "scripts-by-sum": (_by_sum, ("mask",)),
        "scripts-by-mean": (_by_mean, ("mask",)),
        "scripts-by-group": (_by_group, ("group_size",)),
    }
)
_NEEDS = {
    "returns": ("rewards", "mask"),
    "groups": ("group_size", "mask"),
    "lengths": ("mask",),
    "batch": OFFERED,
}
_SUMS = {_by_sum: re.compile("^sum_|_sum$"), _by_mean: re.compile("^(mean|avg)_|_(mean|avg)$")}
_NOT_OF_A_RESPONSE = ("mask", "values")


def table(layout: str, names: Collection[str]) -> dict[str, Quantity]:
    """What a loss with arguments of these names takes, of those that are known."""
    lay_out, also = LAYOUTS[layout]

    def quantity(ours: str) -> Quantity:
        needs = tuple(dict.fromkeys((*_NEEDS.get(ours, (ours,)), *also)))
        if ours == "batch":
            return Quantity(needs, lambda given: Held(lay_out, given))
        return Quantity(needs, lambda given: lay_out(ours, given))

    said = {name: _SUMS[lay_out].sub("", name) if lay_out in _SUMS else name for name in names}
    found = {name: one for name in names if (one := all_meant(said.values()).get(said[name]))}
    if lay_out in _SUMS:
        found = {name: one for name, one in found.items() if one not in _NOT_OF_A_RESPONSE}
    return {name: quantity(one) for name, one in found.items()}


@dataclass(frozen=True)
class Held:
    """A batch of all there is, asked by attribute or by key, whatever its parts are called.

    Attributes:
        lay_out: in which shapes.
        given: the quantities.
    """

    lay_out: Layout
    given: Quantities

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self:
            raise AttributeError(f"a batch is not known to have {name!r}")
        return self[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"a batch is not known to have {name!r}")
        ours = meant(name)
        if ours == "batch":  # as `data.batch["advantages"]`
            return self
        return self.lay_out("log_probs" if ours == "new" else ours, self.given)

    def __contains__(self, name: str) -> bool:
        return bool(meant(name))

    def to(self, *_: Any, **__: Any) -> "Held":
        """Itself: it is where the loss is."""
        return self

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dictionary."""
        return self[name] if self.__contains__(name) else default
