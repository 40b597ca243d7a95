"""Shapes, and the places of numbers in a row that is read dimension by dimension."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

Shape = tuple[int, ...]


def leaves(data: Any) -> list[Any]:
    """The numbers of nested lists, in order; tensors among them are lists as well."""
    if isinstance(data, list | tuple | range):
        return [number for part in data for number in leaves(part)]
    return data.values() if hasattr(data, "storage") else [data]


def shape_of(data: Any) -> Shape:
    """The lengths of nested lists.

    Raises:
        ValueError: where they differ.
    """
    if hasattr(data, "storage"):
        return data.shape
    if not isinstance(data, list | tuple | range):
        return ()
    shapes = [shape_of(part) for part in data]
    for shape in shapes:
        if shape != shapes[0]:
            wanted, got = (
                f"a sequence of length {s[0]}" if s else "a number" for s in (shapes[0], shape)
            )
            raise ValueError(f"expected {wanted} at dim 1, got {got}: rows of unequal length")
    return (len(data), *(shapes[0] if shapes else ()))


def nested(values: Sequence[Any], shape: Shape) -> Any:
    """Numbers in a row as nested lists of this shape."""
    if not shape:
        return values[0]
    size = math.prod(shape[1:])
    return [nested(values[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def given_shape(sizes: Sequence[Any]) -> Shape:
    """A shape that was given as one tuple, or as several numbers."""
    if len(sizes) == 1 and isinstance(sizes[0], list | tuple):
        sizes = sizes[0]
    return tuple([size.__index__() for size in sizes])


def strides(shape: Shape) -> list[int]:
    """How far apart neighbours lie in each dimension."""
    found, size = [], 1
    for length in reversed(shape):
        found.append(size)
        size *= max(length, 1)  # as torch has it: no step of a range is 0
    return found[::-1]


def spread(axes: Iterable[Iterable[int]], start: int = 0) -> list[int]:
    """Sums of one number of each axis, the last axis fastest: places from those in each axis."""
    places = [start]
    for axis in axes:
        offsets = list(axis)
        places = [place + offset for place in places for offset in offsets]
    return places


def steps(length: int, stride: int) -> list[int]:
    """The places in one dimension."""
    return [i * stride for i in range(length)]


def axes_of(shape: Shape) -> list[Sequence[int]]:
    """The places in each dimension of a shape; ranges, of which an index takes one at once."""
    return [range(0, n * stride, stride) for n, stride in zip(shape, strides(shape), strict=True)]


def broadcast(*shapes: Shape) -> Shape:
    """The shape to which all of these broadcast.

    Raises:
        RuntimeError: if there is none.
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found = []
    for dimension, lengths in enumerate(zip(*padded, strict=True)):
        others = [length for length in lengths if length != 1]
        for length in others:
            if length != others[0]:
                raise RuntimeError(
                    f"The size of tensor a ({others[0]}) must match the size of tensor b "
                    f"({length}) at non-singleton dimension {dimension}"
                )
        found.append(others[0] if others else 1)
    return tuple(found)


def expanded(shape: Shape, into: Shape) -> list[int]:
    """The places that a tensor of one shape is read at where it is expanded into another."""
    missing = len(into) - len(shape)
    ours = [0] * missing + strides(shape)
    lengths = (1,) * missing + shape
    return spread(
        steps(wide, stride) if length == wide else [0] * wide
        for length, wide, stride in zip(lengths, into, ours, strict=True)
    )


def dimension(dim: Any, rank: int) -> int:
    """A dimension counted from the front.

    Raises:
        IndexError: if there is no such dimension.
    """
    least = max(rank, 1)
    if not -least <= dim < least:
        raise IndexError(
            "Dimension out of range (expected to be in range of "
            f"[{-least}, {least - 1}], but got {dim})"
        )
    return dim % least
