"""Right answers in other forms: the solutions rewritten, and what they return as another type."""

import ast
import copy
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tests.checks.bench import Desk

FUNCTIONS = {"sum", "mean", "exp", "log", "abs", "sqrt", "cumsum", "flip", "softmax", "gather"}


def _owned(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "math", "re", "sheet")


def _text(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.List | ast.JoinedStr)
        or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in (node, *ast.iter_child_nodes(node))
    )


class Commute(ast.NodeTransformer):
    """b + a for a + b, and b * a for a * b."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add | ast.Mult) and not (_text(node.left) or _text(node.right)):
            node.left, node.right = node.right, node.left
        return node


class Negate(ast.NodeTransformer):
    """a + (−b) for a − b."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Sub):
            return ast.BinOp(node.left, ast.Add(), ast.UnaryOp(ast.USub(), node.right))
        return node


class TurnComparisons(ast.NodeTransformer):
    """b > a for a < b."""

    TURNED: ClassVar[dict[type, ast.cmpop]] = {
        ast.Lt: ast.Gt(),
        ast.Gt: ast.Lt(),
        ast.LtE: ast.GtE(),
        ast.GtE: ast.LtE(),
        ast.Eq: ast.Eq(),
        ast.NotEq: ast.NotEq(),
    }

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and (turned := self.TURNED.get(type(node.ops[0]))):
            return ast.Compare(node.comparators[0], [turned], [node.left])
        return node


class Multiply(ast.NodeTransformer):
    """x * x for x ** 2 and x.square(), and x ** 0.5 for x.sqrt()."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.BinOp(x, ast.Pow(), ast.Constant(2)):
                return ast.BinOp(x, ast.Mult(), copy.deepcopy(x))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(x, "square"), []) if not _owned(x):
                return ast.BinOp(x, ast.Mult(), copy.deepcopy(x))
            case ast.Call(ast.Attribute(x, "sqrt"), []) if not _owned(x):
                return ast.BinOp(x, ast.Pow(), ast.Constant(0.5))
        return node


class CallTorch(ast.NodeTransformer):
    """torch.sum(x, dim=1) for x.sum(dim=1)."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(x, name)) if name in FUNCTIONS and not _owned(x):
                function = ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())
                return ast.Call(function, [x, *node.args], node.keywords)
        return node


class OtherWhere(ast.NodeTransformer):
    """torch.where(~m, b, a) for torch.where(m, a, b), and `b if not c else a`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Attribute(x, "where"), [mask, one, other]) if _owned(x):
                node.args = [ast.UnaryOp(ast.Invert(), mask), other, one]
            case ast.Call(ast.Attribute(x, "masked_fill"), [mask, value]) if not _owned(x):
                where = ast.Attribute(ast.Name("torch", ast.Load()), "where", ast.Load())
                return ast.Call(where, [mask, value, x], [])
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body)


class Decimals(ast.NodeTransformer):
    """x / 3.0 for x / 3, and 2.0 * x for 2 * x."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult | ast.Div):
            for side in (node.left, node.right):
                if isinstance(side, ast.Constant) and type(side.value) is int:
                    side.value = float(side.value)
        return node


class Map(ast.NodeTransformer):
    """list(map(…)) for a list comprehension."""

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        self.generic_visit(node)
        match node.generators:
            case [ast.comprehension(ast.Name(name), items, [], 0)]:
                one = ast.Lambda(
                    ast.arguments([], [ast.arg(name)], None, [], [], None, []), node.elt
                )
                mapped = ast.Call(ast.Name("map", ast.Load()), [one, items], [])
                return ast.Call(ast.Name("list", ast.Load()), [mapped], [])
        return node


class Positional(ast.NodeTransformer):
    """x.sum(1) for x.sum(dim=1)."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if [keyword.arg for keyword in node.keywords] == ["dim"] and not node.args:
            return ast.Call(node.func, [node.keywords[0].value], [])
        return node


class FromBehind(ast.NodeTransformer):
    """dim=-1 for dim=1."""

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        match node:
            case ast.keyword("dim", ast.Constant(1)):
                node.value = ast.UnaryOp(ast.USub(), ast.Constant(1))
        return node


class Rename(ast.NodeTransformer):
    """Other names for local variables."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names:
            node.id = f"my_{node.id}"
        return node


class InSteps(ast.NodeTransformer):
    """Each return by way of a variable, and each assigned value by way of another."""

    def visit_Return(self, node: ast.Return) -> Any:
        if node.value is None:
            return node
        kept = ast.Assign([ast.Name("_answer", ast.Store())], node.value)
        return [kept, ast.Return(ast.Name("_answer", ast.Load()))]

    def visit_Assign(self, node: ast.Assign) -> Any:
        kept = ast.Assign([ast.Name("_step", ast.Store())], node.value)
        return [kept, ast.Assign(node.targets, ast.Name("_step", ast.Load()))]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if any(isinstance(inner, ast.Yield | ast.Nonlocal) for inner in ast.walk(node)):
            return node
        self.generic_visit(node)
        return node


def _locals(tree: ast.Module) -> set[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    taken = {a.arg for f in functions for a in (*f.args.args, *f.args.kwonlyargs)}
    taken |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.Lambda) for a in n.args.args}
    stored = {
        node.id
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return stored - taken


REWRITES: dict[str, Callable[[ast.Module], ast.AST]] = {
    "sums and products in another order": Commute().visit,
    "differences as sums": Negate().visit,
    "comparisons turned round": TurnComparisons().visit,
    "squares as products": Multiply().visit,
    "functions of torch for methods": CallTorch().visit,
    "the other branch first": OtherWhere().visit,
    "decimals for whole numbers": Decimals().visit,
    "map for comprehensions": Map().visit,
    "axes by position": Positional().visit,
    "axes from behind": FromBehind().visit,
    "other names": lambda tree: Rename(_locals(tree)).visit(tree),
    "in small steps": InSteps().visit,
}

AROUND: dict[str, str] = {
    "any arguments": "_own = {name}\n\ndef {name}(*given):\n    return _own(*given)\n",
    "keyword arguments": (
        "_own = {name}\n_parameters = {parameters!r}\n\n"
        "def {name}(*given):\n"
        "    return _own(**dict(zip(_parameters, given, strict=True)))\n"
    ),
    "a lambda": "_own = {name}\n{name} = lambda *given: _own(*given)\n",
    "an object that can be called": (
        "_own = {name}\n\nclass Answer:\n"
        "    def __call__(self, *given):\n        return _own(*given)\n\n{name} = Answer()\n"
    ),
    "an optional argument more": (
        "_own = {name}\n\ndef {name}({listed}verbose=False):\n    return _own({passed})\n"
    ),
    "arguments copied": (
        "_own = {name}\n\ndef {name}(*given):\n"
        "    return _own(*(x.clone() if hasattr(x, 'clone') else x for x in given))\n"
    ),
    "in double precision": (
        "_own = {name}\n\ndef {name}(*given):\n"
        "    is_float = [hasattr(x, 'double') and x.is_floating_point() for x in given]\n"
        "    pairs = zip(given, is_float, strict=True)\n"
        "    return _own(*(x.double() if wide else x for x, wide in pairs))\n"
    ),
    "without gradients": (
        "_own = {name}\n\ndef {name}(*given):\n"
        "    with torch.no_grad():\n        return _own(*given)\n"
    ),
    "printing on the way": (
        "_own = {name}\n\ndef {name}(*given):\n"
        "    print('called with', len(given))\n    return _own(*given)\n"
    ),
}


def of_code(source: str, name: str) -> Iterator[tuple[str, str]]:
    """In which form, and the cell, for every form that differs from the solution's own."""
    tree = ast.parse(source)
    (function,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    parameters = [argument.arg for argument in function.args.args]
    plain = ast.unparse(tree)
    for form, rewrite in REWRITES.items():
        text = ast.unparse(ast.fix_missing_locations(rewrite(ast.parse(source))))
        if text != plain:
            yield form, text
    for form, behind in AROUND.items():
        added = behind.format(
            name=name,
            parameters=parameters,
            listed="".join(f"{p}, " for p in parameters),
            passed=", ".join(parameters),
        )
        yield form, f"import torch\n{plain}\n{added}"


# Not for every solution: no gradient without a graph, and torch has not all functions.
NOT_ALWAYS = ("without gradients", "functions of torch for methods", "map for comprehensions")


# ---------------------------------------------------------------- of what is returned

Change = Callable[[Any], Any]


def everywhere(change: Change, kinds: type | tuple[type, ...]) -> Change:
    """A change of all parts of some kinds, wherever they stand in a result."""

    def changed(result: Any) -> Any:
        if isinstance(result, kinds) and not isinstance(result, bool):
            return change(result)
        if isinstance(result, tuple | list):
            return type(result)(changed(part) for part in result)
        if isinstance(result, dict):
            return {key: changed(part) for key, part in result.items()}
        return result

    return changed


def _with_gradient(x: Tensor) -> Tensor:
    return x if x.requires_grad or not x.is_floating_point() else x.clone().requires_grad_()


def _strided(x: Tensor) -> Tensor:
    """The same numbers, not side by side in memory."""
    return torch.stack([x, x], dim=-1)[..., 0]


def _without_gradient(change: Change) -> Change:
    """A change of what no gradient flows through, which only a tensor carries."""
    return lambda x: x if x.requires_grad or not x.dim() else change(x)


def _floating(dtype: torch.dtype) -> Change:
    return lambda x: x.to(dtype) if x.is_floating_point() else x


RESULTS: dict[str, Change] = {
    "in float64": everywhere(_floating(torch.float64), Tensor),
    "in float32": everywhere(_floating(torch.float32), Tensor),
    "with a gradient": everywhere(_with_gradient, Tensor),
    "strided": everywhere(_strided, Tensor),
    "a parameter": everywhere(
        lambda x: torch.nn.Parameter(x) if x.is_floating_point() and x.is_leaf else x, Tensor
    ),
    "tensors as lists": everywhere(_without_gradient(Tensor.tolist), Tensor),
    "tensors as arrays": everywhere(_without_gradient(Tensor.numpy), Tensor),
    "tensors as lists of tensors": everywhere(_without_gradient(list), Tensor),
    "numbers as tensors": everywhere(lambda x: torch.tensor(x, dtype=torch.float64), (int, float)),
    "numbers as NumPy's": everywhere(np.float64, (int, float)),
    "numbers as NumPy's, in float32": everywhere(np.float32, (int, float)),
    "numbers as arrays without axes": everywhere(np.array, (int, float)),
    "numbers as fractions": everywhere(Fraction, (int, float)),
    "whole numbers as such": everywhere(lambda x: int(x) if x == int(x) else x, (int, float)),
    "lists for tuples": lambda x: list(x) if isinstance(x, tuple) else x,
    "tuples for lists": lambda x: tuple(x) if isinstance(x, list) else x,
    "words as NumPy's": everywhere(np.str_, str),
}


def decimals(count: int) -> Change:
    """A result typed off with so many decimals."""

    def typed(x: Any) -> Any:
        return torch.round(x.double(), decimals=count) if isinstance(x, Tensor) else round(x, count)

    return everywhere(typed, (Tensor, int, float))


def all_of(desk: Desk) -> dict[str, Callable[..., Any] | str]:
    """In which form → the right answer, a function or a cell."""
    solution = desk.solution
    found: dict[str, Callable[..., Any] | str] = {
        form: cell for form, cell in of_code(desk.source, desk.name)
    }
    typed = {6e-3: {"two decimals": decimals(2)}, 6e-4: {"three decimals": decimals(3)}}
    for form, change in (RESULTS | typed.get(desk.tolerance, {})).items():
        found[form] = lambda *given, c=change: c(solution(*given))
    return found


def fits(desk: Desk, form: str, answer: Callable[..., Any] | str) -> bool:
    """Whether the form leaves this solution what it is."""
    return form not in NOT_ALWAYS or not desk.departs(answer)
