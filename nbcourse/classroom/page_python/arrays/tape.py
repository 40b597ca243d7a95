"""How gradients flow: each result knows what it was made of, and the way back."""

from collections.abc import Callable
from typing import Any

Back = Callable[[list[float]], list[float]]


class Node:
    """A value that gradients flow to.

    Args:
        parents: what it was made of, each with a function: gradient of this → gradient of that.
        leaf: the tensor whose value it is, if it was made of nothing.
    """

    def __init__(self, parents: tuple[tuple["Node", Back], ...] = (), leaf: Any = None) -> None:
        self.parents, self.leaf = parents, leaf


class no_grad:
    """A context in which nothing is written to the tape; a decorator as well."""

    writes = True

    def __enter__(self) -> None:
        self.before, no_grad.writes = no_grad.writes, False

    def __exit__(self, *error: object) -> None:
        no_grad.writes = self.before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def within(*arguments: Any, **keywords: Any) -> Any:
            with no_grad():
                return function(*arguments, **keywords)

        return within


def gradients(node: Node, gradient: list[float]) -> dict[Node, list[float]]:
    """The gradients of all that a value was made of, from the gradient of that value."""
    found = {node: gradient}
    for value in reversed(_parents_first(node)):
        for parent, back in value.parents:
            part = back(found[value])
            there = found.get(parent)
            found[parent] = part if there is None else _sums(there, part)
    return found


def _sums(left: list[float], right: list[float]) -> list[float]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _parents_first(node: Node) -> list[Node]:
    order: list[Node] = []
    seen: set[Node] = set()
    waiting = [(node, False)]
    while waiting:
        value, all_parents_stand = waiting.pop()
        if all_parents_stand:
            order.append(value)
        elif value not in seen:
            seen.add(value)
            waiting.append((value, True))
            waiting += [(parent, False) for parent, _ in value.parents]
    return order
