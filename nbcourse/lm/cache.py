"""Keys and values while sampling: with room for more tokens, in the precision attention takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from nbcourse.lm.rollouts import with_room

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class RoomyLayer(DynamicLayer):
    """A layer's keys and values, (B, heads, columns, size) each, with room for further columns.

    Attention computes the same from it as from transformers' own layer, to the last bit. That one
    copies all columns for each new token, and keeps them in float32, which autocast then rounds
    for each new token; here a column is written once, beside the others, as it will be read.
    """

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """No columns yet, in the precision of products under autocast, or else as they come."""
        super().lazy_initialization(key_states, value_states)
        device = key_states.device.type
        if torch.is_autocast_enabled(device):
            self.dtype = torch.get_autocast_dtype(device)
        self._keep([x[:, :, :0].to(self.dtype) for x in (key_states, value_states)], columns=0)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write new columns, and give all that there are."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if end > self.room[0].shape[2]:
            more = with_room(end) - self.room[0].shape[2]
            self._change(lambda x: torch.nn.functional.pad(x, (0, 0, 0, more)))
        for room, new in zip(self.room, (key_states, value_states), strict=True):
            room[:, :, start:end] = new
        return self._keep(self.room, columns=end)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times."""
        self._change(lambda x: x.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """These rows only."""
        self._change(lambda x: x.index_select(0, indices))

    def _change(self, function: Callable[[Tensor], Tensor]) -> None:
        """One of the two after the other, so that only one is there twice."""
        columns, self.keys, self.values = self.get_seq_length(), None, None
        for i in range(2):
            self.room[i] = function(self.room[i])
        self._keep(self.room, columns=columns)

    def _keep(self, room: list[Tensor], *, columns: int) -> tuple[Tensor, Tensor]:
        self.room = room
        keys, values = (x[:, :, :columns] for x in room)
        self.keys, self.values = keys, values
        return keys, values


def empty_cache(model: "PreTrainedModel") -> DynamicCache:
    """A cache for a model; layers that keep only a window stay as transformers has them."""
    cache = DynamicCache(config=model.config)
    cache.layers = [RoomyLayer() if type(x) is DynamicLayer else x for x in cache.layers]
    return cache
