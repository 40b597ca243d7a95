"""What is computed row by row: sums, extremes, softmax, order."""

import math
from collections.abc import Callable
from typing import Any

from nbcourse.classroom.page_python.arrays.arithmetic import (
    Arithmetic,
    exponential,
    larger,
    logarithm,
    quotient,
    smaller,
)
from nbcourse.classroom.page_python.arrays.dtypes import (
    BOOL,
    BOOLEAN,
    FLOAT,
    INT64,
    DType,
    added_up,
    real,
)
from nbcourse.classroom.page_python.arrays.layout import Shape, axes_of, dimension, spread

Row = list[Any]


def named(kind: str, *names: str) -> Any:
    """A kind of tuple whose parts have names as well; a page has no `collections`."""

    def place(i: int) -> property:
        return property(lambda parts: parts[i])

    return type(kind, (tuple,), {name: place(i) for i, name in enumerate(names)})


Extremes = named("Extremes", "values", "indices")  # of `max`, `min`, `sort`, `topk` in a dimension
Solved = named("Solved", "solution")  # what `torch.linalg.lstsq` returns


class Rows:
    """A tensor as rows along some dimensions.

    Args:
        tensor: to be read.
        dim: one dimension or several; None stands for all.
    """

    def __init__(self, tensor: Any, dim: Any) -> None:
        rank = len(tensor.shape)
        named = dim if isinstance(dim, list | tuple) else [] if dim is None else [dim]
        within = [dimension(one, rank) for one in named] or list(range(rank))
        self.within = [axis for axis in sorted(within) if rank]
        self.beside = [axis for axis in range(rank) if axis not in self.within]
        self.shape, self.rest = tensor.shape, tuple([tensor.shape[i] for i in self.beside])
        axes = axes_of(tensor.shape)
        self.places = spread(axes[i] for i in [*self.beside, *self.within])
        self.length = math.prod([self.shape[i] for i in self.within])
        values = tensor.values()
        self.rows = self.cut([values[place] for place in self.places])

    def cut(self, values: Row) -> list[Row]:
        """Numbers in the order of the rows, as rows."""
        n = self.length
        count = math.prod(self.rest)
        return [values[i * n : (i + 1) * n] for i in range(count)]

    def kept(self, keepdim: bool) -> Shape:
        """The shape of one number for each row."""
        if not keepdim:
            return self.rest
        return tuple([1 if i in self.within else n for i, n in enumerate(self.shape)])

    def back(self, rows: list[Row]) -> Row:
        """Rows as the numbers of the tensor, in its order."""
        found = [0.0] * len(self.places)
        for place, number in zip(self.places, [x for row in rows for x in row], strict=True):
            found[place] = number
        return found


class Reductions(Arithmetic):
    """What is computed row by row."""

    def reduced(
        self,
        dim: Any,
        keepdim: bool,
        dtype: DType,
        function: Callable[[Row], Any],
        by: Callable[[Row, Any], Row] | None = None,
    ) -> Any:
        """One number for each row; `by` has its derivatives, from the row and the number."""
        rows = Rows(self, dim)
        values = [function(row) for row in rows.rows]
        if by is None:
            return self.made(values, rows.kept(keepdim), dtype)

        def back(gradient: list[float]) -> list[float]:
            return rows.back(
                [
                    [g * part for part in by(row, value)]
                    for g, row, value in zip(gradient, rows.rows, values, strict=True)
                ]
            )

        return self.made(values, rows.kept(keepdim), dtype, (self, back))

    def rowwise(
        self,
        dim: int,
        dtype: DType,
        function: Callable[[Row], Row],
        by: Callable[[Row, Row, Row], Row] | None = None,
    ) -> Any:
        """A row for each row; `by` has the gradient, from gradient, row and result."""
        rows = Rows(self, dim)
        results = [function(row) for row in rows.rows]
        if by is None:
            return self.made(rows.back(results), self.shape, dtype)

        def back(gradient: list[float]) -> list[float]:
            parts = rows.cut([gradient[place] for place in rows.places])
            return rows.back(
                [by(g, x, y) for g, x, y in zip(parts, rows.rows, results, strict=True)]
            )

        return self.made(rows.back(results), self.shape, dtype, (self, back))

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        found = dtype or added_up(self.dtype)
        return self.reduced(dim, keepdim, found, _summed(found), lambda row, _: [1.0] * len(row))

    def mean(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        found = self.to(dtype)
        if found.dtype.kind != FLOAT:
            raise RuntimeError(
                "mean(): could not infer output dtype. Input dtype must be either a floating "
                "point or complex dtype."
            )
        total = found.sum(dim, keepdim)
        return total / (found.numel() / total.numel() if total.numel() else 1)

    def prod(self, dim: Any = None, keepdim: bool = False) -> Any:
        def others(row: Row, _: Any) -> Row:
            return [math.prod(row[:i] + row[i + 1 :]) for i in range(len(row))]

        return self.reduced(dim, keepdim, added_up(self.dtype), math.prod, others)

    def var(
        self,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        less = int(unbiased) if correction is None else correction

        def mean(row: Row) -> Any:
            return quotient(math.fsum(row) if _finite(row) else sum(row), len(row))

        def variance(row: Row) -> Any:
            middle = mean(row)
            return quotient(sum([(x - middle) ** 2 for x in row]), max(len(row) - less, 0))

        def by(row: Row, _: Any) -> Row:
            middle = mean(row)
            return [quotient(2 * (x - middle), max(len(row) - less, 0)) for x in row]

        return self.reduced(dim, keepdim, self.dtype, variance, by)

    def std(
        self, dim: Any = None, unbiased: bool = True, keepdim: bool = False, **more: Any
    ) -> Any:
        return self.var(dim, unbiased, keepdim, **more).sqrt()

    def norm(self, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
        if p == math.inf:
            return self.abs().amax(dim, keepdim)
        if p != 2:
            return self.abs().pow(p).sum(dim, keepdim).pow(1 / p)
        return self.reduced(
            dim,
            keepdim,
            self.dtype,
            lambda row: math.sqrt(sum([x * x for x in row])),
            lambda row, length: [quotient(x, length) if length else 0.0 for x in row],
        )

    def any(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self.reduced(dim, keepdim, BOOLEAN, any)

    def all(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self.reduced(dim, keepdim, BOOLEAN, all)

    def count_nonzero(self, dim: Any = None) -> Any:
        return self.bool().sum(dim)

    def amax(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self.reduced(dim, keepdim, self.dtype, _largest, _evenly)

    def amin(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self.reduced(dim, keepdim, self.dtype, _smallest, _evenly)

    def max(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self._extreme(_largest, "maximum", dim, keepdim)

    def min(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self._extreme(_smallest, "minimum", dim, keepdim)

    def _extreme(self, best: Callable[[Row], Any], of_two: str, dim: Any, keepdim: bool) -> Any:
        if isinstance(dim, Arithmetic):
            return getattr(self, of_two)(dim)
        if dim is None:
            return self.reduced(None, False, self.dtype, best, _evenly)

        def first(row: Row, value: Any) -> Row:
            at = _where(row, value)
            return [float(i == at) for i in range(len(row))]

        values = self.reduced(dim, keepdim, self.dtype, best, first)
        indices = self.reduced(dim, keepdim, INT64, lambda row: _where(row, best(row)))
        return Extremes((values, indices))

    def argmax(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self._first(_largest, dim, keepdim)

    def argmin(self, dim: Any = None, keepdim: bool = False) -> Any:
        return self._first(_smallest, dim, keepdim)

    def _first(self, best: Callable[[Row], Any], dim: Any, keepdim: bool) -> Any:
        if self.dtype.kind == BOOL:
            raise RuntimeError("argmax and argmin are not implemented for Bool")
        if not self.numel():
            raise IndexError("expected a tensor with numbers in it, there are none")
        return self.reduced(dim, keepdim, INT64, lambda row: _where(row, best(row)))

    def median(self, dim: Any = None, keepdim: bool = False) -> Any:
        def middle(row: Row) -> Any:
            return math.nan if _has_nan(row) else sorted(row)[(len(row) - 1) // 2]

        if dim is not None:
            raise RuntimeError("the small torch of this page has the median of all numbers alone")
        return self.reduced(None, keepdim, self.dtype, middle, _evenly)

    def logsumexp(self, dim: Any, keepdim: bool = False) -> Any:
        return self.reduced(
            dim,
            keepdim,
            real(self.dtype),
            _log_sum_exp,
            lambda row, total: [exponential(x - total) for x in row],
        )

    def softmax(self, dim: int, *, dtype: Any = None) -> Any:
        found = self.to(dtype)._of_floats("softmax")
        return found.rowwise(dim, found.dtype, _shares, _by_shares)

    def _of_floats(self, name: str) -> Any:
        if self.dtype.kind != FLOAT:
            raise RuntimeError(f'"{name}" not implemented for {self.dtype!r}')
        return self

    def log_softmax(self, dim: int, *, dtype: Any = None) -> Any:
        found = self.to(dtype)._of_floats("log_softmax")

        def logs(row: Row) -> Row:
            total = _log_sum_exp(row)
            if math.isinf(total):  # as exp(∞ − ∞) makes it
                total = math.nan
            return [x - total for x in row]

        def by(gradient: Row, _: Row, result: Row) -> Row:
            total = sum(gradient)
            return [g - exponential(y) * total for g, y in zip(gradient, result, strict=True)]

        return found.rowwise(dim, found.dtype, logs, by)

    def cumsum(self, dim: int, *, dtype: Any = None) -> Any:
        found = dtype or added_up(self.dtype)
        return self.rowwise(
            dim,
            found,
            lambda row: _running(row, found),
            lambda gradient, _, __: _running(gradient[::-1], found)[::-1],
        )

    def cumprod(self, dim: int) -> Any:
        def products(row: Row) -> Row:
            found: Row = []
            for x in row:
                found.append(x * found[-1] if found else x)
            return found

        def by(gradient: Row, row: Row, _: Row) -> Row:
            found = [0.0] * len(row)
            for i in range(len(row)):
                product: float = math.prod(row[:i])
                for j in range(i, len(row)):
                    product *= row[j] if j > i else 1.0
                    found[i] += gradient[j] * product
            return found

        return self.rowwise(dim, added_up(self.dtype), products, by)

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
        return self.rowwise(dim, INT64, lambda row: _order(row, descending))

    def sort(self, dim: int = -1, descending: bool = False) -> Any:
        indices = self.argsort(dim, descending)
        return Extremes((self.gather(dim, indices) if self.shape else self, indices))

    def topk(self, k: int, dim: int = -1, largest: bool = True) -> Any:
        order = self.argsort(dim, largest).narrow(dim, 0, k)
        return Extremes((self.gather(dim, order), order))

    def matmul(self, other: Any) -> Any:
        return matrix_product(self, other)

    __matmul__ = matmul
    dot = matmul
    mv = matmul
    mm = matmul

    def outer(self, other: Any) -> Any:
        return self.unsqueeze(1) * other

    def equal(self, other: Any) -> Any:
        return self.shape == other.shape and self.values() == other.values()


def matrix_product(one: Any, two: Any) -> Any:
    """The product of vectors, matrices, or rows of matrices."""
    if not one.shape or not two.shape:
        raise RuntimeError("both arguments to matmul need to be at least 1D")
    left = one if len(one.shape) > 1 else one.unsqueeze(0)
    right = two if len(two.shape) > 1 else two.unsqueeze(-1)
    if left.shape[-1] != right.shape[-2]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({left.shape} and {right.shape})"
        )
    if left.dtype is not right.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {left.dtype} != {right.dtype}"
        )
    exact = left.double() if left.dtype.bits else left
    terms = exact.unsqueeze(-1) * right.to(exact.dtype).unsqueeze(-3)
    found = terms.sum(-2).to(left.dtype)
    if len(one.shape) == 1:
        found = found.squeeze(-2)
    return found.squeeze(-1) if len(two.shape) == 1 else found


def solution(left: Any, right: Any) -> Any:
    """x of left · x = right, for one matrix, by elimination; no gradient flows through it."""
    columns = right if len(right.shape) > 1 else right.unsqueeze(-1)
    rows = [[*a, *b] for a, b in zip(left.tolist(), columns.tolist(), strict=True)]
    size = len(rows)
    for i in range(size):
        best = max(range(i, size), key=lambda j: abs(rows[j][i]))
        if rows[best][i] == 0:
            raise RuntimeError("linalg.solve: the input matrix is singular")
        rows[i], rows[best] = rows[best], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    values = [x for row in rows for x in row[size:]]
    return left.made(values, columns.shape, left.dtype).reshape(right.shape)


def least_squares(left: Any, right: Any) -> Any:
    """x for which left · x is nearest to right, where the columns of left are independent."""
    one, two = left.double(), right.double()
    return Solved((solution(one.T @ one, one.T @ two).to(left.dtype),))


def _summed(dtype: DType) -> Callable[[Row], Any]:
    """How a row is added up: number by number, each sum rounded as the type does."""
    if not dtype.bits:
        return sum
    return lambda row: _running(row, dtype)[-1] if row else 0.0


def _running(row: Row, dtype: DType) -> Row:
    found: Row = []
    total: Any = 0.0 if dtype.kind == FLOAT else 0
    for number in row:
        total = dtype.rounded(total + number) if dtype.bits else total + number
        found.append(total)
    return found


def _has_nan(row: Row) -> bool:
    return any([x != x for x in row])


def _finite(row: Row) -> bool:
    return all([math.isfinite(x) for x in row])


def _best(row: Row, of_two: Callable[[Any, Any], Any]) -> Any:
    if not row:
        raise RuntimeError(
            "Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
            "dim with the 'dim' argument."
        )
    found = row[0]
    for x in row[1:]:
        found = of_two(found, x)
    return found


def _largest(row: Row) -> Any:
    return _best(row, larger)


def _smallest(row: Row) -> Any:
    return _best(row, smaller)


def _where(row: Row, value: Any) -> int:
    """The first place of a value, which may be NaN."""
    return next(i for i, x in enumerate(row) if x == value or (x != x and value != value))


def _evenly(row: Row, value: Any) -> Row:
    """A gradient goes to all of a row's numbers that have the value, in equal parts."""
    hits = [float(x == value or (x != x and value != value)) for x in row]
    count = sum(hits)
    return [hit / count for hit in hits]


def _order(row: Row, descending: bool) -> list[int]:
    def key(i: int) -> tuple[bool, float]:  # NaN counts as largest
        x = row[i]
        return (x != x) != descending, 0 if x != x else -x if descending else x

    return sorted(range(len(row)), key=key)


def _log_sum_exp(row: Row) -> Any:
    most = _largest(row) if row else -math.inf
    if not math.isfinite(most):
        return most
    return most + logarithm(sum([exponential(x - most) for x in row]))


def _shares(row: Row) -> Row:
    most = _largest(row) if row else 0.0
    powers = [exponential(x - most) for x in row]
    total = sum(powers)
    return [x / total for x in powers]


def _by_shares(gradient: Row, _: Row, result: Row) -> Row:
    inner = sum([g * y for g, y in zip(gradient, result, strict=True)])
    return [(g - inner) * y for g, y in zip(gradient, result, strict=True)]
