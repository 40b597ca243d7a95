"""Keys and values while sampling: with room for more tokens, in the precision attention takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from nbcourse.lm.casting import product_dtype
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
        empty = [x[:, :, :0].to(product_dtype(x)) for x in (key_states, value_states)]
        self._keep(empty, columns=0)

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
        """Change keys, then values, so that memory holds a second copy of only one of the two."""
        columns, self.keys, self.values = self.get_seq_length(), None, None
        for i in range(2):
            self.room[i] = function(self.room[i])
        self._keep(self.room, columns=columns)

    def _keep(self, room: list[Tensor], *, columns: int) -> tuple[Tensor, Tensor]:
        self.room = room
        keys, values = (x[:, :, :columns] for x in room)
        self.keys, self.values = keys, values
        return keys, values


class FixedLayer(DynamicLayer):
    """A layer's keys and values of a fixed shape, (B, heads, columns, size), written in place.

    All columns are handed to attention, those that hold nothing yet too: they are 0, and the mask
    has to leave them out.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, column: Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values, self.column = keys, values, column

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one column, where `column` says, and give all."""
        for room, new in zip((self.keys, self.values), (key_states, value_states), strict=True):
            room.index_copy_(2, self.column, new.to(room.dtype))
        return self.keys, self.values

    def resize(self, rows: Tensor, columns: int) -> None:
        """These rows only, in the order that they have, with room for so many columns."""
        for name in ("keys", "values"):  # in turn: a second copy of only one of the two at a time
            now = getattr(self, name)
            now = now if len(rows) == len(now) else now.index_select(0, rows)
            setattr(self, name, _wider(now, columns))


def fix(
    cache: Cache, column: Tensor, *, group_size: int, columns: int
) -> tuple[Cache, list[FixedLayer]]:
    """Share the prompts' keys and values out to their groups, with room for so many columns.

    Args:
        cache: of the prompts; it gives its layers away one by one.
        column: (1,) where the next column is written; the caller of the model counts it up.
        group_size: rows of each prompt.
        columns: in all.

    Returns:
        A cache, and its layers.

    Raises:
        ValueError: if a layer keeps only a window.
    """
    layers: list[FixedLayer] = []
    while cache.layers:
        layer = cache.layers.pop(0)
        if not isinstance(layer, RoomyLayer):
            raise ValueError(
                f"layer {len(layers)} of the model keeps a {type(layer).__name__}, expected layers "
                "that keep all columns for a static engine"
            )
        keys, values = (
            _wider(x[:, :, : layer.get_seq_length()].repeat_interleave(group_size, dim=0), columns)
            for x in layer.room
        )
        layers.append(FixedLayer(keys, values, column))
    return Cache(layers=[*layers]), layers


def _wider(x: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, 0, 0, columns - x.shape[2]))


def empty_cache(model: "PreTrainedModel") -> DynamicCache:
    """A cache for a model; layers that keep only a window stay as transformers has them."""
    cache = DynamicCache(config=model.config)
    cache.layers = [RoomyLayer() if type(x) is DynamicLayer else x for x in cache.layers]
    return cache
