"""Wrong answers by the hundred: small changes of the solutions, and of what they return."""

import ast
import copy
import itertools
import math
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch import Tensor

from tests import mutants
from tests.checks.bench import Desk
from tests.mutants import METHODS, OPERATORS

COMPARISONS: dict[type, list[ast.cmpop]] = {
    ast.Lt: [ast.LtE(), ast.Gt()],
    ast.LtE: [ast.Lt(), ast.Gt()],
    ast.Gt: [ast.GtE(), ast.Lt()],
    ast.GtE: [ast.Gt(), ast.Lt()],
    ast.Eq: [ast.NotEq()],
    ast.NotEq: [ast.Eq()],
}
BITS: dict[type, ast.operator] = {
    ast.BitAnd: ast.BitOr(),
    ast.BitOr: ast.BitAnd(),
    ast.Pow: ast.Mult(),
    ast.FloorDiv: ast.Div(),
}
OTHER_METHODS = {
    **METHODS,
    "cumsum": ["cumprod"],
    "any": ["all"],
    "all": ["any"],
    "amax": ["amin"],
    "amin": ["amax"],
    "argmax": ["argmin"],
    "log_softmax": ["softmax"],
    "softmax": ["log_softmax"],
    "ceil": ["floor"],
    "floor": ["ceil"],
    "cosh": ["sinh"],
    "asinh": ["sinh"],
    "repeat_interleave": ["repeat"],
}
LEFT_OUT = {
    *("detach", "exp", "expm1", "log", "sqrt", "square", "abs", "flip", "cumsum", "clamp"),
    *("clamp_min", "masked_fill", "reciprocal", "logit", "double", "bfloat16"),
}
SWAPPED = (ast.Sub, ast.Div, ast.Pow)
NAMES_AT_ONCE = 3  # other names that are put in the place of one


def _called(node: ast.Call, method: str) -> ast.Call:
    func = copy.copy(node.func)
    assert isinstance(func, ast.Attribute | ast.Name)
    if isinstance(func, ast.Attribute):
        func.attr = method
    else:
        func.id = method
    return ast.Call(func, node.args, node.keywords)


def _numbers(value: int | float) -> list[int | float]:
    if isinstance(value, int):
        return [value + 1, value - 1]
    return [value * 1.1, -value, value / 2] if value else [1.0]


def variants(node: ast.AST, parameters: list[str], words: list[str]) -> list[ast.AST]:
    """What may stand in the place of a part of an answer."""
    found: list[ast.AST] = []
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            found.append(node.operand)
        case ast.BinOp(left, operator, right):
            kind = type(operator)
            if (other := OPERATORS.get(kind) or BITS.get(kind)) is not None:
                found.append(ast.BinOp(left, other, right))
            if kind in SWAPPED:
                found.append(ast.BinOp(right, operator, left))
            found += [left, right]
        case ast.Compare(left, [operator], [right]):
            found += [
                ast.Compare(left, [other], [right]) for other in COMPARISONS.get(type(operator), [])
            ]
        case ast.BoolOp(operator, values):
            found.append(
                ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            )
            found += values
        case ast.IfExp(test, body, orelse):
            found += [body, orelse, ast.IfExp(test, orelse, body)]
        case ast.Constant(bool(value)):
            found.append(ast.Constant(not value))
        case ast.Constant(int(value) | float(value)):
            found += [ast.Constant(other) for other in _numbers(value)]
        case ast.Constant(str(value)):
            found += [ast.Constant(word) for word in words if word != value][:NAMES_AT_ONCE]
        case ast.Name(name, ast.Load()) if name in parameters:
            others = [other for other in parameters if other != name][:NAMES_AT_ONCE]
            found += [ast.Name(other, ast.Load()) for other in others]
        case ast.Subscript(value, ast.Slice()):
            found.append(value)
        case ast.Call(ast.Attribute(_, "where"), [mask, one, other]):
            found += [one, other, ast.Call(node.func, [mask, other, one], [])]
        case ast.Call(ast.Attribute(owner, method), arguments):
            found += [_called(node, other) for other in OTHER_METHODS.get(method, [])]
            outside = isinstance(owner, ast.Name) and owner.id in ("torch", "math")
            if method in LEFT_OUT:
                found += arguments[:1] if outside else [owner]
        case ast.Call(ast.Name(name), arguments) if name in ("min", "max", "abs", "sum", "int"):
            found += [_called(node, other) for other in METHODS.get(name, []) if name != "sum"]
            found += arguments[:1]
        case ast.If():
            found.append(ast.Pass())
        case ast.Return(ast.Tuple([first, second])):
            found.append(ast.Return(ast.Tuple([second, first], ast.Load())))
    return found


def _scope(source: str, name: str) -> tuple[ast.FunctionDef, list[str], list[str]]:
    """The function, its parameters and the words in it."""
    (function,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    body = ast.Module(function.body[1:], [])  # behind the docstring
    words = [n.value for n in ast.walk(body) if isinstance(n, ast.Constant)]
    return (
        function,
        [argument.arg for argument in function.args.args],
        list(dict.fromkeys(word for word in words if isinstance(word, str))),
    )


def of_code(source: str, name: str) -> Iterator[tuple[str, str]]:
    """What was changed, and the cell with this change, for every small change of a function."""
    function, parameters, words = _scope(source, name)
    first = function.body[1].lineno if len(function.body) > 1 else function.body[0].lineno
    docstrings = {
        statement.value.lineno
        for statement in ast.walk(function)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }

    def inside(node: ast.AST) -> list[ast.AST]:
        line = getattr(node, "lineno", 0)
        if line < first or line in docstrings:
            return []
        return variants(node, parameters, words)

    seen = {ast.unparse(ast.parse(source))}
    for change, text in mutants.texts(source, inside):
        if text not in seen:
            seen.add(text)
            yield change, text


# ---------------------------------------------------------------- of what is returned

Change = Callable[[Any], Any]


def _first(x: Tensor, by: Callable[[Tensor], Any]) -> Tensor:
    x = x.clone()
    flat = x.view(-1)
    flat[0] = by(flat[0])
    return x


def _last(x: Tensor, by: Callable[[Tensor], Any]) -> Tensor:
    x = x.clone()
    flat = x.view(-1)
    flat[-1] = by(flat[-1])
    return x


OF_NUMBERS: dict[str, Change] = {
    "the sign": lambda x: -x,
    "twice": lambda x: 2 * x,
    "half": lambda x: x / 2,
    "one more": lambda x: x + 1,
    "one less": lambda x: x - 1,
    "1 − x": lambda x: 1 - x,
    "a per cent more": lambda x: 1.01 * x,
    "a per cent less": lambda x: 0.99 * x,
    "a tenth more": lambda x: 1.1 * x,
    "three times": lambda x: 3 * x,
    "the square": lambda x: x * x,
    "a hundred times": lambda x: 100 * x,
    "two more": lambda x: x + 2,
    "nothing": lambda x: 0 * x,
    "NaN": lambda x: x * math.nan,
    "infinity": lambda x: x * 0 + math.inf,
    "None": lambda x: None,
    "a word": lambda x: "right",
    "True": lambda x: True,
    "in a list of lists": lambda x: [[x]],
    "0.02 more": lambda x: x + 0.02,
    "0.02 less": lambda x: x - 0.02,
    "the reciprocal": lambda x: 1 / x,
}
OF_ONE: dict[str, Change] = {
    "the logarithm": lambda x: math.log(abs(x)),
    "the root": lambda x: math.sqrt(abs(x)),
    "e to it": lambda x: math.exp(min(x, 50)),
    "a row of it": lambda x: torch.tensor([float(x)]),
    "a tenth": lambda x: x / 10,
    "one digit": lambda x: float(f"{float(x):.0e}"),
    "half more": lambda x: 1.5 * x,
    "four times": lambda x: 4 * x,
    "minus one": lambda x: x * 0 - 1,
    "ten times": lambda x: 10 * x,
}
OF_TENSORS: dict[str, Change] = {
    "another order": lambda x: x.flip(0) if x.dim() else x + 3,
    "moved by one": lambda x: x.roll(1),
    "one axis more": lambda x: x[None],
    "one axis behind": lambda x: x[..., None],
    "the sum": lambda x: x.sum()[None],
    "the mean everywhere": lambda x: x.double().mean().expand(x.shape),
    "the first is wrong": lambda x: _first(x, lambda y: y + 1),
    "the last is wrong": lambda x: _last(x, lambda y: y + 1),
    "the last is NaN": lambda x: _last(x.double(), lambda y: math.nan),
    "the sizes only": lambda x: x.abs(),
    "the signs only": lambda x: x.sign(),
    "one too few": lambda x: x[:-1] if x.dim() else x + 4,
    "ones": torch.ones_like,
    "sorted": lambda x: x.sort(dim=0).values,
    "the fraction": lambda x: x - x.floor(),
    "the exponentials": lambda x: x.clamp(max=50).exp(),
    "cumulated": lambda x: x.cumsum(0) if x.dim() else x + 5,
    "less its mean": lambda x: x - x.mean(),
}
OF_VERDICTS: dict[str, Change] = {
    "the other way round": lambda x: ~x,
    "all": torch.ones_like,
    "none": torch.zeros_like,
    "another order": lambda x: x.flip(0),
    "moved by one": lambda x: x.roll(1),
    "moved back by one": lambda x: x.roll(-1),
    "moved by two": lambda x: x.roll(2),
    "rows in another order": lambda x: x.roll(1, 0),
    "one axis more": lambda x: x[None],
    "one axis behind": lambda x: x[..., None],
    "any": lambda x: x.any(),
    "any, everywhere": lambda x: x.any().expand(x.shape),
    "all, everywhere": lambda x: x.all().expand(x.shape),
    "the first is wrong": lambda x: _first(x, lambda y: ~y),
    "the last is wrong": lambda x: _last(x, lambda y: ~y),
    "the first is right only": lambda x: _first(~x, lambda y: ~y),
    "or its neighbour": lambda x: x | x.roll(1),
    "and its neighbour": lambda x: x & x.roll(1),
    "not like its neighbour": lambda x: x ^ x.roll(1),
    "one too few": lambda x: x[:-1],
    "their number": lambda x: x.sum(),
    "their places": lambda x: x.nonzero(),
    "None": lambda x: None,
    "the first": lambda x: bool(x.flatten()[0]),
    "words": lambda x: [str(y) for y in x.flatten().tolist()],
    "every second": lambda x: x & (torch.arange(x.numel()).view(x.shape) % 2 == 0),
    "from the first on": lambda x: x.int().cummax(-1).values.bool(),
    "before the first": lambda x: ~x.int().cummax(-1).values.bool(),
    "a number": lambda x: 1.0,
    "shares": lambda x: x.double().mean().expand(x.shape),
}


def of_result(result: Any, words: list[str]) -> dict[str, Change]:
    """Changes of what a function returns, by the kind of what it returns."""
    match result:
        case bool():
            return {"the other way round": lambda x: not x, "None": lambda x: None}
        case int() | float():
            return {**OF_NUMBERS, **OF_ONE}
        case Tensor() if result.dtype is torch.bool:
            return OF_VERDICTS
        case Tensor():
            return {**OF_NUMBERS, **OF_TENSORS}
        case str() | None:
            return {
                "None": lambda x: None if x is not None else "None",
                "in capitals": lambda x: str(x).upper(),
                "the first letter": lambda x: str(x)[:1],
                "a space behind": lambda x: f"{x} ",
                "a list": lambda x: [x],
                "its number": lambda x: 0,
                **{f"always {word!r}": lambda x, w=word: w for word in words},
                **{
                    f"{one!r} and {other!r} exchanged": lambda x, a=one, b=other: {a: b, b: a}.get(
                        x, x
                    )
                    for i, one in enumerate(words)
                    for other in words[i + 1 :]
                },
                **{
                    f"{other!r} for {one!r}": lambda x, a=one, b=other: b if x == a else x
                    for one in words
                    for other in words
                    if one != other
                },
            }
        case dict():
            parts = {
                f"{key}: {why}": lambda x, k=key, c=change: {**x, k: c(x[k])}
                for key, value in result.items()
                for why, change in of_result(value, words).items()
            }
            fewer = {
                f"without {key}": lambda x, k=key: {a: b for a, b in x.items() if a != k}
                for key in result
            }
            keys = list(result)
            turned = {
                f"{one} and {other} exchanged": lambda x, a=one, b=other: {
                    **x,
                    a: x[b],
                    b: x[a],
                }
                for i, one in enumerate(keys)
                for other in keys[i + 1 :]
            }
            return {**fewer, **turned, **parts}
        case tuple() | list():
            return {
                "the other way round": lambda x: x[::-1],
                "one too few": lambda x: x[:-1],
                "one too many": lambda x: [*x, x[-1]],
                "None": lambda x: None,
                **{
                    f"part {i}: {why}": lambda x, i=i, c=change: [*x[:i], c(x[i]), *x[i + 1 :]]
                    for i, part in enumerate(result)
                    for why, change in of_result(part, words).items()
                },
            }
    raise TypeError(f"an answer of type {type(result).__name__}")


# ---------------------------------------------------------------- of what is passed in


def _over(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    return change(x) if x.dim() and x.numel() > 1 else x


ARGUMENTS_OF_TENSORS: dict[str, Change] = {
    "moved by one": lambda x: _over(x, lambda y: y.roll(1, 0)),
    "moved along the row": lambda x: _over(x, lambda y: y.roll(1, -1)),
    "in another order": lambda x: _over(x, lambda y: y.flip(0)),
    "backwards": lambda x: _over(x, lambda y: y.flip(-1)),
    "the first everywhere": lambda x: _over(x, lambda y: y[:1].expand_as(y)),
    "the last everywhere": lambda x: _over(x, lambda y: y[-1:].expand_as(y)),
}
ARGUMENTS_OF_NUMBERS: dict[str, Change] = {
    "negative": lambda x: -x,
    "its size": abs,
    "twice": lambda x: 2 * x,
    "half": lambda x: x / 2,
    "one more": lambda x: x + 1,
    "one less": lambda x: x - 1,
    "the square": lambda x: x * x,
    "zero": lambda x: 0 * x,
    "one": lambda x: x * 0 + 1,
}
ARGUMENTS_OF_FLOATS: dict[str, Change] = {
    "detached": lambda x: x.detach(),
    "not above 0": lambda x: x.clamp(max=0.0),
    "not below 0": lambda x: x.clamp(min=0.0),
    "centred": lambda x: x - x.mean(),
    "rounded": lambda x: x.round(),
    "in half precision": lambda x: x.bfloat16().to(x.dtype),
}
ARGUMENTS_OF_VERDICTS: dict[str, Change] = {
    "the other way round": lambda x: ~x,
    "all": torch.ones_like,
    "none": torch.zeros_like,
}


def of_arguments(first: tuple[Any, ...], result: Any) -> dict[str, Callable[..., Any]]:
    """Changes of what a function is called with: (function, *arguments) → what comes back.

    Args:
        first: arguments of a call of the right answer.
        result: what it returned.
    """
    found: dict[str, Callable[..., Any]] = {}
    for i, value in enumerate(first):
        for why, change in _of_argument(value).items():

            def changed(f: Any, *given: Any, i: int = i, c: Change = change) -> Any:
                return f(*given[:i], c(given[i]), *given[i + 1 :])

            found[f"argument {i + 1}: {why}"] = changed
        for j in range(i + 1, len(first)):
            if type(first[j]) is type(value):

                def swapped(f: Any, *given: Any, i: int = i, j: int = j) -> Any:
                    other = list(given)
                    other[i], other[j] = given[j], given[i]
                    return f(*other)

                found[f"arguments {i + 1} and {j + 1} exchanged"] = swapped
    if first:
        found["always the first result"] = lambda f, *given: copy.deepcopy(result)
    return found


def _of_argument(value: Any) -> dict[str, Change]:
    if isinstance(value, Tensor):
        return {
            **ARGUMENTS_OF_TENSORS,
            **(ARGUMENTS_OF_VERDICTS if value.dtype is torch.bool else ARGUMENTS_OF_NUMBERS),
            **(ARGUMENTS_OF_FLOATS if value.is_floating_point() else {}),
        }
    if isinstance(value, int | float):
        return {**ARGUMENTS_OF_NUMBERS, f"always {value:g}": lambda x: value}
    return {}


# ---------------------------------------------------------------- all of them


def all_of(desk: Desk) -> dict[str, Callable[..., Any] | str]:
    """What was changed → the answer, a function or a cell: every wrong one that we can make."""
    first = desk.calls[0]
    words = list(dict.fromkeys(w for call in desk.calls for w in _words(call.result)))
    solution = desk.solution
    found: dict[str, Callable[..., Any] | str] = {}
    for change, cell in of_code(desk.source, desk.name):
        found[_another(f"code {change}", found)] = cell
    for why, of_one in of_result(first.result, words[:6]).items():
        found[f"result {why}"] = lambda *given, c=of_one: c(solution(*given))
    for why, of_call in of_arguments(first.arguments, first.result).items():
        found[why] = lambda *given, c=of_call: c(solution, *given)
    return found


def _another(label: str, taken: Container[str]) -> str:
    """The label, with a number if it is the same change at another place."""
    numbered = (f"{label} · {number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([label], numbered) if one not in taken)


def _words(result: Any) -> list[str]:
    if isinstance(result, dict):
        return [word for part in result.values() for word in _words(part)]
    if isinstance(result, list | tuple):
        return [word for part in result for word in _words(part)]
    return [result] if isinstance(result, str) else []
