"""A tensor without its operations: numbers, read and written by indices; views share them."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from nbcourse.classroom.page_python.arrays.dtypes import (
    BOOL,
    BOOLEAN,
    INT,
    INT64,
    DType,
    joined,
)
from nbcourse.classroom.page_python.arrays.layout import (
    Shape,
    axes_of,
    broadcast,
    expanded,
    leaves,
    nested,
    shape_of,
    spread,
    strides,
)
from nbcourse.classroom.page_python.arrays.tape import Back, Node, no_grad


class Stored:
    """Numbers of one type in a shape.

    Args:
        storage: a list of numbers, which views share.
        shape: of the tensor.
        dtype: which the numbers already have.
        at: where in the storage they are, in order; None if they fill it.
        root: the tensor that fills it, if this one is a view.
    """

    device = "cpu"
    grad: Any = None
    is_leaf = True

    def __init__(
        self, storage: list[Any], shape: Shape, dtype: DType, at: Any = None, root: Any = None
    ) -> None:
        self.storage, self.shape, self.dtype = storage, shape, dtype
        self.at, self.root = at, root
        self.node: Node | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"the small torch of this page has no Tensor.{name}: use the notebook")

    def values(self) -> list[Any]:
        """All numbers in a row."""
        if self.at is None:
            return self.storage[:]
        return [self.storage[place] for place in self.at]

    def made(self, values: Any, shape: Shape, dtype: DType, *parents: tuple[Any, Back]) -> Any:
        """A new tensor, and how gradients flow back from it to the tensors it was made of."""
        tensor = type(self)(dtype.held(values), shape, dtype)
        tensor._tape(*parents)
        return tensor

    def _tape(self, *parents: tuple[Any, Back]) -> None:
        if no_grad.writes and self.dtype.is_floating_point:
            kept = tuple([(p.node, back) for p, back in parents if p.node is not None])
            if kept:
                self.node, self.is_leaf = Node(kept), False

    def taken(self, places: list[int], shape: Shape, *, view: bool = False) -> Any:
        """The numbers at these places, counted in order; a view shares them."""
        if view:
            at = places if self.at is None else [self.at[place] for place in places]
            root = self if self.at is None else self.root
            tensor = type(self)(self.storage, shape, self.dtype, at, root)
        else:
            values = self.values()
            tensor = type(self)([values[place] for place in places], shape, self.dtype)
        tensor._tape((self, lambda gradient: scattered(gradient, places, self.numel())))
        return tensor

    def operand(self, other: Any, dtype: DType | None = None) -> Any:
        """A number as a tensor without dimensions, a tensor as it is, None for anything else."""
        if isinstance(other, Stored):
            return other
        if isinstance(other, bool | int | float):
            return type(self)([other], (), dtype or joined([other]))
        return None

    @property
    def requires_grad(self) -> bool:
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        if requires_grad and not self.dtype.is_floating_point:
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        if not requires_grad:
            self.node = None
        elif self.node is None:
            self.node = Node(leaf=self)
        return self

    def detach(self) -> Any:
        root = None
        if self.at is not None:
            root = type(self)(self.storage, (len(self.storage),), self.dtype)
        return type(self)(self.storage, self.shape, self.dtype, self.at, root)

    @property
    def data(self) -> Any:
        return self.detach()

    def dim(self) -> int:
        return len(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def item(self) -> Any:
        values = self.values()
        if len(values) != 1:
            raise RuntimeError(
                f"a Tensor with {len(values)} elements cannot be converted to Scalar"
            )
        return values[0]

    def tolist(self) -> Any:
        return nested(self.values(), self.shape)

    def __float__(self) -> float:
        return float(self._only())

    def __int__(self) -> int:
        return int(self._only())

    def _only(self) -> Any:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(
                "Boolean value of Tensor with "
                f"{'no values' if self.numel() == 0 else 'more than one value'} is ambiguous"
            )
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter([self[i] for i in range(self.shape[0])])

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, how: str) -> str:
        return format(self.item(), how) if not self.shape else repr(self)

    def __repr__(self) -> str:
        values = self.values()
        words = _in_figures(values) if self.dtype.is_floating_point else list(map(str, values))
        wide = max(map(len, words), default=0)
        rows = nested([word.rjust(wide) for word in words] or [""], self.shape or (1,))
        text = _written(rows if self.shape else rows[0], 8)
        usual = self.dtype.kind == BOOL or self.dtype.name in ("float32", "int64")
        dtype = "" if usual else f", dtype={self.dtype!r}"
        return f"tensor({text}{dtype}{', requires_grad=True' if self.requires_grad else ''})"

    def __getitem__(self, key: Any) -> Any:
        places, shape, view = self._found(key)
        return self.taken(places, shape, view=view)

    def __setitem__(self, key: Any, value: Any) -> None:
        places, shape, _ = self._found(key)
        self.write(places, shape, value)

    def write(self, places: list[int], shape: Shape, value: Any) -> None:
        """Put a value, which broadcasts to the shape, at these places."""
        given = self.operand(value, self.dtype)
        if given is None:
            raise TypeError(f"can't assign a {type(value).__name__} to a torch.{self.dtype.name}")
        if broadcast(given.shape, shape) != shape:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(given.shape)} cannot be broadcast "
                f"to indexing result of shape {list(shape)}"
            )
        filling = self if self.at is None else self.root
        if no_grad.writes and any([t.node is not None and t.is_leaf for t in (self, filling)]):
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        read = expanded(given.shape, shape)
        numbers = given.values()
        held = self.dtype.held([numbers[place] for place in read])
        filled = places if self.at is None else [self.at[place] for place in places]
        for place, number in zip(filled, held, strict=True):
            self.storage[place] = number
        if no_grad.writes and (given.node is not None or filling.node is not None):
            filling._tape_writing(filled, given, read)
            if (at := self.at) is not None:
                size = len(self.storage)
                self._tape((filling, lambda gradient: scattered(gradient, at, size)))

    def _tape_writing(self, places: list[int], given: Any, read: list[int]) -> None:
        before = type(self)(self.storage, self.shape, self.dtype)
        before.node = self.node
        kept = set(places)

        def of_before(gradient: list[float]) -> list[float]:
            return [0.0 if i in kept else g for i, g in enumerate(gradient)]

        def of_given(gradient: list[float]) -> list[float]:
            return scattered([gradient[place] for place in places], read, given.numel())

        self._tape((before, of_before), (given, of_given))

    def _found(self, key: Any) -> tuple[list[int], Shape, bool]:
        """The places that an index names, their shape, and whether they are a view."""
        entries = self._entries(key)
        own = axes_of(self.shape)
        axes: list[Sequence[int]] = []
        chosen: list[tuple[int, Any]] = []  # axis, and the tensor of indices into it
        start = axis = 0
        for entry in entries:
            if entry is None:
                axes.append([0])
                continue
            if isinstance(entry, slice):
                if entry.step is not None and entry.step <= 0:
                    raise ValueError("step must be greater than zero")
                axes.append(own[axis][entry])
            elif isinstance(entry, Stored) and entry.dtype.kind == BOOL and entry.shape:
                covered = self.shape[axis : axis + len(entry.shape)]
                if entry.shape != covered:
                    raise IndexError(
                        f"The shape of the mask {list(entry.shape)} does not match the shape of "
                        f"the indexed tensor {list(covered)}"
                    )
                for column in where_true(entry):
                    chosen.append((len(axes), column))
                    axes.append(own[axis])
                    axis += 1
                continue
            elif isinstance(entry, Stored) and (entry.shape or entry.dtype.kind != INT):
                if entry.dtype.kind != INT:
                    raise IndexError(
                        "tensors used as indices must be long, int, byte or bool tensors"
                    )
                chosen.append((len(axes), entry))
                axes.append(own[axis])
            elif not hasattr(entry, "__index__"):
                raise IndexError(
                    "only integers, slices (`:`), ellipsis (`...`), None and long or byte "
                    f"Variables are valid indices (got {type(entry).__name__})"
                )
            else:
                start += own[axis][_within(entry.__index__(), len(own[axis]), axis)]
            axis += 1
        axes += own[axis:]
        if not chosen:
            return spread(axes, start), tuple([len(offsets) for offsets in axes]), True
        return (*_gathered(axes, chosen, start), False)

    def _entries(self, key: Any) -> list[Any]:
        """An index, as one entry for each dimension that it speaks of, or None for a new one."""
        entries = [self._indices(e) for e in (key if isinstance(key, tuple) else (key,))]
        named = sum(
            [
                len(e.shape) if isinstance(e, Stored) and e.dtype.kind == BOOL else 1
                for e in entries
                if e is not None and e is not Ellipsis
            ]
        )
        if named > len(self.shape):
            raise IndexError(f"too many indices for tensor of dimension {len(self.shape)}")
        rest = [slice(None)] * (len(self.shape) - named)
        return [e for entry in entries for e in (rest if entry is Ellipsis else [entry])]

    def _indices(self, entry: Any) -> Any:
        if not isinstance(entry, list | tuple | range):
            return entry
        numbers = leaves(entry)
        of_truth = bool(numbers) and all([isinstance(number, bool) for number in numbers])
        dtype = BOOLEAN if of_truth else INT64
        return type(self)(dtype.held(numbers), shape_of(entry), dtype)


def insist(name: str, *values: Any) -> None:
    """Refuse anything but tensors, as the functions of torch do.

    Raises:
        TypeError: naming what came.
    """
    for value in values:
        if not isinstance(value, Stored):
            raise TypeError(f"{name}(): expected a Tensor, not {type(value).__name__}")


def scattered(gradient: list[float], places: list[int], size: int) -> list[float]:
    """The gradient of what was read at these places: sums, where a place was read repeatedly."""
    found = [0.0] * size
    for number, place in zip(gradient, places, strict=True):
        found[place] += number
    return found


def _within(index: int, length: int, axis: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for dimension {axis} with size {length}")
    return index % length


def where_true(tensor: Any) -> list[Any]:
    """Where its numbers are not 0, as indices for each of its dimensions."""
    true = [place for place, value in enumerate(tensor.values()) if value]
    return [
        type(tensor)([place // stride % length for place in true], (len(true),), INT64)
        for length, stride in zip(tensor.shape, strides(tensor.shape), strict=True)
    ]


def _gathered(
    axes: list[Sequence[int]], chosen: list[tuple[int, Any]], start: int
) -> tuple[list[int], Shape]:
    """Places and shape, where some axes are read at indices that are chosen together."""
    shape = broadcast(*[index.shape for _, index in chosen])
    together = [start] * math.prod(shape)
    for axis, index in chosen:
        numbers = index.values()
        for i, place in enumerate(expanded(index.shape, shape)):
            together[i] += axes[axis][_within(numbers[place], len(axes[axis]), axis)]
    named = [axis for axis, _ in chosen]
    beside = named == list(range(named[0], named[0] + len(named)))
    first = named[0] if beside else 0
    rest = [offsets for axis, offsets in enumerate(axes) if axis not in named]
    joint = [*rest[:first], together, *rest[first:]]
    lengths = [len(offsets) for offsets in rest]
    return spread(joint), (*lengths[:first], *shape, *lengths[first:])


def _in_figures(values: list[float]) -> list[str]:
    """Numbers as torch writes them: with powers of ten where they differ by more than 1,000."""
    sizes = [abs(value) for value in values if value != 0 and math.isfinite(value)]
    least, most = min(sizes, default=1.0), max(sizes, default=1.0)
    whole = all([size == size // 1 for size in sizes])
    if most / least > 1000 or most > 1e8 or (least < 1e-4 and not whole):
        form = "{:.4e}"
    else:
        form = "{:.0f}." if whole else "{:.4f}"
    return [form.format(value) if math.isfinite(value) else str(value) for value in values]


def _written(rows: Any, indent: int) -> str:
    if not isinstance(rows, list):
        return rows
    if not rows or not isinstance(rows[0], list):
        return f"[{', '.join(rows)}]"
    lines = [_written(row, indent + 1) for row in rows]
    return "[" + f",\n{' ' * indent}".join(lines) + "]"
