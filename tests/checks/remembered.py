"""Pure functions that are called with the same arguments again and again, and remember results.

A check is run with hundreds of answers, and works out the same right values and known mistakes for
each of them. So do answers that are the solution with a small change before or behind it.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch import Generator, Tensor

_working: list[Callable[..., Any]] = []  # a call inside of another is a part of what that returns


class Unknown(TypeError):
    """A value that cannot be recognised."""


def remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is pure; with the same plain data, it returns what it returned.

    A generator in the same state goes on to the state in which the function left it.
    """
    known: dict[Any, Any] = {}

    @functools.wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        if _working:
            return function(*arguments, **keywords)
        try:
            key = torch.is_grad_enabled(), _key(arguments), _key(list(keywords.items()))
        except Unknown:
            searches = any(isinstance(a, FunctionType) for a in arguments)  # asks it for numbers
            return (_whole(function) if searches else function)(*arguments, **keywords)
        drawn = [a for a in (*arguments, *keywords.values()) if isinstance(a, Generator)]
        if key not in known:
            result = _whole(function)(*arguments, **keywords)
            known[key] = _copy(result), [generator.get_state() for generator in drawn]
        result, states = known[key]
        for generator, state in zip(drawn, states, strict=True):
            generator.set_state(state)
        return _copy(result)

    return called


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, in which no part is remembered by itself."""

    def called(*arguments: Any, **keywords: Any) -> Any:
        _working.append(function)
        try:
            return function(*arguments, **keywords)
        finally:
            _working.pop()

    return called


def helpers(names: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The private functions among the names of a module, so that they remember their results."""
    return {
        name: remembering(value)
        for name, value in names.items()
        if name.startswith("_") and isinstance(value, FunctionType) and value.__globals__ is names
    }


def _key(value: Any) -> Any:
    """What two equal values have in common, and no others."""
    match value:
        case Tensor():
            if value.requires_grad:
                raise Unknown("a gradient is to flow through it")
            content = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            return value.dtype, tuple(value.shape), content
        case list() | tuple():
            return type(value), *map(_key, value)
        case None | bool() | int() | float() | str():
            return type(value), repr(value)
        case Generator():
            return Generator, value.get_state().numpy().tobytes()
        case FunctionType():
            plain = inspect.unwrap(value)
            if plain.__closure__ is None and plain.__defaults__ is None:
                return plain.__code__
    raise Unknown(f"an object of type {type(value).__name__}")


def _copy(value: Any) -> Any:
    match value:
        case Tensor():
            return value.clone()
        case list() | tuple():
            return type(value)(map(_copy, value))
        case dict():
            return {key: _copy(part) for key, part in value.items()}
    return value
