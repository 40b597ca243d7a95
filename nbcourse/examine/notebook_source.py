"""A function that stands in a notebook, with what it names, and without the cells that train."""

import ast
import symtable
from collections.abc import Iterator
from pathlib import Path

from nbcourse import notebooks
from nbcourse.errors import UserError, did_you_mean


def source(file: Path, name: str) -> str:
    """A program that defines a function of a notebook.

    Of the notebook's statements it has the function and what it names, directly or not: imports,
    functions, classes, and names of constants. The last definition of a name counts.

    Raises:
        FileNotFoundError: if there is no such notebook.
        ValueError: if it is damaged or defines no such function, or if a name that is needed is
            computed in a cell.
    """
    defined: dict[str, ast.stmt] = {}
    for node in _statements(file):
        defined |= dict.fromkeys(_bound(node), node)
    functions = [key for key, node in defined.items() if isinstance(node, ast.FunctionDef)]
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
        if _computed(node):
            raise UserError(
                f"{name} of {file} uses {one!r}, which a cell computes, and cells are not run: "
                f"make it an argument, and say --given {one}=VALUE"
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


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement gives something."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return [
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
    return []


def _computed(node: ast.stmt) -> bool:
    """Whether a statement gives a name something that is not written there."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    try:
        ast.literal_eval(node.value) if node.value else None
    except ValueError:
        return True
    return isinstance(node, ast.AugAssign)


def _globals(table: symtable.SymbolTable) -> set[str]:
    """The names that a program takes from outside its functions."""
    outer = table.get_type() == "module"
    found = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if (symbol.is_referenced() if outer else symbol.is_global())
    }
    return found.union(*map(_globals, table.get_children()))
