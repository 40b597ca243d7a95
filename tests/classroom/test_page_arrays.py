"""The small torch of the pages does what torch does: numbers, shapes, types, gradients, errors."""

import ast
import inspect
import math
from typing import Any

import pytest
import torch

from nbcourse.classroom.page_python.arrays import (
    arithmetic,
    dtypes,
    layout,
    reductions,
    shapes,
    storage,
    tape,
    tensor,
)

small = tensor.torch
NAN, INF = math.nan, math.inf
F64 = torch.float64


PARTS = (dtypes, tape, layout, storage, arithmetic, reductions, shapes, tensor)


def ours(value: Any) -> Any:
    """Tensors and types of torch as those of the page, at every level."""
    if isinstance(value, torch.Tensor):
        made = small.tensor(value.tolist(), dtype=ours(value.dtype)).reshape(tuple(value.shape))
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(small, str(value).removeprefix("torch."))
    if isinstance(value, list | tuple):
        return type(value)(map(ours, value))
    return value


def told(value: Any) -> Any:
    """What can be compared: numbers with their shape and type, at every level."""
    if isinstance(value, torch.Tensor | tensor.Tensor):
        return repr(value.dtype), tuple(value.shape), value.detach().flatten().tolist()
    if isinstance(value, list | tuple):
        return [told(part) for part in value]
    return value


def assert_alike(found: Any, wanted: Any) -> None:
    if isinstance(wanted, float):
        rounding = 1e-6 if not math.isinf(wanted) else 0
        assert found == pytest.approx(wanted, rel=3e-6, abs=rounding, nan_ok=True)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    else:
        assert found == wanted
        assert isinstance(found, type(wanted))


def compare(of: Any, *given: Any) -> None:
    """The same function of both modules, on the same numbers: the same, or the same error."""
    ends: list[Any] = []
    for module, handed in ((torch, clones(given)), (small, ours(list(given)))):
        try:
            ends.append(told(of(module, *handed)))
        except NotImplementedError:  # which a check would take for a stub's
            ends.append("RuntimeError")
        except Exception as error:
            ends.append(type(error).__name__)
    assert_alike(ends[1], ends[0])


def clones(given: Any) -> list[Any]:
    return [
        value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in given
    ]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    if dtype is torch.bool:
        return numbers > 0
    return (3 * numbers).to(dtype) if not dtype.is_floating_point else numbers.to(dtype)


DTYPES = [torch.float32, F64, torch.int64, torch.bool]
SHAPES = [(), (1,), (4,), (2, 3), (3, 1, 2), (0,), (2, 0)]
ODD = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -3e38, 710.0, -710.0])
PAIRS = [((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((4, 1, 2), (3, 1))]
ONES = (
    "abs neg square sign exp expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid tanh relu "
    "floor ceil trunc isnan isinf isfinite logical_not logit sin cos"
)
TWOS = (
    "add sub mul div pow remainder floor_divide maximum minimum eq ne lt le gt ge logical_and "
    "logical_or logical_xor bitwise_and bitwise_or"
)


def test_the_parts_can_be_one_program():
    """Their names are different: a page runs them one behind the other."""
    names = [
        node.name
        for part in PARTS
        for node in ast.parse(inspect.getsource(part)).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    assert sorted(names) == sorted(set(names))


def test_there_is_nothing_that_torch_does_not_have():
    methods = {name for name in dir(tensor.Tensor) if not name.startswith("_")}
    inside = {"made", "taken", "operand", "write", "values", "reduced", "rowwise"}
    assert [name for name in methods - inside if not hasattr(torch.Tensor, name)] == []
    assert [name for name in vars(small) if not hasattr(torch, name)] == []
    assert [
        name for name in vars(small.nn.functional) if not hasattr(torch.nn.functional, name)
    ] == []
    assert set(tensor.FUNCTIONS) <= methods


@pytest.mark.parametrize("name", ONES.split())
def test_a_function_of_one(name):
    for dtype in DTYPES:
        for shape in SHAPES:
            compare(lambda t, x: getattr(x, name)(), draw(*shape, dtype=dtype))
    kept = ODD if name not in ("sin", "cos") else ODD[3:9]
    compare(lambda t, x: getattr(t, name)(x), kept)
    compare(lambda t, x: getattr(t, name)(x), kept.double()[1:])


@pytest.mark.parametrize("name", TWOS.split())
def test_a_function_of_two(name):
    for left, right in PAIRS:
        for one in DTYPES:
            for two in (*DTYPES, torch.int32):
                x, y = draw(*left, dtype=one), draw(*right, seed=1, dtype=two)
                if name in ("pow", "remainder", "floor_divide"):
                    y = y.abs() + 1 if two is not torch.bool else y
                    if torch.bool in (one, two):
                        continue
                compare(lambda t, x, y: getattr(x, name)(y), x, y)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum", "lt"])
def test_a_function_of_two_where_numbers_are_odd(name):
    table = ODD[:, None].double(), ODD[None].double()
    compare(lambda t, x, y: getattr(t, name)(x, y), *table)


SYMBOLS = [
    lambda t, x: 2 + x,
    lambda t, x: 2 - x,
    lambda t, x: 2.5 * x,
    lambda t, x: 1 / x,
    lambda t, x: 2**x,
    lambda t, x: x**2,
    lambda t, x: x / 3,
    lambda t, x: x // 2,
    lambda t, x: x % 2,
    lambda t, x: -x,
    lambda t, x: abs(x),
    lambda t, x: x > 0.5,
    lambda t, x: x <= 1,
    lambda t, x: x == 1,
    lambda t, x: x != 1.5,
    lambda t, x: (x > 0) & (x < 2) | (x == -1) ^ ~(x > 1),
    lambda t, x: x + "a",
    lambda t, x: x == None,  # noqa: E711
    lambda t, x: x + True,
]


@pytest.mark.parametrize("of", SYMBOLS)
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.int64])
def test_symbols(of, dtype):
    compare(of, draw(2, 3, dtype=dtype).abs() + 1)
    compare(of, draw(dtype=dtype).abs() + 1)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all"]
)
def test_a_reduction(name):
    for dtype in DTYPES:
        for shape in SHAPES:
            x = draw(*shape, dtype=dtype)
            compare(lambda t, x: getattr(x, name)(), x)
            for dim in (0, -1, 1) if x.numel() else ():
                for keepdim in (False, True):
                    compare(lambda t, x, *given: getattr(x, name)(*given), x, dim, keepdim)
    compare(lambda t, x: getattr(t, name)(x, 0), torch.tensor([[1.0, NAN], [2.0, 3.0]]))


REDUCTIONS = [
    lambda t, x: x.sum((0, 1)),
    lambda t, x: x.mean(dim=(0, -1), keepdim=True),
    lambda t, x: x.sum(dim=[1], dtype=t.float64),
    lambda t, x: x.var(),
    lambda t, x: x.var(-1, unbiased=False),
    lambda t, x: x.std(0, keepdim=True),
    lambda t, x: x.std(dim=1, correction=0),
    lambda t, x: x.logsumexp(-1),
    lambda t, x: t.logsumexp(x, dim=(0, 1), keepdim=True),
    lambda t, x: x.softmax(-1),
    lambda t, x: (x > 0).softmax(-1),
    lambda t, x: (x > 0).long().log_softmax(-1),
    lambda t, x: t.softmax(x, dim=0),
    lambda t, x: x.log_softmax(dim=1),
    lambda t, x: t.nn.functional.log_softmax(x, dim=-1),
    lambda t, x: x.cumsum(0),
    lambda t, x: x.cumsum(dim=-1),
    lambda t, x: x.cumprod(1),
    lambda t, x: x.argsort(-1),
    lambda t, x: x.argsort(0, descending=True),
    lambda t, x: list(x.sort(dim=1)),
    lambda t, x: list(x.topk(2, dim=-1)),
    lambda t, x: x.max(-1).values - x.min(-1).values,
    lambda t, x: x.max(dim=1)[1],
    lambda t, x: t.max(x, x.flip(0)),
    lambda t, x: x.norm(),
    lambda t, x: x.norm(dim=1),
    lambda t, x: x.norm(p=1, dim=0),
    lambda t, x: x.median(),
    lambda t, x: (x > 0).sum(1),
    lambda t, x: (x > 0).count_nonzero(),
    lambda t, x: x.sum(5),
    lambda t, x: x.long().mean(),
    lambda t, x: t.sum([1.0]),
]


@pytest.mark.parametrize("of", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_rows(of, dtype):
    for seed in range(3):
        compare(of, draw(3, 4, seed=seed, dtype=dtype))
    compare(of, torch.tensor([[1.0, NAN, 2.0], [INF, 0.0, -INF]], dtype=dtype)[:, :2])
    compare(of, torch.zeros(2, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_large_numbers_do_not_overflow_a_softmax(dtype):
    x = torch.tensor([[1000.0, 0.0, -1000.0], [-INF, 0.0, 1.0]], dtype=dtype)
    for name in ("softmax", "log_softmax", "logsumexp"):
        compare(lambda t, x: getattr(x, name)(-1), x)  # noqa: B023


MOVES = [
    lambda t, x: x[0],
    lambda t, x: x[-1, 2],
    lambda t, x: x[1:, ::2],
    lambda t, x: x[:, None, 1],
    lambda t, x: x[..., 0],
    lambda t, x: x[None],
    lambda t, x: x[[0, 2]],
    lambda t, x: x[[0, 1], [2, 3]],
    lambda t, x: x[range(3), t.tensor([1, 0, 3])],
    lambda t, x: x[t.arange(3)[:, None], t.tensor([[1, 0]])],
    lambda t, x: x[t.tensor(1)],
    lambda t, x: x[:, t.tensor([3, 3])],
    lambda t, x: x[t.tensor([0, 1]), None],
    lambda t, x: x[x > 0],
    lambda t, x: x[t.tensor([True, False, True])],
    lambda t, x: x[:, [True, False, False, True]],
    lambda t, x: x[5],
    lambda t, x: x.view(3, 2, 2)[[0, 1], :, [1, 0]],
    lambda t, x: x.view(3, 2, 2)[:, [0, 1], [1, 0]],
    lambda t, x: x.view(3, 2, 2, 1)[:, [0, 1], :, [0, 0]],
    lambda t, x: x[0, 0, 0],
    lambda t, x: x[:, t.tensor([4])],
    lambda t, x: x[::-1],
    lambda t, x: x[0.5],
    lambda t, x: x.view(-1),
    lambda t, x: x.view(2, -1),
    lambda t, x: x.view(5, 2),
    lambda t, x: x.t().view(-1),
    lambda t, x: x.t().reshape(-1),
    lambda t, x: x.T.contiguous().view(2, 6),
    lambda t, x: x[:, 1].view(-1, 1),
    lambda t, x: x.flatten(),
    lambda t, x: x.transpose(0, 1),
    lambda t, x: x[None].permute(2, 0, 1),
    lambda t, x: x[None].movedim(0, -1),
    lambda t, x: x.unsqueeze(-1).squeeze(),
    lambda t, x: x[:1].squeeze(0),
    lambda t, x: x.unsqueeze(1).expand(3, 2, 4),
    lambda t, x: x.unsqueeze(0).expand(2, -1, -1),
    lambda t, x: x.expand(4, 4),
    lambda t, x: x.repeat(2, 1),
    lambda t, x: x[0].repeat(3),
    lambda t, x: x.repeat_interleave(2),
    lambda t, x: x.repeat_interleave(2, dim=1),
    lambda t, x: x.repeat_interleave(t.tensor([0, 2, 1]), dim=0),
    lambda t, x: x.flip(1),
    lambda t, x: x.flip(dims=(0, 1)) if t is torch else x.flip((0, 1)),
    lambda t, x: t.flip(x, (1,)),
    lambda t, x: t.flip(x, 1),
    lambda t, x: x.roll(1, 0),
    lambda t, x: x.roll(-1, dims=1),
    lambda t, x: x.roll(1),
    lambda t, x: t.cat([x, x[:1]]),
    lambda t, x: t.cat((x, x), dim=-1),
    lambda t, x: t.cat([x, x.long()]),
    lambda t, x: t.cat([x, x[0]]),
    lambda t, x: t.stack([x[0], x[1]], dim=1),
    lambda t, x: t.stack([x[0], x[1, :2]]),
    lambda t, x: list(x.unbind(1)),
    lambda t, x: list(x.split(2, dim=1)),
    lambda t, x: list(x.chunk(2)),
    lambda t, x: list(x),
    lambda t, x: x.diff(dim=1),
    lambda t, x: x.diagonal(),
    lambda t, x: t.diag(x[0]),
    lambda t, x: x.tril(),
    lambda t, x: x.triu(1),
    lambda t, x: x.gather(1, x.argsort(1)),
    lambda t, x: x.gather(-1, t.tensor([[0], [3], [1]])),
    lambda t, x: x.gather(1, t.tensor([[0], [4], [1]])),
    lambda t, x: x.gather(1, t.tensor([0])),
    lambda t, x: x.scatter(1, t.tensor([[0], [3], [1]]), 9.0),
    lambda t, x: x.scatter(1, t.tensor([[0], [3], [1]]), x[:, 2:]),
    lambda t, x: x.scatter_add(1, t.tensor([[0, 0], [3, 1], [1, 1]]), x[:, 2:]),
    lambda t, x: t.zeros(3).scatter_add(0, t.tensor([0, 0, 2, 1]), x[0].float()),
    lambda t, x: t.zeros(3).index_add(0, t.tensor([0, 0, 2, 1]), x[0].float()),
    lambda t, x: x.index_select(1, t.tensor([2, 0])),
    lambda t, x: x.nonzero(),
    lambda t, x: list((x > 0).nonzero(as_tuple=True)),
    lambda t, x: x.masked_fill(x > 0, 7),
    lambda t, x: x.masked_select(x > 0),
    lambda t, x: t.where(x > 0, x, 0.0),
    lambda t, x: t.where(x > 0, 1, x[0]),
    lambda t, x: x.where(x > 0, -x),
    lambda t, x: t.where(x, x, x),
    lambda t, x: x.clamp(-1, 1),
    lambda t, x: x.clamp(min=0.5),
    lambda t, x: x.clamp(-1.0, x[0]),
    lambda t, x: x.clamp(x[0] - 1, x[0] + 1),
    lambda t, x: t.where(0.5, x, x),
    lambda t, x: t.zeros_like(1),
    lambda t, x: t.full_like(x, x[0]),
    lambda t, x: t.cat([x, 1.0]),
    lambda t, x: x.gather(1, 0),
    lambda t, x: x.gather(1, t.zeros(4, 1, dtype=t.int64)),
    lambda t, x: x.repeat_interleave(t.tensor([1, 2]), dim=0),
    lambda t, x: x.clamp(max=x[0]),
    lambda t, x: t.clamp(x, min=x.flip(0)),
    lambda t, x: x.double().nan_to_num(),
    lambda t, x: list(x.long().flatten().unique(return_inverse=True, return_counts=True)),
    lambda t, x: list((x > 0).flatten().unique_consecutive(return_inverse=True)),
    lambda t, x: t.nn.functional.pad(x, (1, 2)),
    lambda t, x: t.nn.functional.pad(x, (0, -1, 1, 0), value=5.0),
    lambda t, x: t.nn.functional.one_hot(x.long().abs() % 3, num_classes=4),
    lambda t, x: x @ x.T,
    lambda t, x: x @ x[0],
    lambda t, x: x[0] @ x[1],
    lambda t, x: x[:, 0] @ x,
    lambda t, x: x @ x,
    lambda t, x: t.stack([x, x]) @ x.T,
    lambda t, x: x[0].outer(x[1]),
    lambda t, x: (x.float().long(), x.bool(), x.int()),
    lambda t, x: x.double().round(decimals=2),
    lambda t, x: x.equal(x.clone()),
    lambda t, x: x.double().isclose(x + t.tensor([0, 1e-6, 1e-4, INF], dtype=t.float64)),
    lambda t, x: (x / 0).isclose(x / 0, equal_nan=True),
    lambda t, x: (x > 0).isclose(x > 1),
    lambda t, x: x.isclose(1.0),
    lambda t, x: [x[:rows].allclose(x) for rows in (1, 3)] + [x[0].allclose(x, 0, 0)],
    lambda t, x: [(x / 0).allclose(x / 0, equal_nan=nans) for nans in (True, False)],
    lambda t, x: (x.numel(), x.dim(), x.size(0), len(x), x.is_floating_point()),
    lambda t, x: (bool(x[0, 0] > 0), float(x[0, 0]), int(x[0, 0]), [10, 20, 30][t.tensor(1)]),
    lambda t, x: bool(x),
    lambda t, x: float(x),
    lambda t, x: x[0].item(),
    lambda t, x: f"{x[0, 0]:.2f}",
    lambda t, x: sum(x),
    lambda t, x: max(x[0]),
]


@pytest.mark.parametrize("of", MOVES)
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.int64])
def test_moves(of, dtype):
    compare(of, draw(3, 4, dtype=dtype))


MADE = [
    lambda t: t.tensor([1, 2]),
    lambda t: t.tensor([1, 2.5]),
    lambda t: t.tensor([True, False]),
    lambda t: t.tensor(3.5),
    lambda t: t.tensor([]),
    lambda t: t.tensor([[1, 2], [3]]),
    lambda t: t.tensor([t.tensor(1.0), t.tensor(2.0)]),
    lambda t: t.tensor([[t.tensor(0.1, dtype=t.float64), 2]]),
    lambda t: t.tensor([t.tensor(1), True]),
    lambda t: t.tensor([1.9, -1.9], dtype=t.int64),
    lambda t: t.tensor([0.0, 2.0], dtype=t.bool),
    lambda t: t.as_tensor([1, 2], dtype=t.float64),
    lambda t: t.as_tensor(2.5),
    lambda t: t.zeros(2, 3),
    lambda t: t.zeros((2, 3), dtype=t.int64),
    lambda t: t.ones(2),
    lambda t: t.full((2,), 0.5),
    lambda t: t.full((2, 2), 3),
    lambda t: t.full((3,), True),
    lambda t: t.zeros_like(t.ones(2, dtype=t.float64)),
    lambda t: t.full_like(t.ones(2), 3),
    lambda t: t.ones_like(t.ones(2), dtype=t.bool),
    lambda t: t.arange(4),
    lambda t: t.arange(2, dtype=t.bool),
    lambda t: t.arange(1, 7, 2),
    lambda t: t.arange(3.0),
    lambda t: t.arange(0, 1, 0.25),
    lambda t: t.arange(5, 2, -1),
    lambda t: t.arange(3, dtype=t.float64),
    lambda t: t.linspace(0.5, 1.5, 7),
    lambda t: t.linspace(-1, 1, 5, dtype=t.float64),
    lambda t: t.eye(3),
    lambda t: t.tensor(["a"]),
    lambda t: t.tensor([0.1]) * 3 == t.tensor([0.3]),
    lambda t: t.tensor([16777216.0]) + 1,
    lambda t: t.tensor([1e-30]) * t.tensor([1e-30]),
    lambda t: t.tensor([3e38]) * 10,
    lambda t: t.tensor([1.0, 2.0]).double() + t.tensor([1, 2]),
    lambda t: t.tensor([1, 2]) + t.tensor(0.5, dtype=t.float64),
    lambda t: t.tensor([1.0]) + t.tensor(0.5, dtype=t.float64),
    lambda t: t.tensor([1.2345678]).bfloat16().float(),
    lambda t: t.tensor([1.0, 1e5]).half(),
    lambda t: t.linalg.solve(t.tensor([[2.0, 1.0], [0.0, 4.0]]), t.tensor([3.0, 2.0])),
    lambda t: t.linalg.lstsq(t.tensor([[2.0, 1], [0, 4], [1, 1]]), t.eye(3)[:, :1]).solution,
    lambda t: list(t.frexp(t.tensor([0.3, -8.0, 0.0]))),
    lambda t: t.ldexp(t.tensor([1.0, 3.0]), t.tensor([2, -1])),
    lambda t: t.broadcast_tensors(t.ones(2, 1), t.zeros(3)),
    lambda t: t.nosuchthing(),
    lambda t: t.ones(1).nosuchthing(),
    lambda t: t.exp(1.0),
    lambda t: len(t.tensor(1.0)),
    lambda t: list(t.tensor(1.0)),
]


@pytest.mark.parametrize("of", MADE)
def test_what_is_made(of):
    compare(of)


def set_by(key: Any) -> Any:
    def of(t: Any, x: Any) -> Any:
        x[key(t, x)] = t.tensor(7.0)
        return x

    return of


WRITTEN = [
    set_by(lambda t, x: 0),
    set_by(lambda t, x: (slice(None), 1)),
    set_by(lambda t, x: x > 0),
    set_by(lambda t, x: (t.tensor([0, 1]), t.tensor([2, 2]))),
    lambda t, x: (x.add_(1), x)[1],
    lambda t, x: (x[0].add_(1), x)[1],
    lambda t, x: (x.view(-1)[2:4].fill_(5), x)[1],
    lambda t, x: (x.T[0].zero_(), x)[1],
    lambda t, x: (x.diagonal().copy_(x[0, :3]), x)[1],
    lambda t, x: (x.clone().zero_(), x)[1],
    lambda t, x: (x.detach().zero_(), x)[1],
    lambda t, x: (x[[0, 1]].zero_(), x)[1],
    lambda t, x: (x.fill_diagonal_(2), x)[1],
    lambda t, x: x.masked_fill_(x > 0, 1).clamp_(max=0.5),
    lambda t, x: x.__setitem__(0, t.ones(3)),
    lambda t, x: x.__setitem__(9, 1.0),
]


@pytest.mark.parametrize("of", WRITTEN)
def test_what_is_written_in_place(of):
    compare(of, draw(3, 4))


def in_place(t: Any, x: Any) -> Any:
    row = x[1]
    row += 1
    x[0] *= 2
    total = t.zeros(())
    for value in x[:, 0]:
        total += value
    return x, total


def test_a_row_that_is_changed_changes_its_tensor():
    compare(in_place, draw(3, 4))


GRADIENTS = [
    *[
        lambda t, x, name=name: getattr(x.abs() / 9 + 0.3, name)()
        for name in ONES.split()
        if not name.startswith("is") and name != "logical_not"
    ],
    *[
        lambda t, x, name=name: getattr(x.abs() + 0.3, name)(x.flip(0).abs()[0] + 0.7)
        for name in ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "remainder")
    ],
    lambda t, x: x**2 + 2**x - x / 3 + 3 / (x.abs() + 1) - 1 * x,
    lambda t, x: x**0 + (x * 0) ** 2,
    lambda t, x: x * x[0] + x[:, :1],
    lambda t, x: x.sum(0) * x.sum(1, keepdim=True),
    lambda t, x: x.mean(-1),
    lambda t, x: x.prod(0),
    lambda t, x: x.var(0) + x.std(1).sum() + x.std(0, unbiased=False),
    lambda t, x: x.amax(1) + x.amin(1) * 2,
    lambda t, x: x.max(0).values,
    lambda t, x: (x - x.detach()).max(),
    lambda t, x: (x - x.detach()).amin(0),
    lambda t, x: t.maximum(x, x.detach()) + t.minimum(x.detach(), x) * 3,
    lambda t, x: x.min(),
    lambda t, x: x.norm() + x.norm(dim=0),
    lambda t, x: x.logsumexp(1),
    lambda t, x: x.softmax(-1) * x,
    lambda t, x: x.log_softmax(0)[1],
    lambda t, x: x.cumsum(1) * x,
    lambda t, x: x.cumprod(1),
    lambda t, x: x.topk(2).values,
    lambda t, x: x[[0, 0, 2], [1, 1, 3]],
    lambda t, x: x[x > 0],
    lambda t, x: x.T[1:].reshape(-1) ** 2,
    lambda t, x: x.expand(2, 3, 4) * t.arange(24.0).view(2, 3, 4),
    lambda t, x: x.repeat_interleave(2, 0).roll(1, 0) * t.arange(6.0)[:, None],
    lambda t, x: x.gather(1, t.tensor([[0, 0], [3, 1], [2, 2]])) ** 2,
    lambda t, x: x.scatter_add(1, t.tensor([[0], [3], [1]]), x[:, :1] ** 2),
    lambda t, x: t.cat([x, x[:1] ** 2]) * t.arange(4.0)[:, None],
    lambda t, x: t.stack([x[0], x[1] * x[0]]),
    lambda t, x: t.where(x > 0, x * 2, x[0]),
    lambda t, x: x.clamp(-0.5, 0.5) + x.clamp(min=x[0].detach()),
    lambda t, x: x.masked_fill(x > 0, 0.0).tril(),
    lambda t, x: (x @ x.T) @ x,
    lambda t, x: x[0] @ x[1],
    lambda t, x: x.detach() * x,
    lambda t, x: x.double() * 2,
    lambda t, x: t.nn.functional.logsigmoid(x) + t.nn.functional.softplus(x),
    lambda t, x: t.nn.functional.pad(x, (1, 0)) ** 2,
    lambda t, x: x.nan_to_num() + x.round() + x.sign(),
]


@pytest.mark.parametrize("of", GRADIENTS)
def test_gradients(of):
    def gradient(t: Any, x: Any) -> Any:
        result = of(t, x)
        weights = t.arange(float(result.numel())).view(result.shape) + 1
        loss = (result * weights.to(result.dtype)).sum()
        return loss, t.autograd.grad(loss, x)[0]

    # in float64: processors round sums of float32 in different ways
    compare(gradient, draw(3, 4, seed=3, dtype=F64).requires_grad_())


def written_gradient(t: Any, x: Any) -> Any:
    found = t.zeros(3)
    for i in range(3):
        found[i] = x[i].exp().sum()
    found[1] *= 2
    total = x.sum()
    total += (found**2).sum()
    return t.autograd.grad(total, [x])


def accumulated(t: Any, x: Any) -> Any:
    for _ in range(2):
        (x**2).sum().backward()
    return x.grad


def not_written(t: Any, x: Any) -> Any:
    with t.no_grad():
        y = x * 2
    return y.requires_grad, (x * 2).requires_grad, x.detach().requires_grad, (x > 0).requires_grad


REFUSED = [
    written_gradient,
    accumulated,
    not_written,
    lambda t, x: (
        t.autograd.grad(x.sum(), t.ones(1, requires_grad=True), allow_unused=True)[0] is None
    ),
    lambda t, x: t.autograd.grad(x.sum(), t.ones(1, requires_grad=True)),
    lambda t, x: t.autograd.grad(x * 2, x),
    lambda t, x: t.autograd.grad(x * 2, x, t.ones(3, 4)),
    lambda t, x: t.autograd.grad(x.detach().sum(), x),
    lambda t, x: x.add_(1),
    lambda t, x: t.ones(2, dtype=t.int64).requires_grad_(),
]


@pytest.mark.parametrize("of", REFUSED)
def test_the_tape(of):
    compare(of, draw(3, 4).requires_grad_())


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_numbers_round_as_torch_rounds_them(name):
    dtype = getattr(torch, name)
    numbers = draw(500, dtype=F64) * 10.0 ** torch.linspace(-46, 39, 500, dtype=F64)
    halves = (torch.arange(1, 65, dtype=F64) + 0.5) / 64 + 1  # some lie between two that are near
    ties = 1 + torch.arange(1, 12, 2, dtype=F64) * 2.0 ** -(dtypes_bits(name))
    held = getattr(small, name)
    powers = [2.0**exponent for exponent in (held.lowest - 1, held.highest - 1, held.highest)]
    around = 1 + torch.tensor([-(2.0**-40), -(2.0**-53), 0, 2.0**-52, 2.0**-40], dtype=F64)
    edges = torch.cat([around * power for power in [*powers, *ties.tolist()]])
    for row in (numbers, halves, ties, edges, ODD.double()):
        wanted = row.to(torch.float32).to(dtype) if name != "float32" else row.to(dtype)
        given = row.to(torch.float32).double() if name != "float32" else row
        found = small.tensor(given.tolist(), dtype=getattr(small, name)).tolist()
        assert repr(found) == repr(wanted.tolist())


def dtypes_bits(name: str) -> int:
    return {"float32": dtypes.FLOAT32, "bfloat16": dtypes.BFLOAT16, "float16": dtypes.FLOAT16}[
        name
    ].bits


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, 2.5]),
        torch.tensor([[1.0, -2.0], [3.0, 4.0]]),
        torch.tensor(2.0),
        torch.tensor([1, 20]),
        torch.tensor([True, False]),
        torch.tensor([0.25], dtype=F64),
        torch.tensor([], dtype=F64),
        torch.tensor([0.5, NAN]),
        torch.tensor([0.5, 3e-6]),
        torch.tensor([[0.0, 1e-5], [-2e-5, 0.0]]),
        torch.tensor([1.0, 2000.0]),
        torch.tensor([1.5, 900.25]),
        torch.tensor([3e8, INF]),
        torch.zeros(2),
        torch.tensor(1e-7),
    ],
)
def test_a_tensor_is_written_as_torch_writes_it(value):
    assert repr(ours(value)) == repr(value)


def test_drawn_numbers_come_in_the_order_of_the_check():
    drawn = small.Generator([("randn", [0.5, 1.5], (2,), "torch.float32")])
    assert small.randn(2, generator=drawn).tolist() == [0.5, 1.5]
    with pytest.raises(RuntimeError, match="no more numbers"):
        small.randn(2, generator=drawn)
    with pytest.raises(RuntimeError, match="draws no random numbers"):
        small.rand(2)
    drawn = small.Generator([("randn", [0.5], (1,), "torch.float32")])
    with pytest.raises(RuntimeError, match=r"in place of torch\.randn"):
        small.rand(1, generator=drawn)


def test_what_the_page_lacks_is_said_by_name():
    with pytest.raises(AttributeError, match=r"no Tensor\.lu: use the notebook"):
        small.ones(2).lu()
    with pytest.raises(AttributeError, match="has no fft: use the notebook"):
        small.fft.fft(small.ones(2))
    with pytest.raises(AttributeError, match=r"torch\.nn of this page has no Linear"):
        small.nn.Linear(2, 2)
