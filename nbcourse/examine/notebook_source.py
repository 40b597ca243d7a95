"""A function that stands in a notebook, with what it names, and without the cells that train."""

import ast
import symtable
from collections.abc import Iterator
from pathlib import Path

from nbcourse import notebooks
from nbcourse.errors import UserError, did_you_mean


def source(file: Path, name: str) -> str:
    """A program that defines a function of a notebook, or a class.

    Of the notebook's statements it has the function and what it names, directly or not: imports,
    functions, classes, and names of constants, of what operators make of them, and of objects of
    the notebook's own classes. The last definition of a name counts.

    Raises:
        FileNotFoundError: if there is no such notebook.
        ValueError: if it is damaged or defines no such function, or if a name that is needed is
            computed in a cell.
    """
    defined: dict[str, ast.stmt] = {}
    for node in _statements(file):
        defined |= dict.fromkeys(notebooks.bound(node), node)
    kinds = {key for key, node in defined.items() if isinstance(node, ast.ClassDef)}
    functions = [key for key, one in defined.items() if isinstance(one, ast.FunctionDef)]
    functions += kinds
    if name not in functions:
        raise UserError(
            f"{file} defines no function {name!r}; it defines {', '.join(functions) or 'none'}"
            f"{did_you_mean(name, functions)}"
        )
    wanted, needed = [name], dict[str, ast.stmt]()
    while wanted:
        one = wanted.pop()
        if one in needed or one not in defined:
            continue
        needed[one] = node = defined[one]
        if _computed(node, kinds):
            raise UserError(
                f"{name} of {file} uses {one!r}, which a cell computes, and cells are not run: "
                f"make it an argument, and say --given {one}=VALUE (or {one}.FIELD=VALUE)"
            )
        wanted += _globals(symtable.symtable(ast.unparse(node), str(file), "exec"))
    chosen = {id(node): node for node in needed.values()}
    order = [node for node in dict.fromkeys(defined.values()) if id(node) in chosen]
    return "\n\n".join(map(ast.unparse, order))


def _statements(file: Path) -> Iterator[ast.stmt]:
    """The statements of all cells that are Python, without commands to the notebook."""
    for cell in notebooks.cells(file):
        lines = notebooks.code(cell).splitlines()
        plain = "\n".join("" if line.lstrip()[:1] in ("%", "!", "?") else line for line in lines)
        try:
            program = ast.parse(plain)
        except SyntaxError:
            continue
        for part in ast.walk(program):  # annotations may name what is not installed
            if isinstance(part, ast.arg):
                part.annotation = None
            elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                part.returns = None
        yield from program.body


WRITTEN = (
    *(ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop, ast.keyword),
    *(ast.Tuple, ast.List, ast.Dict, ast.Set, ast.expr_context),
)


def _computed(node: ast.stmt, kinds: set[str]) -> bool:
    """Whether a statement gives a name something that is not written there.

    An object of one of the notebook's own classes is.
    """
    if isinstance(node, ast.AugAssign):
        return True
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    return not _written(node.value, kinds)


def _written(node: ast.AST, kinds: set[str]) -> bool:
    """Whether an expression stands there with all that it is made of."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) in kinds:
        return all(_written(part, kinds) for part in (*node.args, *node.keywords))
    parts = ast.iter_child_nodes(node)
    return isinstance(node, WRITTEN) and all(_written(part, kinds) for part in parts)


def _globals(table: symtable.SymbolTable) -> set[str]:
    """The names that a program takes from outside its functions."""
    outer = table.get_type() == "module"
    found = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if (symbol.is_referenced() if outer else symbol.is_global())
    }
    return found.union(*map(_globals, table.get_children()))
