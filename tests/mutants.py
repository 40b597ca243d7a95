"""Small changes of a function, one place each: what tests of tests are made of."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

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


class Mutant(NamedTuple):
    """A small change of the package, drawn by chance, and what notices it.

    Attributes:
        room: of the package, whose tests shall notice.
        kind: of change, such as "dropped clause".
        file: in `nbcourse/`.
        line: the line of the file, without its indentation; the first such line, or the `nth`.
        old: what stands there.
        new: what stands there instead; in a line that has `old` more than once, `at` its place.
        killer: a test that fails then; or, behind a dash, why none does.
    """

    room: str
    kind: str
    file: str
    line: str
    nth: int
    at: int
    old: str
    new: str
    killer: str

    def __str__(self) -> str:
        """Where and what."""
        return f"{self.file}: {self.old} → {self.new}"

    @property
    def survives(self) -> bool:
        """Whether no test notices it."""
        return self.killer.startswith("–")

    def source(self, package: Path) -> str:
        """The text of the file with the change.

        Raises:
            ValueError: if the line is no longer there.
        """
        lines = (package / self.file).read_text(encoding="utf-8").split("\n")
        places = [i for i, line in enumerate(lines) if line.strip() == self.line]
        if self.nth >= len(places):
            raise ValueError(f"{self.file} has no line {self.line!r}")
        place = places[self.nth]
        start = len(lines[place]) - len(lines[place].lstrip()) + self.at
        assert lines[place][start:].startswith(self.old)
        lines[place] = lines[place][:start] + self.new + lines[place][start + len(self.old) :]
        return "\n".join(lines)


def of_the_package() -> list[Mutant]:
    """150 mutants of the rooms around the core, drawn by a seeded generator, by kind and room.

    Of each kind and room in turn: a file, then a place in it, each as likely as any other.
    """
    text = Path(__file__).with_name("mutants.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return [
        Mutant(room, kind, file, line, int(nth), int(at), old, new, killer)
        for room, kind, file, line, nth, at, old, new, killer in rows
    ]
