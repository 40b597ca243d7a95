"""Small changes of a function, one place each: what tests of tests are made of."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

OPERATORS: dict[type, ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
}
METHODS = {
    "sum": ["mean"],
    "mean": ["sum"],
    "min": ["max"],
    "max": ["min"],
    "std": ["var"],
    "exp": ["expm1"],
    "cumsum": ["exp"],
}

Variants = Callable[[ast.AST], list[ast.AST]]


def texts(source: str, variants: Variants) -> Iterator[tuple[str, str]]:
    """Every mutant: what it is, and the source with it, in the order of `places`."""
    tree = ast.parse(source)
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            siblings = value if isinstance(value, list) else [value]
            for place, node in enumerate(siblings):
                for variant in variants(node) if isinstance(node, ast.AST) else ():
                    others = [*siblings[:place], variant, *siblings[place + 1 :]]
                    setattr(parent, field, others if isinstance(value, list) else variant)
                    try:
                        text = ast.unparse(tree)
                    except ValueError:  # such as a negative number where none can stand
                        continue
                    finally:
                        setattr(parent, field, value)
                    yield f"{ast.unparse(node)} → {ast.unparse(variant)}", text


class Replace(ast.NodeTransformer):
    """Puts another expression or statement in the place of one."""

    def __init__(self, target: ast.AST, by: ast.AST) -> None:
        self.target, self.by = target, by

    def visit(self, node: ast.AST) -> Any:
        return self.by if node is self.target else super().generic_visit(node)


def places(source: str, variants: Variants) -> Iterator[tuple[int, int, str]]:
    """Every mutant: at which place of the tree, which of the variants there, and what it is."""
    for place, node in enumerate(ast.walk(ast.parse(source))):
        for which, variant in enumerate(variants(node)):
            yield place, which, f"{ast.unparse(node)} → {ast.unparse(variant)}"


def changed(source: str, variants: Variants, place: int, which: int) -> ast.Module:
    """The tree of one of them."""
    tree = ast.parse(source)
    node = list(ast.walk(tree))[place]
    return ast.fix_missing_locations(Replace(node, variants(node)[which]).visit(tree))
