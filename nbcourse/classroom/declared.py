"""What an answer returns, read as its stub declares it.

To a check a list or an array of numbers is as good as a tensor. A hidden test is plain code, which
asks for the tensor's methods. So it gets the tensors that the return annotation of the master's
function names, whatever an answer puts in their place.
"""

import ast
from collections.abc import Callable
from typing import Any

import torch

from nbcourse.checks.attempt import as_tensor


def as_declared(answer: Callable[..., Any], source: str, name: str) -> Callable[..., Any]:
    """An answer that returns tensors where its stub says so.

    Args:
        answer: the student's function.
        source: the master's cell, which defines the function with its annotations.
        name: of the function.
    """
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    declared = next((node.returns for node in functions if node.name == name), None)
    return lambda *given, **keywords: _read(answer(*given, **keywords), declared)


def _read(value: Any, declared: ast.expr | None) -> Any:
    match declared, value:
        case ast.Name("Tensor") | ast.Attribute(attr="Tensor"), _:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return torch.tensor(value, dtype=torch.float64) if number else as_tensor(value)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(parts)), list() | tuple():
            if len(parts) == len(value):
                return tuple(map(_read, value, parts))
        case ast.Subscript(ast.Name("dict"), ast.Tuple([_, part])), dict():
            return {key: _read(entry, part) for key, entry in value.items()}
    return value
