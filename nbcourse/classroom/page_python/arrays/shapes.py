"""What only moves numbers: their gradients move back."""

import math
from typing import Any

from nbcourse.classroom.page_python.arrays.dtypes import BOOLEAN, INT64, DType, joined
from nbcourse.classroom.page_python.arrays.layout import (
    Shape,
    axes_of,
    broadcast,
    dimension,
    expanded,
    given_shape,
    spread,
    steps,
    strides,
)
from nbcourse.classroom.page_python.arrays.reductions import Reductions
from nbcourse.classroom.page_python.arrays.storage import insist, where_true


class Shapes(Reductions):
    """What only moves numbers."""

    def reshape(self, *sizes: Any) -> Any:
        return self.taken(list(range(self.numel())), self._fitting(sizes), view=self._in_row())

    def view(self, *sizes: Any) -> Any:
        if len(sizes) == 1 and isinstance(sizes[0], DType):
            raise RuntimeError("the small torch of this page has no view as another type")
        shape = self._fitting(sizes)
        kept = [n for n in shape if n != 1] == [n for n in self.shape if n != 1]
        if not self._in_row() and not kept:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
            )
        return self.taken(list(range(self.numel())), shape, view=True)

    def _in_row(self) -> bool:
        """Whether the numbers lie in the storage one behind the other."""
        at = self.at
        return not at or at == list(range(at[0], at[0] + len(at)))

    def _fitting(self, sizes: Any) -> Shape:
        shape, count = given_shape(sizes), self.numel()
        if -1 in shape:
            rest = math.prod([n for n in shape if n != -1])
            shape = tuple([(count // rest if rest else 0) if n == -1 else n for n in shape])
        if math.prod(shape) != count:
            raise RuntimeError(
                f"shape '{list(given_shape(sizes))}' is invalid for input of size {count}"
            )
        return shape

    def view_as(self, other: Any) -> Any:
        return self.view(other.shape)

    def reshape_as(self, other: Any) -> Any:
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        rank = len(self.shape)
        first, last = dimension(start_dim, rank), dimension(end_dim, rank)
        middle = math.prod(self.shape[first : last + 1])
        return self.reshape((*self.shape[:first], middle, *self.shape[last + 1 :]))

    ravel = flatten

    def unflatten(self, dim: int, sizes: Any) -> Any:
        at = dimension(dim, len(self.shape))
        return self.reshape((*self.shape[:at], *sizes, *self.shape[at + 1 :]))

    def permute(self, *dims: Any) -> Any:
        order = [dimension(dim, len(self.shape)) for dim in given_shape(dims)]
        own = axes_of(self.shape)
        places = spread(own[i] for i in order)
        return self.taken(places, tuple([self.shape[i] for i in order]), view=True)

    def transpose(self, dim0: int, dim1: int) -> Any:
        rank = len(self.shape)
        one, two = dimension(dim0, rank), dimension(dim1, rank)
        order = list(range(rank))
        order[one], order[two] = two, one
        return self.permute(order)

    def movedim(self, source: int, destination: int) -> Any:
        rank = len(self.shape)
        order = [i for i in range(rank) if i != dimension(source, rank)]
        order.insert(dimension(destination, rank), dimension(source, rank))
        return self.permute(order)

    def t(self) -> Any:
        return self.permute(list(range(len(self.shape)))[::-1])

    @property
    def T(self) -> Any:
        return self.t()

    @property
    def mT(self) -> Any:
        return self.transpose(-1, -2)

    def unsqueeze(self, dim: int) -> Any:
        at = dimension(dim, len(self.shape) + 1)
        return self.view((*self.shape[:at], 1, *self.shape[at:]))

    def squeeze(self, dim: Any = None) -> Any:
        rank = len(self.shape)
        named = range(rank) if dim is None else [dimension(dim, rank)]
        return self.view(tuple([n for i, n in enumerate(self.shape) if n != 1 or i not in named]))

    def expand(self, *sizes: Any) -> Any:
        shape = given_shape(sizes)
        own = (1,) * (len(shape) - len(self.shape)) + self.shape
        into = tuple([n if n != -1 else o for n, o in zip(shape, own, strict=True)])
        if broadcast(self.shape, into) != into:
            raise RuntimeError(
                f"The expanded size {list(into)} must match the existing size {list(self.shape)}"
            )
        return (
            self if into == self.shape else self.taken(expanded(self.shape, into), into, view=True)
        )

    def expand_as(self, other: Any) -> Any:
        return self.expand(other.shape)

    broadcast_to = expand

    def repeat(self, *sizes: Any) -> Any:
        times = given_shape(sizes)
        shape = (1,) * (len(times) - len(self.shape)) + self.shape
        if len(times) < len(shape):
            raise RuntimeError(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions "
                "of tensor"
            )
        own = strides(shape)
        places = spread(
            steps(n, stride) * time for n, stride, time in zip(shape, own, times, strict=True)
        )
        return self.taken(places, tuple([n * time for n, time in zip(shape, times, strict=True)]))

    tile = repeat

    def repeat_interleave(self, repeats: Any, dim: Any = None) -> Any:
        found = self.flatten() if dim is None else self
        length = found.shape[dimension(dim or 0, len(found.shape))]
        many = repeats.values() if hasattr(repeats, "storage") else [repeats]
        many = many * length if len(many) == 1 else many
        if len(many) != length:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{len(many)} and input.size(0) = {length}"
            )
        return found._along(dim or 0, [i for i, n in enumerate(many) for _ in range(n)])

    def _along(self, dim: int, indices: list[int]) -> Any:
        """The numbers at these indices of one dimension."""
        at = dimension(dim, len(self.shape))
        axes = axes_of(self.shape)
        axes[at] = [axes[at][k] for k in indices]
        return self.taken(spread(axes), (*self.shape[:at], len(indices), *self.shape[at + 1 :]))

    def flip(self, *dims: Any) -> Any:
        found = self
        for dim in given_shape(dims):
            length = self.shape[dimension(dim, len(self.shape))]
            found = found._along(dim, list(range(length))[::-1])
        return found

    def roll(self, shifts: int, dims: Any = None) -> Any:
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        dim = dims[0] if isinstance(dims, tuple) else dims
        by = shifts[0] if isinstance(shifts, tuple) else shifts
        length = self.shape[dim]
        return self._along(dim, [(i - by) % length for i in range(length)])

    def index_select(self, dim: int, index: Any) -> Any:
        return self._along(dim, index.values())

    def narrow(self, dim: int, start: int, length: int) -> Any:
        at = dimension(dim, len(self.shape))
        if start + length > self.shape[at]:
            raise RuntimeError(f"{length} numbers from {start} on exceed dimension {dim}")
        return self[(*[slice(None)] * at, slice(start, start + length))]

    def unbind(self, dim: int = 0) -> Any:
        at = dimension(dim, len(self.shape))
        return tuple([self[(*[slice(None)] * at, i)] for i in range(self.shape[at])])

    def split(self, size: Any, dim: int = 0) -> Any:
        length = self.shape[dim]
        sizes = (
            size
            if isinstance(size, list | tuple)
            else [min(size, length - i) for i in range(0, length, size)]
        )
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        return tuple([self.narrow(dim, s, n) for s, n in zip(starts, sizes, strict=True)])

    def chunk(self, chunks: int, dim: int = 0) -> Any:
        return self.split(-(-self.shape[dim] // chunks), dim)

    def diff(self, dim: int = -1) -> Any:
        length = self.shape[dim]
        later, earlier = self.narrow(dim, 1, length - 1), self.narrow(dim, 0, length - 1)
        return later != earlier if self.dtype.kind == 0 else later - earlier

    def diagonal(self) -> Any:
        rows, columns = self.shape
        size = min(rows, columns)
        return self.taken([i * (columns + 1) for i in range(size)], (size,), view=True)

    def diag(self) -> Any:
        if len(self.shape) == 2:
            return self.diagonal().clone()
        size = self.shape[0]
        return self.made([0] * size**2, (size, size), self.dtype).fill_diagonal_(self)

    def fill_diagonal_(self, value: Any) -> Any:
        self.diagonal().copy_(value)
        return self

    def tril(self, diagonal: int = 0) -> Any:
        return self._triangle(lambda i, j: j - i <= diagonal)

    def triu(self, diagonal: int = 0) -> Any:
        return self._triangle(lambda i, j: j - i >= diagonal)

    def _triangle(self, inside: Any) -> Any:
        rows, columns = self.shape[-2:]
        kept = [inside(i, j) for i in range(rows) for j in range(columns)]
        mask = self.made(kept, (rows, columns), BOOLEAN)
        return self.masked_fill(~mask, 0)

    def masked_select(self, mask: Any) -> Any:
        return self[mask]

    def masked_scatter(self, mask: Any, source: Any) -> Any:
        found, count = self.clone(), int(mask.sum())
        found[mask] = source.flatten()[:count]
        return found

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        columns = where_true(self)
        if as_tuple:
            return tuple(columns)
        rows = zip(*[column.values() for column in columns], strict=True)
        shape = (self.count_nonzero().item(), len(columns))
        return self.made([index for row in rows for index in row], shape, INT64)

    def _gathering(self, dim: int, index: Any) -> list[int]:
        """The places that an index of `gather` names."""
        at, own = dimension(dim, len(self.shape)), strides(self.shape)
        beside = spread([0] * n if i == at else steps(n, own[i]) for i, n in enumerate(index.shape))
        for i, (wanted, there) in enumerate(zip(index.shape, self.shape, strict=True)):
            if i != at and wanted > there:
                raise RuntimeError(
                    f"Size does not match at dimension {i} expected index {list(index.shape)} to "
                    f"be no larger than self {list(self.shape)} apart from dimension {at}"
                )
        for number in index.values():
            if not 0 <= number < self.shape[at]:
                raise RuntimeError(
                    f"index {number} is out of bounds for dimension {at} with size {self.shape[at]}"
                )
        return [p + k * own[at] for p, k in zip(beside, index.values(), strict=True)]

    def gather(self, dim: int, index: Any) -> Any:
        insist("gather", index)
        if index.dtype is not INT64:
            raise RuntimeError("gather(): Expected dtype int64 for index")
        if len(index.shape) != len(self.shape):
            raise RuntimeError(
                "Index tensor must have the same number of dimensions as input tensor"
            )
        return self.taken(self._gathering(dim, index), index.shape)

    def scatter(self, dim: int, index: Any, src: Any) -> Any:
        found = self.clone()
        given = self.operand(src, self.dtype)
        part = given if not given.shape else given[tuple([slice(n) for n in index.shape])]
        found.write(self._gathering(dim, index), index.shape, part)
        return found

    def scatter_add(self, dim: int, index: Any, src: Any) -> Any:
        places = self._gathering(dim, index)
        part = src[tuple([slice(n) for n in index.shape])]
        values = self.values()
        for place, number in zip(places, part.values(), strict=True):
            values[place] += number
        return self.made(
            values,
            self.shape,
            self.dtype,
            (self, lambda gradient: gradient),
            (part, lambda gradient: [gradient[place] for place in places]),
        )

    def index_add(self, dim: int, index: Any, source: Any) -> Any:
        at = dimension(dim, len(self.shape))
        shape = tuple([len(index) if i == at else 1 for i in range(len(self.shape))])
        return self.scatter_add(dim, index.view(shape).expand(source.shape), source)

    def unique(
        self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
    ) -> Any:
        values = self.values()
        found = list(dict.fromkeys(values))
        found.sort()
        inverse = [found.index(value) for value in values]
        return self._told(found, inverse, return_inverse, return_counts)

    def unique_consecutive(self, return_inverse: bool = False, return_counts: bool = False) -> Any:
        found: list[Any] = []
        inverse = []
        for value in self.values():
            if not found or value != found[-1]:
                found.append(value)
            inverse.append(len(found) - 1)
        return self._told(found, inverse, return_inverse, return_counts)

    def _told(self, found: list[Any], inverse: list[int], with_inverse: bool, counts: bool) -> Any:
        size = (len(found),)
        results = [self.made(found, size, self.dtype)]
        if with_inverse:
            results.append(self.made(inverse, self.shape, INT64))
        if counts:
            results.append(self.made([inverse.count(i) for i in range(len(found))], size, INT64))
        return results[0] if len(results) == 1 else tuple(results)


def joined_along(tensors: Any, dim: int) -> Any:
    """Tensors one behind the other."""
    insist("cat", *tensors)
    parts = [t for t in tensors if t.shape != (0,)] or list(tensors)
    first = parts[0]
    at = dimension(dim, len(first.shape))
    beside = [(*t.shape[:at], *t.shape[at + 1 :]) for t in parts]
    for other in beside:
        if other != beside[0]:
            raise RuntimeError(
                "Sizes of tensors must match except in dimension "
                f"{at}: {[list(t.shape) for t in parts]}"
            )
    total = sum([t.shape[at] for t in parts])
    shape = (*first.shape[:at], total, *first.shape[at + 1 :])
    own = strides(shape)
    values: list[Any] = [0] * math.prod(shape)
    parents, start = [], 0
    for part in parts:
        places = spread(
            [steps(n, s) for n, s in zip(part.shape, own, strict=True)], start * own[at]
        )
        for place, value in zip(places, part.values(), strict=True):
            values[place] = value
        parents.append((part, lambda gradient, places=places: [gradient[p] for p in places]))
        start += part.shape[at]
    return first.made(values, shape, joined(tensors), *parents)


def stacked(tensors: Any, dim: int) -> Any:
    """Tensors as the slices of one with a dimension more."""
    insist("stack", *tensors)
    shapes = [t.shape for t in tensors]
    for shape in shapes:
        if shape != shapes[0]:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shapes[0])} and "
                f"{list(shape)}"
            )
    return joined_along([t.unsqueeze(dim) for t in tensors], dim)


def padded(tensor: Any, pad: Any, value: float = 0.0) -> Any:
    """A tensor with rows of a value around it, as `torch.nn.functional.pad` counts them."""
    found = tensor
    for i in range(0, len(pad), 2):
        dim = len(found.shape) - 1 - i // 2
        before, after = pad[i], pad[i + 1]
        kept = found.narrow(dim, max(-before, 0), found.shape[dim] + min(before, 0) + min(after, 0))
        edges = []
        for count in (max(before, 0), max(after, 0)):
            shape = (*kept.shape[:dim], count, *kept.shape[dim + 1 :])
            edges.append(kept.made([value] * math.prod(shape), shape, kept.dtype))
        found = joined_along([edges[0], kept, edges[1]], dim)
    return found
